import {
  Column,
  DeleteDateColumn,
  Entity,
  JoinColumn,
  JoinTable,
  ManyToMany,
  ManyToOne,
  OneToMany,
  OneToOne,
  PrimaryGeneratedColumn,
} from 'typeorm'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import { DeclarationError, findOrCreate, findOrCreateMany, TextRejectedError, UniqueText } from '../../../src'
import { useDatabase } from '../../support/database'
import { column, entity, text } from '../../support/entity'
import { queriesOf } from '../../support/queries'

const db = useDatabase()

const Agent = entity('Agent', { name: text() })
type Agent = InstanceType<typeof Agent>

@Entity()
class Author {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() name!: string
  @Column({ type: 'integer', nullable: true }) born!: number | null
  @ManyToOne(() => Agent, { nullable: true }) agent!: Agent | null
  @OneToMany(() => Book, (book: Book) => book.author) books!: Book[]
}

const Publisher = entity('Publisher', { city: column('text') })
type Publisher = InstanceType<typeof Publisher>

@Entity()
class Tag {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() name!: string
  @Column({ type: 'integer', nullable: true }) weight!: number | null
  @ManyToMany(() => Book, (book: Book) => book.tags) books!: Book[]
}

@Entity()
class Book {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() title!: string
  @ManyToOne(() => Author, (author) => author.books, { nullable: true }) author!: Author | null
  @ManyToOne(() => Publisher, { nullable: true }) publisher!: Publisher | null
  @ManyToMany(() => Tag, (tag) => tag.books) @JoinTable() tags!: Tag[]
  @OneToMany(() => Chapter, (chapter: Chapter) => chapter.book) chapters!: Chapter[]
  @OneToOne(() => Cover, (cover: Cover) => cover.book) cover!: Cover | null
}

@Entity()
class Chapter {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ scope: ['book'] }) heading!: string
  @Column({ type: 'integer', nullable: true }) pages!: number | null
  @ManyToOne(() => Book, (book) => book.chapters, { nullable: false }) book!: Book
  @DeleteDateColumn() deletedAt!: Date | null
}

@Entity()
class Cover {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column({ type: 'text' }) color!: string
  @OneToOne(() => Book, (book) => book.cover, { nullable: true }) @JoinColumn() book!: Book | null
}

const dataSource = db.useDataSource([Agent, Author, Publisher, Tag, Book, Chapter, Cover])
const { manager } = dataSource

beforeAll(() => manager.query('ALTER TABLE chapter ADD CHECK (pages > 0)'))

const resolve = { relations: 'findOrCreate' } as const

const counts = async (): Promise<Record<string, number>> =>
  Object.fromEntries(
    await Promise.all(
      [Agent, Author, Publisher, Tag, Book, Chapter, Cover].map(
        async (entity) => [entity.name, await manager.count(entity)] as const,
      ),
    ),
  )

const whole = { author: { agent: true }, publisher: true, tags: true, chapters: true, cover: true }

