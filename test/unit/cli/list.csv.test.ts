import { describe, expect, test } from 'vitest'
import { readCsvColumn, csvFields, type Line, ListError } from '../../../src/cli/list'

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
    expect(csvFields(record)).toEqual(fields)
  })
})

async function texts(column: string, ...chunks: readonly Line[][]): Promise<Line[]> {
  async function* lines(): AsyncGenerator<readonly Line[]> {
    yield* chunks
  }
  const all: Line[] = []
  for await (const some of readCsvColumn(lines(), column)) all.push(...some)
  return all
}

describe('columnOf', () => {
  test('gives the texts of the column that the first record names', async () => {
    expect(await texts('url', ['id,url', '1,a', '2,"b,c"'], ['3,d'])).toEqual(['a', 'b,c', 'd'])
  })
  test('a field may hold line breaks, also between two chunks', async () => {
    expect(await texts('url', ['url,id', '"a', 'b'], ['c",1', 'd,2'])).toEqual(['a\nb\nc', 'd'])
  })
  test('a record that is none, or is too short, is refused alone; a blank line stays blank', async () => {
    const broken = { reason: 'it is not valid UTF-8' }
    const found = await texts('url', ['id,url', '1', '2,a"b"', '', '3,c', broken, '4,d', '5,"e'])
    expect(found).toEqual([
      { reason: expect.stringContaining('too few') },
      { reason: expect.stringContaining('quotes') },
      '',
      'c',
      broken,
      'd',
      { reason: expect.stringContaining('quotes') },
    ])
  })
  test('a column that is not there is told', async () => {
    await expect(texts('URL', ['id,url', '1,a'])).rejects.toThrow(ListError)
  })
})
