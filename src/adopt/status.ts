import type { Query } from '../sql/catalog'
import type { AdoptStep } from './options'
import { COMMAND_STATUS, LOCK_HOLDERS } from './sql/status'
import type { LockMode } from './sql/table'

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
  readonly step: AdoptStep | null
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

/** A clause such as `pid 311 (app, "worker") has a transaction open for 55 s (idle in transaction): UPDATE …`. */
export function describeHolder({ pid, prepared, user, application, state, seconds, query }: LockHolder): string {
  const who = prepared === null ? `pid ${pid}` : `the prepared transaction "${prepared}"`
  const name = application === null || application === '' ? '' : `, "${application}"`
  const last = query === null || query === '' ? '' : `: ${query}`
  return `${who} (${user ?? 'another role'}${name}) has a transaction open for ${seconds} s (${state})${last}`
}

/** The server's data about a command, read without a lock on its table. */
type ServerStatus = Omit<AdoptionStatus, 'step' | 'tableBytes'>

/** Reads the status by the OID of the table. */
export async function readStatus(query: Query, oid: string): Promise<ServerStatus> {
  const [row] = (await query(COMMAND_STATUS, [oid])) as readonly { readonly status: string }[]
  const status = JSON.parse(row?.status ?? '{}') as Omit<ServerStatus, 'holders'>
  return { ...status, holders: await lockHolders(query, oid, 'ACCESS EXCLUSIVE', status.command?.pid) }
}