describe('new objects in relations become rows', () => {
  test('of every kind of relation, and stand on the result', async () => {
    const values = {
      title: 'Emma',
      author: { name: 'Austen', born: 1775, agent: { name: 'Agent' } },
      publisher: { city: 'London' },
      tags: [{ name: 'novel' }, { name: 'classic' }, { name: 'novel' }],
      chapters: [{ heading: 'I' }, { heading: 'II' }],
      cover: { color: 'red' },
    }
    const before = structuredClone(values)
    const { entity, created } = await findOrCreate(manager, Book, values, resolve)
    expect(created).toBe(true)
    expect(values).toEqual(before)
    const stored = await manager.findOneOrFail(Book, { where: { title: 'Emma' }, relations: whole })
    expect(stored).toMatchObject({
      author: { name: 'Austen', born: 1775, agent: { name: 'Agent' } },
      publisher: { city: 'London' },
      cover: { color: 'red' },
    })
    expect(stored.tags.map(({ name }) => name).sort()).toEqual(['classic', 'novel'])
    expect(stored.chapters.map(({ heading }) => heading).sort()).toEqual(['I', 'II'])
    expect(entity).toBeInstanceOf(Book)
    expect(entity.author).toBeInstanceOf(Author)
    expect(entity.author?.agent).toBeInstanceOf(Agent)
    expect(entity).toMatchObject({
      id: stored.id,
      author: { id: stored.author?.id, agent: { id: stored.author?.agent?.id } },
      publisher: { id: stored.publisher?.id },
      cover: { id: stored.cover?.id },
    })
    expect(entity.tags.map(({ id }) => id)).toHaveLength(2)
    expect(entity.chapters[0]).toBeInstanceOf(Chapter)
    expect(() => JSON.stringify(entity)).not.toThrow()
  })

  test('those that have their text already are found, and left as they are', async () => {
    const { entity: author } = await findOrCreate(manager, Author, { name: 'Austen', born: 1775 })
    const { entity: tag } = await findOrCreate(manager, Tag, { name: 'novel', weight: 1 })
    const { entity } = await findOrCreate(
      manager,
      Book,
      { title: 'Emma', author: { name: 'Austen', born: 1 }, tags: [{ name: 'novel', weight: 2 }] },
      resolve,
    )
    expect(entity).toMatchObject({ author: { id: author.id, born: 1775 }, tags: [{ id: tag.id, weight: 1 }] })
    const stored = await manager.findOneOrFail(Book, { where: { title: 'Emma' }, relations: { tags: true } })
    expect(stored.tags.map(({ id }) => id)).toEqual([tag.id])
    expect(await counts()).toMatchObject({ Author: 1, Tag: 1 })
    expect(await manager.findOneBy(Author, { name: 'Austen' })).toMatchObject({ born: 1775 })
  })

  test('beside rows that are given by their key', async () => {
    const { entity: author } = await findOrCreate(manager, Author, { name: 'Austen' })
    const { entity: tag } = await findOrCreate(manager, Tag, { name: 'novel' })
    const first = await findOrCreate(manager, Book, { title: 'a', author, tags: [tag, { name: 'new' }] }, resolve)
    await findOrCreate(manager, Book, { title: 'b', author: { id: author.id }, tags: [{ id: tag.id }] }, resolve)
    await findOrCreate(manager, Book, { title: 'c', author: author.id as unknown as Author, tags: [] }, resolve)
    await findOrCreate(manager, Book, { title: 'd', author: null }, resolve)
    expect(first.entity.author).toBe(author)
    const books = await manager.find(Book, { relations: { author: true, tags: true }, order: { title: 'ASC' } })
    expect(books.map((book) => [book.author?.id, book.tags.length])).toEqual([
      [author.id, 2],
      [author.id, 1],
      [author.id, 0],
      [undefined, 0],
    ])
  })

  test('from the other side of a many-to-many relation', async () => {
    await findOrCreate(manager, Tag, { name: 'novel', books: [{ title: 'a' }, { title: 'b' }] }, resolve)
    const tag = await manager.findOneOrFail(Tag, { where: { name: 'novel' }, relations: { books: true } })
    expect(tag.books.map(({ title }) => title).sort()).toEqual(['a', 'b'])
  })

  test('rows that exist are taken over by a new row that lists them', async () => {
    const { entity: known } = await findOrCreate(manager, Book, { title: 'known' })
    await findOrCreate(manager, Book, { title: 'found', author: { name: 'before' } }, resolve)
    const books = [{ id: known.id }, { title: 'found' }, { title: 'new' }]
    const { entity } = await findOrCreate(manager, Author, { name: 'Austen', books }, resolve)
    expect(entity.books.map(({ id }) => id)).not.toContain(undefined)
    const stored = await manager.findOneOrFail(Author, { where: { name: 'Austen' }, relations: { books: true } })
    expect(stored.books.map(({ title }) => title).sort()).toEqual(['found', 'known', 'new'])
    const cover = await manager.save(Cover, { color: 'red' })
    await findOrCreate(manager, Book, { title: 'covered', cover }, resolve)
    const covered = await manager.findOneOrFail(Book, { where: { title: 'covered' }, relations: { cover: true } })
    expect(covered.cover?.id).toBe(cover.id)
  })

  test('in a cycle, as both sides of a relation are set', async () => {
    const author = Object.assign(new Author(), { name: 'Austen' })
    const book = Object.assign(new Book(), { title: 'Emma', author })
    author.books = [book, Object.assign(new Book(), { title: 'Persuasion', author })]
    expect(await findOrCreate(manager, Book, book, resolve)).toMatchObject({ created: true })
    const stored = await manager.findOneOrFail(Author, { where: { name: 'Austen' }, relations: { books: true } })
    expect(stored.books.map(({ title }) => title).sort()).toEqual(['Emma', 'Persuasion'])
  })

  test('belong to the object that lists them, whatever they say themselves', async () => {
    const chapters = [{ heading: 'I', book: { title: 'other' } }]
    await findOrCreate(manager, Book, { title: 'Emma', chapters }, resolve)
    expect(await counts()).toMatchObject({ Book: 1, Chapter: 1 })
    expect(await manager.countBy(Chapter, { book: { title: 'Emma' } })).toBe(1)
  })

  test('a scope may be one of them', async () => {
    const chapter = (): object => ({ heading: 'I', book: { title: 'Emma' } })
    const first = await findOrCreate(manager, Chapter, chapter(), resolve)
    const again = await findOrCreate(manager, Chapter, chapter(), resolve)
    expect(first.created).toBe(true)
    expect(again).toMatchObject({ created: false, entity: { id: first.entity.id } })
    expect(await counts()).toMatchObject({ Book: 1, Chapter: 1 })
  })

  test('whose scope is one of them: create-only values are asked for, once, where the row is missing', async () => {
    const create = vi.fn(() => ({ pages: 7 }))
    const chapter = (): object => ({ heading: 'I', book: { title: 'Emma' } })
    const first = await findOrCreate(manager, Chapter, chapter(), { ...resolve, create })
    expect(first).toMatchObject({ created: true, entity: { pages: 7, book: { title: 'Emma' } } })
    expect(await findOrCreate(manager, Chapter, chapter(), { ...resolve, create })).toMatchObject({ created: false })
    expect(create).toHaveBeenCalledTimes(1)
  })

  test('whose scope is one of them: a softly deleted row is treated as the call says', async () => {
    const call = (deleted: 'return' | 'restore' | 'throw'): Promise<unknown> =>
      findOrCreate(manager, Chapter, { heading: 'I', book: { title: 'Emma' } }, { ...resolve, deleted })
    await call('return')
    const [{ id } = { id: 0 }] = await manager.find(Chapter)
    await manager.softDelete(Chapter, id)
    await expect(call('throw')).rejects.toMatchObject({ code: 'TEXT_TAKEN', taken: [{ id: { id } }] })
    expect(await call('restore')).toMatchObject({ created: false, entity: { id, deletedAt: null } })
  })

  test('beside create-only values, for which a property that is undefined leaves room', async () => {
    const values = Object.assign(new Author(), { name: 'Austen', born: undefined, agent: { name: 'Agent' } })
    const { entity } = await findOrCreate(manager, Author, values as object, { ...resolve, create: { born: 1775 } })
    expect(entity).toMatchObject({ name: 'Austen', born: 1775, agent: { name: 'Agent' } })
  })

  test('a property "__proto__" of parsed JSON brings nothing', async () => {
    const values = JSON.parse('{ "name": "Austen", "__proto__": { "born": 1775 } }') as object
    const { entity } = await findOrCreate(manager, Author, values, resolve)
    expect(entity).toMatchObject({ name: 'Austen', born: null })
  })

  test('only in the relations that are named', async () => {
    const options = { relations: { author: 'findOrCreate' } } as const
    await findOrCreate(manager, Book, { title: 'a', author: { name: 'x', agent: { name: 'y' } } }, options)
    expect(await counts()).toMatchObject({ Author: 1, Agent: 1 })
    const refused = findOrCreate(manager, Book, { title: 'b', author: { name: 'z' }, tags: [{ name: 't' }] }, options)
    await expect(refused).rejects.toThrow(DeclarationError)
    expect(await counts()).toMatchObject({ Author: 1, Tag: 0, Book: 1 })
  })
})

