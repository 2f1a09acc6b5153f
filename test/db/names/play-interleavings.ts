import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { expectedNames, type NamesSetting, useNamesStage } from '../../support/names-stage'
import type { Level } from '../../support/sessions'
import { interleavings, sequences } from './interleavings'
import { gatePart } from '../../support/gate-part'

/**
 * Declares the tests of a file: every interleaving, with all sessions at one of these levels.
 *
 * @param setting the triggers of both tables; if undefined, those of every table
 */
export function testInterleavings(levels: readonly Level[], setting?: NamesSetting): void {
  const stage = useNamesStage(useDatabase())
  describe.each(levels)('at %s', (level) => {
    const all = [...interleavings, ...sequences]
    // Almost all of them end as at REPEATABLE READ.
    test.each(level === 'SERIALIZABLE' ? gatePart(4, all) : all)('$name', async (interleaving) => {
      expect(await stage.play(interleaving, level, setting)).toEqual(expectedNames(interleaving, level))
    })
  })
}
