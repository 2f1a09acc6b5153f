import {
  Column,
  type DataSource,
  Entity,
  type EntityManager,
  EntitySchema,
  PrimaryGeneratedColumn,
  type Repository,
} from 'typeorm'
import { describe, expectTypeOf, test } from 'vitest'
import {
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  type FindOrCreateManyResult,
  type FindOrCreateResult,
  UniqueText,
  UniqueTextEntity,
  uniqueTextMethods,
  upsertByText,
  withUniqueText,
} from '../../src'
import { Url } from '../../src/url'

// Nothing here runs: the compiler checks it (`npm run typecheck`).

@Entity()
class Page extends UniqueTextEntity {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

interface Plain {
  id: number
  text: string
}

declare const manager: EntityManager
declare const repository: Repository<Page>
declare const schema: EntitySchema<Plain>

describe('findOrCreate', () => {
  test('gives the entity of the class, of the schema and of the repository', () => {
    const ofClass = () => findOrCreate(manager, Page, { url: 'a', title: null })
    const ofSchema = () => findOrCreate(manager, schema, { text: 'a' })
    const ofRepository = () => repository.extend(uniqueTextMethods).findOrCreate({ url: 'a' })
    const ofRecord = () => Page.findOrCreate({ url: 'a' })
    expectTypeOf(ofClass).returns.resolves.toEqualTypeOf<FindOrCreateResult<Page>>()
    expectTypeOf(ofSchema).returns.resolves.toEqualTypeOf<FindOrCreateResult<Plain>>()
    expectTypeOf(ofRepository).returns.resolves.toEqualTypeOf<FindOrCreateResult<Page>>()
    expectTypeOf(ofRecord).returns.resolves.toEqualTypeOf<FindOrCreateResult<Page>>()
  })

  test('takes values of the entity only', () => {
    // @ts-expect-error (no such property)
    void (() => findOrCreate(manager, Page, { uri: 'a' }))
    // @ts-expect-error (a text is no number)
    void (() => findOrCreate(manager, Page, { url: 1 }))
    // @ts-expect-error (not nullable)
    void (() => findOrCreate(manager, Page, { url: null }))
    // @ts-expect-error (values must not decide what the entity is)
    void (() => findOrCreate(manager, schema, { url: 'a' }))
    // @ts-expect-error (a DataSource is no manager: say which connection)
    void ((dataSource: DataSource) => findOrCreate(dataSource, Page, { url: 'a' }))
    // @ts-expect-error (no such property, in active-record style)
    void (() => Page.findOrCreate({ uri: 'a' }))
    // @ts-expect-error (no such property, on a repository)
    void (() => repository.extend(uniqueTextMethods).findOrCreate({ uri: 'a' }))
    // @ts-expect-error (the option is called "by")
    void (() => findOrCreate(manager, Page, { url: 'a' }, { on: 'url' }))
    // @ts-expect-error (a deleted row is returned, restored or refused)
    void (() => findOrCreate(manager, Page, { url: 'a' }, { deleted: 'ignore' }))
  })

  test('tells created and attempts, and the result cannot be changed', () => {
    expectTypeOf<FindOrCreateResult<Page>>().toEqualTypeOf<{
      readonly entity: Page
      readonly created: boolean
      readonly attempts: number
    }>()
  })
})

describe('findOrCreateMany', () => {
  test('gives a row or an error at each place, told apart by "error"', () => {
    const many = () => findOrCreateMany(manager, Page, [{ url: 'a' }])
    expectTypeOf(many).returns.resolves.toEqualTypeOf<FindOrCreateManyResult<Page>[]>()
    void ((result: FindOrCreateManyResult<Page>) => {
      if ('error' in result) {
        expectTypeOf(result.error).toBeUnknown()
        // @ts-expect-error (there is no row where there is an error)
        void result.entity
      } else {
        expectTypeOf(result.entity).toEqualTypeOf<Page>()
      }
      // @ts-expect-error (look for the error first)
      void result.created
    })
  })

  test('takes lists that cannot be changed', () => {
    void ((inputs: readonly { readonly url: string }[]) => findOrCreateMany(manager, Page, inputs))
    // @ts-expect-error (a list, not one)
    void (() => findOrCreateMany(manager, Page, { url: 'a' }))
  })
})

describe('upsertByText', () => {
  test('gives a row for one, and a row or an error at each place for many', () => {
    const one = () => upsertByText(manager, Page, { url: 'a' }, { update: ['title'] })
    const many = () => upsertByText(manager, Page, [{ url: 'a' }], { skipUpdateIfNoValuesChanged: true })
    const ofRepository = () => repository.extend(uniqueTextMethods).upsertByText([{ url: 'a' }])
    const ofRecord = () => Page.upsertByText({ url: 'a' })
    expectTypeOf(one).returns.resolves.toEqualTypeOf<FindOrCreateResult<Page>>()
    expectTypeOf(many).returns.resolves.toEqualTypeOf<FindOrCreateManyResult<Page>[]>()
    expectTypeOf(ofRepository).returns.resolves.toEqualTypeOf<FindOrCreateManyResult<Page>[]>()
    expectTypeOf(ofRecord).returns.resolves.toEqualTypeOf<FindOrCreateResult<Page>>()
    void ((rows: readonly { readonly url: string }[]) => upsertByText(manager, Page, rows))
  })

  test('takes values and properties of the entity only', () => {
    // @ts-expect-error (no such property)
    void (() => upsertByText(manager, Page, [{ uri: 'a' }]))
    // @ts-expect-error (no such property to update)
    void (() => upsertByText(manager, Page, { url: 'a' }, { update: ['titel'] }))
    // @ts-expect-error (no such property, on a repository)
    void (() => repository.extend(uniqueTextMethods).upsertByText({ url: 'a' }, { update: ['titel'] }))
    // @ts-expect-error (a list)
    void (() => upsertByText(manager, Page, { url: 'a' }, { update: 'title' }))
  })
})

test('findOneByText gives the entity or null', () => {
  const find = () => findOneByText(manager, Page, { url: 'a' })
  expectTypeOf(find).returns.resolves.toEqualTypeOf<Page | null>()
  const ofRecord = () => Page.findOneByText({ url: 'a' })
  expectTypeOf(ofRecord).returns.resolves.toEqualTypeOf<Page | null>()
})

test('Url.parse takes what may be missing, and gives a Url or null', () => {
  const parse = (text: string | null | undefined) => Url.parse(text)
  const within = (text: string) => Url.parse(text, manager)
  expectTypeOf(parse).returns.resolves.toEqualTypeOf<Url | null>()
  expectTypeOf(within).returns.resolves.toEqualTypeOf<Url | null>()
  // @ts-expect-error (a text is no number)
  void (() => Url.parse(1))
})

test('withUniqueText gives the kind of DataSource it got', () => {
  type Own = DataSource & { readonly own: true }
  const wrap = (own: Own) => withUniqueText(own, { prepare: false })
  expectTypeOf(wrap).returns.toEqualTypeOf<Own>()
  // @ts-expect-error (options alone are no DataSource)
  void (() => withUniqueText({ type: 'postgres' }))
})
