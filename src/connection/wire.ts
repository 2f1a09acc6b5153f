import { hasObjects, type ParameterOptions, parameterText } from '../sql/parameter-text'
import type { WireRow } from '../sql/statements'
import type { PgClient, PgConnection, TypeParser } from './pg-client'
import type { PreparedName } from './prepared-names'

/** A parameter as it goes to the server: as text, or as bytes. */
type Parameter = string | Buffer | null

/** Values as `pg` would send them; undefined if one is another kind of object, which only `pg` can convert. */
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

/** Of the unnamed portal. */
const DESCRIBE = 'D\0\0\0\x06P\0'
/** Without a limit of rows. */
const EXECUTE = 'E\0\0\0\x09\0\0\0\0\0'
/** After it the server answers, whatever has failed. */
export const SYNC = 'S\0\0\0\x04'

/**
 * The messages that run a command once, as one character for each byte.
 *
 * @param sql ASCII, shorter than 240 characters
 */
export const commandMessages = (sql: string): string =>
  `P\0\0\0${String.fromCodePoint(4 + 1 + sql.length + 1 + 2)}\0${sql}\0\0\0B\0\0\0\x0c\0\0\0\0\0\0\0\0${EXECUTE}`

/**
 * The messages that run a prepared statement, in one piece: a write for each would cost more than all else that the
 * client does.
 *
 * @param name of the statement, ASCII
 * @param values null for NULL
 * @param describe asks for the types of the columns as well
 * @param after what follows, one character for each byte
 */
function runMessages(name: string, values: readonly Parameter[], describe: boolean, after: string = SYNC): Buffer {
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
  // The unnamed portal; then the statement. No format of a parameter makes all of them text.
  let offset = 5
  offset += buffer.write(`\0${name}\0`, offset, 'latin1')
  offset = buffer.writeUInt16BE(formats, offset)
  if (formats > 0) for (const value of values) offset = buffer.writeInt16BE(Buffer.isBuffer(value) ? 1 : 0, offset)
  offset = buffer.writeUInt16BE(values.length, offset)
  for (const value of values) {
    const bytes = value === null ? -1 : put(buffer, value, offset + 4)
    buffer.writeInt32BE(bytes, offset)
    offset += 4 + Math.max(bytes, 0)
  }
  // No format of a column: all of them are text.
  buffer.write(`\0\0${tail}`, offset, 'latin1')
  return buffer
}

/** @returns how many bytes */
const put = (buffer: Buffer, value: string | Buffer, offset: number): number =>
  typeof value === 'string' ? buffer.write(value, offset) : value.copy(buffer, offset)

/** What `pg` takes in place of a query, as it takes a cursor. */
class Messages {
  constructor(
    private readonly write: (connection: PgConnection) => void,
    /** `pg` puts its own in front of it where there is a `query_timeout`. */
    public callback: () => void,
  ) {}

  submit(connection: PgConnection): void {
    this.write(connection)
  }

  handleCommandComplete(): void {}

  handleReadyForQuery(): void {
    this.callback()
  }

  /** The connection is gone or too slow. The next statement fails for the same reason and reports it. */
  handleError(): void {
    this.callback()
  }
}

/**
 * Sends messages of which nobody needs the answers; ends when the server has done them, and never fails.
 *
 * @param query takes what is sent in its turn
 * @param write what ends with a Sync
 */
export async function sendMessages(
  query: (messages: Messages) => unknown,
  write: (connection: PgConnection) => void,
): Promise<void> {
  await new Promise<void>((resolve) => query(new Messages(write, resolve)))
}

/** A statement that is sent by its name, with values that are strings. */
interface NamedQuery {
  readonly name: PreparedName
  readonly text: string
  readonly values: readonly Parameter[]
}

/** Messages in front of a query, and those that end it, as one character for each byte. */
interface Around {
  readonly before: Buffer
  readonly after: string
}

/** Called by `pg`, which replaces it by its own if there is a `query_timeout`. */
type Callback = (error: unknown, rows?: readonly WireRow[]) => void

/**
 * What `pg` takes in place of a query, as it takes a cursor. Its own asks for the types of the columns at every call,
 * and builds much around a row. The types of a prepared statement do not change: the server refuses it instead (0A000).
 */
export class PreparedQuery {
  /** Of the statement. `pg` keeps the SQL by it once the server has parsed it. */
  readonly name: string
  readonly text: string
  private readonly rows: WireRow[] = []
  private readonly prepared: PreparedName
  private readonly values: readonly Parameter[]
  private parsers: readonly TypeParser[] | undefined
  private failure: { readonly error: unknown } | undefined
  /** Its rows; fails as the statement does. */
  readonly answer: Promise<readonly WireRow[]>
  callback: Callback = () => {}

