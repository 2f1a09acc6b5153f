import type { DataSource, EntitySubscriberInterface } from 'typeorm'
import {
  BaseEntity,
  ChildEntity,
  Column,
  DeleteDateColumn,
  Entity,
  EventSubscriber,
  PrimaryColumn,
  PrimaryGeneratedColumn,
  TableInheritance,
  UpdateDateColumn,
  VersionColumn,
} from 'typeorm'
import { describe, expect, test } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany, UniqueText, uniqueTextMethods } from '../../../src'
import { meet } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { deleteDate, entity, text } from '../../support/entity'

const db = useDatabase()
const client = db.useClient()

@Entity()
class Page extends BaseEntity {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
  @UpdateDateColumn({ type: 'timestamptz' }) updatedAt!: Date
  @VersionColumn() version!: number
  @DeleteDateColumn({ type: 'timestamptz' }) deletedAt!: Date | null
}

const dataSource = db.useDataSource([Page])

/** A table with the pages `a`, deleted softly, and `b`. */
async function pages(): Promise<DataSource> {
  await dataSource.manager.save(Page, [
    { url: 'a', title: 'first' },
    { url: 'b', title: 'second' },
  ])
  await dataSource.manager.softDelete(Page, { url: 'a' })
  return dataSource
}

const taken = { code: 'TEXT_TAKEN', taken: [{ entity: 'Page', property: 'url', id: { id: 1 }, row: 0 }] }

