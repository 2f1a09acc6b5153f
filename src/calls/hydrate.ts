import type { EntityMetadata, FindOptionsRelations, ObjectLiteral, QueryRunner } from 'typeorm'
import type { Session } from '../connection/session'
import { DeclarationError, TextTakenError } from '../errors'
import { type ColumnMetadata, rootOf } from '../registry/registry'
import { returningList, type StoredRow } from '../sql/find'
import { parameterText } from '../sql/types'
import { OURS } from '../typeorm/subscriber'
import type { LoadOptions } from './call-options'
import type { EntityColumns } from './entity-text'

/** Hash numbers of the returned entities that are not 0. They are few, and no property name would be free. */
const hashNumbers = new WeakMap<object, number>()

/** The hash number that the row of this entity had when find-or-create returned it. */
export function hashNumberOf(entity: object): number {
  return hashNumbers.get(entity) ?? 0
}

/** An entity, and its text or name by which an error calls it. */
export type NamedColumns = EntityColumns & { readonly declaration: { readonly name: string } }

/** A row with its columns in the order of `select`, followed by the discriminator if `select` lacks it. */
type Row = Pick<StoredRow, 'columns' | 'hashNumber'>

/**
 * Returns an entity as `find` would return it, without relations.
 *
 * @param session its query runner is the first that a lazy relation uses, as in `find`
 * @param row contains its columns in the order of `rowShape(columns).select`
 * @param into the entity to set the columns of. @default a new one
 * @throws TextTakenError for a row of another class of the table
 */
export function hydrate(
  columns: NamedColumns,
  session: { readonly queryRunner: QueryRunner },
  row: Row,
  into?: ObjectLiteral,
): ObjectLiteral {
  const hasOneClass = columns.metadata.discriminatorColumn === undefined
  const metadata = into || hasOneClass ? columns.metadata : classOfRow(columns, row)
  if (!metadata) throw otherClass(columns, row)
  const entity: ObjectLiteral = into ?? newEntity(metadata, session)
  fill(columns, metadata, row.columns, entity)
  if (row.hashNumber > 0) hashNumbers.set(entity, row.hashNumber)
  return entity
}

/** Creates an entity. A class without lazy relations needs no query runner. */
export function newEntity(metadata: EntityMetadata, session: { readonly queryRunner: QueryRunner }): ObjectLiteral {
  const queryRunner = metadata.lazyRelations.length > 0 ? session.queryRunner : undefined
  return metadata.create(queryRunner, { fromDeserializer: true })
}

/**
 * Sets the columns of an entity.
 *
 * @param metadata the metadata of its class
 * @param values the values in the order of `select`
 */
export function fill(
  { dataSource, metadata: { childEntityMetadatas }, select }: EntityColumns,
  metadata: EntityMetadata,
  values: readonly unknown[],
  entity: ObjectLiteral,
): void {
  const hasChildren = childEntityMetadatas.length > 0
  const { driver } = dataSource
  for (let index = 0; index < select.length; index += 1) {
    const column = select[index]
    if (!column || (hasChildren && !isOfThatClass(metadata, column))) continue
    const value: unknown = driver.prepareHydratedValue(values[index], column)
    if (value !== undefined) column.setEntityValue(entity, value)
  }
}

/** Returns whether `find` sets the column for this class. Metadata of a parent includes its children's columns. */
function isOfThatClass({ columns, childEntityMetadatas }: EntityMetadata, column: ColumnMetadata): boolean {
  return (
    columns.some(({ propertyPath }) => propertyPath === column.propertyPath) &&
    !childEntityMetadatas.some(({ target }) => target === column.target)
  )
}

/** Returns the value of the row's discriminator column; undefined if there is none. */
function discriminatorOf({ metadata, select }: NamedColumns, { columns }: Row): unknown {
  const { discriminatorColumn } = metadata
  if (!discriminatorColumn) return undefined
  const index = select.findIndex(({ databaseName }) => databaseName === discriminatorColumn.databaseName)
  return columns[index === -1 ? select.length : index]
}

