import { ATTACH_SQL } from '../library/attach'
import { NAMES_SQL } from '../library/names'
import { NUMBERS_SQL } from '../library/numbers'
import { REFUSALS_SQL } from '../library/refusals'
import { REPORT_SQL } from '../library/report'
import { ROWS_SQL } from '../library/rows'
import { TEXTS_SQL } from '../library/texts'
import { URLS_SQL } from '../library/urls'
import { dollarQuote, list, literal, qualified, quote } from './identifier'
import { EQUALS, type TableName, tableName } from './text-table'

/** The parts of the library. Each has the functions that it creates, with their arguments. */
const PARTS: Readonly<
  Record<
    'report' | 'attach' | 'texts' | 'refusals' | 'rows' | 'names' | 'numbers' | 'urls',
    { readonly sql: string; readonly functions: readonly string[] }
  >
> = {
  report: { sql: REPORT_SQL, functions: ['unique_text_report_v1()'] },
  attach: {
    sql: ATTACH_SQL,
    functions: [
      'unique_text_create_v1(pg_catalog.regclass, pg_catalog.jsonb)',
      'unique_text_drop_v1(pg_catalog.regclass, pg_catalog.text, pg_catalog.text)',
      'unique_text_clean_v1(pg_catalog.regclass, pg_catalog.jsonb)',
    ],
  },
  texts: {
    sql: TEXTS_SQL,
    functions: [
      'unique_text_chain_code_v1()',
      'unique_text_code_v1(pg_catalog.regclass, pg_catalog.jsonb, pg_catalog.text)',
      'unique_text_attach_v1(pg_catalog.regclass, pg_catalog.jsonb)',
      'unique_text_detach_v1(pg_catalog.regclass, pg_catalog.text)',
    ],
  },
  refusals: {
    sql: REFUSALS_SQL,
    functions: [
      'unique_text_refuse_v1(pg_catalog.regclass, pg_catalog.jsonb)',
      'unique_text_refuse_rows_v1(pg_catalog.regclass, pg_catalog.text, pg_catalog.text, pg_catalog.text)',
      'unique_text_refuse_shards_v1(pg_catalog.regclass, pg_catalog.jsonb)',
      'unique_text_refuse_large_v1(pg_catalog.regclass, pg_catalog.text, pg_catalog.text)',
    ],
  },
  rows: {
    sql: ROWS_SQL,
    functions: [
      'unique_text_number_rows_v1(pg_catalog.regclass, pg_catalog.jsonb, pg_catalog.text)',
      'unique_text_fill_v1(pg_catalog.regclass, pg_catalog.jsonb)',
    ],
  },
  names: {
    sql: NAMES_SQL,
    functions: [
      'unique_text_name_code_v1(pg_catalog.regclass, pg_catalog.jsonb)',
      'unique_text_name_once_v1(pg_catalog.regclass, pg_catalog.jsonb)',
      'unique_text_attach_name_v1(pg_catalog.regclass, pg_catalog.jsonb)',
      'unique_text_name_release_v1(pg_catalog.regclass, pg_catalog.jsonb, pg_catalog.regclass)',
      'unique_text_detach_name_v1(pg_catalog.regclass, pg_catalog.text, pg_catalog.regclass)',
    ],
  },
  numbers: {
    sql: NUMBERS_SQL,
    functions: [
      'unique_text_number_code_v1(pg_catalog.regclass, pg_catalog.jsonb)',
      'unique_text_number_scopes_v1(pg_catalog.regclass, pg_catalog.jsonb)',
      'unique_text_attach_number_v1(pg_catalog.regclass, pg_catalog.jsonb)',
      'unique_text_number_drop_scopes_v1(pg_catalog.regclass, pg_catalog.jsonb, pg_catalog.text)',
      'unique_text_detach_number_v1(pg_catalog.regclass, pg_catalog.text, pg_catalog.text)',
      'unique_text_fill_number_v1(pg_catalog.regclass, pg_catalog.jsonb, pg_catalog.bool)',
    ],
  },
  urls: {
    sql: URLS_SQL,
    functions: [
      'unique_text_is_url_v1(pg_catalog.text, pg_catalog.text, pg_catalog.int4,\n  pg_catalog.text, pg_catalog.text, pg_catalog.text)',
    ],
  },
}

export type LibraryPart = keyof typeof PARTS

