import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, test } from 'vitest'
import { markdownOf } from '../../bench/report/markdown'
import { readReleases } from '../../bench/report/report'
import { tablesOf } from '../../bench/report/tables'

const read = (file: string): Promise<string> => readFile(path.resolve(import.meta.dirname, '../..', file), 'utf8')

test('maintainers/benchmark.html needs nothing from elsewhere', async () => {
  const page = await read('maintainers/benchmark.html')
  expect(page).toContain('<svg')
  expect(page.match(/:\/\/|<script|<link|<img|<iframe|@import|\b(?:src|href)=/gu)).toBeNull()
})

const ENTITIES: Readonly<Record<string, string>> = { '&lt;': '<', '&gt;': '>', '&quot;': '"', '&amp;': '&' }

test('the tables of maintainers/benchmark.html are those of maintainers/benchmarks', async () => {
  const page = await read('maintainers/benchmark.html')
  const cells = [...page.matchAll(/<t[hd](?: scope="\w+")?>(.*?)<\/t[hd]>/gu)].map(([, cell = '']) =>
    cell.replaceAll(/&\w+;/gu, (entity) => ENTITIES[entity] ?? entity),
  )
  const tables = tablesOf(await readReleases())
  expect(tables.length).toBeGreaterThan(3)
  expect(cells).toEqual(tables.flatMap(({ head, rows }) => [...head, ...rows.flat()]))
})

test('the tables of maintainers/benchmark.md are those of maintainers/benchmarks', async () => {
  expect(await read('maintainers/benchmark.md')).toContain(markdownOf(tablesOf(await readReleases())))
})

test('the lock file of the peers names npm’s registry only', async () => {
  const { packages } = JSON.parse(await read('bench/package-lock.json')) as {
    packages: Record<string, { resolved?: string }>
  }
  const others = Object.values(packages).filter(
    ({ resolved }) => resolved?.startsWith('https://registry.npmjs.org/') === false,
  )
  expect(Object.keys(packages).length).toBeGreaterThan(100)
  expect(others).toEqual([])
})
