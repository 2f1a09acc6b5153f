import {
  ChildEntity,
  Column,
  CreateDateColumn,
  Entity,
  Index,
  PrimaryGeneratedColumn,
  TableInheritance,
  UpdateDateColumn,
} from 'typeorm'
import { describe, expect, test } from 'vitest'
import type { FindOrCreateManyResult } from '../../../src'
import {
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  SchemaDriftError,
  TextTakenError,
  UniqueText,
  upsertByText,
} from '../../../src'
import { lowerCase } from '../../../src/text'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { column, deleteDate, entity, key, plain, text, toOne } from '../../support/entity'

const STATUSES = ['proposed', 'written', 'published'] as const

const Author = entity('Author', { name: column('text') })

@Entity()
class Book {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() title!: string
  @Index({ unique: true }) @Column({ type: 'text', nullable: true }) isbn!: string | null
  @Column({ type: 'text', nullable: true }) format!: string | null
  @Column({ type: 'text', nullable: true, update: false }) origin!: string | null
  @Column({ type: 'enum', enum: STATUSES, default: 'proposed' }) status!: (typeof STATUSES)[number]
  @CreateDateColumn({ type: 'timestamptz' }) createdAt!: Date
  @UpdateDateColumn({ type: 'timestamptz' }) updatedAt!: Date
}

const Essay = entity('Essay', {
  title: text({ scope: ['author'] }),
  author: toOne(() => Author, { nullable: false }),
  pages: column('integer', { default: 0 }),
})
const Draft = entity('Draft', { title: text({ ignoreDeleted: true }), isbn: plain(), deletedAt: deleteDate() })
const Cart = entity('Cart', { shop: key('integer'), number: key('integer'), title: text() })

@Entity()
class Developer {
  @PrimaryGeneratedColumn('identity', { type: 'integer', name: 'dev_id' }) id!: number
  @UniqueText({ name: 'legacy_name' }) name!: string
  @Column({ type: 'integer', name: 'legacy_pay', nullable: true }) salary!: number | null
}

const External = entity('External', { reference: text({ normalize: lowerCase() }) })

@Entity()
@TableInheritance({ column: { type: 'varchar', name: 'type' } })
class Category {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() name!: string
}

@ChildEntity()
class SpecialCategory extends Category {}

const db = useDatabase()
const entities = [Author, Book, Essay, Draft, Cart, Developer, External, Category, SpecialCategory]
const dataSource = db.useDataSource(entities)
const { manager } = dataSource

/** Entities of a batch in which no row is bad. */
function entitiesOf<E>(results: readonly FindOrCreateManyResult<E>[]): E[] {
  return results.map((result) => {
    if ('error' in result) throw result.error
    return result.entity
  })
}

