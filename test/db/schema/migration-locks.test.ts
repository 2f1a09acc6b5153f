import type { DataSource } from 'typeorm'
import { beforeAll, expect, test } from 'vitest'
import { Name } from '../../../src/names'
import { untilBlocked } from '../../support/blocked'
import { column, entity, numberWithin, text, toOne, uniqueName } from '../../support/entity'
import { useDatabase } from '../../support/database'
import { generate, type Generated, runAll } from '../../support/generated'
import { rejection } from '../../support/ledger'

const PlainTeam = entity('PlainTeam', { slug: column('text') }, { name: 'team' })
const PlainAccount = entity(
  'PlainAccount',
  { teamId: column('integer'), team: toOne(() => PlainTeam), handle: column('text') },
  { name: 'account' },
)
const PlainPage = entity(
  'PlainPage',
  { accountId: column('integer'), account: toOne(() => PlainAccount), url: column('text') },
  { name: 'page' },
)

const Team = entity('Team', { slug: uniqueName({ namespace: 'handle' }) })
const Account = entity('Account', {
  teamId: column('integer'),
  team: toOne(() => Team),
  handle: uniqueName({ namespace: 'handle' }),
  number: numberWithin({ scope: ['teamId'], count: true }),
})
const Page = entity('Page', { accountId: column('integer'), account: toOne(() => Account), url: text() })

const db = useDatabase({ wrapped: true })
let migration: Generated
let dataSource: DataSource
let pid: number

beforeAll(async () => {
  await db.dataSource([PlainTeam, PlainAccount, PlainPage, Name])
  // One connection: so that its process is known.
  dataSource = await db.dataSource([Team, Account, Page, Name], { synchronize: false, poolSize: 1 })
  migration = await generate(dataSource)
  const rows: { pid: number }[] = await dataSource.query('select pg_backend_pid() as pid')
  pid = rows[0]?.pid ?? 0
})

type Table = 'team' | 'account' | 'page'

/** Transactions as applications have them: what refers to a row comes after it, or before it changes. */
const ORDERS: readonly (readonly Table[])[] = [
  ['team', 'account', 'page'],
  ['account', 'team'],
  ['page'],
  ['account', 'page'],
]

function writesOf({ writer, turn }: { readonly writer: number; readonly turn: number }): Record<Table, string> {
  const [id, now, before] = [writer + 1, `${writer} ${turn}`, `${writer} ${turn - 1}`]
  return {
    team: `update team set slug = 't ${now}' where id = ${id}`,
    account: `delete from account where handle = 'h ${before}';
      insert into account ("teamId", handle) values (${id}, 'h ${now}')`,
    page: `delete from page where url = 'u ${before}'; insert into page ("accountId", url) values (${id}, 'u ${now}')`,
  }
}

const WRITERS = 6
const ATTEMPTS = 70

async function fill(): Promise<void> {
  await dataSource.query(`truncate team, account, page restart identity`)
  await dataSource.query(`insert into team (slug) select 't' || i from generate_series(1, ${WRITERS}) i`)
  await dataSource.query(
    `insert into account ("teamId", handle) select i, 'a' || i from generate_series(1, ${WRITERS}) i`,
  )
}

test.each([
  ['team', 'account'],
  ['account', 'team'],
  ['page', 'team'],
  ['team', 'page'],
] as const)('a writer of %s and then of %s comes between: both end', async (first, second) => {
  await fill()
  const [writer, observer] = [await db.client(), await db.client()]
  const statements = writesOf({ writer: 0, turn: 1 })
  for (const way of ['up', 'down'] as const) {
    await writer.query('begin')
    await writer.query(statements[first])
    const migrated = runAll(dataSource, migration[way])
    await untilBlocked(observer)
    await writer.query(statements[second])
    await writer.query('rollback')
    await migrated
  }
})

test("a migration leaves the role's lock_timeout to whatever comes after it", async () => {
  await fill()
  await dataSource.transaction(async (manager) => {
    await manager.query(`set local lock_timeout = '7s'`)
    for (const statement of [...migration.up, ...migration.down]) {
      await manager.query(statement)
      expect([statement, await manager.query('show lock_timeout')]).toEqual([statement, [{ lock_timeout: '7s' }]])
    }
  })
})

test("a migration waits once for its first table, by the role's lock_timeout, and not once a round", async () => {
  await fill()
  const [writer, observer] = [await db.client(), await db.client()]
  await writer.query('begin; lock table account')
  const migrated = dataSource.transaction(async (manager) => {
    await manager.query(`set local lock_timeout = '200ms'`)
    for (const statement of migration.up) await manager.query(statement)
  })
  const ended = rejection(migrated)
  const waits = new Set<string>()
  const over = new AbortController()
  void ended.then(() => over.abort())
  while (!over.signal.aborted) {
    const { rows } = await observer.query<{ since: string }>(
      `select waitstart::text as since from pg_locks where pid = ${pid} and waitstart is not null`,
    )
    for (const { since } of rows) waits.add(since)
  }
  await writer.query('rollback')
  expect(await ended).toMatchObject({ code: '55P03' })
  expect(waits.size).toBeLessThanOrEqual(1)
})

// Writers that deadlock among themselves do not count.
test(`${ATTEMPTS} migrations beside ${WRITERS} writers are part of no deadlock`, async () => {
  await fill()
  const stop = new AbortController()
  const deadlocks: string[] = []
  const report = (error: unknown): void => {
    const { code, detail = '' } = error as { code?: string; detail?: string }
    if (code !== '40P01') throw error
    if (detail.includes(`rocess ${pid} `) || detail.includes(`${pid}.`)) deadlocks.push(detail)
  }
  const writers = Array.from({ length: WRITERS }, async (_, writer) => {
    const client = await db.client()
    for (let turn = 0; !stop.signal.aborted; turn += 1) {
      const tables = ORDERS[(writer + turn) % ORDERS.length] ?? []
      try {
        await client.query('begin')
        for (const table of tables) await client.query(writesOf({ writer, turn })[table])
        await client.query('commit')
      } catch (error) {
        await client.query('rollback')
        report(error)
      }
      // Users think.
      await client.query('select pg_sleep(0.02)')
    }
  })
  let isUp = false
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    try {
      await runAll(dataSource, isUp ? migration.down : migration.up)
      isUp = !isUp
    } catch (error) {
      report(error)
    }
  }
  stop.abort()
  await Promise.all(writers)
  expect(deadlocks).toEqual([])
})
