import type { DataSource, EntityManager, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import { asOne, type JoinedWork, transact } from '../connection/transactions'
import { openSession } from '../connection/open-session'
import { UnsupportedDatabaseError } from '../errors'
import { Attempts } from '../calls/attempts'
import { requireManager } from '../calls/call-options'
import { calledFrom, callerOf } from '../calls/caller'
import { ensureNamesReady } from '../calls/requested-names'
import {
  dataSourceOf,
  type Declaration,
  isOrExtends,
  type NameDeclaration,
  namesOfEntity,
  type NumberDeclaration,
  numbersOfTable,
  registry,
  textsOfEntity,
} from '../registry/registry'
import type { EntityColumns } from '../calls/entity-text'
import { afterWrite, finish, hydrate, type NamedColumns, relationsToLoad } from '../calls/hydrate'
import { ensureReady, ensureTriggers } from '../schema/readiness'
import type { Statement, WireRow } from '../sql/find'
import { takenNamesError } from '../typeorm/refusals'

/** An entity with its own and inherited declarations. */
interface Entity {
  readonly dataSource: DataSource
  readonly metadata: EntityMetadata
  readonly texts: readonly Declaration[]
  readonly names: readonly NameDeclaration[]
  readonly numbers: readonly NumberDeclaration[]
}

/** @throws DeclarationError for anything but an EntityManager */
export function entityOf(manager: EntityManager, target: EntityTarget<ObjectLiteral>): Entity {
  requireManager(manager)
  const dataSource = dataSourceOf(manager)
  const metadata = dataSource.getMetadata(target)
  return {
    dataSource,
    metadata,
    texts: textsOfEntity(metadata),
    names: namesOfEntity(metadata),
    numbers: numbersOfTable(metadata).filter((one) => isOrExtends(metadata.target, one.target)),
  }
}

/** The objects that must exist in the database before an operation sends its first statement. */
interface Needs {
  readonly text?: Declaration
  /** The table of names must exist too. */
  readonly names?: readonly NameDeclaration[]
  readonly number?: NumberDeclaration
  /** Why a text is refused if its rows are on other nodes. @default it is not refused */
  readonly undistributed?: string
}

/**
 * Runs an operation on the manager's own connection or on one from the pool, once its needs are known to exist.
 *
 * @throws SchemaDriftError, UnsupportedDatabaseError
 */
export async function operate<Result>(
  manager: EntityManager,
  { text, names = [], number, undistributed }: Needs,
  run: (operation: Operation) => Promise<Result>,
): Promise<Result> {
  const session = await openSession(manager)
  try {
    await ensureNamesReady(
      session,
      names.map((name) => ({ name })),
    )
    if (number) await ensureTriggers(number.metadata, session.query)
    const ready = text && (await ensureReady(text, session))
    if (text && ready?.distributed && undistributed !== undefined) {
      registry.ready.delete(text)
      throw new UnsupportedDatabaseError(undistributed)
    }
    return await run(new Operation(session, (text ?? names[0])?.name ?? ''))
  } finally {
    await session.close()
  }
}

const REMOVED_ROWS = 1_000

/** A running operation: its connection, its attempts, and its treatment of rows. */
export class Operation extends Attempts {
  /** The call uses the caller's connection, or was made in a transaction on another connection. */
  get isInTransaction(): boolean {
    return this.session.shared || this.session.around !== undefined
  }

  /** @throws TextTakenError if the triggers refused a name */
  override async again(cause: unknown): Promise<void> {
    await super.again(takenNamesError(cause, this.session.dataSource) ?? cause)
  }

  /**
   * Runs work as a whole: behind a savepoint of the caller's transaction, or in a transaction of its own, whose COMMIT
   * is sent with the last statement.
   *
   * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction, or if the work has ended its own
   */
  async asOne(manager: EntityManager, work: JoinedWork): Promise<void> {
    if (!this.session.inTransaction) return await this.session.exclusively(async () => await transact(manager, work))
    await asOne(this.session, manager, async (own) => {
      await work.run(own)
      await work.last(own)
    })
  }

  /**
   * Removes rows until a batch is not full. Outside a transaction, each batch is committed separately.
   *
   * @param remove receives the maximum number of rows to remove, and returns the number of removed rows
   * @param batch the number of rows. @default 1000
   * @returns the number of removed rows
   */
  async removeAll(remove: Statement<number>, batch: number = REMOVED_ROWS): Promise<number> {
    let removed = 0
    for (let last = batch; last === batch; removed += last) {
      last = (await this.session.rowsOrRollBack(remove, [batch]))[0] ?? 0
    }
    return removed
  }

  /**
   * Returns an entity as `find` would, without relations.
   *
   * @throws TextTakenError for a row of another class of the table
   */
  entity(of: NamedColumns, columns: WireRow): ObjectLiteral {
    return hydrate(of, this.session, { columns, hashNumber: 0 })
  }

  /** Does the same as `find` with a row: loads eager relations, and fires AfterLoad. */
  async load(of: EntityColumns, entity: ObjectLiteral): Promise<void> {
    await finish(this.session, of, [{ entity, created: false }], relationsToLoad(of, {}))
  }

  /** Fires AfterUpdate. */
  async updated(of: EntityColumns, entity: ObjectLiteral): Promise<void> {
    await afterWrite(this.session, 'Update', of, entity)
  }
}

/**
 * Must be called before the operation awaits anything.
 *
 * @param operation the function that was called
 * @returns a function that awaits work of the operation. It appends the caller's stack lines to our own in every error
 * that the work throws or returns.
 */
export function tracedTo(operation: Function): <Result>(work: Promise<Result>) => Promise<Result> {
  const caller = callerOf(operation)
  return async (work) => await calledFrom(caller, work)
}
