import { createHash } from 'node:crypto'
import { addCheck, addIndex } from '../../sql/alter'
import { addLookup, type LookupIndex, type Query } from '../../sql/catalog'
import { dollarQuote, literal, qualified, quote } from '../../sql/identifier'
import { distributionOf, isElsewhere } from '../../sql/spread'
import { SQLSTATE } from '../../sql/sqlstate'
import { field, tableName, type TextTable } from '../../sql/text-table'

/**
 * The first number for rows that a client writes while the table is adopted. Such a number is unique without a look at
 * the chain. A real number is far lower, because no chain is that long.
 */
export const FIRST_TEMPORARY_NUMBER: number = 2 ** 30

/** The table of a schema's adoptions and their states. The database holds them, and no file does. */
export const ADOPTIONS = 'unique_text_adoptions'

const SLUG_CHARACTERS = 36

/** A table that an adoption works on: one with a text, names, or a number. */
export interface Adopting {
  readonly table: {
    readonly schema: string
    readonly table: string
    /** The name that distinguishes this adoption from others in the schema. */
    readonly guard: string
  }
  /** Columns of the primary key. */
  readonly primary: readonly string[]
  /** The role that owns the table. */
  readonly owner: string
}

/** A table with a text that a command adopts. Its schema is known. */
export interface AdoptedTable extends Adopting {
  readonly table: TextTable & { readonly schema: string }
}

type Site = Pick<Adopting, 'table'>

/** Returns a name of letters, digits and _ for an object of an adoption. No other text of the schema has this name. */
export function nameOf({ table }: Site, suffix: string): string {
  const slug = table.guard.toLowerCase().replaceAll(/[^a-z0-9_]+/g, '_')
  const digest = createHash('sha1').update(table.guard).digest('hex').slice(0, 8)
  return `${slug.slice(0, SLUG_CHARACTERS)}_${digest}_${suffix}`
}

export const objectOf = (on: Site, suffix: string): string => qualified(on.table.schema, nameOf(on, suffix))

export type Held = Pick<AdoptedTable, 'table'>

/** The table's own rows, as `t`. */
export const own = ({ table }: Site): string => `ONLY ${tableName(table)} AS t`

/** A table whose rows are processed in the order of their keys. */
export interface OrderedTable extends Adopting {
  /** Types of the primary key's columns, as SQL. */
  readonly types: readonly string[]
}

const keyFields = ({ primary }: Adopting): string[] => primary.map((name) => field('t', name))

/** The condition that a row's key is above a given key, or up to it. Its parts are the parameters from $first on. */
export const compareKey = (on: OrderedTable, operator: '>' | '<=', first: number): string =>
  `ROW(${keyFields(on).join(', ')}) OPERATOR(pg_catalog.${operator}) ` +
  `ROW(${on.types.map((type, index) => `$${first + index}::${type}`).join(', ')})`

/** The parts of the key as `k0`, …. */
export const keyTexts = (on: Adopting): string[] =>
  keyFields(on).map((key, index) => `${key}::pg_catalog.text AS k${index}`)

/** Locks the first rows in key order, and skips rows that another session has locked. */
export const lockInOrder = (
  on: Adopting,
  columns: readonly string[],
  where: readonly string[],
  limit: number,
): string =>
  `SELECT t.ctid::pg_catalog.text AS spot, ${[...keyTexts(on), ...columns].join(', ')}
  FROM ${own(on)} WHERE ${where.join(' AND ')}
 ORDER BY ${keyFields(on).join(', ')} LIMIT ${limit} FOR NO KEY UPDATE SKIP LOCKED`

/** The adoptions of the table's schema, as SQL. */
export const adoptions = ({ table }: Site): string => qualified(table.schema, ADOPTIONS)
/** Chains that clients wrote to or the command numbered, by scope (`s0`, …) and `hash`, in the order of `seq`. */
export const queueOf = (on: Held): string => objectOf(on, 'queue')
/** Rows that will get a number, by primary key (`k0`, …), in the order of `place`. */
export const workOf = (on: Held): string => objectOf(on, 'work')
/** Rows whose text the normalizer refuses, by primary key (`k0`, …), with the `reason`. */
export const refusedOf = (on: Held): string => objectOf(on, 'refused')
export const numbersOf = (on: Held): string => objectOf(on, 'numbers')

