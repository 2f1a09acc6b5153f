import type { EntityManager, ReplicationMode } from 'typeorm'
import { dataSourceOf } from '../typeorm/registry'
import { PoolSession } from './pool-session'
import type { Session } from './session'
import { SharedSession } from './shared-session'

/**
 * Takes the manager's own connection, or will take one from the pool for the first statement.
 *
 * @param mode of a connection from the pool; `slave` is TypeORM's word for a replica
 */
export function openSession(manager: EntityManager, mode: ReplicationMode = 'master'): Session | Promise<Session> {
  const dataSource = dataSourceOf(manager)
  const given = manager.queryRunner
  return given ? SharedSession.open(given, dataSource) : new PoolSession(dataSource, mode)
}
