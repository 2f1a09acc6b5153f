/** What Rails, Django and Sequelize check of their operations of these names, asked of ours. */
import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, insertOrFail, UniqueText, upsertByText } from '../../../src'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { column, createDate, entity, key, plain, text, toOne, updateDate } from '../../support/entity'
import { poolOf, rejection } from '../../support/ledger'
import { queriesOf } from '../../support/queries'
import { rowOf } from '../../support/results'

const Author = entity('Author', { name: column('text') })
const Book = entity('Book', {
  title: text(),
  format: plain(),
  isbn: plain(),
  kind: column('text', { default: 'by default' }),
  createdAt: createDate(),
  updatedAt: updateDate(),
})
const Essay = entity('Essay', { title: text({ scope: ['author'] }), author: toOne(() => Author, { nullable: false }) })
const Cart = entity('Cart', { shop: key('integer'), number: key('integer'), title: text() })
const Dummy = entity(
  'Dummy',
  { foo: text(), select: column('text', { name: 'order', nullable: true }) },
  { schema: 'space1' },
)

@Entity()
class Developer {
  @PrimaryGeneratedColumn('identity', { type: 'integer', name: 'dev_id' }) id!: number
  @UniqueText({ name: 'legacy_name' }) name!: string
  @Column({ type: 'integer', name: 'legacy_pay', nullable: true }) salary!: number | null
}

const POOL = 5

const db = useDatabase()
const client = db.useClient()
beforeAll(() => client.query('CREATE SCHEMA space1'))
const dataSource = db.useDataSource([Author, Book, Essay, Cart, Dummy, Developer], { poolSize: POOL })
const { manager } = dataSource

describe('Rails', () => {
  test('insert_all_with_skip_duplicates_and_autonumber_id_given: the first of the twins gives the id', async () => {
    const twins = [
      { id: 200, title: 'Refactoring' },
      { id: 201, title: 'Refactoring' },
    ]
    const made = await findOrCreateMany(manager, Book, twins)
    expect(made.map((result) => rowOf(result).entity.id)).toEqual([200, 200])
    expect((await manager.find(Book)).map(({ id }) => id)).toEqual([200])
  })

  test('insert_all_and_upsert_all_works_with_composite_primary_keys: the text finds the row, whatever its key', async () => {
    await findOrCreateMany(manager, Cart, [{ shop: 1, number: 1, title: 'mine' }])
    const results = await findOrCreateMany(manager, Cart, [
      { shop: 9, number: 9, title: 'mine' },
      { shop: 0, number: 3, title: 'a key of zero is no missing value' },
      { shop: 1, number: 1, title: 'the key is taken' },
    ])
    expect(results).toMatchObject([
      { created: false, entity: { shop: 1, number: 1 } },
      { created: true, entity: { shop: 0, number: 3 } },
      { error: { driverError: { code: '23505' } } },
    ])
  })

  test('insert_all_and_upsert_all_with_aliased_attributes: columns may be called otherwise', async () => {
    const [made] = await findOrCreateMany(manager, Developer, [{ name: 'Alice', salary: 7 }])
    expect(made).toMatchObject({ entity: { id: 1, name: 'Alice', salary: 7 } })
    expect(await dataSource.query('SELECT dev_id, legacy_name, legacy_pay FROM developer')).toEqual([
      { dev_id: 1, legacy_name: 'Alice', legacy_pay: 7 },
    ])
  })

  test('insert_all_on_relation: the author is the scope, by object or by id', async () => {
    const [jimmy, bob] = await manager.save(manager.create(Author, [{ name: 'Jimmy' }, { name: 'Bob' }]))
    if (!jimmy || !bob) throw new TypeError('Two were saved.')
    const results = await findOrCreateMany(manager, Essay, [
      { title: 'My little book', author: jimmy },
      { title: 'My little book', author: { id: jimmy.id } },
      { title: 'My little book', author: bob },
    ])
    expect(results.map((one) => 'created' in one && one.created)).toEqual([true, false, true])
    expect(await findOrCreate(manager, Essay, { title: 'My little book', author: bob })).toMatchObject({
      created: false,
    })
    expect(await manager.countBy(Essay, { author: { id: jimmy.id } })).toBe(1)
  })

  test('insert_all sets timestamps of a created row, to the microsecond that the server has', async () => {
    const { entity } = await findOrCreate(manager, Book, { title: 'new' })
    expect(entity.createdAt).toBeInstanceOf(Date)
    expect(await manager.findOneByOrFail(Book, { id: entity.id })).toEqual(entity)
    const given = new Date('2010-01-01T12:00:00Z')
    const old = await findOrCreate(manager, Book, { title: 'old', createdAt: given })
    expect(old.entity.createdAt).toEqual(given)
  })

  test('a row that is found is not touched: no timestamp, no new row version', async () => {
    await findOrCreate(manager, Book, { title: 'found' })
    const version = (): Promise<unknown> => dataSource.query('SELECT xmin, "updatedAt" FROM book')
    const before = await version()
    await findOrCreate(manager, Book, { title: 'found', format: 'other' })
    await findOrCreateMany(manager, Book, [{ title: 'found', format: 'other' }])
    expect(await version()).toEqual(before)
  })

  test('insert_all_should_handle_empty_arrays: no row, and no statement', async () => {
    const sent = await queriesOf(dataSource, async () => {
      expect(await findOrCreateMany(manager, Book, [])).toEqual([])
      expect(await insertOrFail(manager, Book, [])).toEqual([])
      expect(await upsertByText(manager, Book, [])).toEqual([])
    })
    expect(sent).toEqual([])
  })
})

