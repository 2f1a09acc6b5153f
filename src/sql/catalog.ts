import type { ColumnType } from './column-type'
import { qualified } from './identifier'
import { type CatalogSpread, SPREAD_OF_R } from './spread'
import { TRIGGER_MARK, type TriggerSet } from './trigger-set'

/** Runs SQL and gives its rows; a query runner's or a client's, whichever the caller has. */
export type Query = (sql: string, parameters?: unknown[]) => Promise<readonly unknown[]>

/**
 * What follows FROM: the transactions of others in this database, as `s`. An idle session that reads what others have
 * changed in the catalog begins one for a moment, which bears the time of its last statement.
 */
export const OPEN_TRANSACTIONS = `pg_catalog.pg_stat_activity AS s
      WHERE s.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
        AND s.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
        AND s.xact_start IS NOT NULL AND (s.state OPERATOR(pg_catalog.=) 'idle') IS NOT TRUE`

/** A function of a set of triggers, as the catalog holds it. */
export interface InstalledFunction {
  readonly schema: string
  readonly name: string
  readonly body: string
  readonly definer: boolean
  /** It belongs to the owner of the table. */
  readonly owned: boolean
  /**
   * It belongs to a role that could change the table as its owner can. One of another role says nothing about the table:
   * whoever holds the privilege TRIGGER can put a function with our mark and any note on the table.
   */
  readonly trusted: boolean
  /** Another role than its owner may put it on a table. */
  readonly granted: boolean
  /** An extension would drop it, and with it the triggers that run it. */
  readonly extension: boolean
  /** A trigger of another table runs it too. */
  readonly shared: boolean
  /** `name=value`, quotes taken out: `quote_all_identifiers` puts them in. */
  readonly settings: readonly string[]
}

/** A function that all tables of a schema share, as it stands; whoever made it. */
export interface InstalledKernel extends Pick<
  InstalledFunction,
  'schema' | 'name' | 'body' | 'settings' | 'definer' | 'granted' | 'extension'
> {
  /** The tables whose triggers run it, by their schema's name and their own. */
  readonly tables: readonly (readonly [schema: string, table: string])[]
}

/** A trigger, as the catalog holds it. */
export interface InstalledTrigger {
  readonly name: string
  /** Of the function, with its schema. */
  readonly runs: { readonly schema: string; readonly name: string }
  readonly enabled: boolean
  /** An extension would drop it. */
  readonly extension: boolean
  /** The bits of `pg_trigger.tgtype`: when it fires, and for what. */
  readonly type: number
  readonly conditional: boolean
  /** Those that `UPDATE OF` names, as they are called now. */
  readonly columns: readonly string[]
  /** Those that stand in the way of DROP COLUMN and ALTER TYPE, for the trigger's condition names them too. */
  readonly blocks: readonly string[]
  readonly definition: string
}

/** Which of our triggers exist on one table, including those whose declaration is gone. */
export interface InstalledTriggers {
  readonly schema: string
  readonly table: string
  readonly functions: readonly InstalledFunction[]
  readonly triggers: readonly InstalledTrigger[]
  /** Of the tables that wanted sets keep, those that stand in its schema and belong to its owner. */
  readonly tables: readonly string[]
  /** The schemas of the tables that are the `path` of a wanted set, by their names as SQL; null: there is none yet. */
  readonly homes: Readonly<Record<string, string | null>>
}

/** A unique index whose key is an expression, or that has a condition; in the server's words. */
export interface UnusualIndex {
  /** A column or an expression each. */
  readonly keys: readonly string[]
  readonly condition: string | null
  /** Columns of the key. */
  readonly columns: readonly string[]
  /** Columns of the key and of the condition, with their defaults. */
  readonly reads: Readonly<Record<string, string | null>>
}

/** What the catalog says about one table. */
export interface TableState extends InstalledTriggers {
  readonly indexes: readonly {
    readonly name: string
    readonly unique: boolean
    readonly valid: boolean
    /** Its condition, in the server's words; null where it holds every row. */
    readonly condition: string | null
    /** It belongs to a constraint that may be checked only at the end of a transaction. */
    readonly deferrable: boolean
    readonly columns: readonly string[]
    /** null: it is not unique, or has columns alone and no condition. */
    readonly unusual: UnusualIndex | null
  }[]
  readonly columns: readonly (ColumnType & { readonly name: string; readonly nullable: boolean })[]
  readonly checks: readonly { readonly name: string; readonly valid: boolean }[]
  /** Policies say which rows a role sees. */
  readonly rowSecurity: boolean
  readonly spread: CatalogSpread
}

