import type { EntityManager } from 'typeorm'
import {
  Column,
  DeleteDateColumn,
  Entity,
  EntitySchema,
  ManyToOne,
  PrimaryGeneratedColumn,
  QueryFailedError,
  TableInheritance,
  ChildEntity,
} from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import {
  DeclarationError,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  SchemaDriftError,
  TransactionAbortedError,
  UniqueText,
  updateOrFail,
} from '../../../src'
import { countWithin, NumberWithin, numberWithinSchema } from '../../../src/numbers'
import { findOrCreateStream } from '../../../src/stream'
import { useDatabase } from '../../support/database'
import { column, entity, numberWithin } from '../../support/entity'
import { gate } from '../../support/gate'
import { rejection } from '../../support/ledger'

const db = useDatabase()

const Post = entity('Post', {})
type Post = InstanceType<typeof Post>

@Entity()
class Comment {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column({ type: 'text' }) tenant!: string
  @ManyToOne(() => Post, { nullable: false }) post!: Post
  @UniqueText({ scope: ['tenant', 'post'] }) text!: string
  @NumberWithin({ scope: ['tenant', 'post'], count: true }) number!: number
  @NumberWithin() @Column({ type: 'bigint' }) overall!: string
  @DeleteDateColumn({ type: 'timestamptz' }) deletedAt!: Date | null
}
let post: Post
let tenants = 0
const tenant = (): string => `tenant ${tenants++}`
const dataSource = db.useDataSource([Post, Comment], { emptied: false })

beforeAll(async () => {
  post = await dataSource.manager.save(dataSource.manager.create(Post))
})

const made = (of: string, count: number): Partial<Comment>[] =>
  Array.from({ length: count }, (_, index) => ({ tenant: of, post, text: `text ${index}` }))

const UP_TO = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1)

const runOf = async (of: string): Promise<[string, number][]> => {
  const rows = await dataSource.manager.find(Comment, {
    where: { tenant: of },
    order: { number: 'ASC' },
    withDeleted: true,
  })
  return rows.map(({ text, number }) => [text, number])
}

