import type { Change } from './alter'
import { literal, qualified, quote } from './identifier'
import { LIBRARY_FUNCTIONS } from './library'
import { type CatalogSpread, SPREAD_OF_R } from './spread'
import { EQUALS, joinOf, op, type TableName, tableName } from './text-table'
import type { ColumnType, ColumnTypes } from './types'

/** Runs SQL and returns its rows. It uses the query runner or the client that the caller has. */
export type Query = (sql: string, parameters?: unknown[]) => Promise<readonly unknown[]>

/** A function of our triggers, as the catalog holds it. */
export interface InstalledFunction {
  readonly schema: string
  readonly name: string
  readonly body: string
  readonly definer: boolean
  /** It belongs to the owner of the table. */
  readonly owned: boolean
  /**
   * It belongs to a role that could change the table as its owner can. A function of another role proves nothing,
   * because any role with the privilege TRIGGER can put a trigger with any declaration on the table.
   */
  readonly trusted: boolean
  /** A role other than its owner may create triggers with it. */
  readonly granted: boolean
  /** DROP EXTENSION would drop it, together with the triggers that run it. */
  readonly extension: boolean
  /** `name=value` without quotes, because `quote_all_identifiers` adds them. */
  readonly settings: readonly string[]
  /** Language, volatility, strictness and parallel safety, with the codes of `pg_proc`. */
  readonly form: string
}

/** A trigger, as the catalog holds it. */
export interface InstalledTrigger {
  readonly name: string
  /** The function that it runs. */
  readonly runs: { readonly schema: string; readonly name: string }
  readonly enabled: boolean
  /** Partitions where a row trigger is disabled or missing. */
  readonly unguarded: readonly string[]
  /** The function's arguments in hex, each followed by a zero byte. */
  readonly args: string
  /** The text after REFERENCING. Empty if there is none. */
  readonly transitions: string
  /** DROP EXTENSION would drop it. */
  readonly extension: boolean
  /** The bits of `pg_trigger.tgtype`: its time, level and events. */
  readonly type: number
  readonly conditional: boolean
  /** The columns that `UPDATE OF` names, by their present names. */
  readonly columns: readonly string[]
  /** The columns that cannot be dropped or get another type because the trigger or its condition names them. */
  readonly blocks: readonly string[]
  readonly definition: string
}

/** A table that attach makes beside the triggers, as the catalog holds it. */
export interface InstalledTable {
  readonly name: string
  /** The columns with their types. */
  readonly columns: Readonly<Record<string, string>>
  readonly primary: readonly string[]
  /** The names of its enabled triggers. */
  readonly triggers: readonly string[]
}

/** Our triggers on one table, including those that are no longer declared. */
export interface InstalledTriggers {
  readonly schema: string
  readonly table: string
  readonly functions: readonly InstalledFunction[]
  readonly triggers: readonly InstalledTrigger[]
  /** The wanted tables of these that exist in its schema and belong to its owner. */
  readonly tables: readonly InstalledTable[]
  /** The schemas of the tables that wanted triggers write to, by their SQL names. Null if a table does not exist. */
  readonly homes: Readonly<Record<string, string | null>>
  /** Those of them, as SQL, whose owner may not act as the owner of this table. */
  readonly foreign: readonly string[]
  /** The columns of the table. Undefined if they were not queried. */
  readonly columns?: TableState['columns']
  /** The wanted objects in the server's words, from `writtenAs`. Undefined: not queried, or not permitted. */
  readonly written?: ReadonlyMap<string, string>
}

/** A unique index with an expression in its key, or with a condition, in the server's words. */
export interface UnusualIndex {
  /** One column or expression each. */
  readonly keys: readonly string[]
  readonly condition: string | null
  /** The columns of the key. */
  readonly columns: readonly string[]
  /** The columns of the key and of the condition, with their defaults. */
  readonly reads: Readonly<Record<string, string | null>>
}

