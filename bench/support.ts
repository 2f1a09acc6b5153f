import 'reflect-metadata'
import { createHash } from 'node:crypto'
import { createRequire } from 'node:module'
import path from 'node:path'
import { Pool } from 'pg'
import { Column, DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { startEmbeddedPostgres } from '../scripts/embedded-postgres'

/** The built package: what is measured is what is shipped. */
const load = createRequire(__filename)
const dist = path.resolve(__dirname, '../dist')
export const { findOneByText, findOrCreate, findOrCreateMany, UniqueText, withUniqueText } = load(
  dist,
) as typeof import('../src')
export const { url } = load(path.join(dist, 'text')) as typeof import('../src/text')
export const { findOrCreateStream } = load(path.join(dist, 'stream')) as typeof import('../src/stream')
export const { parseUrl, Url } = load(path.join(dist, 'url')) as typeof import('../src/url')
export type { UniqueTextDataSourceOptions, UniqueTextPropertyOptions } from '../src'

@Entity('page')
export class Page {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

@Entity('normalized_page')
export class NormalizedPage {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ normalize: url() }) url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

/** Our DataSource and a raw pool on the same server, each with the same number of connections. */
export interface Bench {
  readonly dataSource: DataSource
  readonly pool: Pool
  readonly url: string
  readonly server: string
  stop(): Promise<void>
}

/** BENCH_DATABASE_URL, or a server of our own with the settings that Postgres ships. */
export async function startBench(): Promise<Bench> {
  const given = process.env['BENCH_DATABASE_URL']
  const own = given ? undefined : await startEmbeddedPostgres()
  const connection = given ?? own?.url ?? ''
  const dataSource = await withUniqueText(
    new DataSource({
      type: 'postgres',
      url: connection,
      entities: [Page, NormalizedPage],
      synchronize: true,
      poolSize: 4,
    }),
  ).initialize()
  const pool = new Pool({ connectionString: connection, max: 4 })
  // The server of our own is stopped while the pool still closes.
  pool.on('error', () => {})
  const { rows } = await pool.query<{ version: string }>(`select split_part(version(), ' on ', 1) as version`)
  return {
    dataSource,
    pool,
    url: connection,
    server: rows[0]?.version ?? '',
    stop: async () => {
      await dataSource.destroy()
      await pool.end()
      await own?.stop()
    },
  }
}

export const md5 = (text: string): string => createHash('md5').update(text, 'utf8').digest('hex')

export async function milliseconds(work: () => Promise<unknown>): Promise<number> {
  const started = performance.now()
  await work()
  return performance.now() - started
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((left, right) => left - right)
  const middle = sorted.length / 2
  return ((sorted[Math.floor(middle)] ?? Number.NaN) + (sorted[Math.ceil(middle) - 1] ?? Number.NaN)) / 2
}
