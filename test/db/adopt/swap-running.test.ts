import { expect, test } from 'vitest'
import { findOrCreate, upsertByText } from '../../../src'
import { adopt } from '../../../src/adopt'
import { useDatabase } from '../../support/database'
import { pageAs, SWAPS } from './swap-stage'

const db = useDatabase({ wrapped: true })
db.useClient({ emptied: true })

const told = async (work: Promise<unknown>): Promise<string> =>
  await work.then(
    (value) => {
      if (Array.isArray(value)) return value.map((one: object) => ('error' in one ? 'refused' : 'stored')).join(' ')
      return value === null ? 'null' : 'answered'
    },
    (error: { name: string; code?: string }) => `${error.name} ${String(error.code)}`,
  )

/** Where hashes are made in another way, the rest only in the rules. */
const isRehashed = (name: string): boolean => /digest|composed/.test(name)

test.each(SWAPS)('an instance that has used the table: $name', async ({ name, before, after }) => {
  const [Before, After] = [pageAs(before), pageAs(after)]
  const old = await db.dataSource([Before])
  const row = (url: string): object => ({ site: 1, url, query: 'q' })
  const { manager } = old
  await findOrCreate(manager, Before, row('seen'))
  const next = await db.dataSource([After], { synchronize: false })
  await adopt(next, After, { lockMilliseconds: 1_000, holdMilliseconds: 10_000 })
  const outcomes = [
    await told(findOrCreate(manager, Before, row('unseen'))),
    await told(findOrCreate(manager, Before, row('seen'))),
    await told(upsertByText(manager, Before, row('seen'))),
    await told(manager.findOneBy(Before, { url: 'seen', query: 'q' })),
  ]
  // The first error makes it look at the table again.
  const drift = 'SchemaDriftError SCHEMA_DRIFT'
  expect(outcomes).toEqual(
    isRehashed(name)
      ? ['QueryFailedError 23514', drift, drift, 'answered']
      : ['answered', 'answered', 'answered', 'answered'],
  )
  const restarted = await db.dataSource([Before], { synchronize: false })
  expect(await told(findOrCreate(restarted.manager, Before, row('seen')))).toBe(drift)
})

test('conditions by property, of new code before another digest stands, and of old code after it', async () => {
  const [Before, After] = [pageAs({ url: {} }), pageAs({ url: { digest: 'sha256' } })]
  const old = await db.dataSource([Before])
  await findOrCreate(old.manager, Before, { url: 'seen' })
  const next = await db.dataSource([After], { synchronize: false })
  await adopt(next, After, { lockMilliseconds: 1_000, holdMilliseconds: 10_000, until: 'check' })
  // The hash that stands is of another type.
  expect(await told(next.manager.findOneBy(After, { url: 'seen' }))).toBe('QueryFailedError 22P02')
  await adopt(next, After, { lockMilliseconds: 1_000, holdMilliseconds: 10_000 })
  expect(await next.manager.findOneBy(After, { url: 'seen' })).toMatchObject({ url: 'seen' })
  expect(await old.manager.findOneBy(Before, { url: 'seen' })).toBeNull()
  const restarted = await db.dataSource([Before], { synchronize: false })
  expect(await restarted.manager.findOneBy(Before, { url: 'seen' })).toMatchObject({ url: 'seen' })
})
