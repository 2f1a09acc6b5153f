import {
  Column,
  type DataSource,
  Entity,
  type EntityManager,
  EntitySchema,
  type DeepPartial,
  type EntityTarget,
  ManyToOne,
  type ObjectLiteral,
  PrimaryGeneratedColumn,
  type QueryFailedError,
  type Repository,
} from 'typeorm'
import { describe, expectTypeOf, test } from 'vitest'
import {
  countByText,
  deleteByText,
  existsByText,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  type FindOrCreateManyResult,
  type FindOrCreateOptions,
  type FindOrCreateResult,
  insertOrFail,
  type TakenText,
  TextTakenError,
  UniqueText,
  UniqueTextEntity,
  type UniqueTextError,
  uniqueTextMethods,
  updateOrFail,
  upsertByText,
  withUniqueText,
} from '../../src'
import { once } from '../../src/once'
import type { WritableOnly } from '../../src/calls/insert-or-fail'
import type { GivenValues, NoPropertyOfTheEntity } from '../../src/calls/call-options'
import { findOrCreateStream, findOrCreateTransform } from '../../src/stream'
import { Url } from '../../src/url'

// Nothing here runs: the compiler checks it (`npm run typecheck`).

@Entity()
class Page extends UniqueTextEntity {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

class Counters {
  @Column({ type: 'integer' }) views!: number
}

@Entity()
class Counted {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() text!: string
  @Column(() => Counters) counters!: Counters
  @ManyToOne(() => Page) page!: Page
}

interface Plain {
  id: number
  text: string
}

declare const manager: EntityManager
declare const repository: Repository<Page>
declare const schema: EntitySchema<Plain>

class Author {
  id!: number
  name!: string
  pages!: Story[]
}
class Story {
  id!: number
  text!: string
  author!: Author | null
}

describe('relations', () => {
  test('are loaded, or found or created, by their names', () => {
    const values = { text: 'a', author: { name: 'b' } }
    void (() => findOrCreate(manager, Story, values, { relations: 'findOrCreate' }))
    void (() => findOrCreateMany(manager, Story, [values], { relations: { author: 'findOrCreate' } }))
    void (() => findOrCreate(manager, Story, values, { relations: { author: { pages: true } } }))
    void (() => findOrCreate(manager, Author, { pages: [{ text: 'a' }] }, { relations: { pages: 'findOrCreate' } }))
    // @ts-expect-error (no such relation)
    void (() => findOrCreate(manager, Story, values, { relations: { autor: 'findOrCreate' } }))
    // @ts-expect-error (what is loaded is true)
    void (() => findOrCreate(manager, Story, values, { relations: { author: 'load' } }))
    // @ts-expect-error (a look-up creates nothing)
    void (() => findOneByText(manager, Story, { text: 'a' }, { relations: 'findOrCreate' }))
  })
})

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

  test('a key is of the type of the id, and an answer what JSON holds', () => {
    void (() => updateOrFail(manager, Page, 1, { url: 'a' }))
    // @ts-expect-error (the id is a number)
    void (() => updateOrFail(manager, Page, '1', { url: 'a' }))
    void (() => once(manager, 'token', () => ({ id: 1, list: ['a'], none: null })))
    void (() => once(manager, 'token', async () => await manager.query('select 1')))
    void (() => once(manager, 'token', () => {}))
    // @ts-expect-error (JSON holds no Date)
    void (() => once(manager, 'token', () => new Date()))
    // @ts-expect-error (nor a promised one in an object)
    void (() => once(manager, 'token', async () => await Promise.resolve({ at: new Date() })))
    // @ts-expect-error (nor a bigint in a list)
    void (() => once(manager, 'token', () => [1n]))
  })