/** Returns the class that the discriminator of a row names; undefined if `find` would not return the row. */
function classOfRow(columns: NamedColumns, row: Row): EntityMetadata | undefined {
  const { metadata } = columns
  if (!metadata.discriminatorColumn) return metadata
  const value = discriminatorOf(columns, row)
  const named = [metadata, ...metadata.childEntityMetadatas].find((one) => one.discriminatorValue === value)
  // TypeORM creates an instance of the root for a value that no class has.
  return named ?? (metadata === rootOf(metadata) ? metadata : undefined)
}

/** Returns whether `find` would return the row: it is of the entity's class, or of a child class. */
export function isEntityOfClass(columns: NamedColumns, row: Row): boolean {
  return classOfRow(columns, row) !== undefined
}

function otherClass(columns: NamedColumns, row: Row): TextTakenError {
  const { metadata, declaration } = columns
  const root = rootOf(metadata)
  const value = discriminatorOf(columns, row)
  const holder = [root, ...root.childEntityMetadatas].find((one) => one.discriminatorValue === value)
  const entity: ObjectLiteral = {}
  fill({ ...columns, metadata: root }, root, row.columns, entity)
  const held = { entity: (holder ?? root).name, property: declaration.name, id: root.getEntityIdMap(entity), row: 0 }
  const classes = [...new Set([holder?.name, root.name])].filter((name) => name !== undefined).join(' or ')
  return new TextTakenError([held], undefined, `No row of ${metadata.name} can hold it too: pass ${classes}.`)
}

/** Returns the RETURNING list for TypeORM's own statements: the columns that `fill` takes. */
export const returnedBy = ({ select, spatial }: EntityColumns): string =>
  returningList({ select: select.map(({ databaseName }) => databaseName), spatial })

/** The members by which an entity and a subscriber listen, before a write and after it. */
const WRITES = {
  Insert: { listeners: ['beforeInsertListeners', 'afterInsertListeners'], methods: ['beforeInsert', 'afterInsert'] },
  Update: { listeners: ['beforeUpdateListeners', 'afterUpdateListeners'], methods: ['beforeUpdate', 'afterUpdate'] },
} as const

/**
 * Returns whether anyone listens to inserts, or to updates. Listeners and subscribers get the events of `find`, `insert`
 * and `update`. An event before the insert costs a separate look-up, because it must not fire for a row that is found.
 */
export function listensTo(write: keyof typeof WRITES, { metadata, dataSource }: EntityColumns): boolean {
  const { listeners, methods } = WRITES[write]
  if (metadata[listeners[0]].length + metadata[listeners[1]].length > 0) return true
  // A loop, and not a cached list, because a subscriber or its method may be added later.
  for (const one of dataSource.subscribers)
    if ((one[methods[0]] !== undefined || one[methods[1]] !== undefined) && !(OURS in one)) return true
  return false
}

export function listensToLoad({ metadata, dataSource }: EntityColumns): boolean {
  if (metadata.afterLoadListeners.length > 0) return true
  for (const one of dataSource.subscribers) if (one.afterLoad !== undefined) return true
  return false
}

/** The events of TypeORM's `restore()` and `delete()`. */
type EntitylessEvent = 'BeforeRecover' | 'AfterRecover' | 'BeforeRemove' | 'AfterRemove'

/** Releases the connection first, because a listener that requests one from an exhausted pool would wait forever. */
export async function fire(
  session: Session,
  event: 'BeforeInsert' | 'AfterInsert' | 'BeforeUpdate' | 'AfterUpdate' | 'Load' | EntitylessEvent,
  metadata: EntityMetadata,
  subject?: ObjectLiteral | ObjectLiteral[],
): Promise<void> {
  await session.release()
  await session.queryRunner.broadcaster.broadcast(event, metadata, subject)
}

export async function afterWrite(
  session: Session,
  write: keyof typeof WRITES,
  columns: EntityColumns,
  entity: ObjectLiteral,
): Promise<void> {
  if (listensTo(write, columns)) await fire(session, `After${write}`, columns.metadata, entity)
}

export async function afterLoad(session: Session, columns: EntityColumns, entities: ObjectLiteral[]): Promise<void> {
  if (entities.length > 0 && listensToLoad(columns)) await fire(session, 'Load', columns.metadata, entities)
}

