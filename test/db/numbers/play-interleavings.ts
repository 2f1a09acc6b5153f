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
      for (const play of numberPlays) lines.push(`${play.name}\n  ${await stage.play(play, { table, level })}`)
      await expect(`${lines.join('\n')}\n`).toMatchFileSnapshot(`../../golden/numbers/${level} ${name}.txt`)
    })
  })
}