describe('a row that is found', () => {
  test('is left alone with its relations, and nothing is created for it', async () => {
    await findOrCreate(manager, Book, { title: 'Emma', author: { name: 'Austen' } }, resolve)
    const before = await counts()
    const values = {
      title: 'Emma',
      author: { name: 'another', agent: { name: 'new' } },
      publisher: { city: 'new' },
      tags: [{ name: 'new' }],
      chapters: [{ heading: 'new' }],
      cover: { color: 'new' },
    }
    for (const { created } of [
      await findOrCreate(manager, Book, values, resolve),
      await dataSource.transaction((own) => findOrCreate(own, Book, values, resolve)),
    ]) {
      expect(created).toBe(false)
    }
    expect(await counts()).toEqual(before)
  })

  test('costs no transaction, but a look-up and one query for the relations that stand', async () => {
    await findOrCreate(manager, Book, { title: 'Emma', author: { name: 'Austen' } }, resolve)
    const sent = vi.spyOn(dataSource.logger, 'logQuery')
    const values = { title: 'Emma', author: { name: 'new' }, tags: [{ name: 'new' }] }
    const { entity } = await findOrCreate(manager, Book, values, resolve)
    expect(sent).toHaveBeenCalledTimes(2)
    sent.mockRestore()
    expect(entity).toMatchObject({ author: { name: 'Austen' }, tags: [] })
  })

  test('a nested one too: its own relations stay as they are', async () => {
    await findOrCreate(manager, Author, { name: 'Austen', agent: { name: 'first' } }, resolve)
    await findOrCreate(manager, Book, { title: 'Emma', author: { name: 'Austen', agent: { name: 'second' } } }, resolve)
    expect(await counts()).toMatchObject({ Agent: 1 })
  })
})

