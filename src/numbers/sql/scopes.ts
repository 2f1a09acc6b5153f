import { all, dollarQuote, literal, qualified, quote } from '../../sql/identifier'
import { beforeStart, isCounted, type NumberRefusal, scopeOf, valuesOfKey } from './fragments'
import { type NumberTable, scopeKey, scopesName, scopesTable } from '../../sql/numbers'
import { SQLSTATE } from '../../sql/sqlstate'
import { EQUALS, field, op, tableName } from '../../sql/text-table'
import type { Former } from '../../registry/registry'
import type { KeptTable, TriggerNote } from '../../sql/trigger-set'

/** A former table of scopes, and the place of each column of the new scope in the former one. */
interface FormerScopes {
  readonly table: NumberTable
  readonly places: readonly number[]
}

/**
 * Makes the table of scopes anew from the existing rows. It holds a row for each scope, which is the scope's mutex. With
 * a count, `n` is the number of its rows that count. Without reuse, `last` is the highest number that was given.
 *
 * It is one statement, so that no row is inserted in between. The table of scopes belongs to the numbered table's
 * owner, whose functions write it. A role that may read the numbered table may read it too.
 *
 * @param former the table whose highest numbers are kept
 */
export function makeScopes(table: NumberTable, former?: FormerScopes): string {
  const [of, scopes, key] = [tableName(table), scopesTable(table), scopeKey(table)]
  const filter = isCounted(table, 'r').map((one) => ` FILTER (WHERE ${one})`)
  const keeps = table.reuse === false
  const columns = [
    ...valuesOfKey(table, 'r').map((one, position) => `${one} AS ${key[position] ?? ''}`),
    `${table.count ? `pg_catalog.count(*)${filter.join('')}` : '0::pg_catalog.int8'} AS n`,
    `${keeps ? `pg_catalog.max(${field('r', table.number)})` : 'NULL'}::pg_catalog.int8 AS last`,
  ]
  return `DO ${dollarQuote(`
DECLARE
  had boolean := false;
  command pg_catalog.text;
BEGIN
  LOCK TABLE ${of} IN SHARE ROW EXCLUSIVE MODE;${table.count ? refuseToCount(of) : ''}${former ? setAside(of, former) : ''}
  DROP TABLE IF EXISTS ${scopes};
  -- Without rows there is no scope, even if the table is one scope: a restore of data inserts all rows of this table.
  CREATE TABLE ${scopes} WITH (fillfactor = 50) AS
    SELECT ${columns.join(', ')}
    FROM ${table.count ? 'ONLY ' : ''}${of} AS r
    GROUP BY ${key.map((_, position) => position + 1).join(', ')}
    WITH ${table.count || keeps ? '' : 'NO '}DATA;
  ALTER TABLE ${scopes} ADD PRIMARY KEY (${key.join(', ')}), ALTER n SET NOT NULL, ALTER n SET DEFAULT 0;${former ? takeBack(table, former) : ''}${table.count ? refuseCopies(scopes) : ''}
  -- Whatever default privileges have granted.
  FOR command IN
    SELECT pg_catalog.format(p.command, k.oid::pg_catalog.regclass,
        CASE WHEN p.role ${EQUALS} 0 THEN 'PUBLIC' ELSE p.role::pg_catalog.regrole::pg_catalog.text END)
      FROM pg_catalog.pg_class AS k, pg_catalog.pg_class AS c, LATERAL (
        SELECT 'REVOKE ALL ON %s FROM %s', a.grantee FROM pg_catalog.aclexplode(k.relacl) AS a
         WHERE a.grantee ${op('<>')} k.relowner
        UNION ALL
        SELECT 'ALTER TABLE %s OWNER TO %s', c.relowner
        UNION ALL
        SELECT 'GRANT SELECT ON %s TO %s', a.grantee FROM pg_catalog.aclexplode(c.relacl) AS a
         WHERE a.privilege_type ${EQUALS} 'SELECT' AND a.grantee ${op('<>')} c.relowner
      ) AS p (command, role)
     WHERE k.oid ${EQUALS} ${literal(scopes)}::pg_catalog.regclass AND c.oid ${EQUALS} ${literal(of)}::pg_catalog.regclass
  LOOP
    EXECUTE command;
  END LOOP;
END
`)}`
}

