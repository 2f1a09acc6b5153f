import { randomBytes } from 'node:crypto'
import type { Client } from 'pg'
import type { DataSource } from 'typeorm'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany } from '../../../src'
import { useFaultServer } from '../../support/fault-server'
import { driverError, expectAtRest, FAULT_ROUNDS, openDataSource, openLedger, Page } from '../../support/ledger'
import { limitedFiles, mountTmpfs, type SmallDisk } from '../../support/small-disk'

const tmpfs = mountTmpfs()
// Registered first, so that it runs last: when the server is gone.
afterAll(async () => await tmpfs?.remove())
// Where nothing can be mounted, the limit alone fills the disk; where something can, both do.
const disks = tmpfs ? [tmpfs, limitedFiles()] : [limitedFiles()]
const rounds = Array.from({ length: FAULT_ROUNDS }, (_, round) => round + 1)

const MEGABYTE = 2 ** 20
/** A segment of the server's log; a limit below would end the server at once. */
const LOG_SEGMENT_BYTES = 16 * MEGABYTE

const longText = (): string => randomBytes(1_500).toString('hex')

describe.each(disks)('a disk that is full ($name)', (disk: SmallDisk) => {
  const ledger = openLedger(`, ${disk.name}`)
  const server = useFaultServer({
    ...(disk.parent === undefined ? {} : { parent: disk.parent }),
    settings: { min_wal_size: '32MB', max_wal_size: '48MB' },
  })
  let dataSource: DataSource
  let observer: Client

  beforeAll(async () => {
    dataSource = await openDataSource(server().url, { poolSize: 6 })
    observer = await server().client()
    // Long texts go to a file of their own; grown beyond a log segment, it is the first to reach a limit.
    await observer.query('alter table page alter url set storage external')
    await observer.query(`insert into page (url) select i || repeat('x', 3000) from generate_series(1, 7000) as i`)
  })

  const textFileBytes = async (): Promise<number> => {
    const { rows } = await observer.query<{ bytes: string }>(
      `select pg_relation_size(reltoastrelid) as bytes from pg_class where oid = 'page'::regclass`,
    )
    return Number(rows[0]?.bytes)
  }

  const single = async (): Promise<void> => {
    ledger.acknowledge(Page, (await findOrCreate(dataSource.manager, Page, { url: longText() })).entity)
  }
  const bulk = async (): Promise<void> => {
    const inputs = Array.from({ length: 20 }, () => ({ url: longText() }))
    for (const result of await findOrCreateMany(dataSource.manager, Page, inputs)) {
      if ('error' in result) throw result.error
      ledger.acknowledge(Page, result.entity)
    }
  }
  const inTransaction = async (): Promise<void> => {
    const { entity } = await dataSource.transaction(
      async (manager) => await findOrCreate(manager, Page, { url: longText() }),
    )
    ledger.acknowledge(Page, entity)
  }

  const untilRefused = async (work: () => Promise<void>): Promise<unknown> => {
    for (;;) {
      try {
        await work()
      } catch (error) {
        return error
      }
    }
  }

  test.each(rounds)(
    'refuses with the code of a full disk, has lost nothing, finds what is there, and goes on (round %i)',
    async () => {
      const { entity } = await findOrCreate(dataSource.manager, Page, { url: `before ${longText()}` })
      ledger.acknowledge(Page, entity)
      const fileBytes = await textFileBytes()
      expect(fileBytes).toBeGreaterThan(LOG_SEGMENT_BYTES)
      // The log goes on in a new segment, which has room for what the table has not.
      await observer.query('select pg_switch_wal()')
      await observer.query('checkpoint')
      await disk.fill(server(), { fileBytes, moreBytes: MEGABYTE })
      const errors = await Promise.all([single, single, bulk, bulk, inTransaction].map(untilRefused))
      ledger.fault(errors.length)
      for (const error of errors) expect(driverError(error)).toMatch(disk.sqlstate)
      expect(await findOneByText(dataSource.manager, Page, { url: entity.url })).toEqual(entity)
      await expectAtRest(dataSource, observer)

      await disk.free(server())
      for (const work of [single, bulk, inTransaction]) await work()
      await expectAtRest(dataSource, observer)
      await ledger.check(dataSource, observer)
    },
  )

  test('ends the server where its log cannot be written; started with room again, it has lost nothing', async () => {
    await disk.fill(server(), { fileBytes: MEGABYTE, moreBytes: 0 })
    // Takes up the log segments that are there, until one must be made.
    const untilTheEnd = untilRefused(async () => void (await observer.query('select pg_switch_wal()')))
    const errors = await Promise.all([single, bulk, inTransaction].map(untilRefused))
    ledger.fault(errors.length)
    await untilTheEnd
    for (const error of errors) {
      expect(driverError(error)).toMatch(
        /^(?:53100|57P0[123]|58030|XX000|Connection terminated|ECONN|EPIPE|Client has)/,
      )
    }
    expect(server().log()).toContain('PANIC')

    // Whether it has ended or goes round and round between recovery and the next PANIC is its own affair.
    await server().stop('immediate')
    await disk.free(server())
    await server().start()
    observer = await server().client()
    for (const work of [single, bulk, inTransaction]) await work()
    await expectAtRest(dataSource, observer)
    await ledger.check(dataSource, observer)
  })
})
