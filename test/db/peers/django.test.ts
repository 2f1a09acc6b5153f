/** What Django checks of get_or_create and bulk_create, asked of our operations. */
import type { DataSource, DeepPartial, Relation } from 'typeorm'
import { Column, Entity, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { FindOrCreateManyResult } from '../../../src'
import { findOrCreate, findOrCreateMany, insertOrFail, UniqueText, upsertByText } from '../../../src'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { column, entity, key, text, toOne } from '../../support/entity'
import { loggerOf } from '../../support/logger'
import { rejection } from '../../support/ledger'

const Publisher = entity('Publisher', { name: column('text') })
type Publisher = InstanceType<typeof Publisher>

@Entity()
class Person {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() name!: string
  @Column({ type: 'date', nullable: true }) birthday!: string | null
  @Column({ type: 'varchar', length: 10, nullable: true }) nick!: string | null
  @Column({ type: 'integer', default: 3 }) rank!: number
  @ManyToOne(() => Publisher, { nullable: true }) publisher!: Relation<Publisher> | null
}

const Book = entity('Book', {
  name: text({ scope: ['publisher'] }),
  publisher: toOne(() => Publisher, { nullable: false }),
})
const ManualKey = entity('ManualKey', { id: key('integer'), data: text() })
const Nullables = entity('Nullables', {
  text: text({ nullable: true }),
  whole: column('integer', { nullable: true }),
  flag: column('boolean', { nullable: true }),
  at: column('timestamptz', { nullable: true }),
  json: column('jsonb', { nullable: true }),
  bytes: column('bytea', { nullable: true }),
  key: column('uuid', { nullable: true }),
  exact: column('numeric', { nullable: true }),
})

const statements: string[] = []

const db = useDatabase()
let dataSource: DataSource

beforeAll(async () => {
  const logger = loggerOf({
    logQuery: (query: string) => void statements.push(query),
  })
  dataSource = await db.dataSource([Publisher, Person, Book, ManualKey, Nullables], { logging: true, logger })
})
beforeEach(() => dataSource.query('TRUNCATE publisher, person, book, manual_key, nullables RESTART IDENTITY'))

const createdOf = (results: readonly FindOrCreateManyResult<object>[]): unknown[] =>
  results.map((result) => 'created' in result && result.created)

describe('get_or_create', () => {
  test('get_or_create_method_with_get: a row that stands is got', async () => {
    const { manager } = dataSource
    const john = await manager.save(manager.create(Person, { name: 'John', birthday: '1940-10-09' }))
    expect(await findOrCreate(manager, Person, { name: 'John', birthday: '1999-09-09' })).toMatchObject({
      created: false,
      entity: { id: john.id, birthday: '1940-10-09' },
    })
    expect(await manager.count(Person)).toBe(1)
  })

  test('get_or_create_method_with_create: what else is given is stored', async () => {
    const { manager } = dataSource
    const { entity, created } = await findOrCreate(manager, Person, { name: 'George', birthday: '1943-02-25' })
    expect(created).toBe(true)
    expect(await manager.findOneBy(Person, { id: entity.id })).toMatchObject({ birthday: '1943-02-25', rank: 3 })
  })

  test('get_or_create_on_related_manager: equal names at two publishers are two books', async () => {
    const { manager } = dataSource
    const [acme, other] = await manager.save(manager.create(Publisher, [{ name: 'Acme' }, { name: 'Other' }]))
    if (!acme || !other) throw new TypeError('Two were saved.')
    const at = async (publisher: DeepPartial<Publisher>) =>
      await findOrCreate(manager, Book, { name: 'The Book', publisher })
    const first = await at(acme)
    expect(first).toMatchObject({ created: true, entity: { name: 'The Book' } })
    expect(await at(acme)).toMatchObject({ created: false, entity: { id: first.entity.id } })
    // The key in place of the object.
    expect(await at({ id: acme.id })).toMatchObject({ created: false, entity: { id: first.entity.id } })
    expect(await at(other)).toMatchObject({ created: true })
    expect(await manager.countBy(Book, { publisher: { id: acme.id } })).toBe(1)
  })

  test('callable_defaults: evaluated when the row is created', async () => {
    const { manager } = dataSource
    const create = async () => await Promise.resolve({ birthday: '1943-02-25' })
    const { entity } = await findOrCreate(manager, Person, { name: 'George' }, { create })
    expect(entity.birthday).toBe('1943-02-25')
  })

  test('callable_defaults_not_called: not evaluated when it is found', async () => {
    const { manager } = dataSource
    await findOrCreate(manager, Person, { name: 'John' })
    const create = (): never => {
      throw new Error('called')
    }
    expect(await findOrCreate(manager, Person, { name: 'John' }, { create })).toMatchObject({ created: false })
    await expect(findOrCreate(manager, Person, { name: 'Paul' }, { create })).rejects.toThrow('called')
    expect(await manager.count(Person)).toBe(1)
  })

  test("create_with_duplicate_primary_key, raises_IntegrityError_plus_traceback: the error has the caller's own line, the row stays", async () => {
    const { manager } = dataSource
    await findOrCreate(manager, ManualKey, { id: 1, data: 'Original' })
    const calledFromHere = async (): Promise<unknown> =>
      await findOrCreate(manager, ManualKey, { id: 1, data: 'Different' })
    expect(await rejection(calledFromHere())).toMatchObject({
      driverError: { code: '23505' },
      stack: expect.stringContaining('calledFromHere') as string,
    })
    expect(await manager.find(ManualKey)).toEqual([{ id: 1, data: 'Original' }])
  })

  test('savepoint_rollback: a value that Postgres refuses leaves the connection usable', async () => {
    const { manager } = dataSource
    const refused = findOrCreate(manager, Person, { name: 'long', nick: 'longer than ten' })
    await expect(refused).rejects.toMatchObject({ driverError: { code: '22001' } })
    expect(await findOrCreate(manager, Person, { name: 'Bob' })).toMatchObject({ created: true })
    // Bytes that are no UTF-8 are a lone surrogate here: refused before any SQL, in a transaction too.
    await dataSource.transaction(async (inner) => {
      await expect(findOrCreate(inner, Person, { name: '\ud800' })).rejects.toMatchObject({ code: 'TEXT_REJECTED' })
      await findOrCreate(inner, Person, { name: 'Ross' })
    })
    expect(await manager.count(Person)).toBe(2)
  })

  test('get_or_create_integrityerror: a reference to nobody is refused, with the name of its constraint', async () => {
    const nobody = findOrCreate(dataSource.manager, Person, { name: 'a', publisher: { id: 404 } })
    await expect(nobody).rejects.toMatchObject({ driverError: { code: '23503', constraint: expect.any(String) } })
    expect(await dataSource.manager.count(Person)).toBe(0)
  })
})

describe('bulk_create', () => {
  test('empty: no row, and no statement', async () => {
    await findOrCreate(dataSource.manager, Person, { name: 'the table is known to be ready' })
    statements.length = 0
    expect(await findOrCreateMany(dataSource.manager, Person, [])).toEqual([])
    expect(statements).toEqual([])
  })

  test('set_pk_and_query_efficiency: one statement for all, and every entity has its own id', async () => {
    const { manager } = dataSource
    await findOrCreate(manager, Person, { name: 'the table is known to be ready' })
    statements.length = 0
    const names = ['Germany', 'Netherlands', 'Czechia', 'Belgium']
    const results = await findOrCreateMany(
      manager,
      Person,
      names.map((name) => ({ name })),
    )
    expect(statements).toHaveLength(1)
    for (const [index, result] of results.entries()) {
      if ('error' in result) throw result.error
      expect(await manager.findOneBy(Person, { id: result.entity.id })).toMatchObject({ name: names[index] })
    }
  })

  test('large_batch: as many as one likes, with and without a key of their own', async () => {
    const { manager } = dataSource
    const rows = Array.from({ length: 3_000 }, (_, index) => ({
      name: `person ${index}`,
      ...(index % 2 === 0 ? { id: 100_000 + index } : {}),
    }))
    const results = await findOrCreateMany(manager, Person, rows)
    expect(createdOf(results)).toEqual(rows.map(() => true))
    expect(await manager.count(Person)).toBe(rows.length)
    const ids = results.map((result) => ('entity' in result ? result.entity.id : undefined))
    const even = (_: unknown, index: number) => index % 2 === 0
    expect(ids.filter(even)).toEqual(rows.filter(even).map(({ id }) => id))
  })

  test('bulk_insert_nullable_fields: NULL beside values, in every column', async () => {
    const { manager } = dataSource
    const full = {
      whole: 1,
      flag: false,
      at: new Date(0),
      json: { a: null },
      bytes: Buffer.from([0, 255]),
      key: 'a2f1f1f0-0000-4000-8000-000000000001',
      exact: '1.50',
    }
    const columns = Object.keys(full)
    const rows = columns.map((name) => ({ ...full, [name]: null, text: `without ${name}` }))
    const results = await findOrCreateMany(manager, Nullables, rows)
    for (const [index, result] of results.entries()) expect(result).toMatchObject({ entity: rows[index] })
    for (const row of rows) expect(await manager.findOneBy(Nullables, { text: row.text })).toMatchObject(row)
  })

  test('nullable_fk_after_parent: a parent that was saved before is referred to', async () => {
    const { manager } = dataSource
    const parent = await manager.save(manager.create(Publisher, { name: 'Acme' }))
    await findOrCreateMany(manager, Person, [{ name: 'with', publisher: parent }, { name: 'without' }])
    const found = await manager.find(Person, { relations: { publisher: true }, order: { name: 'ASC' } })
    expect(found.map(({ publisher }) => publisher)).toEqual([parent, null])
  })

  test('ignore_conflicts_ignore: known rows, new rows and equal rows in one call, each told apart', async () => {
    const { manager } = dataSource
    await findOrCreateMany(manager, Person, [{ name: '1' }, { name: '2' }, { name: '3' }])
    const again = await findOrCreateMany(manager, Person, [{ name: '2' }, { name: '3' }])
    expect(createdOf(again)).toEqual([false, false])
    expect(await manager.count(Person)).toBe(3)
    const mixed = await findOrCreateMany(manager, Person, [{ name: '2' }, { name: '3' }, { name: '4' }, { name: '4' }])
    expect(createdOf(mixed)).toEqual([false, false, true, false])
    // Django has no key for what it ignored; here each has the one of its row.
    expect(mixed.map((one) => 'entity' in one && one.entity.name)).toEqual(['2', '3', '4', '4'])
    expect(await manager.count(Person)).toBe(4)
    // Without it there is a problem.
    await expect(manager.insert(Person, [{ name: '2' }, { name: '5' }])).rejects.toMatchObject({
      driverError: { code: '23505' },
    })
    expect(await manager.count(Person)).toBe(4)
  })

  test('no_unnecessary_transaction: a batch without a bad row begins none', async () => {
    await findOrCreate(dataSource.manager, Person, { name: 'the table is known to be ready' })
    statements.length = 0
    await findOrCreateMany(dataSource.manager, Person, [{ name: 'France' }, { name: 'Canada' }])
    expect(statements.filter((sql) => /BEGIN|START|SAVEPOINT|COMMIT/iu.test(sql))).toEqual([])
  })

  test("the caller's objects are left as they are", async () => {
    const rows = [{ name: 'a' }, { name: 'b', nick: 'n' }].map((row) => Object.freeze(row))
    await findOrCreateMany(dataSource.manager, Person, Object.freeze(rows))
    expect(rows).toEqual([{ name: 'a' }, { name: 'b', nick: 'n' }])
  })
})

describe('update_or_create', () => {
  const birthday = '1940-10-10'

  test('update: the row that stands takes over what is given, and nothing else', async () => {
    const { manager } = dataSource
    const john = await insertOrFail(manager, Person, { name: 'John', birthday: '1940-10-09', nick: 'J' })
    const result = await upsertByText(manager, Person, { name: 'John', birthday })
    expect(result).toMatchObject({ created: false, entity: { id: john.id, birthday, nick: 'J', rank: 3 } })
    expect(await manager.find(Person)).toMatchObject([{ id: john.id, birthday, nick: 'J', rank: 3 }])
  })

  test('create, and create_twice: the second call updates', async () => {
    const { manager } = dataSource
    const told = []
    for (const values of [
      { name: 'John', birthday },
      { name: 'John', birthday },
    ]) {
      told.push(await upsertByText(manager, Person, values))
    }
    expect(told).toMatchObject([
      { created: true, entity: { birthday } },
      { created: false, entity: { birthday } },
    ])
  })

  test('manual_primary_key_test: a key that another row has is an error, and that row stays', async () => {
    const { manager } = dataSource
    await insertOrFail(manager, ManualKey, { id: 1, data: 'Original' })
    const different = upsertByText(manager, ManualKey, { id: 1, data: 'Different' })
    await expect(different).rejects.toMatchObject({ driverError: { code: '23505' } })
    expect(await manager.find(ManualKey)).toEqual([{ id: 1, data: 'Original' }])
  })

  test('update_with_related_manager: within its publisher only', async () => {
    const { manager } = dataSource
    const [acme, other] = await manager.save(manager.create(Publisher, [{ name: 'Acme' }, { name: 'Other' }]))
    if (!acme || !other) throw new TypeError('Two were saved.')
    for (const publisher of [acme, other]) await insertOrFail(manager, Book, { name: 'The Book', publisher })
    expect(await upsertByText(manager, Book, { name: 'The Book', publisher: acme })).toMatchObject({ created: false })
    expect(await manager.count(Book)).toBe(2)
  })

  test('updates_in_transaction: what another one changes meanwhile in another column remains', async () => {
    const { manager } = dataSource
    const observer = await db.client()
    await insertOrFail(manager, Person, { name: 'John', nick: 'Lennon', birthday: '1940-10-09' })
    let other: Promise<unknown> | undefined
    await dataSource.transaction(async (inner) => {
      await upsertByText(inner, Person, { name: 'John', birthday })
      other = manager.update(Person, { name: 'John' }, { nick: 'NotLennon' })
      await untilBlocked(observer)
    })
    await other
    expect(await manager.find(Person)).toMatchObject([{ birthday, nick: 'NotLennon' }])
  })
})

describe('bulk_create with update_conflicts', () => {
  test('update_conflicts_two_fields: known rows take over what is listed, new ones are made, all have ids', async () => {
    const { manager } = dataSource
    await insertOrFail(
      manager,
      Person,
      ['US', 'NL', 'DE', 'CZ'].map((name) => ({ name, nick: 'old', rank: 1 })),
    )
    const given = ['DE', 'CZ', 'AU', 'JP'].map((name) => ({ name, nick: `new ${name}`, rank: 2 }))
    const results = await upsertByText(manager, Person, given, { update: ['nick'] })
    expect(createdOf(results)).toEqual([false, false, true, true])
    for (const [index, result] of results.entries()) {
      if ('error' in result) throw result.error
      expect(await manager.findOneBy(Person, { id: result.entity.id })).toMatchObject({ name: given[index]?.name })
    }
    const stored = await manager.find(Person, { order: { name: 'ASC' } })
    expect(stored.map(({ name, nick, rank }) => [name, nick, rank])).toEqual([
      ['AU', 'new AU', 2],
      ['CZ', 'new CZ', 1],
      ['DE', 'new DE', 1],
      ['JP', 'new JP', 2],
      ['NL', 'old', 1],
      ['US', 'old', 1],
    ])
  })

  test.each([
    { what: 'update_conflicts_nonexistent_update_fields', update: 'nonexistent' },
    { what: 'update_conflicts_pk_in_update_fields', update: 'id' },
    { what: 'update_conflicts with the text itself', update: 'name' },
  ])('$what: refused before any SQL', async ({ update }) => {
    statements.length = 0
    const wrong = { update: [update] as unknown as readonly ['nick'] }
    const call = upsertByText(dataSource.manager, Person, [{ name: 'a' }], wrong)
    await expect(call).rejects.toMatchObject({ code: 'INVALID_DECLARATION', message: expect.stringContaining(update) })
    expect(statements).toEqual([])
  })

  test('update_conflicts with equal texts in one call: as one after the other', async () => {
    const { manager } = dataSource
    const results = await upsertByText(manager, Person, [
      { name: 'twin', nick: '1', rank: 1 },
      { name: 'twin', nick: '2' },
    ])
    expect(createdOf(results)).toEqual([true, false])
    expect(await manager.find(Person)).toMatchObject([{ nick: '2', rank: 1 }])
  })
})
