import { describe, expect, test } from 'vitest'
import { email } from '../../../src/text/email'
import { collapseWhitespace, lowerCase, nfc, trim } from '../../../src/text/normalizers'
import { Refusal } from '../../../src/text/refusal'

test('nfc composes, and leaves compatibility characters alone', () => {
  expect(nfc().normalize('e\u0301 A\u030a \u212b ﬁ')).toBe('é Å Å ﬁ')
})

test('trim takes off what String.prototype.trim does, at the ends only', () => {
  expect(trim().normalize('\t\ufeff\u3000 a  b \r\n\u2028')).toBe('a  b')
  expect(trim().normalize('\u0085a')).toBe('\u0085a')
})

test('collapseWhitespace makes one space of every run, and none at the ends', () => {
  expect(collapseWhitespace().normalize('\ufeff a\r\n\tb\u0085\u3000c\u00a0')).toBe('a b c')
  expect(collapseWhitespace().normalize('a\u200bb\ufeffc')).toBe('a\u200bb\ufeffc')
})

test('lowerCase knows no locale', () => {
  expect(lowerCase().normalize('ÀÉ I İ ẞ ΟΔΟΣ ǅ')).toBe('àé i i\u0307 ß οδος ǆ')
})

test('lowerCase is idempotent on every code point, before, after and between others', () => {
  const { normalize } = lowerCase()
  const changing: number[] = []
  for (let point = 0; point <= 0x10ffff; point++) {
    const x = String.fromCodePoint(point)
    const lower = normalize(`${x} A${x}Σ Σ${x}A AΣ${x} ${x}Σ${x}`)
    if (normalize(lower) !== lower) changing.push(point)
  }
  expect(changing).toEqual([])
})

describe('email()', () => {
  test.each([
    [' Joe.Doe@Example.ORG\n', 'Joe.Doe@example.org'],
    ['a+tag@b', 'a+tag@b'],
    ['"a b@c"@d.org', '"a b@c"@d.org'],
    ['"a\\"b"@d.org', '"a\\"b"@d.org'],
    ['Jörg@Bücher.example', 'Jörg@xn--bcher-kva.example'],
    ['a@XN--BCHER-KVA.example', 'a@xn--bcher-kva.example'],
    ['a@b。org', 'a@b.org'],
    ['.a..b.@c.org', '.a..b.@c.org'],
    [`a@${'b'.repeat(63)}.org`, `a@${'b'.repeat(63)}.org`],
  ])('%j becomes %j', (text, expected) => {
    expect(email().normalize(text)).toBe(expected)
  })

  test.each([
    ['', 'it has no "@"'],
    ['example.org', 'it has no "@"'],
    ['@example.org', 'it has nothing before the "@"'],
    ['a@b@c.org', 'it has a character before the "@" that must be quoted'],
    ['a@b.org, c@d.org', 'it has a character before the "@" that must be quoted'],
    ['Joe <a@b.org', 'it has a character before the "@" that must be quoted'],
    ['mailto:a@b.org', 'it has a character before the "@" that must be quoted'],
    ['"a"b"@c.org', 'it has a character before the "@" that must be quoted'],
    ['a\0@c.org', 'it has a character before the "@" that must be quoted'],
  ])('%j is refused: %s', (text, reason) => {
    expect(() => email().normalize(text)).toThrow(new Refusal(reason))
  })

  const long = 'b'.repeat(64)
  const invalid = `. .org b. b..c -b.org b-.org b_c.org b.org> b/c b:25 b%41.org b\tc.org 1 0x7f.1 127.0.0.1 １２７.1
    [127.0.0.1] [IPv6:::1] xn--a \ud800.org ${long}.org ${'b.'.repeat(127)}org`.split(/[ \n]+/)

  test.each([...invalid, '', ' ', 'b c.org'])('the domain %j is refused', (domain) => {
    expect(() => email().normalize(`a@${domain}`)).toThrow(new Refusal('it has no valid domain after the "@"'))
  })
})
