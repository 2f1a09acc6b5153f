import { createHash } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { literal, quote } from '../../../src/sql/identifier'
import { meet, untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'
import { CHAIN, createGuardedTable, freshTable, rowsOf, textTable } from '../../support/guarded-table'
import { guardOf } from '../../../src/triggers/guard'
import { digests } from '../../../src/text/digest'
import { install } from '../../support/releases'

/** What a person calls who has only psql. */
const db = useDatabase()
const client = db.useClient()
// Roles belong to the whole server, so their names hold the database's.
const stranger = `T stranger ${createHash('sha256').update(db.url).digest('hex').slice(0, 8)}`

beforeAll(() => client.query(`create role ${quote(stranger)}`))
afterAll(() => client.query(`reset role; drop owned by ${quote(stranger)} cascade; drop role ${quote(stranger)}`))
beforeEach(async () => {
  await client.query('reset role')
  await freshTable(client)
})

const problems = async (table = 'page'): Promise<string[]> => {
  const { rows } = await client.query<{ problems: string[] }>(
    `select problems from unique_text_report_v1() where on_table = $1::regclass`,
    [table],
  )
  return rows.flatMap((one) => one.problems)
}

const attach = (declaration: object): Promise<unknown> =>
  client.query(`select unique_text_attach_v1('page', $1)`, [JSON.stringify(declaration)])

describe('attach refuses', () => {
  test.each([
    [{}],
    [{ name: 'other', text: 'url', index: 'i' }],
    [{ name: 'other', text: ['title'], digest: 'crc32', index: 'i' }],
    [{ name: 'other', text: [], index: 'i' }],
    [{ name: 1, text: ['title'], index: 'i', hash: 'urlHash', number: 'urlHashNumber', chained: 'urlHashChained' }],
    [{ ...guardOf(textTable()).declaration, immutable: 'true' }],
    [{ ...guardOf(textTable()).declaration, imutable: true }],
    [{ ...guardOf(textTable()).declaration, maxChainLength: 1.5 }],
    [{ ...guardOf(textTable()).declaration, maxChainLength: 2 ** 31 }],
    [{ ...guardOf(textTable()).declaration, maxChainLength: 2 ** 31 }],
    [{ ...guardOf(textTable()).declaration, check: null }],
    [{ ...guardOf(textTable()).declaration, kind: 'number' }],
  ])('the declaration %j', async (declaration) => {
    await expect(attach(declaration)).rejects.toMatchObject({ code: '22023' })
  })
  test('a view', async () => {
    await client.query('create view seen as select * from page')
    const attached = client.query(
      `select unique_text_attach_v1('seen', '{"name": "url", "text": ["url"], "index": "i"}')`,
    )
    await expect(attached).rejects.toMatchObject({ code: '42809' })
  })
  test('a role that does not own the table', async () => {
    await client.query(
      `do $$ begin execute format('grant usage on schema %I to ${quote(stranger)}', current_schema()); end $$`,
    )
    await client.query(`set role ${quote(stranger)}`)
    await expect(attach({ name: 'other', text: ['title'], index: 'i' })).rejects.toMatchObject({ code: '42501' })
    await expect(client.query(`select unique_text_detach_v1('page', 'url')`)).rejects.toMatchObject({ code: '42501' })
  })
})

/** Triggers by name, each with the function that it runs. */
const triggers = async (): Promise<string[]> => {
  const { rows } = await client.query<{ one: string }>(
    `select concat(t.tgname, ' ', p.proname) as one from pg_trigger as t join pg_proc as p on p.oid = t.tgfoid
      where t.tgrelid = 'page'::regclass order by 1`,
  )
  return rows.map(({ one }) => one)
}

const functions = async (): Promise<string[]> => {
  const { rows } = await client.query<{ name: string }>(
    `select proname as name from pg_proc where pronamespace = (select oid from pg_namespace where nspname = current_schema())
        and prorettype = 'trigger'::regtype order by 1`,
  )
  return rows.map(({ name }) => name)
}

describe('attach again', () => {
  const declared = { ...guardOf(textTable()).declaration, maxChainLength: 2 }

  test('replaces what the text has', async () => {
    const before = await triggers()
    await attach(declared)
    expect(await triggers()).toEqual(before)
    expect(await problems()).toEqual([])
    await client.query(`insert into page (url) values ('a1'), ('a2')`)
    await expect(client.query(`insert into page (url) values ('a3')`)).rejects.toMatchObject({ code: 'UT002' })
  })
  test('mends triggers that are disabled, renamed, missing or twice', async () => {
    await client.query(
      `alter table page disable trigger unique_text_page__url_rest;
       alter trigger unique_text_page__url_settle_update on page rename to mine;
       drop trigger unique_text_page__url_settle_delete on page;
       do $$ begin execute replace((select pg_get_triggerdef(oid) from pg_trigger
         where tgname = 'unique_text_page__url_place_insert' and tgrelid = 'page'::regclass), '_place_insert', '_twice');
       end $$`,
    )
    expect(await problems()).not.toEqual([])
    await attach(guardOf(textTable()).declaration)
    expect(await problems()).toEqual([])
    expect(await triggers()).toHaveLength(6)
    await client.query(`insert into page (url) values ('a1'), ('a2'), ('a3'); delete from page where url = 'a1'`)
    expect(await rowsOf(client, textTable())).toBe('a2@0! a3@2')
  })
  test('mends a function whose code has changed', async () => {
    const [own = ''] = (await functions()).filter((name) => name !== CHAIN)
    await client.query(`create or replace function ${own}() returns trigger language plpgsql security definer
      set search_path = pg_catalog, pg_temp set enable_seqscan = off set row_security = off as 'begin return new; end'`)
    expect(await problems()).toEqual(['the code of its functions differs'])
    await attach(guardOf(textTable()).declaration)
    expect(await functions()).toEqual([CHAIN, own])
    expect(await problems()).toEqual([])
  })
})

test('a name of 63 bytes for a table or a text is long enough', async () => {
  await client.query(
    `alter table page rename to ${'ж'.repeat(31)}; alter table ${'ж'.repeat(31)} rename url to ${'ü'.repeat(31)}`,
  )
  await client.query(`select unique_text_attach_v1($1::regclass, $2)`, [
    'ж'.repeat(31),
    JSON.stringify({
      ...guardOf(textTable()).declaration,
      name: 'ü'.repeat(31),
      text: ['ü'.repeat(31)],
      hashed: `md5(NEW.${'ü'.repeat(31)})::uuid`,
    }),
  ])
  expect(await problems('ж'.repeat(31))).toContain('its table was renamed, so that an INSERT without hash costs more')
})

test.each([31, 32, 33, 40, 45, 46])(
  'a table whose name has %i letters gets six triggers with names of their own',
  async (letters) => {
    const table = 't'.repeat(letters)
    const { guard: _, ...declared } = guardOf(textTable()).declaration
    await client.query(`alter table page rename to ${table}`)
    await client.query(`select unique_text_attach_v1($1::regclass, $2)`, [table, JSON.stringify(declared)])
    const { rows } = await client.query(
      `select tgname from pg_trigger where tgrelid = $1::regclass and not tgisinternal`,
      [table],
    )
    expect(rows).toHaveLength(6)
    expect(await problems(table)).toEqual([])
  },
)

test.each(['by', 'begin', 'if', 'loop', 'into', 'new', 'tg_op', 'taken', 'a "b', "it's", 'a%s', 'a\\b'])(
  'a column can be called %s',
  async (name) => {
    await client.query('drop table page')
    await client.query(`create table page (${quote(name)} text, "its hash" uuid not null, "its number" integer not null,
      "its flag" boolean not null)`)
    await client.query(`create unique index "page url" on page ("its hash", "its number")`)
    await attach({
      name,
      text: [name],
      index: 'page url',
      hash: 'its hash',
      number: 'its number',
      chained: 'its flag',
      immutable: true,
    })
    await client.query(`insert into page (${quote(name)}) values ('a')`)
    const again = client.query(`insert into page (${quote(name)}) values ('a')`)
    await expect(again).rejects.toMatchObject({ code: '23505' })
    const changed = client.query(`update page set ${quote(name)} = 'b'`)
    await expect(changed).rejects.toMatchObject({ code: 'UT001' })
    expect(await problems()).toEqual([])
  },
)

test.each([
  ['is renamed', `alter trigger unique_text_page__url_rest on page rename to a_rest`, 'fires before'],
  [
    'is lost after a rename of the table',
    `drop trigger unique_text_page__url_rest on page; alter table page rename to a; alter table a rename to page`,
    'main trigger is missing',
  ],
])('triggers fire in their order after attach if one %s', async (_, change, problem) => {
  const { declaration } = guardOf(textTable())
  await client.query(change)
  expect(await problems()).toContainEqual(expect.stringContaining(problem))
  await attach(declaration)
  await client.query(`insert into page (url) values ('a1'), ('a2')`)
  expect(await problems()).toEqual([])
})

test('attach replaces no trigger of another name or user', async () => {
  await client.query(`select unique_text_detach_v1('page', 'url');
    create function own() returns trigger language plpgsql as $$ begin return new; end $$;
    create trigger own_rest before insert on page for each row execute function own()`)
  const attached = attach({ ...guardOf(textTable()).declaration, guard: 'own' })
  await expect(attached).rejects.toMatchObject({ code: '42710' })
  await client.query('drop function own() cascade')
})

test('attach revokes what a role has passed on', async () => {
  const schema = (await client.query<{ name: string }>('select current_schema() as name')).rows[0]?.name ?? ''
  await client.query(`grant usage on schema ${quote(schema)} to ${quote(stranger)};
    grant execute on function unique_text_chain_v1() to ${quote(stranger)} with grant option;
    set role ${quote(stranger)}; grant execute on function unique_text_chain_v1() to public; reset role`)
  await attach(guardOf(textTable()).declaration)
  expect(await problems()).toEqual([])
})

describe('at once with another session', () => {
  const declared = guardOf(textTable()).declaration
  const attached = (declaration: object): string =>
    `select unique_text_attach_v1('page', ${literal(JSON.stringify(declaration))})`

  /** Runs a statement that waits for the first one's transaction, which commits then. */
  async function during(first: string, second: string): Promise<unknown[]> {
    const { rows } = await client.query<{ path: string }>(`select current_schema() as path`)
    const [young, observer] = [await db.client(), await db.client()]
    await young.query(`set search_path to ${quote(rows[0]?.path ?? '')}`)
    return (await meet({ other: client, observer }, first, () => young.query(second))).rows
  }

  test('attach makes the guard for the owner that the table gets meanwhile', async () => {
    const name = quote(stranger)
    const path = (await client.query<{ path: string }>('select current_schema() as path')).rows[0]?.path ?? ''
    await client.query(
      `select unique_text_detach_v1('page', 'url'); grant usage, create on schema ${quote(path)} to ${name}`,
    )
    await during(`alter table page owner to ${name}`, attached(declared))
    expect(await problems()).toEqual([])
  })

  test('attach refuses a schema that its owner has renamed while it waited', async () => {
    const other = await db.client()
    const schema = (await client.query<{ name: string }>('select current_schema() as name')).rows[0]?.name ?? ''
    const own = 'unique_text_page__url'
    await client.query(`select unique_text_detach_v1('page', 'url'); create schema trap;
      create table trap.page (like page including all);
      create function trap.${own}() returns trigger language plpgsql as $$ begin return null; end $$`)
    await other.query(`begin; create function ${quote(schema)}.${own}() returns trigger language plpgsql as
      $$ begin return null; end $$`)
    const waiting = rejection(client.query(attached(declared)))
    const observer = await db.client()
    await untilBlocked(observer)
    await other.query(`drop function ${quote(schema)}.${own}(); alter schema ${quote(schema)} rename to gone;
      alter schema trap rename to ${quote(schema)}; commit`)
    expect(await waiting).toMatchObject({ code: '40001' })
    await other.query(`drop schema ${quote(schema)} cascade; alter schema gone rename to ${quote(schema)}`)
  })

  test.each([
    ['attach', attached({ ...declared, immutable: true })],
    ['detach', `select unique_text_detach_v1('page', 'url')`],
  ])('attach makes the whole guard after %s', async (_, first) => {
    await during(first, attached(declared))
    expect(await problems()).toEqual([])
    await client.query(`insert into page (url) values ('a1'), ('a2'); update page set url = 'b1' where url = 'a1'`)
    expect(await rowsOf(client, textTable())).toBe('a2@0! b1@0')
  })
  test('the first attach is made once', async () => {
    await client.query(`select unique_text_detach_v1('page', 'url')`)
    await during(attached(declared), attached(declared))
    expect(await problems()).toEqual([])
    expect(await triggers()).toHaveLength(6)
  })
  test('detach is made once', async () => {
    const detach = `select unique_text_detach_v1('page', 'url') as was`
    expect(await during(detach, detach)).toEqual([{ was: false }])
    expect([await triggers(), await functions()]).toEqual([[], []])
  })
  test('detach of the other text that runs the chain function leaves it', async () => {
    await client.query(`create table other as table page; select unique_text_detach_v1('page', 'url')`)
    await client.query(attached(declared).replace('page', 'other'))
    const detached = during(attached(declared), `select unique_text_detach_v1('other', 'url')`)
    await expect(detached).rejects.toMatchObject({ code: '2BP01' })
    expect(await problems()).toEqual([])
    await client.query(`insert into page (url) values ('a1'), ('a2')`)
    expect(await rowsOf(client, textTable())).toBe('a1@0! a2@1')
  })
})

describe('a library of the next version', () => {
  const table = textTable()

  test('takes a text over, and gives it back, without waiting for readers or letting them wait', async () => {
    const { rows } = await client.query<{ path: string }>(`select current_schema() as path`)
    const [old, young] = [await db.client(), await db.client()]
    for (const one of [old, young])
      await one.query(`set search_path to ${quote(rows[0]?.path ?? '')}; set lock_timeout = '2s'`)
    await client.query(`insert into page (url) values ('a1'), ('a2'); set lock_timeout = '2s'`)
    for (const [release, version] of [
      ['next', 2],
      ['this', 1],
    ] as const) {
      await old.query('begin; select * from page')
      await client.query('begin')
      for (const statement of install(guardOf(table), release)) await client.query(statement)
      expect((await young.query('select * from page')).rows).toHaveLength(2)
      await client.query('commit')
      await old.query('commit')
      const reported = await client.query(
        `select version, problems from unique_text_report_v1() where on_table = 'page'::regclass`,
      )
      expect(reported.rows).toEqual([{ version, problems: [] }])
      expect(await triggers()).toHaveLength(6)
      expect((await functions()).filter((name) => name.startsWith('unique_text_chain'))).toEqual([
        `unique_text_chain_v${version}`,
      ])
      await expect(client.query(`insert into page (url) values ('a2')`)).rejects.toMatchObject({ code: '23505' })
    }
    await client.query(`delete from page where url = 'a1'; reset lock_timeout`)
    expect(await rowsOf(client, table)).toBe('a2@0!')
  })
  test('detaches what this one has attached', async () => {
    for (const statement of install(guardOf(table), 'next')) await client.query(statement)
    await client.query(`select unique_text_attach_v1('page', $1)`, [JSON.stringify(guardOf(table).declaration)])
    const { rows } = await client.query(`select unique_text_detach_v2('page', 'url') as was`)
    expect([rows, await triggers(), await functions()]).toEqual([[{ was: true }], [], []])
  })
})

describe("a declaration on another role's table", () => {
  /** The library, a table of the stranger, and a function that a superuser must not run. */
  beforeEach(async () => {
    await client.query(
      `create schema if not exists spied; create table if not exists spied.runs (who text);
       create or replace function spied.spy() returns uuid language plpgsql as
         'begin insert into spied.runs values (current_user); return null; end';
       grant usage on schema spied to public; grant insert on spied.runs to public; truncate spied.runs;
       do $$ begin execute format('grant usage, create on schema %I to ${quote(stranger)}', current_schema()); end $$;
       create function audit() returns trigger language plpgsql as 'begin return coalesce(new, old); end';
       set role ${quote(stranger)};
       create table theirs (url text, "urlHash" uuid, "urlHashNumber" integer, "urlHashChained" boolean)`,
    )
  })
  const declared = (more: object): string =>
    JSON.stringify({ kind: 'text', name: 'url', text: ['url'], scope: [], index: 'i', bodies: 'x', ...more })
  const whoRan = async (): Promise<string[]> => {
    const { rows } = await client.query<{ who: string }>('select distinct who from spied.runs order by 1')
    return rows.map(({ who }) => who)
  }

  test.each([
    '"bodies": ',
    '{"bodies": 1, "protocol": "one"}',
    '{"bodies": 1, "triggers": 7}',
    '{"bodies": 1, "triggers": ["seven"]}',
    '{"bodies": 1, "protocol": 1e9}',
    '{"name": "\\u0000", "bodies": 1}',
    `{"bodies": ${'['.repeat(90_000)}${']'.repeat(90_000)}}`,
  ])('does not keep the report from the others: %.40s', async (argument) => {
    await client.query(
      `do $$ begin execute format('create trigger lure before insert on theirs for each row execute function audit(%L)',
         replace(${literal(argument)}, '"bodies":', '"bodies": ')); end $$; reset role`,
    )
    const { rows } = await client.query(`select on_table::text, problems from unique_text_report_v1()
      where on_table in ('page'::regclass, 'theirs'::regclass) order by 1`)
    expect(rows).toEqual([
      { on_table: 'page', problems: [] },
      { on_table: 'theirs', problems: [expect.any(String), ...(rows[1] as { problems: string[] }).problems.slice(1)] },
    ])
  })
  test('makes detach and attach drop no function of another role', async () => {
    const lure = `create trigger lure before insert on theirs for each row execute function
      audit('{"bodies": "x", "kind": "text", "name": "url", "text": ["url"]}')`
    for (const call of [
      `unique_text_detach_v1('theirs', 'url')`,
      `unique_text_attach_v1('theirs', '${declared({})}')`,
    ]) {
      await client.query(`${lure}; reset role; select ${call}; set role ${quote(stranger)}`)
      const { rows } = await client.query(`select to_regprocedure('audit()') is not null as stays,
        exists (select from pg_trigger where tgfoid = 'audit()'::regprocedure) as lured`)
      expect(rows).toEqual([{ stays: true, lured: false }])
    }
  })
  test('runs its SQL as the owner of that table, whoever attaches it and whoever writes', async () => {
    await client.query(`reset role`)
    await client.query(`select unique_text_attach_v1('theirs', $1)`, [declared({ hashed: 'spied.spy()' })])
    await client.query(`select * from unique_text_report_v1()`)
    expect(await whoRan()).toEqual([])
    await client.query(`insert into theirs (url) values ('a')`)
    expect(await whoRan()).toEqual([stranger])
  })
})

/** Operators that are found first, and whose function writes to `spied.hits`. */
const HOSTILE = `
  create schema if not exists spied; create table if not exists spied.hits (operator text); truncate spied.hits;
  do $$ declare
    types constant text[] := '{varchar,text,name,integer,bigint,uuid,jsonb,boolean,timestamptz,oid,tid,text[],"\\"char\\""}';
    l text; r text; o text; n integer := 0;
  begin
    foreach l in array types loop foreach r in array types loop
      n := n + 1;
      execute format('create function spy_%s(a %s, b %s) returns boolean language plpgsql as %L', n, l, r,
        format('begin insert into spied.hits values (%L); return false; end', l || ' ' || r));
      foreach o in array '{=,<>,<,>,>=,<=}'::text[] loop
        execute format('create operator %s (function = spy_%s, leftarg = %s, rightarg = %s)', o, n, l, r);
      end loop;
    end loop; end loop;
    execute format('set search_path to %I, pg_catalog', current_schema());
  end $$`

test('no operator of the schema runs, whatever the library does for its caller', async () => {
  await client.query(HOSTILE)
  const hits = async (): Promise<unknown[]> => (await client.query('table spied.hits')).rows
  await client.query(`select 'a'::varchar = 'a'::varchar; select 1 >= 1::bigint; select '(0,1)'::tid = '(0,1)'::tid`)
  expect(await hits()).toHaveLength(3)
  await client.query('truncate spied.hits')
  const declared = literal(JSON.stringify(guardOf(textTable()).declaration))
  for (const statement of [
    `select unique_text_attach_v1('page', ${declared})`,
    `insert into page (url) values ('a1'), ('a2'), ('a3'), ('b1')`,
    `update page set url = 'b2' where id operator(pg_catalog.=) 2`,
    `delete from page where id operator(pg_catalog.=) 1`,
    'select * from unique_text_report_v1()',
    `select unique_text_detach_v1('page', 'url')`,
    `select unique_text_attach_v1('page', ${declared})`,
    `insert into page (url) values ('a3') on conflict do nothing`,
  ]) {
    await client.query(statement)
  }
  expect(await hits()).toEqual([])
  await client.query(`set search_path to pg_catalog; truncate spied.hits`)
})

describe('the declaration', () => {
  const REST = 'unique_text_page__url_rest'
  const declared = guardOf(textTable()).declaration

  test('is the argument of one trigger, and the others have kind and name', async () => {
    const { rows } = await client.query<{ name: string; argument: string }>(
      `select tgname as name, convert_from(substring(tgargs for octet_length(tgargs) - 1), 'UTF8') as argument
         from pg_trigger where tgrelid = 'page'::regclass order by tgname = '${REST}'`,
    )
    const main = rows.pop()
    expect(rows.map(({ argument }) => argument)).toEqual(Array(5).fill('{"kind": "text", "name": "url"}'))
    expect(JSON.parse(main?.argument ?? '')).toMatchObject({ index: 'page url', triggers: [5, 7, 9, 17, 19, 23] })
  })
  test.each([
    ['is lost with its trigger', '', 'its main trigger is missing'],
    ['is there twice', `'', ''`, 'it has several main triggers'],
    ['is there with another one', `'"text": ["url"]', '"text": ["title"]'`, 'it has several main triggers'],
  ])('%s, which is refused, seen and mended', async (_, change, problem) => {
    await client.query(`insert into page (url) values ('a1'), ('a2')`)
    await client.query(
      change === ''
        ? `drop trigger ${REST} on page`
        : `do $$ begin execute replace(replace((select pg_get_triggerdef(oid) from pg_trigger
             where tgname = '${REST}' and tgrelid = 'page'::regclass), '_rest', '_more'), ${change}); end $$`,
    )
    expect(await problems()).toContain(problem)
    const promoted = client.query(`delete from page where url = 'a1'`)
    await expect(promoted).rejects.toMatchObject({ code: '55000', constraint: expect.any(String) as string })
    await attach(declared)
    expect([await problems(), (await triggers()).length]).toEqual([[], 6])
    await client.query(`insert into page (url) values ('a3'); delete from page where url = 'a1'`)
    expect(await rowsOf(client, textTable())).toBe('a2@0! a3@2')
  })
  test.each(['drop trigger', 'alter trigger'])('is not needed to detach: %s', async (command) => {
    await client.query(`${command} ${REST} on page ${command.startsWith('drop') ? '' : 'rename to mine'}`)
    const { rows } = await client.query(`select unique_text_detach_v1('page', 'url') as was`)
    expect([rows, await triggers(), await functions()]).toEqual([[{ was: true }], [], []])
  })
})

test('attach and detach call their own helpers, whatever the search path finds first', async () => {
  const { rows } = await client.query<{ home: string }>('select current_schema() as home')
  const home = quote(rows[0]?.home ?? '')
  const trap = (args: string): string => `(${args}) returns jsonb language plpgsql as $$ begin raise 'trap'; end $$`
  await client.query(
    `drop schema if exists trap cascade; create schema trap; set search_path to trap, ${home};
     create function trap.unique_text_create_v1${trap('regclass, jsonb')};
     create function trap.unique_text_drop_v1${trap('regclass, text, text')};
     create function trap.unique_text_clean_v1${trap('regclass, jsonb')}`,
  )
  const declared = literal(JSON.stringify(guardOf(textTable()).declaration))
  await client.query(`select ${home}.unique_text_attach_v1('${home}.page', ${declared})`)
  await client.query(`select ${home}.unique_text_detach_v1('${home}.page', 'url'); set search_path to ${home}`)
  expect([await triggers(), await functions()]).toEqual([[], []])
})

test('detach says whether there was a guard', async () => {
  const detach = async (): Promise<unknown[]> =>
    (await client.query(`select unique_text_detach_v1('page', 'url') as was`)).rows
  expect([await detach(), await detach()]).toEqual([[{ was: true }], [{ was: false }]])
})

describe('report', () => {
  test('finds nothing wrong with a new guard', async () => {
    expect(await problems()).toEqual([])
  })
  test.each([
    ['drop trigger unique_text_page__url_settle_delete on page', ['a trigger AFTER DELETE is missing']],
    [
      'alter table page disable trigger unique_text_page__url_rest',
      ['the trigger unique_text_page__url_rest is disabled'],
    ],
    ['drop index "page url"', ['its unique index is missing or invalid']],
    [
      'drop index "page url"; create unique index "page url" on page ("urlHash", id)',
      ['its unique index has other columns'],
    ],
    [
      'drop index "page url"; create unique index "page url" on page ("urlHash", id)',
      ['its unique index has other columns'],
    ],
    ['alter table page drop constraint "page url check"', ['its check is missing or not valid']],
    ['alter table page rename to other', ['its table was renamed, so that an INSERT without hash costs more']],
    [`alter function ${CHAIN} security invoker`, [expect.stringMatching(/ is not SECURITY DEFINER$/)]],
    [`grant execute on function ${CHAIN} to public`, [expect.stringMatching(/ may be executed by a role/)]],
    [`alter function ${CHAIN} set search_path to public`, [expect.stringMatching(/ has other settings$/)]],
  ])('sees %s', async (statement, expected) => {
    await client.query(statement)
    const table = statement.includes('rename') ? 'other' : 'page'
    expect(await problems(table)).toEqual(expected)
  })
})

test('a digest of the user with the SQL of ours and another name is a digest of the user', async () => {
  const table = textTable({ table: 'own', digest: { ...digests.md5, name: 'own' } })
  await createGuardedTable(client, table)
  await client.query(`insert into own (url) values ('a')`)
  const { rows } = await client.query(`select "urlHash" = md5('a')::uuid as same from own`)
  expect(rows).toEqual([{ same: true }])
})