/** The catalog's data about one table. */
export interface TableState extends InstalledTriggers {
  readonly indexes: readonly {
    readonly name: string
    readonly unique: boolean
    readonly valid: boolean
    /** Its condition, in the server's words. Null if it holds every row. */
    readonly condition: string | null
    /** It belongs to a constraint that may be checked only at the end of a transaction. */
    readonly deferrable: boolean
    readonly columns: readonly string[]
    readonly primary: boolean
    /** Its CREATE INDEX statement, in the server's words. */
    readonly definition: string
    /** Null if the index is not unique, or if it has only columns and no condition. */
    readonly unusual: UnusualIndex | null
  }[]
  readonly columns: readonly (ColumnType & {
    readonly name: string
    readonly nullable: boolean
    /** The default in the server's words. Null if there is none. */
    readonly default: string | null
  })[]
  readonly checks: readonly { readonly name: string; readonly valid: boolean; readonly condition: string }[]
  /** Policies limit the rows that a role sees. */
  readonly rowSecurity: boolean
  readonly spread: CatalogSpread
}

/** The properties of the server that decide whether it can be used. */
export interface ServerState {
  /** The PostgreSQL name of the encoding, for instance `UTF8`. */
  readonly encoding: string
  /** A `server_version_num`, for instance 140011. */
  readonly version: number
  /** The result of `version()`, for instance `PostgreSQL 18.4 on x86_64-pc-linux-gnu, …`. */
  readonly engine: string
  /** The language of the triggers, PL/pgSQL, is installed. */
  readonly plpgsql: boolean
  /** `quote_all_identifiers`: the server also quotes the names of types. */
  readonly quotesAll: boolean
  /** `session_replication_role` is `replica`: no trigger of ours fires in this session. */
  readonly replica: boolean
}

/** Whether code on the table `k` may run as the owner of the table `t`: it runs when that owner writes to `k`. */
export const isTrustedBy = (k: string, t: string): string =>
  `pg_catalog.pg_has_role(${k}.relowner, ${t}.relowner, 'MEMBER')`

const OBJECT = 'pg_catalog.jsonb_build_object'

/** A JSON array, `[]` if it is empty. @param items the argument of `jsonb_agg` */
export const arrayOf = (items: string): string => `coalesce(pg_catalog.jsonb_agg(${items}), '[]')`

/** The columns `a` of a table: all of them, or the one with this number. @param relation its OID */
const columnsOf = (relation: string, number?: string): string =>
  `a.attrelid ${EQUALS} ${relation} AND a.attnum ${number === undefined ? `${op('>')} 0 AND NOT a.attisdropped` : `${EQUALS} ${number}`}`

/** Joins the columns `a` of a table. */
const joinColumnsA = (relation: string, number: string): string =>
  `JOIN pg_catalog.pg_attribute AS a ON ${columnsOf(relation, number)}`

/** The names of columns, in the order of their numbers `k.attnum`. @param numbers an array, @param relation an OID */
export const attributeNames = (numbers: string, relation: string): string =>
  `${arrayOf('a.attname ORDER BY k.i')} FROM pg_catalog.unnest(${numbers}) WITH ORDINALITY AS k (attnum, i)
      ${joinColumnsA(relation, 'k.attnum')}`

/** The default `f` of the column `a`, if it has one. */
const JOIN_DEFAULT_F = `LEFT JOIN pg_catalog.pg_attrdef AS f ON f.adrelid ${EQUALS} a.attrelid AND f.adnum ${EQUALS} a.attnum`

const DEFAULT_OF_F = 'pg_catalog.pg_get_expr(f.adbin, f.adrelid)'

/** A trigger `t` that the library has made: its only argument is a declaration, whatever its name. */
export const IS_ATTACHED: string = `(t.tgnargs ${EQUALS} 1 AND pg_catalog.starts_with(pg_catalog.encode(t.tgargs, 'escape'), '{"')
     AND pg_catalog.strpos(pg_catalog.encode(t.tgargs, 'escape'), '"kind": "') ${op('>')} 0)`

/** DROP EXTENSION drops the object, because it is a member of the extension or depends on it. */
const inExtension = (row: string): string => `EXISTS (
    SELECT FROM pg_catalog.pg_depend AS x WHERE x.classid ${EQUALS} ${row}.tableoid
      AND x.objid ${EQUALS} ${row}.oid AND x.deptype ${EQUALS} ANY ('{e,x}'))`

