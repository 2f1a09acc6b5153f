import type { QueryRunner } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { SQLSTATE, serverError } from '../sql/sqlstate'
import { seesOpenTransaction, type TransactionCommand, transactionCommands } from '../sql/transaction-commands'
import { NO_ROLLBACKS, registry, type Rollbacks } from '../registry/registry'
import type { ClientQuery } from './exclusive'
import { isPgClient, type PgClient, pgClientOf } from './pg-client'

const watched = new WeakMap<QueryRunner, PgClient>()
export function watch(queryRunner: QueryRunner, client: PgClient): void {
  watched.set(queryRunner, client)
}

/** The client of a query runner, once it was watched. */
export const watchedClient = (queryRunner: QueryRunner): PgClient | undefined => watched.get(queryRunner)

/** A transaction that the caller began by SQL, which TypeORM does not count. */
export async function isInRawTransaction(queryRunner: QueryRunner): Promise<boolean> {
  if (queryRunner.isReleased) return false
  const client: unknown = await queryRunner.connect()
  const status = isPgClient(client) ? client.getTransactionStatus?.() : undefined
  if (status) return status !== 'I'
  // `pg` before 8.17, and other drivers.
  try {
    const rows = (await queryRunner.query(seesOpenTransaction)) as readonly unknown[]
    return rows.length > 0
  } catch (error) {
    if (serverError(error)?.code === SQLSTATE.failedTransaction) return true
    throw error
  }
}

const rollbacksOn = (queryRunner: QueryRunner): Rollbacks => registry.rollbacks.get(queryRunner) ?? NO_ROLLBACKS

export const savepointsOf = (queryRunner: QueryRunner): Savepoints =>
  Savepoints.watch((watched.get(queryRunner) ?? queryRunner) as unknown as { query: ClientQuery })

/** The connection that a query runner has by now. */
function clientOf(queryRunner: QueryRunner): PgClient | undefined {
  const client: unknown = Reflect.get(queryRunner, 'databaseConnection')
  return pgClientOf(client)
}

/** Where a call stands in the caller's transaction. */
export class Footing {
  private readonly before: Rollbacks
  /** Of the savepoints: the driver's client, as far as it was known when the call began. */
  private readonly holder: object
  private savepoints: Savepoints | undefined
  /** When it last sent something, or began. */
  private at: number

  /** @param outside when the section began that a call from outside waits for. @default there is none */
  constructor(
    private readonly queryRunner: QueryRunner,
    outside: number | undefined,
  ) {
    this.before = rollbacksOn(queryRunner)
    this.holder = watched.get(queryRunner) ?? clientOf(queryRunner) ?? queryRunner
    this.savepoints = Savepoints.of(this.holder)
    this.at = outside ?? this.savepoints?.now ?? 0
  }

  /** @throws TransactionAbortedError if what the call did was rolled back, or the transaction in which it began */
  require(): void {
    const { ofTransactions, toSavepoints } = rollbacksOn(this.queryRunner)
    // Another call may have begun to hear them since this one began: what it heard came after.
    this.savepoints ??= Savepoints.of(this.holder)
    const isUndone = this.savepoints
      ? this.savepoints.isUndone(this.at)
      : // Not known yet which: as long as the first connect() takes, any may be.
        toSavepoints !== this.before.toSavepoints
    if (isUndone || ofTransactions !== this.before.ofTransactions)
      throw new TransactionAbortedError(undefined, ROLLED_BACK)
  }

  /** Something is sent now, by a connection that is watched where it is one of `pg`. */
  step(): void {
    this.require()
    this.savepoints = savepointsOf(this.queryRunner)
    this.at = this.savepoints.now
  }
}

const ROLLED_BACK = 'it was rolled back while this call was under way: await every call before you end a transaction'

/** What is undone farther back is taken for one stretch. */
const MAX_UNDONE = 1_000

const known = new WeakMap<object, Savepoints>()

/**
 * What was undone on one connection, in the order in which statements are sent. Its time is counted in savepoints and
 * rollbacks: what was sent at a time that lies in a stretch that was rolled back, is undone.
 */
