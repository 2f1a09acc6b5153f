import { describe, expect, test } from 'vitest'
import { dropScopes, makeScopes, numberRows, renumberRows } from '../../../src/triggers/numbers'
import { countStatements } from '../../../src/numbers/sql/count'
import type { NumberTable } from '../../../src/sql/numbers'
import { numberTriggers } from '../../../src/numbers/sql/triggers'
import { countedTable, numberTable } from '../../support/numbered-table'
import { describeLookups } from '../../support/sql-lint'

const TABLES: Readonly<Record<string, NumberTable>> = {
  'numbers-of-a-table': numberTable({ scope: [] }),
  'numbers-in-a-scope': numberTable({
    scope: [
      { name: 'tenant', type: 'text' },
      { name: 'post', type: 'integer' },
    ],
  }),
  'numbers-with-a-count': countedTable(),
}

const linesOf = (table: NumberTable): string[] => {
  const { functions, triggers } = numberTriggers(table)
  return [...functions.map(({ body }) => `${body}\n`), ...triggers.map(({ create }) => `\n${create}\n`)]
    .join('')
    .split('\n')
}

describe.each(Object.entries(TABLES))('%s', (name, table) => {
  test('is the SQL that was reviewed', async () => {
    await expect(linesOf(table).join('\n')).toMatchFileSnapshot(`../../golden/${name}.sql`)
  })
  test('has no line of more than 120 characters', () => {
    expect(linesOf(table).filter((line) => line.length > 120)).toEqual([])
  })
})

test('what numbers the rows of a table is the SQL that was reviewed', async () => {
  const rows = { table: countedTable(), primary: ['id', 'part'] }
  const statements = [numberRows(rows), renumberRows(rows), makeScopes(rows.table)]
  await expect(statements.join(';\n\n')).toMatchFileSnapshot('../../golden/number-rows.sql')
})

test.each(Object.entries(TABLES))('%s looks nothing up by search_path', (_name, table) => {
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
