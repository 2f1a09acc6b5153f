import { expect, test } from 'vitest'
import { dropPart } from '../../../src/sql/library'
import { guardOf } from '../../../src/triggers/guard'
import { fitName, plainName, quote } from '../../../src/sql/identifier'
import type { TextTable } from '../../../src/sql/text-table'
import { useDatabase } from '../../support/database'
import { freshTable, rowsOf, textTable, violations } from '../../support/guarded-table'

const db = useDatabase()
const client = db.useClient()

/** Every name of a table made from one. */
function named(name: string, schema?: string): Partial<TextTable> {
  const fit = (suffix: string): string => fitName(`${name}${suffix}`)
  return {
    schema,
    table: fit(''),
    text: [{ name: fit(' text'), prefix: '' }],
    scope: [fit(' scope')],
    hash: fit(' hash'),
    number: fit(' number'),
    chained: fit(' chained'),
    index: fit(' index'),
    check: fit(' check'),
    guard: plainName('unique_text', name, 'text'),
    name,
    normalizers: [`${name}@1`],
  }
}

const NAMES = {
  'a quote': `it"s "" quoted"`,
  'an apostrophe': `it's ''quoted''`,
  spaces: ` a  table `,
  'upper case': 'SELECT',
  '63 bytes': 'x'.repeat(63),
  'more than 63 bytes, none of them ASCII': 'ű'.repeat(40),
  'four bytes to a character': '𝒳😀'.repeat(12),
  'the dollar quote of the guard': '$guard$',
  'the next dollar quote too': 'x$guard$ $guard_$ $$',
  'a dollar quote that ends the body': '$guard',
  'a backslash': `a\\b\\'`,
  'a format': '%I %s %L %%',
  'a comment': '/* -- */ --',
  'a semicolon and a newline': 'a;\n drop table x; b',
} as const

for (const [what, name] of Object.entries(NAMES)) {
  for (const schema of [undefined, fitName(`S ${name}`)]) {
    test(`the guard holds with ${what} in all names${schema === undefined ? '' : ' and in that of another schema'}`, async () => {
      const table = await freshTable(client, named(name, schema))
      const [target, url] = [quote(table.table), quote(table.text[0]?.name ?? '')]
      await client.query(`insert into ${target} (${url}) values ('a1'), ('a2'), ('a3'), ('b1')`)
      await expect(client.query(`insert into ${target} (${url}) values ('a3')`)).rejects.toMatchObject({
        code: '23505',
        constraint: table.index,
      })
      await client.query(`delete from ${target} where ${url} = 'a1'`)
      await client.query(`update ${target} set ${url} = 'b2' where ${url} = 'a2'`)
      expect(await rowsOf(client, table)).toBe('a3@0! b1@0! b2@1')
      expect(await violations(client, table)).toEqual([])
    })
  }
}

test('the guard works from another search_path, and where that holds a table of the same name', async () => {
  const table = await freshTable(client, { schema: 'Elsewhere' })
  await client.query('create schema decoy; create table decoy.page (url text); set search_path to decoy')
  await client.query(`insert into "Elsewhere".page (url) values ('a1'), ('a2')`)
  await client.query(`delete from "Elsewhere".page where url = 'a1'`)
  expect(await rowsOf(client, table)).toBe('a2@0!')
})

test('columns may have the names of variables in the functions', async () => {
  const columns = 'plain locked first last taken length round lowest r s t new old'.split(' ')
  const table = await freshTable(client, {}, { columns: columns.map((name) => `${name} integer`) })
  await client.query(
    `insert into page (url, first, lowest, r, t) values ('a1', 1, 1, 1, 1), ('a2', 1, 1, 1, 1), ('a3', 0, 9, 0, 0)`,
  )
  await client.query(`update page set url = 'b4' where url = 'a2'`)
  await client.query(`delete from page where url = 'a1'`)
  expect(await rowsOf(client, table)).toBe('a3@0! b4@0')
})

test('the text column may have the name of a variable', async () => {
  const table = await freshTable(client, {
    text: [{ name: 'plain', prefix: '' }],
    number: 'lowest',
    hash: 'taken',
    chained: 'locked',
  })
  await client.query(`insert into page (plain) values ('a1'), ('a2'), ('a3')`)
  await client.query(`delete from page where plain = 'a1'`)
  expect(await rowsOf(client, table)).toBe('a2@0! a3@2')
})

const PARTS = ['texts', 'attach', 'report'] as const

test('what the guard drops is everything it made', async () => {
  const table = await freshTable(client, named(`it"s $guard$`))
  for (const statement of [guardOf(table).detach, ...PARTS.map((part) => dropPart(table.schema, part))])
    await client.query(statement)
  const { rows } = await client.query(
    `select (select count(*)::integer from pg_proc where pronamespace = (select oid from pg_namespace where nspname = current_schema())) as functions,
            (select count(*)::integer from pg_trigger where tgrelid = $1::regclass) as triggers`,
    [quote(table.table)],
  )
  expect(rows).toEqual([{ functions: 0, triggers: 0 }])
})

test('two guards whose names are alike in 63 bytes are two', async () => {
  const [one, two] = ['one', 'two'].map((end) =>
    guardOf(textTable({ guard: plainName('unique_text', 'x'.repeat(70), end) })),
  )
  const names = [one, two].flatMap((guard) => [guard?.label, ...(guard?.triggers ?? []).map(({ name }) => name)])
  expect(new Set(names).size).toBe(names.length)
})
