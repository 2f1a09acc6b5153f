import type { DataSource } from 'typeorm'
import { expect } from 'vitest'
import { generate, type Generated, migrate, runAll } from './generated'

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
