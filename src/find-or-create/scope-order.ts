import type { EntityMetadata, ObjectLiteral } from 'typeorm'
import { tableNumbers } from '../typeorm/registry'

/**
 * The order in which numbered rows are written: by the scopes of their numbers, and within a scope in the order given,
 * which is the order of the numbers. Batches need not be sorted by hash: a transaction that has numbered a row of a
 * scope keeps others out of the scope.
 *
 * @returns undefined for an entity whose rows are not numbered
 */
export function scopeOrder(metadata: EntityMetadata): (<Row>(rows: Row[], of: ValuesOf<Row>) => Row[]) | undefined {
  if (!isNumbered(metadata)) return undefined
  const scopes = tableNumbers(metadata).map((one) => one.scope)
  // The transaction that writes the first row keeps all others out, so any order is safe: the order of the input is
  // used.
  if (scopes.some((one) => one.length === 0)) return (rows) => rows
  const scope = scopes.flat()
  return (rows, of) => {
    const keys = new Map(rows.map((row) => [row, scope.map((one) => String(one.getEntityValue(of(row)))).join('\0')]))
    return rows.toSorted((left, right) => compare(keys.get(left), keys.get(right)))
  }
}

export const isNumbered = (metadata: EntityMetadata): boolean => tableNumbers(metadata).length > 0

type ValuesOf<Row> = (row: Row) => ObjectLiteral

const compare = (left = '', right = ''): number => (left < right ? -1 : Number(left > right))

/** Values that are written to a row of an entity. */
interface Written {
  readonly columns: { readonly metadata: EntityMetadata }
  readonly values: ObjectLiteral
}

/**
 * Unique indexes that may refuse rows only because others were numbered meanwhile, so that another attempt may succeed:
 * those of numbers that no row brings.
 */
export function numberIndexes(rows: readonly Written[]): ReadonlySet<string> {
  const all = rows.flatMap(({ columns, values }) =>
    tableNumbers(columns.metadata).map(({ column, table }) => ({
      index: table.index,
      isGiven: (column.getEntityValue(values) ?? null) !== null,
    })),
  )
  const given = new Set(all.filter(({ isGiven }) => isGiven).map(({ index }) => index))
  return new Set(all.map(({ index }) => index).filter((index) => !given.has(index)))
}
