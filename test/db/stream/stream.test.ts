import { createHash } from 'node:crypto'
import { getEventListeners, once } from 'node:events'
import { Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Client } from 'pg'
import { type DataSource, EntityMetadataNotFoundError } from 'typeorm'
import { afterEach, describe, expect, test } from 'vitest'
import type { FindOrCreateManyResult, FindOrCreateProgress as Progress } from '../../../src'
import { DeclarationError, findOrCreate, SchemaDriftError } from '../../../src'
import { findOrCreateStream, findOrCreateTransform } from '../../../src/stream'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { column, deleteDate, entity, plain, text } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { Page } from '../../support/normalized-page'

const db = useDatabase()

const Note = entity('Note', { text: text(), title: plain(), deletedAt: deleteDate() })
const Small = entity('Small', { text: text(), size: column('smallint') })
const Lost = entity('Lost', { text: text() })
const Sent = entity('Sent', {
  text: text(),
  /** The connection that created the row. */
  backend: column('integer', { default: () => 'pg_backend_pid()' }),
})

type Result = FindOrCreateManyResult<Page>

const dataSource = db.useDataSource([Page, Note, Small], { emptied: false })
const other = db.useClient()
const observer = db.useClient()

/** Inputs of one host, so that tests do not meet. */
const page = (host: string, index: number | string): { url: string } => ({ url: `http://${host}.example/${index}` })

const pages = (host: string, count: number): { url: string }[] =>
  Array.from({ length: count }, (_, index) => page(host, index))

/** A source that counts what was read of it, and knows whether it was ended. */
class Counted {
  read = 0
  ended = false

  constructor(private readonly inputs: Iterable<{ url: string }>) {}

  async *asynchronously(): AsyncGenerator<{ url: string }> {
    yield* this.synchronously()
  }

  *synchronously(): Generator<{ url: string }> {
    try {
      for (const input of this.inputs) {
        this.read += 1
        yield input
      }
    } finally {
      this.ended = true
    }
  }
}

async function collectAny<T>(results: AsyncIterable<T>): Promise<T[]> {
  const collected: T[] = []
  for await (const result of results) collected.push(result)
  return collected
}

async function collect(results: AsyncIterable<Result>, into: Result[] = []): Promise<Result[]> {
  for await (const result of results) into.push(result)
  return into
}

const urlsOf = (results: readonly Result[]): string[] =>
  results.map((result) => ('entity' in result ? result.entity.url : result.error.name))

const createdOf = (results: readonly Result[]): boolean[] =>
  results.map((result) => 'entity' in result && result.created)

/** Connections of the pool that are taken. */
function taken({ driver }: DataSource = dataSource): number {
  const { master } = driver as unknown as { master: { totalCount: number; idleCount: number } }
  return master.totalCount - master.idleCount
}

const rowsOf = async (host: string): Promise<number> => {
  const { rows } = await observer.query<{ n: number }>(`select count(*)::int as n from page where url like $1`, [
    `http://${host}.example/%`,
  ])
  return rows[0]?.n ?? 0
}

/** Another session is about to store a text: whoever wants to store it too waits until `release`. */
async function hold(host: string, index: number, holder: Client = other): Promise<void> {
  await holder.query('begin')
  await holder.query(`insert into page (url) values ($1)`, [page(host, index).url])
}
const release = async (holder: Client = other): Promise<unknown> => await holder.query('rollback')

