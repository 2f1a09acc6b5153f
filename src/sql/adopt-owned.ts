import { dollarQuote, literal, qualified, quote } from './identifier'
import { SQLSTATE } from './sqlstate'

/** In whose schema an adoption keeps what it needs, and whose that is. */
interface Owned {
  readonly table: { readonly schema: string }
  readonly owner: string
}

const OTHERS_CODE = `c.relkind OPERATOR(pg_catalog.<>) 'r' OR c.relhastriggers OR c.relhasrules OR c.relrowsecurity
      OR c.relchecks OPERATOR(pg_catalog.>) 0
      OR EXISTS (SELECT FROM pg_catalog.pg_attrdef AS d WHERE d.adrelid OPERATOR(pg_catalog.=) c.oid)
      OR EXISTS (SELECT FROM pg_catalog.pg_index AS i
        WHERE i.indrelid OPERATOR(pg_catalog.=) c.oid AND i.indexprs IS NOT NULL)
      OR EXISTS (SELECT FROM pg_catalog.pg_inherits AS h
        WHERE h.inhrelid OPERATOR(pg_catalog.=) c.oid OR h.inhparent OPERATOR(pg_catalog.=) c.oid)
      OR EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
        JOIN pg_catalog.pg_type AS t ON t.oid OPERATOR(pg_catalog.=) a.atttypid
        WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid
          AND t.typnamespace OPERATOR(pg_catalog.<>) 'pg_catalog'::pg_catalog.regnamespace)
      OR EXISTS (SELECT FROM pg_catalog.pg_depend AS x WHERE x.classid OPERATOR(pg_catalog.=) c.tableoid
        AND x.objid OPERATOR(pg_catalog.=) c.oid AND x.deptype OPERATOR(pg_catalog.=) ANY ('{e,x}'))`

/**
 * Comes after a table was made unless it stood. Who may create in the schema can have made it before: what hangs on it
 * would run as the role that adopts, as triggers, policies, checks, defaults and domains do.
 */
export const refusePlanted = ({ table, owner }: Owned, name: string): string =>
  `DO ${dollarQuote(`
DECLARE
  found pg_catalog.regclass := ${literal(qualified(table.schema, name))}::pg_catalog.regclass;
BEGIN
  IF EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) found
    AND c.relkind OPERATOR(pg_catalog.=) 'r'
    AND c.relowner OPERATOR(pg_catalog.=) ${literal(quote(owner))}::pg_catalog.regrole)
  THEN
    RETURN;
  END IF;
  EXECUTE pg_catalog.format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', found);
  IF EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) found AND (
      ${OTHERS_CODE}))
  THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}',
      MESSAGE = pg_catalog.format(
        '%s belongs to another role than the table, with code of that role on it or in an extension', found),
      HINT = 'See who made it, and drop it.';
  END IF;
END
`)}`

/**
 * Gives tables and sequences, as SQL, to the table's owner. Nobody else writes to them, whatever default privileges have
 * granted: names are taken and rows restored by what is written there.
 *
 * @param access `readable` lets those read who were granted it
 */
export const ownAlone = (
  { owner }: Owned,
  names: readonly string[],
  access: 'alone' | 'readable' = 'alone',
): string[] => {
  const ours = `ANY (ARRAY[${names.map(literal).join(', ')}]::pg_catalog.regclass[])`
  return [
    ...names.map((name) => `ALTER TABLE ${name} OWNER TO ${quote(owner)}`),
    `DO ${dollarQuote(`
DECLARE
  command pg_catalog.text;
BEGIN
  FOR command IN
    SELECT DISTINCT pg_catalog.format('REVOKE %s ON %s FROM %s',
        a.privilege_type, c.oid::pg_catalog.regclass, CASE WHEN a.grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC'
          ELSE a.grantee::pg_catalog.regrole::pg_catalog.text END)
      FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS a
     WHERE a.grantee OPERATOR(pg_catalog.<>) c.relowner${access === 'alone' ? '' : READING}
       AND (c.oid OPERATOR(pg_catalog.=) ${ours}
         OR EXISTS (SELECT FROM pg_catalog.pg_depend AS d
           WHERE c.relkind OPERATOR(pg_catalog.=) 'S' AND d.classid OPERATOR(pg_catalog.=) c.tableoid
             AND d.objid OPERATOR(pg_catalog.=) c.oid AND d.refobjid OPERATOR(pg_catalog.=) ${ours}))
  LOOP
    EXECUTE command;
  END LOOP;
END
`)}`,
  ]
}

const READING = ` AND a.privilege_type OPERATOR(pg_catalog.<>) 'SELECT'`
