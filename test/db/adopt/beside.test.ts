import { afterAll, beforeEach, expect, test } from 'vitest'
import { abandon, adopt, planAdoption } from '../../../src/adopt'
import { findDeclaration, findTarget } from '../../../src/adopt/target'
import { readNoted, readQueue, settleChains } from '../../../src/adopt/chains'
import { STEPS } from '../../../src/adopt/options'
import { findOrCreate } from '../../../src'
import { useDatabase } from '../../support/database'
import { violations } from '../../support/guarded-table'
import { adoptWith } from '../../support/seams'
import { linesOf, newList } from './restore'
import { AT_LEISURE, fillTable, IMPATIENT, keptFrom, pageOf, runCommand, tableOf } from './stage'

const db = useDatabase({ wrapped: true })
const Page = pageOf({})
const client = db.useClient({ emptied: true })
const other = db.useClient()
const dataSource = db.useDataSource([Page], { synchronize: false, emptied: false })
beforeEach(async () => {
  await fillTable(client, 300)
})
afterAll(async () => {
  await other.query('rollback')
})

/** All that stands in the schema but the rows. */
async function schemaOf(): Promise<string[]> {
  const { rows } = await client.query<{ thing: string }>(
    `select relname::text as thing from pg_class where relnamespace = 'public'::regnamespace and relname !~ '^unique_text_adoptions'
      union all select proname::text from pg_proc where pronamespace = 'public'::regnamespace and prorettype = 'trigger'::regtype
      union all select tgname::text from pg_trigger where tgrelid = 'page'::regclass and not tgisinternal
      union all select conname::text from pg_constraint where conrelid = 'page'::regclass and contype <> 'n'
      union all select attname::text from pg_attribute where attrelid = 'page'::regclass and attnum > 0 and not attisdropped
      order by 1`,
  )
  return rows.map(({ thing }) => thing)
}

test.each(STEPS.slice(0, -1))('abandon after the step %s leaves the table as it was', async (until) => {
  const before = await schemaOf()
  await adopt(dataSource, Page, { ...AT_LEISURE, until })
  await abandon(dataSource, Page, AT_LEISURE)
  expect(await schemaOf()).toEqual(before)
  const { rows } = await client.query<{ n: string }>(
    `select count(*)::text as n from page where url ~ '^(TWICE|text) [0-9]+$'`,
  )
  expect(rows[0]?.n).toBe('300')
  expect(await adopt(dataSource, Page, AT_LEISURE)).toMatchObject({ step: 'done' })
})

test('a second adoption says that the first one runs, and ends', async () => {
  let second: unknown
  const beforeStatement = async (sql: string): Promise<void> => {
    if (!sql.startsWith('VACUUM') || second !== undefined) return
    second = await adopt(dataSource, Page).catch((error: unknown) => error)
  }
  expect(await adoptWith(dataSource, Page, AT_LEISURE, { beforeStatement })).toMatchObject({ step: 'done' })
  expect(second).toMatchObject({ code: 'ADOPTION_STOPPED', reason: 'running' })
})

test('a transaction that stays open is waited for in short turns, in which nobody is stopped for longer', async () => {
  await other.query(`begin; update page set title = 'open' where id = 1`)
  const notices: string[] = []
  let rests = 0
  const sleep = async (): Promise<void> => {
    rests += 1
    // Nobody waits in the queue meanwhile: a reader and a writer are answered at once.
    await client.query(
      `set lock_timeout = '1ms'; update page set title = 'free' where id = 2; select count(*) from page`,
    )
    if (rests === 12) await other.query('commit')
  }
  const options = {
    lockMilliseconds: 20,
    holdMilliseconds: 10_000,
    onNotice: (notice: string) => void notices.push(notice),
  }
  const report = await adoptWith(dataSource, Page, options, { sleep })
  await client.query('set lock_timeout = 0')
  expect(report.step).toBe('done')
  expect(report.locks[0]).toMatchObject({ step: 'begin', attempts: 13 })
  expect(report.locks.map(({ step }) => step)).toEqual(['begin', 'check', 'check', 'guard', 'clean'])
  expect(notices).toEqual([
    expect.stringMatching(
      /^begin: no lock in 10 attempts\. pid \d+ \(postgres\) has a transaction open for \d+ s \(idle in transaction\)\. It goes on trying\.$/,
    ),
  ])
})

