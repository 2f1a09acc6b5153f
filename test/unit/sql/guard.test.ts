import { describe, expect, test } from 'vitest'
import { placeBody } from '../../../src/sql/guard-place'
import { settleBody } from '../../../src/sql/guard-settle'
import { guardTriggers } from '../../../src/sql/guard-triggers'
import { guardOf } from '../../../src/sql/guard'
import type { TextTable } from '../../../src/sql/text-table'
import { md5 } from '../../../src/text/digest'
import { textTable } from '../../support/guarded-table'

const one = textTable({ digest: md5 })
const TABLES: Readonly<Record<string, TextTable>> = {
  'guard-of-one-text': one,
  'guard-scoped-nullable-immutable': textTable({ digest: md5, scope: ['tenant'], nullable: true, immutable: true }),
  'guard-ignoring-deleted': textTable({ digest: md5, deleted: 'deletedAt' }),
  'guard-ignoring-deleted-immutable': textTable({
    digest: md5,
    scope: ['tenant'],
    nullable: true,
    immutable: true,
    deleted: 'deletedAt',
  }),
  'guard-composed': textTable({
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

const linesOf = (table: TextTable): string[] =>
  [placeBody(table), settleBody(table), ...guardTriggers(table, 'place', 'settle').map(({ create }) => `\n${create}\n`)]
    .join('')
    .split('\n')

describe.each(Object.entries(TABLES))('%s', (name, table) => {
  test('is the SQL that was reviewed', async () => {
    await expect(linesOf(table).join('\n')).toMatchFileSnapshot(`../../golden/${name}.sql`)
  })
  test('has no line of more than 120 characters', () => {
    expect(linesOf(table).filter((line) => line.length > 120)).toEqual([])
  })
})

test('another limit of a chain changes the arguments of two triggers, and no function', () => {
  const [before, after] = [one, { ...one, maxChainLength: 7 }]
  expect([placeBody(after), settleBody(after)]).toEqual([placeBody(before), settleBody(before)])
  const triggers = guardOf(before).triggers.map(({ create }) => create)
  const changed = guardOf(after).triggers.filter(({ create }) => !triggers.includes(create))
  expect(changed.map(({ name }) => name)).toEqual([
    'unique_text_page_url_place_insert',
    'unique_text_page_url_place_update',
  ])
})
