import type { Statement } from './find'

/** The effect of SQL on the transaction that it is sent in. */
export type TransactionCommand =
  | { readonly does: 'set' | 'release' | 'roll back to'; readonly savepoint: string }
  | { readonly does: 'commit' | 'roll back' }

const NO_COMMANDS: readonly TransactionCommand[] = []

/** Almost no SQL begins like this. */
const MAY_BEGIN = /\s*(?:--|\/\*|;|savepoint|release|rollback|abort|commit|end|prepare)/iy

/**
 * Returns the commands for transactions and savepoints in SQL, which may contain several statements and comments.
 *
 * @param isOne there is only one statement, for instance because it has parameters
 */
export function transactionCommands(sql: string, isOne = false): readonly TransactionCommand[] {
  MAY_BEGIN.lastIndex = 0
  if (!MAY_BEGIN.test(sql) && (isOne || !sql.includes(';'))) return NO_COMMANDS
  return statementsIn(sql).flatMap(commandOf)
}

/** The name of a savepoint. As in Postgres, it is folded unless it is quoted, and quotes allow any character. */
const SAVEPOINT_NAME = String.raw`("(?:[^"]|"")+"|[^\s"]+)`
const WORK = String.raw`(?:\s+(?:work|transaction))?`
const SET = new RegExp(String.raw`^savepoint\s*${SAVEPOINT_NAME}$`, 'i')
const RELEASE = new RegExp(String.raw`^release(?:\s+savepoint)?\s*${SAVEPOINT_NAME}$`, 'i')
const ROLL_BACK_TO = new RegExp(String.raw`^rollback${WORK}\s+to(?:\s+savepoint)?\s*${SAVEPOINT_NAME}$`, 'i')
const ROLL_BACK = new RegExp(String.raw`^(?:rollback|abort)${WORK}(?:\s+and\s.*)?$`, 'i')
const COMMIT = new RegExp(String.raw`^(?:(?:commit|end)${WORK}(?:\s+and\s.*)?|prepare\s+transaction\s.*)$`, 'is')

function commandOf(statement: string): TransactionCommand[] {
  const set = SET.exec(statement)
  if (set) return [{ does: 'set', savepoint: nameIn(set) }]
  const release = RELEASE.exec(statement)
  if (release) return [{ does: 'release', savepoint: nameIn(release) }]
  const to = ROLL_BACK_TO.exec(statement)
  if (to) return [{ does: 'roll back to', savepoint: nameIn(to) }]
  if (ROLL_BACK.test(statement)) return [{ does: 'roll back' }]
  return COMMIT.test(statement) ? [{ does: 'commit' }] : []
}

function nameIn([, name = '']: RegExpExecArray): string {
  if (!name.startsWith('"')) return name.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase())
  return name.slice(1, -1).replaceAll('""', '"')
}

/** The start of a comment, or of a quoted part in which `;` has no meaning. */
const PART = /--[^\n]*|\/\*|\be'|['"]|\$(?:[a-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$|;/gi

/** Returns the statements without comments. */
function statementsIn(sql: string): string[] {
  const statements: string[] = []
  let statement = ''
  let from = 0
  PART.lastIndex = 0
  for (let part = PART.exec(sql); part; part = PART.exec(sql)) {
    const [text] = part
    statement += sql.slice(from, part.index)
    from = PART.lastIndex
    if (text === ';') {
      statements.push(statement.trim())
      statement = ''
    } else if (text === '/*') {
      from = endOfComment(sql, from)
      statement += ' '
    } else if (text.startsWith('--')) statement += ' '
    else if (text.startsWith('$')) {
      const end = sql.indexOf(text, from)
      from = end === -1 ? sql.length : end + text.length
    } else {
      from = endOfQuoted(sql, text, from)
      statement += sql.slice(part.index, from)
    }
    PART.lastIndex = from
  }
  return [...statements, (statement + sql.slice(from)).trim()]
}

/**
 * One regular expression for the whole would exhaust the stack for a literal of 10 MB.
 *
 * @param begin `'`, `"` or `e'`, where a backslash escapes
 */
function endOfQuoted(sql: string, begin: string, from: number): number {
  const mark = begin === '"' ? /""?/g : begin === "'" ? /''?/g : /''?|\\[^]/g
  mark.lastIndex = from
  for (;;) {
    const [text] = mark.exec(sql) ?? []
    if (text === undefined) return sql.length
    if (text.length === 1) return mark.lastIndex
  }
}

/** Comments nest. */
function endOfComment(sql: string, from: number): number {
  const mark = /\/\*|\*\//g
  mark.lastIndex = from
  for (let depth = 1; depth > 0;) {
    const [text] = mark.exec(sql) ?? []
    if (text === undefined) return sql.length
    depth += text === '/*' ? 1 : -1
  }
  return mark.lastIndex
}

const SAVEPOINT = 'typeorm_unique_text'
const WHOLE_SAVEPOINT = 'typeorm_unique_text_whole'
export const OUR_SAVEPOINTS: ReadonlySet<string> = new Set([SAVEPOINT, WHOLE_SAVEPOINT])

/** Commands around statements that must be undone together. */
export type SavepointCommands = Readonly<Record<'set' | 'release' | 'rollBack', string>>

/** The commands around statements that may fail in the caller's transaction. */
export const savepoint: SavepointCommands = {
  set: `SAVEPOINT ${SAVEPOINT}`,
  release: `RELEASE SAVEPOINT ${SAVEPOINT}`,
  rollBack: `ROLLBACK TO SAVEPOINT ${SAVEPOINT}`,
}

/** The commands around all the statements of a call. */
export const wholeSavepoint: SavepointCommands = {
  set: `SAVEPOINT ${WHOLE_SAVEPOINT}`,
  release: `RELEASE SAVEPOINT ${WHOLE_SAVEPOINT}`,
  rollBack: `ROLLBACK TO SAVEPOINT ${WHOLE_SAVEPOINT}`,
}

/** The commands around several statements outside any transaction. */
export const ownTransaction: SavepointCommands = { set: 'START TRANSACTION', release: 'COMMIT', rollBack: 'ROLLBACK' }

/** Whether a transaction sees changes that others have committed since it began. */
export const seesCommitted: Statement<boolean> = {
  name: '',
  sql: `SELECT CASE WHEN pg_catalog.starts_with(pg_catalog.current_setting('transaction_isolation'), 'read ') THEN 1 END AS sees`,
  parse: ([sees]) => sees !== null,
}

/** Returns a row in a transaction that an earlier statement began, and raises 25P02 in one that has failed. */
export const seesOpenTransaction =
  'SELECT 1 WHERE pg_catalog.transaction_timestamp() OPERATOR(pg_catalog.<>) pg_catalog.statement_timestamp()'

/**
 * Cancels the waiting statement of a backend if it waits for one of the others, directly or through third ones. The
 * parameters are its process id and theirs. Returns a row if so.
 */
export const cancelWaiting = `WITH RECURSIVE blocking (pid) AS (
  SELECT pg_catalog.unnest(pg_catalog.pg_blocking_pids($1::pg_catalog.int4))
  UNION
  SELECT pg_catalog.unnest(pg_catalog.pg_blocking_pids(pid)) FROM blocking
)
SELECT pg_catalog.pg_cancel_backend($1::pg_catalog.int4)
WHERE EXISTS (SELECT FROM blocking WHERE pid OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.int4[]))`
