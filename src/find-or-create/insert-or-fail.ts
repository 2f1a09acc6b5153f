import type {
  DataSource,
  EntityManager,
  EntityTarget,
  ObjectLiteral,
  DeepPartial,
  QueryDeepPartialEntity,
} from 'typeorm'
import { groupBy, numberIndexes, scopeOrder } from './batches'
import { hashAsText } from '../sql/text-table'
import { insertedStatement, type WireRow } from '../sql/statements'
import { normalizedValues } from '../registry/normalize-column'
import { type ColumnMetadata, dataSourceOf, type Declaration, declarationsOf } from '../registry/registry'
import type { Step } from '../connection/all-or-nothing'
import { requireEntries, requireManager } from '../rows/call-arguments'
import type { NoOthers } from '../rows/call-options'
import { entityColumns, type EntityColumns, entityTextOf } from '../rows/entity-text'
import { afterInsert, beforeInsert, listensToInsert } from '../rows/events'
import { fill, returnedBy } from '../rows/hydrate'
import { inRow, requireKnown, requireObject, requireSaved, requireUniqueText } from '../rows/refused-input'
import { withPromised } from '../rows/nested-values'
import { keyValues } from '../rows/key-values'
import { openSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { type OnAnyTable, onReadyTables } from './ready-table'
import { ensureNamesReady, requestedNames } from './requested-names'
import { type RequestedText, writeOrFail } from './write-or-fail'

/** What a column takes, or a function that gives SQL for it, as in TypeORM's `insert`. */
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

/** A parameter, one at most for each column of each row; Postgres takes 65,535. */
const MAX_PARAMETERS = 65_535
const MAX_ROWS = 1_000

/**
 * Inserts rows whose texts must be free, all of them or none: behind a savepoint in the caller's transaction, which
 * stays usable, and otherwise in one statement or one transaction of its own. If a text is taken, one more round trip
 * finds every text of the call that is.
 *
 * Inserts as TypeORM's `insert` does: relations by id, functions as SQL, no cascades. Listeners and subscribers get
 * BeforeInsert before the first statement, and AfterInsert when all rows are stored. The entities hold what the
 * database holds. A softly deleted row holds its text, unless the declaration has `ignoreDeleted`.
 *
 * Entries for one entity that follow each other go in one statement, in which rows are sorted by hash.
 *
 * Two calls that insert the same texts into several tables should name the tables in the same order: otherwise one of
 * them may be the victim of a deadlock, or have to try again.
 *
 * @param values of one row, or a list
 * @throws TextTakenError with every taken text, name, number, primary key and unique column that can be known, also of
 * an index with a condition or an expression: its property, the primary key of its holder, and its row. If only
 * ordinary columns are taken, it is TypeORM's QueryFailedError as well
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use, before anything is written
 * @throws ChainLimitError, AttemptsExhaustedError
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction, and where its snapshot is too old
 * @throws QueryFailedError of TypeORM for everything else
 * @example
 * const page = await insertOrFail(manager, Page, { url: 'http://example.com/' })
 * const [site, pages] = await insertOrFail(manager, [[Site, { host }], [Page, urls.map((url) => ({ url }))]])
 */
export async function insertOrFail<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: readonly Writable<NoInfer<Entity>>[],
): Promise<Entity[]>
export async function insertOrFail<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  values: Writable<NoInfer<Entity>>,
): Promise<Entity>
export async function insertOrFail<const Insertions extends readonly Insertion[]>(
  manager: EntityManager,
  insertions: Insertions & { readonly [Position in keyof Insertions]: Checked<Insertions[Position]> },
): Promise<{ -readonly [Position in keyof Insertions]: Inserted<Insertions[Position]> }>
export async function insertOrFail(
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
  const rows = await toRows(dataSource, insertions)
  const session = await openSession(manager)
  try {
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

/** The values must be of the entity that stands beside them. */
type Checked<One> = One extends readonly [EntityTarget<infer Entity>, infer Values]
  ? readonly [
      One[0],
      Values extends readonly unknown[]
        ? { readonly [Position in keyof Values]: WritableOnly<Entity, Values[Position]> }
        : WritableOnly<Entity, Values>,
    ]
  : never

/** Of a list, the compiler would say of a misspelt property only that two types of lists differ: so it is named. */
export type WritableOnly<Entity, Given> = Entity extends ObjectLiteral
  ? unknown extends NoOthers<Entity, Given>
    ? Writable<Entity>
    : NoOthers<Entity, Given>
  : never

/** A row to insert. */
interface NewRow {
  readonly columns: EntityColumns
  /** 0-based positions: of the insertion that it belongs to, and its own in the call. */
  readonly insertion: number
  readonly position: number
  readonly entity: ObjectLiteral
  /** What the entity holds; it is the entity itself where no relation is lazy. */
  readonly values: ObjectLiteral
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
    if (listensToInsert(columns)) await beforeInsert(session, columns.metadata, entity)
    // The getter of a lazy relation that nobody has set would query the database.
    rows.push({ ...row, values: await withPromised(columns.metadata, entity) })
  }
  const names = rows.flatMap(({ columns, position, values }) =>
    inRow(position, () => requestedNames(columns, position, values)),
  )
  const requested = await askedTexts(session, manager, rows)
  await ensureNamesReady(session, names)
  const hashes = new Map(requested.toReversed().map(({ row, hash }) => [row, hash]))
  // In another order than by hash two calls with the same texts would deadlock.
  const keys = shardedKeys(requested)
  const batches = runsOfEntity(rows)
    .map((group) => inWriteOrder(group, hashes))
    .flatMap((group) => [...inChunks(group)])
    .flatMap((chunk) => (keys.size === 0 ? [chunk] : [...apartByKey(chunk, keys)]))
  const answers = await writeOrFail(session, {
    requested,
    names,
    rows: rows.map(({ columns, position, values }) => ({ metadata: columns.metadata, row: position, values })),
    numbers: numberIndexes(rows),
    steps: batches.map((batch) => insertStep(session, batch, keys.get(batch[0]?.position ?? 0))),
    quick: keys.size === 0 ? undefined : batches.map((batch) => hashedStep(session, batch, keys)),
  })
  for (const [nth, batch] of batches.entries()) {
    const answer = answers[nth] ?? []
    const byKey = new Map(answer.map((row) => [row.at(-1), row]))
    for (const [index, { columns, entity, position }] of batch.entries()) {
      const key = batch.length > 1 ? keys.get(position) : undefined
      fill(columns, columns.metadata, (key ? byKey.get(key.hash) : answer[index]) ?? [], entity)
    }
  }
  for (const { columns, entity } of rows) await afterInsert(session, columns, entity)
}

/** Rows for one entity that follow each other in the call, whether one entry of it brings them or several do. */
function runsOfEntity(rows: readonly NewRow[]): readonly NewRow[][] {
  const runs: NewRow[][] = []
  for (const row of rows) {
    const run = runs.at(-1)
    if (run?.[0]?.columns.metadata === row.columns.metadata) run.push(row)
    else runs.push([row])
  }
  return runs
}

function inWriteOrder(rows: NewRow[], hashes: ReadonlyMap<number, string>): NewRow[] {
  const [first] = rows
  const byScope = first && scopeOrder(first.columns.metadata)
  return (
    byScope?.(rows, ({ values }) => values) ??
    rows.toSorted((left, right) => compare(hashes.get(left.position), hashes.get(right.position)))
  )
}

const compare = (left = '', right = ''): number => (left < right ? -1 : Number(left > right))

/** By what a row of a statement is recognized: the rows of a distributed table come by shard, not in the order sent. */
interface ShardedKey {
  readonly hash: string
  readonly table: Declaration['table']
  /** With these hidden columns no trigger has anything to do. */
  readonly sent: readonly (readonly [column: ColumnMetadata, value: string | number])[]
}

/** Of rows of distributed tables, by their positions. */
function shardedKeys(requested: readonly NewText[]): ReadonlyMap<number, ShardedKey> {
  const keys = new Map<number, ShardedKey>()
  for (const { row, hash, entityText } of requested) {
    if (!entityText.ready.distributed) continue
    const { table, hidden } = entityText.declaration
    const { hash: first, table: of, sent } = keys.get(row) ?? { hash, table, sent: [] }
    const [hashColumn, numberColumn] = hidden
    const here = hashColumn && numberColumn ? [[hashColumn, hash] as const, [numberColumn, 0] as const] : []
    keys.set(row, { hash: first, table: of, sent: [...sent, ...here] })
  }
  return keys
}

/** Rows for one statement: no two have the same key, and each has one. */
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

function* inChunks(rows: readonly NewRow[]): Generator<readonly NewRow[]> {
  const width = Math.max(1, rows[0]?.columns.metadata.columns.length ?? 1)
  const length = Math.min(MAX_ROWS, Math.floor(MAX_PARAMETERS / width))
  for (let start = 0; start < rows.length; start += length) yield rows.slice(start, start + length)
}

/** Inserts with hash and number 0: on a shard, triggers cost more than the row does. The index refuses another text's. */
function hashedStep(session: Session, rows: readonly NewRow[], keys: ReadonlyMap<number, ShardedKey>): Step<WireRow> {
  const key = keys.get(rows[0]?.position ?? 0)
  const hashed = rows.map((row): NewRow => {
    const own = (keys.get(row.position)?.sent ?? []).map(([{ propertyName }, value]) => [propertyName, { value }])
    return {
      ...row,
      values: Object.create(row.values, Object.fromEntries(own) as PropertyDescriptorMap) as ObjectLiteral,
    }
  })
  return insertStep(
    session,
    hashed,
    key,
    key?.sent.map(([column]) => column),
  )
}

/** By TypeORM's own INSERT, so that every kind of value is written as `insert` would. */
function insertStep(
  { dataSource }: Session,
  rows: readonly NewRow[],
  key?: ShardedKey,
  hidden: readonly ColumnMetadata[] = [],
): Step<WireRow> {
  const [{ columns }] = rows as [NewRow]
  const inserted = columns.metadata.columns.filter((column) => column.isInsert || hidden.includes(column))
  const [sql, values] = dataSource
    .createQueryBuilder()
    .insert()
    .into(columns.metadata.target, hidden.length === 0 ? [] : inserted.map(({ propertyPath }) => propertyPath))
    .values(rows.map(({ values }) => values))
    .returning(key ? `${returnedBy(columns)}, ${hashAsText(key.table, '')} AS key` : returnedBy(columns))
    .getQueryAndParameters()
  return { statement: insertedStatement(sql), values }
}

/** A text that a row brings, and its hash. */
interface NewText extends RequestedText {
  readonly hash: string
}

/** Every text that the rows bring, of every declaration. Refused before any SQL. */
async function askedTexts(session: Session, manager: EntityManager, rows: readonly NewRow[]): Promise<NewText[]> {
  const found = rows.flatMap((row) => inRow(row.position, () => textsOfRow(manager, row)))
  return await onReadyTables(session, found)
}

function textsOfRow(manager: EntityManager, { columns, position, entity, values }: NewRow): OnAnyTable<NewText>[] {
  return declarationsOf(columns.metadata).flatMap((declaration) => {
    for (const one of new Set([entity, values])) Object.assign(one, normalizedValues(declaration, one))
    if (isWithoutText(declaration, values)) return []
    const entityText = entityTextOf(manager, columns.metadata.target, declaration.name)
    const { key, hash } = keyValues(entityText, values)
    return [{ entityText, row: position, key: key.slice(0, -1), hash }]
  })
}

/** A row that is inserted as deleted may hold no text either. */
function isWithoutText({ text, table, metadata }: Declaration, entity: ObjectLiteral): boolean {
  const has = (column: ColumnMetadata | undefined): boolean => (column?.getEntityValue(entity) ?? null) !== null
  if (table.deleted !== undefined && has(metadata.deleteDateColumn)) return true
  return table.nullable && !text.some(({ column }) => has(column))
}
