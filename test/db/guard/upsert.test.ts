import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { guardOf } from '../../../src/triggers/guard'
import type { TextTable } from '../../../src/sql/text-table'
import { useDatabase } from '../../support/database'
import { freshTable, putRows, rowsOf, textTable, violations } from '../../support/guarded-table'
import { endOrWait, openSession, type Outcome, type Session } from '../../support/sessions'

const db = useDatabase()
let first: Session
let second: Session
let page: TextTable
const observer = db.useClient()

beforeAll(async () => {
  first = await openSession(await db.client())
  second = await openSession(await db.client())
})
beforeEach(async () => {
  page = await freshTable(observer)
  const { rows } = await observer.query<{ path: string }>(`select current_setting('search_path') as path`)
  for (const { client } of [first, second]) await client.query(`set search_path to ${rows[0]?.path}`)
})

const upsert = (text: string, condition = ''): string =>
  `INSERT INTO page AS t (url, title) VALUES ('${text}', 'of ${text}')
   ON CONFLICT ("urlHash", "urlHashNumber") DO UPDATE SET title = EXCLUDED.title ${condition} RETURNING t.url`

const OWN_TEXT_ONLY = 'WHERE t.url = EXCLUDED.url'

/** `before` is in progress while the upsert of another session waits for it; both are at READ COMMITTED. */
async function meet(before: string, statement: string): Promise<Outcome> {
  await first.run('BEGIN')
  await first.run(before)
  const waiting = second.start(statement)
  expect(await endOrWait(observer, { session: second, statement: waiting })).toBe('waits')
  await first.run('COMMIT')
  return await waiting.outcome
}

test('a counter goes up for the own text only, in a chain too', async () => {
  for (const url of ['a1', 'a2', 'a1', 'a3', 'a2', 'a1']) {
    await observer.query(
      `INSERT INTO page AS t (url, title) VALUES ($1, '1') ON CONFLICT ("urlHash", "urlHashNumber")
       DO UPDATE SET title = t.title::int + 1 ${OWN_TEXT_ONLY}`,
      [url],
    )
  }
  expect((await observer.query('SELECT url, title FROM page ORDER BY url')).rows).toEqual([
    { url: 'a1', title: '3' },
    { url: 'a2', title: '2' },
    { url: 'a3', title: '1' },
  ])
})

test('an upsert that sets another text moves the row, and its old text is free', async () => {
  await observer.query(`INSERT INTO page (url) VALUES ('old')`)
  for (const renamed of ['new 1', 'more 2']) {
    const { rows } = await observer.query(
      `INSERT INTO page (url) VALUES ('old') ON CONFLICT ("urlHash", "urlHashNumber")
       DO UPDATE SET url = '${renamed}' RETURNING url`,
    )
    expect(rows).toEqual([{ url: renamed }])
    await observer.query(`INSERT INTO page (url) VALUES ('old')`)
  }
  expect(await rowsOf(observer, page)).toBe('more 2@0 new 1@0 old@0')
})

test('without the refusal of a change in place, an upsert that sets the text erases an acknowledged row', async () => {
  const whole = guardOf(textTable()).create
  const guard = whole.map((statement) => statement.replace('IF holds THEN', 'IF false THEN'))
  expect(guard).not.toEqual(whole)
  page = await freshTable(observer, {}, { guard })
  const { rows } = await observer.query<{ path: string }>(`select current_setting('search_path') as path`)
  for (const { client } of [first, second]) await client.query(`set search_path to ${rows[0]?.path}`)
  const upsertText = upsert('a2').replace('SET title', 'SET url = EXCLUDED.url, title')
  await meet(`INSERT INTO page (url) VALUES ('a1')`, upsertText)
  expect(await rowsOf(observer, page)).not.toContain('a1')
})

describe.each([
  {
    what: 'a text of equal hash comes to an empty chain',
    rows: '',
    before: `INSERT INTO page (url) VALUES ('a1')`,
    text: 'a2',
    other: 'a1',
  },
  {
    what: 'the text is deleted and one of equal hash promoted',
    rows: 'a1@0! a2@1',
    before: `DELETE FROM page WHERE url = 'a1'`,
    text: 'a1',
    other: 'a2',
  },
])('an upsert, while $what', ({ rows, before, text, other }) => {
  beforeEach(async () => {
    if (rows) await putRows(observer, page, rows)
  })

  test("changes the other text's row: the limit that the README states", async () => {
    expect(await meet(before, upsert(text))).toMatchObject({ ok: true, rows: [{ url: other }] })
    expect(await violations(observer, page)).toEqual([])
  })

  test('with the condition on the text changes nothing, and succeeds when it is tried again', async () => {
    expect(await meet(before, upsert(text, OWN_TEXT_ONLY))).toMatchObject({ ok: true, rows: [] })
    expect(await second.run(upsert(text, OWN_TEXT_ONLY))).toMatchObject({ ok: true, rows: [{ url: text }] })
    expect(await rowsOf(observer, page)).toContain(text)
    const { rows: titles } = await observer.query(`SELECT url FROM page WHERE title <> 'of ' || url`)
    expect(titles).toEqual([])
    expect(await violations(observer, page)).toEqual([])
  })
})