describe('a softly deleted row that holds the text', () => {
  test("is returned as it is, which 'return' says too", async () => {
    const { manager } = await pages()
    for (const options of [{}, { deleted: 'return' } as const]) {
      const { entity, created } = await findOrCreate(manager, Page, { url: 'a', title: 'new' }, options)
      expect(entity).toMatchObject({ id: 1, title: 'first', deletedAt: expect.any(Date) as Date })
      expect(created).toBe(false)
    }
  })

  test("is restored as TypeORM's restore() does it, not created", async () => {
    const { manager } = await pages()
    const before = await manager.findOneByOrFail(Page, { url: 'b' })
    const deleted = await manager.findOneOrFail(Page, { where: { url: 'a' }, withDeleted: true })
    const { entity, created } = await findOrCreate(manager, Page, { url: 'a', title: 'new' }, { deleted: 'restore' })
    expect(created).toBe(false)
    expect(entity).toBeInstanceOf(Page)
    expect(entity).toMatchObject({ id: 1, title: 'first', deletedAt: null, version: 3 })
    expect(entity.updatedAt.getTime()).toBeGreaterThan(deleted.updatedAt.getTime())
    expect(await manager.findOneBy(Page, { url: 'a' })).toEqual(entity)
    expect(await findOrCreate(manager, Page, { url: 'b' }, { deleted: 'restore' })).toMatchObject({ entity: before })
  })

  test.each(['restore', 'throw'] as const)('is not one that the call itself creates deleted: %s', async (deleted) => {
    const { manager } = await pages()
    const values = { url: 'c', deletedAt: new Date(0) }
    expect(await findOrCreate(manager, Page, values, { deleted })).toMatchObject({ created: true, entity: values })
    const [many] = await findOrCreateMany(manager, Page, [{ ...values, url: 'd' }], { deleted })
    expect(many).toMatchObject({ created: true, entity: { deletedAt: values.deletedAt } })
  })

  test('is no missing row: create is not called for it', async () => {
    const { manager } = await pages()
    const create = (): never => {
      throw new Error('called')
    }
    expect(await findOrCreate(manager, Page, { url: 'a' }, { create, deleted: 'restore' })).toMatchObject({
      created: false,
      entity: { id: 1, title: 'first', deletedAt: null },
    })
    await manager.softDelete(Page, { url: 'a' })
    await expect(findOrCreate(manager, Page, { url: 'a' }, { create, deleted: 'throw' })).rejects.toMatchObject(taken)
  })

  test('is refused with its primary key, and stays as it is', async () => {
    const { manager } = await pages()
    const refused = findOrCreate(manager, Page, { url: 'a' }, { deleted: 'throw' })
    await expect(refused).rejects.toMatchObject(taken)
    await expect(refused).rejects.not.toThrow(/first/)
    expect(await findOrCreate(manager, Page, { url: 'b' }, { deleted: 'throw' })).toMatchObject({ created: false })
    expect(await findOrCreate(manager, Page, { url: 'c' }, { deleted: 'throw' })).toMatchObject({ created: true })
    expect(await manager.findOneBy(Page, { url: 'a' })).toBeNull()
  })

  test("is treated so by a repository's methods and in active-record style", async () => {
    const dataSource = await pages()
    const repository = dataSource.getRepository(Page).extend(uniqueTextMethods)
    await expect(repository.findOrCreate({ url: 'a' }, { deleted: 'throw' })).rejects.toMatchObject(taken)
    expect(await repository.findOrCreate({ url: 'a' }, { deleted: 'restore' })).toMatchObject({ entity: { id: 1 } })
  })

  test('is treated row by row in a list, in which every error says which row it is about', async () => {
    const { manager } = await pages()
    const inputs = ['b', 'a', 'c', 'a'].map((url) => ({ url }))
    const refused = await findOrCreateMany(manager, Page, inputs, { deleted: 'throw' })
    expect(refused).toMatchObject([
      { created: false },
      { error: { code: 'TEXT_TAKEN', taken: [{ id: { id: 1 }, row: 1 }] } },
      { created: true },
      { error: { code: 'TEXT_TAKEN' } },
    ])
    const restored = await findOrCreateMany(manager, Page, inputs, { deleted: 'restore' })
    expect(restored).toMatchObject([2, 1, 3, 1].map((id) => ({ created: false, entity: { id, deletedAt: null } })))
    expect(await manager.count(Page)).toBe(3)
  })

  test('is looked up as find does it: hidden, but with withDeleted', async () => {
    const { manager } = await pages()
    expect(await findOneByText(manager, Page, { url: 'a' })).toBeNull()
    expect(await findOneByText(manager, Page, { url: 'a' }, { withDeleted: true })).toMatchObject({ id: 1 })
    expect(await findOneByText(manager, Page, { url: 'b' }, { withDeleted: true })).toMatchObject({ id: 2 })
  })

  test('is known to be deleted where the delete date is not selected', async () => {
    @Entity('silent')
    class Silent {
      @PrimaryColumn({ type: 'text' }) key!: string
      @UniqueText() url!: string
      @DeleteDateColumn({ select: false }) deletedAt!: Date | null
    }
    const { manager } = await db.dataSource([Silent])
    await manager.insert(Silent, { key: 'k', url: 'a' })
    await manager.softDelete(Silent, 'k')
    expect(await findOneByText(manager, Silent, { url: 'a' })).toBeNull()
    await expect(findOrCreate(manager, Silent, { key: 'l', url: 'a' }, { deleted: 'throw' })).rejects.toMatchObject({
      taken: [{ entity: 'Silent', property: 'url', id: { key: 'k' }, row: 0 }],
    })
    const { entity } = await findOrCreate(manager, Silent, { key: 'l', url: 'a' }, { deleted: 'restore' })
    expect(entity).toEqual({ key: 'k', url: 'a' })
    expect(await manager.findOneBy(Silent, { url: 'a' })).toEqual(entity)
    // And it is not any more.
    expect(await findOneByText(manager, Silent, { url: 'a' })).toEqual(entity)
    const again = await findOrCreate(manager, Silent, { key: 'm', url: 'a' }, { deleted: 'throw' })
    expect(again).toMatchObject({ entity, created: false })
  })

  test('of another class of the table is not restored, and named as one of its class', async () => {
    const Thing = entity('Thing', { name: text(), deletedAt: deleteDate() })
    TableInheritance({ column: { type: 'varchar', name: 'kind' } })(Thing)
    @ChildEntity()
    class Cat extends Thing {}
    @ChildEntity()
    class Dog extends Thing {}
    const { manager } = await db.dataSource([Thing, Cat, Dog])
    await manager.save(Cat, { name: 'a' })
    await manager.softDelete(Cat, { name: 'a' })
    for (const deleted of ['restore', 'throw'] as const) {
      await expect(findOrCreate(manager, Dog, { name: 'a' }, { deleted })).rejects.toMatchObject({
        code: 'TEXT_TAKEN',
        taken: [{ entity: 'Cat', property: 'name', id: { id: 1 } }],
      })
    }
    expect(await manager.countBy(Thing, { name: 'a' })).toBe(0)
    expect(await findOrCreate(manager, Cat, { name: 'a' }, { deleted: 'restore' })).toMatchObject({ created: false })
  })
})

