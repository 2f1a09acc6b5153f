import type { EntityMetadata } from 'typeorm'
import { SchemaDriftError } from '../errors'
import { type Query, tableOid, tableState } from '../sql/catalog'
import { qualified } from '../sql/identifier'
import { workDrift } from './drift'
import { hasTenants } from './readiness'
import { rootOf } from './registry'
import { foreignSchema } from './resolve-declaration'
import { spreadDrift } from './spread'
import { requireServer } from './supported'
import { triggerWorks } from './trigger-sets'

/** Tables that were found ready, by entity; by OID where tenants are told by search_path. */
const ready = new WeakMap<EntityMetadata, Set<string>>()

/**
 * Checks once per DataSource that the triggers registered for an entity's table exist, with their indexes, for
 * operations that use no unique text of it. A failure is not remembered, so that a migration corrects it without a
 * restart.
 *
 * @throws SchemaDriftError, UnsupportedDatabaseError
 */
export async function ensureTriggers(metadata: EntityMetadata, query: Query): Promise<void> {
  const root = rootOf(metadata)
  const relation = qualified(foreignSchema(root), root.tableName)
  const tenant = hasTenants(root, foreignSchema(root)) ? await tableOid(query, relation) : relation
  const known = ready.get(root) ?? new Set<string>()
  if (tenant !== undefined && known.has(tenant)) return
  const works = triggerWorks(root)
  const sets = works.map(({ set }) => set)
  const { server, table } = await tableState(query, relation, sets)
  requireServer(server)
  const findings = table
    ? [...workDrift(works, table), ...(await spreadDrift(root, { relation, state: table }, query))]
    : [{ kind: 'missing', object: 'table', name: root.tableName } as const]
  if (findings.length > 0) throw new SchemaDriftError(root.tableName, findings)
  ready.set(root, known.add(tenant ?? relation))
}
