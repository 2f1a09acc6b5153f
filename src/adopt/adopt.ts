import { type DataSource, type EntityTarget, type Migration, MigrationExecutor, type ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions, oneOf, RULE, type Rules } from '../options'
import {
  type Declaration,
  declarationsOf,
  isOrExtends,
  namesOfEntity,
  rootOf,
  tableNumbers,
} from '../registry/registry'
import { findDrift } from '../schema/readiness'
import { tableName } from '../sql/text-table'
import { guardOf } from '../triggers/guard'
import { findNames } from './names'
import { findNumber } from './numbers'
import { BATCH_RULES, LOCK_RULES, type LockOption, MILLISECONDS, parseRows, PROPERTY } from './options'
import {
  AdoptionError,
  type AdoptionLock,
  type AdoptSession,
  keepTriggersOut,
  lockOut,
  type OwnTriggers,
  ownTriggers,
  refuseTriggers,
  type Seams,
  withSession,
} from './session'
import { beside, endFollowing, type Swap, swapGuards } from './sql/swap'
import {
  addChecks,
  analyzeTable,
  createAdoptions,
  createIndex,
  disableTriggers,
  endAdoption,
  leave,
  type LockMode,
  requireColumns,
  vacuumTable,
  validateChecks,
} from './sql/table'
import {
  beginAdoption,
  createObjects,
  deleteRefused,
  fillPages,
  findChains,
  findDuplicates,
  forgetState,
  keepRefused,
  lockChains,
  numberChains,
  readRefused,
  refusedTexts,
  writeNumbers,
} from './sql/texts'
import { guardedAs, refuseTaken, renormalizeRows, targetOf } from './swap'
import { againstOwn, findDeclaration, findTarget, KEYS_NAMED, normalizeTexts, type Target } from './target'
import {
  type AdoptionState,
  type AdoptProgress,
  type AdoptStep,
  doStep,
  isPast,
  type PlannedStep,
  readTextsOf,
  rulesOf,
  type Run,
  stateOf,
  STEPS,
  stopFollowing,
} from './texts'
import { abandonWork, adoptWork, type FindWork, planWork } from './work'

/** Options of `adopt`. */
export interface AdoptOptions {
  /** The property of the unique text, of a name or of a number. @default the only text, else the names or the number */
  readonly property?: string | undefined
  /** The last step to do; the same call without this option continues. @default the whole adoption */
  readonly until?: AdoptStep | undefined
  /** How long a batch should last, in milliseconds: a client may wait this long for a row. @default 50 */
  readonly batchMilliseconds?: number
  /** A pause after each batch, in milliseconds. @default 0 */
  readonly pauseMilliseconds?: number
  /** Wait while a standby is further behind than this, in milliseconds. @default it does not look */
  readonly maxLagMilliseconds?: number | undefined
  /** How long to wait for a lock that stops readers or writers before the next attempt, in milliseconds. @default 50 */
  readonly lockMilliseconds?: number
  /** How long such a lock may be held, in milliseconds. @default 100 */
  readonly holdMilliseconds?: number
  /**
   * Let the table's own triggers fire for every row that is written, where the role may not switch them off for its
   * session.
   *
   * @default they must not
   */
  readonly userTriggers?: 'fire' | undefined
  /** What to do with rows whose texts the normalizer refuses. @default it stops before the guard and names them */
  readonly refused?: 'keep' | 'delete' | undefined
  /**
   * The name of the pending migration that would make what an adopted table has. It is marked as run at the end, as by
   * `migration:run --fake`. The name of its class, or the one that `typeorm migration:show` prints.
   */
  readonly fake?: string | undefined
  /** Once aborted, the adoption stops after the batch that is at the server. */
  readonly signal?: AbortSignal | undefined
  readonly onProgress?: (progress: AdoptProgress) => void
  readonly onNotice?: (notice: string) => void
}

/** A row whose text is refused. */
export interface RefusedRow {
  /** Its primary key, by the columns' names in the database; a number that JavaScript would round is a string. */
  readonly key: ObjectLiteral
  readonly reason: string
}

