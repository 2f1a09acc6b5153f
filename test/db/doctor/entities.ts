import 'reflect-metadata'
import { Column, DataSource, DeleteDateColumn, Entity, ManyToOne, PrimaryColumn, PrimaryGeneratedColumn } from 'typeorm'
import { findOrCreateMany, UniqueText } from '../../../src'
import { Name, UniqueName } from '../../../src/names'
import { NumberWithin } from '../../../src/numbers'
import { lowerCase, trim, url } from '../../../src/text'
import { Url } from '../../../src/url'
import { fewHashes } from '../../support/digests'

@Entity()
export class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ normalize: url() }) url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

/** Refers to pages. */
@Entity()
export class Visit {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @ManyToOne(() => Page) page!: Page
}

/** Two chains for all, in each scope. */
@Entity('Colliding rows')
export class Colliding {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ digest: fewHashes(2) }) text!: string
}

@Entity()
export class Scoped {
  @PrimaryColumn({ type: 'varchar', length: 20 }) tenant!: string
  @PrimaryColumn({ type: 'timestamptz' }) at!: Date
  @UniqueText({ scope: ['tenant'], digest: 'sha256', nullable: true, normalize: trim() }) note!: string | null
}

@Entity()
export class Soft {
  @PrimaryGeneratedColumn('uuid') id!: string
  @UniqueText({ ignoreDeleted: true, normalize: lowerCase() }) text!: string
  @DeleteDateColumn() deletedAt!: Date | null
}

@Entity()
@UniqueText({ as: 'name', columns: ['first', { property: 'last', prefix: ' ' }] })
export class Person {
  @PrimaryGeneratedColumn('identity', { type: 'bigint' }) id!: string
  @Column({ type: 'text' }) first!: string
  @Column({ type: 'text', nullable: true }) last!: string | null
}

export const handles = lowerCase()

@Entity('user')
export class User {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueName({ namespace: 'handle', former: 'redirect', normalize: handles }) handle!: string
}

@Entity()
export class Organization {
  @PrimaryGeneratedColumn('uuid') id!: string
  @UniqueName({ namespace: 'handle', normalize: handles }) slug!: string
}

@Entity()
export class Comment {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @Column({ type: 'text' }) page!: string
  @NumberWithin({ scope: ['page'], count: true }) number!: number
  @DeleteDateColumn() deletedAt!: Date | null
}

@Entity()
export class Ticket {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @NumberWithin({ scope: [] }) number!: number
}

export const ENTITIES = [Page, Visit, Colliding, Scoped, Soft, Person, User, Organization, Comment, Ticket, Name, Url]

/** Ten rows or so in every table. */
export async function fill(dataSource: DataSource): Promise<void> {
  const { manager } = dataSource
  const ten = Array.from({ length: 10 }, (_, index) => index)
  await findOrCreateMany(
    manager,
    Page,
    ten.map((index) => ({ url: `http://example.com/${index}` })),
  )
  await manager.save(
    Visit,
    [1, 1, 2].map((id) => ({ page: { id } })),
  )
  for (const index of ten) await manager.save(Colliding, { text: `text ${index}` })
  await manager.save(
    Scoped,
    ten.map((index) => ({
      tenant: `t${index % 2}`,
      at: new Date(Date.UTC(2026, 0, 1, 0, 0, 0, index)),
      note: index < 3 ? null : `note ${index >> 1}`,
    })),
  )
  for (const index of ten) {
    const { id } = await manager.save(Soft, { text: `soft ${index >> 1}` })
    if (index % 2 === 0) await manager.softDelete(Soft, { id })
  }
  await manager.save(
    Person,
    ten.map((index) => ({ first: `f${index}`, last: index % 2 === 0 ? null : 'l' })),
  )
  const users = await manager.save(
    User,
    ten.map((index) => ({ handle: `user${index}` })),
  )
  await manager.save(User, { id: users[0]?.id ?? 0, handle: 'renamed' })
  await manager.save(
    Organization,
    ten.map((index) => ({ slug: `org${index}` })),
  )
  await manager.save(
    Comment,
    ten.map((index) => ({ page: `p${index % 3}` })),
  )
  await manager.softDelete(Comment, { id: 1 })
  await manager.save(
    Ticket,
    ten.map(() => ({})),
  )
  await Url.parseMany(
    ten.map((index) => `https://example.com/${index}?q=${index}#f`),
    { manager },
  )
}