describe('in batches', () => {
  test('equal texts are created once, and every row gets its own', async () => {
    const inputs = Array.from({ length: 50 }, (_, index) => ({
      title: `book ${index}`,
      author: { name: `author ${index % 5}`, agent: { name: 'one' } },
      tags: [{ name: `tag ${index % 3}` }, { name: 'all' }],
      chapters: [{ heading: 'I' }],
    }))
    const results = await findOrCreateMany(manager, Book, inputs, resolve)
    expect(results.every((result) => 'entity' in result && result.created)).toBe(true)
    expect(await counts()).toMatchObject({ Book: 50, Author: 5, Agent: 1, Tag: 4, Chapter: 50 })
    const books = await manager.find(Book, { relations: { author: true, tags: true, chapters: true } })
    for (const { title, author, tags, chapters } of books) {
      const index = Number(title.slice(5))
      expect(author?.name).toBe(`author ${index % 5}`)
      expect(tags.map(({ name }) => name).sort()).toEqual(['all', `tag ${index % 3}`])
      expect(chapters).toHaveLength(1)
    }
  })

  test('the first of equal rows decides, and nothing is created for the others', async () => {
    const inputs = ['first', 'second'].map((name) => ({ title: 'Emma', author: { name } }))
    const [first, second] = await findOrCreateMany(manager, Book, inputs, resolve)
    expect(first).toMatchObject({ created: true, entity: { author: { name: 'first' } } })
    expect(second).toMatchObject({ created: false, entity: { title: 'Emma' } })
    expect(await counts()).toMatchObject({ Author: 1 })
  })

  test.each([
    ['alone', {}],
    ['with an object', { author: { name: 'Austen' } }],
  ])('one object given twice is created by the first, %s', async (_, more) => {
    const values = { title: 'Emma', ...more }
    const results = await findOrCreateMany(manager, Book, [values, values], resolve)
    expect(results).toMatchObject([{ created: true }, { created: false }])
  })

  test('a list that names one row twice is given back with the row once, as it is stored', async () => {
    const values = { title: 'Emma', tags: [{ name: 'novel' }, { name: 'novel' }, { name: 'old' }] }
    const { entity } = await findOrCreate(manager, Book, values, resolve)
    expect(entity.tags.map(({ name }) => name)).toEqual(['novel', 'old'])
    const reloaded = await findOrCreate(manager, Book, { title: 'Emma' }, { relations: { tags: true } })
    expect(reloaded.entity.tags).toHaveLength(2)
  })

  test('one object that is refused in one row is refused in every row', async () => {
    const author = { name: 'Austen', agent: { name: 'a\0b' } }
    const inputs = ['a', 'b'].map((title) => ({ title, author }))
    const results = await findOrCreateMany(manager, Book, inputs, resolve)
    expect(results).toMatchObject([{ error: { code: 'TEXT_REJECTED' } }, { error: { code: 'TEXT_REJECTED' } }])
    const half = { name: 'Austen', books: [null] }
    const refused = ['a', 'b'].map((title) => ({ title, author: half as object }))
    for (const result of await findOrCreateMany(manager, Book, refused, resolve)) {
      expect(result).toMatchObject({ error: expect.any(DeclarationError) as DeclarationError })
    }
    expect(await counts()).toMatchObject({ Book: 0, Author: 0 })
  })

  test('a softly deleted row is treated as the call says, also where no row brings an object', async () => {
    const { entity: book } = await findOrCreate(manager, Book, { title: 'Emma' })
    await findOrCreate(manager, Chapter, { heading: 'I', book })
    await manager.softDelete(Chapter, { heading: 'I' })
    const call = (deleted: 'restore' | 'throw'): Promise<unknown> =>
      findOrCreateMany(
        manager,
        Chapter,
        [
          { heading: 'II', book },
          { heading: 'I', book },
        ],
        { ...resolve, deleted },
      )
    expect(await call('throw')).toMatchObject([
      { created: true },
      { error: { code: 'TEXT_TAKEN', taken: [{ row: 1 }] } },
    ])
    expect(await call('restore')).toMatchObject([{ created: false }, { created: false, entity: { deletedAt: null } }])
  })

  test('one object in several rows is one row', async () => {
    const publisher = { city: 'London' }
    await findOrCreateMany(
      manager,
      Book,
      [
        { title: 'a', publisher },
        { title: 'b', publisher },
      ],
      resolve,
    )
    expect(await counts()).toMatchObject({ Publisher: 1, Book: 2 })
  })

  test.each([
    ['before any SQL', { heading: 'a\0b' }, { code: 'TEXT_REJECTED' }],
    ['by the database', { heading: 'bad', pages: 0 }, { driverError: { code: '23514' } }],
  ])('an object that is refused %s fails its row only, which leaves nothing behind', async (_, bad, error) => {
    const inputs = Array.from({ length: 9 }, (__, index) => ({
      title: `book ${index}`,
      author: { name: `author ${index}` },
      chapters: [{ heading: 'I' }, ...(index === 4 ? [bad] : [])],
    }))
    const results = await findOrCreateMany(manager, Book, inputs, resolve)
    expect(results.map((result) => 'error' in result)).toEqual(inputs.map((__, index) => index === 4))
    expect(results[4]).toMatchObject({ error })
    expect(await counts()).toMatchObject({ Book: 8, Author: 8, Chapter: 8 })
    expect(await manager.findOneBy(Author, { name: 'author 4' })).toBeNull()
  })
})

