import { AsyncLocalStorage } from 'node:async_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import type { DataSource, ObjectLiteral, QueryRunner } from 'typeorm'
import { UniqueTextError } from '../errors'
import { isBusyError, serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName } from '../sql/text-table'
import type { AdoptionLock, AdoptOptions, BatchOption, HoldOption, LockOption } from './options'
import { describeHolder, lockHolders, SERVER_LAG } from './status'
import { type AdoptedTable, ADOPTION_CLASS, BY_INDEX, type LockMode } from './table'

const ADOPTION_KEY = `${ADOPTION_CLASS}, $1::pg_catalog.oid::pg_catalog.int8::pg_catalog.bit(32)::pg_catalog.int4`

/** Takes a session lock for the table with the OID $1. Only one command can hold it. */
const TAKE_TURN: string = `SELECT pg_catalog.pg_try_advisory_lock(${ADOPTION_KEY}) AS mine`

const GIVE_TURN: string = `SELECT pg_catalog.pg_advisory_unlock(${ADOPTION_KEY})`

/** The server ends the statement of a killed command within this interval. */
const CHECK_CLIENT = "SET client_connection_check_interval = '2s'"

/** Settings of the session of a command. */
const COMMAND_SETTINGS = {
  lock_timeout: '0',
  statement_timeout: '0',
  jit: 'off',
  // If a policy would hide rows, the query fails instead.
  row_security: 'off',
  // The list of a merge holds values as text, which a session with other settings must read as the same values.
  datestyle: 'ISO, YMD',
  timezone: 'UTC',
  intervalstyle: 'postgres',
  extra_float_digits: '3',
  lc_monetary: 'C',
  bytea_output: 'hex',
} as const

/** Reads the settings that an adoption changes for its session and restores later. */
const READ_SETTINGS: string = `SELECT ${['session_replication_role', ...Object.keys(COMMAND_SETTINGS)]
  .map((name) => `pg_catalog.current_setting('${name}') AS ${name}`)
  .join(', ')}`

const WRITE_SETTINGS: string = `SELECT ${Object.entries(COMMAND_SETTINGS)
  .map(([name, value]) => `pg_catalog.set_config('${name}', '${value}', false)`)
  .join(', ')}`

/** Sets the setting $1 to the value $2. */
const WRITE_SETTING = 'SELECT pg_catalog.set_config($1, $2, false)'

/** The replacements by tests for time and chance, and the place where tests end the connection. */
export interface Seams {
  /** Called before each statement. */
  readonly beforeStatement?: (sql: string) => Promise<void> | void
  readonly sleep?: (milliseconds: number) => Promise<unknown>
  readonly random?: () => number
}

/** The replacements for the commands that a test calls. Only tests set them. */
export const replacements: AsyncLocalStorage<Seams> = new AsyncLocalStorage()

/** Options of a command that concern its session. */
export type SessionOptions = Omit<Pick<AdoptOptions, LockOption | HoldOption | BatchOption>, 'property'>

/** A lock to acquire. */
interface WantedLock {
  readonly on: AdoptedTable
  readonly step: string
  readonly mode: LockMode
  /** Runs before each attempt, without the lock, because clients have written while the command waited. */
  readonly prepare?: () => Promise<void>
}

const FIRST_PAUSE_MILLISECONDS = 100

const LONGEST_PAUSE_MILLISECONDS = 3_000

/** Work under the lock that does not finish in time gets more time, up to this many times the limit. */
const HOLD_GROWTH = 1.5

const HOLD_TIMES = 10

/** The number of attempts after which to report what prevents the lock. */
const NOTICE_ATTEMPTS = 10

const BRAKE_PAUSE_MILLISECONDS = 500

const MOST_CANCELLED = 5

const MADE_MEANWHILE: ReadonlySet<string | undefined> = new Set([
  SQLSTATE.uniqueViolation,
  SQLSTATE.duplicateTable,
  SQLSTATE.duplicateFunction,
])

/** The work under a lock cannot be done now. All of it is undone and tried again later. */
export class Later extends Error {
  override readonly name = 'Later'
}

/** The one connection that an adoption uses. */
export class AdoptSession {
  readonly locks: AdoptionLock[] = []
  /** Whether `together` rolls its work back, after the work has shown its effects. */
  isTrial = false
  private settings: Readonly<Record<string, string>> | undefined
  private turn: string | undefined
  private isReplica = false
  /** The number of successive transactions that ended with 57014. */
  private cancelled = 0
  private readonly seams = replacements.getStore() ?? {}

  private readonly options: SessionOptions &
    Required<Pick<SessionOptions, 'lockMilliseconds' | 'holdMilliseconds' | 'batchMilliseconds'>>

