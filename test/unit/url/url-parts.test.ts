import { describe, expect, test } from 'vitest'
import * as fc from 'fast-check'
import { DeclarationError, TextRejectedError } from '../../../src/errors'
import { hashOfTexts } from '../../../src/sql/text-table'
import { md5 } from '../../../src/text/digest'
import type { UrlParts } from '../../../src/url/url-parts'
import {
  formatUrl,
  normalizeParts,
  parseUrl,
  pathComponent,
  pathComponentHash,
  splitUrl,
} from '../../../src/url/url-parts'
import { urlLike } from '../text/arbitraries'
import { realUrls } from '../text/real-urls'

const part = { scheme: 'http', host: 'example.com', port: 0, path: '/', query: null, fragment: null }

test('what is hashed of a URL differs from what is hashed of any other', () => {
  const text = ['path', 'query', 'fragment'].map((name, index) => ({ name, prefix: ['', '?', '#'][index] ?? '' }))
  const digest = { ...md5, js: (whole: string) => whole }
  const triple = fc.tuple(
    fc.stringMatching(/^\/[ab]{0,2}$/u),
    fc.option(fc.stringMatching(/^[ab?]{0,2}$/u)),
    fc.option(fc.stringMatching(/^[ab?#]{0,2}$/u)),
  )
  fc.assert(
    fc.property(triple, triple, (one, other) => {
      const [hashed, otherHashed] = [one, other].map((parts) => hashOfTexts({ text, digest }, parts))
      const [path, query, fragment] = one
      expect(parseUrl(`http://example.com${hashed}`)).toStrictEqual({ ...part, path, query, fragment })
      expect(hashed === otherHashed).toBe(JSON.stringify(one) === JSON.stringify(other))
    }),
    { numRuns: 5_000 },
  )
})

describe('parseUrl', () => {
  test.each([
    ['HTTP://Example.com:80/a/../b?q#f', { ...part, path: '/b', query: 'q', fragment: 'f' }],
    ['http://example.com', part],
    ['https://example.com:8443/x', { ...part, scheme: 'https', port: 8443, path: '/x' }],
    ['http://example.com/?', { ...part, query: '' }],
    ['http://example.com/#', { ...part, fragment: '' }],
    ['http://example.com/?#', { ...part, query: '', fragment: '' }],
    ['http://example.com/?a?b#c#d?e', { ...part, query: 'a?b', fragment: 'c#d?e' }],
    ['http://example.com/a@b:c', { ...part, path: '/a@b:c' }],
    ['http://[2001:DB8::1]:8080/', { ...part, host: '[2001:db8::1]', port: 8080 }],
    ['http://bücher.example/', { ...part, host: 'xn--bcher-kva.example' }],
    ['http://@example.com/', part],
    [new URL('http://example.com'), part],
  ])('%s', (text, expected) => {
    expect(parseUrl(text)).toEqual(expected)
  })

  test.each<[unknown, string]>([
    ['', 'nothing'],
    [null, 'no text'],
    [undefined, 'no text'],
    [5, 'a number'],
    ['example', 'a bare word'],
    ['//example.com/', 'no scheme'],
    ['ftp://example.com/', 'another scheme'],
    ['http:///', 'no host'],
    ['http://', 'no host'],
    ['http://user@example.com/', 'user information'],
    ['http://user:secret@example.com/', 'user information'],
    ['http://example.com:0/', 'port 0'],
    ['http://example.com:65536/', 'a port that is none'],
    [`http://${'a'.repeat(60)}.${'b.'.repeat(100)}example/`, 'a host of more than 256 characters'],
    ['http://example.com/\0', 'U+0000'],
    ['http://example.com/\uD800', 'a lone surrogate'],
  ])('%j is null: %s', (text: unknown) => {
    expect(parseUrl(text)).toBeNull()
  })

  test("an error of the caller's own object is no refusal", () => {
    const broken = Object.defineProperty(new URL('http://example.com'), 'href', {
      get() {
        throw new RangeError('mine')
      },
    })
    expect(() => parseUrl(broken)).toThrow(RangeError)
  })

  test('a host has at most 256 characters', () => {
    const host = `${'a.'.repeat(124)}example.`
    expect(host).toHaveLength(256)
    expect(parseUrl(`http://${host}/`)).toEqual({ ...part, host })
    expect(parseUrl(`http://a${host}/`)).toBeNull()
  })
})

test('a URL in parts is put together as it was', () => {
  for (const text of [
    'http://a.example/',
    'https://a.example:1/b?#',
    'http://[::1]/?q=%20#x',
    'http://a.example/b;c,d/?',
  ]) {
    const parts = parseUrl(text)
    expect(parts && formatUrl(parts)).toBe(text)
  }
})

test('the path component is path, query and fragment, and its hash the MD5 of that', () => {
  const parts = { ...part, path: '/b', query: 'q', fragment: 'f' }
  expect(pathComponent(parts)).toBe('/b?q#f')
  expect(pathComponentHash(parts)).toBe('a34d03d6288e7a472c2e5e5d40a59fc1')
  expect(pathComponent({ ...part, query: '' })).toBe('/?')
})

test.each([
  ['ftp://a.example/', 'url', 'it is not an http or https URL'],
  [5, 'url', 'expected a string, got number'],
  ['http://u@a.example/', 'url', 'it has user information'],
  ['http://a.example:0/', 'url', 'its port is 0'],
])('splitUrl(%j) says of "%s": %s', (text, property, reason) => {
  expect(() => splitUrl(text)).toThrow(new TextRejectedError({ property, reason }))
})

describe('normalizeParts', () => {
  test.each<[Parameters<typeof normalizeParts>[0], Partial<UrlParts>]>([
    [
      { scheme: 'HTTP', host: 'EXAMPLE.com', port: 80, path: '/x' },
      { ...part, path: '/x' },
    ],
    [
      { scheme: 'https', host: 'BÜCHER.example', port: 443, path: '' },
      { ...part, scheme: 'https', host: 'xn--bcher-kva.example' },
    ],
    [{ scheme: 'http', host: 'example.com' }, { port: 0 }],
    [{ scheme: 'http', host: 'example.com', path: null, port: 80 }, { port: 80 }],
    [
      { scheme: 'http', host: 'example.com', port: 65_535, path: '/' },
      { ...part, port: 65_535 },
    ],
    [
      { scheme: 'http', host: 'example.com', port: 443, path: '/' },
      { ...part, port: 443 },
    ],
    [
      { scheme: 'http', host: '[0:0::1]', path: '/a/../b c', query: '%7e', fragment: '%c3%A9?' },
      { ...part, host: '[::1]', path: '/b%20c', query: '~', fragment: '%C3%A9?' },
    ],
    [
      { scheme: 'http', host: '127.1', path: '//b\\c', query: '?', fragment: '#' },
      { ...part, host: '127.0.0.1', path: '//b/c', query: '?', fragment: '#' },
    ],
    [{ host: 'EXAMPLE.com', path: '/x' }, { port: 0 }],
    [{}, { port: 0 }],
  ])('%j becomes %j', (given, expected) => {
    expect(normalizeParts(given)).toEqual(expected)
  })

  test.each([
    [{ scheme: 'ftp' }, 'scheme'],
    [{ scheme: 'http:' }, 'scheme'],
    [{ scheme: 1 }, 'scheme'],
    [{ host: '' }, 'host'],
    [{ host: 'a/b' }, 'host'],
    [{ host: 'u@b' }, 'host'],
    [{ host: 'a:80' }, 'host'],
    [{ host: '[::1]:80' }, 'host'],
    [{ host: 'a?b' }, 'host'],
    [{ host: 'a\\b' }, 'host'],
    [{ host: 'a b' }, 'url'],
    [{ host: 'xn--a' }, 'url'],
    [{ host: 'a'.repeat(257) }, 'url'],
    [{ port: -1 }, 'port'],
    [{ port: 65_536 }, 'port'],
    [{ port: 1.5 }, 'port'],
    [{ port: '80' }, 'port'],
    [{ path: 'x' }, 'path'],
    [{ path: '/x?y' }, 'path'],
    [{ path: '/x#y' }, 'path'],
    [{ path: ['/'] }, 'path'],
    [{ query: 'a#b' }, 'query'],
    [{ query: 'a\0' }, 'url'],
  ])('%j is refused for its %s', (given, property) => {
    expect(() => normalizeParts({ ...part, ...given })).toThrow(
      expect.objectContaining({ code: 'TEXT_REJECTED', property }),
    )
  })

  test('leaves the parts of every URL as they are', () => {
    const parts = realUrls().flatMap((text, index) => (index % 10 === 0 ? (parseUrl(text) ?? []) : []))
    expect(parts.filter((one) => formatUrl(normalizeParts(one) as UrlParts) !== formatUrl(one))).toEqual([])
    fc.assert(
      fc.property(urlLike, (text) => {
        const one = parseUrl(text)
        fc.pre(one !== null)
        expect(normalizeParts(one)).toEqual(one)
        expect(parseUrl(formatUrl(one))).toEqual(one)
      }),
      { numRuns: 2000, maxSkipsPerRun: 1000 },
    )
  })
})

test('parts that were not loaded are an error, and never print undefined', () => {
  const { host: _, ...partial } = part
  expect(() => formatUrl(partial as UrlParts)).toThrow(DeclarationError)
  expect(() => formatUrl(partial as UrlParts)).toThrow('This URL was loaded without "host". Select it.')
  const { port: __, ...portless } = part
  expect(() => formatUrl(portless as UrlParts)).toThrow('without "port"')
  expect(() => pathComponentHash({} as UrlParts)).toThrow('without "path", "query", "fragment"')
})
