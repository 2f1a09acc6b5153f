import type { DataSource } from 'typeorm'
import { dropPart } from '../../src/sql/library'
import { guardOf } from '../../src/triggers/guard'
import { type Mutation, mutations, softMutations } from '../support/mutations'
import { type Answer, type Arrival, Coalescer } from '../../src/calls/coalescer'
import type { Action } from './action'
import { ACTIONS } from './actions'
import { crowdActions } from './actions/crowd'
import { isSoft, type Subject } from './subject'

const ALL: readonly Mutation[] = [...mutations, ...softMutations]

/** A call is answered by what was sent before it began. */
const JOINING = 'a call joins a look-up that is under way'

export const MUTATION_NAMES: readonly string[] = [...ALL.map(({ name }) => name), JOINING]

/** What the clients do: all they can, but for a fault that shows in one place only. */
export const actionsToFind = (mutation: string | undefined): readonly Action[] =>
  mutation === JOINING ? crowdActions : ACTIONS

/** @throws if there is no such mutation; the message lists them */
export function requireMutation(name: string): string {
  if (MUTATION_NAMES.includes(name)) return name
  throw new Error(`There is no mutation "${name}". One of:\n${MUTATION_NAMES.join('\n')}`)
}

/**
 * Puts a guard with a part taken out where the whole one stood, or changes how calls share look-ups.
 *
 * @returns takes back what was changed in this process
 */
export async function install(dataSource: DataSource, subjects: readonly Subject[], name: string): Promise<() => void> {
  const mutation = ALL.find((one) => one.name === requireMutation(name))
  if (!mutation) return joinLookUps()
  await installGuard(subjects, mutation, dataSource)
  return () => {}
}

async function installGuard(subjects: readonly Subject[], mutation: Mutation, dataSource: DataSource): Promise<void> {
  const { guard } = mutation
  // A guard that knows of soft deletes says some things in other words.
  const ofSoft = softMutations.includes(mutation)
  for (const { table } of subjects.filter((subject) => isSoft(subject) === ofSoft)) {
    // The library has the part that is taken out. The functions of rows depend on it.
    for (const sql of [guardOf(table).detach, `${dropPart(table.schema, 'texts')} CASCADE`, ...guard(table)])
      await dataSource.query(sql)
  }
}

/** Where another call waits for the text already, its answer is taken, whenever that was asked for. */
function joinLookUps(): () => void {
  const ordinary = Object.getOwnPropertyDescriptor(Coalescer.prototype, 'enter') ?? {}
  const enter = ordinary.value as (this: Coalescer, arrival: Arrival) => Promise<Answer> | undefined
  const asked = new WeakMap<Coalescer, Map<string, Promise<Answer>>>()
  Coalescer.prototype.enter = function join(this: Coalescer, arrival: Arrival): Promise<Answer> | undefined {
    const underWay = asked.get(this) ?? new Map<string, Promise<Answer>>()
    asked.set(this, underWay)
    const { identity } = arrival.row
    const known = underWay.get(identity)
    if (known) return joined(known, async () => await enter.call(this, arrival))
    const own = enter.call(this, arrival)
    if (own) underWay.set(identity, own)
    void own?.catch(() => {}).finally(() => underWay.delete(identity))
    return own
  }
  return () => {
    Object.defineProperty(Coalescer.prototype, 'enter', ordinary)
  }
}

async function joined(known: Promise<Answer>, otherwise: () => Promise<Answer | undefined>): Promise<Answer> {
  const answer = await known.catch(() => undefined)
  return answer?.stored ? answer : ((await otherwise()) as Answer)
}
