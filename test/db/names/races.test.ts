import { beforeEach, describe, expect, test } from 'vitest'
import { TextTakenError, TransactionAbortedError } from '../../../src'
import { findHolder, findOrCreateHolder, Name, releaseExpired, rename, swapNames } from '../../../src/names'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { entity, plain, uniqueName } from '../../support/entity'
import { rejection } from '../../support/ledger'

const Person = entity('Person', { handle: uniqueName({ namespace: 'handle', former: 'reserve' }), title: plain() })
const Club = entity('Club', { handle: uniqueName({ namespace: 'handle' }) })

const LEVELS = ['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'] as const

const db = useDatabase()
const dataSource = db.useDataSource([Name, Person, Club])
const { manager } = dataSource
const other = db.useClient()
const observer = db.useClient()

beforeEach(async () => {
  await dataSource.query(`INSERT INTO person (handle) VALUES ('a'), ('b')`)
})

/** Every row has its name, and no name is held by nobody. */
async function held(): Promise<string[]> {
  const rows = (await dataSource.query(
    `SELECT n.text, n.holder, n.holder_key->>0 AS id FROM names AS n WHERE state = 'held' ORDER BY text`,
  )) as { text: string; holder: string; id: string }[]
  const standing = (await dataSource.query(
    `SELECT handle AS text, 'person' AS holder, id::text FROM person UNION ALL SELECT handle, 'club', id::text FROM club ORDER BY text`,
  )) as unknown[]
  expect(rows).toEqual(standing)
  return rows.map(({ text, holder, id }) => `${text} ${holder} ${id}`)
}

describe('of one row, two names', () => {
  test('outside a transaction, the second waits and follows', async () => {
    await other.query(`BEGIN; UPDATE person SET handle = 'first' WHERE id = 1`)
    const call = rename(manager, Person, 1, { handle: 'second' })
    await untilBlocked(observer)
    await other.query('COMMIT')
    expect(await call).toMatchObject({ id: 1, handle: 'second' })
    expect(await held()).toEqual(['b person 2', 'second person 1'])
  })

  test.each(LEVELS)('in a transaction at %s it follows, or tells that all is to be done again', async (level) => {
    await other.query('BEGIN')
    const call = dataSource.transaction(level, async (inside) => {
      await inside.query('SELECT 1 FROM person')
      await other.query(`UPDATE person SET handle = 'first' WHERE id = 1`)
      const renaming = rename(inside, Person, 1, { handle: 'second' })
      await Promise.all([renaming, untilBlocked(observer).then(() => other.query('COMMIT'))])
    })
    const error = await call.then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
    const follows = level === 'READ COMMITTED'
    expect(error instanceof TransactionAbortedError).toBe(!follows)
    expect(await held()).toEqual(['b person 2', follows ? 'second person 1' : 'first person 1'].toSorted())
  })
})

describe('two rows, one name', () => {
  test('who comes second waits for the first, and is refused with the holder', async () => {
    await other.query(`BEGIN; INSERT INTO club (handle) VALUES ('new')`)
    const call = rejection(rename(manager, Person, 1, { handle: 'new' }))
    await untilBlocked(observer)
    await other.query('COMMIT')
    const error = await call
    expect(error).toBeInstanceOf(TextTakenError)
    expect(error).toMatchObject({ taken: [{ entity: 'Person', holder: 'Club', id: { id: 1 } }] })
    expect(await held()).toEqual(['a person 1', 'b person 2', 'new club 1'])
  })

  test('or gets it, where the first one rolls back', async () => {
    await other.query(`BEGIN; INSERT INTO club (handle) VALUES ('new')`)
    const call = rename(manager, Person, 1, { handle: 'new' })
    await untilBlocked(observer)
    await other.query('ROLLBACK')
    expect(await call).toMatchObject({ handle: 'new' })
    expect(await held()).toEqual(['b person 2', 'new person 1'])
  })

  test('findOrCreateHolder waits for a row that is not committed yet, and finds it', async () => {
    await other.query(`BEGIN; INSERT INTO person (handle, title) VALUES ('new', 'theirs')`)
    const call = findOrCreateHolder(manager, Person, { handle: 'new', title: 'ours' })
    await untilBlocked(observer)
    await other.query('COMMIT')
    expect(await call).toMatchObject({ created: false, attempts: 2, entity: { handle: 'new', title: 'theirs' } })
  })

  test.each(LEVELS)('and in a transaction at %s that has a snapshot', async (level) => {
    const call = dataSource.transaction(level, async (inside) => {
      await inside.query('SELECT 1 FROM person')
      await other.query(`INSERT INTO person (handle, title) VALUES ('new', 'theirs')`)
      return await findOrCreateHolder(inside, Person, { handle: 'new' })
    })
    const outcome = await call.then(
      ({ created, entity }) => `${created} ${entity.title}`,
      (error: Error) => error.name,
    )
    expect(outcome).toBe(level === 'READ COMMITTED' ? 'false theirs' : 'TransactionAbortedError')
    expect(await held()).toHaveLength(3)
  })
})

