import { loadModule, parsePlPgSQLSync, parseSync } from '@libpg-query/parser'

/** Something in SQL that the server looks up by `search_path`, where anybody who may create objects can be found first. */
export interface Lookup {
  readonly kind: 'operator' | 'function' | 'type' | 'collation' | 'relation' | 'construct'
  /** What is looked up: `||`, `max`, `uuid`, `IN (list)`. */
  readonly found: string
  /** The innermost text that Postgres parses as a whole, from there. */
  readonly near: string
}

/**
 * Everything in SQL and PL/pgSQL that is found by `search_path`, as Postgres' own grammar reads it: operators, functions,
 * types, collations and relations of the catalog without their schema, and constructs that look an operator up in
 * secret. Bodies of functions and of DO are read as PL/pgSQL, with the types of DECLARE; so are the texts that EXECUTE
 * and `format` are given, and conditions of triggers, checks and indexes.
 *
 * So is a backslash in a string without `E`, which is an escape where `standard_conforming_strings` is off.
 *
 * Left out, for nobody else can be found there:
 * - several arguments of `unnest` in FROM: the grammar itself makes calls of `pg_catalog.unnest` of them;
 * - operators of ORDER BY, DISTINCT, GROUP BY, PARTITION BY, UNION and keys: those of the operator class, which only a
 *   superuser can create; so can operator classes be named without a schema;
 * - the type `trigger` after RETURNS: with another type there is no trigger, and the migration fails;
 * - types, defaults and collations of columns that DDL adds: TypeORM and the user decide them;
 * - tables, sequences and functions that a statement creates, changes or drops: `search_path` is to decide, as for TypeORM.
 */
export async function lookupsByPath(sql: string): Promise<Lookup[]> {
  await loadModule()
  return readAny(sql)
}

/** Of all statements, as lines for `expect(…).toEqual([])`. */
export async function describeLookups(statements: readonly string[]): Promise<string[]> {
  const found = await Promise.all(statements.map(lookupsByPath))
  return found.flat().map((one) => `${one.kind} ${one.found}: ${one.near}`)
}

type Json = null | string | number | boolean | readonly Json[] | { readonly [name: string]: Json }
type Fields = { readonly [name: string]: Json }
type Read = (fields: Fields, at: Place) => readonly Lookup[]

interface Place {
  /** The text that was parsed. */
  readonly text: string
}

/** @throws Error with the text, if it is no SQL */
function readAny(sql: string): Lookup[] {
  return readTree(parsed(sql), { text: sql })
}

function parsed(sql: string): Json {
  if (/^[\s;]*$/.test(sql)) return null
  try {
    return parseSync(sql) as unknown as Json
  } catch (error) {
    throw new Error(`no SQL: ${sql.slice(0, 2000)}`, { cause: error })
  }
}

const isFields = (value: Json | undefined): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const listOf = (value: Json | undefined): readonly Json[] => (Array.isArray(value) ? (value as readonly Json[]) : [])

/** The parts of a name. */
const nameOf = (value: Json | undefined): string[] =>
  listOf(value).map((part) => (isFields(part) && isFields(part['String']) ? stringOf(part['String']['sval']) : ''))

const stringOf = (value: Json | undefined): string => (typeof value === 'string' ? value : '')

function readTree(tree: Json, at: Place): Lookup[] {
  if (Array.isArray(tree)) return tree.flatMap((one: Json) => readTree(one, at))
  if (!isFields(tree)) return []
  return Object.entries(tree).flatMap(([key, value]) => {
    if (key === 'ColumnDef') return []
    const own = isFields(value) ? (READERS[key]?.(value, at) ?? []) : []
    return [...own, ...readTree(value, at)]
  })
}

const near = ({ text }: Place, { location }: Fields): string => {
  const start = typeof location === 'number' ? Buffer.from(text).subarray(0, location).toString().length : 0
  return text.slice(start, start + 60).replaceAll(/\s+/g, ' ')
}

