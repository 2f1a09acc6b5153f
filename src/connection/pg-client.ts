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
  sync(): void
  /** SQL by the name it was prepared under. */
  readonly parsedStatements?: object
}

/** The part of its answer that is used here. */
export interface PgResult {
  readonly rows: readonly WireRow[]
}

/** The parts of a `pg` client that are used here. */
export interface PgClient {
  query(query: PgQuery): Promise<PgResult>
  /** Takes its turn among the queries, and tells the object what becomes of it. */
  query(submittable: { submit(connection: PgConnection): void }): unknown
  end(): Promise<void>
  once(event: 'error', listener: (error: Error) => void): unknown
  readonly connection: PgConnection
  /** Statements are sent before the last one is answered; nothing but queries is taken then. */
  readonly pipeline?: boolean
  /** Values are asked for in their binary format, of which `pg` reads strings. */
  readonly binary?: boolean
  /** `I` outside a transaction, `T` inside, `E` in one that has failed. */
  getTransactionStatus?(): string | null
}

/** Not so: `pg-native`, PGlite and whatever else the option `driver` brings. */
export function isPgClient(client: unknown): client is PgClient {
  if (typeof client !== 'object' || client === null || !('connection' in client)) return false
  const { connection } = client
  if (typeof connection !== 'object' || connection === null) return false
  return ['close', 'sync'].every((name) => typeof Reflect.get(connection, name) === 'function')
}

/** @throws UnsupportedDatabaseError for a client that gives wrong values */
export function requireTextFormat(client: PgClient): void {
  if (!client.binary) return
  throw new UnsupportedDatabaseError(
    'The option "binary" of pg gives wrong values: 239 for the integer 200. Leave it out of the DataSource.',
  )
}
