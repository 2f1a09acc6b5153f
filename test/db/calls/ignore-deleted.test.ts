import type { Relation } from 'typeorm'
import {
  BaseEntity,
  ChildEntity,
  DefaultNamingStrategy,
  DeleteDateColumn,
  Entity,
  EntitySchema,
  Index,
  In,
  ManyToOne,
  PrimaryGeneratedColumn,
  QueryFailedError,
  TableInheritance,
  Unique,
} from 'typeorm'
import { describe, expect, test } from 'vitest'
import {
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  UniqueText,
  uniqueTextSchema,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { trim } from '../../../src/text'
import { textCondition, textEquals } from '../../../src/typeorm-calls'
import { textsOfEntity } from '../../../src/registry/registry'
import { useDatabase } from '../../support/database'
import { takenBy } from '../../support/results'
import { column, deleteDate, entity, plain, text, toOne } from '../../support/entity'
import { generate, runAll } from '../../support/generated'
import { fewHashes } from '../../support/digests'

const db = useDatabase()
const client = db.useClient()

const Page = entity('Page', { url: text({ normalize: trim(), ignoreDeleted: true }), deletedAt: deleteDate() })
type Page = InstanceType<typeof Page>
const Scoped = entity('Scoped', {
  tenant: column('integer'),
  url: text({ scope: ['tenant'], ignoreDeleted: true }),
  deletedAt: deleteDate(),
})

/** Every text in one of two chains. */
const Colliding = entity('Colliding', {
  url: text({ ignoreDeleted: true, digest: fewHashes(2) }),
  deletedAt: deleteDate(),
})

class SnakeNames extends DefaultNamingStrategy {
  override columnName(property: string, given: string, prefixes: string[]): string {
    return super.columnName(property, given, prefixes).replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
  }
}

const Link = entity('Link', { page: toOne(() => Page) })
const Fixed = entity('Fixed', {
  url: text({ ignoreDeleted: true, immutable: true, nullable: true }),
  deletedAt: deleteDate(),
})

const dataSource = db.useDataSource([Page, Scoped, Colliding, Link, Fixed])
const { manager } = dataSource

const taken = { code: 'TEXT_TAKEN' }

describe('a softly deleted row', () => {
  test('frees its text: another row takes it, and a look-up gives that one', async () => {
    const { entity: first } = await findOrCreate(manager, Page, { url: 'a' })
    await manager.softRemove(Page, first)
    expect(await findOneByText(manager, Page, { url: 'a' })).toBeNull()

    const second = await findOrCreate(manager, Page, { url: 'a' })
    expect(second).toMatchObject({ created: true, entity: { deletedAt: null } })
    expect(second.entity.id).not.toBe(first.id)
    expect(await findOneByText(manager, Page, { url: ' a ' })).toEqual(second.entity)
    expect(await manager.save(Page, { url: 'b' })).toMatchObject({ url: 'b' })
    await expect(manager.save(Page, { url: 'a' })).rejects.toMatchObject(taken)
  })

  test('is not restored while another row holds its text, whichever way, and is once that row is gone', async () => {
    const first = await manager.save(Page, { url: 'a' })
    await manager.softDelete(Page, first.id)
    const second = await manager.save(Page, { url: 'a' })
    const held = { code: 'TEXT_TAKEN', taken: [{ entity: 'Page', property: 'url', id: { id: second.id }, row: 0 }] }
    await expect(manager.restore(Page, first.id)).rejects.toMatchObject(held)
    await expect(manager.recover(Page, first)).rejects.toMatchObject(held)
    await expect(manager.update(Page, first.id, { deletedAt: null })).rejects.toMatchObject(held)
    await expect(manager.save(Page, { id: first.id, deletedAt: null })).rejects.toMatchObject(held)
    const inTransaction = manager.transaction((inner) => inner.restore(Page, { url: 'a' }))
    await expect(inTransaction).rejects.toMatchObject(held)
    await expect(manager.restore(Page, first.id)).rejects.toBeInstanceOf(QueryFailedError)
    await manager.softDelete(Page, second.id)
    await manager.restore(Page, first.id)
    expect(await findOneByText(manager, Page, { url: 'a' })).toMatchObject({ id: first.id })
  })

  test('names no holder where a deleted row with another text of equal hash could be meant', async () => {
    const texts = ['text 0', 'text 1', 'text 2']
    const given = (): { url: string }[] => texts.map((url) => ({ url }))
    const rows = await manager.save(Colliding, given())
    await manager.softDelete(Colliding, { url: In(texts) })
    await manager.save(Colliding, given())
    const named: (string | undefined)[] = []
    for (const { id, url } of rows) {
      const error = await takenBy(manager.restore(Colliding, id))
      expect(error).toMatchObject({ code: 'TEXT_TAKEN', taken: [{ property: 'url' }] })
      const [holder] = error.taken
      const holding = holder?.id ? (await manager.findOneBy(Colliding, holder.id))?.url : undefined
      named.push(holding === undefined || holding === url ? holding : `${holding} in place of ${url}`)
    }
    expect(named.filter((one) => one?.includes('in place of'))).toEqual([])
    expect(named).toContain(undefined)
  })

  test('is found by nobody in a batch, which creates its text again', async () => {
    await manager.save(Page, [{ url: 'a' }, { url: 'b' }])
    await manager.softDelete(Page, { url: 'a' })
    const results = await findOrCreateMany(manager, Page, [{ url: 'a' }, { url: 'b' }, { url: 'c' }])
    expect(results.map((one) => 'created' in one && one.created)).toEqual([true, false, true])
    expect(await manager.count(Page, { withDeleted: true })).toBe(4)
  })

  test('can be many with one text, with any value as delete date, and be stored as such', async () => {
    const [past, future] = [new Date('2001-02-03'), new Date('2999-01-01')]
    await manager.insert(Page, [
      { url: 'a', deletedAt: past },
      { url: 'a', deletedAt: future },
    ])
    await client.query(`insert into page (url, "deletedAt") values ('a', '-infinity')`)
    expect(await findOrCreate(manager, Page, { url: 'a' })).toMatchObject({ created: true })
    const created = await findOrCreate(manager, Page, { url: 'z', deletedAt: future })
    expect(created).toMatchObject({ created: true, entity: { deletedAt: future } })
    const batch = await findOrCreateMany(manager, Page, [{ url: 'y', deletedAt: past }, { url: 'x' }])
    expect(batch).toMatchObject([{ created: true }, { created: true }])
    expect(await manager.count(Page, { where: { url: 'y' }, withDeleted: true })).toBe(1)
  })

  test('may change its text, and is placed by it when it is restored', async () => {
    const page = await manager.save(Page, { url: 'a' })
    await manager.softDelete(Page, page.id)
    await manager.update(Page, page.id, { url: 'b' })
    await manager.save(Page, { url: 'a' })
    await manager.restore(Page, page.id)
    expect(await findOneByText(manager, Page, { url: 'b' })).toMatchObject({ id: page.id })
    await expect(
      client.query(`update page set "urlHash" = md5('c')::uuid, url = 'b' where id = 1`),
    ).resolves.toBeTruthy()
  })
})

test('upsertByText updates the live row, and creates one beside a deleted row', async () => {
  await manager.save(Page, [{ url: 'a' }, { url: 'b' }])
  await manager.softDelete(Page, { url: 'a' })
  const results = await upsertByText(manager, Page, [{ url: 'a' }, { url: 'b' }])
  expect(results).toMatchObject([{ created: true }, { created: false, entity: { id: 2 } }])
})

test('insertOrFail and updateOrFail take no deleted row for a holder', async () => {
  const [first] = await manager.save(Page, [{ url: 'a' }, { url: 'b' }])
  await manager.softDelete(Page, { url: 'a' })
  const second = await insertOrFail(manager, Page, { url: 'a' })
  await manager.softDelete(Page, { url: 'a' })
  expect(await updateOrFail(manager, Page, 2, { url: 'a' })).toMatchObject({ url: 'a' })
  await expect(insertOrFail(manager, Page, [{ url: 'c' }, { url: 'a' }])).rejects.toMatchObject({
    code: 'TEXT_TAKEN',
    taken: [{ property: 'url', id: { id: 2 }, row: 1 }],
  })
  const rows = [{ url: 'b' }, { url: 'a', deletedAt: new Date() }, { url: 'a' }]
  await expect(insertOrFail(manager, Page, rows)).rejects.toHaveProperty('taken', [
    { entity: 'Page', property: 'url', id: { id: 2 }, row: 2 },
  ])
  expect([first?.id, second.id]).not.toContain(2)
})

test('a row that cannot move to another scope, for its text is taken there, names the text alone', async () => {
  const rows = [1, 2].map((tenant) => ({ tenant, url: 'a' }))
  const [first, second] = await insertOrFail(manager, Scoped, rows)
  const { taken } = await takenBy(updateOrFail(manager, Scoped, first?.id ?? 0, { tenant: 2 }))
  expect(taken).toEqual([{ entity: 'Scoped', property: 'url', id: { id: second?.id }, row: 0 }])
})

describe('what is declared', () => {
  test('makes a partial index, which TypeORM leaves alone', async () => {
    const { rows } = await client.query<{ definition: string }>(
      `select pg_get_indexdef(indexrelid) as definition from pg_index where indpred is not null and indrelid = 'page'::regclass`,
    )
    expect(rows).toEqual([{ definition: expect.stringMatching(/UNIQUE.* WHERE \("deletedAt" IS NULL\)$/) as string }])
    expect(await generate(dataSource)).toEqual({ up: [], down: [] })
  })

  test.each(['plain', 'Not (plain) IS NULL', "it's gone"])('takes a delete date called %j', async (name) => {
    @Entity(`named_${name.length}`)
    class Named {
      @PrimaryGeneratedColumn('identity') id!: number
      @UniqueText({ ignoreDeleted: true }) url!: string
      @DeleteDateColumn({ name }) gone!: Date | null
    }
    const dataSource = await db.dataSource([Named])
    expect(await generate(dataSource)).toEqual({ up: [], down: [] })
    const { entity } = await findOrCreate(dataSource.manager, Named, { url: 'a' })
    await dataSource.manager.softRemove(entity)
    expect(await findOrCreate(dataSource.manager, Named, { url: 'a' })).toMatchObject({ created: true })
  })

  test('works in a scope that is a relation, by a naming strategy, in active-record style', async () => {
    @Entity()
    class Site extends BaseEntity {
      @PrimaryGeneratedColumn('identity') id!: number
    }
    @Entity()
    class SitePage extends BaseEntity {
      @PrimaryGeneratedColumn('identity') id!: number
      @ManyToOne(() => Site, { nullable: false }) homeSite!: Relation<Site>
      @UniqueText({ ignoreDeleted: true, scope: ['homeSite'] }) pageUrl!: string
      @DeleteDateColumn() deletedAt!: Date | null
    }
    const { manager } = await db.dataSource([Site, SitePage], { namingStrategy: new SnakeNames() })
    const one = await manager.save(new Site())
    const pages = [one, await manager.save(new Site())].map((homeSite) => ({ homeSite, pageUrl: 'a' }))
    await findOrCreateMany(manager, SitePage, pages)
    await SitePage.getRepository().softDelete({ homeSite: { id: one.id } })
    const again = await findOrCreateMany(manager, SitePage, pages)
    expect(again.map((each) => 'created' in each && each.created)).toEqual([true, false])
    await expect(SitePage.getRepository().restore({ homeSite: { id: one.id } })).rejects.toMatchObject(taken)
  })

  test('works for one class of single table inheritance, and for an EntitySchema', async () => {
    const Thing = entity('Thing', { deletedAt: deleteDate() })
    TableInheritance({ column: { type: 'varchar', name: 'kind' } })(Thing)
    @ChildEntity()
    class Named extends Thing {
      @UniqueText({ ignoreDeleted: true }) name!: string
    }
    const Book = new EntitySchema<{ id: number; title: string; removed: Date | null }>(
      uniqueTextSchema(
        {
          name: 'book',
          columns: {
            id: { type: Number, primary: true, generated: true },
            title: { type: 'text' },
            removed: { type: 'timestamptz', deleteDate: true },
          },
        },
        { title: { ignoreDeleted: true } },
      ),
    )
    const dataSource = await db.dataSource([Thing, Named, Book])
    const { manager } = dataSource
    expect(await generate(dataSource)).toEqual({ up: [], down: [] })
    const { entity: name } = await findOrCreate(manager, Named, { name: 'a' })
    await manager.softRemove(name)
    expect(await findOrCreate(manager, Named, { name: 'a' })).toMatchObject({ created: true })
    await findOrCreate(manager, Book, { title: 'a' })
    await manager.softDelete(Book, { title: 'a' })
    expect(await findOrCreate(manager, Book, { title: 'a' })).toMatchObject({ created: true })
  })

  test("stands beside a text that a deleted row keeps, and a unique index of the user's", async () => {
    const Mixed = entity('Mixed', {
      url: text({ ignoreDeleted: true }),
      handle: text(),
      code: column('integer'),
      deletedAt: deleteDate(),
    })
    Index(['code'], { unique: true })(Mixed)
    const { manager } = await db.dataSource([Mixed])
    const first = await findOrCreate(manager, Mixed, { url: 'a', handle: 'h', code: 1 }, { by: 'url' })
    await manager.softRemove(first.entity)
    await expect(findOrCreate(manager, Mixed, { url: 'a', handle: 'h', code: 2 }, { by: 'url' })).rejects.toMatchObject(
      { driverError: { code: '23505' } },
    )
    const kept = await findOrCreate(manager, Mixed, { url: 'a', handle: 'h', code: 3 }, { by: 'handle' })
    expect(kept).toMatchObject({ created: false, entity: { id: first.entity.id } })
    const next = await findOrCreate(manager, Mixed, { url: 'a', handle: 'i', code: 4 }, { by: 'url' })
    expect(next).toMatchObject({ created: true })
  })

  test('is refused without a delete date', async () => {
    const Without = entity('Without', { url: text({ ignoreDeleted: true }) })
    await expect(db.dataSource([Without])).rejects.toMatchObject({
      code: 'INVALID_DECLARATION',
      message: expect.stringContaining('@DeleteDateColumn') as string,
    })
  })
})

describe('the index', () => {
  test('made by hand over all rows is drift, and is made again by a migration', async () => {
    const dataSource = await db.dataSource([Page], { synchronize: false })
    const { index } = textsOfEntity(dataSource.getMetadata(Page))[0]?.table ?? { index: '' }
    await client.query(`drop index "${index}"; create unique index "${index}" on page ("urlHash", "urlHashNumber")`)
    await expect(findOrCreate(dataSource.manager, Page, { url: 'a' })).rejects.toMatchObject({
      code: 'SCHEMA_DRIFT',
      findings: [{ kind: 'different', object: 'index', name: index }],
    })
    await runAll(dataSource, (await generate(dataSource)).up)
    expect(await findOrCreate(dataSource.manager, Page, { url: 'a' })).toMatchObject({ created: true })
    expect(await generate(dataSource)).toEqual({ up: [], down: [] })
  })

  test('and a text that no live row holds is not found by textCondition, whatever the query reads', async () => {
    const page = await manager.save(Page, { url: 'a' })
    await manager.save(Link, { page })
    const condition = textCondition(manager, Page, 'p', { url: 'a' })
    const pages = manager.createQueryBuilder(Page, 'p').withDeleted()
    const links = manager.createQueryBuilder(Link, 'l').withDeleted()
    pages.where(...condition)
    links.innerJoin('l.page', 'p', ...condition)
    const count = async (): Promise<readonly number[]> => [await pages.getCount(), await links.getCount()]
    expect(await count()).toEqual([1, 1])
    await manager.softDelete(Page, { url: 'a' })
    expect(await count()).toEqual([0, 0])
  })

  test('is no hindrance to conditions that mean deleted rows too: their hash is that of their text', async () => {
    await manager.save(Page, { url: 'a' })
    await manager.softDelete(Page, { url: 'a' })
    expect(await manager.findOneBy(Page, { url: 'a' })).toBeNull()
    expect(await manager.findOne(Page, { where: { url: 'a' }, withDeleted: true })).toMatchObject({ id: 1 })
    expect(await manager.restore(Page, { url: textEquals('a') })).toMatchObject({ affected: 1 })
    await manager.softDelete(Page, { url: 'a' })
    expect(await manager.delete(Page, { url: 'a' })).toMatchObject({ affected: 1 })
  })
})

describe('an immutable text of a table with soft deletes', () => {
  test('may not move to another scope, neither deleted nor in the statement that restores it', async () => {
    const Moved = entity('Moved', {
      tenant: column('integer'),
      url: text({ ignoreDeleted: true, immutable: true, scope: ['tenant'] }),
      deletedAt: deleteDate(),
    })
    const { manager } = await db.dataSource([Moved])
    await manager.save(Moved, { url: 'a', tenant: 1 })
    await expect(client.query('update moved set tenant = 2')).rejects.toMatchObject({ code: 'UT001' })
    await manager.softDelete(Moved, { url: 'a' })
    for (const change of ['tenant = 2', 'tenant = 2, "deletedAt" = null']) {
      await expect(client.query(`update moved set ${change}`)).rejects.toMatchObject({ code: 'UT001' })
    }
    await client.query('update moved set tenant = 1, "deletedAt" = null')
    expect(await manager.countBy(Moved, { url: 'a', tenant: 1 })).toBe(1)
  })

  test('may be deleted and restored, which is no change of it', async () => {
    const rows = await manager.save(Fixed, [{ url: 'a' }, { url: null }])
    await manager.softRemove(Fixed, rows)
    await manager.recover(Fixed, rows)
    expect(await findOneByText(manager, Fixed, { url: 'a' })).toMatchObject({ id: rows[0]?.id })
  })

  test('may not change, neither deleted nor in the statement that restores it', async () => {
    await manager.save(Fixed, { url: 'a' })
    await manager.softDelete(Fixed, { url: 'a' })
    for (const change of [`url = 'b'`, `url = 'b', "deletedAt" = null`]) {
      await expect(client.query(`update fixed set ${change}`)).rejects.toMatchObject({ code: 'UT001' })
    }
  })
})

test('a deferrable constraint of the table hinders no create', async () => {
  const Post = entity('Post', { url: text({ ignoreDeleted: true }), slug: plain(), deletedAt: deleteDate() })
  Unique(['slug'], { deferrable: 'INITIALLY IMMEDIATE' })(Post)
  const { manager } = await db.dataSource([Post])
  for (const created of [true, false]) {
    expect(await findOrCreate(manager, Post, { url: 'a', slug: 'a' })).toMatchObject({ created })
    expect(await findOrCreateMany(manager, Post, [{ url: 'b' }, { url: 'c' }])).toMatchObject([
      { created },
      { created },
    ])
    expect(await upsertByText(manager, Post, { url: 'd', slug: 'd' })).toMatchObject({ created })
  }
})

test('a full chain counts the rows that hold their texts, and refuses to restore one more', async () => {
  const Short = entity('Short', {
    url: text({ ignoreDeleted: true, digest: fewHashes(1), maxChainLength: 2 }),
    deletedAt: deleteDate(),
  })
  const { manager } = await db.dataSource([Short])
  for (const url of ['a', 'b']) await findOrCreate(manager, Short, { url })
  await manager.softDelete(Short, { url: 'a' })
  expect(await findOrCreate(manager, Short, { url: 'c' })).toMatchObject({ created: true })
  await expect(manager.restore(Short, { url: 'a' })).rejects.toMatchObject({ code: 'CHAIN_LIMIT' })
})

test('a row of the snapshot that others have deleted softly is no second row, and the call says that its snapshot is old', async () => {
  const old = await findOrCreate(dataSource.manager, Page, { url: 'a' })
  const lost = dataSource.transaction('REPEATABLE READ', async (manager) => {
    await manager.count(Page)
    // No key of a table changes with it: the unique index has a condition.
    await dataSource.manager.softDelete(Page, old.entity.id)
    await insertOrFail(manager, Page, { url: 'a' })
    await findOrCreate(manager, Page, { url: 'a' })
  })
  await expect(lost).rejects.toMatchObject({ code: 'TRANSACTION_ABORTED' })
})
