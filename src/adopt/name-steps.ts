import type { EntityMetadata } from 'typeorm'
import { forgetState } from '../sql/adopt-chains'
import {
  analyzeNames,
  beginNames,
  claimRows,
  createClaims,
  createNameLookup,
  dropClaims,
  findNamesOf,
  finishNames,
  leaveNames,
  lockRows,
  type NamedTable,
  releaseNamesOf,
} from '../triggers/adopt-names'
import { createAdoptions } from '../sql/adopt-table'
import { type Query, tableState, type TableState } from '../sql/catalog'
import { quote } from '../sql/identifier'
import type { LookupIndex } from '../sql/lookup'
import { namedSet } from '../sql/name-body'
import { HOLDER_SET, nameTriggersOf } from '../triggers/name-triggers'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import { notesOf } from '../triggers/trigger-plan'
import { findDrift, workDrift } from '../schema/drift'
import { holderTable, namesText } from '../typeorm/names'
import { dataSourceOf, tableNames } from '../registry/registry'
import { triggerWorks, wantedSets } from '../schema/trigger-sets'
import { AdoptionError } from './error'
import { claimAll, type ClaimedTable, claimLeft, firstLeft, lastRow, leftRows, type LeftName } from './name-claims'
import { planRequired, requireNotNull } from './require'
import type { AdoptStep, PlannedStep } from './steps'
import { findTable, KEYS_NAMED, refuseNullRows } from './target'
import { beginState, goOn, makeIndex, type Work, type WorkRun, workState } from './work'

/** A table whose rows are to hold names, on this connection. */
interface NameTarget extends ClaimedTable {
  readonly metadata: EntityMetadata
  readonly state: TableState
  readonly lookups: readonly LookupIndex[]
  /** As the server estimates. */
  readonly rows: number
}

/**
 * @param metadata of the table's root
 * @throws AdoptionError for a table that is not there, or that is none
 * @throws UnsupportedDatabaseError
 */
export async function findNames(metadata: EntityMetadata, query: Query): Promise<Work> {
  const holder = holderTable(metadata)
  const { facts, state } = await findTable(query, {
    metadata,
    relation: tableName(holder),
    sets: [nameTriggersOf(holder)],
  })
  const primary = holder.primary.map(({ name }) => name)
  const on: NamedTable = {
    table: { schema: facts.schema, table: facts.table, guard: namedSet(holder.table, 'names') },
    holder,
    primary,
    types: primary.map((one) => state.columns.find((column) => column.name === one)?.declared ?? 'text'),
    names: tableName(holder.of),
    owner: facts.owner,
  }
  const names = tableNames(metadata)
  const lookups = names.map(({ lookup, text }) => ({
    rows: { schema: facts.schema, table: facts.table },
    name: lookup,
    column: text.column.databaseName,
  }))
  const target: NameTarget = { on, names, metadata, state, lookups, rows: facts.rows }
  const work: Work = {
    kind: 'names',
    on,
    facts,
    said: `the names of ${metadata.name}`,
    rules: JSON.stringify([holder.holder, holder.primary, holder.names, holder.of.table]),
    stands: standsAs(target),
    writes: names.some(({ text }) => text.normalizer.name !== 'none') ? 'with triggers' : 'nothing',
    written: { what: 'a row with its normalized name', ours: [holder.of.index] },
    steps: {
      begin: async (run) => await begin(run, target, work),
      fill: async (run) => await fill(run, target, work),
      index: async (run) => await index(run, target),
      guard: async (run) => await guard(run, target),
      check: async (run) => await check(run, target),
      clean: async (run) => await clean(run, target),
    },
    plan: () => planNames(target),
    leave: () => leaveNames(on, lookups),
    afterLeaving: async (run) => await release(run, target),
  }
  return work
}

/** As they are now. */
const requiredColumns = ({ names }: Pick<NameTarget, 'names'>, { columns }: TableState): string[] =>
  names
    .filter(({ text }) => !text.column.isNullable)
    .map(({ text }) => text.column.databaseName)
    .filter((name) => columns.find((one) => one.name === name)?.nullable === true)

function standsAs(target: NameTarget): Work['stands'] {
  const { on, state } = target
  const note = notesOf(state).find(({ kind, name }) => kind === 'names' && name === HOLDER_SET)
  if (!note) return 'none'
  if (note.adopting === true) return 'adopting'
  const drift = workDrift([{ set: nameTriggersOf(on.holder) }], state)
  return drift.length + requiredColumns(target, state).length === 0 ? 'ready' : 'other'
}

