import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { quote } from '../../../src/sql/identifier'
import { releaseNames } from '../../../src/sql/library'
import { useDatabase } from '../../support/database'
import {
  attachHolder,
  createHolder,
  createNames,
  holderTable,
  namesTable,
  nameViolations,
  RESERVE,
} from '../../support/names-table'
import { gatePart } from '../../support/gate-part'

const db = useDatabase()
const names = namesTable()
const hostile = `T hostile ${process.pid}`
let schemas = 0

const run = (sql: string): Promise<unknown> => client.query(sql)
const client = db.useClient()

beforeAll(async () => {
  await run(`create role ${quote(hostile)}; create extension citext schema public`)
})
afterAll(async () => {
  await run(`reset role; drop owned by ${quote(hostile)} cascade; drop role ${quote(hostile)}`)
})

beforeEach(async () => {
  schemas += 1
  await run(`reset role; create schema ${quote(`H ${schemas}`)}; set search_path to ${quote(`H ${schemas}`)}, public;
    create type mood as enum ('m1', 'm2', 'm3', 'm4', 'm5');
    create domain code as varchar(9) check (value is not null); create domain day as date;
    create domain moment as timestamptz; create domain code_of_bytes as bytea;
    grant all on schema ${quote(`H ${schemas}`)} to ${quote(hostile)}`)
})
// One by one: what DROP OWNED takes grows faster than the number of objects.
afterEach(async () => {
  await run(`reset role; drop schema ${quote(`H ${schemas}`)} cascade`)
})

/** A key's type, and two values of it. */
const KEYS: readonly (readonly [type: string, first: string, second: string])[] = [
  ['integer', '1', '2'],
  ['bigint', '1', '2'],
  ['text', 'a', 'b'],
  ['character varying', 'a', 'b'],
  ['character(3)', 'a', 'b'],
  ['uuid', '00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000002'],
  ['mood', 'm1', 'm2'],
  ['code', 'a', 'b'],
  ['cidr', '10.0.0.0/8', '11.0.0.0/8'],
  ['inet', '10.0.0.1', '10.0.0.2'],
  ['citext', 'a', 'b'],
  ['numeric', '1.5', '2.5'],
  ['timestamp with time zone', '2026-01-02 03:04+00', '2026-01-02 03:05+00'],
  ['date', '2026-01-02', '2026-01-03'],
]

const COMPARISONS = ['=', '<>', '<', '<=', '>', '>=']
const COLUMNS = 'varchar text jsonb uuid bigint integer boolean timestamptz name oid "char"'.split(' ')

/** Operators, functions and casts of exact signatures, each of which says that it was called. */
async function plant(type: string): Promise<void> {
  const made: string[] = []
  const called = (name: string, types: readonly string[], returns: string): string => {
    made.push(
      `create function ${name}(${types.join(', ')}) returns ${returns} language plpgsql as $$ begin
         raise exception '${name}(${types.join(', ')}) runs as %', current_user; end $$`,
    )
    return name
  }
  const operator = (symbol: string, left: string, right: string, returns: string): void => {
    const procedure = called(`op${made.length}`, [left, right], returns)
    made.push(`create operator ${symbol} (leftarg = ${left}, rightarg = ${right}, function = ${procedure})`)
  }
  for (const one of new Set([...COLUMNS, type])) {
    for (const symbol of COMPARISONS) operator(symbol, one, one, 'boolean')
    for (const symbol of one === 'varchar' ? COMPARISONS : []) {
      operator(symbol, 'varchar', 'text', 'boolean')
      operator(symbol, 'text', 'varchar', 'boolean')
    }
  }
  for (const symbol of ['=', '<>']) operator(symbol, 'record', 'record', 'boolean')
  operator('||', 'bigint[]', 'bigint', 'bigint[]')
  operator('||', 'jsonb[]', 'jsonb', 'jsonb[]')
  operator('||', 'text', 'text', 'text')
  operator('->>', 'jsonb', 'integer', 'text')
  operator('+', 'bigint', 'bigint', 'bigint')
  operator('+', 'timestamptz', 'interval', 'timestamptz')
  operator('~~', 'text', 'text', 'boolean')
  operator('!~~', 'text', 'text', 'boolean')
  called('unnest', ['bigint[]'], 'setof bigint')
  called('unnest', ['text[]'], 'setof text')
  called('md5', ['text'], 'text')
  called('jsonb_build_array', [type], 'jsonb')
  called('format', ['text', type], 'text')
  called('array_append', ['bigint[]', 'bigint'], 'bigint[]')
  called('timezone', ['text', 'timestamptz'], 'timestamp')
  await run(`set role ${quote(hostile)}`)
  for (const one of made) {
    // Of an operator there is one already, by another name of its types.
    await run(one).catch((error: unknown) => {
      if ((error as { code?: string }).code !== '42723') throw error
    })
  }
  await run('reset role')
}

