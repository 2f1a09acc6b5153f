import { type Bench, compare, type Comparison, md5, milliseconds, url } from './support'
import { importAll } from './import'

const BATCH_ROWS = 1_000

/** The same table's rows by hand: hashes made by the client, batches sorted by hash, a named statement. */
const INSERT = `
  INSERT INTO "normalized_page" ("url", "urlHash") SELECT * FROM unnest($1::text[], $2::uuid[])
  ON CONFLICT ("urlHash", "urlHashNumber") DO NOTHING`

/** Seconds for the whole list, into an empty table. Both begin with the file's lines. */
export async function bulk(bench: Bench, rounds: number, lines: readonly string[]): Promise<Comparison[]> {
  const { pool, dataSource } = bench
  const normalize = url().normalize
  const texts = lines.flatMap((line) => {
    try {
      return [normalize(line)]
    } catch {
      return []
    }
  })
  const fresh = async (work: () => Promise<void>): Promise<number> => {
    await pool.query('TRUNCATE normalized_page RESTART IDENTITY')
    await pool.query('CHECKPOINT')
    return (await milliseconds(work)) / 1_000
  }
  const raw = async (): Promise<void> => {
    for (let start = 0; start < texts.length; start += BATCH_ROWS) {
      const rows = texts.slice(start, start + BATCH_ROWS).map((text) => [text, md5(text)] as const)
      rows.sort(([, left], [, right]) => (left < right ? -1 : 1))
      const values = [rows.map(([text]) => text), rows.map(([, hash]) => hash)]
      await pool.query({ name: 'raw_bulk', text: INSERT, values })
    }
  }
  const ours = async (): Promise<void> => {
    await importAll(dataSource, 'NormalizedPage', lines)
  }
  const first = await compare(`import of ${lines.length} new URLs`, 's', rounds, {
    peer: () => fresh(raw),
    ours: () => fresh(ours),
  })
  const again = await compare(`import of ${lines.length} known URLs`, 's', rounds, {
    peer: async () => (await milliseconds(raw)) / 1_000,
    ours: async () => (await milliseconds(ours)) / 1_000,
  })
  return [first, again]
}
