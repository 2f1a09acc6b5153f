import { beforeEach, describe, expect, test } from 'vitest'
import { numberOf } from '../../../src/numbers/sql/declared'
import { plainName } from '../../../src/sql/identifier'
import { createPart } from '../../../src/sql/library'
import type { NumberTable } from '../../../src/sql/numbers'
import { meet } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'
import { createNumberedTable, numbersOf, numberTable } from '../../support/numbered-table'

const db = useDatabase()
const client = db.useClient()

const of = (table: string, given: Partial<NumberTable> = {}): NumberTable =>
  numberTable({
    table,
    index: `${table}_number`,
    triggers: plainName('numbers', table, 'number'),
    reuse: false,
    count: true,
    ...given,
  })
const [comment, remark] = [of('comment'), of('remark')]

const insert = async (table: string, tenants: readonly number[]): Promise<unknown> =>
  await client.query(`insert into ${table} (tenant) values ${tenants.map((one) => `(${one})`).join(', ')}`)

const scopesIn = async (): Promise<string[]> => {
  const { rows } = await client.query<{ name: string }>(
    `select relname as name from pg_class where relname like '%scopes' and relkind = 'r' order by 1`,
  )
  return rows.map(({ name }) => name)
}

beforeEach(async () => {
  await client.query(`drop schema public cascade; create schema public; grant all on schema public to public`)
})

test('a table that was renamed and kept takes nothing from its successor', async () => {
  await createNumberedTable(client, comment)
  await insert('comment', [1, 1, 2])
  await client.query('alter table comment rename to comment_old; alter index comment_number rename to old_number')
  await client.query(`create table comment (like comment_old including identity including defaults)`)
  await client.query('create unique index comment_number on comment (tenant, number)')
  await client.query(numberOf(comment).attach)
  await insert('comment', [1, 1, 1])
  await expect(insert('comment_old', [1])).rejects.toMatchObject({ code: '55000' })
  await client.query(`select unique_text_detach_number_v1('comment_old', 'number')`)
  expect(await scopesIn()).toEqual(['numbers_comment__number_scopes'])
  await client.query('delete from comment where number = 3')
  await insert('comment', [1])
  expect(await numbersOf(client, comment)).toBe('1: 1 2 4 #3')
})

test('two tables that exchange their names keep their own highest numbers', async () => {
  await createNumberedTable(client, comment)
  await createNumberedTable(client, remark)
  await insert('comment', [1, 1, 1])
  await insert('remark', [1])
  await client.query(`delete from comment where number > 1; alter table comment rename to x;
    alter table remark rename to comment; alter table x rename to remark`)
  await expect(insert('comment', [1])).rejects.toMatchObject({ code: '55000' })
  await client.query([numberOf(comment).attach, numberOf(remark).attach].join(';\n'))
  await insert('comment', [1])
  await insert('remark', [1])
  expect(await numbersOf(client, comment)).toBe('1: 1 2 #2')
  expect(await numbersOf(client, remark)).toBe('1: 1 4 #2')
})

test('attach numbers its own table, though two tables exchange their names while it waits', async () => {
  await createNumberedTable(client, comment)
  await createNumberedTable(client, remark)
  await client.query(`select unique_text_detach_number_v1('comment', 'number')`)
  const [other, observer] = [await db.client(), await db.client()]
  const names = `alter table comment rename to x; alter table remark rename to comment; alter table x rename to remark`
  await meet({ other, observer }, names, () => client.query(numberOf(comment).attach))
  await insert('remark', [1, 1])
  expect((await client.query('select number from remark order by 1')).rows).toEqual([{ number: 1 }, { number: 2 }])
})

test('a declaration that another role has put into a trigger moves and drops nothing', async () => {
  await createNumberedTable(client, comment)
  await insert('comment', [1, 1])
  const { rows } = await client.query<{ declaration: string }>(
    `select convert_from(substring(tgargs from 1 for octet_length(tgargs) - 1), 'UTF8') as declaration from pg_trigger
      where tgname = 'numbers_comment__number_place_insert'`,
  )
  await client.query(`do $$ begin create role number_thief; exception when duplicate_object then null; end $$;
    create table orders (id integer); insert into orders values (1); create table mine (id integer, number integer);
    alter table mine owner to number_thief; grant trigger on comment, orders to number_thief; set role number_thief;
    create function trap() returns trigger language plpgsql as $$ begin return null; end $$;
    create trigger a before truncate on orders execute function trap();
    create trigger a before truncate on comment execute function trap('${rows[0]?.declaration}');
    create trigger a before truncate on mine execute function trap('${rows[0]?.declaration}');
    reset role`)
  await client.query(`select unique_text_detach_number_v1('mine', 'number')`)
  await client.query(numberOf(comment).attach)
  await insert('comment', [1])
  expect(await numbersOf(client, comment)).toBe('1: 1 2 3 #3')
  expect((await client.query('select id from orders')).rows).toEqual([{ id: 1 }])
  await client.query(`select unique_text_detach_number_v1('comment', 'number')`)
  expect((await client.query('select id from orders')).rows).toEqual([{ id: 1 }])
  expect(await scopesIn()).toEqual([])
})

