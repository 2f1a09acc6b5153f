import { createHash } from 'node:crypto'
import { dollarQuote, literal, qualified, quote } from '../sql/identifier'
import type { Distribution } from '../sql/spread'
import { SQLSTATE } from '../sql/sqlstate'
import { bytewise, field, tableName, type TextTable } from '../sql/text-table'

/**
 * The first number for rows that a client writes while the table is adopted. Such a number is unique without a look at
 * the chain. A real number is far lower, because no chain is that long.
 */
export const FIRST_TEMPORARY_NUMBER: number = 2 ** 30

/** The table of a schema's adoptions and their states. The database holds them, and no file does. */
export const ADOPTIONS = 'unique_text_adoptions'

const SLUG_CHARACTERS = 36

/** A table with the text that an adoption or a merge works on. */
export interface AdoptedTable {
  /** Its schema is known, and `guard` distinguishes its text from the others in the schema. */
  readonly table: TextTable & { readonly schema: string }
  /** Columns of the primary key. */
  readonly primary: readonly string[]
  /** The role that owns the table. */
  readonly owner: string
}

/** The rows that a sweep writes: those without a hash, or also those whose hash is not that of their text. */
export type Wanted = 'missing' | 'wrong'

/** Returns a name of letters, digits and _ for an object of an adoption. No other text of the schema has this name. */
export function nameOf({ table }: AdoptedTable, suffix: string): string {
  const slug = table.guard.toLowerCase().replaceAll(/[^a-z0-9_]+/g, '_')
  const digest = createHash('sha1').update(table.guard).digest('hex').slice(0, 8)
  return `${slug.slice(0, SLUG_CHARACTERS)}_${digest}_${suffix}`
}

export const objectOf = (on: AdoptedTable, suffix: string): string => qualified(on.table.schema, nameOf(on, suffix))

/** The table's own rows, as `t`. */
export const own = ({ table }: AdoptedTable): string => `ONLY ${tableName(table)} AS t`

/** A value as jsonb. A number that JavaScript might round is a string, as the driver returns a `bigint`. */
function exactJson(value: string): string {
  const json = `pg_catalog.to_jsonb(${value})`
  const isLong = `pg_catalog.jsonb_typeof(${json}) OPERATOR(pg_catalog.=) 'number' AND pg_catalog.length(${json}::pg_catalog.text) OPERATOR(pg_catalog.>) 15`
  return `CASE WHEN ${isLong} THEN pg_catalog.to_jsonb(${json}::pg_catalog.text) ELSE ${json} END`
}

/** The key of a row as jsonb. @param part a part of the key, as SQL */
export const keyAsJson = (
  { primary }: AdoptedTable,
  part: (name: string, index: number) => string = (name) => field('t', name),
): string => {
  const members = primary.map((name, index) => `${literal(name)}::pg_catalog.text, ${exactJson(part(name, index))}`)
  return `pg_catalog.jsonb_build_object(${members.join(', ')})`
}

/** Chains that clients wrote to or the command numbered, by scope (`s0`, …) and `hash`, in the order of `seq`. */
export const queueOf = (on: AdoptedTable): string => objectOf(on, 'queue')

/** Rows that will get a number, by primary key (`k0`, …), in the order of `place`. */
export const worklistOf = (on: AdoptedTable): string => objectOf(on, 'work')

/** Makes that table from a query for the rows and their places. */
export const makeWorklist = (on: AdoptedTable, query: string): string[] => [
  `DROP TABLE IF EXISTS ${worklistOf(on)}`,
  `CREATE TABLE ${worklistOf(on)} AS\n${query}`,
  `ALTER TABLE ${worklistOf(on)} ADD PRIMARY KEY (place)`,
  ownAlone(on, [worklistOf(on)]),
  `ANALYZE ${worklistOf(on)}`,
]

/** Rows whose text the normalizer refuses, by primary key (`k0`, …), with the `reason`. */
export const refusedOf = (on: AdoptedTable): string => objectOf(on, 'refused')

/** The sequence of temporary numbers. */
export const numbersOf = (on: AdoptedTable): string => objectOf(on, 'numbers')

