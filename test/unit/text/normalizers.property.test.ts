import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { TextRejectedError } from '../../../src/errors'
import { collapseWhitespace, email, lowerCase, nfc, trim } from '../../../src/text/normalizers'
import { compose, type Normalizer, normalizeText, toNormalizer, unstorable } from '../../../src/text/normalizer'
import { url } from '../../../src/text/url'
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
  url('canonical', { maxLength: 10_000_000, removeQueryParameters: [/^a/, /^utm_/] }),
  url('canonical', { stripHash: true, forceHttps: true, removeDirectoryIndex: true, sortQueryParameters: false }),
  compose(nfc(), lowerCase(), collapseWhitespace()),
  email({ keepCase: true }),
  compose(url(), lowerCase()),
]

/** As many of a piece as make so many characters. */
function many(piece: string, characters: number): string {
  return piece.repeat(Math.ceil(characters / piece.length))
}

/** Texts of any length for which one of the steps, or a simpler one in its place, takes quadratic time. */
const ADVERSARIAL: Readonly<Record<string, (characters: number) => string>> = {
  '%': (length) => `http://a/${many('%', length)}`,
  '%4': (length) => `http://a/${many('%4', length)}`,
  '%41': (length) => `http://a/${many('%41', length)}`,
  'escaped escapes': (length) => `http://a/%${many('25', length)}41`,
  '^ and stray %': (length) => `http://a/${many('%^%41', length)}`,
  spaces: (length) => `${many(' ', length)}a${many(' ', length)}b`,
  'quoted quotes': (length) => `"${many(String.raw`\"`, length)}"@b`,
  '@': (length) => `http://${many('@', length)}é`,
  'a mail domain with hyphens': (length) => `a@${many('b-', length)}`,
  'a domain outside ASCII': (length) => `a@${many('é', length)}`,
  'a host outside ASCII': (length) => `http://${many('é', length)}`,
  'a host in Punycode': (length) => `http://xn--${many('a1', length)}`,
  'a host with spaces at its end': (length) => `http://é${many(' ', length)}x`,
  'a host of dots': (length) => `http://${many('a.', length)}`,
  'dot segments': (length) => `http://a${many('/a', length)}${many('/..', length)}`,
  'dot segments that Node.js 20 leaves': (length) => `http://a${many('/.b/../.', length)}`,
  'protocols in the path': (length) => `http://a/${many('ab://', length)}`,
  'distinct parameters': (length) => `http://a/?${distinct('a', length)}`,
  'distinct tracking parameters': (length) => `http://a/?${distinct('utm_', length)}`,
  'empty parameters': (length) => `http://a/?${many('&', length)}`,
  'text fragments': (length) => `http://a/#${many(':~:text', length)}`,
  'a run of marks out of order': (length) => `a${many('\u0301\u0323', length)}`,
  'runs of marks out of order': (length) => many(`a${'\u0301\u0323'.repeat(60)}`, length),
  'final sigmas': (length) => many('Σ.', length),
}

function distinct(name: string, characters: number): string {
  return Array.from({ length: Math.ceil(characters / 10) }, (_, index) => `${name}${index}=1`).join('&')
}

const texts = fc.oneof(anyString, urlLike, emailLike)

function normalizedOrRejected(normalizer: Normalizer, text: string): string | TextRejectedError {
  try {
    return normalizeText(normalizer, 'text', text)
  } catch (error) {
    if (error instanceof TextRejectedError) return error
    throw error
  }
}

describe.each(normalizers.map((item, position) => [`${position} ${item.name}`, item] as const))(
  '%s',
  (_, normalizer) => {
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

    test.each(Object.entries(ADVERSARIAL))('takes linear time for %s', (_name, make) => {
      const work = (length: number) => {
        const text = make(length)
        return () => void unlessRefused(() => normalizer.normalize(text))
      }
      // Quadratic time would be 16 times as much. The limit of url('canonical') lies above the first length.
      expect(growth(work, 60_000, 16)).toBeLessThan(5)
    })
  },
)
