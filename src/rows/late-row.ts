import type { ObjectLiteral } from 'typeorm'
import type { StoredRow } from '../sql/statements'
import type { EntityText } from './entity-text'
import { beforeInsert, listensToInsert } from './events'
import { requireCreated, withPromised } from './nested-values'
import { newRowValues, type RowValues, withCreateValues, withOthersOf } from './row-values'
import type { Session } from '../connection/session'

/** A row that was asked for. */
export interface AskedRow {
  /** What is known of it before it is looked for. */
  readonly row: RowValues
  /** The object that `row` was made of. */
  readonly values: ObjectLiteral
  /** What was merged into it. */
  readonly more: readonly ObjectLiteral[]
  /** Gives the rest, where the row is missing. */
  readonly create: (() => unknown) | undefined
  /** Hears of the row as soon as it stands. */
  readonly told?: (stored: StoredRow) => void
}

/** One for all rows: of thousands, each list would count. */
const NO_MORE: readonly ObjectLiteral[] = []

/**
 * @throws TextRejectedError, DeclarationError for what is wrong with the values
 */
export function askedRow(
  entityText: EntityText,
  values: ObjectLiteral,
  create?: ObjectLiteral | (() => unknown),
): AskedRow {
  const row = newRowValues(entityText, values)
  if (create === undefined) return { row, values, more: NO_MORE, create: undefined }
  if (typeof create === 'function') return { row, values, more: NO_MORE, create: create as () => unknown }
  return { row: withCreateValues(row, entityText, values, create), values, more: [create], create: undefined }
}

/** Calls `create`, where there is one. */
export async function withCreated(entityText: EntityText, asked: AskedRow): Promise<AskedRow> {
  if (!asked.create) return asked
  const created: unknown = await asked.create()
  requireCreated(entityText.metadata.name, created)
  const { values } = asked
  const row = withCreateValues(asked.row, entityText, values, created)
  return { row, values, more: [created], create: undefined }
}

/** What listeners get before the row is written. */
export function entityOf(
  { metadata, dataSource }: EntityText,
  { values, more }: Pick<AskedRow, 'values' | 'more'>,
): ObjectLiteral {
  const entity: ObjectLiteral = dataSource.manager.create(metadata.target, values)
  return more.length === 0 ? entity : dataSource.manager.merge(metadata.target, entity, ...more)
}

/** Whether its values are complete only once the row is known to be missing. */
export const isLate = (entityText: EntityText, { create }: AskedRow): boolean =>
  create !== undefined || listensToInsert(entityText)

/**
 * Completes a row that was looked for and is missing: calls `create`, and fires BeforeInsert. Both run while we hold no
 * connection, and once for all attempts.
 */
export class LateRow {
  /** What BeforeInsert has seen, and AfterInsert shall see. */
  entity: ObjectLiteral | undefined

  constructor(
    private readonly session: Session,
    private readonly entityText: EntityText,
    private readonly asked: AskedRow,
  ) {}

  async complete(): Promise<RowValues> {
    if (this.asked.create) await this.session.letGo()
    return await this.announce(await withCreated(this.entityText, this.asked))
  }

  /** Listeners may fill in columns; another text would make it another operation, so text and scope stay as given. */
  private async announce(asked: AskedRow): Promise<RowValues> {
    const { row } = asked
    if (!listensToInsert(this.entityText)) return row
    const entity = entityOf(this.entityText, asked)
    this.entity = entity
    await beforeInsert(this.session, this.entityText.metadata, entity)
    return withOthersOf(row, this.entityText, await withPromised(this.entityText.metadata, entity))
  }
}
