import { describe, expect, test } from 'vitest'
import { guardOf } from '../../../../src/triggers/guard'
import { useDatabase } from '../../../support/database'
import type { Level } from '../../../support/sessions'
import { expectedPlay, page, PLAIN, softPage, useStage } from '../../../support/stage'
import { interleavings } from '.'
import { partitioned, partitionMoves } from './partition-moves'
import { softDeletes } from './soft-deletes'
import { gatePart } from '../../../support/gate-part'

/** Declares the tests of a file: every interleaving, with all sessions at one of these levels. */
export function testInterleavings(levels: readonly Level[]): void {
  const stage = useStage(useDatabase())
  const soft = { name: 'soft', table: softPage }
  const groups = [
    ...Object.entries(interleavings).map(([group, members]) => ({ group, members, setting: PLAIN })),
    { group: 'soft deletes that free texts', members: softDeletes, setting: soft },
    {
      group: 'moves between partitions',
      members: partitionMoves,
      setting: partitioned('partitioned', guardOf(page).create),
    },
  ]
  for (const level of levels) {
    for (const { group, members, setting } of groups) {
      describe(`${group} at ${level}`, () => {
        // Almost all of them end as at REPEATABLE READ.
        for (const interleaving of level === 'SERIALIZABLE' ? gatePart(4, members) : members) {
          test(interleaving.name, async () => {
            expect(await stage.play(interleaving, level, setting)).toEqual(expectedPlay(interleaving, level))
          })
        }
      })
    }
  }
}
