import { dollarQuote, list, literal, quote, unnest } from './identifier'
import { raiseIfShards } from './spread'
import { SQLSTATE } from './sqlstate'
import {
  bytewise,
  equal,
  EQUALS,
  field,
  isFreed,
  isLive,
  op,
  rowHash,
  tableName,
  type TextRows,
  type TextTable,
} from './text-table'

/** The number of rows that an error names. When these are corrected, the next error names others. */
const ROWS_NAMED = 10

/** The number of all rows, which the same scan counts before the LIMIT. */
const TOTAL = 'pg_catalog.count(*) OVER () AS total'

/** Appends the total to the named rows if there are more. NULL stays NULL. */
const ofAll = (rows: string): string => `${op('||')} CASE
      WHEN pg_catalog.max(${rows}.total) ${op('>')} ${ROWS_NAMED}
      THEN pg_catalog.format(' (${ROWS_NAMED} of %s are shown)', pg_catalog.max(${rows}.total)) ELSE '' END`

/**
 * A table with a text whose rows are to be rebuilt, and the columns of its primary key, by which an error names rows.
 * The migration's transaction has already locked the table, because it has dropped the guard or added a column.
 */
interface RebuiltTable {
  readonly rows: TextRows
  readonly primary: readonly string[]
}

/** A table without a text whose rows are to be rebuilt, and the columns of its primary key. */
interface KeyedTable {
  readonly rows: Pick<TextRows, 'schema' | 'table'>
  readonly primary: readonly string[]
}

/** A table whose texts JavaScript is to normalize. */
interface NormalizedTable extends KeyedTable {
  /** The name of the entity's class. */
  readonly entity: string
}

/**
 * Returns one statement that gives every row the declared hash, number and flag, and changes only rows that differ.
 * Texts of equal hash are numbered from 0 in each scope, in the order of their former numbers. The statement refuses
 * rows that hold the same text, a user's trigger that undoes its work or writes such rows, and a snapshot that may be
 * older than the lock. The guard's triggers, the unique index and the check must not exist.
 */
export function rebuildRows(on: RebuiltTable): string {
  const { rows } = on
  const undone = raise(rows, {
    sqlstate: SQLSTATE.wrongState,
    message: `a trigger on table ${quote(rows.table)} undid the numbering of ${quote(rows.name)}. Disable it while this runs.`,
    detail: ['Rows: ', `due ${op('-')} done`],
  })
  return block(`
DECLARE
  plain boolean := relkind ${op('<>')} 'p' FROM pg_catalog.pg_class WHERE ${equal('oid', ownTable(rows))};
  duplicates pg_catalog.text;
  due bigint;
  done bigint;
  security pg_catalog.text := pg_catalog.current_setting('row_security');
BEGIN
  ${raiseIfShards(rows)}
  -- Otherwise row security could hide rows, and they would silently stay as they are. Off, it raises an error instead.
  PERFORM pg_catalog.set_config('row_security', 'off', true);
  -- The lock does not help a snapshot that is older: it hides what was written before the lock was there.
  IF pg_catalog.current_setting('transaction_isolation') ${op('~')} '^(repeatable|serializable)' THEN
    ${raise(rows, {
      sqlstate: SQLSTATE.wrongState,
      message:
        `rows of table ${quote(rows.table)} can be numbered at READ COMMITTED only. ` +
        `Set default_transaction_isolation for the connection that runs migrations.`,
      detail: ['The transaction is ', "pg_catalog.current_setting('transaction_isolation')"],
    })}
  END IF;
  -- Once more after triggers have run, for nothing else proves what they wrote.
  FOR round IN 1..2 LOOP
    ${raiseDuplicates(on)}
    ${renumber(on)}
    IF round ${EQUALS} 2 THEN
      done := 0;
    END IF;
    IF done ${op('<>')} due THEN
      ${undone}
    END IF;
    EXIT WHEN due ${EQUALS} 0;
  END LOOP;
  PERFORM pg_catalog.set_config('row_security', security, true);
END
`)
}

/** Refuses rows that hold the same text before anything is changed. `rebuildRows` would refuse them later. */
export function raiseIfDuplicates(on: RebuiltTable): string {
  return block(`
DECLARE
  plain boolean := relkind ${op('<>')} 'p' FROM pg_catalog.pg_class WHERE ${equal('oid', ownTable(on.rows))};
  duplicates pg_catalog.text;
BEGIN
  ${raiseDuplicates(on)}
END
`)
}

