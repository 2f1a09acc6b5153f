import { createHash } from 'node:crypto'
import type { Digest } from '../../src/text/digest'

/** MD5 cut to its first hex digits: with one or two of them, collisions are everywhere. */
export function cutDigest(hexDigits: number): Digest {
  const cut = (hex: string): string => hex.slice(0, hexDigits).padEnd(32, '0')
  return {
    name: `cut${hexDigits}`,
    type: 'uuid',
    js: (text) => cut(createHash('md5').update(text, 'utf8').digest('hex')),
    sql: (expression) =>
      `pg_catalog.rpad(pg_catalog.left(pg_catalog.md5(${expression}), ${hexDigits}), 32, '0')::pg_catalog.uuid`,
  }
}

/** Every text has the same hash: one chain for all. */
export const oneHash: Digest = cutDigest(0)
