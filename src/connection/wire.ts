import type { DataSource } from 'typeorm'
import { UnsupportedDatabaseError } from '../errors'
import type { WireRow } from '../sql/find'
import { hasObjects, type ParameterOptions, parameterText } from '../sql/types'

/** A parameter as it is sent to the server: as text, or as bytes. */
type Parameter = string | Buffer | null

/** Returns values as `pg` sends them; undefined if one is another kind of object, which only `pg` can convert. */
export function plainTexts(values: readonly unknown[], dates: () => ParameterOptions): Parameter[] | undefined {
  const texts: Parameter[] = []
  for (const value of values) {
    if (typeof value === 'string') texts.push(value)
    else if (value === null || value === undefined) texts.push(null)
    else if (Array.isArray(value) && !hasObjects(value)) texts.push(parameterText(value))
    else if (value instanceof Date) texts.push(parameterText(value, dates()))
    else if (Buffer.isBuffer(value)) texts.push(value)
    else if (typeof value === 'object') return undefined
    else texts.push((value as { toString(): string }).toString())
  }
  return texts
}

/** Describes the unnamed portal. */
const DESCRIBE = 'D\0\0\0\x06P\0'
/** Runs the portal without a limit of rows. */
const EXECUTE = 'E\0\0\0\x09\0\0\0\0\0'
/** The server answers a Sync even if a message before it has failed. */
export const SYNC = 'S\0\0\0\x04'

/**
 * The messages that run a command once, as one character for each byte.
 *
 * @param sql ASCII, shorter than 240 characters
 */
export const commandMessages = (sql: string): string =>
  `P\0\0\0${String.fromCodePoint(4 + 1 + sql.length + 1 + 2)}\0${sql}\0\0\0B\0\0\0\x0c\0\0\0\0\0\0\0\0${EXECUTE}`

/**
 * The messages that run a prepared statement, in one buffer. A write for each message would cost more than all other
 * work of the client.
 *
 * @param name the name of the statement, ASCII
 * @param values null for NULL
 * @param describe also asks for the types of the columns
 * @param after the messages that follow, one character for each byte
 */
function runMessages(name: string, values: readonly Parameter[], describe: boolean, after: string): Buffer {
  let length = 4 + 1 + name.length + 1 + 2 + 2 + 2
  let formats = 0
  for (const value of values) {
    length += 4 + (value === null ? 0 : Buffer.byteLength(value))
    if (value !== null && typeof value !== 'string') formats = values.length
  }
  length += 2 * formats
  const tail = (describe ? DESCRIBE + EXECUTE : EXECUTE) + after
  const buffer = Buffer.allocUnsafe(1 + length + tail.length)
  buffer[0] = 0x42
  buffer.writeInt32BE(length, 1)
  // The unnamed portal, then the statement. Without parameter formats, all parameters are text.
  let offset = 5
  offset += buffer.write(`\0${name}\0`, offset, 'latin1')
  offset = buffer.writeUInt16BE(formats, offset)
  if (formats > 0) for (const value of values) offset = buffer.writeInt16BE(Buffer.isBuffer(value) ? 1 : 0, offset)
  offset = buffer.writeUInt16BE(values.length, offset)
  for (const value of values) {
    let bytes = -1
    if (typeof value === 'string') bytes = buffer.write(value, offset + 4)
    else if (value !== null) bytes = value.copy(buffer, offset + 4)
    buffer.writeInt32BE(bytes, offset)
    offset += 4 + Math.max(bytes, 0)
  }
  // Without column formats, all columns are text.
  buffer.write(`\0\0${tail}`, offset, 'latin1')
  return buffer
}

/** A query object that only sends messages. */
class Messages {
  constructor(
    private readonly write: (connection: PgConnection) => void,
    /** Called by `pg`, which wraps it if there is a `query_timeout`. */
    public callback: () => void,
  ) {}

  submit(connection: PgConnection): void {
    this.write(connection)
  }

  handleCommandComplete(): void {}

  handleReadyForQuery(): void {
    this.callback()
  }

  /** The connection is lost or too slow. The next statement fails for the same reason and reports it. */
  handleError(): void {
    this.callback()
  }
}

/**
 * Sends messages whose answers nobody needs. Resolves when the server has processed them, and never rejects.
 *
 * @param query queues the messages behind earlier queries
 * @param write writes the messages, with a Sync at the end
 */
export async function sendMessages(
  query: (messages: Messages) => unknown,
  write: (connection: PgConnection) => void,
): Promise<void> {
  await new Promise<void>((resolve) => query(new Messages(write, resolve)))
}

