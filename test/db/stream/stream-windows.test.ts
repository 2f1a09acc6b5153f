import { Client } from 'pg'
import { DataSource } from 'typeorm'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type EmbeddedServer, startEmbeddedPostgres } from '../../../scripts/embedded-postgres'
import { withUniqueText } from '../../../src'
import { findOrCreateStream } from '../../../src/stream'
import { Page } from '../../support/titled-page'

let server: EmbeddedServer
let dataSource: DataSource
beforeAll(async () => {
  // So small a cache that a table of a test's size outgrows it.
  server = await startEmbeddedPostgres({ settings: { shared_buffers: '1MB' } })
  dataSource = await withUniqueText(
    new DataSource({ type: 'postgres', url: server.url, entities: [Page], synchronize: true }),
  ).initialize()
  const client = new Client({ connectionString: server.url })
  await client.connect()
  await client.query(
    `insert into page (url, "urlHash") select u, md5(u)::uuid from (select 'old ' || n as u from generate_series(1, 30000) as n) as s`,
  )
  await client.end()
})
afterAll(async () => {
  await dataSource.destroy()
  await server.stop()
})

test('a stream into a table whose index asks for larger windows than the first one ends', async () => {
  const inputs = Array.from({ length: 5_000 }, (_, index) => ({ url: `new ${index}` }))
  const urls: unknown[] = []
  for await (const result of findOrCreateStream(dataSource, Page, inputs)) {
    urls.push('entity' in result && result.created && result.entity.url)
  }
  expect(urls).toEqual(inputs.map(({ url }) => url))
})
