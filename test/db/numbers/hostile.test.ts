import type { Client } from 'pg'
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { scopesName, scopesTable } from '../../../src/sql/numbers'
import { numberOf } from '../../../src/numbers/sql/declared'
import { useDatabase } from '../../support/database'
import { countedTable, createNumberedTable, numbersOf, numberTable, wrongCounts } from '../../support/numbered-table'

const db = useDatabase()
const client = db.useClient()

const counted = countedTable()
const insert = (tenant = 1, rows = 1): Promise<unknown> =>
  client.query(`insert into comment (tenant) select ${tenant} from generate_series(1, ${rows})`)

describe('nothing of the user changes a count:', () => {
  beforeEach(() => createNumberedTable(client, counted))

  test('a BEFORE trigger that derives the scope, which the UPDATE does not name', async () => {
    await client.query(`create or replace function derive() returns trigger language plpgsql as
        $$ begin new.tenant := coalesce(new.title::integer, new.tenant); return new; end $$;
      create trigger a before insert or update on comment for each row execute function derive()`)
    await insert(1, 3)
    await client.query(`update comment set title = '2' where number < 3`)
    expect(await numbersOf(client, counted)).toBe('1: 3 #1; 2: 1 2 #2')
    await client.query('drop function derive cascade')
  })

  test('triggers that write other rows of the table in between', async () => {
    await client.query(`create or replace function nested() returns trigger language plpgsql as $$ begin
        if pg_trigger_depth() > 1 then return coalesce(new, old); end if;
        delete from comment where tenant = 2;
        insert into comment (tenant) values (3), (2);
        update comment set "deletedAt" = now() where tenant = 5;
        if tg_op = 'INSERT' then update comment set tenant = 4 where id = new.id; end if;
        return coalesce(new, old); end $$;
      create trigger a before delete or update on comment for each row execute function nested();
      create trigger b after insert on comment for each row execute function nested()`)
    await insert(5)
    await insert(1, 3)
    await client.query('delete from comment where tenant = 4 and number = 1')
    await client.query('update comment set title = $1 where tenant = 3 and number = 1', ['x'])
    await client.query('drop function nested cascade')
    expect(await wrongCounts(client, counted)).toEqual([])
  })

  test('triggers that see every UPDATE, or refuse them all', async () => {
    await client.query(`create or replace function refuse() returns trigger language plpgsql as
        $$ begin raise 'append only'; end $$;
      create trigger a before update on comment for each row execute function refuse()`)
    await insert(1, 2)
    expect(await numbersOf(client, counted)).toBe('1: 1 2 #2')
    await client.query('drop function refuse cascade')
  })

  test('columns with the names of variables', async () => {
    const names = 'oldest plain ours r found newest k s0 n part gone came c new tg_op'.split(' ')
    for (const name of names) {
      const table = countedTable({ scope: [{ name, type: 'integer' }] })
      await createNumberedTable(client, table, { scope: { [name]: 'integer' } })
      await client.query(`insert into comment ("${name}") values (1), (1), (2)`)
      await client.query(`update comment set "${name}" = 2 where "${name}" = 1 and number = 1`)
      await client.query(`delete from comment where "${name}" = 2 and number = 1`)
      expect([name, await numbersOf(client, table)]).toEqual([name, '1: 2 #1; 2: 2 #1'])
    }
  })

  test.each(['gone', 'came', 'c', 'k', 't', 'r', 'i', 'g', 'new', 'excluded'])('a table called "%s"', async (name) => {
    const table = countedTable({ table: name, index: 'of_number', triggers: `numbers_${name}` })
    await createNumberedTable(client, table)
    await client.query(`insert into "${name}" (tenant) values (1), (1), (2);
      update "${name}" set tenant = 2 where tenant = 1 and number = 1; delete from "${name}" where tenant = 2 and number = 1`)
    expect(await numbersOf(client, table)).toBe('1: 2 #1; 2: 2 #1')
    await client.query(`drop table "${name}"`)
  })

  test('every extra check of PL/pgSQL', async () => {
    await client.query(`set plpgsql.extra_errors = 'all'; set plpgsql.extra_warnings = 'all'`)
    await createNumberedTable(client, counted)
    await insert(1, 3)
    await client.query(`delete from comment where number = 1; update comment set tenant = 2;
      update comment set "deletedAt" = now() where number = 2; insert into comment (tenant, number) values (2, 9)
        on conflict (tenant, number) do update set number = excluded.number`)
    expect(await numbersOf(client, counted)).toBe('2: 1 2~ 9 #2')
    await client.query('truncate comment')
    await insert(1)
    expect(await numbersOf(client, counted)).toBe('1: 1 #1')
    await client.query('reset plpgsql.extra_errors; reset plpgsql.extra_warnings; truncate comment')
  })

  test('settings and advisory locks of any role', async () => {
    const other = await db.client()
    const { rows } = await client.query<{ oid: number }>(`select 'comment'::regclass::oid::integer as oid`)
    await other.query(`select pg_advisory_lock(${rows[0]?.oid ?? 0}, n) from generate_series(-99, 99) as n`)
    await client.query('set unique_text.scopes_begun = 5000')
    await insert(9)
    await client.query('reset unique_text.scopes_begun')
    expect(await numbersOf(client, counted)).toBe('9: 1 #1')
    const locks = await client.query(`select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()`)
    expect(locks.rows).toEqual([])
  })
})