/** The function `p` in the schema `pn`, as members of a JSON object. */
const FUNCTION_P = `
  'schema', pn.nspname, 'name', p.proname, 'body', p.prosrc, 'definer', p.prosecdef, 'extension', ${inExtension('p')},
  'granted', EXISTS (
    SELECT FROM pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) AS a
     WHERE a.grantee ${op('<>')} p.proowner),
  'form', (
    SELECT pg_catalog.concat_ws(' ', l.lanname, p.provolatile, p.proisstrict, p.proparallel)
      FROM pg_catalog.pg_language AS l WHERE l.oid ${EQUALS} p.prolang),
  'settings', (SELECT ${arrayOf(`pg_catalog.replace(s, '"', '') ORDER BY s`)} FROM pg_catalog.unnest(p.proconfig) AS s)`

const JOIN_SCHEMA_PN = joinOf('pg_namespace', 'pn', 'p.pronamespace')

/** Our triggers on the table `r`, without those that a partition inherits from its parent. */
const TRIGGERS_OF_R = `
  FROM pg_catalog.pg_trigger AS t ${joinOf('pg_proc', 'p', 't.tgfoid')} ${JOIN_SCHEMA_PN}
 WHERE t.tgrelid ${EQUALS} r.oid AND NOT t.tgisinternal AND t.tgparentid ${EQUALS} 0
   AND ${IS_ATTACHED}`

/** The table `k`, which attach makes beside the triggers. */
const KEPT_TABLE_K = `${OBJECT}('name', k.relname,
  'columns', (
    SELECT pg_catalog.jsonb_object_agg(a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod))
      FROM pg_catalog.pg_attribute AS a WHERE ${columnsOf('k.oid')}),
  'primary', (
    SELECT ${arrayOf('a.attname ORDER BY u.i')} FROM pg_catalog.pg_index AS i
      CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY AS u (attnum, i)
      ${joinColumnsA('k.oid', 'u.attnum')}
     WHERE i.indrelid ${EQUALS} k.oid AND i.indisprimary AND i.indisvalid),
  'triggers', (
    SELECT ${arrayOf('t.tgname ORDER BY t.tgname')} FROM pg_catalog.pg_trigger AS t
     WHERE t.tgrelid ${EQUALS} k.oid AND t.tgenabled ${EQUALS} ANY ('{O,A}') AND t.tgqual IS NOT NULL))`

/** Partitions without the row trigger `t`. A statement on the parent fires only the parent's statement triggers. */
const UNGUARDED_BY_T = `(
  SELECT ${arrayOf('c.relname ORDER BY c.relname')}
    FROM pg_catalog.pg_partition_tree(r.oid) AS l ${joinOf('pg_class', 'c', 'l.relid')}
   WHERE r.relkind ${EQUALS} 'p' AND l.isleaf AND c.relkind ${EQUALS} 'r'
     AND (t.tgtype::pg_catalog.int4 ${op('&')} 1) ${EQUALS} 1 AND NOT EXISTS (
       SELECT FROM pg_catalog.pg_trigger AS o
        WHERE o.tgrelid ${EQUALS} l.relid AND o.tgname ${EQUALS} t.tgname
          AND o.tgfoid ${EQUALS} t.tgfoid AND o.tgenabled ${EQUALS} ANY ('{O,A}')))`

