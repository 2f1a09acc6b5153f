import { describe, expect, test } from 'vitest'
import { formatUrl, parseUrl, pathComponent, pathComponentHash } from '../../../src/url/url-parts'

const part = { scheme: 'http', host: 'example.com', port: 0, path: '/', query: null, fragment: null }

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
