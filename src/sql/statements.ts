import { createHash } from 'node:crypto'
import { quote } from './identifier'
import { field, type TextTable, tableName } from './text-table'

/** A prepared statement. The name is a digest of the SQL, so that equal names always mean equal statements. */
export interface Statement {
  readonly name: string
  readonly sql: string
}

/**
 * Which columns a row brings, by their database names. The parameters of every statement are the row's values in this
 * order: scope, text, hash, then `others`.
 */
export interface RowShape {
  readonly table: TextTable
  /** Further columns of an insert. */
  readonly others: readonly string[]
  /** Columns to give back. */
  readonly select: readonly string[]
}

function statement(sql: string): Statement {
  return { name: `unique_text_${createHash('sha1').update(sql).digest('hex').slice(0, 16)}`, sql }
}

/** Scope, text, hash, others: the insert's columns and the order of the parameters. */
export function insertColumns({ table, others }: RowShape): string[] {
  return [...table.scope, ...table.text.map(({ name }) => name), table.hash, ...others]
}

const list = (names: readonly string[], row = 't'): string => names.map((name) => field(row, name)).join(', ')

/** The stored row `t` holds the text of the row whose values are `value(0)`, `value(1)`, … in the order of the shape. */
function holds({ table }: RowShape, value: (place: number) => string): string {
  const { scope, text, hash } = table
  const texts = text.map(
    ({ name }, place) =>
      `${field('t', name)}::pg_catalog.text COLLATE "C" IS NOT DISTINCT FROM ${value(scope.length + place)}::pg_catalog.text`,
  )
  return [
    ...scope.map((name, place) => `${field('t', name)} OPERATOR(pg_catalog.=) ${value(place)}`),
    `${field('t', hash)} = ${value(scope.length + text.length)}`,
    ...texts,
  ].join(' AND ')
}

const parameter = (place: number): string => `$${place + 1}`

const selectRow = (shape: RowShape): string =>
  `SELECT ${list(shape.select)} FROM ${tableName(shape.table)} AS t WHERE ${holds(shape, parameter)}`

/** Rows that hold the text; more than one only where the guard was off. */
export function findStatement(shape: RowShape): Statement {
  return statement(selectRow(shape))
}

/** The same of what stands now, whatever the snapshot; 40001 where the two differ. */
export function findStandingStatement(shape: RowShape): Statement {
  return statement(`${selectRow(shape)} FOR KEY SHARE`)
}

/**
 * Finds, or inserts at number 0, in one round trip. The sequence of a generated key is asked only for a row that is
 * inserted. Gives `created` and the selected columns; nothing where neither took.
 *
 * DO NOTHING names no index: another one of the table may refuse the row, and must not raise in a transaction.
 */
export function findOrCreateStatement(shape: RowShape): Statement {
  const columns = insertColumns(shape)
  return statement(
    `WITH found AS (${selectRow(shape)}), created AS (INSERT INTO ${tableName(shape.table)} AS t (${columns.map(quote).join(', ')}) ` +
      `SELECT ${columns.map((_, place) => parameter(place)).join(', ')} WHERE NOT EXISTS (SELECT FROM found) ` +
      `ON CONFLICT DO NOTHING RETURNING ${list(shape.select)}) ` +
      `SELECT false, found.* FROM found UNION ALL SELECT true, created.* FROM created`,
  )
}

/**
 * Inserts with the hash left to the guard, which finds the number. It takes the same parameters as the others, the
 * hash among them.
 */
export function createInChainStatement(shape: RowShape, onConflict: 'raise' | 'nothing'): Statement {
  const hashPlace = shape.table.scope.length + shape.table.text.length
  const { hash } = shape.table
  const columns = insertColumns(shape)
  // Every parameter must occur, with a type: the hash's does in a condition that always holds.
  const values = columns.map((name, place) => (name === hash ? 'NULL' : parameter(place)))
  return statement(
    `INSERT INTO ${tableName(shape.table)} AS t (${columns.map(quote).join(', ')}) ` +
      `SELECT ${values.join(', ')} WHERE $${hashPlace + 1}::${shape.table.digest.type} IS NOT NULL ` +
      `${onConflict === 'nothing' ? 'ON CONFLICT DO NOTHING ' : ''}RETURNING ${list(shape.select)}`,
  )
}

/**
 * The same as `findOrCreateStatement` for many rows; every parameter is an array, of which `types` names the element
 * type. Gives the row's 1-based place in the arrays, `created`, and the selected columns.
 *
 * The rows must be sorted by hash: two batches that insert the same texts in different orders would deadlock.
 */
export function findOrCreateManyStatement(shape: RowShape, types: ReadonlyMap<string, string>): Statement {
  const columns = insertColumns(shape)
  const table = tableName(shape.table)
  const typed = columns.map((name) => types.get(name) ?? 'text')
  // unnest() would flatten an array of arrays: these come as literals, and are cast one by one.
  const arrays = typed.map((type, place) => `${parameter(place)}::${type.endsWith('[]') ? 'text' : type}[]`)
  const values = typed.map((type, place) => `i.c${place}${type.endsWith('[]') ? `::${type}` : ''}`)
  const same = holds(shape, (place) => `i.c${place}`)
  const back = list(shape.select)
  const input = ['place', ...shape.select.map((_, place) => `s${place}`)].join(', ')
  const sql =
    `WITH input AS MATERIALIZED (SELECT * FROM unnest(${arrays.join(', ')}) ` +
    `WITH ORDINALITY AS i (${columns.map((_, place) => `c${place}`).join(', ')}, place)), ` +
    // LATERAL with a limit, for a join would read the whole table where it is small enough; 2 shows a duplicate.
    `found (${input}) AS (SELECT i.place, t.* FROM input AS i ` +
    `CROSS JOIN LATERAL (SELECT ${back} FROM ${table} AS t WHERE ${same} LIMIT 2) AS t), ` +
    `created AS (INSERT INTO ${table} AS t (${columns.map(quote).join(', ')}) ` +
    `SELECT ${values.join(', ')} FROM input AS i WHERE NOT EXISTS (SELECT FROM found AS f WHERE f.place = i.place) ` +
    `ORDER BY i.place ON CONFLICT DO NOTHING RETURNING t.*) ` +
    `SELECT f.place, false, ${shape.select.map((_, place) => `f.s${place}`).join(', ')} FROM found AS f ` +
    `UNION ALL SELECT i.place, true, ${back} FROM created AS t JOIN input AS i ON ${same}`
  // Not prepared by name: a plan that is kept from when the table was small would be kept too long, and next to a batch
  // planning costs little.
  return { name: '', sql }
}

/** A Postgres array literal; only for arrays inside arrays, which the driver would send as one of two dimensions. */
export function arrayLiteral(values: readonly unknown[]): string {
  const element = (value: unknown): string => {
    if (value === null || value === undefined) return 'NULL'
    if (Array.isArray(value)) return arrayLiteral(value)
    if (value instanceof Date) return `"${value.toISOString()}"`
    const text = typeof value === 'string' ? value : JSON.stringify(value)
    return `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`
  }
  return `{${values.map(element).join(',')}}`
}

const SAVEPOINT = 'typeorm_unique_text'

/** Around a statement that may fail in the caller's transaction. */
export const savepoint: Readonly<Record<'set' | 'release' | 'rollBack', string>> = {
  set: `SAVEPOINT ${SAVEPOINT}`,
  release: `RELEASE SAVEPOINT ${SAVEPOINT}`,
  rollBack: `ROLLBACK TO SAVEPOINT ${SAVEPOINT}; RELEASE SAVEPOINT ${SAVEPOINT}`,
}
