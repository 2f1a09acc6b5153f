import { inspect } from 'node:util'
import { EntityMetadataNotFoundError, EntityNotFoundError } from 'typeorm'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import {
  DeclarationError,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  firstFreeText,
  hashOf,
  insertOrFail,
  UniqueTextError,
  uniqueTextMethods,
  updateOrFail,
  upsertByText,
} from '../../../src'
import {
  findHolder,
  findOrCreateHolder,
  formerNamesOf,
  Name,
  releaseExpired,
  rename,
  swapNames,
} from '../../../src/names'
import { countWithin } from '../../../src/numbers'
import { forgetToken, once, OnceToken, removeExpiredTokens } from '../../../src/once'
import { findOrCreateStream, findOrCreateTransform } from '../../../src/stream'
import { textCondition, textEquals, textIn, toTextTakenError, uniqueTextPaths } from '../../../src/typeorm-calls'
import { formatUrl, parseUrl, Url } from '../../../src/url'
import { useDatabase } from '../../support/database'
import { bigintKey, column, deleteDate, entity, key, numberWithin, text, uniqueName } from '../../support/entity'

const db = useDatabase()
const SECRET = 'a secret that no message may hold'

const Page = entity('Page', {
  tenant: column('integer', { default: 1 }),
  url: text({ scope: ['tenant'] }),
  deletedAt: deleteDate(),
})
const User = entity('User', { id: key('uuid'), handle: uniqueName({ namespace: 'handle' }) })
const Player = entity('Player', { id: key('uuid'), nick: uniqueName({ namespace: 'nick', nullable: true }) })

const Comment = entity('Comment', {
  id: bigintKey(),
  text: text(),
  post: column('text'),
  number: numberWithin({ scope: ['post'], count: true }),
})

const ADA = '00000000-0000-4000-8000-00000000000a'
const GRACE = '00000000-0000-4000-8000-00000000000b'
const NOBODY = '00000000-0000-4000-8000-00000000000c'
const dataSource = db.useDataSource([Page, User, Player, Comment, Name, OnceToken, Url], { emptied: false })
const { manager } = dataSource

beforeAll(async () => {
  await findOrCreateMany(manager, Page, [{ url: 'a' }, { url: 'b' }])
  await insertOrFail(manager, User, [{ id: ADA, handle: 'ada' }, { id: GRACE, handle: 'grace' }]) // prettier-ignore
  await insertOrFail(manager, Player, { id: ADA, nick: 'a' })
  await insertOrFail(manager, Comment, { text: 'a', post: 'p' })
  await findHolder(manager, 'handle', 'ada')
  await countWithin(manager, Comment, { post: 'p' })
  await once(manager, 'token', () => 1)
  await Url.parse('http://example.com/')
})

const SCALARS = [undefined, null, true, Number.NaN, 1.5, 7n, '', SECRET, Symbol('s'), () => SECRET]
const LISTS = [[], [undefined], [null], [SECRET], [[]]]
const OBJECTS = [{}, { id: SECRET }, { url: undefined }, { url: null, tenant: null }, { handle: undefined }, { unknown: 1 }] // prettier-ignore
const INSTANCES = [new Date(0), new Date(Number.NaN), new Map([[SECRET, 1]]), new Set([SECRET]), Promise.resolve(SECRET)] // prettier-ignore

/** A value of each kind that somebody may pass by mistake. */
const WRONG: readonly unknown[] = [...SCALARS, ...LISTS, ...OBJECTS, ...INSTANCES, Object.create(null)]

type Call = (...args: readonly never[]) => unknown

const of = (call: unknown): Call => call as Call

const drain = async (source: AsyncIterable<unknown>): Promise<void> => {
  for await (const _ of source);
}

