import { spawn } from 'node:child_process'
import { once as onceEvent } from 'node:events'
import path from 'node:path'
import { afterEach, describe, expect, test } from 'vitest'
import { DeclarationError } from '../../../src'
import { idempotent, OnceToken } from '../../../src/once'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { Payment } from '../../support/entities'
import {
  expressServer,
  fastifyServer,
  GATE,
  nestOnExpress,
  nestOnFastify,
  type Server,
} from '../../support/http-servers'

const db = useDatabase()
const dataSource = db.useDataSource([Payment, OnceToken], { poolSize: 3 })
const observer = db.useClient()

const servers: Server[] = []
afterEach(async () => {
  for (const { close } of servers.splice(0)) await close()
})
async function started(server: Promise<Server>): Promise<string> {
  servers.push(await server)
  return (await server).url
}

type Headers = Readonly<Record<string, string>>
const KEY: Headers = { 'idempotency-key': 'key' }

async function post(url: string, headers: Headers = KEY, body: object = { token: 'paid' }, signal?: AbortSignal) {
  const response = await fetch(url, {
    method: 'POST',
    ...(signal && { signal }),
    headers: { 'content-type': 'application/json', connection: 'close', ...headers },
    body: JSON.stringify(body),
  })
  const text = await response.text()
  return {
    status: response.status,
    replayed: response.headers.get('idempotent-replayed'),
    body: text === '' ? undefined : (JSON.parse(text) as unknown),
  }
}
const PAID = { status: 201, replayed: null, body: { token: 'paid' } }
const payments = async (): Promise<number> => await dataSource.manager.count(Payment)

describe.each([
  ['Express', expressServer],
  ['Fastify', fastifyServer],
  ['Nest on Express', nestOnExpress],
  ['Nest on Fastify', nestOnFastify],
])('%s', (name, serve) => {
  test('answers a copy with the stored status and body', async () => {
    const url = await started(serve(dataSource))
    expect(await post(url)).toEqual(PAID)
    expect(await post(url)).toEqual({ ...PAID, replayed: 'true' })
    expect(await payments()).toBe(1)
  })

  test('of 50 requests at once one pays; the others are refused or replayed', async () => {
    const url = await started(serve(dataSource))
    const answers = await Promise.all(Array.from({ length: 50 }, () => post(url)))
    const counts = { paid: 0, replayed: 0, running: 0 }
    for (const { status, replayed } of answers) {
      if (status === 409) counts.running += 1
      else if (status === 201) counts[replayed === null ? 'paid' : 'replayed'] += 1
    }
    expect(counts.paid).toBe(1)
    expect(counts.replayed + counts.running).toBe(49)
    expect(await payments()).toBe(1)
  })

  test('with patience all of 50 requests at once get the answer', async () => {
    const url = await started(serve(dataSource, { patience: '1 minute' }))
    const answers = await Promise.all(Array.from({ length: 50 }, () => post(url)))
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(50)
    expect(answers.filter(({ replayed }) => replayed === null)).toHaveLength(1)
    expect(await payments()).toBe(1)
  })

  test('answers 409 while the work runs', async () => {
    const url = await started(serve(dataSource))
    await observer.query('select pg_advisory_lock($1)', [GATE])
    const first = post(url)
    await untilBlocked(observer)
    expect(await post(url)).toMatchObject({ status: 409, body: { code: 'ONCE_RUNNING' } })
    await observer.query('select pg_advisory_unlock($1)', [GATE])
    expect(await first).toEqual(PAID)
  })

  test('answers 422 to another request under the same key, and keeps clients apart', async () => {
    const url = await started(serve(dataSource))
    await post(url)
    expect(await post(url, KEY, { token: 'other' })).toMatchObject({ status: 422, body: { code: 'TOKEN_REUSED' } })
    expect(await post(`${url}?other`)).toMatchObject({ status: 422 })
    expect(await post(url, { ...KEY, 'x-client': 'somebody' }, { token: 'other' })).toMatchObject({
      status: 201,
      body: { token: 'other' },
    })
  })

  test('answers 400 without a key, and runs the work each time where none is required', async () => {
    expect(await post(await started(serve(dataSource)), {})).toMatchObject({
      status: 400,
      body: { code: 'IDEMPOTENCY_KEY_REQUIRED' },
    })
    const free = await started(serve(dataSource, { required: false }))
    expect([await post(free, {}), await post(free, {})]).toEqual([PAID, PAID])
    expect(await payments()).toBe(2)
  })

  test('stores any status, and an answer without a body', async () => {
    const url = await started(serve(dataSource))
    for (const replayed of [null, 'true']) {
      const none = await post(url, { 'idempotency-key': 'none' }, { token: 'none', status: 204 })
      expect(none).toEqual({ status: 204, replayed, body: undefined })
      const failed = await post(url, { 'idempotency-key': 'failed' }, { token: 'failed', status: 402 })
      expect(failed).toEqual({ status: 402, replayed, body: { token: 'failed' } })
    }
  })

  test('an error of the work goes to the framework, and leaves no token', async () => {
    const url = await started(serve(dataSource))
    for (const [token, status] of [
      ['broken', 500],
      ['broken', 500],
      ['paid', 201],
    ] as const) {
      expect((await post(url, KEY, { token })).status).toBe(status)
    }
    expect((await post(url, { 'idempotency-key': 'no status' }, { token: 'a', status: 1000 })).status).toBe(500)
    expect(await payments()).toBe(1)
  })

  test.each([
    ['reused', 'TOKEN_REUSED'],
    ['failed inside', 'ONCE_FAILED'],
  ])('an error of `once` inside the work is one of the work: %s', async (token, code) => {
    const url = await started(serve(dataSource))
    const { status, replayed, body } = await post(url, KEY, { token })
    expect({ status, replayed }).toEqual({ status: 422, replayed: null })
    expect(body).toMatchObject({ code: name.startsWith('Nest') ? code : 'OF_THE_FRAMEWORK' })
    expect(await post(url)).toEqual(PAID)
  })

  test('a body that no parser has read is refused: another one would be taken for the same request', async () => {
    const url = await started(serve(dataSource))
    expect((await post(url, { ...KEY, 'content-type': 'application/x-unknown' })).status).toBe(415)
    expect(await post(url)).toEqual(PAID)
  })

  test('an answer that JSON cannot represent is not kept, and its writes are undone', async () => {
    const url = await started(serve(dataSource))
    expect((await post(url, KEY, { token: 'a date' })).status).toBe(500)
    expect(await payments()).toBe(0)
    expect((await post(url, KEY, { token: 'paid' })).status).toBe(201)
  })

  test('a client that goes away has paid, and gets the answer when it comes back', async () => {
    const url = await started(serve(dataSource))
    await observer.query('select pg_advisory_lock($1)', [GATE])
    const leaving = new AbortController()
    const lost = post(url, KEY, undefined, leaving.signal).catch((error: unknown) => error)
    await untilBlocked(observer)
    leaving.abort()
    expect(await lost).toMatchObject({ name: 'AbortError' })
    expect(await post(url)).toMatchObject({ status: 409 })
    await observer.query('select pg_advisory_unlock($1)', [GATE])
    await expect.poll(payments).toBe(1)
    expect(await post(url)).toEqual({ ...PAID, replayed: 'true' })
  })

  test('a pool of one connection refuses copies while the work holds it', async () => {
    const narrow = await db.dataSource([Payment, OnceToken], { synchronize: false, poolSize: 1 })
    const url = await started(serve(narrow))
    await observer.query('select pg_advisory_lock($1)', [GATE])
    const all = Array.from({ length: 50 }, () => post(url))
    await untilBlocked(observer)
    const [refused] = [await post(url)]
    await observer.query('select pg_advisory_unlock($1)', [GATE])
    const answers = await Promise.all(all)
    expect(refused).toMatchObject({ status: 409 })
    expect(answers.filter(({ replayed, status }) => status === 201 && replayed === null)).toHaveLength(1)
    expect(await payments()).toBe(1)
  })

  test('where connections are SERIALIZABLE, one of 50 requests pays', async () => {
    const extra = { options: '-c default_transaction_isolation=serializable' }
    const strict = await db.dataSource([Payment, OnceToken], { synchronize: false, extra })
    const url = await started(serve(strict, { patience: '1 minute' }))
    const statuses = (await Promise.all(Array.from({ length: 50 }, () => post(url)))).map(({ status }) => status)
    expect(statuses).toEqual(Array.from({ length: 50 }, () => 201))
    expect(await payments()).toBe(1)
  })
})