const report = (kind: Lookup['kind'], found: string, at: Place, fields: Fields): readonly Lookup[] => [
  { kind, found, near: near(at, fields) },
]

/** Without a schema, or in one where others may create. */
const isOpen = (name: readonly string[]): boolean => name.length > 0 && (name.length < 2 || name[0] !== 'pg_catalog')

const HIDDEN: Readonly<Record<string, string>> = {
  AEXPR_DISTINCT: 'IS DISTINCT FROM',
  AEXPR_NOT_DISTINCT: 'IS DISTINCT FROM',
  AEXPR_NULLIF: 'NULLIF',
  AEXPR_IN: 'IN (list)',
  AEXPR_LIKE: 'LIKE',
  AEXPR_ILIKE: 'ILIKE',
  AEXPR_SIMILAR: 'SIMILAR TO',
  AEXPR_BETWEEN: 'BETWEEN',
  AEXPR_NOT_BETWEEN: 'BETWEEN',
  AEXPR_BETWEEN_SYM: 'BETWEEN',
  AEXPR_NOT_BETWEEN_SYM: 'BETWEEN',
}

const READERS: Readonly<Record<string, Read>> = {
  A_Const: (fields, at) => {
    const isEscape = isFields(fields['sval']) && stringOf(fields['sval']['sval']).includes('\\')
    return isEscape && near(at, fields).startsWith("'") ? report('construct', 'backslash without E', at, fields) : []
  },
  A_Expr: (fields, at) => {
    const hidden = HIDDEN[stringOf(fields['kind'])]
    if (hidden !== undefined) return report('construct', hidden, at, fields)
    const name = nameOf(fields['name'])
    return isOpen(name) ? report('operator', name.join('.'), at, fields) : []
  },
  SubLink: (fields, at) => {
    if (fields['testexpr'] === undefined) return []
    const name = nameOf(fields['operName'])
    if (name.length === 0) return report('construct', 'IN (query)', at, fields)
    return isOpen(name) ? report('operator', name.join('.'), at, fields) : []
  },
  FuncCall: (fields, at) => {
    const name = nameOf(fields['funcname'])
    const isExpanded = name.join('.') === 'unnest' && listOf(fields['args']).length > 1
    // As with the tables that it is called for, `search_path` decides which library is meant.
    const isLibrary = /^unique_text_\w+_v\d+$/.test(name.at(-1) ?? '')
    const open = isOpen(name) && !isExpanded && !isLibrary ? report('function', name.join('.'), at, fields) : []
    return name.at(-1) === 'format' ? [...open, ...readFormat(fields['args'])] : open
  },
  TypeName: (fields, at) => readType(fields, at),
  returnType: (fields, at) => (nameOf(fields['names']).join('.') === 'trigger' ? [] : readType(fields, at)),
  typeName: (fields, at) => readType(fields, at),
  RangeVar: (fields, at) => readRelation(fields, at),
  relation: (fields, at) => readRelation(fields, at),
  CollateClause: (fields, at) => readCollation(fields['collname'], at, fields),
  IndexElem: (fields, at) => readCollation(fields['collation'], at, fields),
  CaseExpr: (fields, at) => (fields['arg'] === undefined ? [] : report('construct', 'CASE value WHEN', at, fields)),
  JoinExpr: (fields, at) => {
    if (fields['isNatural'] === true) return report('construct', 'NATURAL JOIN', at, fields)
    return fields['usingClause'] === undefined ? [] : report('construct', 'USING (columns)', at, fields)
  },
  SortBy: (fields, at) => (isOpen(nameOf(fields['useOp'])) ? report('construct', 'ORDER BY USING', at, fields) : []),
  DoStmt: ({ args }) => readBody(stringOption(args, 'as'), 'void'),
  CreateFunctionStmt: ({ options, returnType, parameters }) => {
    const body = stringOption(options, 'as')
    // Such a function finds only what pg_catalog has, whoever calls it.
    if (isPinned(options)) return []
    if (stringOption(options, 'language').toLowerCase() !== 'plpgsql') return readAny(body)
    const isTrigger = isFields(returnType) && nameOf(returnType['names']).at(-1) === 'trigger'
    return readBody(body, isTrigger ? 'trigger' : 'void', listOf(parameters))
  },
}

