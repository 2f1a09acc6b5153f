import { describe, expect, test } from 'vitest'
import { countRows, numberRows, renumberRows } from '../../../src/sql/number-rows'
import type { NumberTable } from '../../../src/sql/number-table'
import { numberTriggers } from '../../../src/sql/number-triggers'
import { countedTable, numberTable } from '../../support/numbered-table'

const TABLES: Readonly<Record<string, NumberTable>> = {
  'numbers-of-a-table': numberTable({ scope: [] }),
  'numbers-in-a-scope': numberTable({
    scope: [
      { name: 'tenant', textual: true },
      { name: 'post', textual: false },
    ],
  }),
  'numbers-with-a-count': countedTable(),
}

const linesOf = (table: NumberTable): string[] => {
  const { functions, triggers } = numberTriggers(table)
  return [...functions.map(({ body }) => body), ...triggers.map(({ create }) => `\n${create}\n`)].join('').split('\n')
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
  const statements = [numberRows(rows), renumberRows(rows), ...countRows(rows.table)]
  await expect(statements.join(';\n\n')).toMatchFileSnapshot('../../golden/number-rows.sql')
})
