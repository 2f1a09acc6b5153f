import { createHash } from 'node:crypto'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { guardOf } from '../../../src/triggers/guard'
import { quote } from '../../../src/sql/identifier'
import type { TextTable } from '../../../src/sql/text-table'
import { useDatabase } from '../../support/database'
import {
  CHAIN,
  createGuardedTable,
  firstLetter,
  freshTable,
  putRows,
  rowsOf,
  textTable,
} from '../../support/guarded-table'
import { createNames, namesTable } from '../../support/names-table'

const db = useDatabase()
// Roles belong to the whole server, so their names hold the database's.
const suffix = createHash('sha256').update(db.url).digest('hex').slice(0, 8)
const writer = `T writer ${suffix}`
const owner = `T owner ${suffix}`
const heir = `T heir ${suffix}`
const taken = { code: '23505', constraint: 'page url' }
let page: TextTable
let schema = ''
const client = db.useClient()

beforeAll(() => client.query(`create role ${quote(writer)}; create role ${quote(owner)}; create role ${quote(heir)}`))
afterAll(async () => {
  for (const role of [writer, owner, heir]) {
    await client.query(`reset role; drop owned by ${quote(role)} cascade; drop role ${quote(role)}`)
  }
})
beforeEach(async () => {
  await client.query(`reset role; alter role ${quote(owner)} nobypassrls`)
  page = await freshTable(client)
  const { rows } = await client.query<{ schema: string }>('select current_schema() as schema')
  schema = rows[0]?.schema ?? ''
  await client.query(`grant usage on schema ${quote(schema)} to ${quote(writer)}`)
})

const as = (role: string): Promise<unknown> => client.query(`set role ${quote(role)}`)
const slow = (text: string): Promise<unknown> => client.query('insert into page (url) values ($1)', [text])
const rows = async (): Promise<string> => {
  await client.query('reset role')
  return await rowsOf(client, page)
}

describe('a role that may only INSERT', () => {
  beforeEach(async () => {
    await client.query(`grant insert on page to ${quote(writer)}`)
    await as(writer)
  })
  test('stores colliding texts side by side', async () => {
    await slow('a1')
    await slow('a2')
    await slow('a3')
    expect(await rows()).toBe('a1@0! a2@1 a3@2')
  })
  test('is refused a text that is there, which it cannot see', async () => {
    await slow('a1')
    await slow('a2')
    await expect(slow('a2')).rejects.toMatchObject(taken)
    await expect(client.query('select url from page')).rejects.toMatchObject({ code: '42501' })
  })
})

test('a role that may only DELETE promotes', async () => {
  await putRows(client, page, 'a1@0! a2@1')
  await client.query(`grant delete, select (url) on page to ${quote(writer)}`)
  await as(writer)
  await client.query(`delete from page where url = 'a1'`)
  expect(await rows()).toBe('a2@0!')
})

test('a trigger of another role with the arguments of ours names no columns of the guard', async () => {
  await client.query(
    `drop schema if exists lure cascade; create schema lure authorization ${quote(writer)};
     grant trigger on page to ${quote(writer)}; grant usage on schema ${quote(schema)} to ${quote(writer)}`,
  )
  await as(writer)
  await client.query(
    `create function lure.${CHAIN}() returns trigger language plpgsql as 'begin return new; end';
     do $$ begin execute format('create trigger lure before update of title, id on page for each row when (false)
       execute function lure.${CHAIN}(%L)', (select convert_from(substring(tgargs from 1 for octet_length(tgargs) - 1), 'UTF8')
         from pg_trigger where tgrelid = 'page'::regclass and tgname = '${page.guard}_rest')); end $$`,
  )
  await client.query('reset role')
  for (const text of ['a1', 'a2']) await client.query('insert into page (url) values ($1)', [text])
  await client.query(`delete from page where url = 'a1'`)
  expect(await rows()).toBe('a2@0!')
  await client.query('drop schema lure cascade')
})

