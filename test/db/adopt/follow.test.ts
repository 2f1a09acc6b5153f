import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import type { DataSource } from 'typeorm'
import { beforeAll, beforeEach, expect, test } from 'vitest'
import { abandon, adopt } from '../../../src/adopt'
import type { FollowReport } from '../../../src/adopt/follow'
import { findOrCreate } from '../../../src'
import { lowerCase } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { generate } from '../../support/generated'
import { followWith } from '../../support/seams'
import { fillTable, pageOf } from './stage'

const db = useDatabase({ wrapped: true })
const Page = pageOf({ normalize: lowerCase() })
const AT_LEISURE = { lockMilliseconds: 2_000, holdMilliseconds: 10_000 }
const client = db.useClient({ emptied: true })
let dataSource: DataSource

beforeAll(async () => {
  dataSource = await db.dataSource([Page], { synchronize: false })
})
beforeEach(async () => {
  await fillTable(client, 0)
  await client.query(`insert into page (url) select 'Text ' || i from generate_series(1, 30) as i`)
})

const texts = async (where: string): Promise<string[]> =>
  (await client.query<{ url: string }>(`select url from page where ${where} order by id`)).rows.map(({ url }) => url)

/** Everything of ours that stands in the schema. */
const ours = async (): Promise<string[]> =>
  (
    await client.query<{ name: string }>(
      `select relname::text as name from pg_class where relnamespace = 'public'::regnamespace
       union all select proname::text from pg_proc where pronamespace = 'public'::regnamespace
       union all select tgname::text from pg_trigger where tgrelid = 'page'::regclass and not tgisinternal order by 1`,
    )
  ).rows.map(({ name }) => name)

/** Follows, and does one of these whenever nothing is left to do; then ends it. */
async function followed(...doings: readonly (() => Promise<unknown>)[]): Promise<FollowReport & { notices: string[] }> {
  const controller = new AbortController()
  const left = [...doings]
  const notices: string[] = []
  const sleep = async (): Promise<void> => {
    const next = left.shift()
    if (next) await next()
    else controller.abort()
  }
  const onNotice = (notice: string): void => void notices.push(notice)
  const report = await followWith(dataSource, Page, { ...AT_LEISURE, signal: controller.signal, onNotice }, { sleep })
  return { ...report, notices }
}

test('what old code writes is normalized until it is ended, and nothing of it stays', async () => {
  await adopt(dataSource, Page, AT_LEISURE)
  const before = await ours()
  const report = await followed(
    async () => await client.query(`insert into page (url) values ('New A'), ('new b'), ('New C')`),
    async () => {
      expect(await texts('id > 30')).toEqual(['new a', 'new b', 'new c'])
      await client.query(`update page set url = 'Changed' where id = 5; update page set title = 'T' where id = 6`)
    },
    async () => {
      expect(await texts('id = 5')).toEqual(['changed'])
      expect(await findOrCreate(dataSource.manager, Page, { url: 'NEW A' })).toMatchObject({ created: false })
      expect((await generate(dataSource)).up).toEqual([])
    },
  )
  expect(report).toEqual({ normalized: 3, refused: [], refusedTotal: 0, notices: [] })
  expect(await ours()).toEqual(before)
  expect((await generate(dataSource)).up).toEqual([])
})

test('what came between the guard and the command is found', async () => {
  await adopt(dataSource, Page, AT_LEISURE)
  await client.query(`insert into page (url) values ('Between')`)
  expect(await followed()).toMatchObject({ normalized: 1 })
  expect(await texts('id > 30')).toEqual(['between'])
})

test('a text that stands in another row once it is normalized is told by key, at once and in the end', async () => {
  await adopt(dataSource, Page, AT_LEISURE)
  const report = await followed(async () => await client.query(`insert into page (url) values ('TEXT 7'), ('Fresh')`))
  expect(report).toMatchObject({ normalized: 1, refusedTotal: 1, refused: [{ key: { id: 31 } }] })
  expect(report.notices).toEqual([
    expect.stringMatching(/^\{"id": ?31\} is not normalized: another row holds its normalized text/),
  ])
  expect(await texts('id > 30')).toEqual(['TEXT 7', 'fresh'])
})

test('a row that somebody has locked is normalized when it is free', async () => {
  await adopt(dataSource, Page, AT_LEISURE)
  const other = await db.client()
  const report = await followed(
    async () => {
      await client.query(`insert into page (url) values ('Held')`)
      await other.query('begin; select from page where id = 31 for update')
    },
    async () => {
      expect(await texts('id = 31')).toEqual(['Held'])
      await other.query('commit')
    },
    async () => {},
  )
  expect(report).toMatchObject({ normalized: 1 })
})

