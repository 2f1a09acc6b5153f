import type { ObjectLiteral } from 'typeorm'
import { addLookup, type LookupIndex, type Query } from '../sql/catalog'
import { qualified, quote } from '../sql/identifier'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import type { AdoptionLock, AdoptOptions, AdoptStep, PlannedStep } from './options'
import { AdoptionError, type AdoptSession } from './session'
import {
  type Adopting,
  type AdoptionFacts,
  ADOPTIONS,
  alterTable,
  FIND_KEPT,
  nameOf,
  ownAlone,
  refusePlanted,
  refuseWritten,
  type Site,
} from './table'

/** The adoptions of the table's schema, as SQL. */
export const adoptions = ({ table }: Site): string => qualified(table.schema, ADOPTIONS)

/** Makes the table in which adoptions of the schema store their states. */
export const createAdoptions = (on: Adopting): string[] => [
  refuseWritten(on, ADOPTIONS),
  `CREATE TABLE IF NOT EXISTS ${adoptions(on)} (guard pg_catalog.text PRIMARY KEY, state pg_catalog.jsonb NOT NULL)`,
  refusePlanted(on, ADOPTIONS),
  ...ownAlone(on, [adoptions(on)], 'readable'),
]

export const forgetState = (on: Site): string =>
  `DELETE FROM ${adoptions(on)} AS a WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text`

/** Creates an index that finds texts by their hashes, and its comment. */
export const createLookup = (lookup: LookupIndex): readonly string[] => addLookup(lookup, 'CONCURRENTLY ').up

export const dropIndex = ({ table }: Site, name: string): string =>
  `DROP INDEX CONCURRENTLY IF EXISTS ${qualified(table.schema, name)}`

const filledName = (on: Site, column: number): string => nameOf(on, `filled_${column}`)

/** Clauses that drop the NOT NULL checks of so many columns, if they exist. */
export const dropFilled = (on: Site, columns: number): string[] =>
  Array.from({ length: columns }, (_, index) => `DROP CONSTRAINT IF EXISTS ${quote(filledName(on, index))}`)

/** The table's own check, which is validated together with the NOT NULL checks of columns. */
export interface Check {
  readonly name: string
  /** The clause that adds the check; undefined if it exists already. */
  readonly clause: string | undefined
}

/** Adds checks for rows that are written from now on. One statement locks the table once. */
const addChecks = (on: Site, required: readonly string[], check: Check): string[] =>
  alterTable(on, [
    ...required.flatMap((name, index) => [
      `DROP CONSTRAINT IF EXISTS ${quote(filledName(on, index))}`,
      `ADD CONSTRAINT ${quote(filledName(on, index))} CHECK (${quote(name)} IS NOT NULL) NOT VALID`,
    ]),
    ...(check.clause === undefined ? [] : [check.clause]),
  ])

/** Validates the checks. The server reads the table once, while others read and write. */
const validateChecks = (on: Site, required: readonly string[], check: Check): string[] =>
  alterTable(
    on,
    [...required.map((_, index) => filledName(on, index)), check.name].map(
      (name) => `VALIDATE CONSTRAINT ${quote(name)}`,
    ),
  )

/** Makes columns NOT NULL. The valid checks prove it, so that the server does not read the rows again. */
const requireColumns = (on: Site, required: readonly string[]): string[] => [
  // In one statement, the check would be dropped before the server uses it as a proof.
  ...alterTable(
    on,
    required.map((name) => `ALTER COLUMN ${quote(name)} SET NOT NULL`),
  ),
  ...alterTable(on, dropFilled(on, required.length)),
]

/** The state of an adoption, as the database stores it. */
export interface WorkState {
  readonly step: AdoptStep
  /** The declared rules. An adoption with other rules cannot continue. */
  readonly rules: string
}

/** The numbers of rows that were written, normalized and numbered. */
interface AdoptCounts {
  filled: number
  normalized: number
  numbered: number
}

/** One run of `adopt`. */
export interface WorkRun {
  readonly session: AdoptSession
  readonly options: AdoptOptions
  readonly counts: AdoptCounts
}

