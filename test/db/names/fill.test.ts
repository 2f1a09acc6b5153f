import { beforeEach, describe, expect, test } from 'vitest'
import { quote } from '../../../src/sql/identifier'
import { releaseNames } from '../../../src/sql/library'
import type { HolderTable } from '../../../src/names/sql/fragments'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { STEVENS } from '../../support/md5-collisions'
import {
  attachHolder,
  createHolder,
  createNames,
  holderTable,
  namesTable,
  nameViolations,
  RESERVE,
} from '../../support/names-table'

const db = useDatabase()
const names = namesTable()
const users = holderTable('users', names)
const orgs = holderTable('orgs', names)
let schemas = 0
const client = db.useClient()

beforeEach(async () => {
  schemas += 1
  await client.query(`create schema ${quote(`F ${schemas}`)}; set search_path to ${quote(`F ${schemas}`)}`)
  for (const statement of [...createNames(names), ...createHolder(users, []), ...createHolder(orgs)]) {
    await client.query(statement)
  }
  await client.query(
    `insert into users (handle) select 'n' || i from generate_series(1, 500) as i;
     insert into users (handle) values (null), ('${STEVENS[0]}'), ('${STEVENS[1]}')`,
  )
})

const held = async (): Promise<string> => {
  const { rows } = await client.query<{ held: string }>(
    `select count(*) || ' of ' || coalesce(string_agg(distinct holder::text || '.' || holder_column, ' '), 'nobody') as held from names`,
  )
  return rows[0]?.held ?? ''
}

test('rows that were there get their names, also texts of equal hash, and once only', async () => {
  for (const _ of [1, 2]) {
    await client.query(attachHolder(users))
    expect(await nameViolations(client, [users, orgs])).toEqual([])
    expect(await held()).toBe('502 of users.handle')
  }
  await expect(client.query('delete from names')).rejects.toMatchObject({ code: 'UT003' })
})

test('clashes are told by table and key, ten of their total, and nothing is claimed', async () => {
  await client.query(`insert into orgs (handle) select 'n' || i from generate_series(1, 20) as i`)
  const refused = client.query(attachHolder(users))
  await expect(refused).rejects.toMatchObject({ code: '23505', constraint: 'names_unique_index', table: 'users' })
  await expect(refused).rejects.toMatchObject({
    message: 'rows hold, or have held, one name: 20. The DETAIL has the keys of ten.',
    detail: expect.stringMatching(
      /^(?:[^,]*users\.handle \[(\d+)\] and [^,]*orgs\.handle \[\1\](?:, |$)){10}$/,
    ) as string,
  })
  expect(await held()).toBe('20 of orgs.handle')
  await client.query(`update users set handle = null; update users set handle = 'n1' where id < 3`).catch(() => {})
  await expect(client.query('delete from names')).rejects.toMatchObject({ code: 'UT003' })
})

test('two rows of the table with one name clash', async () => {
  await client.query(`update users set handle = 'n1' where id = 2`)
  await expect(client.query(attachHolder(users))).rejects.toMatchObject({
    detail: expect.stringMatching(/users\.handle \[[12]\] and .*users\.handle \[[12]\]$/) as string,
  })
})

test('names go with a table and a column that are renamed, former ones too', async () => {
  await client.query(attachHolder(users))
  await client.query(
    `insert into names (namespace, text, holder, holder_column, holder_key, state) values ('handle', 'old', 'users', 'handle', '[1]', 'reserved')`,
  )
  await client.query(`alter table users rename to people; alter table people rename handle to nick;
    alter table people disable trigger user; update people set nick = 'changed meanwhile' where id = 1;
    alter table people enable trigger user`)
  const people = holderTable('people', names, {
    names: [{ column: 'nick', namespace: 'handle', former: { state: 'free' } }],
  })
  // A column of that name in another table keeps its own.
  await client.query(`insert into orgs (handle) values ('org')`)
  await client.query(attachHolder(people))
  expect(await held()).toBe('504 of orgs.handle people.nick')
  expect(await nameViolations(client, [people, orgs])).toEqual([])
})

