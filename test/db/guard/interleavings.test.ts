import { expect, test } from 'vitest'
import { LEVELS } from '../../support/sessions'
import { allInterleavings } from './interleavings'
import { testInterleavings } from './interleavings/play'

testInterleavings(['READ COMMITTED'])

test('the interleavings are many, and no two have one name', () => {
  expect(new Set(allInterleavings.map(({ name }) => name)).size).toBe(allInterleavings.length)
  expect(allInterleavings.length).toBeGreaterThanOrEqual(105)
  console.log(`${allInterleavings.length} interleavings × ${LEVELS.length} isolation levels`)
})