describe.each([
  ['Express', nestOnExpress],
  ['Fastify', nestOnFastify],
])('Nest on %s', (_, serve) => {
  test('keeps an HttpException as the answer where the route says so, without the writes', async () => {
    const url = `${await started(serve(dataSource))}/declined`
    const declined = { status: 402, body: { reason: 'card declined' } }
    expect(await post(url)).toEqual({ ...declined, replayed: null })
    expect(await post(url)).toEqual({ ...declined, replayed: 'true' })
    expect(await payments()).toBe(0)
    expect((await post(url, { 'idempotency-key': 'broken' }, { token: 'broken' })).status).toBe(500)
    expect((await post(url, { 'idempotency-key': 'broken' }, { token: 'broken' })).status).toBe(500)
  })

  test('a handler that sends its response itself is undone: nobody could be sent it again', async () => {
    const url = `${await started(serve(dataSource))}/sent`
    await post(url)
    expect(await payments()).toBe(0)
  })

  test('an error of this package gets its status, its code and its message', async () => {
    const url = `${await started(serve(dataSource))}/taken`
    expect(await post(url)).toMatchObject({ status: 422, body: { statusCode: 422, code: 'TEXT_REJECTED' } })
    expect(await post(url, { 'x-client': 'fault' })).toEqual({
      status: 500,
      replayed: null,
      body: { statusCode: 500, message: 'Internal server error' },
    })
  })
})

test('a process that is killed while it pays has not paid: 409 elsewhere before, and the payment after', async () => {
  const program = path.join(import.meta.dirname, '../../support/http-servers.ts')
  const child = spawn(process.execPath, ['--import', 'tsx', program, db.url], {
    cwd: path.resolve(import.meta.dirname, '../../..'),
  })
  const [address] = (await onceEvent(child.stdout, 'data')) as [Buffer]
  const url = await started(expressServer(dataSource))
  await observer.query('select pg_advisory_lock($1)', [GATE])
  const lost = post(String(address)).catch((error: unknown) => error)
  await untilBlocked(observer)
  expect(await post(url)).toMatchObject({ status: 409 })
  child.kill('SIGKILL')
  expect(await lost).toBeInstanceOf(Error)
  await observer.query(
    `select pg_terminate_backend(pid, 5000) from pg_stat_activity where wait_event = 'advisory' and datname = current_database()`,
  )
  await observer.query('select pg_advisory_unlock($1)', [GATE])
  expect(await post(url)).toEqual(PAID)
  expect(await payments()).toBe(1)
})

const me = { client: (): string => 'me' }

test.each([
  [{}],
  [{ client: 'me' }],
  [{ ...me, retry: true }],
  [{ ...me, patience: '0 seconds' }],
  [{ ...me, expires: 'soon' }],
])('the options %o are refused', (options) => {
  expect(() => idempotent(dataSource, options as never, () => ({}))).toThrow(DeclarationError)
})
