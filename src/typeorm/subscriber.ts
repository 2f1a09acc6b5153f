import type {
  BeforeQueryEvent,
  EntityMetadata,
  EntitySubscriberInterface,
  InsertEvent,
  ObjectLiteral,
  UpdateEvent,
} from 'typeorm'
import { DeclarationError, ImmutableTextError } from '../errors'
import { normalizedValues, setProperty, writeBack } from '../registry/declarations'
import {
  type ColumnMetadata,
  dataSourceOf,
  type Declaration,
  namesOfEntity,
  NO_ROLLBACKS,
  numbersOfTable,
  registry,
  textsOfEntity,
} from '../registry/registry'
import { field, hashOfTexts, hashOfValues } from '../sql/text-table'
import { transactionCommands } from '../sql/transaction-commands'

/** Marks a subscriber of ours, from any copy of this package in the process. */
export const OURS: unique symbol = Symbol.for('typeorm-unique-text.subscriber')

export const ourSubscribers = (): EntitySubscriberInterface[] => [new RollbackSubscriber(), new StoredTextSubscriber()]

/** After `save` and `insert`, sets the entity's texts to the normalized texts in the database. */
class StoredTextSubscriber implements EntitySubscriberInterface {
  readonly [OURS] = true

  beforeInsert({ metadata, entity }: InsertEvent<ObjectLiteral>): void {
    for (const declaration of textsOfEntity(metadata)) normalizeValues(declaration, entity)
  }

  afterInsert({ metadata, entity }: InsertEvent<ObjectLiteral>): void {
    putTextsBack(metadata, entity)
  }

  /** Refuses a change before any SQL. The guard refuses changes that bypass this. */
  beforeUpdate({ metadata, updatedColumns, databaseEntity }: UpdateEvent<ObjectLiteral>): void {
    for (const { name, table, text, scope } of textsOfEntity(metadata)) {
      if (!table.immutable) continue
      const given = text.some(({ column }) => column.getEntityValue(databaseEntity ?? {}) !== null)
      const fixed = [...text.map(({ column }) => column), ...scope]
      if (given && updatedColumns.some((column) => fixed.includes(column))) throw new ImmutableTextError(name)
    }
  }

  /** Sets written texts only: others may not be normalized. `update()` lists none, and its values are the caller's. */
  async afterUpdate(event: UpdateEvent<ObjectLiteral>): Promise<void> {
    const { metadata, entity, updatedColumns } = event
    if (entity && updatedColumns.length > 0) putTextsBack(metadata, entity, updatedColumns)
    await readMovedNumbers(event)
  }
}

/** Is notified of a rollback before the server, because a running call must not send anything after the rollback. */
class RollbackSubscriber implements EntitySubscriberInterface {
  readonly [OURS] = true

  beforeQuery({ query, parameters = [], queryRunner }: BeforeQueryEvent): void {
    for (const command of transactionCommands(query, parameters.length > 0)) {
      const { ofTransactions, toSavepoints } = registry.rollbacks.get(queryRunner) ?? NO_ROLLBACKS
      if (command.does === 'roll back')
        registry.rollbacks.set(queryRunner, { ofTransactions: ofTransactions + 1, toSavepoints })
      else if (command.does === 'roll back to')
        registry.rollbacks.set(queryRunner, { ofTransactions, toSavepoints: toSavepoints + 1 })
    }
  }
}

function normalizeValues(declaration: Declaration, entity: ObjectLiteral): void {
  for (const [name, value] of Object.entries(normalizedValues(declaration, entity))) {
    if (entity[name] === value || Reflect.set(entity, name, value)) continue
    throw new DeclarationError(
      `"${name}" of ${declaration.metadata.name} cannot be set, and "${declaration.name}" is stored normalized. ` +
        `Pass an object that is not frozen.`,
    )
  }
}

function putTextsBack(metadata: EntityMetadata, entity: ObjectLiteral, written = metadata.columns): void {
  for (const { text } of textsOfEntity(metadata)) {
    for (const part of text) if (written.includes(part.column)) writeBack(part, entity)
  }
  for (const { text } of namesOfEntity(metadata)) if (written.includes(text.column)) writeBack(text, entity)
}

/**
 * A trigger numbers a row that moves to another scope, and TypeORM does not read the new number. With the old number on
 * the entity, the next `save` would write it.
 */
async function readMovedNumbers(event: UpdateEvent<ObjectLiteral>): Promise<void> {
  const { metadata, entity, manager } = event
  if (!entity) return
  const moved = numbersOfTable(metadata).filter(
    (one) =>
      one.scope.some((column) => isWritten(column, event)) &&
      !(isWritten(one.column, event) && (one.column.getEntityValue(entity) ?? null) !== null),
  )
  const [first, ...others] = moved.map(({ name }, index) => [`row.${name}`, `n${index}`] as const)
  if (!first) return
  const query = manager.createQueryBuilder(metadata.target, 'row').select(...first)
  for (const other of others) query.addSelect(...other)
  const row = await query.withDeleted().whereInIds(metadata.getEntityIdMap(entity)).getRawOne<ObjectLiteral>()
  const { driver } = dataSourceOf(metadata)
  for (const [index, { column }] of moved.entries()) {
    if (row) setProperty(column, entity, driver.prepareHydratedValue(row[`n${index}`], column))
  }
}

