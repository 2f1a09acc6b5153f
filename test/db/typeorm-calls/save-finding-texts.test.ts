import type { EntityManager, Relation } from 'typeorm'
import {
  Column,
  Entity,
  JoinTable,
  ManyToMany,
  ManyToOne,
  OneToMany,
  PrimaryGeneratedColumn,
  QueryFailedError,
  Tree,
  TreeChildren,
  TreeParent,
} from 'typeorm'
import { describe, expect, test } from 'vitest'
import { findOrCreate, UniqueText } from '../../../src'
import { lowerCase } from '../../../src/text'
import { saveFindingTexts } from '../../../src/typeorm-calls'
import { useDatabase } from '../../support/database'
import { entity, text, toOne } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { queriesOf } from '../../support/queries'
import { endOrWait, openSession } from '../../support/sessions'
import { Tag } from '../../support/entities'

const db = useDatabase()

const Site = entity('Site', { host: text() })
type Site = InstanceType<typeof Site>

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
  @ManyToOne(() => Site, { nullable: true, cascade: true }) site!: Site | null
  @OneToMany(() => Link, (link: Link) => link.page, { cascade: ['insert', 'update'] }) links!: Link[]
}

@Entity()
class Link {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column({ type: 'text', nullable: true }) note!: string | null
  @ManyToOne(() => Page, (page) => page.links, { cascade: true }) page!: Page
  @ManyToMany(() => Tag, { cascade: true }) @JoinTable() tags!: Tag[]
  @OneToMany(() => Comment, (comment: Comment) => comment.link, { cascade: true }) comments!: Comment[]
}

@Entity()
class Comment {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ scope: ['link'] }) text!: string
  @ManyToOne(() => Link, (link) => link.comments, { nullable: false }) link!: Link
}

const Section = entity('Section', {
  path: text({ normalize: lowerCase(), scope: ['site'] }),
  site: toOne(() => Site, { nullable: false, cascade: true }),
})
type Section = InstanceType<typeof Section>

@Entity()
class Citation {
  @PrimaryGeneratedColumn('identity') id!: number
  @ManyToOne(() => Section, { cascade: true }) section!: Section
}

@Entity()
@Tree('materialized-path')
class Branch {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() name!: string
  @TreeChildren() children!: Branch[]
  @TreeParent() parent!: Branch | null
}

@Entity()
class Folder {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ scope: ['parentId'] }) name!: string
  @Column('integer') parentId!: number
  @ManyToOne(() => Folder, { cascade: true }) parent!: Relation<Folder>
}

@Entity()
class Bookmark {
  @PrimaryGeneratedColumn('identity') id!: number
  @ManyToOne(() => Folder, { cascade: true }) folder!: Folder
}

const dataSource = db.useDataSource([Site, Page, Tag, Link, Comment, Section, Citation, Branch, Folder, Bookmark])
const { manager } = dataSource

const pageOf = async (id: number): Promise<Page> =>
  (await manager.findOneOrFail(Link, { where: { id }, relations: { page: true } })).page

test('a nested text that exists becomes its row, and one that does not is saved', async () => {
  const first = await saveFindingTexts(manager, Link, { page: { url: 'a' } })
  const second = await saveFindingTexts(manager, Link, { page: { url: 'a' }, note: 'again' })
  expect(second.page.id).toBe(first.page.id)
  expect(second.note).toBe('again')
  expect((await pageOf(second.id)).id).toBe(first.page.id)
  expect(await manager.count(Page)).toBe(1)
})

test('the row is left as it is, with its relations, and the object shows it', async () => {
  const { entity: page } = await findOrCreate(manager, Page, { url: 'a', title: 'first' })
  const other = await manager.save(Link, { page: { id: page.id } })
  const given = { page: { url: 'a', title: 'second', site: { host: 'new' }, links: [] } }
  const { page: found } = await saveFindingTexts(manager, Link, given)
  expect(found).toMatchObject({ id: page.id, title: 'first' })
  expect(await manager.find(Page)).toMatchObject([{ title: 'first' }])
  expect(await manager.count(Site)).toBe(0)
  expect((await pageOf(other.id)).id).toBe(page.id)
})

test('rows that exist are left as they are where they bring equal new texts', async () => {
  await findOrCreate(manager, Page, { url: 'a' })
  await findOrCreate(manager, Page, { url: 'b' })
  const given = ['a', 'b'].map((url) => ({ page: { url, site: { host: 'new' } } }))
  await saveFindingTexts(manager, Link, given)
  expect(await manager.count(Site)).toBe(0)
  expect(await manager.find(Page, { relations: { site: true } })).toMatchObject([{ site: null }, { site: null }])
})

