import { expect, test } from 'vitest'
import { declarationDifference } from '../../../src/triggers/attached'
import type { Declared } from '../../../src/triggers/kinds'

const wanted: Declared = { kind: 'number', name: 'one', protocol: 3 }

test.each([
  [1, undefined, false],
  [2, undefined, false],
  [2, 1, false],
  [3, undefined, true],
  [3, 1, true],
  [4, undefined, false],
  [4, 4, false],
  [4, 3, true],
  [4, 1, true],
])('what is installed with protocol %i, and serves %s, is worked with: %s', (protocol, serves, works) => {
  const found = { ...wanted, protocol, ...(serves === undefined ? {} : { serves }) }
  const refusal = `it has protocol ${protocol}, and this release works with 3`
  expect(declarationDifference(wanted, found)).toBe(works ? undefined : refusal)
})

test('what attach adds is no difference, another declaration is', () => {
  const found: Declared = { ...wanted, on: ['public', 'other'], triggers: [7], bodies: 'other' }
  expect(declarationDifference(wanted, found)).toBeUndefined()
  expect(declarationDifference(wanted, Object.assign({}, found, { start: 2 }))).toBe(
    'it was made for another declaration',
  )
})
