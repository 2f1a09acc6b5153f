import { createHash } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { quote } from '../../../src/sql/identifier'
import { useDatabase } from '../../support/database'
import { CHAIN, freshTable } from '../../support/guarded-table'

/** What a person calls who has only psql. */
const db = useDatabase()
const client = db.useClient()
// Roles belong to the whole server, so their names hold the database's.
const stranger = `T stranger ${createHash('sha256').update(db.url).digest('hex').slice(0, 8)}`

beforeAll(() => client.query(`create role ${quote(stranger)}`))
afterAll(() => client.query(`reset role; drop owned by ${quote(stranger)} cascade; drop role ${quote(stranger)}`))
beforeEach(async () => {
  await client.query('reset role')
  await freshTable(client)
})

const problems = async (table = 'page'): Promise<string[]> => {
  const { rows } = await client.query<{ problems: string[] }>(
    `select problems from unique_text_report_v1() where on_table = $1::regclass`,
    [table],
  )
  return rows.flatMap((one) => one.problems)
}

const attach = (declaration: object): Promise<unknown> =>
  client.query(`select unique_text_attach_v1('page', $1)`, [JSON.stringify(declaration)])

describe('attach refuses', () => {
  test.each([
    [{}],
    [{ name: 'other', text: 'url', index: 'i' }],
    [{ name: 'other', text: ['url', 'title'], index: 'i' }],
  ])('the declaration %j', async (declaration) => {
    await expect(attach(declaration)).rejects.toMatchObject({ code: '22023' })
  })
  test('a view', async () => {
    await client.query('create view seen as select * from page')
    const attached = client.query(`select unique_text_attach_v1('seen', '{"name": "url"}')`)
    await expect(attached).rejects.toMatchObject({ code: '42809' })
  })
  test('a role that does not own the table', async () => {
    await client.query(
      `do $$ begin execute format('grant usage on schema %I to ${quote(stranger)}', current_schema()); end $$`,
    )
    await client.query(`set role ${quote(stranger)}`)
    await expect(attach({ name: 'other', text: ['title'], index: 'i' })).rejects.toMatchObject({ code: '42501' })
    await expect(client.query(`select unique_text_detach_v1('page', 'url')`)).rejects.toMatchObject({ code: '42501' })
  })
})

test('detach says whether there was a guard', async () => {
  const detach = async (): Promise<unknown[]> =>
    (await client.query(`select unique_text_detach_v1('page', 'url') as was`)).rows
  expect([await detach(), await detach()]).toEqual([[{ was: true }], [{ was: false }]])
})

describe('report', () => {
  test('finds nothing wrong with a new guard', async () => {
    expect(await problems()).toEqual([])
  })
  test.each([
    ['drop trigger unique_text_page__url_settle_delete on page', ['a trigger AFTER DELETE is missing']],
    [
      'alter table page disable trigger unique_text_page__url_rest',
      ['the trigger unique_text_page__url_rest is disabled'],
    ],
    ['drop index "page url"', ['its unique index is missing or invalid']],
    ['alter table page drop constraint "page url check"', ['its check is missing or not valid']],
    ['alter table page rename to other', ['its table was renamed, so that an INSERT without hash costs more']],
    [`alter function ${CHAIN} security invoker`, [expect.stringMatching(/ is not SECURITY DEFINER$/)]],
    [`grant execute on function ${CHAIN} to public`, [expect.stringMatching(/ may be executed by a role/)]],
    [`alter function ${CHAIN} set search_path to public`, [expect.stringMatching(/ has other settings$/)]],
  ])('sees %s', async (statement, expected) => {
    await client.query(statement)
    const table = statement.includes('rename') ? 'other' : 'page'
    expect(await problems(table)).toEqual(expected)
  })
})
