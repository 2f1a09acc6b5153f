import { literal } from '../../src/sql/identifier'
import { firstLetter } from './guarded-table'

/** What a step is expected to give: rows, a command's tag, a SQLSTATE, or that the session waits. */
export type Expected = number | string

/** One value for each isolation level. */
export interface PerLevel<T> {
  readonly rc: T
  readonly rr: T
  readonly ser: T
}

export type SessionName = 'P' | 'Q' | 'R'

/** Where a statement can be stopped: before and after the guard's BEFORE trigger, before and after its AFTER trigger. */
export type Site = 'before' | 'placed' | 'written' | 'settled'

/** SQL with a short name for the reader, and what it gives when nothing is in its way. */
export interface Operation {
  readonly name: string
  readonly sql: string
  readonly usual: Expected
}

export interface Step {
  readonly session: SessionName
  readonly kind: 'runs' | 'meets' | 'stops' | 'goes' | 'ends'
  readonly operation?: Operation
  readonly site?: Site
  readonly expected: PerLevel<Expected>
}

/** Sessions, their steps in a forced order, and what must come out at each isolation level. */
export interface Interleaving {
  readonly name: string
  /** Rows before the first step, as in `rows`. */
  readonly given: string
  readonly steps: readonly Step[]
  /** Rows after the last step: `a1@0! a2@1` are two texts with their hash numbers, the first with the flag. */
  readonly rows: PerLevel<string>
}

/** Different outcomes at READ COMMITTED, REPEATABLE READ and SERIALIZABLE (as REPEATABLE READ where it is not given). */
export function at(rc: string, rr: string, ser?: string): PerLevel<string>
export function at(rc: Expected, rr: Expected, ser?: Expected): PerLevel<Expected>
export function at(rc: Expected, rr: Expected, ser = rr): PerLevel<Expected> {
  return { rc, rr, ser }
}

const everywhere = <T>(value: T | PerLevel<T>): PerLevel<T> =>
  typeof value === 'object' && value !== null && 'rc' in value ? value : { rc: value, rr: value, ser: value }

interface Actor {
  /** Sends a statement, which ends (as `expected`, or as usual) or waits. */
  (operation: Operation, expected?: Expected | PerLevel<Expected>): Step
  /** Sends a statement that Postgres ends, after a wait of its own choosing: a deadlock. */
  readonly meets: (operation: Operation, expected: Expected) => Step
  /** Sends a statement that is stopped in its midst. */
  readonly stops: (site: Site, operation: Operation) => Step
  /** Lets the stopped statement go on. */
  readonly goes: (expected: Expected | PerLevel<Expected>) => Step
  /** The waiting statement ends by itself. Where it did not wait, its outcome is given again. */
  readonly ends: (expected: Expected | PerLevel<Expected>) => Step
}

function actor(session: SessionName): Actor {
  return Object.assign(
    (operation: Operation, expected?: Expected | PerLevel<Expected>): Step => ({
      session,
      kind: 'runs',
      operation,
      expected: everywhere(expected ?? operation.usual),
    }),
    {
      meets: (operation: Operation, expected: Expected): Step => ({
        session,
        kind: 'meets',
        operation,
        expected: everywhere(expected),
      }),
      stops: (site: Site, operation: Operation): Step => ({
        session,
        kind: 'stops',
        operation,
        site,
        expected: everywhere<Expected>('waits'),
      }),
      goes: (expected: Expected | PerLevel<Expected>): Step => ({
        session,
        kind: 'goes',
        expected: everywhere(expected),
      }),
      ends: (expected: Expected | PerLevel<Expected>): Step => ({
        session,
        kind: 'ends',
        expected: everywhere(expected),
      }),
    },
  )
}

export const P = actor('P')
export const Q = actor('Q')
export const R = actor('R')

export function interleaving(
  name: string,
  {
    given,
    steps,
    rows,
  }: { readonly given: string; readonly steps: readonly Step[]; readonly rows: string | PerLevel<string> },
): Interleaving {
  return { name, given, steps, rows: everywhere(rows) }
}

/** Any SQL on the table `page` (tenant, url, title and the hidden columns). */
export const sql = (name: string, statement: string, usual: Expected = 1): Operation => ({
  name,
  sql: statement,
  usual,
})

