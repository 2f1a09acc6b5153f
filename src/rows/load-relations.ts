import type { EntityMetadata, FindOptionsRelations, ObjectLiteral, QueryRunner, SelectQueryBuilder } from 'typeorm'
import { DeclarationError } from '../errors'
import { parameterText } from '../sql/parameter-text'
import type { LoadOptions } from './call-options'
import type { EntityColumns } from './entity-text'
import { afterLoad, afterLoadJoined, listensToLoad, type Related } from './events'
import type { Session } from '../connection/session'

/** What is read after the rows themselves. */
export interface RelationsToLoad {
  readonly relations: FindOptionsRelations<ObjectLiteral>
  readonly strategy: 'join' | 'query'
}

const NONE = {}

/**
 * @returns undefined where there is nothing to load: none is asked for, and the entity has no eager ones
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

/** `['author.pages']` as `{ author: { pages: true } }`. */
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
 * The relations without those that are not to be loaded. TypeORM would refuse an unknown name too, but only after the
 * insert.
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

/** An entity of a result, and whether this call made its row. */
interface Given {
  readonly entity: ObjectLiteral
  readonly created: boolean
}

/** Whether `finish` does anything. */
export const finishes = (entityText: EntityColumns, load: RelationsToLoad | undefined): boolean =>
  load !== undefined || listensToLoad(entityText)

/**
 * What `find` does once it has its rows: loads relations onto them, and fires AfterLoad, which a row that was created
 * does not get.
 *
 * @param given no entity twice
 * @returns undefined where nothing is to be waited for
 */
export function finish(
  session: Session,
  entityText: EntityColumns,
  given: readonly Given[],
  load: RelationsToLoad | undefined,
): Promise<void> | undefined {
  return finishes(entityText, load) ? loadAndTell(session, entityText, given, load) : undefined
}

async function loadAndTell(
  session: Session,
  entityText: EntityColumns,
  given: readonly Given[],
  load: RelationsToLoad | undefined,
): Promise<void> {
  const found = given.filter(({ created }) => !created).map(({ entity }) => entity)
  if (!load) return await afterLoad(session, entityText, found)
  // As with `find`: relations that come by queries of their own come after the event of their row, and fire theirs.
  if (load.strategy === 'query') await afterLoad(session, entityText, found)
  const related = await loadRelations(session, entityText, given, load)
  await afterLoadJoined(session, entityText, load.strategy === 'join' ? found : [], related)
}

/** Rows in one query: parameters are limited, and so is the patience of a planner. */
const ROWS = 1_000

/**
 * @returns what was joined onto rows whose own AfterLoad does not tell of it: onto those that were created, and, with
 * queries of their own, onto all. TypeORM 0.3 joins eager relations in either way.
 */
async function loadRelations(
  session: Session,
  entityText: EntityColumns,
  given: readonly Given[],
  load: RelationsToLoad,
): Promise<Related[]> {
  const { metadata } = entityText
  const related: Related[] = []
  for (const { rows, withDeleted } of portions(entityText, given)) {
    const ids = rows.map(({ entity }) => metadata.getEntityIdMap(entity))
    const { loaded, joined } = await session.byTypeOrm(async (queryRunner) => {
      const builder = query(queryRunner, entityText, load, withDeleted).whereInIds(ids)
      return { loaded: await builder.getMany(), joined: builder.expressionMap.joinAttributes }
    })
    const byId = new Map(loaded.map((entity) => [idOf(metadata, entity), entity]))
    for (const { entity, created } of rows) {
      // Undefined where someone deleted the row meanwhile.
      const attached = attach(metadata, byId.get(idOf(metadata, entity)), entity)
      const notified = attached.filter(({ relation }) => joined.some((join) => join.relation === relation))
      if (created || load.strategy === 'query') related.push(...notified)
    }
  }
  return related
}

/** A row that is softly deleted is one that `find` gives with `withDeleted` only, and its relations with it. */
function* portions(
  { metadata }: EntityColumns,
  given: readonly Given[],
): Generator<{ readonly rows: readonly Given[]; readonly withDeleted: boolean }> {
  const isDeleted = ({ entity }: Given): boolean => (metadata.deleteDateColumn?.getEntityValue(entity) ?? null) !== null
  for (const withDeleted of [false, true]) {
    const rows = given.filter((one) => isDeleted(one) === withDeleted)
    for (let from = 0; from < rows.length; from += ROWS) yield { rows: rows.slice(from, from + ROWS), withDeleted }
  }
}

/** Joined, the row itself need not be read again; by queries of their own, relations may be found by any of its columns. */
function query(
  queryRunner: QueryRunner,
  { metadata }: EntityColumns,
  { relations, strategy }: RelationsToLoad,
  withDeleted: boolean,
): SelectQueryBuilder<ObjectLiteral> {
  const { name, primaryColumns, discriminatorColumn } = metadata
  const key = [...primaryColumns, ...(discriminatorColumn ? [discriminatorColumn] : [])]
  const columns = key.map(({ propertyPath }) => `${name}.${propertyPath}`)
  return queryRunner.manager
    .createQueryBuilder(metadata.target, name, queryRunner)
    .select(strategy === 'join' ? columns : [name])
    .setFindOptions({ relations, relationLoadStrategy: strategy, withDeleted })
    .callListeners(false)
}

const idOf = ({ primaryColumns }: EntityMetadata, entity: ObjectLiteral): string =>
  JSON.stringify(primaryColumns.map((column) => parameterText(column.getEntityValue(entity))))

interface Attached extends Related {
  readonly relation: EntityMetadata['relations'][number]
}

/** Puts every relation that was loaded onto another object of the same row. */
function attach(metadata: EntityMetadata, loaded: ObjectLiteral | undefined, entity: ObjectLiteral): Attached[] {
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
