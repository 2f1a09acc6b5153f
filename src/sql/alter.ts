import { literal, qualified, quote } from './identifier'
import { checkExpression, isLive, tableName, type TextRows } from './text-table'

/** Statements and their way back, each in the order to run. */
export interface Change {
  readonly up: readonly string[]
  readonly down: readonly string[]
}

export const inverse = ({ up, down }: Change): Change => ({ up: down, down: up })

const alter = (rows: Pick<TextRows, 'schema' | 'table'>): string => `ALTER TABLE ${tableName(rows)}`

/** From the old name to the new. */
type Renames = ReadonlyMap<string, string>

export function renameColumns(rows: Pick<TextRows, 'schema' | 'table'>, renames: Renames): Change {
  const rename = (from: string, to: string): string => `${alter(rows)} RENAME COLUMN ${quote(from)} TO ${quote(to)}`
  return {
    up: [...renames].map(([from, to]) => rename(from, to)),
    down: [...renames].map(([from, to]) => rename(to, from)).toReversed(),
  }
}

/** @param from undefined: none */
export function changeComment(
  rows: Pick<TextRows, 'schema' | 'table'>,
  column: string,
  from: string | undefined,
  to: string,
): Change {
  const say = (comment: string | undefined): string =>
    `COMMENT ON COLUMN ${tableName(rows)}.${quote(column)} IS ${comment ? literal(comment) : 'NULL'}`
  return { up: [say(to)], down: [say(from)] }
}

export function renameIndex({ schema }: Pick<TextRows, 'schema'>, from: string, to: string): Change {
  const rename = (one: string, other: string): string =>
    `ALTER INDEX ${qualified(schema, one)} RENAME TO ${quote(other)}`
  return { up: [rename(from, to)], down: [rename(to, from)] }
}

export function renameCheck(rows: TextRows, from: string, to: string): Change {
  const rename = (one: string, other: string): string =>
    `${alter(rows)} RENAME CONSTRAINT ${quote(one)} TO ${quote(other)}`
  return { up: [rename(from, to)], down: [rename(to, from)] }
}

/** Which rows the unique index holds; undefined: all of them. */
export const indexCondition = (rows: Pick<TextRows, 'deleted'>): string | undefined => isLive(rows, '')[0]

