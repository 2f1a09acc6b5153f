import { column, entity, text, toMany, toOne } from './entity'

/** Entities that several test files use. A file whose test depends on a column of its own declares its own class. */

export const Page = entity('Page', { url: text() })
export type Page = InstanceType<typeof Page>
export const Author = entity('Author', { name: text() })
export type Author = InstanceType<typeof Author>
export const Tag = entity('Tag', { name: text() })
export type Tag = InstanceType<typeof Tag>

/** A book with an author and tags; five characters are the most that its code can have. */
export const Book = entity('Book', {
  title: text(),
  code: column('varchar', { length: 5, nullable: true }),
  author: toOne(() => Author, { cascade: true }),
  tags: toMany(() => Tag, { cascade: true }),
})
export type Book = InstanceType<typeof Book>

/** What a token of `once` pays. */
export const Payment = entity('Payment', { token: column('text') })
export type Payment = InstanceType<typeof Payment>
