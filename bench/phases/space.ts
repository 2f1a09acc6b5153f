import type { Pool } from 'pg'
import { type Bench, callers, peersWith } from '../measure'
import type { Peer } from '../peer'
import type { Facts, Phase } from '../phase'
import { parseUrl, url } from '../support'

const HERD_CALLERS = 32

type Asking = Peer & Required<Pick<Peer, 'findOrCreate'>>

/** Bytes of table and indexes, and ids that no row has. */
export const space: Phase = {
  name: 'space',
  run: async (bench) => {
    const { admin } = bench.server
    const { calls } = bench.settings
    const texts = realUrls(bench)
    const length = texts.reduce((sum, text) => sum + text.length, 0) / texts.length
    const rows: Facts['rows'][number][] = []
    for (const peer of peersWith(bench, 'findOrCreate')) {
      bench.say(`space: ${peer.name} …`)
      rows.push({ name: peer.name, values: [...(await bytes(admin, peer, texts)), ...(await burned(bench, peer))] })
    }
    const title = `bytes a row of ${texts.length} real URLs of ${length.toFixed(0)} characters; ids burned`
    const columns = ['table', 'indexes', `${calls} hits`, `${calls} misses`, `${HERD_CALLERS} callers, one new text`]
    return [{ kind: 'facts', phase: 'space', title, columns, rows }]
  },
}

/** Those that every peer can store. */
function realUrls({ settings }: Bench): readonly string[] {
  const all = settings.lines.filter((line) => line.length < 2_000 && parseUrl(line) !== null)
  return [...new Set(all.map((line) => url().normalize(line)))].slice(0, settings.bulkRows)
}

async function bytes(admin: Pool, peer: Asking, texts: readonly string[]): Promise<readonly number[]> {
  const { table } = peer
  await admin.query(`TRUNCATE ${table} RESTART IDENTITY`)
  await peer.fill(texts)
  await admin.query(`VACUUM ANALYZE ${table}`)
  const { rows } = await admin.query<{ heap: number; indexes: number }>(
    'SELECT pg_table_size($1)::float8 AS heap, pg_indexes_size($1)::float8 AS indexes',
    [table],
  )
  const [{ heap, indexes } = { heap: 0, indexes: 0 }] = rows
  return [heap, indexes].map((size) => Math.round(size / texts.length))
}

/** Beyond one for each row. */
async function burned(bench: Bench, peer: Asking): Promise<readonly number[]> {
  const { admin } = bench.server
  const { calls } = bench.settings
  const count = async (texts: readonly string[], callerCount: number, rows: number): Promise<number> => {
    const before = await lastId(admin, peer.table)
    await callers(callerCount, texts, peer.findOrCreate)
    return (await lastId(admin, peer.table)) - before - rows
  }
  const texts = Array.from({ length: calls }, bench.fresh)
  const misses = await count(texts, 1, calls)
  const hits = await count(texts, 1, 0)
  const herd = await count(Array<string>(HERD_CALLERS).fill(bench.fresh()), HERD_CALLERS, 1)
  return [hits, misses, herd]
}

async function lastId(admin: Pool, table: string): Promise<number> {
  const { rows } = await admin.query<{ last: number | null }>(
    `SELECT pg_sequence_last_value(pg_get_serial_sequence($1, 'id'))::float8 AS last`,
    [table],
  )
  return rows[0]?.last ?? 0
}
