import type { Client } from 'pg'
import type { DataSource } from 'typeorm'
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import {
  AdoptionError,
  adopt,
  type AdoptionLock,
  adoptionStatus,
  type AdoptionStatus,
  type AdoptProgress,
} from '../../../src/adopt'
import { lockHolders } from '../../../src/adopt/status'
import { useDatabase } from '../../support/database'
import { adoptWith, mergeWith } from '../../support/seams'
import { newList } from './restore'
import { AT_LEISURE, fillTable, pageOf, runCommand } from './stage'

const db = useDatabase({ wrapped: true })
const Page = pageOf({})
let client: Client
let other: Client
let dataSource: DataSource

beforeAll(async () => {
  ;[client, other] = [await db.client(), await db.client()]
  await other.query(`set application_name = 'a report'`)
  dataSource = await db.dataSource([Page], { synchronize: false, extra: { application_name: 'the command' } })
})
beforeEach(async () => {
  await client.query('drop schema public cascade; create schema public')
  await fillTable(client, 300)
})
afterEach(async () => {
  await other.query('rollback')
})

const NOBODY = { step: null, phase: null, fraction: null, command: null, holders: [] }

describe('the status', () => {
  test('of a table that nobody works on', async () => {
    const before = await adoptionStatus(dataSource, Page)
    expect(before).toEqual({ ...NOBODY, tableBytes: expect.any(Number), lagMilliseconds: 0, walBytes: 0 })
    await adopt(dataSource, Page, { ...AT_LEISURE, until: 'begin' })
    expect(await adoptionStatus(dataSource, Page)).toMatchObject({ ...NOBODY, step: 'fill' })
    await adopt(dataSource, Page, AT_LEISURE)
    expect(await adoptionStatus(dataSource, Page)).toMatchObject(NOBODY)
  })

  test('names the session that an index waits for, which has no lock on the table', async () => {
    await client.query('create table elsewhere (id integer)')
    let status: AdoptionStatus | undefined
    let watched: Promise<void> | undefined
    const beforeStatement = async (sql: string): Promise<void> => {
      if (!sql.startsWith('CREATE UNIQUE INDEX') || watched) return
      await other.query('begin isolation level repeatable read; select from elsewhere')
      watched = watch()
    }
    const watch = async (): Promise<void> => {
      await expect.poll(async () => (status = await adoptionStatus(dataSource, Page)).command?.waitsFor).toBe('Lock')
      await other.query('commit')
    }
    await adoptWith(dataSource, Page, AT_LEISURE, { beforeStatement })
    await watched
    expect(status).toMatchObject({
      step: 'index',
      phase: expect.stringMatching(/^waiting for old snapshots/) as string,
      command: { application: 'the command', query: expect.stringMatching(/^CREATE UNIQUE INDEX/) as string },
      holders: [{ user: 'postgres', application: 'a report', state: 'idle in transaction', prepared: null }],
    })
    expect(status?.holders[0]?.pid).toBeGreaterThan(0)
  })

  test('of a table that somebody has locked against readers', async () => {
    await adopt(dataSource, Page, { ...AT_LEISURE, until: 'begin' })
    await other.query('begin; lock table page')
    expect(await adoptionStatus(dataSource, Page)).toMatchObject({
      step: null,
      tableBytes: null,
      holders: [{ application: 'a report', query: 'begin; lock table page' }],
    })
  })

  test('counts the pages that were filled', async () => {
    const fractions: (number | null)[] = []
    const beforeStatement = async (sql: string): Promise<void> => {
      if (sql.startsWith('VACUUM')) fractions.push((await adoptionStatus(dataSource, Page)).fraction)
    }
    await adoptWith(dataSource, Page, AT_LEISURE, { beforeStatement })
    expect(fractions[0]).toBe(1)
  })

  test('names a merge while it runs, and no merge once it has ended', async () => {
    await adopt(dataSource, Page, AT_LEISURE)
    const steps: unknown[] = []
    const beforeStatement = async (sql: string): Promise<void> => {
      if (sql.startsWith('SET CONSTRAINTS')) steps.push((await adoptionStatus(dataSource, Page)).step)
    }
    await mergeWith(dataSource, Page, { keep: 'oldest', list: newList(), lockMilliseconds: 1_000 }, { beforeStatement })
    expect(steps.length).toBeGreaterThan(0)
    expect(new Set(steps)).toEqual(new Set(['merge']))
    expect(await adoptionStatus(dataSource, Page)).toMatchObject(NOBODY)
    expect(await client.query(`select from pg_class where relname ~ '_work$'`)).toMatchObject({ rowCount: 0 })
  })

  test('needs a table', async () => {
    await client.query('drop table page')
    await expect(adoptionStatus(dataSource, Page)).rejects.toThrow(AdoptionError)
  })
})

