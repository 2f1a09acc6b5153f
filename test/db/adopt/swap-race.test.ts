import { setTimeout as pause } from 'node:timers/promises'
import type { Client } from 'pg'
import type { DataSource } from 'typeorm'
import { beforeAll, beforeEach, expect, test } from 'vitest'
import { findOrCreate, findOneByText, upsertByText } from '../../../src'
import { adopt } from '../../../src/adopt'
import { fewHashes } from '../../support/digests'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { violations } from '../../support/guarded-table'
import { adoptWith } from '../../support/seams'
import { ledgerFaults, openLedger, randomOf, Writers } from './ledger'
import { tableOf } from './stage'
import { pageAs } from './swap-stage'

const db = useDatabase({ wrapped: true })
const OPTIONS = { batchMilliseconds: 5, lockMilliseconds: 100, holdMilliseconds: 10_000 }
const ROWS = 2_000
const [Before, After] = [
  pageAs({ url: { scope: ['site'], digest: fewHashes(5_000) } }),
  pageAs({ url: { digest: fewHashes(5_000) } }),
]
let client: Client
let other: Client
let before: DataSource
let after: DataSource

beforeAll(async () => {
  ;[client, other] = [await db.client(), await db.client()]
  before = await db.dataSource([Before], { synchronize: false, poolSize: 20 })
  after = await db.dataSource([After], { synchronize: false })
})
beforeEach(async () => {
  await other.query('rollback')
  await client.query('drop schema public cascade; create schema public')
  await before.synchronize()
})

/** Every second text stands in both sites. */
async function fill(rows: number): Promise<void> {
  await client.query(
    `insert into page (site, url) select i % 2, case when i % 4 < 2 then 'text ' || i / 2 else 'one ' || i end from generate_series(2, $1::int + 1) as i`,
    [rows],
  )
}

/** Where the swap is: its last statements are being run, or they are committed. */
type Phase = 'before' | 'swapping' | 'after'

test('old code goes on until the swap, and no text is stored twice by the rules of the guard that stands', async () => {
  await fill(ROWS)
  await openLedger(client)
  let phase: Phase = 'before'
  const refused: string[] = []
  const late = new Set<string>()
  const ended = { yet: false }
  const random = randomOf(7)
  const text = (): string => {
    const [kind, n] = [random(), Math.floor(random() * ROWS)]
    return kind < 0.6 ? `text ${n}` : `new ${n % 50}`
  }
  const operations = [
    async () => await findOrCreate(before.manager, Before, { site: Math.floor(random() * 3), url: text() }),
    async () => await upsertByText(before.manager, Before, { site: 1, url: text(), title: 'again' }),
    async () => await before.getRepository(Before).update({ id: Math.floor(random() * ROWS) }, { title: 'other' }),
    async () => await before.getRepository(Before).delete({ id: Math.floor(random() * ROWS) }),
    async () => await before.getRepository(Before).findOneBy({ site: 1, url: text() }),
  ]
  const clients = Array.from({ length: 6 }, async (_, index) => {
    while (!ended.yet) {
      const operation = operations[Math.floor(random() * operations.length)] ?? operations[0]
      try {
        // Leaves the machine to the command too.
        await pause(4)
        await operation?.()
      } catch (error) {
        const told = `${(error as Error).name} ${String((error as { code?: unknown }).code)}`
        // A call that began before may end after.
        if (phase === 'before') refused.push(`${index} ${told} ${String(error)}`)
        else late.add(told)
      }
    }
  })
  const writers = new Writers(db.url, ROWS, [11, 12, 13])
  const [tableBefore, tableAfter] = [tableOf(before, Before), tableOf(after, After)]
  let [looks, locked] = [0, false]
  try {
    const beforeStatement = async (sql: string): Promise<void> => {
      if (sql.includes('RENAME COLUMN')) phase = 'swapping'
      else if (sql === 'COMMIT' && phase === 'swapping') phase = 'after'
      else if (sql === 'ROLLBACK' && phase === 'swapping') phase = 'before'
      locked = /^BEGIN; .*LOCK TABLE/s.test(sql) || (locked && !/^(?:COMMIT|ROLLBACK)$/.test(sql))
      if (
        locked ||
        phase !== 'before' ||
        !/^(?:WITH|VACUUM|CREATE UNIQUE|ALTER TABLE "public"."page" VALIDATE)/.test(sql)
      )
        return
      looks += 1
      expect(await violations(client, tableBefore)).toEqual([])
    }
    const report = await adoptWith(after, After, OPTIONS, { beforeStatement })
    expect(report.step).toBe('done')
  } finally {
    ended.yet = true
    await Promise.all(clients)
    await writers.end()
  }
  expect(looks).toBeGreaterThan(10)
  expect(refused).toEqual([])
  expect([...writers.refused].filter((code) => code !== '23505')).toEqual([])
  expect([...late].filter((told) => told !== 'QueryFailedError 23505')).toEqual([])
  expect((await violations(client, tableAfter)).filter((one) => !one.startsWith('text twice'))).toEqual([])
  // The page of the ledger has a normalizer; this one has none.
  const told = await ledgerFaults(client, after, tableAfter)
  expect(told.filter((one) => !one.includes('is not normalized'))).toEqual([])
}, 300_000)

