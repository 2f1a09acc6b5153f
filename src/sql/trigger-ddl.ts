import { dollarQuote, list, literal, qualified, quote } from './identifier'
import { SQLSTATE } from './sqlstate'

/** A table; without a schema `search_path` decides. */
export interface RelationName {
  readonly schema: string | undefined
  readonly name: string
}

/** A function that triggers run, and the schema it stands in; undefined: `search_path` decides. */
export interface FunctionSource {
  readonly schema: string | undefined
  readonly name: string
  readonly body: string
  /** A table of another schema whose name it finds too, before those of the schema that its own table is in. */
  readonly path?: RelationName | undefined
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

/** A function, and the table whose owner it is to run as; as SQL. */
export interface OwnedFunction extends FunctionSource {
  readonly relation: string
}

/** What is made of functions at once. */
interface MadeFunctions {
  /** Those that do not stand yet. */
  readonly fresh?: readonly OwnedFunction[]
  /** Those that stand, and belong to the table's owner; their triggers stay. */
  readonly replaced?: readonly OwnedFunction[]
  /** Those that all tables of an owner share, whether or not they stand. */
  readonly kernel?: readonly OwnedFunction[]
  /** Tables that are to get triggers of functions which all tables of an owner share. */
  readonly shares?: readonly SharedFunction[]
}

/** A function that all tables of an owner share, and a table that is to run it; as SQL. */
export interface SharedFunction {
  readonly relation: string
  readonly source: Pick<FunctionSource, 'schema' | 'name'>
}

/**
 * Makes functions and secures them, as one string: the server runs it as one transaction, also where a migration has
 * none. So nobody puts a function on a table before it is secured, and none runs as an owner on a path of others.
 *
 * A fresh one is dropped, not replaced: CREATE OR REPLACE would keep its owner and what the owner granted, and that role
 * could put a body of its own into it.
 */
export function makeFunctions({ fresh = [], replaced = [], kernel = [], shares = [] }: MadeFunctions): string[] {
  const made = [...kernel, ...fresh, ...replaced]
  if (made.length === 0 && shares.length === 0) return []
  const statements = [
    ...(fresh.length === 0 ? [] : [dropFunctions(fresh)]),
    ...fresh.map((one) => createFunction('CREATE FUNCTION', one)),
    ...[...replaced, ...kernel].map((one) => createFunction('CREATE OR REPLACE FUNCTION', one)),
    `DO ${dollarQuote(`
DECLARE
  command pg_catalog.text;${shares.length === 0 ? '' : '\n  other pg_catalog.regclass;\n  shared pg_catalog.regprocedure;'}
BEGIN${kernel.length === 0 ? '' : REFUSE_OTHER_ENCODINGS}${made.length === 0 ? '' : secureFunctions(made)}${
      shares.length === 0 ? '' : refuseOtherOwners(shares)
    }
END
`)}`,
  ]
  return [statements.join(';\n')]
}

const called = ({ schema, name }: Pick<FunctionSource, 'schema' | 'name'>): string => `${qualified(schema, name)}()`

/** Runs as its caller until it is secured. */
const createFunction = (create: string, source: FunctionSource): string =>
  `${create} ${called(source)} RETURNS trigger LANGUAGE plpgsql AS ${dollarQuote(source.body)}`

const REFUSE_OTHER_ENCODINGS = `
  IF pg_catalog.current_setting('server_encoding') OPERATOR(pg_catalog.<>) 'UTF8' THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'the encoding of the database must be UTF8: md5() sees bytes';
  END IF;`

/**
 * They run as the table's owner, because a role that may only INSERT could not read a chain, and row security would hide
 * it. So nobody else may own them or put them on a table, whatever default privileges have granted, and names resolve in
 * a fixed path. Owner and schema are those of the database that a migration runs on. A function that a role made before
 * can be a member of its extension, whose DROP would remove our triggers: CREATE OR REPLACE keeps that.
 *
 * @see https://www.postgresql.org/docs/current/sql-createfunction.html#SQL-CREATEFUNCTION-SECURITY
 */
function secureFunctions(functions: readonly OwnedFunction[]): string {
  const settings = Object.entries(SETTINGS).map(([name, value]) => `SET ${name} TO ${value}`)
  const hasPath = functions.some(({ path }) => path)
  const rows = functions.map((one) => {
    const path = one.path ? [literal(qualified(one.path.schema, one.path.name))] : hasPath ? ['NULL'] : []
    return `(${[literal(called(one)), literal(one.relation), ...path].join(', ')})`
  })
  const home = (table: string): string => `${table}.relnamespace::pg_catalog.regnamespace`
  return `
  SELECT pg_catalog.string_agg(pg_catalog.format('%5$s REVOKE ALL ON FUNCTION %1$s FROM %2$s CASCADE;
      ALTER FUNCTION %1$s OWNER TO %3$s; ALTER FUNCTION %1$s SECURITY DEFINER
      ${settings.join(' ')} SET search_path TO pg_catalog, %4$s, pg_temp',
      f.oid::pg_catalog.regprocedure, pg_catalog.concat_ws(', ', 'PUBLIC', (
        SELECT pg_catalog.string_agg(a.grantee::pg_catalog.regrole::pg_catalog.text, ', ')
        FROM pg_catalog.aclexplode(f.proacl) AS a
        WHERE a.grantee OPERATOR(pg_catalog.<>) ALL (ARRAY[0::pg_catalog.oid, f.proowner]))),
      t.relowner::pg_catalog.regrole, ${hasPath ? `pg_catalog.concat_ws(', ', ${home('h')}, ${home('t')})` : home('t')}, (
        SELECT pg_catalog.string_agg(pg_catalog.format('ALTER EXTENSION %I DROP FUNCTION %s;',
          e.extname, f.oid::pg_catalog.regprocedure), ' ')
        FROM pg_catalog.pg_depend AS d JOIN pg_catalog.pg_extension AS e ON e.oid OPERATOR(pg_catalog.=) d.refobjid
        WHERE d.classid OPERATOR(pg_catalog.=) f.tableoid AND d.objid OPERATOR(pg_catalog.=) f.oid
          AND d.refclassid OPERATOR(pg_catalog.=) e.tableoid AND d.deptype OPERATOR(pg_catalog.=) 'e')), '; ')
    INTO command
    FROM (VALUES
      ${rows.join(',\n      ')}) AS v (f, t${hasPath ? ', h' : ''})
    JOIN pg_catalog.pg_proc AS f ON f.oid OPERATOR(pg_catalog.=) v.f::pg_catalog.regprocedure
    JOIN pg_catalog.pg_class AS t ON t.oid OPERATOR(pg_catalog.=) v.t::pg_catalog.regclass${
      hasPath ? '\n    LEFT JOIN pg_catalog.pg_class AS h ON h.oid OPERATOR(pg_catalog.=) v.h::pg_catalog.regclass' : ''
    };
  EXECUTE command;`
}

/**
 * Refuses tables that run a shared function, or are to, and do not belong to its owner: a trigger that the table's owner
 * makes runs in the UPDATEs of that function, as the function's owner.
 */
function refuseOtherOwners(shares: readonly SharedFunction[]): string {
  const functions = new Map<string, string[]>()
  for (const { source, relation } of shares) {
    functions.set(called(source), [...(functions.get(called(source)) ?? []), literal(relation)])
  }
  // Functions that the same tables share are asked for together.
  const groups = new Map<string, string[]>()
  for (const [name, tables] of functions) {
    const all = list([...new Set(tables)], 10)
    groups.set(all, [...(groups.get(all) ?? []), literal(name)])
  }
  return [...groups].map(([tables, names]) => refuseOwners(names, tables)).join('')
}

const refuseOwners = (functions: readonly string[], tables: string): string => `
  SELECT c.oid, f.oid INTO other, shared
    FROM pg_catalog.pg_proc AS f JOIN pg_catalog.pg_class AS c ON c.relowner OPERATOR(pg_catalog.<>) f.proowner
      AND (c.oid OPERATOR(pg_catalog.=) ANY (ARRAY[
          ${tables}
        ]::pg_catalog.regclass[])
        OR EXISTS (SELECT FROM pg_catalog.pg_trigger AS g
          WHERE g.tgrelid OPERATOR(pg_catalog.=) c.oid AND g.tgfoid OPERATOR(pg_catalog.=) f.oid))
    WHERE f.oid OPERATOR(pg_catalog.=) ANY (ARRAY[
        ${list(functions, 8)}
      ]::pg_catalog.regprocedure[])
    ORDER BY f.oid, c.oid LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}', MESSAGE = pg_catalog.format(
        'table %s and function %s, which its triggers would run, have different owners', other, shared),
      HINT = 'Give them one owner, or put one of them into another schema.';
  END IF;`

/** Drops a shared function that no table uses any more. */
export const dropKernel = (source: Pick<FunctionSource, 'schema' | 'name'>): string => {
  const name = called(source)
  return `DO ${dollarQuote(`
BEGIN
  IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS g
    WHERE g.tgfoid OPERATOR(pg_catalog.=) pg_catalog.to_regprocedure(${literal(name)})) THEN
    DROP FUNCTION IF EXISTS ${name};
  END IF;
END
`)}`
}

export const dropTrigger = (table: string, name: string): string => `DROP TRIGGER IF EXISTS ${quote(name)} ON ${table}`

export const dropFunctions = (functions: readonly Pick<FunctionSource, 'schema' | 'name'>[]): string =>
  `DROP FUNCTION IF EXISTS ${functions.map(called).join(', ')}`

export const renameFunction = ({ schema, name }: Pick<FunctionSource, 'schema' | 'name'>, to: string): string =>
  `ALTER FUNCTION ${called({ schema, name })} RENAME TO ${quote(to)}`
