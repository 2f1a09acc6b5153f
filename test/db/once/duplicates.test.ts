import type { Pool } from 'pg'
import { expect, test } from 'vitest'
import { TokenReusedError } from '../../../src'
import { once, OnceToken } from '../../../src/once'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { gate } from '../../support/gate'
import { poolOf, rejection } from '../../support/ledger'

const db = useDatabase()
const dataSource = db.useDataSource([OnceToken], { extra: { max: 4 } })

/** Work that ends when it is let. */
function gated(): { readonly work: () => Promise<object>; readonly begun: Promise<void>; readonly end: () => void } {
  const [begun, ended] = [gate(), gate()]
  const work = async (): Promise<object> => {
    begun.open()
    await ended.passed
    return { by: 'the first' }
  }
  return { work, begun: begun.passed, end: ended.open }
}

const inUse = (): number => {
  const { totalCount, idleCount, waitingCount } = poolOf(dataSource) as unknown as Pool
  return totalCount - idleCount + waitingCount
}

/** Calls that were made before have gone as far as they can. */
const untilJoined = async (): Promise<unknown> => await dataSource.query('SELECT 1')

const late = (): object => ({ by: 'a duplicate' })

test('ten duplicates hold no connection while the work is under way, and get its answer', async () => {
  const { work, begun, end } = gated()
  const first = once(dataSource.manager, 'token', work)
  await begun
  const duplicates = Array.from({ length: 10 }, () => once(dataSource.manager, 'token', late))
  await untilJoined()
  expect(inUse()).toBe(1)
  end()
  expect(await first).toEqual({ answer: { by: 'the first' }, replayed: false })
  const results = await Promise.all(duplicates)
  expect(results).toEqual(Array.from({ length: 10 }, () => ({ answer: { by: 'the first' }, replayed: true })))
  expect(new Set(results.map(({ answer }) => answer)).size).toBe(10)
})

test('if the work fails, one duplicate after the other runs its own until one succeeds', async () => {
  const ran: number[] = []
  const calls = [0, 1, 2, 3, 4].map((nth) =>
    once(dataSource.manager, 'token', () => {
      ran.push(nth)
      if (nth < 2) throw new Error(`no ${nth}`)
      return nth
    }).catch((error: unknown) => (error as Error).message),
  )
  const results = await Promise.all(calls)
  expect(ran.length).toBe(new Set(ran).size)
  // The last that ran has succeeded, and all that did not run replay its answer.
  const winner = ran.at(-1) ?? 0
  expect(winner).toBeGreaterThanOrEqual(2)
  const expected = results.map((_, nth) =>
    ran.includes(nth) && nth !== winner ? `no ${nth}` : { answer: winner, replayed: nth !== winner },
  )
  expect(results).toEqual(expected)
})

test('a duplicate with another request is refused once the work has succeeded', async () => {
  const { work, begun, end } = gated()
  const first = once(dataSource.manager, 'token', work, { request: 1 })
  await begun
  const other = rejection(once(dataSource.manager, 'token', late, { request: 2 }))
  await untilJoined()
  end()
  await first
  expect(await other).toBeInstanceOf(TokenReusedError)
})

test('another token does not wait', async () => {
  const { work, begun, end } = gated()
  const first = once(dataSource.manager, 'token', work)
  await begun
  expect(await once(dataSource.manager, 'token 2', late)).toMatchObject({ replayed: false })
  end()
  await first
})

test('a duplicate in a transaction waits at the server, and its transaction gets the answer', async () => {
  const { work, begun, end } = gated()
  const first = once(dataSource.manager, 'token', work)
  await begun
  const within = dataSource.transaction((manager) => once(manager, 'token', late))
  await untilBlocked(await db.client())
  end()
  await first
  expect(await within).toEqual({ answer: { by: 'the first' }, replayed: true })
})
