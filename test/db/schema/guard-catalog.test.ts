import { type DataSource, type DataSourceOptions, Entity, EntitySchema, PrimaryGeneratedColumn } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, SchemaDriftError, UniqueText, uniqueTextSchema } from '../../../src'
import { tableState } from '../../../src/sql/catalog'
import { useDatabase } from '../../support/database'
import { dropSchemas } from '../../support/databases'
import { generate, migrate, runAll } from '../../support/generated'

const db = useDatabase({ wrapped: true })

const client = db.useClient()
beforeEach(async () => {
  await dropSchemas(client)
  await client.query('create schema public')
})

/** An entity of a table with unique texts. */
function entity(table: string, texts: readonly string[], schema?: string): EntitySchema<Record<string, unknown>> {
  const options = { name: table, tableName: table, ...(schema === undefined ? {} : { schema }) }
  const columns = { id: { type: 'integer', primary: true } } as const
  return new EntitySchema(uniqueTextSchema({ ...options, columns }, Object.fromEntries(texts.map((one) => [one, {}]))))
}

type Entities = DataSourceOptions['entities']
const open = async (entities: Entities, options: { schema?: string } = {}): Promise<DataSource> =>
  await db.dataSource(entities, { synchronize: false, ...options })

/** That nothing is left to generate, and that find-or-create works. */
async function expectGuarded(dataSource: DataSource, name: string, text: string): Promise<void> {
  expect((await generate(dataSource)).up).toEqual([])
  const values = { id: 1, [text]: 'x', ...(text === 'other' ? { url: 'x' } : {}) }
  const first = await findOrCreate(dataSource.manager, name, values, { by: text })
  const again = await findOrCreate(dataSource.manager, name, { id: 2, [text]: 'x' }, { by: text })
  expect(again).toMatchObject({ created: false, entity: first.entity })
}

describe('names of guards', () => {
  const bytes63 = 'x'.repeat(63)
  test.each([
    ['an underscore moves', entity('user', ['profile_url']), entity('user_profile', ['url'])],
    ['the case differs', entity('Page', ['url']), entity('page', ['url'])],
    ['63 bytes are alike', entity(bytes63, ['one']), entity(bytes63.slice(1), ['x_one'])],
  ])('do not collide where %s', async (_, one, two) => {
    const dataSource = await open([one, two])
    await migrate(dataSource)
    for (const { name, columns } of [one.options, two.options]) {
      const [text = ''] = Object.keys(columns).filter((column) => !/^id$|Hash/.test(column))
      await expectGuarded(dataSource, name, text)
    }
  })
})

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @UniqueText({ nullable: true }) other!: string | null
}

test('a table of the same name in another schema has a guard of its own', async () => {
  await client.query('create schema other')
  const there = entity('page', ['text'], 'other')
  Object.assign(there.options, { name: 'there' })
  const dataSource = await open([entity('page', ['url']), there])
  await migrate(dataSource)
  await expectGuarded(dataSource, 'page', 'url')
  await expectGuarded(dataSource, 'there', 'text')
})

/** Runs as a migration does that changes a function in place. */
const replaceBody = async (name: string, change: (body: string) => string): Promise<void> => {
  const { rows } = await client.query<{ body: string; made: string }>(
    'select prosrc as body, pg_get_functiondef(oid) as made from pg_proc where proname = $1',
    [name],
  )
  const [{ body, made } = { body: '', made: '' }] = rows
  const changed = change(body)
  expect(changed).not.toBe(body)
  await client.query(made.replace(body, () => changed))
}
const named = async (part: string): Promise<unknown[]> => {
  const { rows } = await client.query<{ name: string }>(
    `select tgname as name from pg_trigger where tgname ~ $1 union all select proname from pg_proc where proname ~ $1`,
    [part],
  )
  return rows.map(({ name }) => name)
}

test('a dump that was restored without comments is no drift: the arguments of triggers have the declaration', async () => {
  const dataSource = await open([Page])
  await migrate(dataSource)
  const { rows } = await client.query<{ name: string }>(
    `select proname as name from pg_proc where proname ~ '^unique_text_' and prorettype = 'trigger'::regtype order by 1`,
  )
  const names = ['unique_text_chain_v1', 'unique_text_page__other', 'unique_text_page__url']
  expect(rows.map(({ name }) => name)).toEqual(names)
  for (const name of names) await client.query(`comment on function ${name}() is null`)
  await expectGuarded(dataSource, 'Page', 'url')
})

