import type { DataSource } from 'typeorm'
import type { Query } from '../sql/catalog'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import {
  AdoptionError,
  type AdoptionLock,
  type AdoptSession,
  keepTriggersOut,
  lockOut,
  ownTriggers,
  refuseTriggers,
  type Seams,
  type SessionOptions,
  withSession,
} from './session'
import {
  addNotNull,
  type Adopting,
  type AdoptionFacts,
  createAdoptions,
  dropIndex,
  requireColumns,
  validateNotNull,
} from './sql/table'
import { forgetState, writeState } from './sql/texts'
import { againstOwn, type RefusedRows, requireAdoptable } from './target'
import { type AdoptProgress, type AdoptStep, isPast, type PlannedStep, storedState } from './texts'

/** How far the adoption of names or of a number has come, as the database keeps it. */
export interface WorkState {
  readonly step: AdoptStep
  /** Raised when a later version of this package cannot continue what an earlier version began. */
  readonly format: number
  /** What is declared: an adoption of something else cannot continue. */
  readonly rules: string
  /** The adoption has made the column. */
  readonly made?: boolean
  /** The key of the row that it has come to. */
  readonly after?: readonly string[]
  /** The key of the last row that it has to come to. */
  readonly upTo?: readonly string[]
  /** It has come to the end of the table once. */
  readonly swept?: boolean
}

const FORMAT = 1

/** Names and numbers have nothing to do in the step `number`; it is here so that `--until number` has a place. */
const WORK_STEPS: readonly AdoptStep[] = ['begin', 'fill', 'number', 'index', 'guard', 'check', 'clean', 'done']

/** One run of a command that adopts names or a number. */
export interface WorkRun {
  readonly session: AdoptSession
  readonly options: WorkOptions
  readonly onProgress: (progress: AdoptProgress) => void
  readonly counts: { filled: number; normalized: number; numbered: number }
}

/** Names or a number, and the table that is to have them. */
export interface Work {
  readonly kind: 'names' | 'number'
  readonly on: Adopting
  readonly facts: AdoptionFacts
  /** What a person calls it: `"number" of Comment`. */
  readonly said: string
  readonly rules: string
  /**
   * `none`: no trigger stands. `adopting`: the transitional ones stand. `other`: something stands that only a migration
   * can change. `ready`: nothing is to be done.
   */
  readonly stands: 'none' | 'adopting' | 'other' | 'ready'
  /** Whether rows have lost what they had where it is `ready`; the steps are then done once more. */
  readonly lacks: (query: Query) => Promise<boolean>
  /** The command writes rows of the table, without its own triggers, or only where they run. */
  readonly writes: 'alone' | 'with triggers' | 'nothing'
  /** What an index or a constraint of the user's may refuse. */
  readonly written: Pick<RefusedRows, 'what' | 'ours'>
  /** By its step, each of which may be done again from its start, and gives the next one. */
  readonly steps: Partial<Readonly<Record<AdoptStep, (run: WorkRun) => Promise<AdoptStep>>>>
  readonly plan: () => readonly PlannedStep[]
  /** Statements that take everything away. */
  readonly leave: (state: WorkState | undefined) => readonly string[]
  /** What is left to do after that, without a lock. */
  readonly afterLeaving?: (run: Pick<WorkRun, 'session'>) => Promise<void>
}

/** Finds the table on a connection. */
export type FindWork = (query: Query) => Promise<Work>

export interface WorkOptions extends SessionOptions {
  readonly until?: AdoptStep | undefined
  readonly userTriggers?: 'fire' | undefined
  readonly refused?: 'keep' | 'delete' | undefined
  readonly onProgress?: (progress: AdoptProgress) => void
}

interface Command {
  readonly dataSource: DataSource
  readonly find: FindWork
  readonly options: WorkOptions
  readonly seams: Seams
}

/** What a command did. */
export interface WorkReport {
  readonly kind: Work['kind']
  readonly step: AdoptStep
  readonly unchanged: boolean
  readonly locks: readonly AdoptionLock[]
  readonly counts: WorkRun['counts']
}

/** @throws AdoptionError if a person has to decide, and DeclarationError, UnsupportedDatabaseError */
export async function adoptWork(command: Command): Promise<WorkReport> {
  return await withWork(command, async (session, work) => await runSteps(session, work, command))
}

async function withWork<T>(
  { dataSource, find, options, seams }: Command,
  run: (session: AdoptSession, work: Work) => Promise<T>,
): Promise<T> {
  return await withSession(dataSource, options, seams, async (session) => {
    const { facts, on } = await find(session.query)
    await lockOut(session, facts.oid, tableName(on.table))
    // Another command may have changed the table before that.
    return await run(session, await find(session.query))
  })
}

async function runSteps(session: AdoptSession, work: Work, { options }: Command): Promise<WorkReport> {
  const counts = { filled: 0, normalized: 0, numbered: 0 }
  const onProgress = options.onProgress ?? ((): void => {})
  const run: WorkRun = { session, options, onProgress, counts }
  const state = await workState(session.query, work)
  refuseOther(work, state)
  const isReady = work.stands === 'ready' && state === undefined
  const unchanged = isReady && !(await work.lacks(session.query))
  let step: AdoptStep = unchanged ? 'done' : (state?.step ?? 'begin')
  if (!unchanged) await beReady(session, work, options)
  while (step !== 'done' && !isPast(step, options.until, WORK_STEPS)) {
    onProgress({ step, fraction: undefined, rows: 0 })
    step =
      (await work.steps[step]?.(run).catch((error: unknown) =>
        againstOwn(error, { on: work.on.table, ...work.written }),
      )) ?? 'done'
  }
  return { kind: work.kind, step, unchanged, locks: session.locks, counts }
}

