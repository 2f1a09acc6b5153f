import type { Client } from 'pg'
import { serverError } from '../../src/sql/sqlstate'

export const LEVELS = ['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'] as const

/** Those at which a transaction keeps to one snapshot. */
export const SNAPSHOT_LEVELS = ['REPEATABLE READ', 'SERIALIZABLE'] as const

export type Level = (typeof LEVELS)[number]

/** How a statement ended. */
export type Outcome =
  | { readonly ok: true; readonly command: string; readonly count: number | null; readonly rows: readonly unknown[] }
  | { readonly ok: false; readonly sqlstate: string; readonly constraint: string | undefined }

/** A statement that was sent. */
export interface Statement {
  readonly outcome: Promise<Outcome>
  /** undefined as long as it runs or waits. */
  readonly ended: () => Outcome | undefined
}

/** A database session of its own. */
export interface Session {
  readonly client: Client
  readonly pid: number
  /** Sends without awaiting. */
  start(sql: string): Statement
  /** Sends and awaits the end. */
  run(sql: string): Promise<Outcome>
}

/**
 * Plans are kept off sequential scans: at SERIALIZABLE one would lock the whole table against others, and so change
 * what is tested. Of two sessions in a deadlock the one with the shorter `deadlockMilliseconds` is ended.
 */
export async function openSession(client: Client, deadlockMilliseconds = 1_000): Promise<Session> {
  await client.query(
    `set enable_seqscan to off; set enable_bitmapscan to off; set deadlock_timeout to '${deadlockMilliseconds}ms'`,
  )
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
  const [row] = rows
  if (!row) throw new TypeError('A backend has a pid.')
  const start = (sql: string): Statement => {
    let ended: Outcome | undefined
    const outcome = outcomeOf(client, sql).then((value) => (ended = value))
    return { outcome, ended: () => ended }
  }
  return { client, pid: row.pid, start, run: async (sql) => await start(sql).outcome }
}

async function outcomeOf(client: Client, sql: string): Promise<Outcome> {
  try {
    const { command, rowCount, rows } = await client.query<Record<string, unknown>>(sql)
    return { ok: true, command, count: rowCount, rows }
  } catch (error) {
    const known = serverError(error)
    if (!known) throw error
    // The server tells of the error before it gives back what the transaction had locked; this it answers after.
    await client.query('').catch(() => {})
    return { ok: false, sqlstate: known.code, constraint: known.constraint }
  }
}

/**
 * Awaits the moment when the statement has ended or its session waits for a lock, seen by another session. Twice in
 * a row, so that a short wait of the server's own, for a page, is not taken for one; and for at least
 * `patienceMilliseconds` where the wait is to end by itself, as in a deadlock.
 */
export async function endOrWait(
  observer: Client,
  { session, statement }: { readonly session: Session; readonly statement: Statement },
  patienceMilliseconds = 0,
): Promise<Outcome | 'waits'> {
  let seen = 0
  const from = performance.now()
  for (;;) {
    const ended = statement.ended()
    if (ended) return ended
    seen = (await isBlocked(observer, session.pid)) ? seen + 1 : 0
    if (seen >= 2 && performance.now() - from >= patienceMilliseconds) return statement.ended() ?? 'waits'
  }
}

async function isBlocked(observer: Client, pid: number): Promise<boolean> {
  const { rows } = await observer.query<{ blocked: boolean }>({
    name: 'blocked',
    text: 'select cardinality(pg_blocking_pids($1)) > 0 as blocked',
    values: [pid],
  })
  return rows[0]?.blocked === true
}