test('triggers of a guard that is gone from the entity are found without comments too', async () => {
  await migrate(await open([entity('page', ['url', 'gone'])]))
  await replaceBody('unique_text_page__gone', (body) => body.replaceAll(/--.*$/gm, ''))
  const without = await open([entity('page', ['url'])])
  await migrate(without)
  expect(await named('gone')).toEqual([])
  await expectGuarded(without, 'page', 'url')
})

test('a guard that is gone from the entity, and whose function somebody replaced, is dropped as a whole', async () => {
  await migrate(await open([entity('page', ['url', 'gone'])]))
  await client.query(
    `create or replace function unique_text_page__gone() returns trigger language plpgsql as 'begin return new; end'`,
  )
  const without = await open([entity('page', ['url'])])
  await migrate(without)
  expect(await named('gone')).toEqual([])
  await expectGuarded(without, 'page', 'url')
})

test('a function that a trigger of another table runs stays, though its own guard goes', async () => {
  await migrate(await open([entity('page', ['url'])]))
  await client.query('create table other (like page)')
  await client.query(
    `create trigger other before insert on other for each row execute function unique_text_page__url()`,
  )
  const plain = new EntitySchema({
    name: 'page',
    columns: { id: { type: 'integer', primary: true }, url: { type: 'text' } },
  })
  await migrate(await open([plain]))
  const { rows } = await client.query(`select tgrelid::regclass::text as on from pg_trigger where not tgisinternal`)
  expect(rows).toEqual([{ on: 'other' }])
})

describe('a table that moved', () => {
  test('by RENAME is drift, and generate mends it', async () => {
    const before = await open([entity('before', ['url'])])
    await migrate(before)
    await client.query('alter table "before" rename to "after"')
    const after = await open([entity('after', ['url'])])
    const drift = findOrCreate(after.manager, 'after', { url: 'x' })
    await expect(drift).rejects.toBeInstanceOf(SchemaDriftError)
    await migrate(after)
    await expectGuarded(after, 'after', 'url')
  })
  test('by SET SCHEMA is drift, and generate mends it', async () => {
    await client.query('create schema "Old one"; create schema "New one"')
    await migrate(await open([entity('page', ['url'], 'Old one')]))
    await client.query('alter table "Old one".page set schema "New one"')
    const after = await open([entity('page', ['url'], 'New one')])
    await expect(findOrCreate(after.manager, 'page', { url: 'x' })).rejects.toBeInstanceOf(SchemaDriftError)
    await migrate(after)
    await expectGuarded(after, 'page', 'url')
    // The library stays for other tables of that schema, of which nothing is known here.
    const { rows } = await client.query(
      `select proname as name from pg_proc where pronamespace = '"Old one"'::regnamespace order by 1`,
    )
    expect(rows).toEqual(
      ['attach', 'chain_code', 'clean', 'code', 'create', 'detach', 'drop', 'report'].map((one) => ({
        name: `unique_text_${one}_v1`,
      })),
    )
  })
  test('with its schema is exact at once, also where the old name is used again, and generate mends its path', async () => {
    await client.query('create schema "Old one"')
    await migrate(await open([entity('page', ['url'], 'Old one')]))
    await client.query('alter schema "Old one" rename to "New one"; create schema "Old one"')
    await migrate(await open([entity('page', ['url'], 'Old one')]))
    const moved = await open([entity('page', ['url'], 'New one')])
    await client.query(`insert into "Old one".page (id, url) values (5, 'z')`)
    for (const id of [7, 8]) await client.query(`insert into "New one".page (id, url) values (${id}, 'z${id}')`)
    await expect(client.query(`insert into "New one".page (id, url) values (9, 'z7')`)).rejects.toMatchObject({
      code: '23505',
    })
    const created = await findOrCreate(moved.manager, 'page', { id: 9, url: 'z' })
    expect(created).toMatchObject({ created: true })
    const { up } = await migrate(moved)
    expect(Array.from(up.join('\n').matchAll(/^SELECT "New one"\."unique_text_(\w+)_v1"/gm), ([, one]) => one)).toEqual(
      ['attach'],
    )
    await expectGuarded(moved, 'page', 'url')
  })
  test('makes room for a table that takes its old name', async () => {
    await migrate(await open([entity('page', ['url'])]))
    await client.query('alter table page rename to page_old')
    // TypeORM names constraints and indexes after the table, and does not know of the old one.
    await client.query(
      `do $$ declare i record; begin
         for i in select conname from pg_constraint where conrelid = 'page_old'::regclass and contype <> 'n' loop
           execute format('alter table page_old rename constraint %I to %I', i.conname, 'old ' || i.conname);
         end loop;
         for i in select c.relname from pg_index x join pg_class c on c.oid = x.indexrelid
                   where x.indrelid = 'page_old'::regclass and c.relname !~ '^old ' loop
           execute format('alter index %I rename to %I', i.relname, 'old ' || i.relname);
         end loop;
       end $$`,
    )
    const dataSource = await open([entity('page', ['url'])])
    await migrate(dataSource)
    await expectGuarded(dataSource, 'page', 'url')
    const both = await open([entity('page', ['url']), entity('page_old', ['url'])])
    await migrate(both)
    await expectGuarded(both, 'page_old', 'url')
    await expectGuarded(both, 'page', 'url')
  })
  test('to another schema makes room for a table that takes its old place, as often as it moves', async () => {
    for (const schema of ['Archive 1', 'Archive 2']) {
      const dataSource = await open([entity('page', ['url'])])
      await migrate(dataSource)
      await expectGuarded(dataSource, 'page', 'url')
      await client.query(`create schema "${schema}"; alter table page set schema "${schema}"`)
    }
    const all = await open([entity('page', ['url'])])
    await all.synchronize()
    await all.synchronize()
    await expectGuarded(all, 'page', 'url')
    for (const schema of ['Archive 1', 'Archive 2']) {
      const moved = await open([entity('page', ['url'], schema)])
      await migrate(moved)
      await expectGuarded(moved, 'page', 'url')
    }
    const { rows } = await client.query(`select proname from pg_proc where proname ~ '^unique_text_of_'`)
    expect(rows).toEqual([])
  })
})

