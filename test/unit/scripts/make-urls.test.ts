import { readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { urlList } from '../../../scripts/demo/make-urls'
import { parseUrl } from '../../../src/url'

const list = readFileSync(path.join(__dirname, '../../../examples/urls.txt'), 'utf8')

test('examples/urls.txt is what its script writes', () => {
  expect(urlList).toBe(list)
})

test('it holds refused lines, repeated URLs, and URLs too long for a plain unique index', () => {
  const lines = list.split('\n').slice(0, -1)
  const urls = lines.map(parseUrl)
  expect(lines.length).toBeGreaterThan(5_000)
  expect(urls.filter((url) => url === null).length).toBeGreaterThan(300)
  expect(lines.filter((line) => Buffer.byteLength(line) > 2_704).length).toBeGreaterThan(10)
  expect(new Set(lines).size).toBeGreaterThan(4_000)
})

test('it names only hosts that are reserved for documentation', () => {
  const reserved = /(?:^|\.)(?:example|test|example\.(?:com|org|net))$|^localhost$/
  const documentation = /^(?:192\.0\.2|198\.51\.100|203\.0\.113)\.\d+$|^\[2001:db8:/
  const hosts = list.split('\n').flatMap((line) => parseUrl(line)?.host ?? [])
  expect(hosts.filter((host) => !reserved.test(host) && !documentation.test(host))).toEqual([])
})
