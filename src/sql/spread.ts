import { broughtOr, BY_ORDINAL, unseen } from './batch'
import { asStored, typeOf } from './types'
import { list, literal, qualified, unnest } from './identifier'
import {
  anyNumber,
  asText,
  type BatchRow,
  CREATED,
  doNothing,
  holdsText,
  isTheRow,
  insertColumns,
  keyColumns,
  named,
  nameList,
  parameter,
  parserOf,
  returnedRow,
  type RowShape,
  selectRow,
  type Statement,
  type StoredRow,
  unechoed,
  type WireRow,
  written,
} from './find'
import {
  alike,
  bytewise,
  equal,
  EQUALS,
  field,
  type HolderColumns,
  isLive,
  isSoftlyDeleted,
  op,
  tableName,
  type TextTable,
} from './text-table'
import { assignments, conditionOf, givenAsColumn, isOfClass, textOf, type UpdateShape } from './upsert'

/** The same type as in `catalog`, which imports this file. */
type Query = (sql: string, parameters?: unknown[]) => Promise<readonly unknown[]>

/** The places of a table's rows. */
export interface Spread {
  /** undefined if no cluster knows the table. */
  readonly distribution: Distribution | undefined
  /** Whether the node is the coordinator of its cluster. It is true without a cluster. */
  readonly isCoordinator: boolean
  /** Columns by which the table, or a partition of it, is partitioned; `''` for an expression. */
  readonly partitionedBy: readonly string[]
  /** Of the tables that were asked about beside it, those that a cluster knows, by their names as SQL. */
  readonly beside: ReadonlyMap<string, Distribution>
}

/** The distribution of a table in the metadata of a cluster. */
export interface Distribution {
  /**
   * The rows are in shards by a column, in one shard, in a copy on every node, or on the coordinator alone, in a shard
   * of its own. A foreign key to a reference table makes a table `local`.
   */
  readonly kind: 'column' | 'single' | 'reference' | 'local'
  readonly column: string | undefined
  /** Whether a shard has copies that Citus writes statement by statement, so that each copy runs its own triggers. */
  readonly copied: boolean
}

/** Reads from the catalog where the rows of the table `r` are, as JSON. */
export const SPREAD_OF_R: string = `pg_catalog.jsonb_build_object(
  'citus', EXISTS (SELECT FROM pg_catalog.pg_extension AS e WHERE e.extname ${EQUALS} 'citus'),
  'partitionedBy', (
    SELECT coalesce(pg_catalog.jsonb_agg(DISTINCT coalesce(a.attname, '')), '[]')
      FROM pg_catalog.pg_partition_tree(r.oid) AS p
      JOIN pg_catalog.pg_partitioned_table AS d ON d.partrelid ${EQUALS} p.relid
      CROSS JOIN LATERAL pg_catalog.unnest(d.partattrs) AS k (attnum)
      LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid ${EQUALS} d.partrelid
       AND a.attnum ${EQUALS} k.attnum
       AND k.attnum ${op('>')} 0))`

/** The result of `SPREAD_OF_R`. */
export interface CatalogSpread extends Pick<Spread, 'partitionedBy'> {
  /** Whether the database has the extension Citus. */
  readonly citus: boolean
}

/** Reads how tables are distributed. It needs the extension. Parameter: their names as SQL. */
const DISTRIBUTION = `SELECT r.name, d.repmodel ${EQUALS} 'c' AS copied,
  CASE WHEN d.partmethod ${op('<>')} 'n' THEN 'column' WHEN d.repmodel ${EQUALS} 't' THEN 'reference'
    WHEN d.colocationid ${EQUALS} 0 THEN 'local' ELSE 'single' END AS kind,
  CASE WHEN d.partmethod ${op('<>')} 'n' THEN column_to_column_name(d.logicalrelid, d.partkey::pg_catalog.text) END AS "column",
  citus_is_coordinator() AS coordinator
FROM pg_catalog.unnest($1::pg_catalog.text[]) AS r (name)
JOIN pg_catalog.pg_dist_partition AS d ON d.logicalrelid ${EQUALS} pg_catalog.to_regclass(r.name)`

/**
 * Adds to the catalog's data what only the metadata of a cluster contains.
 *
 * @param relation the table's name as SQL
 * @param others tables that must be where it is, as SQL
 */
export async function spreadOf(
  query: Query,
  relation: string,
  { citus, partitionedBy }: CatalogSpread,
  others: readonly string[] = [],
): Promise<Spread> {
  const rows = (citus ? await query(DISTRIBUTION, [[relation, ...others]]) : []) as readonly {
    readonly name: string
    readonly kind: Distribution['kind']
    readonly column: string | null
    readonly copied: boolean
    readonly coordinator: boolean
  }[]
  const beside = new Map(
    rows.map(({ name, kind, column, copied }) => [name, { kind, column: column ?? undefined, copied }] as const),
  )
  return { distribution: beside.get(relation), isCoordinator: rows[0]?.coordinator ?? true, partitionedBy, beside }
}