describe('quote_all_identifiers = on', () => {
  const set = async (value: string): Promise<unknown> =>
    await client.query(`alter database "${client.database}" set quote_all_identifiers to ${value}`)

  test('does not matter to find-or-create', async () => {
    await migrate(await open([Page]))
    await set('on')
    const { manager } = await open([Page])
    await set('off')
    expect(await findOrCreate(manager, Page, { url: 'x' }, { by: 'url' })).toMatchObject({ created: true })
  })
  test('does not matter to a migration that was generated before', async () => {
    const { up } = await generate(await open([Page]))
    await set('on')
    await runAll(await open([Page]), up)
    await set('off')
    await expectGuarded(await open([Page]), 'Page', 'url')
  })
  test('is refused by generate, for TypeORM would drop columns whose types it reads with quotes', async () => {
    await migrate(await open([Page]))
    await set('on')
    const dataSource = await open([Page])
    await set('off')
    await expect(generate(dataSource)).rejects.toThrow(/quote_all_identifiers is on/)
  })
})

test('the hidden columns and the functions say what they are, in the database', async () => {
  await migrate(await open([entity('page', ['url'])]))
  const { rows } = await client.query(
    `select col_description('page'::regclass, attnum) as comment from pg_attribute
      where attrelid = 'page'::regclass and attname ~ 'Hash' order by attnum`,
  )
  expect(rows).toEqual([
    { comment: 'typeorm-unique-text: hash of "url"; do not write it.' },
    {
      comment: 'typeorm-unique-text: 0, or 1 and more where another "url" has the same hash; do not write it.',
    },
    {
      comment: 'typeorm-unique-text: others have, or had, the same hash of "url"; do not write it.',
    },
  ])
  const { rows: functions } = await client.query<{ comment: string }>(
    `select obj_description(oid, 'pg_proc') as comment from pg_proc where proname ~ '^unique_text_'`,
  )
  expect(functions).toHaveLength(10)
  for (const { comment } of functions) expect(comment).toMatch(/^typeorm-unique-text: /)
})

test('what is read of a table has its columns that are there, and of its constraints the checks', async () => {
  await client.query(`create table thing (id integer primary key, gone text, kept text not null,
    constraint kept_is_short check (length(kept) < 9), constraint kept_once unique (kept))`)
  await client.query('alter table thing drop column gone')
  const query = async (sql: string, values?: unknown[]): Promise<readonly unknown[]> =>
    (await client.query<Record<string, unknown>>(sql, values)).rows
  const { table } = await tableState(query, 'thing', [])
  expect(table?.columns.map(({ name }) => name).toSorted()).toEqual(['id', 'kept'])
  expect(table?.checks).toEqual([{ name: 'kept_is_short', valid: true, condition: '(length(kept) < 9)' }])
})