/** The pretty form of `pg_get_triggerdef` leaves out a schema that `search_path` contains, as TypeORM's SQL does. */
const OURS_OF_R = `${OBJECT}('schema', n.nspname, 'table', r.relname,
  'homes', (
    SELECT coalesce(pg_catalog.jsonb_object_agg(w.name, (
        SELECT hn.nspname FROM pg_catalog.pg_class AS h ${joinOf('pg_namespace', 'hn', 'h.relnamespace')}
         WHERE h.oid ${EQUALS} pg_catalog.to_regclass(w.name))), '{}')
      FROM pg_catalog.unnest($2::pg_catalog.text[]) AS w (name)),
  'foreign', (
    SELECT ${arrayOf('w.name')} FROM pg_catalog.unnest($2::pg_catalog.text[]) AS w (name)
      ${joinOf('pg_class', 'k', 'pg_catalog.to_regclass(w.name)')} AND NOT ${isTrustedBy('k', 'r')}),
  'tables', (
    SELECT ${arrayOf(KEPT_TABLE_K)} FROM pg_catalog.pg_class AS k
     WHERE k.relnamespace ${EQUALS} r.relnamespace AND k.relname ${EQUALS} ANY ($3)
       AND k.relkind ${EQUALS} 'r' AND k.relowner ${EQUALS} r.relowner),
  'triggers', (
    SELECT ${arrayOf(`${OBJECT}('name', t.tgname,
        'runs', ${OBJECT}('schema', pn.nspname, 'name', p.proname),
        'enabled', t.tgenabled ${EQUALS} ANY ('{O,A}'), 'extension', ${inExtension('t')},
        'unguarded', ${UNGUARDED_BY_T},
        'args', pg_catalog.encode(t.tgargs, 'hex'),
        'transitions', pg_catalog.concat_ws(' ', 'OLD TABLE AS ' ${op('||')} t.tgoldtable::pg_catalog.text,
          'NEW TABLE AS ' ${op('||')} t.tgnewtable::pg_catalog.text),
        'type', t.tgtype,
        'conditional', t.tgqual IS NOT NULL,
        'columns', (SELECT ${attributeNames('t.tgattr', 'r.oid')}),
        'blocks', (
          SELECT ${arrayOf('DISTINCT a.attname')} FROM pg_catalog.pg_depend AS d
            ${joinColumnsA('d.refobjid', 'd.refobjsubid')}
           WHERE d.classid ${EQUALS} t.tableoid AND d.objid ${EQUALS} t.oid AND d.refobjid ${EQUALS} r.oid
             AND d.refobjsubid ${op('>')} 0),
        'definition', pg_catalog.pg_get_triggerdef(t.oid, true)) ORDER BY t.tgname`)}${TRIGGERS_OF_R}),
  'functions', (
    SELECT ${arrayOf(`${OBJECT}(${FUNCTION_P},
        'owned', p.proowner ${EQUALS} r.relowner,
        'trusted', pg_catalog.pg_has_role(p.proowner, r.relowner, 'MEMBER'))
        ORDER BY pn.nspname, p.proname`)}
      FROM pg_catalog.pg_proc AS p ${JOIN_SCHEMA_PN}
     WHERE p.oid ${EQUALS} ANY (
       SELECT t.tgfoid FROM pg_catalog.pg_trigger AS t
        WHERE t.tgrelid ${EQUALS} r.oid AND t.tgparentid ${EQUALS} 0 AND ${IS_ATTACHED})))`

/** The index `i` reads the column `a` in its key or its condition. */
const READ_BY_I = `EXISTS (
    SELECT FROM pg_catalog.pg_depend AS d
     WHERE d.classid ${EQUALS} 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid ${EQUALS} i.indexrelid
       AND d.refobjid ${EQUALS} i.indrelid AND d.refobjsubid ${EQUALS} a.attnum)`

const UNUSUAL_OF_I = `CASE WHEN i.indisunique AND (i.indpred IS NOT NULL OR i.indexprs IS NOT NULL) THEN ${OBJECT}(
  'keys', (
    SELECT pg_catalog.jsonb_agg(pg_catalog.pg_get_indexdef(i.indexrelid, k, false) ORDER BY k)
      FROM pg_catalog.generate_series(1, i.indnkeyatts) AS k),
  'condition', pg_catalog.pg_get_expr(i.indpred, i.indrelid),
  'columns', (
    SELECT ${arrayOf('a.attname')} FROM pg_catalog.pg_attribute AS a
     WHERE a.attrelid ${EQUALS} i.indrelid AND (a.attnum ${EQUALS} ANY (i.indkey) OR i.indexprs IS NOT NULL AND ${READ_BY_I})),
  'reads', (
    SELECT coalesce(pg_catalog.jsonb_object_agg(a.attname, ${DEFAULT_OF_F}), '{}')
      FROM pg_catalog.pg_attribute AS a ${JOIN_DEFAULT_F}
     WHERE a.attrelid ${EQUALS} i.indrelid AND (a.attnum ${EQUALS} ANY (i.indkey) OR ${READ_BY_I}))) END`

const SERVER = `${OBJECT}(
  'encoding', pg_catalog.current_setting('server_encoding'),
  'version', pg_catalog.current_setting('server_version_num')::integer,
  'replica', pg_catalog.current_setting('session_replication_role') ${EQUALS} 'replica',
  'engine', pg_catalog.version(),
  'plpgsql', EXISTS (SELECT FROM pg_catalog.pg_language AS l WHERE l.lanname ${EQUALS} 'plpgsql'),
  'quotesAll', pg_catalog.current_setting('quote_all_identifiers')::boolean)`

