import { describe, expect, test } from 'vitest'
import type { TextTable } from '../../../src/sql/text-table'
import { useDatabase } from '../../support/database'
import { firstLetter, freshTable, putRows, rowsOf, violations } from '../../support/guarded-table'

const db = useDatabase()
const client = db.useClient()

/** A table with a trigger of the user's; names from `a` fire before the guard's, from `z` after. */
async function withTrigger(name: string, when: string, body: string): Promise<TextTable> {
  const page = await freshTable(client, { scope: ['tenant'] })
  await client.query(`create function own() returns trigger language plpgsql as $$ begin ${body} end $$`)
  await client.query(`create trigger "${name}" ${when} on page for each row execute function own()`)
  return page
}

const fast = (text: string): Promise<unknown> =>
  client.query('insert into page (url, "urlHash", "urlHashNumber") values ($1, $2, 0)', [text, firstLetter.js(text)])
const slow = (text: string): Promise<unknown> => client.query('insert into page (url) values ($1)', [text])
const dishonest = { code: '23514', constraint: 'page url check' }

describe('a trigger that changes the text', () => {
  const shorten = 'NEW.url := ltrim(NEW.url); return NEW;'

  test('before the guard is seen by it', async () => {
    const page = await withTrigger('a', 'before insert or update', shorten)
    await slow(' a1')
    await slow('a2')
    expect(await rowsOf(client, page)).toBe('a1@0! a2@1')
  })
  test('is refused by the check where the client sent the hash', async () => {
    await withTrigger('a', 'before insert', shorten)
    await expect(fast(' a1')).rejects.toMatchObject(dishonest)
  })
  test.each(['insert', 'update'])('after the guard is refused by the check on %s', async (event) => {
    await withTrigger('z', `before ${event}`, shorten)
    if (event === 'update') await slow('a1')
    const statement = event === 'update' ? client.query(`update page set url = ' a2'`) : slow(' a1')
    await expect(statement).rejects.toMatchObject(dishonest)
  })
  test('is refused by the check in an update that does not name the text', async () => {
    await withTrigger('a', 'before update', `NEW.url := 'b1'; return NEW;`)
    await slow('a1')
    await expect(client.query(`update page set title = 'x'`)).rejects.toMatchObject(dishonest)
  })
  test('after the guard to a taken text of the same hash is refused', async () => {
    const page = await withTrigger('z', 'before insert', `NEW.url := replace(NEW.url, 'a9', 'a2'); return NEW;`)
    await putRows(client, page, 'a1@0! a2@1')
    await expect(slow('a9')).rejects.toMatchObject({ code: '23505', constraint: 'page url' })
    expect(await violations(client, page)).toEqual([])
  })
})

describe('a trigger that changes the scope', () => {
  const trigger = (name: string, event: string): Promise<TextTable> =>
    withTrigger(name, `before ${event}`, 'NEW.tenant := 2; return NEW;')

  test.each([
    ['before the guard is seen by it', 'a', '2/a1@0', '2/a1@0! 2/a2@1'],
    ['after the guard becomes an anchor where the chain is empty', 'z', 'a1@0', 'a1@0 2/a2@0!'],
  ])('%s', async (_, name, given, then) => {
    const page = await trigger(name, 'insert')
    await putRows(client, page, given)
    await slow('a2')
    expect(await rowsOf(client, page)).toBe(then)
  })
  test.each(['a1@0 2/a3@0! 2/a2@2', 'a1@0 2/a2@0'])(
    'after the guard cannot store a text twice by an insert beside %s',
    async (given) => {
      const page = await trigger('z', 'insert')
      await putRows(client, page, given)
      await expect(slow('a2')).rejects.toMatchObject({ code: '23505', constraint: 'page url' })
      expect(await rowsOf(client, page)).toBe(given)
    },
  )
  test.each([
    ['leaves no chain without anchor', 'a1@0! a2@1', 'a1'],
    ['stores no text twice', 'a1@0! a2@1 2/a2@0', 'a2'],
  ])('in an update that does not name the scope %s', async (_, given, text) => {
    const page = await trigger('a', 'update')
    await putRows(client, page, given)
    await client.query(`update page set title = 'x' where url = '${text}'`).catch(() => undefined)
    expect(await violations(client, page)).toEqual([])
  })
})

describe('AFTER triggers that write the same table between those of the guard', () => {
  test.each(['a', 'unique_text_page_url_s', 'z'])(
    '%s deletes the anchor that the new row collides with',
    async (name) => {
      const page = await withTrigger(name, 'after insert', `delete from page where url = 'a1'; return null;`)
      await putRows(client, page, 'a1@0')
      await slow('a2')
      expect(await rowsOf(client, page)).toBe('a2@0!')
    },
  )
  test.each(['a', 'z'])('%s deletes the anchor and stores the new text again', async (name) => {
    const again = `insert into page (url, "urlHash", "urlHashNumber") select 'a2', "urlHash", 0 from page where url = 'a2'`
    const body = `if pg_trigger_depth() = 1 then delete from page where url = 'a1'; ${again}; end if; return null;`
    const page = await withTrigger(name, 'after insert', body)
    await putRows(client, page, 'a1@0')
    await expect(slow('a2')).rejects.toMatchObject({ code: '23505' })
    expect(await rowsOf(client, page)).toBe('a1@0')
  })
  test.each(['a', 'z'])('%s puts back a deleted text', async (name) => {
    const page = await withTrigger(name, 'after delete', 'insert into page (url) values (OLD.url); return null;')
    await putRows(client, page, 'a1@0! a2@1')
    await client.query(`delete from page where url = 'a1'`)
    expect(await violations(client, page)).toEqual([])
    expect(await rowsOf(client, page)).toMatch(name === 'a' ? /^a1@0! a2@1$/ : /^a2@0! a1@1$/)
  })
  test.each(['a', 'z'])('%s empties the whole chain', async (name) => {
    const page = await withTrigger(name, 'after delete', 'delete from page; return null;')
    await putRows(client, page, 'a1@0! a2@1 a3@2')
    await client.query(`delete from page where url = 'a1'`)
    expect(await rowsOf(client, page)).toBe('')
  })
})

test('a BEFORE trigger that keeps a row from being written leaves the chain right', async () => {
  const page = await withTrigger('z', 'before insert or delete', 'return null;')
  await putRows(client, page, 'a1@0! a2@1')
  await slow('a3')
  await client.query('delete from page')
  expect(await rowsOf(client, page)).toBe('a1@0! a2@1')
})

test('a BEFORE trigger that undoes the promotion is found by the checks of the chain', async () => {
  const page = await withTrigger('z', 'before update', 'return null;')
  await putRows(client, page, 'a1@0! a2@1')
  const outcome = await client.query(`delete from page where url = 'a1'`).catch((error: unknown) => error)
  expect(outcome).toMatchObject({ code: '55000', constraint: 'page url' })
  expect(await rowsOf(client, page)).toBe('a1@0! a2@1')
})
