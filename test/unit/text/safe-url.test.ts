import { describe, expect, test } from 'vitest'
import { Refusal } from '../../../src/text/normalizer'
import { url } from '../../../src/text/url'
import { rfc3986Suite } from './real-urls'

const { normalize } = url()

const HOST = 'its host is not valid, or not the same in every version of Node.js'

describe('url() merges what RFC 3986 and the URL standard call equivalent', () => {
  test.each([
    // RFC 3986 section 6.2.2.1, case
    ['HTTP://www.EXAMPLE.com/', 'http://www.example.com/'],
    ['http://a/%3a', 'http://a/%3A'],
    ['http://a/%c3%a9', 'http://a/%C3%A9'],
    // 6.2.2.2 and 2.3, unreserved characters
    ['http://a/%41%5A%61%7A%30%39%2D%2E%5F%7E', 'http://a/AZaz09-._~'],
    ['http://a/%7Esmith', 'http://a/~smith'],
    ['http://%75ser:%70%40@a/', 'http://user:p%40@a/'],
    ['http://a/?%61=%62#%63', 'http://a/?a=b#c'],
    ['http://a/?%2e%2e/#%2E%2e', 'http://a/?../#..'],
    // 6.2.2.3 and 5.2.4, dot segments
    ['http://a/b/c/../../../g', 'http://a/g'],
    ['http://a/b/c/./g/.', 'http://a/b/c/g/'],
    ['http://a/b/%2e%2E/c', 'http://a/c'],
    ['http://a/b/.%2e', 'http://a/'],
    ['http://a/b/c/..g', 'http://a/b/c/..g'],
    ['http://a/b/...%2e', 'http://a/b/....'],
    // Node.js 20 leaves these to us (ada issue 935)
    ['http://a/b/.c/../d', 'http://a/b/d'],
    ['http://a/b/.c/./.?/./#/..', 'http://a/b/.c/?/./#/..'],
    ['http://./b/.c/../d', 'http://./b/d'],
    ['http://a/b/g?y/../x#z/../w', 'http://a/b/g?y/../x#z/../w'],
    ['http://a.org/a/./b/../b/%63/%7bfoo%7d', 'http://a.org/a/b/c/%7Bfoo%7D'],
    // 6.2.3, scheme
    ['http://a', 'http://a/'],
    ['http://a:/', 'http://a/'],
    ['http://a:80', 'http://a/'],
    ['https://a:0443', 'https://a/'],
    ['http://a?b', 'http://a/?b'],
    // The URL standard
    ['http://@a/', 'http://a/'],
    ['\0\t\n http://a/ \u0001', 'http://a/'],
    ['http://a\\b\\c', 'http://a/b/c'],
    ['http://a/b\n\tc', 'http://a/bc'],
    ['http:///a', 'http://a/'],
    ['http://%61.org', 'http://a.org/'],
    ['http://127.1', 'http://127.0.0.1/'],
    ['http://0x7F000001', 'http://127.0.0.1/'],
    ['http://[0:0::1]', 'http://[::1]/'],
    ['http://Bücher.example', 'http://xn--bcher-kva.example/'],
    ['http://a。org', 'http://a.org/'],
    ['http://ｅｘ．ｏｒｇ/', 'http://ex.org/'],
    ['http://１２７.1', 'http://127.0.0.1/'],
    ['http://faß.de', 'http://xn--fa-hia.de/'],
    ['http://FAẞ.de', 'http://xn--fa-hia.de/'],
    ['http://%E1%BA%9e.de', 'http://xn--zca.de/'],
    ['http://ΟΔΟΣ.gr', 'http://xn--pxavbq.gr/'],
    ['http://e\u0323\u0301.org', 'http://xn--lsa503l.org/'],
    ['http://e\u0301\u0323.org', 'http://xn--lsa503l.org/'],
    ['http://موقع.وزارة-الاتصالات.مصر', 'http://xn--4gbrim.xn----ymcbaaajlc6dj7bxne2c.xn--wgbh1c/'],
    ['http://www.אב.example', 'http://www.xn--4dbc.example/'],
    ['http://i❤️.ws', 'http://xn--i-7iq.ws/'],
    ['http://XN--BCHER-KVA.example:80/', 'http://xn--bcher-kva.example/'],
    ['http://ü:ß@b\tü\n.e:08080\\x', 'http://%C3%BC:%C3%9F@xn--b-eha.e:8080/x'],
    ['http:////\\é/x', 'http://xn--9ca/x'],
    ['http://u@v@é/', 'http://u%40v@xn--9ca/'],
    ['http://a/b/.c/..#d', 'http://a/b/#d'],
    ['http://é \u0001', 'http://xn--9ca/'],
    ['http://é:', 'http://xn--9ca/'],
    ['http://é:/', 'http://xn--9ca/'],
    ['http://a/é "<>`', 'http://a/%C3%A9%20%22%3C%3E%60'],
    [`http://a/?'`, 'http://a/?%27'],
    ['http://a/^{|}', 'http://a/%5E%7B|%7D'],
    // Node.js 20 and 22 leave it to us
    ['http://a/^?^#^', 'http://a/%5E?^#^'],
    ['http://^@a/', 'http://%5E@a/'],
    ['http://a?^', 'http://a/?^'],
    ['http://a/%^41', 'http://a/%%5E41'],
  ])('%j → %j', (text, expected) => {
    expect(normalize(text)).toBe(expected)
  })
})

