import type { EntityMetadata, QueryRunner } from 'typeorm'
import { type InstalledKernel, type InstalledTriggers, installedTriggers } from '../sql/catalog'
import { guardsOf } from '../triggers/guard'
import type { TriggerSite } from '../triggers/trigger-plan'
import type { TriggerSet } from '../sql/trigger-set'
import { registry, rootOf, tableDeclarations, type TriggerWork } from '../registry/registry'
import { requireBuildable } from '../registry/supported'

/**
 * Says that the table of an entity needs triggers. Called by the door of a decorator, while TypeORM builds metadata.
 *
 * @param name tells it from others of the table; of the same name, the last one counts
 * @param make asked when all metadata is built, so that it may look at other entities
 */
export function registerTriggers(metadata: EntityMetadata, name: string, make: () => TriggerWork): void {
  const root = rootOf(metadata)
  const works = registry.triggers.get(root) ?? new Map<string, () => TriggerWork>()
  registry.triggers.set(root, works.set(name, make))
}

/** What was registered for the table of an entity. */
export function triggerWorks(metadata: EntityMetadata): TriggerWork[] {
  return [...(registry.triggers.get(rootOf(metadata))?.values() ?? [])].map((make) => make())
}

/** All triggers that the table of an entity needs: its guards, and what was registered. */
export function wantedSets(metadata: EntityMetadata): TriggerSet[] {
  return [
    ...tableDeclarations(metadata).flatMap(({ table }) => guardsOf(table)),
    ...triggerWorks(metadata).map(({ set }) => set),
  ]
}

/** The triggers of one entity's table. */
export interface EntityTriggers extends Omit<TriggerSite, 'touched'> {
  readonly metadata: EntityMetadata
}

/** All triggers of ours that a run of the schema builder has to do with. */
interface FoundTriggers {
  /** Of every entity that has a text or should have triggers, or whose table has some. */
  readonly entities: readonly EntityTriggers[]
  /** Of tables that no entity has: orphans. */
  readonly orphans: readonly InstalledTriggers[]
  readonly kernel: readonly InstalledKernel[]
}

/**
 * Looks for the triggers of these entities in the catalog.
 *
 * @param searchSchema where a table stands that names no schema
 * @throws UnsupportedDatabaseError if triggers are wanted, on a server that cannot keep them
 */
export async function findTriggers(
  queryRunner: QueryRunner,
  searchSchema: string,
  metadatas: readonly EntityMetadata[],
): Promise<FoundTriggers> {
  const sets = new Map(metadatas.map((one) => [one, wantedSets(one)]))
  const schemas = [...new Set(metadatas.map(({ schema }) => schema ?? searchSchema))]
  const { server, tables, kernel } = await installedTriggers(
    async (sql, values) => (await queryRunner.query(sql, values)) as unknown[],
    schemas,
    [...sets.values()].flat(),
  )
  const isOf =
    ({ schema = searchSchema, tableName }: EntityMetadata) =>
    (one: InstalledTriggers): boolean =>
      one.schema === schema && one.table === tableName
  const entities = metadatas.flatMap((metadata) => {
    const wanted = sets.get(metadata) ?? []
    const found = tables.find(isOf(metadata))
    if (wanted.length + tableDeclarations(metadata).length === 0 && !found) return []
    return [entityTriggers(metadata, searchSchema, wanted, found)]
  })
  if (entities.some(({ wanted }) => wanted.length > 0)) requireBuildable(server)
  return { entities, orphans: tables.filter((one) => !metadatas.some((metadata) => isOf(metadata)(one))), kernel }
}

function entityTriggers(
  metadata: EntityMetadata,
  searchSchema: string,
  wanted: EntityTriggers['wanted'],
  found: InstalledTriggers | undefined,
): EntityTriggers {
  const { schema: given = searchSchema, tableName: table } = metadata
  const installed = found ?? { schema: given, table, functions: [], triggers: [], tables: [], homes: {} }
  return { metadata, schema: given === searchSchema ? undefined : given, table, wanted, installed, searchSchema }
}
