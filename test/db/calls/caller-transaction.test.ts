import { once } from 'node:events'
import { type Client, Query } from 'pg'
import type { EntitySubscriberInterface } from 'typeorm'
import { BeforeInsert, Column, Entity, EventSubscriber, PrimaryGeneratedColumn, QueryFailedError } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany, TransactionAbortedError } from '../../../src'
import { UniqueText, UniqueTextEntity } from '../../../src'
import { useDatabase } from '../../support/database'
import { column, entity } from '../../support/entity'
import { loggerOf } from '../../support/logger'
import { rejection } from '../../support/ledger'

@Entity()
class Page extends UniqueTextEntity {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
  @Column({ type: 'varchar', length: 10, nullable: true }) title!: string | null
}

const Audit = entity('Audit', { note: column('text') })

const heard: { text: string | undefined } = { text: undefined }

@Entity()
class Listened extends UniqueTextEntity {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() text!: string
  @Column({ type: 'text', nullable: true }) filled!: string | null

  @BeforeInsert() async fill(): Promise<void> {
    this.filled = `${await Page.count()} pages`
    this.text = heard.text ?? this.text
  }
}

const queries: string[] = []

@EventSubscriber()
class QueryListener implements EntitySubscriberInterface {
  beforeQuery({ query }: { query: string }): void {
    queries.push(`before ${query}`)
  }
  afterQuery({ query, success }: { query: string; success: boolean }): void {
    queries.push(`${success ? 'after' : 'failed'} ${query}`)
  }
}

const db = useDatabase()
const dataSource = db.useDataSource([Page, Audit, Listened])
const { manager } = dataSource

beforeEach(() => {
  heard.text = undefined
})

const tooLong = 'x'.repeat(11)

describe("the caller's transaction is the caller's", () => {
  test('a statement of the caller that runs beside a bad row is not undone with it', async () => {
    await dataSource.transaction(async (manager) => {
      const rows = Array.from({ length: 20 }, (_, index) => ({ url: `a${index}`, title: index === 7 ? tooLong : null }))
      const notes = Array.from({ length: 50 }, (_, index) => ({ note: `n${index}` }))
      await Promise.all([findOrCreateMany(manager, Page, rows), ...notes.map((note) => manager.insert(Audit, note))])
    })
    expect(await manager.countBy(Audit, {})).toBe(50)
    expect(await manager.countBy(Page, {})).toBe(19)
  })

  test('calls in parallel, of which one has a bad row, leave no savepoint and nothing on the client', async () => {
    const client = await dataSource.transaction(async (manager) => {
      const calls = Array.from({ length: 4 }, async (_, call) => {
        const rows = Array.from({ length: 4 }, (__, index) => ({ url: `p${call} ${index}` }))
        return await findOrCreateMany(manager, Page, [...rows, { url: `p${call}`, title: call === 2 ? tooLong : null }])
      })
      const refused = (await Promise.all(calls)).map((results) => results.filter((one) => 'error' in one).length)
      expect(refused).toEqual([0, 0, 1, 0])
      await manager.query('SAVEPOINT mine')
      const release = manager.query('RELEASE SAVEPOINT typeorm_unique_text')
      await expect(release).rejects.toMatchObject({ driverError: { code: '3B001' } })
      await manager.query('ROLLBACK TO SAVEPOINT mine')
      return (await manager.queryRunner?.connect()) as Client
    })
    expect(Object.hasOwn(client, 'query')).toBe(false)
  })

  test('what the caller sends by the client itself waits its turn too: a callback, a query object, a mistake', async () => {
    await dataSource.transaction(async (manager) => {
      const client = (await manager.queryRunner?.connect()) as Client
      const insert = `INSERT INTO audit (note) VALUES ('by the client')`
      const rows = Array.from({ length: 20 }, (_, index) => ({ url: `c${index}`, title: index % 2 ? tooLong : null }))
      const batch = findOrCreateMany(manager, Page, rows)
      // Whenever these come, one of our savepoints may be set.
      for (let round = 0; round < 50; round += 1) {
        await Promise.all([
          client.query(insert),
          new Promise((resolve) => client.query(insert, resolve)),
          once(client.query(new Query(insert)), 'end'),
        ])
        expect(() => client.query(null as unknown as string)).toThrow(TypeError)
      }
      expect((await batch).filter((result) => 'error' in result)).toHaveLength(10)
    })
    expect(await manager.countBy(Audit, { note: 'by the client' })).toBe(150)
  })

  test('a transaction that was begun by SQL is one: a bad row does not abort it', async () => {
    const queryRunner = dataSource.createQueryRunner()
    try {
      await queryRunner.query('BEGIN')
      const [bad, good] = await findOrCreateMany(queryRunner.manager, Page, [
        { url: 'raw bad', title: tooLong },
        { url: 'raw good' },
      ])
      expect(bad).toHaveProperty('error')
      expect(good).toMatchObject({ created: true })
      await queryRunner.query('COMMIT')
    } finally {
      await queryRunner.release()
    }
    expect(await findOneByText(manager, Page, { url: 'raw good' })).not.toBeNull()
  })

  test('a serialization failure in a transaction that was begun by SQL is told, not retried', async () => {
    const queryRunner = dataSource.createQueryRunner()
    try {
      await queryRunner.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM page')
      await findOrCreate(manager, Page, { url: 'raced' })
      const error = await rejection(findOrCreate(queryRunner.manager, Page, { url: 'raced' }))
      expect(error).toBeInstanceOf(TransactionAbortedError)
      await queryRunner.query('ROLLBACK')
    } finally {
      await queryRunner.release()
    }
  })
})

