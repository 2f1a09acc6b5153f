import { renameColumns, renameIndex } from '../../sql/alter'
import type { InstalledTrigger, InstalledTriggers } from '../../sql/catalog'
import { literal, quote } from '../../sql/identifier'
import { field, tableName, type TextTable } from '../../sql/text-table'
import { dropFunctions, dropTrigger, isKernel, makeFunctions, parseNote, type TriggerNote } from '../../sql/trigger-set'
import { guardOf } from '../../triggers/guard'
import {
  type AdoptedTable,
  type Adopting,
  drops,
  dropTriggers,
  HAS_TURN,
  type Held,
  nameOf,
  objectOf,
  own,
  ownAlone,
} from './table'
import { functionOf, primaryKeyAsJson, samePrimary, sameTexts, texts } from './texts'

/** The guard of a table: its note, and the functions, triggers and columns that are dropped with it. */
export interface StandingGuard extends Pick<TextTable, 'hash' | 'number' | 'chained' | 'index'> {
  /** The rules by which it keeps the rows, for a comparison. */
  readonly rules: string
  readonly functions: readonly { readonly schema: string; readonly name: string }[]
  readonly triggers: readonly string[]
}

/** The replacement of a guard of another declaration. */
export interface Swap {
  /** The table as declared. Until the swap, the adoption uses names of its own. */
  readonly final: AdoptedTable
  readonly before: StandingGuard
  /** Columns of the text that may be NULL after the swap. */
  readonly loosened: readonly string[]
  /** Columns that become NOT NULL once the new guard exists: the old declaration allows NULL there. */
  readonly tightened: readonly string[]
}

/**
 * The table with hidden columns, index and check of other names. These exist beside those of the guard until they
 * replace them. The guard's own name is the same, so both tables lead to the same objects of the adoption.
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

/** Selects the triggers and functions of one guard, and the kernel, among all those of a table. */
export function guardIn(
  installed: InstalledTriggers,
  { table }: { readonly table: TextTable },
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
 * Drops the old guard with its columns, which also drops its index and check. Gives their names to the new columns, and
 * makes the new guard. All of this changes only the catalog, and no row is read.
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
    ...dropFunctions(before.functions),
    ...drops(on),
    `ALTER TABLE ${relation} ${[...gone, ...loosened.map((name) => `ALTER COLUMN ${quote(name)} DROP NOT NULL`)].join(', ')}`,
    ...renameColumns(table, renames).up,
    ...renameIndex(table, on.table.index, table.index).up,
    `ALTER TABLE ${relation} RENAME CONSTRAINT ${quote(on.table.check)} TO ${quote(table.check)}`,
    ...guardOf(table).create,
  ]
}

/** The rows that clients have written, by primary key (`k0`, …), in the order of `seq`. */
const writtenOf = (on: Held): string => objectOf(on, 'written')

/** The setting of the session that follows the writers. Its own writes are not noted. */
export const FOLLOWS = 'unique_text.follows'

/** Creates the objects that the triggers need. Does not lock the table itself. */
export function createWritten(on: AdoptedTable): string[] {
  const [columns, values] = [on.primary.map((_, index) => `k${index}`), on.primary.map((name) => field('NEW', name))]
  const body = `
BEGIN
  IF coalesce(pg_catalog.current_setting('${FOLLOWS}', true), '') OPERATOR(pg_catalog.<>) 'on' THEN
    INSERT INTO ${writtenOf(on)} (${columns.join(', ')}) VALUES (${values.join(', ')});
  END IF;
  RETURN NULL;
END
`
  return [
    `CREATE TABLE ${writtenOf(on)} AS SELECT ${on.primary.map((name, index) => `t.${quote(name)} AS k${index}`).join(', ')} ` +
      `FROM ${tableName(on.table)} AS t WITH NO DATA`,
    `ALTER TABLE ${writtenOf(on)} ADD seq pg_catalog.int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY`,
    ...ownAlone(on, [writtenOf(on)]),
    ...makeFunctions({ fresh: [functionOf(on, 'follow', body)] }),
  ]
}

const FOLLOW_TRIGGERS = ['follow_insert', 'follow_update'] as const

/** Creates the triggers. After their commit, they note every row that gets a text. */
export function beginFollowing(on: AdoptedTable): string[] {
  const [insert, update] = FOLLOW_TRIGGERS.map((one) => quote(nameOf(on, one)))
  const run = `FOR EACH ROW EXECUTE FUNCTION ${objectOf(on, 'follow')}()`
  const other = `NOT (${sameTexts(on, 'OLD', 'NEW').join(' AND ')})`
  return [
    `CREATE TRIGGER ${insert} AFTER INSERT ON ${tableName(on.table)} ${run}`,
    `CREATE TRIGGER ${update} AFTER UPDATE ON ${tableName(on.table)} ${run.replace(' EXECUTE', ` WHEN (${other}) EXECUTE`)}`,
  ]
}

/** Drops the objects that note the rows, also after a command was killed. */
export const endFollowing = (on: Held): string[] => [
  ...FOLLOW_TRIGGERS.map((one) => `DROP TRIGGER IF EXISTS ${quote(nameOf(on, one))} ON ${tableName(on.table)}`),
  `DROP FUNCTION IF EXISTS ${objectOf(on, 'follow')}()`,
  `DROP TABLE IF EXISTS ${writtenOf(on)}`,
]

/** Selects whether rows are noted. If so, a command follows the writers, or was killed while it did. */
export const findFollowing = (on: Held): string =>
  `SELECT pg_catalog.to_regclass(${literal(writtenOf(on))}) IS NOT NULL AS found`

/**
 * Selects whether a command works on the table with the OID $1, and whether its rows are noted. A table of notes alone
 * proves nothing, because another role can have made it.
 */
export const findLeft = (on: Pick<Adopting, 'table'>): string =>
  `SELECT ${HAS_TURN} AS running, EXISTS (SELECT FROM pg_catalog.pg_trigger AS t WHERE t.tgrelid OPERATOR(pg_catalog.=) $1::pg_catalog.oid
    AND t.tgname::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY[${FOLLOW_TRIGGERS.map((one) => literal(nameOf(on, one))).join(', ')}])) AS follows`

/** Selects the first $1 notes, each with its current row. If the row no longer exists, `spot` is NULL. */
export const readWritten = (on: AdoptedTable): string =>
  `SELECT q.seq::pg_catalog.text AS seq, t.ctid::pg_catalog.text AS spot, ${primaryKeyAsJson(on, 't')}::pg_catalog.text AS key, ${texts(on)} FROM ` +
  `(SELECT * FROM ${writtenOf(on)} AS w ORDER BY w.seq LIMIT $1::pg_catalog.int8) AS q LEFT JOIN ${own(on)} ON ${samePrimary(on, 'q.k')}`

export const dropWritten = (on: Held): string =>
  `DELETE FROM ${writtenOf(on)} AS w WHERE w.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`
