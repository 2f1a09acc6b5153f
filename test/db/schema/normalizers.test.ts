import { BaseEntity, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, expect, test } from 'vitest'
import { findOneByText, findOrCreate, UniqueText } from '../../../src'
import { compose, normalizer, Refusal, trim } from '../../../src/text'
import { useDatabase } from '../../support/database'

const isbn = normalizer('isbn', 1, (text) => {
  const digits = text.replaceAll('-', '')
  if (!/^\d{13}$/.test(digits)) throw new Refusal('it is not an ISBN')
  return digits
})

@Entity()
class Book extends BaseEntity {
  @PrimaryGeneratedColumn() id!: number
  @UniqueText({ normalize: compose(trim(), isbn) }) isbn!: string
}

const db = useDatabase()
beforeAll(() => db.dataSource([Book]))

test("a user's own normalizer gives its reason wherever it refuses to store a text", async () => {
  const { manager } = Book.getRepository()
  const rejected = { code: 'TEXT_REJECTED', property: 'isbn', reason: 'it is not an ISBN' }
  await expect(findOrCreate(manager, Book, { isbn: 'x' })).rejects.toMatchObject(rejected)
  await expect(Book.create({ isbn: 'x' }).save()).rejects.toMatchObject(rejected)
  await expect(Book.insert({ isbn: 'x' })).rejects.toMatchObject(rejected)
  expect(await Book.findBy({ isbn: 'x' })).toEqual([])
  expect(await Book.count()).toBe(0)
})

test('and its text is one row in every spelling', async () => {
  const { manager } = Book.getRepository()
  const { entity } = await findOrCreate(manager, Book, { isbn: ' 978-0131103627' })
  expect(entity.isbn).toBe('9780131103627')
  expect(await findOneByText(manager, Book, { isbn: '978-0-13-110362-7' })).toEqual(entity)
})
