import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { TextRejectedError } from '../../../src/errors'
import { email } from '../../../src/text/email'
import { type Normalizer, compose, normalizeText, toNormalizer } from '../../../src/text/normalizer'
import { collapseWhitespace, lowerCase, nfc, trim } from '../../../src/text/normalizers'
import { unstorable } from '../../../src/text/storable'
import { url } from '../../../src/text/url-presets'
import { growth } from '../../support/growth'
import { anyString, emailLike, urlLike } from './arbitraries'
import { unlessRefused } from './unless-refused'

const normalizers = [
  toNormalizer(undefined),
  nfc(),
  trim(),
  collapseWhitespace(),
  lowerCase(),
  email(),
  url(),
  url('canonical'),
  url('canonical', { stripHash: true, forceHttps: true, removeDirectoryIndex: true, sortQueryParameters: false }),
  compose(nfc(), lowerCase(), collapseWhitespace()),
  compose(lowerCase(), email()),
  compose(url(), lowerCase()),
]
const texts = fc.oneof(anyString, urlLike, emailLike)

function normalizedOrRejected(normalizer: Normalizer, text: string): string | TextRejectedError {
  try {
    return normalizeText(normalizer, 'text', text)
  } catch (error) {
    if (error instanceof TextRejectedError) return error
    throw error
  }
}

describe.each(normalizers.map((item) => [item.name, item] as const))('%s', (_, normalizer) => {
  test('is total: refuses, or gives a string that it then leaves alone', () => {
    fc.assert(
      fc.property(texts, (text) => {
        const once = unlessRefused(() => normalizer.normalize(text))
        fc.pre(once !== undefined)
        expect(typeof once).toBe('string')
        expect(normalizer.normalize(once)).toBe(once)
      }),
      { numRuns: 1000, maxSkipsPerRun: 10_000 },
    )
  })

  test('gives only what Postgres can store, through normalizeText', () => {
    fc.assert(
      fc.property(texts, (text) => {
        const result = normalizedOrRejected(normalizer, text)
        expect(typeof result === 'string' ? unstorable(result) : result.cause).toBeUndefined()
      }),
      { numRuns: 1000 },
    )
  })

  test.each([
    ['%', (length: number) => `http://a/${'%'.repeat(length)}`],
    ['%4', (length: number) => `http://a/${'%4'.repeat(length / 2)}`],
    ['%41', (length: number) => `http://a/${'%41'.repeat(length / 3)}`],
    ['tracking parameters', (length: number) => `http://a/?${'utm_a=1&'.repeat(length / 8)}`],
    ['marks', (length: number) => `a${'\u0300\u0316'.repeat(length / 2)}`],
    ['space', (length: number) => `${' '.repeat(length / 2)}a${' '.repeat(length / 2)}b`],
    ['quote', (length: number) => `${'"'.repeat(length)}@b`],
    ['label', (length: number) => `a@${'b-'.repeat(length / 2)}`],
  ])('takes linear time for %s', (_name, make) => {
    const work = (length: number) => {
      const text = make(length)
      return () => void unlessRefused(() => normalizer.normalize(text))
    }
    // Quadratic time would be 16 times as much. The limit of url('canonical') lies above the first length.
    expect(growth(work, 60_000, 16)).toBeLessThan(5)
  })
})