function raiseDuplicates(on: RebuiltTable): string {
  const { rows, primary } = on
  return `${findDuplicates(on)}
  IF duplicates IS NOT NULL THEN
    ${raise(rows, {
      sqlstate: SQLSTATE.uniqueViolation,
      message:
        `rows of table ${quote(rows.table)} hold the same text for ${quote(rows.name)}. ` +
        `Of each group delete or change all but one, then run this again.`,
      detail: [primaryLabel(primary), 'duplicates'],
    })}
  END IF;`
}

/** Compares texts only if their hashes are equal, which hardly ever happens. */
function findDuplicates({ rows, primary }: RebuiltTable): string {
  const keys = primaryFields(primary)
  const scope = rows.scope.map((name) => field('t', name))
  const chain = [...scope, 'h.hash']
  const named = [...scope.map((name, position) => `${name} AS scope_${position}`), 'h.hash']
  const same = scope.map((name, position) => equal(`c.scope_${position}`, name))
  const text = rows.text.map(({ name }) => bytewise('t', name))
  return `SELECT pg_catalog.string_agg(d.keys, '; ') ${ofAll('d')} INTO duplicates
    FROM (
      SELECT pg_catalog.string_agg(${keyText(keys)}, ', ' ORDER BY ${keys.join(', ')}) AS keys, ${TOTAL}
        FROM ${withHash(rows)}
        JOIN (
          SELECT ${named.join(', ')}
            FROM ${withHash(rows)}
           WHERE ${heldRows(rows)}
           GROUP BY ${chain.join(', ')}
          HAVING pg_catalog.count(*) ${op('>')} 1
        ) AS c
          ON ${[...same, equal('c.hash', 'h.hash')].join('\n         AND ')}
       WHERE ${heldRows(rows)}
       GROUP BY ${[...chain, ...text].join(',\n                ')}
      HAVING pg_catalog.count(*) ${op('>')} 1
       ORDER BY 1
       LIMIT ${ROWS_NAMED}
    ) AS d;`
}

/** Counts the rows to change and the rows that were changed: a BEFORE trigger may change or drop any of them. */
function renumber({ rows, primary }: RebuiltTable): string {
  // A chain is in one table: a child by INHERITS has no index of ours, and must leave no gap in the table's numbers.
  const table = 'CASE WHEN plain THEN t.tableoid END'
  const chain = [table, ...rows.scope.map((name) => field('t', name)), 'h.hash', ...isLive(rows, 't')].join(', ')
  const outside = ['h.hash IS NULL', ...isFreed(rows, 't')].join(' OR ')
  const inside = ['h.hash IS NOT NULL', ...isLive(rows, 't')].join(' AND ')
  const [hash, number, chained] = [rows.hash, rows.number, rows.chained].map(quote)
  return `WITH numbered AS (
    SELECT t.tableoid AS part,
           t.ctid AS spot,
           t.${hash} AS old_hash,
           t.${number} AS old_number,
           t.${chained} AS old_chained,
           h.hash,
           CASE WHEN ${outside} THEN 0
                ELSE pg_catalog.row_number() OVER (chain ORDER BY t.${number}, ${primaryFields(primary).join(', ')}) ${op('-')} 1
            END AS number,
           ${inside} AND pg_catalog.count(*) OVER chain ${op('>')} 1 AS several
      FROM ${withHash(rows)}
    WINDOW chain AS (PARTITION BY ${chain})
  ), wanted AS (
    SELECT n.part, n.spot, n.hash, n.number, n.several AND ${equal('n.number', '0')} AS chained
      FROM numbered AS n
     WHERE (${sameHash('n.old_hash', 'n.hash')}) IS NOT TRUE
        OR (${equal('n.old_number', 'n.number')}) IS NOT TRUE
        OR (${equal('n.old_chained', `(n.several AND ${equal('n.number', '0')})`)}) IS NOT TRUE
  ), made AS (
    UPDATE ${tableName(rows)} AS t
       SET ${hash} = w.hash, ${number} = w.number, ${chained} = w.chained
      FROM wanted AS w
     WHERE ${equal('t.tableoid', 'w.part')}
       AND ${equal('t.ctid', 'w.spot')}
    RETURNING (${sameHash(`t.${hash}`, 'w.hash')})
          AND ${equal(`t.${number}`, 'w.number')}
          AND ${equal(`t.${chained}`, 'w.chained')} AS kept
  )
  SELECT (SELECT pg_catalog.count(*) FROM wanted),
         (SELECT pg_catalog.count(*) FROM made AS m WHERE m.kept)
    INTO due, done;`
}

