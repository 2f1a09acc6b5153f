import { beforeEach, describe, expect, test } from 'vitest'
import { addIndex } from '../../../src/sql/alter'
import { ensureLibrary } from '../../../src/sql/library'
import { fillHashes, guardOf } from '../../../src/triggers/guard'
import type { TextTable } from '../../../src/sql/text-table'
import { useDatabase } from '../../support/database'
import { freshTable, putRows, rowsOf, violations } from '../../support/guarded-table'

const db = useDatabase()
const client = db.useClient()
const migrator = db.useClient()

/** A table in which both are at home. */
async function stage(overrides: Partial<TextTable> = {}): Promise<TextTable> {
  const page = await freshTable(migrator, overrides)
  const { rows } = await migrator.query<{ path: string }>(`select current_setting('search_path') as path`)
  await client.query(`set search_path to ${rows[0]?.path ?? ''}`)
  return page
}

/** What a migration does for other rules: all in one transaction, with the guard away. */
async function rebuild(before: TextTable, after = before): Promise<void> {
  await migrator.query(
    [
      'begin',
      guardOf(before).detach,
      ...addIndex(before).down,
      ensureLibrary(after.schema, 'rows'),
      fillHashes(after),
      ...addIndex(after).up,
      ...guardOf(after).create,
      'commit',
    ].join(';\n'),
  )
}

/** Sees the table as it is now, without a lock on it that would hold up a migration. */
const look = (level: string): Promise<unknown> => client.query(`begin isolation level ${level}; select 1`)

describe.each(['repeatable read', 'serializable'])('a transaction at %s that began before', (level) => {
  beforeEach(() => client.query('rollback'))

  test.each(['a2', 'a3'])('the rows were numbered anew fails, and comes again: %s', async (text) => {
    const page = await stage()
    await putRows(migrator, page, 'a1@0! a2@2')
    await look(level)
    await rebuild(page)
    expect(await rowsOf(migrator, page)).toBe('a1@0! a2@1')
    const insert = `insert into page (url) values ('${text}')`
    await expect(client.query(insert)).rejects.toMatchObject({ code: '40001', constraint: 'page url' })
    await client.query('rollback')
    await look(level)
    await client.query(`${insert} on conflict do nothing; commit`)
    expect(await violations(migrator, page)).toEqual([])
  })

  test('two columns changed names takes each by the name that it has now', async () => {
    const page = await stage()
    await putRows(migrator, page, 'a1@0! a2@1')
    await migrator.query(`update page set title = 'a' || (10 + id)`)
    await look(level)
    await migrator.query(`begin; alter table page rename title to other; alter table page rename url to title;
      alter table page rename other to url; commit`)
    const renamed = { ...page, text: [{ name: 'title', prefix: '' }] }
    // The function of the text makes the hash of what has its name now, which happens to be the same.
    await expect(client.query(`insert into page (title, url) values ('a2', 'a9')`)).rejects.toMatchObject({
      code: '23505',
    })
    await client.query('rollback')
    expect(await violations(migrator, renamed)).toEqual([])
    expect(await rowsOf(migrator, renamed)).toBe('a1@0! a2@1')
  })

  test('the guard came to the table fails, and comes again', async () => {
    const page = await stage()
    await putRows(migrator, page, 'a1@0! a2@1')
    await migrator.query(guardOf(page).detach)
    await look(level)
    await migrator.query(guardOf(page).create.join(';\n'))
    await expect(client.query(`insert into page (url) values ('a2')`)).rejects.toMatchObject({ code: '40001' })
    await client.query('rollback')
    await expect(client.query(`insert into page (url) values ('a2')`)).rejects.toMatchObject({ code: '23505' })
    expect(await violations(migrator, page)).toEqual([])
  })
})

/** A migration whose statements see an old table would number only what that shows. */
test.each(['repeatable read', 'serializable'])('rows are not numbered at %s', async (level) => {
  const page = await stage()
  await putRows(migrator, page, 'a1@0! a2@2')
  await migrator.query(`set default_transaction_isolation to '${level}'`)
  await expect(rebuild(page)).rejects.toMatchObject({ code: '55000', table: 'page' })
  await migrator.query('rollback; reset default_transaction_isolation')
  expect(await rowsOf(migrator, page)).toBe('a1@0! a2@2')
})

describe('while the rows are numbered anew, a trigger of the table', () => {
  const trigger = (when: string, body: string): string => `
    create function meddle() returns trigger language plpgsql as $$ begin ${body} end $$;
    create trigger z ${when} on page for each row execute function meddle()`
  test.each([
    ['changes a text to one that is there', 'before update', `new.url := rtrim(new.url, 'x'); return new;`, '23505'],
    [
      'stores a text once more',
      'after update',
      `insert into page (url, "urlHash", "urlHashNumber") values ('a1', new."urlHash", 7); return null;`,
      '23505',
    ],
    [
      'stores a text at a number that is not its own',
      'after update',
      `insert into page (url, "urlHash", "urlHashNumber") values ('b1', md5('b')::uuid, 7); return null;`,
      '55000',
    ],
  ])('%s, and is refused', async (_, when, body, code) => {
    const page = await stage()
    await putRows(migrator, page, 'a1@0! a1x@2')
    await migrator.query(trigger(when, body))
    await expect(rebuild(page)).rejects.toMatchObject({ code, table: 'page' })
    await migrator.query('rollback; drop trigger z on page')
    await rebuild(page)
    expect(await rowsOf(migrator, page)).toBe('a1@0! a1x@1')
  })
})