const CALLS = (): Readonly<Record<string, readonly [Call, readonly unknown[]]>> => {
  const pages = dataSource.getRepository(Page).extend(uniqueTextMethods)
  return {
    findOneByText: [of(findOneByText), [manager, Page, { url: 'a' }, {}]],
    findOrCreate: [of(findOrCreate), [manager, Page, { url: 'a' }, {}]],
    'findOrCreate of nested objects': [of(findOrCreate), [manager, Page, { url: 'a' }, { relations: 'findOrCreate' }]],
    findOrCreateMany: [of(findOrCreateMany), [manager, Page, [{ url: 'a' }], {}]],
    upsertByText: [of(upsertByText), [manager, Page, { url: 'a' }, {}]],
    'upsertByText of several': [of(upsertByText), [manager, Page, [{ url: 'a' }], {}]],
    insertOrFail: [of(insertOrFail), [manager, Page, { url: 'a' }]],
    'insertOrFail of several': [of(insertOrFail), [manager, [[Page, { url: 'a' }]]]],
    updateOrFail: [of(updateOrFail), [manager, Page, 1, { url: 'a' }]],
    'updateOrFail by a bigint': [of(updateOrFail), [manager, Comment, '1', { text: 'a' }]],
    'updateOrFail of several': [of(updateOrFail), [manager, [[Page, 1, { url: 'a' }]]]],
    hashOf: [of(hashOf), [manager, Page, { url: 'a', tenant: 1 }, {}]],
    findHolder: [of(findHolder), [manager, 'handle', 'ada', {}]],
    findOrCreateHolder: [of(findOrCreateHolder), [manager, User, { handle: 'ada' }, {}]],
    rename: [of(rename), [manager, User, ADA, { handle: 'ada' }]],
    swapNames: [of(swapNames), [manager, User, ADA, GRACE, {}]],
    firstFreeText: [of(firstFreeText), [manager, Page, [{ url: 'free', tenant: 1 }], {}]],
    'firstFreeText of a name': [of(firstFreeText), [manager, User, [{ handle: 'free' }], {}]],
    formerNamesOf: [of(formerNamesOf), [manager, User, ADA]],
    releaseExpired: [of(releaseExpired), [manager, {}]],
    countWithin: [of(countWithin), [manager, Comment, { post: 'p' }, {}]],
    once: [of(once), [manager, 'token', () => 1, {}]],
    forgetToken: [of(forgetToken), [manager, 'no such token']],
    removeExpiredTokens: [of(removeExpiredTokens), [manager, {}]],
    textCondition: [of(textCondition), [manager, Comment, 'c', { text: 'a' }]],
    textEquals: [of(textEquals), ['a']],
    textIn: [of(textIn), [['a']]],
    toTextTakenError: [of(toTextTakenError), [new Error('x'), dataSource]],
    uniqueTextPaths: [of(uniqueTextPaths), [Page, 'url']],
    findOrCreateStream: [
      of((...args: readonly never[]) =>
        drain(findOrCreateStream(...(args as unknown as Parameters<typeof findOrCreateStream>))),
      ),
      [dataSource, Page, [{ url: 'a' }], {}],
    ],
    findOrCreateTransform: [of(findOrCreateTransform), [dataSource, Page, {}]],
    'Url.parse': [of(Url.parse.bind(Url)), ['http://example.com/', manager]],
    'Url.parseMany': [of(Url.parseMany.bind(Url)), [['http://example.com/'], {}]],
    'Url.findOrCreate': [of(Url.findOrCreate.bind(Url)), ['http://example.com/', {}]],
    'Url.findOneByText': [of(Url.findOneByText.bind(Url)), ['http://example.com/', {}]],
    'Url.conditions': [of(Url.conditions.bind(Url)), ['http://example.com/']],
    parseUrl: [of(parseUrl), ['http://example.com/']],
    formatUrl: [
      of(formatUrl),
      [{ scheme: 'http', host: 'example.com', port: 0, path: '/', query: null, fragment: null }],
    ],
    'findOrCreate of a repository': [of(pages.findOrCreate.bind(pages)), [{ url: 'a' }, {}]],
    'updateOrFail of a repository': [of(pages.updateOrFail.bind(pages)), [1, { url: 'a' }]],
  }
}

/** Of ours, or TypeORM's for a row or an entity that does not exist. */
const isClear = (error: unknown): boolean =>
  [UniqueTextError, EntityNotFoundError, EntityMetadataNotFoundError].some((one) => error instanceof one)