  constructor(
    private readonly runner: QueryRunner,
    options: SessionOptions,
  ) {
    const { lockMilliseconds = 50, holdMilliseconds = 100, batchMilliseconds = 50 } = options
    this.options = { ...options, lockMilliseconds, holdMilliseconds, batchMilliseconds }
  }

  /** An arrow function, because callers pass it on. */
  readonly query = async <Row = unknown>(sql: string, parameters?: unknown[]): Promise<readonly Row[]> => {
    await this.seams.beforeStatement?.(sql)
    return (await this.runner.query(sql, parameters)) as readonly Row[]
  }

  /** Runs statements in order, in one message and therefore in one transaction. */
  async all(statements: readonly string[]): Promise<void> {
    if (statements.length > 0) await this.query(statements.join(';\n'))
  }

  async open(): Promise<void> {
    ;[this.settings] = await this.query<Readonly<Record<string, string>>>(READ_SETTINGS)
    await this.query(WRITE_SETTINGS)
    // Not every platform supports this. Without it, a statement of a killed command runs to its end.
    await this.query(CHECK_CLIENT).catch(() => {})
  }

  /** @returns false if another session holds the lock */
  async takeTurn(oid: string): Promise<boolean> {
    const [row] = await this.query<{ mine: boolean }>(TAKE_TURN, [oid])
    if (row?.mine === true) this.turn = oid
    return row?.mine === true
  }

  /** Restores the settings of the connection. */
  async close(): Promise<void> {
    if (this.turn !== undefined) await this.query(GIVE_TURN, [this.turn]).catch(() => {})
    for (const [name, value] of Object.entries(this.settings ?? {})) await this.set(name, value).catch(() => {})
    await this.query('RESET client_connection_check_interval').catch(() => {})
  }

  async set(name: string, value: string): Promise<void> {
    await this.query(WRITE_SETTING, [name, value])
  }

  /** @returns false if the role lacks the privilege */
  async becomeReplica(): Promise<boolean> {
    try {
      await this.set('session_replication_role', 'replica')
      this.isReplica = true
      return true
    } catch (error) {
      if (serverError(error)?.code === SQLSTATE.insufficientPrivilege) return false
      throw error
    }
  }

  /** Does work for which triggers must fire, those of foreign keys too. */
  async asOrigin<T>(work: () => Promise<T>): Promise<T> {
    if (!this.isReplica) return await work()
    await this.set('session_replication_role', 'origin')
    const result = await work()
    await this.set('session_replication_role', 'replica')
    return result
  }

  /** Does work on a few rows in a transaction. It waits for a row no longer than for the table. */
  async together<T>(work: () => Promise<T>): Promise<T> {
    try {
      await this.query(`BEGIN; SET LOCAL lock_timeout = ${this.options.lockMilliseconds}; ${BY_INDEX}`)
      const result = await work()
      await this.query(this.isTrial ? 'ROLLBACK' : 'COMMIT')
      this.cancelled = 0
      return result
    } catch (error) {
      await this.query('ROLLBACK').catch(() => {})
      this.countCancelled(error)
      throw error
    }
  }

  /** The server can report a lock timeout as 57014: isBusyError(). @throws AdoptionError after several in a row */
  private countCancelled(error: unknown): void {
    this.cancelled = serverError(error)?.code === SQLSTATE.queryCanceled ? this.cancelled + 1 : 0
    if (this.cancelled < MOST_CANCELLED) return
    throw new AdoptionError(
      'interrupted',
      `The statement was cancelled ${MOST_CANCELLED} times in succession (57014). Run the same command to continue.`,
      error,
    )
  }

  /** Repeats such work until no other session blocks it. */
  async patiently<T>(step: string, work: () => Promise<T>): Promise<T> {
    for (let attempts = 1; ; attempts += 1) {
      try {
        return await this.together(work)
      } catch (error) {
        if (!isBusyError(error)) throw error
        if (attempts % NOTICE_ATTEMPTS === 0) await this.reportHolders(step, 'rows', attempts, error)
      }
      await this.rest(attempts)
    }
  }

  /** Makes objects unless they exist, and waits for a lock no longer than for the table. */
  async make(step: string, statements: readonly string[]): Promise<void> {
    const make = async (): Promise<void> => await this.patiently(step, async () => await this.all(statements))
    await make().catch(async (error: unknown) => {
      // Another session has made the same object at that moment.
      if (!MADE_MEANWHILE.has(serverError(error)?.code)) throw error
      await make()
    })
  }

