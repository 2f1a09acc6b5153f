import { expect, test, vi } from 'vitest'
import { findOrCreate } from '../../../src'
import { useDatabase } from '../../support/database'
import { Page } from '../../support/entities'

const db = useDatabase()

test('after 64 hits in a row a call looks before it inserts, until a text is new', async () => {
  const dataSource = await db.dataSource([Page], { logging: true, logger: 'debug' })
  const logged = vi.spyOn(dataSource.logger, 'logQuery')
  const sent = async (url: string): Promise<readonly boolean[]> => {
    logged.mockClear()
    await findOrCreate(dataSource.manager, Page, { url })
    return logged.mock.calls.map(([sql]) => sql.includes('INSERT'))
  }
  await findOrCreate(dataSource.manager, Page, { url: 'a' })
  for (let hit = 0; hit < 64; hit += 1) expect(await sent('a')).toEqual([true])
  expect(await sent('a')).toEqual([false])
  expect(await sent('new')).toEqual([false, true])
  expect(await sent('a')).toEqual([true])
})
