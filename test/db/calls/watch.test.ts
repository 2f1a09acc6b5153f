import { type TracingChannelSubscribers, tracingChannel } from 'node:diagnostics_channel'
import { inspect } from 'node:util'
import { assert, asyncProperty, string, tuple } from 'fast-check'
import { afterEach, describe, expect, test } from 'vitest'
import {
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  type OperationEvent,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { findHolder, findOrCreateHolder, rename } from '../../../src/names'
import { countWithin } from '../../../src/numbers'
import { once, removeExpiredTokens } from '../../../src/once'
import { findOrCreateStream, findOrCreateTransform } from '../../../src/stream'
import { Url } from '../../../src/url'
import { ALL_CALLS, Comment, ENTITIES, Page, prepare, User } from '../../support/all-calls'
import { onlyRowOf } from '../../support/results'
import { useDatabase } from '../../support/database'
import { fewHashes } from '../../support/digests'
import { column, entity, text } from '../../support/entity'
import { rejection } from '../../support/ledger'

/** One chain holds everything. */
const Colliding = entity('Colliding', { url: text({ digest: fewHashes(1) }) })
const Short = entity('Short', { url: text(), code: column('varchar', { length: 40, nullable: true, unique: true }) })

const db = useDatabase()
const dataSource = db.useDataSource([...ENTITIES, Colliding, Short, Url])
const { manager } = dataSource
const operations = tracingChannel<unknown, OperationEvent>('typeorm-unique-text:operation')

type Phase = keyof TracingChannelSubscribers<OperationEvent>
interface Published {
  readonly phase: Phase
  readonly event: OperationEvent
}

const PHASES = ['start', 'end', 'asyncStart', 'asyncEnd', 'error'] as const
let leave = (): void => {}
afterEach(() => leave())

/** Subscribes until the end of the test, or until `leave` is called. */
function watch(hear: (published: Published) => void): void {
  const subscribers = Object.fromEntries(
    PHASES.map((phase) => [phase, (event: unknown) => hear({ phase, event: event as OperationEvent })]),
  ) as unknown as TracingChannelSubscribers<OperationEvent>
  operations.subscribe(subscribers)
  leave = () => {
    operations.unsubscribe(subscribers)
    leave = () => {}
  }
}

/** What is published from now on. */
function watchAll(): Published[] {
  const published: Published[] = []
  watch((one) => published.push(one))
  return published
}

const endsOf = (published: readonly Published[]): OperationEvent[] =>
  published.filter(({ phase }) => phase === 'asyncEnd').map(({ event }) => event)

const phasesOf = (published: readonly Published[], event: OperationEvent): Phase[] =>
  published.filter((one) => one.event === event).map(({ phase }) => phase)

/** Everything that can be reached from an event, getters and hidden properties too. */
const written = (value: unknown): string =>
  inspect(value, { depth: Infinity, showHidden: true, getters: true, maxStringLength: Infinity, maxArrayLength: null })

describe('every operation', () => {
  test.each(Object.entries(ALL_CALLS))('%s: one event, in the order of a tracing channel', async (name, call) => {
    await prepare(manager)
    const published = watchAll()
    await call(manager, 'a text of the test')
    const [event, ...more] = endsOf(published).filter(({ within }) => within === undefined)
    expect(more).toEqual([])
    expect(event).toMatchObject({ operation: name.split(' ')[0], refused: 0, attempts: 1, shared: false })
    expect(event && phasesOf(published, event)).toEqual(['start', 'end', 'asyncStart', 'asyncEnd'])
    expect(event?.milliseconds).toBeGreaterThan(0)
    const isOfAnEntity = !/^(?:findHolder|release|remove|once|forget)/u.test(name)
    expect(String(event?.entity)).toMatch(isOfAnEntity ? /^(?:Page|User|Comment)$/u : /^undefined$/u)
    expect(String(event?.property)).toMatch(isOfAnEntity ? /^(?:url|handle|number)$/u : /^undefined$/u)
    expect(written(published)).not.toContain('a text of the test')
  })

  test('every argument is taken by the second call', async () => {
    const results = async (): Promise<unknown> => {
      await dataSource.synchronize(true)
      await prepare(manager)
      const entities = [
        await findOrCreate(manager, Page, { url: 'a' }, { by: 'url', create: { title: 'b' } }),
        await findOneByText(manager, Page, { url: 'a' }, { relations: ['site'] }),
        await upsertByText(manager, Page, { url: 'a', title: 'c' }, { update: ['title'] }),
        await insertOrFail(manager, [
          [Page, [{ url: 'd' }]],
          [Comment, { text: 'e', post: 'p' }],
        ]),
        await updateOrFail(manager, [[Page, 1, { url: 'f' }]]),
        await findHolder(manager, 'handle', 'ada', { entity: true }),
        await rename(manager, User, 1, { handle: 'g' }),
        await countWithin(manager, Comment, { post: 'p' }, { by: 'number' }),
        await once(manager, 't', () => ({ id: 1 }), { request: { a: 1 } }),
        await removeExpiredTokens(manager, { batch: 1 }),
      ]
      return JSON.parse(JSON.stringify(entities, (key, value: unknown) => (key === 'since' ? undefined : value)))
    }
    const unwatched = await results()
    watchAll()
    expect(await results()).toEqual(unwatched)
  })

  test('the event tells what became of the rows', async () => {
    await prepare(manager)
    const published = watchAll()
    await findOrCreate(manager, Page, { url: 'there' })
    await findOrCreate(manager, Page, { url: 'new' })
    await findOrCreateMany(manager, Page, [{ url: 'there' }, { url: 'a\0b' }, { url: '1' }, { url: '1' }, { url: '2' }])
    await findOneByText(manager, Page, { url: 'nowhere' })
    await insertOrFail(manager, Page, [{ url: '3' }, { url: '4' }])
    await updateOrFail(manager, Page, 1, { title: 'a' })
    await once(manager, 'token', () => 1)
    await once(manager, 'token', () => 1)
    await removeExpiredTokens(manager)
    const counts = endsOf(published).map(({ operation, entity: of, property, rows, created, refused }) => [
      `${operation} ${of} ${property}`,
      [rows, created, refused],
    ])
    expect(counts).toEqual([
      ['findOrCreate Page url', [1, 0, 0]],
      ['findOrCreate Page url', [1, 1, 0]],
      ['findOrCreateMany Page url', [4, 2, 1]],
      ['findOneByText Page url', [0, 0, 0]],
      ['insertOrFail Page url', [2, 2, 0]],
      ['updateOrFail Page url', [1, 0, 0]],
      ['once undefined undefined', [1, 1, 0]],
      ['once undefined undefined', [1, 0, 0]],
      ['removeExpiredTokens undefined undefined', [0, 0, 0]],
    ])
  })

  test('Url has the events of find-or-create and look-ups', async () => {
    const published = watchAll()
    await Url.parse('http://example.com/secret', manager)
    expect(endsOf(published)).toMatchObject([{ operation: 'findOrCreate', entity: 'Url', property: 'url', created: 1 }])
    expect(written(published)).not.toMatch(/secret|example/u)
  })
})

test('collisions are counted where a row shares its hash', async () => {
  const published = watchAll()
  for (const url of ['a', 'b', 'b']) await findOrCreate(manager, Colliding, { url })
  await findOrCreateMany(manager, Colliding, [{ url: 'a' }, { url: 'b' }, { url: 'c' }])
  expect(endsOf(published).map(({ collisions, created }) => [collisions, created])).toEqual([
    [0, 1],
    [1, 1],
    [1, 0],
    [2, 1],
  ])
})

test('attempts are counted, in the event of the call that makes them', async () => {
  await findOrCreate(manager, Short, { url: 'first' })
  const client = await db.client()
  await client.query(`CREATE SEQUENCE tries; CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('tries') <= 2 THEN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END IF; RETURN NEW; END $$;
    CREATE TRIGGER lose BEFORE INSERT ON short FOR EACH ROW EXECUTE FUNCTION lose()`)
  try {
    const published = watchAll()
    await Promise.all([
      findOrCreate(manager, Short, { url: 'lost twice' }),
      findOneByText(manager, Short, { url: 'first' }),
    ])
    const attempts = Object.fromEntries(endsOf(published).map((one) => [one.operation, one.attempts]))
    expect(attempts).toEqual({ findOrCreate: 3, findOneByText: 1 })
  } finally {
    await client.query('DROP TRIGGER lose ON short; DROP FUNCTION lose; DROP SEQUENCE tries')
  }
})

test('calls that share a look-up have an event each, which says so', async () => {
  const rows = Array.from({ length: 60 }, (_, index) => ({ url: `text ${index % 30}` }))
  await findOrCreateMany(manager, Page, rows)
  await findOrCreate(manager, Page, { url: 'text 0' })
  const published = watchAll()
  await Promise.all(rows.map(async (row) => await findOrCreate(manager, Page, row)))
  const events = endsOf(published)
  expect(new Set(events).size).toBe(60)
  // The first eight go their ordinary way.
  expect(events.filter(({ shared }) => !shared)).toHaveLength(8)
  for (const event of events) expect(event).toMatchObject({ rows: 1, created: 0, attempts: 1 })
})

describe('operations in others', () => {
  test('name the one that called them; a call of the application has none', async () => {
    const published = watchAll()
    await findOrCreateHolder(manager, User, { handle: 'ada' })
    await once(manager, 'token', async (own) => (await findOrCreate(own, Page, { url: 'in work' })).created)
    await findOrCreate(manager, Page, { url: 'afterwards' })
    expect(endsOf(published).map(({ operation, within }) => [operation, within])).toEqual([
      ['insertOrFail', 'findOrCreateHolder'],
      ['findOrCreateHolder', undefined],
      ['findOrCreate', 'once'],
      ['once', undefined],
      ['findOrCreate', undefined],
    ])
  })

  test('a stream is one operation, from its first result to its end', async () => {
    const published = watchAll()
    const inputs = Array.from({ length: 7_000 }, (_, index) => ({
      url: index === 5 ? 'a\0b' : `text ${index % 4_000}`,
    }))
    const stream = findOrCreateStream(dataSource, Page, inputs)
    expect(published).toEqual([])
    let results = 0
    for await (const result of stream) {
      results += 'error' in result ? 0 : 1
      // What the loop calls is the application's.
      if (results === 1) await findOneByText(manager, Page, { url: 'x' })
    }
    const [inLoop, event, ...more] = endsOf(published)
    expect(more).toEqual([])
    expect(inLoop).toMatchObject({ operation: 'findOneByText', within: undefined })
    const counts = { rows: results, created: 4_000, refused: 1, property: 'url' }
    expect(event).toMatchObject({ operation: 'findOrCreateStream', ...counts })
    expect(event && phasesOf(published, event)).toEqual(['start', 'end', 'asyncStart', 'asyncEnd'])
  })

  test('a stream that ends early ends its source and its event', async () => {
    const published = watchAll()
    let isEnded = false
    function* source(): Generator<{ url: string }> {
      try {
        for (let index = 0; ; index += 1) yield { url: `text ${index}` }
      } finally {
        isEnded = true
      }
    }
    for await (const _ of findOrCreateStream(dataSource, Page, source(), { window: 10 })) break
    expect(isEnded).toBe(true)
    expect(endsOf(published)).toMatchObject([{ operation: 'findOrCreateStream', rows: 1 }])
  })

  test('a stream that fails tells it, by its class', async () => {
    const published = watchAll()
    const signal = AbortSignal.abort(new RangeError('a text'))
    const transform = findOrCreateTransform(dataSource, Page, { signal })
    expect(await rejection(transform.toArray())).toMatchObject({ message: 'a text' })
    expect(endsOf(published)).toMatchObject([
      { operation: 'findOrCreateTransform', error: { name: 'RangeError', code: undefined } },
    ])
  })
})

describe('an operation that fails', () => {
  const noManager = undefined as never
  const tooLong = { url: 'x', code: 'y'.repeat(41) }
  const invalid = { name: 'DeclarationError', code: 'INVALID_DECLARATION' }
  const abortedBy = (reason?: unknown) =>
    findOrCreateMany(manager, Page, [{ url: 'x' }], { signal: AbortSignal.abort(reason) })
  const failing = (): Promise<never> => Promise.reject(new RangeError('a text'))

  test.each<[string, () => Promise<unknown>, { name: string; code?: string }]>([
    ['no manager', () => findOrCreate(noManager, Page, { url: 'x' }), invalid],
    ['options that are null', () => findOrCreate(manager, Page, { url: 'x' }, null as never), invalid],
    ['no list', () => findOrCreateMany(manager, Page, 7 as never), invalid],
    ['no entries', () => insertOrFail(manager, [7] as never), invalid],
    ['no names', () => rename(manager, User, 1, null as never), invalid],
    ['a refused text', () => findOrCreate(manager, Page, { url: 'a\0' }), { name: 'TextRejectedError', code: 'TEXT_REJECTED' }], // prettier-ignore
    ['an aborted signal', () => abortedBy(), { name: 'AbortError' }],
    ['a reason that is no error', () => abortedBy('a text'), { name: 'string' }],
    [
      'an error of the server',
      () => upsertByText(manager, Short, tooLong),
      { name: 'QueryFailedError', code: '22001' },
    ],
    ["an error of the user's", () => once(manager, 'token', failing), { name: 'RangeError' }],
  ])('%s: throws what it throws unwatched, and tells class and code', async (_, call, { name, code }) => {
    const unwatched = await rejection(call())
    const published = watchAll()
    const thrown = await rejection(call())
    expect(thrown).toEqual(unwatched)
    expect(Object.getPrototypeOf(Object(thrown))).toBe(Object.getPrototypeOf(Object(unwatched)))
    const [event, ...more] = endsOf(published)
    expect(more).toEqual([])
    expect(event?.error).toEqual({ name, code })
    expect(event && phasesOf(published, event)).toEqual(['start', 'end', 'error', 'asyncStart', 'asyncEnd'])
    expect(written(published)).not.toContain('a text')
  })

  test.each<[string, () => Promise<unknown>]>([
    ['findOrCreate', () => findOrCreate(manager, Short, tooLong)],
    ['findOrCreateMany', () => onlyRowOf(findOrCreateMany(manager, Short, [tooLong]))],
    ['upsertByText', () => upsertByText(manager, Short, tooLong)],
    ['once', () => once(manager, '', () => 1)],
    ['insertOrFail', () => insertOrFail(manager, Short, tooLong)],
  ])("has the caller's line in the stack, by %s", async (_, call) => {
    watchAll()
    expect(await rejection(call())).toHaveProperty('stack', expect.stringContaining('watch.test.ts'))
  })
})

describe('a subscriber', () => {
  /** Node.js gives what a subscriber throws to the process. */
  async function uncaught(work: () => Promise<void>): Promise<unknown[]> {
    const errors: unknown[] = []
    const others = process.listeners('uncaughtException')
    process.removeAllListeners('uncaughtException').on('uncaughtException', (error) => errors.push(error))
    try {
      await work()
      await new Promise((resolve) => setImmediate(resolve))
    } finally {
      process.removeAllListeners('uncaughtException')
      for (const one of others) process.on('uncaughtException', one)
    }
    return errors
  }

  test('that throws changes nothing for the call', async () => {
    const errors = await uncaught(async () => {
      watch(({ phase }) => {
        throw new Error(phase)
      })
      expect(await findOrCreate(manager, Page, { url: 'x' })).toMatchObject({ created: true })
      const refused = findOrCreate(manager, Page, { url: 'a\0' })
      expect(await rejection(refused)).toMatchObject({ code: 'TEXT_REJECTED' })
      leave()
    })
    const phases = errors.map((error) => (error as Error).message).join(', ')
    expect(phases).toBe('start, end, asyncStart, asyncEnd, start, end, error, asyncStart, asyncEnd')
  })

  test('that leaves at the start of a call does not hide the next one', async () => {
    watch(() => leave())
    await findOrCreate(manager, Page, { url: 'x' })
    const published = watchAll()
    await findOrCreate(manager, Page, { url: 'x' })
    expect(endsOf(published)).toHaveLength(1)
  })

  test('that makes a call itself at the start of another hides neither', async () => {
    const published: Published[] = []
    const inner: Promise<unknown>[] = []
    watch((one) => {
      published.push(one)
      if (published.length === 1) inner.push(findOneByText(manager, Page, { url: 'x' }))
    })
    await findOrCreate(manager, Page, { url: 'x' })
    await Promise.all(inner)
    const names = endsOf(published).map(({ operation }) => operation)
    expect(names.sort()).toEqual(['findOneByText', 'findOrCreate'])
  })

  test('that comes during a call hears nothing of it', async () => {
    const call = findOrCreate(manager, Page, { url: 'x' })
    const published = watchAll()
    await call
    expect(published).toEqual([])
  })
})

test('concurrent calls of every kind have an event each, whatever fails', async () => {
  await prepare(manager)
  const published = watchAll()
  const calls = Object.entries(ALL_CALLS).flatMap(([name, call]) =>
    [0, 1, 2].map((nth) => call(manager, `${name} ${nth}`)),
  )
  await Promise.allSettled([...calls, ...[1, 2, 3].map(() => findOrCreate(manager, Page, { url: 'a\0' }))])
  const outer = endsOf(published).filter(({ within }) => within === undefined)
  expect(outer).toHaveLength(calls.length + 3)
  for (const event of endsOf(published)) {
    const last = ['asyncStart', 'asyncEnd']
    const phases = ['start', 'end', ...(event.error === undefined ? last : ['error', ...last])]
    expect(phasesOf(published, event)).toEqual(phases)
  }
})

test('no event ever holds a text, whatever the call does with it', async () => {
  await prepare(manager)
  const published = watchAll()
  // A text that nothing else holds, between characters of any kind.
  const texts = tuple(string({ unit: 'binary' }), string()).map(([before, after]) => `${before}Sécrèt${after}`)
  const calls: ((secret: string) => Promise<unknown>)[] = [
    ...Object.values(ALL_CALLS).map((call) => (secret: string) => call(manager, secret)),
    (secret) => findOrCreate(manager, secret, { url: secret }, { by: secret }),
    (secret) => findOrCreate(manager, Page, { url: secret }, { by: secret }),
    (secret) => findOneByText(manager, Page, { url: secret, [secret]: secret }),
    (secret) => findHolder(manager, secret, secret),
    (secret) => rename(manager, User, 1, { [secret]: secret }),
    (secret) => insertOrFail(manager, [[secret, { url: secret }]] as never),
    (secret) =>
      insertOrFail(manager, Short, [
        { url: `${secret} 1`, code: secret },
        { url: `${secret} 2`, code: secret },
      ]),
    (secret) => findOrCreate(manager, Short, { url: `${secret} 3`, code: secret }),
    (secret) => once(manager, secret, () => Promise.reject(new Error(secret))),
    (secret) => once(manager, secret, () => ({ [secret]: secret })),
    (secret) => findOrCreateMany(manager, Page, [{ url: secret }], { signal: AbortSignal.abort(secret) }),
    async (secret) => {
      for await (const _ of findOrCreateStream(dataSource, Page, [{ url: secret }, { url: `${secret}\0` }])) continue
    },
  ]
  await assert(
    asyncProperty(texts, async (secret) => {
      for (const call of calls) await call(secret).catch(() => undefined)
    }),
    { numRuns: 15 },
  )
  expect(published.length).toBeGreaterThan(1_000)
  expect(published.filter((one) => /S.{1,6}cr.{1,6}t/u.test(written(one)))).toEqual([])
})