test('a prepared transaction that holds the table is named by its identifier', async ({ skip }) => {
  const { rows } = await client.query('show max_prepared_transactions')
  skip(rows[0].max_prepared_transactions === '0', 'The server of TEST_DATABASE_URL has no prepared transactions.')
  await other.query(`begin; update page set title = 'open' where id = 1; prepare transaction 'left behind'`)
  const notices: string[] = []
  let rests = 0
  const sleep = async (): Promise<void> => {
    rests += 1
    if (rests === 12) await other.query(`rollback prepared 'left behind'`)
  }
  const options = { ...AT_LEISURE, lockMilliseconds: 20, onNotice: (notice: string) => void notices.push(notice) }
  await adoptWith(dataSource, Page, options, { sleep })
  expect(notices).toEqual([
    expect.stringMatching(/attempts\. the prepared transaction "left behind" \(postgres\) has .* \(prepared\)\. It/),
  ])
})

test('those are named who hold what is wanted, and no others', async () => {
  await client.query('create table visit (page integer references page)')
  const { rows } = await client.query<{ oid: string }>(`select 'page'::regclass::oid::text as oid`)
  const query = async (sql: string, values?: unknown[]) =>
    (await client.query<Record<string, string>>(sql, values)).rows
  const held = async (sql: string): Promise<readonly string[]> => {
    await other.query(`begin; ${sql}`)
    const modes = ['ACCESS EXCLUSIVE', 'SHARE ROW EXCLUSIVE', 'rows'] as const
    const found = await Promise.all(modes.map(async (mode) => await lockHolders(query, rows[0]?.oid ?? '', mode)))
    await other.query('rollback')
    return modes.filter((_, index) => found[index]?.some(({ application }) => application === 'a report'))
  }
  expect(await held('select from page')).toEqual(['ACCESS EXCLUSIVE'])
  expect(await held('select from page for update')).toEqual(['ACCESS EXCLUSIVE', 'rows'])
  expect(await held('update page set title = title')).toEqual(['ACCESS EXCLUSIVE', 'SHARE ROW EXCLUSIVE', 'rows'])
  expect(await held('delete from visit')).toEqual(['rows'])
  expect(await held('select from pg_class')).toEqual([])
})

test('the pause is asked for after each batch', async () => {
  const [asked, slept]: [number[], number[]] = [[], []]
  const pauseMilliseconds = (): number => asked.push(asked.length)
  const sleep = async (milliseconds: number): Promise<void> => void slept.push(milliseconds)
  await adoptWith(dataSource, Page, { ...AT_LEISURE, pauseMilliseconds }, { sleep })
  expect(asked.length).toBeGreaterThan(0)
  expect(slept).toEqual(asked.map((one) => one + 1))
})

test('batches wait while a slot needs more WAL than is allowed', async () => {
  await client.query(`select pg_create_physical_replication_slot('slow', true)`)
  try {
    let waits = 0
    const sleep = async (): Promise<void> => {
      waits += 1
      expect((await adoptionStatus(dataSource, Page)).walBytes).toBeGreaterThan(1_000)
      if (waits === 3) await client.query(`select pg_drop_replication_slot('slow')`)
    }
    await adoptWith(dataSource, Page, { ...AT_LEISURE, maxWalBytes: 1_000 }, { sleep })
    expect(waits).toBe(3)
  } finally {
    await client.query(`select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = 'slow'`)
  }
})