/** From its commit on what is written has its names; what stands there has none yet. */
async function begin(run: WorkRun, target: NameTarget, work: Work): Promise<AdoptStep> {
  const { session } = run
  const { on, names, state } = target
  for (const { text, name } of names) {
    const column = text.column.databaseName
    if (state.columns.some((one) => one.name === column)) continue
    throw new AdoptionError('unsupported', `${tableName(on.table)} has no column for "${name}". Add it first.`)
  }
  await refuseNullNames(run, target, state)
  await makeNamesTable(run, target)
  await beginState(run, work, false)
  await session.all(createClaims(on))
  if (work.stands === 'none') await releaseFound(run, target, 'held')
  await session.locked({ on, step: 'begin', mode: 'SHARE ROW EXCLUSIVE' }, async () => {
    await session.all(beginNames(on))
    await goOn(run, on, { step: 'fill', after: [] })
  })
  return 'fill'
}

async function refuseNullNames({ session }: WorkRun, target: NameTarget, state: TableState): Promise<void> {
  const todo = 'Give them a name or delete them, or declare the property nullable.'
  await refuseNullRows(session.query, target.on, requiredColumns(target, state), { todo })
}

/** The parts of TypeORM's schema builder that are needed to make one table. */
interface SchemaBuilder {
  log(): Promise<{ readonly upQueries: readonly { readonly query: string; readonly parameters?: unknown[] }[] }>
}

/**
 * The table of names comes with the first that are adopted: it is new, and nobody waits for it. It belongs to the owner
 * of the table, as whom the triggers write to it.
 */
async function makeNamesTable({ session }: WorkRun, { metadata, on: { owner } }: NameTarget): Promise<void> {
  const dataSource = dataSourceOf(metadata)
  const { metadata: names, table } = namesText(dataSource)
  const works = triggerWorks(names)
  const { table: state } = await tableState(session.query, tableName(table), wantedSets(names))
  if (state) {
    if ([...findDrift(table, state), ...workDrift(works, state)].length === 0) return
    throw new AdoptionError(
      'unsupported',
      `The table of names, ${tableName(table)}, is not as ${names.name} declares it. Run its migrations first.`,
    )
  }
  const { master } = dataSource.driver as unknown as {
    readonly master?: { readonly options?: { readonly max?: number } }
  }
  if (master?.options?.max === 1) {
    // TypeORM's builder would wait for it for ever.
    throw new AdoptionError('unsupported', 'The table of names needs a second connection: give the pool two.')
  }
  const builder = dataSource.driver.createSchemaBuilder() as unknown as SchemaBuilder
  // It then sees no other entity.
  Object.defineProperty(builder, 'entityToSyncMetadatas', { value: [names] })
  const { upQueries } = await builder.log()
  await session.query(`BEGIN; SET LOCAL ROLE ${quote(owner)}`)
  try {
    for (const { query, parameters } of upQueries) await session.query(query, parameters)
    await session.query('COMMIT')
  } catch (error) {
    await session.query('ROLLBACK').catch(() => {})
    throw error
  }
}

/** How many ids of names are looked at by one statement. */
const RELEASED = 1_000

/** Takes names from all rows, in batches. */
async function releaseFound(
  { session }: Pick<WorkRun, 'session'>,
  { on }: NameTarget,
  state: string | null,
): Promise<void> {
  const [found] = await session
    .query<Record<'low' | 'high', string | null>>(findNamesOf(on), [state])
    .catch((error: unknown) => {
      if (serverError(error)?.code === SQLSTATE.undefinedTable) return []
      throw error
    })
  if (found?.low === undefined || found.low === null) return
  const high = BigInt(found.high ?? found.low)
  for (let low = BigInt(found.low) - 1n; low < high; low += BigInt(RELEASED)) {
    const values = [String(low), String(low + BigInt(RELEASED)), state]
    await session.patiently('abandon', async () => await session.query(releaseNamesOf(on), values))
    await session.breathe()
  }
}

async function release(run: Pick<WorkRun, 'session'>, target: NameTarget): Promise<void> {
  await run.session.all(createClaims(target.on))
  await releaseFound(run, target, null)
  await run.session.all(dropClaims(target.on))
}