/** What is wanted, as far as it is not found by the declarations in the triggers. */
export interface LookedFor {
  readonly tables: readonly Pick<InstalledTable, 'name'>[]
  /** A table that the triggers write to. */
  readonly writes?: TableName | undefined
}

/** Parameters 2 and 3: the values that tables are found by. */
const parametersOf = (wanted: readonly LookedFor[]): unknown[] => [
  [...new Set(wanted.flatMap(({ writes }) => (writes ? tableName(writes) : [])))],
  wanted.flatMap(({ tables }) => tables.map((one) => one.name)),
]

/**
 * Returns the server, and our triggers with a table or a function in these schemas, whether declared or not.
 *
 * `OFFSET 0` keeps EXISTS a subquery of its own. In a new database, whose catalog nobody has analyzed, a join would read
 * every function once for each table.
 */
export async function installedTriggers(
  query: Query,
  schemas: readonly string[],
  wanted: readonly LookedFor[],
): Promise<{
  readonly server: ServerState
  readonly tables: readonly InstalledTriggers[]
}> {
  return await readJson(
    query,
    `SELECT ${OBJECT}('server', ${SERVER}, 'tables', (
      SELECT ${arrayOf(`${OURS_OF_R} ORDER BY n.nspname, r.relname`)}
        FROM pg_catalog.pg_class AS r ${joinOf('pg_namespace', 'n', 'r.relnamespace')}
       WHERE r.relhastriggers AND EXISTS (SELECT${TRIGGERS_OF_R}
         AND (n.nspname ${EQUALS} ANY ($1) OR pn.nspname ${EQUALS} ANY ($1)) OFFSET 0)))::pg_catalog.text AS state`,
    [schemas, ...parametersOf(wanted)],
  )
}

/**
 * Returns everything that decides whether a declaration can be used, in one round trip.
 *
 * @param relation the table's name as SQL; if it has no schema, `search_path` decides
 */
export async function tableState(
  query: Query,
  relation: string,
  wanted: readonly LookedFor[],
): Promise<{ readonly server: ServerState; readonly table: TableState | null }> {
  return await readJson(
    query,
    `SELECT ${OBJECT}('server', ${SERVER}, 'table', (
      SELECT ${OURS_OF_R} ${op('||')} ${OBJECT}('rowSecurity', r.relrowsecurity, 'spread', ${SPREAD_OF_R},
        'indexes', (
          SELECT ${arrayOf(`${OBJECT}('name', c.relname,
              'unique', i.indisunique,
              'valid', i.indisvalid AND i.indisready,
              'condition', pg_catalog.pg_get_expr(i.indpred, i.indrelid),
              'deferrable', NOT i.indimmediate, 'primary', i.indisprimary,
              'definition', pg_catalog.pg_get_indexdef(i.indexrelid),
              'unusual', ${UNUSUAL_OF_I},
              'columns', (SELECT ${attributeNames('i.indkey', 'i.indrelid')} WHERE k.i ${op('<=')} i.indnkeyatts))`)}
            FROM pg_catalog.pg_index AS i ${joinOf('pg_class', 'c', 'i.indexrelid')} WHERE i.indrelid ${EQUALS} r.oid),
        'columns', (
          SELECT ${arrayOf(`${OBJECT}('name', a.attname, 'type', pg_catalog.format_type(a.atttypid, -1),
              'declared', pg_catalog.format_type(a.atttypid, a.atttypmod), 'nullable', NOT a.attnotnull,
              'default', CASE WHEN a.attidentity ${EQUALS} '' AND a.attgenerated ${EQUALS} '' THEN ${DEFAULT_OF_F} ELSE 'generated' END)`)}
            FROM pg_catalog.pg_attribute AS a ${JOIN_DEFAULT_F} WHERE ${columnsOf('r.oid')}),
        'checks', (
          SELECT ${arrayOf(`${OBJECT}('name', c.conname, 'valid', c.convalidated,
              'condition', pg_catalog.pg_get_expr(c.conbin, c.conrelid))`)}
            FROM pg_catalog.pg_constraint AS c WHERE c.conrelid ${EQUALS} r.oid AND c.contype ${EQUALS} 'c'))
        FROM pg_catalog.pg_class AS r ${joinOf('pg_namespace', 'n', 'r.relnamespace')}
       WHERE r.oid ${EQUALS} pg_catalog.to_regclass($1) AND r.relkind ${EQUALS} ANY ('{r,p}')))::pg_catalog.text AS state`,
    [relation, ...parametersOf(wanted)],
  )
}

