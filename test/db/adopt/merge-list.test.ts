import { spawnSync } from 'node:child_process'
import { appendFileSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { abandon, adopt, mergeDuplicates, type MergeOptions } from '../../../src/adopt'
import { useDatabase } from '../../support/database'
import { mergeWith } from '../../support/seams'
import { linesOf, newList, restore } from './restore'
import { AT_LEISURE, pageOf, rowsAsText } from './stage'

const db = useDatabase({ wrapped: true })
const Page = pageOf({})
const client = db.useClient({ emptied: true })
const dataSource = db.useDataSource([Page], { synchronize: false, emptied: false })
const hasPsql = spawnSync('psql', ['--version']).status === 0
let list: string
let oldest: MergeOptions

beforeEach(() => {
  list = newList()
  oldest = { keep: 'oldest', list, lockMilliseconds: 2_000 }
})

/** Pages 1, 2 and 3 have the text a; 4 stands alone. */
async function stage(sql: string, columns = ''): Promise<void> {
  await client.query(`
    create table page (id integer generated always as identity primary key, url text not null, title text${columns});
    insert into page (url, title) values ('a', 'one'), ('a', 'two'), ('a', 'three'), ('b', 'four');
    ${sql}`)
}

const all = async (sql: string): Promise<string> => await rowsAsText(client, sql)

async function merge(options: Partial<MergeOptions> = {}): Promise<Awaited<ReturnType<typeof mergeDuplicates>>> {
  await adopt(dataSource, Page, AT_LEISURE)
  return await mergeDuplicates(dataSource, Page, { ...oldest, ...options })
}

async function back(only?: string): Promise<string[]> {
  await abandon(dataSource, Page, AT_LEISURE)
  return restore(db.url, list, only)
}

const VISITS = `create table visit (id integer primary key, page integer references page (id) on delete cascade);
  create index on visit (page);
  insert into visit values (1, 1), (2, 2), (3, 2), (4, 3), (5, 4);`

test('the list has each deleted row, each turned reference, and what was left', async () => {
  await stage(
    `${VISITS} create table cover (page integer primary key references page (id)); insert into cover values (1), (3)`,
  )
  expect(await merge()).toMatchObject({ merged: 1 })
  const lines = linesOf(list)
  const [first] = lines
  const transaction = String(first?.['transaction'])
  expect(lines).toEqual([
    { transaction, table: '"public"."visit"', key: { id: '2' }, column: 'page', old: '2', new: '1' },
    { transaction, table: '"public"."visit"', key: { id: '3' }, column: 'page', old: '2', new: '1' },
    { transaction, table: '"public"."page"', row: { id: '2', url: 'a', title: 'two' }, kept: { id: '1' } },
    { transaction, committed: true },
    { row: { id: 3 }, kept: { id: 1 }, reason: 'cover_pkey' },
  ])
  expect((await client.query('select pg_xact_status($1::xid8) as status', [transaction])).rows).toEqual([
    { status: 'committed' },
  ])
  expect(statSync(list).mode & 0o777).toBe(0o600)
})

test('a dry run writes lines of transactions that did not commit', async () => {
  await stage(VISITS)
  const { merged } = await merge({ dryRun: true })
  const lines = linesOf(list)
  expect([merged, lines.filter((line) => 'row' in line), lines.filter((line) => 'committed' in line)]).toMatchObject([
    2,
    [{}, {}],
    [],
  ])
  expect(await all('select id from page')).toBe('(1) (2) (3) (4)')
})

describe.runIf(hasPsql)('the script of docs/adopting.md', () => {
  test('restores values of every kind exactly, under any settings', async () => {
    await stage(
      `create domain payload as jsonb check (jsonb_typeof(value) <> 'number');
       create domain deeper as payload; create domain deepest as deeper;
       create type pair as (a integer, b text);
       alter table page add j json, add b jsonb, add p deepest, add ps payload[], add a integer[], add w pair, add r tstzrange,
         add t timestamptz, add i interval, add f float8, add y bytea, add c char(4), add m numeric, add o boolean, add d money,
         add up text generated always as (upper(url)) stored, add "__proto__" text, add "1" text, add "it's ""so""" text;
       update page set j = '{"b": 1,  "a": 2, "a": 3}', b = 'null', p = '"null"', ps = array['"1"'::payload, null], a = '[2:3]={7,null}', w = '(1,"x, y")',
         r = '[2020-01-01,2021-01-01)', t = '2020-01-02 03:04:05.123456+00', i = '-1 mon +2 days -03:00', f = 0.1 + 0.2, y = '\\x00ff',
         c = 'ab', m = 1.500, o = true, d = 1234.56, "__proto__" = e'\\u2028\\\\"\\n\\t', "1" = '', "it's ""so""" = '%s %I' where id = 2;
       update page set b = '"text"', j = 'null', w = '(,)', title = '' where id = 3`,
    )
    const rows = `select id, url, title, j, b, b is null as n, p, ps, a, w, w is null as wn, r, t, i, f, y, c, m, o, d, up, "__proto__", "1", "it's ""so""" from page`
    const before = await all(rows)
    const others =
      '-c bytea_output=escape -c DateStyle=SQL,DMY -c IntervalStyle=sql_standard -c extra_float_digits=-10 -c TimeZone=Asia/Tokyo'
    const other = await db.dataSource([Page], { synchronize: false, extra: { options: others } })
    await adopt(other, Page, AT_LEISURE)
    await mergeDuplicates(other, Page, oldest)
    expect(
      await other.query(`select current_setting('datestyle') as d, current_setting('extra_float_digits') as f`),
    ).toEqual([{ d: 'SQL, DMY', f: '-10' }])
    expect(await back()).toEqual(['INSERT 0 1', 'INSERT 0 1'])
    expect(await all(rows)).toBe(before)
  })

  test('turns references back, also those that are part of a key, and leaves what others have changed', async () => {
    await stage(
      `insert into page (url) values ('b'), ('c'), ('c');
       create table link (a integer references page, b integer references page, primary key (a, b)); ${VISITS}
       insert into link values (2, 5), (5, 7), (6, 2)`,
    )
    const before = await all('select * from link')
    expect(await merge()).toMatchObject({ merged: 4, kept: [] })
    expect(await all('select * from link')).toBe('(1,4) (4,6) (6,1)')
    await client.query('update visit set page = 4 where id = 2')
    expect(await back()).toContain('UPDATE 0')
    expect(await all('select * from link')).toBe(before)
    expect(await all('select * from visit')).toBe('(1,1) (2,4) (3,2) (4,3) (5,4)')
  })

  test('restores one row', async () => {
    await stage(VISITS)
    await merge()
    expect(await back(`'3' IN (line -> 'row' ->> 'id', line ->> 'old')`)).toEqual(['INSERT 0 1', 'UPDATE 1'])
    expect(await all('select id, url, title from page')).toBe('(1,a,one) (3,a,three) (4,b,four)')
    expect(await all('select * from visit')).toBe('(1,1) (2,1) (3,1) (4,3) (5,4)')
  })

  test('leaves a counter that triggers keep where it began', async () => {
    await stage(
      `alter table page add visits integer not null default 0;
       create function counted() returns trigger language plpgsql as $$ begin
         if tg_op <> 'INSERT' then update page set visits = visits - 1 where id = old.page; end if;
         if tg_op <> 'DELETE' then update page set visits = visits + 1 where id = new.page; end if;
         return null; end $$;
       create table visit (id integer primary key, page integer references page (id) on delete cascade);
       create constraint trigger count after insert or update or delete on visit deferrable initially deferred
         for each row execute function counted();
       insert into visit values (1, 1), (2, 2), (3, 2), (4, 3), (5, 4)`,
    )
    const counts = 'select id, visits from page'
    const before = await all(counts)
    await merge()
    expect(await all(counts)).toBe('(1,4) (4,1)')
    await back()
    expect(await all(counts)).toBe(before)
  })

  test('is enough however a merge ended: a connection that ends at any statement loses nothing', async () => {
    await stage(VISITS)
    await adopt(dataSource, Page, AT_LEISURE)
    const rows = async (): Promise<string> => `${await all('select id from page')} ${await all('select * from visit')}`
    const [before, after] = [await rows(), '(1) (4) (1,1) (2,1) (3,1) (4,1) (5,4)']
    // The first statement opens the connection.
    for (let ends = 2; ; ends += 1) {
      let statements = 0
      const beforeStatement = async (): Promise<void> => {
        if ((statements += 1) !== ends) return
        await client.query(
          `select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`,
        )
      }
      const done = await mergeWith(dataSource, Page, oldest, { beforeStatement }).catch(() => undefined)
      const found = await rows()
      expect([before, after]).toContain(found)
      if (done && found === after) break
    }
    // Each attempt that wrote lines and did not commit has left them in the list.
    expect(linesOf(list).filter((line) => line['committed'] === true)).toHaveLength(1)
    expect(linesOf(list).filter((line) => 'table' in line).length).toBeGreaterThan(5)
    await back()
    expect(await rows()).toBe(before)
  })

  test('finds a transaction that committed before its line was written', async () => {
    await stage(VISITS)
    await merge()
    writeFileSync(list, readFileSync(list, 'utf8').replace(/^.*"committed".*\n/m, ''))
    expect(await back()).toHaveLength(5)
    expect(await all('select id from page')).toBe('(1) (2) (3) (4)')
  })
})

describe('a list', () => {
  afterEach(() => {
    vi.restoreAllMocks()
  })

  test('of an earlier merge is continued, without a line that a crash has cut', async () => {
    await stage(VISITS)
    const whole = '{"transaction":"1","committed":true}\n'
    writeFileSync(list, `${whole}{"transaction":"2","row":{"id":"9","url":"${'x'.repeat(200_000)}`)
    expect(await merge()).toMatchObject({ merged: 2 })
    expect(readFileSync(list, 'utf8').startsWith(`${whole}{"transaction"`)).toBe(true)
    expect(linesOf(list)).toHaveLength(7)
  })

  test.each([
    ['a file of another kind', () => writeFileSync(list, 'export default 1\n'), 'it holds something else'],
    ['a folder that is not there', () => void (list = `${list}/merge.jsonl`), 'ENOENT'],
    ['no file', () => void (list = '/dev/null'), 'it is not an ordinary file'],
  ])('that is %s is refused before anything begins', async (_, prepare, told) => {
    await stage(VISITS)
    prepare()
    await adopt(dataSource, Page, AT_LEISURE)
    await expect(mergeDuplicates(dataSource, Page, { ...oldest, list })).rejects.toThrow(told)
    expect(await all('select id from page')).toBe('(1) (2) (3) (4)')
  })

  test.each(['appendFile', 'datasync'] as const)('that cannot be written undoes the batch: %s', async (name) => {
    await stage(VISITS)
    const file = await open(list, 'a')
    await file.close()
    const handle = Object.getPrototypeOf(file) as Awaited<ReturnType<typeof open>>
    const full = Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' })
    const spy = vi.spyOn(handle, name).mockRejectedValue(full)
    await expect(merge()).rejects.toBe(full)
    expect(await all('select id from page')).toBe('(1) (2) (3) (4)')
    expect(await all('select * from visit')).toBe('(1,1) (2,2) (3,2) (4,3) (5,4)')
    spy.mockRestore()
    expect(await mergeDuplicates(dataSource, Page, oldest)).toMatchObject({ merged: 2 })
  })

  test('is on the disk before the batch commits', async () => {
    await stage(VISITS)
    await adopt(dataSource, Page, AT_LEISURE)
    const rowsAtCommit: number[] = []
    const beforeStatement = (sql: string): void => {
      if (sql === 'COMMIT') rowsAtCommit.push(linesOf(list).filter((line) => 'row' in line).length)
    }
    await mergeWith(dataSource, Page, oldest, { beforeStatement })
    expect(rowsAtCommit.at(-1)).toBe(2)
  })

  test('that a person appends to by hand stays one line each', async () => {
    await stage(VISITS)
    writeFileSync(list, '{"note":"mine"}\n')
    appendFileSync(list, '{"note":"cut')
    await merge()
    expect(linesOf(list)[0]).toEqual({ note: 'mine' })
  })
})

test.each([
  'l',
  'm',
  'r',
  't',
  'u',
  'w',
  'd',
  'f',
  'o',
  'c0',
  'k0',
  'p0',
  'old',
  'new',
  'place',
  'rank',
  'reason',
  'transaction',
])('a column may be called "%s"', async (name) => {
  await stage(
    `create table visit (id integer primary key, "${name}" text, page integer references page (id));
       insert into visit values (1, 'x', 2);
       create table mark (page integer references page (id), "${name}" integer, primary key (page, "${name}"));
       insert into mark values (1, 1), (2, 2)`,
    `, "${name}" text default 'y'`,
  )
  expect(await merge()).toMatchObject({ merged: 2, kept: [] })
  expect(await all('select * from mark')).toBe('(1,1) (1,2)')
  expect(linesOf(list).find((line) => 'row' in line)).toMatchObject({ row: { id: '2', [name]: 'y' } })
})
