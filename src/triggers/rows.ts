import { dollarQuote, list, literal, quote, unnest } from '../sql/identifier'
import { SQLSTATE } from '../sql/sqlstate'
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
} from '../sql/text-table'

/** How many rows an error names; the others follow once these are corrected. */
const ROWS_NAMED = 10

/** Counted by the same scan, before the LIMIT. */
const TOTAL = 'pg_catalog.count(*) OVER () AS total'

/** Follows the names of rows where they are not all; NULL stays NULL. */
const ofAll = (rows: string): string => `${op('||')} CASE
      WHEN pg_catalog.max(${rows}.total) ${op('>')} ${ROWS_NAMED}
      THEN pg_catalog.format(' (${ROWS_NAMED} of %s are shown)', pg_catalog.max(${rows}.total)) ELSE '' END`

/**
 * A table with a text whose rows are to be rebuilt, and the columns of its primary key, by which an error names rows. A
 * migration's transaction holds the table alone by then: the guard was dropped, or a column added.
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
  /** The name of its class. */
  readonly entity: string
}

/**
 * One statement that gives every row its hash, number and flag as the declaration wants them, and changes only rows
 * that differ: texts of equal hash are numbered from 0 in each scope, the ones with a lower number first. It refuses
 * rows that hold the same text, the work of a user's trigger that undoes its own or writes such rows, and a snapshot that
 * may be older than the lock. The guard's triggers, the unique index and the check must be away.
 */
