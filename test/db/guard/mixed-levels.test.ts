import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { LEVELS } from '../../support/sessions'
import { useStage } from '../../support/stage'
import { interleavings } from './interleavings'

const stage = useStage(useDatabase())

/** P at one level, Q and R at another. */
const mixed = LEVELS.flatMap((P) => LEVELS.filter((other) => other !== P).map((other) => ({ P, Q: other, R: other })))

for (const [group, members] of Object.entries(interleavings)) {
  if (group === 'MDEV-37199') continue
  describe(`${group} with sessions at different isolation levels`, () => {
    for (const interleaving of members) {
      test(interleaving.name, async () => {
        for (const levels of mixed) {
          const { violations, transcript } = await stage.play(interleaving, levels)
          expect({ levels, transcript, violations }).toEqual({ levels, transcript, violations: [] })
        }
      })
    }
  })
}
