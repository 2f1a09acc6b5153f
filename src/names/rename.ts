import { type EntityManager, EntityNotFoundError, type EntityTarget, type ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { openSession } from '../connection/open-session'
import { ensureNamesReady, requestedNames } from '../find-or-create/requested-names'
import { criteriaOf, type RowId, sentValue, updateOrFail } from '../find-or-create/update-or-fail'
import { writeOrFail } from '../find-or-create/write-or-fail'
import { requireManager } from '../rows/call-arguments'
import { cached } from '../rows/entity-text'
import { listensToUpdate } from '../rows/events'
import { renameStatement } from '../sql/name-statements'
import type { Statement, WireRow } from '../sql/statements'
import { dataSourceOf, namesOfEntity } from '../registry/registry'
import { holderEntity, type HolderEntity, toEntity } from './holder-row'

/**
 * Gives a row another name, in one round trip: by an UPDATE of its property, as `save` and raw SQL do it. The former
 * name is free, reserved or redirects from then on, as the declaration says.
 *
 * @param id the primary key, or an object with the whole of it
 * @param names the new name of one property or of several; null if the column is nullable
 * @returns the row as it stands now, without relations
 * @throws TextTakenError with every taken name and its holder; nothing is changed then, and a transaction stays usable
 * @throws EntityNotFoundError of TypeORM if there is no such row
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError, AttemptsExhaustedError, TransactionAbortedError, QueryFailedError
 * as `updateOrFail`
 * @example
 * const user = await rename(manager, User, 1, { handle: 'grace' })
 */
export async function rename<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  id: RowId<NoInfer<Entity>>,
  names: { readonly [Property in keyof Entity]?: Extract<Entity[Property], string | null> },
): Promise<Entity> {
  requireManager(manager)
  const metadata = dataSourceOf(manager).getMetadata(entity)
  const declared = new Set(namesOfEntity(metadata).map(({ name }) => name))
  const given: unknown = names
  const keys = typeof given === 'object' && given !== null ? Object.keys(given) : []
  const other = keys.find((key) => !declared.has(key))
  if (keys.length === 0 || other !== undefined) {
    const list = [...declared].map((name) => `"${name}"`).join(', ') || 'none'
    throw new DeclarationError(
      `rename(): ${other === undefined ? 'no name was given' : `"${other}" is no name`}. ${metadata.name} has ${list}; ` +
        `updateOrFail() changes other properties with it.`,
    )
  }
  const [first] = namesOfEntity(metadata)
  const holder = first && holderEntity(metadata, first)
  if (!holder || listensToUpdate(holder)) return await byTypeOrm(manager, entity, id, names)
  const criteria = criteriaOf(holder, id)
  // Further conditions are TypeORM's to write.
  if (Object.keys(criteria).length > metadata.primaryColumns.length) return await byTypeOrm(manager, entity, id, names)
  return (await renameRow(manager, holder, criteria, names)) as Entity
}

async function byTypeOrm<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  id: RowId<Entity>,
  names: ObjectLiteral,
): Promise<Entity> {
  return await updateOrFail(manager, entity, id, names as Entity)
}

/**
 * Does what `updateOrFail` does, by a prepared statement: TypeORM would build its SQL anew each time, which takes
 * longer than the statement.
 */
async function renameRow(
  manager: EntityManager,
  holder: HolderEntity,
  criteria: ObjectLiteral,
  names: ObjectLiteral,
): Promise<ObjectLiteral> {
  const { metadata, dataSource, shape } = holder
  const changed = namesOfEntity(metadata).filter(({ text }) => text.column.getEntityValue(names) !== undefined)
  const texts = requestedNames(holder, 0, names, criteria)
  const values = [
    ...changed.map((name) => texts.find((one) => one.name === name)?.text ?? null),
    ...metadata.primaryColumns.map((column) => sentValue({ dataSource }, column, criteria)),
    ...(shape.only?.values ?? []),
  ]
  const columns = changed.map(({ text }) => text.column.databaseName)
  const check = (rows: readonly WireRow[]): void => {
    if (rows.length === 0) throw new EntityNotFoundError(metadata.target, metadata.getEntityIdMap(criteria))
  }
  const session = await openSession(manager)
  try {
    await ensureNamesReady(session, texts)
    const step = { statement: statementOf(holder, columns), values, check }
    const [rows = []] = await writeOrFail(session, { steps: [step], requested: [], names: texts })
    return toEntity(holder, session, rows[0] ?? [])
  } finally {
    await session.close()
  }
}

const statements = new WeakMap<HolderEntity, Map<string, Statement<WireRow>>>()

function statementOf(holder: HolderEntity, columns: readonly string[]): Statement<WireRow> {
  const known = statements.get(holder) ?? new Map<string, Statement<WireRow>>()
  statements.set(holder, known)
  return cached(known, columns, () => renameStatement(holder.shape, columns, holder.changes))
}
