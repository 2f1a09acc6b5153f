import { beforeEach, expect, test } from 'vitest'
import { adopt } from '../../../src/adopt'
import { lowerCase, normalizer, Refusal, trim } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { generate } from '../../support/generated'
import { violations } from '../../support/guarded-table'
import { adoptWith } from '../../support/seams'
import { AT_LEISURE, fillTable, pageOf, tableOf } from './stage'

const db = useDatabase({ wrapped: true })
const client = db.useClient({ emptied: true })

beforeEach(async () => {
  await fillTable(client, 0)
  await client.query(`insert into page (url) select 'Text ' || i from generate_series(1, 300) as i`)
})

const open = async (normalize: ReturnType<typeof trim>) => {
  const Page = pageOf({ normalize })
  return { Page, dataSource: await db.dataSource([Page], { synchronize: false }) }
}

test('another normalizer on rows comes by the same command, and the guard stays meanwhile', async () => {
  const before = await open(trim())
  await adopt(before.dataSource, before.Page, AT_LEISURE)
  const { dataSource, Page } = await open(lowerCase())
  expect(await adopt(dataSource, Page, AT_LEISURE)).toMatchObject({ step: 'done', counts: { normalized: 300 } })
  expect((await client.query(`select from page where url <> lower(url)`)).rowCount).toBe(0)
  expect(await violations(client, tableOf(dataSource, Page))).toEqual([])
  expect((await generate(dataSource)).up).toEqual([])
  expect(await adopt(dataSource, Page, AT_LEISURE)).toMatchObject({ unchanged: true })
})

test('rows that the new normalizer makes equal, or refuses, are named before the declaration takes effect', async () => {
  await client.query(`insert into page (url) values ('text 5'), ('bad')`)
  const before = await open(trim())
  await adopt(before.dataSource, before.Page, AT_LEISURE)
  const strict = normalizer('strict', 1, (text) => {
    if (text === 'bad') throw new Refusal('it is bad')
    return text.toLowerCase()
  })
  const { dataSource, Page } = await open(strict)
  const failure: unknown = await adopt(dataSource, Page, AT_LEISURE).catch((error: unknown) => error)
  expect(failure).toMatchObject({ reason: 'rejected' })
  expect(String(failure)).toMatch(/2 rows of .*: another row holds its normalized text.*; it is bad\./)
  expect(failure).toHaveProperty('keys', [{ id: 5 }, { id: 302 }])
  await client.query(`delete from page where id in (5, 302)`)
  expect(await adopt(dataSource, Page, AT_LEISURE)).toMatchObject({ step: 'done', rejectedTotal: 0 })
  expect((await generate(dataSource)).up).toEqual([])
})

test('a row that somebody holds is normalized when it is free', async () => {
  const before = await open(trim())
  await adopt(before.dataSource, before.Page, AT_LEISURE)
  const { dataSource, Page } = await open(lowerCase())
  const holder = await db.client()
  await holder.query('begin; select from page where id = 7 for update')
  const sleep = async (): Promise<unknown> => await holder.query('commit')
  expect(await adoptWith(dataSource, Page, AT_LEISURE, { sleep })).toMatchObject({ counts: { normalized: 300 } })
})

test.each([
  ['unique (url)', /"own" of .*page", which is yours.*23505.*adopt --dry-run/],
  [`check (url <> 'text 7')`, /"own" of .*page", which is yours.*23514\). Correct the row.*again\.$/],
  [`exclude using hash (url with =)`, /"own" of .*page", which is yours.*23P01.*adopt --dry-run/],
])('%s of the user that a normalized text violates stops it by its name', async (own, message) => {
  await client.query(`insert into page (url) values ('text 5'); alter table page add constraint own ${own}`)
  const { dataSource, Page } = await open(lowerCase())
  const failure: unknown = await adopt(dataSource, Page, AT_LEISURE).catch((error: unknown) => error)
  expect(failure).toMatchObject({ code: 'ADOPTION_STOPPED', reason: 'rejected' })
  expect((failure as Error).message).toMatch(message)
  await client.query(`alter table page drop constraint own`)
  expect(await adopt(dataSource, Page, AT_LEISURE)).toMatchObject({ step: 'done', duplicates: { groups: 1 } })
})

test.each([
  [
    'a foreign key to the text',
    `alter table page add unique (url); create table visit (url text constraint own references page (url))`,
    /^"own" of "public"\."visit", which is yours, .*23503/,
  ],
  [
    'a check where a foreign key cascades to',
    `alter table page add unique (url);
     create table visit (url text references page (url) on update cascade constraint own check (url <> 'text 7'))`,
    /^"own" of "public"\."visit", which is yours, .*23514/,
  ],
  [
    'a domain',
    `create domain visit as text constraint own check (value <> 'text 7'); create table other (url visit);
     alter table page alter url type visit`,
    /^"own", which is yours, .*23514/,
  ],
])('%s of the user is told as what it is', async (_, sql, message) => {
  await client.query(sql)
  if (sql.includes('references')) await client.query(`insert into visit values ('Text 7')`)
  const { dataSource, Page } = await open(lowerCase())
  await expect(adopt(dataSource, Page, AT_LEISURE)).rejects.toThrow(message)
})

test('a check that is not valid refuses a row that gets its hash', async () => {
  await client.query(`alter table page add constraint own check (url <> 'Text 7') not valid`)
  const Page = pageOf({})
  const dataSource = await db.dataSource([Page], { synchronize: false })
  await expect(adopt(dataSource, Page, AT_LEISURE)).rejects.toMatchObject({
    reason: 'rejected',
    message: expect.stringMatching(/"own" of .*which is yours, refuses a row that gets its hash \(SQLSTATE 23514\)/),
  })
})

test('a foreign key to a row that is refused keeps it from being deleted, and is named', async () => {
  await client.query(
    `create table visit (page integer constraint own references page (id)); insert into visit values (7)`,
  )
  const strict = normalizer('strict', 1, (text) => {
    if (text === 'Text 7') throw new Refusal('it is bad')
    return text
  })
  const { dataSource, Page } = await open(strict)
  const removal = { ...AT_LEISURE, rejected: 'delete' } as const
  await expect(adopt(dataSource, Page, removal)).rejects.toThrow(/"own" of "public"\."visit", .* delete .*23503/)
  await client.query('truncate visit')
  expect(await adopt(dataSource, Page, removal)).toMatchObject({ step: 'done', rejectedTotal: 0 })
})

test('under a guard the constraint is named too', async () => {
  const before = await open(trim())
  await adopt(before.dataSource, before.Page, AT_LEISURE)
  await client.query(`alter table page add constraint "o""wn" check (url <> 'text 7')`)
  const { dataSource, Page } = await open(lowerCase())
  await expect(adopt(dataSource, Page, AT_LEISURE)).rejects.toMatchObject({
    keys: [{ id: 7 }],
    message: expect.stringContaining(
      ': "o""wn" of "public"."page", which is yours, refuses it normalized (SQLSTATE 23514)',
    ) as string,
  })
})

test('NULL that clients store while it runs is told, and not taken for a hash that is missing', async () => {
  await client.query('alter table page alter url drop not null')
  const { dataSource, Page } = await open(lowerCase())
  await adopt(dataSource, Page, { ...AT_LEISURE, until: 'index' })
  await client.query('insert into page (url) values (null)')
  await expect(adopt(dataSource, Page, AT_LEISURE)).rejects.toMatchObject({ reason: 'nulls' })
  await client.query('delete from page where url is null')
  expect(await adopt(dataSource, Page, AT_LEISURE)).toMatchObject({ step: 'done' })
})
