import type { DataSource } from 'typeorm'
import { expect } from 'vitest'

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

/** A comparison of entities and tables finds nothing to do. */
export async function nothingLeft(dataSource: DataSource): Promise<void> {
  expect((await generate(dataSource)).up).toEqual([])
}

/** Generates and runs; nothing is left then. */
export async function step(dataSource: DataSource): Promise<Generated> {
  const generated = await migrate(dataSource)
  await nothingLeft(dataSource)
  return generated
}

/** Reverts what was generated; nothing is left then for the declarations from before. */
export async function back(before: DataSource, { down }: Generated): Promise<void> {
  await runAll(before, down)
  await nothingLeft(before)
}
