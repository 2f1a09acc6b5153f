import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { isNormalUrl, safeUrlOfAny } from '../../../src/text/safe-url'
import { anyString, urlLike } from './arbitraries'
import { realUrls } from './real-urls'
import { unlessRefused } from './unless-refused'

/** It takes the short way, and the long way would give another text or refuse it. */
const isWrong = (text: string): boolean => isNormalUrl(text) && unlessRefused(() => safeUrlOfAny(text)) !== text

const ASCII = Array.from({ length: 129 }, (_, unit) => String.fromCharCode(unit))
const PARTS: readonly (readonly [string, string])[] = [
  ['http', '://a/'],
  ['http:/', '/a/'],
  ['http://', '/'],
  ['http://a', '/'],
  ['http://a.', '/'],
  ['http://a', 'b.c/'],
  ['https://a', ''],
  ['https://a/', ''],
  ['https://a/b', '/c'],
  ['https://a/?', ''],
  ['https://a/?b', '#c'],
  ['https://a/#', ''],
  ['https://a/b#c', 'd'],
]

test('every one, two and three ASCII characters at every place are as the long way has them', () => {
  const wrong: string[] = []
  const special = ASCII.filter((one) => !/[b-wyB-WY2-9]/.test(one))
  for (const [before, after] of PARTS) {
    for (const first of ASCII) {
      for (const second of ['', ...ASCII]) wrong.push(...[before + first + second + after].filter(isWrong))
    }
    for (const first of special) {
      for (const second of special) {
        for (const third of special) wrong.push(...[before + first + second + third + after].filter(isWrong))
      }
    }
  }
  expect(wrong).toEqual([])
})

test('so is every triplet, in every spelling and every part', () => {
  const digits = Array.from('0123456789abcdefABCDEFg%')
  const triplets = digits.flatMap((high) => digits.map((low) => `%${high}${low}`))
  const texts = PARTS.flatMap(([before, after]) =>
    triplets.flatMap((one) => [before + one + after, `${before}%${one}${after}`, `${before}%3${one}1${after}`]),
  )
  expect(texts.filter(isWrong)).toEqual([])
})

const hostPiece = fc.constantFrom(
  ...'a z 0 1 127 255 256 0x 0x1 1e x xn-- xn -- - . .. com org A _ é % @ : :80 [::1] 。 ß 08 ffff'.split(' '),
)
const pathPiece = fc.constantFrom(
  ...'a Z 0 _ - ~ . .. / // /. /.. /.a /a. %2E %2F %41 %7E %e9 %E9 % %3 ^ | [ ] { } \\ " < > ` \' ! $ & ( ) * + , ; = : @ ? #'.split(
    ' ',
  ),
)
const nearlyNormal = fc
  .tuple(
    fc.constantFrom('http://', 'https://', 'http:///', 'Http://', 'ftp://'),
    fc.array(hostPiece, { maxLength: 6 }),
    fc.constantFrom('/', '', '?', '#'),
    fc.array(pathPiece, { maxLength: 10 }),
  )
  .map(([scheme, host, delimiter, rest]) => scheme + host.join('') + delimiter + rest.join(''))

test('so is any text', () => {
  const any = fc.oneof({ weight: 3, arbitrary: nearlyNormal }, urlLike, anyString)
  fc.assert(
    fc.property(any, (text) => {
      expect(isWrong(text)).toBe(false)
    }),
    { numRuns: 20_000 },
  )
})

test('so are hosts and labels of every length', () => {
  const lengths = Array.from({ length: 300 }, (_, length) => length)
  const texts = lengths.flatMap((length) => [`http://${'a'.repeat(length)}/`, `http://a.${'b.'.repeat(length)}c/`])
  expect(texts.filter(isWrong)).toEqual([])
})

test('nearly every real URL that is normal is recognized, and no other', () => {
  const urls = realUrls()
  expect(urls.filter(isWrong)).toEqual([])
  const normal = new Set(urls.flatMap((text) => unlessRefused(() => safeUrlOfAny(text)) ?? []))
  const missed = [...normal].filter((text) => !isNormalUrl(text))
  expect(missed.length).toBeLessThan(Math.max(6, normal.size / 100))
})

test('a long text is not looked at', () => {
  expect(isNormalUrl(`http://a/${'b'.repeat(4_096 - 9)}`)).toBe(true)
  expect(isNormalUrl(`http://a/${'b'.repeat(4_096 - 8)}`)).toBe(false)
})