/** Compares hashes. A row without a text has no hash. */
const sameHash = (left: string, right: string): string =>
  `${equal(left, right)} OR ${left} IS NULL AND ${right} IS NULL`

const ownTable = (rows: TextRows): string => `${literal(tableName(rows))}::pg_catalog.regclass`

/**
 * The condition for rows that hold their texts. It excludes rows of tables that inherit from the table, which may hold
 * a text again. It includes the whole tree of a partitioned table.
 */
const heldRows = (rows: TextRows): string =>
  [`(${equal('t.tableoid', ownTable(rows))} OR NOT plain)`, ...isLive(rows, 't')].join(' AND ')

/** Selects every row as `t`, with the hash that it should have as `h.hash`, which is NULL for a row without a text. */
const withHash = (rows: TextRows): string =>
  `${tableName(rows)} AS t\n       CROSS JOIN LATERAL (SELECT ${rowHash(rows, 't')} AS hash) AS h`

/** Refuses rows that hold NULL in a column that is about to be NOT NULL, and names them. */
export function raiseIfNulls({ rows, primary }: RebuiltTable, column: string): string {
  return raiseIfRows(
    { rows, primary },
    {
      sqlstate: SQLSTATE.notNullViolation,
      where: `t.${quote(column)} IS NULL`,
      message:
        `rows of table ${quote(rows.table)} hold NULL in ${quote(column)}. ` +
        `Give them a value or delete them, then run this again.`,
    },
  )
}

/** A column whose texts were normalized in another way than the one that is declared now. */
export interface Renormalized {
  readonly column: string
  /** `name@version`. */
  readonly from: string
  readonly to: string
}

/** The text by which a statement marks work that needs JavaScript. */
export const NORMALIZE_BY_HAND = 'SQL cannot normalize them'

/** What needs a transaction, as a clause, and what to do without one. */
interface Transacted {
  readonly work: string
  readonly hint: string
}

const NORMALIZES: Transacted = {
  work: 'normalizes rows',
  hint: 'Let this migration have its transaction, or run typeorm-unique-text adopt, which normalizes the rows.',
}

/** Citus forwards single commands only: it refuses the one string in which they would need no transaction. */
export const FORWARDED: Transacted = {
  work: 'changes a table of Citus',
  hint: 'Let this migration have its transaction.',
}

/** A setting that lasts as long as a transaction. */
const IN_TRANSACTION = 'unique_text.in_transaction'

/**
 * Refuses to run outside of a transaction, before the first of several statements drops a guard: a failure would leave
 * the table without it. It needs two statements, because the setting is lost if each statement commits by itself.
 */
export const requireTransaction = ({ work, hint }: Transacted = NORMALIZES): string[] => [
  `SELECT pg_catalog.set_config(${literal(IN_TRANSACTION)}, 'on', true)`,
  block(`
BEGIN
  IF coalesce(pg_catalog.current_setting(${literal(IN_TRANSACTION)}, true), '') ${op('<>')} 'on' THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.noTransaction}',
      MESSAGE = 'a migration that ${work} takes the guard away meanwhile, and must run in a transaction',
      HINT = '${hint}';
  END IF;
END
`),
]

/**
 * Refuses rows whose texts another normalizer made, because SQL cannot normalize as JavaScript does. find-or-create
 * does not find a text that is not normalized, and stores it again. The SQL begins with its replacement.
 */
export function raiseIfUnnormalized(on: NormalizedTable, { column, from, to }: Renormalized): string {
  const entity = /^\w+$/.test(on.entity) ? on.entity : JSON.stringify(on.entity)
  const call = `await normalizeTexts(queryRunner, ${entity})`
  const refusal = raiseIfRows(on, {
    sqlstate: SQLSTATE.wrongState,
    where: `t.${quote(column)} IS NOT NULL`,
    message:
      `column ${quote(column)} of table ${quote(on.rows.table)} has texts normalized by ${from}, not yet by ${to}. ` +
      `${NORMALIZE_BY_HAND}: in the migration, replace this statement by ${call} (docs/changing-a-declaration.md).`,
  })
  return `-- Replace this statement by:  ${call}  of the package typeorm-unique-text\n${refusal}`
}