describe('findOrCreateStream', () => {
  afterEach(() => expect(taken()).toBe(0))

  test.each(['synchronously', 'asynchronously'] as const)(
    'gives results in the order of a source read %s',
    async (how) => {
      const host = `order-${how}`
      await findOrCreate(dataSource.manager, Page, page(host, 7))
      const source = new Counted([...pages(host, 2_500), page(host, 3), { url: 'no url' }])
      const results = await collect(findOrCreateStream(dataSource, Page, source[how]()))
      const expected = pages(host, 2_500).map((one) => one.url)
      expect(urlsOf(results)).toEqual([...expected, page(host, 3).url, 'TextRejectedError'])
      expect(createdOf(results)).toEqual([...expected.map((_, index) => index !== 7), false, false])
      expect(await rowsOf(host)).toBe(2_500)
    },
  )

  test('an array is a source; an empty one gives nothing', async () => {
    expect(urlsOf(await collect(findOrCreateStream(dataSource, Page, pages('array', 2))))).toHaveLength(2)
    expect(await collect(findOrCreateStream(dataSource, Page, []))).toEqual([])
  })

  test.each([1, 10, 2_500, 100_000])('with a window of %i rows gives the same', async (window) => {
    const host = `window-${window}`
    const inputs = [...pages(host, 3_000), ...pages(host, 3_000)].slice(0, window === 1 ? 20 : undefined)
    const results = await collect(findOrCreateStream(dataSource, Page, inputs, { window }))
    expect(urlsOf(results)).toEqual(inputs.map((one) => one.url))
    expect(createdOf(results)).toEqual(inputs.map((_, index) => index < Math.min(3_000, inputs.length)))
  })

  test('"create" and "deleted" know the place of an input among all of them', async () => {
    const inputs = Array.from({ length: 30 }, (_, index) => ({ text: `note ${index}` }))
    const [gone] = await collectAny(findOrCreateStream(dataSource, Note, [{ text: 'note 25' }]))
    await dataSource.manager.softRemove(Note, gone && 'entity' in gone ? gone.entity : {})
    const called: number[] = []
    const create = (values: object, index: number): object => {
      expect(values).toEqual(inputs[index])
      called.push(index)
      return { title: `of ${index}` }
    }
    const options = { window: 10, create, deleted: 'throw' } as const
    const results = await collectAny(findOrCreateStream(dataSource, Note, inputs, options))
    const created = inputs.map((_, index) => index).filter((index) => index !== 25)
    expect(called).toEqual(created)
    expect(results.map((one) => 'entity' in one && one.entity.title)).toEqual(
      inputs.map((_, index) => index !== 25 && `of ${index}`),
    )
    expect(results[25]).toMatchObject({ error: { code: 'TEXT_TAKEN', taken: [{ row: 25 }] } })
  })

  test('only the first of equal texts is created, though several batches that hold it are at the server', async () => {
    const inputs = Array.from({ length: 15_000 }, (_, index) => page('equal', index % 700))
    const results = await collect(findOrCreateStream(dataSource, Page, inputs))
    expect(createdOf(results)).toEqual(inputs.map((_, index) => index < 700))
  })

  test('the first of equal texts is created, though the batch of the second is done before', async () => {
    const hash = ({ url: text }: { url: string }): string => createHash('md5').update(text).digest('hex')
    const inputs = pages('second', 1_999)
    const sorted = inputs.slice(0, 1_000).toSorted((left, right) => (hash(left) < hash(right) ? -1 : 1))
    // The first batch waits before it comes to the text that the second one has too.
    const [waiting, both] = [sorted[0], sorted.at(-1)]
    if (!waiting || !both) throw new TypeError('There are a thousand.')
    await other.query('begin')
    await other.query(`insert into page (url) values ($1)`, [waiting.url])
    const told: Progress[] = []
    const onProgress = (progress: Progress): void => void told.push(progress)
    const stream = findOrCreateStream(dataSource, Page, [...inputs, both], { onProgress, window: 1_000 })
    const streamed = collect(stream)
    await untilBlocked(observer)
    while ((await rowsOf('second')) < 999) continue
    await other.query('rollback')
    expect(createdOf(await streamed)).toEqual([...inputs.map(() => true), false])
    expect(told.at(-1)).toEqual({ done: 2_000, created: 1_999, rejected: 0 })
  })

  test('an input that is read after an equal one was answered is looked up again: its row may be gone', async () => {
    let answered = (): void => {}
    const untilAnswered = new Promise<void>((resolve) => (answered = resolve))
    async function* deleting(): AsyncGenerator<{ url: string }> {
      yield page('deleted', 1)
      await untilAnswered
      await other.query(`DELETE FROM page WHERE url = $1`, [page('deleted', 1).url])
      yield page('deleted', 1)
    }
    const results: Result[] = []
    for await (const result of findOrCreateStream(dataSource, Page, deleting())) {
      results.push(result)
      answered()
    }
    const { rows } = await other.query<Page>('SELECT * FROM page WHERE url = $1', [page('deleted', 1).url])
    expect(results).toMatchObject([{ created: true }, { created: true, entity: { id: rows[0]?.id } }])
  })

  test('AfterLoad fires once for a row, though its window tries an input again that an earlier one was refused for', async () => {
    await findOrCreate(dataSource.manager, Small, { text: 'found', size: 1 })
    const loaded: string[] = []
    const subscriber = {
      listenTo: () => Small,
      afterLoad: (row: InstanceType<typeof Small>): void => void loaded.push(row.text),
    }
    dataSource.subscribers.push(subscriber)
    const inputs = [
      { text: 'one', size: 1 },
      { text: 'both', size: 2 ** 15 },
      { text: 'both', size: 2 },
      { text: 'found', size: 3 },
    ]
    const results: FindOrCreateManyResult<InstanceType<typeof Small>>[] = []
    for await (const result of findOrCreateStream(dataSource, Small, inputs, { window: 2 })) results.push(result)
    dataSource.subscribers.splice(dataSource.subscribers.indexOf(subscriber), 1)
    expect(results).toMatchObject([{ created: true }, { error: {} }, { created: true }, { created: false }])
    expect(loaded).toEqual(['found'])
  })

  test('a later batch that ends first waits for its turn', async () => {
    await hold('turn', 5)
    const results: Result[] = []
    const streamed = collect(findOrCreateStream(dataSource, Page, pages('turn', 6_000)), results)
    await untilBlocked(observer)
    while ((await rowsOf('turn')) < 3_000) continue
    expect(results).toEqual([])
    await release()
    await streamed
    expect(urlsOf(results)).toEqual(pages('turn', 6_000).map((one) => one.url))
  })
})