describe('url() keeps different resources apart', () => {
  test.each([
    ['http://a/%2541', 'http://a/%41'],
    ['http://a/%252e%252e/b', 'http://a/b'],
    ['http://a/%%341', 'http://a/A'],
    ['http://a/%%341', 'http://a/%41'],
    ['http://a/%3%34', 'http://a/4'],
    ['http://a/%2%65%2%65/b', 'http://a/b'],
    ['http://a/%25', 'http://a/%'],
    ['http://a/b%2Fc', 'http://a/b/c'],
    ['http://a/%3F', 'http://a/?'],
    ['http://a/b%23c', 'http://a/b#c'],
    ['http://a/?b=%2B', 'http://a/?b=+'],
    ['http://a/?b=c+d', 'http://a/?b=c%20d'],
    ['http://a/?b=%26c', 'http://a/?b=&c'],
    ['http://a/;b', 'http://a/%3Bb'],
    ['http://a/b;x', 'http://a/b'],
    ['http://a//b', 'http://a/b'],
    ['http://a/b//c', 'http://a/b/c'],
    ['http://a/b/', 'http://a/b'],
    ['http://a/b.', 'http://a/b'],
    ['http://a.org./', 'http://a.org/'],
    ['http://www.a.org/', 'http://a.org/'],
    ['http://a/?', 'http://a/'],
    ['http://a/#', 'http://a/'],
    ['http://a/?#', 'http://a/#'],
    ['http://a/?#', 'http://a/?'],
    ['http://a/?b', 'http://a/?b='],
    ['http://a/?b&', 'http://a/?b'],
    ['http://a/?b=1&c=2', 'http://a/?c=2&b=1'],
    ['http://a/?b=%0A', 'http://a/?b='],
    ['http://a/b%09c', 'http://a/bc'],
    ['http://a/#b', 'http://a/'],
    ['http://u@a/', 'http://a/'],
    ['http://u:p@a/', 'http://u@a/'],
    ['http://u%3Ap@a/', 'http://u:p@a/'],
    ['http://a:8080/', 'http://a/'],
    ['http://a:0/', 'http://a/'],
    ['http://a:443/', 'http://a/'],
    ['https://a/', 'http://a/'],
    ['http://a/B', 'http://a/b'],
    ['http://a/e%CC%81', 'http://a/%C3%A9'],
    ['http://a/%E9', 'http://a/%C3%A9'],
    ['http://a/?utm_source=x', 'http://a/'],
    ['http://a/index.html', 'http://a/'],
  ])('%j ≠ %j', (one, other) => {
    expect(normalize(one)).not.toBe(normalize(other))
  })
})

test('url() completes no stray %', () => {
  expect(normalize('http://a/%%341')).toBe('http://a/%%341')
  expect(normalize('http://a/%3%34')).toBe('http://a/%3%34')
  expect(normalize('http://a/%%33%34')).toBe('http://a/%%334')
  expect(normalize('http://a/%%61%62')).toBe('http://a/%%61b')
  expect(normalize('http://a/%a%6b%6C')).toBe('http://a/%akl')
  expect(normalize('http://a/%A%34')).toBe('http://a/%A%34')
  expect(normalize('http://a/%4%41')).toBe('http://a/%4%41')
  expect(normalize('http://a/%%7e%41')).toBe('http://a/%~A')
  expect(normalize('http://a/%?%34%31#%%4a%')).toBe('http://a/%?41#%J%')
})

test('url() agrees with the examples of RFC 3986', () => {
  const wrong = rfc3986Suite().filter(({ input, expected, notEquivalent }) =>
    notEquivalent === undefined ? normalize(input) !== expected : normalize(input) === normalize(notEquivalent),
  )
  expect(wrong).toEqual([])
})

describe('url() refuses', () => {
  test.each([
    ['', 'it is not an http or https URL'],
    ['a.org', 'it is not an http or https URL'],
    ['//a.org', 'it is not an http or https URL'],
    ['http:a.org', 'it is not an http or https URL'],
    ['http:/a.org', 'it is not an http or https URL'],
    ['http:\\\\a.org', 'it is not an http or https URL'],
    ['ht\ntp://a.org', 'it is not an http or https URL'],
    ['\u00a0http://a.org', 'it is not an http or https URL'],
    ['x\nhttp://a.org', 'it is not an http or https URL'],
    ['ftp://a.org', 'it is not an http or https URL'],
    ['javascript://a.org', 'it is not an http or https URL'],
    ['http://', 'it is not a valid URL'],
    ['http://a b', 'it is not a valid URL'],
    ['http://a:65536', 'it is not a valid URL'],
    ['http://%00', HOST],
    ['http://a%', HOST],
    ['http://%ff/', HOST],
    ['http://é /', HOST],
    ['http://a%2fb/', HOST],
    ['http://a%2541/', HOST],
    ['http://a%3A80/', HOST],
    ['http://é .org/', HOST],
    ['http://a／b/', HOST],
    ['http://a\u200db/', HOST],
    // Each was one text and two hosts, or a host and none, on Node.js 20 and 24
    ['http://xn--a/', HOST],
    ['http://xn--/', HOST],
    ['http://xn--ls8h=/', HOST],
    ['http://xn--xn--q2bg/', HOST],
    ['http://ßxn--a/', HOST],
    ['http://a\u115fb/', HOST],
    ['http://\u{1f6d8}/', HOST],
    ['http://aא/', HOST],
    ['http://א.1a/', HOST],
    ['http://א1/', HOST],
    ['http://xn--ss-9ia.xn--a-zhc/', HOST],
    [`http://${'é'.repeat(257)}/`, HOST],
    [`http://${'a'.repeat(257)}/`, 'its host has more than 256 characters'],
    ['http://[fe80::1%25eth0]/', 'it is not a valid URL'],
    ['http://a/\ud800', 'it contains a lone surrogate'],
  ])('%j: %s', (text, reason) => {
    expect(() => normalize(text)).toThrow(new Refusal(reason))
  })
})