/** @param found the condition of an index, in the server's words: it adds parentheses, and may leave out quotes */
export function sameCondition(wanted: string | undefined, found: string | null | undefined): boolean {
  const plain = (condition: string | null | undefined): string => (condition ?? '').replaceAll(/["()]/g, '')
  return plain(wanted) === plain(found)
}

/** The unique index, as TypeORM makes it. */
export function addIndex(rows: TextRows): Change {
  const columns = [...rows.scope, rows.hash, rows.number].map(quote).join(', ')
  const condition = indexCondition(rows)
  const where = condition === undefined ? '' : ` WHERE ${condition}`
  return {
    up: [`CREATE UNIQUE INDEX ${quote(rows.index)} ON ${tableName(rows)} (${columns})${where}`],
    down: [`DROP INDEX ${qualified(rows.schema, rows.index)}`],
  }
}

/** The check, as TypeORM makes it. */
export function addCheck(rows: TextRows): Change {
  return {
    up: [`${alter(rows)} ADD CONSTRAINT ${quote(rows.check)} CHECK (${checkExpression(rows)})`],
    down: [`${alter(rows)} DROP CONSTRAINT ${quote(rows.check)}`],
  }
}

/** A type as TypeORM has it: `character varying` and `100`; the length may be empty. */
export interface TypeAndLength {
  readonly type: string
  readonly length: string
}

export function changeType(
  rows: Pick<TextRows, 'schema' | 'table'>,
  column: string,
  from: TypeAndLength,
  to: TypeAndLength,
): Change {
  const change = ({ type, length }: TypeAndLength): string =>
    `${alter(rows)} ALTER COLUMN ${quote(column)} TYPE ${type}${length ? `(${length})` : ''}`
  return { up: [change(to)], down: [change(from)] }
}

/** A column whose values do not come from TypeORM. */
export interface FilledColumn {
  readonly name: string
  /** As SQL. */
  readonly type: string
  readonly nullable: boolean
}

/** Adds a column to a table that may have rows, which do not have a value there yet. */
export function addColumn(rows: Pick<TextRows, 'schema' | 'table'>, name: string, type: string): Change {
  return { up: [`${alter(rows)} ADD ${quote(name)} ${type}`], down: [`${alter(rows)} DROP COLUMN ${quote(name)}`] }
}

/** Changes the hash to another type; the rows then have none. */
export function changeHashType(rows: TextRows, from: string, to: string): Change {
  const change = (type: string): string =>
    `${alter(rows)} ALTER COLUMN ${quote(rows.hash)} TYPE ${type} USING NULL::${type}`
  return { up: [change(to)], down: [change(from)] }
}

export function requireColumn(rows: Pick<TextRows, 'schema' | 'table'>, name: string): Change {
  const column = `${alter(rows)} ALTER COLUMN ${quote(name)}`
  return { up: [`${column} SET NOT NULL`], down: [`${column} DROP NOT NULL`] }
}

/** A hidden column as it was found. */
interface FoundColumn {
  readonly name: string
  readonly comment: string | undefined
}

/** Drops the hidden columns, in their order; the way back adds them, without a hash in any row. */
export function dropHidden(
  rows: Pick<TextRows, 'schema' | 'table'>,
  columns: readonly FoundColumn[],
  hashType: string,
): Change {
  const definitions = [hashType, 'integer NOT NULL DEFAULT 0', 'boolean NOT NULL DEFAULT false']
  const added = columns.map(({ name }, position) => `ADD ${quote(name)} ${definitions[position]}`)
  return {
    up: [`${alter(rows)} ${columns.map(({ name }) => `DROP COLUMN ${quote(name)}`).join(', ')}`],
    down: [
      `${alter(rows)} ${added.join(', ')}`,
      ...columns.flatMap(({ name, comment }) =>
        comment ? `COMMENT ON COLUMN ${tableName(rows)}.${quote(name)} IS ${literal(comment)}` : [],
      ),
    ],
  }
}

const HARMLESS =
  /^(?:COMMENT ON|CREATE (?:UNIQUE )?INDEX|DROP INDEX|(?:CREATE|DROP) (?:TABLE|VIEW|MATERIALIZED VIEW|TYPE)) /i

const NAME = String.raw`"((?:[^"]|"")*)"`
const ALTER = new RegExp(
  `^ALTER TABLE (?:${NAME}\\.)?${NAME} (?:(ADD)|(?:DROP CONSTRAINT)|ALTER COLUMN ${NAME} (?:SET|DROP) (?:DEFAULT|NOT NULL)` +
    `|(?:DROP COLUMN|RENAME COLUMN|ALTER COLUMN) ${NAME})(?: |$)`,
  'i',
)

/**
 * Whether a statement, in TypeORM's words, leaves these columns of a table, and all that stands on it, as they are. If
 * a statement is not understood, the answer is no.
 */
export function leavesColumns(sql: string, table: string, columns: ReadonlySet<string>): boolean {
  if (!sql.includes(quote(table)) || HARMLESS.test(sql)) return true
  const match = ALTER.exec(sql)
  if (!match) return false
  const [, , , , , changed] = match
  return changed === undefined || !columns.has(changed.replaceAll('""', '"'))
}

/** Whether a unique index is away for a moment: TypeORM makes those of a column anew that it changes. */
export const makesUniqueAgain = (statements: readonly string[]): boolean =>
  statements.some((one) => {
    const [, made] = /^CREATE UNIQUE INDEX ("(?:[^"]|"")*")/.exec(one) ?? []
    return made !== undefined && statements.some((other) => other.startsWith('DROP INDEX ') && other.includes(made))
  })
