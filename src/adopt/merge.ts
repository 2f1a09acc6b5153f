import type { DataSource, EntityManager, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions, RULE, type Rule, type Rules } from '../options'
import { dataSourceOf } from '../registry/registry'
import { qualified } from '../sql/identifier'
import { isBusyError, serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import {
  type AdoptOptions,
  BATCH_RULES,
  type BatchOption,
  LOCK_RULES,
  type LockOption,
  parseRows,
  PROPERTY_OPTION,
} from './options'
import { AdoptionError, type AdoptSession, type TableCommand, type Seams, withSession, withTable } from './session'
import {
  clearFlags,
  createLog,
  decideGroup,
  deleteRows,
  dropPlaces,
  FIND_COLUMN,
  FIND_TABLE,
  findConflicts,
  findSurplus,
  forgetLog,
  type MergedTable,
  lockPairs,
  logAndDelete,
  type Logged,
  logRows,
  MERGES,
  READ_COLUMNS,
  READ_KEYED,
  READ_PRIMARY,
  readGroups,
  readKeys,
  readMoves,
  readPair,
  readPlaces,
  readSets,
  type Reference,
  referencesTo,
  refersItself,
  repoint,
  resolveKey,
  restoreRows,
  seePairs,
  seeSelf,
  setValues,
  stillReferring,
  turn,
  turnBack,
} from './sql/merge'
import { type AdoptedTable, FIND_KEPT } from './sql/table'
import { findDeclaration, findTarget, requireAdopted, type Target } from './target'
import { throughPlaces } from './work'

/** What a person names for a merge: tables and columns that no foreign key tells of, or tables that may lose rows. */
export interface NamedReferences {
  /** Columns that refer to the primary key without a foreign key, as `table.column` or `schema.table.column`. @default [] */
  readonly also?: readonly string[]
  /**
   * Tables, as `table` or `schema.table`, whose rows become one too where a unique index stands against turning a
   * reference, with what refers to them in turn: the row stays that referred to the row that stays. Rows that differ in
   * nothing but key and reference do so anyway. @default {}: the row that would go is left and reported
   */
  readonly conflict?: Readonly<Record<string, 'merge'>>
}

const NAMED_RULES: Readonly<Record<keyof NamedReferences, Rule>> = {
  also: {
    takes: (value) => Array.isArray(value) && value.every((name) => typeof name === 'string'),
    expected: 'a list of names as table.column',
  },
  conflict: {
    takes: (value) =>
      typeof value === 'object' && value !== null && Object.values(value).every((one) => one === 'merge'),
    expected: `an object as { bookmark: 'merge' }`,
  },
}

/**
 * Looks whether the tables and columns exist that a merge names. `mergeDuplicates` does so too; this is for whoever
 * adopts the table first, which may take hours.
 *
 * @throws DeclarationError for one that does not exist
 * @throws AdoptionError while an adoption is running
 */
export async function checkMerge(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: NamedReferences & { readonly property?: string | undefined },
): Promise<void> {
  checkOptions('checkMerge()', options, { ...PROPERTY_OPTION, ...NAMED_RULES })
  const find = findTargetOf(dataSource, entity, options.property)
  await withTable({ dataSource, find, options: {}, seams: {} }, async (session, target) => {
    await namedReferences(session, target, options)
  })
}

function findTargetOf(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  property: string | undefined,
): TableCommand<Target>['find'] {
  const declaration = findDeclaration(dataSource, entity, property)
  return async (query) => await findTarget(declaration, query)
}

/** A name that is misspelt would leave every row of the table that was meant. */
async function namedReferences(
  session: AdoptSession,
  target: Target,
  { also = [], conflict = {} }: NamedReferences,
): Promise<Reference[]> {
  for (const name of Object.keys(conflict)) {
    const found = await session.query(FIND_TABLE, [name])
    if (found.length > 0) continue
    throw new DeclarationError(`"conflict" names "${name}", but there is no such table. Write table or schema.table.`)
  }
  return await alsoReferring(session, target, also)
}

/**
 * References without a foreign key, as a person names them.
 *
 * @throws DeclarationError for a column that is not there, and a table without a primary key
 */
async function alsoReferring(session: AdoptSession, { on }: Target, also: readonly string[]): Promise<Reference[]> {
  const references: Reference[] = []
  for (const name of also) {
    const [column = '', table = '', schema = on.table.schema] = name.split('.').reverse()
    const [found, [known]] = [
      await session.query<{ name: string }>(READ_PRIMARY, [qualified(schema, table)]),
      await session.query(FIND_COLUMN, [qualified(schema, table), column]),
    ]
    if (known === undefined || found.length === 0 || on.primary.length !== 1) {
      throw new DeclarationError(`"${name}" must name a column of a table with a primary key. Write table.column.`)
    }
    references.push({
      schema,
      table,
      columns: [column],
      referenced: on.primary,
      primary: found.map((one) => one.name),
      own: schema === on.table.schema && table === on.table.table,
    })
  }
  return references
}

/** Options of the merge of duplicates. */
export interface MergeOptions extends NamedReferences, Pick<AdoptOptions, LockOption | BatchOption> {
  /**
   * Which row of equal texts stays, by primary key. A row that is not deleted softly is preferred to one that is. A
   * function chooses for each group.
   */
  readonly keep: 'oldest' | 'newest' | MergeRows
  /** Called after each batch with the number of rows that are merged by then. */
  readonly onProgress?: (merged: number) => void
}

/**
 * Chooses among rows of equal text. Their values come by the columns' names in the database, as JSON has them; numbers
 * that JavaScript would round are strings.
 */
export type MergeRows = (rows: readonly ObjectLiteral[]) => MergeDecision | Promise<MergeDecision>

/** What becomes of rows of equal text. */
export interface MergeDecision {
  /** One of the rows. */
  readonly keep: ObjectLiteral
  /** New values of its columns, by their names in the database; not of the key, the text or its scope. */
  readonly set?: ObjectLiteral
}

const MERGE_RULES: Rules<MergeOptions> = {
  ...LOCK_RULES,
  ...BATCH_RULES,
  keep: {
    takes: (value) => typeof value === 'function' || value === 'oldest' || value === 'newest',
    expected: 'oldest, newest or a function',
  },
  ...NAMED_RULES,
  onProgress: RULE.function,
}

/** The result of a merge: what became of the duplicates. */
export interface MergeReport {
  readonly merged: number
  /** Rows that are left as they are, and the constraint or the reason. */
  readonly left: readonly LeftRow[]
}

/** A row that still holds the text of another one. */
export interface LeftRow {
  /** Its primary key, by the columns' names in the database. */
  readonly row: ObjectLiteral
  /** Key of the row that would have stayed. */
  readonly kept: ObjectLiteral
  /** A constraint's name, or a clause. */
  readonly reason: string
}

/** One run. */
interface MergeRun {
  readonly session: AdoptSession
  readonly target: Target
  readonly references: readonly Reference[]
  readonly conflicts: Conflicts
  readonly clears: boolean
  /** A function chose: rows that stay may get other values. */
  readonly decides: boolean
  readonly onProgress: (merged: number) => void
  readonly left: LeftRow[]
  merged: number
  /** So many rows were found, and were no duplicates any more when their turn came. */
  changed: number
}

const MERGE_BATCH = { first: 20, least: 5, fewest: 1 }
/** Clients that change duplicates all the time must not keep a merge from its end; the adoption reports what is left. */
const MOST_ROUNDS = 100

/**
 * Merges rows that hold the same text into one: references are turned to the row that stays, the others are deleted,
 * and a log keeps them whole. If a unique index of a referring table prevents that, the row is left and reported.
 *
 * @throws AdoptionError for a table that is not adopted, and while an adoption is running
 * @throws DeclarationError, UnsupportedDatabaseError
 */
export async function mergeDuplicates(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: MergeOptions,
): Promise<MergeReport> {
  checkOptions('mergeDuplicates()', options, MERGE_RULES, ['keep'])
  return await mergeWith(dataSource, entity, options, {})
}

/** @param seams of tests */
export async function mergeWith(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: MergeOptions,
  seams: Seams,
): Promise<MergeReport> {
  const find = findTargetOf(dataSource, entity, options.property)
  return await withTable({ dataSource, find, options, seams }, async (session, target) => {
    requireAdopted(target, true)
    const references = [
      ...(await referencesTo(session.query, target.facts.oid, refuseReferring)),
      ...(await namedReferences(session, target, options)),
    ]
    const { deleteDateColumn } = target.declaration.metadata
    await session.all(createLog(target.on))
    const { keep } = options
    const order = keep === 'newest' ? keep : 'oldest'
    // Foreign keys and the user's triggers are to run; only the flags are cleared without the guard.
    const clears = await session.becomeReplica()
    if (clears) await session.set('session_replication_role', 'origin')
    const conflicts = new Conflicts(session, target.on, Object.keys(options.conflict ?? {}))
    const decides = typeof keep === 'function'
    const merging: MergeRun = {
      session,
      target,
      references,
      conflicts,
      clears,
      decides,
      onProgress: options.onProgress ?? ((): void => {}),
      left: [],
      merged: 0,
      changed: 0,
    }
    // Where the row that was to stay is gone, or has another text, the others of its group have equal texts still.
    for (let round = 1; round === 1 || (merging.changed > 0 && round <= MOST_ROUNDS); round += 1) {
      merging.changed = 0
      merging.left.length = 0
      await session.all(findSurplus(target.on, order, deleteDateColumn?.databaseName))
      if (decides) await decideGroups(merging, keep)
      await mergeAll(merging)
    }
    return { merged: merging.merged, left: merging.left }
  })
}

const GROUPS = 100

/** Asks the function for every group, outside of a transaction: what has changed by the time of the merge stays. */
async function decideGroups(merging: MergeRun, merge: MergeRows): Promise<void> {
  const { session } = merging
  const { on, facts } = merging.target
  const [keyed] = await session.query<{ found: string }>(READ_KEYED, [tableName(on.table)])
  const { types } = JSON.parse(keyed?.found ?? '') as MergedTable
  const columns = await session.query<{ name: string }>(READ_COLUMNS, [facts.oid])
  const fixed = new Set([...on.primary, ...on.table.scope, ...on.table.text.map(({ name }) => name)])
  const free = new Set(columns.map(({ name }) => name).filter((name) => !fixed.has(name)))
  for (let last = '0'; ;) {
    const groups = await session.query<Record<'places' | 'rows' | 'keys', string>>(readGroups(on), [last, GROUPS])
    for (const group of groups) {
      const [rows, keys] = [parseRows(group.rows, 2) as ObjectLiteral[], JSON.parse(group.keys) as string[][]]
      const places = (JSON.parse(group.places) as number[]).map(String)
      last = places.at(-1) ?? last
      if (rows.length === places.length + 1) {
        const { keep, set } = requireDecision(await merge(rows), free)
        const kept = requireRow(rows, keep, on.primary)
        const others = keys.filter((_, index) => index !== kept)
        const values = [places, JSON.stringify(others), keys[kept], set && JSON.stringify(set)]
        await session.query(decideGroup(on, types), values)
      } else await dropChanged(merging, places)
    }
    if (groups.length < GROUPS) return
    await session.breathe()
  }
}

/** A file is not compiled against our types: its function may have returned nothing, or a row. */
type AnyDecision = { readonly [Key in keyof MergeDecision]?: MergeDecision[Key] | null }

function requireDecision(given: AnyDecision | null | undefined, free: ReadonlySet<string>): AnyDecision {
  const decision = given ?? {}
  const other = Object.keys(decision.set ?? {}).find((name) => !free.has(name))
  if (other === undefined) return decision
  throw new DeclarationError(
    `merge(): "set" may not name "${other}". Name columns of the table but the key, the text and its scope.`,
  )
}

function requireRow(rows: readonly ObjectLiteral[], keep: AnyDecision['keep'], primary: readonly string[]): number {
  const found = rows.findIndex((row) => row === keep || primary.every((name) => row[name] === keep?.[name]))
  if (found !== -1) return found
  throw new DeclarationError('merge(): "keep" must be one of the rows. Return { keep: rows[0] }, for instance.')
}

/** Rows that are gone, or no duplicates any more. */
async function dropChanged(merging: MergeRun, places: readonly string[]): Promise<void> {
  merging.changed += places.length
  await merging.session.query(dropPlaces(merging.target.on), [places])
}

async function setAll({ session, target: { on } }: MergeRun, ready: readonly string[]): Promise<void> {
  for (const { place, data } of await session.query<Record<'place' | 'data', string>>(readSets(on), [ready])) {
    const columns = Object.keys(JSON.parse(data) as ObjectLiteral)
    if (columns.length === 0) continue
    const [log = '', write = ''] = setValues(on, columns)
    await session.query(log, [place, on.table.guard])
    await session.query(write, [place])
  }
}

async function mergeAll(merging: MergeRun): Promise<void> {
  const { session, target } = merging
  await throughPlaces(session, MERGE_BATCH, async (last, limit) => {
    const rows = await session.query<{ place: string }>(readPlaces(target.on), [last, limit])
    const places = rows.map(({ place }) => place)
    if (places.length === 0) return { seen: 0, last, stuck: 0 }
    const stuck = await mergeBatch(merging, places)
    merging.onProgress(merging.merged)
    return { seen: places.length, last: places.at(-1) ?? last, stuck }
  })
}

/**
 * @param clears a unique index stood against the only row: what clashes with it goes first
 * @returns how many rows are left for later, because somebody has them locked
 */
async function mergeBatch(merging: MergeRun, places: readonly string[], clears = false): Promise<number> {
  try {
    const { busy, merged, selves } = await merging.session.together(
      async () => await mergeRows(merging, places, clears),
    )
    merging.merged += merged
    await leaveRows(merging, selves, 'it would refer to itself')
    return busy
  } catch (error) {
    const { code, constraint } = serverError(error) ?? {}
    if (isBusyError(error)) return places.length
    if (error instanceof Unmergeable) return await leaveRows(merging, places, error.message)
    if (code === undefined || !/^(?:23|P0|2F|09)/.test(code)) throw error
    if (places.length > 1) return await mergeEach(merging, places)
    if (code === SQLSTATE.uniqueViolation && !clears) return await mergeBatch(merging, places, true)
    return await leaveRows(merging, places, constraint ?? code)
  }
}

async function mergeEach(merging: MergeRun, places: readonly string[]): Promise<number> {
  let busy = 0
  for (const place of places) busy += await mergeBatch(merging, [place])
  return busy
}

async function leaveRows(
  { session, target, left }: MergeRun,
  places: readonly string[],
  reason: string,
): Promise<number> {
  if (places.length === 0) return 0
  for (const { row, kept } of await session.query<Record<'row' | 'kept', string>>(readKeys(target.on), [places])) {
    left.push({ row: parseRows(row, 1) as ObjectLiteral, kept: parseRows(kept, 1) as ObjectLiteral, reason })
  }
  await session.query(dropPlaces(target.on), [places])
  return 0
}

/** What became of the rows of one transaction. */
interface Merged {
  /** Somebody else has so many of them locked. */
  readonly busy: number
  readonly merged: number
  /** Groups whose row that stays refers to the one that goes. */
  readonly selves: readonly string[]
}

async function mergeRows(merging: MergeRun, places: readonly string[], clears: boolean): Promise<Merged> {
  const { session, target, references } = merging
  const { on } = target
  const placesOf = async (sql: string, of: readonly string[]): Promise<string[]> =>
    (await session.query<{ place: string }>(sql, [of])).map(({ place }) => place)
  const seen = new Set(await placesOf(seePairs(on), places))
  const locked = await placesOf(lockPairs(on), places)
  const selves = new Set<string>()
  for (const one of references.filter(({ own }) => own)) {
    for (const place of await placesOf(seeSelf(on, one), locked)) selves.add(place)
  }
  const ready = locked.filter((place) => !selves.has(place))
  await mergeReady(merging, ready, clears)
  await dropChanged(
    merging,
    places.filter((place) => !seen.has(place) && !locked.includes(place)),
  )
  const busy = [...seen].filter((place) => !locked.includes(place)).length
  return { busy, merged: ready.length, selves: [...selves] }
}

async function mergeReady(merging: MergeRun, ready: readonly string[], first: boolean): Promise<void> {
  const { session, target, references, clears, conflicts } = merging
  const { on } = target
  if (ready.length === 0) return
  await session.query(logRows(on), [ready, on.table.guard])
  for (const one of references) {
    if (first) for (const place of ready) await conflicts.clear(place, one)
    await session.query(repoint(on, one), [ready, on.table.guard, JSON.stringify(one)])
    const [still] = await session.query<{ n: string }>(stillReferring(on, one), [ready])
    if (still?.n !== '0') throw new AdoptionError('changed', `A trigger undoes references of ${one.table}. Disable it.`)
  }
  await session.query(deleteRows(on), [ready])
  if (merging.decides) await setAll(merging, ready)
  if (clears) {
    await session.set('session_replication_role', 'replica')
    await session.query(clearFlags(on), [ready])
    await session.set('session_replication_role', 'origin')
  }
  await session.query(dropPlaces(on), [ready])
}

/**
 * Returns the primary key of the row that a merged row became, for links and caches that outlive that row.
 *
 * @param key key of the row that is gone: a value, or, for a key of several columns, an object by their names in the
 * database
 * @returns in the form that was given; undefined where no row of this key was merged
 * @throws DeclarationError
 */
export async function resolveMerged<Key extends number | string | ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral>,
  key: Key,
  options: Pick<AdoptOptions, 'property'> = {},
): Promise<Key | undefined> {
  checkOptions('resolveMerged()', options, PROPERTY_OPTION)
  const { table, metadata } = findDeclaration(dataSourceOf(manager), entity, options.property)
  const names = metadata.primaryColumns.map(({ databaseName }) => databaseName)
  const [log] = (await manager.query(FIND_KEPT, [tableName(table), MERGES])) as { schema: string; kept: boolean }[]
  if (log?.kept !== true) return undefined
  const parts = names.map((name) => String(typeof key === 'object' ? key[name] : key))
  const on = { table: { ...table, schema: log.schema } }
  const [found] = (await manager.query(resolveKey(on), [table.guard, parts])) as { kept: string[] }[]
  return found && (keyLike(key, names, found.kept) as Key)
}

