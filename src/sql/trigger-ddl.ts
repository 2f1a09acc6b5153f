import { dollarQuote, literal, qualified, quote } from './identifier'
import { SQLSTATE } from './sqlstate'

/** A table; without a schema `search_path` decides. */
export interface Relation {
  readonly schema: string | undefined
  readonly name: string
}

/** A function that triggers run, and the schema it stands in; undefined: `search_path` decides. */
export interface FunctionSource {
  readonly schema: string | undefined
  readonly name: string
  readonly body: string
  /** A table of another schema whose name it finds too, before those of the schema that its own table is in. */
  readonly path?: Relation | undefined
}

/**
 * Settings that every function runs under.
 *
 * - `enable_seqscan`: plans are cached while the table is tiny; a bulk insert would go on with sequential scans.
 * - `row_security`: a policy that would hide a chain, by FORCE or from another owner, is an error 42501, not a gap.
 * - `search_path` ends with `pg_temp`: nobody can put a temporary object in the way of the owner. It holds the table's
 *   schema for triggers of the user's that our UPDATEs run: ours name the schema of whatever an attacker could make.
 */
const SETTINGS = { enable_seqscan: 'off', row_security: 'off' } as const

/** What `pg_proc.proconfig` must hold, without its quotes, for functions that find names in these schemas. */
export const functionSettings = (homes: readonly string[]): string[] => [
  ...Object.entries(SETTINGS).map(([name, value]) => `${name}=${value}`),
  `search_path=${['pg_catalog', ...homes, 'pg_temp'].join(', ').replaceAll('"', '')}`,
]

/**
 * Makes functions that do not stand yet, for a table named as SQL. A function of that name is dropped, not replaced:
 * CREATE OR REPLACE would keep its owner and what the owner granted, and that role could put a body of its own into it.
 */
export function createFunctions(relation: string, functions: readonly FunctionSource[]): string[] {
  if (functions.length === 0) return []
  return [
    dropFunctions(functions),
    ...functions.map((one) => createFunction('CREATE FUNCTION', one)),
    secureFunctions(relation, functions),
  ]
}

/** Gives functions that stand, and belong to the table's owner, what they should hold; their triggers stay. */
export function replaceFunctions(relation: string, functions: readonly FunctionSource[]): string[] {
  if (functions.length === 0) return []
  return [
    ...functions.map((one) => createFunction('CREATE OR REPLACE FUNCTION', one)),
    secureFunctions(relation, functions),
  ]
}

/** Runs as its caller until it is secured: never as the table's owner on a path that somebody else can set. */
const createFunction = (create: string, { schema, name, body }: FunctionSource): string =>
  `${create} ${qualified(schema, name)}() RETURNS trigger LANGUAGE plpgsql AS ${dollarQuote(body)}`

/**
 * They run as the table's owner, because a role that may only INSERT could not read a chain, and row security would hide
 * it. So nobody else may own them or put them on a table, whatever default privileges have granted, and names resolve in
 * a fixed path. Owner and schema are those of the database that a migration runs on.
 *
 * @see https://www.postgresql.org/docs/current/sql-createfunction.html#SQL-CREATEFUNCTION-SECURITY
 */
function secureFunctions(relation: string, functions: readonly FunctionSource[]): string {
  const names = functions.map(({ schema, name }) => literal(`${qualified(schema, name)}()`)).join(', ')
  const settings = Object.entries(SETTINGS).map(([name, value]) => `SET ${name} TO ${value}`)
  const [first] = functions
  const path = first?.path ? literal(qualified(first.path.schema, first.path.name)) : undefined
  const home = (table: string): string => `${table}.relnamespace::pg_catalog.regnamespace`
  return `DO ${dollarQuote(`
BEGIN
  EXECUTE (SELECT pg_catalog.string_agg(pg_catalog.format('REVOKE ALL ON FUNCTION %1$s FROM %2$s CASCADE;
      ALTER FUNCTION %1$s OWNER TO %3$s; ALTER FUNCTION %1$s SECURITY DEFINER
      ${settings.join(' ')} SET search_path TO pg_catalog, %4$s, pg_temp',
      f.oid::pg_catalog.regprocedure, pg_catalog.concat_ws(', ', 'PUBLIC', (
        SELECT pg_catalog.string_agg(a.grantee::pg_catalog.regrole::pg_catalog.text, ', ')
        FROM pg_catalog.aclexplode(f.proacl) AS a
        WHERE a.grantee OPERATOR(pg_catalog.<>) ALL (ARRAY[0::pg_catalog.oid, f.proowner]))),
      t.relowner::pg_catalog.regrole, ${path ? `pg_catalog.concat_ws(', ', ${home('h')}, ${home('t')})` : home('t')}), '; ')
    FROM pg_catalog.pg_proc AS f, pg_catalog.pg_class AS t${path ? ', pg_catalog.pg_class AS h' : ''}
    WHERE f.oid OPERATOR(pg_catalog.=) ANY (ARRAY[${names}]::pg_catalog.regprocedure[])
      AND t.oid OPERATOR(pg_catalog.=) ${literal(relation)}::pg_catalog.regclass${
        path ? `\n      AND h.oid OPERATOR(pg_catalog.=) ${path}::pg_catalog.regclass` : ''
      });
END
`)}`
}

