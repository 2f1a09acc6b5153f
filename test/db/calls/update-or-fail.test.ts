import type { EntitySubscriberInterface, ObjectLiteral, UpdateEvent } from 'typeorm'
import { Entity, EntityNotFoundError, EventSubscriber, In, Not, PrimaryColumn, QueryFailedError } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { DeclarationError, ImmutableTextError, TextRejectedError, UniqueText, updateOrFail } from '../../../src'
import { url } from '../../../src/text'
import { meet } from '../../support/blocked'
import { takenBy } from '../../support/results'
import { useDatabase } from '../../support/database'
import { column, deleteDate, entity, key, plain, text, toOne, updateDate, uuidKey, version } from '../../support/entity'
import { loggerOf } from '../../support/logger'
import { oneHash } from '../../support/digests'
import { rejection } from '../../support/ledger'

const Page = entity('Page', {
  url: text({ normalize: url() }),
  title: plain(),
  rank: column('integer', { unique: true, nullable: true }),
  version: version(),
  changed: updateDate(),
})
const Owner = entity('Owner', { name: key('text') })
const Account = entity('Account', {
  tenant: key('text'),
  number: key('integer'),
  owner: toOne(() => Owner, { nullable: false }),
  handle: text({ scope: ['owner'] }),
  email: text({ nullable: true, digest: oneHash }),
})
const Fixed = entity('Fixed', { id: uuidKey(), text: text({ immutable: true }), note: plain() })
const Draft = entity('Draft', { text: text({ ignoreDeleted: true }), deleted: deleteDate() })

/** Primary keys that are sent in another form than they have here, and in a form of their own. */
@Entity()
class Coded {
  @PrimaryColumn({
    type: 'text',
    transformer: { to: (id: unknown) => (typeof id === 'string' ? `k-${id}` : id), from: (id: string) => id.slice(2) },
  })
  id!: string
  @UniqueText() text!: string
}

const Hour = entity('Hour', { start: key('timestamptz'), text: text() })

const heard: unknown[] = []
/** What a listener does to what it is given. */
let listen: (changes: ObjectLiteral) => void = () => {}

@EventSubscriber()
class UpdateListener implements EntitySubscriberInterface {
  beforeUpdate({ entity }: UpdateEvent<object>): void {
    listen(entity ?? {})
    heard.push(['before', { ...entity }])
  }
  afterUpdate({ entity }: UpdateEvent<object>): void {
    heard.push(['after', { ...entity }])
  }
}

const db = useDatabase()
const statements: string[] = []

const logger = loggerOf({ logQuery: (sql: string) => void statements.push(sql) })

const dataSource = db.useDataSource([Page, Owner, Account, Fixed, Draft, Coded, Hour], {
  logger,
  subscribers: [UpdateListener],
})
const { manager } = dataSource
const client = db.useClient()
const sessions = { other: client, observer: db.useClient() }

beforeEach(async () => {
  await client.query(`
    insert into page (url, title, version)
      values ('http://1.example/', 'one', 1), ('http://2.example/', 'two', 1), ('http://3.example/', 'three', 1);
    insert into owner values ('x'), ('y');
    insert into account (tenant, number, "ownerName", handle, email)
      values ('t', 1, 'x', 'a', 'a@x'), ('t', 2, 'x', 'b', null), ('u', 1, 'y', 'b', 'b@y')`)
  heard.length = 0
  listen = () => {}
})