describe('find_or_create_by and create_or_find_by', () => {
  test('create_or_find_by_within_transaction: a text that is taken leaves the transaction usable', async () => {
    const bob = await dataSource.manager.save(dataSource.manager.create(Book, { title: 'bob' }))
    await dataSource.transaction(async (manager) => {
      expect((await findOrCreate(manager, Book, { title: 'bob' })).entity.id).toBe(bob.id)
      expect((await findOrCreate(manager, Book, { title: 'cat' })).entity.id).not.toBe(bob.id)
    })
    expect(await dataSource.manager.count(Book)).toBe(2)
  })

  // Rails looks for all attributes and then finds nothing: RecordNotFound.
  test('create_or_find_by_with_non_unique_attributes: the text decides alone, and the row keeps what it has', async () => {
    await findOrCreate(manager, Book, { title: 'bob', format: 'the builder' })
    const again = await findOrCreate(manager, Book, { title: 'bob', format: 'the cat' })
    expect(again).toMatchObject({ created: false, entity: { format: 'the builder' } })
  })

  test('find_or_create_by: an object that was created is stored, and equals what is found after it', async () => {
    const first = await findOrCreate(manager, Book, { title: 'bob' })
    expect(await manager.findOneBy(Book, { id: first.entity.id })).toEqual(first.entity)
    expect((await findOrCreate(manager, Book, { title: 'bob' })).entity).toEqual(first.entity)
  })

  test('find_or_create_by_with_create_with: other values are for the row that is created', async () => {
    const bob = { title: 'bob' }
    const green = await findOrCreate(manager, Book, bob, { create: { format: 'green' } })
    expect(green).toMatchObject({ created: true, entity: { format: 'green' } })
    const blue = await findOrCreate(manager, Book, bob, { create: { format: 'blue' } })
    expect(blue).toMatchObject({ created: false, entity: green.entity })
  })

  test('find_or_create_by!: a row that lacks a required column is refused; a batch goes on without it', async () => {
    await dataSource.transaction(async (manager) => {
      const [refused, made] = await findOrCreateMany(manager, Cart, [
        { title: 'no shop' },
        { shop: 1, number: 1, title: 'with shop' },
      ])
      expect(refused).toMatchObject({ error: { driverError: { code: '23502', column: 'shop' } } })
      expect(made).toMatchObject({ created: true })
    })
    expect(await dataSource.manager.find(Cart)).toMatchObject([{ title: 'with shop' }])
  })

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
  test('insert_all_returns_primary_key: every row comes back with the id that it has', async () => {
    const titles = ['Rework', 'Peopleware', 'About Face']
    const made = entitiesOf(
      await findOrCreateMany(
        manager,
        Book,
        titles.map((title) => ({ title })),
      ),
    )
    expect(made.map(({ title }) => title)).toEqual(titles)
    expect(await manager.find(Book, { order: { id: 'ASC' } })).toEqual(made.toSorted((a, b) => a.id - b.id))
  })

  test('insert_all_with_skip_duplicates_and_autonumber_id_given: the first of the twins gives the id', async () => {
    const twins = [
      { id: 200, title: 'Refactoring' },
      { id: 201, title: 'Refactoring' },
    ]
    const made = entitiesOf(await findOrCreateMany(manager, Book, twins))
    expect(made.map(({ id }) => id)).toEqual([200, 200])
    expect((await manager.find(Book)).map(({ id }) => id)).toEqual([200])
  })

  test('skip_duplicates_strategy_does_not_secretly_upsert: other columns of the row stay', async () => {
    await findOrCreate(manager, Book, { title: 'Refactoring', format: 'expected' })
    const [found] = await findOrCreateMany(manager, Book, [{ title: 'Refactoring', format: 'unexpected' }])
    expect(found).toMatchObject({ created: false, entity: { format: 'expected' } })
    expect(await manager.findOneByOrFail(Book, { title: 'Refactoring' })).toMatchObject({ format: 'expected' })
  })

  test('insert_all_will_raise_if_duplicates_are_skipped_only_for_a_certain_conflict_target: another index tells', async () => {
    await findOrCreate(manager, Book, { title: 'Rework', isbn: '1' })
    const [refused, made] = await findOrCreateMany(manager, Book, [{ title: 'Remote', isbn: '1' }, { title: 'Renote' }])
    expect(refused).toMatchObject({ error: { driverError: { code: '23505', table: 'book' } } })
    expect(made).toMatchObject({ created: true })
  })

  test('insert_all_and_upsert_all_raises_when_index_is_missing: nothing is written without the index', async () => {
    const other = await db.dataSource([Author], { schema: 'no_index', synchronize: false })
    await other.query('CREATE SCHEMA no_index')
    const Bare = entity('Bare', { text: text() }, { schema: 'no_index' })
    const bare = await db.dataSource([Bare])
    const [{ name }] = (await bare.query(
      `SELECT indexname AS name FROM pg_indexes WHERE schemaname = 'no_index' AND indexname NOT LIKE 'PK%'`,
    )) as [{ name: string }]
    await bare.query(`DROP INDEX no_index."${name}"`)
    await expect(findOrCreateMany(bare.manager, Bare, [{ text: 'a' }])).rejects.toBeInstanceOf(SchemaDriftError)
    expect(await bare.manager.count(Bare)).toBe(0)
  })

  test('insert_all_and_upsert_all_with_expression_index: texts that are normalized alike are one', async () => {
    const { entity } = await findOrCreate(manager, External, { reference: 'abc' })
    const [found] = await findOrCreateMany(manager, External, [{ reference: 'ABC' }])
    expect(found).toMatchObject({ created: false, entity: { id: entity.id, reference: 'abc' } })
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

  test('insert_all_and_upsert_all_with_sti: rows become rows of the class that was asked', async () => {
    await findOrCreateMany(manager, SpecialCategory, [{ name: 'First' }])
    await findOrCreateMany(manager, Category, [{ name: 'Second' }])
    const found = await manager.find(Category, { order: { name: 'ASC' } })
    expect(found.map(({ constructor }) => constructor)).toEqual([SpecialCategory, Category])
  })

  test('insert_all_with_enum_values: each row keeps its own', async () => {
    const rows = [
      { title: 'Rework', status: 'published' },
      { title: 'Remote', status: 'proposed' },
      { title: 'of its own accord' },
    ] as const
    const made = entitiesOf(await findOrCreateMany(dataSource.manager, Book, rows))
    expect(made.map(({ status }) => status)).toEqual(['published', 'proposed', 'proposed'])
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

describe('insert! and insert_all!', () => {
  test('insert!: a row is inserted, and given back whole', async () => {
    const book = await insertOrFail(manager, Book, { title: 'Rework' })
    expect(await manager.find(Book)).toEqual([book])
  })

  test('insert_all!: ten rows at once, in the order of the call', async () => {
    const titles = Array.from({ length: 10 }, (_, index) => `Book ${index}`)
    const books = await insertOrFail(
      dataSource.manager,
      Book,
      titles.map((title) => ({ title })),
    )
    expect(books.map(({ title }) => title)).toEqual(titles)
    expect(await dataSource.manager.count(Book)).toBe(10)
  })

  test('insert_all_should_handle_empty_arrays', async () => {
    expect(await insertOrFail(dataSource.manager, Book, [])).toEqual([])
    expect(await upsertByText(dataSource.manager, Book, [])).toEqual([])
  })

  test('insert_all_raises_on_duplicate_records: one is there, none is stored, and it is named', async () => {
    const { id } = await insertOrFail(manager, Book, { title: 'Agile' })
    await dataSource.transaction(async (inner) => {
      const error: unknown = await insertOrFail(inner, Book, [{ title: 'Rework' }, { title: 'Agile' }]).catch(
        (caught: unknown) => caught,
      )
      expect(error).toBeInstanceOf(TextTakenError)
      expect(error).toMatchObject({ taken: [{ entity: 'Book', property: 'title', id: { id }, row: 1 }] })
      await insertOrFail(inner, Book, { title: 'Peopleware' })
    })
    expect((await manager.find(Book)).map(({ title }) => title).sort()).toEqual(['Agile', 'Peopleware'])
  })

  test('insert_all_raises_on_unknown_attribute: so does the compiler, and so does the call', async () => {
    // @ts-expect-error no such property
    const call = findOrCreate(dataSource.manager, Book, { title: 'Rework', unknown: 'x' })
    await expect(call).rejects.toThrow('Book has no property "unknown"')
  })
})

describe('upsert_all', () => {
  test('upsert_all_does_not_update_primary_keys', async () => {
    await upsertByText(manager, Book, { id: 101, title: 'Perelandra' })
    const { entity } = await upsertByText(manager, Book, { id: 103, title: 'Perelandra', isbn: '1974522598' })
    expect(entity).toMatchObject({ id: 101, isbn: '1974522598' })
    expect(await manager.find(Book)).toEqual([entity])
  })

  test.each([
    { update: ['format'] as const, stored: { format: 'new', isbn: 'old' } },
    { update: ['format', 'isbn'] as const, stored: { format: 'new', isbn: 'new' } },
    { update: [] as const, stored: { format: 'old', isbn: 'old' } },
  ])('upsert_all_only_updates_the_list_of_columns_provided_via_update_only: $update', async ({ update, stored }) => {
    const row = { title: 'Perelandra', status: 'written' } as const
    await upsertByText(manager, Book, { ...row, format: 'old', isbn: 'old' })
    await upsertByText(manager, Book, { ...row, status: 'published', format: 'new', isbn: 'new' }, { update })
    expect(await manager.find(Book)).toMatchObject([{ ...stored, status: 'written' }])
  })

  test('upsert_all_does_not_update_readonly_attributes, not even where they are listed', async () => {
    await upsertByText(manager, Book, { title: 'Rework', origin: 'first' })
    await upsertByText(manager, Book, { title: 'Rework', origin: 'second' })
    const listed = upsertByText(manager, Book, { title: 'Rework', origin: 'third' }, { update: ['origin'] })
    await expect(listed).rejects.toMatchObject({ code: 'INVALID_DECLARATION' })
    expect(await manager.find(Book)).toMatchObject([{ origin: 'first' }])
  })

  test('upsert_all_touches_updated_at when values change, and leaves created_at', async () => {
    const past = new Date('2016-04-17T00:00:00Z')
    await insertOrFail(manager, Book, { title: 'Boaty', createdAt: past, updatedAt: past })
    const { entity } = await upsertByText(manager, Book, { title: 'Boaty', format: 'new' })
    expect(entity.createdAt).toEqual(past)
    expect(entity.updatedAt.getTime()).toBeGreaterThan(past.getTime())
  })

  test('upsert_all_does_not_touch_updated_at_when_values_do_not_change, with the option that says so', async () => {
    const past = new Date('2016-04-17T00:00:00Z')
    await insertOrFail(manager, Book, { title: 'Boaty', format: 'f', updatedAt: past })
    const same = { title: 'Boaty', format: 'f' }
    const { entity } = await upsertByText(manager, Book, same, { skipUpdateIfNoValuesChanged: true })
    expect(entity.updatedAt).toEqual(past)
  })

  test('upsert_all_uses_given_updated_at_over_implicit_updated_at, where it is listed', async () => {
    const given = new Date('2020-02-02T00:00:00Z')
    await insertOrFail(manager, Book, { title: 'Boaty' })
    const { entity } = await upsertByText(
      manager,
      Book,
      { title: 'Boaty', updatedAt: given },
      { update: ['updatedAt'] },
    )
    expect(entity.updatedAt).toEqual(given)
  })

  test('upsert_all_does_not_perform_an_upsert_if_a_partial_index_doesnt_apply: a deleted row is left alone', async () => {
    const old = await insertOrFail(manager, Draft, { title: 'Silent Planet', isbn: 'old' })
    await manager.softDelete(Draft, { id: old.id })
    const { created, entity } = await upsertByText(manager, Draft, { title: 'Silent Planet', isbn: 'new' })
    expect(created).toBe(true)
    const all = await manager.find(Draft, { withDeleted: true, order: { id: 'ASC' } })
    expect(all.map(({ id, isbn }) => [id, isbn])).toEqual([
      [old.id, 'old'],
      [entity.id, 'new'],
    ])
  })
})
