import type { DataSource } from 'typeorm'
import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { findOrCreate, findOrCreateMany } from '../../../src'
import { findOrCreateStream, findOrCreateTransform } from '../../../src/stream'
import { useDatabase } from '../../support/database'
import { Page } from '../../support/entities'

const db = useDatabase()

const pages = (count: number): { url: string }[] => Array.from({ length: count }, (_, index) => ({ url: `${index}` }))

describe('while a test of a user has replaced the timers by some that never call back', () => {
  let dataSource: DataSource
  beforeAll(async () => {
    dataSource = await db.dataSource([Page])
  })
  beforeEach(async () => {
    await dataSource.manager.clear(Page)
    vi.useFakeTimers({
      toFake: ['setTimeout', 'clearTimeout', 'setImmediate', 'clearImmediate', 'setInterval', 'Date'],
    })
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  test('calls that come at once end', async () => {
    const results = await Promise.all(
      pages(60).map(async (_, index) => await findOrCreate(dataSource.manager, Page, { url: `${index % 30}` })),
    )
    expect(results.filter(({ created }) => created)).toHaveLength(30)
  })

  test('findOrCreateMany ends', async () => {
    expect(await findOrCreateMany(dataSource.manager, Page, pages(3_000))).toHaveLength(3_000)
  })

  test('a stream ends, and hears that its source pauses', async () => {
    let heard = (): void => {}
    async function* source(): AsyncGenerator<{ url: string }> {
      yield { url: 'first' }
      await new Promise<void>((resolve) => (heard = resolve))
      yield* pages(2_500)
    }
    let count = 0
    for await (const result of findOrCreateStream(dataSource, Page, source())) {
      expect(result).toMatchObject({ created: true })
      heard()
      count += 1
    }
    expect(count).toBe(2_501)
  })

  test('a Transform ends', async () => {
    const transform = findOrCreateTransform(dataSource, Page)
    transform.end({ url: 'only' })
    expect(await transform.toArray()).toMatchObject([{ created: true }])
  })
})
