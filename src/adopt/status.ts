import type { Query } from '../sql/catalog'
import type { AdoptStep } from './options'
import { COMMAND_STATUS, LOCK_HOLDERS } from './sql/status'
import type { LockMode } from './sql/table'

/** Somebody else's transaction that holds a lock on the table, or on what the command waits for. */
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

/** How far an adoption is, what keeps it waiting, and what it costs the server. */
export interface AdoptionStatus {
  /** The step that it is in; null where none has begun, all are done, or somebody has the table locked. */
  readonly step: AdoptStep | null
  /** What the server calls the phase of CREATE INDEX or VACUUM. */
  readonly phase: string | null
  /** How much of the step or its phase is done, 0 to 1; null where nobody knows, as while it waits. */
  readonly fraction: number | null
  /** null: no command works on the table now. */
  readonly command: RunningCommand | null
  /** The three oldest. */
  readonly holders: readonly LockHolder[]
  /** The table without its indexes; null while somebody has it locked. */
  readonly tableBytes: number | null
  /** The lag of the slowest standby. */
  readonly lagMilliseconds: number
  /** WAL that the server keeps for replication slots or the archive. */
  readonly walBytes: number
}

/** Modes of locks that do not conflict with the one that is wanted. */
const HARMLESS_LOCKS: Readonly<Record<LockMode | 'rows', readonly string[]>> = {
  'ACCESS EXCLUSIVE': [],
  'SHARE ROW EXCLUSIVE': ['AccessShareLock', 'RowShareLock'],
  rows: ['AccessShareLock'],
}

/**
 * Reads who holds what keeps a command waiting: a lock on the table, or on rows of it and of tables that refer to it.
 *
 * @param command the pid of the session that waits, if it is another one
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

/** A clause for a person, for example `pid 311 (app, "worker") has a transaction open for 55 s (idle in transaction): UPDATE …`. */
export function describeHolder({ pid, prepared, user, application, state, seconds, query }: LockHolder): string {
  const who = prepared === null ? `pid ${pid}` : `the prepared transaction "${prepared}"`
  const name = application === null || application === '' ? '' : `, "${application}"`
  const last = query === null || query === '' ? '' : `: ${query}`
  return `${who} (${user ?? 'another role'}${name}) has a transaction open for ${seconds} s (${state})${last}`
}

/** What the server knows of a command, without a lock on its table. */
type ServerStatus = Omit<AdoptionStatus, 'step' | 'tableBytes'>

/** Reads it by the OID of the table. */
export async function readStatus(query: Query, oid: string): Promise<ServerStatus> {
  const [row] = (await query(COMMAND_STATUS, [oid])) as readonly { readonly status: string }[]
  const status = JSON.parse(row?.status ?? '{}') as Omit<ServerStatus, 'holders'>
  return { ...status, holders: await lockHolders(query, oid, 'ACCESS EXCLUSIVE', status.command?.pid) }
}
