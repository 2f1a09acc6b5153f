import type { ObjectLiteral } from 'typeorm'
import type { Query } from '../sql/catalog'
import { qualified, quote } from '../sql/identifier'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName, textRules } from '../sql/text-table'
import type { AdoptionLock, AdoptOptions, AdoptStep } from './options'
import type { Wanted } from './pages'
import { AdoptionError, type AdoptSession } from './session'
import { type AdoptedTable, ADOPTIONS, FIND_KEPT, ownAlone, refusePlanted, refuseWritten } from './table'
import type { Target } from './target'

/** The adoptions of the table's schema, as SQL. */
export const adoptions = ({ table }: AdoptedTable): string => qualified(table.schema, ADOPTIONS)

/** Makes the table in which adoptions of the schema store their states. */
export const createAdoptions = (on: AdoptedTable): string[] => [
  refuseWritten(on, ADOPTIONS),
  `CREATE TABLE IF NOT EXISTS ${adoptions(on)} (guard pg_catalog.text PRIMARY KEY, state pg_catalog.jsonb NOT NULL)`,
  refusePlanted(on, ADOPTIONS),
  ...ownAlone(on, [adoptions(on)], 'readable'),
]

export async function forgetState({ query }: AdoptSession, on: AdoptedTable): Promise<void> {
  await query(`DELETE FROM ${adoptions(on)} AS a WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text`, [
    on.table.guard,
  ])
}

/** The state of an adoption, as the database stores it. */
export interface AdoptionState {
  readonly step: AdoptStep
  /** See `rulesOf`. */
  readonly rules: string
  readonly wanted: Wanted
  readonly page: number
  readonly pages: number | null
  /** Whether a guard exists and rows are normalized under it. @default false */
  readonly renormalizes?: boolean
}

/** The numbers of rows that were written, normalized and numbered. */
interface AdoptCounts {
  filled: number
  normalized: number
  numbered: number
}

/** One run of `adopt`, with what the table is before the current step. */
export interface AdoptRun {
  readonly session: AdoptSession
  readonly options: AdoptOptions
  readonly counts: AdoptCounts
  readonly target: Target
}

/** A row whose text is refused. */
export interface RefusedRow {
  /** Its primary key, by the columns' names in the database; a number of more than 15 characters is a string. */
  readonly key: ObjectLiteral
  /** Why the normalizer refused the text. */
  readonly reason: string
}

/** Rows with equal texts. */
export interface Duplicates {
  /** How many texts have several rows. */
  readonly groups: number
  /** The number of rows to remove so that each text exists once. */
  readonly surplus: number
  /** How many rows the largest group has. */
  readonly largest: number
  /** Primary keys of the first ten groups, the oldest row of each first. */
  readonly first: readonly (readonly ObjectLiteral[])[]
}

export interface FoundRows {
  /** The first ten refused rows. */
  readonly rejected: readonly RefusedRow[]
  /** How many rows are refused. */
  readonly rejectedTotal: number
  /** Rows that hold the same text; undefined before the index exists. */
  readonly duplicates: Duplicates | undefined
}

/** The result of `adopt`: its changes and its findings. */
export interface AdoptReport extends FoundRows {
  /** The next step; `done` if the table is adopted. */
  readonly step: AdoptStep
  /** Whether there was nothing to do. */
  readonly unchanged: boolean
  /** The locks on the table, in their order. */
  readonly locks: readonly AdoptionLock[]
  /** How many rows the steps have written. */
  readonly counts: Readonly<AdoptCounts>
}

/** An error that says why the steps would fire triggers of the user. */
export const wouldFire = ({ table, facts }: Target, why: string): AdoptionError =>
  new AdoptionError(
    'user-triggers',
    `${tableName(table)} has triggers on UPDATE (${facts.updateTriggers.join(', ')}), which would fire for every row ` +
      `that is written, and they cannot be left out: ${why}. Let them fire with --user-triggers fire.`,
  )

/** Runs the last statements of a command, and deletes its stored state, under one lock. */
export async function finishWork(
  session: AdoptSession,
  on: AdoptedTable,
  step: AdoptStep | 'abandon',
  statements: readonly string[],
): Promise<void> {
  await session.locked({ on, step, mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all(statements)
    await forgetState(session, on)
  })
}

/**
 * Reads the state of an adoption.
 *
 * @returns undefined if none has begun, or the role may not read it
 */
export async function storedState(query: Query, on: AdoptedTable): Promise<AdoptionState | undefined> {
  const [kept] = (await query(FIND_KEPT, [adoptions(on), quote(on.owner)])) as readonly { kept: boolean }[]
  if (kept?.kept !== true) return undefined
  try {
    const [row] = (await query(
      `SELECT a.state::pg_catalog.text AS state FROM ${adoptions(on)} AS a WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text`,
      [on.table.guard],
    )) as readonly { state: string }[]
    return row && (JSON.parse(row.state) as AdoptionState)
  } catch (error) {
    if (serverError(error)?.code === SQLSTATE.insufficientPrivilege) return undefined
    throw error
  }
}

/** What the stored rows depend on. An adoption that began with other rules cannot continue. */
export const rulesOf = ({ table }: AdoptedTable): string =>
  JSON.stringify([textRules(table, table.digest.name), table.deleted, table.normalizers])

/** Records in the database that the work has begun. */
export async function beginState(session: AdoptSession, on: AdoptedTable, more: object = {}): Promise<void> {
  await session.make('begin', createAdoptions(on))
  await goOn(session, on, 'begin', { rules: rulesOf(on), ...more })
}

/** Stores the next step in the database. */
export async function goOn(
  session: AdoptSession,
  on: AdoptedTable,
  step: AdoptStep,
  more: object = {},
): Promise<AdoptStep> {
  await session.query(
    `INSERT INTO ${adoptions(on)} AS a (guard, state) VALUES ($1::pg_catalog.text, $2::pg_catalog.jsonb)
ON CONFLICT (guard) DO UPDATE SET state = a.state OPERATOR(pg_catalog.||) excluded.state`,
    [on.table.guard, JSON.stringify({ step, ...more })],
  )
  return step
}

/**
 * Processes the rows of a table of work in the order of their places. Repeats until no other session has locked any.
 *
 * @param batch processes rows after a place; returns how many rows it saw, the last of them, and how many were locked
 */
export async function throughPlaces(
  session: AdoptSession,
  sizes: { readonly first: number; readonly least: number; readonly fewest?: number },
  batch: (last: string, limit: number) => Promise<{ seen: number; last: string; stuck: number }>,
): Promise<void> {
  let [last, stuck, rounds] = ['0', 0, 1]
  await session.atPace(sizes, async (limit) => {
    const done = await batch(last, limit)
    stuck += done.stuck
    last = done.last
    if (done.seen > 0) return { done: done.seen, more: true }
    if (stuck === 0) return { done: undefined, more: false }
    await session.rest(rounds)
    ;[last, stuck, rounds] = ['0', 0, rounds + 1]
    return { done: undefined, more: true }
  })
}
