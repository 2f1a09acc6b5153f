import { execFile } from 'node:child_process'
import path from 'node:path'
import type { Client } from 'pg'
import type { DataSource } from 'typeorm'
import { DataSource as Source } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { withUniqueText } from '../../../src'
import { adopt } from '../../../src/adopt'
import { useDatabase } from '../../support/database'
import { useFaultServer } from '../../support/fault-server'
import { generate } from '../../support/generated'
import { ledgerFaults, openLedger, randomOf, Writers } from './ledger'
import { type Relay, startRelay } from './relay'
import { faults, fillTable, pageOf, tableOf } from './stage'
import { gateRuns } from '../../support/gate-part'

/** KILL_SEED and KILLS choose other moments, and more of them. */
const SEED = Number(process.env['KILL_SEED'] ?? 20)
const KILLS = Number(process.env['KILLS'] ?? gateRuns(50))
const ROWS = 2_000
const LATEST_PIECE = 70

const checkout = path.resolve(import.meta.dirname, '../../..')
const Page = pageOf()
const command = ['--import', 'tsx', 'src/cli/main.ts', 'adopt', '-d', 'test/db/adopt/kill-config.ts']
const OPTIONS = ['--entity', 'Page', '--batch-ms', '5']

/** How one run of the command ended. */
interface Ending {
  readonly done: boolean
  readonly told: string
}

/** The command as a process of its own. */
async function runCommand(url: string, started: (kill: () => void) => void): Promise<Ending> {
  return await new Promise((resolve) => {
    const env = { PATH: process.env['PATH'], DATABASE_URL: url }
    const child = execFile(process.execPath, [...command, ...OPTIONS], { cwd: checkout, env }, (error, out, err) => {
      resolve({ done: error === null, told: out + err })
    })
    started(() => void child.kill('SIGKILL'))
  })
}

/** The command within this process: only its connection ends. */
async function runHere(url: string): Promise<Ending> {
  const extra = { application_name: 'adopts' }
  const dataSource = withUniqueText(new Source({ type: 'postgres', url, entities: [Page], extra }))
  try {
    await dataSource.initialize()
    const { step } = await adopt(dataSource, Page, { batchMilliseconds: 5 })
    return { done: step === 'done', told: step }
  } catch (error) {
    return { done: false, told: String(error) }
  } finally {
    if (dataSource.isInitialized) await dataSource.destroy()
  }
}

/** A killed command's turn ends when the server notices. */
async function forgotten(client: Client): Promise<void> {
  for (;;) {
    const { rowCount } = await client.query(
      `select from pg_stat_activity where application_name = 'adopts' and datname = current_database()`,
    )
    if (rowCount === 0) return
  }
}

interface Campaign {
  readonly url: string
  readonly relay: Relay
  readonly random: () => number
  readonly client: () => Promise<Client>
  readonly dataSource: () => Promise<DataSource>
  /** Ends something, and runs the command until it has ended. */
  readonly strike: (pieces: number) => Promise<Ending>
}

/** Adopts one table, struck again and again. @returns how often */
async function adoptUnderFire(
  { url, client, dataSource, random, relay, strike }: Campaign,
  most: number,
): Promise<number> {
  const admin = await client()
  await admin.query('drop schema public cascade; create schema public')
  await fillTable(admin, ROWS)
  await openLedger(admin)
  const writers = new Writers(
    url,
    ROWS,
    [1, 2, 3].map((n) => n + Math.floor(random() * 1e6)),
  )
  const source = await dataSource()
  const table = tableOf(source, Page)
  let strikes = 0
  try {
    for (;;) {
      const pieces = strikes < most ? 8 + Math.floor(random() * LATEST_PIECE) : Infinity
      const { done, told } = await strike(pieces)
      // A command that was killed after its last commit has adopted the table. The next one finds texts that the writers
      // stored since then, and refuses to fire the ledger's triggers for them.
      const isAdopted = done || told.includes('the guard has to run')
      const struck = relay.disarm()
      if (struck) strikes += 1
      else if (!isAdopted) throw new Error(`It ended by itself: ${told}`)
      const now = await client()
      await forgotten(now)
      expect({ faults: await faults(now, table), told }).toEqual({ faults: [], told })
      if (isAdopted) break
    }
  } finally {
    await writers.end()
  }
  const now = await client()
  expect(await ledgerFaults(now, source, table)).toEqual([])
  expect([...writers.refused].filter((code) => code !== '23505')).toEqual([])
  await now.query(
    'drop trigger note_insert_delete on page; drop trigger note_update on page; drop table wrote, original',
  )
  expect((await generate(source)).up).toEqual([])
  return strikes
}