/** Casts of a type that belongs to somebody else: the one thing about a type that its owner may change at any time. */
async function plantCasts(type: string): Promise<void> {
  await run(`alter type ${type} owner to ${quote(hostile)}; set role ${quote(hostile)}`)
  for (const to of ['text', 'json', 'jsonb']) {
    await run(`create function cast_${to}(${type}) returns ${to} language plpgsql as $$ begin
        raise exception 'a cast to ${to} runs as %', current_user; end $$;
      create cast (${type} as ${to}) with function cast_${to}(${type}) as implicit`)
  }
  await run('reset role')
}

describe.each(gatePart(3, KEYS))('with a key of type %s', (type, first, second) => {
  const holder = holderTable('rows', names, {
    primary: [{ name: 'id', type }],
    names: ['handle', 'nick'].map((column) => ({ column, namespace: 'handle', former: RESERVE })),
  })
  const other = holderTable('others', names)

  const useAll = async (): Promise<void> => {
    const swap = `case handle operator(pg_catalog.=) 'a' when true then 'b' else 'a' end`
    await run(`insert into rows (id, handle, nick) values ('${first}', 'a', null), ('${second}', 'b', 'x')`)
    await run(`update rows set handle = ${swap}`)
    await run(`update rows set handle = 'c' where handle operator(pg_catalog.=) 'a'`)
    await run(`update rows set handle = 'a' where handle operator(pg_catalog.=) 'c'`)
    await run(`alter table rows drop constraint rows_pkey; alter table rows add primary key (id) deferrable`)
    await run(`update rows set id = case handle operator(pg_catalog.=) 'a'
      when true then '${first}'::${type} else '${second}'::${type} end`)
    const refused = await run(`insert into others (handle) values ('a'), ('b'), ('d')`).catch((error: unknown) => error)
    expect(refused).toMatchObject({ code: '23505' })
    await expect(run(`delete from names`)).rejects.toMatchObject({ code: 'UT003' })
    await expect(run(`update names set holder_column = 'x'`)).rejects.toMatchObject({ code: 'UT003' })
    await run(`update rows set title = 'x'`)
    await run(`delete from rows where handle operator(pg_catalog.=) 'a'`)
    await run(releaseNames(holder, '"names"'))
    await run(attachHolder(holder))
    await run(`truncate rows, others; truncate names`)
  }

  test.each(['before', 'after'])('nothing that another role made %s the migration is called', async (moment) => {
    if (moment === 'before') await plant(type)
    for (const statement of createNames(names)) await run(statement)
    for (const statement of [...createHolder(holder), ...createHolder(other)]) await run(statement)
    if (moment === 'after') await plant(type)
    if (moment === 'after' && type === 'mood') await plantCasts(type)
    await expect(useAll()).resolves.toBeUndefined()
  })
})

const OF_SESSION =
  'bytea real interval day moment code_of_bytes date[] timestamptz[] daterange tstzrange datemultirange'

