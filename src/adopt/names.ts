import type { EntityMetadata } from 'typeorm'
import { TextRejectedError } from '../errors'
import { dataSourceOf, type NameDeclaration, tableNames } from '../registry/registry'
import { findDrift, workDrift } from '../schema/readiness'
import { triggerWorks, wantedSets } from '../schema/table'
import { type LookupIndex, type Query, type TableState, tableState } from '../sql/catalog'
import { quote } from '../sql/identifier'
import { namedSet, refusedNames } from '../sql/names'
import { isBusyError, serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import { savepoint } from '../sql/transaction-commands'
import { normalizeText } from '../text/normalizer'
import { nameTriggersOf } from '../names/sql/triggers'
import { HOLDER_SET } from '../triggers/names'
import { notesOf } from '../triggers/plan'
import { holderTable, namesText } from '../typeorm/refusals'
import { AdoptionError, BatchSize } from './session'
import {
  analyzeNames,
  beginNames,
  changeTriggers,
  claimRows,
  countLeft,
  createClaims,
  createNameLookup,
  deleteNamedRows,
  dropClaims,
  findNamesOf,
  findUnclaimed,
  lastKey,
  lastNote,
  leaveNames,
  lockKeys,
  lockRows,
  nameColumnsOf,
  type NamedTable,
  noteKeys,
  noteLocked,
  noteRows,
  readLeft,
  releaseNamesOf,
  takeNotes,
  writeNames,
} from './sql/names'
import { createAdoptions } from './sql/table'
import { forgetState } from './sql/texts'
import { findTable, KEYS_NAMED, ownConstraint, refuseNullRows } from './target'
import type { AdoptStep, PlannedStep } from './texts'
import {
  beginState,
  goOn,
  keyOf,
  makeIndex,
  planRequired,
  requireNotNull,
  type Work,
  type WorkRun,
  workState,
} from './work'

/** A table whose rows are to hold names, on this connection. */
interface NameTarget extends ClaimedTable {
  readonly metadata: EntityMetadata
  readonly state: TableState
  readonly lookups: readonly LookupIndex[]
  /** Estimate of the server. */
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
    stands: namesStand(target),
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
    lacks: async (query) => await lacksNames(query, target),
    plan: () => planNames(target),
    leave: () => leaveNames(on, lookups),
    afterLeaving: async (run) => await release(run, target),
  }
  return work
}

/** Columns that are declared NOT NULL and are not so yet. */
const requiredNames = ({ names }: Pick<NameTarget, 'names'>, { columns }: TableState): string[] =>
  names
    .filter(({ text }) => !text.column.isNullable)
    .map(({ text }) => text.column.databaseName)
    .filter((name) => columns.find((one) => one.name === name)?.nullable === true)

function namesStand(target: NameTarget): Work['stands'] {
  const { on, state } = target
  const note = notesOf(state).find(({ kind, name }) => kind === 'names' && name === HOLDER_SET)
  if (!note) return 'none'
  if (note.adopting === true) return 'adopting'
  const drift = workDrift([{ set: nameTriggersOf(on.holder) }], state)
  return drift.length + requiredNames(target, state).length === 0 ? 'ready' : 'other'
}

/** The table of names was emptied, or rows were written past the triggers: the steps claim what is missing. */
async function lacksNames(query: Query, { on }: NameTarget): Promise<boolean> {
  const rows = await query(findUnclaimed(on)).catch((error: unknown) => {
    if (serverError(error)?.code === SQLSTATE.undefinedTable) return [{ found: true }]
    throw error
  })
  return (rows as readonly { found: boolean }[])[0]?.found === true
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
    await session.all(work.stands === 'ready' ? changeTriggers(on, true) : beginNames(on))
    await goOn(run, on, { step: 'fill', after: [] })
  })
  return 'fill'
}

