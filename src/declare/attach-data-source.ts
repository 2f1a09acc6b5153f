import type { DataSource, EntityMetadata } from 'typeorm'
import { DeclarationError } from '../errors'
import { explainErrors } from '../typeorm/explain-errors'
import { endWaiting } from '../registry/connections'
import { hearPools } from '../registry/losses'
import { noteTransactions } from '../registry/open-transactions'
import { rewriteQueries } from '../typeorm/rewrite-conditions'
import { quote } from '../sql/identifier'
import { hookSchemaBuilder } from '../schema/schema-hook'
import { subscribe } from '../typeorm/subscriber'
import { requireInternals, requirePostgres } from '../registry/supported'

/** The parts of TypeORM's IndexMetadata that are used here; the class is not exported with its fields. */
export interface IndexMetadata {
  readonly entityMetadata: EntityMetadata
  readonly embeddedMetadata?: unknown
  readonly target?: unknown
  givenName?: string
  where?: string
  synchronize?: boolean
}

/**
 * Prepares a DataSource for declarations, once per `initialize()`: by then TypeORM has made the list of subscribers and
 * connected, but built no schema.
 *
 * @param what declares it, for an error
 * @throws UnsupportedDatabaseError
 */
export function attachDataSource(dataSource: DataSource, what: string): void {
  requirePostgres(dataSource, what)
  requireInternals(dataSource)
  hookSchemaBuilder(dataSource)
  subscribe(dataSource)
  rewriteQueries(dataSource)
  explainErrors(dataSource)
  hearPools(dataSource)
  endWaiting(dataSource)
  noteTransactions(dataSource.manager)
}

/** What one class of a table declared. */
interface Declared {
  readonly metadata: EntityMetadata
  readonly name: string
  readonly target: unknown
}

/** TypeORM would make the index twice, and one of the two would lack its options. */
export function requireOneClass(
  decorator: string,
  { metadata, name, target }: Declared,
  other: Pick<IndexMetadata, 'target'>,
): void {
  if (other.target === target) return
  throw new DeclarationError(
    `${decorator} on ${metadata.name}.${name}: two classes of one table declare it, ${nameOf(target)} and ` +
      `${nameOf(other.target)}. Declare it on one of them (what children share belongs on their parent), or give them two names.`,
  )
}

const nameOf = (target: unknown): string => (typeof target === 'function' ? target.name : String(target))

/**
 * The `columns` of an index over a property, for the rows that have a value there. A naming strategy may change the name
 * of the column. Not an arrow function: TypeORM calls it as a method of its IndexMetadata.
 */
export const whereNotNull = (property: string): (() => string[]) =>
  function columns(this: IndexMetadata): string[] {
    const column = this.entityMetadata.columns.find(({ propertyName }) => propertyName === property)
    this.where = `${quote(column?.databaseName ?? '')} IS NOT NULL`
    return [property]
  }
