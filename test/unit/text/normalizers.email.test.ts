import { describe, expect, test } from 'vitest'
import { email } from '../../../src/text/normalizers'
import { DeclarationError } from '../../../src/errors'
import { Refusal } from '../../../src/text/normalizer'

/** Characters that nobody sees, by their code points. */
const INVISIBLE = '202a 202e 2066 2069 200b 200d 200e 2060 00ad 061c 034f 3164 fe0f e0041'
  .split(' ')
  .map((code) => String.fromCodePoint(Number.parseInt(code, 16)))

describe('email()', () => {
  test.each([
    [' Joe.Doe@Example.ORG\n', 'joe.doe@example.org'],
    ['a+tag@b', 'a+tag@b'],
    ['"a b@c"@d.org', '"a b@c"@d.org'],
    ['"a\\"b"@d.org', '"a\\"b"@d.org'],
    ['Jörg@Bücher.example', 'jörg@xn--bcher-kva.example'],
    ['a@XN--BCHER-KVA.example', 'a@xn--bcher-kva.example'],
    ['a@b。org', 'a@b.org'],
    ['a@FAẞ.de', 'a@xn--fa-hia.de'],
    ['".a..b."@c.org', '".a..b."@c.org'],
    [`${'a'.repeat(64)}@c.org`, `${'a'.repeat(64)}@c.org`],
    [`${'é'.repeat(32)}@c.org`, `${'é'.repeat(32)}@c.org`],
    [`a@${'b'.repeat(63)}.org`, `a@${'b'.repeat(63)}.org`],
    [`a@${'b.'.repeat(125)}org`, `a@${'b.'.repeat(125)}org`],
    ['"A\\B"@C.org', '"a\\b"@c.org'],
  ])('%j becomes %j', (text, expected) => {
    expect(email().normalize(text)).toBe(expected)
  })

  test('with keepCase it lowers only the domain, under another name', () => {
    const { name, normalize } = email({ keepCase: true })
    expect(normalize(' Joe.Doe@Example.ORG')).toBe('Joe.Doe@example.org')
    expect([name, email().name, email({ keepCase: false }).name]).toEqual(['email-keep-case', 'email', 'email'])
  })

  test('another option, or another value, is a DeclarationError', () => {
    for (const options of [{ lower: true }, { keepCase: 'no' }])
      expect(() => email(options as Parameters<typeof email>[0])).toThrow(DeclarationError)
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
    ...['.a', 'a.', 'a..b', '.', '..'].map(
      (local) => [`${local}@c.org`, 'it has a dot at an end of what is before the "@", or two dots in a row'] as const,
    ),
    ...['a'.repeat(65), 'é'.repeat(33), `"${'a'.repeat(63)}"`].map(
      (local) => [`${local}@c.org`, 'it has more than 64 octets before the "@"'] as const,
    ),
    ...INVISIBLE.flatMap((one) => [`a${one}b`, `"a${one}"`]).map(
      (local) => [`${local}@c.org`, 'it has a character before the "@" that cannot be seen'] as const,
    ),
    ['"\\\0"@c.org', 'it has a character before the "@" that must be quoted'],
  ] as [string, string][])('%j is refused: %s', (text, reason) => {
    expect(() => email().normalize(text)).toThrow(new Refusal(reason))
  })

  const long = 'b'.repeat(64)
  const invalid = `. .org b. b..c -b.org b-.org b_c.org b.org> b/c b:25 b%41.org b\tc.org 1 0x7f.1 127.0.0.1 １２７.1
    [127.0.0.1] [IPv6:::1] xn--a ßxn-- \ud800.org ${long}.org ${'b.'.repeat(127)}org ${'b.'.repeat(125)}oorg`.split(
    /[ \n]+/,
  )

  test.each([...invalid, '', ' ', 'b c.org'])('the domain %j is refused', (domain) => {
    expect(() => email().normalize(`a@${domain}`)).toThrow(new Refusal('it has no valid domain after the "@"'))
  })
})