/** The properties of the server that decide whether it can be used. */
export interface ServerState {
  /** By its name in Postgres, for instance `UTF8`. */
  readonly encoding: string
  /** As `server_version_num`, for instance 140011. */
  readonly version: number
  /** `quote_all_identifiers`: the names of types are quoted too. */
  readonly quotesAll: boolean
}

/** A function that is known by its body or its name: an attacker may change one. */
const IS_MARKED = `pg_catalog.starts_with(pg_catalog.ltrim(p.prosrc, E' \\n'), $2)`
const IS_OURS = `(${IS_MARKED} OR p.proname OPERATOR(pg_catalog.=) ANY ($3))`

const SETTINGS_OF_P = `(
         SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.replace(s, '"', '') ORDER BY s), '[]')
           FROM pg_catalog.unnest(p.proconfig) AS s)`

const GRANTED_OF_P = `EXISTS (
         SELECT FROM pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) AS a
          WHERE a.grantee OPERATOR(pg_catalog.<>) p.proowner)`

/** DROP EXTENSION drops the object: it is a member of the extension, or depends on it. */
const inExtension = (row: string): string => `EXISTS (
         SELECT FROM pg_catalog.pg_depend AS x WHERE x.classid OPERATOR(pg_catalog.=) ${row}.tableoid
           AND x.objid OPERATOR(pg_catalog.=) ${row}.oid AND x.deptype OPERATOR(pg_catalog.=) ANY ('{e,x}'))`

/** Our triggers on the table `r`; not those that a partition has from its parent. */
const TRIGGERS_OF_R = `
         FROM pg_catalog.pg_trigger AS t
         JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) t.tgfoid
         JOIN pg_catalog.pg_namespace AS pn ON pn.oid OPERATOR(pg_catalog.=) p.pronamespace
        WHERE t.tgrelid OPERATOR(pg_catalog.=) r.oid AND NOT t.tgisinternal AND t.tgparentid OPERATOR(pg_catalog.=) 0
          AND (t.tgname OPERATOR(pg_catalog.=) ANY ($3) OR ${IS_OURS})`

/** `pg_get_triggerdef` in its pretty form leaves out a schema that `search_path` holds, as TypeORM's SQL does. */
const OURS_OF_R = `
  pg_catalog.jsonb_build_object(
    'schema', n.nspname,
    'table', r.relname,
    'homes', (
       SELECT coalesce(pg_catalog.jsonb_object_agg(w.name, (
                SELECT hn.nspname FROM pg_catalog.pg_class AS h
                  JOIN pg_catalog.pg_namespace AS hn ON hn.oid OPERATOR(pg_catalog.=) h.relnamespace
                 WHERE h.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(w.name))), '{}')
         FROM pg_catalog.unnest($4::pg_catalog.text[]) AS w (name)),
    'tables', (
       SELECT coalesce(pg_catalog.jsonb_agg(k.relname), '[]') FROM pg_catalog.pg_class AS k
        WHERE k.relnamespace OPERATOR(pg_catalog.=) r.relnamespace AND k.relname OPERATOR(pg_catalog.=) ANY ($5)
          AND k.relkind OPERATOR(pg_catalog.=) 'r' AND k.relowner OPERATOR(pg_catalog.=) r.relowner),
    'triggers', (
       SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
                'name', t.tgname,
                'runs', pg_catalog.jsonb_build_object('schema', pn.nspname, 'name', p.proname),
                'enabled', t.tgenabled OPERATOR(pg_catalog.=) ANY ('{O,A}'), 'extension', ${inExtension('t')},
                'type', t.tgtype,
                'conditional', t.tgqual IS NOT NULL,
                'columns', (SELECT coalesce(pg_catalog.jsonb_agg(a.attname ORDER BY k.i), '[]')
                              FROM pg_catalog.unnest(t.tgattr) WITH ORDINALITY AS k (attnum, i)
                              JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) r.oid
                                                     AND a.attnum OPERATOR(pg_catalog.=) k.attnum),
                'blocks', (SELECT coalesce(pg_catalog.jsonb_agg(DISTINCT a.attname), '[]')
                             FROM pg_catalog.pg_depend AS d
                             JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) d.refobjid
                                                    AND a.attnum OPERATOR(pg_catalog.=) d.refobjsubid
                            WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_trigger'::pg_catalog.regclass
                              AND d.objid OPERATOR(pg_catalog.=) t.oid AND d.refobjid OPERATOR(pg_catalog.=) r.oid
                              AND d.refobjsubid OPERATOR(pg_catalog.>) 0),
                'definition', pg_catalog.pg_get_triggerdef(t.oid, true)) ORDER BY t.tgname), '[]')${TRIGGERS_OF_R}),
    'functions', (
       SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
                'schema', pn.nspname,
                'name', p.proname,
                'body', p.prosrc,
                'definer', p.prosecdef,
                'owned', p.proowner OPERATOR(pg_catalog.=) r.relowner,
                'trusted', pg_catalog.pg_has_role(p.proowner, r.relowner, 'MEMBER'),
                'granted', ${GRANTED_OF_P}, 'extension', ${inExtension('p')},
                'shared', EXISTS (SELECT FROM pg_catalog.pg_trigger AS t
                                   WHERE t.tgfoid OPERATOR(pg_catalog.=) p.oid AND t.tgrelid OPERATOR(pg_catalog.<>) r.oid
                                     AND t.tgparentid OPERATOR(pg_catalog.=) 0),
                'settings', ${SETTINGS_OF_P}) ORDER BY pn.nspname, p.proname), '[]')
         FROM pg_catalog.pg_proc AS p
         JOIN pg_catalog.pg_namespace AS pn ON pn.oid OPERATOR(pg_catalog.=) p.pronamespace
        WHERE ${IS_OURS}
          AND p.oid OPERATOR(pg_catalog.=) ANY (SELECT t.tgfoid FROM pg_catalog.pg_trigger AS t
                                            WHERE t.tgrelid OPERATOR(pg_catalog.=) r.oid AND t.tgparentid OPERATOR(pg_catalog.=) 0)))`

