import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { checkOptions, RULE, type Rule, type Rules } from '../options'
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
import { AdoptionError, type AdoptSession, type Seams, withTable } from './session'
import {
  type LoggedChange,
  clearFlags,
  namesOfColumns,
  countChanges,
  createKeys,
  createLog,
  decideGroup,
  deleteOne,
  deleteRows,
  dropPlaces,
  FIND_COLUMN,
  FIND_TABLE,
  findConflicts,
  findInexact,
  findSurplus,
  isThere,
  identifyingColumns,
  lastChange,
  lockPairs,
  mayMerge,
  logOne,
  logRows,
  type MergedTable,
  noteMergedKeys,
  pairSource,
  placesSource,
  PRIVILEGES,
  READ_KEYED,
  readGroups,
  readKeys,
  readPair,
  readPlaces,
  readSets,
  type Reference,
  referencesTo,
  refersItself,
  seePairs,
  seeSelf,
  setValues,
  stillReferring,
  stillThere,
  turn,
} from './sql/merge'
import type { AdoptedTable } from './sql/table'
import { findTargetOf, requireAdopted, type Target } from './target'
import { throughPlaces } from './work'

/** The names that a merge needs: columns that refer without a foreign key, and tables that may lose rows. */
export interface NamedReferences {
  /**
   * Columns that refer to the primary key without a foreign key, as `table.column` or `schema.table.column`. If a
   * column refers to several tables, also its rows: `attachment.target_id where target_type = 'page'`. @default []
   */
  readonly also?: readonly string[]
  /**
   * Tables, as `table` or `schema.table`, whose rows are merged too if a unique index prevents turning a reference. The
   * row that referred to the kept row is kept, and references to the other are turned. Rows that differ only in key and
   * reference are always merged. @default {}: the row that would be deleted is left and reported
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
 * Checks that the tables and columns that a merge names exist, and that the role may turn all references.
 * `mergeDuplicates` checks this too. This function is for a caller that first adopts the table, which may take hours.
 *
 * @throws DeclarationError if a table or a column does not exist
 * @throws AdoptionError while an adoption is running, and if the role may not merge
 */
export async function checkMerge(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: NamedReferences & { readonly property?: string | undefined },
): Promise<void> {
  checkOptions('checkMerge()', options, { ...PROPERTY_OPTION, ...NAMED_RULES })
  const find = findTargetOf(dataSource, entity, options.property)
  await withTable({ dataSource, find, options: {}, seams: {} }, async (session, target) => {
    await allReferences(session, target, options)
  })
}

/**
 * Reads the references that a merge turns: those of foreign keys, and those that a person names.
 *
 * @throws AdoptionError if the role may not turn them
 */
async function allReferences(session: AdoptSession, target: Target, named: NamedReferences): Promise<Reference[]> {
  const references = await referencesTo(session.query, target.facts.oid, refuseReferring)
  // With a misspelt name, every row of the intended table would be left.
  for (const name of Object.keys(named.conflict ?? {})) {
    const found = await session.query(FIND_TABLE, [name])
    if (found.length > 0) continue
    throw new DeclarationError(`"conflict" names "${name}", but there is no such table. Write table or schema.table.`)
  }
  for (const name of named.also ?? []) references.push(await namedReference(session, target, name))
  const { table } = target.on
  const wanted = [
    { schema: table.schema, table: table.table, privileges: PRIVILEGES.merged, columns: [] },
    ...references.map((one) => ({ ...one, privileges: PRIVILEGES.referring })),
  ]
  for (const one of wanted) {
    const [found] = await session.query<{ allowed: boolean }>(mayMerge(one.privileges, one.columns), [tableName(one)])
    if (found?.allowed === true) continue
    const needed = [...one.privileges, ...(one.columns.length > 0 ? [`UPDATE (${one.columns.join(', ')})`] : [])]
    throw new AdoptionError(
      'unsupported',
      `The role may not merge rows: it needs ${needed.join(', ')} on ${tableName(one)}, all of whose rows it must see. ` +
        `Grant them, or run the command as the owner.`,
    )
  }
  return references
}

/** `table.column`, and a condition on its rows. */
const NAMED_REFERENCE = /^(?<path>.+?)(?:\s+where\s+(?<column>[^\s=]+)\s*=\s*'(?<value>(?:[^']|'')*)')?$/iu

