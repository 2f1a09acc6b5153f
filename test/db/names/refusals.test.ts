import type { Client } from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { quote } from '../../../src/sql/identifier'
import type { RefusedName } from '../../../src/sql/names-table'
import { namesOfHolder } from '../../../src/names/sql/attach'
import { copyIn } from '../../stress/copy-in'
import { useDatabase } from '../../support/database'
import { createHolder, createNames, holderTable, namesTable, nameViolations } from '../../support/names-table'

const db = useDatabase()
const names = namesTable()
const former = { state: 'reserved', interval: '1 day' } as const
const users = holderTable('users', names, { names: [{ column: 'handle', namespace: 'handle', former }] })
const orgs = holderTable('orgs', names)
const writer = `T refusals ${process.pid}`
let schemas = 0
/** A name that needs no quotes, unless a setting asks for them. */
const schema = (): string => `refusals_${schemas}`

const run = (sql: string): Promise<unknown> => client.query(sql)
const client = db.useClient()

beforeAll(async () => {
  await run(`create role ${quote(writer)}`)
})
beforeEach(async () => {
  schemas += 1
  await run(`create schema ${schema()}; set search_path to ${schema()}`)
  const statements = [...createNames(names), ...createHolder(users), ...createHolder(orgs)]
  for (const statement of statements) await run(statement)
})
afterAll(async () => {
  await run(`drop owned by ${quote(writer)} cascade; drop role ${quote(writer)}`)
})

const refusedBy = async (sql: string): Promise<readonly RefusedName[]> => {
  const error = await run(sql).catch((failure: unknown) => failure)
  expect(error).toMatchObject({ code: '23505', constraint: 'names_unique_index' })
  return JSON.parse((error as { detail: string }).detail) as readonly RefusedName[]
}

/** Blocks of the table of names and its indexes that a statement reads, whatever becomes of it. */
async function blocksRead(sql: string): Promise<number> {
  const read = async (): Promise<number> => {
    const { rows } = await client.query<{ blocks: string }>(
      `select sum(pg_stat_get_xact_blocks_fetched(oid)) as blocks from pg_class
       where oid = 'names'::regclass or oid in (select indexrelid from pg_index where indrelid = 'names'::regclass)`,
    )
    return Number(rows[0]?.blocks)
  }
  await run('begin')
  const before = await read()
  await run(`savepoint here`)
  await run(sql).catch(() => run('rollback to here'))
  const after = await read()
  await run('rollback')
  return after - before
}

describe('how much of the table of names is read does not depend on its size', () => {
  const fill = (from: number, to: number): Promise<unknown> =>
    run(`insert into users (handle) select 'n' || i from generate_series(${from}, ${to}) as i; analyze`)

  test.each([
    ['a name that is taken', `insert into orgs (handle) values ('n7')`],
    ['a name that is free', `insert into orgs (handle) values ('free')`],
    ['two rows that exchange their names', `update users set handle = 'n' || (3 - id) where id < 3`],
    ['a rename', `update users set handle = 'x' where id = 1`],
    ['a key', `update users set id = -1 where id = 1`],
    ['a delete', `delete from users where id = 1`],
  ])('%s', async (_, sql) => {
    // Plans are made while the table is small.
    await fill(1, 500)
    for (let call = 0; call < 7; call += 1) await blocksRead(sql)
    const few = await blocksRead(sql)
    await fill(501, 12_000)
    expect(await blocksRead(sql)).toBeLessThan(2 * few + 20)
  })
  test('many names that are taken are read in linear time', async () => {
    await fill(1, 8_000)
    const taken = (count: number): string => `insert into orgs (handle) select handle from users limit ${count}`
    const few = await blocksRead(taken(500))
    expect(await blocksRead(taken(4_000))).toBeLessThan(10 * few)
  })
})

