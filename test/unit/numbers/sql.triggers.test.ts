import { expect, test } from 'vitest'
import { dropScopes, makeScopes, numberRows, renumberRows } from '../../../src/numbers/sql/scopes'
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
  'numbers with a count and without reuse': countedTable({ reuse: false }),
  'numbers in shards of Citus': numberTable({ citus: true }),
}

const linesOf = (table: NumberTable): string[] => {
  const { functions, triggers } = numberTriggers(table)
  return [...functions.map(({ body }) => `${body}\n`), ...triggers.map(({ create }) => `\n${create}\n`)]
    .join('')
    .split('\n')
}

test.each(Object.entries(TABLES))('%s have no line of more than 120 characters', (_name, table) => {
  expect(linesOf(table).filter((line) => line.length > 120)).toEqual([])
})

test.each(Object.entries(TABLES))('%s look nothing up by search_path', async (_name, table) => {
  const { create, drop } = numberTriggers(table)
  const rows = { table, primary: ['id', 'part'] }
  const former = { table, places: table.scope.map((_, place) => place) }
  const ofRows = [makeScopes(table), makeScopes(table, former), dropScopes(table), numberRows(rows), renumberRows(rows)]
  const { scopes, ...ofScope } = countStatements(table)
  // Nobody asks for the scopes of a table that has one.
  const counts = Object.values(table.scope.length === 0 ? ofScope : { scopes, ...ofScope })
  expect(await describeLookups([...create, ...drop, ...ofRows, ...counts.map(({ sql }) => sql)])).toEqual([])
})
