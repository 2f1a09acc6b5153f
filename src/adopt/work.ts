import type { ObjectLiteral } from 'typeorm'
import type { TriggerWork } from '../registry/registry'
import { workDrift } from '../schema/readiness'
import { addLookup, type LookupIndex, type Query, type TableState } from '../sql/catalog'
import { qualified, quote } from '../sql/identifier'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import { notesOf } from '../triggers/plan'
import { type AdoptionLock, type AdoptOptions, type AdoptStep, type PlannedStep, STEPS } from './options'
import { AdoptionError, type AdoptSession, type TableCommand, withTable } from './session'
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
import { againstOwn, type RefusedRows } from './refusals'

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
export const createLookup = (lookup: LookupIndex): string[] =>
  addLookup(lookup).up.map((sql) => sql.replace('CREATE INDEX', 'CREATE INDEX CONCURRENTLY'))

export const dropIndex = ({ table }: Site, name: string): string =>
  `DROP INDEX CONCURRENTLY IF EXISTS ${qualified(table.schema, name)}`

const filledName = (on: Site, column: number): string => nameOf(on, `filled_${column}`)

/** Clauses that drop the NOT NULL checks of so many columns, if they exist. */
export const dropFilled = (on: Site, columns: number): string[] =>
  Array.from({ length: columns }, (_, index) => `DROP CONSTRAINT IF EXISTS ${quote(filledName(on, index))}`)

/** A check that is validated together with the NOT NULL checks of columns. */
export interface Check {
  readonly name: string
  /** The clause that adds the check; undefined if it exists already. */
  readonly clause: string | undefined
}

/** Adds checks for rows that are written from now on. One statement locks the table once. */
const addChecks = (on: Site, required: readonly string[], check?: Check): string[] =>
  alterTable(on, [
    ...required.flatMap((name, index) => [
      `DROP CONSTRAINT IF EXISTS ${quote(filledName(on, index))}`,
      `ADD CONSTRAINT ${quote(filledName(on, index))} CHECK (${quote(name)} IS NOT NULL) NOT VALID`,
    ]),
    ...(check?.clause === undefined ? [] : [check.clause]),
  ])

