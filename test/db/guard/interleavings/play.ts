import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../../support/database'
import type { Level } from '../../../support/sessions'
import { expectedPlay, PLAIN, softPage, useStage } from '../../../support/stage'
import { interleavings } from '.'
import { softDeletes } from './soft-deletes'

/** Declares the tests of a file: every interleaving, with all sessions at one of these levels. */
export function testInterleavings(levels: readonly Level[]): void {
  const stage = useStage(useDatabase())
  const groups = { ...interleavings, 'soft deletes that free texts': softDeletes }
  for (const level of levels) {
    for (const [group, members] of Object.entries(groups)) {
      const setting = members === softDeletes ? { name: 'soft', table: softPage } : PLAIN
      describe(`${group} at ${level}`, () => {
        for (const interleaving of members) {
          test(interleaving.name, async () => {
            expect(await stage.play(interleaving, level, setting)).toEqual(expectedPlay(interleaving, level))
          })
        }
      })
    }
  }
}
