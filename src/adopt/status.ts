import type { Query } from '../sql/catalog'
import { EQUALS } from '../sql/text-table'
import type { AdoptStep } from './options'
import { ADOPTION_TURN, type LockMode } from './table'

const QUERY_CHARACTERS = 100

const secondsSince = (time: string): string =>
  `extract(epoch FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) ${time})::bigint`

const share = (done: string, total: string): string =>
  `CASE WHEN ${total} OPERATOR(pg_catalog.>) 0 THEN ${done}::pg_catalog.float8 OPERATOR(pg_catalog./) ${total}::pg_catalog.float8 END`

const shortened = (query: string): string =>
  `pg_catalog.left(pg_catalog.regexp_replace(${query}, '\\s+', ' ', 'g'), ${QUERY_CHARACTERS})`

/**
 * Selects the transactions of others that lock a table or block a session, the oldest first. $1 is the OID of the
 * table, $2 the modes that block nobody, $3 whether tables that refer to it count too, and $4 the session. The server
 * hides the activity of other roles, unless the reader has `pg_read_all_stats`.
 */
const LOCK_HOLDERS: string = `SELECT pg_catalog.jsonb_build_object('pid', s.pid, 'prepared', p.gid,
       'user', coalesce(s.usename, p.owner), 'application', s.application_name, 'state', coalesce(s.state, 'prepared'),
       'seconds', ${secondsSince('coalesce(s.xact_start, p.prepared)')}, 'query', ${shortened('s.query')})::pg_catalog.text AS holder
  FROM (SELECT l.pid, l.virtualtransaction
          FROM pg_catalog.pg_locks AS l
          JOIN pg_catalog.pg_database AS d ON d.oid ${EQUALS} l.database
         WHERE l.locktype ${EQUALS} 'relation' AND l.granted AND d.datname ${EQUALS} pg_catalog.current_database()
           AND l.mode OPERATOR(pg_catalog.<>) ALL ($2::pg_catalog.text[])
           AND (l.relation ${EQUALS} $1::pg_catalog.oid OR $3::pg_catalog.bool AND l.relation ${EQUALS} ANY (
             SELECT f.conrelid FROM pg_catalog.pg_constraint AS f
              WHERE f.contype ${EQUALS} 'f' AND f.confrelid ${EQUALS} $1::pg_catalog.oid))
         UNION
        SELECT l.pid, l.virtualtransaction
          FROM pg_catalog.pg_locks AS l
         WHERE l.locktype ${EQUALS} 'virtualxid' AND l.granted
           AND l.pid ${EQUALS} ANY (pg_catalog.pg_blocking_pids($4::pg_catalog.int4))) AS h
  LEFT JOIN pg_catalog.pg_stat_activity AS s ON s.pid ${EQUALS} h.pid
  LEFT JOIN pg_catalog.pg_locks AS x ON h.pid IS NULL AND x.pid IS NULL AND x.locktype ${EQUALS} 'transactionid'
    AND x.virtualtransaction ${EQUALS} h.virtualtransaction
  LEFT JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction ${EQUALS} x.transactionid
 WHERE (h.pid ${EQUALS} ANY (ARRAY[pg_catalog.pg_backend_pid(), $4::pg_catalog.int4])) IS NOT TRUE
   AND coalesce(s.xact_start, p.prepared) IS NOT NULL
 ORDER BY coalesce(s.xact_start, p.prepared) LIMIT 3`

const hex = (digits: string): string =>
  `pg_catalog.concat('x', ${digits})::pg_catalog.bit(32)::pg_catalog.int8::pg_catalog.numeric`

/** The end of the last archived WAL file, in bytes. Its name is three numbers of eight digits, the first a timeline. */
const ARCHIVED = `(
    (${hex('pg_catalog.substr(a.last_archived_wal, 9, 8)')} OPERATOR(pg_catalog.*) 4294967296)
    OPERATOR(pg_catalog.+) ((${hex('pg_catalog.substr(a.last_archived_wal, 17, 8)')} OPERATOR(pg_catalog.+) 1)
      OPERATOR(pg_catalog.*) pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))))`

/**
 * Selects the largest lag of a standby, in milliseconds, and how many bytes of WAL the server keeps for a slot or the
 * archive. If the server has archived nothing yet, only slots count.
 */
export const SERVER_LAG: string = `SELECT
       (SELECT (coalesce(extract(epoch FROM pg_catalog.max(r.replay_lag)), 0) OPERATOR(pg_catalog.*) 1000)::bigint
          FROM pg_catalog.pg_stat_replication AS r) AS lag,
       (SELECT coalesce(pg_catalog.max(k.bytes), 0)::bigint FROM (
          SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), s.restart_lsn) AS bytes
            FROM pg_catalog.pg_replication_slots AS s
          UNION ALL
          SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), '0/0') OPERATOR(pg_catalog.-) ${ARCHIVED}
            FROM pg_catalog.pg_stat_archiver AS a
           WHERE pg_catalog.current_setting('archive_mode') OPERATOR(pg_catalog.<>) 'off'
             AND a.last_archived_wal OPERATOR(pg_catalog.~) '^[0-9A-F]{24}$') AS k) AS wal`

