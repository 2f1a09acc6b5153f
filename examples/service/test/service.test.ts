import type { FastifyInstance } from 'fastify'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { rename } from 'typeorm-unique-text/names'
import { buildApp } from '../src/app.js'
import dataSource from '../src/data-source.js'
import { Tenant } from '../src/entities.js'

let app: FastifyInstance

beforeAll(async () => {
  await dataSource.initialize()
  app = buildApp(dataSource)
})
afterAll(async () => {
  await app?.close()
  await dataSource.destroy()
})
beforeEach(async () => {
  await dataSource.query('TRUNCATE tenant, once_tokens RESTART IDENTITY CASCADE')
  await post('/tenants', { handle: 'Ada' })
})

async function send(method: 'GET' | 'PATCH' | 'POST', url: string, payload?: object | string, headers = {}) {
  const { statusCode, headers: answered, body } = await app.inject({ method, url, payload, headers })
  const isJson = String(answered['content-type']).startsWith('application/json')
  return { status: statusCode, headers: answered, body: isJson ? JSON.parse(body) : body }
}
const get = async (url: string) => await send('GET', url)
const post = async (url: string, payload: object | string, headers = {}) => await send('POST', url, payload, headers)

describe('tenants', () => {
  test('after a rename, the former handle redirects, and nobody else can take it', async () => {
    expect(await send('PATCH', '/ada', { handle: 'Countess' })).toMatchObject({
      status: 200,
      body: { handle: 'countess' },
    })
    const { status, headers } = await get('/ada/bookmarks?after=0')
    expect([status, headers.location]).toEqual([308, '/countess/bookmarks?after=0'])
    expect(await post('/tenants', { handle: 'ADA' })).toMatchObject({
      status: 409,
      body: { code: 'TEXT_TAKEN', taken: ['handle'] },
    })
  })

  test('a handle that is reserved is rejected, and an unknown tenant is not found', async () => {
    expect(await post('/tenants', { handle: 'metrics' })).toMatchObject({
      status: 422,
      body: { code: 'TEXT_REJECTED' },
    })
    expect(await get('/nobody/bookmarks')).toMatchObject({ status: 404 })
  })
})

describe('bookmarks', () => {
  test('a URL is stored once in a tenant, however it is spelled, and tags are shared', async () => {
    const first = await post('/ada/bookmarks', { url: 'HTTP://Example.com:80/a/../b', tags: ['To Read', 'sql'] })
    expect(first).toMatchObject({ status: 201, body: { url: 'http://example.com/b' } })
    const again = await post('/ada/bookmarks', { url: 'http://example.com/b', title: 'Not stored' })
    expect(again).toMatchObject({ status: 200, body: { id: first.body.id, title: null } })
    await post('/ada/bookmarks', { url: 'http://example.com/c', tags: ['to read'] })
    expect(await dataSource.query('SELECT label FROM tag ORDER BY label')).toEqual([
      { label: 'sql' },
      { label: 'to read' },
    ])
    const { body } = await get('/ada/bookmarks?tag=TO%20READ')
    expect(body.map(({ tags }: { tags: object[] }) => tags.length)).toEqual([2, 1])
    expect((await get('/ada/bookmarks?url=HTTP://EXAMPLE.com/c')).body).toMatchObject([{ url: 'http://example.com/c' }])
  })

  test('each tenant has bookmarks of its own', async () => {
    await post('/tenants', { handle: 'grace' })
    const answers = [
      await post('/ada/bookmarks', { url: 'http://a.example' }),
      await post('/grace/bookmarks', { url: 'http://a.example' }),
    ]
    expect(answers.map(({ status }) => status)).toEqual([201, 201])
    expect((await get('/grace/bookmarks')).body).toHaveLength(1)
  })

  test('of 50 equal requests at once, one creates the bookmark', async () => {
    const requests = Array.from({ length: 50 }, () =>
      post('/ada/bookmarks', { url: 'http://a.example', tags: ['new'] }),
    )
    const answers = await Promise.all(requests)
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1)
    expect(new Set(answers.map(({ body }) => body.id)).size).toBe(1)
  })

  test('a list of several megabytes is imported, and again', async () => {
    const urls = Array.from({ length: 2_000 }, (_, n) => `http://example.com/${n}/${'long'.repeat(400)}`)
    const list = ['# a list', ...urls, 'no URL'].join('\r\n')
    const headers = { 'content-type': 'text/uri-list' }
    expect((await post('/ada/bookmarks/import', list, headers)).body).toEqual({ created: 2_000, found: 0, rejected: 1 })
    expect((await post('/ada/bookmarks/import', list, headers)).body).toEqual({ created: 0, found: 2_000, rejected: 1 })
  })

  test('a body of another shape is a bad request, and a text that is not a URL cannot be processed', async () => {
    expect(await post('/ada/bookmarks', { link: 'http://a.example' })).toMatchObject({ status: 400 })
    expect(await post('/ada/bookmarks', { url: 'no URL' })).toMatchObject({
      status: 422,
      body: { code: 'TEXT_REJECTED' },
    })
  })
})

describe('invoices', () => {
  test('requests with one key make one invoice, and the numbers have no gaps', async () => {
    const pay = async (key: string, cents: number) => await post('/ada/invoices', { cents }, { 'idempotency-key': key })
    const answers = await Promise.all(Array.from({ length: 20 }, () => pay('first', 500)))
    expect(new Set(answers.map(({ status, body }) => `${status} ${body.number}`))).toEqual(new Set(['201 1']))
    expect(answers.filter(({ headers }) => headers['idempotent-replayed'] === 'false')).toHaveLength(1)
    expect(await pay('first', 700)).toMatchObject({ status: 422, body: { code: 'TOKEN_REUSED' } })
    expect(await pay('second', 700)).toMatchObject({ status: 201, body: { number: 2, cents: 700 } })
    expect(await post('/ada/invoices', { cents: 1 })).toMatchObject({ status: 400 })
  })
})

test('a row that no longer exists is not found', async () => {
  const own = buildApp(dataSource)
  own.get('/', async () => await rename(dataSource.manager, Tenant, 99, { handle: 'nobody' }))
  const { statusCode, body } = await own.inject('/')
  expect([statusCode, JSON.parse(body)]).toEqual([404, { code: 'NOT_FOUND', message: 'no such row' }])
  await own.close()
})

test('the service reports its health, and counts operations by their outcome', async () => {
  await post('/tenants', { handle: 'ada' })
  expect(await get('/health')).toMatchObject({ status: 200, body: { status: 'ok' } })
  const { body } = await get('/metrics')
  expect(body).toMatch(
    /unique_text_operation_seconds_count\{operation="insertOrFail",entity="Tenant",code="TEXT_TAKEN"\} [1-9]/,
  )
})
