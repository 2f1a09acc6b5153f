import { beforeEach, expect, test } from 'vitest'
import { quote } from '../../../src/sql/identifier'
import { useDatabase } from '../../support/database'
import { createHolder, createNames, holderTable, namesTable, nameViolations, RESERVE } from '../../support/names-table'

const db = useDatabase()
const names = namesTable()
const former = [{ column: 'handle', namespace: 'handle', former: RESERVE }]
const users = holderTable('users', names, { names: former })
const orgs = holderTable('orgs', names)
const edges = holderTable('edges', names, {
  primary: ['a', 'b'].map((name) => ({ name, type: 'integer' })),
  names: former,
})
const all = [users, orgs, edges]
let schemas = 0
const client = db.useClient()

beforeEach(async () => {
  schemas += 1
  await run(`create schema ${quote(`S ${schemas}`)}; set search_path to ${quote(`S ${schemas}`)}`)
  for (const statement of createNames(names)) await run(statement)
  for (const holder of all) for (const statement of createHolder(holder)) await run(statement)
})

const run = (sql: string): Promise<unknown> => client.query(sql)
const sound = async (): Promise<void> => {
  expect(await nameViolations(client, all)).toEqual([])
}
const keysOf = async (): Promise<string> => {
  const { rows } = await client.query<{ keys: string }>(
    `select string_agg(text || (holder_key #>> '{}'), ' ' order by text collate "C") as keys from names`,
  )
  return rows[0]?.keys ?? ''
}

test('former names go along with a key that one statement changes twice', async () => {
  await run(`create table nodes (id int primary key); insert into nodes select generate_series(1, 3)`)
  for (const column of ['a', 'b'])
    await run(`alter table edges add foreign key (${column}) references nodes on update cascade`)
  await run(`insert into edges (a, b, handle) values (1, 1, 'x'), (1, 2, 'y'), (2, 3, 'z')`)
  await run(`update edges set handle = handle || '2'`)
  await run(`update nodes set id = id + 100`)
  expect(await keysOf()).toBe('x[101, 101] x2[101, 101] y[101, 102] y2[101, 102] z[102, 103] z2[102, 103]')
  await sound()
})

test('held names go along where a key that a cascade passes through was that of another row', async () => {
  await run(`create table nodes (id int primary key); insert into nodes values (1), (2), (5)`)
  for (const column of ['a', 'b'])
    await run(`alter table edges add foreign key (${column}) references nodes on update cascade`)
  await run(`insert into edges (a, b, handle) values (1, 5, 'x'), (2, 5, 'y')`)
  // By way of (101, 5) and of (1, 5).
  await run(`update nodes set id = case id when 1 then 101 when 2 then 1 else 6 end`)
  expect(await keysOf()).toBe('x[101, 6] y[1, 6]')
  await sound()
})

test('a former name goes along with the key of a row that has no other', async () => {
  await run(`alter table users drop constraint users_pkey; alter table users add primary key (id) deferrable`)
  await run(`insert into users (handle) values ('a'), ('b'); update users set handle = null where id = 1`)
  await run(`update users set id = id + 10`)
  expect(await keysOf()).toBe('a[11] b[12]')
  await run(`update users set id = id - 1, handle = case id when 11 then 'a' else 'c' end`)
  expect(await keysOf()).toBe('a[10] b[11] c[11]')
  await sound()
})

test('bulk statements that move keys, are refused, or delete after plans were made, end soon', async () => {
  await run(`set statement_timeout to '20s'; insert into users (handle) values ('a'); delete from users`)
  await run(`insert into users (id, handle) select i, 'n' || i from generate_series(1, 20000) as i`)
  await run(`update users set id = case when id > 1 then id + 100000 else id end`)
  await sound()
  const refused = await run(`insert into orgs (handle) select handle from users`).catch((error: unknown) => error)
  expect(JSON.parse((refused as { detail: string }).detail) as unknown[]).toHaveLength(10)
  for (let call = 0; call < 6; call += 1) await run(`delete from users where id = ${200 + call}`)
  await run(`delete from users`)
  expect(await keysOf()).toBe('')
  await run('reset statement_timeout')
})

test('what a trigger of the user undoes in the table of names fails the statement', async () => {
  await run(`create function undo() returns trigger language plpgsql as $$ begin return null; end $$;
    create trigger a_undo before insert on names for each row execute function undo()`)
  await expect(run(`insert into users (handle) values ('a')`)).rejects.toMatchObject({ code: '40001' })
  await sound()
})

test('keys that two bulk UPDATEs move wait for each other in one order', async () => {
  const other = await db.client()
  await other.query(`set search_path to ${quote(`S ${schemas}`)}`)
  await run(`insert into users (handle) select 'n' || i from generate_series(1, 50) as i`)
  for (let round = 0; round < 5; round += 1) {
    const taking = `insert into orgs (handle) select 'n' || i from generate_series(50, 1, -1) as i`
    const results = await Promise.allSettled([run(`update users set id = id + 1000`), other.query(taking)])
    expect(results.map((one) => (one.status === 'rejected' ? (one.reason as { code: string }).code : 'done'))).toEqual([
      'done',
      '23505',
    ])
  }
  await sound()
})
