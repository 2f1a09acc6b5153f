import { Entity, Equal, In, Not, PrimaryGeneratedColumn, type ObjectLiteral } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, TextRejectedError, UniqueText } from '../../../src'
import { Name, UniqueName } from '../../../src/names'
import { url } from '../../../src/text'
import { textEquals, textIn } from '../../../src/typeorm-calls'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'

@Entity({ name: 'page' })
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ normalize: url() }) text!: unknown
  @UniqueText({ nullable: true }) alias!: unknown
}

@Entity({ name: 'account' })
class Account {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueName({ namespace: 'handles' }) text!: unknown
}

const db = useDatabase()
const dataSource = db.useDataSource([Page, Account, Name])
const { manager } = dataSource

const GOOD = 'http://a.example/'
beforeEach(() => dataSource.query('delete from account'))

const VALUES: Readonly<Record<string, unknown>> = {
  'a number': 5,
  true: true,
  false: false,
  zero: 0,
  'a bigint': 5n,
  'an array': ['http://a.example/'],
  'an object': { url: GOOD },
  'a Buffer': Buffer.from(GOOD),
  'a Date': new Date(0),
  'a URL': new URL(GOOD),
  'a String': new String(GOOD),
  'a symbol': Symbol('a'),
}

const WAYS: Readonly<Record<string, (target: new () => ObjectLiteral, text: unknown) => Promise<unknown>>> = {
  save: (target, text) => manager.save(Object.assign(new target(), { text })),
  'save of a plain object': (target, text) => dataSource.getRepository(target).save({ text }),
  'save of a stored row': async (target, text) => {
    const repository = dataSource.getRepository(target)
    const row = await repository.save(Object.assign(new target(), { text: GOOD }))
    return await repository.save({ ...row, text })
  },
  insert: (target, text) => manager.insert(target, { text }),
  'insert of a list': (target, text) => manager.insert(target, [{ text: GOOD }, { text }]),
  update: (target, text) => manager.update(target, { id: 1 }, { text }),
  'an update by a builder': (target, text) =>
    dataSource.createQueryBuilder().update(target).set({ text }).where('true').execute(),
  upsert: (target, text) => manager.upsert(target, { id: 1, text }, ['id']),
  findOneBy: (target, text) => manager.findOneBy(target, { text }),
  Equal: (target, text) => manager.findBy(target, { text: Equal(text) }),
  In: (target, text) => manager.findBy(target, { text: In([GOOD, text]) }),
  Not: (target, text) => manager.findBy(target, { text: Not(text) }),
  'criteria of delete': (target, text) => manager.delete(target, { text }),
  'where of a builder': (target, text) => dataSource.createQueryBuilder(target, 't').where({ text }).getMany(),
}

describe.each([
  ['a unique text', Page],
  ['a name', Account],
])('of %s', (kind, target) => {
  test.each(Object.keys(WAYS))('%s refuses what is no string', async (way) => {
    for (const [name, value] of Object.entries(VALUES)) {
      await dataSource.query('delete from page; delete from account')
      const error = await rejection(Promise.resolve().then(() => WAYS[way]?.(target, value)))
      expect({ name, ...(error as object) }).toMatchObject({
        name: expect.any(String),
        code: 'TEXT_REJECTED',
        property: 'text',
        reason: expect.stringContaining('expected a string, got'),
      })
      const [{ bad }] = await dataSource.query<[{ bad: string }]>(
        `select (select count(*) from page where text <> $1) + (select count(*) from account where text <> $1) as bad`,
        [GOOD],
      )
      expect([name, Number(bad)]).toEqual([name, 0])
    }
  })
  test('SQL, null and undefined keep their meaning', async () => {
    const repository = dataSource.getRepository(target)
    await repository.insert({ text: () => `'http://b.example/'` })
    await repository.update({ text: 'http://b.example/' }, { text: () => `'http://c.example/'` })
    expect(await repository.findOneBy({ text: 'http://c.example/' })).not.toBeNull()
    await expect(repository.insert({ text: null } as never)).rejects.toMatchObject({ code: '23502' })
    const { id } = await repository.findOneByOrFail({ text: 'http://c.example/' })
    await repository.save({ id, text: undefined })
    const row = await repository.findOneByOrFail({ id })
    await repository.save(Object.assign(row, { text: () => `'http://c.example/'` }))
    expect(await repository.findOneBy({ text: 'http://c.example/' })).not.toBeNull()
    expect(await repository.findBy({ text: In([null]) })).toEqual([])
    if (kind === 'a name') return
    for (const operator of [textEquals<unknown>(5), textIn<unknown>([GOOD, 5])]) {
      expect(await rejection(Promise.resolve().then(() => repository.findBy({ text: operator })))).toBeInstanceOf(
        TextRejectedError,
      )
    }
  })
})

test('another unique text of a row that findOrCreate makes is no number either', async () => {
  const call = findOrCreate(manager, Page, { text: GOOD, alias: 5 }, { by: 'text' })
  expect(await rejection(call)).toMatchObject({ code: 'TEXT_REJECTED', property: 'alias' })
  expect(await findOrCreate(manager, Page, { text: GOOD, alias: null }, { by: 'text' })).toMatchObject({
    created: true,
  })
})
