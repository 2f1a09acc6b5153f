import { readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { readRuns, withTable } from '../../../scripts/matrix-records'

test('the matrix of maintainers/reliability.md is what maintainers/matrix.json holds', () => {
  const document = readFileSync(path.join(import.meta.dirname, '../../../maintainers/reliability.md'), 'utf8')
  const runs = readRuns()
  expect(runs.length).toBeGreaterThan(0)
  expect(document).toBe(withTable(document, runs))
})