/** Commands before and after a query, as messages. After an error the server skips all messages up to Sync. */
interface JoinedCommands {
  readonly commandsBefore: number
  readonly before: Buffer
  /** One character for each byte. */
  readonly after: string
}

/** @param before commands to send before a query; `after` follows it. All are ASCII, shorter than 240 characters */
export const joinedCommands = (before: readonly string[], after: readonly string[]): JoinedCommands => ({
  commandsBefore: before.length,
  before: Buffer.from(before.map(commandMessages).join(''), 'latin1'),
  after: after.map(commandMessages).join('') + SYNC,
})

/**
 * A query object that `pg` accepts, as it accepts a cursor. The query of `pg` asks for the column types at every call,
 * and is slow for each row. The types of a prepared statement do not change: the server refuses it instead (0A000).
 */
export class PreparedQuery {
  /** How many commands are complete, including the query. */
  ended = 0
  private around: JoinedCommands | undefined
  private readonly rows: WireRow[] = []
  private parsers: TypeParser[] | undefined
  private failure: { readonly error: unknown } | undefined
  /** The rows. Rejects with the error of the statement. */
  readonly answer: Promise<readonly WireRow[]>
  /** Called by `pg`, which replaces it with its own function if there is a `query_timeout`. */
  callback: (error: unknown, rows?: readonly WireRow[]) => void = () => {}

  constructor(
    private readonly client: PgClient,
    private readonly prepared: PreparedName,
    readonly text: string,
    private readonly values: readonly Parameter[],
  ) {
    this.answer = new Promise((resolve, reject) => {
      this.callback = (error, rows = []) => {
        if (error === undefined || error === null) resolve(rows)
        else reject(error)
      }
    })
  }

  get isJoined(): boolean {
    return this.around !== undefined
  }

  /** Sends these commands with the query, in one flush. */
  joinedBy(commands: JoinedCommands): this {
    this.around = commands
    return this
  }

  /** `pg` stores the SQL under it when the server has parsed a message. Only the query has a name. */
  get name(): string {
    return this.ended === (this.around?.commandsBefore ?? 0) ? this.prepared.name : ''
  }

  /** @returns the error of a value that cannot be sent: if it were thrown, the connection would stay busy for ever */
  submit(connection: PgConnection): Error | undefined {
    const { stream, parsedStatements } = connection
    const { around, values, prepared } = this
    try {
      const messages = runMessages(prepared.name, values, prepared.types === undefined, around?.after ?? SYNC)
      const isParsed = parsedStatements[prepared.name] !== undefined
      // One buffer, because several writes take far longer.
      if (isParsed) writeTo(stream, around ? Buffer.concat([around.before, messages]) : messages)
      else {
        stream.cork?.()
        try {
          if (around) writeTo(stream, around.before)
          connection.parse({ name: prepared.name, text: this.text })
          writeTo(stream, messages)
        } finally {
          stream.uncork?.()
        }
      }
      return undefined
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error))
    }
  }

  handleRowDescription({ fields }: { readonly fields: readonly { readonly dataTypeID: number }[] }): void {
    this.prepared.types = fields.map(({ dataTypeID }) => dataTypeID)
  }

  handleDataRow({ fields }: { readonly fields: (string | null)[] }): void {
    if (this.failure) return
    try {
      let { parsers } = this
      if (!parsers) {
        // Looked up at each call, as in `pg`, because the user may set other parsers.
        parsers = []
        for (const type of this.prepared.types ?? []) parsers.push(this.client.getTypeParser(type, 'text'))
        this.parsers = parsers
      }
      const row: unknown[] = []
      for (let index = 0; index < fields.length; index += 1) {
        const field = fields[index] ?? null
        row.push(field === null ? null : parsers[index]?.(field))
      }
      this.rows.push(row)
    } catch (error) {
      // Reported only when the server is done: the connection is not free before.
      this.failure = { error }
    }
  }

  handleCommandComplete(): void {
    this.ended += 1
  }

  handleReadyForQuery(): void {
    if (this.failure) this.callback(this.failure.error)
    else this.callback(undefined, this.rows)
  }

  handleError(error: unknown): void {
    this.callback(this.failure ? this.failure.error : error)
  }
}

/** A closed connection reports itself to `pg`. */
export function writeTo(stream: PgConnection['stream'], messages: Buffer): void {
  if (stream.writable) stream.write(messages)
}

/** The object with which `pg` writes to the server. */
interface PgConnection {
  close(message: { readonly type: 'S'; readonly name: string }): void
  parse(message: { readonly name: string; readonly text: string }): void
  sync(): void
  /** SQL by the name under which it was prepared. */
  readonly parsedStatements: Record<string, string>
  readonly stream: {
    readonly writable: boolean
    write(messages: Buffer): unknown
    cork?(): void
    uncork?(): void
  }
}

