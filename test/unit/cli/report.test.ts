import { describe, expect, test } from 'vitest'
import { formatReport, type ImportReport, ImportTally } from '../../../src/cli/report'

const report: ImportReport = {
  lines: 12_345,
  created: 10_000,
  found: 2_000,
  rejected: 345,
  blank: 0,
  collisions: 2,
  seconds: 1.5,
  rejections: [
    { line: 7, reason: 'it is not an http or https URL' },
    { line: 1_234, reason: 'it is not valid UTF-8' },
  ],
  end: { kind: 'done' },
}

describe('formatReport', () => {
  test('is a table with the first reasons', () => {
    expect(formatReport(report)).toBe(
      [
        'lines             12,345',
        'created           10,000',
        'found              2,000',
        'rejected             345',
        'collisions             2',
        'seconds             1.50',
        'lines per second   8,230',
        '',
        'the first 2 rejected lines:',
        '  line 7: it is not an http or https URL',
        '  line 1,234: it is not valid UTF-8',
        '',
      ].join('\n'),
    )
  })

  test('of a dry run, says what would be created, and what it cannot know', () => {
    const told = formatReport(report, { dryRun: true })
    expect(told).toMatch(/^would be created +10,000$/m)
    expect(told).not.toMatch(/^created/m)
    expect(told).toMatch(/\n\nNo row was written\. Only an import without --dry-run shows .*\n$/)
  })

  test('a reason that holds control characters cannot command the terminal', () => {
    const rejections = [{ line: 1, reason: 'no \x1b[2Jsuch\nthing' }]
    expect(formatReport({ ...report, rejections })).toContain('  line 1: no \\u001b[2Jsuch\\u000athing\n')
  })

  test('leaves out what there is none of', () => {
    const empty = { ...report, lines: 0, created: 0, found: 0, rejected: 0, seconds: 0, rejections: [] }
    expect(formatReport(empty)).toMatch(/^lines .*\nlines per second +0\n$/s)
    expect(formatReport({ ...report, blank: 3 })).toMatch(/^blank +3$/m)
  })
})

describe('Tally', () => {
  test('counts every line once and keeps the first five reasons', () => {
    const tally = new ImportTally()
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
