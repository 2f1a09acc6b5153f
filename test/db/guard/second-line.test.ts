import { describe, expect, test } from 'vitest'
import type { TextTable } from '../../../src/sql/text-table'
import { useDatabase } from '../../support/database'
import { guardOf } from '../../../src/triggers/guard'
import { quote } from '../../../src/sql/identifier'
import { firstLetter, freshTable, putRows, rowsOf, textTable, violations } from '../../support/guarded-table'
import { type secondLine, secondLineWithout } from '../../support/mutations'

const db = useDatabase()
const client = db.useClient()

const slow = (text: string): string => `insert into page (url) values ('${text}')`
const fast = (text: string): string =>
  `insert into page (url, "urlHash", "urlHashNumber") values ('${text}', '${firstLetter.js(text)}', 0)`
const remove = (text: string): string => `delete from page where url = '${text}'`
const own = (name: string, when: string, body: string): string =>
  `create function own() returns trigger language plpgsql as $$ begin ${body} end $$;
   create trigger "${name}" ${when} on page for each row execute function own()`

/** What may happen to a table that a guard stands on, and what then stores a text twice without a part of it. */
interface Case {
  readonly what: string
  readonly part: keyof typeof secondLine
  readonly rows: string
  /** After the rows. */
  readonly happens: string
  readonly statements: readonly string[]
  /** SQLSTATE of the first statement that the whole guard refuses. */
  readonly code: string
}

const CASES: readonly Case[] = [
  {
    what: 'a trigger that keeps rows as they are undoes the touch',
    part: 'what became of touch and promotion is not looked at',
    rows: 'a1@0',
    happens: own('z', 'before update', 'return OLD;'),
    statements: [slow('a2'), remove('a1'), fast('a2')],
    code: '55000',
  },
  {
    what: 'a trigger that restores what it does not know undoes the touch',
    part: 'what became of touch and promotion is not looked at',
    rows: 'a1@0',
    happens: own('a', 'before update', 'OLD.title := NEW.title; return OLD;'),
    statements: [slow('a2'), remove('a1'), fast('a2')],
    code: '55000',
  },
  {
    what: 'a trigger that moves the anchor to another scope while it is touched',
    part: 'what became of touch and promotion is not looked at',
    rows: 'a1@0',
    happens: own('z', 'before update', 'NEW.tenant := 2; return NEW;'),
    statements: [slow('a2'), fast('a2')],
    code: '55000',
  },
  {
    what: 'a trigger that stores the text itself, before the row that brings it',
    part: 'only the anchor is compared',
    rows: 'a1@0',
    happens: own(
      'z',
      'before insert',
      `if pg_trigger_depth() = 1 then insert into page (url) values ('a8'), (NEW.url); NEW."urlHashNumber" := 3; end if;
       return NEW;`,
    ),
    statements: [slow('a9')],
    code: '23505',
  },
  {
    what: 'a trigger that changes texts after their number was found',
    part: 'only the anchor is compared',
    rows: 'a1@0',
    happens: own('z', 'before insert', `NEW.url := replace(NEW.url, 'a8', 'a9'); return NEW;`),
    statements: [slow('a8'), slow('a8')],
    code: '23505',
  },
  {
    what: 'a trigger that changes the text of an anchor in an update that does not name it',
    part: 'a flagged anchor may change',
    rows: 'a1@0! a2@1',
    happens: own('a', 'before update', `NEW.url := 'a2'; return NEW;`),
    statements: [`update page set title = 'x' where url = 'a1'`],
    code: '23505',
  },
  {
    what: 'a trigger that clears the flag in an update that does not name it',
    part: 'a flag may be cleared',
    rows: 'a1@0! a2@1',
    happens: own('z', 'before update', 'NEW."urlHashChained" := false; return NEW;'),
    statements: [`update page set title = 'x' where url = 'a1'`, remove('a1'), fast('a2')],
    code: '55000',
  },
  {
    what: 'a child by INHERITS that holds the text at a number',
    part: 'children by INHERITS count',
    rows: 'a1@0! a2@1',
    happens: `create table kid () inherits (page);
              insert into kid (id, url, "urlHash", "urlHashNumber") values (9, 'a3', '${firstLetter.js('a')}', 0)`,
    statements: [remove('a1'), fast('a2')],
    code: '23505',
  },
]

/** Runs the statements, up to the first that is refused. */
async function run(statements: readonly string[]): Promise<unknown> {
  for (const statement of statements) {
    const refused = await client.query(statement).then(
      () => undefined,
      (error: unknown) => error,
    )
    if (refused !== undefined) return refused
  }
  return undefined
}

