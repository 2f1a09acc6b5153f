import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { numberPlays } from '../../support/number-interleavings'
import { useNumberStage } from '../../support/number-plays'
import { countedTable, numberTable } from '../../support/numbered-table'
import type { Level } from '../../support/sessions'

/** Declares the tests of a file: every interleaving, with all sessions at one of these levels. */
export function testInterleavings(levels: readonly Level[]): void {
  const stage = useNumberStage(useDatabase())
  describe.each(levels)('%s', (level) => {
    test.each([
      ['without a count', numberTable()],
      ['with a count', countedTable()],
      ['without reuse', numberTable({ reuse: false })],
    ])('every interleaving %s gives what was reviewed', async (name, table) => {
      const lines: string[] = []
      for (const play of numberPlays) {
        const transcript = await stage.play(play, { table, level })
        if (level === 'READ COMMITTED') lines.push(`${play.name}\n  ${transcript}`)
        else expectRight(transcript, play.name)
      }
      if (level !== 'READ COMMITTED') return
      await expect(`${lines.join('\n')}\n`).toMatchFileSnapshot(`../../golden/numbers/${name}.txt`)
    })
  })
}

/**
 * Above READ COMMITTED a transaction may be refused wherever its snapshot is too old: then it runs again. What is stored
 * is right all the same: each number once in its scope, and a count of the rows that are not deleted softly.
 */
function expectRight(transcript: string, play: string): void {
  const refusals = [...transcript.matchAll(/: (?<sqlstate>[0-9A-Z]{5})(?: \||$)/gu)].map(([, code = '']) => code)
  // The unique index may find the conflict before the snapshot does.
  expect([play, refusals.filter((code) => !['40001', '23505', '25P02'].includes(code))]).toEqual([play, []])
  const scopes = transcript.slice(transcript.lastIndexOf(' | ') + 3).split('; ')
  for (const scope of scopes.filter((one) => one !== '')) {
    const [, shown = '', count] = /^\S+: (?<numbers>.*?)(?: #(?<count>\d+))?$/u.exec(scope) ?? []
    const numbers = shown.split(' ')
    expect([play, new Set(numbers.map((one) => one.replace('~', ''))).size]).toEqual([play, numbers.length])
    const live = String(numbers.filter((one) => !one.endsWith('~')).length)
    expect([play, count ?? live]).toEqual([play, live])
  }
}
