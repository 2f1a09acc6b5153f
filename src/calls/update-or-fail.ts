import {
  type DeepPartial,
  type EntityManager,
  type EntityMetadata,
  EntityNotFoundError,
  type EntityTarget,
  InstanceChecker,
  type ObjectLiteral,
} from 'typeorm'
import { openSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { DeclarationError } from '../errors'
import { kindOf } from '../options'
import { type Statement, updatedStatement, type WireRow } from '../sql/find'
import { type ColumnMetadata, dataSourceOf, namesOfEntity, textsOfEntity } from '../registry/registry'
import type { Step } from '../connection/transactions'
import { textsOfKey } from '../registry/name-declarations'
import { requireEntries, requireManager } from './call-options'
import { type EntityColumns, entityColumns, entityTextOf } from './entity-text'
import { afterWrite, fill, fire, hydrate, listensTo, type NamedColumns, newEntity, returnedBy } from './hydrate'
import {
  changedKey,
  inRow,
  requireKeyValues,
  requireKnown,
  requireObject,
  requireUniqueText,
  requireUpdatable,
} from './values'
import type { Writable, WritableOnly } from './insert-or-fail'
import { ensureNamesReady, requestedNames } from './requested-names'
import { watched } from './watch'
import { requestedOf, type RequestedText, writeOrFail, type WrittenRow } from './write-or-fail'

/**
 * The primary key: a value, of the type of the property `id` if there is one; an object with the whole key and perhaps
 * further conditions; or the entity itself.
 */
export type RowId<Entity extends ObjectLiteral> =
  | (Entity extends { readonly id: infer Id } ? Id : string | number | bigint | Date)
  | DeepPartial<Entity>

/** A change of one row: its entity, its primary key, and the new values. */
export type RowChange<Entity extends ObjectLiteral = ObjectLiteral> = readonly [
  entity: EntityTarget<Entity>,
  id: RowId<Entity>,
  changes: Writable<Entity>,
]

/** The result of a change: the entity. */
export type Changed<One> = One extends readonly [EntityTarget<infer Entity>, unknown, unknown] ? Entity : never

/**
 * Changes rows whose new texts must be free, all of them or none, as `insertOrFail` inserts them. It changes text,
 * scope, or any other columns. If a text is taken, one more round trip finds every taken text of the call.
 *
 * Changes them as TypeORM's `update` does, one after another in the order given. A text that an earlier change of the
 * call gives up is free for a later one. Two rows cannot swap their texts. Subscribers get BeforeUpdate before the
 * first statement, and AfterUpdate when all rows are written, with the changes as their entity, as from `update`.
 *
 * @param id the primary key, or an object that contains it; further properties are further conditions. Of an entity,
 * only the key counts
 * @returns the row with its new values, without relations
 * @throws TextTakenError with every taken text, name, number, primary key and ordinary unique column that can be known.
 * It names the property, the primary key of the holder, and the row. If only ordinary columns are taken, it is
 * TypeORM's QueryFailedError as well
 * @throws ImmutableTextError for the text of an `immutable` declaration
 * @throws EntityNotFoundError of TypeORM if there is no such row; nothing is changed
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use, before anything is written
 * @throws ChainLimitError, AttemptsExhaustedError, TransactionAbortedError, QueryFailedError as `insertOrFail` does
 * @example
 * const page = await updateOrFail(manager, Page, 1, { url: 'http://example.com/' })
 * await updateOrFail(manager, [[Page, 1, { url }], [Account, { tenant, number }, { handle }]])
 * @function
 */
export const updateOrFail: typeof updateOrFailImpl = watched('updateOrFail', 'text', updateOrFailImpl)

async function updateOrFailImpl<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  id: RowId<NoInfer<Entity>>,
  changes: Writable<NoInfer<Entity>>,
): Promise<Entity>
async function updateOrFailImpl<const Changes extends readonly RowChange[]>(
  manager: EntityManager,
  changes: Changes & { readonly [Position in keyof Changes]: CheckedChange<Changes[Position]> },
): Promise<{ -readonly [Position in keyof Changes]: Changed<Changes[Position]> }>
async function updateOrFailImpl(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral> | readonly RowChange[],
  id?: RowId<ObjectLiteral>,
  changes?: ObjectLiteral,
): Promise<unknown> {
  requireManager(manager)
  const single = !Array.isArray(entity)
  if (!single) requireEntries(entity, 3)
  const entries = single ? [[entity, id, changes] as unknown as RowChange] : (entity as readonly RowChange[])
  const dataSource = dataSourceOf(manager)
  requireUniqueText(dataSource, entries)
  const rows = entries.map(([target, key, values], position) => {
    const columns = entityColumns(dataSource, dataSource.getMetadata(target))
    return inRow(position, (): ChangedRow => {
      requireObject(columns, values)
      requireKnown(columns, values)
      requireUpdatable(columns, values)
      if (Object.values(values).every((value) => value === undefined)) {
        throw new DeclarationError(
          `No change of ${columns.metadata.name} was given. Give a property of it a value, or null.`,
        )
      }
      return { columns, position, id: criteriaOf(columns, key), values: { ...values } }
    })
  })
  const session = await openSession(manager)
  try {
    const entities = await updateAll(session, manager, rows)
    return single ? entities[0] : entities
  } finally {
    await session.close()
  }
}