async function refuseNullNames({ session }: WorkRun, target: NameTarget, state: TableState): Promise<void> {
  const todo = 'Give them a name or delete them, or declare the property nullable.'
  await refuseNullRows(session.query, target.on, requiredNames(target, state), { todo })
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
const RELEASED_ROWS = 1_000

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
  for (let low = BigInt(found.low) - 1n; low < high; low += BigInt(RELEASED_ROWS)) {
    const values = [String(low), String(low + BigInt(RELEASED_ROWS)), state]
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
    await run.session.all(changeTriggers(on, false))
    return await goOn(run, on, { step: 'check' })
  })
}

async function check(run: WorkRun, target: NameTarget): Promise<AdoptStep> {
  const state = await stateNow(run, target)
  const required = state ? requiredNames(target, state) : []
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
    { step: 'guard', lock: undefined, statements: changeTriggers(on, false) },
    ...planRequired(on, requiredNames(target, state)),
    { step: 'clean', lock: undefined, statements: dropClaims(on) },
  ]
}

/** A table whose rows are to hold the names that they have. */
interface ClaimedTable {
  readonly on: NamedTable
  /** In the order of its columns. */
  readonly names: readonly NameDeclaration[]
}

/** A row that is locked, with its key and its texts. */
type LockedRow = Readonly<Record<string, string | null>> & { readonly spot: string }

const LEAST_ROWS = 20
const FIRST_ROWS = 200

/** Keys between which rows are to be claimed, and how many there may be. */
interface Sweep {
  readonly after: readonly string[]
  readonly upTo: readonly string[]
  readonly total: number
}

/** The key of the last row; empty where there is none. Rows that come later bring their names. */
async function lastRow({ session }: WorkRun, { on }: ClaimedTable): Promise<readonly string[]> {
  const [row] = await session.query<LockedRow>(lastKey(on))
  return row ? keyOf(on, row) : []
}

/** Goes over all rows in key order; the position is stored. Rows that somebody has locked are noted. */
async function claimAll(run: WorkRun, table: ClaimedTable, { after: first, upTo, total }: Sweep): Promise<void> {
  const { on } = table
  const { session } = run
  const size = new BatchSize(session.manners.batch, LEAST_ROWS, FIRST_ROWS, LEAST_ROWS)
  for (let [after, attempts]: [readonly string[], number] = [first, 0]; ;) {
    const [started, limit] = [performance.now(), attempts === 0 ? size.value : Math.ceil(size.value / 2 ** attempts)]
    const from = after
    const locked = await tried(async () => await claimPage(run, table, { after: from, upTo, limit }))
    if (locked) {
      attempts = 0
      size.took(performance.now() - started, locked.length)
      run.onProgress({
        step: 'fill',
        fraction: Math.min(run.counts.filled / Math.max(total, 1), 1),
        rows: run.counts.filled,
      })
      const last = locked.at(-1)
      if (!last || locked.length < limit) return
      after = keyOf(on, last)
    } else {
      attempts += 1
      if (attempts > MOST_TRIES) after = (await passOver(run, on, { after: from, upTo, limit: LEAST_ROWS })) ?? after
      await session.rest(attempts)
    }
    await session.breathe()
  }
}

/** After so many attempts other rows come first. */
const MOST_TRIES = 4

/** @returns undefined where somebody else stands in the way */
async function tried<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    if (!isBusyError(error)) throw error
    return undefined
  }
}

interface NamePage extends Omit<Sweep, 'total'> {
  readonly limit: number
}

async function claimPage(run: WorkRun, table: ClaimedTable, page: NamePage): Promise<readonly LockedRow[]> {
  const { session } = run
  const { on } = table
  return await session.together(async () => {
    const { rows, upTo } = await lockPage(run, on, page)
    await claimLocked(run, table, rows)
    await goOn(run, on, { step: 'fill', after: upTo })
    return rows
  })
}

/** Rows between them that somebody has locked are noted. @returns the key up to which it has come */
async function lockPage(
  { session }: WorkRun,
  on: NamedTable,
  { after, upTo, limit }: NamePage,
): Promise<{ readonly rows: readonly LockedRow[]; readonly upTo: readonly string[] }> {
  const rows = await session.query<LockedRow>(lockRows(on, limit, after.length > 0), [...upTo, ...after])
  const last = rows.at(-1)
  const end = last && rows.length === limit ? keyOf(on, last) : upTo
  await session.query(noteLocked(on, after.length > 0), [rows.map(({ spot }) => spot), ...end, ...after])
  return { rows, upTo: end }
}