/** Returns the value of a column that is not NULL. */
type TypeParser = (text: string) => unknown

/** The part of the answer of `pg` that is used here. */
export interface PgResult {
  readonly rows: readonly WireRow[]
}

/** The parts of a `pg` client that are used here. */
export interface PgClient {
  query(query: {
    readonly text: string
    readonly values?: readonly unknown[]
    readonly rowMode: 'array'
    readonly name?: string
  }): Promise<PgResult>
  /** Adds the object to the queue of queries, and calls it with the answers of the server. */
  query(submittable: { submit(connection: PgConnection): void }): unknown
  end(): Promise<void>
  on(event: 'error', listener: (error: Error) => void): unknown
  removeListener(event: 'error', listener: (error: Error) => void): unknown
  getTypeParser(type: number, format: 'text'): TypeParser
  readonly connection: PgConnection
  /** The process id of the backend. */
  readonly processID?: number | null
  readonly connectionParameters?: { readonly query_timeout?: unknown }
  /** Pipeline mode: statements are sent before the previous one is answered, and only queries are accepted. */
  readonly pipeline?: boolean
  /** Values are requested in binary format, which `pg` then reads as strings. */
  readonly binary?: boolean
  /** `I` outside a transaction, `T` inside, `E` in one that has failed. */
  getTransactionStatus?(): string | null
}

/** What is known of a client: its abilities, which do not change, and its prepared statements. */
interface Facts {
  /** Whether it is a client of `pg`, and not of `pg-native`, PGlite or another `driver` option. */
  readonly isPg: boolean
  /** Whether it can send a query object of our own. */
  readonly takesOwn: boolean
  readonly names: PreparedNames
}

const facts = new WeakMap<object, Facts>()

const noClient = (): Facts => ({ isPg: false, takesOwn: false, names: new PreparedNames() })

export function factsOf(client: unknown): Facts {
  if (typeof client !== 'object' || client === null) return noClient()
  const known = facts.get(client)
  if (known) return known
  let found = noClient()
  const connection: unknown = Reflect.get(client, 'connection')
  if (hasMethods(connection, ['close', 'sync'])) {
    const { parsedStatements, stream } = connection as Partial<PgConnection>
    const takesOwn =
      hasMethods(client, ['getTypeParser']) &&
      hasMethods(connection, ['parse']) &&
      hasMethods(stream, ['write']) &&
      typeof parsedStatements === 'object'
    found = { ...found, isPg: true, takesOwn }
  }
  facts.set(client, found)
  return found
}

const hasMethods = (object: unknown, names: readonly string[]): boolean =>
  typeof object === 'object' &&
  object !== null &&
  names.every((name) => typeof Reflect.get(object, name) === 'function')

export const isPgClient = (client: unknown): client is PgClient => factsOf(client).isPg

/** @returns undefined for a client of another driver */
export const pgClientOf = (client: unknown): PgClient | undefined => (isPgClient(client) ? client : undefined)

/** Whether the client can send our own query object. If not, a query object of `pg` is used instead. */
export const takesPreparedQueries = (client: PgClient): boolean => !client.pipeline && factsOf(client).takesOwn

/** Whether the client waits for an answer of the server. Clients of other drivers do not show this. */
export const isBusy = (client: unknown): boolean => isPgClient(client) && Reflect.get(client, 'readyForQuery') === false

/** @throws UnsupportedDatabaseError for a client that returns wrong values */
export function requireTextFormat(client: PgClient): void {
  if (!client.binary) return
  throw new UnsupportedDatabaseError(
    'The option "binary" of pg gives wrong values: 239 for the integer 200. Leave it out of the DataSource.',
  )
}

/**
 * Whether there is a `query_timeout`. After it, nobody knows in time what the server has done, nor whether to release a
 * savepoint.
 */
export const hasTimeout = ({ connectionParameters }: PgClient): boolean => Boolean(connectionParameters?.query_timeout)

/** How the driver of a DataSource sends a Date. */
export function parameterOptions({ driver }: DataSource): ParameterOptions {
  const { postgres } = driver as { postgres?: { defaults?: { parseInputDatesAsUTC?: boolean } } }
  return { utcDates: postgres?.defaults?.parseInputDatesAsUTC ?? false }
}

/** The state that a pool of `pg` exposes. Nothing is lost if a pool does not expose it. */
interface PgPool {
  readonly idleCount: number
  readonly totalCount: number
  readonly waitingCount: number
  readonly options: { readonly max: number }
}

/** Whether another caller waits for a connection of the pool, or the pool does not expose this. */
export function isAwaited(dataSource: DataSource): boolean {
  return poolOf(dataSource)?.waitingCount !== 0
}

