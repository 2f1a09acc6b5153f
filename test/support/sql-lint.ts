/** Something in SQL that the server looks up by `search_path`, where anybody who may create objects can be found first. */
export interface Lookup {
  readonly kind: 'operator' | 'function' | 'type' | 'collation' | 'construct'
  /** What is looked up: `||`, `coalesce_all`, `uuid`, `IN (list)`. */
  readonly found: string
  /** 1-based, within the outermost text. */
  readonly line: number
  /** The line, without its indentation. */
  readonly near: string
}

/**
 * Everything in SQL and PL/pgSQL that is found by `search_path`: operators without `OPERATOR(pg_catalog.…)`, functions
 * and types without `pg_catalog.`, and constructs that look an operator up in secret. What an exact signature in the
 * table's schema beats, runs as the owner of a function with SECURITY DEFINER.
 *
 * So is a backslash in a string without `E`, which is an escape where `standard_conforming_strings` is off.
 *
 * Dollar quotes are read as SQL, strings only where EXECUTE runs them. Assignments (`SET a = …`, `RAISE … USING`) are no
 * operators, and types that the grammar binds to `pg_catalog` (`integer`) are found nowhere else.
 */
export function lookupsByPath(sql: string): Lookup[] {
  const lines = sql.split('\n')
  return lookupsIn(sql, 1).map((one) => ({ ...one, near: (lines[one.line - 1] ?? '').trim() }))
}

/** As lines for `expect(…).toEqual([])`. */
export const describeLookups = (sql: string): string[] =>
  lookupsByPath(sql).map(({ kind, found, line, near }) => `${line}: ${kind} ${found}: ${near}`)

type Found = Omit<Lookup, 'near'>

interface Token {
  readonly type: 'word' | 'quoted' | 'string' | 'dollar' | 'number' | 'operator' | 'mark'
  /** Words in capitals. */
  readonly text: string
  readonly line: number
  /** The inside of a string or of dollar quotes. */
  readonly inside: string
}

const words = (text: string): ReadonlySet<string> => new Set(text.split(/\s+/))

/** Words before `(` that call no function by name: COALESCE and its like, and lengths of types, are the grammar's own. */
const NO_CALLS = words(`
  ALL AND ANY ARRAY AS BEGIN BY CASE CAST CHECK COALESCE CONFLICT DISTINCT ELSE ELSIF END EXCEPT EXCLUDE EXECUTE
  EXISTS EXTRACT FILTER FOR FROM GREATEST GROUP GROUPING HAVING IF IN INCLUDE INSERT INTERSECT INTO IS JOIN KEY LATERAL
  LEAST LIMIT LOOP MATERIALIZED NOT OF OFFSET ON OPERATOR OR OVER PARTITION PERFORM RANGE REFERENCES RETURN RETURNING ROW ROWS SELECT SET
  SOME THEN TO TRIM UNION UNIQUE USING VALUES WHEN WHERE WHILE WITH WITHIN OVERLAY POSITION SUBSTRING NULLIF COLLATE
  BTREE HASH GIN GIST BRIN
  BIT CHAR CHARACTER DEC DECIMAL FLOAT INTERVAL NUMERIC TIME TIMESTAMP VARCHAR VARYING`)

/** Types that the grammar binds to `pg_catalog`, and what stands for a type in PL/pgSQL. */
const BOUND_TYPES = words(`
  BIGINT BIT BOOLEAN CHAR CHARACTER DEC DECIMAL DOUBLE FLOAT INT INTEGER INTERVAL NATIONAL NCHAR NUMERIC REAL SMALLINT
  TIME TIMESTAMP VARCHAR RECORD TRIGGER CURSOR ALIAS`)

/** A name before `(` is that of a table, an alias or what is made, where one of these stands before it. */
const NAMES_WITH_COLUMNS = words('INTO AS TABLE FUNCTION REFERENCES ON WITH RECURSIVE ::')

/** Types that may stand before a string, as in `date '2000-01-01'`. */
const LITERAL_TYPES = words(`DATE UUID JSON JSONB TEXT TIMESTAMPTZ TIMETZ INET CIDR BYTEA NAME REGCLASS INT4 INT8`)

