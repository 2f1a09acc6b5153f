import type { DataSource, EntityManager, EntityMetadata, ObjectLiteral } from 'typeorm'
import { dataSourceOf, type Declaration, type NameDeclaration } from '../../registry/registry'
import { requireManager } from '../../calls/call-options'
import { cached, type EntityColumns, entityColumns } from '../../calls/entity-text'
import { classFilter } from '../../calls/statements'
import { named, nameList, parameter, returningList, type RowShape, type Statement, type WireRow } from '../../sql/find'
import { literal, qualified, quote } from '../../sql/identifier'
import { hasNamedKey, holderKey, holderOid, type HolderTable, keyPart, nameField } from './fragments'
import type { NamesColumn, NamesTable } from '../../sql/names-table'
import { equal, op } from '../../sql/text-table'
import { toGeoJson } from '../../sql/types'
import { idOf } from '../../typeorm/refusals'
import { declaringMetadata, holderDeclaration, namesIn, namesTable, namesText } from '../../registry/name-declarations'
import { holderTable } from './holder-table'

/** The names of a DataSource. */
export interface DataSourceNames {
  /** All declared names, each once. */
  readonly declared: readonly NameDeclaration[]
  /** The unique text of the table of names. @throws DeclarationError if the DataSource has no such table */
  readonly text: () => Declaration
  /** @throws DeclarationError if the DataSource has no such table */
  readonly table: () => NamesTable
}

/** @throws DeclarationError for anything but an EntityManager */
export function namesOf(manager: EntityManager): DataSourceNames {
  requireManager(manager)
  const dataSource = dataSourceOf(manager)
  return {
    declared: namesIn(dataSource),
    text: () => namesText(dataSource),
    table: () => namesTable(dataSource),
  }
}

/** One of two rows, by its position in the request. It has no columns if the other row does not exist. */
export interface SwappedRow {
  readonly position: number
  readonly columns: WireRow
}

/** A name that a row gave up and that is kept for the row. */
export interface KeptName {
  readonly name: string
  readonly column: string
  readonly state: 'reserved' | 'redirect'
  /** ISO 8601. */
  readonly since: string
  readonly until: string | null
}

/** An entity whose rows hold names, one of these names, and the statements for a row. */
export interface HolderEntity extends EntityColumns {
  readonly declaration: NameDeclaration
  readonly table: HolderTable
  /** Database names of the columns that a statement reads from the row. */
  readonly read: readonly string[]
  /** Discriminators of the class and its children, the last parameters of three statements. May be empty. */
  readonly discriminators: readonly string[]
  /** Parameter: the name. */
  readonly find: Statement<WireRow>
  /**
   * Changes the names of the row. Parameters: the names, the primary key, the discriminators.
   *
   * @param columns the columns that hold the names
   */
  readonly rename: (columns: readonly string[]) => Statement<WireRow>
  /** Parameters: the primary keys of two rows, then the discriminators. */
  readonly swap: Statement<SwappedRow>
  /** Parameters: the primary key, the discriminators. */
  readonly formerNames: Statement<KeptName>
}

const holders = new WeakMap<NameDeclaration, WeakMap<EntityMetadata, HolderEntity>>()

/** Describes the entity whose rows hold the names of a declaration. The description is made once and kept. */
export function holderEntity(metadata: EntityMetadata, declaration: NameDeclaration): HolderEntity {
  const known = holders.get(declaration) ?? new WeakMap<EntityMetadata, HolderEntity>()
  holders.set(declaration, known)
  const kept = known.get(metadata)
  if (kept) return kept
  const columns = entityColumns(dataSourceOf(metadata), metadata)
  const [table, only] = [holderTable(metadata), classFilter(metadata)]
  // The columns that `find` would load, and the discriminator of single table inheritance if it is missing.
  const selected = [...columns.select, ...(metadata.discriminatorColumn ? [metadata.discriminatorColumn] : [])]
  const read = [...new Set(selected.map(({ databaseName }) => databaseName))]
  const name = declaration.text.column.databaseName
  const row: HolderRow = { holder: table, name, row: { select: read, spatial: columns.spatial }, only }
  const changes = {
    version: metadata.versionColumn?.databaseName,
    updated: metadata.updateDateColumn?.databaseName,
  }
  const renames = new Map<string, Statement<WireRow>>()
  const made: HolderEntity = {
    ...columns,
    declaration,
    table,
    read,
    discriminators: only?.values ?? [],
    find: findByNameStatement(row),
    rename: (names) => cached(renames, names, () => renameStatement(row, names, changes)),
    swap: swapNamesStatement(row, changes),
    formerNames: formerNamesStatement(row),
  }
  known.set(metadata, made)
  return made
}