/**
 * A reference without a foreign key, as a person names it.
 *
 * @throws DeclarationError if a column does not exist, or if its rows refer to several tables
 */
async function namedReference(session: AdoptSession, { on }: Target, name: string): Promise<Reference> {
  const { path, when, ...reference } = parseReference(name, on)
  const [column = ''] = reference.columns
  const isColumn = async (one: string): Promise<boolean> =>
    (await session.query(FIND_COLUMN, [tableName(reference), one])).length > 0
  if (!(await isColumn(column)) || !(await isColumn(when?.column ?? column)) || on.primary.length !== 1) {
    throw new DeclarationError(
      `"${path}" must name a column that refers to a primary key of one column. Write table.column, or ` +
        `table.column where kind = 'page'.`,
    )
  }
  const stem = column.replace(/_?id$/iu, '')
  for (const kind of when ? [] : [`${stem}_type`, `${stem}Type`]) {
    if (!(await isColumn(kind))) continue
    throw new DeclarationError(
      `"${path}" may refer to several tables: there is a column "${kind}". Write which rows refer to this one: ` +
        `${path} where ${kind} = '…'.`,
    )
  }
  return { ...reference, when }
}

function parseReference(name: string, on: AdoptedTable): Reference & { readonly path: string } {
  const { path = '', column: by, value = '' } = NAMED_REFERENCE.exec(name)?.groups ?? {}
  const [column = '', table = '', schema = on.table.schema] = path.split('.').reverse()
  const when = by === undefined ? undefined : { column: by, value: value.replaceAll("''", "'") }
  const own = schema === on.table.schema && table === on.table.table
  return { path, schema, table, columns: [column], referenced: on.primary, shared: [], own, when }
}

/** Options of the merge of duplicates. */
export interface MergeOptions extends NamedReferences, Pick<AdoptOptions, LockOption | BatchOption> {
  /**
   * The row of equal texts to keep, by primary key. Rows that are not soft-deleted take precedence. A function chooses
   * for each group.
   */
  readonly keep: 'oldest' | 'newest' | MergeRows
  /**
   * Does each batch and rolls it back. The report lists the changes that a merge would make now. It locks rows as a
   * merge does, and your triggers run. @default false
   */
  readonly dryRun?: boolean | undefined
  /** Called after each batch with the number of rows merged so far. */
  readonly onProgress?: (merged: number) => void
  /** Called after each batch with the rows that it merged. */
  readonly onMerged?: ((rows: readonly MergedKey[]) => void) | undefined
}

/** The primary keys of a deleted row and of its replacement, by the columns' names in the database. */
export interface MergedKey {
  /** The primary key of the row that was removed. */
  readonly row: ObjectLiteral
  /** The primary key of the row that remains. */
  readonly kept: ObjectLiteral
}

/**
 * Chooses among rows of equal text. Their values have the columns' names in the database and their form in JSON.
 * Numbers that JavaScript would round are strings.
 */
export type MergeRows = (rows: readonly ObjectLiteral[]) => MergeDecision | Promise<MergeDecision>

/** The decision about rows of equal text. */
export interface MergeDecision {
  /** One of the rows. */
  readonly keep: ObjectLiteral
  /** New values of its columns, by their names in the database. Key, text and scope cannot be set. */
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
  dryRun: RULE.boolean,
  onProgress: RULE.function,
  onMerged: RULE.function,
}

