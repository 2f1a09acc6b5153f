import { expect, test } from 'vitest'
import { type ParameterFilter, withoutParameters } from '../../../src/text/url'

test.each<[string, ParameterFilter, string]>([
  ['http://a/?b=1&c=2', {}, 'http://a/?b=1&c=2'],
  ['http://a/?b=1&c=2', { removeQueryParameters: false }, 'http://a/?b=1&c=2'],
  ['http://a/?b=1&c=2', { removeQueryParameters: [] }, 'http://a/?b=1&c=2'],
  ['http://a/?b=1&c=2&b', { removeQueryParameters: ['b'] }, 'http://a/?c=2'],
  ['http://a/?b=1&c=2#?b', { removeQueryParameters: ['b', /^C/i] }, 'http://a/#?b'],
  ['http://a/?b=1#c', { removeQueryParameters: true }, 'http://a/#c'],
  ['http://a/?b=1&c=2', { keepQueryParameters: ['b'], removeQueryParameters: true }, 'http://a/?b=1'],
  ['http://a/?b=1', { keepQueryParameters: [] }, 'http://a/'],
  // A name is compared decoded, and what stays is left as it is written.
  ['http://a/?%62=1&b%3D=%2B+%20&x+y', { removeQueryParameters: ['b', 'x y'] }, 'http://a/?b%3D=%2B+%20'],
  ['http://a/?=1&&c', { removeQueryParameters: ['c'] }, 'http://a/?=1&'],
  ['http://a/#?b=1', { removeQueryParameters: ['b'] }, 'http://a/#?b=1'],
  ['http://a/?', { removeQueryParameters: ['b'] }, 'http://a/?'],
])('%j with %j becomes %j', (href, filter, expected) => {
  expect(withoutParameters(href, filter)).toBe(expected)
})

test('a pattern with flags g or y means the same at every parameter', () => {
  const pattern = /^b/gy
  expect(withoutParameters('http://a/?b1&b2&b3&c', { removeQueryParameters: [pattern] })).toBe('http://a/?c')
})