function readType(fields: Fields, at: Place): readonly Lookup[] {
  const name = nameOf(fields['names'])
  return name.length === 1 && fields['pct_type'] !== true ? report('type', name.join('.'), at, fields) : []
}

const readRelation = (fields: Fields, at: Place): readonly Lookup[] =>
  fields['schemaname'] === undefined && stringOf(fields['relname']).startsWith('pg_')
    ? report('relation', stringOf(fields['relname']), at, fields)
    : []

const readCollation = (name: Json | undefined, at: Place, fields: Fields): readonly Lookup[] =>
  isOpen(nameOf(name)) ? report('collation', nameOf(name).join('.'), at, fields) : []

/** Whether a function has `SET search_path = pg_catalog, pg_temp`. */
const isPinned = (options: Json | undefined): boolean =>
  listOf(options).some((option) => {
    const { DefElem: element } = option as Fields
    if (!isFields(element) || element['defname'] !== 'set' || !isFields(element['arg'])) return false
    const { VariableSetStmt: set } = element['arg']
    return (
      isFields(set) && set['name'] === 'search_path' && stringsOf(set['args'] ?? null).join() === 'pg_catalog,pg_temp'
    )
  })

/** The text of an option of CREATE FUNCTION or DO. */
function stringOption(options: Json | undefined, name: string): string {
  for (const option of listOf(options)) {
    const { DefElem: element } = option as Fields
    if (!isFields(element) || element['defname'] !== name) continue
    const arg = element['arg'] as Fields
    const first = isFields(arg['List']) ? listOf(arg['List']['items'])[0] : arg
    return nameOf([first ?? null])[0] ?? ''
  }
  return name === 'language' ? 'plpgsql' : ''
}

