import { type Client, types } from 'pg'
import type { EntityManager } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany, TransactionAbortedError } from '../../../src'
import { openSession } from '../../../src/connection/open-session'
import { named, type WireRow } from '../../../src/sql/find'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { column, entity, text } from '../../support/entity'
import { rejection } from '../../support/ledger'

const Page = entity('Page', { url: text(), title: column('varchar', { length: 10, nullable: true }) })
const Note = entity('Note', { text: column('text') })

const db = useDatabase()
// One connection, so that what is prepared on it stays to be looked at.
const dataSource = db.useDataSource([Page, Note], { extra: { max: 1 } })
const observer = db.useClient()

beforeAll(() => findOneByText(dataSource.manager, Page, { url: 'known to be ready' }))

/** Runs SQL behind a savepoint of ours. */
async function behindSavepoint(
  manager: EntityManager,
  sql: string,
  values: readonly unknown[] = [],
): Promise<WireRow[]> {
  const session = (await openSession(manager)).withSavepoints()
  return await session.rows(
    named(sql, (row) => row),
    values,
  )
}

const clientOf = async (manager: EntityManager): Promise<Client> => (await manager.queryRunner?.connect()) as Client

const texts = async (): Promise<string[]> =>
  (await observer.query<{ text: string }>('SELECT text FROM note ORDER BY id')).rows.map(({ text }) => text)

const note = 'INSERT INTO note (text) VALUES ($1)'
const codeOf = (error: unknown): unknown => (error as { driverError?: { code?: unknown } }).driverError?.code

/** How often the server was ready for more, while `work` ran. */
async function roundTrips(manager: EntityManager, work: () => Promise<unknown>): Promise<number> {
  const { connection } = (await clientOf(manager)) as unknown as { connection: NodeJS.EventEmitter }
  let count = 0
  const hear = (): void => void (count += 1)
  connection.on('readyForQuery', hear)
  await work()
  connection.removeListener('readyForQuery', hear)
  return count
}