test('a number whose function is borrowed from another table keeps its scopes', async () => {
  await createNumberedTable(client, comment)
  await insert('comment', [1, 1])
  await client.query(`do $$ begin create role number_thief; exception when duplicate_object then null; end $$;
    create table bait (tenant integer, number integer); create unique index bait_number on bait (tenant, number);
    create trigger borrowed before insert on bait
      for each row execute function numbers_comment__number('{"kind": "number", "name": "number"}');
    alter table bait owner to number_thief`)
  await client.query(
    `select unique_text_attach_number_v1('bait', '{"name": "number", "scope": ["tenant"], "index": "bait_number"}')`,
  )
  await client.query(`select unique_text_detach_number_v1('bait', 'number')`)
  await client.query(`create trigger borrowed before insert on bait
    for each row execute function numbers_comment__number('{"kind": "number", "name": "number"}')`)
  await client.query(`select unique_text_detach_number_v1('bait', 'number')`)
  await insert('comment', [1])
  expect(await numbersOf(client, comment)).toBe('1: 1 2 3 #3')
})

test.each([
  ['the last number', 'last', 'bigint'],
  ['a scope', 's0', 'integer'],
])('a type that the owner gave %s is not cast by who attaches', async (_, column, type) => {
  await createNumberedTable(client, comment)
  await insert('comment', [1, 1])
  await client.query(`create table hits (who name); create type trap as (x ${type});
    create function spring(trap) returns ${type} language plpgsql as
      $$ begin insert into hits values (current_user); return ($1).x; end $$;
    create cast (trap as ${type}) with function spring(trap) as assignment;
    alter table numbers_comment__number_scopes alter ${column} type trap using row(${column})::trap`)
  await expect(client.query(numberOf(comment).attach)).rejects.toMatchObject({ code: '55000' })
  expect((await client.query('select * from hits')).rows).toEqual([])
  await client.query(`alter table numbers_comment__number_scopes alter ${column} type ${type} using (${column}).x`)
  await client.query('truncate hits')
  await client.query(numberOf(comment).attach)
  await insert('comment', [1])
  expect(await numbersOf(client, comment)).toBe('1: 1 2 3 #3')
})

test('a scope whose column gets another type of PostgreSQL goes on', async () => {
  await createNumberedTable(client, comment)
  await insert('comment', [1, 1])
  await client.query(`delete from comment where number = 2`)
  const { attach, detach } = numberOf(comment)
  await client.query(detach.replace(/\)$/, `, 'kept')`))
  await client.query('alter table comment alter tenant type bigint')
  const former = JSON.stringify({ ...numberOf(comment).declaration, former: { scopes: 'kept', scope: ['tenant'] } })
  expect(attach).toContain('unique_text_attach_number_v1')
  await client.query(`select unique_text_attach_number_v1('comment', $1)`, [former])
  await insert('comment', [1])
  expect(await numbersOf(client, comment)).toBe('1: 1 3 #2')
})

test('attach again lets readers go on, and does not wait for them', async () => {
  await createNumberedTable(client, comment)
  await insert('comment', [1])
  const reader = await db.client()
  await reader.query(`begin; set local lock_timeout = '2s'; select * from comment`)
  await client.query(`begin; set local lock_timeout = '2s'`)
  await client.query(numberOf(of('comment', { start: 5 })).attach)
  expect((await reader.query('select * from comment')).rows).toHaveLength(1)
  await client.query('commit')
  await reader.query('commit')
  await insert('comment', [2])
  expect(await numbersOf(client, comment)).toBe('1: 1 #1; 2: 5 #1')
})

test('a table of scopes that is renamed is found by its trigger', async () => {
  await createNumberedTable(client, comment)
  await insert('comment', [1, 1, 1])
  await client.query('delete from comment; alter table numbers_comment__number_scopes rename to moved')
  await client.query(numberOf(comment).attach)
  await insert('comment', [1])
  expect(await numbersOf(client, comment)).toBe('1: 4 #1')
  expect(await scopesIn()).toEqual(['numbers_comment__number_scopes'])
})

