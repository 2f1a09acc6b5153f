import { gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { type Line, ListError, MAX_LINE_BYTES, readLines } from '../../../src/cli/list'

async function* inPieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size)
}

async function linesOf(list: Uint8Array | string, size = 64 * 1024): Promise<Line[]> {
  const lines: Line[] = []
  for await (const some of readLines(inPieces(Buffer.from(list), size))) lines.push(...some)
  return lines
}

const NOT_UTF8: unknown = expect.objectContaining({ reason: 'it is not valid UTF-8' })
const CR: unknown = expect.objectContaining({ reason: 'it contains a carriage return (CR) before its end' })

describe('readLines', () => {
  test.each([
    ['nothing', '', []],
    ['a line without an end', 'a', ['a']],
    ['a line with an end', 'a\n', ['a']],
    ['the last without an end', 'a\nb', ['a', 'b']],
    ['empty lines', '\n\na\n\n', ['', '', 'a', '']],
    ['CRLF', 'a\r\nb\r\n\r\nc', ['a', 'b', '', 'c']],
    ['a carriage return at the very end', 'a\r', ['a']],
    ['a byte order mark', '\uFEFFa\nb\n', ['a', 'b']],
    ['a byte order mark alone', '\uFEFF', ['']],
    ['a second byte order mark, which is text', '\uFEFF\uFEFFa\n\uFEFFb\n', ['\uFEFFa', '\uFEFFb']],
    ['other ends, which are text', 'a\u2028b\u0085c\vd\n', ['a\u2028b\u0085c\vd']],
    ['more than ASCII', 'é\n東京\n😀\n', ['é', '東京', '😀']],
    ['white space, which is text', ' \n\t\n', [' ', '\t']],
  ])('%s, in chunks of any size', async (_, list, lines) => {
    for (const size of [1, 2, 3, 5, 1000]) expect(await linesOf(list, size)).toEqual(lines)
  })

  test.each([
    ['a byte of Latin-1', [0xe9]],
    ['a surrogate', [0xed, 0xa0, 0x80]],
    ['an overlong slash', [0xc0, 0xaf]],
    ['a letter cut short', [0xe6, 0x9d]],
    ['a code point over U+10FFFF', [0xf4, 0x90, 0x80, 0x80]],
  ])('refuses the line with %s, and no other', async (_, bytes) => {
    const list = Buffer.concat([Buffer.from('a\nb'), Buffer.from(bytes), Buffer.from('c\r\né\n')])
    for (const size of [1, 4, 1000]) expect(await linesOf(list, size)).toEqual(['a', NOT_UTF8, 'é'])
    expect(await linesOf(Buffer.from(bytes))).toEqual([NOT_UTF8])
  })

  test('a list in another encoding is refused line by line', async () => {
    const lines = await linesOf(Buffer.from([0x80, 0x0a, 0x81, 0x0a, 0x0a, 0xff]))
    expect(lines).toEqual([NOT_UTF8, NOT_UTF8, '', NOT_UTF8])
  })

  test('a line with a carriage return inside is refused, and no other: it could be two texts', async () => {
    const list = 'a\nb\r\r\nc\rd\ne\r\nf\r'
    for (const size of [1, 2, 3, 1000]) expect(await linesOf(list, size)).toEqual(['a', CR, CR, 'e', 'f'])
  })

  test('a list that ends its lines with CR alone is refused with the command that converts it, however long', async () => {
    const advice = `The list ends its lines with CR alone. Convert it: tr '\\r' '\\n' < LIST > NEW-LIST`
    for (const size of [1, 4, 1000]) await expect(linesOf('a\rb\rc\r', size)).rejects.toThrow(new ListError(advice))
    const long = 'http://a.example/\r'.repeat(2 ** 20)
    await expect(linesOf(long)).rejects.toThrow(new ListError(advice))
  })

  test.each([
    ['gzip', gzipSync('a\nb\n'), 'gzip -dc LIST | typeorm-unique-text'],
    ['bzip2', Buffer.from('BZh91AY&SY'), 'bzip2 -dc'],
    ['xz', Buffer.from('fd377a585a000004', 'hex'), 'xz -dc'],
    ['zstd', Buffer.from('28b52ffd2400', 'hex'), 'zstd -dc'],
    ['zip', Buffer.from('PK\x03\x04'), 'unzip -p'],
    ['NUL in its first line', Buffer.from('SQLite format 3\0\n'), 'binary data'],
    ['UTF-16 without a mark', Buffer.from('http://a.example/\n', 'utf16le'), 'binary data'],
    ['NUL and bytes that are not UTF-8', Buffer.from('894e470a001a0a', 'hex'), 'binary data'],
  ])('a list with %s is refused with advice', async (_, list, advice) => {
    await expect(linesOf(list)).rejects.toThrow(ListError)
    await expect(linesOf(list)).rejects.toThrow(advice)
  })

  test('a text that begins as a compressed list does is a text', async () => {
    for (const text of ['BZh', 'BZh9.example', 'BZh91AY', 'BZhang'])
      expect(await linesOf(`${text}\nb`)).toEqual([text, 'b'])
  })

  test('a compressed list is recognized in chunks of any size', async () => {
    for (const size of [1, 2, 1000]) await expect(linesOf(gzipSync('a\n'), size)).rejects.toThrow('gzip -dc')
  })

  test('a text that holds NUL further down is a text: its line is refused later, and no other', async () => {
    expect(await linesOf('a\nb\0c\nd\n')).toEqual(['a', 'b\0c', 'd'])
  })

  test('refuses a line that is too long, wherever it stands, and keeps nothing of it', async () => {
    const chunk = Buffer.alloc(2 ** 20, 'a')
    async function* list(): AsyncGenerator<Uint8Array> {
      yield Buffer.from('first\n')
      for (let megabytes = 0; megabytes < 300; megabytes += 1) yield chunk
      yield Buffer.from('\nlast')
    }
    const before = process.memoryUsage().arrayBuffers
    let most = 0
    const lines: Line[] = []
    for await (const some of readLines(list())) {
      lines.push(...some)
      most = Math.max(most, process.memoryUsage().arrayBuffers - before)
    }
    expect(lines).toEqual(['first', { reason: 'it is longer than 4 MiB' }, 'last'])
    expect(most).toBeLessThan(2 * MAX_LINE_BYTES)
  })

  test('takes a line of exactly the limit', async () => {
    const [line, ...more] = await linesOf(Buffer.alloc(MAX_LINE_BYTES, 'a'))
    expect(line).toHaveLength(MAX_LINE_BYTES)
    expect(more).toEqual([])
    expect(await linesOf(Buffer.alloc(MAX_LINE_BYTES + 1, 'a'))).toEqual([{ reason: 'it is longer than 4 MiB' }])
  })

  test('gives the lines of a chunk before it asks for the next', async () => {
    let asked = 0
    async function* slow(): AsyncGenerator<Uint8Array> {
      for (;;) {
        asked += 1
        yield Buffer.from(`${asked}\n`)
      }
    }
    for await (const lines of readLines(slow())) {
      expect(lines).toEqual([String(asked)])
      if (asked === 3) break
    }
    expect(asked).toBe(3)
  })

  test.each(['utf16le', 'utf16be'])('says what to do with %s', async (encoding) => {
    const list = Buffer.from('\uFEFFhttp://a.example/\n', 'utf16le')
    if (encoding === 'utf16be') list.swap16()
    await expect(linesOf(list)).rejects.toThrow(ListError)
  })
})
