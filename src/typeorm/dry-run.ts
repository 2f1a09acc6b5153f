import type { QueryRunner, Table } from 'typeorm'

/** The part of TypeORM's schema builder that shows what the database holds. */
interface Builder {
  readonly queryRunner: QueryRunner
}

interface View {
  clone(): View
}

/** Protected parts of the query runner: its mode, and its picture of the database, on which the builder works. */
interface Recorder {
  readonly sqlMemoryMode: boolean
  loadedTables: Table[]
  loadedViews: View[]
}

export const recorderOf = ({ queryRunner }: Builder): Recorder => queryRunner as unknown as Recorder

/** TypeORM 1.1 has the same lists on the builder too; 0.3 looks them up at the query runner. */
function show(builder: Builder, tables: Table[], views: View[]): void {
  Object.assign(recorderOf(builder), { loadedTables: tables, loadedViews: views })
  if ('tables' in builder) Object.assign(builder, { tables, views })
}

/** What TypeORM would do, found by letting it do so on copies while the query runner only records. */
export async function dryRun(
  builder: Builder,
  synchronize: () => Promise<void>,
): Promise<readonly { readonly query: string }[]> {
  const { queryRunner } = builder
  const { sqlMemoryMode: recording, loadedTables, loadedViews } = recorderOf(builder)
  show(
    builder,
    loadedTables.map((table) => table.clone()),
    loadedViews.map((view) => view.clone()),
  )
  queryRunner.enableSqlMemory()
  try {
    await synchronize()
    return [...queryRunner.getMemorySql().upQueries]
  } finally {
    show(builder, loadedTables, loadedViews)
    queryRunner.clearSqlMemory()
    if (!recording) queryRunner.disableSqlMemory()
  }
}
