import type { EntityMetadata } from 'typeorm'
import { DeclarationError, TextTakenError } from '../errors'
import { restoreStatement, type StoredRow } from '../sql/statements'
import type { DeletedOption } from '../rows/call-options'
import type { EntityText, ReadyText } from '../rows/entity-text'
import { recoverEvent } from '../rows/events'
import { hydrate } from '../rows/hydrate'
import { rowShape, type RowValues } from '../rows/row-values'
import type { Session } from '../connection/session'

/** What becomes of a softly deleted row that holds the text. */
export interface OnDeleted {
  readonly deleted: DeletedOption
  /** 0-based position in the call. */
  readonly position: number
}

/** What an attempt found or created for the requested row. */
interface FoundRow {
  readonly stored: StoredRow | undefined
  readonly row: RowValues
}

/** The row is returned like any other. */
export const RETURN: OnDeleted = { deleted: 'return', position: 0 }

/** @throws DeclarationError if no row can be deleted softly and hold its text */
export function requireDeleteDate({ metadata, declaration }: EntityText, option: string): void {
  const where = `The option "${option}" of a call for "${declaration.name}" of ${metadata.name}`
  if (!metadata.deleteDateColumn) {
    throw new DeclarationError(`${where} needs a @DeleteDateColumn, and there is none. Leave the option out.`)
  }
  if (declaration.table.deleted !== undefined) {
    throw new DeclarationError(`${where}: with ignoreDeleted a deleted row holds no text. Leave the option out.`)
  }
}

/** The row was found, and is deleted softly. */
export function isDeleted({ metadata, declaration, select }: EntityText, { created, columns }: StoredRow): boolean {
  const { deleteDateColumn } = metadata
  if (created || !deleteDateColumn || declaration.table.deleted !== undefined) return false
  const index = select.indexOf(deleteDateColumn)
  // The delete date is the last column if it is not selected otherwise.
  return (columns[index === -1 ? columns.length - 1 : index] ?? null) !== null
}

/**
 * Does what the call says to a softly deleted row; returns any other row unchanged.
 *
 * @returns undefined if there is no row, or if someone else restored or deleted it meanwhile
 * @throws TextTakenError if the call says so, and for a row of another class of the table
 */
export function afterDeletion(
  session: Session,
  entityText: ReadyText,
  found: FoundRow,
  onDeleted: OnDeleted,
): StoredRow | undefined | Promise<StoredRow | undefined> {
  const { stored } = found
  if (onDeleted.deleted === 'return' || !stored || !isDeleted(entityText, stored)) return stored
  return restoreOrThrow(session, entityText, { stored, row: found.row }, onDeleted)
}

async function restoreOrThrow(
  session: Session,
  entityText: ReadyText,
  { stored, row }: FoundRow & { readonly stored: StoredRow },
  { deleted, position }: OnDeleted,
): Promise<StoredRow | undefined> {
  const entity = hydrate(entityText, session, stored)
  if (deleted === 'restore') return await restoreRow(session, entityText, row)
  const { metadata, declaration } = entityText
  const id = metadata.getEntityIdMap(entity)
  throw new TextTakenError([{ entity: metadata.name, property: declaration.name, id, row: position, deleted: true }])
}

/** Subscribers get the events of TypeORM's `restore()`, which have no entity either. */
async function restoreRow(session: Session, entityText: ReadyText, row: RowValues): Promise<StoredRow | undefined> {
  const { metadata } = entityText
  const statement = restoreStatement(rowShape(entityText, []), changedColumns(metadata))
  await recoverEvent(session, entityText, 'BeforeRecover')
  const [restored] = await session.rowsOrRollBack(statement, row.key)
  if (restored) await recoverEvent(session, entityText, 'AfterRecover')
  return restored
}

function changedColumns({ deleteDateColumn, versionColumn, updateDateColumn }: EntityMetadata): {
  readonly deleted: string
  readonly version: string | undefined
  readonly updated: string | undefined
} {
  return {
    deleted: deleteDateColumn?.databaseName ?? '',
    version: versionColumn?.databaseName,
    updated: updateDateColumn?.databaseName,
  }
}
