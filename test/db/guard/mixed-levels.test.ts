import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { LEVELS } from '../../support/sessions'
import { PLAIN, softPage, useStage } from '../../support/stage'
import { interleavings } from './interleavings'
import { softDeletes } from './interleavings/soft-deletes'
import { gatePart } from '../../support/gate-part'

const stage = useStage(useDatabase())

/** P at one level, Q and R at another. */
const mixed = gatePart(
  3,
  LEVELS.flatMap((P) => LEVELS.filter((other) => other !== P).map((other) => ({ P, Q: other, R: other }))),
)

for (const [group, members] of Object.entries({ ...interleavings, 'soft deletes': softDeletes })) {
  if (group === 'MDEV-37199') continue
  const setting = members === softDeletes ? { name: 'soft', table: softPage } : PLAIN
  describe(`${group} with sessions at different isolation levels`, () => {
    for (const interleaving of members) {
      test(interleaving.name, async () => {
        for (const levels of mixed) {
          const { violations, transcript } = await stage.play(interleaving, levels, setting)
          expect({ levels, transcript, violations }).toEqual({ levels, transcript, violations: [] })
        }
      })
    }
  })
}
