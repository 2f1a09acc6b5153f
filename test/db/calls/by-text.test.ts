import { ChildEntity, Column, type EntitySubscriberInterface, TableInheritance } from 'typeorm'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { countByText, DeclarationError, deleteByText, existsByText, findOrCreate, findOrCreateMany } from '../../../src'
import { url } from '../../../src/text'
import { Url } from '../../../src/url'
import { meet } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { oneHash } from '../../support/digests'
import { column, deleteDate, entity, text, toOne } from '../../support/entity'
import { poolOf, rejection } from '../../support/ledger'

const db = useDatabase()

const Page = entity('Page', {
  url: text({ normalize: url(), scope: ['site'], digest: oneHash }),
  site: column('text', { default: 'here' }),
  body: column('text', { nullable: true }),
  deletedAt: deleteDate(),
})
const Live = entity('Live', { url: text({ ignoreDeleted: true }), deletedAt: deleteDate() })
const Link = entity('Link', { page: toOne(() => Page) })
const Stamp = entity('Stamp', { site: column('varchar', { length: 3 }), text: text({ scope: ['site'] }) })

const Animal = entity('Animal', { name: text() })
TableInheritance({ column: { type: 'varchar', name: 'kind' } })(Animal)
@ChildEntity()
class Cat extends Animal {
  @Column({ type: 'text', nullable: true }) fur!: string | null
}
@ChildEntity()
class Dog extends Animal {}

const dataSource = db.useDataSource([Page, Live, Link, Stamp, Animal, Cat, Dog, Url], { poolSize: 3 })
const { manager } = dataSource
const sessions = { other: db.useClient(), observer: db.useClient() }

afterEach(async () => {
  await sessions.other.query('ROLLBACK')
  const { totalCount, idleCount } = poolOf(dataSource)
  expect(totalCount - idleCount).toBe(0)
})

const [a, b] = [{ url: 'http://a/' }, { url: 'http://b/' }]
const pages = async (...given: object[]): Promise<void> => {
  await findOrCreateMany(manager, Page, given)
}

describe('of texts with equal hashes, in their scope', () => {
  test('existsByText finds the one that is stored', async () => {
    await pages(a, { ...b, site: 'there' })
    const found = [a, { url: 'HTTP://A' }, b, { ...b, site: 'there' }].map((one) => existsByText(manager, Page, one))
    expect(await Promise.all(found)).toEqual([true, true, false, true])
  })

  test('countByText counts each row once', async () => {
    await pages(a, b, { ...a, site: 'there' })
    const urls = ['http://a/', 'HTTP://A', 'http://b/', 'http://c/', 'no URL'].map((one) => ({ url: one }))
    expect(await countByText(manager, Page, urls)).toBe(2)
    expect(await countByText(manager, Page, [...urls, { ...a, site: 'there' }])).toBe(3)
  })

  test('deleteByText takes that row, and leaves an anchor', async () => {
    await pages(a, b, { ...a, site: 'there' })
    expect(await deleteByText(manager, Page, a)).toBe(true)
    expect(await deleteByText(manager, Page, a)).toBe(false)
    expect(await manager.query(`SELECT site, url, "urlHashNumber" AS n FROM "page" ORDER BY site`)).toEqual([
      { site: 'here', url: 'http://b/', n: 0 },
      { site: 'there', url: 'http://a/', n: 0 },
    ])
  })
})

test('rows of scopes that are stored alike count once', async () => {
  await findOrCreate(manager, Stamp, { site: 'abc', text: 't' })
  const inputs = ['abc', 'abc  '].map((site) => ({ site, text: 't' }))
  expect(await countByText(manager, Stamp, inputs)).toBe(1)
})

test('a text that no row can hold sends nothing', async () => {
  const sent = vi.spyOn(dataSource.logger, 'logQuery')
  const refused = { url: 'no URL' }
  expect(await existsByText(manager, Page, refused)).toBe(false)
  expect(await countByText(manager, Page, [refused])).toBe(0)
  expect(await countByText(manager, Page, [])).toBe(0)
  expect(await deleteByText(manager, Page, refused)).toBe(false)
  expect(sent).not.toHaveBeenCalled()
  sent.mockRestore()
})

test('a look-up reads neither the other columns nor the text', async () => {
  const sent = vi.spyOn(dataSource.logger, 'logQuery')
  await existsByText(manager, Page, a)
  await countByText(manager, Page, [a, b])
  expect(sent.mock.calls.filter(([sql]) => sql.includes('"body"'))).toEqual([])
  sent.mockRestore()
})

test('a condition beside the text is refused, and so is a single object in place of a list', async () => {
  const beside = { ...a, body: 'x' }
  const calls = {
    'existsByText()': existsByText(manager, Page, beside),
    'Row 1: countByText()': countByText(manager, Page, [a, beside]),
    'deleteByText()': deleteByText(manager, Page, beside),
  }
  for (const [name, call] of Object.entries(calls)) {
    const error = String(await rejection(call))
    expect(error).toContain(name)
    expect(error).toContain('Leave out "body"')
  }
  expect(await rejection(countByText(manager, Page, a as never))).toBeInstanceOf(DeclarationError)
  const replica = { replica: true } as never
  expect(String(await rejection(deleteByText(manager, Page, a, replica)))).toContain('"replica"')
})

