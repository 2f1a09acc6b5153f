import { beforeEach, describe, expect, test } from 'vitest'
import { quote } from '../../../src/sql/identifier'
import type { HolderTable } from '../../../src/names/sql/fragments'
import { releaseNames } from '../../../src/sql/library'
import { useDatabase } from '../../support/database'
import { attachHolder, createHolder, createNames, holderTable, namesTable, RESERVE } from '../../support/names-table'

const db = useDatabase()
const client = db.useClient()
const names = namesTable()
const usr = holderTable('usr', names)
let schemas = 0
const schema = (): string => quote(`identity ${schemas}`)

const run = (sql: string): Promise<unknown> => client.query(sql)

/** `text=table.column key`; a former name ends in a question mark. */
async function standing(): Promise<string> {
  const { rows } = await client.query<{ shown: string }>(
    `select text || '=' || replace(holder::text, '"', '') || '.' || holder_column || holder_key ||
       case state when 'held' then '' else '?' end as shown from names order by 1`,
  )
  return rows.map(({ shown }) => shown).join(' ')
}

beforeEach(async () => {
  schemas += 1
  await run(`create schema ${schema()}; set search_path to ${schema()}`)
  for (const statement of [...createNames(names), ...createHolder(usr)]) await run(statement)
  await run(`insert into usr (handle) values ('ada')`)
})

/** The order in which a table of a new version takes the place of the present one. */
async function swap(): Promise<void> {
  await run(`alter table usr rename to usr_old`)
  for (const statement of createHolder(usr, [])) await run(statement)
  await run(attachHolder(usr))
}

test('names are those of the table, and not of its name', async () => {
  await swap()
  await expect(run(`insert into usr (handle) values ('ada')`)).rejects.toMatchObject({ code: '23505' })
  await run(`insert into usr (handle) values ('eve')`)
  expect(await standing()).toBe('ada=usr_old.handle[1] eve=usr.handle[2]')
  // The kept table is released; the new one loses nothing.
  await run(releaseNames({ schema: undefined, table: 'usr_old' }, '"names"'))
  expect(await standing()).toBe('eve=usr.handle[2]')
})

test('two tables exchange their names, and nothing follows', async () => {
  const team = holderTable('team', names)
  for (const statement of createHolder(team)) await run(statement)
  await run(`insert into team (handle) values ('red')`)
  await run(`alter table usr rename to tmp; alter table team rename to usr; alter table tmp rename to team`)
  expect(await standing()).toBe('ada=team.handle[1] red=usr.handle[1]')
  await run(`update usr set handle = 'blue' where handle = 'red'; insert into usr (handle) values ('new')`)
  expect(await standing()).toBe('ada=team.handle[1] blue=usr.handle[1] new=usr.handle[2]')
  for (const one of [usr, team]) await run(attachHolder(one))
  await run(`delete from usr where handle = 'new'; delete from team`)
  expect(await standing()).toBe('blue=usr.handle[1]')
})

test('a table that goes to another schema takes its names along', async () => {
  await run(
    `create schema ${quote(`elsewhere ${schemas}`)}; alter table usr set schema ${quote(`elsewhere ${schemas}`)}`,
  )
  await run(`update ${quote(`elsewhere ${schemas}`)}.usr set handle = 'bob'`)
  expect(await standing()).toBe(`bob=elsewhere ${schemas}.usr.handle[1]`)
  const moved: HolderTable = { ...usr, schema: `elsewhere ${schemas}`, of: { ...names, schema: `identity ${schemas}` } }
  await run(attachHolder(moved).replace(`${quote(moved.schema ?? '')}."unique`, `${schema()}."unique`))
  await run(`update ${quote(`elsewhere ${schemas}`)}.usr set handle = 'eve'`)
  expect(await standing()).toBe(`eve=elsewhere ${schemas}.usr.handle[1]`)
})

test('names of a table that was dropped are free with the next attach', async () => {
  await run(`drop table usr`)
  for (const statement of createHolder(usr)) await run(statement)
  await run(`insert into usr (handle) values ('ada')`)
  expect(await standing()).toBe('ada=usr.handle[1]')
})

describe('columns', () => {
  const columnsOf = (...columns: readonly string[]): HolderTable =>
    holderTable('shop', names, { names: columns.map((column) => ({ column, namespace: 'handle', former: RESERVE })) })
  beforeEach(async () => {
    for (const statement of createHolder(columnsOf('slug', 'alias'))) await run(statement)
    await run(
      `insert into shop (slug, alias) values ('s', 'a'); update shop set slug = 's2', alias = 'a2'; delete from usr`,
    )
  })
  test('that exchange their names keep each its former ones, and nothing is written in between', async () => {
    await run(
      `alter table shop rename slug to tmp; alter table shop rename alias to slug; alter table shop rename tmp to alias`,
    )
    await expect(run(`update shop set slug = 'x'`)).rejects.toMatchObject({ code: '55000' })
    await run(attachHolder(columnsOf('slug', 'alias')))
    expect(await standing()).toBe('a2=shop.slug[1] a=shop.slug[1]? s2=shop.alias[1] s=shop.alias[1]?')
  })
  test.each(['update', 'columns'])('whose trigger %s was renamed are not taken for their namesakes', async (event) => {
    await run(`alter trigger unique_name_shop_${event} on shop rename to other`)
    await run(`update shop set slug = 's3'`)
    await run(`alter table shop rename slug to was; alter table shop add slug text`)
    await expect(run(`update shop set was = 'x'`)).rejects.toMatchObject({ code: '55000' })
    await expect(run(`delete from shop`)).rejects.toMatchObject({ code: '55000' })
  })
  test('whose trigger was dropped are not trusted', async () => {
    await run(`drop trigger unique_name_shop_columns on shop`)
    await expect(run(`update shop set slug = 's3'`)).rejects.toMatchObject({ code: '55000' })
  })
})

describe('a table of names of another role', () => {
  const role = `T identity ${process.pid}`
  const plant = `create function plant() returns trigger language plpgsql as $$ begin
      raise exception 'runs as %', current_user; end $$;
    create trigger plant before insert or update or delete on names for each row execute function plant()`
  beforeEach(async () => {
    await run(`create role ${quote(role)}; grant all on schema ${schema()} to ${quote(role)}`)
    await run(`alter table names rename to names_was; grant select on names_was to ${quote(role)}; set role ${quote(role)};
      create table names (like names_was including all); ${plant}; reset role`)
  })
  test('is not written', async () => {
    for (const sql of [
      `insert into usr (handle) values ('b')`,
      `update usr set handle = 'b'`,
      'delete from usr',
      'truncate usr',
    ]) {
      await expect(run(sql)).rejects.toMatchObject({ code: '55000' })
    }
    await expect(run(attachHolder(usr))).rejects.toMatchObject({ code: '55000' })
    await run(releaseNames(usr, '"names"'))
    await run(`reset role; drop owned by ${quote(role)} cascade; drop role ${quote(role)}`)
  })
})
