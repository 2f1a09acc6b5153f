import { expect, test } from 'vitest'
import { BatchSize } from '../../../src/adopt/session'
import { seededRandom } from '../../stress/random'

const TARGET = 50

/** Runs batches whose duration is a function of their size. @returns their sizes */
function run(durationOf: (rows: number, batch: number) => number, batches = 80): number[] {
  const size = new BatchSize(TARGET, 5, 20, 1)
  return Array.from({ length: batches }, (_, batch) => {
    const rows = size.value
    size.took(durationOf(rows, batch), rows)
    return rows
  })
}

const last = (sizes: readonly number[]): readonly number[] => sizes.slice(-20)
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)

test('the rows of a batch take the wanted time', () => {
  for (const size of last(run((rows) => 3 * rows))) expect(3 * size).toBeGreaterThan(TARGET * 0.8)
  for (const size of last(run((rows) => 3 * rows))) expect(3 * size).toBeLessThan(TARGET * 1.4)
})

test('a fixed time above the wanted one does not make batches of one row', () => {
  for (const size of last(run((rows) => 60 + rows))) expect(size).toBeGreaterThanOrEqual(40)
})

test.each([1, 2, 3, 4, 5, 6])('on a busy server, batches stay worth their fixed time: seed %i', (seed) => {
  const random = seededRandom(seed)
  const duration = (rows: number): number =>
    (60 + rows) * (0.5 + random.int(1_000) / 1_000 + (random.chance(0.05) ? 3 : 0))
  const sizes = run(duration, 400)
  // Batches of one row would do 16 rows a second.
  const seconds = sum(sizes.map((rows) => 60 + rows)) / 1_000
  expect(sum(sizes) / seconds).toBeGreaterThan(100)
})

test('a server that becomes slow gets small batches soon, and larger ones once it is quick', () => {
  const sizes = run((rows, batch) => (batch < 30 || batch > 60 ? 5 + 0.3 * rows : 50 + 10 * rows), 150)
  expect(Math.max(...sizes.slice(20, 30))).toBeGreaterThan(100)
  expect(Math.max(...sizes.slice(38, 60))).toBeLessThan(20)
  expect(Math.max(...sizes.slice(90))).toBeGreaterThan(100)
})
