import { expect, test } from 'vitest'
import { checkExpression, composed, sameChain, sameText, tableName, textIsNull } from '../../../src/sql/text-table'
import { digests } from '../../../src/text/digest'
import { textTable } from '../../support/guarded-table'

const page = textTable({ digest: digests.md5 })
const urls = textTable({
  table: 'urls',
  text: [
    { name: 'path', prefix: '' },
    { name: 'query', prefix: "'?" },
  ],
  scope: ['host', 'port'],
  digest: digests.md5,
})

const APPENDED = 'OPERATOR(pg_catalog.||)'
const HASH = `pg_catalog.md5("url"::pg_catalog.text)::pg_catalog.uuid`

test('a table without a schema is named alone', () => {
  expect(tableName(page)).toBe('"page"')
  expect(tableName({ ...page, schema: 'a"b' })).toBe('"a""b"."page"')
})

test('the text of one column is the column', () => {
  expect(composed(page, 't')).toBe('t."url"::pg_catalog.text')
  expect(composed(page, '')).toBe('"url"::pg_catalog.text')
})

test('a column that is NULL leaves out its prefix too', () => {
  expect(composed(urls, 'NEW')).toBe(
    `coalesce(NEW."path"::pg_catalog.text, '') ${APPENDED} coalesce('''?' ${APPENDED} NEW."query"::pg_catalog.text, '')`,
  )
})

test('one column with a prefix is composed as well', () => {
  const table = { text: [{ name: 'tag', prefix: '#' }] }
  expect(composed(table, '')).toBe(`coalesce('#' ${APPENDED} "tag"::pg_catalog.text, '')`)
})

test('texts are equal column by column, NULL to NULL, whatever the collation', () => {
  const same = sameText(urls, 't', 'NEW')
  expect(same).toEqual(
    ['path', 'query'].map(
      (name) =>
        `(t."${name}"::pg_catalog.text COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) NEW."${name}"::pg_catalog.text\n` +
        `      OR t."${name}" IS NULL AND NEW."${name}" IS NULL)`,
    ),
  )
})

test('a chain is scope and hash', () => {
  expect(sameChain(urls, 't', 'NEW')).toEqual([
    't."host" OPERATOR(pg_catalog.=) NEW."host"',
    't."port" OPERATOR(pg_catalog.=) NEW."port"',
    't."urlHash" OPERATOR(pg_catalog.=) NEW."urlHash"',
  ])
})

test('a row has no text where all its columns are NULL', () => {
  expect(textIsNull(urls, 'OLD')).toEqual(['OLD."path" IS NULL', 'OLD."query" IS NULL'])
})

test('the check holds the hash to the digest, and the number to no less than 0', () => {
  expect(checkExpression(page)).toBe(
    `"urlHash" OPERATOR(pg_catalog.=) ${HASH} AND "urlHashNumber" OPERATOR(pg_catalog.>=) 0`,
  )
})

test('the check of a nullable text wants hash and text both NULL, or neither', () => {
  expect(checkExpression({ ...page, nullable: true })).toBe(
    '("url" IS NULL AND "urlHash" IS NULL OR NOT ("url" IS NULL) AND "urlHash" IS NOT NULL ' +
      `AND "urlHash" OPERATOR(pg_catalog.=) ${HASH}) AND "urlHashNumber" OPERATOR(pg_catalog.>=) 0`,
  )
})
