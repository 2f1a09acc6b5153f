import {
  broughtOr,
  BY_ORDINAL,
  createdMany,
  input,
  inputName,
  inputOrder,
  preparedRows,
  selectCreated,
  unseen,
} from './batch'
import { asStored, typeOf } from './types'
import { literal, quote } from './identifier'
import {
  type BatchRow,
  CREATED,
  createdRow,
  insertColumns,
  isTheRow,
  named,
  otherTexts,
  parameter,
  parserOf,
  returnedRow,
  rowColumns,
  type RowShape,
  SAME_TEXTS,
  selectFound,
  selectRow,
  type Statement,
  type StoredRow,
  written,
} from './find'
import { bytewise, field, hashOfValues, isOther, op, tableName, type TextTable } from './text-table'

/** SQL over the stored row and the given row. Each function returns the SQL of a column by its name. */
export type SqlOfRows = (stored: (name: string) => string, given: (name: string) => string) => string

/** The effect of an upsert on the row that holds the text. */
export interface UpdateShape {
  /** The columns to set. All are among the `others` of the shape, so an inserted row gets the same values. */
  readonly update: readonly string[]
  /** Further columns that are set to SQL. The shape includes the columns of the given row that the SQL uses. */
  readonly sql: ReadonlyMap<string, SqlOfRows>
  /** Rows for which this is not true stay unchanged. @default none */
  readonly where?: SqlOfRows | undefined
  /** The columns of numbers that count the updates. */
  readonly versions: readonly string[]
  /** The columns that are set to the time of the update unless `update` sets them. */
  readonly updateDates: readonly string[]
  /** Texts without a guard that `update` sets in part. Their hashes are recomputed. */
  readonly hashes: readonly Pick<TextTable, 'text' | 'digest' | 'nullable' | 'hash'>[]
  /** A row that already holds all the values stays unchanged. */
  readonly skipUnchanged: boolean
  /** A row with another value in this column stays unchanged, because it is of another class. @default none */
  readonly only?: { readonly column: string; readonly values: readonly string[] } | undefined
}

/**
 * Updates the row that holds the text, or inserts one at number 0, in one round trip. Returns no row if both failed.
 * Takes the parameters of `findOrCreateStatement`.
 *
 * ON CONFLICT … DO UPDATE would act on any row with the number, use the sequence of a generated key for every row, and
 * need all columns of a new row. This statement updates the row that holds the text once it is locked. The UPDATE repeats
 * the conditions, so that it never changes a row of another text, even after other changes.
 *
 * @param orInsert false: a row that does not exist is not inserted
 */
export function upsertStatement(shape: RowShape, update: UpdateShape, orInsert: boolean): Statement<StoredRow> {
  const value = (name: string): string => parameter(insertColumns(shape).indexOf(name))
  // The condition is evaluated on the locked row. The UPDATE would evaluate it in the snapshot and miss other changes.
  const given = givenAsColumn(shape, value)
  const condition = conditionOf(shape, update, value, given)
  const [changed, ifChanged] = condition
    ? [`(${condition}) AS changed`, ' AND pg_catalog.bool_and(changed)']
    : [undefined, '']
  return named(
    `WITH found AS (
  ${selectFound(shape, true, changed)}
  LIMIT 2
  FOR NO KEY UPDATE
), updated AS (
  UPDATE ${tableName(shape.table)} AS t
  SET ${assignments(update, (name) => written(shape, name, value(name)), textOf(shape, value), given)}
  FROM (SELECT FROM found HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) 1${ifChanged}) AS f
  WHERE ${isTheRow(shape)}${isOfClass(update)}
  RETURNING ${returnedRow(shape, CREATED.no)}
)${orInsert ? `, ${createdRow(shape)}` : ''}
SELECT * FROM updated${orInsert ? '\nUNION ALL\nSELECT * FROM created' : ''}
UNION ALL
-- Locked, and yet not updated: it is as it should be, or a trigger of the table keeps it as it is.
SELECT ${condition ? rowColumns(shape).join(', ') : '*'} FROM found WHERE NOT EXISTS (SELECT FROM updated)`,
    parserOf(shape, true),
  )
}

