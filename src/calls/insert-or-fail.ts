import type {
  DataSource,
  DeepPartial,
  EntityManager,
  EntityMetadata,
  EntityTarget,
  ObjectLiteral,
  QueryDeepPartialEntity,
} from 'typeorm'
import { openSession } from '../connection/open-session'
import { TextTakenError } from '../errors'
import type { Session } from '../connection/session'
import type { Step } from '../connection/transactions'
import { normalizedValues } from '../registry/declarations'
import { type ColumnMetadata, dataSourceOf, type Declaration, textsOfEntity } from '../registry/registry'
import { insertedStatement, type WireRow } from '../sql/find'
import { hashAsText } from '../sql/text-table'
import { compareTexts, groupBy, MAX_PARAMETERS, scopeOrder } from './batches'
import { type NoOthers, requireEntries, requireManager } from './call-options'
import { entityColumns, entityTextOf } from './entity-text'
import { afterWrite, fill, fire, listensTo, returnedBy } from './hydrate'
import { inRow, keyValues, requireKnown, requireObject, requireSaved, requireUniqueText, withPromised } from './values'
import { countInserted, watched } from './watch'
import type { RequestedText, WrittenRow } from './taken'
import { requestedOf, writeOrFail } from './write-or-fail'

/** A value of a column, or a function that returns SQL for it, as in TypeORM's `insert`. */
export type Writable<Entity> = DeepPartial<Entity> | QueryDeepPartialEntity<Entity>

/** Rows for one table: an entity class, and the values of one row or of several. */
export type Insertion<Entity extends ObjectLiteral = ObjectLiteral> = readonly [
  entity: EntityTarget<Entity>,
  values: Writable<Entity> | readonly Writable<Entity>[],
]

/** An entity for one row, a list of entities for a list. */
export type Inserted<One> = One extends readonly [EntityTarget<infer Entity>, infer Values]
  ? Values extends readonly unknown[]
    ? Entity[]
    : Entity
  : never

/** The most rows of one statement. */
const STATEMENT_ROWS = 1_000

/**
 * Inserts rows whose texts must be free, all of them or none. In the caller's transaction, a savepoint keeps the
 * transaction usable. Otherwise one statement or a transaction of its own inserts them. If a text is taken, one more
 * round trip finds every taken text of the call.
 *
 * Inserts as TypeORM's `insert` does: relations by id, functions as SQL, no cascades. Listeners and subscribers get
 * BeforeInsert before the first statement, and AfterInsert when all rows are stored. The entities contain the stored
 * values. A softly deleted row holds its text, unless the declaration has `ignoreDeleted`.
 *
 * Consecutive entries for one entity share one statement, in which rows are sorted by hash.
 *
 * Two calls that insert the same texts into several tables should name the tables in the same order. Otherwise one of
 * them may be the victim of a deadlock, or need another attempt.
 *
 * @param values the values of one row, or a list of them
 * @throws TextTakenError with every taken text, name, number, primary key and unique column that can be known, also of
 * an index with a condition or an expression. It names the property, the primary key of the holder, and the row. If
 * only ordinary columns are taken, it is TypeORM's QueryFailedError as well
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use, before anything is written
 * @throws ChainLimitError, AttemptsExhaustedError
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction, or if its snapshot is too old
 * @throws QueryFailedError of TypeORM for everything else
 * @example
 * const page = await insertOrFail(manager, Page, { url: 'http://example.com/' })
 * const [site, pages] = await insertOrFail(manager, [[Site, { host }], [Page, urls.map((url) => ({ url }))]])
 * @function
 */
export const insertOrFail: typeof insertOrFailImpl = watched('insertOrFail', 'text', insertOrFailImpl, countInserted)

async function insertOrFailImpl<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: readonly Writable<NoInfer<Entity>>[],
): Promise<Entity[]>
async function insertOrFailImpl<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: Writable<NoInfer<Entity>>,
): Promise<Entity>
async function insertOrFailImpl<const Insertions extends readonly Insertion[]>(
  manager: EntityManager,
  insertions: Insertions & { readonly [Position in keyof Insertions]: CheckedInsertion<Insertions[Position]> },
): Promise<{ -readonly [Position in keyof Insertions]: Inserted<Insertions[Position]> }>
async function insertOrFailImpl(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral> | readonly Insertion[],
  values?: ObjectLiteral | readonly ObjectLiteral[],
): Promise<unknown> {
  requireManager(manager)
  const single = !Array.isArray(entity)
  if (!single) requireEntries(entity, 2)
  const insertions = single ? [[entity, values] as Insertion] : (entity as readonly Insertion[])
  const dataSource = dataSourceOf(manager)
  requireUniqueText(dataSource, insertions)
  // The session is opened before any await, so that the call runs before the caller's next query.
  const session = await openSession(manager)
  let rows: readonly NewRow[]
  try {
    rows = await toRows(dataSource, insertions)
    await insertAll(session, manager, rows)
  } finally {
    await session.close()
  }
  const byInsertion = groupBy(rows, ({ insertion }) => insertion)
  const results = insertions.map(([, given], nth) => {
    const entities = (byInsertion.get(nth) ?? []).map((row) => row.entity)
    return Array.isArray(given) ? entities : entities[0]
  })
  return single ? results[0] : results
}

