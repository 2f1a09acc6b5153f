import { DataSource } from 'typeorm'
import { expect, test } from 'vitest'
import { withUniqueText } from '../../../src'
import { Url } from '../../../src/url'
import { useDatabase } from '../../support/database'
import { generate, runAll } from '../../support/generated'

const db = useDatabase()

const open = async (schema: string): Promise<DataSource> =>
  await withUniqueText(new DataSource({ type: 'postgres', url: db.url, schema, entities: [Url] })).initialize()

test('the check calls the library in the schema of the table, which needs no search path', async () => {
  const client = await db.client()
  await client.query('create schema "Odd one"')
  const dataSource = await open('Odd one')
  try {
    const { up, down } = await generate(dataSource)
    await runAll(dataSource, up)
    expect(await generate(dataSource)).toEqual({ up: [], down: [] })
    const { rows } = await client.query(
      `select distinct p.pronamespace::regnamespace::text as home from pg_depend as d
         join pg_constraint as k on d.classid = 'pg_constraint'::regclass and d.objid = k.oid
         join pg_proc as p on d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid
        where k.conname = 'url_parts_check'`,
    )
    expect(rows).toEqual([{ home: '"Odd one"' }])
    expect(String(await Url.parse('HTTP://A.example:80'))).toBe('http://a.example/')
    await runAll(dataSource, down)
    expect((await client.query(`select proname from pg_proc where proname ~ '^unique_text_'`)).rows).toEqual([])
  } finally {
    await dataSource.destroy()
  }
})

test('an operator of another schema does not make the check pass', async () => {
  const dataSource = await db.dataSource([Url])
  const client = await db.client()
  await client.query(`create schema hostile;
    create function hostile.yes(text, text) returns boolean language sql immutable as 'select true';
    create operator hostile.~ (leftarg = text, rightarg = text, function = hostile.yes);
    set search_path = hostile, pg_catalog, public`)
  expect((await client.query(`select 'a' ~ 'b' as hit`)).rows).toEqual([{ hit: true }])
  await expect(
    client.query(`insert into public.urls (scheme, host, path) values ('http', 'A.example', '/')`),
  ).rejects.toMatchObject({ code: '23514', constraint: 'url_parts_check' })
  await client.query('reset search_path')
  // The check of another table keeps the function.
  await client.query(`create schema other; create table other.kept
    (host text check (public.unique_text_is_url_v1('http', host, 0, '/', null, null)))`)
  await dataSource.dropDatabase()
  const { rows } = await client.query(`select proname from pg_proc where proname ~ '^unique_text_'`)
  expect(rows).toEqual([{ proname: 'unique_text_is_url_v1' }])
})