/** A body is parsed as that of a function which returns so; a query of it in its own words. */
function readBody(body: string, returns: string, parameters: readonly Json[] = []): Lookup[] {
  let tag = 'body'
  while (body.includes(`$${tag}$`)) tag += '_'
  const names = parameters.map((one) => stringOf(((one as Fields)['FunctionParameter'] as Fields)['name']))
  const given = names.map((name) => `"${name}" pg_catalog.text`).join(', ')
  // The parser has no catalog: it takes a qualified record for a scalar, and its JSON is then broken for some loops.
  const parsed = body.replaceAll(/pg_catalog\.record(?!\w)/g, 'record')
  const create = `CREATE FUNCTION lint(${given}) RETURNS ${returns} LANGUAGE plpgsql AS $${tag}$${parsed}$${tag}$`
  let tree: Json
  try {
    tree = parsePlPgSQLSync(create) as unknown as Json
  } catch (error) {
    throw new Error(`no PL/pgSQL: ${body.slice(0, 2000)}`, { cause: error })
  }
  // The parser keeps no name of this type, which is looked up as any other.
  // A body inside of this one is read by itself.
  const own = body.replaceAll(/\$(\w+)\$[^]*?\$\1\$/g, "''")
  const records = /(?<![.\w"])record(?=\s*(?:;|:=|\bNOT\b))/i.test(own)
    ? report('type', 'record', { text: body }, {})
    : []
  return [...records, ...readPlpgsql(tree, false)]
}

/** @param executes strings of expressions are SQL that EXECUTE runs */
function readPlpgsql(tree: Json, executes: boolean): Lookup[] {
  if (Array.isArray(tree)) return tree.flatMap((one: Json) => readPlpgsql(one, executes))
  if (!isFields(tree)) return []
  return Object.entries(tree).flatMap(([key, value]) => {
    if (!isFields(value)) return readPlpgsql(value, executes)
    if (key === 'PLpgSQL_expr') return readExpression(stringOf(value['query']), Number(value['parseMode']), executes)
    if (key === 'PLpgSQL_type') return readDeclared(stringOf(value['typname']).trim())
    if (key === 'PLpgSQL_stmt_case') {
      const { t_expr: of, ...others } = value
      const at = { text: 'CASE' }
      const own = of === undefined ? [] : report('construct', 'CASE value WHEN', at, {})
      return [...own, ...readPlpgsql(of === undefined ? others : [of], executes)]
    }
    const isExecute = /^PLpgSQL_stmt_dyn(?:execute|fors)$/.test(key)
    if (!isExecute) return readPlpgsql(value, executes)
    const { query = null, ...others } = value
    return [...readPlpgsql(query, true), ...readPlpgsql(others, false)]
  })
}

/** By what PL/pgSQL parses it as: a statement, an expression, or an assignment. */
function readExpression(query: string, mode: number, executes: boolean): Lookup[] {
  if (mode === 0) return readAny(query)
  const sql = `SELECT ${mode === 2 ? query : query.replace(/^[^=]*?:?=/, '')}`
  const tree = parsed(sql)
  const found = readTree(tree, { text: sql })
  return executes ? [...found, ...stringsOf(tree).flatMap((one) => readExecuted(one))] : found
}

/** The types of DECLARE: those that the grammar binds to pg_catalog, and rows of tables, are found nowhere else. */
function readDeclared(type: string): Lookup[] {
  if (/%(?:ROW)?TYPE/i.test(type)) return []
  return readAny(`SELECT NULL::${type}`).map((one) => ({ ...one, near: `DECLARE ${type}` }))
}

/** The strings of an expression that are its result or are put together to it; not those in arrays, casts and calls. */
function stringsOf(tree: Json): string[] {
  if (Array.isArray(tree)) return tree.flatMap((one: Json) => stringsOf(one))
  if (!isFields(tree)) return []
  return Object.entries(tree).flatMap(([key, value]) => {
    if (['A_ArrayExpr', 'TypeCast', 'FuncCall', 'whereClause', 'fromClause'].includes(key)) return []
    if (key === 'A_Const' && isFields(value) && isFields(value['sval'])) return [stringOf(value['sval']['sval'])]
    return stringsOf(value)
  })
}

const PLACEHOLDER = /%(?:(\d+)\$)?-?\d*([sILs%])/g

/** SQL with names where `format` puts them. */
const filled = (sql: string): string =>
  sql.replaceAll(PLACEHOLDER, (_, __, kind) => ({ L: `'x'`, '%': '%' })[kind as string] ?? 'x')

/** A statement, or a part of one; whatever else EXECUTE runs is put together of such. */
function readExecuted(sql: string): Lookup[] {
  const text = filled(sql)
  for (const whole of [text, `SELECT ${text}`, `SELECT FROM x WHERE ${text}`, `SELECT FROM x ${text}`, `${text} x`]) {
    try {
      parseSync(whole)
    } catch {
      continue
    }
    return readAny(whole)
  }
  return /[=<>|+]|::/.test(text.replaceAll(/OPERATOR\(pg_catalog\.[^)]+\)|::pg_catalog\./g, ''))
    ? [{ kind: 'construct', found: 'EXECUTE of a part that is no SQL', near: sql.slice(0, 200) }]
    : []
}

/** What `format` is given, if it is SQL: messages are none. */
function readFormat(args: Json | undefined): Lookup[] {
  const [first] = listOf(args)
  const text = first === undefined ? undefined : stringsOf(first)[0]
  if (text === undefined || !/%(?:\d+\$)?[IsL]/.test(text) || !/\b[A-Z]{4,}\b.*|::|[=<>|]/.test(text)) return []
  try {
    return readExecuted(text).filter(({ kind }) => kind !== 'construct' || !text.includes(' the '))
  } catch {
    return []
  }
}
