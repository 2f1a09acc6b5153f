/** Calls `findOrCreateMany` once and holds the results; started by memory.ts. */
import { DataSource } from 'typeorm'
import { findOrCreateMany, Page, withUniqueText } from './support'

async function main(): Promise<void> {
  const count = Number(process.argv[2])
  const url = process.env['BENCH_DATABASE_URL'] ?? ''
  const options = { type: 'postgres', url, synchronize: true } as const
  const dataSource = await withUniqueText(new DataSource({ ...options, entities: [Page] })).initialize()
  const rows = Array.from({ length: count }, (_, at) => ({
    url: `https://example.com/memory/of/results/${at}?page=${at}`,
  }))
  const results = await findOrCreateMany(dataSource.manager, Page, rows)
  if (results.length !== count) throw new Error(`${results.length} results`)
  await dataSource.destroy()
}

void main()