describe('row security that hides the rows of others', () => {
  beforeEach(async () => {
    await client.query(
      `alter table page enable row level security;
       create policy own on page using (title = current_user) with check (true);
       grant insert, select, update, delete on page to ${quote(writer)};
       insert into page (url, title) values ('a1', 'other'), ('a2', 'other')`,
    )
    await as(writer)
  })
  const own = (text: string): Promise<unknown> =>
    client.query('insert into page (url, title) values ($1, current_user)', [text])

  test('hides no chain from the guard', async () => {
    await own('a3')
    await expect(own('a2')).rejects.toMatchObject(taken)
    expect(await rows()).toBe('a1@0! a2@1 a3@2')
  })
  test('hides no row that is to be promoted', async () => {
    await own('b1')
    await client.query('reset role')
    await client.query(`insert into page (url, title) values ('b2', 'other')`)
    await as(writer)
    await client.query(`delete from page where url = 'b1'`)
    expect(await rows()).toBe('a1@0! a2@1 b2@0!')
  })
})

/** The functions run as their owner; a policy that would hide a chain from them is an error, never a gap. */
describe.each([
  ['FORCE ROW LEVEL SECURITY', 'alter table page force row level security', '42501', 'a2@0!'],
  ['another owner, who does not own the functions,', `alter table page owner to ${quote(heir)}`, '55000', 'a1@0! a2@1'],
])('a guard under %s', (_what, statement, code, after) => {
  const hidden = { code: '42501' }
  beforeEach(async () => {
    await client.query(`grant all on schema ${quote(schema)} to ${quote(owner)}, ${quote(heir)}`)
    await client.query(`alter table page owner to ${quote(owner)}`)
    const { detach, create } = guardOf(page)
    for (const one of [detach, ...create]) await client.query(one)
    await putRows(client, page, 'a1@0! a2@1')
    await client.query(statement)
    await client.query(
      `grant all on page to ${quote(owner)}, ${quote(heir)}; alter table page enable row level security`,
    )
    await client.query(`create policy own on page using (url not in ('a2')) with check (true)`)
    await as(heir)
  })
  test('takes a fast insert, which reads no chain', async () => {
    const values = ['a2', firstLetter.js('a2')]
    const fast = client.query('insert into page (url, "urlHash", "urlHashNumber") values ($1, $2, 0)', values)
    await expect(fast).rejects.toMatchObject(taken)
  })
  test('refuses an insert without hash', async () => {
    await expect(slow('a3')).rejects.toMatchObject(hidden)
  })
  test('refuses to delete an anchor, for a hidden row would have to be promoted', async () => {
    await expect(client.query(`delete from page where url = 'a1'`)).rejects.toMatchObject({ code })
    expect(await rows()).toBe('a1@0! a2@1')
  })
  test('stores no text twice where the owner of the functions bypasses row security', async () => {
    await client.query(`reset role; alter role ${quote(owner)} bypassrls`)
    await as(heir)
    await expect(slow('a2')).rejects.toMatchObject(code === '55000' ? { code } : taken)
    await client.query(`delete from page where url = 'a1'`).catch(() => undefined)
    expect(await rows()).toBe(after)
  })
})

test('a function of the kernel that everybody may execute does nothing on the table of another role', async () => {
  await client.query(`grant create on schema ${quote(schema)} to ${quote(writer)}`)
  await client.query(`grant execute on all functions in schema ${quote(schema)} to public`)
  await as(writer)
  await client.query(`create table victims (name text); grant insert on victims to public`)
  await client.query(`create table bait (url text, hash integer, number integer, chained boolean);
    insert into bait values ('a1', 1, 0, false), ('a2', 1, 2, true); grant all on bait to public`)
  await client.query(`create function spy() returns trigger language plpgsql as
    $$ begin insert into victims values (current_user); return new; end $$`)
  const columns = 'before update of url, hash, number, chained on bait for each row'
  await client.query(`create trigger rest ${columns} execute function spy()`)
  for (const moment of ['after', 'before']) {
    await client.query(`create trigger lure_${moment} ${moment} insert on bait for each row
      execute function ${CHAIN}('{"name": "url", "text": ["url"], "scope": [], "index": "index"}')`)
    await expect(client.query(`insert into bait values ('a3', 1, 1, false)`)).rejects.toMatchObject({ code: '55000' })
  }
  const { rows: victims } = await client.query('select name from victims')
  expect(victims).toEqual([])
})