  test('a misspelt property is told by its name', () => {
    type Told = GivenValues<Page, { url: string; titel: string }>['titel' &
      keyof GivenValues<Page, { url: string; titel: string }>]
    expectTypeOf<Told>().toExtend<NoPropertyOfTheEntity<'titel'>>()
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

  test('takes a variable of the same type, and none of a wider one', () => {
    const right = { url: 'a', title: 'x' }
    const misspelt = { url: 'a', titel: 'x' }
    const nested = { text: 'a', counters: { views: 1 } }
    void (() => findOrCreate(manager, Page, right))
    void (() => findOrCreate(manager, Counted, nested))
    void ((page: Page) => findOrCreate(manager, Page, page))
    void ((values: DeepPartial<Page>) => findOrCreate(manager, Page, values))
    void ((parsed: Record<string, string>) => findOrCreate(manager, Page, parsed))
    // @ts-expect-error (no property "titel")
    void (() => findOrCreate(manager, Page, misspelt))
    // @ts-expect-error (no property "titel", in active-record style)
    void (() => Page.findOrCreate(misspelt))
    // @ts-expect-error (no property "titel", on a repository)
    void (() => repository.extend(uniqueTextMethods).findOrCreate(misspelt))
    // @ts-expect-error (no property "titel", for a look-up)
    void (() => findOneByText(manager, Page, misspelt))
    // @ts-expect-error (no property "titel", among many)
    void (() => findOrCreateMany(manager, Page, [misspelt]))
    // @ts-expect-error (no property "vews" of an embedded)
    void (() => findOrCreate(manager, Counted, { text: 'a', counters: { vews: 1 } }))
  })

  test('requires the text that "by" names', () => {
    void (() => findOrCreate(manager, Page, { url: 'a' }, { by: 'url' }))
    void (() => findOrCreate(manager, Page, { url: 'a' }, { by: 'the "as" of a class' }))
    void ((by: string) => findOrCreate(manager, Page, { title: 'a' }, { by }))
    // @ts-expect-error (no text)
    void (() => findOrCreate(manager, Page, { title: 'a' }, { by: 'url' }))
    // @ts-expect-error (no text, for a look-up)
    void (() => findOneByText(manager, Page, {}, { by: 'url' }))
    // @ts-expect-error (no text, among many)
    void (() => findOrCreateMany(manager, Page, [{ title: 'a' }], { by: 'url' }))
    // @ts-expect-error (no text, in active-record style)
    void (() => Page.findOrCreate({ title: 'a' }, { by: 'url' }))
    // @ts-expect-error (no text, on a repository)
    void (() => repository.extend(uniqueTextMethods).findOneByText({ title: 'a' }, { by: 'url' }))
    // @ts-expect-error (a name)
    void (() => findOrCreate(manager, Page, { url: 'a' }, { by: 1 }))
  })

  test('takes create-only values of the entity, as an object or a function', () => {
    void (() => findOrCreate(manager, Page, { url: 'a' }, { create: { title: 'x' } }))
    void (() => findOrCreate(manager, Page, { url: 'a' }, { create: () => ({ title: 'x' }) }))
    void (() =>
      findOrCreate(manager, Page, { url: 'a' }, { create: async () => await Promise.resolve({ title: 'x' }) }))
    void (() =>
      findOrCreateMany(manager, Page, [{ url: 'a' }], {
        create: (values, index) => ({ title: `${values.url} ${index.toFixed()}` }),
      }))
    // @ts-expect-error (no property of that name)
    void (() => findOrCreate(manager, Page, { url: 'a' }, { create: { titel: 'x' } }))
    const later = async () => await Promise.resolve({ titel: 'x' })
    // @ts-expect-error (no property of that name, by a promise)
    void (() => findOrCreate(manager, Page, { url: 'a' }, { create: later }))
    // @ts-expect-error (it must return something)
    void (() => findOrCreate(manager, Page, { url: 'a' }, { create: () => {} }))
    // @ts-expect-error (a promise is no function: call it only when the row is missing)
    void (() => findOrCreate(manager, Page, { url: 'a' }, { create: Promise.resolve({ title: 'x' }) }))
    // @ts-expect-error (a look-up creates nothing)
    void (() => findOneByText(manager, Page, { url: 'a' }, { create: { title: 'x' } }))
  })

  test('takes relations and replica where they mean something', () => {
    void (() => findOrCreate(manager, Counted, { text: 'a' }, { relations: { page: true } }))
    void (() => findOneByText(manager, Counted, { text: 'a' }, { relations: ['page'], replica: true }))
    // @ts-expect-error (no such relation)
    void (() => findOrCreate(manager, Counted, { text: 'a' }, { relations: { pages: true } }))
    // @ts-expect-error (what creates does not read from a replica)
    void (() => findOrCreate(manager, Page, { url: 'a' }, { replica: true }))
  })

  test('compiles in generic code', () => {
    class BaseRepository<Row extends ObjectLiteral> {
      constructor(private readonly rows: Repository<Row>) {}
      async one(values: DeepPartial<Row>, options?: FindOrCreateOptions<Row>) {
        return await findOrCreate(this.rows.manager, this.rows.target, values, options)
      }
      async find(values: DeepPartial<Row>, by: string): Promise<Row | null> {
        return await findOneByText(this.rows.manager, this.rows.target, values, { by })
      }
      async many(values: readonly DeepPartial<Row>[]) {
        return await this.rows.extend(uniqueTextMethods).findOrCreateMany(values)
      }
      async text(text: string) {
        return await findOrCreate(this.rows.manager, this.rows.target, { text } as unknown as DeepPartial<Row>)
      }
    }
    const wrap = <Row extends ObjectLiteral>(target: EntityTarget<Row>, values: DeepPartial<Row>) =>
      findOrCreate<Row>(manager, target, values, { by: 'text' })
    const one = () => new BaseRepository(repository).one({ url: 'a' })
    expectTypeOf(one).returns.resolves.toEqualTypeOf<FindOrCreateResult<Page>>()
    return wrap
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
        expectTypeOf(result.error).toEqualTypeOf<UniqueTextError | QueryFailedError | Error>()
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

describe('findOrCreateStream', () => {
  const dataSource = {} as DataSource

  test('gives the results of findOrCreateMany, of any source', () => {
    const ofArray = () => findOrCreateStream(dataSource, Page, [{ url: 'a' }], { window: 10, by: 'url' })
    const ofGenerator = (source: AsyncGenerator<{ url: string; title: null }>) =>
      findOrCreateStream(dataSource, Page, source)
    const ofSchema = (source: Set<{ text: string }>) => findOrCreateStream(dataSource, schema, source)
    expectTypeOf(ofArray).returns.toExtend<AsyncIterable<FindOrCreateManyResult<Page>>>()
    expectTypeOf(ofGenerator).returns.toExtend<AsyncIterable<FindOrCreateManyResult<Page>>>()
    expectTypeOf(ofSchema).returns.toExtend<AsyncIterable<FindOrCreateManyResult<Plain>>>()
    void (() => findOrCreateTransform(dataSource, Page, { create: (values) => ({ title: values.url ?? null }) }))
  })

  test('takes what findOrCreateMany takes', () => {
    // @ts-expect-error (no such property)
    void (() => findOrCreateStream(dataSource, Page, [{ uri: 'a' }]))
    // @ts-expect-error (no property "titel")
    void ((source: AsyncIterable<{ url: string; titel: string }>) => findOrCreateStream(dataSource, Page, source))
    // @ts-expect-error (no text)
    void (() => findOrCreateStream(dataSource, Page, [{ title: 'a' }], { by: 'url' }))
    // @ts-expect-error (a source, not one input)
    void (() => findOrCreateStream(dataSource, Page, { url: 'a' }))
    // @ts-expect-error (a stream takes no part in a transaction)
    void (() => findOrCreateStream(manager, Page, [{ url: 'a' }]))
    // @ts-expect-error (a number of rows)
    void (() => findOrCreateStream(dataSource, Page, [], { window: 'large' }))
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
    // @ts-expect-error (no such property to set)
    void (() => upsertByText(manager, Page, { url: 'a' }, { update: { titel: () => '1' } }))
    // @ts-expect-error (no such column in SQL)
    void (() => upsertByText(manager, Page, { url: 'a' }, { update: { title: ({ stored }) => stored.titel } }))
    // @ts-expect-error (a value is given in the row)
    void (() => upsertByText(manager, Page, { url: 'a' }, { update: { title: 'b' } }))
    // @ts-expect-error (SQL)
    void (() => upsertByText(manager, Page, { url: 'a' }, { where: ({ stored }) => stored.id === '1' }))
    // @ts-expect-error (a function gives values for many moments)
    void (() => upsertByText(manager, Page, { url: 'a' }, { create: () => ({ title: 'b' }) }))
    void (() => upsertByText(manager, Page, { url: 'a' }, { create: { title: 'b' }, update: {}, where: () => 'true' }))
    void (() =>
      upsertByText(manager, Counted, [{ text: 'a' }], {
        update: { 'counters.views': ({ stored }) => `${stored['counters.views']} + 1`, page: true },
      }))
  })
})

describe('insertOrFail and updateOrFail', () => {
  test('of a list, the property or key that is wrong is told, and not the list', () => {
    const misspelt = { text: 'a', titel: 'x' }
    void (() =>
      insertOrFail(manager, [
        [Page, { url: 'a' }],
        [
          Author,
          [
            { name: 'a' },
            // @ts-expect-error (no property "nam")
            { nam: 'a' },
          ],
        ],
        [
          Story,
          // @ts-expect-error (no property "titel" in a variable)
          misspelt,
        ],
      ]))
    void (() =>
      updateOrFail(manager, [
        [
          Page,
          // @ts-expect-error (the id is a number)
          '1',
          { url: 'a' },
        ],
        [
          Page,
          2,
          {
            url: 'a',
            // @ts-expect-error (no property "titel")
            titel: 'x',
          },
        ],
      ]))
    void ((parsed: Record<string, string>, story: Story) => insertOrFail(manager, [[Story, [parsed, story]]]))
    type Told = WritableOnly<Page, { url: string; titel: string }>['titel' &
      keyof WritableOnly<Page, { url: string; titel: string }>]
    expectTypeOf<Told>().toExtend<NoPropertyOfTheEntity<'titel'>>()
  })

  const pages = repository.extend(uniqueTextMethods)

  test('give entities in the shape of what they are given', () => {
    const one = () => insertOrFail(manager, Page, { url: 'a' })
    const many = () => insertOrFail(manager, Page, [{ url: 'a' }])
    const tables = () =>
      insertOrFail(manager, [
        [Page, { url: 'a' }],
        [Counted, [{ text: 'a', page: { id: 1 } }]],
      ])
    const schemas = () => insertOrFail(manager, [[schema, [{ text: 'a' }]]])
    expectTypeOf(one).returns.resolves.toEqualTypeOf<Page>()
    expectTypeOf(many).returns.resolves.toEqualTypeOf<Page[]>()
    expectTypeOf(tables).returns.resolves.toEqualTypeOf<[Page, Counted[]]>()
    expectTypeOf(schemas).returns.resolves.toEqualTypeOf<[Plain[]]>()
    expectTypeOf(() => pages.insertOrFail({ url: 'a' })).returns.resolves.toEqualTypeOf<Page>()
    expectTypeOf(() => pages.insertOrFail([{ url: 'a' }])).returns.resolves.toEqualTypeOf<Page[]>()
    expectTypeOf(() => Page.insertOrFail({ url: 'a' })).returns.resolves.toEqualTypeOf<Page>()
    expectTypeOf(() => Page.insertOrFail([{ url: 'a' }])).returns.resolves.toEqualTypeOf<Page[]>()
    void ((rows: readonly { readonly url: string }[]) => insertOrFail(manager, Page, rows))
    const changed = () =>
      updateOrFail(manager, [
        [Page, 1, { url: 'a' }],
        [Counted, { id: 1 }, { text: 'a' }],
      ])
    expectTypeOf(() => updateOrFail(manager, Page, 1, { url: 'a' })).returns.resolves.toEqualTypeOf<Page>()
    expectTypeOf(changed).returns.resolves.toEqualTypeOf<[Page, Counted]>()
    expectTypeOf(() => pages.updateOrFail({ id: 1 }, { url: 'a' })).returns.resolves.toEqualTypeOf<Page>()
    expectTypeOf(() => Page.updateOrFail(1, { url: 'a' })).returns.resolves.toEqualTypeOf<Page>()
    const list = [{ id: 1, url: 'a' }]
    expectTypeOf(() => updateOrFail(manager, Page, list)).returns.resolves.toEqualTypeOf<Page[]>()
    expectTypeOf(() => pages.updateOrFail(list)).returns.resolves.toEqualTypeOf<Page[]>()
    expectTypeOf(() => Page.updateOrFail(list)).returns.resolves.toEqualTypeOf<Page[]>()
  })

  test('take properties of the entity, and functions that give SQL', () => {
    void (() => insertOrFail(manager, Page, { url: 'a', title: () => 'upper(current_user)' }))
    void (() => updateOrFail(manager, Counted, 1, { counters: { views: () => 'views + 1' } }))
    // @ts-expect-error (no such property)
    void (() => insertOrFail(manager, Page, { uri: 'a' }))
    // @ts-expect-error (no such property, in a list)
    void (() => insertOrFail(manager, Page, [{ url: 'a', titel: 'T' }]))
    // @ts-expect-error (a property of another entity)
    void (() => insertOrFail(manager, [[Page, { text: 1 }]]))
    // @ts-expect-error (no such property to change)
    void (() => updateOrFail(manager, Page, 1, { uri: 'a' }))
    // @ts-expect-error (no changes)
    void (() => updateOrFail(manager, Page, 1))
    // @ts-expect-error (a change of a list without its key, in active-record style)
    void (() => Page.updateOrFail([{ url: 'a' }]))
    // @ts-expect-error (a change of a list without its key, on a repository)
    void (() => pages.updateOrFail([{ url: 'a' }]))
    // @ts-expect-error (a manager, not a repository)
    void (() => insertOrFail(repository, Page, { url: 'a' }))
  })

  test('a refusal names what was taken', () => {
    expectTypeOf<TextTakenError['taken']>().toEqualTypeOf<readonly TakenText[]>()
    void (async (error: unknown) => {
      if (!(error instanceof TextTakenError)) return
      expectTypeOf(error).toEqualTypeOf<TextTakenError>()
      const [first] = error.taken
      if (first?.id) await manager.findOneBy(Page, first.id)
    })
  })
})

test('findOneByText gives the entity or null', () => {
  const find = () => findOneByText(manager, Page, { url: 'a' })
  expectTypeOf(find).returns.resolves.toEqualTypeOf<Page | null>()
  const ofRecord = () => Page.findOneByText({ url: 'a' })
  expectTypeOf(ofRecord).returns.resolves.toEqualTypeOf<Page | null>()
})

test('existsByText, countByText and deleteByText take text and scope alone', () => {
  const exists = () => existsByText(manager, Page, { url: 'a' }, { replica: true })
  const count = (rows: readonly { readonly url: string }[]) => countByText(manager, Page, rows)
  const remove = () => repository.extend(uniqueTextMethods).deleteByText({ url: 'a' }, { withDeleted: true })
  expectTypeOf(exists).returns.resolves.toEqualTypeOf<boolean>()
  expectTypeOf(count).returns.resolves.toEqualTypeOf<number>()
  expectTypeOf(remove).returns.resolves.toEqualTypeOf<boolean>()
  // @ts-expect-error (no property "uri")
  void (() => countByText(manager, Page, [{ uri: 'a' }]))
  // @ts-expect-error (a delete reads no replica)
  void (() => deleteByText(manager, Page, { url: 'a' }, { replica: true }))
})

test('Url.parse takes what may be missing, and gives a Url or null', () => {
  const parse = (text: string | null | undefined) => Url.parse(text)
  const within = (text: string) => Url.parse(text, manager)
  const stripped = (text: string) => Url.parse(text, { manager, userInformation: 'strip' })
  expectTypeOf(stripped).returns.resolves.toEqualTypeOf<Url | null>()
  expectTypeOf(parse).returns.resolves.toEqualTypeOf<Url | null>()
  expectTypeOf(within).returns.resolves.toEqualTypeOf<Url | null>()
  // @ts-expect-error (a text is no number)
  void (() => Url.parse(1))
})

test('Url.parseMany and Url.findOrCreate take texts, and give the class that they are called on', () => {
  class Link extends Url {
    label!: string
  }
  const many = (texts: (string | URL | null)[]) => Link.parseMany(texts, { manager })
  expectTypeOf(many).returns.resolves.toEqualTypeOf<(FindOrCreateManyResult<Link> | null)[]>()
  const one = (text: string | URL) => Link.findOrCreate(text, { create: { label: 'new' } })
  expectTypeOf(one).returns.resolves.toEqualTypeOf<FindOrCreateResult<Link>>()
  const parts = () => Link.findOrCreate({ scheme: 'http', host: 'a.example', path: '/', label: 'new' })
  expectTypeOf(parts).returns.resolves.toEqualTypeOf<FindOrCreateResult<Link>>()
  // @ts-expect-error: a Url has no such part
  void (() => Link.findOrCreate({ scheme: 'http', hots: 'a.example', path: '/' }))
  // @ts-expect-error: neither a text nor parts
  void (() => Link.findOrCreate(1))
  // @ts-expect-error: texts are what the rows are made of
  void (() => Link.parseMany(['http://a.example/'], { create: {} }))
})

test('withUniqueText gives the kind of DataSource it got', () => {
  type Own = DataSource & { readonly own: true }
  const wrap = (own: Own) => withUniqueText(own, { prepare: false })
  expectTypeOf(wrap).returns.toEqualTypeOf<Own>()
  // @ts-expect-error (options alone are no DataSource)
  void (() => withUniqueText({ type: 'postgres' }))
})
