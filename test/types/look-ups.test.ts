import {
  Column,
  Entity,
  type EntityManager,
  type FindOperator,
  ManyToOne,
  Not,
  Or,
  PrimaryGeneratedColumn,
  type Repository,
} from 'typeorm'
import { expectTypeOf, test } from 'vitest'
import { UniqueText } from '../../src'
import { textCondition, textEquals, textIn } from '../../src/typeorm-calls'

// Nothing here runs: the compiler checks it (`npm run typecheck`).

/** What a transformer of the user's own makes of a text. */
class Address {
  constructor(readonly host: string) {}
}

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @UniqueText({ nullable: true, lookup: 'hash' }) alias!: string | null
  @UniqueText() @Column({ type: 'text' }) address!: Address
}

@Entity()
class Link {
  @PrimaryGeneratedColumn('identity') id!: number
  @ManyToOne(() => Page) page!: Page
}

declare const manager: EntityManager
declare const pages: Repository<Page>
declare const links: Repository<Link>

test('the operators go wherever a where goes', () => {
  void pages.findBy({ url: textEquals('a'), alias: textEquals('b') })
  void pages.findBy([{ url: textIn(['a', 'b'] as const) }, { url: Not(textEquals('a')) }])
  void pages.update({ url: Or(textEquals('a'), textEquals('b')) }, { alias: null })
  void links.findBy({ page: { url: textEquals('a') } })
  void pages.createQueryBuilder().where({ url: textEquals('a') })
  const equals = textEquals('a')
  expectTypeOf(equals).toEqualTypeOf<FindOperator<string>>()
  const anyOf = textIn(['a'])
  expectTypeOf(anyOf).toEqualTypeOf<FindOperator<string>>()
})

test('they take what the property takes', () => {
  void pages.findBy({ address: textEquals(new Address('a')) })
  // @ts-expect-error (a number is no text)
  void pages.findBy({ url: textEquals(1) })
  // @ts-expect-error (for rows without a text, there is IsNull())
  void pages.findBy({ alias: textEquals(null) })
  // @ts-expect-error (a list)
  textIn('a')
})

test('textCondition is spread into a query builder, and knows the properties', () => {
  void links.createQueryBuilder('l').innerJoin('l.page', 'p', ...textCondition(manager, Page, 'p', { url: 'a' }))
  void pages.createQueryBuilder('p').where(...textCondition(manager, Page, 'p', { url: 'a', alias: null }))
  // @ts-expect-error (there is no such property)
  textCondition(manager, Page, 'p', { link: 'a' })
})
