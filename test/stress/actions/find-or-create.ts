import { findOneByText, findOrCreate, findOrCreateMany, type FindOrCreateResult, uniqueTextMethods } from '../../../src'
import type { StressEntity } from '../entities'
import { outcomeOf } from '../outcome'
import type { Action, Session } from '../session'
import { anyKey, inputOf, isScoped, type Key, severalKeys, type Subject } from '../subject'

/** The caller must have got the row of its own text, and a row it created must be there. */
export const findOrCreateActions: readonly Action[] = [
  {
    name: 'findOrCreate',
    weight: 8,
    run: async (session, subject) => {
      await createOne(session, subject, anyKey(subject, session.random))
    },
  },
  {
    name: 'findOrCreate on a repository',
    weight: 2,
    run: async (session, subject) => {
      const key = anyKey(subject, session.random)
      const repository = session.manager.getRepository(subject.entity).extend(uniqueTextMethods)
      take(session, subject, key, await repository.findOrCreate(inputOf(subject, key, session.random)))
    },
  },
  {
    name: 'findOrCreate, several in parallel',
    weight: 4,
    run: async (session, subject) => {
      const { random } = session
      const keys = Array.from({ length: 2 + random.int(3) }, () => anyKey(subject, random))
      const results = await Promise.allSettled(keys.map(async (key) => await createOne(session, subject, key)))
      throwFirst(results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : [])))
    },
  },
  {
    name: 'findOrCreateMany',
    weight: 5,
    run: async (session, subject) => {
      const { random } = session
      const keys = severalKeys(subject, random, 12)
      await createMany(session, subject, [...keys, ...keys.filter(() => random.chance(0.2))])
    },
  },
  {
    name: 'findOrCreateMany, two in parallel',
    weight: 2,
    run: async (session, subject) => {
      const batches = [1, 2].map(() => severalKeys(subject, session.random, 6))
      const results = await Promise.allSettled(batches.map(async (keys) => await createMany(session, subject, keys)))
      throwFirst(results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : [])))
    },
  },
  {
    name: 'findOneByText',
    weight: 2,
    run: async (session, subject) => {
      const key = anyKey(subject, session.random)
      const found = await findOneByText(session.manager, subject.entity, inputOf(subject, key, session.random))
      if (found) verify(session, subject, key, found)
    },
  },
]

async function createOne(session: Session, subject: Subject, key: Key): Promise<void> {
  const { manager, random, ledger } = session
  const result = await findOrCreate(manager, subject.entity, inputOf(subject, key, random))
  take(session, subject, key, result)
  if (!session.inTransaction || !result.created) return
  // Nobody else can see the row, let alone delete it, until this transaction ends.
  const again = await findOneByText(manager, subject.entity, inputOf(subject, key, random))
  if (again?.id !== result.entity.id) ledger.violate(`a transaction lost row ${result.entity.id} that it had created`)
}

async function createMany(session: Session, subject: Subject, keys: readonly Key[]): Promise<void> {
  const { manager, random, ledger } = session
  const inputs = keys.map((key) => inputOf(subject, key, random))
  const results = await findOrCreateMany(manager, subject.entity, inputs)
  if (results.length !== keys.length) ledger.violate('findOrCreateMany is not aligned with its input')
  const errors: unknown[] = []
  for (const [place, key] of keys.entries()) {
    const result = results[place]
    if (!result) ledger.violate('findOrCreateMany left a place empty')
    else if ('error' in result) errors.push(result.error)
    else take(session, subject, key, result)
  }
  throwFirst(errors)
}

/** Takes a result into account: whose row it is, and whether it was created before. */
function take(session: Session, subject: Subject, key: Key, result: FindOrCreateResult<StressEntity>): void {
  const { client, ledger } = session
  const { entity, created, attempts } = result
  ledger.event(client, `${created ? 'created' : 'found'} ${entity.id} ${JSON.stringify(key)}, attempt ${attempts}`)
  verify(session, subject, key, entity)
  ledger.add('retries', attempts - 1)
  ledger.highest('most attempts', attempts)
  if (created) ledger.rowCreated(subject.table.table, entity.id)
  else ledger.add('found')
}

function verify({ ledger }: Session, subject: Subject, { text, tenant }: Key, entity: StressEntity): void {
  const own = entity.text === text && (!isScoped(subject) || ('tenant' in entity && entity.tenant === tenant))
  if (!own) ledger.violate(`a caller asked for "${text}" and got row ${entity.id} with "${entity.text}"`)
}

/**
 * Of calls on one transaction one may be told that it is aborted, and the others then meet an aborted one: what counts
 * is the first cause.
 */
function throwFirst(errors: readonly unknown[]): void {
  if (errors.length === 0) return
  throw errors.find((error) => outcomeOf(error) !== '25P02') ?? errors[0]
}
