import type { DataSource } from 'typeorm'

/** What `migration:generate` would write, each list in the order to run. */
export interface Generated {
  readonly up: readonly string[]
  readonly down: readonly string[]
}

export async function generate(dataSource: DataSource): Promise<Generated> {
  const { upQueries, downQueries } = await dataSource.driver.createSchemaBuilder().log()
  return { up: upQueries.map(({ query }) => query), down: downQueries.map(({ query }) => query).toReversed() }
}

/** Runs statements as a migration does: in one transaction. */
export async function runAll(dataSource: DataSource, statements: readonly string[]): Promise<void> {
  await dataSource.transaction(async (manager) => {
    for (const statement of statements) await manager.query(statement)
  })
}

/** Generates, runs, and gives what was generated. */
export async function migrate(dataSource: DataSource): Promise<Generated> {
  const generated = await generate(dataSource)
  await runAll(dataSource, generated.up)
  return generated
}
