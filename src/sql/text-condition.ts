/**
 * Equality with a text that no row can hold, as SQL means it: false, and NULL where the column is NULL, so that its
 * negation gives the rows that the negation of any other equality gives.
 *
 * @param column as SQL, or as a query builder names it
 */
export const equalsNoText = (column: string): string => `(${column} IS NULL AND NULL)`