describe('an end before the end', () => {
  afterEach(() => expect(taken()).toBe(0))

  test('a loop that ends early ends the source, waits for the batches at the server, and holds no connection', async () => {
    const another = await db.client()
    await hold('break', 500)
    await hold('break', 1_500, another)
    const source = new Counted(pages('break', 20_000))
    const results = findOrCreateStream(dataSource, Page, source.asynchronously(), { window: 1_000 })
    const first = results.next()
    // Two windows are at the server before the first result is taken, however slow the source is.
    await untilBlocked(observer, 2)
    await release()
    expect(urlsOf([(await first).value as Result])).toEqual([page('break', 0).url])
    let hasEnded = false
    // What a loop calls that ends early.
    const end = results.return(undefined).then(() => (hasEnded = true))
    await untilBlocked(observer)
    expect(hasEnded).toBe(false)
    await release(another)
    await end
    expect(source.ended).toBe(true)
    expect(source.read).toBeLessThanOrEqual(5_000)
    expect(taken()).toBe(0)
    expect([2_000, 3_000]).toContain(await rowsOf('break'))
  })

  test('an error of the source comes after the results of what was read before', async () => {
    function* source(): Generator<{ url: string }> {
      yield* pages('broken', 1_500)
      throw new Error('the disk is gone')
    }
    const results: Result[] = []
    const error = await rejection(collect(findOrCreateStream(dataSource, Page, source()), results))
    expect(error).toMatchObject({ message: 'the disk is gone' })
    expect(urlsOf(results)).toEqual(pages('broken', 1_500).map((one) => one.url))
    expect(await rowsOf('broken')).toBe(1_500)
  })

  test('a signal: the results of what was sent, then its reason; nothing more is sent', async () => {
    const controller = new AbortController()
    const { signal } = controller
    const source = new Counted(pages('aborted', 100_000))
    const results: Result[] = []
    const told: Progress[] = []
    const onProgress = (progress: Progress): void => {
      told.push(progress)
      controller.abort(new Error('enough'))
    }
    const stream = findOrCreateStream(dataSource, Page, source.synchronously(), { signal, onProgress })
    expect(await rejection(collect(stream, results))).toBe(signal.reason)
    expect(results.length).toBeGreaterThanOrEqual(1_000)
    expect(await rowsOf('aborted')).toBe(results.length)
    expect(told.at(-1)).toEqual({ done: results.length, created: results.length, rejected: 0 })
    expect(source.ended).toBe(true)
  })

  test('a signal keeps what was read from being sent', async () => {
    await hold('kept', 0)
    const controller = new AbortController()
    const { signal } = controller
    const source = new Counted(pages('kept', 5_000))
    // One at a time.
    const alone = await db.dataSource([Page, Note], { synchronize: false, extra: { max: 1 } })
    const results: Result[] = []
    const stream = findOrCreateStream(alone, Page, source.synchronously(), { signal, window: 1_000 })
    const ended = rejection(collect(stream, results))
    await untilBlocked(observer)
    while (source.read < 2_000) await nextTurn()
    controller.abort()
    await release()
    expect(await ended).toBe(signal.reason)
    expect(results).toHaveLength(1_000)
    expect(await rowsOf('kept')).toBe(1_000)
  })

  test('whatever onProgress throws ends it, and nothing more is sent', async () => {
    // One window at a time.
    const alone = await db.dataSource([Page, Note], { synchronize: false, extra: { max: 1 } })
    for (const thrown of [new Error('of the caller'), undefined]) {
      const onProgress = (): never => {
        // oxlint-disable-next-line typescript/only-throw-error
        throw thrown
      }
      const inputs = pages('thrown', 3_000)
      const stream = findOrCreateStream(alone, Page, inputs, { onProgress, window: 1_000 })
      expect(await rejection(collect(stream, []))).toBe(thrown)
      expect([thrown, await rowsOf('thrown')]).toEqual([thrown, 1_000])
    }
  })

  test('a signal is heard while the source gives nothing', async () => {
    const controller = new AbortController()
    async function* source(): AsyncGenerator<{ url: string }> {
      yield page('silent', 1)
      await new Promise(() => {})
    }
    const stream = findOrCreateStream(dataSource, Page, source(), { signal: controller.signal })
    const { value } = await stream.next()
    expect(urlsOf(value ? [value] : [])).toEqual([page('silent', 1).url])
    setImmediate(() => controller.abort())
    expect(await rejection(stream.next())).toBe(controller.signal.reason)
  })

  test('a source that gives nothing is ended, whatever comes of that', async () => {
    const controller = new AbortController()
    const { signal } = controller
    let ended = 0
    const source: AsyncIterable<{ url: string }> = {
      [Symbol.asyncIterator]: () => ({
        next: async () => await new Promise(() => {}),
        return: async () => {
          ended += 1
          throw new Error('not heard')
        },
      }),
    }
    const first = findOrCreateStream(dataSource, Page, source, { signal }).next()
    setImmediate(() => controller.abort())
    expect(await rejection(first)).toBe(signal.reason)
    expect(ended).toBe(1)
  })

  test('a signal that many streams share keeps none of them', async () => {
    const { signal } = new AbortController()
    await collect(findOrCreateStream(dataSource, Page, pages('shared-signal', 3), { signal }))
    for await (const _ of findOrCreateStream(dataSource, Page, pages('shared-signal', 3), { signal })) break
    expect(getEventListeners(signal, 'abort')).toEqual([])
  })

  test('one that is aborted already reads nothing', async () => {
    const source = new Counted(pages('never', 10))
    const signal = AbortSignal.abort()
    const stream = findOrCreateStream(dataSource, Page, source.synchronously(), { signal })
    expect(await rejection(collect(stream))).toBe(signal.reason)
    expect(source.read).toBe(0)
  })

  test('an error of the connection comes after the results that came before', async () => {
    await other.query(`
      CREATE OR REPLACE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = 'could not extend file'; END $$;
      CREATE TRIGGER full_disk BEFORE INSERT ON page FOR EACH ROW
        WHEN (NEW.url = 'http://full.example/2500') EXECUTE FUNCTION full_disk()`)
    const source = new Counted(pages('full', 50_000))
    const results: Result[] = []
    let progress: Progress | undefined
    const stream = findOrCreateStream(dataSource, Page, source.synchronously(), {
      window: 1_000,
      onProgress: (now) => (progress = now),
    })
    const error = await rejection(collect(stream, results))
    expect(error).toMatchObject({ message: 'could not extend file', code: '53100' })
    expect(urlsOf(results)).toEqual(pages('full', 2_000).map((one) => one.url))
    // Those that were at the server beside it are counted too.
    const stored = await rowsOf('full')
    expect(progress).toEqual({ done: stored, created: stored, rejected: 0 })
    expect(source.read).toBeLessThanOrEqual(6_000)
    expect(source.ended).toBe(true)
    await other.query('DROP TRIGGER full_disk ON page')
  })

  test('a table that is not ready is told before anything is read', async () => {
    const bare = await db.dataSource([Lost], { synchronize: false })
    const source = new Counted(pages('lost', 10))
    const stream = findOrCreateStream(bare, Lost, source.synchronously() as Iterable<object>)
    expect(await rejection(stream.next())).toBeInstanceOf(SchemaDriftError)
    expect(source.read).toBe(0)
  })
})

