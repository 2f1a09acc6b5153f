import { EntityNotFoundError } from 'typeorm'
import { insertOrFail, updateOrFail } from '../../../src'
import type { Action, Writer } from '../action'
import { anyKey, inputOf, isScoped, type Key, severalKeys, type Subject } from '../subject'

const TAKEN = ['TEXT_TAKEN']

/** Refused only with every text that is taken; never with the violation of an index. */
export const allOrNothingActions: readonly Action[] = [
  {
    name: 'insertOrFail',
    weight: 4,
    expected: TAKEN,
    run: async (writer, subject) => {
      const key = anyKey(subject, writer.random)
      const entity = await insertOrFail(writer.manager, subject.entity, inputOf(subject, key, writer.random))
      writer.journal.rowCreated(subject.table.table, entity.id)
      verify(writer, subject, key, entity)
    },
  },
  {
    name: 'insertOrFail, several tables of rows',
    weight: 3,
    expected: TAKEN,
    run: async (writer, subject) => {
      const { random, manager } = writer
      const [first = [], second = []] = [1, 2].map(() => severalKeys(subject, random, 3))
      const inputs = (keys: readonly Key[]): object[] => keys.map((key) => inputOf(subject, key, random))
      const lists = await insertOrFail(manager, [
        [subject.entity, inputs(first)],
        [subject.entity, inputs(second)],
      ])
      for (const [nth, entities] of lists.entries()) {
        for (const [index, entity] of entities.entries()) {
          writer.journal.rowCreated(subject.table.table, entity.id)
          const key = [first, second][nth]?.[index]
          if (key) verify(writer, subject, key, entity)
        }
      }
    },
  },
  {
    name: 'updateOrFail',
    weight: 4,
    expected: TAKEN,
    run: async (writer, subject) => {
      await change(writer, subject, 1)
    },
  },
  {
    name: 'updateOrFail of several',
    weight: 3,
    expected: TAKEN,
    run: async (writer, subject) => {
      await change(writer, subject, 3)
    },
  },
]

async function change(writer: Writer, subject: Subject, most: number): Promise<void> {
  const { random, manager } = writer
  const rows = await manager.find(subject.entity, { take: 20 })
  const changes = random.sample(rows, Math.min(most, rows.length)).map((row) => {
    const key = anyKey(subject, random)
    const id = manager.connection.getMetadata(subject.entity).getEntityIdMap(row) ?? {}
    return { key, change: [subject.entity, id, inputOf(subject, key, random)] as const }
  })
  if (changes.length === 0) return
  try {
    const entities = await updateOrFail(
      manager,
      changes.map((one) => one.change),
    )
    for (const [index, { key }] of changes.entries()) {
      const entity = entities[index]
      if (entity) verify(writer, subject, key, entity)
    }
  } catch (error) {
    // Somebody deleted it.
    if (!(error instanceof EntityNotFoundError)) throw error
  }
}

function verify({ journal }: Writer, subject: Subject, { text, tenant }: Key, entity: object): void {
  // A trigger of a user's own may undo a change.
  if (journal.troubled) return
  const own =
    'text' in entity && entity.text === text && (!isScoped(subject) || ('tenant' in entity && entity.tenant === tenant))
  if (!own) journal.surprise(`a caller wrote "${text}" and got another row`)
}