describe("what is sent behind a savepoint in the caller's transaction", () => {
  test('takes one round trip, and one more to be undone', async () => {
    await dataSource.transaction(async (manager) => {
      const rows = ['a', 'b', 'c'].map((url) => ({ url }))
      expect(await roundTrips(manager, () => findOrCreateMany(manager, Page, rows))).toBe(1)
      expect(await roundTrips(manager, () => behindSavepoint(manager, note, ['done']))).toBe(1)
      const refused = (): Promise<unknown> => rejection(behindSavepoint(manager, `${note}, (NULL)`, ['']))
      expect(await roundTrips(manager, refused)).toBe(2)
    })
    expect(await dataSource.manager.count(Page)).toBe(3)
  })

  test('leaves no savepoint, whether it is done or refused', async () => {
    await dataSource.transaction(async (manager) => {
      await behindSavepoint(manager, note, ['done'])
      expect(codeOf(await rejection(behindSavepoint(manager, `${note}, (NULL)`, ['refused'])))).toBe('23502')
      await manager.query('SAVEPOINT mine')
      expect(codeOf(await rejection(manager.query('RELEASE SAVEPOINT typeorm_unique_text')))).toBe('3B001')
      await manager.query('ROLLBACK TO SAVEPOINT mine')
    })
    expect(await texts()).toEqual(['done'])
  })

  test('does not take a savepoint of the same name that the caller has set', async () => {
    await dataSource.transaction(async (manager) => {
      await manager.query('SAVEPOINT typeorm_unique_text')
      await behindSavepoint(manager, note, ['done'])
      expect(codeOf(await rejection(behindSavepoint(manager, `${note}, (NULL)`, ['refused'])))).toBe('23502')
      await manager.query('ROLLBACK TO SAVEPOINT typeorm_unique_text')
      await manager.query('RELEASE SAVEPOINT typeorm_unique_text')
    })
    expect(await texts()).toEqual([])
  })

  test('undoes nothing in a transaction that has failed before (25P02)', async () => {
    await dataSource.transaction(async (manager) => {
      await manager.query('SAVEPOINT typeorm_unique_text')
      await rejection(manager.query('SELECT 1 / 0'))
      expect(codeOf(await rejection(behindSavepoint(manager, note, ['refused'])))).toBe('25P02')
      expect(codeOf(await rejection(findOrCreateMany(manager, Page, [{ url: 'refused' }])))).toBe('25P02')
      expect(codeOf(await rejection(manager.query('SELECT 1')))).toBe('25P02')
      await manager.query('ROLLBACK TO SAVEPOINT typeorm_unique_text')
    })
  })

  test.each([
    ['SELECT pg_advisory_xact_lock(7)', 'done', undefined],
    [
      `WITH held AS MATERIALIZED (SELECT pg_advisory_xact_lock(7) AS void) SELECT 1 / length(void::text) FROM held`,
      'refused',
      '22012',
    ],
  ])('meets no statement of the caller, sent before, meanwhile or after: %s is %s', async (sql, _, code) => {
    await observer.query('SELECT pg_advisory_lock(7)')
    await dataSource.transaction(async (manager) => {
      const sent = [manager.query(note, ['before'])]
      const call = behindSavepoint(manager, sql).then(
        () => undefined,
        (error: unknown) => codeOf(error),
      )
      sent.push(manager.query(note, ['at once']))
      await untilBlocked(observer)
      sent.push(manager.query(note, ['meanwhile']), manager.query(note, ['and again']))
      await observer.query('SELECT pg_advisory_unlock(7)')
      expect(await call).toBe(code)
      sent.push(manager.query(note, ['after']))
      await Promise.all(sent)
    })
    expect(await texts()).toEqual(['before', 'at once', 'meanwhile', 'and again', 'after'])
  })

  test('is undone when it is cancelled in its midst (57014)', async () => {
    await observer.query('SELECT pg_advisory_lock(7)')
    await dataSource.transaction(async (manager) => {
      const [row] = (await manager.query('SELECT pg_backend_pid() AS pid')) as { pid: number }[]
      const sql = `WITH stored AS (INSERT INTO note (text) VALUES ('undone') RETURNING id)
        SELECT pg_advisory_xact_lock(7) FROM stored`
      const call = rejection(behindSavepoint(manager, sql))
      await untilBlocked(observer)
      await observer.query('SELECT pg_cancel_backend($1)', [row?.pid])
      expect(codeOf(await call)).toBe('57014')
      await manager.query(note, ['kept'])
    })
    await observer.query('SELECT pg_advisory_unlock(7)')
    expect(await texts()).toEqual(['kept'])
  })

  test('whose answer a parser of the user refuses is done, and leaves the transaction usable', async () => {
    const own = await db.dataSource([Page, Note], { synchronize: false, extra: { max: 1 } })
    await own.transaction(async (manager) => {
      await manager.query('SAVEPOINT typeorm_unique_text')
      const client = await clientOf(manager)
      client.setTypeParser(types.builtins.INT8, () => {
        throw new RangeError('of the user')
      })
      const sql = `${note} RETURNING 1::bigint`
      const error = await rejection(behindSavepoint(manager, sql, ['done']))
      expect(error).toMatchObject({ driverError: { message: 'of the user' } })
      client.setTypeParser(types.builtins.INT8, String)
      await manager.query('RELEASE SAVEPOINT typeorm_unique_text')
      await manager.query(note, ['after'])
    })
    expect(await texts()).toEqual(['done', 'after'])
  })

  test('that meets 40001 says that the transaction is lost, and leaves it to the caller', async () => {
    await observer.query(`INSERT INTO note (text) VALUES ('old')`)
    await dataSource.transaction('REPEATABLE READ', async (manager) => {
      await manager.query('SELECT FROM note')
      await observer.query(`UPDATE note SET text = 'new'`)
      const error = await rejection(behindSavepoint(manager, `UPDATE note SET text = 'mine'`))
      expect(error).toBeInstanceOf(TransactionAbortedError)
      expect(await manager.find(Note)).toMatchObject([{ text: 'old' }])
    })
  })

  test('is prepared where it has a name, and nothing else is', async () => {
    const own = await db.dataSource([Page, Note], { synchronize: false, extra: { max: 1 } })
    await own.transaction(async (manager) => {
      for (let round = 0; round < 3; round += 1) await behindSavepoint(manager, 'SELECT 1')
      const prepared = (await manager.query('SELECT name, statement FROM pg_prepared_statements')) as { name: string }[]
      expect(prepared).toMatchObject([{ name: expect.stringMatching(/^unique_text_/u), statement: 'SELECT 1' }])
    })
  })

  test('is prepared another time where the server could not prepare it', async () => {
    await dataSource.transaction(async (manager) => {
      const sql = 'SELECT later FROM note'
      expect(codeOf(await rejection(behindSavepoint(manager, sql)))).toBe('42703')
      await manager.query('ALTER TABLE note ADD later integer')
      const again = (): Promise<unknown> => behindSavepoint(manager, sql)
      // Were it sent by a name that the server does not know, it would be sent three times.
      expect(await roundTrips(manager, again)).toBe(1)
      await manager.query('ALTER TABLE note DROP later')
    })
  })

  test('with query_timeout is undone by the client, which has given up before the server had done it', async () => {
    const hurried = await db.dataSource([Page, Note], { synchronize: false, extra: { max: 1, query_timeout: 300 } })
    await observer.query('SELECT pg_advisory_lock(7)')
    await hurried.transaction(async (manager) => {
      await manager.query(note, ['kept'])
      const sql = `WITH stored AS (INSERT INTO note (text) VALUES ('undone') RETURNING id)
        SELECT pg_advisory_xact_lock(7) FROM stored`
      const client = await clientOf(manager)
      const query = client.query.bind(client) as (...args: readonly unknown[]) => unknown
      Object.assign(client, {
        query: (...args: readonly unknown[]): unknown => {
          // By now the client has given up, and the server is about to do it.
          if (args[0] === 'ROLLBACK TO SAVEPOINT typeorm_unique_text')
            void observer.query('SELECT pg_advisory_unlock(7)')
          return query(...args)
        },
      })
      const error = await rejection(behindSavepoint(manager, sql))
      expect(error).toMatchObject({ message: expect.stringContaining('timeout') })
      Reflect.deleteProperty(client, 'query')
      await manager.query(note, ['kept too'])
    })
    expect(await texts()).toEqual(['kept', 'kept too'])
  })
})

