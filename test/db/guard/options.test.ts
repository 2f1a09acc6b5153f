import { describe, expect, test } from 'vitest'
import { guardOf } from '../../../src/triggers/guard'
import { sha256 } from '../../../src/text/digest'
import { useDatabase } from '../../support/database'
import { freshTable, putRows, rowsOf, violations } from '../../support/guarded-table'

const db = useDatabase()
const client = db.useClient()

const taken = { code: '23505' }
const inserted = async (...texts: (string | null)[]): Promise<void> => {
  for (const text of texts) await client.query('insert into page (url) values ($1)', [text])
}

describe('an immutable text', () => {
  const immutable = { code: 'UT001', constraint: 'page url', table: 'page' }

  test.each(['b1', 'a2'])('cannot become %s', async (to) => {
    await freshTable(client, { immutable: true })
    await inserted('a1')
    await expect(client.query('update page set url = $1', [to])).rejects.toMatchObject(immutable)
  })
  test('cannot change its scope', async () => {
    await freshTable(client, { immutable: true, scope: ['tenant'] })
    await inserted('a1')
    await expect(client.query('update page set tenant = 2')).rejects.toMatchObject(immutable)
  })
  test('may be written as it is, with other columns changed', async () => {
    const table = await freshTable(client, { immutable: true })
    await inserted('a1')
    await client.query(`update page set url = 'a1', title = 'x', "urlHash" = null, "urlHashNumber" = 3`)
    expect(await rowsOf(client, table)).toBe('a1@0')
  })
  test('may be promoted', async () => {
    const table = await freshTable(client, { immutable: true })
    await inserted('a1', 'a2')
    await client.query(`delete from page where url = 'a1'`)
    expect(await rowsOf(client, table)).toBe('a2@0!')
  })
  test('may be given where it was NULL, and then no more be taken away', async () => {
    const table = await freshTable(client, { immutable: true, nullable: true })
    await inserted(null)
    await client.query(`update page set url = 'a1'`)
    expect(await rowsOf(client, table)).toBe('a1@0')
    await expect(client.query('update page set url = null')).rejects.toMatchObject(immutable)
  })
  test('is not quoted in the error', async () => {
    await freshTable(client, { immutable: true })
    await inserted('a secret')
    const error: unknown = await client
      .query(`update page set url = 'another secret'`)
      .catch((caught: unknown) => caught)
    expect(JSON.stringify(error)).not.toContain('secret')
  })
})

describe('a limit of 3 texts to a chain', () => {
  test('refuses the fourth, and not one that is there', async () => {
    const table = await freshTable(client, { maxChainLength: 3, scope: ['tenant'] })
    await inserted('a1', 'a2', 'a3', 'b1')
    await expect(inserted('a4')).rejects.toMatchObject({ code: 'UT002', constraint: 'page url', table: 'page' })
    await expect(inserted('a3')).rejects.toMatchObject(taken)
    await client.query(`insert into page (url, tenant) values ('a4', 2)`)
    expect(await rowsOf(client, table)).toBe('a1@0! a2@1 a3@2 b1@0 2/a4@0')
  })
  test('counts rows, not numbers', async () => {
    const table = await freshTable(client, { maxChainLength: 3 })
    await putRows(client, table, 'a1@0! a2@10')
    await inserted('a3')
    expect(await rowsOf(client, table)).toBe('a1@0! a2@10 a3@11')
  })
  test('refuses a row that moves in', async () => {
    const table = await freshTable(client, { maxChainLength: 3 })
    await inserted('a1', 'a2', 'a3', 'b1')
    await expect(client.query(`update page set url = 'a4' where url = 'b1'`)).rejects.toMatchObject({ code: 'UT002' })
    expect(await rowsOf(client, table)).toBe('a1@0! a2@1 a3@2 b1@0')
  })
})