async function tableOf({ rows, happens }: Case, guard?: readonly string[]): Promise<TextTable> {
  const page = await freshTable(client, { scope: ['tenant'] }, guard && { guard })
  await putRows(client, page, rows)
  await client.query(happens)
  return page
}

describe.each(CASES)('$what', (each) => {
  test('is refused, with the index as the constraint', async () => {
    await tableOf(each)
    expect(await run(each.statements)).toMatchObject({ code: each.code, constraint: 'page url' })
  })
  test(`breaks a chain where ${each.part}`, async () => {
    const page = await tableOf(each, secondLineWithout(each.part).guard(textTable({ scope: ['tenant'] })))
    expect(await run(each.statements)).toBeUndefined()
    expect(await violations(client, page)).not.toEqual([])
  })
})

describe('a trigger that keeps the UPDATE of an anchor from happening is told, for as long as it stands', () => {
  test.each([
    ['suppress_redundant_updates_trigger', 'a1@0! a2@1'],
    ['none', 'a1@0'],
  ])('%s', async (name, rows) => {
    const page = await freshTable(client, { scope: ['tenant'] })
    await putRows(client, page, rows)
    if (name === 'none') await client.query(own('z', 'before update', 'return null;'))
    else await client.query(`create trigger z before update on page for each row execute function ${name}()`)
    for (const text of ['a3', 'a4', 'a3']) {
      await expect(client.query(slow(text))).rejects.toMatchObject({ code: '55000', constraint: 'page url' })
    }
    expect(await rowsOf(client, page)).toBe(rows)
    await client.query('drop trigger z on page')
    await client.query(slow('a3'))
    expect(await violations(client, page)).toEqual([])
  })
})

/** The functions act by the table that the trigger is on, and by the columns that it names, whatever they are called. */
describe('what was renamed or moved', () => {
  const exact = async (table: TextTable, named: string, number = '"urlHashNumber"'): Promise<void> => {
    const [text] = table.text
    await client.query(`insert into ${named} (${quote(text?.name ?? '')}) values ('a3'), ('b1')`)
    await client.query(`delete from ${named} where ${number} = 0 and ${quote(text?.name ?? '')} = 'a1'`)
    await expect(client.query(`insert into ${named} (${quote(text?.name ?? '')}) values ('a3')`)).rejects.toMatchObject(
      {
        code: '23505',
        constraint: 'page url',
      },
    )
    expect(await violations(client, table)).toEqual([])
    expect(await rowsOf(client, table)).toBe('a2@0! a3@2 b1@0')
  }
  test('a table, and another that took its name', async () => {
    const page = await freshTable(client)
    await putRows(client, page, 'a1@0! a2@1')
    await client.query(`alter table page rename to page_old; create table page (like page_old including all);
              insert into page (url, "urlHash") values ('a9', '${firstLetter.js('a')}')`)
    await exact({ ...page, table: 'page_old' }, 'page_old')
  })
  test('a table to another schema, with another of its name where it was', async () => {
    const page = await freshTable(client)
    await putRows(client, page, 'a1@0! a2@1')
    await client.query(`create schema moved; alter table page set schema moved; create table page (like moved.page including all);
              insert into page (url, "urlHash") values ('a9', '${firstLetter.js('a')}')`)
    await exact({ ...page, schema: 'moved' }, 'moved.page')
    await client.query('drop schema moved cascade')
  })
  test('its schema', async () => {
    const page = await freshTable(client)
    await putRows(client, page, 'a1@0! a2@1')
    const { rows } = await client.query<{ name: string }>('select quote_ident(current_schema()) as name')
    await client.query(`alter schema ${rows[0]?.name ?? ''} rename to "for a while"`)
    await exact({ ...page, schema: 'for a while' }, '"for a while".page')
    await client.query(`alter schema "for a while" rename to ${rows[0]?.name ?? ''}`)
  })
  test('a hidden column, and another that took its name: writes that need its hash are refused, the rest is exact', async () => {
    const page = await freshTable(client)
    await putRows(client, page, 'a1@0! a2@1')
    await client.query(`alter table page rename "urlHashNumber" to number_old;
              alter table page add "urlHashNumber" integer not null default 0`)
    const table = { ...page, number: 'number_old' }
    await client.query(remove('a1'))
    await expect(client.query(fast('a2'))).rejects.toMatchObject({ code: '23505', constraint: 'page url' })
    await client.query(slow('a3')).catch(() => undefined)
    expect(await violations(client, table)).toEqual([])
    expect(await rowsOf(client, table)).toBe('a2@0!')
  })
  test('a text column, and another that took its name: no text comes twice', async () => {
    const page = await freshTable(client)
    await putRows(client, page, 'a1@0! a2@1')
    await client.query('alter table page rename url to url_old; alter table page add url text')
    const table = { ...page, text: [{ name: 'url_old', prefix: '' }] }
    await expect(client.query(`delete from page where url_old = 'a1'`)).rejects.toMatchObject({ code: '23502' })
    await client.query(`insert into page (url_old, url) values ('a2', 'a7')`).catch(() => undefined)
    await client.query(`update page set url_old = 'a4'`).catch(() => undefined)
    expect(await violations(client, table)).toEqual([])
  })
})

