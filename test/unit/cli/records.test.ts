import { describe, expect, test } from 'vitest'
import { type Line, ListError } from '../../../src/cli/list'
import { type Entry, fieldsOf, readRecords, type RecordRules } from '../../../src/cli/records'

describe('fieldsOf', () => {
  test.each([
    ['', ['']],
    ['a', ['a']],
    ['a,b', ['a', 'b']],
    ['a,', ['a', '']],
    [',', ['', '']],
    ['"a,b",c', ['a,b', 'c']],
    ['"a ""b""",""', ['a "b"', '']],
    ['"a\nb",c', ['a\nb', 'c']],
    [' a , b', [' a ', ' b']],
    ['""', ['']],
    ['"",', ['', '']],
    ['a"b"', undefined],
    ['"a"b', undefined],
    ['"a', undefined],
  ])('%j', (record, fields) => {
    expect(fieldsOf(record, 'csv')).toEqual(fields)
    const tabs = fieldsOf(record.replaceAll(',', '\t'), 'tsv')
    expect(tabs).toEqual(fields?.map((field) => field.replaceAll(',', '\t')))
  })
})

async function entries(
  format: RecordRules['format'],
  map: Record<string, string>,
  ...chunks: readonly Line[][]
): Promise<Entry[]> {
  async function* lines(): AsyncGenerator<readonly Line[]> {
    yield* chunks
  }
  const all: Entry[] = []
  for await (const some of readRecords(lines(), { format, map: new Map(Object.entries(map)) })) all.push(...some)
  return all
}

const urls = (...texts: string[]) => texts.map((url) => ({ row: { url } }))

describe('readRecords', () => {
  test('gives the values of the columns that the first record names', async () => {
    expect(await entries('csv', { url: 'link' }, ['id,link', '1,a', '2,"b,c"'], ['3,d'])).toEqual(urls('a', 'b,c', 'd'))
    expect(await entries('tsv', { url: 'link', id: 'id' }, ['id\tlink', '1\ta,b', '\tc'])).toEqual([
      { row: { url: 'a,b', id: '1' } },
      { row: { url: 'c', id: null } },
    ])
  })
  test('numbers count the columns, and the first record is a row', async () => {
    expect(await entries('csv', { url: '2' }, ['1,a', '2,b'])).toEqual(urls('a', 'b'))
    expect(await entries('csv', { url: '2', id: 'id' }, ['id,2', '1,b'])).toEqual([{ row: { url: 'b', id: '1' } }])
  })
  test('a field may hold line breaks, also between two chunks', async () => {
    expect(await entries('csv', { url: 'url' }, ['url,id', '"a', 'b'], ['c",1', 'd,2'])).toEqual(urls('a\nb\nc', 'd'))
  })
  test('a record that is none, or is too short, is refused alone; a blank line stays blank', async () => {
    const broken = { reason: 'it is not valid UTF-8' }
    const list = ['id,url', '1', '2,a"b"', '', '3,c', broken, '4,d', '5,"e']
    expect(await entries('csv', { url: 'url' }, list)).toEqual([
      { reason: expect.stringContaining('too few') },
      { reason: expect.stringContaining('quotes') },
      '',
      ...urls('c'),
      broken,
      ...urls('d'),
      { reason: expect.stringContaining('quotes') },
    ])
  })
  test('a record with more fields than the header, or than the first record, is refused alone', async () => {
    const tooLong = { reason: expect.stringContaining('more fields') as string }
    expect(await entries('csv', { url: 'url' }, ['id,url', '1,a', '2,b,c', '3,d'])).toEqual([
      ...urls('a'),
      tooLong,
      ...urls('d'),
    ])
    expect(await entries('tsv', { url: '1' }, ['a', 'b\tc', 'd'])).toEqual([...urls('a'), tooLong, ...urls('d')])
  })
  test('a header that names a wanted column twice is refused by its line', async () => {
    const read = entries('csv', { url: 'link' }, ['link,id,link', 'a,1,b'])
    await expect(read).rejects.toThrow('Line 1 of the list names the column "link" twice.')
    await expect(read).rejects.toBeInstanceOf(ListError)
    expect(await entries('csv', { id: 'id' }, ['link,id,link', 'a,1,b'])).toEqual([{ row: { id: '1' } }])
  })
  test('a JSON object in each line, and nothing else, is a row', async () => {
    const list = ['{"link":"a","n":1}', '["a"]', '{', 'null', '', '{"__proto__":1,"other":2}', '{"link":"say \\"b\\""}']
    const none = { reason: 'it is not a JSON object' }
    expect(await entries('ndjson', { url: 'link', n: 'n' }, list)).toEqual([
      { row: { url: 'a', n: 1 } },
      none,
      none,
      none,
      '',
      { row: { url: null, n: null } },
      { row: { url: 'say "b"', n: null } },
    ])
  })
  test('a column that is not there is told', async () => {
    await expect(entries('csv', { url: 'URL' }, ['id,url', '1,a'])).rejects.toThrow(ListError)
  })
})
