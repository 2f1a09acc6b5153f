import { readFileSync } from 'node:fs'
import { loadModule, parsePlPgSQLSync, parseSync } from '@libpg-query/parser'
import { beforeAll, describe, expect, test } from 'vitest'
import { moduleOf } from '../../../scripts/library'
import { fillHashes, guardNotesOf, guardOf } from '../../../src/triggers/guard'
import { createPart } from '../../../src/sql/library'
import { raiseIfNulls, raiseIfUnnormalized } from '../../../src/sql/rows'
import { checkExpression, type TextTable } from '../../../src/sql/text-table'
import { md5, sha256 } from '../../../src/text/digest'
import { textTable } from '../../support/guarded-table'
import { describeLookups } from '../../support/sql-lint'

const one = textTable({ digest: md5, maxChainLength: 100, normalizers: ['none@1'] })
const scoped = { digest: md5, scope: ['tenant'], nullable: true, immutable: true }
const whole = textTable({ ...scoped, deleted: 'deletedAt' })
const TABLES: Readonly<Record<string, TextTable>> = {
  'of one text': one,
  'of a scoped, nullable, immutable text': textTable(scoped),
  'of a text that softly deleted rows free': textTable({ digest: md5, deleted: 'deletedAt' }),
  'of a text that has all of this': whole,
  'of a text with another digest': textTable({ digest: sha256 }),
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

describe.each(Object.entries(TABLES))('the guard %s', (_name, table) => {
  test('has a declaration with all rules', () => {
    const { name: text, scope, hash, number, chained, nullable, immutable, index, check, normalizers } = table
    const told = { name: text, scope, hash, number, chained, nullable, immutable, index, check, normalizers }
    expect(guardOf(table).declaration).toMatchObject({
      ...told,
      text: table.text.map(({ name }) => name),
      prefixes: table.text.map(({ prefix }) => prefix),
      digest: table.digest.name,
    })
  })
  test('has a check and statements for rows that look nothing up by search_path', async () => {
    const statements = [
      `ALTER TABLE page ADD CHECK (${checkExpression(table)})`,
      fillHashes(table),
      raiseIfNulls(table, 'url'),
      raiseIfUnnormalized(table, 'Page', { column: 'url', from: 'trim@1', to: 'trim@2' }),
    ]
    expect(await describeLookups(statements)).toEqual([])
  })
})

test('a simple text is filled, attached and detached by one short statement each', () => {
  const { attach, detach } = guardOf(one)
  expect(fillHashes(one)).toBe(attach.replace('_attach_', '_fill_'))
  expect(attach).toBe(
    `SELECT "unique_text_attach_v1"('"page"'::pg_catalog.regclass, '{"name":"url","text":["url"],"index":"page url","check":"page url check"}'::pg_catalog.jsonb)`,
  )
  expect(detach).toBe(`SELECT "unique_text_detach_v1"('"page"'::pg_catalog.regclass, 'url'::pg_catalog.text)`)
})

describe.each(['report', 'attach', 'texts', 'refusals', 'rows', 'names', 'numbers', 'urls'] as const)(
  'the library, %s,',
  (part) => {
    beforeAll(loadModule)
    const sql = readFileSync(`src/library/${part}.sql`, 'utf8')

    test('is the file that people read', () => {
      expect(moduleOf(part, sql)).toBe(readFileSync(`src/library/${part}.ts`, 'utf8'))
      expect(createPart(undefined, part)).toBe(sql)
    })
    test('is SQL and PL/pgSQL by the parser of Postgres', () => {
      expect(() => parseSync(sql)).not.toThrow()
      const functions = sql.split(/^(?=CREATE FUNCTION )/m).filter((one) => one.includes(' LANGUAGE plpgsql '))
      for (const one of functions) expect(() => parsePlPgSQLSync(one.replace(/^COMMENT [^]*/m, ''))).not.toThrow()
    })
    test('has no line of more than 120 characters', () => {
      expect(sql.split('\n').filter((line) => line.length > 120)).toEqual([])
    })
    test('pins the search path of each function, unless all that it calls was found when it was created', () => {
      const functions = sql.match(/CREATE (?:%s )?FUNCTION/g) ?? []
      const bound = sql.match(/ LANGUAGE sql\nRETURN /g) ?? []
      expect(sql.match(/SET search_path = pg_catalog, pg_temp/g)).toHaveLength(functions.length - bound.length)
    })
    test('is made in a schema that a table names', () => {
      const named = createPart('other', part).match(/"other"\."unique_text_/g)
      expect(named).toHaveLength(sql.match(/"unique_text_/g)?.length ?? 0)
    })
  },
)

test('a declaration is not believed if the trigger runs a function that is not ours', () => {
  const declaration = JSON.stringify(guardOf(one).declaration)
  const trigger = {
    name: 'unique_number_page__place',
    runs: { schema: 'public', name: 'audit' },
    enabled: true,
    unguarded: [],
    args: Buffer.from(`${declaration}\0`).toString('hex'),
    transitions: '',
    extension: false,
    type: 23,
    conditional: false,
    columns: [],
    blocks: [],
    definition: '',
  }
  const installed = { schema: 'public', table: 'page', functions: [], triggers: [trigger], tables: [], homes: {} }
  expect(guardNotesOf({ ...installed, foreign: [] })).toEqual([])
})
