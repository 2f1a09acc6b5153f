/** What Sequelize checks of findOrCreate, findCreateFind and bulkCreate, asked of our operations. */
import { BeforeInsert, Column, type DataSource, Entity, Index, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, insertOrFail, UniqueText, upsertByText } from '../../../src'
import { useDatabase } from '../../support/database'
import { column, entity, key, plain, text, uuidKey } from '../../support/entity'
import { poolOf, rejection } from '../../support/ledger'

@Entity()
class User {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() username!: string
  @Column({ type: 'text', nullable: true }) data!: string | null
  @Column({ type: 'boolean', nullable: true }) active!: boolean | null
  @Index({ unique: true }) @Column({ type: 'varchar', length: 40, nullable: true }) email!: string | null
}

const Account = entity('Account', {
  id: uuidKey(),
  name: text({ scope: ['company'] }),
  company: column('integer'),
  note: plain(),
  kind: column('text', { default: 'by default' }),
  bytes: column('bytea', { nullable: true }),
})
const Student = entity('Student', { no: key('integer'), name: text(), school: column('text') })

@Entity()
class Trimmed {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() username!: string
  @BeforeInsert() trim(): void {
    this.username = this.username.trim()
  }
}

const Dummy = entity(
  'Dummy',
  { foo: text(), select: column('text', { name: 'order', nullable: true }) },
  { schema: 'space1' },
)

const POOL = 5

const db = useDatabase()
let dataSource: DataSource

beforeAll(async () => {
  await (await db.client()).query('CREATE SCHEMA space1')
  dataSource = await db.dataSource([User, Account, Student, Trimmed, Dummy], { poolSize: POOL })
})
beforeEach(() => dataSource.query('TRUNCATE "user", account, student, trimmed, space1.dummy RESTART IDENTITY'))

const winner = { username: 'winner' }

/** One created, all the same row. */
function expectOneRow(
  results: readonly { readonly created: boolean; readonly entity: { readonly id: unknown } }[],
): void {
  expect(results.filter(({ created }) => created)).toHaveLength(1)
  expect(new Set(results.map(({ entity }) => entity.id)).size).toBe(1)
}