/** A temporary number that no other row has. */
export const nextNumber = (on: Held): string =>
  `pg_catalog.nextval(${literal(numbersOf(on))}::pg_catalog.regclass)::pg_catalog.int4`

export const TRIGGERS = ['place_insert', 'place_update', 'note_insert', 'note_update', 'note_delete'] as const

const triggerNames = (on: Held): string[] => TRIGGERS.map((suffix) => nameOf(on, suffix))

const ADOPTION_CLASS = '1970565217'
const ADOPTION_KEY = `${ADOPTION_CLASS}, $1::pg_catalog.oid::pg_catalog.int8::pg_catalog.bit(32)::pg_catalog.int4`

/** Takes a session lock for the table with the OID $1. Only one command can hold it. */
export const TAKE_TURN: string = `SELECT pg_catalog.pg_try_advisory_lock(${ADOPTION_KEY}) AS mine`
export const GIVE_TURN: string = `SELECT pg_catalog.pg_advisory_unlock(${ADOPTION_KEY})`

/** The FROM clause, without FROM, that finds the session with that lock, as `l`. */
export const ADOPTION_TURN: string = `pg_catalog.pg_locks AS l
    JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) l.database
   WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() AND l.granted
     AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.classid OPERATOR(pg_catalog.=) ${ADOPTION_CLASS}::pg_catalog.oid
     AND l.objid OPERATOR(pg_catalog.=) $1::pg_catalog.oid AND l.objsubid OPERATOR(pg_catalog.=) 2`

/** Whether a command holds that lock. True on a standby, because locks of the primary are not visible there. */
export const HAS_TURN: string = `(pg_catalog.pg_is_in_recovery() OR EXISTS (SELECT FROM ${ADOPTION_TURN}))`

export const drops = (on: Held): string[] => [
  `DROP FUNCTION IF EXISTS ${objectOf(on, 'place')}(), ${objectOf(on, 'note')}()`,
  `DROP TABLE IF EXISTS ${queueOf(on)}, ${workOf(on)}`,
  `DROP SEQUENCE IF EXISTS ${numbersOf(on)}`,
]

/** Finds the transitional triggers that exist. */
export const findTransitional = (on: Held): string =>
  `SELECT g.oid FROM pg_catalog.pg_trigger AS g WHERE g.tgrelid OPERATOR(pg_catalog.=) ${literal(tableName(on.table))}::pg_catalog.regclass ` +
  `AND g.tgname OPERATOR(pg_catalog.=) ANY (ARRAY[${triggerNames(on).map(literal).join(', ')}])`

export const dropTriggers = (on: Held): string[] =>
  triggerNames(on).map((name) => `DROP TRIGGER IF EXISTS ${quote(name)} ON ${tableName(on.table)}`)

/** Makes the table in which adoptions of the schema store their states. */
export const createAdoptions = (on: Adopting): string[] => [
  refuseWritten(on, ADOPTIONS),
  `CREATE TABLE IF NOT EXISTS ${adoptions(on)} (guard pg_catalog.text PRIMARY KEY, state pg_catalog.jsonb NOT NULL)`,
  refusePlanted(on, ADOPTIONS),
  ...ownAlone(on, [adoptions(on)], 'readable'),
]

/** The stored state of the adoption $1. */
export const readState = (schema: string): string =>
  `SELECT a.state::pg_catalog.text AS state FROM ${qualified(schema, ADOPTIONS)} AS a WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text`

/** Adds the members $2 to the stored state, or creates it. */
export const writeState = (on: Site): string =>
  `INSERT INTO ${adoptions(on)} AS a (guard, state) VALUES ($1::pg_catalog.text, $2::pg_catalog.jsonb)
ON CONFLICT (guard) DO UPDATE SET state = a.state OPERATOR(pg_catalog.||) excluded.state`