describe('two names of one table', () => {
  const columnsOf = (...columns: readonly string[]): HolderTable =>
    holderTable('shops', names, { names: columns.map((column) => ({ column, namespace: 'handle', former: RESERVE })) })
  const shops = columnsOf('slug', 'alias')
  const standing = async (): Promise<unknown[]> => {
    const { rows } = await client.query<{ shown: string }>(
      `select text || ' ' || state || ' in ' || holder_column as shown from names order by text`,
    )
    return rows.map(({ shown }) => shown)
  }
  beforeEach(async () => {
    for (const statement of createHolder(shops)) await client.query(statement)
    await client.query(`insert into shops (slug, alias) values ('s', 'a'); update shops set slug = 's2', alias = 'a2'`)
  })
  test('go each with its column, former ones too', async () => {
    await client.query('alter table shops rename slug to path; alter table shops rename alias to other')
    const renamed = columnsOf('path', 'other')
    await client.query(attachHolder(renamed))
    expect(await standing()).toEqual([
      'a reserved in other',
      'a2 held in other',
      's reserved in path',
      's2 held in path',
    ])
    expect(await nameViolations(client, [renamed])).toEqual([])
  })
  test('that were exchanged meanwhile are each of its column', async () => {
    await client.query(`alter table shops disable trigger user; update shops set slug = alias, alias = slug;
      alter table shops enable trigger user`)
    await client.query(attachHolder(shops))
    expect(await nameViolations(client, [shops])).toEqual([])
  })
  test('of which one is declared no more: it goes, former ones too', async () => {
    await client.query(attachHolder(columnsOf('slug')))
    expect(await standing()).toEqual(['s reserved in slug', 's2 held in slug'])
  })
  test('of which one comes to the namespace where the other has its former name', async () => {
    const inNamespaces = (...namespaces: readonly [string, string]): HolderTable => ({
      ...shops,
      names: shops.names.map((one, index) => ({ ...one, namespace: namespaces[index] ?? '' })),
    })
    const [before, after] = [inNamespaces('slug', 'alias'), inNamespaces('alias', 'alias')]
    await client.query(attachHolder(before))
    await client.query(`update shops set slug = 'x', alias = 'x'; update shops set slug = 'y'`)
    await client.query(attachHolder(after))
    expect(await nameViolations(client, [after])).toEqual([])
  })
  test('that became one meanwhile clash', async () => {
    await client.query(`alter table shops disable trigger user; update shops set alias = slug;
      alter table shops enable trigger user`)
    await expect(client.query(attachHolder(shops))).rejects.toMatchObject({
      detail: expect.stringMatching(/shops\.\w+ \[1\] and .*shops\.\w+ \[1\]$/) as string,
    })
  })
})

test('it waits for who is just renaming a row', async () => {
  const [schema, other] = [quote(`F ${schemas}`), await db.client()]
  await other.query(`set search_path to ${schema}; begin; update users set handle = 'renamed' where id = 1`)
  const filled = client.query(attachHolder(users))
  await untilBlocked(other)
  await other.query('commit')
  await filled
  expect(await nameViolations(client, [users])).toEqual([])
})

test('a namespace that changes takes the names along', async () => {
  await client.query(attachHolder(users))
  const other = holderTable('users', names, {
    names: [{ column: 'handle', namespace: 'login', former: { state: 'free' } }],
  })
  await client.query(attachHolder(other))
  expect(await held()).toBe('502 of users.handle')
  expect(await nameViolations(client, [other])).toEqual([])
})

describe('a namespace that changes', () => {
  const login = [{ column: 'handle', namespace: 'login', former: { state: 'free' } }] as const
  const moved = holderTable('users', names, { names: login })
  test('is refused where another row holds a name there', async () => {
    const clubs = holderTable('clubs', names, { names: login })
    for (const statement of createHolder(clubs)) await client.query(statement)
    await client.query(`insert into clubs (handle) values ('n7')`)
    await client.query(attachHolder(users))
    await expect(client.query(attachHolder(moved))).rejects.toMatchObject({
      detail: expect.stringMatching(/users\.handle \[7\] and .*clubs\.handle \[1\]$/) as string,
    })
  })
  test('leaves names that other tables hold, whatever end was written to them', async () => {
    await client.query(attachHolder(users))
    await client.query(`insert into orgs (handle) values ('org'); update names set until = now() - interval '1 day'`)
    await client.query(attachHolder(moved))
    expect(await nameViolations(client, [moved, orgs])).toEqual([])
  })
})

test('all names of a table are released, where the table of names is gone too', async () => {
  await client.query(attachHolder(users))
  await client.query(releaseNames(users, '"names"'))
  expect(await held()).toBe('0 of nobody')
  await client.query('drop table names')
  await client.query(releaseNames(users, '"names"'))
})
