import { expect, test } from 'vitest'
import { noteDifference } from '../../../src/triggers/plan'
import { triggerSet } from '../../../src/sql/trigger-set'

const set = triggerSet({
  kind: 'names',
  name: 'one',
  table: { schema: undefined, name: 'one' },
  docs: '',
  functions: [{ name: 'runs', body: 'BEGIN END', says: '' }],
  triggers: () => [],
  note: { protocol: 3 },
})

/** A release that makes protocol 3 and works with 2. */
const release = { ...set, note: { ...set.note, protocol: 3 }, accepts: 2 }

test.each([
  [1, undefined, false],
  [1, 1, false],
  [2, undefined, true],
  [2, 1, true],
  [3, undefined, true],
  [4, undefined, false],
  [4, 4, false],
  [4, 3, true],
  [4, 1, true],
])('what is installed with protocol %i, and serves %s, is worked with: %s', (protocol, serves, works) => {
  const note = { ...set.note, protocol, ...(serves === undefined ? {} : { serves }) }
  const refusal = `it has protocol ${protocol}, and this release works with 2 to 3`
  expect(noteDifference(release, note)).toBe(works ? undefined : refusal)
})

test('what the releases wrote in other words is no difference, another declaration is', () => {
  expect(noteDifference(release, { ...set.note, protocol: 2, triggers: ['other'] })).toBeUndefined()
  expect(noteDifference(release, Object.assign({}, set.note, { protocol: 2, name: 'other' }))).toBe(
    'it was made for another declaration',
  )
  expect(noteDifference(release, undefined)).toBe('it holds no note of the package')
})