/** The index `i` reads a column, for its key or its condition. */
const READ_BY_I = `EXISTS (
                      SELECT FROM pg_catalog.pg_depend AS d
                       WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
                         AND d.objid OPERATOR(pg_catalog.=) i.indexrelid
                         AND d.refobjid OPERATOR(pg_catalog.=) i.indrelid AND d.refobjsubid OPERATOR(pg_catalog.=) a.attnum)`

const UNUSUAL_OF_I = `CASE WHEN i.indisunique AND (i.indpred IS NOT NULL OR i.indexprs IS NOT NULL) THEN pg_catalog.jsonb_build_object(
                      'keys', (SELECT pg_catalog.jsonb_agg(pg_catalog.pg_get_indexdef(i.indexrelid, k, false) ORDER BY k)
                                 FROM pg_catalog.generate_series(1, i.indnkeyatts) AS k),
                      'condition', pg_catalog.pg_get_expr(i.indpred, i.indrelid),
                      'columns', (SELECT coalesce(pg_catalog.jsonb_agg(a.attname), '[]') FROM pg_catalog.pg_attribute AS a
                                   WHERE a.attrelid OPERATOR(pg_catalog.=) i.indrelid
                                     AND (a.attnum OPERATOR(pg_catalog.=) ANY (i.indkey) OR i.indexprs IS NOT NULL AND ${READ_BY_I})),
                      'reads', (SELECT coalesce(pg_catalog.jsonb_object_agg(a.attname, pg_catalog.pg_get_expr(f.adbin, f.adrelid)), '{}')
                                  FROM pg_catalog.pg_attribute AS a
                                  LEFT JOIN pg_catalog.pg_attrdef AS f ON f.adrelid OPERATOR(pg_catalog.=) a.attrelid
                                                                 AND f.adnum OPERATOR(pg_catalog.=) a.attnum
                                 WHERE a.attrelid OPERATOR(pg_catalog.=) i.indrelid AND (a.attnum OPERATOR(pg_catalog.=) ANY (i.indkey) OR ${READ_BY_I}))) END`

const SERVER = `pg_catalog.jsonb_build_object(
  'encoding', pg_catalog.current_setting('server_encoding'),
  'version', pg_catalog.current_setting('server_version_num')::integer,
  'quotesAll', pg_catalog.current_setting('quote_all_identifiers')::boolean)`

/** By what sets are found and compared, as parameters 2 to 5. */
const parametersOf = (wanted: readonly TriggerSet[]): unknown[] => [
  TRIGGER_MARK,
  wanted.flatMap(({ functions, kernel, triggers }) => [...functions, ...kernel, ...triggers].map(({ name }) => name)),
  [...new Set(wanted.flatMap(({ path }) => (path ? qualified(path.schema, path.name) : [])))],
  wanted.flatMap(({ tables }) => tables),
]