describe('the key of the row that has a name', () => {
  const insert = `insert into orgs (handle) values ('a')`
  beforeEach(async () => {
    await run(`insert into users (handle) values ('a');
      grant usage on schema ${schema()} to ${quote(writer)}; grant insert on orgs to ${quote(writer)}`)
  })
  const keysAs = async (role: string, setting = 'role'): Promise<unknown[]> => {
    await run(`set ${setting} ${role}`)
    try {
      return (await refusedBy(insert)).map(({ key }) => key)
    } finally {
      await run(`reset ${setting}`)
    }
  }
  test('is told to who owns the tables', async () => {
    expect(await keysAs('none')).toEqual([[1]])
  })
  test('is not told to a role that may only write', async () => {
    expect(await keysAs(quote(writer))).toEqual([null])
  })
  test('is not told to a session of such a role, whose functions run as the owner', async () => {
    expect(await keysAs(quote(writer), 'session authorization')).toEqual([null])
  })
  test('is told to a role that may read the table of names', async () => {
    await run(`grant select on names to ${quote(writer)}`)
    expect(await keysAs(quote(writer))).toEqual([[1]])
  })
  test('is not told across row security of the table of names', async () => {
    await run(`grant select on names to ${quote(writer)}; alter table names enable row level security`)
    expect(await keysAs(quote(writer))).toEqual([null])
  })
})

describe('a column that was renamed is not taken for its namesake', () => {
  const refused = { code: '55000', hint: expect.stringContaining('Something was renamed') as string }
  /** The namesake has the values that the column had, so that no name seems to change. */
  const rename = (column: string, type: string): Promise<unknown> =>
    run(`insert into users (handle) values ('a'), ('b'), ('c');
      alter table users rename ${column} to other; alter table users add ${column} ${type};
      alter table users disable trigger user; update users set ${column} = other; alter table users enable trigger user`)

  test.each([
    ['the name, of one row', 'handle', 'text', `update users set other = 'x' where id = 1`],
    ['the name, of several rows', 'handle', 'text', `update users set other = other || 'x'`],
    [
      'the name, copied to the namesake',
      'handle',
      'text',
      `update users set handle = 'x' || other, other = other || 'y'`,
    ],
    ['the name, of rows after one', 'handle', 'text', `update users set handle = null, other = other || 'y'`],
    ['the key, of one row', 'id', 'integer', 'update users set other = 9 where other = 1'],
    ['the key, of several rows', 'id', 'integer', 'update users set other = other + 10'],
    ['the key, copied to the namesake', 'id', 'integer', 'update users set id = other + 9, other = other + 10'],
    ['the name, of a row that is inserted', 'handle', 'text', `insert into users (handle) values ('d')`],
    [
      'the key, of rows that are inserted',
      'id',
      'integer',
      `insert into users (other, handle) values (8, 'd'), (9, 'e')`,
    ],
    ['the name, of a row that is deleted', 'handle', 'text', 'delete from users where id = 1'],
    ['the key, of a row that is deleted', 'id', 'integer', 'delete from users where other = 1'],
    ['the key, of rows that are deleted', 'id', 'integer', 'delete from users'],
    [
      'an upsert',
      'handle',
      'text',
      `insert into users (id, other) values (1, 'z'), (2, 'y') on conflict (id) do update set other = excluded.other`,
    ],
  ])('%s', async (_, column, type, sql) => {
    await rename(column, type)
    await expect(run(sql)).rejects.toMatchObject(refused)
  })
  test('after a statement before the change, in one transaction', async () => {
    await rename('title', 'text')
    await run(`begin; update users set handle = handle || 'x'; alter table users rename handle to former;
      alter table users add handle text; update users set handle = former`)
    await expect(run(`update users set former = former || 'y', handle = former || 'z'`)).rejects.toMatchObject(refused)
    await run('rollback')
  })
})