/** The result of a merge. */
export interface MergeReport {
  /** How many rows were removed. */
  readonly merged: number
  /** By table, the turned references, and the rows of other tables that were deleted because they clashed. */
  readonly changes: readonly MergeChange[]
  /** Rows that are left unchanged, and the constraint or the reason. */
  readonly left: readonly LeftRow[]
}

/** The changes of a merge in a table. */
export interface MergeChange {
  /** With its schema. */
  readonly table: string
  /** The columns of the references; undefined for deleted rows. */
  readonly columns: readonly string[] | undefined
  /** How many rows. */
  readonly rows: number
}

/** A row that still holds the text of another row, and the row that would have been kept. */
export interface LeftRow extends MergedKey {
  /** A constraint's name, or a clause. */
  readonly reason: string
}

/** One run. */
interface MergeRun {
  readonly session: AdoptSession
  readonly target: Target
  readonly table: MergedTable
  readonly tables: Tables
  readonly references: readonly Reference[]
  readonly conflicts: Conflicts
  readonly clears: boolean
  /** Whether a function chooses, so that kept rows may get other values. */
  readonly decides: boolean
  readonly options: MergeOptions
  readonly left: LeftRow[]
  /** Numbers of rows by the change that the log notes. */
  readonly changes: Map<string, number>
  /** The last entry of the log that is counted. */
  logged: string
  merged: number
  /** The number of rows that were found but were no duplicates any more when they were processed. */
  changed: number
}

const MERGE_BATCH = { first: 20, least: 5, fewest: 1 }
/** A limit, because clients may change duplicates all the time. The adoption reports the rest. */
const MOST_ROUNDS = 100

/**
 * Merges rows that hold the same text into one. References are turned to the row that is kept. The others are deleted,
 * and a log holds them whole. If a unique index of a referring table prevents that, the row is left and reported.
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

/** @param seams the replacements for tests */
export async function mergeWith(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: MergeOptions,
  seams: Seams,
): Promise<MergeReport> {
  const find = findTargetOf(dataSource, entity, options.property)
  return await withTable({ dataSource, find, options, seams }, async (session, target) => {
    requireAdopted(target, true)
    const references = await allReferences(session, target, options)
    const { deleteDateColumn } = target.declaration.metadata
    const tables = new Tables(session)
    const table = await tables.keyed(target.on.table)
    await session.make('merge', [...createLog(target.on), ...createKeys(target.on, table)])
    const { keep, dryRun = false } = options
    session.isTrial = dryRun
    const order = keep === 'newest' ? keep : 'oldest'
    // Foreign keys and the user's triggers must run. Only the flags are cleared without the guard.
    const clears = await session.becomeReplica()
    if (clears) await session.set('session_replication_role', 'origin')
    const conflicts = new Conflicts(session, target.on, tables, Object.keys(options.conflict ?? {}))
    const decides = typeof keep === 'function'
    const [row] = await session.query<{ last: string }>(lastChange(target.on))
    const merging: MergeRun = {
      session,
      target,
      table,
      tables,
      references,
      conflicts,
      clears,
      decides,
      options,
      left: [],
      changes: new Map(),
      logged: row?.last ?? '0',
      merged: 0,
      changed: 0,
    }
    // If the row to keep was deleted or has another text, the other rows of its group still have equal texts.
    const rounds = dryRun ? 1 : MOST_ROUNDS
    let round = 0
    do {
      round += 1
      merging.changed = 0
      merging.left.length = 0
      await session.all(findSurplus(target.on, order, deleteDateColumn?.databaseName))
      if (decides) await decideGroups(merging, keep)
      await throughPlaces(session, MERGE_BATCH, async (last, limit) => {
        const rows = await session.query<{ place: string }>(readPlaces(target.on), [last, limit])
        const places = rows.map(({ place }) => place)
        if (places.length === 0) return { seen: 0, last, stuck: 0 }
        const stuck = await mergeBatch(merging, places)
        options.onProgress?.(merging.merged)
        return { seen: places.length, last: places.at(-1) ?? last, stuck }
      })
    } while (merging.changed > 0 && round < rounds)
    const changes = [...merging.changes].map(([change, rows]) => {
      const { schema, table: name, columns } = JSON.parse(change) as LoggedChange
      return { table: tableName({ schema, table: name }), columns, rows }
    })
    return { merged: merging.merged, changes, left: merging.left }
  })
}