/**
 * Inserts a row as `insertOrFail` does, and returns null if that would throw a TextTakenError.
 *
 * @throws the errors of `insertOrFail`, except TextTakenError
 * @example
 * const page = await insertOrNull(manager, Page, { url: 'http://example.com/' })
 */
export async function insertOrNull<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: Writable<NoInfer<Entity>>,
): Promise<Entity | null> {
  try {
    return await insertOrFail(manager, entity, values)
  } catch (error) {
    if (error instanceof TextTakenError) return null
    throw error
  }
}

/** Checks that the values are those of the entity beside them. */
type CheckedInsertion<One> = One extends readonly [EntityTarget<infer Entity>, infer Values]
  ? readonly [
      One[0],
      Values extends readonly unknown[]
        ? { readonly [Position in keyof Values]: WritableOnly<Entity, Values[Position]> }
        : WritableOnly<Entity, Values>,
    ]
  : never

/** Names a misspelt property, because the compiler would only report that two types of lists differ. */
export type WritableOnly<Entity, Given> = Entity extends ObjectLiteral
  ? unknown extends NoOthers<Entity, Given>
    ? Writable<Entity>
    : NoOthers<Entity, Given>
  : never

/** A row to insert. Its values are the entity itself if no relation is lazy. */
interface NewRow extends WrittenRow {
  /** 0-based position of its insertion in the call. */
  readonly insertion: number
  readonly entity: ObjectLiteral
}

async function toRows(dataSource: DataSource, insertions: readonly Insertion[]): Promise<NewRow[]> {
  const rows: NewRow[] = []
  for (const [insertion, [target, given]] of insertions.entries()) {
    const columns = entityColumns(dataSource, dataSource.getMetadata(target))
    for (const one of Array.isArray(given) ? (given as ObjectLiteral[]) : [given]) {
      const position = rows.length
      inRow(position, () => {
        requireObject(columns, one)
        requireKnown(columns, one)
      })
      const values = await withPromised(columns.metadata, one)
      inRow(position, () => {
        requireSaved(columns, values)
      })
      const entity: ObjectLiteral = dataSource.manager.create(columns.metadata.target, values)
      rows.push({ columns, insertion, position, entity, values: entity })
    }
  }
  return rows
}

async function insertAll(session: Session, manager: EntityManager, announced: readonly NewRow[]): Promise<void> {
  const rows: NewRow[] = []
  for (const row of announced) {
    const { columns, entity } = row
    if (listensTo('Insert', columns)) await fire(session, 'BeforeInsert', columns.metadata, entity)
    // The getter of a lazy relation that nobody has set would query the database.
    rows.push({ ...row, values: await withPromised(columns.metadata, entity) })
  }
  const { requested, names } = await requestedOf<NewRow, NewText>(
    session,
    rows,
    ({ columns, position, entity, values }) => {
      const { metadata } = columns
      const has = (column: ColumnMetadata | undefined): boolean => (column?.getEntityValue(values) ?? null) !== null
      return textsOfEntity(metadata).flatMap((declaration) => {
        for (const one of new Set([entity, values])) Object.assign(one, normalizedValues(declaration, one))
        const { table, text } = declaration
        // A row that is inserted as deleted may hold no text.
        if (table.deleted !== undefined && has(declaration.metadata.deleteDateColumn)) return []
        if (table.nullable && !text.some(({ column }) => has(column))) return []
        const entityText = entityTextOf(manager, metadata.target, declaration.name)
        const { key, hash } = keyValues(entityText, values)
        return [{ entityText, row: position, key: key.slice(0, -1), hash }]
      })
    },
  )
  const hashes = new Map(requested.toReversed().map(({ row, hash }) => [row, hash]))
  const keys = shardedKeys(requested)
  const batches = [...rowsOfStatements(rows, hashes, keys)]
  const isSharded = keys.size > 0
  const stepsOf = (isHashed: boolean): Step<WireRow>[] =>
    batches.map((batch) => insertStep(session, batch, keys, isHashed))
  const later = isSharded ? (): Step<WireRow>[] => stepsOf(false) : undefined
  const answers = await writeOrFail(session, { requested, names, rows, steps: stepsOf(isSharded), later })
  for (const [nth, batch] of batches.entries()) {
    const answer = answers[nth] ?? []
    const byKey = new Map(answer.map((row) => [row.at(-1), row]))
    for (const [index, { columns, entity, position }] of batch.entries()) {
      const key = batch.length > 1 ? keys.get(position) : undefined
      fill(columns, columns.metadata, (key ? byKey.get(key.hash) : answer[index]) ?? [], entity)
    }
  }
  for (const { columns, entity } of rows) await afterWrite(session, 'Insert', columns, entity)
}