/**
 * Updates or inserts many rows, with the parameters of `findOrCreateManyStatement`. Each row sets the columns of
 * `update` that it has a value for.
 *
 * Every row is locked, in the order of the batch, before the first update. Otherwise, two batches with several rows in
 * common would deadlock.
 */
export function upsertManyStatement(shape: RowShape, update: UpdateShape, fewRows = false): Statement<BatchRow> {
  const table = tableName(shape.table)
  const sent = (index: number): string => `i.c${index}`
  const same = isTheRow(shape, sent)
  const given = (name: string, otherwise = 'NULL'): string => broughtOr(shape, name, otherwise)
  const condition = conditionOf(shape, update, (name) => `i.c${insertColumns(shape).indexOf(name)}`, given)
  const scoped = shape.table.scope.length > 0
  const createdRows = selectCreated(shape, { otherTexts: SAME_TEXTS })
  const unchanged = `
UNION ALL
SELECT ${['ordinal', ...rowColumns(shape)].map((name) => `f.${name}`).join(', ')}
FROM found AS f
JOIN one AS o ON o.ordinal OPERATOR(pg_catalog.=) f.ordinal
WHERE NOT o.changed`
  // Scopes that differ in the batch can be equal once stored. The second of two such rows is to update the first.
  const rows = preparedRows(shape, fewRows)
  const sql = `WITH ${input(shape, rows === undefined ? undefined : unseen)}, found AS MATERIALIZED (
  SELECT i.ordinal, t.*
  FROM ${scoped ? `(SELECT * FROM ${inputName(shape)} AS i\n    ORDER BY ${inputOrder(shape)})` : inputName(shape)} AS i
  CROSS JOIN LATERAL (
    SELECT ${selectRow(shape, 't', { created: CREATED.no, otherTexts: SAME_TEXTS })},
      ${condition ? `(${condition})` : 'true'} AS changed
    FROM ${table} AS t
    WHERE ${same}
    LIMIT 2
    FOR NO KEY UPDATE
  ) AS t
), one AS (
  SELECT f.ordinal, pg_catalog.bool_and(f.changed) AS changed
  FROM found AS f
  GROUP BY f.ordinal
  HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) 1
), updated AS (
  UPDATE ${table} AS t
  SET ${assignments(update, given)}
  FROM one AS o
  JOIN ${inputName(shape)} AS i ON i.ordinal OPERATOR(pg_catalog.=) o.ordinal
  WHERE o.changed
    AND ${same}${isOfClass(update)}
  RETURNING i.ordinal,
    ${selectRow(shape, 't', { created: CREATED.no, otherTexts: otherTexts(shape, sent) })}
), ${createdMany(shape)}
SELECT * FROM updated
UNION ALL
${scoped ? `SELECT * FROM (\n${createdRows}\n) AS c WHERE c.created` : createdRows}${condition ? unchanged : ''}`
  const parse = parserOf(shape, true, BY_ORDINAL)
  return rows ? named(sql, parse, rows) : { name: '', sql, parse }
}

/**
 * The assignments of an UPDATE.
 *
 * @param value the SQL that a column is set to, or `otherwise` if a row has no value for it
 * @param text the same for a text column, within the digest
 * @param given the same within SQL
 */