/** Notifies subscribers without an entity, as TypeORM's `restore()` and `delete()` do. */
export async function entitylessEvent(
  session: Session,
  { metadata, dataSource }: EntityColumns,
  event: EntitylessEvent,
): Promise<void> {
  const method = `${event.startsWith('B') ? 'b' : 'a'}${event.slice(1)}` as Uncapitalize<typeof event>
  if (dataSource.subscribers.some((one) => one[method] !== undefined)) await fire(session, event, metadata)
}

/** Entities of one class that were loaded as relations. */
interface Related {
  readonly metadata: EntityMetadata
  readonly entities: ObjectLiteral[]
}

/** The relations to load after the rows themselves. */
export interface RelationsToLoad {
  readonly relations: FindOptionsRelations<ObjectLiteral>
  readonly strategy: 'join' | 'query'
}

const NONE = {}

/**
 * @returns undefined if there is nothing to load: no relation is requested, and the entity has no eager ones
 * @throws DeclarationError for a relation that the entity does not have
 */
export function relationsToLoad(
  { metadata, dataSource }: EntityColumns,
  { relations = NONE, relationLoadStrategy }: LoadOptions,
): RelationsToLoad | undefined {
  if (relations === NONE && metadata.eagerRelations.length === 0) return undefined
  const requested = requireRelations(metadata, Array.isArray(relations) ? treeOf(relations) : relations)
  const none = Object.keys(requested).length === 0
  if (none && metadata.eagerRelations.length === 0) return undefined
  if (metadata.primaryColumns.some(({ isSelect }) => !isSelect)) {
    if (none) return undefined
    throw new DeclarationError(
      `The primary key of ${metadata.name} is not selected, and relations are loaded by it. Leave out "relations".`,
    )
  }
  return { relations: requested, strategy: relationLoadStrategy ?? dataSource.options.relationLoadStrategy ?? 'join' }
}

type Tree = { [name: string]: Tree | boolean }

/** Converts `['author.pages']` to `{ author: { pages: true } }`. */
function treeOf(paths: readonly string[]): Tree {
  const tree: Tree = {}
  for (const path of paths) {
    let branch = tree
    for (const name of path.split('.')) {
      const next = branch[name]
      branch = typeof next === 'object' ? next : (branch[name] = {})
    }
  }
  return tree
}

/**
 * Returns the relations without those that are set to false. TypeORM would also refuse an unknown name, but only after
 * the insert.
 */
function requireRelations(metadata: EntityMetadata, relations: object, prefix = ''): Tree {
  const tree: Tree = {}
  for (const [name, value] of Object.entries(relations)) {
    if (value === undefined || value === false) continue
    const path = `${prefix}${name}`
    const relation = metadata.findRelationWithPropertyPath(path)
    if (!relation && !metadata.findEmbeddedWithPropertyPath(path)) {
      const names = metadata.relations.map(({ propertyPath }) => `"${propertyPath}"`).join(', ')
      throw new DeclarationError(`${metadata.name} has no relation "${path}". It has ${names === '' ? 'none' : names}.`)
    }
    if (typeof value !== 'object' || value === null) tree[name] = true
    else if (relation) tree[name] = requireRelations(relation.inverseEntityMetadata, value)
    else tree[name] = requireRelations(metadata, value, `${path}.`)
  }
  return tree
}

/** An entity of a result, and whether this call created its row. */
interface ResultEntity {
  readonly entity: ObjectLiteral
  readonly created: boolean
}

/**
 * Loads relations onto rows and fires AfterLoad, as `find` does. A row that was created does not get AfterLoad.
 *
 * @param given contains no entity twice
 */