/** Validates the checks. The server reads the table once, while others read and write. */
const validateChecks = (on: Site, required: readonly string[], check?: Check): string[] =>
  alterTable(
    on,
    [...required.map((_, index) => filledName(on, index)), ...(check ? [check.name] : [])].map(
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

/** The state of an adoption, as the database stores it. Each kind adds its own members. */
export interface WorkState {
  readonly step: AdoptStep
  /** The declared rules. An adoption with other rules cannot continue. */
  readonly rules: string
}

/**
 * The order for names and numbers, which have a value in every row before they are NOT NULL. The step `number` does
 * nothing for them. It is included so that `--until number` has a place.
 */
export const GUARD_FIRST: readonly AdoptStep[] = ['begin', 'fill', 'number', 'index', 'guard', 'check', 'clean', 'done']

/** The numbers of rows that were written, normalized and numbered. */
interface AdoptCounts {
  filled: number
  normalized: number
  numbered: number
}

/** One run of a command that adopts a text, names or a number. */
export interface WorkRun {
  readonly session: AdoptSession
  readonly options: AdoptOptions
  readonly counts: AdoptCounts
}

/** The steps of an adoption. Each can be repeated from its start, and returns the next one, which its kind must have. */
type Steps = Readonly<Partial<Record<AdoptStep, (run: WorkRun) => Promise<AdoptStep>>>>

/** A text, names or a number, and the table to adopt, as it was when the step began. */
export interface Work extends Steps {
  readonly kind: 'text' | 'names' | 'number'
  readonly on: Adopting
  readonly facts: AdoptionFacts
  /** undefined if no adoption has begun. */
  readonly stored: WorkState | undefined
  /** Its name in messages: `"number" of Comment`. */
  readonly said: string
  readonly rules: string
  /** @default STEPS */
  readonly order?: readonly AdoptStep[]
  /**
   * `none`: no objects of another declaration exist. `adopting`: the transitional triggers exist. `other`: objects
   * exist that only a migration can change. `ready`: they are as declared, but rows may lack values (`lacks`).
   */
  readonly stands: 'none' | 'adopting' | 'other' | 'ready'
  /** How the command writes rows: without the table's own triggers, or only with them, because ours must run too. */
  readonly writes: 'nothing' | 'alone' | { readonly under: string }
  /** The written columns that an index or a constraint of the user may cover. @default [] */
  readonly writtenColumns?: readonly string[]
  /** The rows that an index or a constraint of the user may refuse. */
  readonly written: Pick<RefusedRows, 'what' | 'ours' | 'ofUnique'>
  /** Checks, if `ready`, whether rows have lost their names or numbers. If so, the steps are done once more. */
  lacks?(query: Query): Promise<boolean>
  /** Removes the objects that another command has left. */
  prepare?(session: AdoptSession): Promise<void>
  /** @throws AdoptionError if the steps cannot adopt the table */
  refuse(): void
  plan(): readonly PlannedStep[]
  /** Returns the statements that remove everything. @throws AdoptionError */
  dropAll(): readonly string[]
  /** Does the remaining work after that, without a lock. */
  afterDropping?(session: AdoptSession): Promise<void>
  /** Reads what the steps have found so far. */
  report?(session: AdoptSession, step: AdoptStep, unchanged: boolean): Promise<FoundRows>
}

/** Finds the table on a connection. */
export type FindWork = (query: Query) => Promise<Work>

type WorkCommand = TableCommand<Work> & { readonly options: AdoptOptions }

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
  readonly refused: readonly RefusedRow[]
  /** How many rows are refused. */
  readonly refusedTotal: number
  /** Rows that hold the same text; undefined before the index exists. */
  readonly duplicates: Duplicates | undefined
}

/** The result of `adopt`: its changes and its findings. */
export interface AdoptReport extends FoundRows {
  /** The kind that was adopted. Names are all names of the table. */
  readonly kind: Work['kind']
  /** The next step; `done` if the table is adopted. */
  readonly step: AdoptStep
  /** Whether there was nothing to do. */
  readonly unchanged: boolean
  /** The locks on the table, in their order. */
  readonly locks: readonly AdoptionLock[]
  /** How many rows the steps have written. */
  readonly counts: Readonly<AdoptCounts>
}

/** Begins or continues an adoption. @throws AdoptionError if a person has to decide */
export async function adoptWork(command: WorkCommand): Promise<AdoptReport> {
  const { find, options } = command
  return await withTable(command, async (session, work) => {
    const run: WorkRun = { session, options, counts: { filled: 0, normalized: 0, numbered: 0 } }
    await work.prepare?.(session)
    const unchanged = await isAdopted(work, session.query)
    if (!unchanged) await prepareSession(run, work)
    const { last, step } = await doSteps(run, work, unchanged ? 'done' : (work.stored?.step ?? 'begin'), find)
    const found = await last.report?.(session, step, unchanged)
    return {
      kind: work.kind,
      step,
      unchanged,
      locks: session.locks,
      counts: run.counts,
      ...(found ?? { refused: [], refusedTotal: 0, duplicates: undefined }),
    }
  })
}

/** Does one step after the other, and reads the table again before each. */
async function doSteps(run: WorkRun, begun: Work, first: AdoptStep, find: FindWork) {
  const { until } = run.options
  let [last, step] = [begun, first]
  while (step !== 'done') {
    const { on, written, order = STEPS } = last
    if (until !== undefined && order.indexOf(step) > order.indexOf(until)) break
    run.options.onProgress?.({ step, fraction: undefined, rows: 0 })
    const next = await last[step]?.(run).catch((error: unknown) => againstOwn(error, { on: on.table, ...written }))
    step = next ?? 'done'
    if (step !== 'done' || last.report) last = await find(run.session.query)
  }
  return { last, step }
}

/** Whether nothing is left to do. */
export const isAdopted = async (work: Work, query: Query): Promise<boolean> =>
  work.stands === 'ready' && work.stored === undefined && (await work.lacks?.(query)) !== true

/**
 * Keeps triggers of the user from firing.
 *
 * @throws AdoptionError if the steps cannot adopt the table, or would fire triggers of the user
 */
async function prepareSession({ session, options: { userTriggers } }: WorkRun, work: Work): Promise<void> {
  const { on, stored, said, stands } = work
  const relation = tableName(on.table)
  work.refuse()
  if (stored && stored.rules !== work.rules) {
    throw new AdoptionError(
      'changed',
      `The adoption of ${relation} began with another declaration of ${said}. ` +
        `Continue with that one, or remove it with abandon and begin again.`,
    )
  }
  if (!stored && (stands === 'adopting' || stands === 'other')) {
    throw new AdoptionError(
      'unsupported',
      `${relation} has something of ${said} that another declaration or release has made. ` +
        `Change it by a migration, or remove it with abandon and adopt the table again.`,
    )
  }
  await session.query(refuseWritten(on, ADOPTIONS))
  if (userTriggers !== 'fire') await keepTriggersOut(session, work)
}

/** Keeps the table's own triggers from firing in this session. @throws AdoptionError if that is not possible */
async function keepTriggersOut(session: AdoptSession, { on, facts, writes, writtenColumns }: Work): Promise<void> {
  const { updateTriggers, replicaTriggers, keyColumns } = facts
  if (updateTriggers.length === 0 || writes === 'nothing') return
  const key = writtenColumns?.find((name) => keyColumns.includes(name))
  let why: string | undefined
  if (writes !== 'alone') why = writes.under
  else if (replicaTriggers.length > 0) {
    why = `${replicaTriggers.join(', ')} would fire with session_replication_role = replica too`
  } else if (key !== undefined) {
    why = `${quote(key)} is in a foreign key, which is not looked at with session_replication_role = replica`
  } else if (!(await session.becomeReplica())) why = 'the role may not set session_replication_role'
  if (why === undefined) return
  throw new AdoptionError(
    'user-triggers',
    `${tableName(on.table)} has triggers on UPDATE (${updateTriggers.join(', ')}), which would fire for every row that ` +
      `is written, and they cannot be left out: ${why}. Let them fire with --user-triggers fire.`,
  )
}

/** Removes everything in one short transaction, also in the middle of an adoption. */
export async function abandonWork(command: WorkCommand): Promise<{ readonly locks: readonly AdoptionLock[] }> {
  return await withTable(command, async (session, work) => {
    const { on } = work
    const statements = work.dropAll()
    await session.make('abandon', createAdoptions(on))
    await finishWork(session, on, 'abandon', statements)
    await work.afterDropping?.(session)
    return { locks: session.locks }
  })
}

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

/**
 * Compares the triggers of names or of a number, and the indexes that they depend on, with the declared ones.
 *
 * @param required columns that should be NOT NULL but still allow NULL
 */
export function standsOf(found: TableState, work: TriggerWork, required: readonly string[]): Work['stands'] {
  const { kind, name } = work.set.note
  const note = notesOf(found).find((one) => one.kind === kind && one.name === name)
  if (!note) return 'none'
  if (note.adopting === true) return 'adopting'
  return workDrift([work], found).length === 0 && required.length === 0 ? 'ready' : 'other'
}

/** Records in the database that the work has begun. */
export async function beginState(
  { session }: WorkRun,
  { on, rules }: Pick<Work, 'on' | 'rules'>,
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

/** The key of a row that was read with the parts of its key as `k0`, …. */
export const keyInRow = (
  { primary }: Pick<Adopting, 'primary'>,
  row: Readonly<Record<string, string | null>>,
): string[] => primary.map((_, index) => row[`k${index}`] ?? '')

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
 * @param next the step that follows
 * @param mend called if a row violates a check; returns the step to do then
 * @param check another check that is added and validated with them
 */
export async function requireNotNull(
  { session }: WorkRun,
  on: Adopting,
  columns: readonly string[],
  next: AdoptStep,
  mend: () => Promise<AdoptStep>,
  check?: Check,
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
  if (statements.length === 0) return await goOn(session, on, next)
  return await session.locked({ on, step: 'require', mode: 'ACCESS EXCLUSIVE' }, async () => {
    for (const statement of statements) await session.query(statement)
    return await goOn(session, on, next)
  })
}

/** Plans the work of `requireNotNull` in a step. */
export const planRequired = (
  on: Adopting,
  columns: readonly string[],
  step: AdoptStep = 'check',
  check?: Check,
): readonly PlannedStep[] => {
  const steps: readonly PlannedStep[] = [
    { step, lock: 'ACCESS EXCLUSIVE', statements: addChecks(on, columns, check) },
    { step, lock: undefined, statements: validateChecks(on, columns, check) },
    { step, lock: 'ACCESS EXCLUSIVE', statements: requireColumns(on, columns) },
  ]
  return steps.filter(({ statements }) => statements.length > 0)
}