const inSchema = (schema: string | undefined, one: string): string =>
  schema === undefined ? one : `${quote(schema)}.${one}`

/** All functions of the library with their arguments, as SQL. */
export const LIBRARY_FUNCTIONS: readonly string[] = Object.values(PARTS).flatMap(({ functions }) => functions)

/** The statements of all parts. */
export const LIBRARY_SQL: string = Object.values(PARTS)
  .map(({ sql }) => sql)
  .join('\n')

/** A function by which a part is found. */
export const firstFunction = (part: LibraryPart): string => PARTS[part].functions[0] ?? ''

/** The statements of a part, in one string. maintainers/protocol.md describes the protocol that it keeps. */
export const createPart = (schema: string | undefined, part: LibraryPart): string =>
  schema === undefined
    ? PARTS[part].sql
    : PARTS[part].sql.replaceAll('"unique_text_', () => `${quote(schema)}."unique_text_`)

export const dropPart = (schema: string | undefined, part: LibraryPart): string =>
  `DROP FUNCTION ${list(
    PARTS[part].functions.map((one) => inSchema(schema, one)),
    2,
  )}`

/** Creates a part, and the report, unless they exist. Refuses those of a role that may not act as the current one. */
export function ensureLibrary(schema: string | undefined, part: LibraryPart): string {
  const parts = neededFor([part])
  return `DO ${dollarQuote(`
DECLARE
  others pg_catalog.regprocedure;
BEGIN${parts
    .map(
      (one) => `
  IF pg_catalog.to_regprocedure(${literal(inSchema(schema, firstFunction(one)))}) IS NULL THEN
    EXECUTE ${dollarQuote(createPart(schema, one))};
  END IF;`,
    )
    .join('')}
  SELECT p.oid INTO others FROM pg_catalog.pg_proc AS p WHERE p.oid ${EQUALS} ANY (ARRAY[
      ${list(
        parts.flatMap((one) => PARTS[one].functions.map((name) => literal(inSchema(schema, name)))),
        6,
      )}
    ]::pg_catalog.regprocedure[]) AND NOT pg_catalog.pg_has_role(p.proowner, current_user, 'MEMBER') LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = pg_catalog.format('function %s belongs to another role', others),
      HINT = 'See who made it and what it does; then drop it.';
  END IF;
END
`)}`
}

/** The parts that these need, in the order of their creation. */
export function neededFor(parts: readonly LibraryPart[]): LibraryPart[] {
  const needed = new Set(parts)
  if (needed.has('rows')) needed.add('texts').add('refusals')
  if (Object.values(CALLS).some(({ part }) => needed.has(part))) needed.add('attach')
  if (needed.size > 0) needed.add('report')
  return (Object.keys(PARTS) as LibraryPart[]).filter((one) => needed.has(one))
}

/** Calls a function of the library. The arguments have types, so that no other function of the name is called. */
const call = (schema: string | undefined, name: string, ...args: readonly string[]): string =>
  `${qualified(schema, name)}(${args.join(', ')})`

/** What a declaration is of. */
export type AttachedKind = 'text' | 'name' | 'number'

/** The functions of each kind. */
const CALLS: Readonly<
  Record<AttachedKind, { readonly part: LibraryPart; readonly attach: string; readonly detach: string }>
> = {
  text: { part: 'texts', attach: 'unique_text_attach_v1', detach: 'unique_text_detach_v1' },
  name: { part: 'names', attach: 'unique_text_attach_name_v1', detach: 'unique_text_detach_name_v1' },
  number: { part: 'numbers', attach: 'unique_text_attach_number_v1', detach: 'unique_text_detach_number_v1' },
}

export const partOf = (kind: AttachedKind): LibraryPart => CALLS[kind].part

const asTable = (relation: string): string => `${literal(relation)}::pg_catalog.regclass`

const asText = (text: string): string => `${literal(text)}::pg_catalog.text`

const asDeclaration = (declaration: object): string => `${literal(JSON.stringify(declaration))}::pg_catalog.jsonb`

const attachTo = (schema: string | undefined, relation: string, kind: AttachedKind, declaration: object): string =>
  call(schema, CALLS[kind].attach, asTable(relation), asDeclaration(declaration))

/** Makes the triggers of a declaration, or replaces them. */
export const attach = (table: TableName, kind: AttachedKind, declaration: object): string =>
  `SELECT ${attachTo(table.schema, tableName(table), kind, declaration)}`