describe('findOrCreate', () => {
  test('supports transactions: nobody else sees the row before the commit', async () => {
    await dataSource.transaction(async (manager) => {
      await findOrCreate(manager, User, { username: 'Username', data: 'some data' })
      expect(await dataSource.manager.count(User)).toBe(0)
    })
    expect(await dataSource.manager.count(User)).toBe(1)
  })

  test('supports more than one model per transaction', async () => {
    await dataSource.transaction(async (manager) => {
      await findOrCreate(manager, User, { username: 'Username' })
      await findOrCreate(manager, Account, { name: 'accountName', company: 1 })
    })
    expect([await dataSource.manager.count(User), await dataSource.manager.count(Account)]).toEqual([1, 1])
  })

  test('should error correctly when defaults contain a unique key: with its constraint, in a transaction too', async () => {
    const { manager } = dataSource
    await manager.save(manager.create(User, { username: 'gottlieb', email: 'g@example.com' }))
    const other = { username: 'asdasdasd', email: 'g@example.com' }
    const refusal = { driverError: { code: '23505', constraint: expect.stringMatching(/^IDX_/u) } }
    await expect(findOrCreate(manager, User, other)).rejects.toMatchObject(refusal)
    await dataSource.transaction(async (inner) => {
      await expect(findOrCreate(inner, User, other)).rejects.toMatchObject(refusal)
      await findOrCreate(inner, User, { username: 'asdasdasd' })
    })
    expect(await manager.count(User)).toBe(2)
  })

  test('should error correctly when defaults contain a unique key without a transaction, twice at once', async () => {
    const { manager } = dataSource
    await findOrCreate(manager, User, { username: 'gottlieb', email: 'g@example.com' })
    const calls = [1, 2].map(() => findOrCreate(manager, User, { username: 'asdasdasd', email: 'g@example.com' }))
    for (const outcome of await Promise.allSettled(calls)) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { driverError: { code: '23505' } } })
    }
  })

  test('should work with empty uuid primary key', async () => {
    const { entity } = await findOrCreate(dataSource.manager, Account, { name: 'a', company: 1 })
    expect(entity.id).toMatch(/^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/u)
  })

  test('should not deadlock with no existing entries, more calls than connections', async () => {
    const names = Array.from({ length: 50 }, (_, index) => `unique.${index}`)
    const made = await Promise.all(
      names.map((name, index) => findOrCreate(dataSource.manager, Account, { name, company: index % 5 })),
    )
    expect(made.map(({ entity }) => entity.name)).toEqual(names)
  })

  test('should not deadlock with existing entries', async () => {
    const names = Array.from({ length: 50 }, (_, index) => `unique.${index}`)
    const all = () => Promise.all(names.map((name) => findOrCreate(dataSource.manager, Account, { name, company: 2 })))
    const first = await all()
    const second = await all()
    expect(second.map(({ entity, created }) => [entity.id, created])).toEqual(
      first.map(({ entity }) => [entity.id, false]),
    )
  })

  test('should not deadlock with concurrency duplicate entries', async () => {
    const calls = Array.from({ length: 50 }, () =>
      findOrCreate(dataSource.manager, Account, { name: 'one', company: 2 }),
    )
    expectOneRow(await Promise.all(calls))
    expect(await dataSource.manager.count(Account)).toBe(1)
  })

  test('should support special characters, in the text and beside it', async () => {
    const special = `$$ and $1 and !! and :: and :name and ? and ^ and * and % and \\ and ' and " and ;--`
    const { manager } = dataSource
    const made = await findOrCreate(manager, User, { username: special, data: special })
    expect(made.entity).toMatchObject({ username: special, data: special })
    expect(await findOrCreate(manager, User, { username: special })).toEqual({ ...made, created: false })
    const [many] = await findOrCreateMany(manager, User, [{ username: `${special}2`, data: special }])
    expect(many).toMatchObject({ entity: { username: `${special}2`, data: special } })
  })

  test('should support bools in defaults: false is no missing value', async () => {
    const { entity } = await findOrCreate(dataSource.manager, User, { username: 'a', active: false })
    expect(entity.active).toBe(false)
  })

  test('returns instance if already existent, with single and multiple fields given', async () => {
    const { manager } = dataSource
    const user = await manager.save(manager.create(User, { username: 'Username', data: 'ThisIsData' }))
    for (const values of [{ username: 'Username' }, { username: 'Username', data: 'ThisIsData' }]) {
      expect(await findOrCreate(manager, User, values)).toMatchObject({ created: false, entity: user })
    }
  })

  test("does not include anything of the statement's own in the response", async () => {
    const { manager } = dataSource
    const own = { id: 1, username: 'Username', data: null, active: null, email: null }
    for (const created of [true, false]) {
      const result = await findOrCreate(manager, User, { username: 'Username' })
      expect(result).toEqual({ entity: own, created, attempts: 1 })
      expect(Object.keys(result.entity).sort()).toEqual(Object.keys(own).sort())
    }
  })

  test('should release transaction when meeting errors: no connection leaks', async () => {
    const { manager } = dataSource
    for (let call = 0; call < 2 * POOL; call += 1) {
      const error = await rejection(findOrCreate(manager, Student, { name: `n${call}`, no: 1 }))
      expect(error).toMatchObject({ driverError: { code: '23502' } })
    }
    const { totalCount, idleCount, waitingCount } = poolOf(dataSource)
    expect({ inUse: totalCount - idleCount, waitingCount }).toEqual({ inUse: 0, waitingCount: 0 })
  })

  describe('several concurrent calls', () => {
    test('works with a transaction', async () => {
      await dataSource.transaction(async (manager) => {
        expectOneRow(await Promise.all([1, 2].map(() => findOrCreate(manager, User, winner))))
      })
    })

    test('works without a transaction', async () => {
      expectOneRow(await Promise.all([1, 2].map(() => findOrCreate(dataSource.manager, User, winner))))
    })

    // Sequelize finds out when a race makes it so; here it is refused, or without effect, in every call.
    test('should not fail silently with a create hook resulting in mismatched values', async () => {
      const { manager } = dataSource
      const calls = Array.from({ length: 2 * POOL }, () => findOrCreate(manager, Trimmed, { username: 'mick ' }))
      const results = await Promise.all(calls)
      expectOneRow(results)
      expect(new Set(results.map(({ entity }) => entity.username))).toEqual(new Set(['mick ']))
      expect(await manager.count(Trimmed)).toBe(1)
    })
  })
})

