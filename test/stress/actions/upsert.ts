import { findOneByText, type FindOrCreateResult, upsertByText } from '../../../src'
import type { Action, Writer } from '../action'
import type { StressEntity } from '../entities'
import { anyKey, inputOf, type Key, severalKeys, type Subject } from '../subject'
import { take, throwFirst } from './find-or-create'

/** The caller must have got the row of its own text, with what it wrote there. */
export const upsertActions: readonly Action[] = [
  {
    name: 'upsertByText',
    weight: 5,
    run: async (writer, subject) => {
      const { manager, random } = writer
      const key = anyKey(subject, random)
      const values = Object.assign(inputOf(subject, key, random), { note: noteOf(writer) })
      takeUpsert(writer, subject, { key, note: values.note }, await upsertByText(manager, subject.entity, values))
      await verifyStored(writer, subject, key, values.note)
    },
  },
  {
    name: 'upsertByText, many',
    weight: 4,
    run: async (writer, subject) => {
      const keys = severalKeys(subject, writer.random, 12)
      await upsertMany(writer, subject, [...keys, ...keys.filter(() => writer.random.chance(0.2))])
    },
  },
  {
    name: 'upsertByText, two in parallel',
    weight: 2,
    run: async (writer, subject) => {
      const batches = [1, 2].map(() => severalKeys(subject, writer.random, 6))
      const results = await Promise.allSettled(batches.map(async (keys) => await upsertMany(writer, subject, keys)))
      throwFirst(results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : [])))
    },
  },
  {
    name: 'upsertByText, unless nothing changes',
    weight: 2,
    run: async (writer, subject) => {
      const { manager, random } = writer
      const key = anyKey(subject, random)
      const values = Object.assign(inputOf(subject, key, random), { note: 'always the same' })
      const options = { skipUpdateIfNoValuesChanged: true }
      takeUpsert(
        writer,
        subject,
        { key, note: values.note },
        await upsertByText(manager, subject.entity, values, options),
      )
      await verifyStored(writer, subject, key, values.note)
    },
  },
]

/** No other call writes the same. */
const noteOf = ({ client, random }: Writer): string => `of ${client}, ${random.int(2 ** 30)}`

async function upsertMany(writer: Writer, subject: Subject, keys: readonly Key[]): Promise<void> {
  const { manager, random, journal } = writer
  const note = noteOf(writer)
  const rows = keys.map((key) => Object.assign(inputOf(subject, key, random), { note }))
  const results = await upsertByText(manager, subject.entity, rows, { update: ['note'] })
  if (results.length !== keys.length) journal.violate('upsertByText is not aligned with its rows')
  const errors: unknown[] = []
  for (const [index, key] of keys.entries()) {
    const result = results[index]
    if (!result) journal.violate('upsertByText left a gap')
    else if ('error' in result) errors.push(result.error)
    else takeUpsert(writer, subject, { key, note }, result)
  }
  throwFirst(errors)
}

function takeUpsert(
  writer: Writer,
  subject: Subject,
  { key, note }: { readonly key: Key; readonly note: string },
  result: FindOrCreateResult<StressEntity>,
): void {
  const { entity } = result
  const { journal } = writer
  take(writer, subject, key, result)
  // What a trigger of a user's own makes of the note is its business.
  if (entity.note === note || journal.troubled) return
  journal.surprise(`an upsert wrote "${note}" and got row ${entity.id} with "${entity.note}"`)
}

/** In a transaction nobody else can have changed or deleted the row until it ends. */
async function verifyStored(writer: Writer, subject: Subject, key: Key, note: string): Promise<void> {
  if (!writer.inTransaction || writer.journal.troubled) return
  const stored = await findOneByText(writer.manager, subject.entity, inputOf(subject, key, writer.random))
  if (stored?.note !== note) writer.journal.surprise(`a transaction lost the "${note}" that it had written`)
}