/**
 * Drops the triggers of a declaration.
 *
 * @param keptAs the name that the table of scopes of a number gets. @default it is dropped
 */
export const detach = (
  table: TableName,
  { kind, name }: { readonly kind: AttachedKind; readonly name: string },
  keptAs?: string,
): string =>
  `SELECT ${call(
    table.schema,
    CALLS[kind].detach,
    asTable(tableName(table)),
    ...[name, ...(keptAs === undefined ? [] : [keptAs])].map(asText),
  )}`

/** Makes the functions and triggers of a plan, which src/library/attach.sql describes, or replaces them. */
export const createPlan = (table: TableName, plan: object): string =>
  `SELECT ${call(
    table.schema,
    'unique_text_create_v1',
    asTable(tableName(table)),
    `${dollarQuote(JSON.stringify(plan, undefined, 2))}::pg_catalog.jsonb`,
  )}`

/** Drops the triggers of a plan, and their functions. */
export const dropPlan = (table: TableName, kind: string, name: string): string => {
  const dropped = call(table.schema, 'unique_text_drop_v1', asTable(tableName(table)), asText(kind), asText(name))
  return `SELECT ${call(table.schema, 'unique_text_clean_v1', asTable(tableName(table)), dropped)}`
}

/** Numbers the rows of a table that have no number, or all of them anew. None of the triggers of the number exists. */
export const fillNumbers = (table: TableName, declaration: object, anew: boolean): string =>
  `SELECT ${call(
    table.schema,
    'unique_text_fill_number_v1',
    asTable(tableName(table)),
    asDeclaration(declaration),
    String(anew),
  )}`

/** Gives the rows of a table the hashes and numbers of a text. Neither its triggers nor its index and check exist. */
export const fillTexts = (table: TableName, declaration: object): string =>
  `SELECT ${call(table.schema, 'unique_text_fill_v1', asTable(tableName(table)), asDeclaration(declaration))}`

/** Calls a function that refuses rows of a table, or the table. */
export const refuse = (table: TableName, what: 'rows' | 'shards' | 'large', ...texts: readonly string[]): string =>
  `SELECT ${call(table.schema, `unique_text_refuse_${what}_v1`, asTable(tableName(table)), ...texts.map(asText))}`

const calledIn = (sql: string): LibraryPart | undefined =>
  (Object.keys(PARTS) as LibraryPart[]).find((part) =>
    PARTS[part].functions.some((one) => sql.includes(`"${one.replace(/\(.*/su, '')}"(`)),
  )

/**
 * Drops the triggers of names, and deletes the names of the rows if the table of names exists.
 *
 * @param names the table of names, as a declaration has it
 */
export const releaseNames = (table: TableName, names: string): string =>
  `SELECT ${call(
    table.schema,
    CALLS.name.detach,
    asTable(tableName(table)),
    asText('names'),
    `pg_catalog.to_regclass(${literal(table.schema === undefined || names.includes('"."') ? names : `${quote(table.schema)}.${names}`)})`,
  )}`

/** The part of the library that a statement calls. */
export const partUsedBy = (statement: string): LibraryPart | undefined =>
  /^(?:--[^\n]*\n)?SELECT /.test(statement) ? calledIn(statement) : undefined

/** Whether a statement that calls the library does so for a table. */
export const isCalledFor = (table: TableName, statement: string): boolean =>
  statement.includes(`(${asTable(tableName(table))}`)

/** A check that calls the library. TypeORM writes its expression into CREATE TABLE and ALTER TABLE. */
export interface LibraryCheck {
  readonly part: LibraryPart
  /** The expression in a table of this schema. */
  readonly expression: string
}

/** Returns undefined for a check that does not call the library. */
export function libraryCheck(schema: string | undefined, expression: string): LibraryCheck | undefined {
  const call = expression.slice(Math.max(expression.indexOf('"unique_text_'), 0))
  const part = calledIn(call)
  return part && { part, expression: inSchema(schema, call) }
}

/** Makes the library in the schema of temporary tables, and the triggers of a declaration of such a table there. */
export const temporary = {
  library: (part: LibraryPart): string => createPart(TEMPORARY, part).trimEnd().slice(0, -1),
  attach: (table: string, kind: AttachedKind, declaration: object): string =>
    `PERFORM ${attachTo(TEMPORARY, table, kind, declaration)}`,
}

const TEMPORARY = 'pg_temp'