describe('back pressure', () => {
  test.each(['synchronously', 'asynchronously'] as const)(
    'a source read %s is read ahead by no more than five windows',
    async (how) => {
      const source = new Counted(pages(`ahead-${how}`, 100_000))
      let taken = 0
      let most = 0
      for await (const _ of findOrCreateStream(dataSource, Page, source[how](), { window: 500 })) {
        most = Math.max(most, source.read - taken)
        taken += 1
      }
      expect(taken).toBe(100_000)
      expect(most).toBeLessThanOrEqual(2_500)
    },
  )

  test('by one connection where that tells whose tables are meant', async () => {
    const source = await db.dataSource([Sent], { extra: { max: 3 } }, { tenantsBySearchPath: true })
    await Promise.all([1, 2, 3].map(async () => await source.query('SELECT')))
    const inputs = Array.from({ length: 4_000 }, (_, index) => ({ text: `tenant ${index}` }))
    const results = await collectAny(findOrCreateStream(source, Sent, inputs, { window: 1_000 }))
    expect(new Set(results.map((one) => 'entity' in one && one.entity.backend)).size).toBe(1)
  })

  test('with a pool of one connection', async () => {
    const own = await db.dataSource([Page], { synchronize: false, extra: { max: 1 } })
    const results = await collect(findOrCreateStream(own, Page, pages('single', 10_500)))
    expect(urlsOf(results)).toEqual(pages('single', 10_500).map((one) => one.url))
    expect(taken(own)).toBe(0)
  })

  test('a source that waits for the result of what it gave gets it', async () => {
    let answered = (): void => {}
    async function* source(): AsyncGenerator<{ url: string }> {
      for (const input of pages('dialogue', 20)) {
        yield input
        await new Promise<void>((resolve) => (answered = resolve))
      }
    }
    const results: Result[] = []
    for await (const result of findOrCreateStream(dataSource, Page, source())) {
      results.push(result)
      answered()
    }
    expect(urlsOf(results)).toEqual(pages('dialogue', 20).map((one) => one.url))
  })
})