  constructor(
    private readonly client: PgClient,
    { name, text, values }: NamedQuery,
  ) {
    this.name = name.name
    this.text = text
    this.prepared = name
    this.values = values
    this.answer = new Promise((resolve, reject) => {
      this.callback = (error, rows = []) => {
        if (error === undefined || error === null) resolve(rows)
        else reject(error)
      }
    })
  }

  /**
   * @param around what goes with it, in one flush
   * @returns the error of a value that cannot be sent; thrown, it would keep the connection busy for ever
   */
  submit(connection: PgConnection, around?: Around): Error | undefined {
    const { stream, parsedStatements } = connection
    try {
      const messages = runMessages(this.name, this.values, this.prepared.types === undefined, around?.after)
      const isParsed = parsedStatements[this.name] !== undefined
      // In one piece, for a write of several takes far longer.
      if (isParsed) write(stream, around ? Buffer.concat([around.before, messages]) : messages)
      else this.submitParts(connection, messages, around?.before)
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
      const parsers = (this.parsers ??= parsersOf(this.client, this.prepared.types ?? []))
      const row: unknown[] = []
      for (let index = 0; index < fields.length; index += 1) {
        const field = fields[index] ?? null
        row.push(field === null ? null : parsers[index]?.(field))
      }
      this.rows.push(row)
    } catch (error) {
      // Reported only when the server has ended: the connection is not free before.
      this.failure = { error }
    }
  }

  handleCommandComplete(): void {}

  handleReadyForQuery(): void {
    if (this.failure) this.callback(this.failure.error)
    else this.callback(undefined, this.rows)
  }

  handleError(error: unknown): void {
    this.callback(this.failure ? this.failure.error : error)
  }

  private submitParts(connection: PgConnection, messages: Buffer, before: Buffer | undefined): void {
    const { stream, parsedStatements } = connection
    stream.cork?.()
    try {
      if (before) write(stream, before)
      if (parsedStatements[this.name] === undefined) connection.parse({ name: this.name, text: this.text })
      write(stream, messages)
    } finally {
      stream.uncork?.()
    }
  }
}

/** Looked up at each call, as in `pg`: the user may set others. */
function parsersOf(client: PgClient, types: readonly number[]): readonly TypeParser[] {
  const parsers: TypeParser[] = []
  for (const type of types) parsers.push(client.getTypeParser(type, 'text'))
  return parsers
}

/** A closed connection reports itself to `pg`. */
export function write(stream: PgConnection['stream'], messages: Buffer): void {
  if (stream.writable) stream.write(messages)
}

/** Commands in front of a query, and behind it, that go to the server with it in one flush. */
interface Commands {
  readonly before: readonly string[]
  readonly after: readonly string[]
}

/** As messages: after an error the server skips everything up to Sync. */
interface JoinedCommands extends Around {
  readonly commandsBefore: number
}

/** @param commands ASCII, shorter than 240 characters */
export const joined = ({ before, after }: Commands): JoinedCommands => ({
  commandsBefore: before.length,
  before: Buffer.from(before.map(commandMessages).join(''), 'latin1'),
  after: after.map(commandMessages).join('') + SYNC,
})

/** A query with commands around it. */
export class JoinedQuery {
  /**
   * Tracing libraries put a function of their own in front of it, and look for it among the object's own properties.
   */
  callback: PreparedQuery['callback']
  private done = 0

  constructor(
    private readonly query: PreparedQuery,
    private readonly around: JoinedCommands,
  ) {
    this.callback = query.callback
    query.callback = (error, rows): void => this.callback(error, rows)
  }

  /** How many have ended: commands, and the query among them. */
  get ended(): number {
    return this.done
  }

  /** `pg` keeps the SQL by it whenever the server has parsed something: of all these, only the query has a name. */
  get name(): string {
    return this.done === this.around.commandsBefore ? this.query.name : ''
  }

  get text(): string {
    return this.query.text
  }

  submit(connection: PgConnection): Error | undefined {
    return this.query.submit(connection, this.around)
  }

  handleRowDescription(message: Parameters<PreparedQuery['handleRowDescription']>[0]): void {
    this.query.handleRowDescription(message)
  }

  handleDataRow(message: Parameters<PreparedQuery['handleDataRow']>[0]): void {
    this.query.handleDataRow(message)
  }

  handleCommandComplete(): void {
    this.done += 1
  }

  handleReadyForQuery(): void {
    this.query.handleReadyForQuery()
  }

  handleError(error: unknown): void {
    this.query.handleError(error)
  }
}