export function rebuildRows(on: RebuiltTable): string {
  const { rows } = on
  const undone = raise(rows, {
    sqlstate: SQLSTATE.wrongState,
    message: `a trigger on table ${quote(rows.table)} undid the numbering of ${quote(rows.name)} in this many rows: `,
    found: `due ${op('-')} done`,
    remedy: '. Disable that trigger while this runs.',
  })
  return block(`
DECLARE
  plain boolean := relkind ${op('<>')} 'p' FROM pg_catalog.pg_class WHERE ${equal('oid', ownTable(rows))};
  duplicates pg_catalog.text;
  due bigint;
  done bigint;
  security pg_catalog.text := pg_catalog.current_setting('row_security');
BEGIN
  -- Otherwise row security could hide rows, and they would silently stay as they are. Off, it raises an error instead.
  PERFORM pg_catalog.set_config('row_security', 'off', true);
  -- The lock does not help a snapshot that is older: it hides what was written before the lock was there.
  IF pg_catalog.current_setting('transaction_isolation') ${op('~')} '^(repeatable|serializable)' THEN
    ${raise(rows, {
      sqlstate: SQLSTATE.wrongState,
      message: `rows of table ${quote(rows.table)} can be numbered at READ COMMITTED only, not at `,
      found: "pg_catalog.current_setting('transaction_isolation')",
      remedy: '. Set default_transaction_isolation for the connection that runs migrations.',
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

/** Refuses, before anything is changed, what `rebuildRows` would refuse: rows that hold the same text. */
export function refuseDuplicates(on: RebuiltTable): string {
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
        `these rows of table ${quote(rows.table)} hold the same text for ${quote(rows.name)}, ` +
        `by ${primaryLabel(primary)}: `,
      found: 'duplicates',
      remedy: '. Of each group delete or change all but one, then run this again.',
    })}
  END IF;`
}

/** Texts are compared only where hashes are equal, which is nearly nowhere. */
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

/** Tells the rows that were due from those that were done: a BEFORE trigger may change or drop any of them. */
function renumber({ rows, primary }: RebuiltTable): string {
  // Chains end with the table: what inherits from it has no index of ours, and must leave no gap in its numbers.
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

/** A row without a text has none. */
const sameHash = (left: string, right: string): string =>
  `${equal(left, right)} OR ${left} IS NULL AND ${right} IS NULL`

const ownTable = (rows: TextRows): string => `${literal(tableName(rows))}::pg_catalog.regclass`

/**
 * The rows that hold their texts. Not those of tables that inherit from it, which may hold a text again; of a partitioned
 * table the whole tree.
 */
const heldRows = (rows: TextRows): string =>
  [`(${equal('t.tableoid', ownTable(rows))} OR NOT plain)`, ...isLive(rows, 't')].join(' AND ')

/** Every row as `t`, with the hash that it should have as `h.hash`: NULL for a row without a text. */
const withHash = (rows: TextRows): string =>
  `${tableName(rows)} AS t\n       CROSS JOIN LATERAL (SELECT ${rowHash(rows, 't')} AS hash) AS h`

/** Refuses rows that hold NULL in a column that is about to be NOT NULL, and names them. */
export function refuseNulls({ rows, primary }: RebuiltTable, column: string): string {
  return refuseRows(
    { rows, primary },
    {
      sqlstate: SQLSTATE.notNullViolation,
      where: `t.${quote(column)} IS NULL`,
      message: `these rows of table ${quote(rows.table)} hold NULL in ${quote(column)}, by ${primaryLabel(primary)}: `,
      remedy: '. Give them a value or delete them, then run this again.',
    },
  )
}

/** One column whose texts were normalized in another way than the declaration says now. */
export interface Renormalized {
  readonly column: string
  /** `name@version`. */
  readonly from: string
  readonly to: string
}

/** What the statement says that stands for work in JavaScript. */
export const NORMALIZE_BY_HAND = 'SQL cannot normalize them'

/** A setting that lasts as long as a transaction. */
const IN_TRANSACTION = 'unique_text.in_transaction'

/**
 * Refuses to run outside of a transaction, before the first of several statements has taken a guard away: one that fails
 * would leave the table without it. Two statements, for the first one's setting is gone where each commits by itself.
 */
export const requireTransaction = (): string[] => [
  `SELECT pg_catalog.set_config(${literal(IN_TRANSACTION)}, 'on', true)`,
  block(`
BEGIN
  IF coalesce(pg_catalog.current_setting(${literal(IN_TRANSACTION)}, true), '') ${op('<>')} 'on' THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.noTransaction}',
      MESSAGE = 'a migration that normalizes rows takes the guard away meanwhile, and must run in a transaction',
      HINT = 'Let this migration have its transaction, or bring the normalizer to the rows by typeorm-unique-text adopt.';
  END IF;
END
`),
]

/**
 * Refuses rows whose texts another normalizer made, for SQL cannot normalize as JavaScript does: a text that is not
 * normalized is one that find-or-create does not find, and stores again. It begins with what to write in its place.
 */
export function refuseUnnormalized(on: NormalizedTable, { column, from, to }: Renormalized): string {
  const entity = /^\w+$/.test(on.entity) ? on.entity : JSON.stringify(on.entity)
  const call = `await normalizeTexts(queryRunner, ${entity})`
  const refusal = refuseRows(on, {
    sqlstate: SQLSTATE.wrongState,
    where: `t.${quote(column)} IS NOT NULL`,
    message:
      `column ${quote(column)} of table ${quote(on.rows.table)} has texts normalized by ${from}, not yet by ${to}; ` +
      `the first by ${primaryLabel(on.primary)}: `,
    remedy: `. ${NORMALIZE_BY_HAND}: in the migration, replace this statement by ${call} (docs/changing-a-declaration.md).`,
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

/** The columns that a table has in the database; none where there is no table. */
export const storedColumns = (table: Pick<TextRows, 'schema' | 'table'>): string =>
  `SELECT a.attname AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type
FROM pg_catalog.pg_attribute AS a
WHERE a.attrelid ${EQUALS} pg_catalog.to_regclass(${literal(tableName(table))})
  AND a.attnum ${op('>')} 0 AND NOT a.attisdropped`

const CURSOR = 'unique_text_rows'

/**
 * The statements that read all rows, so many at once: for each its table and its primary key as texts, and its texts.
 * The cursor outlasts its transaction, for a migration may have none.
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

/** Writes the texts of some rows. Parameters: arrays of what `readStoredTexts` reads, one for each column. */
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
  readonly remedy: string
}

function refuseRows({ rows, primary }: KeyedTable, { sqlstate, where, message, remedy }: Refusal): string {
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
    ${raise(rows, { sqlstate, message, found: 'named', remedy })}
  END IF;
END
`)
}

/** Refuses to revert a change for which the former state is unknown. */
export function refuseUnknownDigest(rows: Pick<TextRows, 'table' | 'name'>, digest: string): string {
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

const primaryLabel = (primary: readonly string[]): string => `primary key (${primary.join(', ')})`

interface Raised {
  readonly sqlstate: string
  readonly message: string
  /** An SQL expression, between message and remedy. */
  readonly found: string
  readonly remedy: string
}

function raise(
  rows: Pick<TextRows, 'table'> & Partial<TextRows>,
  { sqlstate, message, found, remedy }: Raised,
): string {
  const constraint = sqlstate === SQLSTATE.uniqueViolation ? `\n      CONSTRAINT = ${literal(rows.index ?? '')},` : ''
  return (
    `RAISE EXCEPTION USING ERRCODE = '${sqlstate}', TABLE = ${literal(rows.table)},${constraint}\n` +
    `      MESSAGE = pg_catalog.concat(${literal(message)}, ${found}, ${literal(remedy)});`
  )
}

/** More rows than this are given their hashes by `adopt`, while others use the table. */
const FEW_ROWS = 100_000

/** The setting with which a migration works on a large table. */
const MAINTENANCE = 'unique_text.maintenance'

/** What a migration would do with every row of a table while nobody else can use it. */
export interface LargeWork {
  /** What the rows get. */
  readonly gives: 'hashes' | 'names' | 'numbers'
  /** What to do in place of it, as a sentence. */
  readonly online: string
}

/** @param what of an entity is adopted */
export const adoptInstead = (what: { readonly entity: string; readonly property: string }): string => {
  const command = `npx typeorm-unique-text adopt -d ormconfig.ts --entity ${what.entity} --property ${what.property}`
  return (
    `Run ${literal(`${command} --fake NAME`)} with the name of this migration: it does the same while others use the ` +
    `table, and marks this migration alone as run. Move first what else this migration does into another one.`
  )
}

/**
 * Comes first where a migration works on every row, which shuts everybody out for as long as that takes: refuses a large
 * table, and sees that a killed client leaves no statement behind that holds the lock.
 */
export function refuseLarge(rows: Pick<TextTable, 'schema' | 'table'>, { gives, online }: LargeWork): string {
  const message =
    `table ${quote(rows.table)} has more than ${FEW_ROWS} rows, and this migration would lock everybody out while it ` +
    `gives them their ${gives}. ${online} In a maintenance window set unique_text.maintenance to on (extra: { options: '-c ` +
    `unique_text.maintenance=on' } of the DataSource), and run it as it is.`
  return `DO ${dollarQuote(`
BEGIN
  BEGIN
    PERFORM pg_catalog.set_config('client_connection_check_interval', '2s', true);
  EXCEPTION WHEN OTHERS THEN
    -- Not every platform can tell.
    NULL;
  END;
  IF coalesce(pg_catalog.current_setting('${MAINTENANCE}', true), '') ${op('<>')} 'on' AND (
    SELECT pg_catalog.count(*) FROM (SELECT FROM ${tableName(rows)} LIMIT ${FEW_ROWS + 1}) AS first_rows
  ) ${op('>')} ${FEW_ROWS} THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}', TABLE = ${literal(rows.table)},
      MESSAGE = ${literal(message)};
  END IF;
END
`)}`
}

/** Whether a statement is `refuseLarge`'s, which changes nothing. */
export const isRefusalOfLarge = (query: string): boolean => query.includes(`setting('${MAINTENANCE}'`)
