import { beforeEach, describe, expect, test } from 'vitest'
import { addIndex } from '../../../src/sql/alter'
import { guardOf } from '../../../src/triggers/guard'
import { quote } from '../../../src/sql/identifier'
import { checkExpression } from '../../../src/sql/text-table'
import { copyIn } from '../../stress/copy-in'
import { useDatabase } from '../../support/database'
import { firstLetter, freshTable, putRows, rowsOf, textTable, violations } from '../../support/guarded-table'

const db = useDatabase()
const client = db.useClient()
const page = textTable({ deleted: 'deletedAt' })

beforeEach(() => freshTable(client, page))

const put = (rows: string): Promise<void> => putRows(client, page, rows)
const rows = async (): Promise<string> => {
  expect(await violations(client, page)).toEqual([])
  return await rowsOf(client, page)
}
const own = (name: string, when: string, body: string): string =>
  `create function own() returns trigger language plpgsql as $$ begin ${body} end $$;
   create trigger "${name}" ${when} on page for each row execute function own()`
const taken = { code: '23505', constraint: 'page url' }

describe('a row that comes deleted', () => {
  const columns = '(url, "deletedAt", "urlHash", "urlHashNumber", "urlHashChained")'
  const hash = `'${firstLetter.js('a')}'`

  test.each([
    ['without a hash', 'null, 0, false', 'a2@0~'],
    ['with hash and number 0', `${hash}, 0, false`, 'a2@0~'],
    ['with hash and another number', `${hash}, 7, true`, 'a2@0~'],
    ['with the flag', `${hash}, 0, true`, 'a2@0~'],
  ])('%s stands in nobody’s way, and is placed when it is restored', async (_, values, stored) => {
    await put('a1@0')
    await client.query(`insert into page ${columns} values ('a2', now(), ${values})`)
    expect(await rows()).toBe(`a1@0 ${stored}`)
    await client.query('update page set "deletedAt" = null')
    expect(await rows()).toBe('a1@0! a2@1')
  })

  test('by COPY is one too', async () => {
    await copyIn(client, 'copy page (url, "deletedAt") from stdin', ['a1\t2001-02-03', 'a1\tinfinity', 'a1\t\\N'])
    expect(await rows()).toBe('a1@0 a1@0~ a1@0~')
  })

  test('is held to the hash of its text', async () => {
    const other = `insert into page ${columns} values ('b1', now(), ${hash}, 0, false)`
    await expect(client.query(other)).rejects.toMatchObject({ code: '23514', constraint: 'page url check' })
  })
})

describe('a deleted row', () => {
  test('can change its text to one that is held, and back', async () => {
    await put('a1@0! a2@1 b1@3!~')
    await client.query(`update page set url = 'a2' where url = 'b1'`)
    expect(await rows()).toBe('a1@0! a2@1 a2@0~')
    await client.query(`update page set url = 'b1' where "deletedAt" is not null`)
    expect(await rows()).toBe('a1@0! a2@1 b1@0~')
  })

  test('can take another date, number and flag without a function of the guard, or one that changes a chain', async () => {
    await put('a1@0! a2@1 a3@0!~')
    await client.query(`update page set "deletedAt" = 'infinity', "urlHashNumber" = 5 where url = 'a3'`)
    await client.query(`update page set "urlHashChained" = false, "urlHash" = null where url = 'a3'`)
    await client.query(`delete from page where url = 'a3'`)
    expect(await rows()).toBe('a1@0! a2@1')
  })

  test('makes no chain of a row that is alone, restored or removed', async () => {
    await put('a1@0 a3@0!~ b1@0!~')
    await client.query(`delete from page where url = 'a3'`)
    await client.query(`update page set "deletedAt" = null where url = 'b1'`)
    expect(await rows()).toBe('a1@0 b1@0')
  })

  test('is restored by an upsert that meets it by another key', async () => {
    await put('a1@0 a2@0~')
    const upsert = `insert into page (id, url) values (2, 'a2')
      on conflict (id) do update set "deletedAt" = null, title = 'back'`
    await client.query(upsert)
    expect(await rows()).toBe('a1@0! a2@1')
  })

  test('is not met by an upsert of its text, which names the condition of the index', async () => {
    await put('a1@0~')
    const target = 'on conflict ("urlHash", "urlHashNumber")'
    const upsert = (condition: string): string =>
      `insert into page (url) values ('a1') ${target} ${condition} do update set title = 'again'`
    await expect(client.query(upsert(''))).rejects.toMatchObject({ code: '42P10' })
    await client.query(upsert('where "deletedAt" is null'))
    await client.query(upsert('where "deletedAt" is null'))
    expect(await rows()).toBe('a1@0 a1@0~')
  })
})