describe('findOrCreateTransform', () => {
  test('stands in a pipeline', async () => {
    const results: Result[] = []
    const sink = new Writable({
      objectMode: true,
      write: (result: Result, _, callback) => {
        results.push(result)
        callback()
      },
    })
    await pipeline(Readable.from(pages('pipeline', 5_000)), findOrCreateTransform(dataSource, Page), sink)
    expect(urlsOf(results)).toEqual(pages('pipeline', 5_000).map((one) => one.url))
  })

  test('without inputs it ends', async () => {
    await pipeline(Readable.from([]), findOrCreateTransform(dataSource, Page), new Writable({ objectMode: true }))
  })

  test('destroyed, it closes after the batches at the server, and sends nothing more', async () => {
    const transform = findOrCreateTransform(dataSource, Page, { window: 500 })
    const source = new Counted(pages('destroyed', 100_000))
    await hold('destroyed', 499)
    const sink = new Writable({ objectMode: true, write: () => {} })
    // Heard from the beginning, for it may end before anybody looks.
    const ended = rejection(pipeline(source.asynchronously(), transform, sink))
    await untilBlocked(observer)
    transform.destroy(new Error('enough'))
    await rowsOf('destroyed')
    expect(transform.closed).toBe(false)
    await release()
    expect(await ended).toMatchObject({ message: 'enough' })
    expect(taken()).toBe(0)
    expect(source.read).toBeLessThan(5_000)
    expect(await rowsOf('destroyed')).toBeLessThanOrEqual(2_000)
  })

  test('an error of the operation destroys it, and fails the pipeline', async () => {
    const bare = await db.dataSource([Lost], { synchronize: false })
    const sink = new Writable({ objectMode: true })
    const piped = pipeline(Readable.from([{ text: 'a' }]), findOrCreateTransform(bare, Lost), sink)
    expect(await rejection(piped)).toBeInstanceOf(SchemaDriftError)
  })

  test('an aborted signal fails it, though nothing was ever written', async () => {
    const late = new AbortController()
    const waiting = rejection(once(findOrCreateTransform(dataSource, Page, { signal: late.signal }), 'close'))
    late.abort(new Error('late'))
    expect(await waiting).toMatchObject({ message: 'late' })
    const early = findOrCreateTransform(dataSource, Page, { signal: late.signal })
    expect(await rejection(once(early, 'close'))).toMatchObject({ message: 'late' })
    const signal = AbortSignal.abort(new Error('early'))
    const sink = new Writable({ objectMode: true })
    const piped = pipeline(Readable.from([]), findOrCreateTransform(dataSource, Page, { signal }), sink)
    expect(await rejection(piped)).toMatchObject({ message: 'early' })
    expect(taken()).toBe(0)
  })

  test('a reader that takes its time is waited for', async () => {
    const source = new Counted(pages('slow-reader', 100_000))
    const transform = findOrCreateTransform(dataSource, Page, { window: 1_000 })
    const piped = rejection(pipeline(source.asynchronously(), transform))
    for await (const result of transform) {
      expect(urlsOf([result as Result])).toEqual([page('slow-reader', 0).url])
      break
    }
    await piped
    expect(source.read).toBeLessThan(6_000)
    expect(source.ended).toBe(true)
  })
})

