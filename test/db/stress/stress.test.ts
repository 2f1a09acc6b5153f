import { expect, test } from 'vitest'
import { violationsOf } from '../../stress/report'
import { runStress } from '../../stress/run'
import { useDatabase } from '../../support/database'

const CLIENTS = 12
const SECONDS = 5
/** However long a slow machine takes for them. */
const LEAST_OPERATIONS = 1_000
const LEAST_KINDS = 50

const db = useDatabase()

/** The short form of `npm run stress`. */
test('with four hashes for everything no text is stored twice', { timeout: 600_000 }, async () => {
  const result = await runStress({ url: db.url, seconds: SECONDS, leastOperations: LEAST_OPERATIONS, clients: CLIENTS })
  const { operations, outcomes, totals } = result.journal
  expect(violationsOf(result), `seed ${result.seed}`).toBe('')
  expect(operations).toBeGreaterThanOrEqual(LEAST_OPERATIONS)
  expect(outcomes.size).toBeGreaterThan(LEAST_KINDS)
  expect(totals.get('looks of the checker')).toBeGreaterThan(0)
  expect(totals.get('longest chain')).toBeGreaterThan(2)
  expect(totals.get('texts created exactly once')).toBeGreaterThan(0)
})
