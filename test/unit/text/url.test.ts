import { describe, expect, test } from 'vitest'
import { DeclarationError } from '../../../src/errors'
import { type CanonicalUrlOptions, url } from '../../../src/text/url'
import { Refusal } from '../../../src/text/normalizer'
import { realUrls } from './real-urls'
import { unlessRefused } from './unless-refused'

function canonical(text: string, options?: CanonicalUrlOptions): string {
  return url('canonical', options).normalize(text)
}

function name(options?: CanonicalUrlOptions): string {
  return url('canonical', options).name
}

describe(`url('canonical')`, () => {
  test.each([
    ['HTTP://www.Example.com:80/a/', 'http://example.com/a'],
    ['http://example.com', 'http://example.com/'],
    ['http://a.org/?b=2&a=1', 'http://a.org/?a=1&b=2'],
    ['http://a.org/?utm_source=x&a=1', 'http://a.org/?a=1'],
    ['http://u:p@a.org/', 'http://a.org/'],
    ['http://a.org/b#:~:text=c', 'http://a.org/b'],
    ['http://a.org/b#c', 'http://a.org/b#c'],
    ['http://a.org/b#', 'http://a.org/b'],
    ['http://a.org/?a=b%20c', 'http://a.org/?a=b+c'],
    ['http://a.org/?a=%0Ab', 'http://a.org/?a=b'],
    ['http://a.org/?a=%E9', 'http://a.org/?a=%EF%BF%BD'],
    ['http://a.org/?k=a/', 'http://a.org/?k=a'],
    ['http://a.org/b?', 'http://a.org/b'],
    ['http://a.org/?a=%22', 'http://a.org/?a=%22'],
    ['http://a.org/?a="', 'http://a.org/?a=%22'],
    ['http://a.org/?a=%5E', 'http://a.org/?a=^'],
    ['http://a.org/?a=%26%2B', 'http://a.org/?a=%26%2B'],
    ['http://a.org/?q=90%25+of&p=%2541', 'http://a.org/?p=%2541&q=90%25+of'],
    ['http://a.org/90%25+of%2541#%25', 'http://a.org/90%25+of%2541#%25'],
    ['http://a.org/?a=100%', 'http://a.org/?a=100%25'],
  ])('its defaults make %j %j', (text, expected) => {
    expect(canonical(text)).toBe(expected)
  })

  const off: CanonicalUrlOptions = {
    removeQueryParameters: false,
    removeTrailingSlash: false,
    sortQueryParameters: false,
    stripAuthentication: false,
    stripTextFragment: false,
    stripWWW: false,
  }

  test.each([
    ['http://a.org/b//c', 'http://a.org/b/c'],
    ['http://a.org./', 'http://a.org/'],
    ['http://a.org/?', 'http://a.org/'],
    ['http://a.org/?&&a', 'http://a.org/?a'],
    ['http://a.org/?b+c=d', 'http://a.org/?b%20c=d'],
    ['http://a.org/b%0Ac', 'http://a.org/bc'],
    ['http://a.org/%21%27%28%29%2A', `http://a.org/!'()*`],
    ['http://a.org/%5B%7C%5D', 'http://a.org/[|]'],
    ['http://a.org/%5E', 'http://a.org/%5E'],
    ['http://a.org/%2F%3F%23%3B', 'http://a.org/%2F%3F%23%3B'],
    ['http://a.org/%2541', 'http://a.org/%2541'],
  ])('with every option off it still makes %j %j', (text, expected) => {
    expect(canonical(text, off)).toBe(expected)
  })

  test.each([
    ['http://www.a.org/b/?c=2&b=1&utm_x=1'],
    ['http://u:p@a.org/'],
    ['http://a.org/b#'],
    ['http://a.org/?a=b%20c+d%0A%E9%2541'],
    ['http://a.org/b#:~:text=c'],
  ])('with every option off it leaves %j', (text) => {
    expect(canonical(text, off)).toBe(text)
  })

  test.each<[CanonicalUrlOptions, string, string]>([
    [{ forceHttps: true }, 'http://a.org/b', 'https://a.org/b'],
    [{ stripHash: true }, 'http://a.org/b#c', 'http://a.org/b'],
    [{ keepQueryParameters: ['b'] }, 'http://a.org/?a=1&b=2&utm_x=3', 'http://a.org/?b=2'],
    [{ removeQueryParameters: ['b', /^c/g] }, 'http://a.org/?a=1&b=2&cd=3', 'http://a.org/?a=1'],
    [{ removeQueryParameters: true }, 'http://a.org/?a=1', 'http://a.org/'],
    [{ removeDirectoryIndex: true }, 'http://a.org/b/index.html', 'http://a.org/b'],
    [{ removeDirectoryIndex: ['home'] }, 'http://a.org/b/home', 'http://a.org/b'],
    [{ stripWWW: undefined }, 'http://www.a.org/', 'http://a.org/'],
  ])('%j makes %j %j', (options, text, expected) => {
    expect(canonical(text, options)).toBe(expected)
  })

  test.each([
    ['a.org', 'it is not an http or https URL'],
    ['localhost', 'it is not an http or https URL'],
    ['data:text/plain,x', 'it is not an http or https URL'],
    ['http://', 'it is not a valid URL'],
    ['http:a.org', 'it is not an http or https URL'],
    ['http:/a.org/b', 'it is not an http or https URL'],
    ['http:\\\\a.org', 'it is not an http or https URL'],
    ['http://a.org/?b=%ef%b7%90', 'it contains U+FDD0'],
  ])('refuses %j: %s', (text, reason) => {
    expect(() => canonical(text)).toThrow(new Refusal(reason))
  })

  test('refuses a URL that changes in every round', () => {
    const reason = 'it keeps changing after 10 rounds of normalizing'
    const text = `http://a${'/index.html'.repeat(12)}`
    expect(() => canonical(text, { removeDirectoryIndex: true })).toThrow(new Refusal(reason))
  })
})

