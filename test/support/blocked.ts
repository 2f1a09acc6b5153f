import type { Client } from 'pg'

/**
 * Awaits the moment when so many sessions of the observer's database wait for a lock: then the call that sent them is
 * certain to have met the other one. Asks the server again and again, and waits no time of its own choosing.
 */
export async function untilBlocked(observer: Client, sessions = 1): Promise<void> {
  for (;;) {
    const { rows } = await observer.query<{ blocked: number }>(
      `SELECT count(*)::int AS blocked FROM pg_stat_activity
       WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`,
    )
    if ((rows[0]?.blocked ?? 0) >= sessions) return
  }
}

/** Makes a call while a transaction of another session has run `sql`, and ends that transaction once the call waits. */
export async function meet<T>(
  { other, observer }: { readonly other: Client; readonly observer: Client },
  sql: string,
  call: () => Promise<T>,
  end: 'COMMIT' | 'ROLLBACK' = 'COMMIT',
): Promise<T> {
  await other.query(`BEGIN; ${sql}`)
  const waiting = call()
  // It may be refused before the other session has its own answer.
  waiting.catch(() => {})
  await untilBlocked(observer)
  await other.query(end)
  return await waiting
}
