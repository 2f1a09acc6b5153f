import { expect, test } from 'vitest'
import { runStress } from '../../stress/run'
import { useDatabase } from '../../support/database'

/** They are found in a tenth of this, mostly. */
const MOST_OPERATIONS = 20_000

const db = useDatabase()

test.each([
  'no promotion after a delete',
  'a touch only looks',
  'no touch after an insert',
  'a call joins a look-up that is under way',
])('stress finds the fault: %s', { timeout: 600_000 }, async (mutation) => {
  const { journal, seed } = await runStress({
    url: db.url,
    seconds: 30,
    leastOperations: MOST_OPERATIONS,
    clients: 12,
    texts: 12,
    mutation,
  })
  expect(journal.violations.length, `seed ${seed}`).toBeGreaterThan(0)
})
