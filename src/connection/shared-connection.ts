import { AsyncResource } from 'node:async_hooks'
import type { QueryRunner } from 'typeorm'
import { TransactionAbortedError } from '../errors'
import { NO_ROLLBACKS, registry, type Rollbacks } from '../registry/registry'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import {
  OUR_SAVEPOINTS,
  ownTransaction,
  savepoint,
  type SavepointCommands,
  seesOpenTransaction,
  type TransactionCommand,
  transactionCommands,
} from '../sql/transaction-commands'
import { isPgClient, type PgClient, pgClientOf } from './wire'

const watchedClients = new WeakMap<QueryRunner, PgClient>()

export function watch(queryRunner: QueryRunner, client: PgClient): void {
  watchedClients.set(queryRunner, client)
}

/** The client of a query runner that is watched. */
export const watchedClient = (queryRunner: QueryRunner): PgClient | undefined => watchedClients.get(queryRunner)

/** Whether the caller began a transaction by SQL, which TypeORM does not count. */
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
  Savepoints.watch(queryHolder(watchedClients.get(queryRunner) ?? queryRunner))

/** The position of a call in the caller's transaction. */
export class Footing {
  private readonly before: Rollbacks
  /** The holder of the savepoints: the driver's client, if it was known when the call began. */
  private readonly holder: object
  private savepoints: Savepoints | undefined
  private readonly began: number
  /** When the call last sent something, or began. */
  private at: number

  /** @param outside when the section began whose end the call waits for. @default there is none */
  constructor(
    private readonly queryRunner: QueryRunner,
    outside: number | undefined,
  ) {
    this.before = rollbacksOn(queryRunner)
    // The query runner's current connection, watched or not.
    const client = watchedClients.get(queryRunner) ?? pgClientOf(Reflect.get(queryRunner, 'databaseConnection'))
    this.holder = client ?? queryRunner
    // A savepoint that is set before the call sends its first statement must be noticed too.
    if (client && queryRunner.isTransactionActive) watch(queryRunner, client)
    this.savepoints = queryRunner.isTransactionActive ? savepointsOf(queryRunner) : Savepoints.of(this.holder)
    this.began = this.savepoints?.now ?? 0
    this.at = outside ?? this.began
  }

  /** @throws TransactionAbortedError if the call's writes or the transaction in which it began were rolled back */
  require(cause?: unknown): void {
    const { ofTransactions, toSavepoints } = rollbacksOn(this.queryRunner)
    // Another call may have begun to watch savepoints since this one began. All that it has seen is later.
    this.savepoints ??= Savepoints.of(this.holder)
    const isUndone = this.savepoints
      ? this.savepoints.isUndone(this.at)
      : // The client is unknown until the first connect() ends, so any rollback may concern the call.
        toSavepoints !== this.before.toSavepoints
    if (isUndone || ofTransactions !== this.before.ofTransactions) throw new TransactionAbortedError(cause, ROLLED_BACK)
  }

  /**
   * Notes that something is sent now. A connection of `pg` is watched from now on.
   *
   * @throws TransactionAbortedError inside a savepoint that others have set since the call began. A rollback to it
   * would undo what the call has already reported
   */
  step(): void {
    this.require()
    this.savepoints = savepointsOf(this.queryRunner)
    if (this.savepoints.isSetSince(this.began)) throw new TransactionAbortedError(undefined, SET_MEANWHILE)
    this.at = this.savepoints.now
  }
}

const ROLLED_BACK = 'it was rolled back while this call was under way: await every call before you end a transaction'

const SET_MEANWHILE =
  'a savepoint was set while this call was under way: await every call before you set one, or begin a nested transaction'

/** Beyond this number, the oldest undone stretches are merged into one. */
const MAX_UNDONE = 1_000

const known = new WeakMap<object, Savepoints>()

/** The state that commands change. */
interface HeardOfSavepoints {
  readonly open: readonly {
    readonly name: string
    readonly since: number
    /** TypeORM rolls back to it at the end of a nested transaction, and Postgres keeps the savepoint. */
    readonly isOver: boolean
  }[]
  readonly undone: readonly { readonly from: number; readonly to: number }[]
}

/**
 * The statements that were undone on one connection, in the order in which statements are sent. Time is a count of
 * savepoints and rollbacks. A statement is undone if its time lies in a stretch that was rolled back.
 */
export class Savepoints {
  private time = 0
  private open: HeardOfSavepoints['open'] = []
  /** Savepoints that wait to be set. */
  private awaited: string[] = []
  private undone: HeardOfSavepoints['undone'] = []

  /** Removes the function that was put in front of the holder's own. */
  private leave: () => void = () => {}
  private isInFront = false

  static of(holder: object): Savepoints | undefined {
    return known.get(holder)
  }