describe('a row that is deleted softly', () => {
  test('is seen with withDeleted only', async () => {
    await pages(a, b)
    await manager.softDelete(Page, a)
    const withDeleted = { withDeleted: true } as const
    expect(await existsByText(manager, Page, a)).toBe(false)
    expect(await existsByText(manager, Page, a, withDeleted)).toBe(true)
    expect(await countByText(manager, Page, [a, b])).toBe(1)
    expect(await countByText(manager, Page, [a, b], withDeleted)).toBe(2)
    expect(await deleteByText(manager, Page, a)).toBe(false)
    expect(await manager.count(Page, withDeleted)).toBe(2)
    expect(await deleteByText(manager, Page, a, withDeleted)).toBe(true)
    expect(await manager.count(Page, withDeleted)).toBe(1)
  })

  test('holds no text with ignoreDeleted, and stays', async () => {
    for (let round = 0; round < 2; round += 1) {
      await findOrCreate(manager, Live, { url: 'x' })
      if (round === 0) await manager.softDelete(Live, { url: 'x' })
    }
    expect(await countByText(manager, Live, [{ url: 'x' }])).toBe(1)
    expect(await deleteByText(manager, Live, { url: 'x' })).toBe(true)
    expect(await existsByText(manager, Live, { url: 'x' })).toBe(false)
    expect(await manager.count(Live, { withDeleted: true })).toBe(1)
    const refused = existsByText(manager, Live, { url: 'x' }, { withDeleted: true })
    expect(String(await rejection(refused))).toContain('with ignoreDeleted')
  })
})

test('of another class of the table no row is seen or deleted', async () => {
  await manager.save(Cat, { name: 'Tom' })
  expect(await existsByText(manager, Dog, { name: 'Tom' })).toBe(false)
  expect(await countByText(manager, Dog, [{ name: 'Tom' }])).toBe(0)
  expect(await deleteByText(manager, Dog, { name: 'Tom' })).toBe(false)
  expect(await existsByText(manager, Animal, { name: 'Tom' })).toBe(true)
  expect(await deleteByText(manager, Cat, { name: 'Tom' })).toBe(true)
})

test('a text of several columns, with NULL among them', async () => {
  await Url.parse('http://example.com/a')
  await Url.parse('http://example.com/a?')
  const parts = { scheme: 'http', host: 'example.com', port: 0, path: '/a', query: null, fragment: null }
  expect(await existsByText(manager, Url, parts)).toBe(true)
  expect(await countByText(manager, Url, [parts, { ...parts, query: '' }, { ...parts, query: 'q' }])).toBe(2)
  expect(await deleteByText(manager, Url, parts)).toBe(true)
  expect(await Url.findOneByText('http://example.com/a')).toBeNull()
  expect(await Url.findOneByText('http://example.com/a?')).not.toBeNull()
})

test('subscribers get the events of delete()', async () => {
  await pages(a)
  const heard: string[] = []
  const subscriber: EntitySubscriberInterface = {
    beforeRemove: ({ metadata, entity: removed }) => void heard.push(`before ${metadata.name} ${String(removed)}`),
    afterRemove: ({ metadata }) => void heard.push(`after ${metadata.name}`),
  }
  dataSource.subscribers.push(subscriber)
  await deleteByText(manager, Page, a)
  await deleteByText(manager, Page, a)
  dataSource.subscribers.splice(dataSource.subscribers.indexOf(subscriber), 1)
  expect(heard).toEqual(['before Page undefined', 'after Page', 'before Page undefined'])
})

test('a row that others refer to stays, and the transaction can be used', async () => {
  const { entity: page } = await findOrCreate(manager, Page, a)
  await manager.insert(Link, { page })
  await manager.transaction(async (own) => {
    expect(await rejection(deleteByText(own, Page, a))).toMatchObject({ driverError: { code: '23503' } })
    expect(await existsByText(own, Page, a)).toBe(true)
  })
})

describe('a delete that waits for another session', () => {
  test('deletes what was stored anew meanwhile: the text was at no moment missing', async () => {
    await pages(a, b)
    const replace = `DELETE FROM "page" WHERE url = 'http://a/'; INSERT INTO "page" (url) VALUES ('http://a/')`
    expect(await meet(sessions, replace, () => deleteByText(manager, Page, a))).toBe(true)
    expect(await manager.find(Page)).toMatchObject([b])
  })

  test('leaves a row whose text has changed', async () => {
    await findOrCreate(manager, Live, { url: 'x' })
    const remove = (): Promise<boolean> => deleteByText(manager, Live, { url: 'x' })
    expect(await meet(sessions, `UPDATE live SET url = 'y'`, remove)).toBe(false)
    expect(await manager.find(Live)).toMatchObject([{ url: 'y' }])
  })

  test('in a transaction with an older snapshot says so', async () => {
    await pages(a)
    const remove = (): Promise<unknown> => manager.transaction('REPEATABLE READ', (own) => deleteByText(own, Page, a))
    const error = await rejection(meet(sessions, `DELETE FROM "page"`, remove))
    expect(error).toMatchObject({ code: 'TRANSACTION_ABORTED' })
  })
})

test('of many deletes of one text at once each row is deleted by one', async () => {
  const works = Array.from({ length: 40 }, async (_, nth) => {
    const { created } = await findOrCreate(manager, Page, a)
    const deleted = nth % 2 === 0 && (await deleteByText(manager, Page, a))
    return Number(created) - Number(deleted)
  })
  const left = (await Promise.all(works)).reduce((sum, one) => sum + one, 0)
  expect(await manager.count(Page)).toBe(left)
})