/** Divides the rows of a call into the rows of each statement. */
function* rowsOfStatements(
  rows: readonly NewRow[],
  hashes: ReadonlyMap<number, string>,
  keys: ReadonlyMap<number, ShardedKey>,
): Generator<readonly NewRow[]> {
  // Consecutive rows for one entity form a run, even if they are from several entries.
  const runs: { readonly metadata: EntityMetadata; readonly rows: NewRow[] }[] = []
  for (const row of rows) {
    const { metadata } = row.columns
    const run = runs.at(-1)
    if (run?.metadata === metadata) run.rows.push(row)
    else runs.push({ metadata, rows: [row] })
  }
  for (const { metadata, rows: run } of runs) {
    // In any order other than by hash, two calls with the same texts would deadlock.
    const ordered =
      scopeOrder(metadata)?.(run, ({ values }) => values) ??
      run.toSorted((left, right) => compareTexts(hashes.get(left.position), hashes.get(right.position)))
    const length = Math.min(STATEMENT_ROWS, Math.floor(MAX_PARAMETERS / Math.max(1, metadata.columns.length)))
    for (let start = 0; start < ordered.length; start += length) {
      const chunk = ordered.slice(start, start + length)
      if (keys.size === 0) yield chunk
      else yield* apartByKey(chunk, keys)
    }
  }
}

/** The key that identifies a row of a statement, because a distributed table does not return rows in the order sent. */
interface ShardedKey {
  readonly hash: string
  readonly table: Declaration['table']
  /** Hidden columns that are sent so that no trigger has anything to do. */
  readonly sent: readonly (readonly [column: ColumnMetadata, value: string | (() => string)])[]
}

/** Returns the keys of rows of distributed tables, by their positions. */
function shardedKeys(requested: readonly NewText[]): ReadonlyMap<number, ShardedKey> {
  const keys = new Map<number, ShardedKey>()
  for (const { row, hash, entityText } of requested) {
    if (!entityText.ready.distributed) continue
    const { table, hidden } = entityText.declaration
    const { hash: first, table: of, sent } = keys.get(row) ?? { hash, table, sent: [] }
    const [hashColumn, numberColumn] = hidden
    const here = hashColumn && numberColumn ? [[hashColumn, hash] as const, [numberColumn, () => '0'] as const] : []
    keys.set(row, { hash: first, table: of, sent: [...sent, ...here] })
  }
  return keys
}

/** Yields the rows of each statement: rows of one table with different keys, or one row without a key. */
function* apartByKey(rows: readonly NewRow[], keys: ReadonlyMap<number, ShardedKey>): Generator<readonly NewRow[]> {
  let part: NewRow[] = []
  let known = new Set<string>()
  let of: ShardedKey['table'] | undefined
  for (const row of rows) {
    const key = keys.get(row.position)
    if (part.length > 0 && (!key || key.table !== of || known.has(key.hash))) {
      yield part
      part = []
      known = new Set()
    }
    part.push(row)
    of = key?.table
    if (key) known.add(key.hash)
  }
  if (part.length > 0) yield part
}

/**
 * Creates TypeORM's own INSERT, so that every kind of value is written as `insert` would write it.
 *
 * @param isHashed whether to send hash and number 0, because triggers are slow on a shard. The index refuses another
 * text
 */
function insertStep(
  { dataSource }: Session,
  rows: readonly NewRow[],
  keys: ReadonlyMap<number, ShardedKey>,
  isHashed: boolean,
): Step<WireRow> {
  const [{ columns, position: first }] = rows as [NewRow]
  const key = keys.get(first)
  const hidden = isHashed && key ? key.sent.map(([column]) => column) : []
  const inserted = columns.metadata.columns.filter((column) => column.isInsert || hidden.includes(column))
  const given = rows.map(({ position, values }): ObjectLiteral => {
    if (!isHashed) return values
    // A copy, because objects are slow after they have become prototypes.
    const row = Object.assign(Object.create(Object.getPrototypeOf(values) as object) as ObjectLiteral, values)
    for (const [{ propertyName }, value] of keys.get(position)?.sent ?? []) row[propertyName] = value
    return row
  })
  const [sql, values] = dataSource
    .createQueryBuilder()
    .insert()
    .into(columns.metadata.target, hidden.length === 0 ? [] : inserted.map(({ propertyPath }) => propertyPath))
    .values(given)
    .returning(key ? `${returnedBy(columns)}, ${hashAsText(key.table, '')} AS key` : returnedBy(columns))
    .getQueryAndParameters()
  return { statement: insertedStatement(sql), values }
}

/** A text of a row, and its hash. */
interface NewText extends RequestedText {
  readonly hash: string
}
