import { type DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, UniqueText } from '../../../src'
import { doctor } from '../../../src/doctor'
import { Name } from '../../../src/names'
import { trim } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { column, deleteDate, entity, key, numberWithin, text, uniqueName } from '../../support/entity'
import { generate, migrate } from '../../support/generated'
import { STEVENS } from '../../support/md5-collisions'

const Page = entity('Page', { shop: column('integer'), url: text({ scope: ['shop'] }) })

const Comment = entity('Comment', {
  topic: column('integer'),
  number: numberWithin({ scope: ['topic'], count: true }),
  deletedAt: deleteDate(),
})

const Account = entity('Account', { handle: uniqueName({ namespace: 'handle', former: 'reserve' }) })

const Legacy = entity('Legacy', { id: key('integer'), url: text({ normalize: trim() }) })

@Entity('legacy')
class WithNewKey {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) key!: number
  @UniqueText({ normalize: trim() }) url!: string
}

const db = useDatabase()
let dataSource: DataSource

beforeEach(async () => {
  dataSource = await db.dataSource([Page, Comment, Account, Name], { dropSchema: true })
  const { manager } = dataSource
  for (const url of STEVENS) for (const shop of [1, 2]) await findOrCreate(manager, Page, { shop, url })
  await manager.insert(Comment, [{ topic: 1 }, { topic: 1 }, { topic: 1 }])
  await manager.softDelete(Comment, { number: 2 })
  await manager.insert(Account, [{ handle: 'ada' }, { handle: 'grace' }])
})

const errors = async (): Promise<unknown> =>
  (await doctor(dataSource)).findings.filter(({ severity }) => severity === 'error')

describe('a column is renamed, and another takes its name:', () => {
  test.each([
    ['the flag of chains', 'page', '"urlHashChained"', 'boolean NOT NULL DEFAULT false', ''],
    ['the hash number', 'page', '"urlHashNumber"', 'integer NOT NULL DEFAULT 0', ''],
    ['the delete date of rows that are counted', 'comment', '"deletedAt"', 'timestamptz', ''],
    ['a number', 'comment', 'number', 'integer', ''],
    ['a name', 'account', 'handle', 'text', `UPDATE account SET handle = 'other ' || id`],
  ])('a generated migration makes anew what rows have because of %s', async (_, table, column, type, fill) => {
    await dataSource.query(`ALTER TABLE ${table} RENAME ${column} TO other; ALTER TABLE ${table} ADD ${column} ${type}`)
    if (fill) await dataSource.query(fill)
    await migrate(dataSource)
    expect(await errors()).toEqual([])
    expect((await generate(dataSource)).up).toEqual([])
  })

  test('rows that hold the same text by another scope are named', async () => {
    await dataSource.query(
      'ALTER TABLE page RENAME shop TO other; ALTER TABLE page ADD shop integer NOT NULL DEFAULT 1',
    )
    await expect(migrate(dataSource)).rejects.toMatchObject({
      message: expect.stringContaining('rows of table "page" hold the same text for "url"') as string,
      detail: expect.stringMatching(/^The rows by primary key \(id\): 1, 2; \d, \d$/) as string,
    })
  })
})

test('a restore has left out the table of names: the migration that makes it gives rows their names', async () => {
  await dataSource.query('DROP TABLE names')
  await migrate(dataSource)
  expect(await errors()).toEqual([])
  expect((await generate(dataSource)).up).toEqual([])
  await expect(dataSource.manager.insert(Account, { handle: 'ada' })).rejects.toMatchObject({ code: 'TEXT_TAKEN' })
})

test.each([
  ['with the column of its key', Legacy, 'id integer'],
  ['without it', WithNewKey, 'other integer'],
])('rows of a table that has no primary key yet are named by ctid, %s', async (_, entity, column) => {
  const legacy = await db.dataSource([entity], { synchronize: false })
  await legacy.query(`DROP TABLE IF EXISTS legacy; CREATE TABLE legacy (${column}, url text)`)
  await legacy.query(`INSERT INTO legacy VALUES (7, 'a')`)
  await expect(migrate(legacy)).rejects.toMatchObject({ detail: 'The rows by ctid: (0,1)' })
})
