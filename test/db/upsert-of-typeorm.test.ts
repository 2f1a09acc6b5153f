import { Column, Entity, EntitySchema, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import { expect, test } from 'vitest'
import { DeclarationError, UniqueText, uniqueTextSchema } from '../../src'
import { url } from '../../src/text'
import { uniqueTextPaths } from '../../src/typeorm-calls'
import { useDatabase } from '../support/database'

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ normalize: url() }) url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

@Entity()
class Site {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
}

@Entity()
class Post {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @ManyToOne(() => Site, { nullable: false }) site!: Site
  @UniqueText({ scope: ['site'] }) slug!: string
  @UniqueText({ name: 'old', hidden: { hash: 'h', number: 'n', chained: 'c' } }) previous!: string
}

interface Plain {
  id: number
  url: string
}
const PlainSchema = new EntitySchema<Plain>(
  uniqueTextSchema<Plain>(
    { name: 'Plain', columns: { id: { type: Number, primary: true, generated: true } } },
    { url: { normalize: url() } },
  ),
)

const db = useDatabase()

test('upsert() with uniqueTextPaths() updates the row that holds the text, and inserts where there is none', async () => {
  const dataSource = await db.dataSource([Page])
  const pages = dataSource.getRepository(Page)
  await pages.insert({ url: 'http://a/', title: 'old' })
  const rows = [
    { url: 'HTTP://A', title: 'new' },
    { url: 'http://b/', title: 'b' },
  ]
  await pages.upsert(rows, uniqueTextPaths(Page, 'url'))
  expect(await pages.find({ order: { url: 'asc' } })).toMatchObject([
    { id: 1, url: 'http://a/', title: 'new' },
    { url: 'http://b/', title: 'b' },
  ])
})

test('uniqueTextPaths() takes a scope that is a relation, one of several texts, and an EntitySchema', async () => {
  const dataSource = await db.dataSource([Post, Site, PlainSchema])
  const site = await dataSource.getRepository(Site).save({})
  const posts = dataSource.getRepository(Post)
  await posts.upsert({ site, slug: 'a', previous: 'x' }, uniqueTextPaths(Post, 'slug'))
  await posts.upsert({ site, slug: 'a', previous: 'y' }, uniqueTextPaths(Post, 'slug'))
  await posts.upsert({ site, slug: 'b', previous: 'y' }, uniqueTextPaths(Post, 'previous'))
  expect(await posts.find()).toMatchObject([{ id: 1, slug: 'b', previous: 'y' }])
  const plain = dataSource.getRepository(PlainSchema)
  await plain.upsert([{ url: 'HTTP://A' }], uniqueTextPaths(PlainSchema))
  await plain.upsert([{ url: 'http://a/' }], uniqueTextPaths(PlainSchema))
  expect(await plain.count()).toBe(1)
})

test('uniqueTextPaths() says which texts an entity declares', () => {
  expect(() => uniqueTextPaths(Post)).toThrow('several unique texts. Name one of "slug", "previous".')
  expect(() => uniqueTextPaths(Post, 'title')).toThrow('no unique text "title". Name one of "slug", "previous".')
  expect(() => uniqueTextPaths(Site)).toThrow(DeclarationError)
  expect(() => uniqueTextPaths('Page')).toThrow('Pass a class or an EntitySchema')
})
