import { type AdoptedTable, drops, dropTriggers, type Held, nameOf } from '../sql/adopt-table'
import { renameColumns, renameIndex } from '../sql/alter'
import type { InstalledTrigger, InstalledTriggers } from '../sql/catalog'
import { guardOf } from './guard'
import { quote } from '../sql/identifier'
import { dropFunctions, dropTrigger } from '../sql/trigger-ddl'
import { isKernel, parseNote, type TriggerNote } from '../sql/trigger-set'
import { tableName, type TextTable } from '../sql/text-table'

/** A guard as it stands on a table: its note, by which functions and triggers it goes, and the columns that go with it. */
export interface StandingGuard extends Pick<TextTable, 'hash' | 'number' | 'chained' | 'index'> {
  /** By which rules it keeps the rows, for a comparison. */
  readonly rules: string
  readonly functions: readonly { readonly schema: string; readonly name: string }[]
  readonly triggers: readonly string[]
}

/** What takes the place of a guard of another declaration. */
export interface Swap {
  /** The table as the declaration wants it; the adoption works with names of its own until then. */
  readonly final: AdoptedTable
  readonly before: StandingGuard
  /** Columns of the text that may be NULL from then on. */
  readonly loosened: readonly string[]
  /** Columns that become NOT NULL once the new guard stands: the old declaration allows NULL there. */
  readonly tightened: readonly string[]
}

/**
 * The table with hidden columns, index and check of other names, which stand beside those of the guard until they take
 * their places. The guard's own name is the same, so all that belongs to the adoption is found by either.
 */
export const beside = (on: AdoptedTable): AdoptedTable => ({
  ...on,
  table: {
    ...on.table,
    hash: nameOf(on, 'hash'),
    number: nameOf(on, 'number'),
    chained: nameOf(on, 'chained'),
    index: nameOf(on, 'index'),
    check: nameOf(on, 'check'),
  },
})

const FIRST_SUFFIX = '_place_insert'

/** Of all that stands on a table, what belongs to one guard, and the kernel. */
export function guardIn(
  installed: InstalledTriggers,
  { table }: Held,
  { name }: Pick<TriggerNote, 'name'>,
): InstalledTriggers {
  const own = installed.functions.filter(({ body, trusted }) => {
    const note = trusted ? parseNote(body) : undefined
    return note?.kind === 'guard' && note.name === name
  })
  const runsOwn = ({ runs }: InstalledTrigger): boolean =>
    own.some((one) => one.name === runs.name && one.schema === runs.schema)
  // A table that was renamed keeps the names of its triggers.
  const prefixes = installed.triggers
    .filter((one) => runsOwn(one) && one.name.endsWith(FIRST_SUFFIX))
    .map((one) => one.name.slice(0, -FIRST_SUFFIX.length))
  const suffixes = guardOf(table).triggers.map((one) => one.name.slice(table.guard.length))
  const names = new Set([table.guard, ...prefixes].flatMap((prefix) => suffixes.map((suffix) => prefix + suffix)))
  return {
    ...installed,
    functions: installed.functions.filter((one) => own.includes(one) || isKernel(one.body)),
    triggers: installed.triggers.filter((one) => names.has(one.name) || runsOwn(one)),
  }
}

/**
 * The old guard goes with its columns, and so with its index and check; the new columns take their names, and the new
 * guard stands. All of it is a change of the catalog: no row is read.
 */
export function swapGuards(on: AdoptedTable, { final, before, loosened }: Swap): string[] {
  const [relation, { table }] = [tableName(final.table), final]
  const gone = [before.hash, before.number, before.chained].map((name) => `DROP COLUMN ${quote(name)}`)
  const renames = new Map([
    [on.table.hash, table.hash],
    [on.table.number, table.number],
    [on.table.chained, table.chained],
  ])
  return [
    ...before.triggers.map((name) => dropTrigger(relation, name)),
    ...dropTriggers(on),
    ...(before.functions.length === 0 ? [] : [dropFunctions(before.functions)]),
    ...drops(on),
    `ALTER TABLE ${relation} ${[...gone, ...loosened.map((name) => `ALTER COLUMN ${quote(name)} DROP NOT NULL`)].join(', ')}`,
    ...renameColumns(table, renames).up,
    ...renameIndex(table, on.table.index, table.index).up,
    `ALTER TABLE ${relation} RENAME CONSTRAINT ${quote(on.table.check)} TO ${quote(table.check)}`,
    ...guardOf(table).create,
  ]
}