test('of a wrong argument every operation says what it expected, without a text, and before SQL', async () => {
  const unclear: string[] = []
  const sent = vi.spyOn(dataSource.logger, 'logQuery')
  let refused = 0
  for (const [name, [call, args]] of Object.entries(CALLS())) {
    for (const position of args.keys()) {
      for (const wrong of isNamed(name, args[position]) ? WRONG.filter(isPrintable) : WRONG) {
        sent.mockClear()
        try {
          await call(...(args.with(position, wrong) as never[]))
        } catch (error) {
          refused += 1
          const holds = inspect(error, { depth: 6 }).includes(SECRET)
          const early = !(error instanceof DeclarationError) || sent.mock.calls.length === 0
          if (isClear(error) && early && !holds) continue
          unclear.push(`${name}, argument ${position}, ${inspect(wrong)}: ${inspect(error).slice(0, 200)}`)
        }
      }
    }
  }
  sent.mockRestore()
  expect(unclear).toEqual([])
  expect(refused).toBeGreaterThan(1_000)
}, 120_000)

/** An entity, a namespace or a declaration: an error quotes what has no such name. */
const isNamed = (name: string, good: unknown): boolean =>
  typeof good === 'function' ||
  ['handle', 'url'].includes(String(good)) ||
  (name.endsWith('several') && Array.isArray(good))

/** What is neither a text nor null. */
const NO_TEXT = [true, 1, 7n, Symbol('s'), () => SECRET, {}, [SECRET], ...INSTANCES]

/** The calls that take a text or a name, with the place of its value. */
const WITH_TEXT: Readonly<Record<string, (wrong: never) => Promise<unknown>>> = {
  findOneByText: (url) => findOneByText(manager, Page, { url, tenant: 1 }),
  findOrCreate: (url) => findOrCreate(manager, Page, { url, tenant: 1 }),
  'findOrCreate of a name beside': (handle) => findOrCreateHolder(manager, User, { handle }),
  findOrCreateMany: (url) => findOrCreateMany(manager, Page, [{ url, tenant: 1 }]).then(thrown),
  upsertByText: (url) => upsertByText(manager, Page, { url, tenant: 1 }),
  'upsertByText of several': (url) => upsertByText(manager, Page, [{ url, tenant: 1 }]).then(thrown),
  insertOrFail: (url) => insertOrFail(manager, Page, { url }),
  'insertOrFail of a name': (handle) => insertOrFail(manager, User, { id: NOBODY, handle }),
  updateOrFail: (url) => updateOrFail(manager, Page, 1, { url }),
  'updateOrFail of a name': (handle) => updateOrFail(manager, User, ADA, { handle }),
  rename: (handle) => rename(manager, User, ADA, { handle }),
  'rename of a name that may be null': (nick) => rename(manager, Player, ADA, { nick }),
  findHolder: (handle) => findHolder(manager, 'handle', handle),
  once: (token) => once(manager, token, () => 1),
  forgetToken: (token) => forgetToken(manager, token),
}

/** Throws the error of a row, which a list has in its place. */
function thrown(results: readonly object[]): void {
  for (const one of results) if ('error' in one) throw one.error
}

const OPTIONS_OF_UPSERT = [true, 1, 7n, Symbol('s'), () => SECRET, 'title', [1], [['title']], ...INSTANCES]

const stored = async (): Promise<unknown> =>
  await dataSource.query(
    `select (select json_agg(p order by id) from page p), (select json_agg(u order by id) from "user" u),
       (select json_agg(l order by id) from player l),
       (select json_agg(n order by id) from names n), (select json_agg(t order by id) from once_tokens t)`,
  )

test('what is not a text is refused where a text or a name is wanted, and nothing is written', async () => {
  const before = await stored()
  const taken: string[] = []
  for (const [name, call] of Object.entries(WITH_TEXT)) {
    for (const wrong of NO_TEXT) {
      const error: unknown = await call(wrong as never).catch((caught: unknown) => caught)
      const isRefused = error instanceof UniqueTextError && !inspect(error, { depth: 6 }).includes(SECRET)
      if (!isRefused) taken.push(`${name}: ${inspect(wrong)}: ${inspect(error)}`)
    }
  }
  for (const option of ['update', 'create', 'where', 'relations', 'by'] as const) {
    for (const wrong of option === 'where' ? NO_TEXT.filter((one) => typeof one !== 'function') : OPTIONS_OF_UPSERT) {
      if (option !== 'update' && (wrong === 'title' || Array.isArray(wrong))) continue
      const options = { [option]: wrong } as object
      const error: unknown = await upsertByText(manager, Page, { url: 'a', tenant: 1 }, options).catch((caught: unknown) => caught) // prettier-ignore
      if (!(error instanceof DeclarationError)) taken.push(`${option}: ${inspect(wrong)}: ${inspect(error)}`)
    }
  }
  expect(taken).toEqual([])
  expect(await stored()).toEqual(before)
}, 120_000)