describe.each(['repeatable read', 'serializable'])('to a transaction at %s that began before', (level) => {
  let migrator: Client
  beforeAll(async () => {
    migrator = await db.client()
  })
  beforeEach(async () => {
    await run(`insert into users (handle) values ('a')`)
    await migrator.query(`set search_path to ${schema()}`)
    // A snapshot, and no lock that would hold up the migrator.
    await run(`begin isolation level ${level}; select 1`)
  })
  afterEach(async () => {
    await run('rollback')
  })

  test.each([
    ['the name', 'handle', 'text'],
    ['the key', 'id', 'integer'],
  ])('a column that was renamed is not its namesake: %s', async (_, column, type) => {
    await migrator.query(`alter table users rename ${column} to other; alter table users add ${column} ${type}`)
    await expect(run(`insert into users (handle) values ('b')`)).rejects.toMatchObject({ code: '55000' })
  })

  test('triggers that were made again for another column are right', async () => {
    const after = { ...users, names: [{ column: 'nick', namespace: 'handle', former }] }
    await migrator.query(
      [
        'begin',
        'alter table users add nick text',
        'update users set nick = handle',
        namesOfHolder(after).attach,
        'commit',
      ].join(';\n'),
    )
    // Names that the rows got meanwhile may be newer than the snapshot.
    await expect(run(`insert into users (nick) values ('b')`)).rejects.toMatchObject({ code: '40001' })
    await run(`rollback; insert into users (nick) values ('b')`)
    expect(await nameViolations(client, [after])).toEqual([])
  })
})

describe('TRUNCATE of the table of names', () => {
  beforeEach(async () => {
    await run(`insert into users (handle) values ('a')`)
  })
  test.each(['on', 'off'])('is refused while a holder has rows, with quote_all_identifiers %s', async (value) => {
    await run(`set quote_all_identifiers to ${value}`)
    await expect(run('truncate names')).rejects.toMatchObject({ code: 'UT003' })
    await run('reset quote_all_identifiers')
  })
  test('is allowed where a trigger of the user reserves names anew', async () => {
    await run(`create function anew() returns trigger language plpgsql as $$ begin
        insert into names (namespace, text, holder, holder_column, holder_key, state)
          values ('handle', 'root', '-', '', '[]', 'reserved'); return null; end $$;
      create trigger a_anew after truncate on names execute function anew()`)
    await run('truncate users, names')
    await refusedBy(`insert into users (handle) values ('root')`)
  })
  test('is allowed while a table of names in another schema has holders', async () => {
    await run(`create schema ${schema()}0; set search_path to ${schema()}0`)
    for (const statement of [...createNames(names), ...createHolder(users)]) await run(statement)
    await run(`insert into users (handle) values ('a'); set search_path to ${schema()}`)
    await run(`truncate users; truncate names; set search_path to ${schema()}0`)
    await expect(run('truncate names')).rejects.toMatchObject({ code: 'UT003' })
  })
})

test('a reservation lasts from the statement that gives the name up, not from its transaction', async () => {
  await run(`insert into users (handle) values ('a')`)
  await run('begin')
  await run(`update users set handle = 'b'`)
  const { rows } = await client.query(
    `select since > now() as since, until > now() + interval '1 day' as until from names where state = 'reserved'`,
  )
  await run('commit')
  expect(rows).toEqual([{ since: true, until: true }])
})

test('data alone is restored where the triggers of both tables are off', async () => {
  await run(`alter table users disable trigger user; alter table names disable trigger user`)
  const [namesCopy, usersCopy] = [
    `copy names (namespace, text, holder, holder_column, holder_key, state, text_hash) from stdin`,
    `copy users (id, handle) from stdin`,
  ]
  const md5 = async (text: string): Promise<string> =>
    (await client.query<{ hash: string }>('select md5($1)::uuid as hash', [text])).rows[0]?.hash ?? ''
  const row = async (text: string, state: string): Promise<string> =>
    ['handle', text, 'users', 'handle', '[1]', state, await md5(text)].join('\t')
  await copyIn(client, usersCopy, ['1\tb'])
  await copyIn(client, namesCopy, [await row('a', 'reserved'), await row('b', 'held')])
  await run(`alter table users enable trigger user; alter table names enable trigger user`)
  expect(await nameViolations(client, [users])).toEqual([])
  await refusedBy(`insert into orgs (handle) values ('a')`)
  await refusedBy(`insert into orgs (handle) values ('b')`)
})
