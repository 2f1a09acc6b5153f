import type { EntityMetadata } from 'typeorm'
import { guardOf } from '../sql/guard'
import type { TriggerSet } from '../sql/trigger-set'
import { registry, rootOf, tableDeclarations, type TriggerWork } from './registry'

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
    ...tableDeclarations(metadata).map(({ table }) => guardOf(table)),
    ...triggerWorks(metadata).map(({ set }) => set),
  ]
}