export const forgetState = (on: Site): string =>
  `DELETE FROM ${adoptions(on)} AS a WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text`

/** Creates the unique index as TypeORM does, while others write. */
export const createIndex = ({ table }: Held): string =>
  addIndex(table).up.join('').replace('CREATE UNIQUE INDEX', 'CREATE UNIQUE INDEX CONCURRENTLY')

/** Creates an index that finds texts by their hashes, and its comment. */
export const createLookup = (lookup: LookupIndex): string[] =>
  addLookup(lookup).up.map((sql) => sql.replace('CREATE INDEX', 'CREATE INDEX CONCURRENTLY'))

export const dropIndex = ({ table }: Site, name: string): string =>
  `DROP INDEX CONCURRENTLY IF EXISTS ${qualified(table.schema, name)}`

/** Returns one statement, or none if there are no clauses. */
export const alterTable = (on: Site, clauses: readonly string[]): string[] =>
  clauses.length === 0 ? [] : [`ALTER TABLE ${tableName(on.table)} ${clauses.join(', ')}`]

const filledName = (on: Site, column: number): string => nameOf(on, `filled_${column}`)

/** Clauses that drop the NOT NULL checks of so many columns, if they exist. */
export const dropFilled = (on: Site, columns: number): string[] =>
  Array.from({ length: columns }, (_, index) => `DROP CONSTRAINT IF EXISTS ${quote(filledName(on, index))}`)

/** A check that is validated together with the NOT NULL checks of columns. */
export interface Check {
  readonly name: string
  /** The clause that adds the check; undefined if it exists already. */
  readonly clause: string | undefined
}

/** The check of a text. */
export function textCheck({ table }: Held, isThere: boolean): Check {
  const [sql = ''] = addCheck(table).up
  return { name: table.check, clause: isThere ? undefined : `${sql.slice(sql.indexOf('ADD CONSTRAINT'))} NOT VALID` }
}

/** Adds checks for rows that are written from now on. One statement locks the table once. */
export const addChecks = (on: Site, required: readonly string[], check?: Check): string[] =>
  alterTable(on, [
    ...required.flatMap((name, index) => [
      `DROP CONSTRAINT IF EXISTS ${quote(filledName(on, index))}`,
      `ADD CONSTRAINT ${quote(filledName(on, index))} CHECK (${quote(name)} IS NOT NULL) NOT VALID`,
    ]),
    ...(check?.clause === undefined ? [] : [check.clause]),
  ])

/** Validates the checks. The server reads the table once, while others read and write. */
export const validateChecks = (on: Site, required: readonly string[], check?: Check): string[] =>
  alterTable(
    on,
    [...required.map((_, index) => filledName(on, index)), ...(check ? [check.name] : [])].map(
      (name) => `VALIDATE CONSTRAINT ${quote(name)}`,
    ),
  )

/** Makes columns NOT NULL. The valid checks prove it, so that the server does not read the rows again. */
export const requireColumns = (on: Site, required: readonly string[]): string[] => [
  // In one statement, the check would be dropped before the server uses it as a proof.
  ...alterTable(
    on,
    required.map((name) => `ALTER COLUMN ${quote(name)} SET NOT NULL`),
  ),
  ...alterTable(on, dropFilled(on, required.length)),
]

/** Disables the transitional triggers at the commit of the guard. To drop one takes a lock that blocks readers. */
export const disableTriggers = (on: Held): string =>
  `ALTER TABLE ${tableName(on.table)} ${triggerNames(on)
    .map((name) => `DISABLE TRIGGER ${quote(name)}`)
    .join(', ')}`

/** Drops everything that only the adoption needed. */
export const endAdoption = (on: Held): string[] => [...dropTriggers(on), ...drops(on)]

