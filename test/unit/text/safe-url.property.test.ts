import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { safeUrl } from '../../../src/text/safe-url'
import { anyString, urlLike } from './arbitraries'
import { realUrls } from './real-urls'
import { unlessRefused } from './unless-refused'

const RUNS = { numRuns: 5000 }

/** The result, or undefined if it was refused. */
function safe(text: string): string | undefined {
  return unlessRefused(() => safeUrl(text))
}

/**
 * What `new URL` of Node.js 24 makes of it, whichever runs; nothing where its host could depend on that. URL.canParse is
 * of no use: in Node.js 20 it refuses `http://é` once it is hot.
 */
function href(text: string): string | undefined {
  if (!/^[\0-\x20]*https?:[/\\\t\n\r]*(?![/\\\t\n\r]|[^/\\?#]*xn--)[^/\\?#%\x80-\uffff]*(?:[/\\?#]|$)/i.test(text))
    return undefined
  try {
    return new URL(text).href.replace(/^[^?#]*/, (start) => start.replaceAll('^', '%5E'))
  } catch {
    return undefined
  }
}

/**
 * What a URL says, as a list: octets of triplets as numbers, everything else as characters, unreserved characters in
 * whichever spelling as characters. Two URLs are equivalent by RFC 3986 section 6.2.2 if these lists are equal.
 */
function meaning(text: string): readonly (string | number)[] {
  return (text.match(/%[0-9a-f]{2}|[^]/gi) ?? []).map((token) => {
    if (token.length === 1) return token
    const octet = Number.parseInt(token.slice(1), 16)
    return /[A-Za-z0-9._~-]/.test(String.fromCharCode(octet)) ? String.fromCharCode(octet) : octet
  })
}

/** User info, host, path, query and fragment of an href, by RFC 3986 appendix B. */
function parts(text: string): readonly (string | undefined)[] {
  const match = /^(https?):\/\/(?:([^/?#]*)@)?([^/?#@]*)([^?#]*)(\?[^#]*)?(#.*)?$/.exec(text)
  if (match === null) throw new Error(`No URL: ${text}`)
  return match.slice(1)
}

const both = fc.oneof({ weight: 4, arbitrary: urlLike }, { weight: 1, arbitrary: anyString })

test('it is total: refuses, or gives an http or https URL that new URL leaves alone', () => {
  fc.assert(
    fc.property(both, (text) => {
      const once = safe(text) ?? 'http://a/'
      expect(once).toMatch(/^https?:\/\/[^/]/)
      expect(new URL(once).href).toBe(once)
    }),
    RUNS,
  )
})

test('it is idempotent', () => {
  fc.assert(
    fc.property(both, (text) => {
      const once = safe(text)
      fc.pre(once !== undefined)
      expect(safe(once)).toBe(once)
    }),
    RUNS,
  )
})

test('what new URL makes of a URL is the same URL', () => {
  fc.assert(
    fc.property(both, (text) => {
      const once = safe(text)
      const whole = href(text)
      fc.pre(once !== undefined && whole !== undefined)
      expect(safe(whole)).toBe(once)
    }),
    RUNS,
  )
})

test('it says what the href says, part by part: nothing is decoded but unreserved characters', () => {
  fc.assert(
    fc.property(urlLike, (text) => {
      const [once, whole] = [safe(text), href(text)]
      // Node.js 20 leaves dot segments in some hrefs; the test below is on those.
      fc.pre(once !== undefined && whole !== undefined && !/^[^?#]*\/\.\.?([/?#]|$)/.test(whole))
      expect(meaning(once)).toEqual(meaning(whole))
      expect(parts(once).map((part) => part && meaning(part))).toEqual(
        parts(whole).map((part) => part && meaning(part)),
      )
    }),
    RUNS,
  )
})

/** The path without dot segments, by RFC 3986 section 5.2.4. */
function withoutDots(path: string): string {
  const kept: string[] = []
  const segments = path.slice(1).split('/')
  for (const [index, segment] of segments.entries()) {
    if (segment === '..') kept.pop()
    if (segment !== '.' && segment !== '..') kept.push(segment)
    else if (index === segments.length - 1) kept.push('')
  }
  return `/${kept.join('/')}`
}

test('it removes dot segments, however spelt, and no others', () => {
  const piece = fc.constantFrom('/', '/', '.', '.', 'a', '%2e', '%2E', '/.', '/..', '/.a/')
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 15 }), fc.constantFrom('', '?/./..', '#/../.'), (pieces, rest) => {
      const path = `/${pieces.join('')}`
      expect(safe(`http://a${path}${rest}`)).toBe(`http://a${withoutDots(path.replace(/%2e/gi, '.'))}${rest}`)
    }),
    RUNS,
  )
})

test('no triplet is left in lower case, and no host has one', () => {
  fc.assert(
    fc.property(urlLike, (text) => {
      const once = safe(text)
      fc.pre(once !== undefined)
      expect(once).not.toMatch(/%(?:[a-f][0-9a-fA-F]|[0-9A-F][a-f])/)
      expect(parts(once)[2]).not.toContain('%')
    }),
    RUNS,
  )
})

test('every spelling of an unreserved character is one URL', () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom('a', 'Z', '0', '-', '.', '_', '~', '/', '?', '#') }), (tail) => {
      const spelt = tail.replace(/[\w.~-]/g, (x) => `%${x.charCodeAt(0).toString(16)}`)
      expect(safe(`http://a/${spelt}`)).toBe(safe(`http://a/${tail}`))
    }),
    RUNS,
  )
})

test('it is idempotent on real URLs and says what their hrefs say', () => {
  const urls = realUrls()
  const wrong = urls.filter((text) => {
    const [once, whole] = [safe(text), href(text)]
    if (whole === undefined) return once !== undefined && safe(once) !== once
    if (once === undefined) return true
    // Most hrefs are normal already, and say what they say.
    return safe(once) !== once || (once !== whole && meaning(once).join() !== meaning(whole).join())
  })
  expect(wrong).toEqual([])
  expect(urls.filter((text) => safe(text) === undefined).length).toBeLessThan(urls.length / 1000)
})

test('it takes hosts that are not ASCII also when it is hot', () => {
  let refused = 0
  for (let call = 0; call < 100_000; call++) refused += safe('http://é') === 'http://xn--9ca/' ? 0 : 1
  expect(refused).toBe(0)
})
