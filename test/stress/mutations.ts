import type { DataSource } from 'typeorm'
import { guardOf } from '../../src/sql/guard'
import { type Mutation, mutations } from '../support/mutations'
import type { Subject } from './subject'

export const MUTATION_NAMES: readonly string[] = mutations.map(({ name }) => name)

/** @throws if there is no such mutation; the message lists them */
export function mutationOf(name: string): Mutation {
  const found = mutations.find((mutation) => mutation.name === name)
  if (!found) throw new Error(`There is no mutation "${name}". One of:\n${MUTATION_NAMES.join('\n')}`)
  return found
}

/** Puts a guard with a part taken out where the whole one stood. */
export async function install(dataSource: DataSource, subjects: readonly Subject[], name: string): Promise<void> {
  const { guard } = mutationOf(name)
  for (const { table } of subjects) {
    for (const sql of [...guardOf(table).drop, ...guard(table)]) await dataSource.query(sql)
  }
}
