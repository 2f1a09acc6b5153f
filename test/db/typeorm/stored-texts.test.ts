import type { ValueTransformer } from 'typeorm'
import { ChildEntity, Column, Entity, EntitySchema, PrimaryGeneratedColumn, TableInheritance } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { findOrCreate, TextRejectedError, UniqueText, uniqueTextSchema } from '../../../src'
import { url } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { entity, plain, text } from '../../support/entity'

/** The property has a mark in front of what is stored. */
const marked: ValueTransformer = {
  to: (value: unknown) => (typeof value === 'string' ? value.replace(/^>/, '') : value),
  from: (value: unknown) => (typeof value === 'string' ? `>${value}` : value),
}

const Page = entity('Page', { url: text({ normalize: url() }), title: plain() })

interface PlainPage {
  id: number
  url: string
  title: string | null
}

const Plain = new EntitySchema<PlainPage>(
  uniqueTextSchema<PlainPage>(
    {
      name: 'Plain',
      tableName: 'plain',
      columns: {
        id: { type: Number, primary: true, generated: true },
        title: { type: 'text', nullable: true },
      },
    },
    { url: { normalize: url() } },
  ),
)

@Entity({ name: 'marked' })
class Marked {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column({ type: 'text', transformer: marked }) @UniqueText({ normalize: url() }) url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

const Parent = entity('Parent', {}, { name: 'kid' })
TableInheritance({ column: { type: 'text', name: 'type' } })(Parent)
@ChildEntity()
class First extends Parent {
  @UniqueText() one!: string
}
@ChildEntity()
class Second extends Parent {
  @UniqueText() other!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

const db = useDatabase()
const dataSource = db.useDataSource([Page, Plain, Marked, Parent, First, Second])
const { manager } = dataSource

const LEGACY = 'ftp://legacy'
const SPELLED = 'HTTP://Legacy.example'

describe.each([
  ['a class', Page, 'page', ''],
  ['an EntitySchema', Plain, 'plain', ''],
  ["a class with a transformer of the user's own", Marked, 'marked', '>'],
] as const)('a row of %s that was stored without normalizing', (_, target, table, mark) => {
  const store = async (text: string): Promise<PlainPage> => {
    await dataSource.query(`insert into ${table} (url) values ($1)`, [text])
    return await dataSource.getRepository<PlainPage>(target).findOneByOrFail({ id: 1 })
  }
  const stored = (): Promise<unknown> => dataSource.query(`select url, title from ${table}`)

  test.each([LEGACY, SPELLED])('can be saved when another column changes: %s', async (text) => {
    const row = await store(text)
    row.title = 'changed'
    expect(await dataSource.getRepository(target).save(row)).toEqual({ id: 1, url: mark + text, title: 'changed' })
    expect(await stored()).toEqual([{ url: text, title: 'changed' }])
  })

  test('is normalized when the text is saved', async () => {
    const row = await store(SPELLED)
    row.url = `${mark}http://LEGACY.example`
    await dataSource.getRepository(target).save(row)
    expect(await stored()).toEqual([{ url: 'http://legacy.example/', title: null }])
  })

  test('lets no other text past the normalizer', async () => {
    const row = await store(LEGACY)
    row.url = `${mark}ftp://other`
    const repository = dataSource.getRepository<PlainPage>(target)
    await expect(repository.save(row)).rejects.toBeInstanceOf(TextRejectedError)
    await expect(repository.insert({ url: mark + LEGACY })).rejects.toBeInstanceOf(TextRejectedError)
    await expect(repository.update(1, { url: mark + LEGACY })).rejects.toBeInstanceOf(TextRejectedError)
  })

  test('is not what a normalized text finds, also while it is being saved', async () => {
    const row = await store(SPELLED)
    row.title = 'changed'
    const repository = dataSource.getRepository<PlainPage>(target)
    await Promise.all([repository.save(row), repository.update({ url: mark + SPELLED }, { title: 'wrong' })])
    expect(await stored()).toEqual([{ url: SPELLED, title: 'changed' }])
  })
})

test('update() leaves its argument alone, and takes a frozen one', async () => {
  await manager.insert(Page, [{ url: 'http://a/' }, { url: 'http://b/' }])
  const repository = dataSource.getRepository(Page)
  const values = { url: 'HTTP://C' }
  await repository.update(1, values)
  expect(values).toEqual({ url: 'HTTP://C' })
  await repository.update(2, Object.freeze({ url: 'HTTP://D' }))
  await repository
    .createQueryBuilder()
    .update(Object.freeze({ url: 'HTTP://E' }))
    .where({ id: 2 })
    .execute()
  expect(await repository.find({ order: { id: 1 } })).toMatchObject([{ url: 'http://c/' }, { url: 'http://e/' }])
})

test('a class of single table inheritance has its own texts and those of its parents', async () => {
  expect(await findOrCreate(manager, First, { one: 'a' })).toMatchObject({ created: true })
  expect(await findOrCreate(manager, Second, { other: 'a' })).toMatchObject({ created: true })
  await expect(findOrCreate(manager, Parent, {})).rejects.toThrow('Parent declares no unique text')
  const by = { by: 'one' } as never
  await expect(findOrCreate(manager, Second, { other: 'a' }, by)).rejects.toThrow('declares no unique text "one"')
  const { upQueries } = await dataSource.driver.createSchemaBuilder().log()
  expect(upQueries).toEqual([])
  const nullable = await dataSource.query(
    `select column_name as name from information_schema.columns
      where table_name = 'kid' and column_name ~ '^(one|other)' and is_nullable = 'YES' order by 1`,
  )
  expect(nullable).toEqual([{ name: 'one' }, { name: 'oneHash' }, { name: 'other' }, { name: 'otherHash' }])
})
