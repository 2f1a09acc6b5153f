import type {
  BeforeQueryEvent,
  DataSource,
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
  declarationsOf,
  namesOfEntity,
  NO_ROLLBACKS,
  type NumberDeclaration,
  registry,
  tableNumbers,
} from '../registry/registry'
import { field, hashOfTexts, hashOfValues } from '../sql/text-table'
import { transactionCommands } from '../sql/transaction-commands'

/** Marks a subscriber of ours, whichever copy of this package in the process it is of. */
export const OURS: unique symbol = Symbol.for('typeorm-unique-text.subscriber')

/**
 * Adds our subscribers as the first. After a rollback, what other subscribers send is then sent later; after an insert,
 * they get what is stored. TypeORM makes the list anew on each `initialize()`.
 */
export function subscribe({ subscribers }: DataSource): void {
  if (!subscribers.some((one) => OURS in one)) subscribers.unshift(new RollbackSubscriber(), new StoredTextSubscriber())
}

/** After `save` and `insert`, makes the entity hold what the database holds: the normalized text. */
class StoredTextSubscriber implements EntitySubscriberInterface {
  readonly [OURS] = true

  beforeInsert({ metadata, entity }: InsertEvent<ObjectLiteral>): void {
    for (const declaration of declarationsOf(metadata)) normalizeValues(declaration, entity)
  }

  afterInsert({ metadata, entity }: InsertEvent<ObjectLiteral>): void {
    putTextsBack(metadata, entity)
  }

  /** Refuses a change before any SQL. The guard refuses those that come another way. */
  beforeUpdate({ metadata, updatedColumns, databaseEntity }: UpdateEvent<ObjectLiteral>): void {
    for (const { name, table, text, scope } of declarationsOf(metadata)) {
      if (!table.immutable) continue
      const given = text.some(({ column }) => column.getEntityValue(databaseEntity ?? {}) !== null)
      const fixed = [...text.map(({ column }) => column), ...scope]
      if (given && updatedColumns.some((column) => fixed.includes(column))) throw new ImmutableTextError(name)
    }
  }

  /** Only what was written: another text may be stored as it is. `update()` lists no columns; its values are the caller's. */
  async afterUpdate(event: UpdateEvent<ObjectLiteral>): Promise<void> {
    const { metadata, entity, updatedColumns } = event
    if (entity && updatedColumns.length > 0) putTextsBack(metadata, entity, updatedColumns)
    await readMovedNumbers(event)
  }
}

/** Notified before the server is: a call that is under way must not send anything after it. */
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
  for (const { text } of declarationsOf(metadata)) {
    for (const part of text) if (written.includes(part.column)) writeBack(part, entity)
  }
  for (const { text } of namesOfEntity(metadata)) if (written.includes(text.column)) writeBack(text, entity)
}

/**
 * A row that moves to another scope is numbered there by a trigger, and TypeORM reads nothing of it back. The old number,
 * left on the entity, would be written by its next `save`.
 */
async function readMovedNumbers(event: UpdateEvent<ObjectLiteral>): Promise<void> {
  const { metadata, entity, manager } = event
  if (!entity) return
  const moved = tableNumbers(metadata).filter(
    (one) =>
      isMoved(one, event) && !(isWritten(one.column, event) && (one.column.getEntityValue(entity) ?? null) !== null),
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

/** Compares paths, because each class of single table inheritance has columns of its own. */
const isWritten = (column: ColumnMetadata, { updatedColumns, updatedRelations }: Changes): boolean =>
  updatedColumns.some(({ propertyPath }) => propertyPath === column.propertyPath) ||
  updatedRelations.some(({ propertyPath }) => propertyPath === column.relationMetadata?.propertyPath)

const isMoved = ({ scope }: NumberDeclaration, changes: Changes): boolean =>
  scope.some((column) => isWritten(column, changes))

/** The SQL of a value that the caller gives as a function. */
type Sql = () => string

/** Returns a text as it will be stored, column by column; undefined for one that the values leave out. */
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
 * TypeORM's inserts bring the hash, for no trigger may set it where it decides in which part of the table a row lies, and
 * none can where there is none; and no number, which the guard gives. No entity holds either: they are made of its text
 * when TypeORM asks for the columns.
 */
export function sendHash(declaration: Declaration): void {
  const { hidden, text, table } = declaration
  const [hash, number] = hidden
  if (!hash || !number) return
  give(hash, (entity) => {
    const stored = textsToStore(declaration, entity)
    const [only, another] = stored
    // If there are several columns, values of a function are known to the database only.
    if (typeof only === 'function' && another === undefined && text.length === 1) {
      return () => hashOfValues(table, [only()])
    }
    const texts = text.length > 1 ? stored.map((one) => one ?? null) : stored
    return texts.every(isText) && texts.some((one) => one !== null) ? hashOfTexts(table, texts) : undefined
  })
  if (table.guardless === true) hash.isUpdate = true
  else give(number, () => null)
}

/** What a condition says of the column stays as it is. */
function give(column: ColumnMetadata, valueOf: (entity: ObjectLiteral) => unknown): void {
  const given = column.getEntityValue.bind(column)
  column.isInsert = true
  column.getEntityValue = (entity, transform) => {
    const value: unknown = given(entity, transform)
    return value === undefined ? valueOf(entity) : value
  }
}

/**
 * Values for TypeORM's UPDATE, with the hash of every text that they change and that has no guard.
 *
 * @param parameter makes a parameter of a text, and gives its SQL
 * @throws ImmutableTextError for a text by whose hash the table is spread
 */
export function withChangedHashes(
  values: ObjectLiteral,
  metadata: EntityMetadata,
  parameter: (text: string) => string,
): ObjectLiteral {
  const hashes: ObjectLiteral = {}
  for (const declaration of declarationsOf(metadata)) {
    const { table, name, scope, hidden } = declaration
    if (table.guardless !== true) continue
    const stored = textsToStore(declaration, values)
    const isChanged = stored.some((one) => one !== undefined)
    const isMoved = isChanged || scope.some((column) => column.getEntityValue(values) !== undefined)
    if (table.immutable && isMoved) throw new ImmutableTextError(name)
    if (hidden[0] && isChanged) hashes[hidden[0].propertyName] = changedHash(declaration, stored, parameter)
  }
  // Not a copy: what was given may be an entity, whose accessors are its class's.
  return Object.keys(hashes).length === 0 ? values : (Object.assign(Object.create(values), hashes) as ObjectLiteral)
}

/** Computes the hash; the database does if it alone knows a part of the text: a function's, or the stored one. */
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