/** @throws AdoptionError where the steps cannot do it, or would fire triggers of the user's */
async function beReady(session: AdoptSession, { on, facts, writes }: Work, options: WorkOptions): Promise<void> {
  requireAdoptable(facts, tableName(on.table))
  const triggers = ownTriggers(facts, tableName(on.table), { userTriggers: options.userTriggers, written: [] })
  if (writes === 'alone') await keepTriggersOut(session, triggers)
  if (writes === 'with triggers') refuseTriggers(triggers, 'those of names have to run')
}

function refuseOther({ on, said, rules, stands }: Work, state: WorkState | undefined): void {
  if (state && state.rules !== rules) {
    throw new AdoptionError(
      'changed',
      `The adoption of ${tableName(on.table)} began with another declaration of ${said}. ` +
        `Continue with that one, or remove it with abandon and begin again.`,
    )
  }
  if (state || stands === 'none' || stands === 'ready') return
  throw new AdoptionError(
    'unsupported',
    `${tableName(on.table)} has something of ${said} that another declaration or release has made. ` +
      `Change it by a migration, or remove it with abandon and adopt the table again.`,
  )
}

/** @returns undefined where none has begun */
export async function workState(query: Query, { on }: Pick<Work, 'on'>): Promise<WorkState | undefined> {
  return await storedState<WorkState>(query, on)
}

export async function beginState(run: WorkRun, { on, rules }: Work, made: boolean): Promise<void> {
  await run.session.all(createAdoptions(on))
  await goOn(run, on, { step: 'begin', format: FORMAT, rules, made })
}

/** In the database, and for the caller. */
export async function goOn(
  { session }: WorkRun,
  on: Adopting,
  state: Partial<WorkState> & Pick<WorkState, 'step'>,
): Promise<AdoptStep> {
  await session.query(writeState(on), [on.table.guard, JSON.stringify(state)])
  return state.step
}

/** Key of a row that was read with the parts of its key as `k0`, …. */
export const keyOf = ({ primary }: Pick<Adopting, 'primary'>, row: Readonly<Record<string, string | null>>): string[] =>
  primary.map((_, index) => row[`k${index}`] ?? '')

/** Makes an index while others write, in place of an invalid one that an earlier run has left. */
export async function makeIndex(
  { session }: WorkRun,
  on: Adopting,
  { name, create, stands }: { readonly name: string; readonly create: string; readonly stands: boolean },
): Promise<void> {
  if (stands) return
  for (;;) {
    await session.query(dropIndex(on, name))
    try {
      await session.query(create)
      return
    } catch (error) {
      // With another index that is made at the same time.
      if (serverError(error)?.code !== SQLSTATE.deadlockDetected) throw error
    }
  }
}

/** Removes everything in one short transaction, also in the midst of an adoption. */
export async function abandonWork(command: Command): Promise<{ readonly locks: readonly AdoptionLock[] }> {
  return await withWork(command, async (session, work) => {
    const { on } = work
    await session.all(createAdoptions(on))
    await session.locked({ on, step: 'abandon', mode: 'ACCESS EXCLUSIVE' }, async () => {
      await session.all(work.leave(await workState(session.query, work)))
      await session.query(forgetState(on), [on.table.guard])
    })
    await work.afterLeaving?.({ session })
    return { locks: session.locks }
  })
}

/** Changes nothing. */
export async function planWork(dataSource: DataSource, find: FindWork): Promise<PlannedStep[]> {
  return await withSession(dataSource, {}, {}, async ({ query }) => {
    const { facts, on, plan } = await find(query)
    requireAdoptable(facts, tableName(on.table))
    return [...plan()]
  })
}

/**
 * Makes columns NOT NULL: by checks that are added as NOT VALID, and validated in one scan that blocks nobody.
 *
 * @param mend called where a row holds NULL; the step is then done again
 */
export async function requireNotNull(
  run: WorkRun,
  on: Adopting,
  columns: readonly string[],
  mend: () => Promise<void>,
): Promise<AdoptStep> {
  const { session } = run
  if (columns.length === 0) return await goOn(run, on, { step: 'clean' })
  await session.locked({ on, step: 'check', mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all(addNotNull(on, columns))
  })
  run.onProgress({ step: 'check', fraction: undefined, rows: 0 })
  try {
    await session.all(validateNotNull(on, columns))
  } catch (error) {
    if (serverError(error)?.code !== SQLSTATE.checkViolation) throw error
    await mend()
    return 'check'
  }
  await session.locked({ on, step: 'require', mode: 'ACCESS EXCLUSIVE' }, async () => {
    for (const statement of requireColumns(on, columns)) await session.query(statement)
    await goOn(run, on, { step: 'clean' })
  })
  return 'clean'
}

/** What `requireNotNull` will do, to be read. */
export const planRequired = (on: Adopting, columns: readonly string[]): readonly PlannedStep[] =>
  columns.length === 0
    ? []
    : [
        { step: 'check', lock: 'ACCESS EXCLUSIVE', statements: addNotNull(on, columns) },
        { step: 'check', lock: undefined, statements: validateNotNull(on, columns) },
        { step: 'check', lock: 'ACCESS EXCLUSIVE', statements: requireColumns(on, columns) },
      ]