/** Our triggers on all tables of these schemas, those that are gone from their entities included, and the server. */
export async function installedTriggers(
  query: Query,
  schemas: readonly string[],
  wanted: readonly TriggerSet[],
): Promise<{
  readonly server: ServerState
  readonly tables: readonly InstalledTriggers[]
  readonly kernel: readonly InstalledKernel[]
}> {
  return await readJson(
    query,
    `SELECT pg_catalog.jsonb_build_object('server', ${SERVER}, 'tables', (
       SELECT coalesce(pg_catalog.jsonb_agg(${OURS_OF_R} ORDER BY n.nspname, r.relname), '[]')
         FROM pg_catalog.pg_class AS r
         JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) r.relnamespace
        WHERE n.nspname OPERATOR(pg_catalog.=) ANY ($1) AND r.relhastriggers AND EXISTS (SELECT${TRIGGERS_OF_R})), 'kernel', (
       SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
                'schema', pn.nspname, 'name', p.proname, 'body', p.prosrc, 'definer', p.prosecdef, 'granted', ${GRANTED_OF_P},
                'extension', ${inExtension('p')}, 'settings', ${SETTINGS_OF_P},
                'tables', (SELECT coalesce(pg_catalog.jsonb_agg(DISTINCT pg_catalog.jsonb_build_array(rn.nspname, r.relname)), '[]')
                             FROM pg_catalog.pg_trigger AS t
                             JOIN pg_catalog.pg_class AS r ON r.oid OPERATOR(pg_catalog.=) t.tgrelid
                             JOIN pg_catalog.pg_namespace AS rn ON rn.oid OPERATOR(pg_catalog.=) r.relnamespace
                            WHERE t.tgfoid OPERATOR(pg_catalog.=) p.oid AND t.tgparentid OPERATOR(pg_catalog.=) 0)) ORDER BY pn.nspname, p.proname), '[]')
         FROM pg_catalog.pg_proc AS p
         JOIN pg_catalog.pg_namespace AS pn ON pn.oid OPERATOR(pg_catalog.=) p.pronamespace
        WHERE pn.nspname OPERATOR(pg_catalog.=) ANY ($1)
          AND pg_catalog.starts_with(pg_catalog.ltrim(p.prosrc, E' \\n'), $2 OPERATOR(pg_catalog.||) 'kernel')))::pg_catalog.text AS state`,
    [schemas, ...parametersOf(wanted)],
  )
}

/** Drops our functions in these schemas that no trigger runs any more, but for those of other roles. */
export async function dropOrphans(query: Query, schemas: readonly string[]): Promise<void> {
  const rows = (await query(
    `SELECT pg_catalog.format('%I.%I()', n.nspname, p.proname) AS name
       FROM pg_catalog.pg_proc AS p
       JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
      WHERE n.nspname OPERATOR(pg_catalog.=) ANY ($1) AND ${IS_MARKED} AND pg_catalog.pg_has_role(p.proowner, 'MEMBER')
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS t WHERE t.tgfoid OPERATOR(pg_catalog.=) p.oid)
      ORDER BY 1`,
    [schemas, TRIGGER_MARK],
  )) as readonly { readonly name: string }[]
  if (rows.length > 0) await query(`DROP FUNCTION ${rows.map(({ name }) => name).join(', ')}`)
}

/**
 * All that decides whether a declaration can be used, in one round trip.
 *
 * @param relation the table's name as SQL; `search_path` decides where it names no schema
 */