test('whoever puts one in front of query() while a savepoint is set stays there, and is answered', async () => {
  const other = await db.client()
  await other.query('BEGIN')
  await other.query(`INSERT INTO page (url) VALUES ('held')`)
  await dataSource.transaction(async (manager) => {
    const client = await clientOf(manager)
    const call = findOrCreateMany(manager, Page, [{ url: 'held' }])
    await untilBlocked(observer)
    const behind = client.query.bind(client) as (...args: unknown[]) => unknown
    const seen: unknown[] = []
    const traced = (...args: unknown[]): unknown => {
      seen.push(args[0])
      return behind(...args)
    }
    Object.assign(client, { query: traced })
    const meanwhile = client.query('SELECT 1 AS answer')
    await other.query('COMMIT')
    expect(await call).toMatchObject([{ created: false }])
    expect(Reflect.get(client, 'query')).toBe(traced)
    expect((await meanwhile).rows).toEqual([{ answer: 1 }])
    expect((await client.query('SELECT 2 AS answer')).rows).toEqual([{ answer: 2 }])
    expect(seen).toEqual(expect.arrayContaining(['SELECT 1 AS answer', 'SELECT 2 AS answer']))
    Reflect.deleteProperty(client, 'query')
  })
})

describe("a single call in the caller's transaction", () => {
  test('takes one round trip for a miss and for a hit, and no savepoint', async () => {
    await dataSource.transaction(async (manager) => {
      for (const created of [true, false]) {
        const call = async (): Promise<void> => {
          expect(await findOrCreate(manager, Page, { url: 'single' })).toMatchObject({ created })
        }
        expect(await roundTrips(manager, call)).toBe(1)
      }
      // The transaction's own id is the row's: one of a subtransaction would be another.
      const [row] = (await manager.query(`SELECT xmin::text = pg_current_xact_id()::xid::text AS own FROM page`)) as {
        own: boolean
      }[]
      expect(row?.own).toBe(true)
    })
  })
})
