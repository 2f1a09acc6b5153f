import { createHash } from 'node:crypto'
import type { Digest } from '../../src/text/digest'

/** MD5, of which only `count` values are left, at most 65,536: with a few of them, collisions are everywhere. */
export function fewHashes(count: number): Digest {
  return {
    name: `few${count}`,
    type: 'uuid',
    js: (text) => {
      const start = createHash('md5').update(text, 'utf8').digest('hex').slice(0, 4)
      return (Number.parseInt(start, 16) % count).toString(16).padStart(32, '0')
    },
    sql: (expression) =>
      `pg_catalog.lpad(pg_catalog.to_hex(('x' || pg_catalog.left(pg_catalog.md5(${expression}), 4))::bit(16)::integer ` +
      `% ${count}), 32, '0')::pg_catalog.uuid`,
  }
}

/** Every text has the same hash: one chain for all. */
export const oneHash: Digest = fewHashes(1)
