import {
  type DataSource,
  type EntityTarget,
  type Migration,
  MigrationExecutor,
  type ObjectLiteral,
  type QueryRunner,
} from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions, type Rules } from '../options'
import { writtenSchema } from '../registry/declarations'
import { type Declaration, rootOf } from '../registry/registry'
import { type Query, tableOids } from '../sql/catalog'
import { literal, qualified, quote } from '../sql/identifier'
import { isBusyError } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import {
  ADOPT_RULES,
  type AdoptionLock,
  type AdoptOptions,
  HOLD_RULES,
  type HoldOption,
  LOCK_RULES,
  type LockOption,
  type AdoptProgress,
  type AdoptStep,
  type PlannedStep,
  PROPERTY_OPTION,
  STEPS,
} from './options'
import { AdoptionError, type TableCommand, withAdoptSession, withTable } from './session'
import { type AdoptionStatus, readStatus } from './status'
import { guardedAs } from './guarded'
import { findDeclaration, findTarget, noTable } from './target'
import { GuardedText, type TextState, type TextWork, UnguardedText } from './texts'
import { againstOwn } from './refusals'
import { ADOPTIONS, refuseWritten, worklistOf } from './table'
import { type AdoptReport, createAdoptions, finishWork, storedState, type WorkRun } from './work'

/**
 * Adds the guard to a table with rows while the application runs. If it stops early, its work is kept, and the same
 * call continues from there. Of an adopted table, it normalizes the texts that code without this package has written.
 *
 * @throws AdoptionError if a person has to decide; its `reason` is the condition
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function adopt(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: AdoptOptions = {},
): Promise<AdoptReport> {
  checkOptions('adopt()', options, ADOPT_RULES)
  const migrations = options.fake === undefined ? undefined : new MigrationExecutor(dataSource)
  const declaration = findDeclaration(dataSource, entity, options.property)
  const faked = migrations && (await migrationToFake(migrations, declaration, options.fake))
  const find = findWork(dataSource, entity, options.property)
  const report = await adoptWork({ dataSource, find, options })
  if (faked && report.step === 'done') await migrations?.insertMigration(faked)
  return report
}

/** A comment, a function's body or a literal, whose semicolons end no statement. */
const OPAQUE = /--[^\n]*|\$(\w*)\$[^]*?\$\1\$|'(?:[^']|'')*'/g

/** Statements of ours that name no object of a text. */
const OURS = /^\s*(?:DO \$guard|(?:CREATE|COMMENT ON) FUNCTION (?:"(?:[^"]|"")*"\.)?"unique_text_|$)/

/** Finds the migration to mark as run. @throws DeclarationError unless it is the next one, and only adopts the text */
async function migrationToFake(from: MigrationExecutor, declaration: Declaration, wanted = ''): Promise<Migration> {
  // This makes the table of migrations if it is missing; the other calls only read it.
  await from.showMigrations()
  const pending = await from.getPendingMigrations()
  const names = pending.map(({ name }) => name)
  const faked = pending.find(({ name }) => name === wanted)
  if (!faked || names[0] !== wanted) {
    const first = faked ? `not the first that is pending, so run the others before it` : 'not pending'
    throw new DeclarationError(`Migration "${wanted}" is ${first}. Pending ones: ${names.join(', ') || 'none'}.`)
  }
  const { table, text, lookup = '' } = declaration
  const own = [table.hash, table.number, table.chained, table.index, table.check, lookup].map(quote)
  const required = text.map(({ column }) => `ALTER COLUMN ${quote(column.databaseName)} SET NOT NULL`)
  const isOfText = (sql: string): boolean => OURS.test(sql) || [...own, ...required].some((name) => sql.includes(name))
  const others: string[] = []
  const query = async (sql: string): Promise<void> => {
    const plain = sql.replaceAll(OPAQUE, (found, tag?: string) =>
      found.startsWith("'") ? found.replaceAll(';', ',') : tag === undefined ? '' : `$${tag}`,
    )
    others.push(...plain.split(';').filter((one) => !isOfText(one)))
    await Promise.resolve()
  }
  const isRead = async (): Promise<boolean> => {
    await faked.instance?.up({ query } as unknown as QueryRunner)
    return others.length === 0
  }
  if (await isRead().catch(() => false)) return faked
  throw new DeclarationError(
    `Migration "${wanted}" does other work than that of the unique text "${declaration.name}", which adopt would not ` +
      `do. Move it into another migration.`,
  )
}