/** Stops the command in its last transaction, the guards changed and nothing committed yet. */
async function atSwap(meanwhile: () => Promise<void>): Promise<void> {
  let swapping = false
  let met = 0
  const beforeStatement = async (sql: string): Promise<void> => {
    if (sql.includes('RENAME COLUMN')) swapping = true
    if (sql !== 'COMMIT' || !swapping) return
    swapping = false
    met += 1
    await meanwhile()
  }
  expect(await adoptWith(after, After, OPTIONS, { beforeStatement })).toMatchObject({ step: 'done' })
  expect(met).toBe(1)
}

const outcome = async (work: Promise<unknown>): Promise<string> =>
  await work.then(
    () => 'done',
    (error: { code: string }) => error.code,
  )

test.each([
  ['an insert of a text of another site', `insert into page (site, url) values (5, 'text 2')`, '23505'],
  [
    'an insert that brings hash and number',
    `insert into page (site, url, "urlHash") select 5, url, "urlHash" from page where url = 'text 2' limit 1`,
    '23505',
  ],
  ['an insert of a new text', `insert into page (site, url) values (5, 'new')`, 'done'],
  ['an update to a text of another site', `update page set url = 'text 2' where url = 'one 7'`, '23505'],
  ['an update of another column', `update page set title = 'x' where url = 'one 7'`, 'done'],
  ['a delete of an anchor', `delete from page where url = 'text 2' and site = 0`, 'done'],
  [
    'an insert that does nothing in a conflict',
    `insert into page (site, url) values (5, 'text 2') on conflict do nothing`,
    'done',
  ],
])('%s that waits for the swap goes by the new guard', async (_, sql, wanted) => {
  await fill(40)
  let waiting: Promise<string> | undefined
  await atSwap(async () => {
    waiting = outcome(other.query(sql))
    await untilBlocked(client)
  })
  expect(await waiting).toBe(wanted)
  const found = await violations(client, tableOf(after, After))
  expect(found.filter((one) => !one.startsWith('text twice'))).toEqual([])
  const { rows } = await client.query<{ n: number }>(`select count(*)::int as n from page where url = 'text 2'`)
  expect(rows[0]?.n).toBe(sql.startsWith('delete') ? 1 : 2)
})

test.each(['repeatable read', 'serializable'])(
  'a snapshot at %s that is older than the swap stores no text twice',
  async (level) => {
    await fill(40)
    await adopt(after, After, { ...OPTIONS, until: 'check' })
    await other.query(`begin isolation level ${level}; select 1 from pg_class limit 1`)
    await adopt(after, After, OPTIONS)
    await client.query(`insert into page (site, url) values (6, 'later')`)
    expect(await outcome(other.query(`insert into page (site, url) values (7, 'later')`))).toMatch(/^(?:23505|40001)$/)
    await other.query(`rollback; begin isolation level ${level}; select 1 from pg_class limit 1`)
    expect(await outcome(other.query(`insert into page (site, url) values (7, 'text 2')`))).toMatch(/^(?:23505|40001)$/)
    await other.query('rollback')
    const found = await violations(client, tableOf(after, After))
    expect(found.filter((one) => !one.startsWith('text twice'))).toEqual([])
  },
)

test('what an open transaction has written is settled before the guards change', async () => {
  await fill(40)
  await adopt(after, After, { ...OPTIONS, until: 'check' })
  await other.query(`begin; insert into page (site, url) values (8, 'text 2'), (8, 'new'), (9, 'new')`)
  let rests = 0
  const sleep = async (): Promise<void> => {
    rests += 1
    if (rests === 3) await other.query('commit')
    else if (rests > 30) throw new Error('It does not come to an end.')
  }
  const report = await adoptWith(after, After, { ...OPTIONS, lockMilliseconds: 20 }, { sleep })
  expect(report.locks.map(({ step }) => step)).toEqual(['guard', 'clean'])
  expect(report.duplicates).toMatchObject({ groups: 11 })
  const found = await violations(client, tableOf(after, After))
  expect(found.filter((one) => !one.startsWith('text twice'))).toEqual([])
})

test('an instance of old code that has seen the table goes on by its own rule', async () => {
  await fill(40)
  await findOrCreate(before.manager, Before, { site: 1, url: 'seen' })
  await adopt(after, After, OPTIONS)
  expect(await findOneByText(before.manager, Before, { site: 1, url: 'seen' })).toMatchObject({ url: 'seen' })
  expect(await findOrCreate(before.manager, Before, { site: 1, url: 'seen' })).toMatchObject({ created: false })
  expect(await findOrCreate(before.manager, Before, { site: 1, url: 'unseen' })).toMatchObject({ created: true })
  // In another scope of the old rule: the new index stands against it.
  await expect(findOrCreate(before.manager, Before, { site: 2, url: 'seen' })).rejects.toMatchObject({ code: '23505' })
})