/** The result of `adopt`: what it did, and what it found. */
export interface AdoptReport {
  /** What was adopted; of names, all of the table. */
  readonly kind: 'text' | 'names' | 'number'
  /** The step that comes next; `done`: the table is adopted. */
  readonly step: AdoptStep
  /** There was nothing to do. */
  readonly unchanged: boolean
  readonly locks: readonly AdoptionLock[]
  readonly counts: Readonly<Run['counts']>
  /** The first ten refused rows. */
  readonly refused: readonly RefusedRow[]
  readonly refusedTotal: number
  /** Rows that hold the same text; undefined before the index is there. */
  readonly duplicates: Duplicates | undefined
}

export interface Duplicates {
  readonly groups: number
  /** Rows that would go if each text stood once. */
  readonly surplus: number
  readonly largest: number
  /** Primary keys of the first ten groups, the oldest row of each first. */
  readonly first: readonly (readonly ObjectLiteral[])[]
}

const ADOPT_RULES: Rules<AdoptOptions> = {
  ...LOCK_RULES,
  ...BATCH_RULES,
  holdMilliseconds: MILLISECONDS,
  until: oneOf(...STEPS),
  userTriggers: oneOf('fire'),
  refused: oneOf('keep', 'delete'),
  fake: RULE.name,
  onProgress: RULE.function,
}

/**
 * Brings a table with rows under the guard while the application runs. If it stops early, what it has done stays, and
 * the same call continues from there.
 *
 * @throws AdoptionError if a person has to decide; its `reason` says what
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function adopt(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: AdoptOptions = {},
): Promise<AdoptReport> {
  checkOptions('adopt()', options, ADOPT_RULES)
  return await adoptWith(dataSource, entity, options, {})
}

/** @param seams of tests */
export async function adoptWith(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: AdoptOptions,
  seams: Seams,
): Promise<AdoptReport> {
  const faked = options.fake === undefined ? undefined : await pendingMigration(dataSource, options.fake)
  const find = findWork(dataSource, entity, options.property)
  const report = find
    ? { ...NO_TEXT, ...(await adoptWork({ dataSource, find, options, seams })) }
    : await adoptText(
        { dataSource, declaration: findDeclaration(dataSource, entity, options.property), options, seams },
        options.onProgress ?? nothing,
      )
  if (faked && report.step === 'done') await new MigrationExecutor(dataSource).insertMigration(faked)
  return report
}

/** What only the adoption of a text finds. */
const NO_TEXT = { refused: [], refusedTotal: 0, duplicates: undefined } as const

async function adoptText(command: Command, onProgress: (progress: AdoptProgress) => void): Promise<AdoptReport> {
  return await withTarget(command, async (session, target) => {
    const run: Run = { session, target, onProgress, counts: { filled: 0, normalized: 0, numbered: 0 } }
    return await adoptOrNormalize(run, command.options)
  })
}

/** @throws DeclarationError where no migration of this name is pending */
async function pendingMigration(dataSource: DataSource, name: string): Promise<Migration> {
  const executor = new MigrationExecutor(dataSource)
  // This one creates the table of migrations if it is missing; the other calls only read it.
  await executor.showMigrations()
  const pending = await executor.getPendingMigrations()
  const found = pending.find((one) => one.name === name)
  if (found) return found
  const names = pending.map((one) => one.name).join(', ')
  throw new DeclarationError(`No migration "${name}" is pending. Pending ones: ${names || 'none'}.`)
}

const nothing = (): void => {}

/** The table that a command works on, and how. */
interface Command {
  readonly dataSource: DataSource
  readonly declaration: Declaration
  readonly options: Omit<AdoptOptions, 'onProgress'>
  readonly seams: Seams
}

/**
 * Works on a table by one connection, which no other command of ours may do meanwhile.
 *
 * @throws AdoptionError where another one does
 */
export async function withTarget<T>(
  { dataSource, declaration, options, seams }: Command,
  work: (session: AdoptSession, target: Target) => Promise<T>,
): Promise<T> {
  return await withSession(dataSource, options, seams, async (session) => {
    const { facts, on } = await findTarget(declaration, session.query)
    await lockOut(session, facts.oid, tableName(on.table))
    // Another command may have changed the table before that.
    return await work(session, await findTarget(declaration, session.query))
  })
}