/** A row whose text is refused. */
export interface RefusedRow {
  /** Its primary key, by the columns' names in the database; a number that JavaScript would round is a string. */
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
export const wouldFire = (on: Adopting, { updateTriggers }: AdoptionFacts, why: string): AdoptionError =>
  new AdoptionError(
    'user-triggers',
    `${tableName(on.table)} has triggers on UPDATE (${updateTriggers.join(', ')}), which would fire for every row ` +
      `that is written, and they cannot be left out: ${why}. Let them fire with --user-triggers fire.`,
  )

/** Runs the last statements of a command, and deletes its stored state, under one lock. */
export async function finishWork(
  session: AdoptSession,
  on: Adopting,
  step: AdoptStep | 'abandon',
  statements: readonly string[],
): Promise<void> {
  await session.locked({ on, step, mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all(statements)
    await session.query(forgetState(on), [on.table.guard])
  })
}

/**
 * Reads the state of an adoption.
 *
 * @returns undefined if none has begun, or the role may not read it
 */
export async function storedState<State extends WorkState>(
  query: Query,
  { table }: Pick<Adopting, 'table'>,
): Promise<State | undefined> {
  const [kept] = (await query(FIND_KEPT, [tableName(table), ADOPTIONS])) as readonly { kept: boolean }[]
  if (kept?.kept !== true) return undefined
  try {
    const [row] = (await query(
      `SELECT a.state::pg_catalog.text AS state FROM ${qualified(table.schema, ADOPTIONS)} AS a WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text`,
      [table.guard],
    )) as readonly { state: string }[]
    return row && (JSON.parse(row.state) as State)
  } catch (error) {
    if (serverError(error)?.code === SQLSTATE.insufficientPrivilege) return undefined
    throw error
  }
}

/** Records in the database that the work has begun. */
export async function beginState(
  { session }: WorkRun,
  { on, rules }: { readonly on: Adopting; readonly rules: string },
  more: object,
): Promise<void> {
  await session.make('begin', createAdoptions(on))
  await goOn(session, on, 'begin', { rules, ...more })
}

/** Stores the next step in the database. */
export async function goOn(
  session: AdoptSession,
  on: Adopting,
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

/** Makes an index while others write, and replaces an invalid one that an earlier run has left. */
export async function makeIndex(session: AdoptSession, on: Adopting, name: string, create: string): Promise<void> {
  for (;;) {
    await session.query(dropIndex(on, name))
    try {
      await session.query(create)
      return
    } catch (error) {
      // The deadlock is with another index that is made at the same time.
      if (serverError(error)?.code !== SQLSTATE.deadlockDetected) throw error
    }
  }
}

/** Makes an index that finds texts by their hashes, with its comment. */
export async function makeLookup(session: AdoptSession, on: Adopting, lookup: LookupIndex): Promise<void> {
  const [create = '', comment = ''] = createLookup(lookup)
  await makeIndex(session, on, lookup.name, create)
  await session.query(comment)
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

/**
 * Makes columns NOT NULL. It adds checks as NOT VALID, and validates them in one scan that blocks nobody.
 *
 * @param mend called if a row violates a check; returns the step to do then
 * @param check the table's own check, which is added and validated with them
 */
export async function requireNotNull(
  { session }: WorkRun,
  on: Adopting,
  columns: readonly string[],
  mend: () => Promise<AdoptStep>,
  check: Check,
): Promise<AdoptStep> {
  const added = addChecks(on, columns, check)
  if (added.length > 0) {
    await session.locked({ on, step: 'check', mode: 'ACCESS EXCLUSIVE' }, async () => await session.all(added))
  }
  try {
    await session.all(validateChecks(on, columns, check))
  } catch (error) {
    if (serverError(error)?.code !== SQLSTATE.checkViolation) throw error
    return await mend()
  }
  const statements = requireColumns(on, columns)
  if (statements.length === 0) return await goOn(session, on, 'guard')
  return await session.locked({ on, step: 'require', mode: 'ACCESS EXCLUSIVE' }, async () => {
    for (const statement of statements) await session.query(statement)
    return await goOn(session, on, 'guard')
  })
}

/** Plans the work of `requireNotNull`. */
export const planRequired = (on: Adopting, columns: readonly string[], check: Check): readonly PlannedStep[] => {
  const steps: readonly PlannedStep[] = [
    { step: 'check', lock: 'ACCESS EXCLUSIVE', statements: addChecks(on, columns, check) },
    { step: 'check', lock: undefined, statements: validateChecks(on, columns, check) },
    { step: 'check', lock: 'ACCESS EXCLUSIVE', statements: requireColumns(on, columns) },
  ]
  return steps.filter(({ statements }) => statements.length > 0)
}
