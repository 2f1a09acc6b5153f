import { type SpatialColumn, toGeoJson } from './column-type'
import { literal, qualified, quote } from './identifier'
import { hasNamedKey, keyPart } from './name-body'
import type { HolderTable, NamesColumn, NamesTable } from './name-table'
import { named, type Statement } from './statements'
import { equal, op } from './text-table'

/** A table whose rows may hold the name, and what to read of the row. */
export interface SoughtTable {
  readonly holder: HolderTable
  /** Columns by their database names; none: the row itself is not read. */
  readonly select: readonly string[]
  readonly spatial: ReadonlyMap<string, SpatialColumn>
}

/** Who has a name. */
export interface FoundHolder {
  /** Of `HolderTable.holder`, and the column there. */
  readonly holder: string
  readonly column: string
  readonly state: 'held' | 'redirect'
  /** As the driver gives a point in time. */
  readonly since: unknown
  readonly until: unknown
  /** The name that the row holds now; null where it has none. */
  readonly name: string | null
  /** For each table that may have it: the primary key, and the columns asked for. */
  readonly rows: readonly { readonly key: readonly unknown[]; readonly columns: readonly unknown[] }[]
}

/** Columns before those of the tables. */
const HEAD = 6

/**
 * Who has a name, and what its row holds.
 *
 * Parameters: the namespace, the name and its hash.
 *
 * @param former also by a former name that leads to its holder
 */
export function findHolderStatement(
  names: NamesTable,
  tables: readonly SoughtTable[],
  former: boolean,
): Statement<FoundHolder> {
  const field = (column: NamesColumn, row = 'n'): string => `${row}.${quote(names.columns[column])}`
  const table = qualified(names.schema, names.table)
  const isHeld = (row?: string): string => equal(field('state', row), `'held'`)
  const later = `CASE WHEN ${isHeld()} THEN ${field('text')} ELSE (
    SELECT ${field('text', 'm')} FROM ${table} AS m
    WHERE ${equal(field('key', 'm'), field('key'))} AND ${equal(field('holder', 'm'), field('holder'))}
      AND ${equal(field('property', 'm'), field('property'))} AND ${isHeld('m')}
  ) END`
  const current = former ? later : field('text')
  const head = [field('holder'), field('property'), field('state'), field('since'), field('until'), current]
  const columns = [...head.map((one, index) => `${one} AS n${index}`), ...tables.flatMap(columnsOf(field))]
  const states = former
    ? `(${isHeld()} OR ${equal(field('state'), `'redirect'`)}
  AND (${field('until')} IS NULL OR ${field('until')} ${op('>')} pg_catalog.statement_timestamp()))`
    : isHeld()
  const sql = `SELECT ${columns.join(',\n  ')}
FROM ${table} AS n${tables.map(joinOf(field)).join('')}
WHERE ${equal(field('namespace'), '$1')} AND ${equal(field('hash'), `$3::pg_catalog.${names.digest.type}`)}
  AND ${equal(`${field('text')} COLLATE pg_catalog."C"`, '$2::pg_catalog.text')}
  AND ${states}`
  return named(sql, parserOf(tables))
}

type Field = (column: NamesColumn, row?: string) => string

const isOf = (field: Field, { holder }: HolderTable): string => equal(field('holder'), literal(holder))

/** A part of the key has its type only in the table that it is of. */
const keyOfHolder = (field: Field, holder: HolderTable): string =>
  `(CASE WHEN ${isOf(field, holder)} THEN ${field('key')} END)`

const columnsOf =
  (field: Field) =>
  ({ holder, select, spatial }: SoughtTable, nth: number): string[] => [
    ...holder.primary.map((_, index) => `${keyPart(holder, keyOfHolder(field, holder), index)} AS k${nth}_${index}`),
    ...select.map((name, index) => {
      const column = spatial.get(name)
      const value = `t${nth}.${quote(name)}`
      return `${column ? toGeoJson(value, column) : value} AS c${nth}_${index}`
    }),
  ]

const joinOf =
  (field: Field) =>
  ({ holder, select }: SoughtTable, nth: number): string => {
    if (select.length === 0) return ''
    const same = hasNamedKey(holder, `t${nth}`, keyOfHolder(field, holder))
    return `\nLEFT JOIN ${qualified(holder.schema, holder.table)} AS t${nth} ON ${same.join('\n  AND ')}`
  }

function parserOf(tables: readonly SoughtTable[]): Statement<FoundHolder>['parse'] {
  return (row) => {
    const [holder, column, state, since, until, name] = row
    let next = HEAD
    const rows = tables.map(({ holder: { primary }, select }) => {
      const key = row.slice(next, next + primary.length)
      const columns = row.slice(next + primary.length, next + primary.length + select.length)
      next += primary.length + select.length
      return { key, columns }
    })
    return {
      holder: String(holder),
      column: String(column),
      state: state as FoundHolder['state'],
      since,
      until,
      name: name as string | null,
      rows,
    }
  }
}
