import { beforeAll, describe, expect, test } from 'vitest'
import { scopesName } from '../../../src/sql/numbers'
import { plainName } from '../../../src/sql/identifier'
import { numberOf } from '../../../src/numbers/sql/declared'
import { copyIn } from '../../stress/copy-in'
import { useDatabase } from '../../support/database'
import { untilBlocked } from '../../support/blocked'
import { countedTable, createNumberedTable, numbersOf, numberTable, wrongCounts } from '../../support/numbered-table'

const db = useDatabase()
const client = db.useClient()

beforeAll(async () => {
  await client.query(`create collation either_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
})

const SCOPES = {
  'several columns': {
    scope: { tenant: 'integer', topic: 'text', day: 'date' },
    values: `(1, 'a', '2026-01-01'), (1, 'a', '2026-01-01'), (1, 'b', '2026-01-01'), (1, 'a', '2026-01-02')`,
    shown: '1/a/2026-01-01: 1 2; 1/a/2026-01-02: 1; 1/b/2026-01-01: 1',
  },
  'numbers that are written in several ways': {
    scope: { price: 'numeric' },
    values: `(1.0), (1.00), (2)`,
    shown: '1.00: 2; 1.0: 1; 2: 1',
  },
  'texts whose collation calls different ones equal': {
    scope: { topic: 'text collate either_case' },
    values: `('a'), ('A'), ('b')`,
    shown: 'a: 1 2; b: 1',
  },
} as const

test("operators of the user's own are not those by which scopes are told apart", async () => {
  const table = numberTable({ scope: [{ name: 'topic', type: 'varchar' }] })
  await createNumberedTable(client, table, { scope: { topic: 'varchar' } })
  // Called, it would run as the owner of the table.
  await client.query(
    `create function called(varchar, varchar) returns boolean language plpgsql as
       $$ begin raise 'an operator was called'; end $$;
     create operator = (leftarg = varchar, rightarg = varchar, function = called)`,
  )
  try {
    await client.query(`insert into comment (topic) values ('a'), ('a'), ('b')`)
    await client.query(`update comment set number = null, topic = 'b' where id = 2`)
    expect(await numbersOf(client, table)).toBe('a: 1; b: 1 2')
  } finally {
    await client.query('drop function called cascade')
  }
})

test('a scope that the unique index tells apart by another operator than ours ends in an error', async () => {
  const table = numberTable({ scope: [{ name: 'topic', type: 'citext' }] })
  await client.query(`create extension citext; set statement_timeout = '20s'`)
  await createNumberedTable(client, table, { scope: { topic: 'citext' } })
  try {
    await client.query(`insert into comment (topic) values ('a'), ('a'), ('b')`)
    await expect(client.query(`insert into comment (topic) values ('A')`)).rejects.toMatchObject({ code: '23505' })
    expect(await numbersOf(client, table)).toBe('a: 1 2; b: 1')
  } finally {
    await client.query('reset statement_timeout; drop extension citext cascade')
  }
})

describe.each(Object.entries(SCOPES))('a scope of %s', (_name, { scope, values, shown }) => {
  const names = Object.keys(scope)
  const table = numberTable({ scope: Object.entries(scope).map(([name, type]) => ({ name, type })) })

  test('numbers what the unique index calls one scope', async () => {
    await createNumberedTable(client, table, { scope })
    await client.query(`insert into comment (${names.join(', ')}) values ${values}`)
    expect((await numbersOf(client, table)).split('; ').sort()).toEqual(shown.split('; ').sort())
  })

  test('is begun by one of two', async () => {
    await createNumberedTable(client, table, { scope })
    const [first, second] = [await db.client(), await db.client()]
    const [one = '', two = ''] = values.split('), (')
    await first.query(`begin; insert into comment (${names.join(', ')}) values ${one})`)
    const waiting = second.query(`insert into comment (${names.join(', ')}) values (${two}) returning number`)
    await untilBlocked(client)
    await first.query('commit')
    expect((await waiting).rows).toEqual([{ number: 2 }])
  })
})

test('without a scope the whole table is numbered', async () => {
  const table = numberTable({ scope: [] })
  await createNumberedTable(client, table)
  await client.query('insert into comment (tenant) values (1), (2), (1)')
  const [first, second] = [await db.client(), await db.client()]
  await first.query('begin; insert into comment (tenant) values (3)')
  const waiting = second.query('insert into comment (tenant) values (4) returning number')
  await untilBlocked(client)
  await first.query('rollback')
  expect((await waiting).rows).toEqual([{ number: 4 }])
})

test('without a scope a new table has no row for it, so that one that is restored finds no other', async () => {
  const table = countedTable({ scope: [] })
  await createNumberedTable(client, table)
  const scopes = async (): Promise<unknown> => (await client.query(`select n from ${scopesName(table)}`)).rows
  expect(await scopes()).toEqual([])
  await client.query('insert into comment (tenant) values (1), (2)')
  await client.query(numberOf(table).attach)
  expect(await scopes()).toEqual([{ n: '2' }])
})

test('two numbers of one table do not disturb each other', async () => {
  await createNumberedTable(client, countedTable())
  const other = numberTable({
    name: 'day number',
    number: 'day number',
    index: 'comment_day',
    scope: [{ name: 'day', type: 'date' }],
  })
  await client.query(`alter table comment add "day number" integer, add day date not null default '2026-01-01'`)
  await client.query('create unique index comment_day on comment (day, "day number")')
  const second = { ...other, triggers: plainName('numbers', 'comment', 'day') }
  for (const statement of numberOf(second).create) await client.query(statement)
  await client.query('insert into comment (tenant) values (1), (2), (1)')
  await client.query(`update comment set day = '2026-01-02' where tenant = 2`)
  const { rows } = await client.query('select number, "day number" as day from comment order by id')
  expect(rows).toEqual([
    { number: 1, day: 1 },
    { number: 1, day: 1 },
    { number: 2, day: 3 },
  ])
  expect(await wrongCounts(client, countedTable())).toEqual([])
})

test('COPY numbers its rows in their order', async () => {
  await createNumberedTable(client, countedTable())
  const lines = Array.from({ length: 9 }, (_, index) => `1\t${index + 1}`)
  await copyIn(client, 'copy comment (tenant, title) from stdin', lines)
  const { rows } = await client.query('select 1 from comment where number <> title::integer')
  expect(rows).toEqual([])
  expect(await wrongCounts(client, countedTable())).toEqual([])
})

describe('partitions', () => {
  const partitioned = `drop table if exists comment_odd, comment cascade;
    create table comment (id bigint, tenant integer not null, number integer not null,
      "deletedAt" timestamptz, title text, part integer not null default 1) partition by list (tenant);
    create table comment_odd partition of comment for values in (1, 3);
    create table comment_rest partition of comment default;
    create unique index comment_number on comment (tenant, number)`

  test('of one table are numbered together, also those that come and go', async () => {
    const table = numberTable()
    await client.query(partitioned)
    for (const statement of numberOf(table).create) await client.query(statement)
    await client.query('insert into comment (tenant) values (1), (2), (1), (3), (2)')
    await client.query('update comment set tenant = 2 where tenant = 1 and number = 1')
    await client.query('delete from comment where tenant = 2 and number = 1')
    expect(await numbersOf(client, table)).toBe('1: 2; 2: 2 3; 3: 1')
    await client.query('insert into comment_odd (tenant) values (1)')
    expect((await client.query('select max(number) from comment where tenant = 1')).rows).toEqual([{ max: 3 }])
    await client.query(`alter table comment detach partition comment_odd`)
    await expect(client.query('insert into comment_odd (tenant) values (1)')).rejects.toMatchObject({ code: '23502' })
    await client.query('insert into comment_odd (tenant, number) values (1, 7)')
    await client.query(`alter table comment attach partition comment_odd for values in (1, 3)`)
    await client.query('insert into comment (tenant) values (1)')
    expect(await numbersOf(client, table)).toBe('1: 2 3 7 8; 2: 2 3; 3: 1')
  })

  test('give no number again', async () => {
    const table = numberTable({ reuse: false })
    await client.query(partitioned)
    for (const statement of numberOf(table).create) await client.query(statement)
    await client.query('insert into comment (tenant) values (1), (2), (1), (3), (2)')
    await client.query('update comment set tenant = 2 where tenant = 1 and number = 2')
    await client.query('delete from comment_rest where tenant = 2 and number >= 2')
    await client.query('delete from comment where tenant = 3')
    await client.query('insert into comment (tenant) values (1), (2), (3)')
    expect(await numbersOf(client, table)).toBe('1: 1 3; 2: 1 4; 3: 2')
  })

  describe.each(['read committed', 'repeatable read', 'serializable'])('give no number again at %s', (level) => {
    test.each([
      ['alter table comment detach partition comment_odd', true],
      ['drop table comment_odd', true],
      ['truncate comment_odd', true],
      ['truncate comment', true],
      ['delete from comment_odd where number > 1', false],
      ['update comment set tenant = 2 where tenant = 1', false],
    ])('after: %s', async (event, waits) => {
      const table = numberTable({ reuse: false })
      await client.query(partitioned)
      for (const statement of numberOf(table).create) await client.query(statement)
      await client.query('insert into comment (tenant) values (1), (1); insert into comment_odd (tenant) values (1)')
      const [first, before] = [await db.client(), await db.client()]
      await before.query(`begin isolation level ${level}; select 1`)
      await first.query(`begin isolation level ${level}; ${event}`)
      const beside = client.query('insert into comment (tenant) values (1) returning number')
      await (waits ? untilBlocked(first) : beside)
      await first.query('commit')
      expect((await beside).rows).toEqual([{ number: 4 }])
      const late = await before.query('insert into comment (tenant) values (1) returning number').then(
        ({ rows }) => rows,
        (error: { code: string }) => error.code,
      )
      await before.query('commit')
      expect(late).toEqual(level === 'read committed' ? [{ number: 5 }] : '40001')
      expect((await client.query('insert into comment (tenant) values (1) returning number')).rows).toEqual([
        { number: level === 'read committed' ? 6 : 5 },
      ])
    })
  })

  const noCount = { code: '0A000', hint: expect.stringContaining('without "count"') as string }

  test('keep no count, and say so', async () => {
    const table = countedTable()
    await client.query(partitioned)
    await expect(client.query(numberOf(table).attach)).rejects.toMatchObject(noCount)
  })

  test('of a table that was counted before it became one are refused', async () => {
    await createNumberedTable(client, countedTable())
    await client.query('insert into comment (tenant) values (1)')
    await client.query(`drop table if exists whole; alter table comment alter id drop identity; create table whole (like comment) partition by list (tenant);
      alter table whole attach partition comment default`)
    for (const sql of [
      'insert into whole (tenant) values (1)',
      'insert into comment (tenant) values (1)',
      'delete from comment',
    ]) {
      await expect(client.query(sql)).rejects.toMatchObject(noCount)
    }
    await client.query('drop table whole cascade')
  })

  test('by INHERITS are refused where rows are counted, for a statement on the parent writes theirs too', async () => {
    await createNumberedTable(client, countedTable())
    await client.query(
      'create table child () inherits (comment); insert into child (id, tenant, number) values (9, 1, 1)',
    )
    for (const sql of [
      'insert into comment (tenant) values (1)',
      'delete from comment',
      'update comment set "deletedAt" = now()',
    ]) {
      await expect(client.query(sql)).rejects.toMatchObject(noCount)
    }
    await createNumberedTable(client, numberTable())
    await client.query(
      'create table child () inherits (comment); insert into child (id, tenant, number) values (9, 1, 1)',
    )
    await client.query('insert into comment (tenant) values (1)')
    expect((await client.query('select number from only comment')).rows).toEqual([{ number: 1 }])
  })
})

test('a cascade is counted', async () => {
  await createNumberedTable(client, countedTable())
  await client.query('create table tenant (id integer primary key); insert into tenant values (1), (2)')
  await client.query(
    'alter table comment add foreign key (tenant) references tenant on delete cascade on update cascade',
  )
  await client.query('insert into comment (tenant) values (1), (1), (2)')
  await client.query('update tenant set id = 3 where id = 1')
  expect(await numbersOf(client, countedTable())).toMatch(/^2: 1 #1; 3: /)
  expect(await wrongCounts(client, countedTable())).toEqual([])
  await client.query('delete from tenant where id = 2')
  expect(await wrongCounts(client, countedTable())).toEqual([])
})

test('the triggers read the unique indexes, also when they were planned on an empty table', async () => {
  const table = countedTable()
  await createNumberedTable(client, table)
  // Plans are kept from here on: of a table without rows, and without statistics.
  for (let nth = 0; nth < 12; nth++) await client.query('insert into comment (tenant) values (1)')
  // A transaction sees its own figures at once, and with them what was not yet counted before it.
  const read = async (): Promise<number> => {
    const { rows } = await client.query<{ read: number }>(
      `select sum(pg_stat_get_xact_tuples_returned(oid))::integer as read from pg_class
        where oid = 'comment'::regclass or oid in (select indexrelid from pg_index where indrelid = 'comment'::regclass)`,
    )
    return rows[0]?.read ?? NaN
  }
  const readByInsert = async (): Promise<number> => {
    await client.query('begin')
    const before = await read()
    await client.query('insert into comment (tenant) values (2)')
    const after = await read()
    await client.query('commit')
    return after - before
  }
  await client.query('insert into comment (tenant) select 2 from generate_series(1, 3000)')
  let all = 0
  for (let nth = 0; nth < 50; nth++) all += await readByInsert()
  const each = all / 50
  expect(each).toBeGreaterThan(0)
  expect(each).toBeLessThan(60)
})

test('the work of a bulk insert grows with its rows, and no faster', async () => {
  const table = countedTable()
  await createNumberedTable(client, table)
  const work = async (rows: number): Promise<number> => {
    const { rows: plan } = await client.query<Record<string, readonly { readonly Plan: Record<string, number> }[]>>(
      `explain (analyze, buffers, format json) insert into comment (tenant) select 1 from generate_series(1, ${rows})`,
    )
    const found = plan[0]?.['QUERY PLAN']?.[0]?.Plan
    return ((found?.['Shared Hit Blocks'] ?? NaN) + (found?.['Shared Read Blocks'] ?? NaN)) / rows
  }
  const [few, many] = [await work(500), await work(8_000)]
  expect(many).toBeLessThan(few * 2)
})
