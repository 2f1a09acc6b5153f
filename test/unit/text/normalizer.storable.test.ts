import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { isWellFormed, unstorable } from '../../../src/text/normalizer'
import { anyString } from './arbitraries'

test('U+0000 and a lone surrogate cannot be stored', () => {
  expect(unstorable('a\0b')).toEqual({ reason: 'it contains U+0000', offset: 1 })
  expect(unstorable('\ud800')).toEqual({ reason: 'it contains a lone surrogate', offset: 0 })
  expect(unstorable('ab\udc00')).toEqual({ reason: 'it contains a lone surrogate', offset: 2 })
  expect(unstorable('\udc00\ud800')).toEqual({ reason: 'it contains a lone surrogate', offset: 0 })
})

test('the offset counts code points, and the first fault is told', () => {
  expect(unstorable('😀é\0\ud800')).toEqual({ reason: 'it contains U+0000', offset: 2 })
  expect(unstorable('😀é\ud800\0')).toEqual({ reason: 'it contains a lone surrogate', offset: 2 })
})

test('everything else can be stored', () => {
  for (const text of ['', 'a', '\u0001', '\ufffd', '\ufffe', '\uffff', '😀', '\u{10ffff}']) {
    expect(unstorable(text)).toBeUndefined()
  }
})

test('a text can be stored if it has no U+0000 and comes back from UTF-8 as it was', () => {
  fc.assert(
    fc.property(anyString, (text) => {
      const returns = Buffer.from(text, 'utf8').toString('utf8') === text
      expect(isWellFormed(text)).toBe(returns)
      expect(unstorable(text) === undefined).toBe(returns && !text.includes('\0'))
    }),
    { numRuns: 2000 },
  )
})

test('the offset is that of the first code point to blame', () => {
  fc.assert(
    fc.property(anyString, (text) => {
      const fault = unstorable(text)
      const points = Array.from(text)
      const first = points.findIndex((point) => unstorable(point) !== undefined)
      expect(fault?.offset ?? -1).toBe(first)
    }),
    { numRuns: 2000 },
  )
})