/** A row of a holder's table, with the columns to read and the class that was asked for. */
interface HolderRow {
  readonly holder: HolderTable
  /** The column that holds the name. */
  readonly name: string
  readonly row: Pick<RowShape, 'select' | 'spatial'>
  /** The discriminator and its values, in single table inheritance. */
  readonly only: { readonly column: string; readonly values: readonly string[] } | undefined
}

/** Finds the row that holds a name by the index over the column. The name is compared byte by byte. */
export function findByNameStatement({ holder, name, row }: HolderRow): Statement<WireRow> {
  return named(
    `SELECT ${returningList(row, 't')}
FROM ${qualified(holder.schema, holder.table)} AS t
WHERE ${equal(`t.${quote(name)}`, '$1')}
  AND ${equal(`t.${quote(name)}::pg_catalog.text COLLATE pg_catalog."C"`, '$1::pg_catalog.text')}`,
    (one) => one,
  )
}

/** Columns that every change of a row sets. */
export interface ChangeColumns {
  readonly version: string | undefined
  readonly updated: string | undefined
}

const changedDates = ({ version, updated }: ChangeColumns): string[] => [
  ...(version === undefined ? [] : [`${quote(version)} = t.${quote(version)} ${op('+')} 1`]),
  ...(updated === undefined ? [] : [`${quote(updated)} = CURRENT_TIMESTAMP`]),
]

const ofClass = ({ only }: HolderRow, first: number): string =>
  only
    ? ` AND (${only.values.map((_, index) => equal(`t.${quote(only.column)}`, parameter(first + index))).join(' OR ')})`
    : ''

/**
 * Gives a row other names, and returns the row.
 *
 * The parameters are the names, the primary key, and the values of the discriminator.
 */
export function renameStatement(
  row: HolderRow,
  columns: readonly string[],
  changes: ChangeColumns,
): Statement<WireRow> {
  const { holder } = row
  const names = columns.map((name, index) => `${quote(name)} = ${parameter(index)}`)
  const key = holder.primary.map(({ name }, index) => equal(`t.${quote(name)}`, parameter(columns.length + index)))
  return named(
    `UPDATE ${qualified(holder.schema, holder.table)} AS t SET ${[...names, ...changedDates(changes)].join(', ')}
WHERE ${key.join(' AND ')}${ofClass(row, columns.length + key.length)}
RETURNING ${returningList(row.row, 't')}`,
    (one) => one,
  )
}

/**
 * Swaps the names of two rows if both exist, and returns those that exist. They are locked first, so that their names
 * are current. Only the server knows which row is which, because keys that differ as texts can be equal.
 *
 * The parameters are both primary keys, and the values of the discriminator.
 */
export function swapNamesStatement(sought: HolderRow, changes: ChangeColumns): Statement<SwappedRow> {
  const { holder, name, row } = sought
  const { primary } = holder
  const table = qualified(holder.schema, holder.table)
  const keys = primary.map((one) => one.name)
  const isRow = (first: number): string =>
    `(${keys.map((key, index) => equal(`t.${quote(key)}`, parameter(first + index))).join(' AND ')})`
  const same = keys.map((key, index) => equal(`t.${quote(key)}`, `one.swapped_${index}`)).join(' AND ')
  const order = `CASE WHEN ${isRow(0)} THEN 1 ELSE 2 END AS swapped_order`
  const set = [`${quote(name)} = other.swapped_name`, ...changedDates(changes)]
  return named(
    `WITH swapped AS MATERIALIZED (
  SELECT ${keys.map((key, index) => `t.${quote(key)} AS swapped_${index}`).join(', ')}, t.${quote(name)} AS swapped_name,
    ${order}
  FROM ${table} AS t
  WHERE (${isRow(0)} OR ${isRow(keys.length)})${ofClass(sought, 2 * keys.length)}
  ORDER BY ${nameList(keys)}
  FOR NO KEY UPDATE
), changed AS (
  UPDATE ${table} AS t SET ${set.join(', ')}
  FROM swapped AS one
  JOIN swapped AS other ON other.swapped_order ${op('<>')} one.swapped_order
  WHERE ${same}
  RETURNING one.swapped_order AS changed_order, ${returningList(row, 't')}
)
SELECT swapped.swapped_order, changed.*
FROM swapped LEFT JOIN changed ON ${equal('changed.changed_order', 'swapped.swapped_order')}`,
    ([position, , ...columns]) => ({ position: Number(position) - 1, columns }),
  )
}

