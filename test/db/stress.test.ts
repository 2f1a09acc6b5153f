import { describe, expect, test } from 'vitest'
import { violationsOf } from '../stress/report'
import { runStress } from '../stress/run'
import { useDatabase } from '../support/database'

const CLIENTS = 12
const SECONDS = 10
/** However long a slow machine takes for them. */
const LEAST_OPERATIONS = 1_000
const LEAST_KINDS = 50
/** Faults are found in a tenth of this, mostly. */
const FAULT_OPERATIONS = 20_000

/** The short form of `npm run stress`. */
describe('stress with four hashes for everything', { timeout: 600_000 }, () => {
  const db = useDatabase()

  test('no text is stored twice, and every caller gets the row of its own', async () => {
    const result = await runStress({
      url: db.url,
      seconds: SECONDS,
      leastOperations: LEAST_OPERATIONS,
      clients: CLIENTS,
    })
    const { operations, outcomes, totals } = result.journal
    expect(violationsOf(result), `seed ${result.seed}`).toBe('')
    expect(operations).toBeGreaterThanOrEqual(LEAST_OPERATIONS)
    expect(outcomes.size).toBeGreaterThan(LEAST_KINDS)
    expect(totals.get('looks of the checker')).toBeGreaterThan(0)
    expect(totals.get('longest chain')).toBeGreaterThan(2)
    expect(totals.get('texts created exactly once')).toBeGreaterThan(0)
  })

  test.each([
    'no promotion after a delete',
    'a touch only looks',
    'no touch after an insert',
    'a call joins a look-up that is under way',
  ])('finds the fault: %s', async (mutation) => {
    const { journal, seed } = await runStress({
      url: db.url,
      seconds: 30,
      leastOperations: FAULT_OPERATIONS,
      clients: CLIENTS,
      texts: 12,
      mutation,
    })
    expect(journal.violations.length, `seed ${seed}`).toBeGreaterThan(0)
  })
})