/** Whether the database has the extension, without which no table is distributed. */
export const hasCitus = async (query: Query): Promise<boolean> =>
  (await query(`SELECT FROM pg_catalog.pg_extension AS e WHERE e.extname ${EQUALS} 'citus'`)).length > 0

/** @param relation the table's name as SQL */
export const distributionOf = async (query: Query, relation: string): Promise<Distribution | undefined> =>
  (await spreadOf(query, relation, { citus: await hasCitus(query), partitionedBy: [] })).distribution

/** Whether rows are in shards or copies, and not on the coordinator alone. */
export const isElsewhere = (distribution: Distribution | undefined): boolean =>
  distribution !== undefined && distribution.kind !== 'local'

export const distribute = ({ schema, table, hash }: Pick<TextTable, 'schema' | 'table' | 'hash'>): string =>
  `SELECT create_distributed_table(${literal(qualified(schema, table))}, ${literal(hash)})`

/**
 * Makes Citus use one connection to each node for the rest of the transaction. It refuses to change a function after a
 * statement has used several.
 *
 * @see https://docs.citusdata.com/en/stable/develop/api_guc.html
 */
export const ONE_CONNECTION = `SET LOCAL citus.multi_shard_modify_mode TO 'sequential'`

/**
 * How a table's rows get out of their shards and back, as a sentence.
 *
 * @param relation the table's name as SQL
 * @param distribution undefined: it cannot be distributed as it was
 */
export function outOfShards(relation: string, { kind, column }: Partial<Distribution> = {}): string {
  const name = literal(relation)
  const again = {
    column: `SELECT create_distributed_table(${name}, ${literal(column ?? '')})`,
    single: `SELECT create_distributed_table(${name}, NULL)`,
    reference: `SELECT create_reference_table(${name})`,
    local: 'create_reference_table() of the tables that it refers to',
    lost: 'distribute it by another column',
  }[kind ?? 'lost']
  const cascade = kind === 'local' ? ', cascade_via_foreign_keys => true' : ''
  return `Run SELECT undistribute_table(${name}${cascade}), then this command and its migration, then ${again}`
}

/*
 * Statements in the forms that a distributed table accepts: one table in each, no CTE that writes, no LATERAL, no list
 * in the order of its input. Rows arrive by shard, so each row contains its key, which identifies it.
 *
 * Arrays whose length is hidden are ten rows for the planner. A join with them reads the index of a shard that has many
 * rows, and once the whole of a smaller one. By `anyNumber`, the planner would expect one row in a small shard, and
 * would read the shard again for each row of the list.
 */

/** The values of a batch: an array of texts for each column of the key, and for each other column. */
type Given = readonly (readonly (string | null)[])[]

/**
 * Returns the parameters before the rows: every value of each column of the scope, once. Citus looks for the shards of
 * each given value, so a scope that is repeated for each of its rows would cost more than the rows do.
 */
export const scopesOf = ({ scope }: Pick<TextTable, 'scope'>, given: Given): (string | null)[][] =>
  scope.map((_, index) => [...new Set(given[index])])

/** SQL of the array that holds values of a column of the key. */
const arrayOf = ({ table, types }: RowShape, name: string, index: number): string =>
  `${parameter(index)}::${name === table.hash ? table.digest.type : (types.get(name)?.type ?? 'text')}[]`

const textsOf = ({ text }: TextTable): string[] => text.map(({ name }) => field('t', name))

/** Columns before `selectRow` that identify a row of the batch. A text column may have the name of one of its columns. */
const keyList = (columns: readonly string[]): string[] => columns.map((column, nth) => `${column} AS k${nth}`)

/** The most values of a column that are sent once more, so that Citus sends the statement only to their shards. */
const FEW_VALUES = 8

/**
 * Finds rows that hold the texts of a batch. Returns the statement with its parameters: an array for each column of the
 * scope, the hashes, and arrays of those columns that have few values.
 *
 * Texts are compared here, because Citus would send those of all rows to every shard.
 *
 * @param given the values of the batch, in the order of the key
 */