test('a column that is renamed, and another of its name, are refused', async () => {
  for (const table of [numberTable(), counted]) {
    await createNumberedTable(client, table)
    await insert(1, 2)
    await client.query(
      'alter table comment rename tenant to old; alter table comment add tenant integer not null default 1',
    )
    const refused = { code: '55000', hint: expect.stringContaining('generate a migration') as string }
    await expect(client.query('insert into comment (old) values (1)')).rejects.toMatchObject(refused)
    await expect(client.query('update comment set old = 2')).rejects.toMatchObject(refused)
    await client.query('alter table comment drop tenant; alter table comment rename old to tenant')
    await client.query('alter table comment rename number to was; alter table comment add number integer')
    await expect(client.query('insert into comment (tenant, was) values (1, 3)')).rejects.toMatchObject(refused)
  }
})

test('so they are where the trigger that looks at them is renamed, or gone', async () => {
  await createNumberedTable(client, counted)
  const refused = { code: '55000' }
  await client.query(`alter trigger numbers_comment__number_look on comment rename to other;
    alter table comment rename tenant to old; alter table comment add tenant integer not null default 1`)
  await expect(client.query('insert into comment (old) values (1)')).rejects.toMatchObject(refused)
  await expect(client.query('delete from comment')).rejects.toMatchObject(refused)
  await client.query('drop trigger other on comment; insert into comment (old, number) values (1, 1)')
  await expect(client.query('update comment set old = 2')).rejects.toMatchObject(refused)
})

