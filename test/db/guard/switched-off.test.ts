import { beforeEach, describe, expect, test } from 'vitest'
import type { TextTable } from '../../../src/sql/text-table'
import { useDatabase } from '../../support/database'
import { firstLetter, freshTable, putRows, rowsOf, violations } from '../../support/guarded-table'

const db = useDatabase()
const client = db.useClient()
let page: TextTable

beforeEach(async () => {
  await client.query('reset session_replication_role')
  page = await freshTable(client)
})

const insert = (text: string, number: number, hash = firstLetter.js(text)): Promise<unknown> =>
  client.query('insert into page (url, "urlHash", "urlHashNumber") values ($1, $2, $3)', [text, hash, number])
const slow = (text: string): Promise<unknown> => client.query('insert into page (url) values ($1)', [text])
const rows = (): Promise<string> => rowsOf(client, page)
const taken = { code: '23505', constraint: 'page url' }

describe.each([
  ['session_replication_role = replica', 'set session_replication_role = replica'],
  ['disabled triggers', 'alter table page disable trigger user'],
])('with %s', (_how, statement) => {
  beforeEach(async () => {
    await putRows(client, page, 'a1@0! a2@1')
    await client.query(statement)
  })
  test('an ordinary insert works as ever', async () => {
    await insert('b1', 0)
    await expect(insert('b1', 0)).rejects.toMatchObject(taken)
    await expect(insert('a2', 0)).rejects.toMatchObject(taken)
  })
  test('an insert without hash is refused, for the hash is NOT NULL', async () => {
    await expect(slow('b1')).rejects.toMatchObject({ code: '23502', column: 'urlHash' })
  })
  test('the check refuses a dishonest hash and a negative number', async () => {
    await expect(insert('b1', 0, firstLetter.js('a'))).rejects.toMatchObject({ code: '23514' })
    await expect(insert('b1', -1)).rejects.toMatchObject({ code: '23514' })
    await expect(client.query(`update page set url = 'b1'`)).rejects.toMatchObject({ code: '23514' })
  })
  test('the index refuses a number that is taken', async () => {
    await expect(insert('a3', 1)).rejects.toMatchObject(taken)
  })
  test("a text can be stored twice, at a number of the client's", async () => {
    await insert('a2', 2)
    expect(await violations(client, page)).toEqual(['text twice: a2'])
  })
  test('a chain can lose its anchor', async () => {
    await client.query(`delete from page where url = 'a1'`)
    expect(await violations(client, page)).toEqual(['chain without anchor: a2'])
  })
})

describe('a chain that lost its anchor while the guard was off', () => {
  beforeEach(() => putRows(client, page, 'a2@1 a3@2'))

  test('refuses its texts to an insert without hash', async () => {
    await expect(slow('a2')).rejects.toMatchObject(taken)
    expect(await rows()).toBe('a2@1 a3@2')
  })
  test('gets an anchor from an insert without hash', async () => {
    await slow('a4')
    expect(await rows()).toBe('a4@0! a2@1 a3@2')
    expect(await violations(client, page)).toEqual([])
  })
  test('gets an anchor from a row that moves in', async () => {
    await insert('b1', 0)
    await client.query(`update page set url = 'a4' where url = 'b1'`)
    expect(await violations(client, page)).toEqual([])
  })
  test('does not refuse its texts to an insert at number 0', async () => {
    await insert('a2', 0)
    expect(await violations(client, page)).toContain('text twice: a2')
  })
})

test('without the index a text can be stored twice', async () => {
  await client.query('drop index "page url"')
  await slow('a1')
  await slow('a1')
  expect(await violations(client, page)).toContain('text twice: a1')
})

test('without the index, colliding texts still get their numbers', async () => {
  await client.query('drop index "page url"')
  await slow('a1')
  await slow('a2')
  expect(await rows()).toBe('a1@0! a2@1')
})
