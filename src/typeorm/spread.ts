import type { EntityMetadata } from 'typeorm'
import { type Finding, UnsupportedDatabaseError } from '../errors'
import type { Query, TableState } from '../sql/catalog'
import { type Spread, spreadOf } from '../sql/spread'
import { tableName } from '../sql/text-table'
import { type Declaration, tableNames, tableNumbers } from './registry'

/** How the rows of a table are spread, and what contradicts the declaration there. */
export interface SpreadState {
  readonly distributed: boolean
  readonly findings: readonly Finding[]
}

/**
 * @throws UnsupportedDatabaseError for a table of which nobody can promise that no text is there twice
 */
export async function spreadState(
  { table, metadata }: Declaration,
  state: TableState,
  query: Query,
): Promise<SpreadState> {
  const spread = await spreadOf(query, tableName(table), state.spread)
  const { distribution } = spread
  if (distribution?.kind === 'reference') {
    throw new UnsupportedDatabaseError(
      `Table "${table.table}" is a reference table of Citus. Its copies drift apart when rows are inserted and deleted at ` +
        `once, so no text is unique there. Distribute it, or keep it on the coordinator.`,
    )
  }
  const ofTable = [...notByKey(table, spread), ...unsupported(metadata, spread)].map(differently(table.table))
  const ofPartitions = spread.unguarded.map((name): Finding => ({
    kind: 'disabled',
    object: 'guard',
    name: table.guard,
    detail: `on the partition "${name}"`,
  }))
  return { distributed: distribution !== undefined, findings: [...ofTable, ...ofPartitions] }
}

const differently =
  (name: string) =>
  (detail: string): Finding => ({ kind: 'different', object: 'table', name, detail })

/**
 * What contradicts the names and numbers of a table, for operations that use no text of it.
 *
 * @param relation the table's name as SQL
 */
export async function spreadDrift(
  metadata: EntityMetadata,
  { relation, state }: { readonly relation: string; readonly state: TableState },
  query: Query,
): Promise<readonly Finding[]> {
  return unsupported(metadata, await spreadOf(query, relation, state.spread)).map(differently(metadata.tableName))
}

/** Rows of one text, and of one hash, must be in one place, or no index keeps them apart. */
function notByKey(table: Declaration['table'], { distribution, partitionedBy }: Spread): string[] {
  const by = distribution?.column === undefined ? partitionedBy : [distribution.column]
  return by.flatMap((column) => {
    if (table.scope.includes(column) || (column === table.hash && table.spread !== undefined)) return []
    return column === table.hash
      ? [
          `it is spread by "${column}": declare spread: 'hash', otherwise its guard would move rows away from where their hash belongs`,
        ]
      : [`it is spread by "${column}", which is not in the scope of "${table.name}"`]
  })
}

/** What works on a table in one place only. */
function unsupported(metadata: EntityMetadata, { distribution, isCoordinator, partitionedBy }: Spread): string[] {
  if (!distribution && partitionedBy.length === 0) return []
  const names = tableNames(metadata).map(
    ({ name }) => `its names ("${name}") are kept in one table for all of its rows`,
  )
  const numbers = distribution
    ? tableNumbers(metadata).map(({ name }) => `its numbers ("${name}") are made by triggers that know one table`)
    : []
  const small = metadata.columns.filter(
    ({ isGenerated, generationStrategy, type }) =>
      isGenerated && generationStrategy !== 'uuid' && !['bigint', 'int8'].includes(String(type)),
  )
  const ids = isCoordinator
    ? []
    : small.map(({ databaseName }) => `"${databaseName}" counts up, and workers share only counters of type bigint`)
  return [...names, ...numbers, ...ids]
}