describe('all or nothing', () => {
  const bad = { title: 'Emma', author: { name: 'Austen' }, chapters: [{ heading: 'I', pages: 0 }] }

  test('outside a transaction, in one of its own', async () => {
    await expect(findOrCreate(manager, Book, bad, resolve)).rejects.toMatchObject({ driverError: { code: '23514' } })
    expect(await counts()).toMatchObject({ Book: 0, Author: 0, Chapter: 0 })
  })

  test.each(['by TypeORM', 'by SQL'])(
    "in the caller's transaction that was begun %s, which stays usable",
    async (by) => {
      const runner = dataSource.createQueryRunner()
      await (by === 'by SQL' ? runner.query('BEGIN') : runner.startTransaction())
      await findOrCreate(runner.manager, Tag, { name: 'before' })
      await expect(findOrCreate(runner.manager, Book, bad, resolve)).rejects.toMatchObject({
        driverError: { code: '23514' },
      })
      await findOrCreate(runner.manager, Book, { title: 'after', tags: [{ name: 'after' }] }, resolve)
      await (by === 'by SQL' ? runner.query('COMMIT') : runner.commitTransaction())
      await runner.release()
      expect(await counts()).toMatchObject({ Book: 1, Author: 0, Chapter: 0, Tag: 2 })
    },
  )

  test('a call beside it in one transaction is not undone with it', async () => {
    await dataSource.transaction(async (own) => {
      const [refused, beside, other] = await Promise.allSettled([
        findOrCreate(own, Book, bad, resolve),
        findOrCreate(own, Tag, { name: 'beside' }),
        findOrCreate(own, Book, { title: 'other', author: { name: 'other' } }, resolve),
      ])
      expect([refused.status, beside.status, other.status]).toEqual(['rejected', 'fulfilled', 'fulfilled'])
    })
    expect(await counts()).toMatchObject({ Book: 1, Author: 1, Tag: 1 })
  })
})

