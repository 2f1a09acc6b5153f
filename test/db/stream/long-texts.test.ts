import type { Pool } from 'pg'
import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { findOrCreate } from '../../../src'
import { findOrCreateStream } from '../../../src/stream'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { poolOf } from '../../support/ledger'
import { Page } from '../../support/titled-page'

const db = useDatabase()

// A window is full at 3,000 rows or 2 MB; 4 MB in all are at the server.
test.each([
  { length: 600, rows: 3_000, atServer: 2 },
  { length: 2 ** 20, rows: 2, atServer: 1 },
])(
  'a stream of texts of $length characters keeps $atServer windows at the server',
  async ({ length, rows, atServer }) => {
    const dataSource = await db.dataSource([Page], { dropSchema: true, extra: { max: 6 } })
    await findOrCreate(dataSource.manager, Page, { url: 'ready' })
    const [blocker, observer] = [await db.client(), await db.client()]
    let read = 0
    let makeRead = (): void => {}
    const allRead = new Promise<void>((resolve) => (makeRead = resolve))
    const count = rows * (atServer + 1)
    function* source(): Generator<{ url: string }> {
      for (; read < count + 2; read += 1) {
        if (read === count - 1) makeRead()
        yield { url: `${read}`.padEnd(length, 'x') }
      }
    }
    await blocker.query('BEGIN; LOCK TABLE page IN SHARE ROW EXCLUSIVE MODE')
    const stream = (async (): Promise<number> => {
      let created = 0
      for await (const result of findOrCreateStream(dataSource, Page, source())) if ('entity' in result) created += 1
      return created
    })()
    await untilBlocked(observer, atServer)
    await allRead
    // What might be sent would ask for its connection within a few turns.
    for (let turns = 0; turns < 100; turns += 1) await turn()
    const { totalCount, idleCount, waitingCount } = poolOf(dataSource) as unknown as Pool
    await blocker.query('COMMIT')
    expect(totalCount - idleCount + waitingCount).toBe(atServer)
    expect(await stream).toBe(count + 2)
  },
)
