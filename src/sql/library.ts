import { TEXTS_SQL } from '../library/texts'
import { dollarQuote, list, literal, qualified, quote } from './identifier'
import { tableName, type TextTable } from './text-table'

/** The functions of the library. */
const [ATTACH, DETACH, REPORT] = ['unique_text_attach_v1', 'unique_text_detach_v1', 'unique_text_report_v1'] as const

const SIGNATURES = [
  `${ATTACH}(pg_catalog.regclass, pg_catalog.jsonb)`,
  `${DETACH}(pg_catalog.regclass, pg_catalog.text)`,
  `${REPORT}()`,
] as const

/** The functions of the library with their arguments, as SQL. */
export const libraryFunctions = (schema: string | undefined): string[] =>
  SIGNATURES.map((one) => `${schema === undefined ? '' : `${quote(schema)}.`}${one}`)

/** The statements of the library, in one string. maintainers/protocol.md describes the protocol that it keeps. */
export const createLibrary = (schema: string | undefined): string =>
  schema === undefined ? TEXTS_SQL : TEXTS_SQL.replaceAll('FUNCTION "', () => `FUNCTION ${quote(schema)}."`)

export const dropLibrary = (schema: string | undefined): string => `DROP FUNCTION ${list(libraryFunctions(schema), 2)}`

/** Creates the library unless it exists. */
export const ensureLibrary = (schema: string | undefined): string =>
  `DO ${dollarQuote(`
BEGIN
  IF pg_catalog.to_regprocedure(${literal(libraryFunctions(schema)[0] ?? '')}) IS NULL THEN
    EXECUTE ${dollarQuote(createLibrary(schema))};
  END IF;
END
`)}`

type TableName = Pick<TextTable, 'schema' | 'table'>

/** Calls a function of the library. The arguments have types, so that no other function of the name is called. */
const call = (schema: string | undefined, name: string, ...args: readonly string[]): string =>
  `${qualified(schema, name)}(${args.join(', ')})`

type Declared = Readonly<Record<string, unknown>>

const attachTo = (schema: string | undefined, relation: string, declaration: Declared): string =>
  call(
    schema,
    ATTACH,
    `${literal(relation)}::pg_catalog.regclass`,
    `${literal(JSON.stringify(declaration))}::pg_catalog.jsonb`,
  )

/** Makes the guard of a text. */
export const attach = (table: TableName, declaration: Declared): string =>
  `SELECT ${attachTo(table.schema, tableName(table), declaration)}`

/** Drops the guard of a text. */
export const detach = (table: TableName, name: string): string =>
  `SELECT ${call(table.schema, DETACH, `${literal(tableName(table))}::pg_catalog.regclass`, `${literal(name)}::pg_catalog.text`)}`

/** Whether a statement calls the library. */
export const usesLibrary = (statement: string): boolean =>
  statement.startsWith('SELECT ') && [ATTACH, DETACH].some((name) => statement.includes(`"${name}"(`))

/** Makes the library in the schema of temporary tables, and the guard of such a table there. */
export const temporary = {
  library: (): string => createLibrary(TEMPORARY).trimEnd().slice(0, -1),
  guard: (table: string, declaration: Declared): string => `PERFORM ${attachTo(TEMPORARY, table, declaration)}`,
}

const TEMPORARY = 'pg_temp'
