import { beforeEach, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { createHolder, createNames, holderTable, namesTable, nameViolations, RESERVE } from '../../support/names-table'

const db = useDatabase()
const client = db.useClient({ emptied: true })
const names = namesTable()
const columns = ['handle', 'nick']
const users = holderTable('users', names, {
  names: columns.map((column) => ({ column, namespace: column, former: RESERVE })),
})
const orgs = holderTable('orgs', names)

const run = (sql: string): Promise<unknown> => client.query(sql)

/** Names of users in these namespaces, from now on. */
const declare = (handle: string, nick: string): Promise<unknown> =>
  client.query(`select unique_text_attach_name_v1('users', $1)`, [
    {
      names: [
        { column: 'handle', namespace: handle, former: 'reserved' },
        { column: 'nick', namespace: nick, former: 'reserved' },
      ],
    },
  ])

const stored = async (): Promise<string> => {
  const { rows } = await client.query<{ all: string }>(
    `select string_agg(concat_ws(' ', namespace, text, state, holder::oid::regclass, holder_key), ', '
       order by namespace, text) as all from names`,
  )
  return rows[0]?.all ?? ''
}

beforeEach(async () => {
  for (const statement of [...createNames(names), ...createHolder(users), ...createHolder(orgs)]) await run(statement)
})

test('a reserved name that no table holds remains', async () => {
  await run(`insert into names (namespace, text, holder, holder_column, holder_key, state)
    values ('handle', 'root', '-', '', '[]', 'reserved')`)
  await declare('handle', 'nick')
  expect(await stored()).toBe('handle root reserved - []')
})

test('former names follow a key that becomes a bigint', async () => {
  await run(`insert into users (handle) values ('a'); update users set handle = 'b'`)
  await run(`select unique_text_detach_name_v1('users', 'names'); alter table users alter id type bigint`)
  await declare('handle', 'nick')
  expect(await stored()).toBe('handle a reserved users ["1"], handle b held users ["1"]')
})

/** Of users, a former name in the namespace `handle`, which another row holds in the namespace `nick`. */
const clash = async (): Promise<void> => {
  await run(`insert into users (handle) values ('a'); update users set handle = 'b'`)
  await run(`insert into users (nick) values ('a')`)
}

test('a former name that cannot change its namespace is a clash', async () => {
  await clash()
  await expect(declare('nick', 'nick')).rejects.toMatchObject({ code: '23505' })
})

test.each([
  ['has ended', `update names set until = now() - interval '1 day' where state = 'reserved'`],
  ['is that of a row which is gone', `delete from users where id = 1`],
])('one that %s is no clash', async (_, sql) => {
  await clash()
  await run(`set session_replication_role = replica; ${sql}; reset session_replication_role`)
  await declare('nick', 'nick')
  expect(await stored()).toContain('nick a held users [2]')
  expect(await stored()).not.toContain('handle ')
})

test('one that the row itself holds there is no clash, and goes', async () => {
  await run(`insert into users (handle) values ('a'); update users set handle = 'b', nick = 'a'`)
  await declare('nick', 'nick')
  expect(await stored()).toBe('nick a held users [1], nick b held users [1]')
  const both = { ...users, names: users.names.map((name) => ({ ...name, namespace: 'nick' })) }
  expect(await nameViolations(client, [both])).toEqual([])
})
