import type { QueryRunner } from 'typeorm'
import type { Change } from '../sql/alter'
import { missingInternal } from './supported'

/** A statement as the query runner takes it. */
interface Statement {
  readonly query: string
  readonly parameters: undefined
}

/** Runs the statements, or records them, as the query runner's mode says. */
export async function emit(queryRunner: QueryRunner, { up, down }: Change): Promise<void> {
  const { executeQueries } = queryRunner as unknown as {
    executeQueries?: (up: Statement[], down: Statement[]) => Promise<void>
  }
  if (typeof executeQueries !== 'function') throw missingInternal('PostgresQueryRunner.executeQueries')
  const statements = (list: readonly string[]): Statement[] => list.map((query) => ({ query, parameters: undefined }))
  // TypeORM runs what it recorded for `down` from the last to the first.
  await executeQueries.call(queryRunner, statements(up), statements(down).toReversed())
}