describe('a counted column that is renamed, and another of its name, are refused:', () => {
  const refused = { code: '55000', hint: expect.stringContaining('generate a migration') as string }
  const scoped = countedTable({ scope: ['tenant', 'topic'].map((name) => ({ name, type: 'integer' })) })
  beforeEach(async () => {
    await createNumberedTable(client, scoped, { scope: { tenant: 'integer', topic: 'integer' } })
    await client.query('insert into comment (tenant, topic) values (1, 2), (1, 2)')
  })
  const rename = (column: string, type: string): Promise<unknown> =>
    client.query(`alter table comment disable trigger user; alter table comment rename "${column}" to former;
      alter table comment add "${column}" ${type}; update comment set "${column}" = former;
      alter table comment enable trigger user`)

  test.each([
    ['deletedAt', 'timestamptz', 'update comment set former = now()'],
    ['deletedAt', 'timestamptz', 'update comment set former = now() where number = 1'],
    ['deletedAt', 'timestamptz', 'delete from comment'],
    ['deletedAt', 'timestamptz', 'delete from comment where number = 1'],
    ['deletedAt', 'timestamptz', 'insert into comment (tenant, topic) values (1, 2)'],
    ['tenant', 'integer', 'update comment set former = former + 1'],
    ['tenant', 'integer', 'delete from comment where number = 1'],
    ['number', 'integer', 'update comment set former = former + 1'],
    ['number', 'integer', 'insert into comment (tenant, topic, former) values (1, 2, 3)'],
  ])('%s (%s), by %s', async (column, type, sql) => {
    await rename(column, type)
    await expect(client.query(sql)).rejects.toMatchObject(refused)
  })

  test('two columns of the scope that exchange their names', async () => {
    await client.query(`alter table comment rename tenant to former; alter table comment rename topic to tenant;
      alter table comment rename former to topic`)
    for (const sql of [
      'insert into comment (tenant, topic) values (1, 2)',
      'update comment set topic = 7',
      'delete from comment',
    ])
      await expect(client.query(sql)).rejects.toMatchObject(refused)
  })
})

describe.each(['repeatable read', 'serializable'])('to a transaction at %s that began before', (level) => {
  const scoped = countedTable({ scope: ['tenant', 'topic'].map((name) => ({ name, type: 'integer' })) })
  const refused = { code: '55000', hint: expect.stringContaining('generate a migration') as string }
  let migrator: Client
  beforeAll(async () => {
    migrator = await db.client()
  })
  beforeEach(async () => {
    await createNumberedTable(client, scoped, { scope: { tenant: 'integer', topic: 'integer' } })
    await client.query('insert into comment (tenant, topic) values (1, 2)')
    // A snapshot, and no lock that would hold up the migrator.
    await client.query(`begin isolation level ${level}; select 1`)
  })
  afterEach(async () => {
    await client.query('rollback')
  })

  test('a column that was renamed is not its namesake', async () => {
    await migrator.query('alter table comment rename tenant to old; alter table comment add tenant integer')
    await expect(client.query('insert into comment (old, topic) values (1, 2)')).rejects.toMatchObject(refused)
  })

  test('triggers that were made again for a renamed column are right', async () => {
    const renamed = { ...scoped, scope: ['old', 'topic'].map((name) => ({ name, type: 'integer' })) }
    const { detach } = numberOf(scoped)
    const { create } = numberOf(renamed)
    await migrator.query(['begin', detach, 'alter table comment rename tenant to old', ...create, 'commit'].join(';\n'))
    // The row of the scope that stands now is newer than the snapshot.
    await expect(client.query('insert into comment (old, topic) values (1, 2)')).rejects.toMatchObject({
      code: '40001',
    })
    await client.query('rollback; insert into comment (old, topic) values (1, 2)')
    expect(await numbersOf(client, renamed)).toBe('1/2: 1 2 #2')
  })
})

test.each([
  [{ count: true }, '1: 1 2 #2'],
  [{ count: false, reuse: false as const }, '1: 1 3'],
])('attach with %j is refused to a transaction that may not see all rows', async (options, numbers) => {
  const table = numberTable(options)
  await createNumberedTable(client, table)
  const { attach, detach } = numberOf(table)
  const other = await db.client()
  await client.query(detach)
  await client.query('begin isolation level repeatable read; select 1')
  await client.query(attach)
  await client.query('rollback; begin isolation level repeatable read; select 1')
  await other.query('insert into comment (tenant, number) values (1, 1), (1, 2)')
  await expect(client.query(attach)).rejects.toMatchObject({ code: '0A000' })
  await client.query('rollback')
  await client.query(attach)
  await client.query(`delete from comment where number = 2; insert into comment (tenant) values (1)`)
  expect(await numbersOf(client, table)).toBe(numbers)
})

