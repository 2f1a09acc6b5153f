/**
 * Equality with a text that no row can hold, as SQL means it: false, and NULL where the column is NULL, so that its
 * negation gives the rows that the negation of any other equality gives.
 *
 * @param column as SQL, or as a query builder names it
 */
export const equalsNoText = (column: string): string => `(${column} IS NULL AND NULL)`

/** The same where it is not negated: the planner knows that there is nothing to look for. */
export const NOTHING = '1 = 0'

/**
 * Columns that hold these values, all of them.
 *
 * @param values by the columns, as a query builder names them; null: the column is NULL
 * @param parameter of a query builder, for a value
 */
export function holdsValues(values: ReadonlyMap<string, string | null>, parameter: (value: string) => string): string {
  return [...values]
    .map(([column, value]) => (value === null ? `${column} IS NULL` : `${column} = :${parameter(value)}`))
    .join(' AND ')
}
