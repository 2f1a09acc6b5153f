import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import { ENTITIES, prepare } from '../../support/all-calls'
import { useDatabase } from '../../support/database'
import { FAULT_ROUNDS } from '../../support/ledger'
import { APPLICATION, READY } from '../../support/storm-client'

const db = useDatabase()
const CALLS = 600 * FAULT_ROUNDS

test('a process whose backends are terminated at any moment goes on, and each of its calls ends', async () => {
  const { manager } = await db.dataSource(ENTITIES)
  await prepare(manager)
  const client = await db.client()
  const program = path.join(import.meta.dirname, '../../support/storm-client.ts')
  const child = spawn(process.execPath, ['--no-deprecation', '--import', 'tsx', program, db.url, String(CALLS)], {
    cwd: path.resolve(import.meta.dirname, '../../..'),
  })
  const ended = new Promise((resolve) => child.once('close', resolve))
  const output = Promise.all([text(child.stdout), text(child.stderr)])
  let terminated = 0
  await Promise.race([once(child.stdout, 'data'), ended])
  while (child.exitCode === null && child.signalCode === null) {
    const { rowCount } = await client.query(
      `SELECT pg_terminate_backend(pid, 1000) FROM (
         SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()
         ORDER BY random() LIMIT 1) AS one`,
      [APPLICATION],
    )
    terminated += rowCount ?? 0
  }
  const code = await ended
  const [out, errors] = await output
  console.log(`${terminated} backends terminated: ${out}`)
  expect({ code, errors }).toEqual({ code: 0, errors: '' })
  const outcomes = JSON.parse(out.slice(READY.length)) as Record<string, number>
  expect(Object.values(outcomes).reduce((sum, count) => sum + count)).toBe(CALLS)
  // A connection that is lost is always told as one; 40P01 and 40001 come of calls that met.
  expect(
    Object.keys(outcomes).filter((how) => !['done', 'QueryFailedError', 'TransactionAbortedError'].includes(how)),
  ).toEqual([])
  expect(terminated).toBeGreaterThan(0)
})