test('after the highest number that there is comes an error which says what to do', async () => {
  for (const [type, highest] of [
    ['integer', '2147483647'],
    ['smallint', '32767'],
    ['bigint', '9223372036854775807'],
  ] as const) {
    const table = numberTable({ type })
    await createNumberedTable(client, table)
    await client.query(`insert into comment (tenant, number) values (1, ${highest})`)
    await expect(insert()).rejects.toMatchObject({ code: '22003', hint: expect.stringContaining('bigint') as string })
    await client.query(`update comment set number = 5`)
    await insert()
    expect(await numbersOf(client, table)).toBe('1: 5 6')
  }
})

describe('the table of scopes', () => {
  beforeEach(async () => {
    for (const role of ['number_owner', 'number_reader', 'number_thief']) {
      await client.query(`do $$ begin create role ${role}; exception when duplicate_object then null; end $$`)
    }
    await createNumberedTable(client, counted)
  })

  test('belongs to the owner of the table, and nobody else may write it', async () => {
    await client.query(`grant create, usage on schema public to number_owner;
      alter table comment owner to number_owner; grant select on comment to number_reader;
      alter default privileges grant all on tables to public, number_thief`)
    for (const statement of [numberOf(counted).detach, ...numberOf(counted).create]) {
      await client.query(statement)
    }
    await client.query('alter default privileges revoke all on tables from public, number_thief')
    const { rows } = await client.query<{ owner: string; acl: string[] }>(
      `select relowner::regrole::text as owner, array(select grantee::regrole || ' ' || privilege_type from aclexplode(relacl)
         where grantee <> relowner) as acl from pg_class where relname = $1`,
      [scopesName(counted)],
    )
    expect(rows).toEqual([{ owner: 'number_owner', acl: ['number_reader SELECT'] }])
    await insert()
    await client.query(`set role number_reader`)
    expect((await client.query(`select sum(n)::integer as n from ${scopesTable(counted)}`)).rows).toEqual([{ n: 1 }])
    await client.query('reset role')
  })

  test('is not read where another has put a view of his own in its place', async () => {
    await insert()
    await client.query(`create or replace function steal() returns boolean language plpgsql as
        $$ begin raise 'called as %', current_user; end $$;
      alter table ${scopesName(counted)} rename to kept;
      create view ${scopesName(counted)} as select 1 as s0, 0::int2 as part, 0::bigint as n where steal();
      alter view ${scopesName(counted)} owner to number_thief`)
    const refused = { code: '55000', hint: expect.stringContaining('given away') as string }
    await expect(insert()).rejects.toMatchObject(refused)
    await expect(client.query('delete from comment')).rejects.toMatchObject(refused)
    await client.query(`drop view ${scopesName(counted)}; alter table kept rename to ${scopesName(counted)}`)
    await insert()
    expect(await numbersOf(client, counted)).toBe('1: 1 2 #2')
  })

  test('tells counts whatever rows a policy shows', async () => {
    await insert(1, 3)
    await client.query(`alter table comment enable row level security; alter table comment force row level security;
      grant select on comment, ${scopesTable(counted)} to number_reader; set role number_reader`)
    expect((await client.query('select from comment')).rows).toEqual([])
    expect((await client.query(`select sum(n)::integer as n from ${scopesTable(counted)}`)).rows).toEqual([{ n: 3 }])
    await client.query('reset role')
  })

  test('holds no row for each row, and its updates are HOT', async () => {
    await client.query('begin')
    await insert(1, 5_000)
    for (let nth = 0; nth < 300; nth++) await insert()
    const { rows } = await client.query<{ live: number; updates: number; hot: number }>(
      `select (select count(*)::integer from ${scopesTable(counted)}) as live, n_tup_upd::integer as updates, n_tup_hot_upd::integer as hot
         from pg_stat_xact_user_tables where relname = $1`,
      [scopesName(counted)],
    )
    await client.query('commit')
    const [found] = rows
    expect(found?.live).toBeLessThanOrEqual(64)
    expect((found?.hot ?? 0) / (found?.updates ?? 1)).toBeGreaterThan(0.9)
  })
})