/** Selects the server's data about the command that works on the table with the OID $1. */
const COMMAND_STATUS: string = `SELECT pg_catalog.jsonb_build_object(
         'command', CASE WHEN s.pid IS NOT NULL THEN pg_catalog.jsonb_build_object('pid', s.pid, 'user', s.usename,
           'application', s.application_name, 'seconds', ${secondsSince('s.backend_start')},
           'query', ${shortened('s.query')}, 'waitsFor', s.wait_event_type) END,
         'phase', coalesce(i.phase, v.phase),
         'fraction', CASE WHEN coalesce(i.phase, v.phase) OPERATOR(pg_catalog.~) 'scanning'
           THEN coalesce(${share('i.blocks_done', 'i.blocks_total')}, ${share('v.heap_blks_scanned', 'v.heap_blks_total')}) END,
         'lagMilliseconds', g.lag, 'walBytes', g.wal)::pg_catalog.text AS status
  FROM (${SERVER_LAG}) AS g
  LEFT JOIN LATERAL (SELECT l.pid FROM ${ADOPTION_TURN} LIMIT 1) AS t ON true
  LEFT JOIN pg_catalog.pg_stat_activity AS s ON s.pid ${EQUALS} t.pid
  LEFT JOIN pg_catalog.pg_stat_progress_create_index AS i ON i.pid ${EQUALS} t.pid
  LEFT JOIN pg_catalog.pg_stat_progress_vacuum AS v ON v.pid ${EQUALS} t.pid`

/** Another transaction that holds a lock on the table, or blocks the command. */
export interface LockHolder {
  /** null for a prepared transaction. */
  readonly pid: number | null
  /** The identifier of a prepared transaction, for COMMIT PREPARED or ROLLBACK PREPARED. */
  readonly prepared: string | null
  /** The role of the session. */
  readonly user: string | null
  /** The `application_name` of the session. */
  readonly application: string | null
  /** The state in pg_stat_activity, for instance `idle in transaction`; or `prepared`. */
  readonly state: string
  /** How long the transaction has been open. */
  readonly seconds: number
  /** The beginning of its last statement, which may hold values. */
  readonly query: string | null
}

/** The session of a command that works on a table now. */
export interface RunningCommand {
  /** The process of the server. */
  readonly pid: number
  /** The role of the session. */
  readonly user: string | null
  /** The `application_name` of the session. */
  readonly application: string | null
  /** How long the session has been connected. */
  readonly seconds: number
  /** The beginning of the last statement. */
  readonly query: string | null
  /** The type of event that it waits for, as in pg_stat_activity: `Lock`, `IO`, …; null while it works. */
  readonly waitsFor: string | null
}

/** The progress of an adoption, the sessions that block it, and its cost for the server. */
export interface AdoptionStatus {
  /** The current step; null if none has begun, all are done, or another session has locked the table. */
  readonly step: AdoptStep | 'merge' | null
  /** The server's name for the phase of CREATE INDEX or VACUUM. */
  readonly phase: string | null
  /** The completed part of the step or its phase, 0 to 1; null if it is not known, for instance while it waits. */
  readonly fraction: number | null
  /** null if no command works on the table now. */
  readonly command: RunningCommand | null
  /** The three oldest transactions. */
  readonly holders: readonly LockHolder[]
  /** The size of the table without its indexes; null while another session has locked it. */
  readonly tableBytes: number | null
  /** The lag of the slowest standby. */
  readonly lagMilliseconds: number
  /** WAL that the server keeps for replication slots or the archive. */
  readonly walBytes: number
}

/** Lock modes that do not conflict with the requested one. */
const HARMLESS_LOCKS: Readonly<Record<LockMode | 'rows', readonly string[]>> = {
  'ACCESS EXCLUSIVE': [],
  'SHARE ROW EXCLUSIVE': ['AccessShareLock', 'RowShareLock'],
  rows: ['AccessShareLock'],
}

/**
 * Reads the transactions that block a command by a lock on the table, or on rows of it and of tables that refer to it.
 *
 * @param command the pid of the waiting session, if it is another session
 */
export async function lockHolders(
  query: Query,
  oid: string,
  wants: LockMode | 'rows',
  command?: number,
): Promise<readonly LockHolder[]> {
  const wanted = [oid, HARMLESS_LOCKS[wants], wants === 'rows', command]
  const rows = (await query(LOCK_HOLDERS, wanted)) as readonly { readonly holder: string }[]
  return rows.map(({ holder }) => JSON.parse(holder) as LockHolder)
}

/** A clause such as `pid 311 (app, "worker") has a transaction open for 55 s (idle in transaction)`. */
export function describeHolder({ pid, prepared, user, application, state, seconds }: LockHolder): string {
  const who = prepared === null ? `pid ${pid}` : `the prepared transaction "${prepared}"`
  const name = application === null || application === '' ? '' : `, "${application}"`
  return `${who} (${user ?? 'another role'}${name}) has a transaction open for ${seconds} s (${state})`
}

/** The server's data about a command, read without a lock on its table. */
type ServerStatus = Omit<AdoptionStatus, 'step' | 'tableBytes'>

/** Reads the status by the OID of the table. */
export async function readStatus(query: Query, oid: string): Promise<ServerStatus> {
  const [row] = (await query(COMMAND_STATUS, [oid])) as readonly { readonly status: string }[]
  const status = JSON.parse(row?.status ?? '{}') as Omit<ServerStatus, 'holders'>
  return { ...status, holders: await lockHolders(query, oid, 'ACCESS EXCLUSIVE', status.command?.pid) }
}
