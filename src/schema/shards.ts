import type { EntityMetadata, QueryRunner } from 'typeorm'
import { SchemaDriftError } from '../errors'
import { entityTable } from '../registry/declarations'
import { type Change, dropsColumn, renameColumns } from '../sql/alter'
import type { Query } from '../sql/catalog'
import { type Distribution, distributionOf, outOfShards, type Spread, spreadOf } from '../sql/spread'
import { isCalledFor, refuse } from '../sql/library'
import { tableName } from '../sql/text-table'
import { refuseSpread, tablesBeside } from './readiness'
import { queryOf, type TablePlan } from './table'

/** The recorded statements that will run. */
export interface Planned {
  readonly up: readonly string[]
  readonly down: readonly string[]
}

/**
 * Refuses, before the first statement, changes that a migration cannot make to rows in shards. The statements that
 * number rows compare the table of each row with the declared table, and a shard is another table. In a shard they
 * would run, find no duplicates, and leave a text stored twice.
 *
 * @returns statements that refuse the same changes when they run, because the table may be distributed by then
 * @throws SchemaDriftError
 */
export async function refuseInShards(
  queryRunner: QueryRunner,
  plans: readonly TablePlan[],
  planned: Planned,
): Promise<Change> {
  const [up, down]: [string[], string[]] = [[], []]
  for (const plan of plans) {
    const { metadata, state } = plan
    if (!state?.spread.citus) continue
    const works = worksOn(plan, planned)
    const spread = await spreadOf(queryOf(queryRunner), tableName(plan), state.spread, tablesBeside(metadata))
    requireInPlace(plan, planned, works.up, spread)
    if (works.up) up.push(refuse(plan, 'shards'))
    if (works.down) down.push(refuse(plan, 'shards'))
  }
  return { up, down }
}

/**
 * Refuses to work on the rows of a table in shards, for a migration that was generated without Citus.
 *
 * @throws SchemaDriftError
 */
export async function requireOutOfShards(query: Query, metadata: EntityMetadata): Promise<void> {
  const relation = tableName(entityTable(metadata))
  const distribution = await distributionOf(query, relation)
  if (distribution) throw inShards(metadata, relation, distribution)
}

/** @param works whether our statements read or write the rows */
function requireInPlace(plan: TablePlan, { up }: Planned, works: boolean, { distribution, ...spread }: Spread): void {
  if (!distribution) return
  const { metadata, before, after } = plan
  const relation = tableName(plan)
  // Citus follows the renaming of a column.
  const follower = metadata.columns.find(
    ({ databaseName }) =>
      distribution.column !== undefined &&
      up.includes(renameColumns(plan, new Map([[distribution.column, databaseName]])).up.join()),
  )
  const column = follower?.databaseName ?? distribution.column
  // Citus refuses to drop the column, but only after the triggers are dropped.
  const drops = column !== undefined && up.some((sql) => dropsColumn(sql, relation, column))
  if (drops) throw inShards(metadata, relation)
  const later = { ...distribution, column }
  if (works || before.up.length + after.up.length > 0) refuseSpread(metadata, { distribution: later, ...spread })
  if (works) throw inShards(metadata, relation, later)
}

/** Returns whether our statements read or write the rows of a table, or change its numbers, in `up` and in `down`. */
function worksOn(plan: TablePlan, planned: Planned): { readonly up: boolean; readonly down: boolean } {
  const { before, after } = plan
  // The shards have triggers of their own for the numbers that the table has or gets.
  const isWork = (sql: string): boolean => /_(?:number|fill|refuse_\w+)_v1"\(/.test(sql) && isCalledFor(plan, sql)
  const up = [...before.up, ...planned.up, ...after.up]
  const down = [...before.down, ...planned.down, ...after.down]
  return { up: up.some(isWork), down: down.some(isWork) }
}

/** @param distribution undefined if the migration drops the column by which the table is distributed */
function inShards(metadata: EntityMetadata, relation: string, distribution?: Distribution): SchemaDriftError {
  const { tableName: name } = metadata
  return new SchemaDriftError(
    name,
    [{ kind: 'different', object: 'table', name, detail: 'Citus keeps its rows in shards' }],
    `A migration cannot change these rows there. ${outOfShards(relation, distribution)} (docs/scale.md).`,
  )
}
