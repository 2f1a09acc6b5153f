import type { GuardNote } from './guard'
import { qualified, quote } from './identifier'
import { hashOf, tableName, textIsNull, type TextTable } from './text-table'

/** Statements and their way back, each in the order to run. */
export interface Change {
  readonly up: readonly string[]
  readonly down: readonly string[]
}

/** Every column whose name changes, from the old to the new. */
export function renamedColumns(from: GuardNote, to: TextTable): ReadonlyMap<string, string> {
  const pairs = [
    ...from.text.map(({ name }, position) => [name, to.text[position]?.name ?? name] as const),
    [from.hash, to.hash] as const,
    [from.number, to.number] as const,
    [from.chained, to.chained] as const,
  ]
  return new Map(pairs.filter(([before, after]) => before !== after))
}

/** Renames a text with everything that is named after it. The guard follows by itself: it is made anew. */
export function renameText(from: GuardNote, to: TextTable): Change {
  const alter = `ALTER TABLE ${tableName(to)} RENAME`
  const renames: ((back: boolean) => string)[] = []
  const add = (before: string, after: string, sql: (from: string, to: string) => string): void => {
    if (before !== after) renames.push((back) => (back ? sql(after, before) : sql(before, after)))
  }
  for (const [before, after] of renamedColumns(from, to)) {
    add(before, after, (one, other) => `${alter} COLUMN ${quote(one)} TO ${quote(other)}`)
  }
  add(from.check, to.check, (one, other) => `${alter} CONSTRAINT ${quote(one)} TO ${quote(other)}`)
  add(from.index, to.index, (one, other) => `ALTER INDEX ${qualified(to.schema, one)} RENAME TO ${quote(other)}`)
  return { up: renames.map((rename) => rename(false)), down: renames.map((rename) => rename(true)).toReversed() }
}

/** A type as TypeORM has it: `character varying` and `100`; the length may be empty. */
export interface ColumnType {
  readonly type: string
  readonly length: string
}

export function changeType(table: TextTable, column: string, from: ColumnType, to: ColumnType): Change {
  const alter = ({ type, length }: ColumnType): string =>
    `ALTER TABLE ${tableName(table)} ALTER COLUMN ${quote(column)} TYPE ${type}${length ? `(${length})` : ''}`
  return { up: [alter(to)], down: [alter(from)] }
}

/** Adds the hash to a table that may have rows. */
export function addHash(table: TextTable): Change {
  const [alter, hash] = [`ALTER TABLE ${tableName(table)}`, quote(table.hash)]
  const rows = table.nullable ? ` WHERE NOT (${textIsNull(table, '')})` : ''
  return {
    up: [
      `${alter} ADD ${hash} ${table.digest.type}`,
      `UPDATE ${tableName(table)} SET ${hash} = ${hashOf(table, '')}${rows}`,
      ...(table.nullable ? [] : [`${alter} ALTER COLUMN ${hash} SET NOT NULL`]),
    ],
    down: [`${alter} DROP COLUMN ${hash}`],
  }
}
