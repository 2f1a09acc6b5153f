import { findOrCreateStream } from '../../../src/stream'
import type { Action, Writer } from '../action'
import { dataSourceOf } from '../../../src/registry/registry'
import { inputOf, type Key, severalKeys, type Subject } from '../subject'
import { take, throwFirst } from './find-or-create'

/** Windows of a few rows, so that several are at the server; texts come again within them and across. */
export const streamActions: readonly Action[] = [
  {
    name: 'findOrCreateStream',
    weight: 3,
    run: async (writer, subject) => {
      const keys = keysOf(writer, subject)
      const results = await taken(writer, subject, { keys, most: keys.length })
      if (results !== keys.length && !writer.inTransaction) writer.journal.violate('findOrCreateStream left a gap')
    },
  },
  {
    name: 'findOrCreateStream that is ended early',
    weight: 2,
    run: async (writer, subject) => {
      const keys = keysOf(writer, subject)
      await taken(writer, subject, { keys, most: 1 + writer.random.int(keys.length) })
    },
  },
  {
    name: 'findOrCreateStream that is aborted',
    weight: 2,
    run: async (writer, subject) => {
      const controller = new AbortController()
      const keys = keysOf(writer, subject)
      const abortAt = writer.random.int(keys.length)
      try {
        const { signal } = controller
        const onResult = (count: number): void => {
          if (count > abortAt) controller.abort()
        }
        await taken(writer, subject, { keys, most: keys.length, signal, onResult })
      } catch (error) {
        if (error !== controller.signal.reason) throw error
      }
    },
  },
]

function keysOf({ random }: Writer, subject: Subject): Key[] {
  const keys = severalKeys(subject, random, 8)
  return [...keys, ...keys.filter(() => random.chance(0.4)), ...severalKeys(subject, random, 4)]
}

interface Run {
  readonly keys: readonly Key[]
  /** Results after which the loop ends. */
  readonly most: number
  readonly signal?: AbortSignal
  readonly onResult?: (count: number) => void
}

/** Nothing in a transaction: a stream has connections of its own, and would wait for the locks of that one. */
async function taken(writer: Writer, subject: Subject, { keys, most, signal, onResult }: Run): Promise<number> {
  if (writer.inTransaction) return 0
  const { random } = writer
  const inputs = keys.map((key) => inputOf(subject, key, random))
  const options = { window: 1 + random.int(4), signal }
  const errors: unknown[] = []
  let count = 0
  for await (const result of findOrCreateStream(dataSourceOf(writer.manager), subject.entity, inputs, options)) {
    const key = keys[count]
    count += 1
    if (!key) writer.journal.violate('findOrCreateStream gave more results than it got inputs')
    else if ('error' in result) errors.push(result.error)
    else take(writer, subject, key, result)
    onResult?.(count)
    if (count === most) break
  }
  throwFirst(errors)
  return count
}