/** The name of a former table of scopes while the new one is made. */
const BEFORE = 'numbers_scopes_before'

/**
 * Renames the former table of scopes, unless a restore has left it out. Policies or a view of another role would run
 * their functions as the role that reads them here.
 */
const setAside = (of: string, { table }: FormerScopes): string => `
  had := pg_catalog.to_regclass(${literal(scopesTable(table))}) IS NOT NULL;
  IF had THEN
    IF NOT EXISTS (
      SELECT FROM pg_catalog.pg_class AS k JOIN pg_catalog.pg_class AS c ON c.relowner ${EQUALS} k.relowner
      WHERE k.oid ${EQUALS} ${literal(scopesTable(table))}::pg_catalog.regclass AND k.relkind ${EQUALS} 'r'
        AND c.oid ${EQUALS} ${literal(of)}::pg_catalog.regclass
    ) THEN
      RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}', TABLE = ${literal(scopesName(table))},
        MESSAGE = 'the table of scopes does not belong to the owner of the numbered table',
        HINT = 'See who made it and what it holds; then drop it, or give it to the owner of the numbered table.';
    END IF;
    ALTER TABLE ${scopesTable(table)} RENAME TO ${BEFORE};
  END IF;`

function takeBack(to: NumberTable, { table: { schema }, places }: FormerScopes): string {
  const [key, before] = [scopeKey(to).join(', '), schema === undefined ? BEFORE : qualified(schema, BEFORE)]
  const was = places.length === 0 ? ['w.whole'] : places.map((place) => `w.s${place}`)
  return `
  IF had THEN
    INSERT INTO ${scopesTable(to)} AS k (${key}, last)
      SELECT ${was.join(', ')}, w.last FROM ${before} AS w WHERE w.last IS NOT NULL
      ON CONFLICT (${key}) DO UPDATE SET last = greatest(k.last, excluded.last);
    DROP TABLE ${before};
  END IF;`
}

const COPIES = 'restore_with_disable_triggers'

/**
 * Refuses copied counts: data that is restored while triggers are on would count twice. The built-in function refuses
 * every INSERT, and needs no owner of ours. Like other triggers, it is off with --disable-triggers and on a replica.
 */
const refuseCopies = (scopes: string): string => `
  CREATE TRIGGER ${COPIES} BEFORE INSERT ON ${scopes} FOR EACH ROW
    WHEN (pg_catalog.pg_trigger_depth() ${EQUALS} 0 AND NEW.n ${op('<>')} 0)
    EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger();`

/** Describes the table of scopes that should exist. */
export const keptScopes = (table: NumberTable): KeptTable => ({
  name: scopesName(table),
  columns: {
    ...(table.scope.length === 0 ? { whole: 'boolean' } : {}),
    ...Object.fromEntries(table.scope.map(({ name }, position) => [`s${position}`, { like: name }])),
    n: 'bigint',
    last: 'bigint',
  },
  primary: scopeKey(table),
  trigger: table.count ? COPIES : undefined,
})

/** Returns the statements that restore the trigger on a table of scopes. */
export const guardScopes = (table: NumberTable): string[] => [
  `DROP TRIGGER IF EXISTS ${COPIES} ON ${scopesTable(table)}`,
  refuseCopies(scopesTable(table)).trim().replace(/;$/, ''),
]

export const dropScopes = (table: Pick<NumberTable, 'schema' | 'triggers'>): string =>
  `DROP TABLE IF EXISTS ${scopesTable(table)}`

/** The error for a count that statements on another table could change. */
export const uncounted: NumberRefusal = {
  sqlstate: SQLSTATE.featureNotSupported,
  message: 'a table with partitions, or with children by INHERITS, keeps no count',
  hint: 'Declare @NumberWithin without "count", and count the rows by SQL.',
}

