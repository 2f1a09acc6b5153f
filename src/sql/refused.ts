import { asText, nameList, parameter } from './find'
import {
  alike,
  EQUALS,
  field,
  type HolderColumns,
  isFreed,
  isLive,
  isSoftlyDeleted,
  joinOf,
  sameChain,
  sameText,
  tableName,
  type TextTable,
} from './text-table'

/** The position in the chain of a refused text. */
interface RefusedPlace {
  /** The values of the scope, as Postgres prints them. */
  readonly scope: readonly string[]
  readonly hash: string
  readonly hashNumber: number
}

/**
 * Finds the row that holds a text and the row at its place in the chain. The two differ only if another text with the
 * same hash was faster. Returns the primary key as `k0`, `k1`, …, `deleted`, and `same`: NULL for another text.
 *
 * @param texts the values of its columns. Undefined for the text of a row that was to be restored, which no statement
 * contains. It is assumed to be the text of the row at its place if every soft-deleted row with this hash has that text
 */
export function holderQuery(
  table: TextTable,
  { primary, softDelete }: HolderColumns,
  { scope, hash, hashNumber }: RefusedPlace,
  texts: readonly (string | null)[] | undefined,
): { readonly sql: string; readonly values: readonly unknown[] } {
  const at = (index: number): string => parameter(scope.length + index)
  const isAtPlace = `${field('t', table.number)} ${EQUALS} ${at(1)}`
  const isSame = table.text
    .map(({ name }, index) => alike(asText(name), `${at(2 + index)}::pg_catalog.text`))
    .join(' AND ')
  const given = [`CASE WHEN ${isSame} THEN 1 END AS same`, `${isSoftlyDeleted(softDelete)} AS deleted`]
  const ofDeleted = `(
  SELECT CASE WHEN pg_catalog.bool_and(${sameText(table, 'd', 't').join('\n    AND ')}) THEN 1 END
  FROM ${tableName(table)} AS d
  WHERE ${[...sameChain(table, 'd', 't'), ...isFreed(table, 'd')].join(' AND ')}
) AS same`
  const where = [
    ...table.scope.map((name, index) => `${field('t', name)} ${EQUALS} ${parameter(index)}`),
    `${field('t', table.hash)} ${EQUALS} ${at(0)}`,
    texts ? `(${isSame} OR ${isAtPlace})` : isAtPlace,
    ...isLive(table, 't'),
  ]
  const keys = primary.map((name, index) => `${field('t', name)} AS k${index}`)
  return {
    sql: `SELECT ${[...keys, ...(texts ? given : [ofDeleted])].join(', ')}
FROM ${tableName(table)} AS t
WHERE ${where.join('\n  AND ')}`,
    values: [...scope, hash, hashNumber, ...(texts ?? [])],
  }
}

/** The DETAIL of a unique violation in any language: `Key (columns)=(values)`, followed by prose. */
const DETAIL = /\((?<columns>.*?)\)=\((?:(?<scope>.*), )?(?<hash>[^,]+), (?<number>\d+)\)[^)]*$/su

/** Returns the columns and values of a unique violation of our index, or undefined for another or an empty DETAIL. */
export function refusedPlace(table: TextTable, detail: string | undefined): RefusedPlace | undefined {
  const { columns, scope, hash, number } = DETAIL.exec(detail ?? '')?.groups ?? {}
  const wanted = [...table.scope, table.hash, table.number]
  // Postgres quotes a name only if necessary.
  const isOurs = columns?.replaceAll('"', '') === nameList(wanted).replaceAll('"', '')
  if (hash === undefined || !isOurs) return undefined
  // A value may contain the separator.
  const values = scope === undefined ? [] : table.scope.length === 1 ? [scope] : scope.split(', ')
  return values.length === table.scope.length ? { scope: values, hash, hashNumber: Number(number) } : undefined
}

/** The table that a partition belongs to, as `schema` and `table`. */
export const partitionRoot = (): string => `SELECT n.nspname AS schema, r.relname AS table
FROM pg_catalog.pg_class AS r
${joinOf('pg_namespace', 'n', 'r.relnamespace')}
WHERE r.oid ${EQUALS} pg_catalog.pg_partition_root(pg_catalog.to_regclass(pg_catalog.format('%I.%I', $1::pg_catalog.text, $2::pg_catalog.text)))`
