import type { Action, Writer } from '../action'
import type { StressEntity } from '../entities'
import { anyKey, indexCondition, inputOf, isScoped, severalKeys, type Subject } from '../subject'

/** What users of TypeORM write without thinking of us. */
export const typeormActions: readonly Action[] = [
  {
    name: 'save a new entity',
    weight: 3,
    run: async ({ manager, random }, subject) => {
      await manager.save(manager.create(subject.entity, inputOf(subject, anyKey(subject, random), random)))
    },
  },
  {
    name: 'save several new entities',
    weight: 2,
    run: async ({ manager, random }, subject) => {
      const inputs = severalKeys(subject, random, 4).map((key) => inputOf(subject, key, random))
      await manager.save(inputs.map((input) => manager.create(subject.entity, input)))
    },
  },
  {
    name: 'save a changed entity',
    weight: 3,
    // Where the row was deleted meanwhile, TypeORM inserts it again under its old id, and so may another client.
    expected: ['23505 on the primary key'],
    run: async (writer, subject) => {
      const entity = await anyEntity(writer, subject)
      if (!entity) return
      const { manager, random } = writer
      await manager.save(Object.assign(entity, inputOf(subject, anyKey(subject, random), random)))
    },
  },
  {
    name: 'insert()',
    weight: 3,
    run: async ({ manager, random }, subject) => {
      await manager.insert(subject.entity, inputOf(subject, anyKey(subject, random), random))
    },
  },
  {
    name: 'upsert()',
    weight: 3,
    run: async ({ manager, random }, subject) => {
      const { scope, hash, number } = subject.table
      const values = Object.assign(inputOf(subject, anyKey(subject, random), random), { note: 'upserted' })
      const condition = indexCondition(subject).replace(' WHERE ', '')
      await manager.upsert(subject.entity, values, {
        conflictPaths: [...scope, hash, number] as never,
        ...(condition === '' ? {} : { indexPredicate: condition }),
      })
    },
  },
  {
    name: 'update()',
    weight: 2,
    run: async ({ manager, random }, subject) => {
      const [from, to] = [anyKey(subject, random), anyKey(subject, random)]
      await manager.update(subject.entity, inputOf(subject, from, random), inputOf(subject, to, random))
    },
  },
  {
    name: 'delete()',
    weight: 2,
    run: async ({ manager, random }, subject) => {
      await manager.delete(subject.entity, inputOf(subject, anyKey(subject, random), random))
    },
  },
  {
    name: 'remove an entity',
    weight: 2,
    run: async (writer, subject) => {
      const entity = await anyEntity(writer, subject)
      if (entity) await writer.manager.remove(entity)
    },
  },
]

async function anyEntity({ manager, random }: Writer, subject: Subject): Promise<StressEntity | null> {
  const { text, tenant } = anyKey(subject, random)
  return await manager.findOneBy(subject.entity, isScoped(subject) ? { text, tenant } : { text })
}