const GROUPS = 100

/** Calls the function for every group, outside a transaction. Rows that change before the merge are left out. */
async function decideGroups(merging: MergeRun, merge: MergeRows): Promise<void> {
  const { session, table } = merging
  const { on } = merging.target
  const fixed = new Set([...on.primary, ...on.table.scope, ...on.table.text.map(({ name }) => name)])
  const free = new Set(namesOfColumns(table).filter((name) => !fixed.has(name)))
  for (let last = '0'; ;) {
    const groups = await session.query<Record<'places' | 'rows' | 'keys', string>>(readGroups(on), [last, GROUPS])
    for (const group of groups) {
      const [rows, keys] = [parseRows(group.rows, 2) as ObjectLiteral[], JSON.parse(group.keys) as string[][]]
      const places = (JSON.parse(group.places) as number[]).map(String)
      last = places.at(-1) ?? last
      if (rows.length === places.length + 1) {
        // A file is not compiled against our types, so its function may have returned nothing, or a row.
        const decision: { readonly [Key in keyof MergeDecision]?: MergeDecision[Key] | null } | null | undefined =
          await merge(rows)
        const { keep, set } = decision ?? {}
        const other = Object.keys(set ?? {}).find((name) => !free.has(name))
        if (other !== undefined) {
          throw new DeclarationError(
            `merge(): "set" may not name "${other}". Name columns of the table but the key, the text and its scope.`,
          )
        }
        const kept = rows.findIndex((row) => row === keep || on.primary.every((name) => row[name] === keep?.[name]))
        if (kept === -1)
          throw new DeclarationError('merge(): "keep" must be one of the rows. Return { keep: rows[0] }, for instance.')
        const others = keys.filter((_, index) => index !== kept)
        const values = [places, JSON.stringify(others), keys[kept], set && JSON.stringify(set)]
        await session.query(decideGroup(on, table.types), values)
      } else await dropChanged(merging, places)
    }
    if (groups.length < GROUPS) return
    await session.breathe()
  }
}

/** Removes from the work rows that were deleted, or are no duplicates any more. */
async function dropChanged(merging: MergeRun, places: readonly string[]): Promise<void> {
  merging.changed += places.length
  await merging.session.query(dropPlaces(merging.target.on), [places])
}

async function setAll({ session, target: { on } }: MergeRun, ready: readonly string[]): Promise<void> {
  for (const { place, data } of await session.query<Record<'place' | 'data', string>>(readSets(on), [ready])) {
    const columns = Object.keys(JSON.parse(data) as ObjectLiteral)
    if (columns.length === 0) continue
    await session.query(setValues(on, columns), [place, on.table.guard])
  }
}

/**
 * @param clears whether a unique index refused the only row, so that clashing rows are deleted first
 * @returns how many rows are left for later, because another session has locked them
 */
async function mergeBatch(merging: MergeRun, places: readonly string[], clears = false): Promise<number> {
  try {
    const done = await merging.session.together(async () => await mergeRows(merging, places, clears))
    await noteMerged(merging, places, done)
    return done.busy.length
  } catch (error) {
    if (isBusyError(error)) return places.length
    const reason = reasonOf(error)
    if (reason === undefined) throw error
    if (places.length > 1) {
      let busy = 0
      for (const place of places) busy += await mergeBatch(merging, [place])
      return busy
    }
    const clashes = serverError(error)?.code === SQLSTATE.uniqueViolation
    if (clashes && !clears) return await mergeBatch(merging, places, true)
    return await leaveRows(merging, places, reason)
  }
}