/** After these, and a comma at the same depth, stands an assignment. */
const END_OF_SET = words('WHERE FROM RETURNING SELECT VALUES ON')

/** Constructs that look an operator up: the words `at` an offset from the first one tell them. */
const HIDDEN: readonly (readonly [name: string, is: (at: (offset: number) => string) => boolean])[] = [
  ['BETWEEN', (at) => at(0) === 'BETWEEN'],
  ['LIKE', (at) => at(0) === 'LIKE'],
  ['ILIKE', (at) => at(0) === 'ILIKE'],
  ['SIMILAR TO', (at) => at(0) === 'SIMILAR'],
  ['NULLIF', (at) => at(0) === 'NULLIF'],
  ['NATURAL JOIN', (at) => at(0) === 'NATURAL'],
  ['IS DISTINCT FROM', (at) => at(0) === 'DISTINCT' && at(1) === 'FROM'],
  ['IN (list)', (at) => at(0) === 'IN' && at(1) === '(' && at(-2) !== 'FOR'],
  ['CASE value WHEN', (at) => at(0) === 'CASE' && at(1) !== 'WHEN' && at(-1) !== 'END'],
  ['USING (columns)', (at) => at(0) === 'USING' && at(1) === '('],
]

const TOKEN = new RegExp(
  [
    // `#variable_conflict` is an option of PL/pgSQL.
    String.raw`(?<space>\s+|--[^\n]*|#\w+ \w+(?=\n))`,
    String.raw`(?<comment>/\*)`,
    String.raw`(?<dollar>\$(?:[A-Za-z_]\w*)?\$)`,
    String.raw`(?<escaped>[eE]'(?:[^'\\]|\\[^]|'')*')`,
    String.raw`(?<string>'(?:[^']|'')*')`,
    String.raw`(?<quoted>"(?:[^"]|"")*")`,
    // A placeholder of format() stands for a name.
    String.raw`(?<placeholder>%(?:\d+\$)?[sIL](?!\w))`,
    String.raw`(?<number>\$\d+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)`,
    String.raw`(?<word>[\p{L}_][\p{L}\d_$]*)`,
    String.raw`(?<mark>::|:=|=>|\.\.|[.,;()[\]:])`,
    String.raw`(?<operator>(?:(?!--|/\*)[-+*/<>=~!@#%^&|\x60?])+)`,
  ].join('|'),
  'uy',
)

/** Groups of TOKEN that are tokens. */
const KINDS: Readonly<Record<string, Token['type']>> = {
  dollar: 'dollar',
  escaped: 'string',
  string: 'string',
  quoted: 'quoted',
  placeholder: 'quoted',
  number: 'number',
  word: 'word',
  mark: 'mark',
  operator: 'operator',
}

function tokensOf(sql: string): Token[] {
  const tokens: Token[] = []
  let [line, position] = [1, 0]
  while (position < sql.length) {
    const { type, text, inside, end } = tokenAt(sql, position, line)
    if (type !== undefined) tokens.push({ type, text, inside, line })
    line += sql.slice(position, end).split('\n').length - 1
    position = end
  }
  return tokens
}

interface Read extends Pick<Token, 'text' | 'inside'> {
  /** undefined: a space or a comment. */
  readonly type: Token['type'] | undefined
  readonly end: number
}

function tokenAt(sql: string, position: number, line: number): Read {
  TOKEN.lastIndex = position
  const match = TOKEN.exec(sql)
  const [kind, text = ''] = Object.entries(match?.groups ?? {}).find(([, one]) => one !== undefined) ?? []
  if (kind === undefined) throw new Error(`line ${line}: no token of SQL: ${sql.slice(position, position + 30)}`)
  const end = position + text.length
  const read = { type: KINDS[kind], text, inside: '', end }
  if (kind === 'comment') return { ...read, end: endOfComment(sql, position) }
  if (kind === 'word') return { ...read, text: text.toUpperCase() }
  if (kind === 'escaped') return { ...read, inside: text.slice(2, -1) }
  if (kind === 'string') return { ...read, inside: text.slice(1, -1).replaceAll("''", "'") }
  if (kind !== 'dollar') return read
  const close = sql.indexOf(text, end)
  if (close === -1) throw new Error(`line ${line}: ${text} has no end`)
  return { ...read, inside: sql.slice(end, close), end: close + text.length }
}

