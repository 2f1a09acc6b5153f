import type { EntityManager } from 'typeorm'
import { Index, QueryFailedError, Unique } from 'typeorm'
import { beforeEach, expect, test } from 'vitest'
import { insertOrFail, TextTakenError, updateOrFail } from '../../../src'
import { Name } from '../../../src/names'
import { useDatabase } from '../../support/database'
import { takenBy } from '../../support/results'
import { column, entity, key, numberWithin, plain, text, uniqueName } from '../../support/entity'
import { rejection } from '../../support/ledger'

const Account = entity(
  'Account',
  {
    id: key('bigint'),
    email: text(),
    handle: uniqueName({ namespace: 'handles' }),
    rank: column('integer', { unique: true, nullable: true }),
    fee: column('numeric', { precision: 6, scale: 2, name: 'the fee', unique: true, nullable: true }),
    since: column('timestamptz', { unique: true, nullable: true }),
    team: plain(),
    seat: column('integer', { nullable: true }),
    code: plain(),
    active: column('boolean', { default: true }),
  },
  { name: 'My account' },
)
Index(['code'], { unique: true, where: 'active' })(Account)
Unique(['team', 'seat'])(Account)

const Ticket = entity('Ticket', {
  id: key('integer'),
  queue: column('text'),
  number: numberWithin({ scope: ['queue'] }),
})

const db = useDatabase()
const dataSource = db.useDataSource([Account, Ticket, Name], { emptied: false })
const { manager } = dataSource

const since = new Date('2020-02-02T02:02:02.345Z')
const row = (id: string): { id: string; email: string; handle: string } => ({
  id,
  email: `${id}@x.example`,
  handle: `h${id}`,
})
beforeEach(async () => {
  await dataSource.query('delete from "My account"; delete from ticket')
  await insertOrFail(manager, Account, [
    { ...row('1'), rank: 1, fee: '1.50', since, team: 'a', seat: 1, code: 'c' },
    { ...row('2'), rank: 2, team: 'a', seat: 2 },
  ])
})

const found = async (call: Promise<unknown>): Promise<readonly unknown[]> => {
  const { taken } = await takenBy(call)
  return taken.map(({ property, id, row: position }) => [property, id?.['id'], position])
}