function keyLike(given: unknown, names: readonly string[], kept: readonly string[]): unknown {
  const like = (one: unknown, value: string | undefined): unknown => (typeof one === 'number' ? Number(value) : value)
  if (typeof given !== 'object') return like(given, kept[0])
  return Object.fromEntries(names.map((name, index) => [name, like((given as ObjectLiteral)[name], kept[index])]))
}

/** Options of `unmerge`; as those of `adopt`. */
export type UnmergeOptions = Pick<AdoptOptions, LockOption>

/**
 * Plays the log of merges backwards, in one transaction: merged rows come back whole, and references point to them
 * again. Possible only while the table is not unique: before it is adopted, or after `abandon`.
 *
 * @returns how many rows came back
 * @throws AdoptionError if the table is unique
 */
export async function unmerge(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: UnmergeOptions = {},
): Promise<number> {
  checkOptions('unmerge()', options, LOCK_RULES)
  const find = findTargetOf(dataSource, entity, options.property)
  return await withTable({ dataSource, find, options, seams: {} }, async (session, target) => {
    const { on, facts } = target
    requireAdopted(target, false)
    await session.all(createLog(on))
    const columnsOf = async (table: string): Promise<string[]> =>
      (await session.query<{ name: string }>(READ_COLUMNS, [table])).map(({ name }) => name)
    return await session.patiently('unmerge', async () => {
      const back = await session.query(`${restoreRows(on, await columnsOf(facts.oid))} RETURNING 1`, [on.table.guard])
      for (const { seq, reference } of await session.query<Record<'seq' | 'reference', string>>(readMoves(on), [
        on.table.guard,
      ])) {
        const logged = JSON.parse(reference) as Logged
        const columns = 'gone' in logged ? await columnsOf(qualified(logged.schema, logged.table)) : []
        await session.query(turnBack(on, logged, columns), [seq])
      }
      await session.query(forgetLog(on), [on.table.guard])
      return back.length
    })
  })
}

