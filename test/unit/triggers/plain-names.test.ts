import { expect, test } from 'vitest'
import { guardOf } from '../../../src/triggers/guard'
import { plainName } from '../../../src/sql/identifier'
import { namesGuard, nameTriggersOf } from '../../../src/names/sql/triggers'
import { scopesName } from '../../../src/sql/numbers'
import { numberOf } from '../../../src/numbers/sql/declared'
import type { TriggerSet } from '../../../src/sql/trigger-set'
import { textTable } from '../../support/guarded-table'
import { holderTable, namesTable } from '../../support/names-table'
import { countedTable } from '../../support/numbered-table'

// Citus deparses REVOKE without quotes, so that the server reads another name (0A000).
const PLAIN = /^[a-z][a-z0-9_]{0,62}$/

const LONG = 'l'.repeat(70)
const ODD = ['odd "page" -- of.it', 'Seite', 'страница', LONG, `${LONG}.x`, '', '7']

const guardNames = (table: string): string[] => {
  const { triggers, table: of } = guardOf(textTable({ table, guard: plainName('unique_text', table, 'url') }))
  return [of.guard, ...triggers.map(({ name }) => name)]
}
const numberNames = (table: string): string[] => {
  const { label, triggers, tables } = numberOf(countedTable({ table, triggers: plainName('numbers', table, 'number') }))
  return [label, ...[...triggers, ...tables].map(({ name }) => name)]
}
const setsOf = (table: string): TriggerSet[] => [
  nameTriggersOf(holderTable(table, namesTable())),
  namesGuard({ ...namesTable(), table: `${table} of names` }),
]
const namesOf = (set: TriggerSet): string[] =>
  [...set.functions, ...set.triggers, ...set.tables].map(({ name }) => name)

test.each(ODD)('all that stands on a table "%s" has a name that wants no quotes', (table) => {
  const sets = setsOf(table)
  expect(
    [...guardNames(table), ...numberNames(table), ...sets.flatMap(namesOf)].filter((name) => !PLAIN.test(name)),
  ).toEqual([])
  const written = sets
    .flatMap(({ create, drop }) => [...create, ...drop])
    .flatMap((sql) =>
      Array.from(
        sql.matchAll(/\b(?:FUNCTION|TRIGGER|DROP FUNCTION IF EXISTS) (?!IF|%)(?<name>"(?:[^"]|"")+"|[\w.]+)/g),
        ({ groups }) => groups?.['name']?.replaceAll('"', '') ?? '',
      ),
    )
  expect(written.length).toBeGreaterThan(20)
  expect(written.filter((name) => !name.startsWith('pg_catalog.') && !PLAIN.test(name))).toEqual([])
})

test('tables whose names differ by what a plain name cannot hold share no name', () => {
  const own = ODD.flatMap((table) => [
    ...guardNames(table),
    ...numberNames(table),
    ...setsOf(table).flatMap(({ functions, tables }) => [...functions, ...tables].map(({ name }) => name)),
  ])
  expect(new Set(own).size).toBe(own.length)
  expect(scopesName({ triggers: plainName('numbers', 'a', 'b') })).toBe('numbers_a__b_scopes')
})