describe('a number comes with what stores the row', () => {
  test('save puts it on the entity', async () => {
    const of = tenant()
    const repository = dataSource.getRepository(Comment)
    const first = await repository.save(repository.create({ tenant: of, post, text: 'a' }))
    const second = await repository.save(repository.create({ tenant: of, post, text: 'b' }))
    expect([first.number, second.number]).toEqual([1, 2])
    expect(Number(second.overall)).toBe(Number(first.overall) + 1)
    expect(Object.keys(second)).not.toContain('numberCount')
  })

  test('save of many makes a contiguous run in input order', async () => {
    const of = tenant()
    const saved = await dataSource.manager.save(dataSource.manager.create(Comment, made(of, 50)))
    expect(saved.map(({ number }) => number)).toEqual(UP_TO(50))
  })

  test('insert of many does, and tells the numbers', async () => {
    const of = tenant()
    const { generatedMaps } = await dataSource.manager.insert(Comment, made(of, 3))
    expect(generatedMaps.map(({ number }) => number as unknown)).toEqual(UP_TO(3))
  })

  test('findOrCreate and insertOrFail do', async () => {
    const of = tenant()
    const { entity } = await findOrCreate(dataSource.manager, Comment, { tenant: of, post, text: 'a' }, { by: 'text' })
    const inserted = await insertOrFail(dataSource.manager, Comment, { tenant: of, post, text: 'b' })
    const again = await findOrCreate(dataSource.manager, Comment, { tenant: of, post, text: 'a' }, { by: 'text' })
    const third = await insertOrFail(dataSource.manager, Comment, { tenant: of, post, text: 'c' })
    expect([entity.number, inserted.number, again.entity.number, third.number]).toEqual([1, 2, 1, 3])
  })

  test('findOrCreateMany makes a contiguous run in input order', async () => {
    const of = tenant()
    const results = await findOrCreateMany(dataSource.manager, Comment, made(of, 2500))
    expect(results.map((one) => ('entity' in one ? one.entity.number : one.error))).toEqual(UP_TO(2500))
    expect(await runOf(of)).toEqual(UP_TO(2500).map((number) => [`text ${number - 1}`, number]))
  })

  test('findOrCreateMany and insertOrFail number in input order also where the whole table is numbered beside', async () => {
    const [one, two] = [tenant(), tenant()]
    const rows = UP_TO(40).map((nth) => ({ tenant: nth % 2 === 0 ? one : two, post, text: `${nth}` }))
    const found = await findOrCreateMany(dataSource.manager, Comment, rows)
    const more = rows.map((row) => ({ ...row, text: `${row.text} again` }))
    const inserted = await insertOrFail(dataSource.manager, Comment, more)
    for (const made of [found.flatMap((result) => ('entity' in result ? result.entity : [])), inserted]) {
      const overall = made.map((row) => Number(row.overall))
      expect(overall).toEqual(UP_TO(40).map((nth) => (overall[0] ?? 0) + nth - 1))
      const numbers = made.map(({ number }) => number)
      expect(numbers).toEqual(UP_TO(40).map((nth) => (numbers[0] ?? 0) + Math.ceil(nth / 2) - 1))
    }
  })

  test('a stream makes a contiguous run', async () => {
    const of = tenant()
    for await (const result of findOrCreateStream(dataSource, Comment, made(of, 5000))) {
      if ('error' in result) throw result.error as Error
    }
    const run = await runOf(of)
    expect(run.map(([, number]) => number)).toEqual(UP_TO(5000))
  })

  test('updateOrFail to another scope where the text is taken names no number', async () => {
    const [from, to] = [tenant(), tenant()]
    const [, other] = await insertOrFail(dataSource.manager, Comment, [
      { tenant: to, post, text: 'a' },
      { tenant: from, post, text: 'a' },
    ])
    const error = await rejection(updateOrFail(dataSource.manager, Comment, other?.id ?? 0, { tenant: to }))
    expect(error).toMatchObject({ taken: [{ property: 'text' }] })
  })

  test('updateOrFail to another scope gives the row with its number there', async () => {
    const [from, to] = [tenant(), tenant()]
    await insertOrFail(dataSource.manager, Comment, { tenant: to, post, text: 'a' })
    const { id } = await insertOrFail(dataSource.manager, Comment, { tenant: from, post, text: 'b' })
    const row = await updateOrFail(dataSource.manager, Comment, id, { tenant: to })
    expect(row.number).toBe(2)
  })

  test('save to another scope puts the number there on the entity, and the next save keeps it', async () => {
    const [from, to] = [tenant(), tenant()]
    const repository = dataSource.getRepository(Comment)
    const rows = await repository.save(repository.create(made(from, 3)))
    await repository.insert(made(to, 1).map((one) => ({ ...one, text: 'there' })))
    const row = rows[2] ?? new Comment()
    row.tenant = to
    await repository.save(row)
    expect(row.number).toBe(2)
    row.text = 'changed'
    await repository.save(row)
    expect(await runOf(to)).toEqual([
      ['there', 1],
      ['changed', 2],
    ])
  })

  test('the same by a relation, and a number that is given with it stays', async () => {
    const of = tenant()
    const repository = dataSource.getRepository(Comment)
    const other = await dataSource.manager.save(dataSource.manager.create(Post))
    const rows = await repository.save(repository.create(made(of, 3)))
    for (const row of rows) row.post = other
    Object.assign(rows[1] ?? {}, { number: 7 })
    await repository.save(rows)
    const stored = await repository.find({ where: { tenant: of }, order: { id: 'ASC' } })
    expect(rows.map(({ number }) => number)).toEqual(stored.map(({ number }) => number))
    expect(rows[1]?.number).toBe(7)
  })
})

