import { type DataSource, type EntityTarget, MigrationExecutor, type ObjectLiteral } from 'typeorm'
import { checkOptions, type Rules } from '../options'
import { writtenSchema } from '../registry/declarations'
import { rootOf } from '../registry/registry'
import { tableOids } from '../sql/catalog'
import { literal, qualified } from '../sql/identifier'
import { ensureLibrary } from '../sql/library'
import { isBusyError } from '../sql/sqlstate'
import { field, tableName } from '../sql/text-table'
import { rowsOfChains } from './chains'
import { migrationToFake } from './fake'
import { guardedAs } from './guarded'
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
import { refusedRows } from './pages'
import { againstOwn, KEYS_NAMED } from './refusals'
import { AdoptionError, type AdoptSession, withAdoptSession } from './session'
import { type AdoptionStatus, readStatus } from './status'
import { ADOPTIONS, keyAsJson, refuseForeign, worklistOf } from './table'
import { findDeclaration, findTarget, noTable, type Target, withText } from './target'
import { dropAll, GUARDED, UNGUARDED, type Way } from './texts'
import { type AdoptionState, createAdoptions, finishWork, rulesOf } from './state'
import type { AdoptReport, AdoptRun, Duplicates } from './work'

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
  const { fake } = options
  const migrations = fake === undefined ? undefined : new MigrationExecutor(dataSource)
  const declaration = findDeclaration(dataSource, entity, options.property)
  const faked = migrations && (await migrationToFake(migrations, declaration, fake ?? ''))
  const report = await withText(dataSource, entity, options, async (session, target) => {
    return await adoptText(session, target, options)
  })
  if (faked && report.step === 'done') {
    // The next migrations call, and a revert of this one drops, what it would have created.
    await dataSource.query(ensureLibrary(declaration.table.schema, 'rows'))
    await migrations?.insertMigration(faked)
  }
  return report
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
  const declaration = findDeclaration(dataSource, entity, options.property)
  return await withAdoptSession(dataSource, {}, async ({ query }) => {
    const target = await findTarget(declaration, query)
    return isAdopted(target) ? [] : planOf(target)
  })
}

/** Returns the steps that adopt a text. @throws AdoptionError if they cannot adopt the table */
export function planOf(target: Target): PlannedStep[] {
  const { refuse, plan } = wayOf(target)
  refuse(target)
  return plan(target)
}

/** Rows of a text with a guard of the same rules are at most normalized again. */
function wayOf(target: Target): Way {
  const { stored } = target
  const isBegun = stored !== undefined && stored.renormalizes !== true
  return guardedAs(target) === 'renormalized' && !isBegun ? GUARDED : UNGUARDED
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
  const declaration = findDeclaration(dataSource, entity, options.property)
  const root = rootOf(dataSource.getMetadata(entity))
  return await withAdoptSession(dataSource, {}, async (session) => {
    // A short timeout, because a person wants to see the session that has locked the table.
    await session.set('lock_timeout', '200')
    const oid = await tableOids(session.query, qualified(writtenSchema(root), root.tableName))
    if (oid === undefined) throw noTable(root.tablePath)
    const server = await readStatus(session.query, oid)
    const target = await findTarget(declaration, session.query).catch((error: unknown) => {
      if (!isBusyError(error)) throw error
      return undefined
    })
    const stored: Partial<AdoptionState> = target?.stored ?? {}
    const { step = server.command && (await findMerge(session, target)), page, pages } = stored
    const swept = step === 'fill' && page !== undefined && pages ? page / pages : null
    return { ...server, step, fraction: server.fraction ?? swept, tableBytes: target?.facts.bytes ?? null }
  })
}

/** A merge keeps a list of its work, and no state. */
async function findMerge({ query }: AdoptSession, target: Target | undefined): Promise<'merge' | null> {
  if (!target) return null
  const sql = `SELECT pg_catalog.to_regclass(${literal(worklistOf(target))}) IS NOT NULL AS found`
  const [row] = await query<{ found: boolean }>(sql)
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
  return await withText(dataSource, entity, options, async (session, target) => {
    const statements = dropAll(target)
    await session.make('abandon', createAdoptions(target))
    await finishWork(session, target, 'abandon', statements)
    return { locks: session.locks }
  })
}