export async function finish(
  session: Session,
  columns: EntityColumns,
  given: readonly ResultEntity[],
  load: RelationsToLoad | undefined,
): Promise<void> {
  if (!load && !listensToLoad(columns)) return
  const found = given.filter(({ created }) => !created).map(({ entity }) => entity)
  if (!load) return await afterLoad(session, columns, found)
  // As in `find`, relations with their own queries follow the event of their row, and fire their own events.
  if (load.strategy === 'query') await afterLoad(session, columns, found)
  const related = await loadRelations(session, columns, given, load)
  // TypeORM fires AfterLoad for joined entities together with their row.
  const joined = load.strategy === 'join' ? found : []
  for (const { metadata, entities } of [{ metadata: columns.metadata, entities: joined }, ...related]) {
    if (entities.length > 0) await fire(session, 'Load', metadata, entities)
  }
}

/** The most rows in one query. Parameters are limited, and planning takes time. */
const ROWS = 1_000

/**
 * @returns joined entities whose row fires no AfterLoad for them: those of created rows, and, with queries of their
 * own, those of all rows. TypeORM 0.3 joins eager relations with both strategies.
 */
async function loadRelations(
  session: Session,
  columns: EntityColumns,
  given: readonly ResultEntity[],
  load: RelationsToLoad,
): Promise<Related[]> {
  const { metadata } = columns
  const { relations, strategy } = load
  const { name, primaryColumns, discriminatorColumn } = metadata
  // A join need not read the row again. With queries of their own, relations may be found by any of its columns.
  const key = [...primaryColumns, ...(discriminatorColumn ? [discriminatorColumn] : [])]
  const selection = strategy === 'join' ? key.map(({ propertyPath }) => `${name}.${propertyPath}`) : [name]
  const related: Related[] = []
  for (const { rows, withDeleted } of portions(columns, given)) {
    const ids = rows.map(({ entity }) => metadata.getEntityIdMap(entity))
    const { loaded, joined } = await session.byTypeOrm(async (queryRunner) => {
      const builder = queryRunner.manager
        .createQueryBuilder(metadata.target, name, queryRunner)
        .select(selection)
        .setFindOptions({ relations, relationLoadStrategy: strategy, withDeleted })
        .callListeners(false)
        .whereInIds(ids)
      return { loaded: await builder.getMany(), joined: builder.expressionMap.joinAttributes }
    })
    const byId = new Map(loaded.map((entity) => [idText(metadata, entity), entity]))
    for (const { entity, created } of rows) {
      // The row is undefined if someone deleted it meanwhile.
      const attached = attachRelations(metadata, byId.get(idText(metadata, entity)), entity)
      const notified = attached.filter(({ relation }) => joined.some((join) => join.relation === relation))
      if (created || strategy === 'query') related.push(...notified)
    }
  }
  return related
}

/** Divides rows into portions. `find` returns softly deleted rows and their relations only with `withDeleted`. */
function* portions(
  { metadata }: EntityColumns,
  given: readonly ResultEntity[],
): Generator<{ readonly rows: readonly ResultEntity[]; readonly withDeleted: boolean }> {
  const isDeleted = ({ entity }: ResultEntity): boolean =>
    (metadata.deleteDateColumn?.getEntityValue(entity) ?? null) !== null
  for (const withDeleted of [false, true]) {
    const rows = given.filter((one) => isDeleted(one) === withDeleted)
    for (let from = 0; from < rows.length; from += ROWS) yield { rows: rows.slice(from, from + ROWS), withDeleted }
  }
}

const idText = ({ primaryColumns }: EntityMetadata, entity: ObjectLiteral): string =>
  JSON.stringify(primaryColumns.map((column) => parameterText(column.getEntityValue(entity))))

interface Attached extends Related {
  readonly relation: EntityMetadata['relations'][number]
}

/** Sets every loaded relation on another object of the same row. */
function attachRelations(
  metadata: EntityMetadata,
  loaded: ObjectLiteral | undefined,
  entity: ObjectLiteral,
): Attached[] {
  if (!loaded) return []
  const related: Attached[] = []
  for (const relation of metadata.relations) {
    const value: unknown = relation.getEntityValue(loaded)
    if (value === undefined) continue
    relation.setEntityValue(entity, value)
    if (typeof value !== 'object' || value === null) continue
    const entities: ObjectLiteral[] = Array.isArray(value) ? value : [value]
    related.push({ relation, metadata: relation.inverseEntityMetadata, entities })
  }
  return related
}
