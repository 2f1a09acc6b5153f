import { expect, test } from 'vitest'
import { describeError, refusalReason } from '../../../src/cli/reasons'
import { ChainLimitError, TextRejectedError } from '../../../src/errors'

const driver = (code: string, fields: object = {}): Error =>
  Object.assign(new Error('Key (url)=(secret) or "secret"'), { code, detail: 'Key (url)=(secret)', ...fields })

test.each([
  [new TextRejectedError({ property: 'url', reason: 'it is no URL' }), 'it is no URL'],
  [
    new TextRejectedError({ property: 'url', reason: 'it contains U+0000', offset: 3 }),
    'it contains U+0000 (code point 3)',
  ],
  [driver('22P02'), 'the database refuses it (SQLSTATE 22P02)'],
  [driver('23505', { constraint: 'IDX_1' }), 'the database refuses it (SQLSTATE 23505, "IDX_1")'],
  [new RangeError('secret'), `it made the declaration's "parse" throw a RangeError`],
  ['secret', 'it is refused'],
])('%s, without the text', (error, reason) => {
  expect(refusalReason(error)).toBe(reason)
})

test('a full chain is told in its own words', () => {
  expect(refusalReason(new ChainLimitError('url'))).toMatch(/chain for "url" is full/)
})

test('an error that ends the command keeps its words', () => {
  expect(describeError(new Error('connect ECONNREFUSED'))).toBe('connect ECONNREFUSED')
  expect(describeError(Object.assign(new Error('No space left'), { code: '53100' }))).toBe(
    'No space left (SQLSTATE 53100)',
  )
  const both = new AggregateError([new Error('connect ECONNREFUSED ::1'), new Error('connect ECONNREFUSED 127.0.0.1')])
  expect(describeError(both)).toBe('connect ECONNREFUSED ::1; connect ECONNREFUSED 127.0.0.1')
  expect(describeError(new TypeError(''))).toBe('TypeError')
  expect(describeError('a string')).toBe('a string')
})
