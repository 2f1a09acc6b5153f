/** What Django, Rails, Ecto and Sequelize check of objects within objects, asked of ours. */
import type { Relation } from 'typeorm'
import { Column, Entity, JoinTable, ManyToMany, ManyToOne, OneToMany, PrimaryGeneratedColumn } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { DeclarationError, findOrCreate, findOrCreateMany, insertOrFail, UniqueText } from '../../../src'
import { useDatabase } from '../../support/database'
import { Author } from '../../support/entities'
import { entity, text } from '../../support/entity'

const Tag = entity('Tag', { text: text() })
type Tag = InstanceType<typeof Tag>

@Entity()
class Post {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() title!: string
  @ManyToOne(() => Author, { nullable: true }) author!: Relation<Author> | null
  @ManyToMany(() => Tag) @JoinTable() tags!: Relation<Tag>[]
  @OneToMany(() => Remark, (remark) => remark.post) remarks!: Relation<Remark>[]
}

/** Has no unique text. */
@Entity()
class Remark {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @Column({ type: 'text' }) body!: string
  @ManyToOne(() => Post, (post) => post.remarks, { nullable: true }) post!: Relation<Post> | null
}

const db = useDatabase()
const dataSource = db.useDataSource([Tag, Author, Post, Remark])
const { manager } = dataSource

const nested = { relations: 'findOrCreate' } as const
const stored = (): Promise<Post[]> =>
  dataSource.manager.find(Post, {
    relations: { author: true, tags: true, remarks: true },
    order: { title: 'ASC', tags: { text: 'ASC' } },
  })

describe('Django', () => {
  test.each([{ author: { name: 'new' } }, { tags: [{ text: 'new' }] }, { remarks: [{ body: 'new' }] }])(
    'unsaved_parent: prohibited, for it would be lost: %j',
    async (values) => {
      const call = findOrCreate(dataSource.manager, Post, { title: 'a', ...values })
      await expect(call).rejects.toBeInstanceOf(DeclarationError)
      await expect(call).rejects.toThrow(Object.keys(values)[0])
      expect(await stored()).toEqual([])
    },
  )

  test('create_get_or_create through a many-to-many: the tag is made, and linked', async () => {
    const { entity } = await findOrCreate(dataSource.manager, Post, { title: 'a', tags: [{ text: 'foo' }] }, nested)
    expect(entity.tags).toEqual([{ id: 1, text: 'foo' }])
    expect(await stored()).toMatchObject([{ title: 'a', tags: [{ id: 1, text: 'foo' }] }])
  })

  test('get_get_or_create through a many-to-many: what is there and linked is got', async () => {
    const values = { title: 'a', tags: [{ text: 'foo' }] }
    const first = await findOrCreate(dataSource.manager, Post, values, nested)
    const again = await findOrCreate(dataSource.manager, Post, values, nested)
    expect(again).toMatchObject({ created: false, entity: { id: first.entity.id, tags: first.entity.tags } })
    expect(await dataSource.manager.count(Tag)).toBe(1)
  })

  // Django fails there, for it looks among the linked ones only.
  test('something: a tag that is there, but not linked, is linked', async () => {
    const { id } = await insertOrFail(dataSource.manager, Tag, { text: 'foo' })
    await findOrCreate(dataSource.manager, Post, { title: 'a', tags: [{ text: 'foo' }, { text: 'bar' }] }, nested)
    expect((await stored())[0]?.tags).toMatchObject([{ text: 'bar' }, { id, text: 'foo' }])
    expect(await dataSource.manager.count(Tag)).toBe(2)
  })
})

describe('Rails', () => {
  test('insert_all_has_many_through: a list refuses a row with it, and only that', async () => {
    const results = await findOrCreateMany(dataSource.manager, Post, [
      { title: 'a', tags: [{ text: 'new' }] },
      { title: 'b' },
    ])
    expect(results).toMatchObject([{ error: { code: 'INVALID_DECLARATION' } }, { created: true }])
    expect(await stored()).toMatchObject([{ title: 'b', tags: [] }])
  })

  test('create_with_nested_attributes: they are made with the row, not when it is found', async () => {
    const create = { author: { name: 'Aaron' } }
    await insertOrFail(manager, Post, { title: 'known' })
    for (const title of ['known', 'new']) await findOrCreate(manager, Post, { title }, { ...nested, create })
    expect(await stored()).toMatchObject([
      { title: 'known', author: null },
      { title: 'new', author: { name: 'Aaron' } },
    ])
    expect(await manager.count(Author)).toBe(1)
  })
})

describe('Ecto', () => {
  test('on conflict and associations: they are made once, with the row', async () => {
    const post = { title: 'first', remarks: [{ body: 'one' }, { body: 'two' }] }
    const first = await findOrCreate(dataSource.manager, Post, post, nested)
    const second = await findOrCreate(dataSource.manager, Post, post, nested)
    expect([first.created, second.created]).toEqual([true, false])
    expect(await dataSource.manager.count(Remark)).toBe(2)
    expect((await stored())[0]?.remarks).toHaveLength(2)
  })
})

describe('Sequelize', () => {
  test('bulkCreate with include, belongsTo: rows that bring one author get one', async () => {
    const rows = ['a', 'b', 'c'].map((title) => ({ title, author: { name: title === 'c' ? 'Carol' : 'Ann' } }))
    const results = await findOrCreateMany(dataSource.manager, Post, rows, nested)
    expect(results).toMatchObject(rows.map((entity) => ({ created: true, entity })))
    expect(await stored()).toMatchObject(rows)
    expect(await dataSource.manager.count(Author)).toBe(2)
  })

  test('bulkCreate with include, belongsToMany: rows that share tags share their rows', async () => {
    const rows = [
      { title: 'a', tags: [{ text: 'x' }, { text: 'y' }] },
      { title: 'b', tags: [{ text: 'y' }, { text: 'z' }] },
    ]
    await findOrCreateMany(dataSource.manager, Post, rows, nested)
    expect(await stored()).toMatchObject(rows)
    expect(await dataSource.manager.count(Tag)).toBe(3)
  })

  test('should create data for several relations at once', async () => {
    const post = { title: 'a', author: { name: 'Ann' }, tags: [{ text: 'x' }], remarks: [{ body: 'r' }] }
    await findOrCreate(dataSource.manager, Post, post, nested)
    expect(await stored()).toMatchObject([post])
  })

  test('an author who is there already is referred to, whether by key or by name', async () => {
    const ann = await insertOrFail(manager, Author, { name: 'Ann' })
    await findOrCreate(manager, Post, { title: 'by key', author: { id: ann.id } })
    await findOrCreate(manager, Post, { title: 'by name', author: { name: 'Ann' } }, nested)
    expect((await stored()).map(({ author }) => author)).toEqual([ann, ann])
  })
})