const adoptedTriggers = ({ facts, on, normalizes }: Target, { userTriggers }: AdoptOptions): OwnTriggers =>
  ownTriggers(facts, tableName(on.table), {
    userTriggers,
    written: normalizes ? on.table.text.map(({ name }) => name) : [],
  })

/** If a guard stands with the same rules, rows are at most normalized anew. */
async function adoptOrNormalize(run: Run, options: AdoptOptions): Promise<AdoptReport> {
  const { session, target } = run
  await stopFollowing(session, target)
  const [state, guarded] = [await stateOf(run), guardedAs(target)]
  const begun = state !== undefined && (state.step as string) !== 'renormalize'
  if (begun || guarded !== 'renormalized' || findDrift(target.declaration.table, target.state).length === 0) {
    const found = targetOf(target, state !== undefined)
    await keepTriggersOut(session, adoptedTriggers(found, options))
    return await runSteps({ ...run, target: found }, options)
  }
  if (state) refuseOther(target, state)
  refuseTriggers(adoptedTriggers(target, options), 'the guard has to run')
  const done = await renormalizeRows(run, state, async () => {
    const stops = isPast('guard', options.until)
    if (!stops) await refuseListed(run, options)
    return stops
  })
  return await reportOf(run, done ? 'done' : 'guard', false)
}

async function runSteps(begun: Run, options: AdoptOptions): Promise<AdoptReport> {
  const { target } = begun
  let run = begun
  let state = await stateOf(run)
  const unchanged = state === undefined && findDrift(target.declaration.table, target.state).length === 0
  let step: AdoptStep = unchanged ? 'done' : (state?.step ?? 'begin')
  if (state) refuseOther(target, state)
  while (step !== 'done' && !isPast(step, options.until)) {
    if (step === 'guard') await refuseRefused(run, options)
    run.onProgress({ step, fraction: undefined, rows: 0 })
    step = await doStep(run, { ...FRESH, ...state, step }).catch(againstWritten(run.target))
    state = await stateOf(run)
    // The new columns have the names that were declared.
    if (run.target.swap && state?.swaps === false) {
      run = { ...run, target: await findTarget(target.declaration, run.session.query) }
    }
  }
  return await reportOf(run, step, unchanged)
}

const FRESH: Omit<AdoptionState, 'step'> = { format: 1, rules: '', wanted: 'missing', page: 0, pages: null }

function refuseOther(target: Target, { rules }: AdoptionState): void {
  if (rules === rulesOf(target)) return
  throw new AdoptionError(
    'changed',
    `The adoption of ${tableName(target.on.table)} began with another declaration of "${target.declaration.name}". ` +
      `Continue with that one, or remove it with abandon and begin again.`,
  )
}

const OWN_UNIQUE =
  'preview --normalize lists the texts that become equal. Without the unique index, clients can store equal texts ' +
  'until the step guard: they are reported, and --merge merges them.'

/** @throws AdoptionError for an index or a constraint of the user's that a row violates as it is written, and other errors */
const againstWritten =
  ({ on: { table }, normalizes }: Target) =>
  (error: unknown): never => {
    const what = normalizes ? 'a row with its normalized text' : 'a row that gets its hash'
    return againstOwn(error, { on: table, what, ours: [table.index, table.check], ofUnique: OWN_UNIQUE })
  }

async function refuseRefused(run: Run, options: AdoptOptions): Promise<void> {
  await reviewRefused(run, options.refused === 'delete')
  await refuseListed(run, options)
}

async function refuseListed(run: Run, options: AdoptOptions): Promise<void> {
  if (options.refused === 'keep') return
  const { total, first } = await refusedRows(run)
  if (total === 0) return
  const named = first.map(({ key, reason }) => `${JSON.stringify(key)}: ${reason}`).join('; ')
  throw new AdoptionError(
    'refused',
    `The normalizer refuses the texts of ${total} rows of ${tableName(run.target.on.table)}: ${named}. ` +
      `Correct or delete them, or keep them as they are with --refused keep.`,
  )
}

const DELETING = {
  what: 'to delete a row whose text the normalizer refuses',
  next: 'Delete or change what refers to it, or keep it with --refused keep',
  ours: [],
}