test('insertOrFail names texts, names, primary keys and unique columns in one answer', async () => {
  const given = [
    { ...row('1'), rank: 2, fee: '1.5', since, team: 'a', seat: 2 },
    { ...row('3'), rank: 9, seat: 2, fee: null },
    { ...row('4'), rank: 9, email: '2@x.example', team: 'b', seat: 1 },
  ]
  expect(await found(insertOrFail(manager, Account, given))).toEqual(
    [
      ['email', '1', 0],
      ['handle', '1', 0],
      ['id', '1', 0],
      ['rank', '2', 0],
      ['fee', '1', 0],
      ['since', '1', 0],
      ['team, seat', '2', 0],
      ['email', '2', 2],
      ['rank', undefined, 2],
    ]
      .toSorted((a, b) => Number(a[2]) - Number(b[2]))
      .map((one) => expect.arrayContaining(one) as unknown[]),
  )
})
test("where only an ordinary column is taken the error is TypeORM's as well", async () => {
  const error = await rejection(insertOrFail(manager, Account, { ...row('5'), rank: 1, team: 'a', seat: 2 }))
  expect(error).toBeInstanceOf(QueryFailedError)
  expect(error).toMatchObject({ code: 'TEXT_TAKEN', driverError: { code: '23505' } })
  expect((error as TextTakenError).taken).toHaveLength(2)
})
test('updateOrFail reads what a change leaves out, and frees what an earlier change gives up', async () => {
  expect(await found(updateOrFail(manager, Account, '2', { rank: 1, seat: 1, email: '1@x.example' }))).toEqual([
    ['email', '1', 0],
    ...[
      ['rank', '1', 0],
      ['team, seat', '1', 0],
    ].map((one) => expect.arrayContaining(one) as unknown[]),
  ])
  const call = updateOrFail(manager, [
    [Account, '1', { rank: 7 }],
    [Account, '2', { rank: 1, email: '1@x.example' }],
  ])
  const taken = found(call)
  expect(await taken).toEqual([['email', '1', 1]])
})
test('updateOrFail keeps a value to its own row, and two rows do not swap other values than texts', async () => {
  const { manager } = dataSource
  expect(await found(updateOrFail(manager, Account, '2', { rank: 2, email: '1@x.example' }))).toEqual([
    ['email', '1', 0],
  ])
  const swap = updateOrFail(manager, [
    [Account, '2', { rank: 1 }],
    [Account, '1', { rank: 2 }],
  ])
  expect(await found(swap)).toEqual([['rank', '1', 0]])
})
test('an index with a condition is named where the row meets it, by a default of the column too', async () => {
  expect(await found(insertOrFail(manager, Account, { ...row('6'), code: 'c' }))).toEqual([['code', '1', 0]])
  const call = insertOrFail(manager, Account, [
    { ...row('6'), code: 'd' },
    { ...row('7'), code: 'd', rank: 2 },
  ])
  expect(await found(call)).toEqual([
    ['rank', '2', 1],
    ['code', undefined, 1],
  ])
  await insertOrFail(manager, Account, { ...row('6'), code: 'c', active: false })
  expect(await found(updateOrFail(manager, Account, '6', { active: true }))).toEqual([['code', '1', 0]])
  expect(await found(updateOrFail(manager, Account, '2', { code: 'c', rank: 1 }))).toEqual([
    ['rank', '1', 0],
    ['code', '1', 0],
  ])
})
/** A DataSource whose first call comes after the index was made. */
async function withIndex(sql: string, work: (manager: EntityManager) => Promise<void>): Promise<void> {
  await dataSource.query(`create unique index unusual on "My account" ${sql}`)
  try {
    await work((await db.dataSource([Account, Ticket, Name], { synchronize: false })).manager)
  } finally {
    await dataSource.query('drop index unusual')
  }
}
test('an index over an expression is named by the properties that it reads', async () => {
  await withIndex('(upper(code), (seat + 1)) where team is null', async (manager) => {
    await insertOrFail(manager, Account, { ...row('3'), code: 'Abc', seat: 4 })
    expect(await found(insertOrFail(manager, Account, { ...row('4'), code: 'aBC', seat: 4, rank: 1 }))).toEqual([
      ['rank', '1', 0],
      ['team, seat, code', '3', 0],
    ])
    await insertOrFail(manager, Account, { ...row('4'), code: 'aBC', seat: 4, team: 'b' })
  })
})
test('an expression that fails for a value hides nothing else', async () => {
  await withIndex('((10 / rank)) where rank > 0', async (manager) => {
    expect(await found(insertOrFail(manager, Account, { ...row('2'), rank: 0 }))).toEqual([
      ['email', '2', 0],
      ['handle', '2', 0],
      ['id', '2', 0],
    ])
  })
})
test("in the caller's transaction, which goes on", async () => {
  await dataSource.transaction(async (own) => {
    expect(await found(insertOrFail(own, Account, { ...row('7'), rank: 1 }))).toEqual([['rank', '1', 0]])
    await insertOrFail(own, Account, { ...row('7'), rank: 70 })
  })
  expect(await manager.countBy(Account, { rank: 70 })).toBe(1)
})
test('a number that is given twice is told by save', async () => {
  await manager.save(Ticket, { id: 1, queue: 'q', number: 5 })
  const error = await rejection(manager.save(Ticket, { id: 2, queue: 'q', number: 5 }))
  expect(error).toBeInstanceOf(QueryFailedError)
  expect(error).toMatchObject({ code: 'TEXT_TAKEN', taken: [{ entity: 'Ticket', property: 'number', row: 0 }] })
})