describe('countWithin', () => {
  const count = (of: string): Promise<number> => countWithin(dataSource.manager, Comment, { tenant: of, post })

  test('gives the rows of the scope that are not deleted softly', async () => {
    const of = tenant()
    expect(await count(of)).toBe(0)
    const rows = await dataSource.manager.save(dataSource.manager.create(Comment, made(of, 4)))
    expect(await count(of)).toBe(4)
    await dataSource.manager.softRemove(rows.slice(0, 2))
    expect(await count(of)).toBe(2)
    await dataSource.manager.recover(rows.slice(0, 1))
    expect(await count(of)).toBe(3)
    await dataSource.manager.remove(rows)
    expect(await count(of)).toBe(0)
  })

  test('takes the key of a related row in place of the row', async () => {
    const of = tenant()
    await dataSource.manager.insert(Comment, made(of, 2))
    expect(await countWithin(dataSource.manager, Comment, { tenant: of, post: { id: post.id } })).toBe(2)
  })

  test('sees what its own transaction has done', async () => {
    const of = tenant()
    await dataSource.transaction(async (manager) => {
      await manager.insert(Comment, made(of, 2))
      expect(await countWithin(manager, Comment, { tenant: of, post })).toBe(2)
    })
  })

  test.each([
    ['a scope that is incomplete', { tenant: 'x' }, {}, /"post.id" of the scope is missing/],
    ['a scope with null', { tenant: null as never }, {}, /"tenant" of the scope is missing/],
    ['a property that is no part of it', { tenant: 'x', post: { id: 1 }, text: 'y' }, {}, /"text" is not part/],
    ['an option that is misspelt', { tenant: 'x' }, { bye: 'number' }, /no option "bye"/],
    ['options that are no object', { tenant: 'x' }, 'number', /must be an object, got/],
    ['a number that keeps no count', { tenant: 'x' }, { by: 'overall' }, /"overall" of Comment keeps no count/],
  ])('refuses %s', async (_name, scope, options, message) => {
    const asked = countWithin(dataSource.manager, Comment, scope, options as never)
    await expect(asked).rejects.toThrow(DeclarationError)
    await expect(asked).rejects.toThrow(message)
  })
})

test('a number of the whole table keeps a count too, beside a property of any name', async () => {
  const Ledger = entity('Ledger', { number: numberWithin({ count: true }), numberCount: column('integer') })
  const own = await db.dataSource([Ledger])
  const saved = await own.manager.save(Ledger, [{ numberCount: 42 }, { numberCount: 43 }])
  expect(saved).toMatchObject([
    { number: 1, numberCount: 42 },
    { number: 2, numberCount: 43 },
  ])
  expect(await own.manager.find(Ledger, { order: { id: 'ASC' } })).toEqual(saved)
  expect(await countWithin(own.manager, Ledger, {})).toBe(2)
  await own.manager.clear(Ledger)
  expect(await countWithin(own.manager, Ledger, {})).toBe(0)
  expect((await own.driver.createSchemaBuilder().log()).upQueries).toEqual([])
})

test('insertOrFail and updateOrFail take an entity with a number alone', async () => {
  const Invoice = entity('Invoice', { year: column('integer'), number: numberWithin({ scope: ['year'] }) })
  const { manager } = await db.dataSource([Invoice])
  const many = await Promise.all(UP_TO(20).map(() => insertOrFail(manager, Invoice, { year: 2026 })))
  expect(many.map(({ number }) => number).toSorted((one, other) => one - other)).toEqual(UP_TO(20))
  expect(await insertOrFail(manager, Invoice, [{ year: 2027 }, { year: 2027 }])).toMatchObject([
    { number: 1 },
    { number: 2 },
  ])
  await expect(insertOrFail(manager, Invoice, { year: 2027, number: 2 })).rejects.toMatchObject({
    code: 'TEXT_TAKEN',
    taken: [{ property: 'number' }],
  })
  expect(await updateOrFail(manager, Invoice, 1, { year: 2028 })).toMatchObject({ year: 2028, number: 1 })
})