/** Empties the log: merged rows can no longer be restored, nor their keys resolved. */
export async function forgetMerges(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: Pick<AdoptOptions, 'property'> = {},
): Promise<void> {
  checkOptions('forgetMerges()', options, PROPERTY_OPTION)
  const declaration = findDeclaration(dataSource, entity, options.property)
  await withSession(dataSource, {}, {}, async (session) => {
    const { on } = await findTarget(declaration, session.query)
    await session.all(createLog(on))
    await session.query(forgetLog(on), [on.table.guard])
  })
}

/** What stands against it that two rows become one: the constraint, or a clause. */
class Unmergeable extends Error {
  override readonly name = 'Unmergeable'
}

/** @throws AdoptionError for a table by which another role would run code as the one that merges */
function refuseReferring(table: string): never {
  throw new AdoptionError(
    'unsupported',
    `The owner of ${table} may not act as the owner of the table that it refers to: its triggers would run as the role ` +
      `that merges. See who made it; then drop its foreign key, or change its owner.`,
  )
}

/** Two rows of a table, of which one goes and one stays, by their keys. */
interface Pair {
  readonly old: readonly string[]
  readonly kept: readonly string[]
}

/** Rows refer to rows that refer to rows; further than this somebody should look. */
const DEEPEST = 10