test('a table that gets another owner is attached again after its table of scopes has that owner', async () => {
  await createNumberedTable(client, comment)
  await insert('comment', [1, 1])
  await client.query(`do $$ begin create role number_thief; exception when duplicate_object then null; end $$;
    grant create on schema public to number_thief; alter table comment owner to number_thief;
    alter table numbers_comment__number_scopes owner to number_thief`)
  await client.query(numberOf(comment).attach)
  await insert('comment', [1])
  expect(await numbersOf(client, comment)).toBe('1: 1 2 3 #3')
})

test('the counts of an UNLOGGED table are as empty after a crash as the table', async () => {
  await client.query(`create unlogged table comment (id integer generated always as identity primary key,
    tenant integer not null, number integer not null); create unique index comment_number on comment (tenant, number)`)
  for (const statement of numberOf(comment).create) await client.query(statement)
  const { rows } = await client.query(`select relpersistence from pg_class where relname like '%scopes'`)
  expect(rows).toEqual([{ relpersistence: 'u' }])
})

test('no count is made of rows of which a policy hides some', async () => {
  await createNumberedTable(client, comment)
  await insert('comment', [1, 2])
  await client.query(`select unique_text_detach_number_v1('comment', 'number')`)
  await client.query(`do $$ begin create role number_thief; exception when duplicate_object then null; end $$;
    grant create on schema public to number_thief; alter table comment owner to number_thief;
    alter table comment enable row level security; alter table comment force row level security;
    create policy one on comment using (tenant = 1); set role number_thief`)
  const error = await rejection(client.query(numberOf(comment).attach))
  await client.query('reset role')
  expect(error).toMatchObject({ code: '42501', message: expect.stringContaining('row-level security') })
})

test('names with signs of format() are as good as others', async () => {
  await client.query(`create table "100% s" (id integer generated always as identity primary key,
    "a%" integer not null, "%n" integer); create unique index "%i" on "100% s" ("a%", "%n");
    grant select on "100% s" to public`)
  await client.query(createPart(undefined, 'attach') + createPart(undefined, 'numbers'))
  await client.query(`select unique_text_attach_number_v1('"100% s"',
    '{"name": "%n", "scope": ["a%"], "index": "%i", "count": true}')`)
  await client.query(`insert into "100% s" ("a%") values (1), (1)`)
  expect((await client.query('select "%n" as n from "100% s" order by 1')).rows).toEqual([{ n: 1 }, { n: 2 }])
})

test('the report names columns that were renamed', async () => {
  await createNumberedTable(client, comment)
  const problems = async (): Promise<unknown> =>
    (await client.query('select problems from unique_text_report_v1()')).rows
  expect(await problems()).toEqual([{ problems: [] }])
  await client.query('alter table comment rename tenant to of')
  expect(await problems()).toEqual([{ problems: ['its columns were renamed'] }])
})

describe('the declaration is the argument of one trigger', () => {
  const MAIN = 'numbers_comment__number_place_insert'
  const problems = async (): Promise<string[]> => {
    const { rows } = await client.query<{ problems: string[] }>('select problems from unique_text_report_v1()')
    return rows.flatMap((one) => one.problems)
  }
  beforeEach(async () => {
    await createNumberedTable(client, comment)
    await insert('comment', [1, 1])
    await client.query('delete from comment where number = 2')
  })

  test('and the others have kind and name', async () => {
    const { rows } = await client.query<{ argument: string }>(
      `select convert_from(substring(tgargs for octet_length(tgargs) - 1), 'UTF8') as argument
         from pg_trigger where tgrelid = 'comment'::regclass order by tgname = '${MAIN}'`,
    )
    const main = rows.pop()
    expect(new Set(rows.map(({ argument }) => argument))).toEqual(new Set(['{"kind": "number", "name": "number"}']))
    expect(JSON.parse(main?.argument ?? '')).toMatchObject(numberOf(comment).declaration)
  })
  test.each([
    ['lost', `drop trigger ${MAIN} on comment`, 'its main trigger is missing'],
    [
      'twice',
      `do $$ begin execute replace((select pg_get_triggerdef(oid) from pg_trigger where tgname = '${MAIN}'), '${MAIN}', 'x');
       end $$`,
      'it has several main triggers',
    ],
  ])('%s: seen, and mended with the numbers that were given', async (_, change, problem) => {
    await client.query(change)
    expect(await problems()).toContain(problem)
    await client.query(numberOf(comment).attach)
    expect(await problems()).toEqual([])
    await insert('comment', [1])
    expect(await numbersOf(client, comment)).toBe('1: 1 3 #2')
  })
  test('without it, detach removes everything', async () => {
    await client.query(`drop trigger ${MAIN} on comment`)
    const { rows } = await client.query(`select unique_text_detach_number_v1('comment', 'number') as was`)
    expect([rows, await scopesIn()]).toEqual([[{ was: true }], []])
  })
})
