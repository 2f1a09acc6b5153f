import { beforeEach, expect, test } from 'vitest'
import { findOrCreate } from '../../../src'
import { adopt } from '../../../src/adopt'
import { doctor } from '../../../src/doctor'
import { lowerCase } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { generate } from '../../support/generated'
import { violations } from '../../support/guarded-table'
import { AT_LEISURE, fillTable, pageOf, runCommand, tableOf } from './stage'

const db = useDatabase({ wrapped: true })
const Page = pageOf({ normalize: lowerCase() })
/** Code without this package. */
const client = db.useClient({ emptied: true })

beforeEach(async () => {
  await fillTable(client, 0)
  await client.query(`insert into page (url) select 'Text ' || i from generate_series(1, 30) as i`)
})

const adopted = async () => {
  const dataSource = await db.dataSource([Page], { synchronize: false })
  expect(await adopt(dataSource, Page, AT_LEISURE)).toMatchObject({ step: 'done', unchanged: false })
  return dataSource
}

test('old code beside new code writes as it did, and adopt normalizes it once the old code has gone', async () => {
  const dataSource = await adopted()
  const { manager } = dataSource
  const isNew = async (url: string): Promise<boolean> => (await findOrCreate(manager, Page, { url })).created
  await client.query(`insert into page (url) select 'Old ' || i from generate_series(1, 20) as i`)
  await client.query(`update page set url = 'Changed' where url = 'text 7'`)
  await expect(client.query(`insert into page (url) values ('text 8')`)).rejects.toMatchObject({ code: '23505' })
  expect(await isNew('Text 8')).toBe(false)
  // New code does not find the text as the old code writes it, and stores it a second time.
  expect(await isNew('old 3')).toBe(true)

  const failure: unknown = await adopt(dataSource, Page, AT_LEISURE).catch((error: unknown) => error)
  expect(failure).toMatchObject({ reason: 'rejected' })
  expect(String(failure)).toMatch(/ 1 rows of .*: another row holds its normalized text/)
  expect(failure).toHaveProperty('keys', [{ id: 33 }])
  await client.query('delete from page where id = 33')
  expect(await adopt(dataSource, Page, AT_LEISURE)).toMatchObject({ step: 'done', rejectedTotal: 0 })
  expect((await client.query('select from page where url <> lower(url)')).rowCount).toBe(0)
  expect(await isNew('OLD 4')).toBe(false)
  expect(await isNew('changed')).toBe(false)
  expect(await violations(client, tableOf(dataSource, Page))).toEqual([])
  expect((await doctor(dataSource)).findings).toEqual([])
  expect((await generate(dataSource)).up).toEqual([])
})

test('the command says what it has normalized, and that nothing is left', async () => {
  const dataSource = await adopted()
  const command = async () => await runCommand(dataSource, ['adopt', '-d', 'o.ts', '--entity', 'Page'])
  await client.query(`insert into page (url) values ('Old')`)
  expect((await command()).out).toMatch(
    /0 rows got their hashes, 1 texts were normalized.*\nThe table is adopted\.\n$/s,
  )
  expect(await command()).toMatchObject({ code: 0, out: 'The table is already adopted: nothing to do.\n' })
  expect((await client.query('select from unique_text_adoptions')).rowCount).toBe(0)
})

test('nobody is locked out, and a trigger of the user fires only for a text that changes, and only if it may', async () => {
  const dataSource = await adopted()
  await client.query(`create table seen (id integer);
    create function watch() returns trigger language plpgsql as 'begin insert into public.seen values (new.id); return new; end';
    create trigger watch after update on page for each row execute function watch()`)
  expect(await adopt(dataSource, Page, AT_LEISURE)).toMatchObject({ unchanged: true, locks: [] })
  await client.query(`insert into page (url) values ('Old')`)
  await expect(adopt(dataSource, Page, AT_LEISURE)).rejects.toMatchObject({ reason: 'user-triggers' })
  expect((await doctor(dataSource)).findings.map(({ code }) => code)).toEqual(['trigger.user', 'text.unnormalized'])
  const fired = await adopt(dataSource, Page, { ...AT_LEISURE, userTriggers: 'fire' })
  expect(fired).toMatchObject({ step: 'done', unchanged: false, counts: { normalized: 1 }, locks: [] })
  expect((await client.query('select from seen')).rowCount).toBe(1)
})

test('a command that ended early goes on where it was, and a text without a normalizer is not read', async () => {
  const dataSource = await adopted()
  await client.query(`insert into page (url) values ('Old')`)
  expect(await adopt(dataSource, Page, { ...AT_LEISURE, until: 'fill' })).toMatchObject({ step: 'guard' })
  const [left] = (await doctor(dataSource)).findings
  expect(left).toMatchObject({ code: 'adoption.unfinished' })
  expect(await adopt(dataSource, Page, AT_LEISURE)).toMatchObject({ step: 'done' })
  const Plain = pageOf({})
  const plain = await db.dataSource([Plain], { synchronize: false })
  await adopt(plain, Plain, { ...AT_LEISURE, userTriggers: 'fire' })
  await client.query('update page set url = upper(url) where id = 1')
  expect(await adopt(plain, Plain, AT_LEISURE)).toMatchObject({ unchanged: true, locks: [] })
})