/**
 * Whether a second connection is available at once. False for a pool that does not expose its state, because the pool
 * of another driver may have no second connection.
 */
export function hasSpare(dataSource: DataSource): boolean {
  const pool = poolOf(dataSource)
  if (!pool || pool.waitingCount > 0) return false
  return pool.idleCount > 0 || pool.totalCount < pool.options.max
}

function poolOf({ driver }: DataSource): PgPool | undefined {
  const { master: pool } = driver as { readonly master?: Partial<PgPool> }
  const numbers = [pool?.idleCount, pool?.totalCount, pool?.waitingCount, pool?.options?.max]
  return numbers.every((one) => typeof one === 'number') ? (pool as PgPool) : undefined
}

/** The most names on one connection. Each keeps a plan in the server's memory, 50 to 100 kB. */
const MAX_NAMES = 200
/** How many names are closed together when there are too many, least recently used first. They take one round trip. */
const EVICTED_NAMES = 50
/**
 * How often a name is taken, or less often if a use inserts many rows. A plan fits the size that the table had when it
 * was made. A new plan costs about a millisecond. Only tests set other values.
 */
export const planLife = { uses: 1_000 }
const MAX_AGE_MILLISECONDS = 60_000
/** The names that a statement has in turn. Instrumentation records names, so they must be few. */
const TURNS = 10
/** The losses of prepared statements after which we assume that a pooler gives statements to other sessions. */
const MAX_LOSSES = 3
/** How long nothing is prepared after that, in milliseconds. A loss longer ago no longer counts. */
const PAUSE_MILLISECONDS = 600_000

/** The name of a prepared statement, as long as it is kept. */
export interface PreparedName {
  readonly name: string
  /** When the name was taken, on the caller's clock. */
  readonly since: number
  /** How often it was taken. If more than once, the server's plan may be older than the current table. */
  uses: number
  /** The OIDs of the column types, once the server has sent them. */
  types: readonly number[] | undefined
}

/**
 * The names of the prepared statements on one connection. No name is kept for ever: a plan that was made while the
 * table was tiny reads all of it, however large it becomes, until an ANALYZE that may never run.
 */
export class PreparedNames {
  private readonly kept = new Map<string, PreparedName>()
  /** Names that the server should forget. */
  givenUp: string[] = []
  /** The last turn of each statement. */
  private readonly turns = new Map<string, number>()
  private losses = 0
  private lostAt = 0
  private last: PreparedName | undefined

  /**
   * @param statement the name of its digest
   * @param now milliseconds, on a monotonic clock
   * @param rows the most rows that one use inserts
   * @returns undefined while no names are kept on this connection
   */
  take(statement: string, now: number, rows = 1): PreparedName | undefined {
    if (this.losses >= MAX_LOSSES && now - this.lostAt < PAUSE_MILLISECONDS) return undefined
    const known = this.kept.get(statement)
    const isFresh = known && known.uses * rows < planLife.uses && now - known.since < MAX_AGE_MILLISECONDS
    const kept = isFresh ? known : this.replace(statement, now)
    kept.uses += 1
    if (kept === this.last) return kept
    // Moved to the end, because the map is in the order of use.
    this.kept.delete(statement)
    this.kept.set(statement, kept)
    this.last = kept
    if (this.kept.size > MAX_NAMES) this.giveUp([...this.kept.keys()].slice(0, EVICTED_NAMES))
    return kept
  }

  /**
   * Gives up all names, because any of them may be lost or stale.
   *
   * @param now as in `take`
   */
  lose(now: number): void {
    // After a pause, one more loss is enough for the next pause.
    if (this.losses < MAX_LOSSES && now - this.lostAt >= PAUSE_MILLISECONDS) this.losses = 0
    this.losses += 1
    this.lostAt = now
    this.giveUp([...this.kept.keys()])
  }

  /** Returns the names that the server should forget, each of them once. */
  takeGivenUp(): readonly string[] {
    const names = this.givenUp
    if (names.length > 0) this.givenUp = []
    return names
  }

  private replace(statement: string, now: number): PreparedName {
    this.giveUp([statement])
    // The last name is not used again at once: a call that waits with it must not get a statement that is prepared later.
    const turn = ((this.turns.get(statement) ?? 0) % TURNS) + 1
    this.turns.set(statement, turn)
    return { name: `${statement}_${turn}`, since: now, uses: 0, types: undefined }
  }

  private giveUp(statements: readonly string[]): void {
    for (const statement of statements) {
      const kept = this.kept.get(statement)
      if (kept) this.givenUp.push(kept.name)
      this.kept.delete(statement)
    }
  }
}
