import { Column, type DataSource, Entity, type EntityManager, ManyToOne, PrimaryGeneratedColumn } from 'typeorm'
import { test } from 'vitest'
import {
  countByText,
  deleteByText,
  existsByText,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  firstFreeText,
  insertOrFail,
  UniqueText,
  updateOrFail,
  upsertByText,
} from '../../src'
import { rename, UniqueName } from '../../src/names'

// Nothing here runs: the compiler checks it (`npm run typecheck`).

@Entity()
class Tenant {
  @PrimaryGeneratedColumn() id!: number
}

@Entity()
class Page {
  @PrimaryGeneratedColumn() id!: number
  @ManyToOne(() => Tenant, { nullable: false }) tenant!: Tenant
  @UniqueText({ scope: ['tenant'] }) url!: string
  @UniqueName({ namespace: 'handle' }) handle!: string
  @Column({ type: 'text' }) title!: string
  @Column({ type: 'integer' }) rank!: number
}

declare const manager: EntityManager
declare const dataSource: DataSource
const tenant = { id: 1 }

test('22 mistakes: the compiler finds those that it can know without the declaration', () => {
  void (() => [
    // @ts-expect-error (a misspelt property)
    findOrCreate(manager, Page, { tenant, uri: 'a' }),
    // @ts-expect-error (a number is no text)
    findOrCreate(manager, Page, { tenant, url: 1 }),
    // @ts-expect-error (not nullable)
    findOrCreate(manager, Page, { tenant, url: null }),
    // @ts-expect-error (a DataSource is no manager)
    findOrCreate(dataSource, Page, { tenant, url: 'a' }),
    // @ts-expect-error (no such option)
    findOrCreate(manager, Page, { tenant, url: 'a' }, { on: 'url' }),
    // @ts-expect-error (no such relation)
    findOrCreate(manager, Page, { tenant, url: 'a' }, { relations: { tennant: true } }),
    // @ts-expect-error (the text that "by" names is missing)
    findOrCreate(manager, Page, { tenant, title: 'a' }, { by: 'url' }),
    // @ts-expect-error (no text: a number)
    findOneByText(manager, Page, { tenant, url: 'a', rank: 1 }, { by: 'rank' }),
    // @ts-expect-error (a look-up has no such property)
    findOneByText(manager, Page, { tenant, link: 'a' }),
    // @ts-expect-error (a list)
    countByText(manager, Page, { tenant, url: 'a' }),
    // @ts-expect-error (a property that the entity does not have)
    upsertByText(manager, Page, [{ tenant, url: 'a' }], { update: ['titel'] }),
    // @ts-expect-error (the id is a number)
    updateOrFail(manager, Page, '1', { url: 'a' }),
    // @ts-expect-error (a change without its key)
    updateOrFail(manager, Page, [{ url: 'a' }]),
    // @ts-expect-error (a misspelt property of a change)
    updateOrFail(manager, Page, [{ id: 1, uri: 'a' }]),
    // @ts-expect-error (a misspelt property of a row)
    insertOrFail(manager, Page, [{ tenant, uri: 'a' }]),
    // @ts-expect-error (a number is no name)
    rename(manager, Page, 1, { rank: 'a' }),
  ])
  // Only the DataSource knows what these lack. Each is refused before any SQL, with the error beside it.
  void (() => [
    // TextRejectedError: the property is missing
    findOrCreate(manager, Page, { tenant }),
    // DeclarationError: "url" of Page is unique within "tenant.id". Give its value.
    findOrCreateMany(manager, Page, [{ url: 'a' }]),
    // DeclarationError: existsByText() finds a row of Page by "url", "tenant.id" only. Leave out "title"
    existsByText(manager, Page, { tenant, url: 'a', title: 'b' }),
    // DeclarationError: Page declares no unique text "ulr". The option "by" takes one of "url". (`as` names a text, too.)
    deleteByText(manager, Page, { tenant, url: 'a' }, { by: 'ulr' }),
    // DeclarationError: firstFreeText() finds a row of Page by "url", "tenant.id" only. Leave out "title"
    firstFreeText(manager, Page, [{ tenant, title: 'a' }]),
    // DeclarationError: rename(): "title" is not a name
    rename(manager, Page, 1, { title: 'a' }),
  ])
})
