import { beforeEach, describe, expect, test } from 'vitest'
import { quote } from '../../../src/sql/identifier'
import { useDatabase } from '../../support/database'
import { createHolder, createNames, holderTable, namesTable, nameViolations, RESERVE } from '../../support/names-table'

const db = useDatabase()
const names = namesTable()
const orgs = holderTable('orgs', names)
const users = holderTable('users', names, { names: [{ column: 'handle', namespace: 'handle', former: RESERVE }] })
let schemas = 0

const run = (sql: string): Promise<unknown> => client.query(sql)
const client = db.useClient()

beforeEach(async () => {
  schemas += 1
  await run(`create schema ${quote(`K ${schemas}`)}; set search_path to ${quote(`K ${schemas}`)}`)
  for (const statement of [...createNames(names), ...createHolder(users), ...createHolder(orgs)]) await run(statement)
  // Each has a former name too.
  await run(`insert into users (id, handle) values (1, 'a'), (2, 'b'); update users set handle = handle || '2'`)
})

/** The names, as `text=key`; a former one ends in a question mark. */
async function standing(): Promise<string> {
  expect(await nameViolations(client, [users, orgs])).toEqual([])
  const { rows } = await client.query<{ shown: string }>(
    `select text || '=' || (holder_key ->> 0) || case state when 'held' then '' else '?' end as shown
     from names where holder = 'users'::regclass order by text collate "C"`,
  )
  return rows.map(({ shown }) => shown).join(' ')
}

const own = (name: string, body: string): string =>
  `create function ${name}() returns trigger language plpgsql as $$ begin ${body} return null; end $$;
   create trigger ${name} after update on users for each row when (old.id <> new.id) execute function ${name}()`

describe('a row whose key has just changed', () => {
  test.each(['a_own', 'z_own'])('takes its names along when the trigger %s deletes it', async (name) => {
    await run(own(name, 'delete from users where id = new.id;'))
    await run(`update users set id = 3 where id = 1`)
    expect(await standing()).toBe('b=2? b2=2')
    await run(`insert into users (id, handle) values (4, 'a'), (5, 'a2')`)
  })
  test('takes its names along when a function in RETURNING deletes it', async () => {
    await run(`create function gone(key int) returns void language sql as 'delete from users where id = key'`)
    await run(`update users set id = id + 10 returning gone(id)`)
    expect(await standing()).toBe('')
  })
  test('keeps them when a trigger of the same statement deletes another one', async () => {
    await run(own('a_own', 'delete from users where id = 12;'))
    await run(`update users set id = id + 10`)
    expect(await standing()).toBe('a=11? a2=11')
  })
  test('has one name when a trigger renames it before its names have moved', async () => {
    await run(own('a_own', `update users set handle = 'c' where id = new.id;`))
    await run(`update users set id = 3 where id = 1`)
    expect(await standing()).toBe('a=3? b=2? b2=2 c=3')
  })
  test('has the name that it gives up reserved when a trigger renames another one before', async () => {
    const pairs = holderTable('pairs', names, {
      names: ['handle', 'nick'].map((column) => ({ column, namespace: 'handle', former: RESERVE })),
    })
    for (const statement of createHolder(pairs)) await run(statement)
    await run(`insert into pairs (id, handle, nick) values (1, 'h', 'n')`)
    await run(own('a_own', `update pairs set nick = 'm' where id = new.id;`).replace('on users', 'on pairs'))
    await run(`update pairs set id = 3, handle = null`)
    const { rows } = await client.query(`select state, holder_key from names where text = 'h'`)
    expect(rows).toEqual([{ state: 'reserved', holder_key: [3] }])
    expect(await nameViolations(client, [users, orgs, pairs])).toEqual([])
  })
  test('has one name when a trigger puts another row in its place', async () => {
    await run(own('a_own', `delete from users where id = new.id; insert into users (id, handle) values (new.id, 'c');`))
    await run(`update users set id = 3 where id = 1`)
    expect(await standing()).toContain('c=3')
  })
})

describe('a row that comes to the key of one that the same statement deletes', () => {
  test.each(['nestloop', 'hashjoin'])('inherits none of its names (%s)', async (join) => {
    const off = ['nestloop', 'hashjoin', 'mergejoin'].filter((one) => one !== join)
    await run(off.map((one) => `set enable_${one} = off`).join(';'))
    await run(`with gone as (delete from users where id = 1 returning id)
      update users set id = gone.id from gone where users.id = gone.id + 1`)
    await run(`reset all; set search_path to ${quote(`K ${schemas}`)}`)
    expect(await standing()).toBe('b=1? b2=1')
  })
})

test('a row without a name that comes to the key of one that the same statement deletes inherits none', async () => {
  await run(`update users set handle = null where id = 2`)
  await run(`with gone as (delete from users where id = 1 returning id)
    update users set id = gone.id from gone where users.id = gone.id + 1`)
  expect(await standing()).toBe('b=1? b2=1?')
})

describe('a row of a child by INHERITS', () => {
  beforeEach(async () => {
    await run(`create table kids () inherits (users); insert into kids (id, handle, title) values (1, 'kid', 'kid')`)
  })
  test('moves no name of the row of the parent that has its key', async () => {
    await run(`update users set id = case when title = 'kid' then 5 else id end, handle = handle || 'x'`)
    expect(await standing()).toBe('a=1? a2=1? a2x=1 b=2? b2=2? b2x=2')
  })
  test('moves none where the other moves too', async () => {
    await run(`update users set id = case when title = 'kid' then 5 else id + 10 end`)
    expect(await standing()).toBe('a=11? a2=11 b=12? b2=12')
  })
})

test('two rows that exchange their keys take their names along', async () => {
  await run(`alter table users drop constraint users_pkey; alter table users add primary key (id) deferrable`)
  await run(`update users set id = 3 - id`)
  expect(await standing()).toBe('a=2? a2=2 b=1? b2=1')
})

describe('beside a row of another table that has such a key', () => {
  test('keys move up by one, and names go along once', async () => {
    await run(`alter table users drop constraint users_pkey; alter table users add primary key (id) deferrable`)
    // The last row of the statement is the one whose key nobody has then.
    await run(`delete from users where id = 1; insert into users (id, handle) values (1, 'a')`)
    await run(`update users set handle = 'a2' where id = 1`)
    await run(`insert into orgs (id, handle) values (1, 'org')`)
    await run(`update users set id = id + 1`)
    expect(await standing()).toBe('a=2? a2=2 b=3? b2=3')
  })
  test('a name goes along as it is', async () => {
    await run(`insert into orgs (id, handle) values (3, 'org'); update names set since = '2020-01-01'`)
    await run(`update users set id = 3 where id = 1`)
    const { rows } = await client.query(`select from names where text = 'a2' and since = '2020-01-01'`)
    expect(rows).toHaveLength(1)
  })
})
