import { createHash } from 'node:crypto'
import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { AttemptsExhaustedError, findOrCreate, findOrCreateMany, TransactionAbortedError } from '../../../src'
import { useDatabase } from '../../support/database'
import { onlyRowOf, rowOf } from '../../support/results'
import { entity, plain, text } from '../../support/entity'

const db = useDatabase()

const Word = entity('Word', { text: text(), note: plain() })
const dataSource = db.useDataSource([Word])
const { manager } = dataSource
const client = db.useClient()

beforeAll(async () => {
  // Stands for other transactions: so many inserts in a row lose against them.
  await client.query(`
    CREATE SEQUENCE inserts;
    CREATE TABLE losses (count bigint NOT NULL);
    INSERT INTO losses VALUES (0);
    CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF nextval('inserts') <= (SELECT count FROM losses) THEN
        RAISE EXCEPTION USING ERRCODE = TG_ARGV[0];
      END IF;
      RETURN NEW;
    END $$`)
})
afterEach(() => vi.restoreAllMocks())

async function loseTimes(count: number, sqlstate: string): Promise<void> {
  await client.query(`
    UPDATE losses SET count = ${count};
    ALTER SEQUENCE inserts RESTART;
    CREATE OR REPLACE TRIGGER lose BEFORE INSERT ON word FOR EACH ROW EXECUTE FUNCTION lose('${sqlstate}')`)
}

async function insertsSeen(): Promise<number> {
  const { rows } = await client.query<{ n: number }>('SELECT last_value::int AS n FROM inserts')
  return rows[0]?.n ?? 0
}

/** No wait, and a note of every draw. */
const drawNothing = () => vi.spyOn(Math, 'random').mockReturnValue(0)

const one = () => findOrCreate(manager, Word, { text: 'a' })
const many = () => onlyRowOf(findOrCreateMany(manager, Word, [{ text: 'a' }]))

describe.each([
  ['findOrCreate', one],
  ['findOrCreateMany', many],
])('%s', (_, call) => {
  test.each(['40001', '40P01'])('goes on after %s, and waits a time drawn anew before each attempt', async (state) => {
    await loseTimes(3, state)
    const random = drawNothing()
    expect(await call()).toMatchObject({ created: true, attempts: 4, entity: { text: 'a' } })
    expect(random).toHaveBeenCalledTimes(3)
  })

  test('gives up after ten attempts, and says so', async () => {
    await loseTimes(1_000, '40001')
    drawNothing()
    const error = await call().catch((caught: unknown) => caught)
    expect(error).toBeInstanceOf(AttemptsExhaustedError)
    expect(error).toMatchObject({ attempts: 10, cause: { code: '40001' } })
    expect(await insertsSeen()).toBe(10)
  })

  test('does not repeat what no repeat would mend', async () => {
    await loseTimes(1_000, '53100')
    await expect(call()).rejects.toMatchObject({ code: '53100' })
    expect(await insertsSeen()).toBe(1)
  })

  test("does not repeat in the caller's transaction, whose snapshot would be as old", async () => {
    await loseTimes(1, '40001')
    const outcome = dataSource.transaction(async (manager) => {
      if (call === one) await findOrCreate(manager, Word, { text: 'a' })
      else await findOrCreateMany(manager, Word, [{ text: 'a' }])
    })
    await expect(outcome).rejects.toBeInstanceOf(TransactionAbortedError)
    expect(await insertsSeen()).toBe(1)
  })
})

/** How many rows each batch of a call had. */
async function batchesOf(call: () => Promise<unknown>): Promise<number[]> {
  const sent = vi.spyOn(dataSource.logger, 'logQuery')
  await call()
  return sent.mock.calls.flatMap(([sql, parameters]) => {
    const [first] = (parameters ?? []) as readonly unknown[]
    return sql.includes('unnest(') && Array.isArray(first) ? [first.length] : []
  })
}

describe('a batch', () => {
  beforeEach(() => loseTimes(0, '40001'))

  test('inserts in the order of the hashes, so that two with the same texts cannot wait for each other', async () => {
    const rows = Array.from({ length: 200 }, (_, index) => ({ text: `text ${index}` }))
    await findOrCreateMany(manager, Word, rows)
    const stored = await manager.find(Word, { order: { id: 'ASC' } })
    const hashes = stored.map(({ text }) => createHash('md5').update(text).digest('hex'))
    expect(hashes).toHaveLength(rows.length)
    expect(hashes).toEqual(hashes.toSorted())
  })

  test('has at most 1,000 rows', async () => {
    const texts = Array.from({ length: 2_001 }, (_, index) => ({ text: `text ${index}` }))
    const sizes = await batchesOf(() => findOrCreateMany(manager, Word, texts))
    expect(sizes).toEqual([1_000, 1_000, 1])
  })

  test('has texts of at most 16 Mi characters; a row that is longer alone takes statements of its own', async () => {
    const texts = ['a', 'b', 'c', 'd', 'e'].map((letter) => ({ text: letter.repeat(5 * 2 ** 20) }))
    texts.push({ text: 'f'.repeat(17 * 2 ** 20) })
    const sizes = await batchesOf(async () => {
      for (const result of await findOrCreateMany(manager, Word, texts)) rowOf(result)
    })
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(texts.length - 1)
    expect(Math.max(...sizes)).toBeLessThanOrEqual(3)
    expect(await manager.count(Word)).toBe(texts.length)
  })
})
