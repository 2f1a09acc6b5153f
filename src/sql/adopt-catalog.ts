import type { Query } from './catalog'

/** What decides whether and how a table can be adopted, beside its columns, indexes and checks. */
export interface AdoptionFacts {
  readonly oid: string
  readonly schema: string
  readonly table: string
  /** As `pg_class.relkind`: `r` for an ordinary table. */
  readonly kind: string
  readonly owner: string
  /** What the server estimates; -1 where it never looked. */
  readonly rows: number
  readonly bytes: number
  /** Triggers of the user's that an UPDATE fires. */
  readonly updateTriggers: readonly string[]
}

/**
 * @param relation the table's name as SQL; `search_path` decides where it names no schema
 * @param ours how the names of our own triggers begin
 * @returns undefined if there is no such table
 */
export async function adoptionFacts(
  query: Query,
  relation: string,
  ours: readonly string[],
): Promise<AdoptionFacts | undefined> {
  const [row] = (await query(
    `SELECT jsonb_build_object(
       'oid', r.oid::text, 'schema', n.nspname, 'table', r.relname, 'kind', r.relkind, 'owner', o.rolname,
       'rows', r.reltuples, 'bytes', pg_relation_size(r.oid),
       'updateTriggers', (
         SELECT coalesce(jsonb_agg(t.tgname ORDER BY t.tgname), '[]') FROM pg_trigger AS t
          WHERE t.tgrelid = r.oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND (t.tgtype & 16) <> 0
            AND NOT EXISTS (SELECT FROM unnest($2::text[]) AS p (name) WHERE starts_with(t.tgname, p.name)))
       )::text AS facts
       FROM pg_class AS r
       JOIN pg_namespace AS n ON n.oid = r.relnamespace
       JOIN pg_roles AS o ON o.oid = r.relowner
      WHERE r.oid = to_regclass($1)`,
    [relation, ours],
  )) as readonly { facts: string }[]
  return row && (JSON.parse(row.facts) as AdoptionFacts)
}

/** The largest lag of a standby that replays what this server writes, in milliseconds. */
export const REPLAY_LAG = `SELECT (coalesce(extract(epoch FROM max(replay_lag)), 0) * 1000)::int8::text AS lag FROM pg_stat_replication`

/** The settings that an adoption changes for its session, to be put back. */
export const READ_SETTINGS = `SELECT current_setting('search_path') AS path, current_setting('lock_timeout') AS lock, current_setting('statement_timeout') AS statement, current_setting('jit') AS jit, current_setting('session_replication_role') AS role`

/** $1 is the name, $2 the value. */
export const WRITE_SETTING = 'SELECT pg_catalog.set_config($1, $2, false)'

/** Transactions that have been open for more than a moment, the oldest first: a lock or an index waits for them. */
export const OLDEST_TRANSACTION = `SELECT pid::text AS pid, state, extract(epoch FROM clock_timestamp() - xact_start)::int8::text AS seconds
  FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
 ORDER BY xact_start LIMIT 1`