/** A table with texts, and with the columns of its primary key as they are stored. */
interface StoredTable extends Pick<TextRows, 'schema' | 'table'> {
  readonly primary: readonly StoredColumn[]
  readonly texts: readonly string[]
}

/** A column of a table in the database, with its type as SQL. */
export interface StoredColumn {
  readonly name: string
  readonly type: string
}

/** Selects the columns that a table has in the database. A missing table has none. */
export const storedColumns = (table: Pick<TextRows, 'schema' | 'table'>): string =>
  `SELECT a.attname AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type
FROM pg_catalog.pg_attribute AS a
WHERE a.attrelid ${EQUALS} pg_catalog.to_regclass(${literal(tableName(table))})
  AND a.attnum ${op('>')} 0 AND NOT a.attisdropped`

const CURSOR = 'unique_text_rows'

/**
 * Returns the statements that read all rows in batches. Each row has its table and its primary key as texts, and its
 * texts. The cursor outlasts its transaction, because a migration may have none.
 */
export function readStoredTexts(
  { primary, texts, ...table }: StoredTable,
  rows: number,
): { readonly open: string; readonly next: string; readonly close: string } {
  const keys = ['t.tableoid', ...primary.map(({ name }) => field('t', name))].map((one) => `${one}::pg_catalog.text`)
  const values = texts.map((name) => `${field('t', name)}::pg_catalog.text`)
  return {
    open: `DECLARE ${CURSOR} CURSOR WITH HOLD FOR
SELECT ARRAY[${list(keys, 2)}] AS keys,
  ARRAY[${list(values, 2)}]::pg_catalog.text[] AS texts
FROM ${tableName(table)} AS t`,
    next: `FETCH ${rows} FROM ${CURSOR}`,
    close: `CLOSE ${CURSOR}`,
  }
}

/** Writes the texts of some rows. The parameters are arrays of what `readStoredTexts` reads, one for each column. */
export function writeStoredTexts({ primary, texts, ...table }: StoredTable): string {
  const columns = [...primary.map((_, index) => `key_${index}`), ...texts.map((_, index) => `text_${index}`)]
  const arrays = ['part', ...columns].map((_, index) => `$${index + 1}::pg_catalog.text[]`)
  const same = primary.map(({ name, type }, index) => equal(field('t', name), `n.key_${index}::${type}`))
  return `UPDATE ${tableName(table)} AS t
SET ${list(
    texts.map((name, index) => `${quote(name)} = n.text_${index}`),
    2,
  )}
FROM ${unnest(arrays)} AS n (${['part', ...columns].join(', ')})
WHERE ${[equal('t.tableoid', 'n.part::pg_catalog.oid'), ...same].join('\n  AND ')}`
}

interface Refusal {
  readonly sqlstate: string
  readonly where: string
  readonly message: string
}

function raiseIfRows({ rows, primary }: KeyedTable, { sqlstate, where, message }: Refusal): string {
  const keys = primaryFields(primary)
  return block(`
DECLARE
  named pg_catalog.text;
BEGIN
  SELECT pg_catalog.string_agg(r.key, ', ') ${ofAll('r')} INTO named
    FROM (
      SELECT ${keyText(keys)} AS key, ${TOTAL}
        FROM ${tableName(rows)} AS t
       WHERE ${where}
       ORDER BY ${keys.join(', ')}
       LIMIT ${ROWS_NAMED}
    ) AS r;
  IF named IS NOT NULL THEN
    ${raise(rows, { sqlstate, message, detail: [primaryLabel(primary), 'named'] })}
  END IF;
END
`)
}

/** Refuses to revert a change if the former state is unknown. */
export function raiseUnknownDigest(rows: Pick<TextRows, 'table' | 'name'>, digest: string): string {
  const message =
    `the rows of table ${quote(rows.table)} had hashes for ${quote(rows.name)} by the digest "${digest}", ` +
    `which was not known when this migration was generated: it cannot be undone.`
  return block(`
BEGIN
  RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}', MESSAGE = ${literal(message)};
END
`)
}

const block = (body: string): string => `DO ${dollarQuote(body)}`

const primaryFields = (primary: readonly string[]): string[] => primary.map((name) => field('t', name))

const keyText = (keys: readonly string[]): string =>
  keys.length === 1 ? `${keys[0]}::pg_catalog.text` : `ROW(${keys.join(', ')})::pg_catalog.text`

const primaryLabel = (primary: readonly string[]): string => `The rows by primary key (${primary.join(', ')}): `