describe("a trigger of the user's", () => {
  test('that turns a DELETE into a soft delete promotes as one', async () => {
    await put('a1@0! a2@1')
    await client.query(
      own('keep', 'before delete', 'update page set "deletedAt" = now() where id = old.id; return null;'),
    )
    await client.query(`delete from page where url = 'a1'`)
    expect(await rows()).toBe('a2@0! a1@0!~')
  })

  test.each(['a', 'z'])('that deletes softly behind the guard, called %s, promotes too', async (name) => {
    await put('a1@0! a2@1')
    await client.query(
      own(name, 'before update', `if new.title = 'gone' then new."deletedAt" := now(); end if; return new;`),
    )
    await client.query(`update page set title = 'gone' where url = 'a1'`)
    expect(await rows()).toBe('a2@0! a1@0!~')
  })

  test.each(['a', 'z'])(
    'that restores behind the guard, called %s, is refused where the text is held',
    async (name) => {
      await put('a1@0! a2@1 a1@0~ a2@2~ a3@3~ b1@4!~')
      await client.query(
        own(name, 'before update', `if new.title = 'back' then new."deletedAt" := null; end if; return new;`),
      )
      const back = (id: number): Promise<unknown> => client.query(`update page set title = 'back' where id = ${id}`)
      await expect(back(3)).rejects.toMatchObject(taken)
      await expect(back(4)).rejects.toMatchObject(taken)
      await back(5)
      await back(6)
      expect(await rows()).toBe('a1@0! a2@1 a3@3 a1@0~ a2@2~ b1@0!')
    },
  )
})

describe('a delete date that was renamed', () => {
  const remove = (): Promise<unknown> => client.query(`update page set gone = now() where url = 'a1' and gone is null`)
  beforeEach(async () => {
    await put('a1@0! a2@1')
    await client.query('alter table page rename column "deletedAt" to gone')
  })
  test('makes writes fail that change a chain, and no other', async () => {
    await expect(remove()).rejects.toMatchObject({ code: '42703' })
    await client.query(`update page set title = 'x'; delete from page where url = 'a2'`)
    expect(await violations(client, { ...page, deleted: 'gone' })).toEqual([])
  })
  test('is followed where another took its name: no text comes twice, and what is deleted promotes', async () => {
    await client.query('alter table page add column "deletedAt" timestamptz')
    await remove()
    const table = { ...page, deleted: 'gone' }
    expect(await rowsOf(client, table)).toBe('a2@0! a1@0!~')
    await expect(client.query(`insert into page (url) values ('a2')`)).rejects.toMatchObject({ code: '23505' })
    for (const text of ['a1', 'a3']) await client.query('insert into page (url) values ($1)', [text]).catch(() => {})
    expect(await violations(client, table)).toEqual([])
  })
})

test('of a partitioned table the live rows of all partitions are one chain', async () => {
  const table = { ...page, scope: ['tenant'] }
  await client.query(`drop table page cascade;
    create table page (id integer generated by default as identity, tenant integer not null default 1, url text not null,
      title text, "deletedAt" timestamptz, "urlHash" uuid not null, "urlHashNumber" integer not null default 0,
      "urlHashChained" boolean not null default false,
      constraint ${quote(table.check)} check (${checkExpression(table)})) partition by list (tenant);
    create table page_1 partition of page for values in (1); create table page_2 partition of page for values in (2)`)
  for (const statement of [...addIndex(table).up, guardOf(table).detach, ...guardOf(table).create]) {
    await client.query(statement)
  }
  await client.query(`insert into page (url) values ('a1'), ('a2')`)
  await client.query(`update page set "deletedAt" = now() where url = 'a1'`)
  await client.query(`insert into page (url) values ('a1')`)
  await expect(client.query(`update page set "deletedAt" = null`)).rejects.toMatchObject({ code: '23505' })
  await client.query(`update page set tenant = 2, "deletedAt" = null where "deletedAt" is not null`)
  expect(await violations(client, table)).toEqual([])
  expect(await rowsOf(client, table)).toBe('a2@0! a1@1 2/a1@0')
})