export async function tableState(
  query: Query,
  relation: string,
  wanted: readonly TriggerSet[],
): Promise<{ readonly server: ServerState; readonly table: TableState | null }> {
  return await readJson(
    query,
    `SELECT pg_catalog.jsonb_build_object('server', ${SERVER}, 'table', (
       SELECT ${OURS_OF_R} OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object(
         'rowSecurity', r.relrowsecurity,
         'spread', ${SPREAD_OF_R},
         'indexes', (
           SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
                    'name', c.relname,
                    'unique', i.indisunique,
                    'valid', i.indisvalid AND i.indisready,
                    'condition', pg_catalog.pg_get_expr(i.indpred, i.indrelid),
                    'deferrable', NOT i.indimmediate,
                    'unusual', ${UNUSUAL_OF_I},
                    'columns', (SELECT pg_catalog.jsonb_agg(a.attname ORDER BY k.position)
                                  FROM pg_catalog.unnest(i.indkey) WITH ORDINALITY AS k (attnum, position)
                                  JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) i.indrelid
                                                         AND a.attnum OPERATOR(pg_catalog.=) k.attnum
                                 WHERE k.position OPERATOR(pg_catalog.<=) i.indnkeyatts))), '[]')
             FROM pg_catalog.pg_index AS i
             JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid
            WHERE i.indrelid OPERATOR(pg_catalog.=) r.oid),
         'columns', (
           SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
                    'name', a.attname, 'type', pg_catalog.format_type(a.atttypid, -1),
                    'declared', pg_catalog.format_type(a.atttypid, a.atttypmod), 'nullable', NOT a.attnotnull)), '[]')
             FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid OPERATOR(pg_catalog.=) r.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped),
         'checks', (
           SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('name', c.conname, 'valid', c.convalidated)), '[]')
             FROM pg_catalog.pg_constraint AS c
            WHERE c.conrelid OPERATOR(pg_catalog.=) r.oid AND c.contype OPERATOR(pg_catalog.=) 'c'))
         FROM pg_catalog.pg_class AS r
         JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) r.relnamespace
        WHERE r.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)))::pg_catalog.text AS state`,
    [relation, ...parametersOf(wanted)],
  )
}

/**
 * Which table a name means on this connection.
 *
 * @returns its OID; undefined if there is none
 */
export async function tableOid(query: Query, relation: string): Promise<string | undefined> {
  const [row] = (await query('SELECT pg_catalog.to_regclass($1)::pg_catalog.oid::pg_catalog.text AS oid', [
    relation,
  ])) as readonly {
    oid: string | null
  }[]
  return row?.oid ?? undefined
}

/**
 * The defaults of a table's columns, as SQL that means the same on this connection now. Identity and generated columns
 * are left out: no expression stands for what Postgres gives them.
 *
 * @param relation the table's name as SQL
 */
export async function columnDefaults(query: Query, relation: string): Promise<ReadonlyMap<string, string>> {
  const defaults = await readJson<Record<string, string>>(
    query,
    `SELECT coalesce(pg_catalog.jsonb_object_agg(a.attname, coalesce(
              pg_catalog.pg_get_expr(d.adbin, d.adrelid), pg_catalog.pg_get_expr(t.typdefaultbin, 0), 'NULL')), '{}')::pg_catalog.text AS state
       FROM pg_catalog.pg_attribute AS a
       JOIN pg_catalog.pg_type AS t ON t.oid OPERATOR(pg_catalog.=) a.atttypid
       LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid OPERATOR(pg_catalog.=) a.attrelid
        AND d.adnum OPERATOR(pg_catalog.=) a.attnum
      WHERE a.attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)
        AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped
        AND a.attidentity OPERATOR(pg_catalog.=) '' AND a.attgenerated OPERATOR(pg_catalog.=) ''`,
    [relation],
  )
  return new Map(Object.entries(defaults))
}

/** How large an index is, with those of its partitions, beside the server's cache; in bytes. */
interface IndexSize {
  readonly index: number
  /** `shared_buffers`. */
  readonly cache: number
  readonly page: number
}

/**
 * @param relation the table's name as SQL
 * @param name of the index
 */
export async function indexSize(query: Query, relation: string, name: string): Promise<IndexSize> {
  return await readJson(
    query,
    `SELECT pg_catalog.jsonb_build_object(
              'index', coalesce((
                SELECT pg_catalog.sum(pg_catalog.pg_relation_size(coalesce(p.relid, i.indexrelid)))
                  FROM pg_catalog.pg_index AS i
                  JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid
                  LEFT JOIN LATERAL pg_catalog.pg_partition_tree(i.indexrelid) AS p ON true
                 WHERE i.indrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1) AND c.relname OPERATOR(pg_catalog.=) $2), 0),
              'cache', pg_catalog.pg_size_bytes(pg_catalog.current_setting('shared_buffers')),
              'page', pg_catalog.current_setting('block_size')::integer)::pg_catalog.text AS state`,
    [relation, name],
  )
}

/** As text: the user may have set a JSON parser. */
async function readJson<T>(query: Query, sql: string, parameters: unknown[]): Promise<T> {
  const [row] = (await query(sql, parameters)) as readonly { state: string }[]
  if (!row) throw new TypeError('The catalog query gives exactly one row.')
  return JSON.parse(row.state) as T
}
