import { expect, test } from 'vitest'
import { findOrCreate, UnsupportedDatabaseError } from '../../../src'
import { Url } from '../../../src/url'
import { CreateUrls1795255200000 } from '../../../migrations/1795255200000-CreateUrls'
import { useDatabase } from '../../support/database'
import { Page } from '../../support/entities'

const db = useDatabase({ encoding: 'LATIN1' })

const tables = async (): Promise<unknown[]> =>
  (await (await db.client()).query(`select relname from pg_class where relnamespace = 'public'::regnamespace`)).rows

test('a database of another encoding is refused before synchronize makes a table: its md5() sees other bytes', async () => {
  await expect(db.dataSource([Page])).rejects.toBeInstanceOf(UnsupportedDatabaseError)
  expect(await tables()).toEqual([])
})

test('a migration that was generated elsewhere leaves nothing on a database of another encoding', async () => {
  const dataSource = await db.dataSource([Url], { synchronize: false, migrations: [CreateUrls1795255200000] })
  await expect(dataSource.runMigrations()).rejects.toMatchObject({ code: '0A000' })
  const made = await tables()
  expect(JSON.stringify(made)).not.toContain('urls')
})

test('find-or-create is refused before it writes to a database of another encoding', async () => {
  await (await db.client()).query('create table page (id integer, url text)')
  const { manager } = await db.dataSource([Page], { synchronize: false })
  await expect(findOrCreate(manager, Page, { url: 'é' })).rejects.toBeInstanceOf(UnsupportedDatabaseError)
})