  /**
   * Does work in a transaction that has the table locked. A session that waits for a lock also blocks every session
   * that requests the lock later. So each attempt fails soon, and the next follows after a random pause.
   *
   * @param work throws Later to release the lock; the function that it receives does so once half of the time is over
   */
  async locked<T>({ on, step, mode, prepare }: WantedLock, work: (inTime: () => void) => Promise<T>): Promise<T> {
    const { lockMilliseconds: wait, onLock } = this.options
    let { holdMilliseconds: hold } = this.options
    for (let attempts = 1; ; attempts += 1) {
      await prepare?.()
      const asked = performance.now()
      try {
        const most = Math.round(hold)
        // The transaction fails if it does not lock the table in time.
        await this.query(
          `BEGIN; SET LOCAL lock_timeout = ${wait}; SET LOCAL statement_timeout = ${most + wait}; ` +
            `LOCK TABLE ${tableName(on.table)} IN ${mode} MODE; SET LOCAL statement_timeout = ${most}`,
        )
        const had = performance.now()
        const allowed = hold / 2
        const result = await work(() => {
          if (performance.now() - had > allowed) throw new Later('The work takes too long under the lock.')
        })
        await this.query('COMMIT')
        const [waitedMilliseconds, heldMilliseconds] = [had - asked, performance.now() - had]
        const lock = { step, mode, attempts, waitedMilliseconds, heldMilliseconds }
        this.locks.push(lock)
        onLock?.(lock)
        return result
      } catch (error) {
        await this.query('ROLLBACK').catch(() => {})
        hold = this.after(error, hold)
        if (attempts % NOTICE_ATTEMPTS === 0) await this.reportHolders(step, mode, attempts, error)
      }
      await this.rest(attempts)
    }
  }

  /** @returns how long the next attempt may hold the lock; throws an error that no attempt can fix */
  private after(error: unknown, hold: number): number {
    if (error instanceof Later) return Math.min(hold * HOLD_GROWTH ** 0.25, HOLD_TIMES * this.options.holdMilliseconds)
    const code = serverError(error)?.code
    if (code === SQLSTATE.lockNotAvailable || code === SQLSTATE.deadlockDetected) return hold
    if (code !== SQLSTATE.queryCanceled || hold > HOLD_TIMES * this.options.holdMilliseconds) throw error
    return hold * HOLD_GROWTH
  }

  private async reportHolders(step: string, wants: LockMode | 'rows', attempts: number, error: unknown): Promise<void> {
    if (error instanceof Later) {
      this.options.onNotice?.(`${step}: not done in time under the lock in ${attempts} attempts. It goes on trying.`)
      return
    }
    const holders = this.turn === undefined ? [] : await lockHolders(this.query, this.turn, wants)
    const found = holders.length === 0 ? 'No transaction holds one now' : holders.map(describeHolder).join('; ')
    this.options.onNotice?.(`${step}: no lock in ${attempts} attempts. ${found}. It goes on trying.`)
  }

  /** Waits after a failed attempt: longer each time, and for a random time. */
  async rest(attempts: number): Promise<void> {
    this.interrupt()
    const pause = Math.min(FIRST_PAUSE_MILLISECONDS * 1.5 ** (attempts - 1), LONGEST_PAUSE_MILLISECONDS)
    await this.sleep(pause * (0.5 + (this.seams.random ?? Math.random)()))
  }

  async sleep(milliseconds: number): Promise<void> {
    await (this.seams.sleep ?? sleep)(milliseconds)
  }

  /** @throws AdoptionError once the signal is aborted */
  private interrupt(): void {
    if (this.options.signal?.aborted !== true) return
    throw new AdoptionError('interrupted', 'The adoption was stopped. Run the same command to continue.')
  }

  /** Pauses between two batches, so that other sessions can work and standbys catch up. */
  async breathe(): Promise<void> {
    this.interrupt()
    const { pauseMilliseconds = 0 } = this.options
    const pause = typeof pauseMilliseconds === 'function' ? pauseMilliseconds() : pauseMilliseconds
    if (pause > 0) await this.sleep(pause)
    while (await this.isAhead()) await this.sleep(BRAKE_PAUSE_MILLISECONDS)
  }

  /** Whether the standbys, the slots or the archive must catch up first. */
  private async isAhead(): Promise<boolean> {
    this.interrupt()
    const { maxLagMilliseconds, maxWalBytes } = this.options
    if (maxLagMilliseconds === undefined && maxWalBytes === undefined) return false
    const [row] = await this.query<Record<'lag' | 'wal', string>>(SERVER_LAG)
    return Number(row?.lag ?? 0) > (maxLagMilliseconds ?? Infinity) || Number(row?.wal ?? 0) > (maxWalBytes ?? Infinity)
  }

