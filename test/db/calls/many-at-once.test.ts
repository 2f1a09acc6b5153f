import { once } from 'node:events'
import type { Client, Pool } from 'pg'
import { type DataSource, Entity, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { FindOrCreateManyOptions, FindOrCreateManyResult } from '../../../src'
import { findOrCreate, findOrCreateMany, UniqueText } from '../../../src'
import { limits } from '../../../src/calls/batches'
import { md5 } from '../../../src/text/digest'
import { untilBlocked } from '../../support/blocked'
import { rowOf } from '../../support/results'
import { useDatabase } from '../../support/database'
import { column, entity, text } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { queriesOf } from '../../support/queries'
import { useSmallBatches } from '../../support/small-batches'

const Page = entity('Page', {
  url: text(),
  /** The connection that created the row. */
  backend: column('integer', { default: () => 'pg_backend_pid()' }),
})
type Page = InstanceType<typeof Page>

/** Its entities are made with a query runner. */
@Entity()
class Chapter {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
  @ManyToOne(() => Chapter, { lazy: true }) parent!: Promise<Chapter | null>
}

/** Rows of a batch. */
const ROWS = 50

const db = useDatabase()
useSmallBatches(ROWS)
let dataSource: DataSource
const observer = db.useClient()

beforeAll(async () => {
  dataSource = await pooled(4)
})
beforeEach(() => observer.query('TRUNCATE page'))

/** Ready for the first call, so that it asks for nothing but its rows. */
async function pooled(max: number): Promise<DataSource> {
  const one = await db.dataSource([Page, Chapter], { extra: { max } })
  await findOrCreate(one.manager, Page, { url: 'the table is known to be ready' })
  await one.query('TRUNCATE page')
  return one
}

const poolOf = (source: DataSource): Pool => (source.driver as unknown as { readonly master: Pool }).master

/** Texts of so many full batches, and these. */
function textsOf(batches: number): { texts: string[]; batch: (nth: number) => string[] } {
  const texts = Array.from({ length: batches * limits.rows }, (_, index) => `text ${index}`)
  const sorted = texts.toSorted((left, right) => (md5.js(left) < md5.js(right) ? -1 : 1))
  return { texts, batch: (nth) => sorted.slice((nth - 1) * limits.rows, nth * limits.rows) }
}

const inputsOf = (texts: readonly string[]) => texts.map((url) => ({ url }))

const all = (texts: readonly string[], options: FindOrCreateManyOptions<Page> = {}, source = dataSource) =>
  findOrCreateMany(source.manager, Page, inputsOf(texts), options)

/** A session that has inserted a text and not committed: who wants the same waits for it. */
async function inserting(url = ''): Promise<Client> {
  const client = await db.client()
  await client.query('BEGIN')
  await client.query('INSERT INTO page (url) VALUES ($1)', [url])
  return client
}

/** Resolves once so many inputs are done. */
function progress(): {
  onProgress: Required<FindOrCreateManyOptions>['onProgress']
  until: (done: number) => Promise<void>
} {
  let done = 0
  let waiting: { readonly done: number; readonly resolve: () => void } | undefined
  return {
    onProgress: (reached) => {
      done = reached.done
      if (waiting && done >= waiting.done) waiting.resolve()
    },
    until: async (wanted) => {
      if (done < wanted) await new Promise<void>((resolve) => (waiting = { done: wanted, resolve }))
    },
  }
}

const storedTexts = async (): Promise<Set<string>> =>
  new Set((await observer.query<{ url: string }>('SELECT url FROM page')).rows.map(({ url }) => url))

const createdOf = (results: readonly FindOrCreateManyResult<Page>[]): boolean[] =>
  results.map((result) => rowOf(result).created)

function watched<T>(work: Promise<T>): { readonly work: Promise<T>; isSettled: () => boolean } {
  let settled = false
  const end = (): void => void (settled = true)
  work.then(end, end)
  return { work, isSettled: () => settled }
}

describe('two batches of a call are at the server at once', () => {
  test.each([1, 2])('the others go on while batch %i waits for another session', async (waiting) => {
    const { texts, batch } = textsOf(4)
    const [text = ''] = batch(waiting).slice(ROWS / 2)
    const other = await inserting(text)
    const { onProgress, until } = progress()
    const call = all(texts, { onProgress })
    await untilBlocked(observer)
    await until(3 * ROWS)
    expect((await storedTexts()).size).toBe(3 * ROWS)
    await other.query('COMMIT')
    const results = await call
    expect(createdOf(results)).toEqual(texts.map((one) => one !== text))
    expect(results).toEqual(texts.map((url) => expect.objectContaining({ entity: expect.objectContaining({ url }) })))
  })

  test('equal texts and rejected ones keep their places', async () => {
    const { texts } = textsOf(3)
    const inputs = [...texts.slice(0, 2 * ROWS), '\0', ...texts]
    const results = await all(inputs)
    expect(results.map((result) => ('error' in result ? 'rejected' : result.created))).toEqual([
      ...texts.slice(0, 2 * ROWS).map(() => true),
      'rejected',
      ...texts.slice(0, 2 * ROWS).map(() => false),
      ...texts.slice(2 * ROWS).map(() => true),
    ])
    const [first, again] = [results[7], results[2 * ROWS + 8]]
    expect(again).toMatchObject({ entity: (first as { readonly entity: Page }).entity })
  })

  test('calls of the same texts in any order meet without a deadlock, and each text is created once', async () => {
    limits.rows = 1_000
    const { texts } = textsOf(4)
    for (let round = 0; round < 3; round += 1) {
      await observer.query('TRUNCATE page')
      const results = await Promise.all([all(texts), all(texts.toReversed()), all(texts)])
      const flat = results.flat()
      expect(createdOf(flat).filter(Boolean)).toHaveLength(4_000)
      expect(flat.filter((result) => 'attempts' in result && result.attempts > 1)).toHaveLength(0)
    }
  })
})

describe('the second connection', () => {
  test.each([1, 2])('is no condition: calls on a pool of %i end', async (max) => {
    const source = await pooled(max)
    const { texts } = textsOf(3)
    const results = await Promise.all([1, 2, 3, 4].map(() => all(texts, {}, source)))
    expect(createdOf(results.flat()).filter(Boolean)).toHaveLength(3 * ROWS)
    expect(poolOf(source)).toMatchObject({ waitingCount: 0, idleCount: max })
  })

  test('is not waited for', async () => {
    const source = await pooled(2)
    const held = source.createQueryRunner()
    await held.connect()
    const { texts, batch } = textsOf(3)
    const other = await inserting(batch(1)[0])
    const call = all(texts, {}, source)
    await untilBlocked(observer)
    expect(poolOf(source).waitingCount).toBe(0)
    await other.query('COMMIT')
    await call
    await held.release()
  })

  test('is not asked for before the first is there again, where entities need a query runner', async () => {
    const source = await pooled(1)
    const { texts, batch } = textsOf(3)
    const other = await db.client()
    await other.query('BEGIN')
    await other.query('INSERT INTO chapter (url) VALUES ($1)', [batch(2)[0]])
    const call = findOrCreateMany(source.manager, Chapter, inputsOf(texts))
    await untilBlocked(observer)
    expect(poolOf(source)).toMatchObject({ waitingCount: 0, totalCount: 1 })
    await other.query('COMMIT')
    expect((await call).filter((result) => 'created' in result && result.created)).toHaveLength(3 * ROWS - 1)
  })

  test('goes to who waits for one, after its batch', async () => {
    const source = await pooled(2)
    const { texts, batch } = textsOf(6)
    const [first, second] = [await inserting(batch(1)[0]), await inserting(batch(2)[0])]
    const call = watched(all(texts, {}, source))
    await untilBlocked(observer, 2)
    const query = source.query('SELECT 1 AS answer')
    await second.query('COMMIT')
    expect(await query).toEqual([{ answer: 1 }])
    expect(await storedTexts()).toEqual(new Set(batch(2)))
    expect(call.isSettled()).toBe(false)
    await first.query('COMMIT')
    expect(createdOf(await call.work).filter((created) => !created)).toHaveLength(2)
  })

  test('the first is given back while the last batch waits on the second', async () => {
    const source = await pooled(2)
    const { texts, batch } = textsOf(2)
    const [first, second] = [await inserting(batch(1)[0]), await inserting(batch(2)[0])]
    const { onProgress, until } = progress()
    const call = all(texts, { onProgress }, source)
    await untilBlocked(observer, 2)
    await first.query('COMMIT')
    await until(ROWS)
    expect(await findOrCreate(source.manager, Page, { url: 'meanwhile' })).toMatchObject({ created: true })
    await second.query('COMMIT')
    await call
  })

  test('is not taken in the transaction of the caller', async () => {
    const source = await pooled(2)
    const { texts } = textsOf(3)
    const backends = await source.transaction(async (manager) => {
      const results = await findOrCreateMany(manager, Page, inputsOf(texts))
      return new Set(results.map((result) => ('entity' in result ? result.entity.backend : undefined)))
    })
    expect(backends.size).toBe(1)
  })

  test('is not taken where the connection tells whose tables are meant', async () => {
    const source = await db.dataSource([Page, Chapter], { extra: { max: 2 } }, { tenantsBySearchPath: true })
    await Promise.all([source.query('SELECT'), source.query('SELECT')])
    expect(poolOf(source).idleCount).toBe(2)
    const { texts } = textsOf(3)
    const results = await all(texts, {}, source)
    expect(new Set(results.map((result) => 'entity' in result && result.entity.backend)).size).toBe(1)
  })

  test('is not taken where the values come from a function', async () => {
    const { texts } = textsOf(3)
    const results = await all(texts, { create: () => ({}) })
    expect(new Set(results.map((result) => 'entity' in result && result.entity.backend)).size).toBe(1)
  })
})

describe('a batch that fails', () => {
  test('ends the call when the one beside it has ended, and no other begins', async () => {
    const { texts, batch } = textsOf(5)
    const [first, second] = [await inserting(batch(1)[0]), await inserting(batch(2)[0])]
    const { rows } = await second.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
    const call = watched(rejection(all(texts)))
    await untilBlocked(observer, 2)
    const lost = once(poolOf(dataSource), 'remove')
    await observer.query(
      `SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))`,
      [rows[0]?.pid],
    )
    await lost
    expect(call.isSettled()).toBe(false)
    await first.query('ROLLBACK')
    expect(await call.work).toMatchObject({ driverError: { code: '57P01' } })
    expect(await storedTexts()).toEqual(new Set(batch(1)))
    await second.query('ROLLBACK')
  })

  test('for a row that is refused takes no other row with it, beside another batch', async () => {
    const { texts, batch } = textsOf(3)
    const [bad] = batch(2).slice(10)
    await observer.query(`ALTER TABLE page ADD CONSTRAINT bad CHECK (url <> '${bad}')`)
    try {
      const results = await all(texts)
      expect(results.flatMap((result, index) => ('error' in result ? [texts[index]] : []))).toEqual([bad])
    } finally {
      await observer.query('ALTER TABLE page DROP CONSTRAINT bad')
    }
  })

  test('for a deadlock between two batches is sent again, and the rest goes one by one', async () => {
    const { texts, batch } = textsOf(6)
    const ends = [batch(1).at(0), batch(1).at(-1), batch(2).at(0), batch(2).at(-1)]
    // Each batch locks one of two, both wait at the gate, and then each wants the other's.
    await observer.query(`
      CREATE FUNCTION cross_locks() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF NEW.url IN ('${ends[0]}', '${ends[3]}') THEN PERFORM pg_advisory_xact_lock(1); END IF;
        IF NEW.url IN ('${ends[2]}', '${ends[1]}') THEN PERFORM pg_advisory_xact_lock(2); END IF;
        IF NEW.url IN ('${ends[0]}', '${ends[2]}') THEN PERFORM pg_advisory_lock_shared(3); END IF;
        RETURN NEW;
      END $$;
      CREATE TRIGGER cross_locks BEFORE INSERT ON page FOR EACH ROW EXECUTE FUNCTION cross_locks();
      SELECT pg_advisory_lock(3)`)
    try {
      const call = all(texts)
      await untilBlocked(observer, 2)
      await observer.query('SELECT pg_advisory_unlock(3)')
      const results = await call
      expect(createdOf(results).every(Boolean)).toBe(true)
      const again = results.filter((result) => 'attempts' in result && result.attempts > 1)
      expect(again).toHaveLength(ROWS)
      const rest = new Set([3, 4, 5, 6].flatMap(batch))
      const backends = results.flatMap((result) =>
        'entity' in result && rest.has(result.entity.url) ? [result.entity.backend] : [],
      )
      expect(new Set(backends).size).toBe(1)
    } finally {
      await observer.query('DROP TRIGGER cross_locks ON page; DROP FUNCTION cross_locks')
    }
  })
})

describe('a signal', () => {
  test('that is aborted already keeps everything from being sent', async () => {
    const signal = AbortSignal.abort(new Error('of the caller'))
    const sent = await queriesOf(dataSource, async () => {
      await expect(all(['a'], { signal })).rejects.toThrow('of the caller')
      await expect(all(['a'], { signal, relations: 'findOrCreate' })).rejects.toThrow('of the caller')
    })
    expect(sent).toEqual([])
  })

  test('that is aborted between two batches keeps the next from being sent; what was sent is stored', async () => {
    const source = await pooled(1)
    const { texts, batch } = textsOf(3)
    const abort = new AbortController()
    const onProgress = (): void => abort.abort(new Error('of the caller'))
    await expect(all(texts, { signal: abort.signal, onProgress }, source)).rejects.toThrow('of the caller')
    expect(await storedTexts()).toEqual(new Set(batch(1)))
  })

  test('that is aborted while a batch is at the server is heard when that has ended', async () => {
    const { texts, batch } = textsOf(5)
    const [first, second] = [await inserting(batch(1)[0]), await inserting(batch(2)[0])]
    const abort = new AbortController()
    const call = watched(rejection(all(texts, { signal: abort.signal })))
    await untilBlocked(observer, 2)
    abort.abort(new Error('of the caller'))
    await first.query('COMMIT')
    await second.query('COMMIT')
    expect(await call.work).toMatchObject({ message: 'of the caller' })
    expect(await storedTexts()).toEqual(new Set([...batch(1), ...batch(2)]))
  })

  test('that is aborted while the last batches are at the server is heard, and what they did is stored', async () => {
    const { texts, batch } = textsOf(2)
    const [first, second] = [await inserting(batch(1)[0]), await inserting(batch(2)[0])]
    const abort = new AbortController()
    const call = rejection(all(texts, { signal: abort.signal }))
    await untilBlocked(observer, 2)
    abort.abort(new Error('of the caller'))
    await first.query('COMMIT')
    await second.query('COMMIT')
    expect(await call).toMatchObject({ message: 'of the caller' })
    expect(await storedTexts()).toEqual(new Set(texts))
  })

  test('leaves the transaction of the caller usable', async () => {
    const { texts, batch } = textsOf(2)
    const abort = new AbortController()
    const options = { signal: abort.signal, onProgress: () => abort.abort(new Error('of the caller')) }
    await dataSource.transaction(async (manager) => {
      await expect(findOrCreateMany(manager, Page, inputsOf(texts), options)).rejects.toThrow('of the caller')
      expect(await findOrCreate(manager, Page, { url: 'after it' })).toMatchObject({ created: true })
    })
    expect(await storedTexts()).toEqual(new Set([...batch(1), 'after it']))
  })

  test('and what else is no option of its kind is refused', async () => {
    const wrong = (options: object) => all(['a'], options)
    await expect(wrong({ signal: new AbortController() })).rejects.toThrow('signal must be an AbortSignal')
    await expect(wrong({ onProgress: true })).rejects.toThrow('onProgress must be a function')
  })
})

describe('onProgress', () => {
  test.each([[{}], [{ relations: 'findOrCreate' as const }]])('counts inputs after each batch: %j', async (options) => {
    // With relations, rows are divided by another limit.
    limits.rows = 1_000
    const { texts } = textsOf(3)
    await all(texts.slice(0, 500))
    const seen: object[] = []
    const inputs = [...texts, ...texts.slice(0, 10), '\0']
    await all(inputs, { ...options, onProgress: (progress) => void seen.push(progress) })
    expect(seen.length).toBeGreaterThanOrEqual(3)
    expect(seen.at(-1)).toEqual({ done: 3_011, created: 2_500, rejected: 1 })
  })

  test('counts inputs that are all refused before there is a batch', async () => {
    const seen: object[] = []
    await all(['\0', '\0'], { onProgress: (progress) => void seen.push(progress) })
    expect(seen).toEqual([{ done: 2, created: 0, rejected: 2 }])
  })

  test('that throws ends the call, and nothing goes on', async () => {
    const source = await pooled(1)
    const { texts, batch } = textsOf(3)
    const onProgress = (): never => {
      throw new Error('of the caller')
    }
    await expect(all(texts, { onProgress }, source)).rejects.toThrow('of the caller')
    expect(await storedTexts()).toEqual(new Set(batch(1)))
  })
})