test('save says that the table of scopes is missing', async () => {
  const Torn = entity('Torn', { number: numberWithin({ count: true }) })
  const own = await db.dataSource([Torn])
  await own.query('drop table numbers_torn__number_scopes')
  const error: unknown = await own.manager.save(Torn, {}).catch((caught: unknown) => caught)
  expect(error).toBeInstanceOf(SchemaDriftError)
  expect(error).toMatchObject({
    driverError: { code: '42P01' },
    findings: [{ kind: 'missing', object: 'table', name: 'numbers_torn__number_scopes' }],
  })
  await expect(own.query('select * from nowhere')).rejects.toMatchObject({ name: 'QueryFailedError' })
})

test('countWithin tells of triggers that do not stand', async () => {
  const Watched = entity('Watched', { number: numberWithin({ count: true }) })
  const own = await db.dataSource([Watched])
  await own.query('alter table watched disable trigger user')
  await expect(countWithin(own.manager, Watched, {})).rejects.toThrow(SchemaDriftError)
  await own.query('alter table watched enable trigger user')
  expect(await countWithin(own.manager, Watched, {})).toBe(0)
})

test('names may be as long as a name can be', async () => {
  const Long = entity(
    'Long',
    {
      scope: column('integer', { name: `s${'o'.repeat(62)}` }),
      aNumberWhoseNameIsSoLongThatTheOneOfItsCountWouldBeCutOff1234: numberWithin({ scope: ['scope'], count: true }),
      aNumberWhoseNameIsSoLongThatTheOneOfItsCountWouldBeCutOff1235: numberWithin({ scope: ['scope'], count: true }),
    },
    { name: `t${'o'.repeat(62)}` },
  )
  const own = await db.dataSource([Long])
  await own.manager.save(Long, [{ scope: 1 }, { scope: 1 }])
  const by = 'aNumberWhoseNameIsSoLongThatTheOneOfItsCountWouldBeCutOff1235'
  expect(await countWithin(own.manager, Long, { scope: 1 }, { by })).toBe(2)
  expect((await own.driver.createSchemaBuilder().log()).upQueries).toEqual([])
})

test('a scope may be of a type that Postgres does not hash', async () => {
  @Entity()
  class Coin {
    @PrimaryGeneratedColumn('identity') id!: number
    @Column({ type: 'money' }) value!: string
    @Column({ type: 'bit', length: 3 }) marks!: string
    @Column({ type: 'varbit' }) more!: string
    @NumberWithin({ scope: ['value', 'marks', 'more'] }) number!: number
  }
  const own = await db.dataSource([Coin])
  const one = { value: '1', marks: '101', more: '1' }
  const saved = await own.manager.save(Coin, [one, { ...one, more: '10' }, { ...one }])
  expect(saved.map(({ number }) => number)).toEqual([1, 1, 2])
})

test('an EntitySchema declares the same', async () => {
  interface Line {
    id: number
    book: number
    line: number
  }
  const Line = new EntitySchema<Line>(
    numberWithinSchema(
      {
        name: 'Line',
        columns: {
          id: { type: 'integer', primary: true, generated: 'increment' },
          book: { type: 'integer' },
          line: { type: 'smallint' },
        },
      },
      { line: { scope: ['book'], count: true } },
    ),
  )
  const own = await db.dataSource([Line])
  const saved = await own.manager.save(Line, [{ book: 1 }, { book: 2 }, { book: 1 }])
  expect(saved.map(({ line }) => line)).toEqual([1, 1, 2])
  expect(Object.keys(saved[0] ?? {})).toEqual(['book', 'id', 'line'])
  expect(await countWithin(own.manager, Line, { book: 1 })).toBe(2)
})

