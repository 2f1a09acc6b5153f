import { Client } from 'pg'
import type { DataSource } from 'typeorm'
import { beforeAll, expect, test } from 'vitest'
import { findOrCreate } from '../../../src'
import { doctor, type DoctorFinding } from '../../../src/doctor'
import { seededRandom, type Random } from '../../stress/random'
import { useDatabase } from '../../support/database'
import { Colliding, ENTITIES, fill, Page } from './entities'

const db = useDatabase()
const PATIENCE = { timeout: 120_000 }

const client = db.useClient()
let dataSource: DataSource
beforeAll(async () => {
  dataSource = await db.dataSource(ENTITIES, { poolSize: 25 })
  await fill(dataSource)
}, PATIENCE.timeout)

const errors = (findings: readonly DoctorFinding[]): readonly DoctorFinding[] =>
  findings.filter(({ severity }) => severity === 'error')

test('while others hold every lock but ACCESS SHARE away from it, it looks at everything', async () => {
  const tables = ['page', '"Colliding rows"', 'scoped', 'soft', 'person', '"user"', 'organization', 'comment', 'ticket']
  await client.query(`begin; lock table ${[...tables, 'names', 'urls', 'visit'].join(', ')} in exclusive mode`)
  try {
    const { healthy, tables: looked } = await doctor(dataSource, { batchRows: 4 })
    expect(healthy).toBe(true)
    expect(looked.length).toBe(11)
  } finally {
    await client.query('rollback')
  }
})

test('what it holds and asks for, in the midst of a look at a chain, is ACCESS SHARE on what is stored', async () => {
  const locks = await db.dataSource(ENTITIES, { synchronize: false, applicationName: 'the doctor' })
  const seen = new Set<string>()
  locks.subscribers.push({
    // The query runner waits for it; a look at several rows is a transaction, which keeps its locks.
    beforeQuery: async () => {
      const { rows } = await client.query<{ lock: string }>(
        `select mode as lock from pg_locks as l join pg_stat_activity as a using (pid)
            join pg_class as c on c.oid = l.relation
          where a.application_name = 'the doctor' and c.relnamespace <> 'pg_catalog'::regnamespace
            -- The functions of a temporary table are long: they are in the TOAST table of pg_proc.
            and c.relname not in ('pg_toast_1255', 'pg_toast_1255_index')`,
      )
      for (const { lock } of rows) seen.add(lock)
    },
  } as never)
  await doctor(locks, { entities: [Colliding] })
  expect([...seen]).toEqual(['AccessShareLock'])
})

const LETTERS = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']
const word = (random: Random): string => `${random.pick(LETTERS)}${random.pick(LETTERS)}`

/** Kinds of writes, by SQL and by the package, of a storm at few hashes. */
const WRITES: readonly ((random: Random) => string | Promise<unknown>)[] = [
  (random) => `insert into "Colliding rows" (text) values ('${word(random)}') on conflict do nothing`,
  (random) => `delete from "Colliding rows" where text = '${word(random)}'`,
  (random) => `update "Colliding rows" set text = '${word(random)}' where text = '${word(random)}'`,
  async (random) => await findOrCreate(dataSource.manager, Colliding, { text: word(random) }),
  async (random) => await findOrCreate(dataSource.manager, Page, { url: `http://${word(random)}/` }),
  (random) => `delete from page where url = 'http://${word(random)}/'`,
  (random) =>
    `with gone as (delete from page where url = 'http://${word(random)}/' returning url) insert into page (url) select url || 'x' from gone on conflict do nothing`,
  (random) => `insert into "user" (handle) values ('${word(random)}')`,
  (random) => `update "user" set handle = '${word(random)}' where handle = '${word(random)}'`,
  (random) => `delete from "user" where handle = '${word(random)}'`,
  (random) => `insert into comment (page) values ('${random.pick(LETTERS)}')`,
  (random) => `delete from comment where page = '${random.pick(LETTERS)}' and number % 3 = 1`,
  (random) =>
    `update comment set page = '${random.pick(LETTERS)}' where page = '${random.pick(LETTERS)}' and number = 2`,
  (random) => `insert into soft (text) values ('${word(random)}') on conflict do nothing`,
  (random) =>
    `update soft set "deletedAt" = case when "deletedAt" is null then now() end where text = '${word(random)}'`,
]

/** What racing writers lose by; a deadlock of two statements over several rows included. */
const USUAL = new Set(['23505', '40001', '40P01'])

test('a storm of writers gives no false finding', PATIENCE, async () => {
  const writers = await Promise.all(
    Array.from({ length: 20 }, async () => {
      const one = new Client({ connectionString: db.url })
      await one.connect()
      return one
    }),
  )
  const operations = Array.from({ length: 3_000 }, (_, index) => index)
  let looks = 0
  const write = async (writer: Client, index: number): Promise<void> => {
    const random = seededRandom(index)
    while (operations.pop() !== undefined) {
      const sql = random.pick(WRITES)(random)
      await (typeof sql === 'string' ? writer.query(sql) : sql).catch((error: unknown) => {
        const { code, driverError } = error as { code?: string; driverError?: { code?: string } }
        if (!USUAL.has(driverError?.code ?? code ?? '')) throw error
      })
    }
  }
  const look = async (): Promise<void> => {
    while (operations.length > 0 || looks < 3) {
      const { findings } = await doctor(dataSource, { batchRows: 13 })
      expect(errors(findings)).toEqual([])
      looks++
    }
  }
  try {
    await Promise.all([look(), ...writers.map(write)])
  } finally {
    await Promise.all(writers.map(async (writer) => await writer.end()))
  }
  expect(looks).toBeGreaterThan(2)
})

test('a row that leaves and comes again during the look is not twice', async () => {
  const url = 'http://example.com/5'
  const statements: string[] = []
  let moved = false
  const watched = await db.dataSource(ENTITIES, { synchronize: false })
  watched.subscribers.push({
    afterQuery: async ({ query, rawResults }: { query: string; rawResults: unknown }) => {
      statements.push(query)
      if (moved || !JSON.stringify(rawResults ?? []).includes(url)) return
      moved = true
      await client.query(`delete from page where url = '${url}'`)
      await client.query(`insert into page (url) values ('${url}')`)
    },
  } as never)
  const report = await doctor(watched, { entities: [Page], batchRows: 2 })
  expect(errors(report.findings)).toEqual([])
  // Both rows were read, and looked at once more.
  expect(statements.filter((sql) => sql.includes('ISOLATION LEVEL'))).toHaveLength(1)
})

test('a signal ends it between two statements', async () => {
  const controller = new AbortController()
  const asked = doctor(dataSource, {
    signal: controller.signal,
    onProgress: () => controller.abort(new Error('enough')),
  })
  await expect(asked).rejects.toThrow('enough')
  expect((await doctor(dataSource, { entities: [Page] })).tables).toHaveLength(1)
})