/** Comments nest. */
function endOfComment(sql: string, start: number): number {
  let [depth, position] = [0, start]
  do {
    const open = sql.startsWith('/*', position)
    if (!open && !sql.startsWith('*/', position)) position += 1
    else {
      depth += open ? 1 : -1
      position += 2
    }
  } while (depth > 0 && position < sql.length)
  return position
}

function lookupsIn(sql: string, firstLine: number): Found[] {
  const tokens = tokensOf(sql)
  const found: Found[] = []
  const report: Report = (kind, what, { line }) => {
    found.push({ kind, found: what, line: firstLine + line - 1 })
  }
  const assigning = assignments(tokens)
  const executed = stringsToExecute(tokens)
  tokens.forEach((token, index) => {
    if (token.type === 'dollar' || executed.has(index)) {
      found.push(...lookupsIn(token.inside, firstLine + token.line - 1))
    }
    if (token.type === 'operator' && !assigning.has(index) && isOperator(tokens, index)) {
      report('operator', token.text, token)
    }
    if (token.type === 'string' && /^'[^]*\\/.test(token.text)) report('construct', 'backslash without E', token)
    if (token.type === 'word') reportWord(tokens, index, report)
    if (isName(token) && tokens[index + 1]?.text === '(') reportCall(tokens, index, report)
  })
  for (const index of typesIn(tokens)) reportType(tokens, index, report)
  return found.toSorted((one, other) => one.line - other.line)
}

const textAt = (tokens: readonly Token[], index: number): string => tokens[index]?.text ?? ''

const isName = (token: Token | undefined): boolean => token?.type === 'word' || token?.type === 'quoted'

/** Not those in an array, nor those with a cast: they are values or names. */
function stringsToExecute(tokens: readonly Token[]): ReadonlySet<number> {
  const found = new Set<number>()
  let [isExecuting, brackets] = [false, 0]
  tokens.forEach(({ type, text }, index) => {
    brackets += Number(text === '[') - Number(text === ']')
    if (text === 'EXECUTE') isExecuting = !['FUNCTION', 'PROCEDURE'].includes(textAt(tokens, index + 1))
    else if (text === ';') isExecuting = false
    else if (isExecuting && type === 'string' && brackets === 0 && textAt(tokens, index + 1) !== '::') found.add(index)
  })
  return found
}

/** Where a type begins: after `::`, in CAST, and in DECLARE. */
function typesIn(tokens: readonly Token[]): number[] {
  const found: number[] = []
  let isDeclaring = false
  tokens.forEach((token, index) => {
    const { text } = token
    if (text === 'DECLARE' || text === 'BEGIN') isDeclaring = text === 'DECLARE'
    else if (isDeclaring && isName(token) && [';', 'DECLARE'].includes(textAt(tokens, index - 1))) {
      found.push(textAt(tokens, index + 1) === 'CONSTANT' ? index + 2 : index + 1)
    } else if (text === '::' || (text === 'AS' && isInCast(tokens, index))) found.push(index + 1)
  })
  return found
}

type Report = (kind: Lookup['kind'], what: string, token: Token) => void

function reportType(tokens: readonly Token[], index: number, report: Report): void {
  const token = tokens[index]
  // `schema.type`, or `table%ROWTYPE`.
  if (!token || ['.', '%'].includes(textAt(tokens, index + 1)) || BOUND_TYPES.has(token.text)) return
  report('type', token.text.toLowerCase(), token)
}

/** Of the tokens `=`, those that assign. */
function assignments(tokens: readonly Token[]): ReadonlySet<number> {
  const found = new Set<number>()
  const modes: boolean[] = [false]
  tokens.forEach(({ text }, index) => {
    const at = (offset: number): string => textAt(tokens, index + offset)
    if (text === '(') modes.push(false)
    else if (text === ')' && modes.length > 1) modes.pop()
    else if (text === ';') modes.splice(0, modes.length, false)
    else if (isStartOfSet(at)) modes.splice(-1, 1, true)
    else if (END_OF_SET.has(text)) modes.splice(-1, 1, false)
    const isFirst = at(-2) === 'DIAGNOSTICS' || (modes.at(-1) === true && STARTS_OF_SET.has(at(-2)))
    if (text === '=' && isFirst) found.add(index)
  })
  return found
}

const STARTS_OF_SET: ReadonlySet<string> = new Set(['SET', 'USING', ','])
const isStartOfSet = (at: (offset: number) => string): boolean =>
  at(0) === 'SET' || (at(0) === 'USING' && at(2) === '=')

function isOperator(tokens: readonly Token[], index: number): boolean {
  const at = (offset: number): string => textAt(tokens, index + offset)
  if (at(-4) === 'OPERATOR' && at(-3) === '(' && at(-2) === 'PG_CATALOG') return false
  if (at(0) === '*') return !BEFORE_STAR.has(at(-1))
  if (at(0) === '%') return !['TYPE', 'ROWTYPE'].includes(at(1))
  // The grammar makes one constant of them.
  if (at(0) === '-') return tokens[index + 1]?.type !== 'number' || !BEFORE_SIGN.has(at(-1))
  return true
}

const BEFORE_STAR: ReadonlySet<string> = new Set(['.', '(', ')', ',', 'SELECT', 'DISTINCT', 'RETURNING'])
const BEFORE_SIGN: ReadonlySet<string> = new Set(['(', ',', '[', 'RETURN', ':='])

function reportWord(tokens: readonly Token[], index: number, report: Report): void {
  const at = (offset: number): string => textAt(tokens, index + offset)
  const token = tokens[index]
  if (!token || at(-1) === '.') return
  for (const [name, is] of HIDDEN) if (is(at)) report('construct', name, token)
  if (at(0) === 'COLLATE' && at(1) !== 'PG_CATALOG') report('collation', at(1), token)
  if (LITERAL_TYPES.has(at(0)) && tokens[index + 1]?.type === 'string') report('type', at(0).toLowerCase(), token)
}

/** `CAST(value AS type)` */
function isInCast(tokens: readonly Token[], index: number): boolean {
  let [at, depth] = [index, 0]
  do {
    at -= 1
    depth += Number(tokens[at]?.text === ')') - Number(tokens[at]?.text === '(')
  } while (at > 0 && depth >= 0)
  return depth < 0 && tokens[at - 1]?.text === 'CAST'
}

function reportCall(tokens: readonly Token[], index: number, report: Report): void {
  const token = tokens[index]
  if (!token || (token.type === 'word' && NO_CALLS.has(token.text))) return
  let first = index
  while (textAt(tokens, first - 1) === '.') first -= 2
  if (first < index && textAt(tokens, first) === 'PG_CATALOG') return
  const isRelation = NAMES_WITH_COLUMNS.has(textAt(tokens, first - 1))
  if (isRelation || isMade(tokens, first) || isCommonTable(tokens, index)) return
  const name = tokens.slice(first, index + 1).map(({ text }) => text)
  report('function', name.join('').toLowerCase(), token)
}

/** A function that is made, dropped, altered or put on a trigger, in a list too. */
function isMade(tokens: readonly Token[], index: number): boolean {
  let at = index - 1
  while (at >= 0 && ![';', 'FUNCTION', 'EXISTS', 'SELECT', 'THEN', 'BEGIN'].includes(textAt(tokens, at))) at -= 1
  const start = tokens[at]?.text
  return start === 'FUNCTION' || (start === 'EXISTS' && tokens[at - 1]?.text === 'IF')
}

/** `name (columns) AS (`, of a WITH. */
function isCommonTable(tokens: readonly Token[], index: number): boolean {
  const close = tokens.findIndex(({ text }, at) => at > index && text === ')')
  const next = tokens[close + 1]?.text
  return next === 'AS' && ['(', 'MATERIALIZED', 'NOT'].includes(textAt(tokens, close + 2))
}
