import { Column, type EntityManager, Entity, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import {
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  UniqueText,
  updateOrFail,
  upsertByText,
} from '../../src'
import { findHolder, findOrCreateHolder, Name, releaseExpired, rename, swapNames, UniqueName } from '../../src/names'
import { countWithin, NumberWithin } from '../../src/numbers'
import { forgetToken, once, OnceToken, removeExpiredTokens } from '../../src/once'
import { saveFindingTexts } from '../../src/typeorm-calls'

@Entity()
export class Site {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() host!: string
}

@Entity()
export class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
  @ManyToOne(() => Site, { nullable: true, cascade: true }) site!: Site | null
}

@Entity()
export class User {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueName({ namespace: 'handle', former: 'reserve' }) handle!: string
}

@Entity()
export class Comment {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() text!: string
  @Column({ type: 'text' }) post!: string
  @NumberWithin({ scope: ['post'], count: true }) number!: number
}

export const ENTITIES = [Site, Page, User, Comment, Name, OnceToken]

/** What the calls are made with: texts that are there, and a text that is not. */
export async function prepare(manager: EntityManager): Promise<void> {
  await findOrCreateMany(manager, Page, [{ url: 'there' }, { url: 'changed' }])
  await insertOrFail(manager, User, [{ handle: 'ada' }, { handle: 'grace' }])
  await insertOrFail(manager, Comment, { text: 'first', post: 'p' })
}

/** Every call of the package that sends statements by a manager, with texts of its own where it writes. */
export const ALL_CALLS: Readonly<Record<string, (manager: EntityManager, text: string) => Promise<unknown>>> = {
  findOneByText: async (manager) => await findOneByText(manager, Page, { url: 'there' }),
  findOrCreate: async (manager, url) => await findOrCreate(manager, Page, { url }),
  'findOrCreate of nested objects': async (manager, url) =>
    await findOrCreate(manager, Page, { url, site: { host: url } }, { relations: 'findOrCreate' }),
  findOrCreateMany: async (manager, url) => await findOrCreateMany(manager, Page, [{ url }, { url: `${url} 2` }]),
  'findOrCreateMany of nested objects': async (manager, url) =>
    await findOrCreateMany(manager, Page, [{ url, site: { host: url } }], { relations: 'findOrCreate' }),
  upsertByText: async (manager, url) => await upsertByText(manager, Page, { url, title: 'a' }),
  'upsertByText of several': async (manager, url) => await upsertByText(manager, Page, [{ url }, { url: `${url} 2` }]),
  insertOrFail: async (manager, url) => await insertOrFail(manager, Page, { url }),
  'insertOrFail of several': async (manager, url) => await insertOrFail(manager, Page, [{ url }, { url: `${url} 2` }]),
  updateOrFail: async (manager, url) => await updateOrFail(manager, Page, 2, { url }),
  findHolder: async (manager) => await findHolder(manager, 'handle', 'ada'),
  findOrCreateHolder: async (manager, handle) => await findOrCreateHolder(manager, User, { handle }),
  rename: async (manager, handle) => await rename(manager, User, 1, { handle }),
  swapNames: async (manager) => await swapNames(manager, User, 1, 2),
  releaseExpired: async (manager) => await releaseExpired(manager),
  countWithin: async (manager) => await countWithin(manager, Comment, { post: 'p' }),
  once: async (manager, token) => await once(manager, token, async (own) => await own.count(Page)),
  forgetToken: async (manager, token) => await forgetToken(manager, token),
  removeExpiredTokens: async (manager) => await removeExpiredTokens(manager),
  saveFindingTexts: async (manager, url) => await saveFindingTexts(manager, Page, { url, site: { host: url } }),
}