test('two adoptions that begin at once make the table of adoptions once', async () => {
  const made = 'create table unique_text_adoptions (guard text primary key, state jsonb not null)'
  await other.query(`begin; ${made}`)
  const adopted = adopt(dataSource, Page, AT_LEISURE)
  const waiting = `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
  await expect.poll(async () => (await client.query(waiting)).rowCount, { timeout: 30_000 }).toBe(1)
  await other.query('commit')
  expect(await adopted).toMatchObject({ step: 'done' })
})

test('a batch that somebody keeps from the table is tried again', async () => {
  const { seams, kept } = keptFrom(other, 'page')
  expect(await adoptWith(dataSource, Page, IMPATIENT, seams)).toMatchObject({ step: 'done' })
  expect(kept.size).toBeGreaterThan(2)
})

test('what clients write while it waits for the last lock is settled before the next attempt', async () => {
  await adopt(dataSource, Page, { ...AT_LEISURE, until: 'check' })
  await other.query(`begin; update page set title = 'open' where id = 1`)
  let rests = 0
  const sleep = async (): Promise<void> => {
    rests += 1
    if (rests > 20) throw new Error('It does not come to an end.')
    await client.query(
      `insert into page (url) select format('while %s %s', $1::int, i) from generate_series(1, 300) as i`,
      [rests],
    )
    if (rests === 3) await other.query('commit')
  }
  const report = await adoptWith(dataSource, Page, { lockMilliseconds: 20, holdMilliseconds: 10_000 }, { sleep })
  expect(report).toMatchObject({ step: 'done', locks: [{ step: 'guard', attempts: 4 }, { step: 'clean' }] })
  const found = await violations(client, tableOf(dataSource, Page))
  expect(found.filter((one) => !one.startsWith('text twice'))).toEqual([])
})

test('an aborted signal ends it after the batch that is at the server, and the next run goes on', async () => {
  const controller = new AbortController()
  const beforeStatement = (sql: string): void => {
    if (sql.startsWith('WITH seen')) controller.abort()
  }
  const stopped = adoptWith(dataSource, Page, { ...AT_LEISURE, signal: controller.signal }, { beforeStatement })
  await expect(stopped).rejects.toMatchObject({ reason: 'interrupted' })
  expect(await adopt(dataSource, Page, AT_LEISURE)).toMatchObject({ step: 'done' })
})

test('a table that somebody prepared by hand is gone on with, whatever its columns hold', async () => {
  await client.query(`alter table page add "urlHash" uuid, add "urlHashNumber" integer not null default 0,
    add "urlHashChained" boolean not null default false;
    update page set "urlHash" = md5(case when id % 10 = 0 then 'wrong' else url end)::uuid where id < 200`)
  expect(await adopt(dataSource, Page, AT_LEISURE)).toMatchObject({ step: 'done' })
  const found = await violations(client, tableOf(dataSource, Page))
  expect(found.filter((one) => !one.startsWith('text twice'))).toEqual([])
})

test('an index that an earlier run left invalid is made anew', async () => {
  await adopt(dataSource, Page, { ...AT_LEISURE, until: 'number' })
  const { index } = tableOf(dataSource, Page)
  await client.query(`create unique index "${index}" on page ("urlHash")`).catch(() => {})
  await client.query(`create index concurrently "${index}" on page (title)`).catch(() => {})
  expect(await adopt(dataSource, Page, AT_LEISURE)).toMatchObject({ step: 'done' })
})

test('another declaration does not go on with an adoption that it did not begin', async () => {
  await adopt(dataSource, Page, { ...AT_LEISURE, until: 'fill' })
  const Other = pageOf({ digest: 'sha256' })
  const second = await db.dataSource([Other], { synchronize: false })
  await expect(adopt(second, Other)).rejects.toMatchObject({ reason: 'changed' })
})

test('operations refuse a table that is not adopted to its end', async () => {
  for (const until of STEPS.slice(0, 5)) {
    await adopt(dataSource, Page, { ...AT_LEISURE, until })
    await expect(findOrCreate(dataSource.manager, Page, { url: 'text 1' })).rejects.toMatchObject({
      code: 'SCHEMA_DRIFT',
    })
  }
  await adopt(dataSource, Page, AT_LEISURE)
  expect(await findOrCreate(dataSource.manager, Page, { url: 'text 1' })).toMatchObject({ created: false })
})

test('what would be done is told without doing it', async () => {
  const before = await schemaOf()
  const plan = await planAdoption(dataSource, Page)
  expect(plan.filter(({ lock }) => lock !== undefined).map(({ step, lock }) => `${step} ${lock}`)).toEqual([
    'begin ACCESS EXCLUSIVE',
    'check ACCESS EXCLUSIVE',
    'check ACCESS EXCLUSIVE',
    'guard SHARE ROW EXCLUSIVE',
    'clean ACCESS EXCLUSIVE',
  ])
  expect(await schemaOf()).toEqual(before)
})

test('a text that stands in very many rows, and is stored again and again, is settled without a look at all of them', async () => {
  await client.query(`insert into page (url) select 'many' from generate_series(1, 2000) as i`)
  await adopt(dataSource, Page, { ...AT_LEISURE, until: 'check' })
  await client.query(`insert into page (url) values ('many'), ('many'), ('text 1')`)
  const query = async (sql: string, values?: unknown[]) => (await client.query<{ spot: string }>(sql, values)).rows
  const on = await findTarget(findDeclaration(dataSource, Page), query)
  const notes = (await query(readQueue(on), [0, 10_000])).map((row) => (row as unknown as { seq: string }).seq)
  expect((await query(readNoted(on), [notes.slice(-3)])).length).toBe(2 + 1 + 2)
  const { table } = on
  for (const sql of [readNoted(on), settleChains(on)]) {
    const plan = await query(`explain ${sql.replaceAll('$1', `'{${notes.at(-1)}}'`).replaceAll('$2', 'null')}`)
    expect(JSON.stringify(plan)).toContain('Tid Scan')
    expect(JSON.stringify(plan)).not.toContain('Seq Scan on page')
  }
  await adopt(dataSource, Page, AT_LEISURE)
  expect((await violations(client, table)).filter((one) => !one.startsWith('text twice'))).toEqual([])
  expect((await client.query(`select from page where "urlHashNumber" >= 1073741824`)).rowCount).toBe(0)
  const { rows } = await client.query(`select max("urlHashNumber") as last from page where url = 'many'`)
  expect(rows).toEqual([{ last: 2001 }])
})

const command = async (...args: readonly string[]) => await runCommand(dataSource, args)

test('the command prints locks and duplicates, and goes on where it stopped', async () => {
  const target = ['-d', 'ormconfig.ts', '--entity', 'Page']
  const { out: planned } = await command('adopt', ...target, '--dry-run')
  expect(planned).toMatch(/^-- begin, with what "typeorm-unique-text sql" prints\n.*CREATE UNIQUE INDEX CONCURRENTLY/s)
  expect(planned).not.toContain('CREATE FUNCTION')
  const first = await command('adopt', ...target, '--until', 'index')
  expect(first).toMatchObject({
    code: 0,
    out: expect.stringMatching(/^begin: ACCESS EXCLUSIVE, waited .*The next step is "check"/s) as string,
  })
  const second = await command('adopt', ...target)
  expect(second.out).toMatch(
    /7 texts are held by several rows: 53 rows too many, at most 9 of one text.*The table is adopted\.\n$/s,
  )
  expect(second.out).toContain('They are kept; new duplicates are rejected.')
  expect((await command('adopt', ...target)).out).toMatch(/already adopted/)
  expect((await command('adopt', ...target, '--merge', 'oldest', '--list', newList())).out).toMatch(
    /already adopted.*\n53 rows were merged\.\n$/s,
  )
  expect((await command('abandon', ...target)).out).toMatch(
    /^abandon: ACCESS EXCLUSIVE.*\nThe table is abandoned\. No text was changed\.\n$/,
  )
})

test.each([
  ['--also', "mark.page where kind = 'pages'", 'No row of "public"."mark" meets the condition'],
  ['--list', '/nowhere/merge.jsonl', 'ENOENT'],
  ['--also', 'mark.pages', '"mark.pages" must name a column'],
])('what %s misspells ends the command before it adopts anything', async (option, value, told) => {
  await client.query('create table mark (id integer primary key, page integer, kind text)')
  const merge = ['adopt', '-d', 'ormconfig.ts', '--entity', 'Page', '--merge', 'oldest', '--list', newList()]
  await expect(command(...merge, option, value)).rejects.toThrow(told)
  const { rows } = await client.query(
    `select from pg_attribute where attrelid = 'page'::regclass and attname ilike '%hash%'`,
  )
  expect(rows).toEqual([])
})

test('the command says what to do about duplicates that it merges, and about those that it leaves', async () => {
  await client.query(`create table mark (page integer references page, member integer, note text, primary key (page, member));
    insert into mark select id, 1, id from page where url = 'TWICE 5' order by id limit 2;
    create table click (id integer primary key, page integer references page);
    insert into click select 1, max(id) from page where url = 'TWICE 5'`)
  const list = newList()
  const merge = ['adopt', '-d', 'ormconfig.ts', '--entity', 'Page', '--merge', 'oldest', '--list', list]
  const { out, err, code } = await command(...merge)
  expect(code).toBe(1)
  expect(err).toMatch(/^[\d:]{8} {2}merge {2}\d+ % {2}\d+ of 53 rows/m)
  expect(out).toMatch(/at most 9 of one text\. New duplicates are rejected\./)
  expect(out).toMatch(
    /\n52 rows were merged\.\n {2}"public"\."click" \(page\): references redirected: 1\nRows kept unchanged: 1\n {2}mark_pkey\nThe list has all of them: /,
  )
  await client.query('delete from mark')
  expect(await command(...merge)).toMatchObject({
    code: 0,
    out: expect.stringMatching(/\n1 rows were merged\.\n$/) as string,
  })
  expect(linesOf(list).filter((line) => 'row' in line && 'table' in line)).toHaveLength(53)
})