export function findSpread(
  shape: RowShape,
  given: Given,
): { readonly statement: Statement<BatchRow>; readonly values: Given } {
  const { table } = shape
  const key = [...table.scope, table.hash]
  const texts = given.slice(table.scope.length, -1)
  const values = [...given.slice(0, table.scope.length), ...given.slice(-1)]
  const where = key.map((name, nth) => `${field('t', name)} ${EQUALS} i.c${nth}`)
  const arrays = key.map((name, nth) => unseen(arrayOf(shape, name, nth)))
  for (const [nth, name] of key.entries()) {
    const distinct = [...new Set(values[nth])]
    if (distinct.length > FEW_VALUES) continue
    where.push(`${field('t', name)} ${EQUALS} ANY (${arrayOf(shape, name, values.length)})`)
    values.push(distinct)
  }
  const start = 1 + texts.length
  const indexOf = (row: WireRow): number => {
    const index = Number(row[0]) - 1
    return texts.every((column, nth) => column[index] === row[nth + 1]) ? index : NO_ROW
  }
  const parse = parserOf(shape, false, { start, indexOf })
  const sql = `SELECT ${['i.ordinal', ...keyList(textsOf(table)), selectRow(shape, 't', { created: CREATED.no })].join(', ')}
FROM ${tableName(table)} AS t,
  ${unnest(arrays)}
  WITH ORDINALITY AS i (${[...key.map((_, nth) => `c${nth}`), 'ordinal'].join(', ')})
WHERE ${[...where, ...isLive(table, 't')].join('\n    AND ')}`
  return { statement: { name: '', sql, parse: (one) => parse(one, given) }, values }
}

/**
 * Inserts rows of a batch at number 0 if no row conflicts. The parameters are the arrays of the scope, then the values
 * of one row after the other, without the values that a row leaves to a default.
 */
export function createSpreadStatement(shape: RowShape, given: Given, rows: readonly SpreadRow[]): Statement<BatchRow> {
  const columns = insertColumns(shape)
  const { scope } = shape.table
  const places = scope.map(
    (name, nth) => `pg_catalog.array_positions(${arrayOf(shape, name, nth)}, ${field('t', name)})`,
  )
  let next = scope.length
  const values = rows.map((brings) => {
    const list = columns.map((name, index) => (brings(index) ? written(shape, name, parameter(next++)) : 'DEFAULT'))
    return `(${list.join(', ')})`
  })
  return {
    name: '',
    sql: `INSERT INTO ${tableName(shape.table)} AS t (${nameList(columns)})
VALUES ${values.join(',\n  ')}
${doNothing(shape)}
RETURNING ${[...keyList([...places, ...textsOf(shape.table)]), selectRow(shape, 't', { created: CREATED.yes })].join(', ')}`,
    parse: spreadParser(shape, given),
  }
}

/** Whether a row has a value for the column at this place among the columns of the insert. */
type SpreadRow = (index: number) => boolean

/** The place of a row that is not one of the batch, because a trigger has changed its text. */
const NO_ROW = -1

function spreadParser(shape: RowShape, given: Given): Statement<BatchRow>['parse'] {
  const { scope, text } = shape.table
  const start = scope.length + text.length
  // The key of a row is the 1-based place of each of its scopes among the given ones, and its texts.
  const places = new Map<string, number>()
  const firsts = scopesOf(shape.table, given).map((values) => new Map(values.map((value, place) => [value, place + 1])))
  given[0]?.forEach((_, place) => {
    const scopes = firsts.map((known, index) => known.get(given[index]?.[place] ?? null))
    const texts = text.map((__, index) => given[scope.length + index]?.[place] ?? null)
    places.set(JSON.stringify([...scopes, ...texts]), place)
  })
  // Given scopes may be equal once they are stored.
  const keysOf = (row: WireRow): unknown[][] =>
    scope
      .map((_, index) => String(row[index]).match(/\d+/gu) ?? [])
      .reduceRight<unknown[][]>(
        (keys, ofScope) => ofScope.flatMap((place) => keys.map((key) => [Number(place), ...key])),
        [row.slice(scope.length, start)],
      )
  const indexOf = (row: WireRow): number =>
    keysOf(row).flatMap((key) => places.get(JSON.stringify(key)) ?? [])[0] ?? NO_ROW
  const parse = parserOf(shape, false, { start, indexOf })
  return (row) => parse(row, given)
}

/** Updates the row that holds the text. Returns nothing if there is no such row, or if it needs no change. */
export function updateSpreadStatement(rowShape: RowShape, update: UpdateShape): Statement<StoredRow> {
  const shape = unechoed(rowShape)
  const value = (name: string): string => parameter(insertColumns(shape).indexOf(name))
  const given = givenAsColumn(shape, value)
  const condition = conditionOf(shape, update, value, given)
  return named(
    `UPDATE ${tableName(shape.table)} AS t
SET ${assignments(update, (name) => written(shape, name, value(name)), textOf(shape, value), given)}
WHERE ${isTheRow(shape)}${isOfClass(update)}${condition ? `\n    AND (${condition})` : ''}
RETURNING ${returnedRow(shape, CREATED.no)}`,
    parserOf(shape, true),
  )
}

