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
import { transactionCommands } from '../sql/transaction-commands'
import { normalizedValues, setProperty, writeBack } from '../registry/normalize-column'
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

/** Marks a subscriber of ours, whichever copy of this package in the process it is of. */
export const OURS: unique symbol = Symbol.for('typeorm-unique-text.subscriber')

/**
 * As the first: what others send when they hear of a rollback is still before it, and what they are told after an
 * insert is what is stored. TypeORM makes the list anew on each `initialize()`.
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
  const moved = tableNumbers(metadata).filter((one) => isMoved(one, event) && !isGiven(one, entity, event))
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

/** Of single table inheritance, each class has columns of its own. */
const isWritten = (column: ColumnMetadata, { updatedColumns, updatedRelations }: Changes): boolean =>
  updatedColumns.some(({ propertyPath }) => propertyPath === column.propertyPath) ||
  updatedRelations.some(({ propertyPath }) => propertyPath === column.relationMetadata?.propertyPath)

const isMoved = ({ scope }: NumberDeclaration, changes: Changes): boolean =>
  scope.some((column) => isWritten(column, changes))

const isGiven = ({ column }: NumberDeclaration, entity: ObjectLiteral, changes: Changes): boolean =>
  isWritten(column, changes) && (column.getEntityValue(entity) ?? null) !== null
