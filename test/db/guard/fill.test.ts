import { createHash } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { addCheck, addIndex } from '../../../src/sql/alter'
import { literal, quote } from '../../../src/sql/identifier'
import { ensureLibrary } from '../../../src/sql/library'
import type { TextTable } from '../../../src/sql/text-table'
import { sha256 } from '../../../src/text/digest'
import { guardOf } from '../../../src/triggers/guard'
import { useDatabase } from '../../support/database'
import { textTable, violations } from '../../support/guarded-table'

const db = useDatabase()
const client = db.useClient()
// Roles belong to the whole server, so their names hold the database's.
const stranger = quote(`T fill ${createHash('sha256').update(db.url).digest('hex').slice(0, 8)}`)

beforeAll(() => client.query(`create role ${stranger}`))
afterAll(() => client.query(`reset role; drop owned by ${stranger} cascade; drop role ${stranger}`))
beforeEach(async () => {
  await client.query(`reset role; drop schema if exists s cascade; create schema s; set search_path to s;
    grant usage on schema s to ${stranger}`)
  await client.query(ensureLibrary(undefined, 'rows'))
})

/** Makes a table of rows that have no hash yet, as a person makes it who has only psql. */
async function create({ digest }: TextTable, rows: string, key = 'id integer primary key'): Promise<void> {
  await client.query(`create table page (${key}, tenant integer not null default 1, url text, title text,
    "deletedAt" timestamptz, "urlHash" ${digest.type}, "urlHashNumber" integer not null default 0,
    "urlHashChained" boolean not null default false)`)
  if (rows) await client.query(`insert into page (id, tenant, url, title) values ${rows}`)
}

const fill = ({ digest, ...table }: TextTable, more: object = {}): Promise<unknown> => {
  const declaration = {
    name: 'url',
    text: table.text.map(({ name }) => name),
    index: 'page url',
    scope: table.scope,
    nullable: table.nullable,
    digest: digest.name,
    ...more,
  }
  return client.query(`select unique_text_fill_v1('page', ${literal(JSON.stringify(declaration))})`)
}

describe('a table is filled by hand, and its index, check and guard fit', () => {
  test.each([
    ['of a text', textTable({ digest: sha256, nullable: true })],
    ['of a text within a scope', textTable({ digest: sha256, nullable: true, scope: ['tenant'] })],
    [
      'of two columns that may be NULL',
      textTable({
        digest: sha256,
        nullable: true,
        text: [
          { name: 'url', prefix: '' },
          { name: 'title', prefix: '' },
        ],
      }),
    ],
  ])('%s, without a primary key', async (_, table) => {
    await create(table, `(1, 1, 'a', 'b'), (2, 2, 'ab', ''), (3, 1, 'b', null), (4, 1, null, null)`, 'id integer')
    await fill(table)
    for (const statement of [...addIndex(table).up, ...addCheck(table).up, guardOf(table).attach]) {
      await client.query(statement)
    }
    expect(await violations(client, table)).toEqual([])
  })

  test.each([
    ['id integer primary key', 'The rows by primary key (id): 1, 2'],
    // A ctid would be that of a row which the error undoes.
    ['id integer', 'No primary key names the rows.'],
  ])('of equal texts is refused, without a word of them: %s', async (key, detail) => {
    const table = textTable({ digest: sha256 })
    await create(table, `(1, 1, 'secret', null), (2, 2, 'secret', null), (3, 1, 'b', null)`, key)
    const error = { code: '23505', table: 'page', constraint: 'page url', detail }
    await expect(fill(table)).rejects.toMatchObject(error)
    await fill({ ...table, scope: ['tenant'] })
  })

  test('by a digest that is not known is refused', async () => {
    const table = textTable({ digest: sha256 })
    await create(table, '')
    await expect(fill(table, { digest: 'crc32' })).rejects.toMatchObject({ code: '22023' })
    await fill(table, { digest: 'own', hashed: `'x'::bytea` })
  })
})

describe('texts of equal hash', () => {
  const table = textTable({ digest: sha256, nullable: true })
  const alike = { digest: 'one for all', hashed: `'x'::bytea` }
  const rows = async (): Promise<string[]> => {
    const { rows } = await client.query<{ row: string }>(
      `select concat(id, '@', "urlHashNumber", case when "urlHashChained" then '!' end, ' ' || "urlHash"::text) as row
        from only page order by id`,
    )
    return rows.map(({ row }) => row)
  }

  test('are numbered in the order of their former numbers, without those that are deleted or NULL', async () => {
    await create(
      table,
      `(1, 1, 'a', null), (2, 1, 'b', null), (3, 1, 'c', null), (4, 1, 'd', null), (5, 1, null, null),
      (6, 2, 'a', null), (7, 2, 'b', null)`,
    )
    await client.query(`update page set "urlHashNumber" = case id when 1 then 9 when 2 then 3 else 1 end;
      update page set "deletedAt" = now() where id in (3, 4)`)
    await fill({ ...table, scope: ['tenant'] }, { ...alike, deleted: 'deletedAt' })
    const numbers = ['1@1', '2@0!', '3@0', '4@0', '5@0', '6@0!', '7@1']
    expect(await rows()).toEqual(numbers.map((one) => (one === '5@0' ? one : `${one} \\x78`)))
  })

  test('that deleted rows have, too, may be equal', async () => {
    await create(table, `(1, 1, 'a', null), (2, 1, 'a', null), (3, 1, 'b', null)`)
    await client.query(`update page set "deletedAt" = now(), "urlHashNumber" = 1 where id = 1`)
    await fill(table, { ...alike, deleted: 'deletedAt' })
    expect(await rows()).toEqual(['1@0 \\x78', '2@0! \\x78', '3@1 \\x78'])
  })

  test('are other texts, though a collation takes them for equal', async () => {
    await client.query(`create collation loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)`)
    await create(table, `(1, 1, 'a', null), (2, 1, 'A', null)`)
    await client.query('alter table page alter url type text collate loose')
    await fill(table, alike)
    expect(await rows()).toEqual(['1@0! \\x78', '2@1 \\x78'])
  })

  test('of a child by INHERITS may be equal, and take no number of the table', async () => {
    await create(table, `(3, 1, 'a', null), (4, 1, 'b', null)`)
    await client.query(`create table kid () inherits (page);
      insert into kid (id, url) values (1, 'a'), (2, 'a'), (3, 'b')`)
    await fill(table, alike)
    expect(await rows()).toEqual(['3@0! \\x78', '4@1 \\x78'])
  })

  test('of a partitioned table are in one chain', async () => {
    await client.query(`create table page (id integer, url text, "urlHash" bytea, "urlHashNumber" integer not null default 0,
      "urlHashChained" boolean not null default false) partition by list (id);
      create table one partition of page for values in (1); create table two partition of page for values in (2);
      insert into page (id, url) values (1, 'a'), (2, 'b')`)
    await fill(table, alike)
    expect((await client.query('select "urlHashNumber" as n from page order by 1')).rows).toEqual([{ n: 0 }, { n: 1 }])
    await client.query(`update page set url = 'a'`)
    await expect(fill(table, alike)).rejects.toMatchObject({ code: '23505' })
  })
})

