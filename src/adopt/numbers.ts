import { forgetState } from './sql/texts'
import {
  beginNumbers,
  countUnnumbered,
  createNumberIndex,
  endNumbers,
  findNumbered,
  finishNumbers,
  helpingIndexes,
  leaveNumbers,
  lockUnnumbered,
  type NumberedTable,
  numberLocked,
} from './sql/numbers'
import { analyzeTable, createAdoptions, vacuumTable } from './sql/table'
import { type Query, type TableState, tableState } from '../sql/catalog'
import { quote } from '../sql/identifier'
import { numberTriggers } from '../numbers/sql/triggers'
import { isBusyError, serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import { notesOf } from '../triggers/plan'
import { workDrift } from '../schema/readiness'
import type { NumberDeclaration } from '../registry/registry'
import { AdoptionError, BatchSize, Later } from './session'
import { beginState, goOn, keyOf, makeIndex, planRequired, requireNotNull, type Work, type WorkRun } from './work'
import type { AdoptStep, PlannedStep } from './texts'
import { findTable, refuseNullRows } from './target'

/** A number, and the table that it stands for on this connection. */
interface NumberTarget {
  readonly declaration: NumberDeclaration
  readonly on: NumberedTable
  readonly state: TableState
  /** Columns that are to be NOT NULL, and are not yet. */
  readonly required: readonly string[]
}

/**
 * @throws AdoptionError for a table that is not there, or that is none
 * @throws UnsupportedDatabaseError
 */
export async function findNumber(declaration: NumberDeclaration, query: Query): Promise<Work> {
  const { table, metadata, name } = declaration
  const { facts, state } = await findTable(query, {
    metadata,
    relation: tableName(table),
    sets: [numberTriggers(table)],
  })
  const primary = metadata.primaryColumns.map(({ databaseName }) => databaseName)
  const on: NumberedTable = {
    table: { schema: facts.schema, table: facts.table, guard: table.triggers },
    number: { ...table, schema: facts.schema },
    primary,
    types: primary.map((one) => state.columns.find((column) => column.name === one)?.declared ?? 'text'),
    owner: facts.owner,
  }
  const target: NumberTarget = { declaration, on, state, required: requiredNumbers(declaration, state) }
  const work: Work = {
    kind: 'number',
    on,
    facts,
    said: `"${name}" of ${metadata.name}`,
    rules: JSON.stringify([table.scope, table.number, table.type, table.count, table.deleted]),
    stands: numberStands(target),
    writes: 'alone',
    written: { what: 'a row with its number', ours: oursOf(on) },
    steps: {
      begin: async (run) => await begin(run, target, work),
      fill: async (run) => await fill(run, target),
      index: async (run) => await index(run, target),
      guard: async (run) => await guard(run, target),
      check: async (run) => await check(run, target),
      clean: async (run) => await clean(run, target),
    },
    lacks: async () => await Promise.resolve(false),
    plan: () => planNumber(target),
    leave: (found) => leaveNumbers(on, found?.made === true),
  }
  return work
}

/** Columns that are declared NOT NULL and are not so yet. */
const requiredNumbers = ({ table, scope }: NumberDeclaration, { columns }: TableState): string[] => {
  const declared = scope.filter(({ isNullable }) => !isNullable).map(({ databaseName }) => databaseName)
  return [table.number, ...declared].filter((name) => columns.find((one) => one.name === name)?.nullable !== false)
}

function numberStands({ declaration: { table, scope }, state, required }: NumberTarget): Work['stands'] {
  const columns = [...scope.map(({ databaseName }) => databaseName), table.number]
  const drift = workDrift([{ set: numberTriggers(table), indexes: [{ name: table.index, columns }] }], state)
  const note = notesOf(state).find(({ kind, name }) => kind === 'numbers' && name === table.name)
  if (note) return note.adopting === true ? 'adopting' : drift.length + required.length === 0 ? 'ready' : 'other'
  return 'none'
}

/** From its commit on a row that leaves its scope loses its number, and only rows that have one count. */
async function begin(run: WorkRun, target: NumberTarget, work: Work): Promise<AdoptStep> {
  const { session } = run
  const { on, state } = target
  const found = state.columns.find(({ name }) => name === on.number.number)
  if (found && found.type !== on.number.type) refuseColumn(work, `is of type ${found.type}`)
  if (found && on.number.count && (await holdsNumbers(run, on)))
    refuseColumn(work, 'holds numbers that nobody has counted')
  await refuseNullScopes(run, target)
  await beginState(run, work, !found)
  await session.locked({ on, step: 'begin', mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all(beginNumbers(on, found !== undefined))
    await goOn(run, on, { step: 'fill' })
  })
  return 'fill'
}

function refuseColumn({ on, said }: Work, why: string): void {
  throw new AdoptionError('unsupported', `The column of ${said} in ${tableName(on.table)} ${why}. Use a migration.`)
}

async function holdsNumbers({ session }: WorkRun, on: NumberedTable): Promise<boolean> {
  return (await session.query(findNumbered(on))).length > 0
}

async function refuseNullScopes({ session }: WorkRun, { on, declaration: { scope } }: NumberTarget): Promise<void> {
  const columns = scope.map(({ databaseName }) => databaseName)
  const said = { what: 'which is in the scope of a number, ', todo: 'Give them a value or delete them.' }
  await refuseNullRows(session.query, on, columns, said)
}

const stateNow = async ({ session }: WorkRun, { on }: NumberTarget): Promise<TableState | null> =>
  (await tableState(session.query, tableName(on.table), [numberTriggers(on.number)])).table

const hasValidIndex = (state: TableState | null, name: string): boolean =>
  state?.indexes.some((one) => one.name === name && one.valid) === true

/** Numbers rows in key order, batch by batch, until none is left that nobody has locked. */
async function fill(run: WorkRun, target: NumberTarget): Promise<AdoptStep> {
  const { on } = target
  const state = await stateNow(run, target)
  for (const { name, create } of helpingIndexes(on)) {
    await makeIndex(run, on, { name, create, stands: hasValidIndex(state, name) }).catch((error: unknown) => {
      refuseTwice(error, target)
    })
  }
  await numberRest(run, target, 'fill')
  await run.session.query(vacuumTable(on))
  await run.session.query(analyzeTable(on))
  return await goOn(run, on, { step: 'index' })
}

function refuseTwice(error: unknown, { on }: NumberTarget): void {
  if (serverError(error)?.code !== SQLSTATE.uniqueViolation) throw error
  throw new AdoptionError(
    'unsupported',
    `Rows of ${tableName(on.table)} have one number in ${quote(on.number.number)} twice. ` +
      `typeorm-unique-text doctor names them: give one of each another number, or NULL.`,
    error,
  )
}

/** A commit costs more than a few rows. */
const LEAST_ROWS = 50
const FIRST_ROWS = 500
/** So many rows may be left when the last lock is asked for. */
const LAST_ROWS = 200

/** Once over all rows that have no number. @returns how many rows are left, of which at most so many are counted */
async function numberRest(run: WorkRun, { on }: NumberTarget, step: 'fill' | 'guard'): Promise<number> {
  const { session, counts } = run
  const [size, before] = [new BatchSize(session.manners.batch, LEAST_ROWS, FIRST_ROWS, LEAST_ROWS), counts.filled]
  const total = await unnumbered(run, on, 10_000_000)
  for (let [after, attempts]: [readonly string[], number] = [[], 0]; ;) {
    const [started, limit] = [performance.now(), size.value]
    const { spots, done } = await tryBatch(run, on, { after, limit, attempts })
    attempts = done ? 0 : attempts + 1
    if (done || attempts >= PATIENCE) after = spots.slice(-1).flatMap((last) => keyOf(on, last))
    if (!done) {
      await session.rest(attempts)
      continue
    }
    counts.filled += spots.length
    run.onProgress({ step, fraction: (counts.filled - before) / Math.max(total, 1), rows: counts.filled })
    // Rows that come meanwhile wait for the next round, or it would follow its clients for ever.
    if (spots.length < limit || counts.filled - before >= total) return await unnumbered(run, on, LAST_ROWS + 1)
    size.took(performance.now() - started, spots.length)
    await session.breathe()
  }
}

/** How many rows have no number, of which at most so many are counted. */
async function unnumbered({ session }: WorkRun, on: NumberedTable, limit: number): Promise<number> {
  const [row] = await session.query<{ rows: string }>(countUnnumbered(on, limit))
  return Number(row?.rows ?? 0)
}

/** After so many attempts other rows come first. */
const PATIENCE = 3

const oursOf = (on: NumberedTable): string[] => [on.number.index, ...helpingIndexes(on).map(({ name }) => name)]

/**
 * Somebody has the count of a scope locked, or has given a number by hand. A unique index of the user's may refuse that
 * number before ours does, and one over other columns refuses it each time.
 */
function mends(error: unknown, on: NumberedTable, attempts: number): boolean {
  const { code, constraint = '' } = serverError(error) ?? {}
  if (code !== SQLSTATE.uniqueViolation) return isBusyError(error)
  return attempts < PATIENCE || oursOf(on).includes(constraint)
}

type Spot = Readonly<Record<string, string>>

interface NumberBatch {
  readonly after: readonly string[]
  readonly limit: number
  /** How many have failed before, one after the other. */
  readonly attempts: number
}

/** @returns the rows; it is not done where somebody else stands in the way */
async function tryBatch(
  run: WorkRun,
  on: NumberedTable,
  batch: NumberBatch,
): Promise<{ readonly spots: readonly Spot[]; readonly done: boolean }> {
  let spots: readonly Spot[] = []
  try {
    await run.session.together(async () => {
      spots = await run.session.query<Spot>(lockUnnumbered(on, batch.limit, batch.after.length > 0), [...batch.after])
      await numberSpots(run, on, spots)
    })
    return { spots, done: true }
  } catch (error) {
    if (!mends(error, on, batch.attempts)) throw error
    return { spots, done: false }
  }
}

/** A statement of its own: it sees what the rows are that an earlier one has locked. */
async function numberSpots({ session }: WorkRun, on: NumberedTable, spots: readonly Spot[]): Promise<void> {
  if (spots.length > 0) await session.query(numberLocked(on), [spots.map(({ spot }) => spot)])
}

async function index(run: WorkRun, target: NumberTarget): Promise<AdoptStep> {
  const { on } = target
  run.onProgress({ step: 'index', fraction: undefined, rows: 0 })
  const stands = hasValidIndex(await stateNow(run, target), on.number.index)
  await makeIndex(run, on, { name: on.number.index, create: createNumberIndex(on), stands })
  return await goOn(run, on, { step: 'guard' })
}

const LOCKED = 'Somebody has rows locked that have no number.'

/** @returns how many rows got one; others have the rest locked, or it has to be done again */
async function numberUnderLock(run: WorkRun, on: NumberedTable): Promise<number> {
  const spots = await run.session.query<Spot>(lockUnnumbered(on, LAST_ROWS * 10, false))
  await numberSpots(run, on, spots)
  return spots.length
}

/** From the commit of its transaction on every row gets its number when it is written. */
async function guard(run: WorkRun, target: NumberTarget): Promise<AdoptStep> {
  const { session } = run
  const { on } = target
  const prepare = async (): Promise<void> => {
    for (let rounds = 1; (await numberRest(run, target, 'guard')) > LAST_ROWS; rounds += 1) await session.rest(rounds)
  }
  const lock = { on, step: 'guard', mode: 'SHARE ROW EXCLUSIVE', prepare } as const
  const last = await session.locked(lock, async (inTime) => {
    const left = await unnumbered(run, on, LAST_ROWS * 10 + 1)
    const numbered = await numberUnderLock(run, on)
    if (numbered < left) throw new Later(LOCKED)
    inTime()
    await session.all(finishNumbers(on))
    await goOn(run, on, { step: 'check' })
    return numbered
  })
  run.counts.filled += last
  return 'check'
}

async function check(run: WorkRun, target: NumberTarget): Promise<AdoptStep> {
  const state = await stateNow(run, target)
  const required = state ? requiredNumbers(target.declaration, state) : []
  return await requireNotNull(run, target.on, required, async () => await mend(run, target))
}

/**
 * Rows were written past the triggers. Their scopes take no other row until they have numbers: to a trigger, NULL is the
 * highest.
 */
async function mend(run: WorkRun, target: NumberTarget): Promise<void> {
  const { on } = target
  await refuseNullScopes(run, target)
  while ((await unnumbered(run, on, 1)) > 0) {
    const mended = await run.session.locked({ on, step: 'check', mode: 'SHARE ROW EXCLUSIVE' }, async () => {
      const numbered = await numberUnderLock(run, on)
      if (numbered === 0 && (await unnumbered(run, on, 1)) > 0) throw new Later(LOCKED)
      return numbered
    })
    run.counts.filled += mended
  }
}

async function clean(run: WorkRun, { on }: NumberTarget): Promise<AdoptStep> {
  const { session } = run
  await session.locked({ on, step: 'clean', mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all(endNumbers(on))
    await session.query(forgetState(on), [on.table.guard])
  })
  await session.query(analyzeTable(on))
  return 'done'
}

function planNumber({ on, state, required }: NumberTarget): PlannedStep[] {
  const hasColumn = state.columns.some(({ name }) => name === on.number.number)
  const ruled = hasColumn ? [...new Set([on.number.number, ...required])] : required
  return [
    { step: 'begin', lock: undefined, statements: createAdoptions(on) },
    { step: 'begin', lock: 'ACCESS EXCLUSIVE', statements: beginNumbers(on, hasColumn) },
    { step: 'fill', lock: undefined, statements: helpingIndexes(on).map(({ create }) => create) },
    {
      step: 'fill',
      lock: undefined,
      statements: [lockUnnumbered(on, FIRST_ROWS, true), numberLocked(on), vacuumTable(on), analyzeTable(on)],
    },
    { step: 'index', lock: undefined, statements: [createNumberIndex(on)] },
    { step: 'guard', lock: 'SHARE ROW EXCLUSIVE', statements: finishNumbers(on) },
    ...planRequired(on, ruled),
    { step: 'clean', lock: 'ACCESS EXCLUSIVE', statements: endNumbers(on) },
    { step: 'clean', lock: undefined, statements: [analyzeTable(on)] },
  ]
}