describe('a text that is free', () => {
  test('is changed, with version and date, and the whole row comes back', async () => {
    const before = await manager.findOneByOrFail(Page, { id: 1 })
    const page = await updateOrFail(manager, Page, 1, { url: 'HTTP://New.example' })
    expect(page).toBeInstanceOf(Page)
    expect(page).toMatchObject({ id: 1, url: 'http://new.example/', title: 'one', version: 2 })
    expect(page.changed.getTime()).toBeGreaterThan(before.changed.getTime())
    expect(await manager.findOneBy(Page, { id: 1 })).toEqual(page)
  })

  test('is changed where the entity itself is given, whatever else it holds', async () => {
    const page = await manager.findOneByOrFail(Page, { id: 1 })
    page.url = 'http://new.example'
    expect(await updateOrFail(manager, Page, page, { url: page.url })).toMatchObject({ id: 1, version: 2 })
    // Its rank is null and its date has milliseconds, of the six digits that are stored.
    expect(await updateOrFail(manager, Page, page, { title: 'T' })).toMatchObject({ title: 'T', version: 3 })
  })

  test('may be the same text again, and other columns change without it', async () => {
    expect(await updateOrFail(manager, Page, { id: 1 }, { url: 'http://1.example' })).toMatchObject({ version: 2 })
    expect(await updateOrFail(manager, Page, { id: 1 }, { title: 'T' })).toMatchObject({ title: 'T', version: 3 })
  })

  test('takes one statement outside a transaction', async () => {
    await updateOrFail(manager, Page, 1, { title: 'ready' })
    await updateOrFail(manager, Page, 1, { url: 'http://new.example' })
    statements.length = 0
    await updateOrFail(manager, Page, 1, { url: 'http://newer.example' })
    expect(statements).toHaveLength(1)
  })

  test('several tables, with composite keys and a scope that is a relation', async () => {
    const [page, account] = await updateOrFail(manager, [
      [Page, 2, { url: 'http://new.example' }],
      [Account, { tenant: 't', number: 1 }, { owner: { name: 'y' }, email: null }],
    ])
    expect(page.url).toBe('http://new.example/')
    expect(account).toMatchObject({ tenant: 't', number: 1, handle: 'a', email: null })
    expect(await manager.countBy(Account, { owner: { name: 'y' } })).toBe(2)
  })

  test('an earlier change of the call frees its text for a later one', async () => {
    await updateOrFail(manager, [
      [Page, 1, { url: 'http://new.example' }],
      [Page, 2, { url: 'http://1.example' }],
    ])
    expect(await manager.findOneBy(Page, { id: 2 })).toMatchObject({ url: 'http://1.example/' })
  })

  test('subscribers hear the changes, as from update()', async () => {
    await updateOrFail(manager, Page, 1, { title: 'T' })
    expect(heard).toEqual([
      ['before', { title: 'T' }],
      ['after', { title: 'T' }],
    ])
    const changes = Object.freeze({ url: 'HTTP://A.example' })
    await updateOrFail(manager, Page, 1, changes)
    expect(changes.url).toBe('HTTP://A.example')
  })

  test('what a listener changes is written, and not into the object that was given', async () => {
    listen = (changes) => Object.assign(changes, { title: 'heard' })
    const changes = Object.freeze({ url: 'http://a.example' })
    expect(await updateOrFail(manager, Page, 1, changes)).toMatchObject({ url: 'http://a.example/', title: 'heard' })
  })

  test('an update that others overtake is tried again, outside a transaction', async () => {
    const strict = await db.dataSource([Page], {
      synchronize: false,
      extra: { options: '-c default_transaction_isolation=repeatable\\ read' },
    })
    const call = (): Promise<unknown> => updateOrFail(strict.manager, Page, 1, { url: 'http://new.example' })
    const page = await meet(sessions, `update page set title = 'theirs' where id = 1`, call)
    expect(page).toMatchObject({ url: 'http://new.example/', title: 'theirs' })
  })
})

