import { PassThrough } from 'node:stream'
import { describe, expect, test } from 'vitest'
import type { ImportReport } from '../../../src/cli/import'
import type { Output } from '../../../src/cli/output'
import { openProgress } from '../../../src/cli/progress'
import { formatReport } from '../../../src/cli/report'
import { Tally } from '../../../src/cli/tally'

const report: ImportReport = {
  lines: 12_345,
  created: 10_000,
  found: 2_000,
  rejected: 345,
  blank: 0,
  collisions: 2,
  seconds: 1.5,
  rejections: [
    { line: 7, reason: 'it is no http or https URL' },
    { line: 1_234, reason: 'it is not valid UTF-8' },
  ],
  end: { kind: 'done' },
}

describe('formatReport', () => {
  test('is a table with the first reasons', () => {
    expect(formatReport(report, 'URLs')).toBe(
      [
        'lines            12,345',
        'created          10,000',
        'found             2,000',
        'rejected            345',
        'collisions            2',
        'seconds            1.50',
        'URLs per second   8,230',
        '',
        'the first 2 rejected lines:',
        '  line 7: it is no http or https URL',
        '  line 1,234: it is not valid UTF-8',
        '',
      ].join('\n'),
    )
  })

  test('leaves out what there is none of', () => {
    const empty = { ...report, lines: 0, created: 0, found: 0, rejected: 0, seconds: 0, rejections: [] }
    expect(formatReport(empty)).toMatch(/^lines .*\nlines per second +0\n$/s)
    expect(formatReport({ ...report, blank: 3 })).toMatch(/^blank +3$/m)
  })
})

describe('Tally', () => {
  test('counts every line once and keeps the first five reasons', () => {
    const tally = new Tally()
    tally.stored(true, 0)
    tally.stored(false, 0)
    tally.stored(true, 1)
    tally.blank()
    for (let count = 0; count < 7; count += 1) tally.rejected(`reason ${count}`)
    expect(tally.counts).toEqual({ lines: 11, created: 2, found: 1, rejected: 7, blank: 1, collisions: 1 })
    expect(tally.rejections.map(({ line }) => line)).toEqual([5, 6, 7, 8, 9])
    expect(tally.rejections[4]).toEqual({ line: 9, reason: 'reason 4' })
  })
})

describe('openProgress', () => {
  const counts = { lines: 5_000, created: 5_000, found: 0, rejected: 0, blank: 0, collisions: 0 }
  const output = (terminal: boolean): { stream: Output; written: () => string } => {
    const stream = Object.assign(new PassThrough(), terminal ? { isTTY: true, columns: 60 } : {})
    return { stream, written: () => String((stream.read() as Buffer | null) ?? '') }
  }

  test('draws a bar over itself on a terminal, and removes it', () => {
    const { stream, written } = output(true)
    let now = 0
    const progress = openProgress(stream, () => now)
    now = 500
    progress.update(counts, 0.5)
    expect(written()).toBe('\x1b[1G\x1b[0K[############------------] 50 %  5,000 lines  10,000 per se')
    progress.update(counts, 0.6)
    expect(written()).toBe('')
    progress.end()
    expect(written()).toBe('\x1b[1G\x1b[0K')
  })

  test('writes plain lines elsewhere, and not too many', () => {
    const { stream, written } = output(false)
    let now = 0
    const progress = openProgress(stream, () => now)
    for (now = 0; now < 12_000; now += 500) progress.update(counts, undefined)
    progress.end()
    expect(written()).toBe('5,000 lines  1,000 per second\n5,000 lines  500 per second\n')
  })
})