describe('swapNames', () => {
  test('swaps the names that the rows have by then', async () => {
    await other.query(`BEGIN; UPDATE person SET handle = 'c' WHERE id = 2`)
    const call = swapNames(manager, Person, 1, 2)
    await untilBlocked(observer)
    await other.query('COMMIT')
    expect((await call).map(({ id, handle }) => [id, handle])).toEqual([
      [1, 'c'],
      [2, 'a'],
    ])
    expect(await held()).toEqual(['a person 2', 'c person 1'])
    expect(await findHolder(manager, 'handle', 'c')).toMatchObject({ id: { id: 1 }, former: false })
  })

  test('many at once, in both orders, leave every name with one row', async () => {
    const calls = Array.from({ length: 20 }, async (_, nth) =>
      nth % 2 === 0 ? await swapNames(manager, Person, 1, 2) : await swapNames(manager, Person, 2, 1),
    )
    expect(await Promise.allSettled(calls)).toHaveLength(20)
    await Promise.all(calls)
    expect(await held()).toEqual(['a person 1', 'b person 2'])
  })

  test('locks the rows in the order of their keys, and not as they lie in the table', async () => {
    await dataSource.query(`DELETE FROM person; INSERT INTO person (id, handle) VALUES (2, 'b'), (1, 'a')`)
    await other.query('BEGIN; SELECT FROM person WHERE id = 1 FOR UPDATE')
    const call = swapNames(manager, Person, 1, 2)
    await untilBlocked(observer)
    await expect(other.query('SELECT FROM person WHERE id = 2 FOR UPDATE NOWAIT')).resolves.toBeDefined()
    await other.query('COMMIT')
    await call
    expect(await held()).toEqual(['a person 2', 'b person 1'])
  })

  test('does not wait for who writes rows that refer to one of them', async () => {
    await other.query('BEGIN; SELECT FROM person WHERE id = 1 FOR KEY SHARE')
    await swapNames(manager, Person, 1, 2)
    await other.query('COMMIT')
    expect(await held()).toEqual(['a person 2', 'b person 1'])
  })

  test('a row that goes meanwhile is missing, and nothing is changed', async () => {
    await other.query('BEGIN; DELETE FROM person WHERE id = 2')
    const call = rejection(swapNames(manager, Person, 1, 2))
    await untilBlocked(observer)
    await other.query('COMMIT')
    expect(await call).toMatchObject({ name: 'EntityNotFoundError', criteria: 2 })
    expect(await held()).toEqual(['a person 1'])
  })
})

test('releaseExpired leaves a name to who is just taking it', async () => {
  for (const id of [1, 2]) await rename(manager, Person, id, { handle: `new ${id}` })
  await dataSource.query(`UPDATE names SET until = now() - interval '1 minute' WHERE state = 'reserved'`)
  await other.query(`BEGIN; INSERT INTO club (handle) VALUES ('a')`)
  expect(await releaseExpired(manager)).toBe(1)
  await other.query('COMMIT')
  expect(await held()).toEqual(['a club 1', 'new 1 person 1', 'new 2 person 2'])
})