/**
 * Returns the steps of an adoption with their SQL. An adopted table has none. Changes nothing.
 *
 * @throws AdoptionError if there is no such table
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function planAdoption(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: Pick<AdoptOptions, 'property'> = {},
): Promise<PlannedStep[]> {
  checkOptions('planAdoption()', options, PROPERTY_OPTION)
  const find = findWork(dataSource, entity, options.property)
  return await withAdoptSession(dataSource, {}, async ({ query }) => {
    const work = await find(query)
    if (isAdopted(work)) return []
    work.refuse()
    return work.plan()
  })
}

/**
 * Reads the progress of an adoption and the sessions that block it, on a connection other than that of the command.
 *
 * @throws AdoptionError if there is no such table
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function adoptionStatus(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: Pick<AdoptOptions, 'property'> = {},
): Promise<AdoptionStatus> {
  checkOptions('adoptionStatus()', options, PROPERTY_OPTION)
  const find = findWork(dataSource, entity, options.property)
  const root = rootOf(dataSource.getMetadata(entity))
  return await withAdoptSession(dataSource, {}, async (session) => {
    // A short timeout, because a person wants to see the session that has locked the table.
    await session.set('lock_timeout', '200')
    const oid = await tableOids(session.query, qualified(writtenSchema(root), root.tableName))
    if (oid === undefined) throw noTable(root.tablePath)
    const server = await readStatus(session.query, oid)
    const work = await find(session.query).catch((error: unknown) => {
      if (!isBusyError(error)) throw error
      return undefined
    })
    const stored: Partial<TextState> = work?.stored ?? {}
    const { step = server.command && (await findMerge(session.query, work)), page, pages } = stored
    const swept = step === 'fill' && page !== undefined && pages ? page / pages : null
    return { ...server, step, fraction: server.fraction ?? swept, tableBytes: work?.facts.bytes ?? null }
  })
}

/** A merge keeps a list of its work, and no state. */
async function findMerge(query: Query, work: TextWork | undefined): Promise<'merge' | null> {
  if (!work) return null
  const sql = `SELECT pg_catalog.to_regclass(${literal(worklistOf(work.on))}) IS NOT NULL AS found`
  const [row] = (await query(sql)) as readonly { found: boolean }[]
  return row?.found === true ? 'merge' : null
}

/** Options of `abandon`, like those of `adopt`. */
export type AbandonOptions = Pick<AdoptOptions, LockOption | HoldOption>

const ABANDON_RULES: Rules<AbandonOptions> = { ...LOCK_RULES, ...HOLD_RULES }

/**
 * Removes guard, hidden columns, index and check, and the remains of an adoption, in one short transaction while the
 * application runs. No text is changed. It also undoes an unfinished adoption.
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
  const find = findWork(dataSource, entity, options.property)
  return await abandonWork({ dataSource, find, options })
}

/** @throws DeclarationError if the choice is ambiguous */
function findWork(dataSource: DataSource, entity: EntityTarget<ObjectLiteral>, property?: string) {
  const declaration = findDeclaration(dataSource, entity, property)
  return async (query: Query): Promise<TextWork> => await findText(declaration, query)
}

/**
 * Finds a text to adopt. If a guard with the same rules exists, rows are at most normalized again.
 *
 * @throws AdoptionError if the table does not exist or is no ordinary table, and for a text without a guard
 * @throws UnsupportedDatabaseError
 */
