import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { LEVELS } from '../../support/sessions'
import { expectedPlay, useStage } from '../../support/stage'
import { allInterleavings, interleavings } from './interleavings'

const stage = useStage(useDatabase())

for (const level of LEVELS) {
  for (const [group, members] of Object.entries(interleavings)) {
    describe(`${group} at ${level}`, () => {
      for (const interleaving of members) {
        test(interleaving.name, async () => {
          expect(await stage.play(interleaving, level)).toEqual(expectedPlay(interleaving, level))
        })
      }
    })
  }
}

test('the interleavings are many, and no two have one name', () => {
  expect(new Set(allInterleavings.map(({ name }) => name)).size).toBe(allInterleavings.length)
  expect(allInterleavings.length).toBeGreaterThanOrEqual(105)
  console.log(`${allInterleavings.length} interleavings × ${LEVELS.length} isolation levels`)
})
