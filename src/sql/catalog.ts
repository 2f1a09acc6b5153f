import { GUARD_COMMENT_PREFIX } from './guard'

/** Runs SQL and gives its rows; a query runner's or a client's, whichever the caller has. */
export type Query = (sql: string, parameters?: unknown[]) => Promise<readonly unknown[]>

/** A function of an installed guard. */
export interface InstalledFunction {
  readonly name: string
  readonly body: string
}

/** A guard as the catalog holds it, perhaps of a declaration that is gone. */
export interface InstalledGuard {
  readonly schema: string
  readonly table: string
  readonly comment: string
  /** False where a trigger was disabled. */
  readonly enabled: boolean
  readonly functions: readonly InstalledFunction[]
  readonly triggers: readonly { readonly name: string; readonly definition: string }[]
}

/**
 * Guards on the tables of these schemas, found by the comment on their functions. `pg_get_triggerdef` in its pretty
 * form leaves out a schema that `search_path` holds, as TypeORM's own SQL does.
 */
export async function installedGuards(query: Query, schemas: readonly string[]): Promise<InstalledGuard[]> {
  return (await query(
    `SELECT n.nspname AS "schema", c.relname AS "table", d.description AS "comment",
            bool_and(t.tgenabled IN ('O', 'A')) AS "enabled",
            jsonb_agg(DISTINCT jsonb_build_object('name', p.proname, 'body', p.prosrc)) AS "functions",
            jsonb_agg(jsonb_build_object('name', t.tgname, 'definition', pg_get_triggerdef(t.oid, true))
              ORDER BY t.tgname) AS "triggers"
       FROM pg_trigger AS t
       JOIN pg_class AS c ON c.oid = t.tgrelid
       JOIN pg_namespace AS n ON n.oid = c.relnamespace
       JOIN pg_proc AS p ON p.oid = t.tgfoid
       JOIN pg_description AS d ON d.objoid = p.oid AND d.classoid = 'pg_proc'::regclass
      WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND n.nspname = ANY ($1) AND starts_with(d.description, $2)
      GROUP BY n.nspname, c.relname, d.description
      ORDER BY n.nspname, c.relname, d.description`,
    [schemas, GUARD_COMMENT_PREFIX],
  )) as InstalledGuard[]
}

/** What the catalog says about one table. */
export interface TableState {
  readonly exists: boolean
  readonly indexes: readonly {
    readonly name: string
    readonly unique: boolean
    readonly valid: boolean
    readonly partial: boolean
    readonly columns: readonly string[]
  }[]
  readonly columns: readonly { readonly name: string; readonly type: string; readonly nullable: boolean }[]
  readonly checks: readonly { readonly name: string; readonly valid: boolean }[]
  /** Triggers of a guard, with the comment of their function. */
  readonly triggers: readonly { readonly name: string; readonly enabled: boolean; readonly comment: string }[]
}

/** One round trip. `relation` is the table's name as SQL. */
export async function tableState(query: Query, relation: string): Promise<TableState> {
  const [row] = (await query(
    `SELECT r.oid IS NOT NULL AS "exists",
       (SELECT coalesce(jsonb_agg(jsonb_build_object('name', c.relname, 'unique', i.indisunique,
                 'valid', i.indisvalid AND i.indisready, 'partial', i.indpred IS NOT NULL,
                 'columns', (SELECT jsonb_agg(a.attname ORDER BY k.place) FROM unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
                              JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                             WHERE k.place <= i.indnkeyatts))), '[]')
          FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE i.indrelid = r.oid) AS "indexes",
       (SELECT coalesce(jsonb_agg(jsonb_build_object('name', a.attname, 'type', format_type(a.atttypid, -1), 'nullable', NOT a.attnotnull)), '[]')
          FROM pg_attribute AS a WHERE a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped) AS "columns",
       (SELECT coalesce(jsonb_agg(jsonb_build_object('name', c.conname, 'valid', c.convalidated)), '[]')
          FROM pg_constraint AS c WHERE c.conrelid = r.oid AND c.contype = 'c') AS "checks",
       (SELECT coalesce(jsonb_agg(jsonb_build_object('name', t.tgname, 'enabled', t.tgenabled IN ('O', 'A'), 'comment', d.description)), '[]')
          FROM pg_trigger AS t JOIN pg_description AS d ON d.objoid = t.tgfoid AND d.classoid = 'pg_proc'::regclass
         WHERE t.tgrelid = r.oid AND starts_with(d.description, $2)) AS "triggers"
     FROM (SELECT to_regclass($1) AS oid) AS r`,
    [relation, GUARD_COMMENT_PREFIX],
  )) as TableState[]
  if (!row) throw new TypeError('The catalog query gives exactly one row.')
  return row
}

/** The database's encoding, by its name in Postgres, for instance `UTF8`. */
export async function databaseEncoding(query: Query): Promise<string> {
  const [row] = (await query(`SELECT current_setting('server_encoding') AS encoding`)) as { encoding: string }[]
  return row?.encoding ?? ''
}
