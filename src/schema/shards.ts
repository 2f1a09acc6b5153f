import type { EntityMetadata, QueryRunner } from 'typeorm'
import { SchemaDriftError } from '../errors'
import { entityTable } from '../registry/declarations'
import { type Change, dropsColumn, renameColumns } from '../sql/alter'
import type { TableState } from '../sql/catalog'
import { type Distribution, outOfShards, refuseDistributed, type Spread, spreadOf } from '../sql/spread'
import { tableName } from '../sql/text-table'
import type { SetPlan } from '../triggers/plan'
import { refuseSpread } from './readiness'
import { queryOf } from './table'

/** A table, and what its triggers need. */
interface PlannedTable extends SetPlan {
  readonly entity: { readonly metadata: EntityMetadata; readonly state: TableState | null }
}

/** What is about to run, as it was recorded. */
export interface Planned {
  readonly up: readonly string[]
  readonly down: readonly string[]
}

/**
 * Refuses, before the first statement, what a migration cannot do with rows in shards. The statements that number rows
 * compare the table of each row with the declared one, and a shard is another table: in one shard they would run, find
 * no duplicates, and leave a text stored twice.
 *
 * @returns statements that refuse the same when they run, because the table may be distributed by then
 * @throws SchemaDriftError
 */
export async function refuseInShards(
  queryRunner: QueryRunner,
  tables: readonly PlannedTable[],
  planned: Planned,
): Promise<Change> {
  const [up, down]: [string[], string[]] = [[], []]
  for (const table of tables) {
    const { metadata, state } = table.entity
    if (!state?.spread.citus) continue
    const rows = entityTable(metadata)
    const works = worksOn(tableName(rows), planned)
    requireInPlace(table, planned, works.up, await spreadOf(queryOf(queryRunner), tableName(rows), state.spread))
    if (works.up) up.push(refuseDistributed(rows))
    if (works.down) down.push(refuseDistributed(rows))
  }
  return { up, down }
}

/** @param works on the rows */
function requireInPlace(
  { entity: { metadata }, before, after }: PlannedTable,
  { up }: Planned,
  works: boolean,
  { distribution, ...spread }: Spread,
): void {
  if (!distribution) return
  const relation = tableName(entityTable(metadata))
  const column = renamed(metadata, distribution.column, up)
  // Citus refuses it, but only after the triggers are gone.
  const drops = column !== undefined && up.some((sql) => dropsColumn(sql, relation, column))
  if (drops) throw inShards(metadata.tableName, relation)
  if (works || before.up.length + after.up.length > 0) {
    refuseSpread(metadata, { distribution: { ...distribution, column }, ...spread })
  }
  if (works) throw inShards(metadata.tableName, relation, distribution)
}

/** Whether our statements read or write the rows of a table, on the way and on the way back. */
function worksOn(relation: string, { up, down }: Planned): { readonly up: boolean; readonly down: boolean } {
  const isWork = (sql: string): boolean =>
    sql.includes('DO $') && ['FROM', 'UPDATE'].some((word) => sql.includes(`${word} ${relation} `))
  return { up: up.some(isWork), down: down.some(isWork) }
}

/** The name that a column is about to get. Citus follows it. */
function renamed(metadata: EntityMetadata, from: string | undefined, up: readonly string[]): string | undefined {
  if (from === undefined) return undefined
  const rows = entityTable(metadata)
  const to = metadata.columns.find(({ databaseName }) =>
    up.includes(renameColumns(rows, new Map([[from, databaseName]])).up.join()),
  )
  return to?.databaseName ?? from
}

/** @param distribution undefined: the table loses the column that it is distributed by */
const inShards = (table: string, relation: string, distribution?: Distribution): SchemaDriftError =>
  new SchemaDriftError(
    table,
    [{ kind: 'different', object: 'table', name: table, detail: 'Citus keeps its rows in shards' }],
    `A migration cannot change these rows there. ${outOfShards(relation, distribution)} (docs/scale.md).`,
  )