test.each(OF_SESSION.split(' '))('a key of type %s, whose text is that of the session, is refused', async (type) => {
  const holder = holderTable('rows', names, { primary: [{ name: 'id', type }] })
  for (const statement of [...createNames(names), ...createHolder(holder, [])]) await run(statement)
  await expect(run(attachHolder(holder))).rejects.toMatchObject({ code: '0A000' })
})

/** Of every table, as they come: inserts, changes of names and of keys, of one row and of several, swaps, deletes. */
async function writeNames(table: string, key: string, columns: readonly [string, string]): Promise<void> {
  const [id, name, other] = [key, ...columns].map(quote)
  const into = `insert into ${quote(table)} (${id}, ${name}, ${other})`
  await run(`${into} values (1, 'a', 'b'), (2, 'c', 'd'); ${into} values (3, 'e', null)`)
  await run(`update ${quote(table)} set ${name} = ${name} || 'x', ${other} = ${other} || 'y'`)
  await run(
    `update ${quote(table)} set ${name} = 'f' where ${id} = 1; update ${quote(table)} set ${name} = ${other}, ${other} = ${name}`,
  )
  await run(
    `update ${quote(table)} set ${id} = ${id} + 10; update ${quote(table)} set ${id} = 1, ${name} = 'g' where ${id} = 11`,
  )
  await expect(run(`${into} values (8, 'g', 'dy')`)).rejects.toMatchObject({ code: '23505' })
  await run(`${into} values (1, 'h', 'i') on conflict (${id}) do update set ${name} = 'h', ${other} = 'i'`)
  await run(`delete from ${quote(table)} where ${id} = 12; truncate ${quote(table)}`)
  await run(`${into} values (1, 'a', 'b')`)
}

/** Transition tables, aliases and variables of the triggers. */
const TAKEN_NAMES = `new_rows old_rows new old t n o r v h c m u a d g p changed moves moved gone passed left_keys one
  given done freed taken refused refusal found_id keys statement round step found tg_op key former
  hash next a%b {rows} {key_of_t} %1$s`.split(/\s+/)

test.each(gatePart(4, TAKEN_NAMES))('a table, its columns and a column of the names are called "%s"', async (name) => {
  const columns = [name, name === 'handle' ? 'nick' : 'handle'] as const
  const table = { names: columns.map((column) => ({ column, namespace: 'handle', former: RESERVE })) }
  const named = holderTable(name, names, table)
  const keyed = holderTable(`${name}_`, names, { ...table, primary: [{ name: `${name} `, type: 'integer' }] })
  for (const statement of [...createNames(names), `alter table names add ${quote(name)} text`]) await run(statement)
  for (const holder of [named, keyed]) {
    for (const statement of createHolder(holder)) await run(statement)
    await writeNames(holder.table, holder.primary[0]?.name ?? '', columns)
    expect(await nameViolations(client, [holder])).toEqual([])
    await run(`delete from ${quote(holder.table)}; delete from names`)
  }
})

const NAME = { column: 'handle', namespace: 'handle' }

