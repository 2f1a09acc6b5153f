import type { EntitySubscriberInterface, InsertEvent } from 'typeorm'
import {
  AfterInsert,
  AfterLoad,
  BeforeInsert,
  Column,
  Entity,
  EventSubscriber,
  Index,
  PrimaryGeneratedColumn,
} from 'typeorm'
import { describe, expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, TransactionAbortedError, UniqueText, withUniqueText } from '../../../src'
import { useDatabase } from '../../support/database'
import { SNAPSHOT_LEVELS } from '../../support/sessions'
import { onlyRowOf } from '../../support/results'
import { column, entity, text } from '../../support/entity'
import { fewHashes, oneHash } from '../../support/digests'

const db = useDatabase()

const Word = entity('Word', { text: text({ digest: fewHashes(16) }), rank: column('integer', { nullable: true }) })
Index(['rank'], { unique: true })(Word)

const told: string[] = []

@Entity()
class Heard {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ digest: oneHash }) text!: string
  @Column({ type: 'text', nullable: true }) filled!: string | null
  @Column({ type: 'varchar', length: 5, nullable: true }) short!: string | null
  loaded?: boolean

  @BeforeInsert() before(): void {
    told.push(`before ${this.text}`)
    this.filled = 'by the listener'
  }
  @AfterInsert() after(): void {
    told.push(`after ${this.text} ${this.id > 0}`)
  }
  @AfterLoad() load(): void {
    told.push(`load ${this.text}`)
  }
}

class Subscriber implements EntitySubscriberInterface<Heard> {
  listenTo(): typeof Heard {
    return Heard
  }
  async beforeInsert({ entity, manager }: InsertEvent<Heard>): Promise<void> {
    // A call on the same connection from inside an event must not wait for the one that fired it.
    await findOrCreate(manager, Word, { text: `seen ${entity.text}` })
  }
}
EventSubscriber()(Subscriber)

const dataSource = db.useDataSource([Word, Heard], { emptied: false, subscribers: [Subscriber] })
const { manager } = dataSource

describe.each(['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'] as const)('at %s', (level) => {
  test('calls in parallel on one transaction end, each with the row of its own text', async () => {
    const texts = Array.from({ length: 40 }, (_, index) => `${level} ${index % 20}`)
    await dataSource.transaction(level, async (manager) => {
      const results = await Promise.all(
        texts.map(async (text, index) => {
          if (index % 5 > 0) return await findOrCreate(manager, Word, { text })
          return await onlyRowOf(findOrCreateMany(manager, Word, [{ text }]))
        }),
      )
      expect(results.map(({ entity }) => entity.text)).toEqual(texts)
      expect(results.filter(({ created }) => created)).toHaveLength(20)
    })
  })

  test('a call that fails does not take those beside it, nor the transaction', async () => {
    await manager.clear(Word)
    await dataSource.transaction(level, async (manager) => {
      const calls = Array.from({ length: 10 }, (_, index) =>
        findOrCreate(manager, Word, { text: `t${index}`, rank: 1 }),
      )
      const outcomes = await Promise.allSettled(calls)
      expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
      const codes = outcomes.flatMap((one) =>
        one.status === 'rejected' ? [(one.reason as { code: string }).code] : [],
      )
      expect(codes).toEqual(Array.from({ length: 9 }, () => '23505'))
      await findOrCreate(manager, Word, { text: 'last' })
    })
    expect(await manager.count(Word)).toBe(2)
  })
})

test('a text that others stored after the snapshot aborts the transaction with an error that says so', async () => {
  await manager.clear(Word)
  const error = await dataSource
    .transaction('REPEATABLE READ', async (manager) => {
      await manager.count(Word)
      await findOrCreate(dataSource.manager, Word, { text: 'other' })
      await findOrCreate(manager, Word, { text: 'other' })
    })
    .catch((caught: unknown) => caught)
  expect(error).toBeInstanceOf(TransactionAbortedError)
  expect(error).toMatchObject({ code: 'TRANSACTION_ABORTED', cause: { code: '40001' } })
})

test.each(SNAPSHOT_LEVELS)(
  'at %s, a row of the snapshot that others have deleted does not count as a duplicate',
  async (level) => {
    await manager.clear(Word)
    await findOrCreate(manager, Word, { text: 'x' })
    const outcome = dataSource.transaction(level, async (inner) => {
      await inner.count(Word)
      await manager.delete(Word, { text: 'x' })
      await inner.insert(Word, { text: 'x' })
      expect(await inner.countBy(Word, { text: 'x' })).toBe(2)
      await findOrCreate(inner, Word, { text: 'x' })
    })
    await expect(outcome).rejects.toBeInstanceOf(TransactionAbortedError)
  },
)

test('listeners and subscribers hear what they would hear of insert and find', async () => {
  told.length = 0
  const { entity } = await findOrCreate(manager, Heard, { text: 'a' })
  expect(entity).toMatchObject({ text: 'a', filled: 'by the listener' })
  await findOrCreate(manager, Heard, { text: 'a' })
  expect(told.splice(0)).toEqual(['before a', 'after a true', 'load a'])
  await manager.transaction(async (inner) => {
    await findOrCreateMany(inner, Heard, [{ text: 'b' }, { text: 'a' }])
  })
  expect(told.toSorted()).toEqual(['after b true', 'before b', 'load a'])
  expect(await manager.countBy(Word, { text: 'seen a' })).toBe(1)
})

test('with listeners too, one bad row of a batch does not sink the others, nor the transaction', async () => {
  await dataSource.transaction(async (manager) => {
    const results = await findOrCreateMany(manager, Heard, [
      { text: 'p' },
      { text: 'q', short: 'too long' },
      { text: 'r' },
    ])
    expect(results).toMatchObject([{ created: true }, { error: { code: '22001' } }, { created: true }])
    expect(await manager.countBy(Heard, { text: 'r' })).toBe(1)
  })
})

test('without prepared statements nothing else changes', async () => {
  const { DataSource } = await import('typeorm')
  const plain = withUniqueText(new DataSource({ type: 'postgres', url: db.url, entities: [Word] }), { prepare: false })
  await plain.initialize()
  const { entity } = await findOrCreate(plain.manager, Word, { text: 'plain' })
  expect(await findOrCreate(plain.manager, Word, { text: 'plain' })).toMatchObject({ created: false, entity })
  await plain.transaction(async (manager) => {
    await findOrCreateMany(manager, Word, [{ text: 'plain' }, { text: 'other' }])
    expect(await manager.query('select name from pg_prepared_statements')).toEqual([])
  })
  await plain.destroy()
})