const refuseToCount = (of: string): string => `
  IF EXISTS (
    SELECT FROM pg_catalog.pg_class AS c LEFT JOIN pg_catalog.pg_inherits AS h
      ON h.inhrelid ${EQUALS} c.oid OR h.inhparent ${EQUALS} c.oid
    WHERE c.oid ${EQUALS} ${literal(of)}::pg_catalog.regclass AND (c.relkind ${EQUALS} 'p' OR h.inhrelid IS NOT NULL)
  ) THEN
    RAISE EXCEPTION USING ERRCODE = '${uncounted.sqlstate}', MESSAGE = ${literal(uncounted.message)},
      HINT = ${literal(uncounted.hint)};
  END IF;`

/** The rows to number. Their table is locked, and has none of our triggers. */
interface NumberedRows {
  readonly table: NumberTable
  /** The columns of the primary key, whose order is that of the numbers. */
  readonly primary: readonly string[]
}

/** Numbers every row that has no number, in key order, after the highest of its scope. */
export function numberRows({ table, primary }: NumberedRows): string {
  const number = quote(table.number)
  return `UPDATE ${tableName(table)} AS t SET ${number} = n."number"
FROM (
  SELECT ${selectPrimary('r', primary)},
    greatest(pg_catalog.max(r.${number}) OVER (${partition(table, 'r')}), ${beforeStart(table)})
      ${op('+')} pg_catalog.count(*) FILTER (WHERE r.${number} IS NULL) OVER (
        ${partition(table, 'r')} ORDER BY ${primary.map((name) => field('r', name)).join(', ')} ROWS UNBOUNDED PRECEDING
      ) AS "number"
  FROM ${tableName(table)} AS r
) AS n
WHERE ${all(2, ...sameKey(primary), `t.${number} IS NULL`)}`
}

/** Numbers all rows anew, in key order from `start`. The unique index must not exist. */
export function renumberRows({ table, primary }: NumberedRows): string {
  const number = quote(table.number)
  return `UPDATE ${tableName(table)} AS t SET ${number} = n."number"
FROM (
  SELECT ${selectPrimary('r', primary)}, pg_catalog.row_number() OVER (
    ${partition(table, 'r')} ORDER BY ${primary.map((name) => field('r', name)).join(', ')}
  ) ${op('+')} ${beforeStart(table)} AS "number"
  FROM ${tableName(table)} AS r
) AS n
WHERE ${all(2, ...sameKey(primary), `(t.${number} ${EQUALS} n."number") IS NOT TRUE`)}`
}

const partition = (table: NumberTable, row: string): string =>
  table.scope.length === 0 ? '' : `PARTITION BY ${scopeOf(table, row).join(', ')}`

const selectPrimary = (row: string, primary: readonly string[]): string =>
  primary.map((name, position) => `${field(row, name)} AS "key ${position}"`).join(', ')

const sameKey = (primary: readonly string[]): string[] =>
  primary.map((name, position) => `${field('t', name)} ${EQUALS} n."key ${position}"`)

/** The version in the note. Raise it if a change of the triggers makes an installed set wrong. */
export const NUMBERS_PROTOCOL_VERSION = 1

/** The parts of a declaration that the rows depend on. */
export const NOTED = ['scope', 'number', 'type', 'count', 'reuse', 'start', 'citus', 'deleted'] as const

/** The note in the first function. */
export interface NumberNote extends TriggerNote, Pick<NumberTable, (typeof NOTED)[number]> {
  readonly kind: 'numbers'
  /** The `triggers` of the table, which begin the name of its table of scopes. */
  readonly prefix: string
}

/** Returns undefined if the note is that of another set, or of another version. */
export const asNumberNote = (note: Former): NumberNote | undefined =>
  note.kind === 'numbers' && note.protocol === NUMBERS_PROTOCOL_VERSION ? (note as NumberNote) : undefined
