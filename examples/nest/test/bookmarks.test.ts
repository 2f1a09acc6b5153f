import 'reflect-metadata'
import type { AddressInfo } from 'node:net'
import type { INestApplication } from '@nestjs/common'
import { Test } from '@nestjs/testing'
import { DataSource } from 'typeorm'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { AppModule } from '../src/app.module.js'
import { Bookmark } from '../src/bookmarks/bookmark.entity.js'

let app: INestApplication
let address: string

beforeAll(async () => {
  const module = await Test.createTestingModule({ imports: [AppModule] }).compile()
  app = module.createNestApplication()
  await app.listen(0, '127.0.0.1')
  address = `http://127.0.0.1:${(app.getHttpServer().address() as AddressInfo).port}/bookmarks`
})
afterAll(async () => await app?.close())
beforeEach(async () => await app.get(DataSource).manager.clear(Bookmark))

async function send(method: string, path: string, values?: unknown) {
  const response = await fetch(`${address}${path}`, {
    method,
    headers: { 'content-type': 'application/json' },
    ...(values === undefined ? {} : { body: JSON.stringify(values) }),
  })
  return { status: response.status, body: await response.json() }
}

const create = async (url: string, name: string) => await send('POST', '', { url, name })

/** A bookmark that is there before the test begins. */
async function given(url: string, name: string): Promise<Bookmark> {
  const { status, body } = await create(url, name)
  expect(status).toBe(201)
  return body
}

describe('POST /bookmarks', () => {
  test('creates a bookmark, and answers with what is stored', async () => {
    const { status, body } = await create('HTTP://Example.com:80/a/../b', '  An   example ')
    expect(status).toBe(201)
    expect(body).toEqual({
      id: expect.any(Number),
      url: 'http://example.com/b',
      name: 'An example',
      createdAt: expect.any(String),
    })
    expect(await send('GET', `/${body.id}`)).toEqual({ status: 200, body })
  })

  test('takes a URL of any length', async () => {
    const url = `https://example.com/${Array.from({ length: 5_000 }, (_, index) => index).join('/')}`
    expect(await given(url, 'long')).toMatchObject({ url })
    expect(await create(url, 'the same')).toMatchObject({ status: 409 })
  })

  test('a URL that is taken is a conflict, however it is spelt', async () => {
    const { id } = await given('https://example.com/', 'first')
    expect(await create('HTTPS://EXAMPLE.com:443', 'second')).toEqual({
      status: 409,
      body: {
        statusCode: 409,
        code: 'TEXT_TAKEN',
        message: expect.stringContaining('"url"'),
        taken: [{ property: 'url', id }],
      },
    })
  })

  test('everything that is taken is listed, each with its holder', async () => {
    const first = await given('https://example.com/1', 'first')
    const second = await given('https://example.com/2', 'second')
    const { status, body } = await create('https://example.com/1', 'second')
    expect({ status, taken: body.taken }).toEqual({
      status: 409,
      taken: [
        { property: 'url', id: first.id },
        { property: 'name', id: second.id },
      ],
    })
  })

  test('of requests at once, one creates and the others are told so', async () => {
    const answers = await Promise.all(Array.from({ length: 8 }, (_, n) => create('https://example.com/', `name ${n}`)))
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(7)
    expect(await app.get(DataSource).manager.count(Bookmark)).toBe(1)
  })

  test('a text that is no URL cannot be processed', async () => {
    expect(await create('not a URL', 'name')).toMatchObject({ status: 422, body: { property: 'url' } })
    expect(await create('https://example.com/', 'a\u0000b')).toMatchObject({ status: 422, body: { property: 'name' } })
  })

  test('a body of another shape is a bad request', async () => {
    for (const values of [{}, { url: 1, name: 'n' }, { url: 'https://example.com/', name: 'n', id: 1 }]) {
      expect(await send('POST', '', values)).toMatchObject({ status: 400 })
    }
  })
})

describe('GET /bookmarks', () => {
  test('lists page by page', async () => {
    for (const n of [1, 2, 3]) await given(`https://example.com/${n}`, `n${n}`)
    const names = async (query: string) => (await send('GET', query)).body.map(({ name }: Bookmark) => name)
    expect(await names('')).toEqual(['n1', 'n2', 'n3'])
    expect(await names('?take=2')).toEqual(['n1', 'n2'])
    expect(await names('?take=2&skip=2')).toEqual(['n3'])
    expect(await send('GET', '?take=1000')).toMatchObject({ status: 400 })
  })

  test('finds by URL, however it is spelt; what is no URL finds nothing', async () => {
    const bookmark = await given('https://example.com/b?q', 'n')
    const find = async (url: string) => (await send('GET', `?url=${encodeURIComponent(url)}`)).body
    expect(await find('HTTPS://Example.com/a/../b?q')).toEqual([bookmark])
    expect(await find('https://example.com/b')).toEqual([])
    expect(await find('not a URL')).toEqual([])
  })

  test('an id that is none is a bad request, one that nobody has is not found', async () => {
    expect(await send('GET', '/one')).toMatchObject({ status: 400 })
    expect(await send('GET', '/2000000000')).toMatchObject({ status: 404 })
  })
})

describe('PATCH /bookmarks/:id', () => {
  test('renames', async () => {
    const bookmark = await given('https://example.com/', 'old')
    const renamed = { status: 200, body: { ...bookmark, name: 'new name' } }
    expect(await send('PATCH', `/${bookmark.id}`, { name: ' new  name' })).toEqual(renamed)
    expect(await send('PATCH', `/${bookmark.id}`, { name: 'new name' })).toEqual(renamed)
    expect(await send('GET', `/${bookmark.id}`)).toEqual(renamed)
    await given('https://example.com/2', 'old')
  })

  test('a name that is taken is a conflict, and changes nothing', async () => {
    const first = await given('https://example.com/1', 'first')
    const second = await given('https://example.com/2', 'second')
    expect(await send('PATCH', `/${second.id}`, { name: 'first' })).toMatchObject({
      status: 409,
      body: { taken: [{ property: 'name', id: first.id }] },
    })
    expect(await send('GET', `/${second.id}`)).toEqual({ status: 200, body: second })
  })

  test('nobody can be renamed', async () => {
    const nobody = '/2000000000'
    expect(await send('PATCH', nobody, { name: 'n' })).toMatchObject({ status: 404 })
  })
})
