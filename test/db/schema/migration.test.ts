import { DataSource } from 'typeorm'
import { expect, test } from 'vitest'
import { Url } from '../../../src/url'
import { CreateUrls1795255200000 } from '../../../migrations/1795255200000-CreateUrls'
import { useDatabase } from '../../support/database'

const db = useDatabase()

test('the committed migration makes what the declaration says, and its way back leaves nothing', async () => {
  const dataSource = new DataSource({
    type: 'postgres',
    url: db.url,
    entities: [Url],
    migrations: [CreateUrls1795255200000],
  })
  await dataSource.initialize()
  await dataSource.runMigrations()
  const { upQueries } = await dataSource.driver.createSchemaBuilder().log()
  expect(upQueries.map(({ query }) => query.slice(0, 100))).toEqual([])
  expect(String(await Url.parse('http://example.com/'))).toBe('http://example.com/')
  await dataSource.undoLastMigration()
  const left = (await dataSource.query(
    `select proname as name from pg_proc where pronamespace = 'public'::regnamespace
     union all select relname from pg_class where relnamespace = 'public'::regnamespace and relname !~ 'migrations|PK_'`,
  )) as unknown[]
  expect(left).toEqual([])
  await dataSource.destroy()
})