/** Some of the refused rows have been corrected or deleted by now. The others are deleted if the caller wants that. */
async function reviewRefused({ session, target }: Run, deletes: boolean): Promise<void> {
  const rows = await session.query<Readonly<Record<string, string | null>>>(refusedTexts(target.on))
  const refused = rows.filter((row) => 'refused' in normalizeTexts(target.declaration, readTextsOf(target, row)))
  if (deletes && refused.length > 0) {
    const spots = refused.map(({ spot }) => spot)
    const remove = async () => await session.query(deleteRefused(target.on), [spots])
    await session.asOrigin(remove).catch((error: unknown) => againstOwn(error, { on: target.on.table, ...DELETING }))
  }
  // By key: somebody may have written to a row meanwhile, which then stands elsewhere.
  await session.query(keepRefused(target.on), [refused.map(({ key }) => key)])
}

export async function refusedRows({ session, target }: Run): Promise<{ total: number; first: RefusedRow[] }> {
  const rows = await session.query<Record<'key' | 'reason' | 'total', string>>(readRefused(target.on, KEYS_NAMED))
  const first = rows.map(({ key, reason }) => ({ key: parseRows(key, 1) as ObjectLiteral, reason }))
  return { total: Number(rows[0]?.total ?? 0), first }
}

async function reportOf(run: Run, step: AdoptStep, unchanged: boolean): Promise<AdoptReport> {
  const { session, target, counts } = run
  const indexed = step === 'done' || step === 'clean'
  const duplicates = indexed ? await duplicatesOf(run) : undefined
  const refused = unchanged ? { total: 0, first: [] } : await refusedRows(run)
  void target
  return {
    kind: 'text',
    step,
    unchanged,
    locks: session.locks,
    counts,
    refused: refused.first,
    refusedTotal: refused.total,
    duplicates,
  }
}

async function duplicatesOf({ session, target }: Run): Promise<Duplicates> {
  const [row] = await session.query<Record<'groups' | 'surplus' | 'largest' | 'first', string>>(
    findDuplicates(target.on, KEYS_NAMED),
  )
  return {
    groups: Number(row?.groups ?? 0),
    surplus: Number(row?.surplus ?? 0),
    largest: Number(row?.largest ?? 0),
    first: parseRows(row?.first ?? '[]', 3) as ObjectLiteral[][],
  }
}

/**
 * Returns the steps of an adoption with their SQL. Changes nothing.
 *
 * @throws AdoptionError if there is no such table
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function planAdoption(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: Pick<AdoptOptions, 'property'> = {},
): Promise<PlannedStep[]> {
  checkOptions('planAdoption()', options, PROPERTY)
  const find = findWork(dataSource, entity, options.property)
  if (find) return await planWork(dataSource, find)
  const declaration = findDeclaration(dataSource, entity, options.property)
  return await withSession(dataSource, {}, {}, async (session) =>
    stepsOf(targetOf(await findTarget(declaration, session.query))),
  )
}

/** The columns that become NOT NULL when the new guard stands. */
function requiredLate({ tightened, final: { table } }: Swap): string[] {
  const hash = tightened.length === 0 || table.nullable ? [] : [table.hash]
  return [...tightened, ...hash]
}

export function stepsOf(target: Target): PlannedStep[] {
  const { on, hidden, required, state, swap } = target
  const late = swap ? requiredLate(swap) : []
  const standing = new Set(state.columns.map(({ name }) => name))
  const hasCheck = state.checks.some(({ name }) => name === on.table.check)
  const free = (step: AdoptStep, statements: readonly string[]): PlannedStep => ({ step, lock: undefined, statements })
  const locked = (step: AdoptStep, lock: LockMode, statements: readonly string[]): PlannedStep => ({
    step,
    lock,
    statements,
  })
  return [
    free('begin', [...createAdoptions(on), ...createObjects(on)]),
    locked('begin', 'ACCESS EXCLUSIVE', beginAdoption(on, hidden, standing)),
    free('fill', [fillPages(on, { from: 0, to: 16 }, 'missing', false), vacuumTable(on)]),
    free('number', [...findChains(on), numberChains(on)]),
    free('index', [createIndex(on)]),
    locked('check', 'ACCESS EXCLUSIVE', addChecks(on, required, !hasCheck)),
    free('check', [validateChecks(on, required)]),
    locked('check', 'ACCESS EXCLUSIVE', requireColumns(on, required)),
    free('guard', [lockChains(on), writeNumbers(on)]),
    ...(swap
      ? [
          locked('guard', 'ACCESS EXCLUSIVE', swapGuards(on, swap)),
          locked('clean', 'ACCESS EXCLUSIVE', addChecks(swap.final, late, false)),
          free('clean', late.length === 0 ? [] : [validateChecks(swap.final, late)]),
          locked('clean', 'ACCESS EXCLUSIVE', [...requireColumns(swap.final, late), ...endAdoption(on)]),
        ]
      : [
          locked('guard', 'SHARE ROW EXCLUSIVE', [...guardOf(on.table).create, disableTriggers(on)]),
          locked('clean', 'ACCESS EXCLUSIVE', endAdoption(on)),
        ]),
    free('clean', [analyzeTable(on)]),
  ].filter(({ statements }) => statements.length > 0)
}

