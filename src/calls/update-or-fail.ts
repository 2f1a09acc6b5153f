import type { DeepPartial, EntityManager, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import { openSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { DeclarationError, UniqueTextError } from '../errors'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { type Statement, updatedStatement, type WireRow } from '../sql/find'
import { dataSourceOf, namesOfEntity, textsOfEntity } from '../registry/registry'
import type { Step } from '../connection/transactions'
import { requireEntries, requireManager } from './call-options'
import { entityColumns, entityTextOf } from './entity-text'
import { afterWrite, fill, fire, hydrate, listensTo, type NamedColumns, newEntity, returnedBy } from './hydrate'
import {
  changedKey,
  inRow,
  isObject,
  pathsBeside,
  requireKnown,
  requireObject,
  requireUniqueText,
  requireUpdatable,
} from './values'
import type { Writable, WritableOnly } from './insert-or-fail'
import { ensureNamesReady, requestedNames } from './requested-names'
import { missingRow, rowKey } from './row-key'
import { atOnce, type ChangedRow } from './update-at-once'
import { watched } from './watch'
import type { RequestedText } from './taken'
import { requestedOf, writeOrFail } from './write-or-fail'

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

/** A change of one row of a list: its primary key and its new values. */
export type ChangeWithKey<Entity extends ObjectLiteral> = Writable<Entity> &
  (Entity extends { readonly id: infer Id } ? { readonly id: Id } : object)

/** The result of a change: the entity. */
export type Changed<One> = One extends readonly [EntityTarget<infer Entity>, unknown, unknown] ? Entity : never

/**
 * Changes rows whose new texts must be free, all of them or none, as `insertOrFail` inserts them. It changes text,
 * scope, or any other columns. If a text is taken, one more round trip finds every taken text of the call.
 *
 * Changes several rows at once, in a number of statements that depends on their tables alone. A text or a name that one
 * change gives up is free for all others, so rows can swap them. A row whose text goes to another row has a temporary
 * text meanwhile, which triggers of the table see. Rows change one after another, as TypeORM's `update` changes them, if
 * one has SQL or further conditions, is given twice, or is in a distributed table. Two rows cannot swap their texts then.
 *
 * Subscribers get BeforeUpdate before the first statement, and AfterUpdate when all rows are written, with the changes
 * as their entity, as from `update`.
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
 * await updateOrFail(manager, Page, [{ id: 1, url: second }, { id: 2, url: first }])
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
async function updateOrFailImpl<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  changes: readonly ChangeWithKey<NoInfer<Entity>>[],
): Promise<Entity[]>
async function updateOrFailImpl<const Changes extends readonly RowChange[]>(
  manager: EntityManager,
  changes: Changes & { readonly [Position in keyof Changes]: CheckedChange<Changes[Position]> },
): Promise<{ -readonly [Position in keyof Changes]: Changed<Changes[Position]> }>
async function updateOrFailImpl(
  manager: EntityManager,
  entity: EntityTarget<ObjectLiteral> | readonly RowChange[],
  id?: RowId<ObjectLiteral> | readonly ObjectLiteral[],
  changes?: ObjectLiteral,
): Promise<unknown> {
  requireManager(manager)
  const dataSource = dataSourceOf(manager)
  const single = !Array.isArray(entity) && !Array.isArray(id)
  if (Array.isArray(entity)) requireEntries(entity, 3)
  const entries: readonly RowChange[] = Array.isArray(entity)
    ? entity
    : Array.isArray(id)
      ? id.map((one: ObjectLiteral) => [
          entity,
          ...splitKey(dataSource.getMetadata(entity as EntityTarget<ObjectLiteral>), one),
        ])
      : [[entity, id, changes] as unknown as RowChange]
  requireUniqueText(dataSource, Array.isArray(id) ? [[entity as EntityTarget<ObjectLiteral>]] : entries)
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
      const found = rowKey(columns, key)
      return { columns, position, id: found.criteria, key: found, values: { ...values } }
    })
  })
  if (rows.length === 0) return []
  const session = await openSession(manager)
  try {
    const entities = await updateAll(session, manager, rows)
    return single ? entities[0] : entities
  } finally {
    await session.close()
  }
}

/** Returns the primary key, and the other properties. */
function splitKey(
  { primaryColumns }: EntityMetadata,
  given: ObjectLiteral,
): [id: ObjectLiteral, changes: ObjectLiteral] {
  if (!isObject(given)) return [given, {}]
  const names = new Set(primaryColumns.map(({ propertyPath }) => propertyPath.split('.')[0]))
  const parts = Object.entries(given)
  const part = (isKey: boolean): ObjectLiteral =>
    Object.fromEntries(parts.filter(([name]) => names.has(name) === isKey))
  return [part(true), part(false)]
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
  if (pathsBeside(metadata, metadata.primaryColumns, criteria).length > 0) return undefined
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

async function updateAll(
  session: Session,
  manager: EntityManager,
  rows: readonly ChangedRow[],
): Promise<ObjectLiteral[]> {
  // As from `update()`, the entity of the event is the new values, without the row that was there before.
  for (const { columns, values } of rows) await fire(session, 'BeforeUpdate', columns.metadata, values)
  const { requested, names } = await requestedOf<ChangedRow, RequestedText>(session, rows, (row) => {
    const { metadata } = row.columns
    return textsOfEntity(metadata).flatMap((declaration) => {
      const entityText = entityTextOf(manager, metadata.target, declaration.name)
      const key = changedKey(entityText, row.values)
      // A row that is restored must get its text again.
      const { table } = entityText.declaration
      const deleted: unknown =
        table.deleted === undefined ? undefined : entityText.metadata.deleteDateColumn?.getEntityValue(row.values)
      const live = deleted === undefined ? undefined : deleted === null
      if (live === undefined && key.every((value) => value === undefined)) return []
      return [{ entityText, row: row.position, key, id: row.key.values, live }]
    })
  })
  const wanted = { requested, names, rows }
  const together = await atOnce(session, rows, requested)
  let changed =
    together &&
    (await writeOrFail(session, { ...wanted, steps: together.steps, atOnce: true }).then(together.changed, orOneByOne))
  changed ??= (await writeOrFail(session, { ...wanted, steps: rows.map((row) => singleStep(session, row)) })).map(
    ([row]) => row,
  )
  const stored = changed
  const entities = rows.map(({ columns }, nth) => {
    const entity: ObjectLiteral = newEntity(columns.metadata, session)
    fill(columns, columns.metadata, stored[nth] ?? [], entity)
    return entity
  })
  for (const { columns, values } of rows) await afterWrite(session, 'Update', columns, values)
  return entities
}

/**
 * Other unique indexes may allow the changes in the order given, and a distributed table each by itself.
 *
 * @throws the error otherwise
 */
function orOneByOne(error: unknown): undefined {
  const { code } = serverError(error) ?? {}
  const mayHelp = code === SQLSTATE.uniqueViolation || code === SQLSTATE.featureNotSupported
  if (error instanceof UniqueTextError || !mayHelp) throw error
}

/** TypeORM's own UPDATE also writes version and update date. */
function singleStep(session: Session, { columns, id, values: changes }: ChangedRow): Step<WireRow> {
  const [sql, values] = session.dataSource
    .createQueryBuilder()
    .update(columns.metadata.target)
    .set(changes)
    .where(id)
    .returning(returnedBy(columns))
    .getQueryAndParameters()
  return { statement: updatedStatement(sql), values, check: requireChangedRow(columns.metadata, id) }
}

/** @throws EntityNotFoundError */
const requireChangedRow =
  (metadata: EntityMetadata, criteria: ObjectLiteral) =>
  (rows: readonly WireRow[]): void => {
    if (rows.length === 0) throw missingRow(metadata, metadata.getEntityIdMap(criteria))
  }