test('an insert reads no more of the table of scopes after 3,000 others under an open snapshot', async ({ skip }) => {
  const { rows: flushes } = await client.query(`select to_regproc('pg_stat_force_next_flush') as name`)
  if (flushes[0]?.name === null) skip('Postgres 14 tells what was read when it likes')
  await createNumberedTable(client, numberTable())
  const snapshot = await db.client()
  await insert()
  await snapshot.query('begin isolation level repeatable read; select from comment')
  const blocks = async (): Promise<number> => {
    await client.query('select pg_stat_force_next_flush()')
    const { rows } = await client.query<{ blocks: number }>(
      `select (heap_blks_hit + idx_blks_hit)::integer as blocks from pg_statio_user_tables where relname = $1`,
      [scopesName(numberTable())],
    )
    return rows[0]?.blocks ?? NaN
  }
  const ofInserts = async (rows: number): Promise<number> => {
    const before = await blocks()
    for (let nth = 0; nth < rows; nth++) await insert()
    return ((await blocks()) - before) / rows
  }
  const first = await ofInserts(200)
  await ofInserts(3_000)
  const last = await ofInserts(200)
  await snapshot.query('rollback')
  expect(last).toBeLessThan(first * 1.5)
})

test('two transactions may begin 14,000 scopes each at once', async () => {
  for (const table of [numberTable(), counted]) {
    await createNumberedTable(client, table)
    const [one, two] = [await db.client(), await db.client()]
    await one.query('begin; insert into comment (tenant) select n from generate_series(1, 14000) as n')
    await two.query('begin; insert into comment (tenant) select n from generate_series(20001, 34000) as n')
    await one.query('commit')
    await two.query('commit')
    expect((await client.query('select count(*)::integer as n from comment where number = 1')).rows).toEqual([
      { n: 28_000 },
    ])
  }
})

describe.each([
  ['varchar', 'varchar', `'a'`, `'b'`],
  ['an enum', 'number_enum', `'a'`, `'b'`],
  ['a domain', 'number_domain', '1', '2'],
  ['an array', 'integer[]', `'{1}'`, `'{2}'`],
  ['a range', 'int4range', `'[1,2)'`, `'[2,3)'`],
  ['cidr', 'cidr', `'10.0.0.0/8'`, `'11.0.0.0/8'`],
  ['uuid', 'uuid', `'00000000-0000-4000-8000-000000000000'`, `'00000000-0000-4000-8000-000000000001'`],
  ['numeric', 'numeric', '1', '2'],
] as const)('a scope of %s', (_name, type, one, two) => {
  test.each(['before', 'after'])('calls no operator that a user made %s the migration', async (when) => {
    const table = countedTable({ scope: [{ name: 'topic', type }] })
    await client.query(`drop table if exists comment cascade; drop type if exists number_enum cascade;
      drop domain if exists number_domain cascade; create type number_enum as enum ('a', 'b');
      create domain number_domain as integer`)
    // Of a type that has none of its own, `=` of exactly this type beats that of pg_catalog.
    const made = `create function called(${type}, ${type}) returns boolean language plpgsql immutable as
        $$ begin raise 'an operator was called'; end $$;
      create operator = (leftarg = ${type}, rightarg = ${type}, function = called);
      create operator <> (leftarg = ${type}, rightarg = ${type}, function = called)`
    if (when === 'before') await client.query(made)
    await createNumberedTable(client, table, { scope: { topic: type } })
    if (when === 'after') await client.query(made)
    await client.query(`insert into comment (topic) values (${one}), (${one}), (${two})`)
    await client.query(`update comment set topic = ${two} where id = 1; update comment set title = 'x'`)
    await client.query('delete from comment where id = 2')
    await client.query('drop function called cascade')
    expect(await wrongCounts(client, table)).toEqual([])
    expect((await client.query('select number from comment order by id')).rows).toEqual([{ number: 2 }, { number: 1 }])
  })
})
