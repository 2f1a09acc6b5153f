import { expect, test } from 'vitest'
import { countStatements } from '../../../src/numbers/sql/count'
import type { NumberTable } from '../../../src/sql/numbers'
import { fillRows, numberOf } from '../../../src/numbers/sql/declared'
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

test.each(Object.entries(TABLES))('%s look nothing up by search_path', async (_name, table) => {
  const { attach, detach } = numberOf(table)
  const { scopes, ...ofScope } = countStatements(table)
  // Nobody asks for the scopes of a table that has one.
  const counts = Object.values(table.scope.length === 0 ? ofScope : { scopes, ...ofScope })
  expect(await describeLookups([attach, detach, fillRows(table, true), ...counts.map(({ sql }) => sql)])).toEqual([])
})
