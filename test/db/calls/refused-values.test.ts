import {
  ChildEntity,
  Column,
  Entity,
  ManyToMany,
  ManyToOne,
  OneToMany,
  PrimaryGeneratedColumn,
  TableInheritance,
  Tree,
  TreeChildren,
  TreeParent,
  JoinTable,
} from 'typeorm'
import { describe, expect, test, vi } from 'vitest'
import {
  DeclarationError,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  TextTakenError,
  UniqueText,
  upsertByText,
} from '../../../src'
import { useDatabase } from '../../support/database'
import { entity, text } from '../../support/entity'

const db = useDatabase()

@Entity()
class Author {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() name!: string
  @OneToMany(() => Book, (book: Book) => book.author) books!: Book[]
}

const Tag = entity('Tag', {})
type Tag = InstanceType<typeof Tag>

@Entity()
class Book {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() title!: string
  @ManyToOne(() => Author, (author) => author.books, { nullable: true }) author!: Author | null
  @ManyToMany(() => Tag) @JoinTable() tags!: Tag[]
  @Column({ type: 'timestamptz', nullable: true }) at!: Date | null
}

@Entity()
@Tree('materialized-path')
class Branch {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() name!: string
  @TreeChildren() children!: Branch[]
  @TreeParent() parent!: Branch | null
}

const Animal = entity('Animal', { name: text() })
TableInheritance({ column: { type: 'varchar', name: 'kind' } })(Animal)
@ChildEntity()
class Cat extends Animal {
  @UniqueText({ nullable: true }) collar!: string | null
}
@ChildEntity()
class Dog extends Animal {}

const dataSource = db.useDataSource([Author, Tag, Book, Branch, Animal, Cat, Dog], { emptied: false })
const { manager } = dataSource

/** The call is refused, alone and in a batch, and sends nothing. */
async function expectRefused(entity: typeof Book, values: object, message: RegExp): Promise<void> {
  const sent = vi.spyOn(dataSource.logger, 'logQuery')
  const error: unknown = await findOrCreate(manager, entity, values).catch((caught: unknown) => caught)
  expect(error).toBeInstanceOf(DeclarationError)
  expect(String(error)).toMatch(message)
  const [result] = await findOrCreateMany(manager, entity, [values])
  expect(result).toMatchObject({ error: { code: 'INVALID_DECLARATION', message: expect.stringMatching(message) } })
  expect(sent).not.toHaveBeenCalled()
  sent.mockRestore()
}

describe('what only save can insert is refused before any SQL, with its property and what to do', () => {
  test.each([
    ['a new row of another table', { title: 'x', author: { name: 'new' } }, /"author" of Book .* no key of.*Save/],
    ['rows of a join table', { title: 'x', tags: [{ id: 1 }] }, /"tags" of Book .* stored in other rows.*save the Tag/],
    ['a function', { title: 'x', at: () => 'now()' }, /"at" of Book is a function.*Give a value/],
    ['a function as a relation', { title: 'x', author: () => '1' }, /"author" of Book|is a function/],
    ['a promise', { title: 'x', author: Promise.resolve(null) }, /"author" of Book is a promise.*Await/],
  ])('%s', async (_, values, message) => {
    await expectRefused(Book, values, message)
  })

  test('rows that refer to this one', async () => {
    const books = [{ title: 'x' }]
    await expectRefused(
      Author as unknown as typeof Book,
      { name: 'x', books },
      /"books" of Author .*save the Book rows/,
    )
  })

  test('a row of a tree, which can be looked up', async () => {
    await expectRefused(Branch as unknown as typeof Book, { name: 'x' }, /Branch is a tree \(materialized-path\)/)
    expect(await findOneByText(manager, Branch, { name: 'x' })).toBeNull()
  })

  test('and a relation to a row that exists is stored', async () => {
    const { entity: author } = await findOrCreate(manager, Author, { name: 'known', books: [] })
    await findOrCreate(manager, Book, { title: 'by entity', author, tags: [] })
    await findOrCreateMany(manager, Book, [{ title: 'by key', author: { id: author.id } }, { title: 'by none', author: null }]) // prettier-ignore
    const books = await manager.find(Book, { relations: { author: true }, order: { title: 'ASC' } })
    expect(books.map((book) => book.author?.id)).toEqual([author.id, author.id, undefined])
  })
})

describe('arguments of the wrong kind are told by what they are', () => {
  test('a misspelt property is told beside those that were given', async () => {
    const call = findOrCreate(manager, Book, { tilte: 'x', at: null } as object)
    await expect(call).rejects.toBeInstanceOf(DeclarationError)
    await expect(call).rejects.toThrow('Book has no property "tilte"')
    const look = findOneByText(manager, Book, { at: null })
    await expect(look).rejects.toThrow(Error)
  })
})

describe('a property that the entity has not', () => {
  const misspelt = { title: 'misspelt', tagz: [], untold: undefined } as object
  const message = /Book has no property "tagz", and its value would be dropped/u
  test('is refused, and nothing is stored', async () => {
    await expect(findOrCreate(manager, Book, misspelt)).rejects.toThrow(message)
    await expect(findOrCreate(manager, Book, { title: 'misspelt' }, { create: { tagz: 1 } as object })).rejects.toThrow(
      message,
    )
    await expect(upsertByText(manager, Book, misspelt)).rejects.toThrow(message)
    await expect(insertOrFail(manager, Book, misspelt)).rejects.toThrow(message)
    const [result] = await findOrCreateMany(manager, Book, [misspelt])
    expect(result).toMatchObject({ error: { code: 'INVALID_DECLARATION', message: expect.stringMatching(message) } })
    expect(await findOneByText(manager, Book, { title: 'misspelt' })).toBeNull()
  })
  test('may stand in an entity, whose class may have it', async () => {
    const entity = Object.assign(new Book(), { title: 'an entity', note: 'of the class' })
    expect(await findOrCreate(manager, Book, entity as Book)).toMatchObject({ created: true })
  })
})

describe('single table inheritance', () => {
  test('a row of another class is not given as this one, and the error says whose the text is', async () => {
    const { entity: cat } = await findOrCreate(manager, Cat, { name: 'Mia' }, { by: 'name' })
    const held = /"name" of Cat \(held by another row\)\. No row of Dog can hold it too: pass Cat or Animal\./
    const refused = findOrCreate(manager, Dog, { name: 'Mia' })
    await expect(refused).rejects.toThrow(held)
    await expect(refused).rejects.toBeInstanceOf(TextTakenError)
    await expect(refused).rejects.toMatchObject({ taken: [{ entity: 'Cat', property: 'name', id: { id: cat.id } }] })
    const [mia, rex] = await findOrCreateMany(manager, Dog, [{ name: 'Mia' }, { name: 'Rex' }])
    expect(mia).toMatchObject({ error: { code: 'TEXT_TAKEN', message: expect.stringMatching(held) } })
    expect(rex).toMatchObject({ created: true })
    expect(await findOneByText(manager, Dog, { name: 'Mia' })).toBeNull()
    const { entity } = await findOrCreate(manager, Animal, { name: 'Mia' })
    expect(entity).toBeInstanceOf(Cat)
    expect(entity.id).toBe(cat.id)
  })

  test('"by" is asked for only where the class itself has several texts', async () => {
    expect(await findOrCreate(manager, Dog, { name: 'Bello' })).toMatchObject({ created: true })
    expect(await findOrCreate(manager, Animal, { name: 'Bello' })).toMatchObject({ created: false })
    await expect(findOrCreate(manager, Cat, { name: 'Tom' })).rejects.toThrow(/several unique texts/)
  })
})