interface Raised {
  readonly sqlstate: string
  readonly message: string
  /** Words, and an SQL expression. Values of rows are in no message. */
  readonly detail: readonly [words: string, found: string]
}

function raise(
  rows: Pick<TextRows, 'table'> & Partial<TextRows>,
  { sqlstate, message, detail: [words, found] }: Raised,
): string {
  const constraint = sqlstate === SQLSTATE.uniqueViolation ? `\n      CONSTRAINT = ${literal(rows.index ?? '')},` : ''
  return (
    `RAISE EXCEPTION USING ERRCODE = '${sqlstate}', TABLE = ${literal(rows.table)},${constraint}\n` +
    `      MESSAGE = ${literal(message)},\n` +
    `      DETAIL = pg_catalog.concat(${literal(words)}, ${found});`
  )
}

/** The longest that a migration may exclude others outside a maintenance window. */
const LOCK_SECONDS = 5

/** What a migration does in a second on a busy server with two cores. */
const ROWS_A_SECOND = 20_000
const BYTES_A_SECOND = 25_000_000
const MOST_ROWS = LOCK_SECONDS * ROWS_A_SECOND

/** How long a migration waits for a lock if its role has no limit. Later sessions wait behind it. */
const LOCK_TIMEOUT = '5s'

/** The setting that lets a migration work on a large table. */
const MAINTENANCE = 'unique_text.maintenance'

/** The work of a migration on every row of a table while nobody else can use it. */
export interface LargeWork {
  /** The values that the rows get. */
  readonly gives: 'hashes' | 'names' | 'numbers'
  /** The alternative while others use the table, as a sentence. Only texts have one. */
  readonly online?: string
}

/** @param what the entity and the property that are adopted */
export const adoptInstead = (what: { readonly entity: string; readonly property: string }): string => {
  const command = `npx typeorm-unique-text adopt -d ormconfig.ts --entity ${what.entity}.${what.property}`
  return (
    `Run ${literal(`${command} --fake NAME`)} with the name of this migration: it does the same while others use the ` +
    `table, and marks this migration alone as run. Move first what else this migration does into another one.`
  )
}

/**
 * Refuses a large table at the start of a migration that works on every row, because that locks everybody out. It also
 * makes the server end the migration's statement if the client is killed, so that no lock remains.
 */
export function raiseIfLarge(rows: Pick<TextTable, 'schema' | 'table'>, { gives, online }: LargeWork): string {
  const message =
    `table ${quote(rows.table)} is so large that this migration would lock everybody out for more than ${LOCK_SECONDS} ` +
    `seconds while it gives the rows their ${gives}. ${online === undefined ? '' : `${online} `}In a maintenance window set unique_text.maintenance to on (extra: { options: '-c ` +
    `unique_text.maintenance=on' } of the DataSource), and run it as it is.`
  const relation = `${literal(tableName(rows))}::pg_catalog.regclass`
  return `DO ${dollarQuote(`
BEGIN
  BEGIN
    PERFORM pg_catalog.set_config('client_connection_check_interval', '2s', true);
  EXCEPTION WHEN OTHERS THEN
    -- Not every platform can tell.
    NULL;
  END;
  IF pg_catalog.current_setting('lock_timeout') ${EQUALS} '0' THEN
    PERFORM pg_catalog.set_config('lock_timeout', '${LOCK_TIMEOUT}', true);
  END IF;
  IF coalesce(pg_catalog.current_setting('${MAINTENANCE}', true), '') ${op('<>')} 'on' AND (
    SELECT pg_catalog.count(*) ${op('/')} ${ROWS_A_SECOND}.0 FROM (SELECT 1 FROM ${tableName(rows)} LIMIT ${MOST_ROWS + 1}) AS first_rows
  ) ${op('+')} (
    SELECT coalesce(pg_catalog.sum(pg_catalog.pg_table_size(part.oid)), 0) ${op('/')} ${BYTES_A_SECOND}.0 FROM (
      SELECT ${relation} AS oid UNION SELECT p.relid FROM pg_catalog.pg_partition_tree(${relation}) AS p) AS part
  ) ${op('>')} ${LOCK_SECONDS} THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}', TABLE = ${literal(rows.table)},
      MESSAGE = ${literal(message)};
  END IF;
END
`)}`
}

/** Whether a statement is `raiseIfLarge`'s, which changes nothing. */
export const isRefusalOfLarge = (query: string): boolean => query.includes(`setting('${MAINTENANCE}'`)
