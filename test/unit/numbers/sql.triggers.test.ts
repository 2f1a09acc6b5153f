import { expect, test } from 'vitest'
import { dropScopes, makeScopes, numberRows, renumberRows } from '../../../src/triggers/numbers'
import { countStatements } from '../../../src/numbers/sql/count'
import type { NumberTable } from '../../../src/sql/numbers'
import { numberTriggers } from '../../../src/numbers/sql/triggers'
import { countedTable, numberTable } from '../../support/numbered-table'
import { describeLookups } from '../../support/sql-lint'

const TABLES: Readonly<Record<string, NumberTable>> = {
  'numbers of a table': numberTable({ scope: [] }),
  'numbers in a scope': numberTable({
    scope: [
      { name: 'tenant', type: 'text' },
      { name: 'post', type: 'integer' },
    ],
  }),
  'numbers with a count': countedTable(),
  'numbers from a start without reuse': numberTable({ reuse: false, start: 1000 }),
}

const linesOf = (table: NumberTable): string[] => {
  const { functions, triggers } = numberTriggers(table)
  return [...functions.map(({ body }) => `${body}\n`), ...triggers.map(({ create }) => `\n${create}\n`)]
    .join('')
    .split('\n')
}

test('numbers with a count are the SQL that was reviewed', async () => {
  await expect(linesOf(countedTable()).join('\n')).toMatchFileSnapshot('../../golden/number.sql')
})

test.each(Object.entries(TABLES))('%s have no line of more than 120 characters', (_name, table) => {
  expect(linesOf(table).filter((line) => line.length > 120)).toEqual([])
})

test.each(Object.entries(TABLES))('%s look nothing up by search_path', (_name, table) => {
  const { create, drop } = numberTriggers(table)
  const rows = { table, primary: ['id', 'part'] }
  const own = [
    ...create,
    ...drop,
    makeScopes(table).replace('WITH (fillfactor = 50)', ''),
    dropScopes(table),
    numberRows(rows),
    renumberRows(rows),
  ]
  const shared = new Set(secured(create))
  expect(own.filter((one) => !shared.has(one)).flatMap(describeLookups)).toEqual([])
  expect(Object.values(countStatements(table)).flatMap(({ sql }) => describeLookups(sql))).toEqual([])
})

/** What makes functions secure is not of the numbers alone. */
const secured = (statements: readonly string[]): string[] =>
  statements.filter((one) => one.includes('SECURITY DEFINER'))