describe('a function that everybody may execute', () => {
  /** A table of the writer's with these columns, whose type `lure` runs code of the writer's where it is cast. */
  const lure = async (name: string, columns: string): Promise<void> => {
    await client.query(`grant create on schema ${quote(schema)} to ${quote(writer)}`)
    await client.query(`grant execute on all functions in schema ${quote(schema)} to public`)
    await as(writer)
    await client.query(`create table victims (name text); grant insert on victims to public`)
    await client.query(`create type lure as enum ('a1', 'held')`)
    await client.query(`create function spy(lure) returns text language plpgsql as
      $$ begin insert into victims values (current_user); return 'a1'; end $$`)
    await client.query('create cast (lure as text) with function spy(lure) as implicit')
    await client.query(`create table ${name} (${columns})`)
  }
  const put = async (table: string, name: string): Promise<void> => {
    await client.query(`create trigger lure before insert on ${table} for each row execute function ${quote(name)}()`)
  }
  afterEach(async () => {
    await client.query('reset role')
    const { rows: victims } = await client.query(`select name from victims where name <> '${writer}'`)
    expect(victims).toEqual([])
  })

  const columns = 'url lure, "urlHash" uuid, "urlHashNumber" integer, "urlHashChained" boolean'
  test('casts no text of a table of another role', async () => {
    await lure('bait', columns)
    await put('bait', page.guard)
    await expect(client.query(`insert into bait values ('a1')`)).rejects.toMatchObject({ code: '55000' })
  })
  test('casts no text of a table of another role that has the name of its own, in another schema', async () => {
    await client.query(`create schema "S lure" authorization ${quote(writer)}`)
    await lure('"S lure".page', columns)
    await put('"S lure".page', page.guard)
    await expect(client.query(`insert into "S lure".page values ('a1')`)).rejects.toMatchObject({ code: '55000' })
    await client.query('drop schema "S lure" cascade')
  })
  test('compares no state of a table of another role, where it guards the table of names', async () => {
    const names = namesTable()
    for (const statement of createNames(names)) await client.query(statement)
    const others = Object.values(names.columns).filter((name) => name !== names.columns.state)
    await lure(
      'bait',
      [...others.map((name) => `${quote(name)} text`), `${quote(names.columns.state)} lure`].join(', '),
    )
    await put('bait', 'unique_name_names')
    await expect(
      client.query(`insert into bait (${quote(names.columns.state)}) values ('held')`),
    ).rejects.toMatchObject({ code: '55000' })
  })
})

