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

const textsIn = (codes: readonly string[]): string[] =>
  codes.filter((code) => code.startsWith("'")).map((code) => evaluate(code) as string)

test.each(rows.map(([[name = '', label = ''] = [], ...cells]) => [name, label, cells] as const))(
  '%s is as docs/normalizers.md describes it',
  (name, label, [merged = [], rejected = []]) => {
    const normalizer = evaluate(name) as Normalizer
    expect(normalizerLabel(normalizer)).toBe(label)
    const [given = '', stored] = textsIn(merged)
    expect(normalizer.normalize(given)).toBe(stored)
    expect(given).not.toBe(stored)
    for (const text of textsIn(rejected)) expect(() => normalizer.normalize(text)).toThrow(normalizers.Refusal)
  },
)

test('docs/normalizers.md has every normalizer', () => {
  const documented = rows.map(([[name = ''] = []]) => name.replace(/\(.*/u, ''))
  const others = ['normalizer', 'Refusal']
  expect(new Set(documented)).toEqual(new Set(Object.keys(normalizers).filter((name) => !others.includes(name))))
})