export const begin = sql('begin', 'BEGIN', 'BEGIN')
export const commit = sql('commit', 'COMMIT', 'COMMIT')
export const rollback = sql('rollback', 'ROLLBACK', 'ROLLBACK')
export const savepoint = sql('savepoint', 'SAVEPOINT s', 'SAVEPOINT')
export const rollbackToSavepoint = sql('rollback to savepoint', 'ROLLBACK TO SAVEPOINT s', 'ROLLBACK')

/** `2/a1` is the text `a1` in tenant 2; without a number it is in tenant 1. */
function parse(text: string): { readonly tenant: string; readonly url: string; readonly hash: string } {
  const [first = '', second] = text.split('/')
  const url = second ?? first
  return { tenant: second === undefined ? '1' : first, url: literal(url), hash: literal(firstLetter.js(url)) }
}

/** An insert that sends hash and number 0, as find-or-create does: no trigger fires. */
export function fast(text: string, suffix = ''): Operation {
  const { tenant, url, hash } = parse(text)
  const columns = 'tenant, url, "urlHash", "urlHashNumber"'
  return sql(
    `fast insert of ${text}${suffix}`,
    `INSERT INTO page (${columns}) VALUES (${tenant}, ${url}, ${hash}, 0)${suffix}`,
  )
}

/** An insert without a hash: the guard finds the number. */
export function slow(text: string, suffix = ''): Operation {
  const { tenant, url } = parse(text)
  return sql(`slow insert of ${text}${suffix}`, `INSERT INTO page (tenant, url) VALUES (${tenant}, ${url})${suffix}`)
}

/** Rows as a dump or another partition has them, in this order: `a1@0!` is the anchor of a chain with others. */
export function copy(...rows: readonly string[]): Operation {
  const values = rows.map((row) => {
    const [, text = '', number = '0', flag] = /^(.+)@(\d+)(!?)$/u.exec(row) ?? []
    const { tenant, url, hash } = parse(text)
    return `(${tenant}, ${url}, ${hash}, ${number}, ${String(flag === '!')})`
  })
  const columns = 'tenant, url, "urlHash", "urlHashNumber", "urlHashChained"'
  return sql(`copy ${rows.join(', ')}`, `INSERT INTO page (${columns}) VALUES ${values.join(', ')}`, rows.length)
}

const NOTHING = ' ON CONFLICT DO NOTHING'
const UPDATE = ` ON CONFLICT (tenant, "urlHash", "urlHashNumber") DO UPDATE SET title = 'again'`

export const fastOrNothing = (text: string): Operation => fast(text, NOTHING)
export const slowOrNothing = (text: string): Operation => slow(text, NOTHING)
export const upsert = (text: string): Operation => slow(text, UPDATE)
/** As `repository.upsert` does it: the text is set to what was given. */
export const upsertText = (text: string): Operation => slow(text, `${UPDATE}, url = EXCLUDED.url`)
export const fastUpsertText = (text: string): Operation => fast(text, `${UPDATE}, url = EXCLUDED.url`)

const where = (text: string): string => {
  const { tenant, url, hash } = parse(text)
  return `tenant = ${tenant} AND "urlHash" = ${hash} AND url = ${url}`
}

export const find = (text: string, usual = 1): Operation =>
  sql(`find ${text}`, `SELECT id FROM page WHERE ${where(text)}`, usual)

export const remove = (text: string): Operation => sql(`delete ${text}`, `DELETE FROM page WHERE ${where(text)}`)

/** Changes the text, and the tenant where the two differ in it. */
export function change(from: string, to: string): Operation {
  const [before, after] = [parse(from), parse(to)]
  const tenant = before.tenant === after.tenant ? '' : `, tenant = ${after.tenant}`
  return sql(`change ${from} to ${to}`, `UPDATE page SET url = ${after.url}${tenant} WHERE ${where(from)}`)
}

/** On the table `softPage`, as TypeORM's `softDelete` does it. */
export const softDelete = (text: string): Operation =>
  sql(`soft delete ${text}`, `UPDATE page SET "deletedAt" = now() WHERE ${where(text)} AND "deletedAt" IS NULL`)

/** As TypeORM's `restore` does it, of all rows that hold the text. */
export const restore = (text: string): Operation =>
  sql(`restore ${text}`, `UPDATE page SET "deletedAt" = NULL WHERE ${where(text)} AND "deletedAt" IS NOT NULL`)

/** An update that the guard takes no part in. */
export const retitle = (text: string): Operation =>
  sql(`give ${text} a title`, `UPDATE page SET title = 'new' WHERE ${where(text)}`)
