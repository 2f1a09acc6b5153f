import type { DataSource } from 'typeorm'
import { guardOf } from '../../src/sql/guard'
import { type Mutation, mutations, softMutations } from '../support/mutations'
import { isSoft, type Subject } from './subject'

const ALL: readonly Mutation[] = [...mutations, ...softMutations]

export const MUTATION_NAMES: readonly string[] = ALL.map(({ name }) => name)

/** @throws if there is no such mutation; the message lists them */
export function mutationOf(name: string): Mutation {
  const found = ALL.find((mutation) => mutation.name === name)
  if (!found) throw new Error(`There is no mutation "${name}". One of:\n${MUTATION_NAMES.join('\n')}`)
  return found
}

/** Puts a guard with a part taken out where the whole one stood. */
export async function install(dataSource: DataSource, subjects: readonly Subject[], name: string): Promise<void> {
  const mutation = mutationOf(name)
  const { guard } = mutation
  // A guard that knows of soft deletes says some things in other words.
  const ofSoft = softMutations.includes(mutation)
  for (const { table } of subjects.filter((subject) => isSoft(subject) === ofSoft)) {
    for (const sql of [...guardOf(table).drop, ...guard(table)]) await dataSource.query(sql)
  }
}
