import { quote } from '../sql/identifier'
import { alike, field, tableName, type TextTable } from '../sql/text-table'
import { holdsText, keyColumns, named, nameList, parameter, type Statement } from '../sql/find'

/** Properties of the entity that keeps tokens, beside the token itself. */
type TokenColumn = 'id' | 'request' | 'answer' | 'failed' | 'createdAt' | 'answeredAt' | 'expiresAt'

/** Database names of its columns. */
type TokenColumns = Readonly<Record<TokenColumn, string>>

/** How a token is claimed. */
interface Claiming {
  /**
   * Finds the token, or inserts it with number 0. Returns nothing if neither succeeded. Parameters: the token, its
   * hash, the digest of the request.
   */
  readonly claim: Statement<StoredToken | undefined>
  /** Inserts the token without a number, which the guard finds. It has the same parameters. */
  readonly claimInChain: Statement<StoredToken | undefined>
  /**
   * Resets an expired token to unanswered, and returns the transaction that did so. Returns nothing if another
   * transaction has taken or removed the token. Parameters: the id, the digest of the request.
   */
  readonly take: Statement<string | undefined>
}

/** The statements for tokens. */
interface TokenStatements extends Claiming {
  /** Parameters: the token, its hash, the digest of the request. */
  readonly find: Statement<StoredToken>
  /** The same, with one more parameter, in milliseconds. They fail with 55P03 after they have waited that long. */
  readonly within: Claiming
  /**
   * Parameters: the id, the answer as JSON, the time or the interval after which it expires, the transaction that
   * claimed it, and whether the answer is a failure. If the token is removed or this is another transaction, it fails
   * with 22012. Then COMMIT, which is sent with it, does nothing.
   */
  readonly answer: Statement<true>
  /**
   * Removes expired tokens and returns their number. Parameter: the maximum. Tokens that another transaction has locked
   * stay, and also tokens that this transaction may have claimed and not answered yet.
   */
  readonly remove: Statement<number>
  /** Removes the token in any state and returns the number of rows. Parameters: the token, its hash. */
  readonly forget: Statement<number>
}

/** @param nameOf returns the database name of a column */
export function tokenStatements(table: TextTable, nameOf: (property: TokenColumn) => string): TokenStatements {
  const columns: TokenColumns = {
    id: nameOf('id'),
    request: nameOf('request'),
    answer: nameOf('answer'),
    failed: nameOf('failed'),
    createdAt: nameOf('createdAt'),
    answeredAt: nameOf('answeredAt'),
    expiresAt: nameOf('expiresAt'),
  }
  const { id, answer, failed, createdAt, answeredAt, expiresAt } = columns
  return {
    find: named(selectToken(table, columns), parseToken),
    ...claiming(table, columns, false),
    within: claiming(table, columns, true),
    answer: named(
      `WITH answered AS (
  UPDATE ${tableName(table)} SET ${quote(answer)} = $2::pg_catalog.json, ${quote(failed)} = $6::pg_catalog.bool,
    ${quote(answeredAt)} = ${NOW},
    ${quote(expiresAt)} = coalesce($3::pg_catalog.timestamptz, ${NOW} OPERATOR(pg_catalog.+) $4::pg_catalog.interval)
  WHERE ${quote(id)} OPERATOR(pg_catalog.=) $1 AND ${TRANSACTION} OPERATOR(pg_catalog.=) $5::pg_catalog.text
  RETURNING 1
)
SELECT 1 OPERATOR(pg_catalog./) pg_catalog.count(*) FROM answered`,
      () => true,
    ),
    remove: named(
      `WITH expired AS MATERIALIZED (
  SELECT ${quote(id)} AS id FROM ${tableName(table)}
  WHERE ${quote(expiresAt)} OPERATOR(pg_catalog.<=) ${NOW}
    AND (${quote(answeredAt)} IS NOT NULL OR ${quote(createdAt)} OPERATOR(pg_catalog.<) pg_catalog.transaction_timestamp())
  ORDER BY ${quote(expiresAt)}
  LIMIT $1
  FOR UPDATE SKIP LOCKED
), removed AS (
  DELETE FROM ${tableName(table)} AS t USING expired WHERE ${field('t', id)} OPERATOR(pg_catalog.=) expired.id
  RETURNING 1
)
SELECT pg_catalog.count(*)::pg_catalog.text FROM removed`,
      ([count]) => Number(count),
    ),
    forget: named(
      `WITH forgotten AS (
  DELETE FROM ${tableName(table)} AS t
  WHERE ${holdsText({ table }, parameter)}
  RETURNING 1
)
SELECT pg_catalog.count(*)::pg_catalog.text FROM forgotten`,
      ([count]) => Number(count),
    ),
  }
}

/** A token in the table. */
export interface StoredToken {
  /** Whether this statement inserted it. */
  readonly isClaimed: boolean
  readonly id: string
  /** Whether its request is the request of this call. */
  readonly isSame: boolean
  /** The transaction that claimed it and alone may answer it. Undefined if this statement did not claim it. */
  readonly transaction: string | undefined
  /** Whether it has an answer. */
  readonly isAnswered: boolean
  /** The answer as JSON. Undefined if `work` returned nothing. */
  readonly answer: string | undefined
  /** Whether the answer is a failure that was kept. */
  readonly isFailed: boolean
  /** Whether the token has expired. An unanswered token counts too: its work has ended its own transaction. */
  readonly isExpired: boolean
}