test('a row that a trigger of the user refuses is told, and the others are normalized', async () => {
  await adopt(dataSource, Page, AT_LEISURE)
  await client.query(`
    create function refuse() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$;
    create trigger refuse before update on page for each row when (old.title = 'no') execute function refuse()`)
  const report = await followed(
    async () =>
      await client.query(`insert into page (url, title) values ('One', null), ('Two', 'no'), ('Three', null)`),
  )
  expect(report).toMatchObject({
    normalized: 2,
    refused: [{ key: { id: 32 }, reason: expect.stringContaining('P0001') }],
  })
})

test('it is ended while somebody has the table locked, before it follows', async () => {
  await adopt(dataSource, Page, AT_LEISURE)
  const before = await ours()
  const other = await db.client()
  await other.query('begin; lock table page in row exclusive mode')
  const controller = new AbortController()
  const sleep = async (): Promise<void> => {
    if (controller.signal.aborted) await other.query('rollback')
    controller.abort()
  }
  const options = { lockMilliseconds: 20, signal: controller.signal }
  await expect(followWith(dataSource, Page, options, { sleep })).rejects.toMatchObject({ reason: 'interrupted' })
  await other.query('rollback')
  await adopt(dataSource, Page, AT_LEISURE)
  expect((await ours()).filter((name) => !before.includes(name) && /follow|written/.test(name))).toEqual([])
})

test('it is ended in the midst of its first look at the table', async () => {
  await adopt(dataSource, Page, AT_LEISURE)
  await client.query(
    `insert into page (url, title) select 'Later ' || i, repeat('x', 50) from generate_series(1, 5000) as i`,
  )
  const controller = new AbortController()
  const beforeStatement = (sql: string): void => {
    if (sql.includes('held AS MATERIALIZED')) controller.abort()
  }
  const options = { ...AT_LEISURE, signal: controller.signal }
  const { normalized } = await followWith(dataSource, Page, options, { beforeStatement })
  expect(normalized).toBeGreaterThan(0)
  expect(normalized).toBeLessThan(5_000)
})

test.each(['adopt', 'abandon'] as const)('what a killed command left goes with %s', async (how) => {
  await adopt(dataSource, Page, AT_LEISURE)
  const before = await ours()
  const crash = async (): Promise<void> => {
    throw new Error('killed')
  }
  await expect(
    followWith(dataSource, Page, { ...AT_LEISURE, signal: new AbortController().signal }, { sleep: crash }),
  ).rejects.toThrow('killed')
  expect((await ours()).length).toBeGreaterThan(before.length)
  await (how === 'adopt' ? adopt : abandon)(dataSource, Page, AT_LEISURE)
  expect((await ours()).filter((name) => /follow|written/.test(name))).toEqual([])
})

test('a table that is not adopted is refused', async () => {
  await expect(followed()).rejects.toMatchObject({ reason: 'unsupported' })
})

test('new code that starts before the end looks by the text alone, or is refused', async () => {
  // A process of its own, which has not seen the table yet.
  const fresh = await db.dataSource([Page], { synchronize: false })
  const repository = fresh.getRepository(Page)
  await client.query(`insert into page (url) values ('plain')`)
  for (const until of ['begin', 'fill', 'index', 'check'] as const) {
    await adopt(dataSource, Page, { ...AT_LEISURE, until })
    expect(await repository.findOneBy({ url: 'plain' })).toMatchObject({ id: 31 })
    expect(await repository.update({ url: 'plain' }, { title: until })).toMatchObject({ affected: 1 })
    await expect(findOrCreate(fresh.manager, Page, { url: 'plain' })).rejects.toMatchObject({
      code: 'SCHEMA_DRIFT',
    })
  }
  expect(await repository.delete({ url: 'plain' })).toMatchObject({ affected: 1 })
})

test('the command goes on until SIGTERM, and then ends well', async () => {
  const checkout = path.resolve(import.meta.dirname, '../../..')
  const args = ['src/cli/main.ts', 'adopt', '-d', 'test/db/adopt/kill-config.ts', '--entity', 'Page', '--follow']
  const env = { PATH: process.env['PATH'], DATABASE_URL: db.url }
  const child = spawn(process.execPath, ['--import', 'tsx', ...args], { cwd: checkout, env })
  let told = ''
  const follows = new Promise<void>((resolve) => {
    child.stderr.on('data', (data: Buffer) => {
      told += String(data)
      if (told.includes('Ctrl-C ends it')) resolve()
    })
  })
  child.stdout.on('data', (data: Buffer) => (told += String(data)))
  const ended = once(child, 'exit')
  await Promise.race([follows, ended])
  child.kill('SIGTERM')
  expect([...(await ended), told]).toEqual([0, null, expect.stringMatching(/adopted\..*0 texts were normalized/s)])
})