describe('attach', () => {
  const users = holderTable('users', names)
  const orgs = holderTable('orgs', names)
  const make = async (): Promise<void> => {
    for (const statement of [...createNames(names), ...createHolder(users, [])]) await run(statement)
  }
  beforeEach(make)

  test('claims the names of rows in the role of a replica too', async () => {
    await run(`insert into users (handle) values ('a'); set session_replication_role = replica`)
    await run(attachHolder(users))
    await run('reset session_replication_role')
    expect(await nameViolations(client, [users])).toEqual([])
  })

  test.each(['repeatable read', 'serializable'])('at %s is refused, unless the table is empty', async (level) => {
    const other = await db.client()
    await run(`begin isolation level ${level}; select 1`)
    await run(attachHolder(users))
    for (const statement of createHolder(orgs)) await run(statement)
    await run('commit')
    await run(`begin isolation level ${level}; select 1`)
    await other.query(`insert into ${quote(`H ${schemas}`)}.users (handle) values ('a')`)
    await expect(run(attachHolder(users))).rejects.toMatchObject({ code: '0A000' })
    await run('rollback')
    await run(`begin isolation level ${level}`)
    await expect(run(releaseNames(users, '"names"'))).rejects.toMatchObject({ code: '0A000' })
    await run('rollback')
    await run(attachHolder(users))
    expect(await nameViolations(client, [users, orgs])).toEqual([])
  })

  test('takes only columns of the primary key that make it unique', async () => {
    await run(`alter table users drop constraint users_pkey, add primary key (id) include (title)`)
    await run(attachHolder(users))
    await run(`insert into users (handle) values ('a')`)
    await expect(run(`insert into users (handle) values ('a')`)).rejects.toMatchObject({ code: '23505' })
    expect(await nameViolations(client, [users])).toEqual([])
  })

  test.each([
    ['users', { names: [NAME], gaurd: 'x' }, '22023'],
    ['users', { names: [{ ...NAME, formr: 'reserved' }] }, '22023'],
    ['users', { names: [{ ...NAME, former: 'held' }] }, '22023'],
    ['users', { names: [{ ...NAME, namespace: '' }] }, '22023'],
    ['users', { names: [{ column: 'handle' }] }, '22023'],
    ['users', { names: [NAME, { column: 'title' }] }, '22023'],
    ['users', { names: [{ ...NAME, former: 'reserved', for: '-1 day' }] }, '22023'],
    ['users', { names: [{ ...NAME, former: 'reserved', for: "a day's" }] }, '22007'],
    ['users', { names: [NAME, NAME] }, '42701'],
    ['users', { names: [{ ...NAME, column: 'nick' }] }, '42703'],
    ['users', { names: [NAME], in: 'users' }, '42809'],
    ['users', { names: [NAME], in: 'shown' }, '42809'],
    ['users', { names: [] }, '42809'],
    ['users', {}, '22023'],
    ['seen', { names: [NAME] }, '42809'],
    ['parted', { names: [NAME] }, '42809'],
  ])('refuses, of %s, the declaration %j', async (table, declaration, code) => {
    await run(`create view seen as select * from users; create view shown as select * from names;
      create table parted (id integer primary key, handle text) partition by range (id)`)
    const attached = client.query(`select unique_text_attach_name_v1($1::regclass, $2)`, [table, declaration])
    await expect(attached).rejects.toMatchObject({ code })
  })

  test.each([38, 50, 63])('makes five triggers of a table whose name has %i letters', async (letters) => {
    const table = 't'.repeat(letters)
    await run(`alter table users rename to ${table}; create index on names (text_hash)`)
    await client.query(`select unique_text_attach_name_v1($1::regclass, $2)`, [table, { names: [NAME] }])
    await run(`insert into ${table} (handle) values ('a'); update ${table} set handle = 'b'; delete from ${table}`)
    const { rows } = await client.query(
      `select problems, (select count(*)::integer from pg_trigger where tgrelid = on_table) as triggers,
         (select count(*)::integer from names) as names from unique_text_report_v1() where on_table = $1::regclass`,
      [table],
    )
    expect(rows).toEqual([{ problems: [], triggers: 5, names: 0 }])
  })

  test.each(['mood', 'date', 'integer', 'text[]'])('refuses a name of type %s', async (type) => {
    await run(`alter table users drop column handle, add column handle ${type}`)
    await expect(run(attachHolder(users))).rejects.toMatchObject({ code: '42804' })
  })
})