describe('the option is refused', () => {
  const Without = entity('Without', { url: text() })
  const Ignoring = entity('Ignoring', { url: text({ ignoreDeleted: true }), deletedAt: deleteDate() })

  test.each([
    [Without, /@DeleteDateColumn/],
    [Ignoring, /ignoreDeleted/],
  ])('for %o, where no deleted row holds a text', async (entity, message) => {
    const { manager } = await db.dataSource([entity])
    const calls = (['restore', 'throw'] as const).flatMap((deleted) => [
      findOrCreate(manager, entity, { url: 'a' }, { deleted }),
      findOrCreateMany(manager, entity, [{ url: 'a' }], { deleted }),
    ])
    for (const call of [...calls, findOneByText(manager, entity, { url: 'a' }, { withDeleted: true })]) {
      await expect(call).rejects.toMatchObject({
        code: 'INVALID_DECLARATION',
        message: expect.stringMatching(message) as string,
      })
    }
    expect(await findOrCreate(manager, entity, { url: 'a' }, { deleted: 'return' })).toMatchObject({ created: true })
  })
})

test("subscribers hear of a restore as of TypeORM's restore(), and of nothing where a row is only found", async () => {
  const heard: string[] = []
  @EventSubscriber()
  class Listener implements EntitySubscriberInterface<Page> {
    listenTo(): typeof Page {
      return Page
    }
    beforeRecover(): void {
      heard.push('before')
    }
    afterRecover(): void {
      heard.push('after')
    }
    afterLoad({ deletedAt }: Page): void {
      heard.push(`load ${String(deletedAt)}`)
    }
  }
  const { manager } = await db.dataSource([Page], { subscribers: [Listener] })
  const page = await manager.save(Page, { url: 'a' })
  await manager.softDelete(Page, page.id)
  await findOrCreate(manager, Page, { url: 'a' }, { deleted: 'restore' })
  expect(heard).toEqual(['before', 'after', 'load null'])
  await findOrCreate(manager, Page, { url: 'a' }, { deleted: 'restore' })
  expect(heard.slice(3)).toEqual(['load null'])
})

describe('a race', () => {
  test('of two restores: both get the row, restored once', async () => {
    const { manager } = await pages()
    const create = (): never => {
      throw new Error('the row is not missing')
    }
    const theirs = `update page set "deletedAt" = null, version = version + 1 where url = 'a'`
    const call = (): Promise<unknown> => findOrCreate(manager, Page, { url: 'a' }, { create, deleted: 'restore' })
    const result = await meet({ other: await db.client(), observer: client }, theirs, call)
    expect(result).toMatchObject({ created: false, entity: { id: 1, deletedAt: null, version: 3 } })
  })

  test('with a delete between the hit and the restore: the row is created anew', async () => {
    const { manager } = await pages()
    const call = (): Promise<unknown> => findOrCreate(manager, Page, { url: 'a', title: 'new' }, { deleted: 'restore' })
    const sessions = { other: await db.client(), observer: client }
    const result = await meet(sessions, `delete from page where url = 'a'`, call)
    expect(result).toMatchObject({ created: true, entity: { title: 'new', deletedAt: null } })
  })

  test('in a transaction above READ COMMITTED ends as TransactionAbortedError, as every lost one', async () => {
    const { manager } = await pages()
    const lost = manager.transaction('REPEATABLE READ', async (inner) => {
      await inner.query('select 1')
      await inner.count(Page)
      await client.query(`update page set "deletedAt" = null where url = 'a'`)
      await findOrCreate(inner, Page, { url: 'a' }, { deleted: 'restore' })
    })
    await expect(lost).rejects.toMatchObject({ code: 'TRANSACTION_ABORTED' })
  })
})

test("in the caller's transaction a restore is undone with it, and an error of the restore leaves it usable", async () => {
  const { manager } = await pages()
  await manager
    .transaction(async (inner) => {
      await findOrCreate(inner, Page, { url: 'a' }, { deleted: 'restore' })
      throw new Error('undo')
    })
    .catch(() => undefined)
  expect(await findOneByText(manager, Page, { url: 'a' })).toBeNull()

  await client.query('create unique index on page (title) where "deletedAt" is null')
  await client.query(`update page set title = 'second'`)
  await manager.transaction(async (inner) => {
    const refused = findOrCreate(inner, Page, { url: 'a' }, { deleted: 'restore' })
    await expect(refused).rejects.toMatchObject({ driverError: { code: '23505' } })
    expect(await inner.count(Page)).toBe(1)
  })
})
