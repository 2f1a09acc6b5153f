import path from 'node:path'
import type { Client } from 'pg'
import { Column, DataSource, type DataSourceOptions, Entity, PrimaryGeneratedColumn, QueryFailedError } from 'typeorm'
import { afterAll, expect, vi } from 'vitest'
import { UniqueText, UniqueTextError } from '../../src'
import { tableName } from '../../src/sql/text-table'
import { quote } from '../../src/sql/identifier'
import { textsOfEntity } from '../../src/registry/registry'
import { fewHashes } from './digests'
import { violations } from './guarded-table'

/** A text as users have them: no two share a hash. */
@Entity()
export class Page {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

/** 256 hashes for everything, so that the guard's slow path is at work all the time. */
@Entity()
export class Note {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ digest: fewHashes(256) }) url!: string
}

export type Stored = typeof Page | typeof Note

/** How often each random fault is repeated; the default keeps the folder under 90 seconds. */
export const FAULT_ROUNDS = Number(process.env['FAULT_ROUNDS'] ?? 1)

const opened: DataSource[] = []

afterAll(() => Promise.all(opened.map(async (dataSource) => dataSource.isInitialized && (await dataSource.destroy()))))

type PostgresOptions = Extract<DataSourceOptions, { type: 'postgres' }>

/** An initialised DataSource with both entities. Destroyed after the file's tests. */
export async function openDataSource(
  url: string,
  { poolSize = 8, ...options }: Partial<Omit<PostgresOptions, 'type'>> = {},
): Promise<DataSource> {
  const dataSource = new DataSource({
    type: 'postgres',
    url,
    poolSize,
    entities: [Page, Note],
    synchronize: true,
    applicationName: APPLICATION,
    ...options,
  })
  opened.push(dataSource)
  return await dataSource.initialize()
}

const APPLICATION = 'unique-text-faults'

interface Pool {
  readonly totalCount: number
  readonly idleCount: number
  readonly waitingCount: number
}

export function poolOf({ driver }: DataSource): Pool {
  return (driver as unknown as { master: Pool }).master
}

/**
 * No connection leaks, and none came back in a transaction: awaited, since a backend that was cut off notices it only
 * when it writes.
 */
export async function expectAtRest(dataSource: DataSource, observer: Pick<Client, 'query'>): Promise<void> {
  const { totalCount, idleCount, waitingCount } = poolOf(dataSource)
  expect({ waitingCount, inUse: totalCount - idleCount }).toEqual({ waitingCount: 0, inUse: 0 })
  await vi.waitFor(async () => {
    const { rows } = await observer.query(
      `select state, query from pg_stat_activity where application_name = $1 and state <> 'idle'`,
      [APPLICATION],
    )
    expect(rows).toEqual([])
  }, 10_000)
}

/**
 * Gives the code of an error of the driver, or its message where it has none. It comes as TypeORM's own QueryFailedError,
 * as from every TypeORM call, unless there was no connection to send a query on.
 */
export function driverError(error: unknown): string {
  expect(error).toBeInstanceOf(Error)
  expect(error).not.toBeInstanceOf(UniqueTextError)
  const { code, message } = (error instanceof QueryFailedError ? error.driverError : error) as Error & { code?: string }
  return code ?? message
}

/** What a promise was rejected with; a call that must fail and did not is a fault of the test. */
export async function rejection(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise
  } catch (error) {
    return error
  }
  throw new Error('It did not fail.')
}

/** What the database has promised: every text whose call resolved, with its id. */
export interface Ledger {
  /** Faults injected; the test says so. */
  readonly fault: (count?: number) => void
  readonly acknowledge: (entity: Stored, row: { readonly id: number; readonly url: string }) => void
  readonly acknowledged: () => number
  /** Compares with what is stored: throws for a promise that is broken, and for a text stored twice. */
  readonly check: (dataSource: DataSource, client: Client) => Promise<void>
}

/** One for each server; prints the counts in one line after the tests. */
export function openLedger(of = ''): Ledger {
  const promised = new Map<Stored, Map<string, number>>([
    [Page, new Map()],
    [Note, new Map()],
  ])
  const count = { faults: 0, acknowledged: 0, lost: 0, doubled: 0 }
  const file = path.basename(expect.getState().testPath ?? '')
  afterAll(() => {
    console.log(
      `${file}${of}: ${count.faults} faults injected, ${count.acknowledged} texts acknowledged, ` +
        `${count.lost} lost, ${count.doubled} doubled`,
    )
  })
  return {
    fault: (more = 1) => {
      count.faults += more
    },
    acknowledge: (entity, { id, url }) => {
      const ids = promised.get(entity)
      const before = ids?.get(url)
      // Two callers of one text must have got the same row.
      if (before !== undefined && before !== id) count.doubled += 1
      count.acknowledged += 1
      ids?.set(url, id)
    },
    acknowledged: () => count.acknowledged,
    check: async (dataSource, client) => {
      for (const [entity, ids] of promised) {
        const [declaration] = textsOfEntity(dataSource.getMetadata(entity))
        if (!declaration) throw new TypeError('Both entities declare a text.')
        const { rows } = await client.query<{ id: number; url: string }>(
          `select id, ${quote('url')} as url from ${tableName(declaration.table)}`,
        )
        const stored = new Map(rows.map(({ id, url }) => [url, id]))
        count.lost += [...ids].filter(([url, id]) => stored.get(url) !== id).length
        count.doubled += rows.length - stored.size
        expect(await violations(client, declaration.table)).toEqual([])
      }
      expect(count).toMatchObject({ lost: 0, doubled: 0 })
    },
  }
}
