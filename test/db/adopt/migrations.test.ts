import type { Client } from 'pg'
import { beforeAll, beforeEach, expect, test } from 'vitest'
import { adopt } from '../../../src/adopt'
import { useDatabase } from '../../support/database'
import { generate, migrate, runAll } from '../../support/generated'
import { fillTable, pageOf } from './stage'

const db = useDatabase({ wrapped: true })
const Page = pageOf({})
let client: Client

beforeAll(async () => {
  client = await db.client()
})
beforeEach(async () => {
  await client.query('drop schema public cascade; create schema public')
})

/** More than a migration takes; without hashes they are quickly made. */
async function fillLarge(): Promise<void> {
  await fillTable(client, 0)
  await client.query(`insert into page (url) select 'text ' || i from generate_series(1, 100001) as i`)
}

test('a migration refuses a large table at once, with the command to run', async () => {
  await fillLarge()
  const dataSource = await db.dataSource([Page], { synchronize: false })
  const failure: unknown = await migrate(dataSource).catch((error: unknown) => error)
  expect(String(failure)).toMatch(
    /more than 100000 rows.*typeorm-unique-text adopt -d ormconfig\.ts --entity Page --property url/,
  )
  const { up } = await generate(dataSource)
  // Nothing was changed, and nothing comes before it: also where a migration has no transaction.
  expect(up[0]).toMatch(/^DO .*more than 100000 rows/s)
})

test('a migration of another declaration refuses a large table too, and leaves the guard', async () => {
  await db.dataSource([Page])
  await client.query(
    `insert into page (url, "urlHash") select 'text ' || i, md5('text ' || i)::uuid from generate_series(1, 100001) as i`,
  )
  const dataSource = await db.dataSource([pageOf({ digest: 'sha256' })], { synchronize: false })
  expect(String(await migrate(dataSource).catch((error: unknown) => error))).toMatch(
    /more than 100000 rows.*typeorm-unique-text adopt -d ormconfig\.ts --entity Page --property url/,
  )
  const { rows } = await client.query(
    `select count(*)::int as n from pg_trigger where tgrelid = 'page'::regclass and not tgisinternal`,
  )
  expect(rows).toEqual([{ n: 6 }])
})

test('a maintenance window is told by a setting', async () => {
  await fillLarge()
  const extra = { options: '-c unique_text.maintenance=on' }
  const dataSource = await db.dataSource([Page], { synchronize: false, extra })
  await migrate(dataSource)
  expect((await generate(dataSource)).up).toEqual([])
})

test('a migration sees that a killed client leaves no statement behind', async () => {
  await fillTable(client, 0)
  const dataSource = await db.dataSource([Page], { synchronize: false })
  const { up } = await generate(dataSource)
  await dataSource.transaction(async (manager) => {
    for (const statement of up) await manager.query(statement)
    expect(await manager.query('show client_connection_check_interval')).toEqual([
      { client_connection_check_interval: '2s' },
    ])
  })
})

test('a migration that was generated elsewhere is marked as run', async () => {
  await fillTable(client, 0)
  const source = await db.dataSource([Page], { synchronize: false })
  const { up } = await generate(source)
  class AddsText1795255200000 {
    name = 'AddsText1795255200000'
    async up(): Promise<void> {
      await runAll(source, up)
    }
    async down(): Promise<void> {}
  }
  const dataSource = await db.dataSource([Page], { synchronize: false, migrations: [AddsText1795255200000] })
  await client.query(`insert into page (url) values ('one'), ('two')`)
  await expect(adopt(dataSource, Page, { fake: 'Other1' })).rejects.toThrow(/AddsText1795255200000/)
  await adopt(dataSource, Page, { fake: 'AddsText1795255200000' })
  expect(await dataSource.runMigrations()).toEqual([])
  expect((await generate(dataSource)).up).toEqual([])
})