/** Begins or continues an adoption. @throws AdoptionError if a person has to decide */
async function adoptText(session: AdoptSession, begun: Target, options: AdoptOptions): Promise<AdoptReport> {
  const counts = { filled: 0, normalized: 0, numbered: 0 }
  const isReady = isAdopted(begun)
  // Code without this package may have written texts that are not normalized.
  if (isReady && !begun.normalizes) {
    const duplicates = await findDuplicates(session, begun)
    return { step: 'done', unchanged: true, locks: [], counts, rejected: [], rejectedTotal: 0, duplicates }
  }
  await prepareSession(session, begun, options)
  const run = { session, options: { ...options, onProgress: forward(options.onProgress) }, counts }
  const { target, step } = await doSteps({ ...run, target: begun })
  const found = await refusedRows(session, target)
  const duplicates = step === 'done' || step === 'clean' ? await findDuplicates(session, target) : undefined
  const unchanged = isReady && counts.normalized === 0 && found.rejectedTotal === 0
  return { step, unchanged, locks: session.locks, counts, ...found, duplicates }
}

/** Does one step after the other, and reads the table again after each. */
async function doSteps(run: AdoptRun): Promise<{ readonly target: Target; readonly step: AdoptStep }> {
  const { until = 'done', onProgress } = run.options
  let { target } = run
  let step: AdoptStep = target.stored?.step ?? 'begin'
  while (step !== 'done' && STEPS.indexOf(step) <= STEPS.indexOf(until)) {
    onProgress?.({ step, fraction: undefined, rows: 0 })
    const done = wayOf(target).steps[step]?.({ ...run, target })
    step = (await done?.catch((error: unknown) => refuseRow(error, target))) ?? 'done'
    target = await findTarget(target.declaration, run.session.query)
  }
  return { target, step }
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

/** Whether the text has its guard, and no adoption is unfinished. */
const isAdopted = ({ isReady, stored }: Target): boolean => isReady && stored === undefined

/** @throws AdoptionError if an index or a constraint of the user has refused a row; rethrows other errors */
const refuseRow = (error: unknown, { normalizes, table }: Target): never =>
  againstOwn(error, {
    on: table,
    what: normalizes ? 'a row with its normalized text' : 'a row that gets its hash',
    ours: [table.index, table.check],
    ofUnique:
      'adopt --dry-run lists the texts that become equal. Without the unique index, clients can store equal texts ' +
      'until the step guard: they are reported, and --merge merges them.',
  })

/** @throws AdoptionError if the steps cannot adopt the table, or would fire triggers of the user */
async function prepareSession(session: AdoptSession, target: Target, { userTriggers }: AdoptOptions): Promise<void> {
  const { stored, table, declaration } = target
  const { refuse, keepTriggersOut } = wayOf(target)
  refuse(target)
  if (stored && stored.rules !== rulesOf(target)) {
    throw new AdoptionError(
      'changed',
      `The adoption of ${tableName(table)} began with another declaration of "${declaration.name}". ` +
        `Continue with that one, or remove it with abandon and begin again.`,
    )
  }
  await session.query(refuseForeign(target, ADOPTIONS))
  if (userTriggers !== 'fire') await keepTriggersOut?.(session, target)
}

async function findDuplicates({ query }: AdoptSession, target: Target): Promise<Duplicates> {
  const { chains, rows, by } = rowsOfChains(target)
  const keys = target.primary.map((name) => field('t', name)).join(', ')
  const [row] = await query<Record<'groups' | 'surplus' | 'largest' | 'first', string>>(
    `WITH ${chains},
g AS MATERIALIZED (
  SELECT pg_catalog.count(*) AS n, pg_catalog.jsonb_agg(${keyAsJson(target)} ORDER BY ${keys}) AS keys
    FROM ${rows} GROUP BY ${by} HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 1)
SELECT pg_catalog.count(*)::pg_catalog.text AS groups, coalesce(pg_catalog.sum(g.n) OPERATOR(pg_catalog.-) pg_catalog.count(*), 0)::pg_catalog.text AS surplus,
       coalesce(pg_catalog.max(g.n), 0)::pg_catalog.text AS largest,
       (SELECT coalesce(pg_catalog.jsonb_agg(f.keys), '[]') FROM (SELECT g.keys FROM g ORDER BY g.keys LIMIT ${KEYS_NAMED}) AS f)::pg_catalog.text AS first
  FROM g`,
  )
  return {
    groups: Number(row?.groups),
    surplus: Number(row?.surplus),
    largest: Number(row?.largest),
    first: JSON.parse(row?.first ?? '[]') as ObjectLiteral[][],
  }
}