/** A temporary number that no other row has. */
export const nextNumber = (on: AdoptedTable): string =>
  `pg_catalog.nextval(${literal(numbersOf(on))}::pg_catalog.regclass)::pg_catalog.int4`

export const ADOPTION_CLASS = '1970565217'

/** The FROM clause, without FROM, that finds the session with that lock, as `l`. */
export const ADOPTION_TURN: string = `pg_catalog.pg_locks AS l
    JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) l.database
   WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() AND l.granted
     AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.classid OPERATOR(pg_catalog.=) ${ADOPTION_CLASS}::pg_catalog.oid
     AND l.objid OPERATOR(pg_catalog.=) $1::pg_catalog.oid AND l.objsubid OPERATOR(pg_catalog.=) 2`

/** Selects whether a command works on the table with the OID $1. True on a standby, which cannot see that lock. */
export const FIND_COMMAND: string = `SELECT (pg_catalog.pg_is_in_recovery() OR EXISTS (SELECT FROM ${ADOPTION_TURN})) AS running`

/** Returns one statement, or none if there are no clauses. */
export const alterTable = (on: AdoptedTable, clauses: readonly string[]): string[] =>
  clauses.length === 0 ? [] : [`ALTER TABLE ${tableName(on.table)} ${clauses.join(', ')}`]

/** The lock modes that a step requests. */
export type LockMode = 'ACCESS EXCLUSIVE' | 'SHARE ROW EXCLUSIVE'

/** Settings of a transaction that looks up a few rows by index and never reads the whole table. */
export const BY_INDEX =
  'SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off'

/** Vacuums but returns no pages to the operating system, because that locks the table. */
export const vacuumTable = ({ table }: AdoptedTable): string => `VACUUM (TRUNCATE false) ${tableName(table)}`

export const analyzeTable = ({ table }: AdoptedTable): string => `ANALYZE ${tableName(table)}`

/** The facts, besides columns and indexes, that decide whether and how a table can be adopted. */
export interface AdoptionFacts {
  readonly oid: string
  /** `pg_class.relkind`: `r` for an ordinary table. */
  readonly kind: string
  readonly owner: string
  readonly bytes: number
  /** The user's triggers that an UPDATE fires. */
  readonly updateTriggers: readonly string[]
  /** The rules on the table. */
  readonly rules: readonly string[]
  /** The user's triggers that an UPDATE fires while `session_replication_role` is `replica`. */
  readonly replicaTriggers: readonly string[]
  /** The columns of the table's foreign keys, and those that foreign keys refer to. */
  readonly keyColumns: readonly string[]
  /** Whether policies hide rows from the role. */
  readonly hidesRows: boolean
  /** Where Citus keeps the rows. If undefined, Citus does not manage the table. */
  readonly distribution: Distribution | undefined
  /** Tables that inherit from it. */
  readonly children: readonly string[]
  readonly checks: readonly { readonly name: string; readonly columns: readonly string[] }[]
}

/**
 * Whether a relation, by its OID as SQL, is a table of a role that could act as the owner of ours. Another role's may
 * be a view whose functions run as the reader, or hold rows, statistics and privileges that outlive its ownership.
 */
const isTrusted = (found: string, owner: string): string => `EXISTS (SELECT FROM pg_catalog.pg_class AS k
    WHERE k.oid OPERATOR(pg_catalog.=) ${found} AND k.relkind OPERATOR(pg_catalog.=) 'r'
      AND pg_catalog.pg_has_role(k.relowner, ${owner}, 'MEMBER'))`

/**
 * Selects whether the table $1 that an adoption keeps may be read, for a table of the role $2. This is a statement of its
 * own, before the one that reads. Between the two, only a trusted role can replace that table.
 */
export const FIND_KEPT: string = `SELECT ${isTrusted('pg_catalog.to_regclass($1)', '$2::pg_catalog.regrole')} AS kept`

const READING = ` AND a.privilege_type OPERATOR(pg_catalog.<>) 'SELECT'`

