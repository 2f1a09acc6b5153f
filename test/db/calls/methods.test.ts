import { Column, Entity, JoinColumn, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { UniqueText, UniqueTextEntity, uniqueTextMethods } from '../../../src'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'

const db = useDatabase()

@Entity()
class Author extends UniqueTextEntity {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() name!: string
}

/** Two texts, so that `by` must arrive. */
@Entity()
class Page extends UniqueTextEntity {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
  @UniqueText({ nullable: true }) slug!: string | null
  @Column({ type: 'text', nullable: true }) title!: string | null
  @ManyToOne(() => Author, { nullable: true }) @JoinColumn() author!: Author | null
  @Column({ type: 'integer', nullable: true }) authorId!: number | null
}
let authorId: number
const dataSource = db.useDataSource([Author, Page])

beforeAll(async () => {
  Author.useDataSource(dataSource)
  Page.useDataSource(dataSource)
})
beforeEach(async () => {
  authorId = (await Author.findOrCreate({ name: 'Ann' })).entity.id
})

const repository = () => dataSource.getRepository(Page).extend(uniqueTextMethods)
// Their types are compared in test/types.
const ways: Readonly<Record<string, typeof repository>> = {
  'a repository': repository,
  'the class of the entity': () => Page as unknown as ReturnType<typeof repository>,
}

describe.each(Object.entries(ways))('by %s, with the same options', (_, pages) => {
  test('findOrCreate', async () => {
    const options = { by: 'url', create: () => ({ title: 'x' }), relations: { author: true } } as const
    const result = await pages().findOrCreate({ url: 'a', authorId }, options)
    expect(result).toMatchObject({ created: true, entity: { title: 'x', author: { name: 'Ann' } } })
    expect(result.entity).toBeInstanceOf(Page)
    expect(String(await rejection(pages().findOrCreate({ url: 'a' })))).toContain('Name one with the option "by"')
  })

  test('findOrCreateMany', async () => {
    await pages().findOrCreate({ url: 'a', authorId }, { by: 'url' })
    const results = await pages().findOrCreateMany([{ url: 'a' }, { url: 'b' }], {
      by: 'url',
      create: (values, index) => ({ title: `${values.url}${index}` }),
      relations: ['author'],
    })
    expect(results).toMatchObject([
      { created: false, entity: { title: null, author: { name: 'Ann' } } },
      { created: true, entity: { title: 'b1', author: null } },
    ])
  })

  test('findOneByText', async () => {
    await pages().findOrCreate({ url: 'a', slug: 's', authorId }, { by: 'url' })
    const options = { by: 'slug', relations: { author: true }, relationLoadStrategy: 'query', replica: true } as const
    expect(await pages().findOneByText({ slug: 's' }, options)).toMatchObject({ url: 'a', author: { name: 'Ann' } })
    expect(await pages().findOneByText({ slug: 'a' }, options)).toBeNull()
  })

  test('existsByText, countByText and deleteByText', async () => {
    await pages().findOrCreate({ url: 'a', slug: 's' }, { by: 'url' })
    const by = { by: 'slug' } as const
    expect(await pages().existsByText({ slug: 's' }, { ...by, replica: true })).toBe(true)
    expect(await pages().countByText([{ slug: 's' }, { slug: 'a' }], { ...by, replica: true })).toBe(1)
    expect(await pages().deleteByText({ slug: 's' }, by)).toBe(true)
    expect(await pages().existsByText({ slug: 's' }, by)).toBe(false)
  })

  test('upsertByText, insertOrFail and updateOrFail', async () => {
    await pages().upsertByText({ url: 'a', title: 'x' }, { by: 'url' })
    const upserted = await pages().upsertByText(
      { url: 'a', title: 'y', authorId },
      { by: 'url', relations: ['author'] },
    )
    expect(upserted).toMatchObject({ created: false, entity: { title: 'y', author: { name: 'Ann' } } })
    const [many] = await pages().upsertByText([{ url: 'a', title: 'z' }], { by: 'url', update: ['title'] })
    expect(many).toMatchObject({ created: false, entity: { title: 'z' } })
    expect(await rejection(pages().insertOrFail({ url: 'a' }))).toMatchObject({ code: 'TEXT_TAKEN' })
    const { id } = await pages().insertOrFail({ url: 'b' })
    expect(await pages().insertOrFail([{ url: 'c' }])).toMatchObject([{ url: 'c' }])
    const taken = [{ id: { id: upserted.entity.id } }]
    expect(await rejection(pages().updateOrFail(id, { url: 'a' }))).toMatchObject({ code: 'TEXT_TAKEN', taken })
    expect(await pages().updateOrFail({ id }, { url: 'd' })).toMatchObject({ id, url: 'd' })
    const swapped = [
      { id, url: 'a' },
      { id: upserted.entity.id, url: 'd' },
    ]
    expect(await pages().updateOrFail(swapped)).toMatchObject(swapped)
  })
})

test('a repository of a transaction keeps to it', async () => {
  await dataSource.transaction(async (manager) => {
    const pages = manager.getRepository(Page).extend(uniqueTextMethods)
    const create = async () => {
      await pages.findOrCreate({ url: 'b' }, { by: 'url' })
      return { title: 'x' }
    }
    await pages.findOrCreate({ url: 'a' }, { by: 'url', create })
    expect(await dataSource.getRepository(Page).count()).toBe(0)
  })
  expect(await Page.count()).toBe(2)
})