export class Savepoints {
  private time = 0
  private open: readonly { readonly name: string; readonly since: number }[] = []
  /** Those that wait to be set. */
  private awaited: string[] = []
  private undone: readonly { readonly from: number; readonly to: number }[] = []

  /** Removes the function that was put in front of the holder's own. */
  private leave: () => void = () => {}
  private isInFront = false

  static of(holder: object): Savepoints | undefined {
    return known.get(holder)
  }

  /** Follows what the client sends, or the query runner of another driver, until its transaction ends. */
  static watch(holder: { query: ClientQuery }): Savepoints {
    const savepoints = known.get(holder) ?? new Savepoints()
    known.set(holder, savepoints)
    if (!savepoints.isInFront || !Object.hasOwn(holder, 'query')) savepoints.putInFront(holder)
    return savepoints
  }

  get now(): number {
    return this.time
  }

  /** @param at the time at which something was sent */
  isUndone(at: number): boolean {
    return this.undone.some(({ from, to }) => from <= at && at < to)
  }

  hear(commands: readonly TransactionCommand[]): void {
    for (const command of commands) {
      if (command.does === 'set') this.set(command.savepoint)
      else if (command.does === 'release') this.open = this.below(command.savepoint)
      else if (command.does === 'roll back to') this.rollBackTo(command.savepoint)
      else this.end(command.does === 'roll back')
    }
  }

  /** These wait to be sent. What will be rolled back counts as undone: nobody must be notified otherwise. */
  await(commands: readonly TransactionCommand[]): void {
    for (const command of commands) {
      if (command.does === 'set') this.awaited.push(command.savepoint)
      else if (command.does === 'roll back') this.undo(0)
      else if (command.does === 'roll back to' && !this.awaited.includes(command.savepoint))
        this.undo(this.open.findLast(({ name }) => name === command.savepoint)?.since ?? 0)
    }
  }

  private set(name: string): void {
    this.time += 1
    this.awaited = this.awaited.filter((one) => one !== name)
    this.open = [...this.open, { name, since: this.time }]
  }

  /** An unknown savepoint was set before we began to listen. It stays, and those that were set within it go. */
  private rollBackTo(name: string): void {
    const place = this.open.findLastIndex((one) => one.name === name)
    this.undo(this.open[place]?.since ?? 0)
    this.open = this.open.slice(0, place + 1)
  }

  private below(name: string): Savepoints['open'] {
    return this.open.slice(
      0,
      Math.max(
        0,
        this.open.findLastIndex((one) => one.name === name),
      ),
    )
  }

  private end(rollsBack: boolean): void {
    if (rollsBack) this.undo(0)
    this.open = []
    this.awaited = []
    this.leave()
  }

  private undo(from: number): void {
    this.time += 1
    const before = this.undone.filter((one) => one.from < from)
    const [first, second, ...rest] = before
    const kept = first && second && rest.length >= MAX_UNDONE ? [{ from: first.from, to: second.to }, ...rest] : before
    this.undone = [...kept, { from, to: this.time }]
  }

  private putInFront(holder: { query: ClientQuery }): void {
    const own = Object.hasOwn(holder, 'query') ? holder.query : undefined
    const front: ClientQuery = (...args) => {
      this.hear(commandsIn(args))
      // That of its class may change at any time.
      const { query } = own ? { query: own } : (Object.getPrototypeOf(holder) as { query: ClientQuery })
      return query.apply(holder, [...args])
    }
    holder.query = front
    this.isInFront = true
    this.leave = () => {
      // Somebody may have put another in front of it, which stays and calls it.
      if (holder.query !== front) return
      this.isInFront = false
      if (own) holder.query = own
      else Reflect.deleteProperty(holder, 'query')
    }
  }
}

/** @param args of a client's `query` */
export function commandsIn([first, second]: readonly unknown[]): readonly TransactionCommand[] {
  if (typeof first === 'string') return transactionCommands(first, isFilled(second))
  if (typeof first !== 'object' || first === null || !('text' in first) || typeof first.text !== 'string') return []
  // Statements of ours go by a name, or with parameters.
  return transactionCommands(
    first.text,
    ('name' in first && first.name !== '') || ('values' in first && isFilled(first.values)),
  )
}

const isFilled = (values: unknown): boolean => Array.isArray(values) && values.length > 0
