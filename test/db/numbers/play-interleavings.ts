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
        // At SERIALIZABLE, the index or the snapshot finds the conflict first. Either way, the transaction runs again.
        const shown = level === 'SERIALIZABLE' ? transcript.replaceAll(' ends: 23505', ' ends: 40001') : transcript
        lines.push(`${play.name}\n  ${shown}`)
      }
      await expect(`${lines.join('\n')}\n`).toMatchFileSnapshot(`../../golden/numbers/${level} ${name}.txt`)
    })
  })
}
