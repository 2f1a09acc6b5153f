import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { digests, md5, sha256 } from '../../../src/text/digest'

test('md5 is the MD5 of the UTF-8 (RFC 1321 A.5), in 32 hex digits', () => {
  expect(md5.js('')).toBe('d41d8cd98f00b204e9800998ecf8427e')
  expect(md5.js('message digest')).toBe('f96b697d7cb7938d525a2f31aaf161d0')
  expect(md5.js('é日😀')).toBe('ead29fc5896858534e01df248386f928')
})

test('sha256 is the SHA-256 of the UTF-8 (FIPS 180-2 B.1) as a literal of bytea', () => {
  expect(sha256.js('abc')).toBe('\\xba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad')
})

test('two published texts have equal MD5 and different SHA-256', () => {
  const [a, b] = ['A', 'E'].map((x) => `TEXTCOLLBYfGiJUETHQ4h${x}cKSMd5zYpgqf1YRDhkmxHkhPWptrkoyz28wnI9V0aHeAuaKnak`)
  expect(a).not.toBe(b)
  expect(md5.js(a ?? '')).toBe('faad49866e9498fc1719f5289e7a0269')
  expect(md5.js(b ?? '')).toBe(md5.js(a ?? ''))
  expect(sha256.js(b ?? '')).not.toBe(sha256.js(a ?? ''))
})

test('the SQL names every function and type with its schema', () => {
  expect(md5.sql('"url"')).toBe('pg_catalog.md5("url")::pg_catalog.uuid')
  expect(sha256.sql('"url"')).toBe(`pg_catalog.sha256(pg_catalog.convert_to("url", 'UTF8'))`)
})

/** The bytes of a literal. */
function bytes(literal: string): Buffer {
  return Buffer.from(literal.replace('\\x', ''), 'hex')
}

test('literals sort as the bytes of the hashes do', () => {
  for (const digest of Object.values(digests)) {
    fc.assert(
      fc.property(fc.string(), fc.string(), (a, b) => {
        const [x, y] = [digest.js(a), digest.js(b)]
        expect(Math.sign(Buffer.compare(bytes(x), bytes(y)))).toBe(x < y ? -1 : x > y ? 1 : 0)
      }),
    )
  }
})

test('digests are found by their own names', () => {
  expect(Object.entries(digests).map(([name, digest]) => [name, digest.name, digest.type])).toEqual([
    ['md5', 'md5', 'uuid'],
    ['sha256', 'sha256', 'bytea'],
  ])
})
