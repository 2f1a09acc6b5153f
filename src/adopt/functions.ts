import { dollarQuote, literal } from '../sql/identifier'
import { EQUALS, joinOf, op, tableName } from '../sql/text-table'
import { type AdoptedTable, objectOf } from './table'

/** The type of functions, including their arguments. */
const PROCEDURE = 'pg_catalog.regprocedure'

/**
 * Creates trigger functions that run as the table's owner, because a role with only INSERT could not write to the queue
 * or take a number. One string does it, which the server runs as one transaction, so no function is used before it is
 * secured. No other role may own the functions or use them on a table, whatever default privileges grant. If a role
 * created a function before, its extension may contain it. DROP EXTENSION would then drop our triggers.
 *
 * - `enable_seqscan`: plans are cached while the table is tiny, so a bulk insert would continue with sequential scans.
 * - `row_security`: a policy that would hide a chain, by FORCE or from another owner, raises 42501 and leaves no gap.
 * - `search_path` ends with `pg_temp`, so that no temporary object can hide another. It contains the table's schema for
 *   triggers of the user that our UPDATEs run.
 *
 * @param bodies the bodies by the ends of the functions' names
 * @see https://www.postgresql.org/docs/current/sql-createfunction.html#SQL-CREATEFUNCTION-SECURITY
 */
export function createFunctions(on: AdoptedTable, bodies: Readonly<Record<string, string>>): string {
  const functions = Object.entries(bodies).map(([suffix, body]) => ({ name: `${objectOf(on, suffix)}()`, body }))
  return [
    // CREATE OR REPLACE would keep the owner of a function, who could replace the body.
    `DROP FUNCTION IF EXISTS ${functions.map(({ name }) => name).join(', ')}`,
    ...functions.map(
      ({ name, body }) => `CREATE FUNCTION ${name} RETURNS trigger LANGUAGE plpgsql AS ${dollarQuote(body)}`,
    ),
    `DO ${dollarQuote(`
DECLARE
  command pg_catalog.text;
BEGIN
  SELECT pg_catalog.string_agg(pg_catalog.format('%5$s REVOKE ALL ON FUNCTION %1$s FROM %2$s CASCADE;
      ALTER FUNCTION %1$s OWNER TO %3$s; ALTER FUNCTION %1$s SECURITY DEFINER
      SET enable_seqscan TO off SET row_security TO off SET search_path TO pg_catalog, %4$s, pg_temp',
      f.oid::${PROCEDURE}, pg_catalog.concat_ws(', ', 'PUBLIC', (
        SELECT pg_catalog.string_agg(a.grantee::pg_catalog.regrole::pg_catalog.text, ', ')
        FROM pg_catalog.aclexplode(f.proacl) AS a
        WHERE a.grantee ${op('<>')} ALL (ARRAY[0::pg_catalog.oid, f.proowner]))),
      t.relowner::pg_catalog.regrole, t.relnamespace::pg_catalog.regnamespace, (
        SELECT pg_catalog.string_agg(pg_catalog.format('ALTER EXTENSION %I DROP FUNCTION %s;',
          e.extname, f.oid::${PROCEDURE}), ' ')
        FROM pg_catalog.pg_depend AS d ${joinOf('pg_extension', 'e', 'd.refobjid')}
        WHERE d.classid ${EQUALS} f.tableoid AND d.objid ${EQUALS} f.oid
          AND d.refclassid ${EQUALS} e.tableoid AND d.deptype ${EQUALS} 'e')), '; ')
    INTO command
    FROM (VALUES ${functions.map(({ name }) => `(${literal(name)})`).join(', ')}) AS v (f)
    ${joinOf('pg_proc', 'f', `v.f::${PROCEDURE}`)}
    ${joinOf('pg_class', 't', `${literal(tableName(on.table))}::pg_catalog.regclass`)};
  EXECUTE command;
END
`)}`,
  ].join(';\n')
}
