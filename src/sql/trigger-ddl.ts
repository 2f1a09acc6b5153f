import { dollarQuote, literal, qualified, quote } from './identifier'

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

/** A setting that every function runs under, and why, as a comment in their source. */
interface Setting {
  readonly name: string
  readonly value: string
  readonly why: string
}

const SETTINGS: readonly Setting[] = [
  {
    name: 'enable_seqscan',
    value: 'off',
    why: 'Plans are cached while the table is tiny; a bulk insert would go on with sequential scans.',
  },
  {
    name: 'row_security',
    value: 'off',
    why: 'A policy that would hide a chain, by FORCE or from another owner, is an error 42501 in place of a gap.',
  },
]

/** What `pg_proc.proconfig` must hold, without its quotes, for functions that find names in these schemas. */
export const functionSettings = (homes: readonly string[]): string[] => [
  ...SETTINGS.map(({ name, value }) => `${name}=${value}`),
  `search_path=${['pg_catalog', ...homes, 'pg_temp'].join(', ').replaceAll('"', '')}`,
]

/**
 * Makes functions that do not stand yet, for a table named as SQL. A function of that name is dropped, not replaced:
 * CREATE OR REPLACE would keep its owner and what he granted, and he could put a body of his own into it.
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
 * They run as the table's owner, so names must resolve in a fixed path, with pg_temp last, and nobody else may own
 * them or put them on tables of his own. Owner and schema are those of the database that a migration runs on.
 *
 * @see https://www.postgresql.org/docs/current/sql-createfunction.html#SQL-CREATEFUNCTION-SECURITY
 */
function secureFunctions(relation: string, functions: readonly FunctionSource[]): string {
  const called = functions.map(({ schema, name }) => `    ${literal(`${qualified(schema, name)}()`)}`)
  const settings = SETTINGS.map(({ name, value, why }) => `        -- ${why}\n        SET ${name} TO ${value}`)
  return `DO ${dollarQuote(`
DECLARE
  made pg_catalog.regprocedure;
  home text;
  owner text;
BEGIN
  IF pg_catalog.current_setting('server_encoding') <> 'UTF8' THEN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'the encoding of the database must be UTF8: md5() sees bytes';
  END IF;
  SELECT relnamespace::pg_catalog.regnamespace, relowner::pg_catalog.regrole INTO STRICT home, owner
    FROM pg_catalog.pg_class WHERE oid = ${literal(relation)}::pg_catalog.regclass;
${pathOf(functions)}  FOREACH made IN ARRAY ARRAY[
${called.join(',\n')}
  ]::pg_catalog.regprocedure[] LOOP
    -- Nobody but the owner puts them on a table, whatever default privileges have granted.
    EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', made, (
      SELECT pg_catalog.concat_ws(', ', 'PUBLIC', pg_catalog.string_agg(a.grantee::pg_catalog.regrole::text, ', '))
        FROM pg_catalog.pg_proc AS p, pg_catalog.aclexplode(p.proacl) AS a
       WHERE p.oid = made AND a.grantee NOT IN (0, p.proowner)
    ));
    EXECUTE pg_catalog.format('ALTER FUNCTION %s OWNER TO %s', made, owner);
    EXECUTE pg_catalog.format('
      ALTER FUNCTION %s
        -- As the owner: a role that may only INSERT could not read the chain, and row security would hide it.
        SECURITY DEFINER
${settings.join('\n')}
        -- Temporary tables last, that nobody can put an object of his own in the way of the owner.
        SET search_path TO pg_catalog, %s, pg_temp', made, home);
  END LOOP;
END
`)}`
}

/** Where names are found before the table's schema; all functions of a set have one path. */
function pathOf([first]: readonly FunctionSource[]): string {
  if (!first?.path) return ''
  const path = literal(qualified(first.path.schema, first.path.name))
  return `  SELECT pg_catalog.concat(relnamespace::pg_catalog.regnamespace, ', ', home) INTO STRICT home
    FROM pg_catalog.pg_class WHERE oid = ${path}::pg_catalog.regclass;
`
}

export const dropTrigger = (table: string, name: string): string => `DROP TRIGGER IF EXISTS ${quote(name)} ON ${table}`

export const dropFunctions = (functions: readonly Pick<FunctionSource, 'schema' | 'name'>[]): string =>
  `DROP FUNCTION IF EXISTS ${functions.map(({ schema, name }) => `${qualified(schema, name)}()`).join(', ')}`

export const commentOnFunction = (
  { schema, name }: Pick<FunctionSource, 'schema' | 'name'>,
  comment: string | null,
): string => `COMMENT ON FUNCTION ${qualified(schema, name)}() IS\n${comment === null ? 'NULL' : literal(comment)}`

export const renameFunction = ({ schema, name }: Pick<FunctionSource, 'schema' | 'name'>, to: string): string =>
  `ALTER FUNCTION ${qualified(schema, name)}() RENAME TO ${quote(to)}`