describe('a process or a connection that is killed', () => {
  const db = useDatabase({ wrapped: true })
  let client: Client
  let dataSource: DataSource
  beforeAll(async () => {
    client = await db.client()
    dataSource = await db.dataSource([Page], { synchronize: false })
  })

  test(`at ${KILLS} moments by the seed ${SEED} leaves nothing that the same command does not mend`, async () => {
    const random = randomOf(SEED)
    const relay = await startRelay(db.url)
    const strike = async (pieces: number): Promise<Ending> => {
      const inProcess = random() < 0.5
      if (!inProcess) return await runCommand(relay.url, (kill) => relay.arm(pieces, kill))
      relay.arm(pieces, () => {
        void client.query(
          `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'adopts' and datname = current_database()`,
        )
      })
      return await runHere(relay.url)
    }
    const campaign = {
      url: db.url,
      relay,
      random,
      client: async () => client,
      dataSource: async () => dataSource,
      strike,
    }
    try {
      for (let left = KILLS; left > 0;) left -= await adoptUnderFire(campaign, left)
    } finally {
      await relay.close()
    }
  }, 1_200_000)

  test('is found by the checker where it does harm', async () => {
    await client.query('drop schema public cascade; create schema public')
    await fillTable(client, 50)
    await openLedger(client)
    await adopt(dataSource, Page, { lockMilliseconds: 1_000, holdMilliseconds: 10_000 })
    const table = tableOf(dataSource, Page)
    expect(await ledgerFaults(client, dataSource, table)).toEqual([])
    const behind = async (sql: string): Promise<string> => {
      await client.query(`set session_replication_role = replica; ${sql}; set session_replication_role = origin`)
      return (await ledgerFaults(client, dataSource, table)).join()
    }
    expect(await behind(`delete from page where id = 1`)).toBe('row 1 holds "" where "text 1" was written')
    expect(await behind(`update page set "urlHashChained" = false where url = 'twice 5'`)).toMatch(
      /anchor without flag.*chain\.unflagged/,
    )
    await client.query(`alter table page drop constraint "${table.check}"`)
    expect(await behind(`update page set url = 'Text 2' where id = 2`)).toMatch(
      /"Text 2" is not normalized and was written before.*dishonest row.*hash\.wrong/,
    )
    // As if the second row had been written after the guard.
    const again = `insert into wrote (kind, id, url) select 'UPDATE', max(id), url from page where url = 'twice 3' group by url`
    expect(await behind(again)).toMatch(/"twice 3" was stored by row \d+ where it stood/)
  })
})

describe('a server that stops at once', () => {
  const server = useFaultServer({ settings: { fsync: 'off' } })

  test('and is started again leaves nothing that the same command does not mend', async () => {
    const random = randomOf(SEED)
    const relay = await startRelay(server().url)
    const strike = async (pieces: number): Promise<Ending> => {
      let restarted = Promise.resolve()
      relay.arm(pieces, () => {
        restarted = server()
          .stop('immediate')
          .then(async () => await server().start())
      })
      const ending = await runHere(relay.url)
      await restarted
      return ending
    }
    let source: DataSource | undefined
    const dataSource = async (): Promise<DataSource> => {
      source ??= await withUniqueText(
        new Source({ type: 'postgres', url: server().url, entities: [Page] }),
      ).initialize()
      return source
    }
    const campaign = {
      url: server().url,
      relay,
      random,
      client: async () => await server().client(),
      dataSource,
      strike,
    }
    try {
      for (let left = 6; left > 0;) left -= await adoptUnderFire(campaign, left)
    } finally {
      await source?.destroy()
      await relay.close()
    }
  }, 1_200_000)
})