describe('a text that is taken', () => {
  test('every one of them is named, in one more round trip, and nothing is changed', async () => {
    await updateOrFail(manager, Account, { tenant: 't', number: 1 }, { handle: 'a' })
    statements.length = 0
    const call = updateOrFail(manager, [
      [Page, 1, { title: 'undone' }],
      [Page, 1, { url: 'http://2.example' }],
      [Account, { tenant: 't', number: 2 }, { handle: 'a', email: 'b@y' }],
      [Page, 3, { url: 'http://free.example' }],
    ])
    const error = await takenBy(call)
    expect(error.taken).toEqual([
      { entity: 'Page', property: 'url', id: { id: 2 }, row: 1 },
      { entity: 'Account', property: 'handle', id: { tenant: 't', number: 1 }, row: 2 },
      { entity: 'Account', property: 'email', id: { tenant: 'u', number: 1 }, row: 2 },
    ])
    expect(statements.filter((sql) => sql.startsWith('WITH i0'))).toHaveLength(1)
    expect(await manager.findOneBy(Page, { id: 1 })).toMatchObject({ title: 'one', version: 1 })
    expect(error.cause).toBeInstanceOf(QueryFailedError)
  })

  test('also where only the scope changes', async () => {
    const error = await takenBy(updateOrFail(manager, Account, { tenant: 't', number: 2 }, { owner: { name: 'y' } }))
    expect(error.taken).toEqual([{ entity: 'Account', property: 'handle', id: { tenant: 'u', number: 1 }, row: 0 }])
  })

  test('by an earlier change of the call: then nobody holds it', async () => {
    const call = updateOrFail(manager, [
      [Account, { tenant: 't', number: 1 }, { handle: 'new' }],
      [Account, { tenant: 'u', number: 1 }, { owner: { name: 'x' }, handle: 'new' }],
    ])
    expect((await takenBy(call)).taken).toEqual([
      { entity: 'Account', property: 'handle', id: undefined, row: 1, repeated: true },
    ])
  })

  test('of a row that is restored', async () => {
    await client.query(`insert into draft (text, deleted) values ('a', now()), ('a', null), ('b', now())`)
    const error = await takenBy(updateOrFail(manager, Draft, 1, { deleted: null }))
    expect(error.taken).toEqual([{ entity: 'Draft', property: 'text', id: { id: 2 }, row: 0 }])
    expect(await updateOrFail(manager, Draft, 3, { deleted: null })).toMatchObject({ text: 'b', deleted: null })
    await takenBy(updateOrFail(manager, Draft, 1, { text: 'b', deleted: null }))
    expect(await updateOrFail(manager, Draft, 1, { text: 'b' })).toMatchObject({ text: 'b' })
  })

  test('not by the row itself, and no text is none that others have', async () => {
    const call = updateOrFail(manager, [
      [Page, 1, { url: 'http://1.example' }],
      [Account, { tenant: 't', number: 1 }, { email: null }],
      [Account, { tenant: 't', number: 2 }, { email: null }],
      [Page, 3, { url: 'http://2.example' }],
    ])
    expect((await takenBy(call)).taken).toEqual([{ entity: 'Page', property: 'url', id: { id: 2 }, row: 3 }])
  })

  test('not for a row that the change deletes, which frees its text', async () => {
    await client.query(`insert into draft (text) values ('a'), ('b'), ('c')`)
    const call = updateOrFail(manager, [
      [Draft, 2, { text: 'a', deleted: new Date() }],
      [Draft, 3, { text: 'a' }],
      [Page, 1, { url: 'http://2.example' }],
    ])
    expect((await takenBy(call)).taken).toEqual([
      { entity: 'Draft', property: 'text', id: { id: 1 }, row: 1 },
      { entity: 'Page', property: 'url', id: { id: 2 }, row: 2 },
    ])
  })

  test('by a row whose key is a Date, or is transformed', async () => {
    const hours = [new Date(0), new Date(3_600_000)] as const
    await manager.insert(Hour, [
      { start: hours[0], text: 'a' },
      { start: hours[1], text: 'b' },
    ])
    expect((await takenBy(updateOrFail(manager, Hour, hours[1], { text: 'a' }))).taken).toMatchObject([
      { id: { start: hours[0] } },
    ])
    await manager.insert(Coded, [
      { id: '1', text: 'a' },
      { id: '2', text: 'b' },
    ])
    expect((await takenBy(updateOrFail(manager, Coded, '2', { text: 'a' }))).taken).toMatchObject([{ id: { id: '1' } }])
    expect(await updateOrFail(manager, Coded, '2', { text: 'c' })).toEqual({ id: '2', text: 'c' })
  })
})