async function noteMerged(merging: MergeRun, places: readonly string[], done: Merged): Promise<void> {
  const { session, target, options, changes } = merging
  const { busy, merged, keys, left, turned } = done
  merging.merged += merged
  for (const [change, rows] of turned) changes.set(change, (changes.get(change) ?? 0) + rows)
  if (keys.length > 0) options.onMerged?.(keys)
  for (const [place, reason] of left) await leaveRows(merging, [place], reason)
  if (!session.isTrial) return
  const seen = places.filter((place) => !busy.includes(place))
  await session.query(dropPlaces(target.on), [seen])
}

/** The reason why a row is left; undefined for an error that would affect every row. */
function reasonOf(error: unknown): string | undefined {
  if (error instanceof Unmergeable) return error.message
  const { code = '', constraint } = serverError(error) ?? {}
  return /^(?:23|P0|2F|09|54)/.test(code) ? (constraint ?? code) : undefined
}

async function leaveRows(merging: MergeRun, places: readonly string[], reason: string): Promise<number> {
  if (places.length === 0) return 0
  for (const one of await mergedKeysOf(merging, places)) merging.left.push({ ...one, reason })
  await merging.session.query(dropPlaces(merging.target.on), [places])
  return 0
}

/** The results for the rows of one transaction. */
interface Merged {
  /** Places whose rows another session has locked. */
  readonly busy: readonly string[]
  readonly merged: number
  /** The keys of those rows, if the caller has `onMerged`. */
  readonly keys: readonly MergedKey[]
  /** Numbers of rows by change. */
  readonly turned: ReadonlyMap<string, number>
  /** Places whose rows are left, with the reasons. */
  readonly left: ReadonlyMap<string, string>
}

async function mergeRows(merging: MergeRun, places: readonly string[], clears: boolean): Promise<Merged> {
  const { session, target, references } = merging
  const { on } = target
  const placesOf = async (sql: string, of: readonly string[]): Promise<string[]> =>
    (await session.query<{ place: string }>(sql, [of])).map(({ place }) => place)
  const seen = new Set(await placesOf(seePairs(on), places))
  const locked = await placesOf(lockPairs(on), places)
  const left = new Map<string, string>()
  for (const one of references) {
    if (one.own)
      for (const place of await placesOf(seeSelf(on, one), locked)) left.set(place, 'it would refer to itself')
    const inexact = findInexact(placesSource(on), one, 'w.place::pg_catalog.text')
    for (const { place, reason } of await session.query<Record<'place' | 'reason', string>>(inexact, [locked])) {
      left.set(place, reason)
    }
  }
  const ready = locked.filter((place) => !left.has(place))
  const keys = merging.options.onMerged ? await mergedKeysOf(merging, ready) : []
  await mergeReady(merging, ready, clears)
  // The entries that this batch has logged.
  const logged = await session.query<Record<'change' | 'rows' | 'last', string>>(countChanges(on), [
    on.table.guard,
    merging.logged,
  ])
  for (const { last } of logged) if (Number(last) > Number(merging.logged)) merging.logged = last
  const turned = new Map(logged.map(({ change, rows }) => [change, Number(rows)]))
  await dropChanged(
    merging,
    places.filter((place) => !seen.has(place) && !locked.includes(place)),
  )
  const busy = [...seen].filter((place) => !locked.includes(place))
  return { busy, merged: ready.length, keys, left, turned }
}

async function mergedKeysOf({ session, target }: MergeRun, places: readonly string[]): Promise<MergedKey[]> {
  const rows = await session.query<Record<'row' | 'kept', string>>(readKeys(target.on), [places])
  return rows.map(({ row, kept }) => ({
    row: parseRows(row, 1) as ObjectLiteral,
    kept: parseRows(kept, 1) as ObjectLiteral,
  }))
}

