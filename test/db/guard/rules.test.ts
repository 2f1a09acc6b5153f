import { beforeEach, describe, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { firstLetter, freshTable, putRows, rowsOf, textTable, violations } from '../../support/guarded-table'

const db = useDatabase()
const client = db.useClient()
const page = textTable({ scope: ['tenant'] })

beforeEach(() => freshTable(client, page))

const insert = async (...texts: string[]): Promise<void> => {
  for (const text of texts) await client.query('insert into page (url) values ($1)', [text])
}
const fast = async (text: string, tenant = 1): Promise<void> => {
  const values = [text, firstLetter.js(text), tenant]
  await client.query('insert into page (url, "urlHash", "urlHashNumber", tenant) values ($1, $2, 0, $3)', values)
}
const put = (rows: string): Promise<void> => putRows(client, page, rows)
const rows = (): Promise<string> => rowsOf(client, page)
const taken = { code: '23505', constraint: 'page url', table: 'page' }

/** Calls of the guard's functions by this statement; the server counts them from its last report on. */
async function calls(statement: string): Promise<number> {
  const counted = async (): Promise<number> => {
    const { rows } = await client.query<{ calls: number }>(
      'select coalesce(sum(calls), 0)::integer as calls from pg_stat_xact_user_functions',
    )
    return rows[0]?.calls ?? 0
  }
  await client.query(`begin; set local track_functions = 'all'`)
  const before = await counted()
  await client.query(statement)
  const after = await counted()
  await client.query('commit')
  return after - before
}

describe('rule 1: an ordinary insert', () => {
  test('runs no function of the guard', async () => {
    const hash = firstLetter.js('a')
    expect(await calls(`insert into page (url, "urlHash", "urlHashNumber") values ('a1', '${hash}', 0)`)).toBe(0)
  })
  test('is refused by the check when its hash is not that of the text', async () => {
    const values = ['a1', firstLetter.js('b')]
    await expect(
      client.query('insert into page (url, "urlHash", "urlHashNumber") values ($1, $2, 0)', values),
    ).rejects.toMatchObject({ code: '23514', constraint: 'page url check' })
  })
  test('is refused by the index when the chain has an anchor, whatever its text', async () => {
    await fast('a1')
    await expect(fast('a1')).rejects.toMatchObject(taken)
    await expect(fast('a2')).rejects.toMatchObject(taken)
  })
})

describe('rule 2: an insert without hash', () => {
  test('gets number 0 in an empty chain', async () => {
    await insert('a1', 'b1')
    expect(await rows()).toBe('a1@0 b1@0')
  })
  test('runs one function in an empty chain, and four where it collides', async () => {
    expect(await calls(`insert into page (url) values ('a1')`)).toBe(1)
    expect(await calls(`insert into page (url) values ('a2')`)).toBe(4)
  })
  test('gets the number after the last, not the first that is free', async () => {
    await put('a1@0! a2@10')
    await insert('a3')
    expect(await rows()).toBe('a1@0! a2@10 a3@11')
  })
  test('is refused by the index itself where the text is the anchor', async () => {
    await insert('a1')
    await expect(insert('a1')).rejects.toMatchObject(taken)
  })
  test('is refused by the index itself where the text has another number', async () => {
    await put('a1@0! a2@10')
    await expect(insert('a2')).rejects.toMatchObject({ ...taken, detail: expect.stringContaining('10') })
  })
  test.each([7, -1, null])('ignores the number %s from the client', async (number) => {
    await insert('b1')
    await client.query('insert into page (url, "urlHash", "urlHashNumber") values ($1, $2, $3)', [
      'a1',
      firstLetter.js('a'),
      number,
    ])
    expect(await rows()).toBe('a1@0 b1@0')
  })
  test('ignores a dishonest hash that comes with a number', async () => {
    await client.query('insert into page (url, "urlHash", "urlHashNumber") values ($1, $2, 5)', [
      'a1',
      firstLetter.js('b'),
    ])
    expect(await rows()).toBe('a1@0')
  })
  test('ignores a flag from the client', async () => {
    await client.query(`insert into page (url, "urlHashChained") values ('a1', true)`)
    expect(await rows()).toBe('a1@0')
  })
  test('stores a text once in each scope', async () => {
    await insert('a1')
    await client.query(`insert into page (url, tenant) values ('a1', 2)`)
    await expect(client.query(`insert into page (url, tenant) values ('a1', 2)`)).rejects.toMatchObject(taken)
    expect(await rows()).toBe('a1@0 2/a1@0')
  })
})

describe('rule 3: the touch', () => {
  test('flags the anchor', async () => {
    await insert('a1', 'a2')
    expect(await rows()).toBe('a1@0! a2@1')
  })
  test('makes a new version of the anchor, also of a flagged one', async () => {
    const version = async (): Promise<unknown> =>
      (await client.query(`select ctid, xmin from page where url = 'a1'`)).rows[0]
    await put('a1@0!')
    const before = await version()
    await insert('a2')
    expect(await version()).not.toEqual(before)
  })
  test('changes no other column of the anchor', async () => {
    await client.query(`insert into page (url, title) values ('a1', 'kept')`)
    await insert('a2')
    expect((await client.query('select id, title from page where "urlHashNumber" = 0')).rows).toEqual([
      { id: 1, title: 'kept' },
    ])
  })
})

describe('rule 4: promotion', () => {
  test("makes the lowest that is left the anchor, and changes nobody's text or id", async () => {
    await put('a1@0! a5@5 a3@3')
    const ids = async (): Promise<unknown> =>
      (await client.query(`select id, url from page where url <> 'a1' order by id`)).rows
    const before = await ids()
    await client.query(`delete from page where url = 'a1'`)
    expect(await rows()).toBe('a3@0! a5@5')
    expect(await ids()).toEqual(before)
  })
  test('follows when the anchor moves to another chain', async () => {
    await put('a1@0! a2@1')
    await client.query(`update page set url = 'b1' where url = 'a1'`)
    expect(await rows()).toBe('a2@0! b1@0')
  })
  test('follows when the anchor moves to another scope', async () => {
    await put('a1@0! a2@1')
    await client.query(`update page set tenant = 2 where url = 'a1'`)
    expect(await rows()).toBe('a2@0! 2/a1@0')
  })
  test('does not follow the deletion of another row', async () => {
    await put('a1@0! a2@1 a3@2')
    await client.query(`delete from page where url = 'a2'`)
    expect(await rows()).toBe('a1@0! a3@2')
  })
  test('costs a row that never had others in its chain nothing', async () => {
    await put('a1@0 b1@0! b2@1')
    expect(await calls(`delete from page where url = 'a1'`)).toBe(0)
    expect(await calls(`delete from page where url = 'b2'`)).toBe(0)
    expect(await calls(`delete from page where url = 'b1'`)).toBe(1)
  })
  test('ends with an empty chain when all rows go at once', async () => {
    await put('a1@0! a2@1 a3@2')
    await client.query('delete from page')
    expect(await rows()).toBe('')
  })
})

describe('rule 5: an update', () => {
  beforeEach(() => put('a1@0! a2@1 b1@0'))

  test('of another column runs no function of the guard where the row is alone in its chain', async () => {
    expect(await calls(`update page set title = 'x', url = url where url = 'b1'`)).toBe(0)
  })
  test('of another column touches no chain', async () => {
    await client.query('begin')
    await client.query(`update page set title = 'x', url = url`)
    const { rows: written } = await client.query(
      `select n_tup_upd::integer as updates from pg_stat_xact_user_tables where relid = 'page'::regclass`,
    )
    await client.query('commit')
    expect(written).toEqual([{ updates: 3 }])
    expect(await rows()).toBe('a1@0! a2@1 b1@0')
  })
  test('to a text of another hash takes a place there', async () => {
    await client.query(`update page set url = 'a3' where url = 'b1'`)
    expect(await rows()).toBe('a1@0! a2@1 a3@2')
  })
  test.each(['a1', 'a2'])('of %s in place, to another text of equal hash, is refused with a hint', async (from) => {
    await expect(client.query(`update page set url = 'a3' where url = $1`, [from])).rejects.toMatchObject({
      code: '40001',
      constraint: 'page url',
      hint: expect.stringContaining('store the text as a new row'),
    })
  })
  test('to a text of equal hash is possible by way of another one', async () => {
    await client.query(`update page set url = 'c' where url = 'a2'`)
    await client.query(`update page set url = 'a3' where url = 'c'`)
    expect(await rows()).toBe('a1@0! a3@1 b1@0')
  })
  test.each([
    ['b1', 'a1'],
    ['b1', 'a2'],
  ])('of %s to the taken text %s is refused', async (from, to) => {
    await expect(client.query('update page set url = $2 where url = $1', [from, to])).rejects.toMatchObject(taken)
  })
  test('ignores hash and number of the client', async () => {
    const values = [firstLetter.js('c')]
    await client.query('update page set "urlHash" = $1, "urlHashNumber" = 9', values)
    await client.query(`update page set "urlHashNumber" = -1`)
    expect(await rows()).toBe('a1@0! a2@1 b1@0')
  })
  test('to number 0 is for the index to refuse', async () => {
    await expect(client.query(`update page set "urlHashNumber" = 0 where url = 'a2'`)).rejects.toMatchObject(taken)
  })
  test.each(['false', 'null', 'default'])('cannot set the flag to %s', async (value) => {
    await client.query(`update page set "urlHashChained" = ${value} where url = 'a1'`)
    expect(await rows()).toBe('a1@0! a2@1 b1@0')
  })
  test('of the scope takes a place there', async () => {
    await client.query(`insert into page (url, tenant) values ('a9', 2)`)
    await client.query(`update page set tenant = 2 where url = 'a1'`)
    expect(await rows()).toBe('a2@0! b1@0 2/a9@0! 2/a1@1')
  })
  test('of the scope is refused where the text is taken there', async () => {
    await client.query(`insert into page (url, tenant) values ('a9', 2), ('a2', 2)`)
    await expect(client.query(`update page set tenant = 2 where url = 'a2'`)).rejects.toMatchObject(taken)
  })
  test('of everything at once keeps every chain right', async () => {
    await client.query(`update page set url = 'c' || url, tenant = 3, "urlHash" = null, "urlHashNumber" = 4`)
    expect(await rows()).toBe('3/ca1@0! 3/ca2@1 3/cb1@2')
    expect(await violations(client, page)).toEqual([])
  })
})

test('rule 6: after TRUNCATE every text is free', async () => {
  await put('a1@0! a2@1')
  await client.query('truncate page')
  await fast('a2')
  expect(await rows()).toBe('a2@0')
})
