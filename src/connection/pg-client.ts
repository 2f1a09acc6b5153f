import { UnsupportedDatabaseError } from '../errors'
import type { WireRow } from '../sql/statements'

/** A statement as `pg` takes it. */
export interface PgQuery {
  readonly text: string
  readonly values?: readonly unknown[]
  readonly rowMode: 'array'
  readonly name?: string
}

/** What `pg` writes to the server with. */
export interface PgConnection {
  close(message: { readonly type: 'S'; readonly name: string }): void
  parse(message: { readonly name: string; readonly text: string }): void
  sync(): void
  /** SQL by the name it was prepared under. */
  readonly parsedStatements: Record<string, string>
  readonly stream: {
    readonly writable: boolean
    write(messages: Buffer): unknown
    cork?(): void
    uncork?(): void
  }
}

/** Gives the value of a column that is not NULL. */
export type TypeParser = (text: string) => unknown

/** The part of the answer of `pg` that is used here. */
export interface PgResult {
  readonly rows: readonly WireRow[]
}

/** The parts of a `pg` client that are used here. */
export interface PgClient {
  query(query: PgQuery): Promise<PgResult>
  /** Takes its turn among the queries, and tells the object what becomes of it. */
  query(submittable: { submit(connection: PgConnection): void }): unknown
  end(): Promise<void>
  on(event: 'error', listener: (error: Error) => void): unknown
  removeListener(event: 'error', listener: (error: Error) => void): unknown
  getTypeParser(type: number, format: 'text'): TypeParser
  readonly connection: PgConnection
  /** Of its backend. */
  readonly processID?: number | null
  readonly connectionParameters?: { readonly query_timeout?: unknown }
  /** Pipeline mode: statements are sent before the last one is answered, and only queries are accepted. */
  readonly pipeline?: boolean
  /** Values are requested in binary format, which `pg` then reads as strings. */
  readonly binary?: boolean
  /** `I` outside a transaction, `T` inside, `E` in one that has failed. */
  getTransactionStatus?(): string | null
}

/** Whether it is a client of `pg`: not `pg-native`, PGlite or another that the option `driver` brings. */
export function isPgClient(client: unknown): client is PgClient {
  if (typeof client !== 'object' || client === null || !('connection' in client)) return false
  const { connection } = client
  if (typeof connection !== 'object' || connection === null) return false
  return ['close', 'sync'].every((name) => isFunction(connection, name))
}

/** Whether it waits for an answer of the server. Other drivers do not tell. */
export const isBusy = (client: unknown): boolean => isPgClient(client) && Reflect.get(client, 'readyForQuery') === false

/** @throws UnsupportedDatabaseError for a client that gives wrong values */
export function requireTextFormat(client: PgClient): void {
  if (!client.binary) return
  throw new UnsupportedDatabaseError(
    'The option "binary" of pg gives wrong values: 239 for the integer 200. Leave it out of the DataSource.',
  )
}

const known = new WeakMap<object, boolean>()

/** Whether it can send a query object of our own. */
export function takesPreparedQueries(client: PgClient): boolean {
  const found = known.get(client)
  if (found !== undefined) return found
  const takes = hasContract(client)
  known.set(client, takes)
  return takes
}

function hasContract(client: PgClient): boolean {
  const { connection } = client
  const { parsedStatements, stream } = connection as Partial<PgConnection>
  return (
    !client.pipeline &&
    isFunction(client, 'getTypeParser') &&
    isFunction(connection, 'parse') &&
    typeof parsedStatements === 'object' &&
    typeof stream === 'object' &&
    isFunction(stream, 'write')
  )
}

const isFunction = (object: object, name: string): boolean => typeof Reflect.get(object, name) === 'function'
