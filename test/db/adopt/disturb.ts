import type { Client } from 'pg'
import { expect } from 'vitest'
import type { Seams } from '../../../src/adopt/session'

/** Who writes between the statements of a command. */
interface Writers {
  /** Writes, and commits at once. */
  step(): Promise<void>
  /** Opens a transaction, and ends it some steps later. */
  hold(): Promise<void>
  letGo(): Promise<void>
}

interface Disturbance {
  readonly random: () => number
  /** What is wrong, whatever step the command is in. */
  readonly faults: () => Promise<readonly string[]>
  /** Writes between two statements. @default 2 */
  readonly steps?: number
}

const MOST_STATEMENTS = 3_000

/** Writers come between any two statements of a command, but for those under its lock on the table. */
export function disturb(writers: Writers, { random, faults, steps = 2 }: Disturbance): Seams {
  let [locked, statements] = [false, 0]
  const beforeStatement = async (sql: string): Promise<void> => {
    statements += 1
    if (statements > MOST_STATEMENTS) throw new Error(`It does not come to an end: ${sql}`)
    if (/^(?:COMMIT|ROLLBACK)$/.test(sql)) {
      locked = false
      return
    }
    if (locked) return
    // It waits for all transactions.
    if (/CONCURRENTLY/.test(sql)) await writers.letGo()
    else if (!/VACUUM|VALIDATE/.test(sql) && random() < 0.8) await writers.hold()
    locked = /^BEGIN; .*LOCK TABLE/s.test(sql)
    for (let step = 0; step < steps; step += 1) await writers.step()
    expect({ sql, faults: await faults() }).toEqual({ sql, faults: [] })
  }
  const sleep = async (): Promise<void> => {
    locked = false
    await writers.letGo()
  }
  return { beforeStatement, sleep, random }
}

/**
 * Ends the connection of a command, whose `application_name` is `adopts`, and waits until the server has forgotten it.
 * With a timeout, `pg_terminate_backend` itself would look only every 100 ms.
 */
async function endSession(client: Client): Promise<void> {
  const { rows } = await client.query<{ pid: number }>(
    `select pid, pg_terminate_backend(pid) from pg_stat_activity
      where application_name = 'adopts' and datname = current_database()`,
  )
  const ended = rows.map(({ pid }) => pid)
  const isThere = 'select from pg_stat_activity where pid = any ($1)'
  while ((await client.query(isThere, [ended])).rowCount !== 0);
}

/** @param crash at this statement, counted from 1; 0 for none */
export function crashAt(client: Client, crash: number): Seams & { readonly statements: readonly string[] } {
  const statements: string[] = []
  return {
    statements,
    beforeStatement: async (sql) => {
      statements.push(sql)
      if (statements.length === crash) await endSession(client)
    },
    sleep: async () => {},
  }
}
