/** What SQL does to the transaction that it is sent in. */
export type TransactionCommand =
  | { readonly does: 'set' | 'release' | 'roll back to'; readonly savepoint: string }
  | { readonly does: 'commit' | 'roll back' }

const NONE: readonly TransactionCommand[] = []

/** Nearly no SQL begins so. */
const MAY_BEGIN = /\s*(?:--|\/\*|;|savepoint|release|rollback|abort|commit|end|prepare)/iy

/**
 * The commands for transactions and savepoints in SQL, which may hold several statements, and comments.
 *
 * @param isOne there is one statement only, as where it has parameters
 */
export function transactionCommands(sql: string, isOne = false): readonly TransactionCommand[] {
  MAY_BEGIN.lastIndex = 0
  if (!MAY_BEGIN.test(sql) && (isOne || !sql.includes(';'))) return NONE
  return statementsIn(sql).flatMap(commandOf)
}

/** A savepoint's name is folded and quoted as Postgres does; a quoted one may hold anything. */
const NAME = String.raw`("(?:[^"]|"")+"|[^\s"]+)`
const WORK = String.raw`(?:\s+(?:work|transaction))?`
const SET = new RegExp(String.raw`^savepoint\s*${NAME}$`, 'i')
const RELEASE = new RegExp(String.raw`^release(?:\s+savepoint)?\s*${NAME}$`, 'i')
const ROLL_BACK_TO = new RegExp(String.raw`^rollback${WORK}\s+to(?:\s+savepoint)?\s*${NAME}$`, 'i')
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

/** What a `;` means nothing in, and comments. */
const PART =
  /--[^\n]*|\/\*|\be'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?:[a-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$|;/gis

/** Without comments. */
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
    else if (text.startsWith('$')) from = endOf(sql, text, from)
    else statement += text
    PART.lastIndex = from
  }
  return [...statements, (statement + sql.slice(from)).trim()]
}

function endOf(sql: string, text: string, from: number): number {
  const at = sql.indexOf(text, from)
  return at === -1 ? sql.length : at + text.length
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
