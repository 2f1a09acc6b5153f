import { tracingChannel } from 'node:diagnostics_channel'
import { inspect } from 'node:util'
import * as fc from 'fast-check'
import { EntityNotFoundError, type QueryRunner } from 'typeorm'
import { expect, test } from 'vitest'
import {
  findOrCreate,
  findOrCreateMany,
  httpStatusOf,
  insertOrFail,
  insertOrNull,
  normalizeTexts,
  UniqueTextError,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { findOrCreateHolder, Name, rename, swapNames } from '../../../src/names'
import { countWithin } from '../../../src/numbers'
import { forgetToken, once, OnceToken } from '../../../src/once'
import { findOrCreateStream } from '../../../src/stream'
import { normalizer, Refusal } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { column, deleteDate, entity, key, numberWithin, text, uniqueName } from '../../support/entity'

const db = useDatabase()

const Account = entity('Account', {
  id: key('text'),
  tenant: column('text'),
  title: text({ scope: ['tenant'] }),
  motto: text({ nullable: true, immutable: true }),
  handle: uniqueName({ namespace: 'handle', nullable: true, former: 'reserve' }),
  deletedAt: deleteDate(),
})
const strict = normalizer('strict', 1, () => {
  throw new Refusal('it is never right')
})
const Strict = entity('Strict', { id: key('text'), word: text({ normalize: strict }) })
const Comment = entity('Comment', {
  id: key('text'),
  post: column('text'),
  number: numberWithin({ scope: ['post'], count: true }),
})
const Team = entity('Team', { id: key('text'), handle: uniqueName({ namespace: 'handle' }) })
const dataSource = db.useDataSource([Account, Team, Strict, Comment, Name, OnceToken])
const { manager } = dataSource

/** What an error has for its catcher alone: docs/security.md says never to send it. */
const FOR_THE_CATCHER = new Set([
  'taken',
  'ids',
  'criteria',
  'keys',
  'failure',
  'cause',
  'driverError',
  'parameters',
  'entityClass',
])

/** What ends in a log or at a client: the message, the stack, and every other property. */
function shownOf(error: Error): string {
  const names = Object.getOwnPropertyNames(error).filter((name) => !FOR_THE_CATCHER.has(name))
  return [error.message, error.stack, ...names.map((name) => `${name}: ${inspect(Reflect.get(error, name))}`)].join(
    '\n',
  )
}

const secret = fc.stringMatching(/^[A-Za-z0-9]{12}$/).map((random) => `secret${random}`)

const events: unknown[] = []
const noted = (event: unknown): void => void events.push(event)

/** Every call that can fail, with secrets in keys, scopes, names, texts, tokens and answers. */
const failing = (all: readonly string[]): Readonly<Record<string, () => Promise<unknown>>> => {
  const [id = '', other = '', missing = '', tenant = '', title = '', , handle = '', former = '', token = ''] = all
  const spoilt = `${title}\0`
  const held = { tenant, title }
  const newRow = { id: missing, tenant, title: 'new' }
  const json = { answer: { list: [title] } }
  return {
    'insertOrFail of a taken text': () => insertOrFail(manager, Account, { ...newRow, title }),
    'insertOrFail of a taken name': () => insertOrFail(manager, Account, { ...newRow, handle }),
    'insertOrFail of a former name': () => insertOrFail(manager, Account, { ...newRow, handle: former }),
    "insertOrFail of another entity's name": () => insertOrFail(manager, Team, { id: missing, handle }),
    'insertOrFail of a taken key': () => insertOrFail(manager, Account, { ...newRow, id }),
    'insertOrFail of several': () =>
      insertOrFail(manager, Account, [
        { ...newRow, title },
        { ...newRow, handle },
      ]),
    'insertOrFail of a text that cannot be stored': () => insertOrFail(manager, Account, { ...newRow, title: spoilt }),
    'insertOrFail of a scope that cannot be stored': () =>
      insertOrFail(manager, Account, { ...newRow, tenant: spoilt }),
    'updateOrFail to a taken text': () => updateOrFail(manager, Account, other, { title }),
    'updateOrFail to a taken name': () => updateOrFail(manager, Account, other, { handle }),
    'updateOrFail of no row': () => updateOrFail(manager, Account, missing, { title: 'new' }),
    'updateOrFail of an immutable text': () => updateOrFail(manager, Account, id, { motto: title }),
    'rename to a taken name': () => rename(manager, Account, other, { handle }),
    'rename of no row': () => rename(manager, Account, missing, { handle: 'new' }),
    'rename to a name that cannot be stored': () => rename(manager, Account, other, { handle: spoilt }),
    'swapNames with no row': () => swapNames(manager, Account, id, missing),
    'findOrCreate that throws': () =>
      findOrCreate(manager, Account, { ...held, id: missing }, { by: 'title', deleted: 'throw' }),
    'findOrCreate of a taken name': () => findOrCreate(manager, Account, { ...newRow, handle }, { by: 'title' }),
    'findOrCreate of a text that cannot be stored': () =>
      findOrCreate(manager, Account, { ...newRow, title: spoilt }, { by: 'title' }),
    findOrCreateMany: async () => {
      const rows = [
        { ...newRow, handle },
        { ...newRow, title: spoilt },
      ]
      const results = await findOrCreateMany(manager, Account, rows, { by: 'title' })
      throw new AggregateError(results.flatMap((one) => ('error' in one ? [one.error] : [])))
    },
    'upsertByText of a taken name': () => upsertByText(manager, Account, { ...newRow, handle }, { by: 'title' }),
    'findOrCreateHolder of a name of another': () => findOrCreateHolder(manager, Team, { id: missing, handle }),
    'findOrCreateStream of a taken name': async () => {
      const rows = [{ ...newRow, handle }]
      for await (const one of findOrCreateStream(dataSource, Account, rows, { by: 'title' }))
        if ('error' in one) throw one.error
    },
    'insertOrNull of a text that cannot be stored': () => insertOrNull(manager, Account, { ...newRow, title: spoilt }),
    'normalizeTexts of texts that are refused': () =>
      dataSource.transaction(async ({ queryRunner }) => await normalizeTexts(queryRunner as QueryRunner, Strict)),
    'a text that its normalizer refuses': () => findOrCreate(manager, Strict, { id: missing, word: title }),
    'countWithin of a scope that is no value': () => countWithin(manager, Comment, { post: { tenant } } as never),
    'a number that is taken': () => insertOrFail(manager, Comment, { id: missing, post: tenant, number: 1 }),
    "TypeORM's insert of a number that is taken": () =>
      manager.insert(Comment, { id: missing, post: tenant, number: 1 }),
    "TypeORM's upsert of a taken name": () => manager.upsert(Account, { ...newRow, handle }, ['id']),
    "TypeORM's query builder": () =>
      manager
        .createQueryBuilder()
        .insert()
        .into(Account)
        .values({ ...newRow, title })
        .execute(),
    "TypeORM's insert": () => manager.insert(Account, { ...newRow, title }),
    "TypeORM's save": () => manager.save(Account, { ...newRow, handle }),
    "TypeORM's update": () => manager.update(Account, { id: other }, { title }),
    'once with another request': () => once(manager, token, () => 1, { request: { title } }),
    'once of a failure': () => once(manager, `${token} failed`, () => 1),
    'once of an answer that is no JSON': () =>
      once<unknown>(manager, `${token} date`, () => ({ ...json, at: new Date(0) })),
    'once of a token that cannot be stored': () => once(manager, `${token}\0`, () => 1),
    'forgetToken of a token that cannot be stored': () => forgetToken(manager, `${token}\0`),
  }
}

/** Rows and tokens with these secrets. */
async function prepare(all: readonly string[]): Promise<void> {
  for (const table of ['account', 'team', 'names', 'once_tokens', 'strict', 'comment'])
    await dataSource.query(`delete from "${table}"`)
  const [id, other, , tenant, title, motto, handle, former, token] = all as [string, ...string[]] & { length: 9 }
  await insertOrFail(manager, Account, { id, tenant, title, motto, handle: former } as never)
  await rename(manager, Account, id, { handle } as never)
  await insertOrFail(manager, Account, { id: other, tenant, title: other, handle: other } as never)
  await manager.softDelete(Account, { id })
  await dataSource.query('insert into strict (id, word) values ($1, $2)', [id, title])
  await manager.insert(Comment, { id, post: tenant } as never)
  await once(manager, String(token), () => ({ title }), { request: { handle } })
  const fails = (): never => {
    throw new Error('of the work')
  }
  await once(manager, `${token} failed`, fails, { keepFailures: () => ({ title }) }).catch(() => {})
}

test('no value of a row, a token or an answer is in a message, a stack or an event', async () => {
  const channel = tracingChannel('typeorm-unique-text:operation')
  const subscribers = { start: noted, end: noted, asyncStart: noted, asyncEnd: noted, error: noted }
  channel.subscribe(subscribers)
  let refused = 0
  const property = fc.asyncProperty(fc.uniqueArray(secret, { minLength: 9, maxLength: 9 }), async (all) => {
    await prepare(all)
    events.length = 0
    const wrong: string[] = []
    for (const [name, call] of Object.entries(failing(all))) {
      const caught: unknown = await call().catch((error: unknown) => error)
      const errors = caught instanceof AggregateError ? (caught.errors as unknown[]) : [caught]
      refused += errors.length
      for (const error of errors) {
        const isClear = error instanceof UniqueTextError || error instanceof EntityNotFoundError
        if (!isClear || all.some((one) => shownOf(error).includes(one))) wrong.push(`${name}: ${inspect(error)}`)
      }
    }
    expect(wrong).toEqual([])
    expect(events.length).toBeGreaterThan(30)
    const shown = inspect(events, { depth: 8 })
    expect(all.filter((one) => shown.includes(one))).toEqual([])
  })
  await fc.assert(property, { numRuns: 5 })
  channel.unsubscribe(subscribers)
  expect(refused).toBeGreaterThan(150)
})

test('a missing row has the status 404, and its error has the key', async () => {
  for (const call of [
    rename(manager, Account, 'none', { handle: 'x' }),
    updateOrFail(manager, Account, 'none', { title: 'x' }),
  ]) {
    const error: unknown = await call.catch((caught: unknown) => caught)
    expect(error).toBeInstanceOf(EntityNotFoundError)
    expect(error).toMatchObject({ criteria: { id: 'none' } })
    expect(httpStatusOf(error)).toBe(404)
  }
})