/** @throws Unmergeable if a trigger prevents it */
async function mergeReady(merging: MergeRun, ready: readonly string[], first: boolean): Promise<void> {
  const { session, target, table, tables, references, clears, conflicts } = merging
  const { on } = target
  if (ready.length === 0) return
  const isAny = async (sql: string): Promise<boolean> => {
    const [found] = await session.query<{ n: string }>(sql, [ready])
    return found?.n !== '0'
  }
  for (const places of await turnedTogether(merging, ready)) {
    for (const one of references) {
      if (first) for (const place of places) await conflicts.clear(place, one)
      const change: LoggedChange = { schema: one.schema, table: one.table, columns: one.columns, when: one.when }
      const values = [places, on.table.guard, JSON.stringify(change)]
      await session.query(turn(on, placesSource(on), one, await tables.keyed(one), 2), values)
    }
  }
  // Triggers that count references run now, because a row that is restored later must not be counted twice.
  await session.query('SET CONSTRAINTS ALL IMMEDIATE')
  // Only now, because a trigger on one table may write rows of another table whose references were turned before.
  for (const one of references) {
    const isReferring = await isAny(stillReferring(placesSource(on), one))
    if (isReferring) throw new Unmergeable(`a trigger undoes references of ${one.table}`)
  }
  await session.query(logRows(on, table), [ready, on.table.guard])
  await session.query(deleteRows(on), [ready])
  if (await isAny(stillThere(on))) throw new Unmergeable('a trigger keeps it')
  await session.query(noteMergedKeys(on), [ready])
  if (merging.decides) await setAll(merging, ready)
  if (clears) {
    await session.set('session_replication_role', 'replica')
    await session.query(clearFlags(on), [ready])
    await session.set('session_replication_role', 'origin')
  }
  await session.query(dropPlaces(on), [ready])
}

/**
 * Groups the rows whose references one statement turns: usually all rows. If a row can refer to several rows to delete,
 * and its key includes a reference, each row is a group, because the log has the key between two changes.
 */
async function turnedTogether(
  { references, tables }: MergeRun,
  ready: readonly string[],
): Promise<readonly string[][]> {
  for (const { schema, table } of references) {
    const ofTable = references.filter((one) => one.schema === schema && one.table === table)
    const key = ofTable.length > 1 ? identifyingColumns(await tables.keyed({ schema, table })) : []
    if (ofTable.some(({ columns }) => columns.some((name) => key.includes(name)))) return ready.map((place) => [place])
  }
  return [[...ready]]
}

/** The constraint or the clause that prevents a merge of two rows. */
class Unmergeable extends Error {
  override readonly name = 'Unmergeable'
}

/** @throws AdoptionError for a table whose owner could run code as the role that merges */
function refuseReferring(table: string): never {
  throw new AdoptionError(
    'unsupported',
    `The owner of ${table} may not act as the owner of the table that it refers to: its triggers would run as the role ` +
      `that merges. See who made it; then drop its foreign key, or change its owner.`,
  )
}

/** The keys of two rows of a table: one is deleted, and one stays. */
interface Pair {
  readonly old: readonly string[]
  readonly kept: readonly string[]
}

/** Rows refer to rows that refer to rows. Beyond this depth, a person should look. */
const DEEPEST = 10

/** Tables as the catalog describes them. Each is read once. */
export class Tables {
  private readonly found = new Map<string, Promise<MergedTable>>()

  constructor(private readonly session: AdoptSession) {}

  async keyed({
    schema,
    table,
  }: Pick<Reference, 'table'> & { readonly schema?: string | undefined }): Promise<MergedTable> {
    const name = tableName({ schema, table })
    const found = this.found.get(name) ?? this.read(name)
    this.found.set(name, found)
    return await found
  }

  private async read(name: string): Promise<MergedTable> {
    const [row] = await this.session.query<{ found: string }>(READ_KEYED, [name])
    if (row) return JSON.parse(row.found) as MergedTable
    throw new AdoptionError('changed', `There is no table ${name} any more. Run the same command again.`)
  }
}