/** Merges rows that would clash once their references are turned, and what refers to them in turn. */
class Conflicts {
  private readonly tables = new Map<string, Promise<MergedTable>>()
  private readonly references = new Map<string, Promise<Reference[]>>()

  /** @param merged tables, as `table` or `schema.table`, whose rows become one although they differ */
  constructor(
    private readonly session: AdoptSession,
    private readonly on: AdoptedTable,
    private readonly merged: readonly string[],
  ) {}

  /** Clears the way for the references to the row of a place of work. @throws Unmergeable */
  async clear(place: string, reference: Reference): Promise<void> {
    const [pair] = await this.session.query<Pair>(readPair(this.on), [place])
    if (pair) await this.clearPair(await this.keyed(this.on.table), reference, pair, 1)
  }

  private async clearPair(parent: MergedTable, reference: Reference, pair: Pair, depth: number): Promise<void> {
    const child = await this.keyed(reference)
    if (child.primary.length === 0) return
    const touched = child.indexes.filter(({ columns }) => columns.some((name) => reference.columns.includes(name)))
    for (const { name, columns } of touched) {
      const sql = findConflicts(parent, reference, child, columns)
      for (const one of await this.session.query<Pair & { same: boolean }>(sql, [pair.old, pair.kept])) {
        if (!one.same && !this.isMerged(child)) throw new Unmergeable(name)
        await this.mergePair(child, one, depth)
      }
    }
  }