test('the classes of one table are numbered together', async () => {
  @Entity()
  @TableInheritance({ column: { type: 'varchar', name: 'kind' } })
  class Ticket {
    @PrimaryGeneratedColumn('identity') id!: number
    @Column({ type: 'uuid' }) project!: string
    @NumberWithin({ scope: ['project'], count: true }) number!: number
  }
  @ChildEntity()
  class Bug extends Ticket {}
  @ChildEntity()
  class Task extends Ticket {
    @Column({ type: 'text', nullable: true }) title!: string | null
  }
  const own = await db.dataSource([Ticket, Bug, Task])
  const project = '00000000-0000-4000-8000-000000000000'
  const bug = await own.manager.save(Bug, { project })
  const task = await own.manager.save(Task, { project })
  expect([bug.number, task.number]).toEqual([1, 2])
  expect(await countWithin(own.manager, Ticket, { project })).toBe(2)
  expect(await countWithin(own.manager, Task, { project })).toBe(2)
})

describe('a snapshot from before others came', () => {
  const inTransaction = (work: (manager: EntityManager) => Promise<unknown>): Promise<unknown> =>
    dataSource.transaction('REPEATABLE READ', async (manager) => {
      await manager.query('select 1')
      return await work(manager)
    })

  test.each([
    [
      'insertOrFail',
      (manager: EntityManager, of: string) => insertOrFail(manager, Comment, { tenant: of, post, text: 'b' }),
    ],
    [
      'findOrCreate',
      (manager: EntityManager, of: string) => findOrCreate(manager, Comment, { tenant: of, post, text: 'b' }),
    ],
  ])('%s says that the transaction must run again', async (_name, write) => {
    const of = tenant()
    const [first, second] = [gate(), gate()]
    const lost = inTransaction(async (manager) => {
      await manager.query('select count(*) from comment')
      first.open()
      await second.passed
      await write(manager, of)
    })
    await first.passed
    await insertOrFail(dataSource.manager, Comment, { tenant: of, post, text: 'a' })
    second.open()
    await expect(lost).rejects.toThrow(TransactionAbortedError)
  })

  test('a number that was left out, and that a newer row has, asks to run the transaction again', async () => {
    const Receipt = entity('Receipt', { of: column('text'), number: numberWithin({ scope: ['of'] }) })
    const { manager } = await db.dataSource([Receipt])
    await manager.insert(Receipt, { of: 'a' })
    const inserts: Readonly<Record<string, (inside: EntityManager) => Promise<unknown>>> = {
      save: (inside) => inside.save(Receipt, { of: 'a' }),
      insert: (inside) => inside.insert(Receipt, [{ of: 'a' }, { of: 'a' }]),
      SQL: (inside) => inside.query('INSERT INTO receipt ("of") VALUES ($1)', ['a']),
    }
    for (const insert of Object.values(inserts)) {
      const call = manager.transaction('REPEATABLE READ', async (inside) => {
        await inside.count(Receipt)
        await manager.insert(Receipt, { of: 'a' })
        await insert(inside)
      })
      const error = await rejection(call)
      expect(error).toBeInstanceOf(TransactionAbortedError)
      expect(error).toBeInstanceOf(QueryFailedError)
      expect(String(error)).toContain('another row of Receipt has got the next "number"')
    }
    const given: readonly ((inside: EntityManager) => Promise<unknown>)[] = [
      (inside) => inside.save(Receipt, { of: 'a', number: 1 }),
      (inside) => inside.query('INSERT INTO receipt ("of", number) VALUES ($1, $2)', ['a', 1]),
      (inside) => inside.query(`INSERT INTO receipt ("of", number) VALUES (concat('a', ''), 1)`),
      (inside) => inside.update(Receipt, { number: 2 }, { number: 1 }),
    ]
    for (const insert of given) {
      expect(await rejection(insert(manager))).toMatchObject({ code: 'TEXT_TAKEN', taken: [{ property: 'number' }] })
    }
  })

  test('a number that is given, and taken, is the error of the server', async () => {
    const of = tenant()
    await insertOrFail(dataSource.manager, Comment, { tenant: of, post, text: 'a', number: 3 })
    const taken = insertOrFail(dataSource.manager, Comment, { tenant: of, post, text: 'b', number: 3 })
    await expect(taken).rejects.toMatchObject({ driverError: { code: '23505' } })
  })
})
