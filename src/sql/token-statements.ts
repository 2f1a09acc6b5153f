import { quote } from './identifier'
import { field, type TextTable, tableName } from './text-table'
import { holdsText, named, parameter, type Statement } from './statements'

/** The table of tokens, by its database names. */
export interface TokenTable {
  readonly table: TextTable
  readonly columns: Readonly<Record<TokenColumn, string>>
}

export type TokenColumn = 'id' | 'request' | 'answer' | 'createdAt' | 'answeredAt' | 'expiresAt'

/** A token that stands. */
export interface StoredToken {
  readonly id: string
  /** Its request is the one that is asked with. */
  readonly isSame: boolean
  /** It has an answer; false only inside the transaction that is to give it. */
  readonly isAnswered: boolean
  /** As JSON; undefined where `work` gave nothing. */
  readonly answer: string | undefined
  readonly isExpired: boolean
}

/** By the server's clock: those of several processes differ. */
const NOW = 'pg_catalog.statement_timestamp()'

/** NULL for false: the one value that no parser of the user's own for booleans ever sees. */
const flag = (condition: string): string => `CASE WHEN ${condition} THEN 1 END`

/** Parameters: the token, its hash, the digest of the request. */
export function findTokenStatement({ table, columns }: TokenTable): Statement<StoredToken> {
  const shape = { table, others: [], select: [] }
  const of = (name: TokenColumn): string => field('t', columns[name])
  return named(
    `SELECT ${of('id')}::pg_catalog.text,
  ${flag(`${of('request')} IS NOT DISTINCT FROM $3::pg_catalog.text`)},
  ${flag(`${of('answeredAt')} IS NOT NULL`)},
  ${of('answer')}::pg_catalog.text,
  ${flag(`${of('expiresAt')} <= ${NOW}`)}
FROM ${tableName(table)} AS t
WHERE ${holdsText(shape, parameter)}`,
    ([id, same, answered, answer, expired]) => ({
      id: String(id),
      isSame: same !== null,
      isAnswered: answered !== null,
      answer: typeof answer === 'string' ? answer : undefined,
      isExpired: expired !== null,
    }),
  )
}

const some = (): true => true

/** Makes an expired token one that is not answered; gives nothing where others did, or have removed it. */
export function takeTokenStatement({ table, columns }: TokenTable): Statement<true> {
  const { id, request, answer, createdAt, answeredAt, expiresAt } = columns
  return named(
    `WITH taken AS (
  UPDATE ${tableName(table)} SET ${quote(request)} = $2::pg_catalog.text, ${quote(createdAt)} = ${NOW},
    ${[answer, answeredAt, expiresAt].map((name) => `${quote(name)} = NULL`).join(', ')}
  WHERE ${quote(id)} = $1 AND ${quote(expiresAt)} <= ${NOW}
  RETURNING 1
)
SELECT * FROM taken`,
    some,
  )
}

/**
 * Parameters: id, answer as JSON, and when it expires: at this time, or after this interval. Fails with 22012 where the
 * token is gone, so that COMMIT, which goes with it, does nothing.
 */
export function answerTokenStatement({ table, columns }: TokenTable): Statement<true> {
  const { id, answer, answeredAt, expiresAt } = columns
  return named(
    `WITH answered AS (
  UPDATE ${tableName(table)} SET ${quote(answer)} = $2::pg_catalog.json, ${quote(answeredAt)} = ${NOW},
    ${quote(expiresAt)} = coalesce($3::pg_catalog.timestamptz, ${NOW} + $4::pg_catalog.interval)
  WHERE ${quote(id)} = $1
  RETURNING 1
)
SELECT 1 / pg_catalog.count(*) FROM answered`,
    some,
  )
}

/** Parameter: how many at most. Leaves those that another transaction has locked. Gives how many. */
export function removeTokensStatement({ table, columns }: TokenTable): Statement<number> {
  const { id, expiresAt } = columns
  return named(
    `WITH expired AS MATERIALIZED (
  SELECT ${quote(id)} AS id FROM ${tableName(table)}
  WHERE ${quote(expiresAt)} <= ${NOW}
  ORDER BY ${quote(expiresAt)}
  LIMIT $1
  FOR UPDATE SKIP LOCKED
), removed AS (
  DELETE FROM ${tableName(table)} AS t USING expired WHERE ${field('t', id)} = expired.id
  RETURNING 1
)
SELECT pg_catalog.count(*)::pg_catalog.text FROM removed`,
    ([count]) => Number(count),
  )
}
