import { createHash } from 'node:crypto'
import { domainToASCII } from 'node:url'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { asciiDomain } from '../../../src/text/safe-url'

/** Every code point, alone and among letters, as what the domain becomes. */
function everyCodePoint(): [string, string | undefined][] {
  const points = Array.from({ length: 0x110000 - 0x80 }, (_, index) => String.fromCodePoint(index + 0x80))
  return points.flatMap((point) =>
    [point, `a${point}é`].map((domain): [string, string | undefined] => [domain, asciiDomain(domain)]),
  )
}

test('a domain of any code point becomes the same on every supported Node.js, and what new URL makes of it', () => {
  const taken = everyCodePoint().filter(([, ascii]) => ascii !== undefined)
  expect(taken.length).toBe(88_781)
  const digest = createHash('sha256')
    .update(taken.map((pair) => pair.join(' ')).join('\n'), 'utf8')
    .digest('hex')
  // The same on Node.js 20.19, 22.13, 24.11, 24.21 and 26.10.
  expect(digest).toBe('f706b262c657b2c2aee41ece7da79fdabb78934122de5c234496c2479a7dbe8e')
  // Node.js 20 and 22 know no `Ӏ`, and make `ss` of `ẞ`.
  const others = taken.filter(
    ([domain, ascii]) => !/[ẞӀ]/.test(domain) && new URL(`http://${domain}/`).hostname !== ascii,
  )
  expect(others).toEqual([])
})

const piece = fc.constantFrom(
  ...'a b 1 - . _ xn-- xn--a xn--9ca é e\u0301 \u0323 ß ẞ ς Σ İ ı ﬁ ẘ א ב \u05b0 ع ١ 日 か\u3099 한 ㅎ ् 。 ． Ａ １ ❤ \ufe0f \u200d \u00ad ة'.split(
    ' ',
  ),
)
const domainLike = fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join(''))

test('it is idempotent, and new URL leaves alone what it gives', () => {
  fc.assert(
    fc.property(domainLike, (domain) => {
      const ascii = asciiDomain(domain)
      fc.pre(ascii !== undefined)
      expect(asciiDomain(ascii)).toBe(ascii)
      expect(new URL(`http://${ascii}/`).hostname).toBe(ascii)
    }),
    { numRuns: 5_000 },
  )
})

test('canonically equivalent domains are one', () => {
  fc.assert(
    fc.property(domainLike, (domain) => {
      expect(asciiDomain(domain.normalize('NFD'))).toBe(asciiDomain(domain.normalize('NFC')))
    }),
    { numRuns: 5_000 },
  )
})

test('the last Σ is a σ, as in a URL', () => {
  expect(asciiDomain('ΑΣ')).toBe(new URL('http://ΑΣ/').hostname)
  expect(asciiDomain('ΑΣ')).not.toBe(asciiDomain('ας'))
})

test('what the engines may not treat alike is refused in Punycode too', () => {
  // U+1FAE0 came with Unicode 14.
  expect(domainToASCII('\u{1FAE0}')).toBe('xn--129h')
  expect(asciiDomain('\u{1FAE0}.example')).toBeUndefined()
  expect(asciiDomain('xn--129h.example')).toBeUndefined()
})

test('a domain of more than 1,024 characters is refused, whatever it would become', () => {
  const heart = (length: number): string => '❤'.padEnd(length, '\uFE0F')
  expect(asciiDomain(heart(1_024))).toBe('xn--qei')
  expect(asciiDomain(heart(1_025))).toBeUndefined()
})

test('a domain of more than 256 characters is refused before it is encoded', () => {
  const label = 'é'.repeat(40)
  expect(asciiDomain(`${label}.${label}`)).toMatch(/^xn--/)
  expect(asciiDomain(Array(3).fill(label).join('.'))).toMatch(/^xn--/)
  expect(asciiDomain(Array(7).fill(label).join('.'))).toBeUndefined()
  // Fewer characters, which become more.
  expect(asciiDomain(Array(6).fill(label).join('.'))).toBeUndefined()
  expect(asciiDomain('a'.repeat(256))).toBe('a'.repeat(256))
  expect(asciiDomain('a'.repeat(257))).toBeUndefined()
  expect(asciiDomain('e\u0323\u0302'.repeat(40))).toMatch(/^xn--/)
  // Punycode would take hours.
  expect(asciiDomain('é'.repeat(8_000_000))).toBeUndefined()
})
