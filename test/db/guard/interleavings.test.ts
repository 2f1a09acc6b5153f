import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { LEVELS } from '../../support/sessions'
import { expectedPlay, softPage, useStage } from '../../support/stage'
import { allInterleavings, interleavings } from './interleavings'
import { softDeletes } from './interleavings/soft-deletes'

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

for (const level of LEVELS) {
  describe(`soft deletes that free texts at ${level}`, () => {
    for (const interleaving of softDeletes) {
      test(interleaving.name, async () => {
        const setting = { name: 'soft', table: softPage }
        expect(await stage.play(interleaving, level, setting)).toEqual(expectedPlay(interleaving, level))
      })
    }
  })
}

test('the interleavings are many, and no two have one name', () => {
  expect(new Set(allInterleavings.map(({ name }) => name)).size).toBe(allInterleavings.length)
  expect(allInterleavings.length).toBeGreaterThanOrEqual(105)
  console.log(`${allInterleavings.length} interleavings × ${LEVELS.length} isolation levels`)
})