test.each([
  [[dataSourceOf, Page, 'http://a.example/'], 'expected an iterable or an async iterable of objects, got string'],
  [[dataSourceOf, Page, 5], 'got number'],
  [[dataSourceOf, Page, {}], 'got an object'],
  [[() => dataSource.manager, Page, []], 'Expected a DataSource, got an instance of EntityManager'],
  [[() => dataSource.createQueryRunner(), Page, []], 'Expected a DataSource, got an instance of PostgresQueryRunner'],
  [[dataSourceOf, Lost, []], 'No metadata for "Lost" was found'],
  [[dataSourceOf, Page, [], { window: 0 }], 'window must be a whole number above 0'],
  [[dataSourceOf, Page, [], { signal: 1 }], 'signal must be an AbortSignal'],
  [[dataSourceOf, Page, [], { signal: { throwIfAborted: () => {} } }], 'signal must be an AbortSignal'],
  [[dataSourceOf, Page, [], { onProgress: 1 }], 'onProgress must be a function'],
  [[dataSourceOf, Page, [], { relations: 'findOrCreate' }], 'there is no option "relations"'],
  [[dataSourceOf, Page, [], { deleted: 'throw' }], 'needs a @DeleteDateColumn'],
])('wrong arguments are refused at the call, before any SQL: %#', ([first, ...rest], message) => {
  const call = (): unknown => Reflect.apply(findOrCreateStream, undefined, [(first as () => unknown)(), ...rest])
  expect(call).toThrow(message)
  expect(call).toThrow(message.startsWith('No metadata') ? EntityMetadataNotFoundError : DeclarationError)
})

function dataSourceOf(): DataSource {
  return dataSource
}