describe('listeners', () => {
  test('a BeforeInsert listener that changes the text keeps all else that it set', async () => {
    heard.text = 'another text'
    const { entity } = await findOrCreate(manager, Listened, { text: 'as given' })
    expect(entity).toMatchObject({ text: 'as given', filled: expect.stringMatching(/pages$/) })
  })

  test('a listener that asks for a connection gets one from a pool of one', async () => {
    const dataSource = await db.dataSource([Listened, Page], { extra: { max: 1 } })
    const { created } = await findOrCreate(dataSource.manager, Listened, { text: 'a pool of one' })
    expect(created).toBe(true)
    const [first] = await findOrCreateMany(dataSource.manager, Listened, [{ text: 'a pool of one, in bulk' }])
    expect(first).toMatchObject({ created: true })
  })
})

describe('what TypeORM tells of its statements is told of ours', () => {
  test('BeforeQuery and AfterQuery, of those that fail too', async () => {
    const dataSource = await db.dataSource([Page], { subscribers: [QueryListener] })
    await findOrCreate(dataSource.manager, Page, { url: 'heard' })
    queries.length = 0
    await findOrCreate(dataSource.manager, Page, { url: 'heard' })
    expect(queries.map((query) => query.slice(0, 18))).toEqual(['before WITH found ', 'after WITH found A'])
    queries.length = 0
    await rejection(findOrCreate(dataSource.manager, Page, { url: 'heard, refused', title: tooLong }))
    expect(queries.map((query) => query.slice(0, 18))).toEqual(['before WITH found ', 'failed WITH found '])
  })

  test('the log of slow queries', async () => {
    const slow: string[] = []
    const logger = loggerOf({
      logQuerySlow: (_time: number, query: string) => void slow.push(query),
    })
    const dataSource = await db.dataSource([Page], { maxQueryExecutionTime: 20, logger })
    await findOneByText(dataSource.manager, Page, { url: 'slow' })
    const blocker = await db.client()
    await blocker.query('BEGIN; LOCK TABLE page')
    const call = findOneByText(dataSource.manager, Page, { url: 'slow' })
    await blocker.query('SELECT pg_sleep(0.1)')
    await blocker.query('COMMIT')
    await call
    expect(slow.join()).toContain('FROM "page"')
  })

  test('the error of the driver is a QueryFailedError with its driverError, and without the text', async () => {
    const error = await rejection(findOrCreate(manager, Page, { url: 'a secret', title: tooLong }))
    expect(error).toBeInstanceOf(QueryFailedError)
    expect((error as QueryFailedError).driverError).toMatchObject({ code: '22001' })
    expect(JSON.stringify(error, Object.getOwnPropertyNames(error))).not.toContain('a secret')
  })
})