/**
 * Refuses a table that another role has made, or may write to: the command does what is written there. A role that may
 * create in the schema can have made it before. Once it is checked, only a trusted role can replace it.
 *
 * @param create runs if there is no such table. It fails if one is made at that moment
 */
export const refuseForeign = ({ table, owner }: AdoptedTable, name: string, create = 'NULL'): string =>
  `DO ${dollarQuote(`
DECLARE
  found pg_catalog.regclass := pg_catalog.to_regclass(${literal(qualified(table.schema, name))});
BEGIN
  IF found IS NULL THEN
    ${create};
  ELSIF NOT ${isTrusted('found', `${literal(quote(owner))}::pg_catalog.regrole`)} THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}',
      MESSAGE = pg_catalog.format('%s belongs to another role than the table', found),
      HINT = 'See who made it and what it holds; then drop it, or give it to the owner of the table.';
  ELSIF EXISTS (SELECT FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS a
    WHERE c.oid OPERATOR(pg_catalog.=) found AND a.grantee OPERATOR(pg_catalog.<>) c.relowner${READING}) THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}',
      MESSAGE = pg_catalog.format('roles other than its owner may write to %s', found),
      HINT = 'The command does what is written there. See what the table holds, and revoke all but SELECT from them.';
  END IF;
END
`)}`

/**
 * Gives tables and sequences, as SQL, to the table's owner, and revokes grants by default privileges. Nobody else may
 * write to them, because their contents decide which rows are changed.
 *
 * @param access `readable` keeps grants of SELECT
 */
export const ownAlone = (
  { owner }: AdoptedTable,
  names: readonly string[],
  access: 'alone' | 'readable' = 'alone',
): string => {
  const ours = `ANY (ARRAY[${names.map(literal).join(', ')}]::pg_catalog.regclass[])`
  return `DO ${dollarQuote(`
DECLARE
  command pg_catalog.text;
BEGIN
  FOR command IN
    SELECT pg_catalog.format('REVOKE %s ON %s FROM %s', a.privilege_type, c.oid::pg_catalog.regclass,
        CASE WHEN a.grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::pg_catalog.text END)
      FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS a
     WHERE a.grantee OPERATOR(pg_catalog.<>) c.relowner${access === 'alone' ? '' : READING}
       AND (c.oid OPERATOR(pg_catalog.=) ${ours}
         OR EXISTS (SELECT FROM pg_catalog.pg_depend AS d
           WHERE c.relkind OPERATOR(pg_catalog.=) 'S' AND d.classid OPERATOR(pg_catalog.=) c.tableoid
             AND d.objid OPERATOR(pg_catalog.=) c.oid AND d.refobjid OPERATOR(pg_catalog.=) ${ours}))
    -- Only where it is another's: the lock would wait for readers, and later ones would wait for it.
    UNION ALL SELECT pg_catalog.format('ALTER TABLE %s OWNER TO %I', c.oid::pg_catalog.regclass, ${literal(owner)})
      FROM pg_catalog.pg_class AS c
     WHERE c.oid OPERATOR(pg_catalog.=) ${ours} AND c.relowner OPERATOR(pg_catalog.<>) ${literal(quote(owner))}::pg_catalog.regrole
  LOOP
    EXECUTE command;
  END LOOP;
END
`)}`
}

/** @param parts the parts of a key, without their numbers: `w.k` for `w.k0`, … */
export const samePrimary = ({ primary }: AdoptedTable, parts: string, row = 't'): string =>
  primary.map((name, index) => `${field(row, name)} OPERATOR(pg_catalog.=) ${parts}${index}`).join(' AND ')

/** Equality of two values that may be NULL, by one operator of pg_catalog. */
export const same = (left: string, right: string): string =>
  `coalesce(${left} OPERATOR(pg_catalog.=) ${right}, ${left} IS NULL AND ${right} IS NULL)`

/** Predicates that are true if two rows have the same text, column by column. */
export const sameTexts = (on: AdoptedTable, left: string, right: string): string[] =>
  on.table.text.map(({ name }) => same(bytewise(left, name), bytewise(right, name)))
