import { readFileSync } from 'node:fs'
import path from 'node:path'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import * as normalizers from '../../../src/text'
import { type Normalizer, normalizerLabel } from '../../../src/text/normalizer'

const page = readFileSync(path.join(import.meta.dirname, '../../../docs/normalizers.md'), 'utf8')

/** The rows of the table, each with what stands in backticks in its cells. */
const rows = page
  .split('\n')
  .filter((line) => line.startsWith('| `'))
  .map((line) => line.split('|').slice(1, -1))
  .map((cells) => cells.map((cell) => [...cell.matchAll(/`([^`]+)`/gu)].map(([, code = '']) => code)))

const evaluate = (code: string): unknown => runInNewContext(`(${code})`, { ...normalizers })

test.each(rows.map(([[name = ''] = [], ...cells]) => [name, cells] as const))(
  '%s is as docs/normalizers.md describes it',
  (name, [, refused = [], example = [], label = []]) => {
    const normalizer = evaluate(name) as Normalizer
    expect(normalizerLabel(normalizer)).toBe(label[0])
    const [given, stored] = example.map(evaluate) as [string, string]
    expect(normalizer.normalize(given)).toBe(stored)
    expect(given).not.toBe(stored)
    for (const text of refused.filter((code) => code.startsWith("'")))
      expect(() => normalizer.normalize(evaluate(text) as string)).toThrow(normalizers.Refusal)
  },
)

test('docs/normalizers.md has every normalizer', () => {
  const documented = rows.map(([[name = ''] = []]) => name.replace(/\(.*/u, ''))
  const others = ['normalizer', 'Refusal']
  expect(new Set(documented)).toEqual(new Set(Object.keys(normalizers).filter((name) => !others.includes(name))))
})
