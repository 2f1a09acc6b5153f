import type { EntityManager } from 'typeorm'
import {
  countByText,
  deleteByText,
  existsByText,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  firstFreeText,
  insertOrFail,
  insertOrNull,
  updateOrFail,
  upsertByText,
} from '../../src'
import { findHolder, findOrCreateHolder, formerNamesOf, Name, releaseExpired, rename, swapNames } from '../../src/names'
import { countWithin } from '../../src/numbers'
import { forgetToken, once, OnceToken, removeExpiredTokens } from '../../src/once'
import { column, entity, numberWithin, plain, text, toOne, uniqueName } from './entity'

export const Site = entity('Site', { host: text() })
export type Site = InstanceType<typeof Site>
export const Page = entity('Page', { url: text(), title: plain(), site: toOne(() => Site, { cascade: true }) })
export type Page = InstanceType<typeof Page>
export const User = entity('User', { handle: uniqueName({ namespace: 'handle', former: 'reserve' }) })
export type User = InstanceType<typeof User>
export const Comment = entity('Comment', {
  text: text(),
  post: column('text'),
  number: numberWithin({ scope: ['post'], count: true }),
})
export type Comment = InstanceType<typeof Comment>

export const ENTITIES = [Site, Page, User, Comment, Name, OnceToken]

/** What the calls are made with: texts that are there, and a text that is not. */
export async function prepare(manager: EntityManager): Promise<void> {
  await findOrCreateMany(manager, Page, [{ url: 'there' }, { url: 'changed' }])
  await insertOrFail(manager, User, [{ handle: 'ada' }, { handle: 'grace' }])
  await insertOrFail(manager, Comment, { text: 'first', post: 'p' })
}

/** Every call of the package that sends statements by a manager, with texts of its own where it writes. */
export const ALL_CALLS: Readonly<Record<string, (manager: EntityManager, text: string) => Promise<unknown>>> = {
  findOneByText: (manager) => findOneByText(manager, Page, { url: 'there' }),
  existsByText: (manager) => existsByText(manager, Page, { url: 'there' }),
  countByText: (manager, url) => countByText(manager, Page, [{ url }, { url: 'there' }]),
  deleteByText: (manager, url) => deleteByText(manager, Page, { url }),
  findOrCreate: (manager, url) => findOrCreate(manager, Page, { url }),
  'findOrCreate of nested objects': (manager, url) =>
    findOrCreate(manager, Page, { url, site: { host: url } }, { relations: 'findOrCreate' }),
  findOrCreateMany: (manager, url) => findOrCreateMany(manager, Page, [{ url }, { url: `${url} 2` }]),
  'findOrCreateMany of nested objects': (manager, url) =>
    findOrCreateMany(manager, Page, [{ url, site: { host: url } }], { relations: 'findOrCreate' }),
  upsertByText: (manager, url) => upsertByText(manager, Page, { url, title: 'a' }),
  'upsertByText of several': (manager, url) => upsertByText(manager, Page, [{ url }, { url: `${url} 2` }]),
  insertOrFail: (manager, url) => insertOrFail(manager, Page, { url }),
  'insertOrFail of several': (manager, url) => insertOrFail(manager, Page, [{ url }, { url: `${url} 2` }]),
  'insertOrFail by insertOrNull': (manager, url) => insertOrNull(manager, Page, { url }),
  updateOrFail: (manager, url) => updateOrFail(manager, Page, 2, { url }),
  findHolder: (manager) => findHolder(manager, 'handle', 'ada'),
  findOrCreateHolder: (manager, handle) => findOrCreateHolder(manager, User, { handle }),
  rename: (manager, handle) => rename(manager, User, 1, { handle }),
  swapNames: (manager) => swapNames(manager, User, 1, 2),
  firstFreeText: (manager, handle) => firstFreeText(manager, User, [{ handle }]),
  formerNamesOf: (manager) => formerNamesOf(manager, User, 1),
  releaseExpired: (manager) => releaseExpired(manager),
  countWithin: (manager) => countWithin(manager, Comment, { post: 'p' }),
  once: (manager, token) => once(manager, token, (own) => own.count(Page)),
  forgetToken: (manager, token) => forgetToken(manager, token),
  removeExpiredTokens: (manager) => removeExpiredTokens(manager),
}