test('objects below a row that exists stay as they were given', async () => {
  await findOrCreate(manager, Site, { host: 'h' })
  await findOrCreate(manager, Page, { url: 'a' })
  const site = { host: 'h' }
  const { page } = await saveFindingTexts(manager, Link, { page: { url: 'a', site } })
  expect(page).not.toHaveProperty('site')
  expect(site).toEqual({ host: 'h' })
})

test('new objects that are the scope of each other end as save ends them', async () => {
  const one: Partial<Folder> = { name: 'one' }
  one.parent = { name: 'other', parent: one } as Folder
  const error = await rejection(saveFindingTexts(manager, Bookmark, { folder: one as Folder }))
  expect(error).toMatchObject({ driverError: { code: '23502' } })
  expect(one).toEqual({ name: 'one', parent: { name: 'other', parent: one } })
})

test('equal new texts in one call are one row, in lists too', async () => {
  const links = await saveFindingTexts(manager, Link, [
    { page: { url: 'a', site: { host: 'h' } }, tags: [{ name: 'x' }, { name: 'y' }, { name: 'x' }] },
    { page: { url: 'a' }, tags: [{ name: 'y' }] },
    { page: { url: 'b', site: { host: 'h' } } },
  ])
  expect(links.map((link) => link.page.url)).toEqual(['a', 'a', 'b'])
  expect(links[0]?.tags).toHaveLength(2)
  expect([await manager.count(Page), await manager.count(Tag), await manager.count(Site)]).toEqual([2, 2, 1])
  await saveFindingTexts(manager, Link, { page: { url: 'a' }, tags: [{ name: 'x' }, { name: 'x' }] })
  expect(await manager.count(Tag)).toBe(2)
})

test('a text whose scope is the object that lists it', async () => {
  const link = await saveFindingTexts(manager, Link, { page: { url: 'a' }, comments: [{ text: 'c' }, { text: 'd' }] })
  const [comment] = link.comments
  await saveFindingTexts(manager, Link, { id: link.id, comments: [{ text: 'c' }, { text: 'd' }, { text: 'e' }] })
  expect(await manager.count(Comment)).toBe(3)
  expect(await manager.findOneByOrFail(Comment, { text: 'c' })).toMatchObject({ id: comment?.id })
})

test('equal new texts within one new object are one row', async () => {
  const site = (): { host: string } => ({ host: 'h' })
  const [one, other, third] = await saveFindingTexts(manager, Citation, [
    { section: { site: site(), path: 'a' } },
    { section: { site: site(), path: 'A' } },
    { section: { site: { host: 'another' }, path: 'a' } },
  ])
  expect(other?.section.id).toBe(one?.section.id)
  expect(third?.section.id).not.toBe(one?.section.id)
  expect([await manager.count(Site), await manager.count(Section)]).toEqual([2, 2])

  const { comments } = await saveFindingTexts(manager, Link, {
    page: { url: 'a' },
    comments: [{ text: 'x' }, { text: 'x' }, { text: 'y' }],
  })
  expect(comments.map(({ text }) => text)).toEqual(['x', 'y'])
  expect(await manager.count(Comment)).toBe(2)
})

test("the entity's own text is not found: saving it twice fails, as with save", async () => {
  await saveFindingTexts(manager, Page, { url: 'a', title: 'kept', site: { host: 'h' } })
  const error = await rejection(saveFindingTexts(manager, Page, { url: 'a', title: 'lost', site: { host: 'h' } }))
  expect(error).toMatchObject({ driverError: { code: '23505' } })
  expect(await manager.find(Page)).toMatchObject([{ title: 'kept' }])
})

test('an object with its key is the row of that key, whose text changes as with save, or is refused', async () => {
  const { entity: a } = await findOrCreate(manager, Page, { url: 'a', title: 'A' })
  const { entity: b } = await findOrCreate(manager, Page, { url: 'b', title: 'B' })
  const refused = await rejection(saveFindingTexts(manager, Link, { page: { id: b.id, url: 'a' } }))
  expect(refused).toMatchObject({ driverError: { code: '23505' } })
  await saveFindingTexts(manager, Link, { page: { id: b.id, url: 'c' } })
  expect(await manager.find(Page, { order: { id: 'asc' } })).toMatchObject([
    { id: a.id, url: 'a', title: 'A' },
    { id: b.id, url: 'c', title: 'B' },
  ])
  expect(await manager.count(Link)).toBe(1)
})

test('an entity of the call that another one brings is saved as it is', async () => {
  await findOrCreate(manager, Page, { url: 'a', title: 'kept' })
  const page = Object.assign(new Page(), { url: 'a', title: 'lost' })
  page.links = [Object.assign(new Link(), { page })]
  expect(await rejection(saveFindingTexts(manager, Page, page))).toMatchObject({ driverError: { code: '23505' } })
  expect(await manager.find(Page)).toMatchObject([{ title: 'kept' }])
})

