import type { Client } from 'pg'
import { Column, type DataSource, Entity, type Logger, PrimaryGeneratedColumn } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { findOrCreateMany, UniqueText } from '../../src'
import { useDatabase } from '../support/database'

const db = useDatabase()

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

/** A pool of one connection, and another connection to look at the database with. */
async function open(): Promise<{ dataSource: DataSource; observer: Client }> {
  const dataSource = await db.dataSource([Page], { dropSchema: true, extra: { max: 1 } })
  const observer = await db.client()
  await observer.query('ALTER TABLE page SET (autovacuum_enabled = false)')
  return { dataSource, observer }
}

/** Rows without statistics, as a bulk load leaves them. */
async function fill(observer: Client, rows: number): Promise<void> {
  await observer.query(
    `INSERT INTO page (url, "urlHash") SELECT url, md5(url)::uuid
     FROM generate_series(1, $1) AS n, LATERAL (SELECT 'http://example.com/' || n AS url)`,
    [rows],
  )
}

/** What is sent while `work` runs. */
async function sentBy(
  dataSource: DataSource,
  work: () => Promise<unknown>,
): Promise<{ sql: string; values: unknown[] }[]> {
  const sent: { sql: string; values: unknown[] }[] = []
  const { logger } = dataSource
  const spy: Logger = {
    logQuery: (sql, values) => void sent.push({ sql, values: values as unknown[] }),
    logQueryError() {},
    logQuerySlow() {},
    logSchemaBuild() {},
    logMigration() {},
    log() {},
  }
  Object.assign(dataSource, { logger: spy })
  await work()
  Object.assign(dataSource, { logger })
  return sent
}

describe('the plan of a table that was never analyzed', () => {
  test.each([20_000, 200_000])('of %i rows costs a batch too little for JIT', async (rows) => {
    const { dataSource, observer } = await open()
    await fill(observer, rows)
    const batch = Array.from({ length: 1_000 }, (_, index) => ({ url: `new ${index}` }))
    const sent = await sentBy(dataSource, async () => await findOrCreateMany(dataSource.manager, Page, batch))
    const { sql, values } = sent.find((one) => one.sql.startsWith('WITH input')) ?? { sql: '', values: [] }
    const explained = await observer.query<{ 'QUERY PLAN': [{ Plan: { 'Total Cost': number } }] }>(
      `EXPLAIN (FORMAT JSON) ${sql}`,
      values,
    )
    // Of `jit_above_cost`, 100,000 by default.
    expect(explained.rows[0]?.['QUERY PLAN'][0].Plan['Total Cost']).toBeLessThan(50_000)
  })
})