/**
 * Drops columns, index and check, and the remains of an adoption. The guard's own statements run first.
 *
 * @param lookup an index that is dropped too
 */
export function leave(on: Held, lookup?: string): string[] {
  const { table } = on
  const columns = [table.hash, table.number, table.chained].map((name) => `DROP COLUMN IF EXISTS ${quote(name)}`)
  return [
    ...endAdoption(on),
    `DROP TABLE IF EXISTS ${refusedOf(on)}`,
    ...(lookup === undefined ? [] : [`DROP INDEX IF EXISTS ${qualified(table.schema, lookup)}`]),
    ...alterTable(on, [...dropFilled(on, table.text.length + table.scope.length + columns.length), ...columns]),
  ]
}

/** The lock modes that a step requests. */
export type LockMode = 'ACCESS EXCLUSIVE' | 'SHARE ROW EXCLUSIVE'

/** Opens a transaction that fails if it does not lock the table in time. */
export const beginLocked = (
  on: Site,
  mode: LockMode,
  timeouts: { readonly lock: number; readonly hold: number },
): string =>
  `BEGIN; SET LOCAL lock_timeout = ${timeouts.lock}; SET LOCAL statement_timeout = ${timeouts.hold + timeouts.lock}; ` +
  `LOCK TABLE ${tableName(on.table)} IN ${mode} MODE; SET LOCAL statement_timeout = ${timeouts.hold}`

/** Settings of a transaction that looks up a few rows by index and never reads the whole table. */
export const BY_INDEX =
  'SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off'

/** The server ends the statement of a killed command within this interval. */
export const CHECK_CLIENT = "SET client_connection_check_interval = '2s'"

/** Vacuums but returns no pages to the operating system, because that locks the table. */
export const vacuumTable = ({ table }: Site): string => `VACUUM (TRUNCATE false) ${tableName(table)}`

export const analyzeTable = ({ table }: Site): string => `ANALYZE ${tableName(table)}`

/** The facts, besides columns and indexes, that decide whether and how a table can be adopted. */
export interface AdoptionFacts {
  readonly oid: string
  readonly schema: string
  readonly table: string
  /** `pg_class.relkind`: `r` for an ordinary table. */
  readonly kind: string
  readonly owner: string
  /** The server's estimate; -1 if the table was never analyzed. */
  readonly rows: number
  readonly bytes: number
  /** The user's triggers that an UPDATE fires. */
  readonly updateTriggers: readonly string[]
  /** The user's triggers that an UPDATE fires while `session_replication_role` is `replica`. */
  readonly replicaTriggers: readonly string[]
  /** The columns of the table's foreign keys, and those that foreign keys refer to. */
  readonly keyColumns: readonly string[]
  /** Whether policies hide rows from the role. */
  readonly hidesRows: boolean
  /** Whether Citus keeps the rows in shards, or in copies on every node. */
  readonly distributed: boolean
  /** Tables that inherit from it. */
  readonly children: readonly string[]
  readonly checks: readonly { readonly name: string; readonly columns: readonly string[] }[]
}

const triggersOn = (enabled: string): string => `(
         SELECT coalesce(pg_catalog.jsonb_agg(t.tgname ORDER BY t.tgname), '[]') FROM pg_catalog.pg_trigger AS t
          WHERE t.tgrelid OPERATOR(pg_catalog.=) r.oid AND NOT t.tgisinternal AND t.tgenabled OPERATOR(pg_catalog.=) ANY (${enabled})
            AND (t.tgtype OPERATOR(pg_catalog.&) 16) OPERATOR(pg_catalog.<>) 0
            AND NOT EXISTS (SELECT FROM pg_catalog.unnest($2::pg_catalog.text[]) AS p (name) WHERE pg_catalog.starts_with(t.tgname, p.name)))`

/**
 * @param relation the table's name as SQL; `search_path` applies if it names no schema
 * @param ours how the names of our own triggers begin
 * @returns undefined if there is no such table
 */
