import type { ObjectLiteral } from 'typeorm'
import type { StoredRow } from '../sql/statements'
import type { EntityText } from './entity-text'
import { beforeInsert, listensToInsert } from './events'
import { requireCreated, withPromised } from './nested-values'
import { newRowValues, type RowValues, withCreateValues, withOthersOf } from './row-values'
import type { Session } from '../connection/session'

/** A requested row. */
export interface RequestedRow {
  /** What is known of it before it is looked for. */
  readonly row: RowValues
  /** The object that `row` was made of. */
  readonly values: ObjectLiteral
  /** What was merged into it. */
  readonly more: readonly ObjectLiteral[]
  /** Gives the rest, where the row is missing. */
  readonly create: (() => unknown) | undefined
  /** Is notified of the row as soon as it stands. */
  readonly notify?: (stored: StoredRow) => void
}

/** Shared by all rows: of thousands, each list would count. */
const NO_MORE: readonly ObjectLiteral[] = []

/**
 * @throws TextRejectedError, DeclarationError for what is wrong with the values
 */
export function requestedRow(
  entityText: EntityText,
  values: ObjectLiteral,
  create?: ObjectLiteral | (() => unknown),
): RequestedRow {
  const row = newRowValues(entityText, values)
  if (create === undefined) return { row, values, more: NO_MORE, create: undefined }
  if (typeof create === 'function') return { row, values, more: NO_MORE, create: create as () => unknown }
  return { row: withCreateValues(row, entityText, values, create), values, more: [create], create: undefined }
}

/** Calls `create`, where there is one. */
export async function withCreated(entityText: EntityText, requested: RequestedRow): Promise<RequestedRow> {
  if (!requested.create) return requested
  const created: unknown = await requested.create()
  requireCreated(entityText.metadata.name, created)
  const { values } = requested
  const row = withCreateValues(requested.row, entityText, values, created)
  return { row, values, more: [created], create: undefined }
}

/** What listeners get before the row is written. */
export function entityToInsert(
  { metadata, dataSource }: EntityText,
  { values, more }: Pick<RequestedRow, 'values' | 'more'>,
): ObjectLiteral {
  const entity: ObjectLiteral = dataSource.manager.create(metadata.target, values)
  return more.length === 0 ? entity : dataSource.manager.merge(metadata.target, entity, ...more)
}

/** Whether its values are complete only once the row is known to be missing. */
export const isDeferred = (entityText: EntityText, { create }: RequestedRow): boolean =>
  create !== undefined || listensToInsert(entityText)

/**
 * Completes a deferred row, which was looked for and is missing: calls `create`, and fires BeforeInsert. Both run while
 * we hold no connection, and once for all attempts.
 */
export class DeferredRow {
  /** What BeforeInsert has seen, and AfterInsert shall see. */
  entity: ObjectLiteral | undefined

  constructor(
    private readonly session: Session,
    private readonly entityText: EntityText,
    private readonly requested: RequestedRow,
  ) {}

  async complete(): Promise<RowValues> {
    if (this.requested.create) await this.session.release()
    return await this.announce(await withCreated(this.entityText, this.requested))
  }

  /** Listeners may fill in columns; another text would make it another operation, so text and scope stay as given. */
  private async announce(requested: RequestedRow): Promise<RowValues> {
    const { row } = requested
    if (!listensToInsert(this.entityText)) return row
    const entity = entityToInsert(this.entityText, requested)
    this.entity = entity
    await beforeInsert(this.session, this.entityText.metadata, entity)
    return withOthersOf(row, this.entityText, await withPromised(this.entityText.metadata, entity))
  }
}
