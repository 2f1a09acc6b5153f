/** What Rails and Django check of their operations of these names, asked of ours. */
import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, insertOrFail, UniqueText, upsertByText } from '../../../src'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { column, createDate, entity, key, plain, text, toOne, updateDate } from '../../support/entity'
import { queriesOf } from '../../support/queries'
import { rowOf } from '../../support/results'

const Author = entity('Author', { name: column('text') })
const Book = entity('Book', {
  title: text(),
  format: plain(),
  isbn: plain(),
  createdAt: createDate(),
  updatedAt: updateDate(),
})
type Book = InstanceType<typeof Book>
const Essay = entity('Essay', { title: text({ scope: ['author'] }), author: toOne(() => Author, { nullable: false }) })
const Cart = entity('Cart', { shop: key('integer'), number: key('integer'), title: text() })

@Entity()
class Developer {
  @PrimaryGeneratedColumn('identity', { type: 'integer', name: 'dev_id' }) id!: number
  @UniqueText({ name: 'legacy_name' }) name!: string
  @Column({ type: 'integer', name: 'legacy_pay', nullable: true }) salary!: number | null
}

const db = useDatabase()
const dataSource = db.useDataSource([Author, Book, Essay, Cart, Developer])
const { manager } = dataSource

describe('find_or_create_by and create_or_find_by', () => {
  test('find_or_create_by race: the one who waited gets the row of the one who was first', async () => {
    const observer = await db.client()
    let second: ReturnType<typeof findOrCreate<Book>> | undefined
    const first = await dataSource.transaction(async (manager) => {
      const made = await findOrCreate(manager, Book, { title: 'bob' })
      second = findOrCreate(dataSource.manager, Book, { title: 'bob' })
      await untilBlocked(observer)
      return made
    })
    expect(await second).toMatchObject({ created: false, entity: { id: first.entity.id } })
  })

  test('find_or_create_by race: when the first one rolls back, the one who waited creates', async () => {
    const observer = await db.client()
    let second: ReturnType<typeof findOrCreate<Book>> | undefined
    const first = dataSource.transaction(async (manager) => {
      await findOrCreate(manager, Book, { title: 'bob' })
      second = findOrCreate(dataSource.manager, Book, { title: 'bob' })
      await untilBlocked(observer)
      throw new Error('of the caller')
    })
    await expect(first).rejects.toThrow('of the caller')
    expect(await second).toMatchObject({ created: true, entity: { title: 'bob' } })
  })
})

describe('insert_all', () => {
  test('insert_all_with_skip_duplicates_and_autonumber_id_given: the first of the twins gives the id', async () => {
    const twins = [
      { id: 200, title: 'Refactoring' },
      { id: 201, title: 'Refactoring' },
    ]
    const made = await findOrCreateMany(manager, Book, twins)
    expect(made.map((result) => rowOf(result).entity.id)).toEqual([200, 200])
    expect((await manager.find(Book)).map(({ id }) => id)).toEqual([200])
  })

  test('skip_duplicates_strategy_does_not_secretly_upsert: other columns of the row stay', async () => {
    await findOrCreate(manager, Book, { title: 'Refactoring', format: 'expected' })
    const [found] = await findOrCreateMany(manager, Book, [{ title: 'Refactoring', format: 'unexpected' }])
    expect(found).toMatchObject({ created: false, entity: { format: 'expected' } })
    expect(await manager.findOneByOrFail(Book, { title: 'Refactoring' })).toMatchObject({ format: 'expected' })
  })

  test('insert_all_and_upsert_all_works_with_composite_primary_keys: the text finds the row, whatever its key', async () => {
    await findOrCreateMany(manager, Cart, [{ shop: 1, number: 1, title: 'mine' }])
    const results = await findOrCreateMany(manager, Cart, [
      { shop: 9, number: 9, title: 'mine' },
      { shop: 2, number: 3, title: 'other' },
      { shop: 1, number: 1, title: 'the key is taken' },
    ])
    expect(results).toMatchObject([
      { created: false, entity: { shop: 1, number: 1 } },
      { created: true, entity: { shop: 2, number: 3 } },
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
})

test('insert_all_should_handle_empty_arrays: no row, and no statement', async () => {
  const sent = await queriesOf(dataSource, async () => {
    expect(await findOrCreateMany(manager, Book, [])).toEqual([])
    expect(await insertOrFail(manager, Book, [])).toEqual([])
    expect(await upsertByText(manager, Book, [])).toEqual([])
  })
  expect(sent).toEqual([])
})

describe('Django', () => {
  test('get_or_create_integrityerror: a reference to nobody is refused, with the name of its constraint', async () => {
    const call = findOrCreate(manager, Essay, { title: 'a', author: { id: 404 } })
    await expect(call).rejects.toMatchObject({ driverError: { code: '23503', constraint: expect.any(String) } })
    expect(await manager.count(Essay)).toBe(0)
  })

  test('get_or_create_on_related_manager: equal titles of two authors are two essays', async () => {
    const [acme, other] = await manager.save(manager.create(Author, [{ name: 'Acme' }, { name: 'Other' }]))
    if (!acme || !other) throw new TypeError('Two were saved.')
    const by = (author: { readonly id: number }) => findOrCreate(manager, Essay, { title: 'The Essay', author })
    const first = await by(acme)
    expect(first).toMatchObject({ created: true, entity: { title: 'The Essay' } })
    expect(await by(acme)).toMatchObject({ created: false, entity: { id: first.entity.id } })
    // The key in place of the object.
    expect(await by({ id: acme.id })).toMatchObject({ created: false, entity: { id: first.entity.id } })
    expect(await by(other)).toMatchObject({ created: true })
    expect(await manager.countBy(Essay, { author: { id: acme.id } })).toBe(1)
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
