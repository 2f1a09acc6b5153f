import { dollarQuote, list, literal, qualified, quote } from './identifier'
import { partUsedBy } from './library'
import type { Digest } from '../text/digest'
import {
  checkExpression,
  EQUALS,
  hashExpression,
  isLive,
  op,
  type TableName,
  tableName,
  type TextRows,
} from './text-table'

/** Statements and their inverse, each in the order of execution. */
export interface Change {
  readonly up: readonly string[]
  readonly down: readonly string[]
}

export const inverse = ({ up, down }: Change): Change => ({ up: down, down: up })

/** @param statement changes an object from its former state to the other one */
const changeOf = <State>(from: State, to: State, statement: (from: State, to: State) => string): Change => ({
  up: [statement(from, to)],
  down: [statement(to, from)],
})

const alter = (rows: TableName): string => `ALTER TABLE ${tableName(rows)}`

export const renameTable = (rows: TableName, to: string): string => `${alter(rows)} RENAME TO ${quote(to)}`

/** @param renames new names by the old names */
export function renameColumns(rows: TableName, renames: ReadonlyMap<string, string>): Change {
  const rename = (from: string, to: string): string => `${alter(rows)} RENAME COLUMN ${quote(from)} TO ${quote(to)}`
  return {
    up: [...renames].map(([from, to]) => rename(from, to)),
    down: [...renames].map(([from, to]) => rename(to, from)).toReversed(),
  }
}

/** @param from the former comment, or undefined if there was none */
export const changeComment = (rows: TableName, column: string, from: string | undefined, to: string): Change =>
  changeOf(
    from,
    to,
    (_, comment) => `COMMENT ON COLUMN ${tableName(rows)}.${quote(column)} IS ${comment ? literal(comment) : 'NULL'}`,
  )

export const renameIndex = ({ schema }: TableName, from: string, to: string): Change =>
  changeOf(from, to, (one, other) => `ALTER INDEX ${qualified(schema, one)} RENAME TO ${quote(other)}`)

export const renameCheck = (rows: TextRows, from: string, to: string): Change =>
  changeOf(from, to, (one, other) => `${alter(rows)} RENAME CONSTRAINT ${quote(one)} TO ${quote(other)}`)

/** The condition of the unique index. If undefined, the index holds all rows. */
export const indexCondition = (rows: Pick<TextRows, 'deleted'>): string | undefined => isLive(rows, '')[0]

