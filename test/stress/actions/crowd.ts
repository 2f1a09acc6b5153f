import { findOneByText, findOrCreate } from '../../../src'
import type { Action, Writer } from '../action'
import { holdsKey, inputOf, type Key, severalKeys, type Subject } from '../subject'
import { take, throwFirst, verify } from './find-or-create'

const CALLERS = 32
/** One after the other, of each. */
const CALLS = 3
const TEXTS = 6

/** So many at once that they share look-ups, while rows go: what was gone before a call began, it must not get. */
export const crowdActions: readonly Action[] = [
  {
    name: 'findOrCreate, a crowd',
    weight: 1,
    run: async (writer, subject) => {
      const keys = severalKeys(subject, writer.random, TEXTS)
      const [first] = keys
      if (!first) return
      if (writer.inTransaction) {
        await ask(writer, subject, first, new Set())
        return
      }
      const gone = new Set<number>()
      let left = CALLERS
      const callers = Array.from({ length: CALLERS }, async () => {
        for (let call = 0; call < CALLS; call += 1) await ask(writer, subject, writer.random.pick(keys), gone)
      })
      const ended = callers.map(async (caller) => await caller.finally(() => (left -= 1)))
      const removed = remove(writer, subject, { keys, gone, isOver: () => left === 0 })
      const results = await Promise.allSettled([...ended, removed])
      throwFirst(results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : [])))
    },
  },
]

/** @param gone grows, by the identities of rows whose deletion is committed */
async function ask(writer: Writer, subject: Subject, key: Key, gone: ReadonlySet<number>): Promise<void> {
  const { manager, random, journal } = writer
  const before = new Set(gone)
  const input = inputOf(subject, key, random)
  let id: number | undefined
  if (random.chance(0.3)) {
    const found = await findOneByText(manager, subject.entity, input)
    if (found) verify(writer, subject, key, found)
    id = found?.id
  } else {
    const result = await findOrCreate(manager, subject.entity, input)
    take(writer, subject, key, result)
    ;({ id } = result.entity)
  }
  if (id === undefined) return
  if (before.has(id) && !journal.troubled) journal.violate(`a caller got row ${id}, which was deleted before it called`)
}

interface Removing {
  readonly keys: readonly Key[]
  readonly gone: Set<number>
  readonly isOver: () => boolean
}

async function remove(writer: Writer, subject: Subject, { keys, gone, isOver }: Removing): Promise<void> {
  while (!isOver()) {
    const key = writer.random.pick(keys)
    const { rows } = await writer.sql(`DELETE FROM ${subject.relation} WHERE ${holdsKey(subject, key)} RETURNING id`)
    for (const { id } of rows) gone.add(Number(id))
    writer.journal.add('rows deleted under a crowd', rows.length)
    // While what the crowd has asked before is under way.
    if (rows.length > 0) await ask(writer, subject, key, gone)
  }
}
