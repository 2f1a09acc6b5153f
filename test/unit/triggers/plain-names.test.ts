import { expect, test } from 'vitest'
import { guardOf } from '../../../src/triggers/guard'
import { plainName } from '../../../src/sql/identifier'
import { directNames, namesOfHolder } from '../../../src/names/sql/attach'
import { scopesName } from '../../../src/sql/numbers'
import { numberOf } from '../../../src/numbers/sql/declared'
import { textTable } from '../../support/guarded-table'
import { holderTable, namesTable } from '../../support/names-table'
import { countedTable } from '../../support/numbered-table'

// Citus deparses REVOKE without quotes, so that the server reads another name (0A000).
const PLAIN = /^[a-z][a-z0-9_]{0,62}$/

const LONG = 'l'.repeat(70)
const ODD = ['odd "page" -- of.it', 'Seite', 'страница', LONG, `${LONG}.x`, '', '7']

const guardNames = (table: string): string[] => {
  const { triggers, label } = guardOf(textTable({ table, guard: plainName('unique_text', table, 'url') }))
  return [label, ...triggers.map(({ name }) => name)]
}
const numberNames = (table: string): string[] => {
  const { label, triggers, tables } = numberOf(countedTable({ table, triggers: plainName('numbers', table, 'number') }))
  return [label, ...[...triggers, ...tables].map(({ name }) => name)]
}
const nameNames = (table: string): string[] =>
  [
    namesOfHolder(holderTable(table, namesTable())),
    directNames({ ...namesTable(), table: `${table} of names` }),
  ].flatMap(({ label, triggers }) => [label, ...triggers.map(({ name }) => name)])

test.each(ODD)('all that stands on a table "%s" has a name that wants no quotes', (table) => {
  const names = [...guardNames(table), ...numberNames(table), ...nameNames(table)]
  expect(names.filter((name) => !PLAIN.test(name))).toEqual([])
})

test('tables whose names differ by what a plain name cannot hold share no name', () => {
  const own = ODD.flatMap((table) => [...guardNames(table), ...numberNames(table), ...nameNames(table)])
  expect(new Set(own).size).toBe(own.length)
  expect(scopesName({ triggers: plainName('numbers', 'a', 'b') })).toBe('numbers_a__b_scopes')
})