describe('refused before any SQL', () => {
  test.each([
    ['an array where an object belongs', { author: [{ name: 'x' }] }, /"author" of Book is an array/],
    ['an object where an array belongs', { tags: { name: 'x' } }, /"tags" of Book is an object\. Give an array/],
    ['a key in a list', { tags: [1] }, /"tags" of Book holds number\. Give objects/],
    ['a list in a list', { tags: [[{ name: 'x' }]] }, /"tags" of Book holds an array/],
    ['null in a list', { tags: [null] }, /"tags" of Book holds null/],
    ['an object of another class', { author: Object.assign(new Tag(), { name: 'x' }) }, /"author" of Book is an instance of Tag/], // prettier-ignore
  ])('%s', async (_, more, message) => {
    const call = findOrCreate(manager, Book, { title: 'x', ...more } as object, resolve)
    await expect(call).rejects.toThrow(message)
    await expect(call).rejects.toBeInstanceOf(DeclarationError)
  })

  test.each([
    ['a name that is no relation', { autor: 'findOrCreate' }, /Book has no relation "autor"/],
    ['a word that is misspelt', 'findOrCreat', /relations must be 'findOrCreate', an object/],
    ['a relation of a relation', { author: { agent: 'findOrCreate' } }, /applies to a relation of Book itself/],
  ])('%s in the option', async (_, relations, message) => {
    const call = findOrCreate(manager, Book, { title: 'x' }, { relations } as object)
    await expect(call).rejects.toThrow(message)
    await expect(call).rejects.toBeInstanceOf(DeclarationError)
    expect(await counts()).toMatchObject({ Book: 0 })
  })

  test('a nested object without its text', async () => {
    const sent = await queriesOf(dataSource, async () => {
      const call = findOrCreate(manager, Book, { title: 'x', author: { born: 1 } }, resolve)
      await expect(call).rejects.toBeInstanceOf(TextRejectedError)
    })
    expect(sent).toEqual([])
    expect(await counts()).toMatchObject({ Book: 0 })
  })
})