/** The server's clock, because the clocks of several processes differ. */
const NOW = 'pg_catalog.statement_timestamp()'

/** Returns NULL for false, because the user's own parsers for booleans never receive NULL. */
const flag = (condition: string): string => `CASE WHEN ${condition} THEN 1 END`

/** The statement of a look-up. */
function selectToken(table: TextTable, columns: TokenColumns): string {
  const of = (name: TokenColumn): string => field('t', columns[name])
  return `SELECT NULL::pg_catalog.int4 AS claimed, ${of('id')}::pg_catalog.text AS id,
    ${flag(alike(of('request'), '$3::pg_catalog.text'))} AS same,
    ${flag(`${of('answeredAt')} IS NOT NULL`)} AS answered, ${of('answer')}::pg_catalog.text AS answer,
    ${flag(of('failed'))} AS failed, ${flag(`${of('expiresAt')} OPERATOR(pg_catalog.<=) ${NOW}`)} AS expired,
    NULL::pg_catalog.text AS transaction
  FROM ${tableName(table)} AS t
  WHERE ${holdsText({ table }, parameter)}`
}

const parseToken: Statement<StoredToken>['parse'] = ([
  claimed,
  id,
  same,
  answered,
  answer,
  failed,
  expired,
  transaction,
]) => ({
  isClaimed: claimed !== null,
  id: String(id),
  isSame: same !== null,
  isAnswered: answered !== null,
  answer: typeof answer === 'string' ? answer : undefined,
  isFailed: failed !== null,
  isExpired: expired !== null,
  transaction: typeof transaction === 'string' ? transaction : undefined,
})

/** The id of the current transaction, which identifies the claim of an answer. */
const TRANSACTION = 'pg_catalog.pg_current_xact_id()::pg_catalog.text'

/**
 * @param within whether their last parameter limits each wait, in milliseconds. `lock_timeout` is set before the write,
 * and the caller's value is restored after it. Each part reads the one before it, so that they run in this order: read
 * the caller's value, set ours, write, restore the caller's value. An error undoes our value with everything else.
 */
function claiming(table: TextTable, columns: TokenColumns, within: boolean): Claiming {
  const statement = (limit: string, parts: string, rows: string): string =>
    within
      ? `WITH own AS MATERIALIZED (
  SELECT pg_catalog.current_setting('lock_timeout') AS timeout
), limited AS MATERIALIZED (
  SELECT timeout, pg_catalog.set_config('lock_timeout', ${limit}::pg_catalog.text, true) AS ours FROM own
), ${parts}
SELECT rows.*, pg_catalog.set_config('lock_timeout', limited.timeout, true) AS own
FROM limited LEFT JOIN (${rows}) AS rows ON true`
      : `WITH ${parts}\n${rows}`
  // Nothing is written before the limit is set.
  const and = within ? ' AND EXISTS (SELECT FROM limited)' : ''
  const number = within ? '(SELECT NULL::pg_catalog.int4 FROM limited)' : 'NULL'
  const { id, request, answer, createdAt, answeredAt, expiresAt } = columns
  const inserted = [...keyColumns(table).slice(0, 2), request, expiresAt]
  const claimed = `SELECT 1 AS claimed, id, NULL AS same, NULL AS answered, NULL AS answer, NULL AS failed, NULL AS expired,
  ${TRANSACTION} AS transaction FROM claimed`
  const parts = {
    claim: `found AS (
  ${selectToken(table, columns)}
), claimed AS (
  INSERT INTO ${tableName(table)} (${nameList(inserted)})
  SELECT $1, $2, $3, ${NOW}
  WHERE NOT EXISTS (SELECT FROM found)${and}
  ON CONFLICT DO NOTHING
  RETURNING ${quote(id)}::pg_catalog.text AS id
)`,
    claimInChain: `claimed AS (
  INSERT INTO ${tableName(table)} (${nameList([...inserted, table.number])})
  VALUES ($1, $2, $3, ${NOW}, ${number})
  ON CONFLICT DO NOTHING
  RETURNING ${quote(id)}::pg_catalog.text AS id
)`,
    take: `taken AS (
  UPDATE ${tableName(table)} SET ${quote(request)} = $2::pg_catalog.text, ${quote(createdAt)} = ${NOW},
    ${quote(answer)} = NULL, ${quote(answeredAt)} = NULL, ${quote(expiresAt)} = ${NOW}
  WHERE ${quote(id)} OPERATOR(pg_catalog.=) $1 AND ${quote(expiresAt)} OPERATOR(pg_catalog.<=) ${NOW}${and}
  RETURNING 1
)`,
  }
  // A statement that restores the caller's `lock_timeout` always returns a row.
  const parseClaimed: Statement<StoredToken | undefined>['parse'] = (row, values) =>
    row[1] === null ? undefined : parseToken(row, values)
  return {
    claim: named(statement('$4', parts.claim, `SELECT * FROM found\nUNION ALL\n${claimed}`), parseClaimed),
    claimInChain: named(statement('$4', parts.claimInChain, claimed), parseClaimed),
    take: named(statement('$3', parts.take, `SELECT ${TRANSACTION} AS transaction FROM taken`), ([transaction]) =>
      typeof transaction === 'string' ? transaction : undefined,
    ),
  }
}