  /**
   * Does work in batches of the wanted duration.
   *
   * @param sizes `first` is the size of the first batch, and `least` that of batches of up to four times the duration.
   * `fewest` applies to all, because clients may write more in the time of a batch than a smaller batch does
   * @param batch returns how much it did, or undefined if another session prevented it, and whether there is more
   */
  async atPace(
    { first, least, fewest = least }: { readonly first: number; readonly least: number; readonly fewest?: number },
    batch: (limit: number) => Promise<{ readonly done: number | undefined; readonly more: boolean }>,
  ): Promise<void> {
    const size = new BatchSize(this.options.batchMilliseconds, least, first, fewest)
    for (;;) {
      const started = performance.now()
      const { done, more } = await batch(size.value)
      if (!more) return
      if (done !== undefined) size.took(performance.now() - started, done)
      await this.breathe()
    }
  }
}

/** How much each batch counts for the next estimate, relative to the batch after it. */
const MEMORY = 0.85

/**
 * The size of the next batch. A batch takes a fixed time, mostly for its statements, and a time for each row. The wanted
 * duration is that of the rows. If the fixed time counted too, batches on a busy server would shrink to one row.
 */
export class BatchSize {
  /** Sums over the last batches. */
  private sums = { weight: 0, rows: 0, time: 0, squares: 0, products: 0 }
  private fixed = 0
  private each = Infinity
  /** How many of the last batches took more than twice the expected time. */
  private slow = 0

  /** @param least the least size, unless even such a batch takes more than four times the wanted duration */
  constructor(
    private readonly targetMilliseconds: number,
    private readonly least: number,
    private now: number,
    private readonly fewest: number,
  ) {}

  get value(): number {
    return Math.max(this.fewest, Math.round(this.now))
  }

  /** Adapts the size to the duration of a batch, at most by a factor of two. */
  took(milliseconds: number, done: number): void {
    const isSlow = milliseconds > 2 * (this.fixed + this.each * done)
    this.slow = isSlow ? this.slow + 1 : 0
    // The server has become slower, so earlier batches say nothing.
    const memory = this.slow > 1 ? 0 : MEMORY
    const { weight, rows, time, squares, products } = this.sums
    this.sums = {
      weight: weight * memory + 1,
      rows: rows * memory + done,
      time: time * memory + milliseconds,
      squares: squares * memory + done * done,
      products: products * memory + done * milliseconds,
    }
    const isEven = this.fitLine()
    const wanted = this.each > 0 ? this.targetMilliseconds / this.each : Infinity
    // Batches of one size do not show the fixed time.
    const next = isEven && this.sums.weight > 2 ? Math.max(wanted, this.now + 1, this.now * 1.25) : wanted
    const near = Math.min(Math.max(next, this.now / 2), isSlow ? this.now / 2 : this.now * 2)
    this.now = Math.max(near, Math.min(this.least, near * 4))
  }

  /** Fits the line of least squares. @returns whether the sizes are too similar for a line */
  private fitLine(): boolean {
    const { weight, squares, products } = this.sums
    const [rows, time] = [this.sums.rows / weight, this.sums.time / weight]
    const spread = squares / weight - rows * rows
    const isEven = spread < 0.01 * rows * rows
    const slope = (products / weight - rows * time) / spread
    this.each = isEven ? time / rows : Math.min(slope, time / rows)
    this.fixed = Math.max(0, time - this.each * rows)
    return isEven
  }
}

/** Takes a connection of the pool for the whole time. */
export async function withAdoptSession<T>(
  dataSource: DataSource,
  options: SessionOptions,
  work: (session: AdoptSession) => Promise<T>,
): Promise<T> {
  const runner = dataSource.createQueryRunner('master')
  const session = new AdoptSession(runner, options)
  try {
    await session.open()
    return await work(session)
  } finally {
    await session.close()
    await runner.release()
  }
}

/** Why an adoption stopped early. */
export type AdoptionReason =
  | 'changed'
  | 'interrupted'
  | 'nulls'
  | 'rejected'
  | 'running'
  | 'unsupported'
  | 'user-triggers'

/** `adopt` or `abandon` cannot continue by itself. Its work is kept, and the same call continues from there. */
export class AdoptionError extends UniqueTextError {
  override readonly name = 'AdoptionError'
  /** The name of the condition. */
  readonly code = 'ADOPTION_STOPPED'

  constructor(
    /** The condition that stopped the command. */
    readonly reason: AdoptionReason,
    message: string,
    cause?: unknown,
    /** The primary keys of the first rows that a person must correct, by column. */
    readonly keys?: readonly ObjectLiteral[] | undefined,
  ) {
    super(message, cause)
  }
}
