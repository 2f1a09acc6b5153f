import { type DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { afterEach, describe, expect, test } from 'vitest'
import { findOrCreate, UniqueText } from '../../../src'
import { useDatabase } from '../../support/database'
import { column, entity, plain, text, uuidKey } from '../../support/entity'
import { generate, migrate, runAll } from '../../support/generated'
import { loggerOf } from '../../support/logger'
import { partitionedByHash } from '../../support/partitions'

const OldPage = entity('OldPage', { url: text() }, { name: 'old page' })

const Page = entity('Page', { url: text() })

const WiderPage = entity('WiderPage', { url: text(), title: plain() }, { name: 'page' })

@Entity('old page', { synchronize: false })
class UnsynchronizedPage {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
}

@Entity('page', { schema: 'other' })
class OtherPage {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
}

const Shop = entity('Shop', { url: text(), title: column('text') })

const Spread = entity('Spread', { id: uuidKey(), url: text({ spread: 'hash' }) })

const SpreadAlike = entity('SpreadAlike', { id: uuidKey(), url: text() }, { name: 'spread_p2' })

const Unguarded = entity('Unguarded', { url: column('text') }, { name: 'old page' })

const db = useDatabase()
const warned: string[] = []
const logger = loggerOf({ log: (level, message) => void (level === 'warn' && warned.push(String(message))) })

afterEach(async () => {
  warned.length = 0
  const client = await db.client()
  await client.query('drop schema public cascade; create schema public; drop schema if exists other cascade')
})

/** The table is there, and its entity has gone. */
async function after(entity: new () => object): Promise<void> {
  const before = await db.dataSource([entity])
  await before.query(`insert into "old page" (url) values ('a'), ('b')`)
  await before.destroy()
}

const connect = async (...entities: (new () => object)[]): Promise<DataSource> =>
  await db.dataSource(entities, { synchronize: false, logger })

const comments = (statements: readonly string[]): string[] =>
  statements.filter((one) => one.startsWith('-- ') && !one.startsWith('-- typeorm-unique-text: '))

test('a table that is perhaps renamed is told of, and what the warning says keeps its rows', async () => {
  await after(OldPage)
  const dataSource = await connect(Page)
  const { up, down } = await generate(dataSource)
  expect(warned).toHaveLength(1)
  const [warning = ''] = warned
  expect(comments(up)).toEqual([`-- ${warning}`])
  expect(comments(down)).toEqual([])
  const [, rename = ''] = /replace all statements of this migration by (ALTER TABLE .*?), run it,/u.exec(warning) ?? []
  await runAll(dataSource, [rename])
  const next = await migrate(dataSource)
  expect(next.up.join('\n')).not.toMatch(/CREATE TABLE|DROP TABLE|ADD "url/u)
  expect(comments(next.up)).toEqual([])
  expect(await findOrCreate(dataSource.manager, Page, { url: 'b' })).toMatchObject({
    created: false,
    entity: { id: 2 },
  })
  expect((await generate(dataSource)).up).toEqual([])
})

test('the migration runs as it is, too', async () => {
  await after(OldPage)
  const dataSource = await connect(Page)
  const { up, down } = await generate(dataSource)
  await runAll(dataSource, up)
  expect(await findOrCreate(dataSource.manager, Page, { url: 'b' })).toMatchObject({ created: true })
  await runAll(dataSource, down)
})

test('synchronize warns, and runs no comment', async () => {
  await after(OldPage)
  const sent: string[] = []
  const listening = { ...logger, logQuery: (sql: string) => void sent.push(sql) }
  await db.dataSource([Page], { logger: listening, logging: true })
  expect(warned).toHaveLength(1)
  expect(comments(sent)).toEqual([])
})

describe('no warning where', () => {
  const expectNone = async (...entities: (new () => object)[]): Promise<void> => {
    const { up } = await generate(await connect(...entities))
    expect(up.join('\n')).toContain('CREATE TABLE')
    expect([...warned, ...comments(up)]).toEqual([])
  }
  test('another entity has the table', async () => {
    await after(OldPage)
    await expectNone(Page, OldPage)
  })
  test('an entity has it that is not synchronized', async () => {
    await after(OldPage)
    await expectNone(Page, UnsynchronizedPage)
  })
  test('the columns differ', async () => {
    await after(OldPage)
    await expectNone(WiderPage)
  })
  test('the table is in another schema', async () => {
    await after(OldPage)
    await (await db.client()).query('create schema other')
    // With an entity in its schema, the table is seen.
    await expectNone(OtherPage, Shop)
  })
  test('the table is a partition of one that an entity has', async () => {
    await (await db.client()).query(partitionedByHash('spread', 2))
    await (await db.dataSource([Spread])).destroy()
    await expectNone(Spread, SpreadAlike)
  })
  test('nothing of this package keeps the table', async () => {
    await after(OldPage)
    await (await db.dataSource([Unguarded], {}, {})).destroy()
    await expectNone(Page)
  })
})
