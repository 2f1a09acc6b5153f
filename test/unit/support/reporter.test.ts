import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { addUp } from '../../support/reporter'

test('the last of several runs counts the tests of all, and one alone its own', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'unique-text-tally-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const tally = path.join(folder, 'tally')
  writeFileSync(tally, '')
  expect(addUp(tally, [5, 1])).toEqual([5, 1])
  expect(addUp(tally, [7, 0])).toEqual([12, 1])
  expect(addUp(undefined, [7, 0])).toEqual([7, 0])
})
