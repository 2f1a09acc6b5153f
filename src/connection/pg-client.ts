import type { DataSource } from 'typeorm'
import { UnsupportedDatabaseError } from '../errors'
import type { ParameterOptions } from '../sql/parameter-text'
import type { WireRow } from '../sql/statements'

/** A statement as `pg` takes it. */
interface PgQuery {
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
  /** Queues among the queries, and notifies the object of what becomes of it. */
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

/** What a client can do, looked for once: it has it for as long as it lives. */
interface Facts {
  /** Whether it is a client of `pg`: not `pg-native`, PGlite or another that the option `driver` brings. */
  readonly isPg: boolean
  /** Whether it can send a query object of our own. */
  readonly takesOwn: boolean
}

const facts = new WeakMap<object, Facts>()

const NOTHING: Facts = { isPg: false, takesOwn: false }

function factsOf(client: unknown): Facts {
  if (typeof client !== 'object' || client === null) return NOTHING
  const known = facts.get(client)
  if (known) return known
  const found = lookAt(client)
  facts.set(client, found)
  return found
}

function lookAt(client: object): Facts {
  const connection: unknown = Reflect.get(client, 'connection')
  if (!hasMethods(connection, ['close', 'sync'])) return NOTHING
  const { parsedStatements, stream } = connection as Partial<PgConnection>
  const takesOwn =
    hasMethods(client, ['getTypeParser']) &&
    hasMethods(connection, ['parse']) &&
    hasMethods(stream, ['write']) &&
    typeof parsedStatements === 'object'
  return { isPg: true, takesOwn }
}

const hasMethods = (object: unknown, names: readonly string[]): boolean =>
  typeof object === 'object' &&
  object !== null &&
  names.every((name) => typeof Reflect.get(object, name) === 'function')

export const isPgClient = (client: unknown): client is PgClient => factsOf(client).isPg

/** @returns undefined for a client of another driver */
export const pgClientOf = (client: unknown): PgClient | undefined => (isPgClient(client) ? client : undefined)

/** A query object of our own can be sent by it; where not, one of `pg`'s takes its place. */
export const takesPreparedQueries = (client: PgClient): boolean => !client.pipeline && factsOf(client).takesOwn

/** Whether it waits for an answer of the server. Other drivers do not tell. */
export const isBusy = (client: unknown): boolean => isPgClient(client) && Reflect.get(client, 'readyForQuery') === false

/** @throws UnsupportedDatabaseError for a client that gives wrong values */
export function requireTextFormat(client: PgClient): void {
  if (!client.binary) return
  throw new UnsupportedDatabaseError(
    'The option "binary" of pg gives wrong values: 239 for the integer 200. Leave it out of the DataSource.',
  )
}

/** With `query_timeout` it is not known in time what the server has done, nor whether it should release a savepoint. */
export const hasTimeout = ({ connectionParameters }: PgClient): boolean => Boolean(connectionParameters?.query_timeout)

/** How the driver of a DataSource sends a Date. */
export function parameterOptions({ driver }: DataSource): ParameterOptions {
  const { postgres } = driver as { postgres?: { defaults?: { parseInputDatesAsUTC?: boolean } } }
  return { utcDates: postgres?.defaults?.parseInputDatesAsUTC ?? false }
}

/** What a pool of `pg` tells of itself, and nothing is lost where it does not. */
interface Pool {
  readonly idleCount: number
  readonly totalCount: number
  readonly waitingCount: number
  readonly options: { readonly max: number }
}

/** Somebody else waits for a connection of the pool, or it does not tell. */
export function isAwaited(dataSource: DataSource): boolean {
  return poolOf(dataSource)?.waitingCount !== 0
}

/**
 * A second connection is available without waiting for anyone else's. Of a pool that does not tell, none is: the one of
 * another driver may have no second.
 */
export function hasSpare(dataSource: DataSource): boolean {
  const pool = poolOf(dataSource)
  if (!pool || pool.waitingCount > 0) return false
  return pool.idleCount > 0 || pool.totalCount < pool.options.max
}

function poolOf({ driver }: DataSource): Pool | undefined {
  const { master } = driver as { readonly master?: unknown }
  return isPool(master) ? master : undefined
}

function isPool(pool: unknown): pool is Pool {
  if (typeof pool !== 'object' || pool === null || !('options' in pool)) return false
  const { options } = pool
  if (typeof options !== 'object' || options === null || typeof Reflect.get(options, 'max') !== 'number') return false
  return ['idleCount', 'totalCount', 'waitingCount'].every((name) => typeof Reflect.get(pool, name) === 'number')
}
