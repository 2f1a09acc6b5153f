import { Column, type DataSource, Entity, Index, PrimaryGeneratedColumn, ViewColumn, ViewEntity } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { UniqueText } from '../../../src'
import { NumberWithin } from '../../../src/numbers'
import { Name, UniqueName } from '../../../src/names'
import { useDatabase } from '../../support/database'
import { column, entity, numberWithin, text } from '../../support/entity'
import { generate, migrate } from '../../support/generated'

const db = useDatabase()

/** The table `item`, with everything that this package puts on one, and what an evolution adds. */
function itemWith(evolve: (prototype: object) => void, digest: 'md5' | 'sha256' = 'md5'): Function {
  class Item {
    id!: number
    tenant!: number
    url!: string
    handle!: string
    number!: number
  }
  Entity('item')(Item)
  const { prototype } = Item
  PrimaryGeneratedColumn('identity')(prototype, 'id')
  evolve(prototype)
  UniqueText({ scope: ['tenant'], digest })(prototype, 'url')
  UniqueName({ namespace: 'item' })(prototype, 'handle')
  NumberWithin({ scope: ['tenant'], count: true })(prototype, 'number')
  return Item
}

const before = itemWith((prototype) => Column({ type: 'integer' })(prototype, 'tenant'))

const open = async (item: Function): Promise<DataSource> =>
  await db.dataSource([item, Name], { synchronize: false, migrationsTransactionMode: 'none' })

beforeEach(async () => {
  const client = await db.client()
  await client.query('drop schema public cascade; create schema public')
  await migrate(await open(before))
})

/** What a migration without a transaction would let happen between its statements. */
async function runBesideWriters(dataSource: DataSource, statements: readonly string[]): Promise<void> {
  const writer = await db.client()
  let n = 0
  for (const statement of statements) {
    await dataSource.query(statement)
    n += 1
    await writer.query(insert(n)).catch(() => undefined)
    // In the midst, where there are several.
    if (n === Math.ceil(statements.length / 3)) await writer.query(`update item set handle = 'other ${n}' where id = 1`)
  }
}

const insert = (n: number): string => `insert into item (tenant, url, handle) values (1, 'url ${n}', 'name ${n}')`

describe('a change of other columns', () => {
  test('is one statement, and leaves all triggers', async () => {
    const item = itemWith((prototype) => {
      Column({ type: 'integer' })(prototype, 'tenant')
      Column({ type: 'text', nullable: true })(prototype, 'note')
    })
    const { up, down } = await generate(await open(item))
    expect(up).toEqual(['ALTER TABLE "item" ADD "note" text'])
    expect(down).toEqual(['ALTER TABLE "item" DROP COLUMN "note"'])
  })
  test('of a default, for which TypeORM makes unique indexes anew, is one statement too', async () => {
    const item = itemWith((prototype) => Column({ type: 'integer', default: 7 })(prototype, 'tenant'))
    const { up } = await generate(await open(item))
    expect(up).toHaveLength(1)
    expect(up[0]).not.toContain('TRIGGER')
  })
})

describe('a change that needs triggers away', () => {
  const widened = itemWith((prototype) => Column({ type: 'integer' })(prototype, 'tenant'), 'sha256')

  test('is one statement with what puts them back, up and down', async () => {
    const { up, down } = await generate(await open(widened))
    const trigger = /unique_text_(?:attach|detach)/
    expect(up.filter((one) => trigger.test(one))).toHaveLength(1)
    expect(down.filter((one) => trigger.test(one))).toHaveLength(1)
  })
  test('lets nobody write while they are away', async () => {
    const dataSource = await open(widened)
    const { up, down } = await generate(dataSource)
    await dataSource.query(insert(0))
    await runBesideWriters(dataSource, up)
    await runBesideWriters(dataSource, down)
    const wrong = await dataSource.query(
      `select 'text' as what from item group by tenant, url having count(*) > 1 union all
       select 'name' from item group by handle having count(*) > 1 union all
       select 'name of nobody' from names n where not exists (select from item i where i.handle = n.text) union all
       select 'nameless' from item i where not exists (select from names n where i.handle = n.text and n.state = 'held')`,
    )
    expect(wrong).toEqual([])
  })
})

/** The table with another digest, and whatever needs more than the statement that the triggers go in. */
describe('a change that needs triggers away goes', () => {
  const upAndDown = async (entities: readonly Function[]): Promise<string[][]> => {
    const dataSource = await db.dataSource([...entities, Name], { synchronize: false })
    const { up, down } = await generate(dataSource)
    // Those of TypeORM's own table have values.
    const isOurs = (statement: string): boolean => !statement.includes('"typeorm_metadata"')
    for (const statement of up.filter(isOurs)) await dataSource.query(statement)
    for (const statement of down.filter(isOurs)) await dataSource.query(statement)
    const { up: again } = await generate(await open(before))
    expect(again).toEqual([])
    return [[...up], [...down]]
  }

  test('with an index that is made concurrently, which on the way back goes before its column', async () => {
    const item = itemWith((prototype) => {
      Column({ type: 'integer' })(prototype, 'tenant')
      Column({ type: 'integer', nullable: true })(prototype, 'size')
      Index({ concurrent: true })(prototype, 'size')
    }, 'sha256')
    const [up, down] = await upAndDown([item])
    expect(up?.at(-1)).toMatch(/^CREATE INDEX CONCURRENTLY/)
    expect(down?.[0]).toMatch(/^DROP INDEX CONCURRENTLY/)
  })
  test('with a view that ends with a comment', async () => {
    @ViewEntity({ name: 'holder', expression: 'SELECT "id" FROM "names" -- all of them' })
    class Holder {
      @ViewColumn() id!: number
    }
    const item = itemWith((prototype) => Column({ type: 'integer' })(prototype, 'tenant'), 'sha256')
    await upAndDown([item, Holder])
  })
})

test('dropDatabase leaves no function behind', async () => {
  const dataSource = await open(before)
  await dataSource.query(insert(1))
  await dataSource.dropDatabase()
  const left = await dataSource.query(
    `select proname from pg_proc where pronamespace = 'public'::regnamespace union all
     select relname from pg_class where relnamespace = 'public'::regnamespace`,
  )
  expect(left).toEqual([])
})

test('the migration after the last decorator leaves no function behind, and its way back makes them again', async () => {
  const Note = entity('Note', { text: text(), number: numberWithin() })
  const Plain = entity('Plain', { text: column('text'), number: column('integer') }, { name: 'note' })
  const client = await db.client()
  await client.query('drop schema public cascade; create schema public')
  await migrate(await db.dataSource([Note], { synchronize: false }))
  const functions = async (): Promise<unknown[]> => {
    const { rows } = await client.query(
      `select proname, prosrc from pg_proc where pronamespace = 'public'::regnamespace
         and prorettype = 'trigger'::regtype order by 1`,
    )
    return rows
  }
  const standing = await functions()
  expect(standing).not.toEqual([])
  const { down } = await migrate(await db.dataSource([Plain], { synchronize: false }, {}))
  expect(await functions()).toEqual([])
  for (const statement of down) await client.query(statement)
  expect(await functions()).toEqual(standing)
})
