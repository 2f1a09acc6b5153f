import { beforeEach, describe, expect, test } from 'vitest'
import { quote } from '../../../src/sql/identifier'
import type { HolderTable } from '../../../src/names/sql/fragments'
import type { RefusedName } from '../../../src/sql/names-table'
import { findByNameStatement } from '../../../src/names/sql/statements'
import { namesOfHolder } from '../../../src/names/sql/attach'
import { copyIn } from '../../stress/copy-in'
import { firstLetter } from '../../support/guarded-table'
import { useDatabase } from '../../support/database'
import { merge } from '../../support/databases'
import { STEVENS } from '../../support/md5-collisions'
import {
  attachHolder,
  createHolder,
  createNames,
  FREE,
  holderTable,
  namesTable,
  nameViolations,
  RESERVE,
} from '../../support/names-table'

const db = useDatabase()
const client = db.useClient()
const names = namesTable()
let schemas = 0

/** Functions whose statements are run by EXECUTE, because Citus may keep the table local, and all others. */
describe.each([undefined, 'local'] as const)('with citus: %s,', (citus) => {
  const users = holderTable('users', names, { citus })
  const orgs = holderTable('orgs', names, { citus, primary: [{ name: 'id', type: 'uuid' }] })
  /** A composite key, two names in one namespace and one in another, and each its own policy. */
  const shops = holderTable('shops', names, {
    citus,
    primary: [
      { name: 'city', type: 'text' },
      { name: 'at', type: 'timestamp with time zone' },
    ],
    names: [
      { column: 'slug', namespace: 'handle', former: RESERVE },
      { column: 'alias', namespace: 'handle', former: { state: 'redirect', interval: '90 days' } },
      { column: 'code', namespace: 'code', former: FREE },
    ],
  })
  const all = [users, orgs, shops]

  beforeEach(async () => {
    await fresh(...all)
  })

  async function fresh(...holders: readonly HolderTable[]): Promise<void> {
    schemas += 1
    await client.query(`create schema ${quote(`N ${schemas}`)}; set search_path to ${quote(`N ${schemas}`)}`)
    for (const statement of createNames(holders[0]?.of ?? names)) await client.query(statement)
    for (const holder of holders) for (const statement of createHolder(holder)) await client.query(statement)
  }

  /** The names, as `text=holder key`; a former one ends in `?` where it is reserved, in `>` where it redirects. */
  async function standing(): Promise<string> {
    const { rows } = await client.query<{ shown: string }>(
      `SELECT text || '=' || holder || (holder_key #>> '{}') ||
       CASE state::text WHEN 'held' THEN '' WHEN 'reserved' THEN '?' ELSE '>' END AS shown
     FROM names ORDER BY text COLLATE "C"`,
    )
    return rows.map(({ shown }) => shown).join(' ')
  }

  const run = (sql: string): Promise<unknown> => client.query(sql)
  const sound = async (holders: readonly HolderTable[] = all): Promise<void> => {
    expect(await nameViolations(client, holders)).toEqual([])
  }
  const taken = { code: '23505', constraint: 'names_unique_index' }
  const ORG = '0192f7a6-7c3e-7000-8000-000000000001'

  test('a name is unique over several tables', async () => {
    await run(`insert into users (handle) values ('ann')`)
    await expect(run(`insert into orgs (id, handle) values ('${ORG}', 'ann')`)).rejects.toMatchObject({
      ...taken,
      schema: `N ${schemas}`,
      table: 'orgs',
      detail: JSON.stringify([
        { of: [ORG], key: [1], state: 'held', column: 'handle', holder: 'users', holderColumn: 'handle' },
      ])
        .replaceAll(/(?<=[:,])(?=["[{\d])/g, ' ')
        .replaceAll('} {', '}, {'),
    })
    await run(`insert into orgs (id, handle) values ('${ORG}', 'Ann')`)
    expect(await standing()).toBe(`Ann=orgs["${ORG}"] ann=users[1]`)
    await sound()
  })

  test('every refused name of a statement is told', async () => {
    await run(`insert into users (handle) values ('a'), ('b'), ('c')`)
    const refused = await run(
      `insert into orgs (id, handle) select gen_random_uuid(), h from unnest('{x,a,y,c}'::text[]) as h`,
    ).then(
      () => [],
      (error: unknown) => JSON.parse((error as { detail: string }).detail) as readonly RefusedName[],
    )
    expect(refused.map(({ key, state }) => `${String(key?.[0])} ${state}`).toSorted()).toEqual(['1 held', '3 held'])
    expect(await standing()).toBe('a=users[1] b=users[2] c=users[3]')
  })

  test('one name in two rows, or in two columns of a row, of one statement is refused', async () => {
    await expect(run(`insert into users (handle) values ('a'), ('a')`)).rejects.toMatchObject(taken)
    await expect(
      run(`insert into shops (city, at, slug, alias) values ('Rome', now(), 'a', 'a')`),
    ).rejects.toMatchObject(taken)
    await run(`insert into shops (city, at, slug, code) values ('Rome', now(), 'a', 'a')`)
    await sound()
  })

  describe('names come, change and go with their rows', () => {
    beforeEach(async () => {
      await run(`insert into users (handle) values ('a'), ('b'), (null), (null)`)
    })
    test('NULL holds nothing', async () => {
      expect(await standing()).toBe('a=users[1] b=users[2]')
      await run(`update users set handle = null where id = 1`)
      await run(`update users set handle = 'a' where id = 3`)
      expect(await standing()).toBe('a=users[3] b=users[2]')
      await sound()
    })
    test('a name that is given up is free at once', async () => {
      await run(`update users set handle = 'c' where id = 1`)
      await run(`insert into users (handle) values ('a')`)
      expect(await standing()).toBe('a=users[5] b=users[2] c=users[1]')
      await sound()
    })
    test('two rows exchange their names in one UPDATE', async () => {
      await run(`update users set handle = case handle when 'a' then 'b' else 'a' end where handle is not null`)
      expect(await standing()).toBe('a=users[2] b=users[1]')
      await sound()
    })
    test('a bulk UPDATE moves names along a row of rows', async () => {
      await run(`insert into users (handle) select 'n' || i from generate_series(1, 200) as i`)
      await run(`update users set handle = 'n' || (substr(handle, 2)::int + 1) where handle like 'n%'`)
      await sound()
      await run(`update users set handle = upper(handle), title = 'all' where handle is not null`)
      await sound()
      await run(`update users set handle = null`)
      expect(await standing()).toBe('')
    })
    test('a refused UPDATE changes nothing', async () => {
      await expect(run(`update users set handle = 'b' where id = 1`)).rejects.toMatchObject(taken)
      expect(await standing()).toBe('a=users[1] b=users[2]')
    })
    test('DELETE, also of all rows and by cascade', async () => {
      await run(`create table teams (id int primary key);
      insert into teams values (1), (2);
      alter table users add team int references teams on delete cascade on update cascade;
      update users set team = 1`)
      await run(`delete from users where id = 1`)
      expect(await standing()).toBe('b=users[2]')
      await run(`insert into users (handle, team) select 'n' || i, 2 from generate_series(1, 50) as i`)
      await run(`update teams set id = 3 where id = 1`)
      await sound()
      await run(`delete from teams`)
      expect(await standing()).toBe('')
    })
    test('TRUNCATE takes the names of its table only', async () => {
      await run(`insert into orgs (id, handle) values ('${ORG}', 'c')`)
      await run(`truncate users`)
      expect(await standing()).toBe(`c=orgs["${ORG}"]`)
      await sound()
    })
    test('TRUNCATE at another level than READ COMMITTED is refused: its snapshot may not show every name', async () => {
      await run('begin isolation level repeatable read')
      await expect(run(`truncate users`)).rejects.toMatchObject({ code: '0A000' })
      await run('rollback')
      await sound()
    })
    test('ON CONFLICT DO UPDATE and MERGE', async () => {
      await run(
        `insert into users (id, handle) values (1, 'b2'), (9, 'c') on conflict (id) do update set handle = 'a2'`,
      )
      expect(await standing()).toBe('a2=users[1] b=users[2] c=users[9]')
      const known = await merge(
        client,
        `merge into users using (values (1, 'x'), (2, 'a2'), (20, 'b')) as v (id, handle) on users.id = v.id
       when matched then update set handle = v.handle when not matched then insert (id, handle) values (v.id, v.handle)`,
      )
      expect(await standing()).toBe(
        known ? 'a2=users[2] b=users[20] c=users[9] x=users[1]' : 'a2=users[1] b=users[2] c=users[9]',
      )
      await merge(
        client,
        `merge into users using (values (1), (2)) as v (id) on users.id = v.id when matched then delete`,
      )
      await sound()
    })
    test('MERGE that deletes one row and inserts another with its name', async () => {
      const known = await merge(
        client,
        `merge into users using (values (1, 'x'), (20, 'a')) as v (id, handle) on users.id = v.id
       when matched then delete when not matched then insert (id, handle) values (v.id, v.handle)`,
      )
      expect(await standing()).toBe(known ? 'a=users[20] b=users[2]' : 'a=users[1] b=users[2]')
      await sound()
    })
    test('a CTE that deletes one row and inserts another with its name', async () => {
      await run(
        `with d as (delete from users where id = 1 returning handle) insert into users (handle) select handle from d`,
      )
      expect(await standing()).toBe('a=users[5] b=users[2]')
      await sound()
    })
    test('a rollback, also to a savepoint, takes back row and name', async () => {
      await run(`begin; update users set handle = 'c' where id = 1; savepoint s; delete from users where id = 2`)
      await run(`rollback to s; insert into users (handle) values ('a'); commit`)
      expect(await standing()).toBe('a=users[5] b=users[2] c=users[1]')
      await sound()
    })
  })

  describe('a primary key that changes', () => {
    const keys = holderTable('keys', names, {
      citus,
      names: [{ column: 'handle', namespace: 'handle', former: RESERVE }],
    })
    beforeEach(async () => {
      await fresh(keys)
      await run(`alter table keys drop constraint keys_pkey; alter table keys add primary key (id) deferrable`)
      await run(`insert into keys (handle) values ('a'), ('b'), ('c')`)
      await run(`update keys set handle = handle || '2'`)
    })
    test('takes all names of the row along', async () => {
      await run(`update keys set id = id + 10 where id = 1`)
      expect(await standing()).toBe('a=keys[11]? a2=keys[11] b=keys[2]? b2=keys[2] c=keys[3]? c2=keys[3]')
      await sound([keys])
    })
    test('keys that rows exchange, or that move up by one', async () => {
      await run(`update keys set id = 3 - id where id < 3`)
      expect(await standing()).toBe('a=keys[2]? a2=keys[2] b=keys[1]? b2=keys[1] c=keys[3]? c2=keys[3]')
      await run(`update keys set id = id + 1`)
      expect(await standing()).toBe('a=keys[3]? a2=keys[3] b=keys[2]? b2=keys[2] c=keys[4]? c2=keys[4]')
      await sound([keys])
    })
    test('together with the name, and with rows that keep theirs', async () => {
      await run(
        `update keys set id = case when id = 1 then 1 else id + 1 end, handle = case id when 1 then 'b2' when 2 then 'a2' else 'c3' end`,
      )
      expect(await standing()).toBe('a=keys[1]? a2=keys[3] b=keys[3]? b2=keys[1] c=keys[4]? c2=keys[4]? c3=keys[4]')
      await sound([keys])
    })
  })

  describe('former names', () => {
    beforeEach(async () => {
      await run(`insert into shops (city, at, slug, alias, code) values ('Rome', '2026-01-02 03:04+00', 's', 'a', 'c')`)
      await run(`update shops set slug = 's2', alias = 'a2', code = 'c2'`)
    })
    const KEY = '["Rome", "2026-01-02T03:04:00"]'
    test('become what the column says', async () => {
      expect(await standing()).toBe(`a=shops${KEY}> a2=shops${KEY} c2=shops${KEY} s=shops${KEY}? s2=shops${KEY}`)
      const { rows } = await client.query(
        `select text, until - since = interval '90 days' as days from names where state <> 'held' order by text`,
      )
      expect(rows).toEqual([
        { text: 'a', days: true },
        { text: 's', days: null },
      ])
      await sound()
    })
    test('are kept for as long as each column says', async () => {
      const rooms = holderTable('rooms', names, {
        citus,
        names: ['days', 'weeks', 'ever'].map((column) => ({
          column,
          namespace: 'handle',
          former: { state: 'reserved', interval: column === 'ever' ? undefined : `2 ${column}` },
        })),
      })
      for (const statement of createHolder(rooms)) await run(statement)
      await run(`insert into rooms (days, weeks, ever) values ('d', 'w', 'e')`)
      await run(`update rooms set days = 'd2', weeks = 'w2', ever = 'e2'`)
      const { rows } = await client.query(
        `select text, extract(day from until - since)::int as days from names where holder = 'rooms'::regclass::regclass and state <> 'held' order by text`,
      )
      expect(rows).toEqual([
        { text: 'd', days: 2 },
        { text: 'e', days: null },
        { text: 'w', days: 14 },
      ])
    })
    test('are refused to others, also in another column', async () => {
      for (const name of ['s', 'a']) {
        await expect(run(`insert into users (handle) values ('${name}')`)).rejects.toMatchObject(taken)
      }
    })
    test('a holder takes his own former name back, in any of its columns and any time zone', async () => {
      await run(`set timezone to 'Asia/Kolkata'; update shops set slug = 'a', alias = 's'; reset timezone`)
      expect(await standing()).toBe(`a=shops${KEY} a2=shops${KEY}> c2=shops${KEY} s=shops${KEY} s2=shops${KEY}?`)
      await sound()
    })
    test('that are taken again are held since then, and without an end', async () => {
      await run(`update names set since = '2020-01-01' where state <> 'held'`)
      await run(`update shops set slug = 'a'`)
      const { rows } = await client.query(
        `select until from names where text = 'a' and since > now() - interval '1 hour'`,
      )
      expect(rows).toEqual([{ until: null }])
    })
    test('that end while a transaction is open are free in it', async () => {
      await run(`begin; select 1`)
      const other = await db.client()
      await other.query(
        `update ${quote(`N ${schemas}`)}.names set until = pg_catalog.clock_timestamp() where state <> 'held'`,
      )
      await run(`insert into users (handle) values ('a'); update users set handle = 's'; commit`)
      expect(await standing()).toBe(`a2=shops${KEY} c2=shops${KEY} s=users[1] s2=shops${KEY}`)
      await sound()
    })
    test('that have expired are free for everybody, though nobody has removed them', async () => {
      await run(`update names set until = now() - interval '1 second' where state <> 'held'`)
      await run(`insert into users (handle) values ('a'), ('s')`)
      expect(await standing()).toBe(`a=users[1] a2=shops${KEY} c2=shops${KEY} s=users[2] s2=shops${KEY}`)
      await sound()
    })
    test('go with their holder', async () => {
      await run(`delete from shops`)
      expect(await standing()).toBe('')
    })
    test('can be removed directly; a held name can not', async () => {
      await run(`delete from names where state <> 'held'`)
      for (const sql of [
        `delete from names`,
        `update names set text = 'z'`,
        `update names set holder_key = '[1]' where text = 's2'`,
        `update names set namespace = 'login' where text = 's2'`,
        `update names set holder = 'users' where text = 's2'`,
        `update names set holder_column = 'alias' where text = 's2'`,
        `update names set state = 'reserved' where text = 's2'`,
        `insert into names (namespace, text, holder, holder_column, holder_key) values ('handle', 'z', 'users', 'handle', '[7]')`,
        `insert into names (namespace, text, holder, holder_column, holder_key, state) values ('handle', 'z', '-', '', '[]', 'reserved');
       update names set state = 'held' where text = 'z'`,
        `truncate names`,
      ]) {
        await expect(run(sql)).rejects.toMatchObject({ code: 'UT003' })
      }
      await run(`truncate names, shops, users`)
      expect(await standing()).toBe('')
    })
    test('a redirect can be written directly', async () => {
      await run(
        `insert into names (namespace, text, holder, holder_column, holder_key, state) values ('handle', 'z', 'shops', 'slug', '${KEY}', 'redirect')`,
      )
      await expect(run(`insert into users (handle) values ('z')`)).rejects.toMatchObject(taken)
    })
    test('a name can be reserved for nobody', async () => {
      await run(
        `insert into names (namespace, text, holder, holder_column, holder_key, state) values ('handle', 'root', '-', '', '[]', 'reserved')`,
      )
      await expect(run(`insert into users (handle) values ('root')`)).rejects.toMatchObject(taken)
    })
  })

  describe('texts of equal hash', () => {
    test('by MD5 are two names, in one statement and in two', async () => {
      const [one, two] = STEVENS
      await run(`insert into users (handle) values ('${one}'), ('${two}')`)
      await sound()
      await expect(run(`insert into users (handle) values ('${two}')`)).rejects.toMatchObject(taken)
      await run(`delete from users where handle = '${one}'`)
      await expect(run(`insert into users (handle) values ('${two}')`)).rejects.toMatchObject(taken)
      await run(`insert into orgs (id, handle) values ('${ORG}', '${one}')`)
      await sound()
    })
    test('are exchanged, renamed, taken back and released like others', async () => {
      const colliding = namesTable(firstLetter)
      const people = holderTable('people', colliding, {
        citus,
        names: [{ column: 'handle', namespace: 'handle', former: RESERVE }],
      })
      await fresh(people)
      await run(`insert into people (handle) values ('a1'), ('a2'), ('a3'), ('b1')`)
      await run(`update people set handle = case id when 1 then 'a2' when 2 then 'a3' when 3 then 'a1' else 'a4' end`)
      expect(await standing()).toBe('a1=people[3] a2=people[1] a3=people[2] a4=people[4] b1=people[4]?')
      await run(`update people set handle = 'b' || id`).catch(() => {})
      await run(
        `update people set handle = 'c' || id; update people set handle = case id when 1 then 'a2' else handle end`,
      )
      expect(await standing()).toBe(
        'a1=people[3]? a2=people[1] a3=people[2]? a4=people[4]? b1=people[4]? c1=people[1]? c2=people[2] c3=people[3] c4=people[4]',
      )
      await run(`update names set until = now() - interval '1 day' where state <> 'held'`)
      await run(`insert into people (handle) values ('a1'), ('a3'), ('a5'), ('b1')`)
      await sound([people])
      await run(`delete from people`)
      expect(await standing()).toBe('')
    })
  })

  describe("a user's own triggers", () => {
    const trigger = (when: string, body: string): Promise<unknown> =>
      run(
        `create function own() returns trigger language plpgsql as $$ begin ${body} end $$;
       create trigger own ${when} on users for each row execute function own()`,
      )
    test('BEFORE ones are heard', async () => {
      await trigger('before insert or update', 'new.handle := lower(new.handle); return new;')
      await run(`insert into users (handle) values ('ANN')`)
      await run(`update users set handle = 'BOB'`)
      expect(await standing()).toBe('bob=users[1]')
      await sound()
    })
    test.each(['aaa', 'zzz'])('AFTER ones that change the row once more, named %s', async (name) => {
      await trigger(
        'after insert or update',
        `if new.handle !~ 'x$' then update users set handle = handle || 'x' where id = new.id; end if; return null;`,
      )
      // Postgres 14 renames nothing to the name that it has.
      if (name !== 'own') await run(`alter trigger own on users rename to ${name}`)
      await run(`insert into users (handle) values ('a'), ('b')`)
      await sound()
      await run(`update users set handle = case id when 1 then 'bx' else 'a' end`)
      expect(await standing()).toBe('ax=users[2] bx=users[1]')
      await sound()
    })
    test('AFTER ones that delete the row, or put it back', async () => {
      await trigger('after insert', `delete from users where id = new.id and handle = 'no'; return null;`)
      await run(`insert into users (handle) values ('no'), ('yes')`)
      expect(await standing()).toBe('yes=users[2]')
      await run(
        `create function back() returns trigger language plpgsql as
         $$ begin insert into users (id, handle) values (old.id, 'back'); return null; end $$;
       create trigger back after delete on users for each row execute function back()`,
      )
      await run(`delete from users where id = 2`)
      expect(await standing()).toBe('back=users[2]')
      await sound()
    })
  })

  test('a row that a trigger puts back keeps its former names', async () => {
    await run(
      `insert into shops (city, at, slug) values ('Rome', '2026-01-02 03:04+00', 's'); update shops set slug = 't'`,
    )
    await run(
      `create function back() returns trigger language plpgsql as
       $$ begin insert into shops values (old.*); return null; end $$;
     create trigger back after delete on shops for each row execute function back()`,
    )
    await run(`delete from shops`)
    expect(await standing()).toBe('s=shops["Rome", "2026-01-02T03:04:00"]? t=shops["Rome", "2026-01-02T03:04:00"]')
    await sound()
  })

  test('a row that a trigger puts back with the text in another column does not keep it in the first', async () => {
    await run(`insert into shops (city, at, slug, code) values ('Rome', '2026-01-02 03:04+00', 'a', 'b')`)
    await run(
      `create function back() returns trigger language plpgsql as
       $$ begin insert into shops (city, at, slug, code) values (old.city, old.at, 'x', 'a'); return null; end $$;
     create trigger back after delete on shops for each row execute function back()`,
    )
    await run(`delete from shops`)
    await sound()
    await run(`insert into users (handle) values ('a')`)
  })

  describe('a collation that calls different texts equal', () => {
    const rooms = holderTable('rooms', names, { citus, primary: [{ name: 'code', type: 'character varying' }] })
    beforeEach(async () => {
      await fresh(rooms)
      await run(
        `create collation nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
       alter table rooms disable trigger user`,
      )
      await run(namesOfHolder(rooms).detach)
      await run(`alter table rooms alter code type varchar collate nocase, alter handle type text collate nocase`)
      await run(attachHolder(rooms))
      await run(`insert into rooms (code, handle) values ('a', 'ann')`)
    })
    test('is none of the names: another spelling is another name', async () => {
      await run(`update rooms set handle = 'Ann'`)
      expect(await standing()).toBe('Ann=rooms["a"]')
      await sound([rooms])
    })
    test('is none of a look-up by name', async () => {
      const row = { holder: rooms, name: 'handle', row: { select: ['code'], spatial: new Map() }, only: undefined }
      const { sql } = findByNameStatement(row)
      expect((await client.query(sql, ['ann'])).rows).toHaveLength(1)
      expect((await client.query(sql, ['ANN'])).rows).toEqual([])
    })
    test('is none of the keys: names go along with another spelling', async () => {
      await run(`update rooms set code = 'A'`)
      expect(await standing()).toBe('ann=rooms["A"]')
      await sound([rooms])
    })
  })

  test('names of a row with the same key in another table stay where they are', async () => {
    const clubs = holderTable('clubs', names, { citus })
    for (const statement of createHolder(clubs)) await run(statement)
    await run(`insert into users (id, handle) values (1, 'a'); insert into clubs (id, handle) values (1, 'b')`)
    await run(`update users set handle = 'c' where id = 1`)
    expect(await standing()).toBe('b=clubs[1] c=users[1]')
    await run(`update users set id = 2; delete from users`)
    expect(await standing()).toBe('b=clubs[1]')
    await sound([...all, clubs])
  })

  test("operators of the user's own are not those by which a row is found", async () => {
    const rooms = holderTable('rooms', names, {
      citus,
      primary: [{ name: 'code', type: 'character varying' }],
      names: [{ column: 'handle', namespace: 'handle', former: RESERVE }],
    })
    await fresh(rooms)
    // Called, they would run as the owner of the table.
    for (const [operator, left, right] of [
      ['=', 'varchar', 'varchar'],
      ['=', 'varchar', 'text'],
      ['=', 'text', 'varchar'],
      ['<>', 'varchar', 'varchar'],
    ]) {
      await run(
        `create or replace function called(${left}, ${right}) returns boolean language plpgsql as
         $$ begin raise 'an operator was called'; end $$;
       create operator ${operator} (leftarg = ${left}, rightarg = ${right}, function = called)`,
      )
    }
    await run(`insert into rooms (code, handle) values ('a', 'ann'), ('b', 'bob')`)
    expect(await standing()).toBe('ann=rooms["a"] bob=rooms["b"]')
    await run(`update rooms set handle = case handle when 'ann' then 'bob' else 'ann' end`)
    expect(await standing()).toBe('ann=rooms["b"] bob=rooms["a"]')
    await run(`update rooms set code = code || '2', handle = handle || '2'`)
    await run(`insert into rooms (code, handle) values ('c', 'cid')`)
    await expect(run(`insert into rooms (code, handle) values ('d', 'ann'), ('e', 'cid')`)).rejects.toMatchObject(taken)
    await expect(run(`delete from names`)).rejects.toMatchObject({ code: 'UT003' })
    await expect(run(`update names set holder_column = 'x'`)).rejects.toMatchObject({ code: 'UT003' })
    await run(`delete from names where state::text = 'reserved'; delete from rooms`)
    expect(await standing()).toBe('')
  })

  test('rows of a child by INHERITS hold no names, and take none from the parent', async () => {
    await run(`create table kids () inherits (users)`)
    await run(`insert into users (handle) values ('a'); insert into kids (id, handle) values (1, 'kid')`)
    await run(`update users set handle = 'b' where handle = 'kid'`)
    await run(`update users set handle = 'c' where handle = 'a'`)
    await run(`delete from users where handle = 'b'`)
    expect(await standing()).toBe('c=users[1]')
    await run(`insert into kids (id, handle) values (1, 'c'); delete from only users`)
    expect(await standing()).toBe('')
    await sound()
  })

  test('COPY claims, in one pass for all its rows', async () => {
    await copyIn(client, 'copy users (handle) from stdin', ['b', 'a', '\\N'])
    expect(await standing()).toBe('a=users[2] b=users[1]')
    await expect(copyIn(client, 'copy users (handle) from stdin', ['c', 'a'])).rejects.toMatchObject(taken)
    await sound()
  })

  test('a renamed table keeps its names, and is not taken for another one', async () => {
    await run(`insert into users (handle) values ('a'), ('b'), ('c')`)
    await run(`alter table users rename to people; create table users (id int, handle text)`)
    await run(`insert into people (handle) values ('d'); update people set handle = 'e' where handle = 'a'`)
    await run(`update people set handle = case handle when 'b' then 'c' else 'b' end where handle in ('b', 'c')`)
    await run(`update people set id = id + 10; delete from people where handle = 'd'`)
    expect(await standing()).toBe('b=people[13] c=people[12] e=people[11]')
    await expect(run(`insert into people (handle) values ('e')`)).rejects.toMatchObject(taken)
    await run('truncate people')
    expect(await standing()).toBe('')
  })

  test('a table that another role owns by now is refused', async () => {
    const role = quote(`T owns ${process.pid}`)
    await run(`create role ${role}; alter table users owner to ${role}; alter table users rename to people`)
    await expect(run(`insert into people (handle) values ('a')`)).rejects.toMatchObject({ code: '55000' })
    await run(`drop owned by ${role} cascade; drop role ${role}`)
  })

  test('a table that goes to another schema keeps its names, and is not taken for the one in its place', async () => {
    const elsewhere = quote(`N ${schemas} elsewhere`)
    await run(`create schema ${elsewhere}; alter table users set schema ${elsewhere}`)
    await run(`create table users (id int, handle text); insert into users values (1, 'a')`)
    await run(`insert into ${elsewhere}.users (handle) values ('a')`)
    expect(await standing()).toBe(`a=${elsewhere}.users[1]`)
  })

  test('a role that may only write the holders writes their names', async () => {
    const role = quote(`T names ${process.pid}`)
    const { rows } = await client.query<{ schema: string }>('select current_schema() as schema')
    await run(`create role ${role}; grant usage on schema ${quote(rows[0]?.schema ?? '')} to ${role};
    grant select, insert, update, delete on users to ${role}; set role ${role}`)
    await run(`insert into users (handle) values ('a'), ('b')`)
    await run(`update users set handle = 'c' where id = 1; delete from users where id = 2`)
    await expect(run('select from names')).rejects.toMatchObject({ code: '42501' })
    await run(`reset role; drop owned by ${role} cascade; drop role ${role}`)
    expect(await standing()).toBe('c=users[1]')
  })
})