describe('the name', () => {
  test('is plain with the defaults, however they are spelt', () => {
    expect(name()).toBe('url-canonical')
    expect(name({})).toBe('url-canonical')
    expect(name({ stripWWW: true, stripHash: undefined, removeQueryParameters: [/^utm_\w+/i] })).toBe('url-canonical')
  })

  test('tells options apart, and not their order', () => {
    // Stored in databases: it must never change.
    expect(name({ stripHash: true })).toBe('url-canonical-0863e37d')
    expect(name({ keepQueryParameters: ['a'] })).toBe('url-canonical-47d875e2')
    expect(name({ stripHash: true, stripWWW: false })).toBe(name({ stripWWW: false, stripHash: true }))
    expect(name({ removeQueryParameters: ['a', 'b'] })).toBe(name({ removeQueryParameters: ['b', 'a'] }))
    const different: CanonicalUrlOptions[] = [
      { stripHash: true },
      { stripWWW: false },
      { removeQueryParameters: false },
      { removeQueryParameters: [] },
      { removeQueryParameters: ['/a/'] },
      { removeQueryParameters: [/a/] },
      { removeQueryParameters: [/a/i] },
      { removeQueryParameters: ['a', 'b'] },
      { removeQueryParameters: ['a,b'] },
      { removeDirectoryIndex: ['a', 'b'] },
      { keepQueryParameters: [] },
      { keepQueryParameters: ['a', 'b'] },
    ]
    expect(new Set(different.map(name)).size).toBe(different.length)
  })
})

test('a list that changes later changes nothing', () => {
  const names = ['a']
  const { normalize } = url('canonical', { removeQueryParameters: names })
  names.push('b')
  expect(normalize('http://a.org/?b=1')).toBe('http://a.org/?b=1')
})

test.each([
  [{ stripWww: true }],
  [{ toString: true }],
  [{ stripWWW: 'yes' }],
  [{ stripWWW: [] }],
  [{ keepQueryParameters: true }],
  [{ keepQueryParameters: 'a' }],
  [{ removeQueryParameters: [1] }],
])('the options %j are an error', (options) => {
  expect(() => url('canonical', options as CanonicalUrlOptions)).toThrow(DeclarationError)
})

test('it is idempotent on real URLs', () => {
  const { normalize } = url('canonical')
  // Every tenth: normalize-url takes 15 µs a URL.
  const some = realUrls().filter((_, index) => index < 10 || index % 10 === 0)
  const normalized = some.flatMap((text) => unlessRefused(() => [normalize(text)]) ?? [])
  expect(normalized.length).toBeGreaterThan(some.length * 0.99)
  expect(normalized.filter((once) => normalize(once) !== once)).toEqual([])
})

describe('maxLength', () => {
  const { normalize } = url('canonical', { maxLength: 20 })

  test('is 65,536 by default, and counts the URL as safe leaves it', () => {
    expect(canonical(`http://a.org/${'b'.repeat(65_523)}`)).toHaveLength(65_536)
    expect(() => canonical(`http://a.org/${'b'.repeat(65_524)}`)).toThrow(
      new Refusal('it has more than 65536 characters'),
    )
    expect(normalize('http://a.org/%41%42%43%44')).toBe('http://a.org/ABCD')
    expect(() => normalize('http://a.org/ééé')).toThrow(new Refusal('it has more than 20 characters'))
  })

  test('decides nothing about what is equal, so it is not part of the name', () => {
    expect(name({ maxLength: 20 })).toBe('url-canonical')
  })

  test.each([[0], [-1], [1.5], [Infinity], ['9']])('%j is an error', (maxLength) => {
    expect(() => url('canonical', { maxLength: maxLength as number })).toThrow(DeclarationError)
  })
})
