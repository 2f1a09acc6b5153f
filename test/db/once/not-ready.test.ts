import { beforeEach, expect, test, vi } from 'vitest'
import { SchemaDriftError } from '../../../src'
import { forgetToken, once, OnceToken } from '../../../src/once'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'

const db = useDatabase()

beforeEach(async () => {
  const dataSource = await db.dataSource([OnceToken], { dropSchema: true })
  await dataSource.query('ALTER TABLE once_tokens DISABLE TRIGGER ALL')
})

const unprepared = { synchronize: false } as const

test('once calls no work while its table is not ready', async () => {
  const { manager } = await db.dataSource([OnceToken], unprepared)
  const work = vi.fn()
  expect(await rejection(once(manager, 'token', work))).toBeInstanceOf(SchemaDriftError)
  expect(await rejection(manager.transaction((own) => once(own, 'token', work)))).toBeInstanceOf(SchemaDriftError)
  expect(work).not.toHaveBeenCalled()
})

test('forgetToken refuses a table that is not ready', async () => {
  const { manager } = await db.dataSource([OnceToken], unprepared)
  expect(await rejection(forgetToken(manager, 'token'))).toBeInstanceOf(SchemaDriftError)
})