/** @param found the condition of an index, in the server's words, which add parentheses and may leave out quotes */
export function sameCondition(wanted: string | undefined, found: string | null | undefined): boolean {
  const plain = (condition: string | null | undefined): string => (condition ?? '').replaceAll(/["()]/g, '')
  return plain(wanted) === plain(found)
}

/** A unique index over columns. */
export interface NamedIndex {
  readonly name: string
  readonly columns: readonly string[]
  /** The condition of the index. If undefined, it holds all rows. */
  readonly where?: string | undefined
}

/** The unique index of a text. */
export const uniqueIndexOf = (rows: TextRows): NamedIndex => ({
  name: rows.index,
  columns: [...rows.scope, rows.hash, rows.number],
  where: indexCondition(rows),
})

/**
 * Creates an index, perhaps on another table and by another name.
 *
 * @param table as SQL
 * @param name as SQL
 * @param how `CONCURRENTLY` lets others write meanwhile
 */
export const createIndex = (
  table: string,
  name: string,
  { columns, where }: Omit<NamedIndex, 'name'>,
  how: '' | 'CONCURRENTLY ' = '',
): string =>
  `CREATE UNIQUE INDEX ${how}${name} ON ${table} (${columns.map(quote).join(', ')})${where === undefined ? '' : ` WHERE ${where}`}`

/** Creates the check of a text, with the parameters of `createIndex`. */
export const createCheck = (table: string, name: string, rows: TextRows): string =>
  `ALTER TABLE ${table} ADD CONSTRAINT ${name} CHECK (${checkExpression(rows)})`

/** Adds the unique index, as TypeORM creates it. */
export const addIndex = (rows: TextRows): Change => addIndexOf(rows, uniqueIndexOf(rows))

export const addIndexOf = (rows: TableName, index: NamedIndex): Change => ({
  up: [createIndex(tableName(rows), quote(index.name), index)],
  down: [`DROP INDEX ${qualified(rows.schema, index.name)}`],
})

/** Adds the check, as TypeORM creates it. */
export function addCheck(rows: TextRows): Change {
  return {
    up: [createCheck(tableName(rows), quote(rows.check), rows)],
    down: [`${alter(rows)} DROP CONSTRAINT ${quote(rows.check)}`],
  }
}

/** A type as TypeORM splits it: `character varying` and `100`. The length may be empty. */
export interface TypeAndLength {
  readonly type: string
  readonly length: string
}

export const changeType = (rows: TableName, column: string, from: TypeAndLength, to: TypeAndLength): Change =>
  changeOf(
    from,
    to,
    (_, { type, length }) => `${alter(rows)} ALTER COLUMN ${quote(column)} TYPE ${type}${length ? `(${length})` : ''}`,
  )

/** A column whose values TypeORM does not supply. */
export interface FilledColumn {
  readonly name: string
  /** SQL. */
  readonly type: string
  readonly nullable: boolean
}

/** Adds a column to a table whose rows have no value for it yet. */
export function addColumn(rows: TableName, name: string, type: string): Change {
  return { up: [`${alter(rows)} ADD ${quote(name)} ${type}`], down: [`${alter(rows)} DROP COLUMN ${quote(name)}`] }
}

/**
 * Changes the type of the hash. The rows then have no hash, unless the digests are given.
 *
 * @param digests for a hash in the primary key, which is never NULL
 */
export function changeHashType(
  rows: TextRows,
  types: { readonly from: string; readonly to: string },
  digests: { readonly from?: Digest | undefined; readonly to?: Digest } = {},
): Change {
  const change = (type: string, digest: Digest | undefined): string => {
    const hash = digest ? hashExpression({ ...rows, digest }, '') : `NULL::${type}`
    return `${alter(rows)} ALTER COLUMN ${quote(rows.hash)} TYPE ${type} USING ${hash}`
  }
  return { up: [change(types.to, digests.to)], down: [change(types.from, digests.from)] }
}

export function requireColumn(rows: TableName, name: string): Change {
  const column = `${alter(rows)} ALTER COLUMN ${quote(name)}`
  return { up: [`${column} SET NOT NULL`], down: [`${column} DROP NOT NULL`] }
}

/**
 * Drops the hidden columns, in their order. The inverse adds them, without a hash in any row.
 *
 * @param columns as they were found
 */
export function dropHidden(
  rows: TableName,
  columns: readonly { readonly name: string; readonly comment: string | undefined }[],
  hashType: string,
): Change {
  const definitions = [hashType, 'integer NOT NULL DEFAULT 0', 'boolean NOT NULL DEFAULT false']
  const added = columns.map(({ name }, position) => `ADD ${quote(name)} ${definitions[position]}`)
  return {
    up: [`${alter(rows)} ${columns.map(({ name }) => `DROP COLUMN ${quote(name)}`).join(', ')}`],
    down: [
      `${alter(rows)} ${added.join(', ')}`,
      ...columns.flatMap(({ name, comment }) => (comment ? changeComment(rows, name, undefined, comment).up : [])),
    ],
  }
}

const HARMLESS =
  /^(?:COMMENT ON|CREATE (?:UNIQUE )?INDEX|DROP INDEX|(?:CREATE|DROP) (?:TABLE|VIEW|MATERIALIZED VIEW|TYPE)) /i

const QUOTED_NAME = String.raw`"((?:[^"]|"")*)"`
const ALTER = new RegExp(
  `^ALTER TABLE (?:${QUOTED_NAME}\\.)?${QUOTED_NAME} (?:(ADD)|(?:DROP CONSTRAINT)|ALTER COLUMN ${QUOTED_NAME} (?:SET|DROP) (?:DEFAULT|NOT NULL)` +
    `|(?:DROP COLUMN|RENAME COLUMN|ALTER COLUMN) ${QUOTED_NAME})(?: |$)`,
  'i',
)

/**
 * Whether a statement of TypeORM leaves a table's columns, and everything that depends on the table, unchanged. If the
 * statement is not recognized, the result is false.
 */
export function leavesColumns(sql: string, table: string, columns: ReadonlySet<string>): boolean {
  if (!sql.includes(quote(table)) || HARMLESS.test(sql)) return true
  const match = ALTER.exec(sql)
  if (!match) return false
  const [, , , , , changed] = match
  return changed === undefined || !columns.has(changed.replaceAll('""', '"'))
}

/** @param table as SQL */
export const dropsColumn = (sql: string, table: string, column: string): boolean =>
  sql.startsWith(`ALTER TABLE ${table} `) && sql.includes(`DROP COLUMN ${quote(column)}`)

/** Whether a unique index is missing for a moment: TypeORM recreates the indexes of a column that it changes. */
export const makesUniqueAgain = (statements: readonly string[]): boolean =>
  statements.some((one) => {
    const [, made] = /^CREATE UNIQUE INDEX ("(?:[^"]|"")*")/.exec(one) ?? []
    return made !== undefined && statements.some((other) => other.startsWith('DROP INDEX ') && other.includes(made))
  })

/** The number of attempts to take all locks, and the time that each adds to the wait for any lock but the first. */
const LOCK_ROUNDS = 60
const LOCK_MILLISECONDS = 5

const TABLE_NAME = '(?:"(?:[^"]|"")*"\\.)?"(?:[^"]|"")*"'

/** Statements that lock tables. CREATE FUNCTION names tables without a lock. */
const LOCKING = /^(?:ALTER TABLE|CREATE (?:UNIQUE )?INDEX|(?:CREATE|DROP) TRIGGER|DROP (?:INDEX|TABLE)|DO) /

const NAMED = new RegExp(
  `\\b(DROP TABLE (?:IF EXISTS )?|ALTER TABLE |(?:TABLE|INTO|FROM|UPDATE|ON|REFERENCES) (?:ONLY )?)(${TABLE_NAME})`,
  'g',
)

/** A dropped index or foreign key. The statement does not name all tables that it locks. */
const GONE = new RegExp(
  `^(?:DROP INDEX (?:CONCURRENTLY )?(?:"(?:[^"]|"")*"\\.)?|ALTER TABLE ${TABLE_NAME} DROP CONSTRAINT )(${TABLE_NAME})`,
)

const ATTACHED = new RegExp(`\\('(${TABLE_NAME})'::pg_catalog\\.regclass`, 'g')

/** The tables whose guards a statement makes or drops, and whether readers are excluded. */
const guardLocks = (sql: string): [table: string, alone: boolean][] =>
  partUsedBy(sql)
    ? Array.from(sql.matchAll(ATTACHED), ([, table = '']): [string, boolean] => [table, sql.includes('detach')])
    : []

/** Returns the tables to lock, as SQL, and whether readers are excluded too. */
function locksOf(statements: readonly string[], inverse: readonly string[]): ReadonlyMap<string, boolean> {
  // The last entry of a table counts.
  const ofGuards = statements.flatMap(guardLocks).toSorted(([, one], [, other]) => Number(one) - Number(other))
  const locks = new Map<string, boolean>(ofGuards)
  const lock = (table: string, alone: boolean): void => void locks.set(table, alone || locks.get(table) === true)
  for (const sql of statements.filter((one) => LOCKING.test(one))) {
    for (const [, how = '', table = ''] of sql.matchAll(NAMED)) {
      lock(table, sql.startsWith('DROP ') || (/^(?:DROP|ALTER)/.test(how) && !sql.includes(' FOREIGN KEY (')))
    }
    const gone = GONE.exec(sql)?.[1]
    const back = inverse.filter((one) => gone !== undefined && LOCKING.test(one) && one.includes(` ${gone} `))
    for (const [, , table = ''] of back.flatMap((one) => [...one.matchAll(NAMED)])) lock(table, true)
  }
  const made = new RegExp(`\\bCREATE TABLE (${TABLE_NAME})`, 'g')
  for (const [, table = ''] of statements.flatMap((one) => [...one.matchAll(made)])) locks.delete(table)
  return locks
}

/**
 * Returns one statement that takes all locks for the transaction, or none. No order suits all writers, because foreign
 * keys have orders of their own. So it waits for a second lock for less time than `deadlock_timeout`, a second. Then it
 * releases all locks, and first waits for the missing one. The last attempt waits as long as any statement does.
 *
 * @param inverse the inverse of the statements
 * @returns no statement if fewer than two tables are locked
 */
export function lockTables(statements: readonly string[], inverse: readonly string[]): string[] {
  const locks = [...locksOf(statements, inverse)].toSorted(([one], [other]) => (one < other ? -1 : 1))
  if (locks.length < 2) return []
  const wanted = locks.map(([table, isAlone]) => literal(`${table} IN ${isAlone ? 'ACCESS' : 'SHARE ROW'} EXCLUSIVE`))
  return [
    `DO ${dollarQuote(`
DECLARE
  wanted CONSTANT pg_catalog.text[] := ARRAY[
    ${list(wanted, 4)}
  ];
  -- First without writers, then without readers: until then, checks of foreign keys go on.
  tables pg_catalog.text[] := pg_catalog.array_cat(
    ARRAY(SELECT pg_catalog.regexp_replace(w, 'ACCESS EXCLUSIVE$', 'SHARE ROW EXCLUSIVE') FROM pg_catalog.unnest(wanted) AS w),
    ARRAY(SELECT w FROM pg_catalog.unnest(wanted) AS w WHERE w ${op('~')} 'ACCESS EXCLUSIVE$'));
  missing pg_catalog.text;
  patience pg_catalog.text := pg_catalog.current_setting('lock_timeout');
BEGIN
  FOR round IN 1..${LOCK_ROUNDS} LOOP
    BEGIN
      FOREACH missing IN ARRAY tables LOOP
        EXECUTE pg_catalog.concat('LOCK TABLE ', missing, ' MODE');
        IF round ${op('<')} ${LOCK_ROUNDS} THEN
          PERFORM pg_catalog.set_config('lock_timeout', (round ${op('*')} ${LOCK_MILLISECONDS})::pg_catalog.text, true);
        END IF;
      END LOOP;
      EXIT;
    EXCEPTION
      WHEN lock_not_available THEN
        -- All locks are released by now. The next round waits for this table first, and holds no other.
        IF round ${EQUALS} ${LOCK_ROUNDS} OR missing ${EQUALS} tables[1] THEN
          RAISE;
        END IF;
        IF missing ${op('~')} ' SHARE ROW EXCLUSIVE$' THEN
          tables := pg_catalog.array_prepend(missing, pg_catalog.array_remove(tables, missing));
        END IF;
      WHEN undefined_table OR insufficient_privilege THEN
        tables := pg_catalog.array_remove(tables, missing);
    END;
  END LOOP;
  PERFORM pg_catalog.set_config('lock_timeout', patience, true);
END
`)}`,
  ]
}
