import type { DataSource } from 'typeorm'
import { describe, expect, test } from 'vitest'
import {
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  TextTakenError,
  TransactionAbortedError,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { sha256 } from '../../../src/text/digest'
import { meet } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { entity, plain, text } from '../../support/entity'
import { LEVELS } from '../../support/sessions'

const Page = entity('Page', { url: text({ digest: 'sha256', guard: false }), title: plain() })

const CLIENTS = 24
const STEPS = 40
const TEXTS = 10

const db = useDatabase()
const dataSource = db.useDataSource([Page], { poolSize: CLIENTS })
const { manager } = dataSource
const sessions = { other: db.useClient(), observer: db.useClient() }

type Call = (manager: DataSource['manager']) => Promise<unknown>

/** What a call gave: a row that it created or found, or why it gave none. */
const shown = async (call: Promise<unknown>): Promise<string> => {
  try {
    const [result] = [await call].flat() as { created?: boolean }[]
    return result?.created === false ? 'found' : 'created'
  } catch (error) {
    if (error instanceof TextTakenError) return 'taken'
    if (error instanceof TransactionAbortedError) return 'aborted'
    throw error
  }
}

const calls: Readonly<Record<string, Call>> = {
  findOrCreate: (manager) => findOrCreate(manager, Page, { url: 'a' }),
  findOrCreateMany: (manager) => findOrCreateMany(manager, Page, [{ url: 'a' }]),
  upsertByText: (manager) => upsertByText(manager, Page, { url: 'a', title: 'new' }),
  insertOrFail: (manager) => insertOrFail(manager, Page, { url: 'a' }),
  save: (manager) => manager.save(Page, { url: 'a' }),
  updateOrFail: (manager) => updateOrFail(manager, Page, 1, { url: 'a' }),
}

const INSERT = `INSERT INTO page (url, "urlHash") VALUES ('a', '${sha256.js('a')}')`
const finds = new Set(['findOrCreate', 'findOrCreateMany', 'upsertByText'])

describe.each(LEVELS)('at %s', (level) => {
  test.each(Object.keys(calls))('%s waits for who stores the text, and then gives what stands', async (name) => {
    const outcomes: string[] = []
    for (const end of ['COMMIT', 'ROLLBACK'] as const) {
      await dataSource.query('TRUNCATE page RESTART IDENTITY')
      await insertOrFail(manager, Page, { url: 'first' })
      const call = (): Promise<unknown> => dataSource.transaction(level, async (own) => await calls[name]?.(own))
      outcomes.push(await shown(meet(sessions, INSERT, call, end)))
    }
    const seen = finds.has(name) ? 'found' : 'taken'
    // The index refuses TypeORM's own call whatever its snapshot; our calls look for the holder, which their snapshot hides.
    const lost = level === 'READ COMMITTED' || name === 'save' ? seen : 'aborted'
    expect(outcomes).toStrictEqual([lost, 'created'])
    expect(await dataSource.query(`SELECT count(*)::int AS n FROM page WHERE url = 'a'`)).toStrictEqual([{ n: 1 }])
  })

  test('a text whose row is being deleted is free for the call that waits', async () => {
    await insertOrFail(manager, Page, { url: 'a' })
    const call = (): Promise<unknown> =>
      dataSource.transaction(level, (manager) => insertOrFail(manager, Page, { url: 'a' }))
    expect(await shown(meet(sessions, `DELETE FROM page`, call))).toBe('created')
  })
})

test('many connections that create, change and delete few texts leave each once, with its hash', async () => {
  const random = (below: number): number => Math.floor(Math.random() * below)
  const text = (): string => `t${random(TEXTS)}`
  const writes: readonly Call[] = [
    () => findOrCreate(manager, Page, { url: text() }),
    () => findOrCreateMany(manager, Page, [{ url: text() }, { url: text() }, { url: text() }]),
    () => insertOrFail(manager, Page, [{ url: text() }, { url: text() }]),
    () => upsertByText(manager, Page, { url: text(), title: text() }),
    () => manager.save(Page, { url: text() }),
    () => manager.update(Page, { url: text() }, { url: text() }),
    () => manager.delete(Page, { url: text() }),
  ]
  const strange: unknown[] = []
  const client = async (): Promise<void> => {
    for (let step = 0; step < STEPS; step += 1) {
      const level = LEVELS[random(LEVELS.length)]
      const write = writes[random(writes.length)]
      const run =
        random(2) === 0
          ? write?.(manager)
          : dataSource.transaction(level ?? 'SERIALIZABLE', (own) => findOrCreate(own, Page, { url: text() }))
      await run?.catch((error: unknown) => isLoss(error) || strange.push(error))
    }
  }
  await Promise.all(Array.from({ length: CLIENTS }, client))
  expect(strange).toStrictEqual([])
  const [held] = await dataSource.query(`SELECT count(*) = count(DISTINCT url) AS once,
    bool_and("urlHash" = sha256(convert_to(url, 'UTF8')) AND "urlHashNumber" = 0) AS right FROM page`)
  expect(held).toStrictEqual({ once: true, right: true })
})

/** What the loser of a race is told. */
const isLoss = (error: unknown): boolean =>
  ['TEXT_TAKEN', 'TRANSACTION_ABORTED', '40001', '40P01', 'ATTEMPTS_EXHAUSTED'].includes(
    String(Reflect.get(Object(error), 'code')),
  )
