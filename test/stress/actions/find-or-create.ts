import { findOneByText, findOrCreate, findOrCreateMany, type FindOrCreateResult, uniqueTextMethods } from '../../../src'
import type { StressEntity } from '../entities'
import { outcomeOf } from '../outcome'
import type { Action, Writer } from '../action'
import { anyKey, inputOf, isScoped, type Key, severalKeys, type Subject } from '../subject'

/** The caller must have got the row of its own text, and a row it created must be there. */
export const findOrCreateActions: readonly Action[] = [
  {
    name: 'findOrCreate',
    weight: 8,
    run: async (writer, subject) => {
      await createOne(writer, subject, anyKey(subject, writer.random))
    },
  },
  {
    name: 'findOrCreate on a repository',
    weight: 2,
    run: async (writer, subject) => {
      const key = anyKey(subject, writer.random)
      const repository = writer.manager.getRepository(subject.entity).extend(uniqueTextMethods)
      take(writer, subject, key, await repository.findOrCreate(inputOf(subject, key, writer.random)))
    },
  },
  {
    name: 'findOrCreate, several in parallel',
    weight: 4,
    run: async (writer, subject) => {
      const { random } = writer
      const keys = Array.from({ length: 2 + random.int(3) }, () => anyKey(subject, random))
      const results = await Promise.allSettled(keys.map(async (key) => await createOne(writer, subject, key)))
      throwFirst(results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : [])))
    },
  },
  {
    name: 'findOrCreateMany',
    weight: 5,
    run: async (writer, subject) => {
      const { random } = writer
      const keys = severalKeys(subject, random, 12)
      await createMany(writer, subject, [...keys, ...keys.filter(() => random.chance(0.2))])
    },
  },
  {
    name: 'findOrCreateMany, two in parallel',
    weight: 2,
    run: async (writer, subject) => {
      const batches = [1, 2].map(() => severalKeys(subject, writer.random, 6))
      const results = await Promise.allSettled(batches.map(async (keys) => await createMany(writer, subject, keys)))
      throwFirst(results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : [])))
    },
  },
  {
    name: 'findOneByText',
    weight: 2,
    run: async (writer, subject) => {
      const key = anyKey(subject, writer.random)
      const found = await findOneByText(writer.manager, subject.entity, inputOf(subject, key, writer.random))
      if (found) verify(writer, subject, key, found)
    },
  },
]

async function createOne(writer: Writer, subject: Subject, key: Key): Promise<void> {
  const { manager, random, journal } = writer
  const result = await findOrCreate(manager, subject.entity, inputOf(subject, key, random))
  take(writer, subject, key, result)
  if (!writer.inTransaction || !result.created) return
  // Nobody else can see the row, let alone delete it, until this transaction ends.
  const again = await findOneByText(manager, subject.entity, inputOf(subject, key, random))
  if (again?.id !== result.entity.id) journal.surprise(`a transaction lost row ${result.entity.id} that it had created`)
}

async function createMany(writer: Writer, subject: Subject, keys: readonly Key[]): Promise<void> {
  const { manager, random, journal } = writer
  const inputs = keys.map((key) => inputOf(subject, key, random))
  const results = await findOrCreateMany(manager, subject.entity, inputs)
  if (results.length !== keys.length) journal.violate('findOrCreateMany is not aligned with its input')
  const errors: unknown[] = []
  for (const [index, key] of keys.entries()) {
    const result = results[index]
    if (!result) journal.violate('findOrCreateMany left a gap')
    else if ('error' in result) errors.push(result.error)
    else take(writer, subject, key, result)
  }
  throwFirst(errors)
}

/** Takes a result into account: whose row it is, and whether it was created before. */
export function take(writer: Writer, subject: Subject, key: Key, result: FindOrCreateResult<StressEntity>): void {
  const { client, journal } = writer
  const { entity, created, attempts } = result
  journal.event(client, `${created ? 'created' : 'found'} ${entity.id} ${JSON.stringify(key)}, attempt ${attempts}`)
  verify(writer, subject, key, entity)
  journal.add('retries', attempts - 1)
  journal.highest('most attempts', attempts)
  if (created) journal.rowCreated(subject.table.table, entity.id)
  else journal.add('found')
}

/** The row must be that of the text. */
export function verify({ journal }: Writer, subject: Subject, { text, tenant }: Key, entity: StressEntity): void {
  const own = entity.text === text && (!isScoped(subject) || ('tenant' in entity && entity.tenant === tenant))
  if (!own) journal.surprise(`a caller asked for "${text}" and got row ${entity.id} with "${entity.text}"`)
}

/**
 * Of calls on one transaction one may be told that it is aborted, and the others then meet an aborted one: what counts
 * is the first cause.
 */
export function throwFirst(errors: readonly unknown[]): void {
  if (errors.length === 0) return
  throw errors.find((error) => outcomeOf(error) !== '25P02') ?? errors[0]
}