export async function adoptionFacts(
  query: Query,
  relation: string,
  ours: readonly string[],
): Promise<AdoptionFacts | undefined> {
  const [row] = (await query(
    `SELECT pg_catalog.jsonb_build_object(
       'oid', r.oid::pg_catalog.text, 'schema', n.nspname, 'table', r.relname, 'kind', r.relkind, 'owner', o.rolname,
       'rows', r.reltuples, 'bytes', pg_catalog.pg_relation_size(r.oid),
       'updateTriggers', ${triggersOn(`'{O,A}'`)}, 'replicaTriggers', ${triggersOn(`'{R,A}'`)},
       'keyColumns', (
         SELECT coalesce(pg_catalog.jsonb_agg(DISTINCT a.attname), '[]') FROM pg_catalog.pg_constraint AS f
           JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) r.oid AND (f.conrelid OPERATOR(pg_catalog.=) r.oid AND a.attnum OPERATOR(pg_catalog.=) ANY (f.conkey)
             OR f.confrelid OPERATOR(pg_catalog.=) r.oid AND a.attnum OPERATOR(pg_catalog.=) ANY (f.confkey))
          WHERE f.contype OPERATOR(pg_catalog.=) 'f' AND r.oid OPERATOR(pg_catalog.=) ANY (ARRAY[f.conrelid, f.confrelid])),
       'hidesRows', pg_catalog.row_security_active(r.oid),
       'children', (
         SELECT coalesce(pg_catalog.jsonb_agg(h.inhrelid::pg_catalog.regclass::pg_catalog.text), '[]') FROM pg_catalog.pg_inherits AS h WHERE h.inhparent OPERATOR(pg_catalog.=) r.oid),
       'checks', (
         SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('name', k.conname, 'columns', (
                  SELECT coalesce(pg_catalog.jsonb_agg(a.attname), '[]') FROM pg_catalog.pg_attribute AS a
                   WHERE a.attrelid OPERATOR(pg_catalog.=) r.oid AND a.attnum OPERATOR(pg_catalog.=) ANY (k.conkey)))), '[]')
           FROM pg_catalog.pg_constraint AS k WHERE k.conrelid OPERATOR(pg_catalog.=) r.oid AND k.contype OPERATOR(pg_catalog.=) 'c')
       )::pg_catalog.text AS facts
       FROM pg_catalog.pg_class AS r
       JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) r.relnamespace
       JOIN pg_catalog.pg_roles AS o ON o.oid OPERATOR(pg_catalog.=) r.relowner
      WHERE r.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)`,
    [relation, ours],
  )) as readonly { facts: string }[]
  if (!row) return undefined
  const distributed = isElsewhere(await distributionOf(query, relation))
  return { ...(JSON.parse(row.facts) as Omit<AdoptionFacts, 'distributed'>), distributed }
}

/** Settings of the session of a command. */
const COMMAND_SETTINGS = {
  lock_timeout: '0',
  statement_timeout: '0',
  jit: 'off',
  // If a policy would hide rows, the query fails instead.
  row_security: 'off',
  // A log holds values as text. A session with other settings must read the same values.
  datestyle: 'ISO, YMD',
  timezone: 'UTC',
  intervalstyle: 'postgres',
  extra_float_digits: '3',
  lc_monetary: 'C',
  bytea_output: 'hex',
} as const

/** Reads the settings that an adoption changes for its session and restores later. */
export const READ_SETTINGS: string = `SELECT ${[
  'search_path',
  'session_replication_role',
  ...Object.keys(COMMAND_SETTINGS),
]
  .map((name) => `pg_catalog.current_setting('${name}') AS ${name}`)
  .join(', ')}`

export const WRITE_SETTINGS: string = `SELECT ${Object.entries(COMMAND_SETTINGS)
  .map(([name, value]) => `pg_catalog.set_config('${name}', '${value}', false)`)
  .join(', ')}`

/** Sets the setting $1 to the value $2. */
export const WRITE_SETTING = 'SELECT pg_catalog.set_config($1, $2, false)'