describe('a text that may be NULL', () => {
  test('may be NULL any number of times', async () => {
    await freshTable(client, { nullable: true })
    await inserted(null, null, 'a1')
    await expect(inserted('a1')).rejects.toMatchObject(taken)
    const { rows } = await client.query('select url, "urlHash" is null as none, "urlHashNumber" from page order by id')
    expect(rows).toEqual([
      { url: null, none: true, urlHashNumber: 0 },
      { url: null, none: true, urlHashNumber: 0 },
      { url: 'a1', none: false, urlHashNumber: 0 },
    ])
  })
  test('leaves its chain when it becomes NULL', async () => {
    const table = await freshTable(client, { nullable: true })
    await inserted('a1', 'a2')
    await client.query(`update page set url = null where url = 'a1'`)
    expect(await violations(client, table)).toEqual([])
    await expect(inserted('a2')).rejects.toMatchObject(taken)
  })
  test('takes a place when it is given', async () => {
    const table = await freshTable(client, { nullable: true })
    await inserted('a1', null)
    await client.query(`update page set url = 'a2' where url is null`)
    expect(await rowsOf(client, table)).toBe('a1@0! a2@1')
  })
  test.each([
    ['a text without hash', `'a1', null`],
    ['a hash without text', `null, '0cc175b9-c0f1-b6a8-31c3-99e269772661'`],
  ])('cannot be %s where triggers are off', async (_case, values) => {
    await freshTable(client, { nullable: true })
    await client.query('begin; set local session_replication_role = replica')
    const statement = client.query(`insert into page (url, "urlHash") values (${values})`)
    await expect(statement).rejects.toMatchObject({ code: '23514' })
    await client.query('rollback')
  })
})

test('a text that may not be NULL is refused as such', async () => {
  await freshTable(client)
  await expect(inserted(null)).rejects.toMatchObject({ code: '23502', column: 'url' })
})

describe('several columns', () => {
  const columns = {
    text: [
      { name: 'path', prefix: '' },
      { name: 'query', prefix: '?' },
      { name: 'fragment', prefix: '#' },
    ],
  }
  const store = async (...values: (string | null)[]): Promise<void> => {
    await client.query('insert into page (path, query, fragment) values ($1, $2, $3)', values)
  }

  test('are one text, with a prefix for each that is not NULL', async () => {
    const table = await freshTable(client, columns)
    await store('a', 'b', 'c')
    await store('x', null, 'c')
    expect(await rowsOf(client, table)).toBe('a?b#c@0 x#c@0')
  })
  test('that only compose alike are a collision', async () => {
    const table = await freshTable(client, columns)
    await store('a?b', null, null)
    await store('a', 'b', null)
    expect(await rowsOf(client, table)).toBe('a?b@0! a?b@1')
  })
  test('are equal column by column, NULL equal to NULL', async () => {
    await freshTable(client, columns)
    await store('a', null, 'c')
    await expect(store('a', null, 'c')).rejects.toMatchObject(taken)
    await store('a', '', 'c')
    await expect(store('a', '', 'c')).rejects.toMatchObject(taken)
  })
  test('are checked when one of them changes', async () => {
    await freshTable(client, columns)
    await store('a', 'b', null)
    await store('x', 'b', null)
    await expect(client.query(`update page set path = 'a' where path = 'x'`)).rejects.toMatchObject(taken)
  })
})

test('sha256 makes a hash of 32 bytes', async () => {
  const table = await freshTable(client, { digest: sha256 })
  await inserted('a1', 'Ä\\x00')
  await expect(inserted('Ä\\x00')).rejects.toMatchObject(taken)
  const { rows } = await client.query<{ hash: Buffer }>('select "urlHash" as hash from page order by id')
  expect(rows.map(({ hash }) => `\\x${hash.toString('hex')}`)).toEqual(['a1', 'Ä\\x00'].map((text) => sha256.js(text)))
  expect(await violations(client, table)).toEqual([])
})

test('plpgsql.extra_errors = all is no matter: neither for a number, nor for a promotion', async () => {
  const page = await freshTable(client, { scope: ['tenant'] })
  await client.query(`set plpgsql.extra_errors to 'all'; set plpgsql.extra_warnings to 'all'`)
  for (const statement of [guardOf(page).detach, ...guardOf(page).create]) await client.query(statement)
  await client.query(`insert into page (url) values ('a1'), ('a2'), ('a3')`)
  await client.query(`update page set url = 'b1' where url = 'a1'`)
  await client.query(`reset plpgsql.extra_errors; reset plpgsql.extra_warnings`)
  expect(await rowsOf(client, page)).toBe('a2@0! a3@2 b1@0')
})