describe('code of others', () => {
  const table = textTable({ digest: sha256 })
  const spy = (name: string, parameters: string, returns: string): string =>
    `create function ${name}(${parameters}) returns ${returns} language plpgsql as
       'begin raise exception ''hostile''; end'`

  test('does not run for an operator that comes before those of pg_catalog', async () => {
    await create(table, `(1, 1, 'a', null), (2, 1, 'b', null)`)
    for (const type of ['bytea', 'integer', 'bigint', 'boolean', 'oid', 'tid', 'text', 'jsonb', 'name']) {
      await client.query(`${spy(`s.spy_${type}`, `${type}, ${type}`, 'boolean')};
        create operator s.= (function = s.spy_${type}, leftarg = ${type}, rightarg = ${type});
        create operator s.<> (function = s.spy_${type}, leftarg = ${type}, rightarg = ${type});
        create operator s.> (function = s.spy_${type}, leftarg = ${type}, rightarg = ${type})`)
    }
    await client.query(spy('s.set_config', 'text, text, boolean', 'text'))
    await client.query(`set search_path to s, pg_catalog`)
    await expect(client.query('select 1 = 1')).rejects.toThrow('hostile')
    await fill(table)
    await client.query(`update page set url = 'b'`)
    await expect(fill(table)).rejects.toMatchObject({ code: '23505' })
  })

  test('does not run for a cast of the type of a key', async () => {
    await client.query(`create type mood as enum ('sad', 'glad');
      ${spy('s.shown', 'mood', 'text')}; create cast (mood as text) with function s.shown(mood)`)
    await create(table, '', 'id mood primary key')
    await client.query(`insert into page (id, url) values ('glad', 'a'), ('sad', 'a')`)
    await expect(fill(table)).rejects.toMatchObject({ detail: 'The rows by primary key (id): sad, glad' })
  })

  test("finds what the caller's path has, if it is a trigger of the user, and the path is as it was", async () => {
    await create(table, `(1, 1, 'a', null), (2, 1, 'b', null)`)
    await client.query(`drop schema if exists elsewhere cascade; create schema elsewhere;
      create table elsewhere.log (id integer); create function noted() returns trigger language plpgsql as
        'begin insert into log values (new.id); return new; end';
      create trigger noted before update on page for each row execute function noted();
      create trigger noted_after after update on page for each row execute function noted();
      set search_path to s, elsewhere`)
    await fill(table)
    expect((await client.query('select from log')).rowCount).toBe(4)
    expect((await client.query('show search_path')).rows).toEqual([{ search_path: 's, elsewhere' }])
    expect((await client.query('show row_security')).rows).toEqual([{ row_security: 'on' }])
    await client.query('drop schema elsewhere cascade')
  })
})

test('rows that a policy hides from a role are neither numbered nor looked at by it', async () => {
  const table = textTable({ digest: sha256 })
  await create(table, `(1, 1, 'a', null), (2, 2, 'b', null)`)
  await client.query(`alter table page enable row level security; create policy partly on page using (tenant = 1);
    grant all on page to ${stranger}; set role ${stranger}`)
  const refused = { code: '42501', message: expect.stringContaining('row-level security') as string }
  await expect(
    client.query(`select unique_text_refuse_rows_v1('page', 'tenant = 2', '55000', 'it has some')`),
  ).rejects.toMatchObject(refused)
  await client.query(`reset role; alter table page owner to ${stranger}; alter table page force row level security`)
  await client.query(`set role ${stranger}`)
  await expect(fill(table)).rejects.toMatchObject(refused)
})

test('more than ten rows are counted', async () => {
  await create(textTable({ digest: sha256 }), '', 'id integer, part integer, primary key (id, part)')
  await client.query(`insert into page (id, part) select i, 0 from generate_series(1, 11) as i`)
  await expect(
    client.query(`select unique_text_refuse_rows_v1('page', 'url is null', '23502', 'they hold NULL')`),
  ).rejects.toMatchObject({
    code: '23502',
    message: 'they hold NULL',
    detail: expect.stringMatching(
      /^The rows by primary key \(id, part\): \(1,0\), .*\(10,0\) \(10 of 11 are shown\)$/u,
    ) as string,
  })
})