test('instances, which stay the ones that were given', async () => {
  await findOrCreate(manager, Page, { url: 'a' })
  const page = Object.assign(new Page(), { url: 'a' })
  const link = Object.assign(new Link(), { page })
  page.links = [link]
  expect(await saveFindingTexts(manager, Link, link)).toBe(link)
  expect(link.page).toBe(page)
  expect(page.id).toBeTypeOf('number')
})

test('a tree, with the paths that save writes', async () => {
  await saveFindingTexts(manager, Branch, { name: 'root' })
  const leaf = await saveFindingTexts(manager, Branch, { name: 'leaf', parent: { name: 'root' } })
  const trees = await manager.getTreeRepository(Branch).findTrees()
  expect(trees).toMatchObject([{ name: 'root', children: [{ id: leaf.id, name: 'leaf' }] }])
})

describe('another session stores the text between the look-up and the save', () => {
  /** Calls while another transaction holds the text, which is committed once the call waits for it. */
  async function meet<T>(own: EntityManager, call: () => Promise<T>): Promise<T> {
    const other = await openSession(await db.client())
    const observer = await db.client()
    const [row] = await own.query<{ pid: number }[]>('SELECT pg_backend_pid() AS pid')
    await other.run('BEGIN')
    await other.run(`INSERT INTO page (url) VALUES ('a')`)
    const called = call()
    const statement = { outcome: called.then(() => undefined as never), ended: () => undefined }
    const session = { ...other, pid: row?.pid ?? 0 }
    expect(await endOrWait(observer, { session, statement })).toBe('waits')
    await other.run('COMMIT')
    return await called
  }

  test('outside a transaction, and it is found in the next attempt', async () => {
    const runner = dataSource.createQueryRunner()
    try {
      const own = runner.manager
      const link = await meet(own, async () => await saveFindingTexts(own, Link, { page: { url: 'a' } }))
      expect((await pageOf(link.id)).url).toBe('a')
    } finally {
      await runner.release()
    }
    expect([await manager.count(Page), await manager.count(Link)]).toEqual([1, 1])
  })

  test("in the caller's transaction, which goes on", async () => {
    await dataSource.transaction(async (own) => {
      await own.save(Tag, { name: 'before' })
      await meet(own, async () => await saveFindingTexts(own, Link, { page: { url: 'a' } }))
      await own.save(Tag, { name: 'after' })
    })
    expect([await manager.count(Page), await manager.count(Link), await manager.count(Tag)]).toEqual([1, 1, 2])
  })
})

test('if it fails, the objects are as they were, and the transaction goes on', async () => {
  await findOrCreate(manager, Page, { url: 'a', title: 'stored' })
  const given = { note: 'a\0b', page: { url: 'a', title: 'given', links: [] }, tags: [{ name: 'x' }, { name: 'x' }] }
  const before = structuredClone(given)
  await dataSource.transaction(async (own) => {
    await expect(saveFindingTexts(own, Link, given)).rejects.toBeInstanceOf(QueryFailedError)
    await own.save(Tag, { name: 'after' })
  })
  expect(given).toEqual(before)
  expect([await manager.count(Link), await manager.count(Tag)]).toEqual([0, 1])
})

test('if it fails, an object that was changed twice is as it was first', async () => {
  const section = (path: string): { path: string; site: { host: string } } => ({ path, site: { host: 'h' } })
  await saveFindingTexts(manager, Citation, [{ section: section('a') }, { section: section('b') }])
  const given = [
    { section: section('a') },
    { section: section('b') },
    { section: { path: 'c', site: { host: 'a\0b' } } },
  ]
  const sites = given.map((one) => one.section.site)
  const before = structuredClone(given)
  await rejection(saveFindingTexts(manager, Citation, given))
  const bad = [...given.slice(0, 2), { id: 'none' as unknown as number, section: section('b') }]
  expect(await rejection(saveFindingTexts(manager, Citation, bad))).toBeInstanceOf(QueryFailedError)
  expect(given).toEqual(before)
  expect(given.map((one) => one.section.site)).toEqual(sites)
  for (const [index, { section: one }] of given.entries()) expect(one.site).toBe(sites[index])
})

test('in a transaction that was begun by SQL', async () => {
  const runner = dataSource.createQueryRunner()
  try {
    await runner.query('BEGIN')
    await saveFindingTexts(runner.manager, Link, { page: { url: 'a' } })
    await runner.query('ROLLBACK')
  } finally {
    await runner.release()
  }
  expect(await manager.count(Link)).toBe(0)
})

test('what fails for another reason than a race is not tried again', async () => {
  const queries = await queriesOf(dataSource, async () => {
    // Greater than any integer.
    const failure = await rejection(saveFindingTexts(dataSource.manager, Page, { id: 2 ** 40, url: 'other reason' }))
    expect(failure).toMatchObject({ driverError: { code: '22003' } })
  })
  expect(queries.filter((sql) => sql === 'START TRANSACTION')).toHaveLength(1)
})
