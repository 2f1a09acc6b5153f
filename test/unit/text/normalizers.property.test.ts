import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { TextRejectedError } from '../../../src/errors'
import { email } from '../../../src/text/email'
import { type Normalizer, compose, normalizeText, toNormalizer } from '../../../src/text/normalizer'
import { collapseWhitespace, lowerCase, nfc, trim } from '../../../src/text/normalizers'
import { unstorable } from '../../../src/text/storable'
import { url } from '../../../src/text/url-presets'
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
    ['%', `http://a/${'%'.repeat(1e6)}`],
    ['%4', `http://a/${'%4'.repeat(1e6)}`],
    ['%41', `http://a/${'%41'.repeat(1e6)}`],
    ['space', `${' '.repeat(1e6)}a${' '.repeat(1e6)}b`],
    ['quote', `${'"'.repeat(1e6)}@b`],
    ['label', `a@${'b-'.repeat(1e6)}`],
  ])('takes linear time for a million times %s', (_, text) => {
    const start = performance.now()
    unlessRefused(() => normalizer.normalize(text))
    // Quadratic ones take minutes.
    expect(performance.now() - start).toBeLessThan(10_000)
  })
})
