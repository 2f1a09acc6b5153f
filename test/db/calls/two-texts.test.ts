import { QueryFailedError } from 'typeorm'
import { expect, test } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany, TextTakenError, upsertByText } from '../../../src'
import { useDatabase } from '../../support/database'
import { oneHash } from '../../support/digests'
import { entity, text } from '../../support/entity'
import { rejection } from '../../support/ledger'

const Account = entity('Account', { handle: text(), email: text() })
const Colliding = entity('Colliding', {
  handle: text({ digest: oneHash }),
  email: text({ digest: oneHash, nullable: true }),
})

const db = useDatabase()
const dataSource = db.useDataSource([Account, Colliding])
const { manager } = dataSource
const client = db.useClient()
const by = { by: 'handle' } as const

test('an insert sends the hashes of all texts, so that no trigger function runs', async () => {
  await findOrCreate(manager, Account, { handle: 'first', email: 'first@a.example' }, by)
  await findOneByText(manager, Account, { email: 'first@a.example' }, { by: 'email' })
  await client.query(`alter table account disable trigger all`)
  await findOrCreate(manager, Account, { handle: 'a', email: 'a@a.example' }, by)
  const [many] = await findOrCreateMany(manager, Account, [{ handle: 'b', email: 'b@a.example' }], by)
  expect(many).toMatchObject({ created: true })
  const found = await findOneByText(manager, Account, { email: 'b@a.example' }, { by: 'email' })
  expect(found).toMatchObject({ handle: 'b' })
  await client.query(`alter table account enable trigger all`)
})

test('texts that collide live side by side, whichever of them collides', async () => {
  const inputs = ['a', 'b', 'c', 'd'].map((name) => ({
    handle: name,
    email: name === 'c' ? null : `${name}@a.example`,
  }))
  for (const input of inputs) expect(await findOrCreate(manager, Colliding, input, by)).toMatchObject({ created: true })
  const more = ['e', 'f'].map((name) => ({ handle: name, email: `${name}@a.example` }))
  const results = await findOrCreateMany(manager, Colliding, [...inputs, ...more], by)
  const created = results.map((result) => 'created' in result && result.created)
  expect(created).toEqual([...inputs.map(() => false), true, true])
  const found = await findOneByText(manager, Colliding, { email: 'f@a.example' }, { by: 'email' })
  expect(found).toMatchObject({ handle: 'f' })
})

test('a second text that is taken is refused with its holder, and the transaction goes on', async () => {
  await dataSource.transaction(async (manager) => {
    await findOrCreate(manager, Colliding, { handle: 'other', email: 'other@a.example' }, by)
    const { entity } = await findOrCreate(manager, Colliding, { handle: 'holder', email: 'taken@a.example' }, by)
    const values = { handle: 'late', email: 'taken@a.example' }
    const taken = [{ entity: 'Colliding', property: 'email', id: { id: entity.id }, row: 0 }]
    const refused = { code: 'TEXT_TAKEN', taken, driverError: { code: '23505' } }
    const error = await rejection(findOrCreate(manager, Colliding, values, by))
    expect(error).toMatchObject(refused)
    expect(error).toBeInstanceOf(TextTakenError)
    expect(error).toBeInstanceOf(QueryFailedError)
    const [, result] = await findOrCreateMany(manager, Colliding, [{ handle: 'x', email: null }, values], by)
    expect(result).toMatchObject({ error: refused })
    expect(await rejection(upsertByText(manager, Colliding, values, by))).toMatchObject(refused)
    expect(await findOneByText(manager, Colliding, { handle: 'late' }, by)).toBeNull()
  })
})

test('a second text that is taken is refused without its holder where the look for it fails', async () => {
  const { manager, subscribers } = await db.dataSource([Account], { synchronize: false })
  await findOrCreate(manager, Account, { handle: 'a', email: 'a@a.example' }, by)
  subscribers.push({
    beforeQuery: ({ query }) => {
      if (query.includes('AS same')) throw new Error('of the user')
    },
  })
  const error = await rejection(findOrCreate(manager, Account, { handle: 'b', email: 'a@a.example' }, by))
  expect(error).toBeInstanceOf(TextTakenError)
  expect(error).toMatchObject({ taken: [{ property: 'email', id: undefined }] })
})