  private isMerged({ schema, table }: MergedTable): boolean {
    return this.merged.includes(table) || this.merged.includes(`${schema}.${table}`)
  }

  private async mergePair(table: MergedTable, pair: Pair, depth: number): Promise<void> {
    if (depth > DEEPEST) throw new Unmergeable(`rows refer to each other over more than ${DEEPEST} tables`)
    const { schema, table: name, primary } = table
    const parent = { schema, table: name, primary }
    const values = [pair.old, pair.kept]
    for (const reference of await this.referencesTo(table)) {
      if (reference.own) await this.refuseSelf(table, reference, values)
      await this.clearPair(table, reference, pair, depth + 1)
      const logged = JSON.stringify({ ...reference, parent })
      await this.session.query(turn(this.on, table, reference), [...values, this.on.table.guard, logged])
    }
    const [log = '', remove = ''] = logAndDelete(this.on, table)
    await this.session.query(log, [...values, this.on.table.guard, JSON.stringify({ ...parent, gone: true })])
    await this.session.query(remove, [pair.old])
  }

  private async refuseSelf(table: MergedTable, reference: Reference, values: unknown[]): Promise<void> {
    const [found] = await this.session.query<{ n: string }>(refersItself(table, reference), values)
    if (found?.n !== '0') throw new Unmergeable(`a row of ${table.table} would refer to itself`)
  }

  private async keyed({ schema, table }: Pick<Reference, 'table'> & { readonly schema: string }): Promise<MergedTable> {
    const name = qualified(schema, table)
    const found = this.tables.get(name) ?? this.readKeyed(name)
    this.tables.set(name, found)
    return await found
  }

  private async readKeyed(name: string): Promise<MergedTable> {
    const [row] = await this.session.query<{ found: string }>(READ_KEYED, [name])
    return JSON.parse(row?.found ?? '') as MergedTable
  }

  private async referencesTo({ oid }: MergedTable): Promise<Reference[]> {
    const found = this.references.get(oid) ?? referencesTo(this.session.query, oid, refuseReferring)
    this.references.set(oid, found)
    return await found
  }
}
