import type { EntityMetadata, QueryRunner } from 'typeorm'
import { type InstalledGuards, installedGuards } from '../sql/catalog'
import { guardOf } from '../sql/guard'
import type { GuardSite } from '../sql/guard-plan'
import { tableDeclarations } from './registry'
import { requireBuildable } from './supported'

/** The guards of one entity's table. */
export interface EntityGuards extends Omit<GuardSite, 'touched'> {
  readonly metadata: EntityMetadata
}

/** All guards that a run of the schema builder has to do with. */
export interface FoundGuards {
  /** Of every entity that should have guards, or whose table has some. */
  readonly entities: readonly EntityGuards[]
  /** Of tables without an entity. */
  readonly strangers: readonly InstalledGuards[]
}

/**
 * Looks for the guards of these entities in the catalog.
 *
 * @param searchSchema where a table stands that names no schema
 * @throws UnsupportedDatabaseError if guards are wanted, on a server that cannot keep them
 */
export async function findGuards(
  queryRunner: QueryRunner,
  searchSchema: string,
  metadatas: readonly EntityMetadata[],
): Promise<FoundGuards> {
  const guards = new Map(metadatas.map((one) => [one, tableDeclarations(one).map(({ table }) => guardOf(table))]))
  const schemas = [...new Set(metadatas.map(({ schema }) => schema ?? searchSchema))]
  const { server, tables } = await installedGuards(
    async (sql, values) => (await queryRunner.query(sql, values)) as unknown[],
    schemas,
    [...guards.values()].flat(),
  )
  const isOf =
    ({ schema = searchSchema, tableName }: EntityMetadata) =>
    (one: InstalledGuards): boolean =>
      one.schema === schema && one.table === tableName
  const entities = metadatas.flatMap((metadata) => {
    const wanted = guards.get(metadata) ?? []
    const found = tables.find(isOf(metadata))
    if (wanted.length === 0 && !found) return []
    return [entityGuards(metadata, searchSchema, wanted, found)]
  })
  if (entities.some(({ wanted }) => wanted.length > 0)) requireBuildable(server)
  return { entities, strangers: tables.filter((one) => !metadatas.some((metadata) => isOf(metadata)(one))) }
}

function entityGuards(
  metadata: EntityMetadata,
  searchSchema: string,
  wanted: EntityGuards['wanted'],
  found: InstalledGuards | undefined,
): EntityGuards {
  const { schema: given = searchSchema, tableName: table } = metadata
  const installed = found ?? { schema: given, table, functions: [], triggers: [] }
  return { metadata, schema: given === searchSchema ? undefined : given, table, wanted, installed, searchSchema }
}