export async function findText(declaration: Declaration, query: Query): Promise<TextWork> {
  const target = await findTarget(declaration, query)
  const stored = await storedState<TextState>(query, target.on)
  const begun = stored !== undefined && stored.renormalizes !== true
  return guardedAs(target) === 'renormalized' && !begun
    ? new GuardedText(target, stored)
    : new UnguardedText(target, stored)
}

type WorkCommand = TableCommand<TextWork> & { readonly options: AdoptOptions }

/** Begins or continues an adoption. @throws AdoptionError if a person has to decide */
async function adoptWork(command: WorkCommand): Promise<AdoptReport> {
  const { find, options } = command
  return await withTable(command, async (session, work) => {
    const run: WorkRun = {
      session,
      options: { ...options, onProgress: forward(options.onProgress) },
      counts: { filled: 0, normalized: 0, numbered: 0 },
    }
    const isReady = isAdopted(work)
    // Code without this package may have written texts that are not normalized.
    const isDone = isReady && !work.normalizes
    if (!isDone) await prepareSession(run, work)
    const { last, step } = await doSteps(run, work, isDone ? 'done' : (work.stored?.step ?? 'begin'), find)
    const { counts } = run
    const found = await last.report(session, step, isDone)
    const unchanged = isReady && counts.normalized === 0 && found.rejectedTotal === 0
    return { step, unchanged, locks: session.locks, counts, ...found }
  })
}

/** Reports a progress that never goes back, though a step sweeps again over rows that others had locked. */
function forward(onProgress: AdoptOptions['onProgress']): NonNullable<AdoptOptions['onProgress']> {
  let best: AdoptProgress | undefined
  return (now) => {
    const before = best?.step === now.step ? best.fraction : undefined
    best = before === undefined ? now : { ...now, fraction: Math.max(before, now.fraction ?? 0) }
    onProgress?.(best)
  }
}

/** Does one step after the other, and reads the table again before each. */
async function doSteps(run: WorkRun, begun: TextWork, first: AdoptStep, find: WorkCommand['find']) {
  const { until } = run.options
  let [last, step] = [begun, first]
  while (step !== 'done') {
    const { on, written } = last
    if (until !== undefined && STEPS.indexOf(step) > STEPS.indexOf(until)) break
    run.options.onProgress?.({ step, fraction: undefined, rows: 0 })
    const next = await last.steps[step]?.(run).catch((error: unknown) =>
      againstOwn(error, { on: on.table, ...written }),
    )
    step = next ?? 'done'
    last = await find(run.session.query)
  }
  return { last, step }
}

/** Whether the text has its guard, and no adoption is unfinished. */
const isAdopted = ({ isReady, stored }: TextWork): boolean => isReady && stored === undefined

/** @throws AdoptionError if the steps cannot adopt the table, or would fire triggers of the user */
async function prepareSession({ session, options: { userTriggers } }: WorkRun, work: TextWork): Promise<void> {
  const { on, stored, said } = work
  const relation = tableName(on.table)
  work.refuse()
  if (stored && stored.rules !== work.rules) {
    throw new AdoptionError(
      'changed',
      `The adoption of ${relation} began with another declaration of ${said}. ` +
        `Continue with that one, or remove it with abandon and begin again.`,
    )
  }
  await session.query(refuseWritten(on, ADOPTIONS))
  if (userTriggers !== 'fire') await work.keepTriggersOut(session)
}

/** Removes everything in one short transaction, also in the middle of an adoption. */
async function abandonWork(command: WorkCommand): Promise<{ readonly locks: readonly AdoptionLock[] }> {
  return await withTable(command, async (session, work) => {
    const { on } = work
    const statements = work.dropAll()
    await session.make('abandon', createAdoptions(on))
    await finishWork(session, on, 'abandon', statements)
    return { locks: session.locks }
  })
}
