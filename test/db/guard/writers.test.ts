import { beforeEach, describe, expect, test } from 'vitest'
import { guardOf } from '../../../src/triggers/guard'
import type { TextTable } from '../../../src/sql/text-table'
import { useDatabase } from '../../support/database'
import { merge } from '../../support/databases'
import { firstLetter, freshTable, putRows, rowsOf, violations } from '../../support/guarded-table'

const db = useDatabase()
const client = db.useClient()
let page: TextTable

beforeEach(async () => {
  page = await freshTable(client)
})

const rows = (): Promise<string> => rowsOf(client, page)
const taken = { code: '23505', constraint: 'page url' }

describe('an insert of several rows', () => {
  test('gives colliding texts their numbers in order', async () => {
    await client.query(`insert into page (url) values ('a1'), ('b1'), ('a2'), ('a3')`)
    expect(await rows()).toBe('a1@0! a2@1 a3@2 b1@0')
  })
  test('is refused as a whole when it holds a text twice', async () => {
    await expect(client.query(`insert into page (url) values ('a1'), ('a2'), ('a2')`)).rejects.toMatchObject(taken)
    expect(await rows()).toBe('')
  })
  test('passes over texts that are there or came twice, with DO NOTHING', async () => {
    await client.query(`insert into page (url) values ('a1'), ('a2')`)
    const { rowCount } = await client.query(
      `insert into page (url) values ('a2'), ('a3'), ('a3'), ('a1') on conflict do nothing`,
    )
    expect(rowCount).toBe(1)
    expect(await rows()).toBe('a1@0! a2@1 a3@2')
  })
  test('makes a chain of hundreds', async () => {
    await client.query(`insert into page (url) select 'a' || n from generate_series(1, 300) as n`)
    expect((await client.query('select max("urlHashNumber") as last from page')).rows).toEqual([{ last: 299 }])
    expect(await violations(client, page)).toEqual([])
  })
})

describe('COPY', () => {
  const copy = async (lines: string): Promise<void> => {
    const program = `printf '${lines}'`
    await client.query(`copy page (url) from program '${program.replaceAll("'", "''")}'`)
  }
  test('takes the slow way for every row', async () => {
    await copy('a1\\na2\\nb1\\n')
    expect(await rows()).toBe('a1@0! a2@1 b1@0')
  })
  test('is refused as a whole when it holds a text twice', async () => {
    await expect(copy('a1\\na2\\na2\\n')).rejects.toMatchObject(taken)
    expect(await rows()).toBe('')
  })
})

describe('upsert', () => {
  const conflict = `on conflict ("urlHash", "urlHashNumber") do update set title = 'again'`

  test('with a NULL hash hits the row of its own text, whatever its number', async () => {
    await putRows(client, page, 'a1@0! a2@7')
    await client.query(`insert into page (url) values ('a2') ${conflict}`)
    expect((await client.query('select url, title from page order by id')).rows).toEqual([
      { url: 'a1', title: null },
      { url: 'a2', title: 'again' },
    ])
  })
  test('inserts a text that only collides', async () => {
    await client.query(`insert into page (url) values ('a1') ${conflict}`)
    await client.query(`insert into page (url) values ('a2') ${conflict}`)
    expect(await rows()).toBe('a1@0! a2@1')
  })
  test('may set the text to what was given', async () => {
    await client.query(`insert into page (url) values ('a1'), ('a2')`)
    await client.query(
      `insert into page (url) values ('a2') on conflict ("urlHash", "urlHashNumber")
       do update set url = excluded.url, "urlHash" = excluded."urlHash", "urlHashNumber" = excluded."urlHashNumber"`,
    )
    expect(await rows()).toBe('a1@0! a2@1')
  })
  test('with hash and number 0 hits the anchor, also one with another text', async () => {
    await client.query(`insert into page (url) values ('a1')`)
    await client.query(
      `insert into page (url, "urlHash", "urlHashNumber") values ('a2', $1, 0)
       on conflict ("urlHash", "urlHashNumber") do update set title = excluded.url`,
      [firstLetter.js('a2')],
    )
    expect((await client.query('select url, title from page')).rows).toEqual([{ url: 'a1', title: 'a2' }])
  })
  test('works as MERGE', async () => {
    await client.query(`insert into page (url) values ('a1'), ('a2')`)
    const known = await merge(
      client,
      `merge into page using (values ('a2'), ('a3')) as given (url) on page.url = given.url
       when matched then update set title = 'again' when not matched then insert (url) values (given.url)`,
    )
    expect(await rows()).toBe(known ? 'a1@0! a2@1 a3@2' : 'a1@0! a2@1')
  })
})

describe('a bulk update over a chain', () => {
  const bulk = `update page set url = 'b' || url where url like 'a%'`

  test('moves all of it', async () => {
    await putRows(client, page, 'a1@0! a2@1 a3@2')
    await client.query(bulk)
    expect(await rows()).toBe('ba1@0! ba2@1 ba3@2')
  })
  test('moves it into a chain that is there', async () => {
    await putRows(client, page, 'a1@0! a2@1 a3@2 b1@0')
    await client.query(bulk)
    expect(await rows()).toBe('b1@0! ba1@1 ba2@2 ba3@3')
  })
  test('goes on where the anchor left and another row comes in', async () => {
    await putRows(client, page, 'a1@0! a2@1 b1@0')
    await client.query(`update page set url = case url when 'a1' then 'c1' when 'a2' then 'a2' else 'a3' end`)
    expect(await violations(client, page)).toEqual([])
    expect(await rows()).toMatch(/^a\d@0! a\d@1 c1@0$/)
  })
})

/** The touch of rule 3, put into the BEFORE trigger: what the AFTER trigger is for. */
test('a touch in the BEFORE trigger would make a bulk update over a chain fail with 27000 for ever', async () => {
  const lock = /'SELECT FROM %s AS t (WHERE [^']+) FOR NO KEY UPDATE',\s+own/
  const early = guardOf(page).create.map((statement) =>
    statement.replace(lock, `'UPDATE %s AS t SET %I = true $1', own, flag`),
  )
  expect(early).not.toEqual(guardOf(page).create)
  page = await freshTable(client, {}, { guard: early })
  await putRows(client, page, 'b1@0! a1@0! a2@1')
  // The anchor of the chain that the first row enters is itself the next row of the statement.
  const statement = `update page set url = case url when 'b1' then 'a3' else 'c' || url end`
  await expect(client.query(statement)).rejects.toMatchObject({ code: '27000' })
  await expect(client.query(statement)).rejects.toMatchObject({ code: '27000' })

  page = await freshTable(client)
  await putRows(client, page, 'b1@0! a1@0! a2@1')
  await client.query(statement)
  expect(await rows()).toBe('a3@0! ca1@0! ca2@1')
})

test('several statements sent at once on one transaction keep their order', async () => {
  await client.query('begin')
  const sent = ['a1', 'a2', 'a3'].map((text) => client.query('insert into page (url) values ($1)', [text]))
  const removed = client.query(`delete from page where url = 'a1'`)
  await Promise.all([...sent, removed, client.query('commit')])
  expect(await rows()).toBe('a2@0! a3@2')
})
