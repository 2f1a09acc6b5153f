import { describe, expect, test } from 'vitest'
import { violationsOf } from '../stress/report'
import { runStress } from '../stress/run'
import { useDatabase } from '../support/database'

const CLIENTS = 12
const SECONDS = 10
/** Far below what a slow machine does in that time, and far above what clients do that only wait for each other. */
const LEAST_OPERATIONS = 500
const LEAST_KINDS = 50

/** The short form of `npm run stress`. */
describe('stress with four hashes for everything', { timeout: 150_000 }, () => {
  const db = useDatabase()

  test('no text is stored twice, and every caller gets the row of its own', async () => {
    const result = await runStress({ url: db.url, seconds: SECONDS, clients: CLIENTS })
    const { operations, outcomes, totals } = result.journal
    expect(violationsOf(result), `seed ${result.seed}`).toBe('')
    expect(operations).toBeGreaterThan(LEAST_OPERATIONS)
    expect(outcomes.size).toBeGreaterThan(LEAST_KINDS)
    expect(totals.get('looks of the checker')).toBeGreaterThan(10)
    expect(totals.get('longest chain')).toBeGreaterThan(2)
    expect(totals.get('texts created exactly once')).toBeGreaterThan(0)
  })

  test.each(['no promotion after a delete', 'a touch only looks', 'no lock of the anchor'])(
    'finds the fault within 30 s: %s',
    async (mutation) => {
      const { journal, seed } = await runStress({ url: db.url, seconds: 30, clients: CLIENTS, texts: 12, mutation })
      expect(journal.violations.length, `seed ${seed}`).toBeGreaterThan(0)
    },
  )
})
