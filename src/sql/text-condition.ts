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

/**
 * Beside an equality with a hash: right for rows that have none yet, too. While nobody has seen the table, a condition
 * is made with it; `decided` takes it back when the statement is sent.
 *
 * @param column as SQL, or as a query builder names it
 * @param place of the declaration among those of its DataSource; undefined: it is never decided
 */
export const orNoHash = (column: string, place: number | undefined): string =>
  `${column} IS NULL${place === undefined ? '' : ` ${MARK} ${place} */`}`

const MARK = '/* typeorm-unique-text: not seen yet'

const MARKS = /\/\* typeorm-unique-text: not seen yet (\d+) \*\//gu

export const isUndecided = (sql: string): boolean => sql.includes(MARK)

/** The declarations that a statement waits for, by their places. */
export const undecided = (sql: string): readonly number[] => [
  ...new Set([...sql.matchAll(MARKS)].map(([, place]) => Number(place))),
]

/**
 * The statement when it is known what stands.
 *
 * @param isReady by the place: true, every row has the hash of its text; false, any hash may be wrong, and the text alone
 *   decides; undefined, nobody knows, and a row has its hash or none. Postgres folds either constant before it plans.
 */
export const decided = (sql: string, isReady: ReadonlyMap<number, boolean | undefined>): string =>
  sql.replaceAll(MARKS, (mark, place: string) => {
    const ready = isReady.get(Number(place))
    return ready === undefined ? mark : ready ? 'AND FALSE' : 'OR TRUE'
  })