describe('a hostile role', () => {
  const boom = (name: string, parameters: string, returns: string): string =>
    `create function ${name}(${parameters}) returns ${returns} language plpgsql as $$ begin raise exception 'hostile'; end $$`

  test('cannot put a table of its own in place of the guarded one', async () => {
    await putRows(client, page, 'a1@0! a2@1')
    await client.query(`grant insert, delete, select on page to ${quote(writer)}`)
    await client.query(`grant temporary on database ${quote(client.database ?? '')} to ${quote(writer)}`)
    await as(writer)
    await client.query('create temp table page (like page)')
    await expect(client.query(`insert into ${quote(schema)}.page (url) values ('a2')`)).rejects.toMatchObject(taken)
    await client.query(`delete from ${quote(schema)}.page where url = 'a1'`)
    await client.query('reset role; drop table pg_temp.page')
    expect(await rows()).toBe('a2@0!')
  })
  test('cannot put functions, operators and casts of its own in their place, in any schema', async () => {
    await client.query(
      `grant insert, update, delete, select on page to ${quote(writer)}; grant create on schema ${quote(schema)} to ${quote(writer)}`,
    )
    await as(writer)
    await client.query(boom('md5', 'text', 'text'))
    await client.query(boom('substr', 'text, integer, integer', 'text'))
    await client.query(boom('max', 'integer', 'integer'))
    await client.query(boom('hostile', 'integer, integer', 'boolean'))
    await client.query(boom('hostile', 'text, text', 'boolean'))
    await client.query(boom('hostile', 'uuid, uuid', 'boolean'))
    for (const type of ['integer', 'text', 'uuid']) {
      for (const operator of ['=', '<>', '>', '>=']) {
        await client.query(`create operator ${operator} (function = hostile, leftarg = ${type}, rightarg = ${type})`)
      }
    }
    await client.query(`set search_path to ${quote(schema)}, pg_catalog`)
    await slow('a1')
    await slow('a2')
    await client.query(`update page set url = 'b3' where url operator(pg_catalog.=) 'a2'`)
    await client.query(`update page set url = 'a3' where url operator(pg_catalog.=) 'b3'`)
    await client.query(`delete from page where url operator(pg_catalog.=) 'a1'`)
    await client.query(`reset role; set search_path to pg_catalog, ${quote(schema)}`)
    expect(await rows()).toBe('a3@0!')
  })
  test.each([textTable().guard, CHAIN])('cannot put the function %s on a table of its own', async (name) => {
    await client.query(`grant create on schema ${quote(schema)} to ${quote(writer)}`)
    await as(writer)
    await client.query('create table mine (url text)')
    const steal = client.query(
      `create trigger steal after insert on mine for each row execute function ${quote(name)}('new')`,
    )
    await expect(steal).rejects.toMatchObject({ code: '42501' })
  })
})

test('tables of two owners in one schema have functions of their own', async () => {
  const table = textTable({ table: 'owned' })
  await client.query(`grant usage, create on schema ${quote(schema)} to ${quote(owner)}`)
  await createGuardedTable(client, table, { guard: [] })
  await client.query(`alter table owned owner to ${quote(owner)}`)
  for (const statement of guardOf(table).create) await client.query(statement)
  const { rows: owners } = await client.query(
    `select distinct tgrelid::regclass::text as name, tgrelid::regclass::text = 'owned' as owned,
            pg_get_userbyid(proowner) as owner from pg_trigger join pg_proc as p on p.oid = tgfoid
      where tgrelid in ('page'::regclass, 'owned'::regclass) order by 1`,
  )
  expect(owners).toEqual([
    { name: 'owned', owned: true, owner },
    { name: 'page', owned: false, owner: 'postgres' },
  ])
  for (const name of ['page', 'owned']) {
    for (const text of ['a1', 'a2']) await client.query(`insert into ${name} (url) values ($1)`, [text])
    await client.query(`delete from ${name} where url = 'a1'`)
  }
  expect([await rowsOf(client, page), await rowsOf(client, table)]).toEqual(['a2@0!', 'a2@0!'])
})

test('the functions belong to the owner of the table, whoever made them', async () => {
  const table = textTable({ table: 'owned' })
  await client.query(`drop table page; grant create on schema ${quote(schema)} to ${quote(owner)}`)
  await createGuardedTable(client, table, { guard: [] })
  await client.query(`alter table owned owner to ${quote(owner)}`)
  for (const statement of guardOf(table).create) await client.query(statement)
  const { rows: owners } = await client.query(
    // attach quotes all identifiers.
    `select distinct pg_get_userbyid(proowner) as owner, prosecdef as definer,
            replace(array_to_string(proconfig, ';'), '"', '') as config from pg_proc
      where oid in (select tgfoid from pg_trigger where tgrelid = 'owned'::regclass)`,
  )
  expect(owners).toEqual([
    {
      owner,
      definer: true,
      config: 'search_path=pg_catalog, pg_temp;enable_seqscan=off;row_security=off',
    },
  ])
})
