import { expect, test } from 'vitest'
import { DeclarationError } from '../../../src'
import { checkOptions } from '../../../src/options'
import { CALL_RULES } from '../../../src/calls/call-options'

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

test.each([Promise.resolve({ by: 'url' }), new Map([['by', 'url']]), new Date(0), new AbortController().signal])(
  'options that are ready in no way are refused, for they would be ignored: %s',
  (options) => {
    expect(() => {
      checkOptions('findOneByText()', options, CALL_RULES.findOneByText)
    }).toThrow(/^findOneByText\(\): the options must be an object, got an instance of /)
  },
)

test('an inherited option, and one that a class computes, is checked as one of its own', () => {
  class Computed {
    get withDeleted(): unknown {
      return 'yes'
    }
  }
  const check = (options: object) => (): void => {
    checkOptions('findOneByText()', options, CALL_RULES.findOneByText)
  }
  expect(check(Object.create({ bye: 'url' }) as object)).toThrow('there is no option "bye"')
  expect(check(Object.create({ by: 1 }) as object)).toThrow('by must be the name of a unique text')
  expect(check(new Computed())).toThrow('withDeleted must be true or false')
  expect(check(Object.create(null, { by: { value: 'url', enumerable: true } }) as object)).not.toThrow()
})
