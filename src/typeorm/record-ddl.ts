import type { QueryRunner } from 'typeorm'
import type { Change } from '../sql/alter'

/** A statement as the query runner takes it. */
interface Statement {
  readonly query: string
  readonly parameters: undefined
}

/** Runs the statements, or records them, as the query runner's mode says. */
export async function emit(queryRunner: QueryRunner, { up, down }: Change): Promise<void> {
  const recorder = queryRunner as unknown as { executeQueries(up: Statement[], down: Statement[]): Promise<void> }
  const statements = (list: readonly string[]): Statement[] => list.map((query) => ({ query, parameters: undefined }))
  // TypeORM runs what it recorded for `down` from the last to the first.
  await recorder.executeQueries(statements(up), statements(down).toReversed())
}