/** The column is text, because the user may have set a JSON parser. */
export async function readJson<T>(query: Query, sql: string, parameters: unknown[]): Promise<T> {
  const [row] = (await query(sql, parameters)) as readonly { state: string }[]
  if (!row) throw new TypeError('The catalog query gives exactly one row.')
  return JSON.parse(row.state) as T
}

/** The prefix of the comment on every index of ours. */
const INDEX_COMMENT = 'typeorm-unique-text: '

/** The index that the option `lookup` adds. It is over the text itself, for equality without the hash in SQL. */
export interface LookupIndex {
  readonly rows: TableName
  readonly name: string
  readonly column: string
}

const METHOD = 'USING hash'

/**
 * The index uses the method `hash`: a key has four bytes, however long the text is. A B-tree refuses long texts.
 *
 * @param how `CONCURRENTLY` lets others write meanwhile
 */
export function addLookup({ rows, name, column }: LookupIndex, how: '' | 'CONCURRENTLY ' = ''): Change {
  const comment = `${INDEX_COMMENT}finds "${column}" by equality in SQL that names no hash; no other use needs it.`
  const index = qualified(rows.schema, name)
  return {
    up: [
      `CREATE INDEX ${how}${quote(name)} ON ${tableName(rows)} ${METHOD} (${quote(column)})`,
      `COMMENT ON INDEX ${index} IS ${literal(comment)}`,
    ],
    down: [`DROP INDEX ${index}`],
  }
}

/**
 * Returns the look-up indexes in these schemas: indexes with our comment, and indexes with a wanted name. A user may
 * have created the latter beforehand without locking the table.
 */
export async function installedLookups(
  query: Query,
  schemas: readonly string[],
  wanted: readonly string[],
): Promise<readonly string[]> {
  const rows = (await query(
    `SELECT c.relname AS name
       FROM pg_catalog.pg_index AS i ${joinOf('pg_class', 'c', 'i.indexrelid')}
       ${joinOf('pg_am', 'a', 'c.relam')} ${joinOf('pg_namespace', 'n', 'c.relnamespace')}
      WHERE n.nspname ${EQUALS} ANY ($1) AND a.amname ${EQUALS} 'hash' AND i.indisvalid
        AND (pg_catalog.starts_with(pg_catalog.obj_description(c.oid, 'pg_class'), $2) OR c.relname ${EQUALS} ANY ($3))`,
    [schemas, INDEX_COMMENT, wanted],
  )) as readonly { readonly name: string }[]
  return rows.map(({ name }) => name)
}

/**
 * Returns the defaults of a table's columns, as SQL with the same meaning on this connection. Identity and generated
 * columns are left out, because no expression produces their values.
 *
 * @param relation the table's name as SQL
 */
export async function columnDefaults(query: Query, relation: string): Promise<ReadonlyMap<string, string>> {
  const defaults = await readJson<Record<string, string>>(
    query,
    `SELECT coalesce(pg_catalog.jsonb_object_agg(a.attname, coalesce(
              ${DEFAULT_OF_F}, pg_catalog.pg_get_expr(t.typdefaultbin, 0), 'NULL')), '{}')::pg_catalog.text AS state
       FROM pg_catalog.pg_attribute AS a ${joinOf('pg_type', 't', 'a.atttypid')} ${JOIN_DEFAULT_F}
      WHERE ${columnsOf('pg_catalog.to_regclass($1)')}
        AND a.attidentity ${EQUALS} '' AND a.attgenerated ${EQUALS} ''`,
    [relation],
  )
  return new Map(Object.entries(defaults))
}

