import * as fc from 'fast-check'

/** Any string, lone surrogates and U+0000 among them. */
export const anyString = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string({ unit: fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)) }),
  fc.string({ unit: fc.constantFrom('\0', '\ud800', '\udfff', 'a', ' ', '\u0301', '\u0085', '\ufeff', 'Σ', 'İ', 'ẞ') }),
)

/** Strings of pieces that have a meaning somewhere in a URL, or once made one of two different URLs. */
const urlPiece = fc.constantFrom(
  ...'% %% %3 %34 %341 %41 %61 %2e %2E %2f %2F %25 %7e %C3%a9 %00 %0A a A b f g 1 4 3 é 日 ẞ | " \''.split(' '),
  ...'/ // /. /.. . .. ? # & = + ; : @ \\ ~ - _ www. utm_source=x :80 :443 :0'.split(' '),
  ' ',
  '\t',
  '\n',
)
const tail = fc.array(fc.oneof({ weight: 8, arbitrary: urlPiece }, fc.string({ unit: 'binary' })), { maxLength: 12 })
const head = fc.constantFrom(
  'http://',
  'HTTPS://',
  ' http://',
  'http://a',
  'https://a.org',
  'http://a.org/',
  'http://u@a/',
)

/** Strings that are nearly always http URLs in shape, and often valid. */
export const urlLike = fc.tuple(head, tail).map(([start, pieces]) => start + pieces.join(''))

/** Strings that are nearly always e-mail addresses in shape, and often valid. */
export const emailLike = fc
  .tuple(
    fc.constantFrom('', ' ', '\t'),
    fc.array(fc.constantFrom('a', 'Z', '.', '+', '"', '\\', ' ', '@', 'é', ','), { maxLength: 5 }),
    fc.array(fc.constantFrom('a', 'Z', '.', '-', 'xn--', 'ß', 'ẞ', '。', '1', '0x', 'é', '\u00ad', '%41', '/'), {
      maxLength: 6,
    }),
  )
  .map(([space, local, domain]) => `${space}${local.join('')}@${domain.join('')}${space}`)
