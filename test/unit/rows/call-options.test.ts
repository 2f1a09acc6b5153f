import { expect, test } from 'vitest'
import { DeclarationError } from '../../../src'
import { checkCallOptions } from '../../../src/rows/call-options'

test('an option that a call does not take is refused, and those that it takes are named', () => {
  const misspelt = (): void => {
    checkCallOptions('findOrCreate', { bye: 'url' })
  }
  expect(misspelt).toThrow(DeclarationError)
  expect(misspelt).toThrow(/^findOrCreate\(\): there is no option "bye"\. It takes by\b/)
})

test('an option that every object inherits is none', () => {
  expect(() => {
    checkCallOptions('findOrCreate', { toString: () => 'by' })
  }).toThrow(/no option "toString"/)
})

test.each([['url'], [null], [['url']], [1]])('options that are no object are refused: %j', (options) => {
  expect(() => {
    checkCallOptions('findOneByText', options as object)
  }).toThrow(/expected an object with options/)
})

test('a value that an option does not take is refused, and undefined counts as left out', () => {
  expect(() => {
    checkCallOptions('findOrCreateMany', { by: Symbol('url') })
  }).toThrow('findOrCreateMany(): by must be the name of a unique text.')
  expect(() => {
    checkCallOptions('findOrCreateMany', { by: undefined })
  }).not.toThrow()
})