const isPrintable = (one: unknown): boolean =>
  typeof one !== 'symbol' && (typeof one !== 'object' || one === null) && one !== SECRET

describe('a value that is none of the type of the primary key is refused before SQL, which would quote it', () => {
  const wrong = [Number.NaN, 1.5, '', SECRET, 2 ** 31, new Date(0), true]
  const calls: readonly [string, (id: unknown) => Promise<unknown>][] = [
    ['updateOrFail', (id) => updateOrFail(manager, Page, id as number, { url: 'c' })],
    ['updateOrFail by an object', (id) => updateOrFail(manager, Page, { id: id as number }, { url: 'c' })],
    ['updateOrFail to such a key', (id) => updateOrFail(manager, Page, 1, { id: id as number })],
    ['insertOrFail', (id) => insertOrFail(manager, Page, { id: id as number, url: 'c' })],
    ['findOrCreate', (id) => findOrCreate(manager, Page, { id: id as number, url: 'c', tenant: 1 })],
  ]
  test.each(calls)('%s', async (_, call) => {
    const sent = vi.spyOn(dataSource.logger, 'logQuery')
    for (const id of wrong) {
      const error: unknown = await call(id).catch((caught: unknown) => caught)
      expect(error).toBeInstanceOf(DeclarationError)
      expect(String(error)).toContain('"id" of Page must be a value of type integer, got ')
      expect(inspect(error)).not.toContain(SECRET)
    }
    expect(sent).not.toHaveBeenCalled()
    sent.mockRestore()
  })

  test('a UUID and a bigint too, and every way to write one passes', async () => {
    await expect(rename(manager, User, SECRET, { handle: 'x' })).rejects.toThrow(
      '"id" of User must be a value of type uuid',
    )
    await expect(swapNames(manager, User, ADA, SECRET)).rejects.toThrow('"id" of User must be a value of type uuid')
    await expect(updateOrFail(manager, Comment, (2n ** 63n).toString(), { text: 'x' })).rejects.toThrow(
      'of type bigint',
    )
    expect(await rename(manager, User, ADA.toUpperCase(), { handle: 'renamed' })).toMatchObject({ id: ADA })
    expect(await rename(manager, User, `{${ADA.replaceAll('-', '')}}`, { handle: 'renamed' })).toMatchObject({
      id: ADA,
    })
    for (const id of ['1', ' +1 ', '01', 1n, 1] as string[]) {
      expect(await updateOrFail(manager, Comment, id, { text: 'a' })).toMatchObject({ id: '1' })
    }
    await expect(updateOrFail(manager, Comment, (2n ** 63n - 1n).toString(), { text: 'x' })).rejects.toThrow(
      EntityNotFoundError,
    )
  })
})

test.each<[string, () => Promise<unknown>, RegExp]>([
  ['rename', () => rename(manager, User, ADA, { handle: undefined as never }), /no name was given/],
  ['updateOrFail', () => updateOrFail(manager, Page, 1, { url: undefined as never }), /No change of Page was given/],
  ['updateOrFail of none', () => updateOrFail(manager, Page, 1, {}), /No change of Page was given/],
  ['insertOrFail', () => insertOrFail(manager, [undefined] as never), /got an array with undefined/],
  ['updateOrFail of a list', () => updateOrFail(manager, [undefined] as never), /got an array with undefined/],
  ['uniqueTextPaths', () => Promise.resolve().then(() => uniqueTextPaths(null as never)), /declares no unique text/],
])('%s of undefined says what is missing', async (_, call, message) => {
  await expect(call()).rejects.toThrow(DeclarationError)
  await expect(call()).rejects.toThrow(message)
})