describe('bulkCreate', () => {
  test('should support schemas, and columns with the names of commands', async () => {
    const { manager } = dataSource
    const rows = [
      { foo: 'a', select: 'b' },
      { foo: 'c', select: 'd' },
    ]
    expect(await findOrCreateMany(manager, Dummy, rows)).toMatchObject(
      rows.map((entity) => ({ created: true, entity })),
    )
    expect(await dataSource.query('SELECT foo, "order" FROM space1.dummy ORDER BY id')).toEqual([
      { foo: 'a', order: 'b' },
      { foo: 'c', order: 'd' },
    ])
  })

  test('properly handles disparate field lists: each row has its own values, others their defaults', async () => {
    const { manager } = dataSource
    const rows = [{ username: 'Peter', data: 'd' }, { username: 'Paul', active: true }, { username: 'Steve' }]
    await findOrCreateMany(manager, User, rows)
    const none = { data: null, active: null, email: null }
    expect(await manager.find(User, { order: { username: 'ASC' } })).toMatchObject(
      [...rows].sort((a, b) => a.username.localeCompare(b.username)).map((row) => ({ ...none, ...row })),
    )
  })

  test('should set a key of zero or of the caller: it is no missing value', async () => {
    const results = await findOrCreateMany(dataSource.manager, Student, [
      { no: 0, name: 'zero', school: 's' },
      { no: 7, name: 'seven', school: 's' },
    ])
    expect(results).toMatchObject([{ entity: { no: 0 } }, { entity: { no: 7 } }])
  })

  test('should return the errors of rows one by one, by their place', async () => {
    const results = await findOrCreateMany(dataSource.manager, Student, [
      { no: 1, name: 'first', school: 's' },
      { no: 2, name: 'no school' },
      { no: 3, name: 'bad\0', school: 's' },
      { no: 4, name: 'last', school: 's' },
    ])
    expect(results).toMatchObject([
      { created: true },
      { error: { driverError: { code: '23502' } } },
      { error: { code: 'TEXT_REJECTED', property: 'name' } },
      { created: true },
    ])
  })
})

describe('upsert', () => {
  const { name, company } = { name: 'n', company: 1 }

  test('works with upsert on a composite key, with uuids as default values', async () => {
    const { manager } = dataSource
    const first = await upsertByText(manager, Account, { name, company, note: 'john' })
    const other = await upsertByText(manager, Account, { name, company: 2, note: 'curt' })
    expect([first.created, other.created]).toEqual([true, true])
    const again = await upsertByText(manager, Account, { name, company, note: 'doe' })
    expect(again).toMatchObject({ created: false, entity: { id: first.entity.id, note: 'doe' } })
    expect(await manager.findOneBy(Account, { id: other.entity.id })).toEqual(other.entity)
  })

  test('works with BLOBs', async () => {
    const { manager } = dataSource
    await upsertByText(manager, Account, { name, company, bytes: Buffer.from('kaj') })
    const { entity } = await upsertByText(manager, Account, { name, company, bytes: Buffer.from([0, 255]) })
    expect(entity.bytes).toEqual(Buffer.from([0, 255]))
    expect((await manager.findOneByOrFail(Account, { name, company })).bytes).toEqual(Buffer.from([0, 255]))
  })

  test('works with .field: the column is called otherwise, and as a command', async () => {
    const { manager } = dataSource
    await upsertByText(manager, Dummy, { foo: 'a', select: 'b' })
    await upsertByText(manager, Dummy, { foo: 'a', select: 'c' }, { update: ['select'] })
    expect(await dataSource.query('SELECT foo, "order" FROM space1.dummy')).toEqual([{ foo: 'a', order: 'c' }])
  })

  test('does not update using default values', async () => {
    const { manager } = dataSource
    await insertOrFail(manager, Account, { name, company, note: 'mine', kind: 'new value' })
    await upsertByText(manager, Account, { name, company, note: 'yours' })
    expect(await manager.find(Account)).toMatchObject([{ note: 'yours', kind: 'new value' }])
  })

  test('falls back to a noop if no update values are found', async () => {
    const { manager } = dataSource
    await upsertByText(manager, Account, { name, company, note: 'jack' }, { update: ['kind'] })
    const result = await upsertByText(manager, Account, { name, company, note: 'jill' }, { update: ['kind'] })
    expect(result).toMatchObject({ created: false, entity: { note: 'jack' } })
  })

  test('does not update when setting current values: the row is found, and the same', async () => {
    const { manager } = dataSource
    const { entity } = await upsertByText(manager, Account, { name, company, note: 'john' })
    expect(await upsertByText(manager, Account, { name, company, note: 'john' })).toMatchObject({
      created: false,
      entity,
    })
  })

  test('works when two separate uniqueKeys are passed: the one it is not asked by is a reason to refuse', async () => {
    const { manager } = dataSource
    const one = { username: 'user1', email: 'user1@example.com' }
    await upsertByText(manager, User, { ...one, data: 'City' })
    expect(await upsertByText(manager, User, { ...one, data: 'New City' })).toMatchObject({ created: false })
    const clash = upsertByText(manager, User, { username: 'user2', email: one.email })
    await expect(clash).rejects.toMatchObject({ driverError: { code: '23505' } })
    expect(await manager.find(User)).toMatchObject([{ ...one, data: 'New City' }])
  })

  test('of calls at once one creates, and the last to come is what stays', async () => {
    const { manager } = dataSource
    const notes = Array.from({ length: 2 * POOL }, (_, index) => `${index}`)
    const calls = notes.map((note) => upsertByText(manager, Account, { name, company, note }))
    expectOneRow(await Promise.all(calls))
    expect(notes).toContain((await manager.findOneByOrFail(Account, { name, company })).note)
  })
})