/** Somebody holds on to a name that one of the next rows wants: they are noted, all of them. */
async function passOver({ session }: WorkRun, on: NamedTable, page: NamePage): Promise<readonly string[] | undefined> {
  const { after, limit } = page
  return await session.patiently('fill', async () => {
    const rows = await session.query<LockedRow>(lockRows(on, limit, after.length > 0), [...page.upTo, ...after])
    const last = rows.at(-1)
    if (!last) return undefined
    await session.query(noteLocked(on, after.length > 0), [[], ...keyOf(on, last), ...after])
    return keyOf(on, last)
  })
}

/** What a note says of a row. */
interface RowNote {
  readonly spot: string
  readonly kind: 'clash' | 'refused'
  readonly property?: string | undefined
  readonly reason?: string
  readonly holder?: string | undefined
  readonly holderProperty?: string | undefined
  readonly holderKey?: string | undefined
}

/** What becomes of rows that are locked. */
interface Sorted {
  readonly changed: { readonly spot: string; readonly texts: readonly (string | null)[] }[]
  readonly claimed: string[]
  readonly gone: string[]
  readonly notes: RowNote[]
}

async function claimLocked(run: WorkRun, table: ClaimedTable, rows: readonly LockedRow[]): Promise<void> {
  const { session, counts } = run
  const { on } = table
  const { changed, claimed, gone, notes } = sortRows(run, table, rows)
  if (gone.length > 0) await session.query(deleteNamedRows(on), [gone])
  if (changed.length > 0) notes.push(...(await writeAll(run, on, changed)))
  if (claimed.length > 0) await session.query(claimRows(on), [claimed])
  const of = (member: (note: RowNote) => string | undefined): (string | null)[] =>
    notes.map((one) => member(one) ?? null)
  if (notes.length > 0) {
    await session.query(noteRows(on), [
      of(({ spot }) => spot),
      of(({ kind }) => kind),
      of(({ property }) => property),
      of(({ reason }) => reason),
      of(({ holder }) => holder),
      of(({ holderProperty }) => holderProperty),
      of(({ holderKey }) => holderKey),
    ])
  }
  counts.filled += rows.length
  counts.normalized += changed.length
}

function sortRows({ options }: WorkRun, table: ClaimedTable, rows: readonly LockedRow[]): Sorted {
  const sorted: Sorted = { changed: [], claimed: [], gone: [], notes: [] }
  for (const row of rows) {
    const { spot } = row
    const stored = table.names.map((_, index) => row[`c${index}`] ?? null)
    const normalized = normalizeNames(table, stored)
    if ('refused' in normalized) {
      if (options.refused === 'delete') sorted.gone.push(spot)
      else if (options.refused === 'keep') sorted.claimed.push(spot)
      else sorted.notes.push({ spot, kind: 'refused', property: normalized.column, reason: normalized.refused })
    } else if (normalized.texts.some((text, index) => text !== stored[index])) {
      sorted.changed.push({ spot, texts: normalized.texts })
    } else sorted.claimed.push(spot)
  }
  return sorted
}

type NormalizedNames =
  | { readonly texts: readonly (string | null)[] }
  | { readonly refused: string; readonly column: string }

function normalizeNames({ names }: ClaimedTable, stored: readonly (string | null)[]): NormalizedNames {
  const texts: (string | null)[] = []
  for (const [index, { text, name }] of names.entries()) {
    const value = stored[index] ?? null
    try {
      texts.push(value === null ? null : normalizeText(text.normalizer, name, value))
    } catch (error) {
      if (!(error instanceof TextRejectedError)) throw error
      return { refused: error.reason, column: text.column.databaseName }
    }
  }
  return { texts }
}

/** Together; where a name is taken one by one, so that only that row is left as it is. */
async function writeAll(run: WorkRun, on: NamedTable, changed: Sorted['changed']): Promise<RowNote[]> {
  const taken = await writeSome(run, on, changed)
  if (taken === undefined || changed.length === 1) return taken ?? []
  const notes: RowNote[] = []
  for (const one of changed) notes.push(...((await writeSome(run, on, [one])) ?? []))
  return notes
}