describe('Django', () => {
  test('get_or_create_integrityerror: a reference to nobody is refused, with the name of its constraint', async () => {
    const call = findOrCreate(manager, Essay, { title: 'a', author: { id: 404 } })
    await expect(call).rejects.toMatchObject({ driverError: { code: '23503', constraint: expect.any(String) } })
    expect(await manager.count(Essay)).toBe(0)
  })

  test('no_unnecessary_transaction: a batch without a bad row begins none, and is one statement', async () => {
    await findOrCreate(manager, Book, { title: 'the table is known to be ready' })
    const rows = ['France', 'Canada', 'Belgium'].map((title) => ({ title }))
    const sent = await queriesOf(dataSource, () => findOrCreateMany(manager, Book, rows))
    expect(sent).toEqual([expect.stringContaining('INSERT')])
  })

  test("the caller's objects are left as they are", async () => {
    const rows = [{ title: 'a' }, { title: 'b', format: 'f' }].map((row) => Object.freeze(row))
    await findOrCreateMany(manager, Book, Object.freeze(rows))
    expect(rows).toEqual([{ title: 'a' }, { title: 'b', format: 'f' }])
  })

  test('updates_in_transaction: what another one changes meanwhile in another column remains', async () => {
    const observer = await db.client()
    await insertOrFail(manager, Book, { title: 'John', format: 'old', isbn: 'old' })
    let other: Promise<unknown> | undefined
    await dataSource.transaction(async (inner) => {
      await upsertByText(inner, Book, { title: 'John', format: 'new' })
      other = manager.update(Book, { title: 'John' }, { isbn: 'new' })
      await untilBlocked(observer)
    })
    await other
    expect(await manager.find(Book)).toMatchObject([{ format: 'new', isbn: 'new' }])
  })
})

describe('Sequelize', () => {
  test('findOrCreate should release transaction when meeting errors: no connection leaks', async () => {
    for (let call = 0; call < 2 * POOL; call += 1) {
      const error = await rejection(findOrCreate(manager, Cart, { title: `n${call}`, shop: 1 }))
      expect(error).toMatchObject({ driverError: { code: '23502' } })
    }
    const { totalCount, idleCount, waitingCount } = poolOf(dataSource)
    expect({ inUse: totalCount - idleCount, waitingCount }).toEqual({ inUse: 0, waitingCount: 0 })
  })

  test('bulkCreate and upsert support schemas, and columns with the names of commands', async () => {
    const rows = [
      { foo: 'a', select: 'b' },
      { foo: 'c', select: 'd' },
    ]
    expect(await findOrCreateMany(manager, Dummy, rows)).toMatchObject(
      rows.map((entity) => ({ created: true, entity })),
    )
    await upsertByText(manager, Dummy, { foo: 'a', select: 'c' }, { update: ['select'] })
    expect(await dataSource.query('SELECT foo, "order" FROM space1.dummy ORDER BY id')).toEqual([
      { foo: 'a', order: 'c' },
      { foo: 'c', order: 'd' },
    ])
  })

  test('upsert does not update using default values', async () => {
    await insertOrFail(manager, Book, { title: 'n', isbn: 'mine', kind: 'new value' })
    await upsertByText(manager, Book, { title: 'n', isbn: 'yours' })
    expect(await manager.find(Book)).toMatchObject([{ isbn: 'yours', kind: 'new value' }])
  })
})
