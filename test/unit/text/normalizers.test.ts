import { expect, test } from 'vitest'
import { collapseWhitespace, lowerCase, nfc, trim } from '../../../src/text/normalizers'
import { Refusal } from '../../../src/text/normalizer'

test('nfc composes, and leaves compatibility characters alone', () => {
  expect(nfc().normalize('e\u0301 A\u030a \u212b ﬁ')).toBe('é Å Å ﬁ')
})

test('nfc refuses a run of more than 128 marks, given or made', () => {
  const { normalize } = nfc()
  const refusal = new Refusal('it has more than 128 combining marks in a row')
  expect(normalize(`a${'\u0308'.repeat(128)}b\u0308`)).toBe(`ä${'\u0308'.repeat(127)}b\u0308`)
  expect(normalize('\u{1e8d0}'.repeat(128))).toBe('\u{1e8d0}'.repeat(128))
  expect(() => normalize(`a${'\u0308'.repeat(129)}`)).toThrow(refusal)
  // Each becomes two.
  expect(() => normalize(`a${'\u0344'.repeat(65)}`)).toThrow(refusal)
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
