import { expect, test } from 'vitest'
import { DeclarationError } from '../../../src'
import { checkOptions } from '../../../src/options'
import { CALL_RULES } from '../../../src/rows/call-options'

test('an option that a call does not take is refused, and those that it takes are named', () => {
  const misspelt = (): void => {
    checkOptions('findOrCreate()', { bye: 'url' }, CALL_RULES.findOrCreate)
  }
  expect(misspelt).toThrow(DeclarationError)
  expect(misspelt).toThrow(/^findOrCreate\(\): there is no option "bye"\. It takes by\b/)
})

test('an option that every object inherits is none', () => {
  expect(() => {
    checkOptions('findOrCreate()', { toString: () => 'by' }, CALL_RULES.findOrCreate)
  }).toThrow(/no option "toString"/)
})

test.each([['url'], [null], [['url']], [1]])('options that are no object are refused: %j', (options) => {
  expect(() => {
    checkOptions('findOneByText()', options, CALL_RULES.findOneByText)
  }).toThrow(/the options must be an object/)
})

test('a value that an option does not take is refused, and undefined counts as left out', () => {
  expect(() => {
    checkOptions('findOrCreateMany()', { by: Symbol('url') }, CALL_RULES.findOrCreateMany)
  }).toThrow('findOrCreateMany(): by must be the name of a unique text.')
  expect(() => {
    checkOptions('findOrCreateMany()', { by: undefined }, CALL_RULES.findOrCreateMany)
  }).not.toThrow()
})