/** The remedy of DuplicateTextError: all but one are deleted, or changed. */
describe('equal texts from a time without the guard', () => {
  const duplicates = 'a1@0! a1@1 a1@2 a2@3'
  test.each([
    ['each of them', 'delete from page where id = (select min(id) from page where url = $1)'],
    [
      'each of them, by another text',
      `update page set url = 'b' || id where id = (select min(id) from page where url = $1)`,
    ],
  ])('can go one by one: %s', async (_, statement) => {
    const page = await freshTable(client)
    await putRows(client, page, duplicates)
    await client.query(statement, ['a1'])
    await client.query(statement, ['a1'])
    await client.query(statement, ['a1'])
    expect(await violations(client, page)).toEqual([])
    expect(await rowsOf(client, page)).toContain('a2@0!')
  })
  test('can go at once, but for one', async () => {
    const page = await freshTable(client)
    await putRows(client, page, duplicates)
    await client.query(`delete from page where url = 'a1' and id <> (select max(id) from page where url = 'a1')`)
    expect(await rowsOf(client, page)).toBe('a1@0! a2@3')
  })
  test('come no more: neither that text nor another one twice', async () => {
    const page = await freshTable(client)
    await putRows(client, page, duplicates)
    for (const text of ['a1', 'a2']) await expect(client.query(slow(text))).rejects.toMatchObject({ code: '23505' })
    await expect(
      client.query(`with gone as (delete from page where url = 'a1' and "urlHashNumber" = 0) ${fast('a2')}`),
    ).rejects.toMatchObject({ code: '23505' })
    expect(await rowsOf(client, page)).toBe(duplicates)
  })
})

describe('a child by INHERITS', () => {
  test('takes no number from its parent, whichever of its rows collide', async () => {
    const page = await freshTable(client)
    await client.query(`create table kid () inherits (page);
      insert into kid (id, url, "urlHash", "urlHashNumber") values
        (9, 'a1', '${firstLetter.js('a')}', 0), (10, 'a2', '${firstLetter.js('a')}', 3)`)
    for (const text of ['a1', 'a2', 'a3']) await client.query(slow(text))
    await client.query(`delete from only page where url = 'a1'`)
    const { rows } = await client.query(
      'select url, "urlHashNumber" as number, "urlHashChained" as chained from only page order by 2',
    )
    expect(rows).toEqual([
      { url: 'a2', number: 0, chained: true },
      { url: 'a3', number: 2, chained: false },
    ])
    expect(page.table).toBe('page')
  })
})

describe('a partitioned table', () => {
  const partitioned = async (by: string): Promise<TextTable> => {
    const plain = await freshTable(client, { scope: ['tenant'] }, { guard: [] })
    const hash = firstLetter.js('a')
    await client.query(`alter table page rename to template;
      create table page (like template including defaults including constraints) partition by ${by};
      create unique index "page url of all" on page (tenant, "urlHash", "urlHashNumber")`)
    await client.query(
      by.startsWith('list (tenant)')
        ? 'create table one partition of page for values in (1); create table rest partition of page default'
        : `create table one partition of page for values in ('${hash}'); create table rest partition of page default`,
    )
    await client.query('alter table page alter id drop not null')
    for (const statement of guardOf(plain).create) await client.query(statement)
    return plain
  }
  /** No BEFORE trigger may send a row to another partition than the one it came to. */
  test('by its hash takes rows that bring their hash, and no others', async () => {
    await partitioned('list ("urlHash")')
    await expect(client.query(slow('a1'))).rejects.toMatchObject({ code: '0A000' })
    await client.query(fast('a1'))
    await expect(client.query(fast('a1'))).rejects.toMatchObject({ code: '23505' })
  })
  test('by its scope keeps its chains', async () => {
    const page = await partitioned('list (tenant)')
    for (const text of ['b1', 'a1', 'a2', 'a3']) await client.query(slow(text))
    await expect(client.query(slow('a3'))).rejects.toMatchObject({ code: '23505' })
    await client.query(remove('a1'))
    await client.query(`update page set tenant = 2 where url = 'a3'`)
    await client.query(`insert into page (url, tenant) values ('a4', 2)`)
    expect(await violations(client, page)).toEqual([])
    expect(await rowsOf(client, page)).toBe('a2@0! b1@0 2/a3@0! 2/a4@1')
  })
})