type Changes = Pick<UpdateEvent<ObjectLiteral>, 'updatedColumns' | 'updatedRelations'>

/** Compares paths, because each class of single table inheritance has its own columns. */
const isWritten = (column: ColumnMetadata, { updatedColumns, updatedRelations }: Changes): boolean =>
  updatedColumns.some(({ propertyPath }) => propertyPath === column.propertyPath) ||
  updatedRelations.some(({ propertyPath }) => propertyPath === column.relationMetadata?.propertyPath)

/** The SQL of a value that the caller gives as a function. */
type Sql = () => string

/** Returns a text in its stored form, column by column. A column that the values leave out is undefined. */
function textsToStore({ text, metadata }: Declaration, values: ObjectLiteral): (string | null | undefined | Sql)[] {
  const { driver } = dataSourceOf(metadata)
  return text.map(({ column }) => {
    const given: unknown = column.getEntityValue(values)
    const isValue = given !== undefined && typeof given !== 'function'
    return (isValue ? driver.preparePersistentValue(given, column) : given) as string | null | undefined | Sql
  })
}

const isText = (value: unknown): value is string | null => value === null || typeof value === 'string'

/**
 * Makes TypeORM's inserts send the hash. No trigger may set a hash that distributes the table, and a text without a
 * guard has no trigger. The inserts send no number, because the guard assigns it. Entities hold neither value. Both are
 * computed when TypeORM reads the columns.
 */
export function sendHash(declaration: Declaration): void {
  const { hidden, text, table } = declaration
  const [hash, number] = hidden
  if (!hash || !number) return
  give(hash, (entity) => {
    const stored = textsToStore(declaration, entity)
    const [only, another] = stored
    // If there are several columns, only the database knows the value of a function.
    if (typeof only === 'function' && another === undefined && text.length === 1) {
      return () => hashOfValues(table, [only()])
    }
    const texts = text.length > 1 ? stored.map((one) => one ?? null) : stored
    return texts.every(isText) && texts.some((one) => one !== null) ? hashOfTexts(table, texts) : undefined
  })
  if (table.guardless === true) hash.isUpdate = true
  else give(number, () => null)
}

/** A value that a condition has for the column is kept. */
function give(column: ColumnMetadata, valueOf: (entity: ObjectLiteral) => unknown): void {
  const given = column.getEntityValue.bind(column)
  column.isInsert = true
  column.getEntityValue = (entity, transform) => {
    const value: unknown = given(entity, transform)
    return value === undefined ? valueOf(entity) : value
  }
}

/**
 * Returns values for TypeORM's UPDATE, with the hash of every changed text that has no guard.
 *
 * @param parameter creates a parameter for a text, and returns its SQL
 * @throws ImmutableTextError for a text whose hash distributes the table
 */
export function withChangedHashes(
  values: ObjectLiteral,
  metadata: EntityMetadata,
  parameter: (text: string) => string,
): ObjectLiteral {
  const hashes: ObjectLiteral = {}
  for (const declaration of textsOfEntity(metadata)) {
    const { table, name, scope, hidden } = declaration
    if (table.guardless !== true) continue
    const stored = textsToStore(declaration, values)
    const isChanged = stored.some((one) => one !== undefined)
    const isMoved = isChanged || scope.some((column) => column.getEntityValue(values) !== undefined)
    if (table.immutable && isMoved) throw new ImmutableTextError(name)
    if (hidden[0] && isChanged) hashes[hidden[0].propertyName] = changedHash(declaration, stored, parameter)
  }
  // A copy of an entity would lose the accessors of its class.
  return Object.keys(hashes).length === 0 ? values : (Object.assign(Object.create(values), hashes) as ObjectLiteral)
}

/** Computes the hash. The database does so if only it knows a part of the text, which is from a function or stored. */
function changedHash(
  { table, text }: Declaration,
  stored: ReturnType<typeof textsToStore>,
  parameter: (text: string) => string,
): string | null | Sql {
  if (stored.every(isText)) {
    return stored.some((one) => one !== null) ? hashOfTexts(table, stored) : null
  }
  const values = stored.map((one, index) => {
    if (one === undefined) return field('', text[index]?.column.databaseName ?? '')
    if (typeof one === 'function') return one()
    return one === null ? 'NULL' : parameter(one)
  })
  return () => hashOfValues(table, values)
}
