import { type Bench, compare, type Comparison, findOrCreate, md5, milliseconds, Page } from './support'

/** The SQL of `findOrCreate` for this entity, written by hand, for the raw driver. */
const FIND_OR_CREATE = `
  WITH found AS (SELECT t."id", t."url", t."title" FROM "page" AS t WHERE t."urlHash" = $2 AND t."url" = $1::text),
  created AS (INSERT INTO "page" AS t ("url", "urlHash") SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM found)
              ON CONFLICT DO NOTHING RETURNING t."id", t."url", t."title")
  SELECT false AS created, found.* FROM found UNION ALL SELECT true, created.* FROM created`

/** One after the other, as a request handler would. `microseconds` per operation. */
export async function single(bench: Bench, rounds: number, operations: number): Promise<Comparison[]> {
  const { pool, dataSource } = bench
  const raw = async (text: string): Promise<void> => {
    await pool.query({ name: 'raw_find_or_create', text: FIND_OR_CREATE, values: [text, md5(text)] })
  }
  const ours = async (text: string): Promise<void> => {
    await findOrCreate(dataSource.manager, Page, { url: text })
  }
  const each = async (one: (text: string) => Promise<void>, text: (index: number) => string): Promise<number> => {
    const total = await milliseconds(async () => {
      for (let index = 0; index < operations; index += 1) await one(text(index))
    })
    return (total * 1_000) / operations
  }
  const page = (prefix: string) => (index: number) =>
    `https://example.com/${prefix}/some/longer/path/${index}?q=${index}`
  for (let index = 0; index < operations; index += 1) await ours(page('known')(index))
  await pool.query('VACUUM ANALYZE page')
  return [
    await compare('findOrCreate, hit', 'µs', rounds, {
      peer: () => each(raw, page('known')),
      ours: () => each(ours, page('known')),
    }),
    await compare('findOrCreate, miss', 'µs', rounds, {
      peer: (round) => each(raw, page(`raw${round}`)),
      ours: (round) => each(ours, page(`ours${round}`)),
    }),
  ]
}
