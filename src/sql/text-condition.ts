/**
 * Equality with a text that no row can hold, as SQL means it: false, and NULL where the column is NULL, so that its
 * negation gives the rows that the negation of any other equality gives.
 *
 * @param column as SQL, or as a query builder names it
 */
export const equalsNoText = (column: string): string => `(${column} IS NULL AND NULL)`

/** True for no row; only for conditions that are not negated. The planner knows that there is nothing to look for. */
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
 * is made with a mark; `decided` takes it back when the statement is sent.
 *
 * @param column as SQL, or as a query builder names it
 * @param mark of `markOf`; undefined: it is never decided
 */
export const orNoHash = (column: string, mark: string | undefined): string =>
  `${column} IS NULL${mark === undefined ? '' : ` ${mark}`}`

/**
 * A comment by which a statement tells what it waits for.
 *
 * @param secret of the process: a text may hold anything, and stands in SQL that somebody has composed
 */
export const markOf = (secret: string, number: number): string => `${beginOf(secret)}${number} */`

const beginOf = (secret: string): string => `/* typeorm-unique-text ${secret}: not seen yet, `

export const isUndecided = (sql: string, secret: string): boolean => sql.includes(beginOf(secret))

/** The numbers of the marks that a statement has. */
export const undecided = (sql: string, secret: string): readonly number[] => [
  ...new Set([...sql.matchAll(marks(secret))].map(([, number]) => Number(number))),
]

const marks = (secret: string): RegExp => new RegExp(`/[*]${beginOf(secret).slice(2)}(\\d+) [*]/`, 'gu')

/**
 * The statement when it is known what stands. Postgres folds either constant before it plans.
 *
 * @param ready the marks of tables whose every row has the hash of its text; of the others any hash may be wrong, and the
 *   text alone decides
 */
export const decided = (sql: string, secret: string, ready: ReadonlySet<number>): string =>
  sql.replaceAll(marks(secret), (_, number: string) => (ready.has(Number(number)) ? 'AND FALSE' : 'OR TRUE'))