test('the progress never goes back, though rows that were locked are swept again', async () => {
  await client.query('truncate page')
  await client.query(
    `insert into page (url, title) select 'text ' || i, repeat('x', 3000) from generate_series(1, 300) i`,
  )
  await adopt(dataSource, Page, { ...AT_LEISURE, until: 'begin' })
  await other.query('begin; update page set title = title where id in (select min(id) from page)')
  let sweeps = 0
  const beforeStatement = async (sql: string): Promise<void> => {
    if (sql.startsWith('VACUUM')) sweeps += 1
    if (sweeps === 2) await other.query('rollback')
  }
  const fractions: number[] = []
  const onProgress = ({ step, fraction }: AdoptProgress): void => {
    if (step === 'fill' && fraction !== undefined) fractions.push(fraction)
  }
  await adoptWith(dataSource, Page, { ...AT_LEISURE, batchMilliseconds: 1, onProgress }, { beforeStatement })
  expect(sweeps).toBeGreaterThan(1)
  expect(fractions).toEqual(fractions.toSorted((one, two) => one - two))
})

describe('the command', () => {
  const ADOPT = ['adopt', '-d', 'ormconfig.ts', '--entity', 'Page']
  const run = async (args: readonly string[]) => await runCommand(dataSource, [...ADOPT, ...args])
  const LOCK = /^begin: ACCESS EXCLUSIVE, waited [\d.]+ ms, held [\d.]+ ms, attempt 1$/m

  test('prints the locks of an adoption that stops', async () => {
    const controller = new AbortController()
    const onErr = (text: string): void => {
      if (text.includes('  fill')) controller.abort()
    }
    expect(await runCommand(dataSource, ADOPT, { signal: controller.signal, onErr })).toMatchObject({
      code: 130,
      out: expect.stringMatching(LOCK) as string,
    })
  })

  test('reports within five seconds what a silent step waits for', async () => {
    await client.query('create table elsewhere (id integer)')
    await other.query('begin isolation level repeatable read; select from elsewhere')
    let [err, longest, last] = ['', 0, performance.now()]
    const onErr = (text: string): void => {
      ;[longest, last] = [Math.max(longest, performance.now() - last), performance.now()]
      err += text
    }
    const adopted = runCommand(dataSource, ADOPT, { onErr })
    const WAITS =
      /^[\d:]{8} {2}index {2}waiting for old snapshots .*\d s in this step {2}pid \d+ \(postgres, "a report"\) has/gm
    await expect.poll(() => err.match(WAITS)?.length, { timeout: 20_000 }).toBe(2)
    await other.query('commit')
    expect((await adopted).code).toBe(0)
    expect(longest).toBeLessThan(8_000)
  })

  test('reports every five seconds also where the pool has one connection', async () => {
    const alone = await db.dataSource([Page], { synchronize: false, extra: { max: 1 } })
    await client.query('create table elsewhere (id integer)')
    await other.query('begin isolation level repeatable read; select from elsewhere')
    let err = ''
    const adopted = runCommand(alone, ADOPT, { onErr: (text) => void (err += text) })
    await expect.poll(() => err.match(/ {2}index$/gm)?.length, { timeout: 20_000 }).toBe(3)
    await other.query('commit')
    expect((await adopted).code).toBe(0)
  })

  test('prints each event as a line of JSON', async () => {
    const { code, out, err } = await run(['--json'])
    const events = out
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { time: string; event: string } & Partial<AdoptionLock>)
    expect([code, err]).toEqual([0, ''])
    expect(events.map(({ event }) => event)).toEqual(expect.arrayContaining(['progress', 'lock', 'report']))
    expect(events.at(-1)).toMatchObject({ event: 'report', step: 'done', counts: { filled: 300 } })
    for (const { time } of events) expect(new Date(time).toISOString()).toBe(time)
  })
})