/** Options of `abandon`; as those of `adopt`. */
export type AbandonOptions = Pick<AdoptOptions, LockOption | 'holdMilliseconds'>

const ABANDON_RULES: Rules<AbandonOptions> = { ...LOCK_RULES, holdMilliseconds: MILLISECONDS }

/**
 * Removes guard, hidden columns, index and check, and whatever an adoption has left, in one short transaction while the
 * application runs. No text is changed. It also undoes an adoption that is only half done: where that is to change a
 * declaration, the guard that stood before it stays.
 *
 * @throws AdoptionError if an adoption is running, and if there is no such table
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function abandon(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: AbandonOptions = {},
): Promise<{ readonly locks: readonly AdoptionLock[] }> {
  checkOptions('abandon()', options, ABANDON_RULES)
  return await abandonWith(dataSource, entity, options, {})
}

/** @param seams of tests */
async function abandonWith(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: AbandonOptions,
  seams: Seams,
): Promise<{ readonly locks: readonly AdoptionLock[] }> {
  const find = findWork(dataSource, entity, options.property)
  if (find) return await abandonWork({ dataSource, find, options, seams })
  const declaration = findDeclaration(dataSource, entity, options.property)
  return await withTarget({ dataSource, declaration, options, seams }, async (session, target) => {
    const { on } = target
    const state = await stateOf({ session, target })
    if (state === undefined && guardedAs(target) === 'none') refuseTaken(target)
    await session.all(createAdoptions(on))
    // A guard of another declaration stands, and stays.
    const gone =
      state?.swaps === true
        ? leave(beside(on))
        : [...guardOf(on.table).drop, ...endFollowing(on), ...leave(on, declaration.lookup)]
    await session.locked({ on, step: 'abandon', mode: 'ACCESS EXCLUSIVE' }, async () => {
      await session.all(gone)
      await session.query(forgetState(on), [on.table.guard])
    })
    return { locks: session.locks }
  })
}

interface Adoptable {
  readonly name: string
  readonly find: FindWork
}

/**
 * What is to be adopted where that is no text.
 *
 * @returns undefined for a text
 * @throws DeclarationError where several might be meant
 */
function findWork(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  property?: string,
): FindWork | undefined {
  const metadata = dataSource.getMetadata(entity)
  const numbers = tableNumbers(metadata)
    .filter(({ target }) => isOrExtends(metadata.target, target))
    .map((one): Adoptable => ({ name: one.name, find: async (query) => await findNumber(one, query) }))
  const root = rootOf(metadata)
  const find: FindWork = async (query) => await findNames(root, query)
  const names = namesOfEntity(metadata)
  if (property !== undefined) {
    return names.some(({ name }) => name === property) ? find : numbers.find(({ name }) => name === property)?.find
  }
  // All names of a table are adopted together.
  const works = [...numbers, ...(names.length === 0 ? [] : [{ name: names[0]?.name ?? '', find }])]
  if (works.length === 0 || declarationsOf(metadata).length > 0) return undefined
  const [only, ...more] = works
  if (only && more.length === 0) return only.find
  throw new DeclarationError(
    `Choose what of ${metadata.name} to adopt with the property: ${works.map(({ name }) => `"${name}"`).join(', ')}.`,
  )
}