/** The table in whose schema an adoption keeps its objects, and their owner. */
interface Owned {
  readonly table: { readonly schema: string }
  readonly owner: string
}

/**
 * Whether a relation, by its OID as SQL, is a table of a role that could act as the owner of ours. Another role's may
 * be a view whose functions run as the reader, or hold rows, statistics and privileges that outlive its ownership.
 */
const isTrusted = (found: string, owner: string): string => `EXISTS (SELECT FROM pg_catalog.pg_class AS k
    WHERE k.oid OPERATOR(pg_catalog.=) ${found} AND k.relkind OPERATOR(pg_catalog.=) 'r'
      AND pg_catalog.pg_has_role(k.relowner, ${owner}, 'MEMBER'))`

/**
 * Selects the schema of the table $1, and whether the table that an adoption keeps under the name $2 may be read. This
 * is a statement of its own, before the one that reads. Between the two, only a trusted role can replace that table.
 */
export const FIND_KEPT: string = `SELECT n.nspname AS schema, ${isTrusted(
  "pg_catalog.to_regclass(pg_catalog.format('%I.%I', n.nspname, $2::pg_catalog.text))",
  'c.relowner',
)} AS kept
  FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
 WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)`

/** Runs after CREATE TABLE IF NOT EXISTS: a role that may create in the schema can have made the table before. */
export const refusePlanted = ({ table, owner }: Owned, name: string): string =>
  `DO ${dollarQuote(`
DECLARE
  found pg_catalog.regclass := ${literal(qualified(table.schema, name))}::pg_catalog.regclass;
BEGIN
  IF NOT ${isTrusted('found', `${literal(quote(owner))}::pg_catalog.regrole`)} THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}',
      MESSAGE = pg_catalog.format('%s belongs to another role than the table', found),
      HINT = 'See who made it and what it holds; then drop it, or give it to the owner of the table.';
  END IF;
END
`)}`

const READING = ` AND a.privilege_type OPERATOR(pg_catalog.<>) 'SELECT'`

/** Runs before CREATE TABLE IF NOT EXISTS. Grants by default privileges on a new table are revoked at once. */
export const refuseWritten = ({ table }: Pick<Owned, 'table'>, name: string): string =>
  `DO ${dollarQuote(`
DECLARE
  found pg_catalog.regclass := pg_catalog.to_regclass(${literal(qualified(table.schema, name))});
BEGIN
  IF EXISTS (SELECT FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS a
    WHERE c.oid OPERATOR(pg_catalog.=) found AND a.grantee OPERATOR(pg_catalog.<>) c.relowner${READING}) THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}',
      MESSAGE = pg_catalog.format('roles other than its owner may write to %s', found),
      HINT = 'The command does what is written there. See what the table holds, and revoke all but SELECT from them.';
  END IF;
END
`)}`

/**
 * Gives tables and sequences, as SQL, to the table's owner, and revokes grants by default privileges. Nobody else may
 * write to them, because their contents decide which names are taken and which rows are restored.
 *
 * @param access `readable` keeps grants of SELECT
 */
export const ownAlone = (
  { owner }: Owned,
  names: readonly string[],
  access: 'alone' | 'readable' = 'alone',
): string[] => {
  const ours = `ANY (ARRAY[${names.map(literal).join(', ')}]::pg_catalog.regclass[])`
  return [
    `DO ${dollarQuote(`
DECLARE
  command pg_catalog.text;
BEGIN
  -- Only where it is another's: the lock would wait for readers, and later ones would wait for it.
  FOR command IN
    SELECT pg_catalog.format('ALTER TABLE %s OWNER TO %I', c.oid::pg_catalog.regclass, ${literal(owner)})
      FROM pg_catalog.pg_class AS c
     WHERE c.oid OPERATOR(pg_catalog.=) ${ours} AND c.relowner OPERATOR(pg_catalog.<>) ${literal(quote(owner))}::pg_catalog.regrole
  LOOP
    EXECUTE command;
  END LOOP;
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