export function assignments(
  { update, sql, versions, updateDates, hashes }: UpdateShape,
  value: (name: string, otherwise?: string) => string,
  text: (name: string) => string = (name) => value(name, field('t', name)),
  given: (name: string) => string = (name) => value(name),
): string {
  // TypeORM's save does the same.
  const now = 'CURRENT_TIMESTAMP'
  const taken = update.map((name) => [name, value(name, updateDates.includes(name) ? now : field('t', name))])
  const dates = updateDates.filter((name) => !update.includes(name) && !sql.has(name)).map((name) => [name, now])
  const made = [...sql].map(([name, sqlOf]) => [name, sqlOf(stored, given)])
  const counted = versions.map((name) => [name, `${field('t', name)} ${op('+')} 1`])
  const hashed = hashes.map((table) => {
    const texts = table.text.map(({ name }) => (update.includes(name) ? text(name) : field('t', name)))
    return [table.hash, hashOfValues(table, texts)]
  })
  return [...taken, ...made, ...hashed, ...dates, ...counted]
    .map(([name = '', value]) => `${quote(name)} = ${value}`)
    .join(',\n    ')
}

const stored = (name: string): string => field('t', name)

/** A parameter has one type throughout a statement: that of its column. */
export const givenAsColumn =
  (shape: RowShape, value: (name: string) => string) =>
  (name: string): string =>
    `${written(shape, name, value(name))}${shape.spatial.has(name) ? '' : `::${typeOf(shape.types, name)}`}`

/**
 * The condition for a row to be changed. If undefined, every row is changed.
 *
 * @param sent a value as it is sent
 * @param given the same in the type of its column
 */
export function conditionOf(
  shape: RowShape,
  update: UpdateShape,
  sent: (name: string) => string,
  given: (name: string) => string,
): string | undefined {
  const { sql, where, skipUnchanged } = update
  const made = [...sql].map(([name, sqlOf]) => {
    return isOther(bytewise('t', name), `(${sqlOf(stored, given)})::${typeOf(shape.types, name)}::pg_catalog.text`)
  })
  const changed = [...changes(shape, update, sent), ...made].join('\n      OR ')
  const conditions = [...(skipUnchanged ? [changed] : []), ...(where ? [`(${where(stored, given)}) IS TRUE`] : [])]
  return conditions.length > 1 ? `(${conditions.join(')\n      AND (')})` : conditions[0]
}

/** A parameter has one type throughout a statement: that of its column. */
export const textOf =
  ({ types }: RowShape, value: (name: string) => string) =>
  (name: string): string =>
    `${value(name)}::${typeOf(types, name)}::pg_catalog.text`

export function isOfClass({ only }: Pick<UpdateShape, 'only'>): string {
  if (!only) return ''
  return `\n    AND ${field('t', only.column)}::pg_catalog.text ${op('=')} ANY (ARRAY[${only.values.map(literal).join(', ')}])`
}

/**
 * Removes the rows that hold the text, and returns one row for each. There are several only if the guard was off. Takes
 * only the key's parameters.
 *
 * @param only as for an upsert
 * @param deleted the column of a soft deletion, if soft-deleted rows stay. @default they are removed too
 */
export function deleteStatement(shape: RowShape, only: UpdateShape['only'], deleted?: string): Statement<unknown> {
  const table = deleted === undefined ? shape.table : { ...shape.table, deleted }
  return named(
    `DELETE FROM ${tableName(table)} AS t
WHERE ${isTheRow({ ...shape, table })}${isOfClass({ only })}
RETURNING t.${quote(shape.table.hash)}`,
    (row) => row,
  )
}

/** Values are compared as texts, because `json` has no equality. */
function changes(shape: RowShape, { update }: UpdateShape, value: (name: string) => string): string[] {
  const brought = [...shape.defaults.keys()]
  return update.map((name) => {
    const type = shape.spatial.has(name) ? undefined : shape.types.get(name)
    const sent = value(name)
    // A value that is too long is compared without a cut, so that the update refuses it.
    const isCut = type !== undefined && /^(?:character|bit)/.test(type.declared)
    const exact = type ? asStored(sent, type) : written(shape, name, sent)
    const stored = isCut ? `${sent}::${typeOf(shape.types, name)}` : exact
    const changed = isOther(bytewise('t', name), `(${stored})::pg_catalog.text`)
    const nth = brought.indexOf(name)
    return nth === -1 ? changed : `i.g${nth} AND\n    ${changed}`
  })
}