/**
 * Updates the rows that hold the texts of a batch, or finds those that need no update. Takes the parameters of
 * `upsertManyStatement`. A text that several rows hold is not answered.
 *
 * An array has the type of its column. In an UPDATE, Citus refuses a cast of a text that depends on settings, and a
 * worker would cast by its own. An array of arrays would flatten, so their texts are cast.
 */
export function updateManySpreadStatement(
  rowShape: RowShape,
  update: UpdateShape,
  isUnchanged: boolean,
): Statement<BatchRow> {
  const shape = unechoed(rowShape)
  const { table, types, spatial, defaults } = shape
  const columns = insertColumns(shape)
  const used = new Set(table.scope)
  const given = (name: string, otherwise = 'NULL'): string => (used.add(name), broughtOr(shape, name, otherwise))
  const set = assignments(update, given)
  const condition = conditionOf(shape, update, (name) => `i.c${columns.indexOf(name)}`, given)
  const typeOfArray = (name: string): string => {
    const type = typeOf(types, name)
    if (name === table.hash) return table.digest.type
    return used.has(name) && !spatial.has(name) && !type.endsWith(']') ? type : 'pg_catalog.text'
  }
  const names = [...columns.map((_, nth) => `c${nth}`), ...[...defaults].map((_, nth) => `g${nth}`)]
  const arrays = [...columns.map(typeOfArray), ...[...defaults].map(() => 'boolean')].map((type, nth) =>
    unseen(`${parameter(nth)}::${type}[]`),
  )
  const from = `${unnest(arrays)}\n  WITH ORDINALITY AS i (${list([...names, 'ordinal'], 4)})`
  const key = (nth: number): string => {
    const type = types.get(table.scope[nth] ?? '')
    return type ? asStored(`i.c${nth}`, type) : `i.c${nth}`
  }
  const isHeldAgain = [
    ...[...table.scope, table.hash].map((name) => equal(field('o', name), field('t', name))),
    ...table.text.map(({ name }) => alike(bytewise('o', name), bytewise('t', name))),
    ...isLive(table, 'o'),
    `${field('o', table.number)} ${op('<>')} ${field('t', table.number)}`,
  ]
  const where = `WHERE ${[holdsText(shape, key), ...isLive(table, 't')].join('\n    AND ')}
    AND NOT EXISTS (SELECT FROM ${tableName(table)} AS o WHERE ${isHeldAgain.join('\n      AND ')})`
  const row = `i.ordinal, ${selectRow(shape, 't', { created: CREATED.no })}`
  return {
    name: '',
    sql: isUnchanged
      ? `SELECT ${row}\nFROM ${tableName(table)} AS t, ${from}\n${where}\n    AND (${condition}) IS NOT TRUE`
      : `UPDATE ${tableName(table)} AS t
SET ${set}
FROM ${from}
${where}${isOfClass(update)}${condition ? `\n    AND (${condition})` : ''}
RETURNING ${row}`,
    parse: parserOf(shape, false, BY_ORDINAL),
  }
}

/** Reads the key of a row, first the scope and then the texts. The parameters are the primary key. */
export function standingKeyStatement(table: TextTable, primary: readonly string[]): Statement<readonly unknown[]> {
  const key = keyColumns(table).slice(0, -1)
  return named(
    `SELECT ${[...key.map((name) => field('t', name)), `CASE WHEN ${isLive(table, 't').join(' AND ') || 'true'} THEN 1 END`].join(', ')}
FROM ${tableName(table)} AS t
WHERE ${primary.map((name, index) => `${field('t', name)} ${EQUALS} ${parameter(index)}`).join('\n    AND ')}`,
    (row) => row,
  )
}

/** Finds the primary key and the soft delete of the row that holds a text. The parameters are scope, text and hash. */
export function holderKeyStatement(
  { table, types }: Pick<RowShape, 'table' | 'types'>,
  { primary, softDelete }: HolderColumns,
): Statement<{ readonly key: readonly unknown[]; readonly deleted: boolean }> {
  const scope = table.scope.map((name, index) => {
    const type = types.get(name)
    return `${field('t', name)} ${EQUALS} ${type ? asStored(parameter(index), type) : parameter(index)}`
  })
  const texts = table.text.map(({ name }, index) =>
    alike(asText(name), `${parameter(scope.length + index)}::pg_catalog.text`),
  )
  const hash = `${field('t', table.hash)} ${EQUALS} ${parameter(scope.length + texts.length)}::${table.digest.type}`
  return named(
    `SELECT ${nameList(primary)}, ${isSoftlyDeleted(softDelete)}
FROM ${tableName(table)} AS t
WHERE ${[...scope, hash, ...texts, ...isLive(table, 't'), anyNumber(table)].join('\n    AND ')}`,
    (row) => ({ key: row.slice(0, -1), deleted: (row.at(-1) ?? null) !== null }),
  )
}