/** Returns the types of a table's columns. @param relation the table's name as SQL */
export async function columnTypes(query: Query, relation: string): Promise<ColumnTypes> {
  const types = await readJson<Record<string, ColumnType>>(
    query,
    `SELECT pg_catalog.jsonb_object_agg(a.attname, ${OBJECT}('type', pg_catalog.format_type(a.atttypid, -1),
              'declared', pg_catalog.format_type(a.atttypid, a.atttypmod)))::pg_catalog.text AS state
       FROM pg_catalog.pg_attribute AS a WHERE ${columnsOf('pg_catalog.to_regclass($1)')}`,
    [relation],
  )
  return new Map(Object.entries(types ?? {}))
}

/**
 * Returns the tables that names mean on this connection.
 *
 * @param others tables that the triggers of the first table write to, which may be missing
 * @returns their OIDs, or undefined if the first table does not exist
 */
export async function tableOids(
  query: Query,
  relation: string,
  others: readonly string[] = [],
): Promise<string | undefined> {
  const tables = [relation, ...others]
  const oids = tables.map((_, index) => `pg_catalog.to_regclass($${index + 1})::pg_catalog.oid`)
  const sql = `SELECT pg_catalog.array_to_string(ARRAY[${oids.join(', ')}], ' ', '-') AS oids`
  const [row] = (await query(sql, tables)) as readonly { readonly oids: string }[]
  return row?.oids.startsWith('-') === true ? undefined : row?.oids
}

/** Returns the functions of the library in these schemas, by schema, of roles that may act as the current one. */
export async function installedLibraries(
  query: Query,
  schemas: readonly string[],
): Promise<ReadonlyMap<string, readonly string[]>> {
  if (schemas.length === 0) return new Map()
  const rows = (await query(
    `SELECT n.nspname AS name, pg_catalog.array_agg(f.name) AS functions
       FROM pg_catalog.pg_namespace AS n CROSS JOIN pg_catalog.unnest($2::pg_catalog.text[]) AS f (name) ${joinOf(
         'pg_proc',
         'p',
         `pg_catalog.to_regprocedure(pg_catalog.format('%I.%s', n.nspname, f.name))::pg_catalog.oid`,
       )}
      WHERE n.nspname ${EQUALS} ANY ($1) AND pg_catalog.pg_has_role(p.proowner, current_user, 'MEMBER')
      GROUP BY n.nspname`,
    [schemas, LIBRARY_FUNCTIONS],
  )) as readonly { readonly name: string; readonly functions: readonly string[] }[]
  return new Map(rows.map(({ name, functions }) => [name, functions]))
}

/**
 * Drops our functions in these schemas that no trigger or check calls any more. Functions of other roles stay. So does a
 * function with our comment that returns no `trigger` or that an extension needs, because it is not ours. Functions of the
 * library call each other, and are dropped together.
 */
export async function dropOrphans(query: Query, schemas: readonly string[]): Promise<void> {
  const rows = (await query(
    `SELECT coalesce(l.name, pg_catalog.format('%I.%I()', pn.nspname, p.proname)) AS name
       FROM pg_catalog.pg_proc AS p ${JOIN_SCHEMA_PN}
       LEFT JOIN LATERAL (
         SELECT pg_catalog.format('%I.%s', pn.nspname, f.name) AS name FROM pg_catalog.unnest($2::pg_catalog.text[]) AS f (name)
       ) AS l ON p.oid ${EQUALS} pg_catalog.to_regprocedure(l.name)::pg_catalog.oid
      WHERE pn.nspname ${EQUALS} ANY ($1) AND pg_catalog.pg_has_role(p.proowner, 'MEMBER') AND NOT ${inExtension('p')}
        AND (l.name IS NOT NULL OR p.prorettype ${EQUALS} 'pg_catalog.trigger'::pg_catalog.regtype
          AND pg_catalog.starts_with(pg_catalog.obj_description(p.oid, 'pg_proc'), 'typeorm-unique-text: unique_text_detach'))
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS d
          WHERE d.refclassid ${EQUALS} 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.refobjid ${EQUALS} p.oid
            AND d.classid ${op('<>')} d.refclassid)
      ORDER BY 1`,
    [schemas, LIBRARY_FUNCTIONS],
  )) as readonly { readonly name: string }[]
  if (rows.length > 0) await query(`DROP FUNCTION ${rows.map(({ name }) => name).join(', ')}`)
}