/** Claims what is not claimed yet, until nothing is left but what a person has to decide. */
async function fill(run: WorkRun, target: NameTarget, work: Work): Promise<AdoptStep> {
  const { session } = run
  const { on, rows } = target
  const state = await workState(session.query, work)
  if (state?.swept !== true) {
    const upTo = state?.upTo ?? (await lastRow(run, target))
    await goOn(run, on, { step: 'fill', upTo })
    if (upTo.length > 0) await claimAll(run, target, { after: state?.after ?? [], upTo, total: rows })
    await goOn(run, on, { step: 'fill', swept: true })
  }
  await session.query(analyzeNames(on))
  for (let rounds = 1; (await claimLeft(run, target)) > 0; rounds += 1) await session.rest(rounds)
  await refuseLeft(run, target)
  return await goOn(run, on, { step: 'index' })
}

/** @throws AdoptionError where a name is held by another row, or the normalizer refuses one */
async function refuseLeft(run: WorkRun, { on }: NameTarget): Promise<void> {
  const left = await leftRows(run, on)
  if (left.size === 0) return
  const first = await firstLeft(run, on, KEYS_NAMED)
  const clashes = first.filter(({ kind }) => kind === 'clash')
  const refused = first.filter(({ kind }) => kind === 'refused')
  const told = [
    ...(clashes.length === 0
      ? []
      : [
          `${left.get('clash') ?? 0} rows of ${tableName(on.table)} have a name that another row has: ` +
            `${clashes.map(tellClash).join('; ')}. Rename one of each.`,
        ]),
    ...(refused.length === 0
      ? []
      : [
          `The normalizer refuses the names of ${left.get('refused') ?? 0} rows: ` +
            `${refused.map(({ key, reason }) => `${key}: ${reason ?? ''}`).join('; ')}. Correct or delete them, or keep ` +
            `them as they are with --refused keep.`,
        ]),
  ]
  throw new AdoptionError('refused', `${told.join(' ')} Then run this again.`)
}

const tellClash = ({ key, property, holder, holder_property: column, holder_key: other }: LeftName): string =>
  `${property ?? ''} ${key} and ${holder ?? ''}.${column ?? ''} ${other ?? ''}`

const stateNow = async ({ session }: WorkRun, { on }: NameTarget): Promise<TableState | null> =>
  (await tableState(session.query, tableName(on.table), [nameTriggersOf(on.holder)])).table

/**
 * The look-ups are made anew: CREATE INDEX CONCURRENTLY waits for every snapshot that is older, and with them end those
 * that do not show what was claimed. Without that, a transaction at REPEATABLE READ could leave a name behind.
 */
async function index(run: WorkRun, { on, lookups }: NameTarget): Promise<AdoptStep> {
  run.onProgress({ step: 'index', fraction: undefined, rows: 0 })
  for (const lookup of lookups) {
    const [create = '', comment = ''] = createNameLookup(lookup)
    await makeIndex(run, on, { name: lookup.name, create, stands: false })
    await run.session.query(comment)
  }
  return await goOn(run, on, { step: 'guard' })
}

/** Every row holds the names that it has by now: from its commit on the triggers need not allow for others. */
async function guard(run: WorkRun, { on }: NameTarget): Promise<AdoptStep> {
  return await run.session.patiently('guard', async () => {
    await run.session.all(finishNames(on))
    return await goOn(run, on, { step: 'check' })
  })
}

async function check(run: WorkRun, target: NameTarget): Promise<AdoptStep> {
  const state = await stateNow(run, target)
  const required = state ? requiredColumns(target, state) : []
  return await requireNotNull(run, target.on, required, async () => {
    if (state) await refuseNullNames(run, target, state)
  })
}

async function clean({ session }: WorkRun, target: NameTarget): Promise<AdoptStep> {
  const { on } = target
  await session.patiently('clean', async () => {
    await session.all(dropClaims(on))
    await session.query(forgetState(on), [on.table.guard])
  })
  await session.query(analyzeNames(on))
  return 'done'
}

function planNames(target: NameTarget): PlannedStep[] {
  const { on, lookups, state } = target
  return [
    { step: 'begin', lock: undefined, statements: [...createAdoptions(on), ...createClaims(on)] },
    { step: 'begin', lock: 'SHARE ROW EXCLUSIVE', statements: beginNames(on) },
    { step: 'fill', lock: undefined, statements: [lockRows(on, 200, true), claimRows(on)] },
    { step: 'index', lock: undefined, statements: lookups.flatMap(createNameLookup) },
    { step: 'guard', lock: undefined, statements: finishNames(on) },
    ...planRequired(on, requiredColumns(target, state)),
    { step: 'clean', lock: undefined, statements: dropClaims(on) },
  ]
}