  /** Follows the statements of the client, or of another driver's query runner, until its transaction ends. */
  static watch(holder: QueryHolder): Savepoints {
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

  /** Whether a savepoint is open that others have set after a time, and that was not rolled back to. */
  isSetSince(at: number): boolean {
    return this.open.some(({ name, since, isOver }) => since > at && !isOver && !OUR_SAVEPOINTS.has(name))
  }

  hear(commands: readonly TransactionCommand[]): void {
    for (const command of commands) {
      if (command.does === 'set') {
        this.time += 1
        this.awaited = this.awaited.filter((one) => one !== command.savepoint)
        this.open = [...this.open, { name: command.savepoint, since: this.time, isOver: false }]
      } else if (command.does === 'release') {
        this.open = this.open.slice(0, Math.max(0, this.placeOf(command.savepoint)))
      } else if (command.does === 'roll back to') {
        // An unknown savepoint was set before we began to watch. It stays. Savepoints in it are removed.
        const place = this.placeOf(command.savepoint)
        this.undo(this.open[place]?.since ?? 0)
        this.open = this.open.slice(0, place + 1).map((one, nth) => (nth === place ? { ...one, isOver: true } : one))
      } else {
        if (command.does === 'roll back') this.undo(0)
        this.open = []
        this.awaited = []
        this.leave()
      }
    }
  }

  /** Notes commands that wait to be sent. What they will roll back counts as undone, so no success is reported. */
  await(commands: readonly TransactionCommand[]): void {
    for (const command of commands) {
      if (command.does === 'set') this.awaited.push(command.savepoint)
      else if (command.does === 'roll back') this.undo(0)
      else if (command.does === 'roll back to' && !this.awaited.includes(command.savepoint))
        this.undo(this.open[this.placeOf(command.savepoint)]?.since ?? 0)
    }
  }

  private placeOf(savepoint: string): number {
    return this.open.findLastIndex(({ name }) => name === savepoint)
  }

  /**
   * COMMIT and PREPARE TRANSACTION roll back if they fail, or if a statement before them has failed. A savepoint
   * command that is refused has changed nothing.
   */
  private async hearAnswer(answer: unknown, mayEnd: boolean, before: HeardOfSavepoints): Promise<void> {
    const { open, undone } = this
    try {
      const results = [await answer].flat() as readonly ({ readonly command?: string } | undefined)[]
      if (mayEnd && results.some((one) => one?.command === 'ROLLBACK')) this.undo(0)
    } catch (error) {
      const { code } = serverError(error) ?? {}
      const isRefused = code === SQLSTATE.failedTransaction || code === SQLSTATE.invalidSavepoint
      if (mayEnd) this.undo(0)
      else if (isRefused && this.open === open && this.undone === undone) {
        this.open = before.open
        this.undone = before.undone
      }
    }
  }

  private undo(from: number): void {
    this.time += 1
    const before = this.undone.filter((one) => one.from < from)
    const [first, second, ...rest] = before
    const kept = first && second && rest.length >= MAX_UNDONE ? [{ from: first.from, to: second.to }, ...rest] : before
    this.undone = [...kept, { from, to: this.time }]
  }

  private putInFront(holder: QueryHolder): void {
    const isOwn = Object.hasOwn(holder, 'query')
    const leave = inFrontOf(holder, (own) => (...args) => {
      const commands = commandsIn(args)
      const { open, undone } = this
      this.hear(commands)
      // The function of its class may change at any time.
      const ofClass = Object.getPrototypeOf(holder) as QueryHolder
      const answer = isOwn ? own(...args) : ofClass.query.apply(holder, [...args])
      const mayEnd = commands.some(({ does }) => does === 'commit')
      if (commands.length > 0) void this.hearAnswer(answer, mayEnd, { open, undone })
      return answer
    })
    this.isInFront = true
    this.leave = () => {
      if (leave()) this.isInFront = false
    }
  }
}

/** @param args of a client's `query` */
export function commandsIn([first, second]: readonly unknown[]): readonly TransactionCommand[] {
  if (typeof first === 'string') return transactionCommands(first, isFilled(second))
  if (typeof first !== 'object' || first === null || !('text' in first) || typeof first.text !== 'string') return []
  // Our own statements have a name or parameters.
  return transactionCommands(
    first.text,
    ('name' in first && first.name !== '') || ('values' in first && isFilled(first.values)),
  )
}

const isFilled = (values: unknown): boolean => Array.isArray(values) && values.length > 0

export type ClientQuery = (...args: readonly unknown[]) => unknown

/** A client, or another driver's query runner, whose `query` can be replaced. */
interface QueryHolder {
  query: ClientQuery
}

/** Returns a client as an object whose `query` can be replaced. */
export const queryHolder = (client: object): QueryHolder => client as QueryHolder

/**
 * Puts a function in front of the holder's `query`.
 *
 * @returns a function that removes it, and returns whether it did
 */
export function inFrontOf(holder: QueryHolder, make: (query: ClientQuery) => ClientQuery): () => boolean {
  const { query } = holder
  const isOwn = Object.hasOwn(holder, 'query')
  const front = make((...args) => query.apply(holder, [...args]))
  holder.query = front
  return () => {
    // Other code may have put its own function in front of ours meanwhile. It stays, and calls ours.
    if (holder.query !== front) return false
    if (isOwn) holder.query = query
    else Reflect.deleteProperty(holder, 'query')
    return true
  }
}

/** Exclusive use of a connection by one call. */
export interface Exclusive {
  readonly query: ClientQuery
  /** Sends the statements that others have requested meanwhile, in their order. */
  readonly end: () => void
}

/** Rules for statements while the connection is held. */
export interface ExclusiveRules {
  /** Whether the code that sends a statement may send it now. */
  readonly passes: () => boolean
  /** Called when a statement that may pass is sent. Returns a function to call when its answer has arrived. */
  readonly sends: () => () => void
  /** Called when a statement waits. Returns a function to call when the wait ends. `fail` replaces it with an error. */
  readonly waits: (statement: readonly unknown[], fail: (error: Error) => void) => () => void
}

/** A statement that waits. */
interface WaitingStatement {
  readonly send: () => void
  readonly fail: (error: Error) => void
  over: () => void
}

/**
 * Keeps every statement but ours from the connection. Otherwise, a caller's statement between our savepoint and a
 * rollback to it would be undone, although the caller was notified of its success.
 *
 * @param rules @default no statement passes, and all wait until the end
 */
export function useExclusively(holder: QueryHolder, rules?: ExclusiveRules): Exclusive {
  const query = holder.query.bind(holder)
  const waiting = new Set<WaitingStatement>()
  let ended = false
  const wait = (args: readonly unknown[], { send, fail }: Pick<WaitingStatement, 'send' | 'fail'>): void => {
    // In the context of its sender, because it may have to wait for the end of a section around ours.
    const one: WaitingStatement = { send: AsyncResource.bind(send), fail, over: () => {} }
    waiting.add(one)
    const give = (error: Error): void => {
      if (waiting.delete(one)) fail(error)
    }
    if (rules) one.over = rules.waits(args, give)
  }
  const leave = inFrontOf(holder, () => (...args) => {
    const now = (): unknown => query(...args)
    const [first] = args
    // The client refuses such a query at once.
    if (ended || first === null || first === undefined) return now()
    if (rules?.passes()) {
      const answer = now()
      const answered = rules.sends()
      if (answer instanceof Promise) answer.then(answered, answered)
      else answered()
      return answer
    }
    const submittable = typeof first === 'object' && 'submit' in first
    const callback = args.map(callbackOf).find((one) => one !== undefined)
    if (submittable || callback) {
      const fail = (error: Error): void => {
        if (submittable && 'handleError' in first && typeof first.handleError === 'function') first.handleError(error)
        else callback?.(error)
      }
      wait(args, { send: () => void now(), fail })
      return submittable ? first : undefined
    }
    return new Promise((resolve, reject) => {
      const send = (): void => {
        try {
          resolve(now())
        } catch (error) {
          reject(error)
        }
      }
      wait(args, { send, fail: reject })
    })
  })
  return {
    query,
    end: () => {
      ended = true
      leave()
      for (const { send, over } of waiting) {
        over()
        send()
      }
    },
  }
}

type QueryCallback = (error: unknown) => unknown

function callbackOf(argument: unknown): QueryCallback | undefined {
  if (typeof argument === 'function') return argument as QueryCallback
  if (typeof argument !== 'object' || argument === null || !('callback' in argument)) return undefined
  return typeof argument.callback === 'function' ? (argument.callback as QueryCallback) : undefined
}

/**
 * @param client its other users' statements wait meanwhile
 * @param run sends the statements by the function that it gets
 */
export async function orRollBack<T>(client: PgClient, run: (query: ClientQuery) => Promise<T>): Promise<T> {
  const exclusive = useExclusively(queryHolder(client))
  try {
    return await inSavepoint(exclusive.query, savepoint, async () => await run(exclusive.query))
  } finally {
    exclusive.end()
  }
}

/** Runs statements between the commands of a savepoint. Others may send statements meanwhile. */
export async function inSavepoint<T>(
  query: (sql: string) => unknown,
  commands: SavepointCommands,
  run: () => Promise<T>,
): Promise<T> {
  // If the savepoint were not set, a rollback to it would abort the transaction or use another savepoint.
  await query(commands.set)
  let done = false
  try {
    const result = await run()
    done = true
    await query(commands.release)
    return result
  } catch (error) {
    // A rollback to the savepoint works after 40001 and 40P01 too. The snapshot stays the same, so the caller must
    // retry. On a lost connection the rollback fails as well, and the first error is more specific. If a listener has
    // caught an error of the server, RELEASE fails and the savepoint still exists.
    if (!done || serverError(error)) await rollBack(query, commands).catch(() => {})
    throw error
  }
}

/** Sends two statements for a savepoint, because not every driver accepts two at once. */
async function rollBack(
  query: (sql: string) => unknown,
  { rollBack: back, release }: SavepointCommands,
): Promise<void> {
  await query(back)
  if (release !== ownTransaction.release) await query(release)
}
