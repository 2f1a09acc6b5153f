import { expect, test } from 'vitest'
import { describeError, refusalReason } from '../../../src/cli/terminal'
import { ChainLimitError, TextRejectedError } from '../../../src/errors'

const driver = (code: string, fields: object = {}): Error =>
  Object.assign(new Error('Key (url)=(secret) or "secret"'), {
    code,
    severity: 'ERROR',
    detail: 'Key (url)=(secret)',
    ...fields,
  })

test.each([
  [new TextRejectedError({ property: 'url', reason: 'it is no URL' }), 'it is no URL'],
  [
    new TextRejectedError({ property: 'url', reason: 'it contains U+0000', offset: 3 }),
    'it contains U+0000 (code point 3)',
  ],
  [driver('22P02'), 'the database rejects it (SQLSTATE 22P02)'],
  [driver('23505', { constraint: 'IDX_1' }), 'the database rejects it (SQLSTATE 23505, "IDX_1")'],
  [driver('23502', { column: 'title' }), 'the database rejects it (SQLSTATE 23502, "title")'],
  [new RangeError('secret'), `the declaration's "parse" threw a RangeError for it`],
  ['secret', 'it is rejected'],
])('%s, without the text', (error, reason) => {
  expect(refusalReason(error)).toBe(reason)
})

test('a full chain is told in its own words', () => {
  expect(refusalReason(new ChainLimitError('url'))).toMatch(/chain for "url" is full/)
})

test('an error that ends the command keeps its words', () => {
  expect(describeError(new Error('connect ECONNREFUSED'))).toBe('connect ECONNREFUSED')
  expect(describeError(Object.assign(new Error('No space left'), { code: '53100', severity: 'FATAL' }))).toBe(
    'No space left (SQLSTATE 53100)',
  )
  const both = new AggregateError([new Error('connect ECONNREFUSED ::1'), new Error('connect ECONNREFUSED 127.0.0.1')])
  expect(describeError(both)).toBe('connect ECONNREFUSED ::1; connect ECONNREFUSED 127.0.0.1')
  expect(describeError(new TypeError(''))).toBe('TypeError')
  expect(describeError('a string')).toBe('a string')
})

test.each(['22P02', '23505', 'P0001', 'XX000', 'UT001'])(
  'the message of SQLSTATE %s, which may quote the text, is not shown',
  (code) => {
    expect(describeError(driver(code))).toBe(`the database rejects a statement (SQLSTATE ${code})`)
  },
)

test('the constraint that refused a statement is named, and its message is not shown', () => {
  const refused = Object.assign(new Error('Key (url)=(secret)'), {
    code: '23505',
    severity: 'ERROR',
    constraint: 'u\n',
  })
  expect(describeError(refused)).toBe('the database rejects a statement (SQLSTATE 23505, "u\\u000a")')
  expect(describeError(driver('23502', { column: 'title' }))).toBe(
    'the database rejects a statement (SQLSTATE 23502, "title")',
  )
})

test('no message can command the terminal', () => {
  const hostile = 'a\x1b]0;title\x07\nb'
  expect(describeError(Object.assign(new Error(hostile), { code: '42501', severity: 'ERROR' }))).toBe(
    'a\\u001b]0;title\\u0007\\u000ab (SQLSTATE 42501)',
  )
  expect(describeError(new Error(hostile))).toBe('a\\u001b]0;title\\u0007\nb')
  expect(describeError(new AggregateError([new Error(hostile)], ''))).toBe('a\\u001b]0;title\\u0007\nb')
  expect(describeError('\x1b[2J')).toBe('\\u001b[2J')
})
