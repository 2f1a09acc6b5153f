import { DataSource } from 'typeorm'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany } from '../../../src'
import { type Pair, startPair, wholePostgres } from '../../support/debian-postgres'
import { type Proxy, startProxy } from '../../support/proxy'
import { Page } from '../../support/titled-page'

const bin = wholePostgres()
const PATIENCE = { timeout: 180_000 }

/** Two servers are needed that replicate; those from npm have no pg_basebackup. */
describe.skipIf(bin === undefined)('fail-over to a promoted standby (needs a Postgres of Debian)', PATIENCE, () => {
  let pair: Pair
  let proxy: Proxy
  let dataSource: DataSource

  beforeAll(async () => {
    pair = await startPair(bin ?? '')
    proxy = await startProxy(pair.primaryUrl)
    dataSource = new DataSource({ type: 'postgres', url: proxy.url, entities: [Page], synchronize: true, poolSize: 4 })
    await dataSource.initialize()
  }, PATIENCE.timeout)
  afterAll(async () => {
    await dataSource?.destroy()
    await proxy?.close()
    await pair?.remove()
  }, PATIENCE.timeout)

  test('one DataSource goes on, nothing acknowledged is lost, and a repeated call creates nothing twice', async () => {
    const { manager } = dataSource
    const texts = Array.from({ length: 400 }, (_, index) => ({ url: `page ${index}` }))
    const ids = new Map<string, number>()
    const calls = texts.map(async (values, index) => {
      const { entity } = await findOrCreate(manager, Page, values)
      ids.set(entity.url, entity.id)
      if (index === 100) await pair.stopPrimary()
    })
    const outcomes = await Promise.allSettled(calls)
    expect(outcomes.some(({ status }) => status === 'rejected')).toBe(true)
    expect(ids.size).toBeGreaterThan(0)

    await pair.promote()
    proxy.cutAll()
    proxy.leadTo(pair.standbyUrl)
    const [url = '', id] = [...ids][0] ?? []
    expect(await findOneByText(manager, Page, { url })).toMatchObject({ id })
    const results = await findOrCreateMany(manager, Page, texts)
    const found = new Map(
      results.flatMap((result) => ('entity' in result ? [[result.entity.url, result.entity.id]] : [])),
    )
    expect([...ids].filter(([acknowledged, its]) => found.get(acknowledged) !== its)).toEqual([])
    expect(await manager.count(Page)).toBe(400)
  })
})
