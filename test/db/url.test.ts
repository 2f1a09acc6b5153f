import type { DataSource } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { Url } from '../../src/url'
import { useDatabase } from '../support/database'

const db = useDatabase()
let dataSource: DataSource
beforeAll(async () => {
  dataSource = await db.dataSource([Url])
})

const parse = async (text: string): Promise<Url> => {
  const url = await Url.parse(text)
  if (!url) throw new Error('That should be a URL.')
  return url
}

test('spellings of one URL are one row, returned as it is stored', async () => {
  const first = await parse('HTTP://Example.com:80/a/../b?q#f')
  const second = await parse('http://example.com/b?q#f')
  expect(second).toEqual(first)
  expect(second).toBeInstanceOf(Url)
  expect(String(second)).toBe('http://example.com/b?q#f')
  expect(second.pathComponent).toBe('/b?q#f')
  expect(second.pathComponentHash).toMatch(/^[0-9a-f]{32}$/)
  const [row] = (await dataSource.query('select * from urls where id = $1', [first.id])) as unknown[]
  expect(row).toEqual({
    id: first.id,
    scheme: 'http',
    host: 'example.com',
    port: 0,
    path: '/b',
    query: 'q',
    fragment: 'f',
    path_component_hash: second.pathComponentHash.replace(/(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-'),
    hash_number: 0,
    hash_chained: false,
  })
})

test('what is no URL is null, and writes nothing', async () => {
  const before = await Url.count()
  for (const text of ['', null, 'ftp://a.example/', '//a.example/', 'word', 'http:///', 'http://u:p@a.example/']) {
    expect(await Url.parse(text)).toBeNull()
  }
  expect(await Url.count()).toBe(before)
})

describe('two URLs', () => {
  test.each([
    ['http://a.example/', 'https://a.example/'],
    ['http://a.example/', 'http://b.example/'],
    ['http://a.example/', 'http://a.example:8080/'],
    ['http://a.example/x', 'http://a.example/x?'],
    ['http://a.example/x', 'http://a.example/x#'],
    ['http://a.example/x?#', 'http://a.example/x?'],
    ['http://a.example/a//b', 'http://a.example/a/b'],
    ['http://a.example/%2541', 'http://a.example/A'],
    ['http://a.example/x?a=1&b=2', 'http://a.example/x?b=2&a=1'],
    // Compose alike: a fragment that holds a question mark, against a query in a fragmentless path.
    ['http://a.example/p#f?q', 'http://a.example/p?q#f'],
  ])('%s and %s stay two', async (left, right) => {
    const [one, two] = [await parse(left), await parse(right)]
    expect(one.id).not.toBe(two.id)
    expect([String(one), String(two)]).toEqual([left, right])
  })
})

test('a URL of any length is one row', async () => {
  const text = `https://a.example/${'long/'.repeat(200_000)}?${'q'.repeat(1_000_000)}`
  expect((await parse(text)).id).toBe((await parse(text)).id)
})

test('it works in the transaction of a manager that is passed', async () => {
  await expect(
    dataSource.transaction(async (manager) => {
      expect(await Url.parse('http://rolled.back.example/', manager)).not.toBeNull()
      throw new Error('rolled back')
    }),
  ).rejects.toThrow('rolled back')
  expect(await Url.countBy({ host: 'rolled.back.example' })).toBe(0)
})