/** Checks that the changes are those of the entity before them. */
type CheckedChange<One> = One extends readonly [EntityTarget<infer Entity>, infer Id, infer Changes]
  ? readonly [One[0], KeyOnly<Entity, Id>, WritableOnly<Entity, Changes>]
  : never

type KeyOnly<Entity, Id> = Entity extends ObjectLiteral ? (Id extends RowId<Entity> ? Id : NoKeyOfTheEntity) : never

declare const wrong: unique symbol

/** No value has this type. The compiler names it for a key of a type other than the id's. */
interface NoKeyOfTheEntity {
  readonly [wrong]: true
}

/** A row to change. Listeners may change its values. */
type ChangedRow = WrittenRow & { readonly id: ObjectLiteral }

/** An entity whose rows hold names, and the statement that changes the names of a row. */
interface NamedEntity extends NamedColumns {
  /** Discriminators of the class and its children, the last parameters of the statement. May be empty. */
  readonly discriminators: readonly string[]
  /** Parameters: the names in these columns, the primary key, the discriminators. */
  readonly rename: (columns: readonly string[]) => Statement<WireRow>
}

/**
 * Changes names of a row, by a prepared statement. TypeORM would build its SQL each time, which takes longer than the
 * statement.
 *
 * @returns the row with its new values, without relations; undefined if TypeORM's own statement is needed, because of
 * listeners or further conditions in `id`
 * @throws the errors of `updateOrFail`
 */
export async function updateNames(
  manager: EntityManager,
  named: NamedEntity,
  id: unknown,
  changes: ObjectLiteral,
): Promise<ObjectLiteral | undefined> {
  const { metadata, discriminators } = named
  if (listensTo('Update', named)) return undefined
  const { criteria, values: key } = rowKey(named, id)
  if (Object.keys(criteria).length > metadata.primaryColumns.length) return undefined
  const changed = namesOfEntity(metadata).filter(({ text }) => text.column.getEntityValue(changes) !== undefined)
  const names = requestedNames(named, 0, changes, criteria)
  const texts = changed.map((name) => names.find((one) => one.name === name)?.text ?? null)
  const step: Step<WireRow> = {
    statement: named.rename(changed.map(({ text }) => text.column.databaseName)),
    values: [...texts, ...key, ...discriminators],
    check: requireChangedRow(metadata, criteria),
  }
  const session = await openSession(manager)
  try {
    await ensureNamesReady(session, names)
    const [rows = []] = await writeOrFail(session, { steps: [step], requested: [], names })
    return hydrate(named, session, { columns: rows[0] ?? [], hashNumber: 0 })
  } finally {
    await session.close()
  }
}

/** The key by which a row is found. */
interface RowKey {
  /** The primary key, and further conditions. */
  readonly criteria: ObjectLiteral
  /** The primary key as it is sent. */
  readonly values: readonly unknown[]
  /** A string that is equal for equal keys of an entity. */
  readonly identity: string
}

/** @throws DeclarationError unless it holds the whole primary key */
export function rowKey(columns: EntityColumns, id: unknown): RowKey {
  const criteria = criteriaOf(columns, id)
  const values = columns.metadata.primaryColumns.map((column) => sentValue(columns, column, criteria))
  return { criteria, values, identity: JSON.stringify(textsOfKey(values)) }
}

