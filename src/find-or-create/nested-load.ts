import type { EntityManager } from 'typeorm'
import type { LoadOptions } from '../rows/call-options'
import type { EntityText } from '../rows/entity-text'
import { finish, relationsToLoad } from '../rows/load-relations'
import { type NewNode, requireRow } from './nested-plan'
import { openSession } from '../connection/open-session'

interface Loading {
  readonly manager: EntityManager
  readonly entityText: EntityText
  readonly load: LoadOptions
}

/**
 * Loads what `find` would load onto the entities of stored rows. Rows that were found get their stored relations,
 * whatever the values brought for them.
 */
export async function loadOnto({ manager, entityText, load }: Loading, nodes: readonly NewNode[]): Promise<void> {
  const found = nodes.filter(({ row }) => !row?.created)
  const paths = found.flatMap(({ brought }) => brought.map(({ relation }) => relation.propertyPath))
  const session = await openSession(manager)
  try {
    for (const [group, options] of [
      [nodes.filter(({ row }) => row?.created), load],
      [found, load.relations ? load : { ...load, relations: paths }],
    ] as const) {
      const rows = [...new Map(group.map((node) => [requireRow(node).entity, requireRow(node)])).values()]
      if (rows.length > 0) await finish(session, entityText, rows, relationsToLoad(entityText, options))
    }
  } finally {
    await session.close()
  }
}
