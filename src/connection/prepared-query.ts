import type { WireRow } from '../sql/statements'
import { type Parameter, runMessages } from './bind-message'
import type { PgClient, PgConnection, TypeParser } from './pg-client'
import type { PreparedName } from './prepared-names'

/** A statement that is sent by its name, with values that are strings. */
export interface NamedQuery {
  readonly name: PreparedName
  readonly text: string
  readonly values: readonly Parameter[]
}

/** Messages in front of a query, and those that end it, as one character for each byte. */
export interface Around {
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

  constructor(
    private readonly client: PgClient,
    { name, text, values }: NamedQuery,
    public callback: Callback,
  ) {
    this.name = name.name
    this.text = text
    this.prepared = name
    this.values = values
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
      this.rows.push(this.parsed(fields))
    } catch (error) {
      // Told only when the server has ended: the connection is not free before.
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

  /** The parsers are looked up at each call, as in `pg`: the user may set others. */
  private parsed(fields: (string | null)[]): WireRow {
    const { client } = this
    const parsers = (this.parsers ??= (this.prepared.types ?? []).map((type) => client.getTypeParser(type, 'text')))
    return fields.map((field, index) => (field === null ? null : parsers[index]?.(field)))
  }
}

/** A closed connection reports itself to `pg`. */
export function write(stream: PgConnection['stream'], messages: Buffer): void {
  if (stream.writable) stream.write(messages)
}

/** @param send takes it in its turn. @default the client */
export function sendByName(
  client: PgClient,
  query: NamedQuery,
  send: (submittable: PreparedQuery) => unknown = (submittable) => client.query(submittable),
): Promise<readonly WireRow[]> {
  return new Promise((resolve, reject) => {
    const callback: Callback = (error, rows = []) => {
      if (error === undefined || error === null) resolve(rows)
      else reject(error)
    }
    send(new PreparedQuery(client, query, callback))
  })
}