describe('of tables of another role', () => {
  const users = holderTable('users', names)
  const give = (table: string): Promise<unknown> => run(`alter table ${table} owner to ${quote(hostile)}`)
  const seen = async (): Promise<unknown> => (await client.query<{ role: string }>('select * from seen')).rows

  beforeEach(async () => {
    for (const statement of [...createNames(names), ...createHolder(users, [])]) await run(statement)
    // The guard of the table of names has the owner of that.
    await run(`create table seen (role text); grant insert on seen to public; insert into users (handle) values ('a');
      create function see() returns trigger language plpgsql as $$ begin
        insert into ${quote(`H ${schemas}`)}.seen values (current_user); return null; end $$;
      create trigger see after insert or update or delete on names execute function see()`)
    await give('users')
    await give('names')
    await run(`do $$ declare f oid; begin for f in select oid from pg_proc
      where prorettype = 'trigger'::regtype and pronamespace = quote_ident(current_schema())::regnamespace loop
      execute format('alter function %s owner to %I', f::regprocedure, '${hostile}'); end loop; end $$`)
  })

  test('attach and detach write names as the owner', async () => {
    await run(attachHolder(users))
    await run(releaseNames(users, '"names"'))
    expect(new Set(JSON.stringify(await seen()).match(/T hostile|postgres/g))).toEqual(new Set(['T hostile']))
    expect((await client.query('select * from names')).rows).toEqual([])
  })

  test('attach fails where a policy hides rows from the owner', async () => {
    await run(`alter table users enable row level security, force row level security`)
    await expect(run(attachHolder(users))).rejects.toMatchObject({ code: '42501' })
  })

  test('attach and detach leave a table of names unchanged if its owner is not a member of the role that owns the holders', async () => {
    await run('alter table users owner to postgres')
    await expect(run(attachHolder(users))).rejects.toMatchObject({ code: '55000' })
    await run(releaseNames(users, '"names"'))
    expect(await seen()).toEqual([])
  })
})

test('a direct write of a held name may change nothing of it', async () => {
  for (const statement of [...createNames(names), ...createHolder(holderTable('users', names))]) await run(statement)
  await run(`insert into users (handle) values ('a')`)
  for (const change of [
    "namespace = 'x'",
    "text = 'b'",
    "holder = 'names'",
    "holder_column = 'x'",
    "holder_key = '[2]'",
  ])
    await expect(run(`update names set ${change}`)).rejects.toMatchObject({ code: 'UT003' })
  await expect(run(`update names set state = 'reserved'`)).rejects.toMatchObject({ code: 'UT003' })
  await run(`update names set since = now()`)
})

test('a table of another role does not keep the table of names from TRUNCATE', async () => {
  for (const statement of [...createNames(names), ...createHolder(holderTable('users', names))]) await run(statement)
  const copied = `select format('create trigger own after insert on mine execute function own(%L)',
    convert_from(substring(tgargs for octet_length(tgargs) - 1), 'UTF8')) as sql from pg_trigger
    where tgname = 'unique_name_users_truncate' and tgrelid = 'users'::regclass`
  const { rows } = await client.query<{ sql: string }>(copied)
  await run(`set role ${quote(hostile)}; create table mine as select 1;
    create function own() returns trigger language plpgsql as 'begin return null; end'; ${rows[0]?.sql ?? ''}`)
  await run('reset role; truncate names')
})

test('every kind of write passes the extra checks of PL/pgSQL', async () => {
  for (const statement of createNames(names)) await run(statement)
  const two = { names: ['handle', 'nick'].map((column) => ({ column, namespace: 'handle', former: RESERVE })) }
  await run(`set plpgsql.extra_errors = 'all'; set plpgsql.extra_warnings = 'all'`)
  const holder = holderTable('people', names, two)
  for (const statement of createHolder(holder)) await run(statement)
  await writeNames('people', 'id', ['handle', 'nick'])
  expect(await nameViolations(client, [holder])).toEqual([])
  await run('reset plpgsql.extra_errors; reset plpgsql.extra_warnings')
})

test('what this plants is called where an operator is looked up by search_path', async () => {
  await plant('integer')
  await expect(run(`select 'a'::varchar = 'b'::varchar`)).rejects.toThrow('runs as postgres')
})