describe('what cannot be changed', () => {
  test('an immutable text', async () => {
    const { id } = await manager.save(Fixed, { text: 'a' })
    const error = await rejection(updateOrFail(manager, Fixed, id, { text: 'b' }))
    expect(error).toBeInstanceOf(ImmutableTextError)
    expect(error).toMatchObject({ property: 'text', cause: { driverError: { code: 'UT001' } } })
    expect(await updateOrFail(manager, Fixed, id, { text: 'a', note: 'n' })).toMatchObject({ note: 'n' })
  })

  test('a row that is gone: EntityNotFoundError, and nothing else is changed', async () => {
    const call = updateOrFail(manager, [
      [Page, 1, { title: 'undone' }],
      [Page, 99, { title: 'gone' }],
    ])
    expect(await rejection(call)).toBeInstanceOf(EntityNotFoundError)
    expect(await manager.findOneBy(Page, { id: 1 })).toMatchObject({ title: 'one' })
    expect(await rejection(updateOrFail(manager, Page, 99, { title: 'gone' }))).toBeInstanceOf(EntityNotFoundError)
  })

  test('a row that does not meet a further condition', async () => {
    const call = updateOrFail(manager, Page, { id: 1, version: 7 }, { title: 'T' })
    expect(await rejection(call)).toBeInstanceOf(EntityNotFoundError)
    expect(await updateOrFail(manager, Page, { id: 1, version: 1 }, { title: 'T' })).toMatchObject({ version: 2 })
  })

  test('of one row of several says which row', async () => {
    const refused = (id: number, changes: object): Promise<unknown> =>
      rejection(
        updateOrFail(manager, [
          [Page, 1, { title: 'undone' }],
          [Page, id, changes],
        ]),
      )
    const message = expect.stringContaining('"url" of row 1 is rejected')
    expect(await refused(2, { url: 'nonsense' })).toMatchObject({ row: 1, message })
    expect(await refused(undefined as never, { title: 'T' })).toMatchObject({
      message: expect.stringMatching(/^Row 1: /),
    })
  })

  test('of no rows sends nothing, but for an entity without a unique text', async () => {
    statements.length = 0
    expect(await updateOrFail(manager, Page, [])).toEqual([])
    expect(await rejection(updateOrFail(manager, Owner, []))).toBeInstanceOf(DeclarationError)
    expect(statements).toEqual([])
  })

  const number1 = { tenant: 't', number: 1 }
  test.each<[string, () => Promise<unknown>, (new (...args: never[]) => Error)?]>([
    [
      'a text that the normalizer refuses',
      () => updateOrFail(manager, Page, 1, { url: 'nonsense' }),
      TextRejectedError,
    ],
    ['no key', () => updateOrFail(manager, Page, undefined as never, { title: 'T' })],
    ['half a key', () => updateOrFail(manager, Account, { tenant: 't' }, { handle: 'T' })],
    ['an operator as key', () => updateOrFail(manager, Page, { id: In([1, 2]) } as never, { title: 'T' })],
    ['a negation as key', () => updateOrFail(manager, Page, { id: Not(1) } as never, { title: 'T' })],
    ['several keys', () => updateOrFail(manager, Page, { id: [1, 2] } as never, { title: 'T' })],
    ['a scalar for a composite key', () => updateOrFail(manager, Account, 't', { handle: 'T' })],
    ['a condition without the key', () => updateOrFail(manager, Page, { title: 'one' }, { title: 'T' })],
    ['a scope that only SQL knows', () => updateOrFail(manager, Account, number1, { owner: () => "'x'" })],
    ['no changes', () => updateOrFail(manager, Page, 1, undefined as never)],
    ['no list of changes', () => updateOrFail(manager, [Page, 1, { title: 'T' }] as never)],
    ['a new object in a relation', () => updateOrFail(manager, Account, number1, { owner: {} })],
    ['an entity without a unique text', () => updateOrFail(manager, Owner, 'x', { name: 'z' })],
  ])('%s is refused before any SQL', async (_, call, type = DeclarationError) => {
    statements.length = 0
    expect(await rejection(call())).toBeInstanceOf(type)
    expect(statements).toEqual([])
  })
})

describe("in the caller's transaction", () => {
  test('a key that the column cannot hold is refused, and leaves the transaction as it is', async () => {
    const [first, second] = await manager.find(Page, { order: { id: 'asc' } })
    await dataSource.transaction(async (own) => {
      const call = updateOrFail(own, [
        [Page, first?.id ?? 0, { url: second?.url ?? '' }],
        [Page, 'nonsense' as never, { url: 'http://free.example/' }],
      ])
      await expect(call).rejects.toThrow('Row 1: "id" of Page must be a value of type integer, got string')
      expect(await own.findOneBy(Page, { id: first?.id ?? 0 })).toEqual(first)
    })
  })

  test('a refusal undoes the call alone, and the transaction goes on', async () => {
    await dataSource.transaction(async (inside) => {
      const call = updateOrFail(inside, [
        [Page, 1, { title: 'undone' }],
        [Page, 1, { url: 'http://2.example' }],
      ])
      await takenBy(call)
      expect(await rejection(updateOrFail(inside, Page, 99, { title: 'T' }))).toBeInstanceOf(EntityNotFoundError)
      await updateOrFail(inside, Page, 2, { url: 'http://free.example' })
      await updateOrFail(inside, Page, 1, { url: 'http://2.example' })
    })
    expect(await manager.findOneBy(Page, { id: 1 })).toMatchObject({ url: 'http://2.example/', title: 'one' })
  })
})

test('a holder that is not committed yet is waited for, and named', async () => {
  const call = (): Promise<unknown> => updateOrFail(manager, Page, 1, { url: 'http://slow.example/' })
  const insert = `insert into page (url, version) values ('http://slow.example/', 1)`
  const { taken } = await takenBy(meet(sessions, insert, call))
  expect(taken).toEqual([{ entity: 'Page', property: 'url', id: { id: 4 }, row: 0 }])
})