/** @returns undefined where all were written */
async function writeSome(
  { session }: WorkRun,
  on: NamedTable,
  changed: Sorted['changed'],
): Promise<RowNote[] | undefined> {
  const columns = nameColumnsOf(on).map((_, index) => changed.map(({ texts }) => texts[index] ?? null))
  await session.query(savepoint.set)
  try {
    await session.query(writeNames(on), [changed.map(({ spot }) => spot), ...columns])
    await session.query(savepoint.release)
    return undefined
  } catch (error) {
    const told = serverError(error)
    const refused = told && refusedNames(told, on.holder.of)
    const own = ownConstraint(error, [on.holder.of.index])
    const spot = changed[0]?.spot ?? ''
    if (!refused && own === undefined) throw error
    await session.all([savepoint.rollBack, savepoint.release])
    if (!refused) return [{ spot, kind: 'refused', reason: `${own} refuses it normalized (SQLSTATE ${told?.code})` }]
    return refused.map(({ column, holder, holderColumn, key }) => ({
      spot,
      kind: 'clash',
      property: column,
      holder,
      holderProperty: holderColumn,
      holderKey: key ? JSON.stringify(key) : undefined,
    }))
  }
}

/** Looks again at the rows that are left, once at each. @returns how many of them somebody has locked */
async function claimLeft(run: WorkRun, table: ClaimedTable): Promise<number> {
  const { session } = run
  const { on } = table
  const [{ seq } = { seq: '0' }] = await session.query<{ seq: string }>(lastNote(on))
  for (let [limit, attempts] = [FIRST_ROWS, 0]; ;) {
    const size = limit
    const found = await tried(async () => await claimNotes(run, table, seq, size))
    if (found === 0) break
    if (found === undefined) {
      attempts += 1
      // One row after the other, so that only those are held up that somebody stands in the way of.
      limit = 1
      if (attempts > MOST_TRIES) await deferNote(run, on, seq)
      await session.rest(attempts)
    } else attempts = 0
    await session.breathe()
  }
  return (await leftRows(run, on)).get('locked') ?? 0
}

/** The first note becomes the last, for another round. */
async function deferNote({ session }: WorkRun, on: NamedTable, upTo: string): Promise<void> {
  await session.patiently('fill', async () => {
    const notes = await session.query<{ key: string }>(takeNotes(on), [upTo, 1])
    await session.query(noteKeys(on), [notes.map(({ key }) => key)])
  })
}

async function claimNotes(run: WorkRun, table: ClaimedTable, upTo: string, limit: number): Promise<number> {
  const { session } = run
  const { on } = table
  return await session.together(async () => {
    const notes = await session.query<{ key: string }>(takeNotes(on), [upTo, limit])
    const keys = [...new Set(notes.map(({ key }) => key))]
    if (keys.length === 0) return 0
    const rows = await session.query<LockedRow>(lockKeys(on), [keys])
    const locked = new Set(rows.map(({ key }) => key))
    await session.query(noteKeys(on), [keys.filter((key) => !locked.has(key))])
    await claimLocked(run, table, rows)
    return notes.length
  })
}

/** By kind. */
async function leftRows({ session }: WorkRun, on: NamedTable): Promise<ReadonlyMap<string, number>> {
  const rows = await session.query<Record<'kind' | 'notes', string>>(countLeft(on))
  return new Map(rows.map(({ kind, notes }) => [kind, Number(notes)]))
}

/** A row that is left, as it is reported. */
interface LeftName {
  readonly kind: 'clash' | 'refused' | 'locked'
  readonly key: string
  readonly property: string | null
  readonly reason: string | null
  readonly holder: string | null
  readonly holder_property: string | null
  readonly holder_key: string | null
}

const firstLeft = async ({ session }: WorkRun, on: NamedTable, limit: number): Promise<readonly LeftName[]> =>
  await session.query<LeftName>(readLeft(on, limit))