/**
 * Removes expired former names, except those that another session has locked. Returns their number.
 *
 * The parameter is their maximum number.
 */
export function releaseExpiredStatement(names: NamesTable): Statement<number> {
  const { id, until, state } = names.columns
  const table = qualified(names.schema, names.table)
  return named(
    `WITH expired AS MATERIALIZED (
  SELECT n.${quote(id)} AS id FROM ${table} AS n
  WHERE n.${quote(until)} ${op('<=')} pg_catalog.statement_timestamp() AND n.${quote(state)} ${op('<>')} 'held'
  ORDER BY n.${quote(until)}
  LIMIT $1
  FOR UPDATE SKIP LOCKED
), removed AS (
  DELETE FROM ${table} AS n USING expired
  WHERE ${equal(`n.${quote(id)}`, 'expired.id')} RETURNING 1
)
SELECT pg_catalog.count(*) FROM removed`,
    ([count]) => Number(count),
  )
}

/** A table whose rows may hold the name. */
type SoughtTable = Pick<HolderEntity, 'table' | 'read' | 'spatial'>

/** The row that has a name. */
export interface FoundHolder {
  /** The holder's table, as in `HolderTable.holder`, and the column there. */
  readonly holder: string
  readonly column: string
  readonly state: 'held' | 'redirect'
  /** ISO 8601. */
  readonly since: string
  readonly until: string | null
  /** The name that the row holds now, or null if it holds none. */
  readonly name: string | null
  /** The primary key and the requested columns, for each table that may hold the name. */
  readonly rows: readonly { readonly key: readonly unknown[]; readonly columns: readonly unknown[] }[]
}

/**
 * Finds the former names that are kept for a row, the newest first. Only the server knows which row it is, because keys
 * that differ as texts can be equal.
 *
 * The parameters are the primary key, and the values of the discriminator.
 */
export function formerNamesStatement(row: HolderRow): Statement<KeptName> {
  const { holder } = row
  const { of, primary } = holder
  const field = (column: NamesColumn): string => nameField(of, 'n', column)
  const key = primary.map(({ name }, index) => equal(`t.${quote(name)}`, parameter(index)))
  const selected = [...(['text', 'property', 'state'] as const).map(field), ...isoDates(field('since'), field('until'))]
  return named(
    `SELECT ${selected.join(', ')}
FROM ONLY ${qualified(holder.schema, holder.table)} AS t
JOIN ${qualified(of.schema, of.table)} AS n
  ON ${equal(field('holder'), holderOid(holder))} AND ${equal(field('key'), holderKey(holder, 't'))}
WHERE ${key.join(' AND ')}${ofClass(row, key.length)}
  AND ${field('state')} ${op('<>')} 'held'
  AND (${field('until')} IS NULL OR ${field('until')} ${op('>')} pg_catalog.statement_timestamp())
ORDER BY ${field('since')} DESC, ${field('id')} DESC`,
    ([name, column, state, since, until]) => ({
      name: String(name),
      column: String(column),
      state: state as KeptName['state'],
      since: String(since),
      until: until as string | null,
    }),
  )
}

/** Reads dates as ISO 8601, independent of the session's DateStyle. */
const isoDates = (...dates: readonly string[]): string[] =>
  dates.map((one) => `pg_catalog.to_json(${one}) OPERATOR(pg_catalog.#>>) '{}'`)

/** The number of columns before those of the tables. */
const HEAD = 6

/**
 * Finds the row that has a name, and reads the row.
 *
 * The parameters are the namespace, the name and its hash.
 *
 * @param options whether a former name that redirects finds its holder too, and whether to read the row itself
 */