/** @throws DeclarationError unless it holds the whole primary key */
function criteriaOf(columns: EntityColumns, id: unknown): ObjectLiteral {
  const { metadata } = columns
  const [only, another] = metadata.primaryColumns
  const isKey = typeof id !== 'object' || id instanceof Date
  const isEntity = typeof metadata.target === 'function' && id instanceof metadata.target
  // The other values of an entity are loaded ones: its dates are rounded, and its lists are not columns.
  const given = (isEntity && metadata.getEntityIdMap(id)) || id
  const criteria: ObjectLiteral = isKey ? {} : { ...(given as object | null) }
  if (isKey && only && !another && id !== undefined) only.setEntityValue(criteria, id)
  const isWhole = metadata.getEntityIdMap(criteria) !== undefined
  // An operator, SQL or a list may select several rows, or none in particular.
  const areValues = metadata.primaryColumns.every((column) => {
    const value: unknown = column.getEntityValue(criteria)
    const isList = !column.isArray && Array.isArray(value)
    return !InstanceChecker.isFindOperator(value) && typeof value !== 'function' && !isList
  })
  if (isWhole && areValues) {
    requireKeyValues(columns, criteria)
    return criteria
  }
  const names = metadata.primaryColumns.map(({ propertyPath }) => `"${propertyPath}"`).join(', ')
  throw new DeclarationError(
    `Expected the primary key of ${metadata.name}, got ${kindOf(id)}. Give ${names}: updateOrFail() changes one row.`,
  )
}

async function updateAll(
  session: Session,
  manager: EntityManager,
  rows: readonly ChangedRow[],
): Promise<ObjectLiteral[]> {
  // As from `update()`, the entity of the event is the new values, without the row that was there before.
  for (const { columns, values } of rows) await fire(session, 'BeforeUpdate', columns.metadata, values)
  const { requested, names } = await requestedOf<ChangedRow, RequestedText>(session, rows, (row) => {
    const { metadata } = row.columns
    const id = metadata.primaryColumns.map((column) => sentValue(row.columns, column, row.id))
    return textsOfEntity(metadata).flatMap((declaration) => {
      const entityText = entityTextOf(manager, metadata.target, declaration.name)
      const key = changedKey(entityText, row.values)
      // A row that is restored must get its text again.
      const { table } = entityText.declaration
      const deleted: unknown =
        table.deleted === undefined ? undefined : entityText.metadata.deleteDateColumn?.getEntityValue(row.values)
      const live = deleted === undefined ? undefined : deleted === null
      if (live === undefined && key.every((value) => value === undefined)) return []
      return [{ entityText, row: row.position, key, id, live }]
    })
  })
  const steps = rows.map(({ columns, id, values: changes }): Step<WireRow> => {
    // TypeORM's own UPDATE also writes version and update date.
    const [sql, values] = session.dataSource
      .createQueryBuilder()
      .update(columns.metadata.target)
      .set(changes)
      .where(id)
      .returning(returnedBy(columns))
      .getQueryAndParameters()
    return { statement: updatedStatement(sql), values, check: requireChangedRow(columns.metadata, id) }
  })
  const answers = await writeOrFail(session, { requested, names, rows, steps })
  const entities = rows.map(({ columns }, nth) => {
    const entity: ObjectLiteral = newEntity(columns.metadata, session)
    fill(columns, columns.metadata, answers[nth]?.[0] ?? [], entity)
    return entity
  })
  for (const { columns, values } of rows) await afterWrite(session, 'Update', columns, values)
  return entities
}

/** @throws EntityNotFoundError */
const requireChangedRow =
  (metadata: EntityMetadata, criteria: ObjectLiteral) =>
  (rows: readonly WireRow[]): void => {
    if (rows.length === 0) throw missingRow(metadata, metadata.getEntityIdMap(criteria))
  }

/** Returns TypeORM's error for a missing row, whose key is in `criteria` alone. TypeORM would put it into the message. */
export function missingRow(metadata: EntityMetadata, criteria: unknown): EntityNotFoundError {
  const error = new EntityNotFoundError(metadata.target, undefined)
  return Object.assign(error, {
    criteria,
    message: `Could not find the row of entity "${metadata.name}": no row has the primary key in "criteria".`,
  })
}

const sentValue = (
  { dataSource }: Pick<EntityColumns, 'dataSource'>,
  column: ColumnMetadata,
  entity: ObjectLiteral,
): unknown => dataSource.driver.preparePersistentValue(column.getEntityValue(entity), column)
