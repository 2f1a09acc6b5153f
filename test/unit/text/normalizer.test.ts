import { inspect } from 'node:util'
import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { DeclarationError, TextRejectedError } from '../../../src/errors'
import type { Normalizer } from '../../../src/text/normalizer'
import { compose, normalizer, normalizeText, Refusal, toNormalizer } from '../../../src/text/normalizer'
import { nfc, trim } from '../../../src/text/normalizers'
import { url } from '../../../src/text/url'
import { anyString } from './arbitraries'

/** Takes one pair of quotes off. */
function unquote(text: string): string {
  return text.replace(/^"(.*)"$/s, '$1')
}

/** What `normalizeText` throws. */
function rejection(option: Normalizer | undefined, text: unknown): TextRejectedError {
  try {
    normalizeText(toNormalizer(option), 'url', text)
  } catch (error) {
    if (error instanceof TextRejectedError) return error
    throw error
  }
  throw new Error('It was not rejected.')
}

const throwing = (error: unknown): Normalizer =>
  normalizer('slug', 1, () => {
    throw error
  })

describe('normalizer()', () => {
  test.each([
    ['', 1, String],
    ['a\0', 1, String],
    [1, 1, String],
    ['a', 0, String],
    ['a', 1.5, String],
    ['a', Number.NaN, String],
    ['a', '1', String],
    ['a', 1, 'lower'],
  ])('refuses (%j, %j, %s)', (name, version, fn) => {
    expect(() => normalizer(name as string, version as number, fn as never)).toThrow(DeclarationError)
  })

  test('makes what cannot be changed', () => {
    expect(normalizer('a', 2, String)).toEqual({ name: 'a', version: 2, normalize: String })
    expect(Object.isFrozen(normalizer('a', 2, String))).toBe(true)
  })
})

describe('toNormalizer()', () => {
  test('nothing is none@1, a normalizer itself', () => {
    expect(toNormalizer(undefined)).toMatchObject({ name: 'none', version: 1 })
    expect(toNormalizer(undefined).normalize(' a ')).toBe(' a ')
    const own = { name: 'own', version: 3, normalize: String }
    expect(toNormalizer(own)).toBe(own)
  })

  test.each([[null], ['url'], [{}], [{ name: 'a', version: 1 }], [{ name: 'a', version: 0, normalize: String }]])(
    'refuses %j',
    (option) => {
      expect(() => toNormalizer(option as never)).toThrow(DeclarationError)
    },
  )
})

describe('compose()', () => {
  test('goes from left to right and tells its parts', () => {
    const both = compose(
      trim(),
      normalizer('dash', 2, (text) => text.replace(/^-*/, '-')),
    )
    expect(both.name).toBe('compose(trim@1,dash@2)')
    expect(both.normalize('  a ')).toBe('-a')
  })

  test('is idempotent where the mere composition is not', () => {
    const both = compose(trim(), normalizer('unquote', 1, unquote))
    expect(unquote('" a "'.trim())).toBe(' a ')
    expect(both.normalize('" a "')).toBe('a')
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom('"', ' ', 'a'), maxLength: 8 }), (text) => {
        expect(both.normalize(both.normalize(text))).toBe(both.normalize(text))
      }),
    )
  })

  test('refuses what does not come to rest', () => {
    const swing = compose(normalizer('swing', 1, (text) => (text === 'a' ? 'b' : 'a')))
    expect(rejection(swing, 'a').reason).toBe('it keeps changing after 10 rounds of normalizing')
  })

  test('passes on what a part refuses', () => {
    expect(rejection(compose(trim(), url()), 'x').reason).toBe('it is not an http or https URL')
    expect(rejection(compose(throwing(new RangeError('only .org'))), 'x').cause).toEqual(new RangeError('only .org'))
    expect(rejection(compose(normalizer('one', 1, (() => 1) as never), trim()), 'x').reason).toBe(
      'the normalizer "one" returned number instead of a string',
    )
  })

  test('of nothing, or of what is no normalizer, is an error', () => {
    expect(() => compose()).toThrow(DeclarationError)
    expect(() => compose(trim(), {} as never)).toThrow(DeclarationError)
  })

  test('refuses a bare function, whose change nobody could see, and says how to give it a name', () => {
    const bare = String as unknown as Normalizer
    for (const call of [() => compose(trim(), bare), () => compose(trim as unknown as Normalizer)]) {
      expect(call).toThrow(DeclarationError)
      expect(call).toThrow('compose(): normalize must be a normalizer')
      expect(call).toThrow("normalizer('name', 1, fn)")
    }
  })
})

describe('normalizeText()', () => {
  test('gives the normalized text', () => {
    expect(normalizeText(nfc(), 'name', 'e\u0301')).toBe('é')
  })

  test.each([
    [undefined, 'expected a string, got undefined'],
    [null, 'expected a string, got null'],
    [1, 'expected a string, got number'],
    [new String('a'), 'expected a string, got object'],
  ])('rejects %s', (text, reason) => {
    expect(rejection(undefined, text)).toMatchObject({ property: 'url', reason, offset: undefined })
  })

  test('rejects what cannot be stored before the normalizer can hide it', () => {
    expect(new URL('\0http://a/').href).toBe('http://a/')
    expect(rejection(url(), '\0http://a/')).toMatchObject({ reason: 'it contains U+0000', offset: 0 })
    expect(rejection(url(), 'http://a/😀\ud800')).toMatchObject({ reason: 'it contains a lone surrogate', offset: 10 })
  })

  test('rejects what cannot be stored after the normalizer, without an offset', () => {
    const reason = 'after the normalizer "zero" it contains U+0000'
    expect(
      rejection(
        normalizer('zero', 1, (text) => `${text}\0`),
        'a',
      ),
    ).toMatchObject({ reason, offset: undefined })
  })

  test('rejects what is no string after the normalizer', () => {
    const reason = 'the normalizer "one" returned object instead of a string'
    expect(rejection(normalizer('one', 1, (async (text: string) => text) as never), 'a')).toMatchObject({ reason })
  })

  test('takes the words of a Refusal, and of no other error', () => {
    const refused = rejection(throwing(new Refusal('it is no .org')), 'a')
    expect(refused.reason).toBe('it is no .org')
    expect(refused.cause).toBeUndefined()
    const error = new RangeError('only .org')
    expect(rejection(throwing(error), 'x/y')).toMatchObject({
      reason: 'the normalizer "slug" refused it',
      cause: error,
    })
  })
})

test('no message, property or printed error holds the text', () => {
  const parts = [
    url(),
    url('canonical'),
    throwing(new Error('no')),
    normalizer('href', 1, (given) => new URL(given).href),
  ]
  fc.assert(
    fc.property(anyString, fc.constantFrom(...parts), fc.boolean(), (noise, option, stored) => {
      // Words that no message can have of its own.
      const text = `SECRET${noise}${stored ? '' : '\0'}SECRET`
      const error = rejection(option, text)
      expect(inspect(error, { depth: null, showHidden: true })).not.toContain('SECRET')
      expect(error.message).not.toContain('SECRET')
    }),
    { numRuns: 500 },
  )
})
