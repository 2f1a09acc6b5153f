import { describe, expect, test } from 'vitest'
import { asGuardNote, guardKernel, guardOf } from '../../../src/triggers/guard'
import {
  raiseIfDuplicates,
  raiseIfNulls,
  raiseIfUnnormalized,
  raiseUnknownDigest,
  rebuildRows,
} from '../../../src/sql/rebuild'
import { parseNote } from '../../../src/sql/trigger-set'
import { checkExpression, type TextTable } from '../../../src/sql/text-table'
import { md5, sha256 } from '../../../src/text/digest'
import { textTable } from '../../support/guarded-table'
import { describeLookups } from '../../support/sql-lint'

const one = textTable({ digest: md5 })
const scoped = { digest: md5, scope: ['tenant'], nullable: true, immutable: true }
const whole = textTable({ ...scoped, deleted: 'deletedAt' })
const TABLES: Readonly<Record<string, TextTable>> = {
  'of one text': one,
  'of a scoped, nullable, immutable text': textTable(scoped),
  'of a text that softly deleted rows free': textTable({ digest: md5, deleted: 'deletedAt' }),
  'of a text that has all of this': whole,
  'of a composed text': textTable({
    digest: md5,
    text: [
      { name: 'path', prefix: '' },
      { name: 'query', prefix: '?' },
      { name: 'fragment', prefix: '#' },
    ],
    scope: ['host', 'scheme', 'port'],
    hash: 'path_component_hash',
    number: 'hash_number',
    chained: 'hash_chained',
  }),
}

const sqlOf = (table: TextTable): string => {
  const { functions, triggers } = guardOf(table)
  return [...functions.map(({ body }) => body), ...triggers.map(({ create }) => `\n${create}\n`)].join('')
}
const guardNotes = (body: string): unknown => {
  const note = parseNote(body)
  return note && asGuardNote(note)
}
const longLines = (sql: string): string[] => sql.split('\n').filter((line) => line.length > 120)

describe.each(Object.entries(TABLES))('the guard %s', (_name, table) => {
  test('asks no query in a condition that practically every row comes to', () => {
    const body = guardOf(table).functions[0]?.body ?? ''
    const conditions = [...body.matchAll(/\n +(IF|ELSIF) (.*?) THEN/gs)].map(([, word, one = '']) => ({ word, one }))
    expect(conditions.length).toBeGreaterThan(2)
    expect(conditions.filter(({ word, one }) => word === 'IF' && one.includes('SELECT'))).toEqual([])
  })
  test('has no line of more than 120 characters', () => {
    expect(longLines(sqlOf(table))).toEqual([])
  })
  test('has a function that tells of the declaration in its note', () => {
    const [first] = guardOf(table).functions
    const { name: text, scope, hash, number, chained, nullable, immutable, index, check, normalizers } = table
    const told = { name: text, scope, hash, number, chained, nullable, immutable, index, check, normalizers }
    expect(guardNotes(first?.body ?? '')).toMatchObject({ ...told, text: table.text, digest: 'md5' })
  })
  test('looks nothing up by search_path, and neither do its check and what numbers its rows anew', async () => {
    const { create, drop } = guardOf(table)
    const rebuilt = { rows: table, primary: ['id', 'part'] }
    const statements = [
      ...create,
      ...drop,
      `ALTER TABLE page ADD CHECK (${checkExpression(table)})`,
      rebuildRows(rebuilt),
      raiseIfDuplicates(rebuilt),
      raiseIfNulls(rebuilt, 'url'),
      raiseIfUnnormalized({ ...rebuilt, entity: 'Page' }, { column: 'url', from: 'trim@1', to: 'trim@2' }),
      raiseUnknownDigest(table, 'other'),
    ]
    expect(await describeLookups(statements)).toEqual([])
  })
})

test.each(guardKernel)('the function $name has no line of more than 120 characters', ({ body }) => {
  expect(longLines(body)).toEqual([])
})

test('every table of a schema has the same function of the kernel, whatever its texts are', () => {
  for (const table of Object.values(TABLES)) expect(guardOf(table).kernel).toEqual(guardKernel)
})

test('another digest looks nothing up by search_path', async () => {
  expect(await describeLookups(guardOf(textTable({ digest: sha256 })).create)).toEqual([])
})

test('another limit of a chain changes the arguments of the trigger that places rows, and no code', () => {
  const [before, after] = [guardOf(one), guardOf({ ...one, maxChainLength: 7 })]
  const codeOf = ({ functions }: typeof before): string[] =>
    functions.map(({ body }) => body.slice(body.indexOf('DECLARE')))
  expect(codeOf(after)).toEqual(codeOf(before))
  const triggers = before.triggers.map(({ create }) => create)
  const changed = after.triggers.filter(({ create }) => !triggers.includes(create))
  expect(changed.map(({ name }) => name)).toEqual(['unique_text_page__url_rest'])
})
