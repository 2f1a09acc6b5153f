/** What Sequelize checks of findOrCreate, findCreateFind and bulkCreate, asked of our operations. */
import { beforeAll, describe, expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, insertOrFail, upsertByText } from '../../../src'
import { useDatabase } from '../../support/database'
import { column, entity, key, plain, text, uuidKey } from '../../support/entity'
import { poolOf, rejection } from '../../support/ledger'

const Account = entity('Account', {
  id: uuidKey(),
  name: text({ scope: ['company'] }),
  company: column('integer'),
  note: plain(),
  kind: column('text', { default: 'by default' }),
})
const Student = entity('Student', { no: key('integer'), name: text(), school: column('text') })
const Dummy = entity(
  'Dummy',
  { foo: text(), select: column('text', { name: 'order', nullable: true }) },
  { schema: 'space1' },
)

const POOL = 5

const db = useDatabase()
const client = db.useClient()
beforeAll(() => client.query('CREATE SCHEMA space1'))
const dataSource = db.useDataSource([Account, Student, Dummy], { poolSize: POOL })
const { manager } = dataSource

describe('findOrCreate', () => {
  test('should work with empty uuid primary key', async () => {
    const { entity } = await findOrCreate(manager, Account, { name: 'a', company: 1 })
    expect(entity.id).toMatch(/^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/u)
  })

  test('should release transaction when meeting errors: no connection leaks', async () => {
    for (let call = 0; call < 2 * POOL; call += 1) {
      const error = await rejection(findOrCreate(manager, Student, { name: `n${call}`, no: 1 }))
      expect(error).toMatchObject({ driverError: { code: '23502' } })
    }
    const { totalCount, idleCount, waitingCount } = poolOf(dataSource)
    expect({ inUse: totalCount - idleCount, waitingCount }).toEqual({ inUse: 0, waitingCount: 0 })
  })
})

describe('bulkCreate', () => {
  test('should support schemas, and columns with the names of commands', async () => {
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

  test('should set a key of zero or of the caller: it is no missing value', async () => {
    const results = await findOrCreateMany(manager, Student, [
      { no: 0, name: 'zero', school: 's' },
      { no: 7, name: 'seven', school: 's' },
    ])
    expect(results).toMatchObject([{ entity: { no: 0 } }, { entity: { no: 7 } }])
  })
})

describe('upsert', () => {
  const { name, company } = { name: 'n', company: 1 }

  test('works with upsert on a composite key, with uuids as default values', async () => {
    const first = await upsertByText(manager, Account, { name, company, note: 'john' })
    const other = await upsertByText(manager, Account, { name, company: 2, note: 'curt' })
    expect([first.created, other.created]).toEqual([true, true])
    const again = await upsertByText(manager, Account, { name, company, note: 'doe' })
    expect(again).toMatchObject({ created: false, entity: { id: first.entity.id, note: 'doe' } })
    expect(await manager.findOneBy(Account, { id: other.entity.id })).toEqual(other.entity)
  })

  test('works with .field: the column is called otherwise, and as a command', async () => {
    await upsertByText(manager, Dummy, { foo: 'a', select: 'b' })
    await upsertByText(manager, Dummy, { foo: 'a', select: 'c' }, { update: ['select'] })
    expect(await dataSource.query('SELECT foo, "order" FROM space1.dummy')).toEqual([{ foo: 'a', order: 'c' }])
  })

  test('does not update using default values', async () => {
    await insertOrFail(manager, Account, { name, company, note: 'mine', kind: 'new value' })
    await upsertByText(manager, Account, { name, company, note: 'yours' })
    expect(await manager.find(Account)).toMatchObject([{ note: 'yours', kind: 'new value' }])
  })

  test('falls back to a noop if no update values are found', async () => {
    await upsertByText(manager, Account, { name, company, note: 'jack' }, { update: ['kind'] })
    const result = await upsertByText(manager, Account, { name, company, note: 'jill' }, { update: ['kind'] })
    expect(result).toMatchObject({ created: false, entity: { note: 'jack' } })
  })
})
