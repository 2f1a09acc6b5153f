import type { EntityMetadata, QueryRunner } from 'typeorm'
import { distribute, spreadTable } from '../sql/spread'
import { emit } from './record-ddl'
import { type ColumnMetadata, type Declaration, tableDeclarations } from './registry'

/** The declaration by whose hash a table is spread. */
export const spreadDeclaration = (metadata: EntityMetadata): Declaration | undefined =>
  tableDeclarations(metadata).find(({ table }) => table.spread !== undefined)

interface StatementRecorder {
  executeQueries(up: unknown, down: unknown): Promise<void>
}

/**
 * Runs TypeORM's comparison with the hash in the primary key of every table that is spread by it: in the database a key
 * must hold it, and for an entity its own columns are enough. A new table is made with its partitions.
 */
export async function withSpreadKeys(
  queryRunner: QueryRunner,
  metadatas: readonly EntityMetadata[],
  work: () => Promise<void>,
): Promise<void> {
  const spread = metadatas.flatMap((metadata) => spreadDeclaration(metadata) ?? [])
  if (spread.length === 0) {
    await work()
    return
  }
  const hashes = spread.flatMap(({ hidden: [hash] }) => hash ?? []) as (ColumnMetadata & { isPrimary: boolean })[]
  const recorder = queryRunner as unknown as StatementRecorder
  const executeQueries = recorder.executeQueries.bind(recorder)
  recorder.executeQueries = async (up, down) => {
    for (const one of [up].flat() as { query: string }[]) {
      for (const { table } of spread) one.query = spreadTable(table, one.query)
    }
    await executeQueries(up, down)
  }
  for (const hash of hashes) hash.isPrimary = true
  try {
    await work()
  } finally {
    for (const hash of hashes) hash.isPrimary = false
    recorder.executeQueries = executeQueries
  }
}

/** Once its index, check and triggers are there, a new table goes to the nodes of its cluster. */
export async function distributeNew(queryRunner: QueryRunner, metadata: EntityMetadata): Promise<void> {
  const declaration = spreadDeclaration(metadata)
  if (declaration?.table.spread !== 'citus') return
  await emit(queryRunner, { up: [distribute(declaration.table)], down: [] })
}