export function findHolderStatement(
  names: NamesTable,
  holders: readonly SoughtTable[],
  { former, entity }: { readonly former: boolean; readonly entity: boolean },
): Statement<FoundHolder> {
  const tables = entity ? holders : holders.map((one) => ({ ...one, read: [] }))
  const field = (column: NamesColumn, row = 'n'): string => `${row}.${quote(names.columns[column])}`
  const table = qualified(names.schema, names.table)
  const isHeld = (row?: string): string => equal(field('state', row), `'held'`)
  const later = `CASE WHEN ${isHeld()} THEN ${field('text')} ELSE (
    SELECT ${field('text', 'm')} FROM ${table} AS m
    WHERE ${equal(field('key', 'm'), field('key'))} AND ${equal(field('holder', 'm'), field('holder'))}
      AND ${equal(field('property', 'm'), field('property'))} AND ${isHeld('m')}
  ) END`
  const current = former ? later : field('text')
  const dates = isoDates(field('since'), field('until'))
  const holder = `CASE ${tables
    .map(({ table: one }) => `WHEN ${equal(field('holder'), holderOid(one))} THEN ${literal(one.holder)}`)
    .join(' ')} ELSE ${field('holder')}::pg_catalog.text END`
  const head = [holder, field('property'), field('state'), ...dates, current]
  const columns = [...head.map((one, index) => `${one} AS n${index}`), ...tables.flatMap(columnsOf(field))]
  const joins = tables.map(({ table: holder, read }, nth) => {
    if (read.length === 0) return ''
    const same = hasNamedKey(holder, `t${nth}`, keyOfHolder(field, holder))
    return `\nLEFT JOIN ${qualified(holder.schema, holder.table)} AS t${nth} ON ${same.join('\n  AND ')}`
  })
  const states = former
    ? `(${isHeld()} OR ${equal(field('state'), `'redirect'`)}
  AND (${field('until')} IS NULL OR ${field('until')} ${op('>')} pg_catalog.statement_timestamp()))`
    : isHeld()
  const sql = `SELECT ${columns.join(',\n  ')}
FROM ${table} AS n${joins.join('')}
WHERE ${equal(field('namespace'), '$1')} AND ${equal(field('hash'), `$3::pg_catalog.${names.digest.type}`)}
  AND ${equal(`${field('text')} COLLATE pg_catalog."C"`, '$2::pg_catalog.text')}
  AND ${states}`
  return named(sql, parserOf(tables))
}

type Field = (column: NamesColumn, row?: string) => string

/** Returns the key only for its own table, because the parts of the key have their types only there. */
const keyOfHolder = (field: Field, holder: HolderTable): string =>
  `(CASE WHEN ${equal(field('holder'), holderOid(holder))} THEN ${field('key')} END)`

const columnsOf =
  (field: Field) =>
  ({ table: holder, read, spatial }: SoughtTable, nth: number): string[] => [
    ...holder.primary.map((_, index) => `${keyPart(holder, keyOfHolder(field, holder), index)} AS k${nth}_${index}`),
    ...read.map((name, index) => {
      const column = spatial.get(name)
      const value = `t${nth}.${quote(name)}`
      return `${column ? toGeoJson(value, column) : value} AS c${nth}_${index}`
    }),
  ]

function parserOf(tables: readonly SoughtTable[]): Statement<FoundHolder>['parse'] {
  return (row) => {
    const [holder, column, state, since, until, name] = row
    let next = HEAD
    const rows = tables.map(({ table: { primary }, read }) => {
      const key = row.slice(next, next + primary.length)
      const columns = row.slice(next + primary.length, next + primary.length + read.length)
      next += primary.length + read.length
      return { key, columns }
    })
    return {
      holder: String(holder),
      column: String(column),
      state: state as FoundHolder['state'],
      since: String(since),
      until: until as string | null,
      name: name as string | null,
      rows,
    }
  }
}

/**
 * Returns the declaration of a found name, the metadata of the class that declares it, and the row's id map. Undefined
 * if another DataSource has that entity.
 */
export function holderOf(
  dataSource: DataSource,
  found: Pick<FoundHolder, 'holder' | 'column'>,
  key: readonly unknown[],
):
  | { readonly declaration: NameDeclaration; readonly metadata: EntityMetadata; readonly id: ObjectLiteral }
  | undefined {
  const declaration = holderDeclaration(dataSource, { holder: found.holder, holderColumn: found.column })
  if (!declaration) return undefined
  const id = idOf(declaration.metadata, key) ?? {}
  return { declaration, metadata: declaringMetadata(declaration), id }
}
