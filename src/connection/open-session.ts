import type { EntityManager, ReplicationMode } from 'typeorm'
import { dataSourceOf } from '../registry/registry'
import { PoolSession } from './pool-session'
import type { Session } from './session'
import { SharedSession } from './shared-session'

/**
 * Uses the manager's own connection, or takes one from the pool when the first statement is sent.
 *
 * @param mode of a connection from the pool; `slave` is TypeORM's word for a replica
 */
export function openSession(manager: EntityManager, mode: ReplicationMode = 'master'): Session | Promise<Session> {
  const dataSource = dataSourceOf(manager)
  const given = manager.queryRunner
  return given ? SharedSession.open(given, dataSource) : new PoolSession(dataSource, mode)
}