/**
 * Makes functions that all tables of an owner in this schema share, or gives them what they should hold: one statement
 * each, which locks no table. They run as that owner, so they cannot serve a table of another one.
 *
 * @param relation one of the tables, named as SQL
 */
export const createKernel = (relation: string, functions: readonly FunctionSource[]): string[] =>
  functions.map((one) =>
    [
      refuseKernel(relation, one),
      createFunction('CREATE OR REPLACE FUNCTION', one),
      secureFunctions(relation, [one]),
    ].join(';\n'),
  )

const refuseKernel = (relation: string, { schema, name }: FunctionSource): string =>
  `DO ${dollarQuote(`
DECLARE
  other pg_catalog.regclass;
BEGIN
  IF pg_catalog.current_setting('server_encoding') OPERATOR(pg_catalog.<>) 'UTF8' THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'the encoding of the database must be UTF8: md5() sees bytes';
  END IF;
  SELECT o.oid INTO other FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_class AS o ON o.relowner OPERATOR(pg_catalog.<>) c.relowner
    JOIN pg_catalog.pg_trigger AS g ON g.tgrelid OPERATOR(pg_catalog.=) o.oid
    WHERE c.oid OPERATOR(pg_catalog.=) ${literal(relation)}::pg_catalog.regclass
      AND g.tgfoid OPERATOR(pg_catalog.=) pg_catalog.to_regprocedure(${literal(`${qualified(schema, name)}()`)});${refuse(
        `'tables %s and %s have different owners, and the triggers of both would run one function as its owner',
        ${literal(relation)}, other`,
      )}
END
`)}`

const refuse = (format: string): string => `
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}', MESSAGE = pg_catalog.format(
        ${format}),
      HINT = 'Give them one owner, or put one of them into another schema.';
  END IF;`

/**
 * Refuses tables, named as SQL, that are to get triggers of a shared function and do not belong to its owner: a
 * trigger that the table's owner makes runs in the UPDATEs of that function, as the function's owner.
 */
export function requireOwner(relations: readonly string[], { schema, name }: FunctionSource): string[] {
  if (relations.length === 0) return []
  const body = `
DECLARE
  other pg_catalog.regclass;
BEGIN
  SELECT c.oid INTO other FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_proc AS f ON f.proowner OPERATOR(pg_catalog.<>) c.relowner
    WHERE f.oid OPERATOR(pg_catalog.=) ${literal(`${qualified(schema, name)}()`)}::pg_catalog.regprocedure
      AND c.oid OPERATOR(pg_catalog.=) ANY (ARRAY[${relations.map(literal).join(', ')}]::pg_catalog.regclass[]);${refuse(
        `'table %s and function %s, which its triggers would run, have different owners',
        other, ${literal(qualified(schema, name))}`,
      )}
END
`
  return [`DO ${dollarQuote(body)}`]
}

/** Drops a shared function that no table uses any more. */
export const dropKernel = ({ schema, name }: Pick<FunctionSource, 'schema' | 'name'>): string => {
  const called = `${qualified(schema, name)}()`
  return `DO ${dollarQuote(`
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS g
    WHERE g.tgfoid OPERATOR(pg_catalog.=) pg_catalog.to_regprocedure(${literal(called)})) THEN
    DROP FUNCTION IF EXISTS ${called};
  END IF;
END
`)}`
}

export const dropTrigger = (table: string, name: string): string => `DROP TRIGGER IF EXISTS ${quote(name)} ON ${table}`

export const dropFunctions = (functions: readonly Pick<FunctionSource, 'schema' | 'name'>[]): string =>
  `DROP FUNCTION IF EXISTS ${functions.map(({ schema, name }) => `${qualified(schema, name)}()`).join(', ')}`

export const renameFunction = ({ schema, name }: Pick<FunctionSource, 'schema' | 'name'>, to: string): string =>
  `ALTER FUNCTION ${qualified(schema, name)}() RENAME TO ${quote(to)}`