/** Merges rows that would clash once their references are turned, and rows that refer to them in turn. */
class Conflicts {
  private readonly references = new Map<string, Promise<Reference[]>>()

  /** @param merged tables, as `table` or `schema.table`, whose rows are merged although they differ */
  constructor(
    private readonly session: AdoptSession,
    private readonly on: AdoptedTable,
    private readonly tables: Tables,
    private readonly merged: readonly string[],
  ) {}

  /** Merges the rows that would clash when references to the row of a place are turned. @throws Unmergeable */
  async clear(place: string, reference: Reference): Promise<void> {
    const [pair] = await this.session.query<Pair>(readPair(this.on), [place])
    if (pair) await this.clearPair(await this.tables.keyed(this.on.table), reference, pair, [pair])
  }

  /** @param above the pair to merge, and the pairs below it down to this one */
  private async clearPair(
    parent: MergedTable,
    reference: Reference,
    pair: Pair,
    above: readonly Pair[],
  ): Promise<void> {
    const child = await this.tables.keyed(reference)
    if (child.primary.length === 0) return
    const touched = child.indexes.filter(({ columns }) => columns.some((name) => reference.columns.includes(name)))
    for (const { name, columns } of touched) {
      const sql = findConflicts(parent, reference, child, columns)
      for (const one of await this.session.query<Pair & { same: boolean }>(sql, [pair.old, pair.kept])) {
        if (!one.same && !this.isMerged(child)) throw new Unmergeable(name)
        await this.mergePair(child, one, above)
      }
    }
  }

  private isMerged({ schema, table }: MergedTable): boolean {
    return this.merged.includes(table) || this.merged.includes(`${schema}.${table}`)
  }

  private async mergePair(table: MergedTable, pair: Pair, above: readonly Pair[]): Promise<void> {
    if (above.length > DEEPEST) throw new Unmergeable(`rows refer to each other over more than ${DEEPEST} tables`)
    const { schema, table: name } = table
    const { guard } = this.on.table
    const [values, keys] = [
      [pair.old, pair.kept],
      [above[0]?.old, above[0]?.kept],
    ]
    const source = pairSource(table)
    for (const reference of await this.referencesTo(table)) {
      if (reference.own) await this.refuseSelf(table, reference, values)
      const [inexact] = await this.session.query<{ reason: string }>(findInexact(source, reference, '0'), values)
      if (inexact) throw new Unmergeable(inexact.reason)
      await this.clearPair(table, reference, pair, [...above, pair])
      const change: LoggedChange = { schema: reference.schema, table: reference.table, columns: reference.columns }
      const turned = turn(this.on, source, reference, await this.tables.keyed(reference), 3)
      await this.session.query(turned, [...values, guard, JSON.stringify(change), ...keys])
      const [still] = await this.session.query<{ n: string }>(stillReferring(source, reference), values)
      if (still?.n !== '0') throw new Unmergeable(`a trigger undoes references of ${reference.table}`)
    }
    const change: LoggedChange = { schema, table: name }
    await this.session.query(logOne(this.on, table), [pair.old, guard, JSON.stringify(change), ...keys])
    await this.session.query(deleteOne(table), [pair.old])
    const [there] = await this.session.query<{ n: string }>(isThere(table), [pair.old])
    if (there?.n !== '0') throw new Unmergeable(`a trigger keeps a row of ${name}`)
  }

  private async refuseSelf(table: MergedTable, reference: Reference, values: unknown[]): Promise<void> {
    const [found] = await this.session.query<{ n: string }>(refersItself(table, reference), values)
    if (found?.n !== '0') throw new Unmergeable(`a row of ${table.table} would refer to itself`)
  }

  private async referencesTo({ oid }: MergedTable): Promise<Reference[]> {
    const found = this.references.get(oid) ?? referencesTo(this.session.query, oid, refuseReferring)
    this.references.set(oid, found)
    return await found
  }
}
