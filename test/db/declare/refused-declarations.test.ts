import {
  ChildEntity,
  Column,
  DataSource,
  Entity,
  getMetadataArgsStorage,
  EntitySchema,
  Index,
  JoinColumn,
  ManyToOne,
  PrimaryColumn,
  PrimaryGeneratedColumn,
  TableInheritance,
  Unique,
} from 'typeorm'
import { expect, test } from 'vitest'
import { DeclarationError, findOrCreate, UniqueText, uniqueTextSchema } from '../../../src'
import { type Normalizer, trim } from '../../../src/text'
import { UniqueName, uniqueNameSchema } from '../../../src/names'
import { NumberWithin } from '../../../src/numbers'
import { useDatabase } from '../../support/database'
import { column, type Declaration, declared, embedded, entity, text, together, toOne } from '../../support/entity'
import { rejection } from '../../support/ledger'

const db = useDatabase()

type Entities = NonNullable<DataSource['options']['entities']>

/** Whether a DataSource with these entities comes up. */
async function initialise(...entities: Extract<Entities, readonly unknown[]>[number][]): Promise<void> {
  const dataSource = new DataSource({ type: 'postgres', url: db.url, entities })
  try {
    await dataSource.initialize()
  } finally {
    if (dataSource.isInitialized) await dataSource.destroy()
  }
}

async function expectRefused(entities: Parameters<typeof initialise>, message: string | RegExp): Promise<void> {
  const error = await rejection(initialise(...entities))
  expect(error).toBeInstanceOf(DeclarationError)
  expect(() => {
    throw error
  }).toThrow(message)
}

const RENAME_PROPERTY = /needs the property name "urlHash(Number|Chained)?" for a hidden column\. Rename your property/

test('a property with the name of a hidden column is refused, before and after the text', async () => {
  const Before = entity('Before', { urlHash: column('text'), url: text() })
  const After = entity('After', { url: text(), urlHashNumber: column('integer') })
  @Entity()
  class Related {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueText() url!: string
    @ManyToOne(() => Related) @JoinColumn() urlHashChained!: Related
  }
  @Entity()
  class Inheriting extends Before {
    @Column({ type: 'text' }) title!: string
  }
  for (const one of [Before, After, Related, Inheriting]) await expectRefused([one], RENAME_PROPERTY)
})

test('a text with the name of a hidden column is refused', async () => {
  const Page = entity('Page', { url: text(), urlHash: text() })
  await expectRefused([Page], '"urlHash" for a hidden column')
})

test('a column with the database name of a hidden column is refused', async () => {
  const Page = entity('Page', { url: text(), other: column('text', { name: 'urlHash' }) })
  const Given = entity('Given', { url: text({ hidden: { hash: 'other' } }), other: column('text') })
  await expectRefused([Page], /"urlHash" for a hidden column, which "other" has\. Rename/)
  await expectRefused([Given], /"other" for a hidden column, which "other" has\. Rename/)
})

test.each([{ hash: 'same', number: 'same' }, { chained: 'urlHash' }])(
  'one name for two hidden columns is refused: %j',
  async (hidden) => {
    const Given = entity('Given', { url: text({ hidden }) })
    await expectRefused([Given], 'two of its hidden columns have one name. Pass the option "hidden"')
  },
)

test('hidden columns may exchange their names', async () => {
  await initialise(entity('Page', { url: text({ hidden: { hash: 'urlHashNumber', number: 'urlHash' } }) }))
})

test('an EntitySchema with a property of the name of a hidden column is refused', () => {
  const columns = { id: { type: Number, primary: true }, urlHash: { type: 'text' } } as const
  expect(() => uniqueTextSchema({ name: 'Page', columns }, { url: {} })).toThrow(
    'uniqueTextSchema() for Page.url: it needs the property name "urlHash" for a hidden column. Rename your property',
  )
  const id = { type: Number, primary: true } as const
  expect(() => uniqueTextSchema({ name: 'Page', columns: { id } }, { urlHash: {}, url: {} })).toThrow(DeclarationError)
})

const varchar = (length: number) => column('varchar', { length })
const page = (...declarations: readonly Declaration[]) => entity('Page', { url: together(...declarations) })

const otherIndexes = {
  'unique: true': () => page(text(), column('text', { unique: true })),
  '@Index() on the property': () => page(Index(), text()),
  '@Index() of several columns on the class': () =>
    declared(entity('Page', { site: column('integer'), url: text() }), Index(['site', 'url'])),
  '@Unique() on the class': () => declared(page(text()), Unique(['url'])),
  '@Index({ fulltext: true }), which Postgres takes for any other': () => page(Index({ fulltext: true }), text()),
  "@Index({ type: 'btree' })": () => page(Index({ type: 'btree' }), text()),
  'a length that may not fit': () => page(Index(), text(), varchar(651)),
  '@PrimaryColumn': () => {
    @Entity()
    class Page {
      @PrimaryColumn({ type: 'text' }) @UniqueText() url!: string
    }
    return Page
  },
  'a composed text': () =>
    declared(entity('Page', { path: together(Index(), varchar(4000)) }), UniqueText({ as: 'url', columns: ['path'] })),
  'an EntitySchema': () =>
    new EntitySchema(
      uniqueTextSchema(
        {
          name: 'Page',
          columns: { id: { type: Number, primary: true }, url: { type: 'text' } },
          indices: [{ columns: ['url'] }],
        },
        { url: {} },
      ),
    ),
}

test.each(Object.entries(otherIndexes))(
  'another btree over the text, which would refuse long ones, is refused: %s',
  async (_, make) => {
    await expectRefused([make()], /the text is also in the btree of .*, which refuses long texts\. Remove/)
  },
)

test('a foreign key that refers to the text, which would need another unique index, is refused', async () => {
  const toText = JoinColumn({ referencedColumnName: 'url' })
  const Page = page(text())
  const Link = entity('Link', {
    page: together(
      toOne(() => Page, { createForeignKeyConstraints: false }),
      toText,
    ),
  })
  await initialise(Page, Link)
  const Short = entity('Short', { code: together(text(), column('varchar', { length: 100, unique: true })) })
  const toCode = JoinColumn({ referencedColumnName: 'code' })
  await initialise(Short, entity('ToShort', { page: together(toOne(() => Short), toCode) })) // prettier-ignore
  const Other = entity('Other', { page: together(toOne(() => Page), toText) }) // prettier-ignore
  await expectRefused(
    [Page, Other],
    '@UniqueText on Page.url: the foreign key of "page" refers to the text, and would need another unique index over ' +
      'it, which refuses long texts. Refer to the primary key, or pass { createForeignKeyConstraints: false }',
  )
})

test('a generated column is refused as a text, and in a scope', async () => {
  const lower = column('text', { generatedType: 'STORED', asExpression: 'lower(name)' })
  const Text = entity('Text', { name: column('text'), lower: together(text(), lower) })
  await expectRefused([Text], '"lower" is generated (asExpression) after the guard has run')
  const Scope = entity('Scope', { name: column('text'), lower, text: text({ scope: ['lower'] }) })
  await expectRefused([Scope], '"lower" is generated (asExpression) after the guard has run')
})

const medium = () => declared(entity('Medium', {}), TableInheritance({ column: { type: 'text', name: 'type' } }))

test('another btree over the text of a class in single table inheritance is refused', async () => {
  const Medium = medium()
  @ChildEntity()
  class Book extends Medium {
    @Index() @UniqueText() isbn!: string
  }
  await expectRefused([Medium, Book], 'the text is also in the btree of')
})

test('other indexes over the text are the business of their user', async () => {
  const Page = entity('Page', {
    url: together(Index({ where: 'length(url) < 100' }), text()),
    code: together(Index(), text(), varchar(100)),
    title: together(Index('by_hand', { synchronize: false }), text()),
    searched: together(Index({ spatial: true }), text()),
    longest: together(Index(), text(), varchar(650)),
  })
  await initialise(Page)
})

test('a hash index over the text is too, where TypeORM makes one of it and no btree', async () => {
  const Page = page(Index({ type: 'hash' }), text())
  const refused = await initialise(Page).catch((error: unknown) => error)
  // TypeORM 0.3 knows no types of indexes.
  const makesBtree = !getMetadataArgsStorage().indices.some((index) => 'type' in index)
  expect(refused instanceof DeclarationError).toBe(makesBtree)
})

class Some {
  url!: string
}

test('a decorator without parentheses is refused', () => {
  const bare = UniqueText as unknown as (...args: unknown[]) => unknown
  expect(() => {
    bare(Some.prototype, 'url')
  }).toThrow('@UniqueText is not called: write @UniqueText(), with parentheses.')
  expect(() => bare(Some)).toThrow(DeclarationError)
  expect(() => bare(undefined, { kind: 'field', name: 'url' })).toThrow('with parentheses')
})

test('a text that is declared twice is refused', () => {
  expect(() => {
    class Twice {
      @UniqueText({ lookup: 'hash' }) @UniqueText() url!: string
    }
    return Twice
  }).toThrow('@UniqueText on Twice.url: it is declared twice. Remove one of them.')
})

test('a text that two classes of one table declare is refused', async () => {
  abstract class Named {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueText() name!: string
  }
  @Entity()
  class Person extends Named {
    @UniqueText({ normalize: trim() }) declare name: string
  }
  await expectRefused([Person], 'two classes of one table declare it, ')
  const Medium = medium()
  @ChildEntity()
  class Book extends Medium {
    @UniqueText({ nullable: true }) code!: string | null
  }
  @ChildEntity()
  class Film extends Medium {
    @UniqueText({ nullable: true }) code!: string | null
  }
  await expectRefused([Medium, Book, Film], 'two classes of one table declare it, Book and Film')
})

test('a standard decorator is refused, and the message names the compiler option', () => {
  const standard = UniqueText() as unknown as (value: unknown, context: unknown) => unknown
  expect(() => standard(undefined, { kind: 'field', name: 'url' })).toThrow(
    '@UniqueText on url: it is compiled as a standard decorator, and TypeORM\'s are not. Set "experimentalDecorators": true',
  )
  expect(() => standard(Some, { kind: 'class', name: 'Page' })).toThrow(DeclarationError)
})

test.each([
  ['a preset that is not called', trim],
  ['a function of the user', (text: string) => text.trim()],
])('%s is refused as a normalizer, wherever one is declared', (_, bare) => {
  const normalize = bare as unknown as Normalizer
  const [name, options, columns] = [
    'Page',
    { name: 'Page', columns: {} },
    [{ property: 'url', prefix: '?', normalize }],
  ]
  const calls: [string, () => unknown][] = [
    ['@UniqueText on Object.url', () => UniqueText({ normalize })({}, 'url')],
    ['@UniqueText on Some', () => UniqueText({ as: 'both', columns })(Some)],
    ['@UniqueText on Page.url', () => uniqueTextSchema(options, { url: { normalize } })],
    ['@UniqueText on Page', () => uniqueTextSchema({ ...options, name }, { both: { columns } })],
    ['@UniqueName on Object.handle', () => UniqueName({ namespace: 'handle', normalize })({}, 'handle')],
    ['@UniqueName on Page.handle', () => uniqueNameSchema(options, { handle: { namespace: 'handle', normalize } })],
  ]
  for (const [where, call] of calls) {
    expect(call).toThrow(DeclarationError)
    expect(call).toThrow(`${where}: normalize must be a normalizer: one of ours, as in trim(), or your function`)
    expect(call).toThrow("normalizer('name', 1, fn)")
  }
})

test('a nullable scope is refused, and a relation is told to say { nullable: false }', async () => {
  const Site = entity('Site', {})
  const Related = entity('Related', { site: toOne(() => Site), url: text({ scope: ['site'] }) })
  const nullable = column('integer', { nullable: true })
  const Plain = entity('Plain', { site: nullable, url: text({ scope: ['site'] }) })
  await expectRefused([Site, Related], 'the scope "site" must be NOT NULL. Pass { nullable: false } to the relation.')
  await expectRefused([Plain], 'must be NOT NULL. Remove "nullable: true" from its @Column.')
})

test('a property of an embedded is refused, and the class form that is named instead works', async () => {
  class Refused {
    @UniqueText() url!: string
  }
  await expectRefused(
    [entity('WithRefused', { source: embedded(() => Refused) })],
    "Declare it on the entity instead: @UniqueText({ as: 'name', columns: ['embedded.url'] }).",
  )

  class Source {
    @Column({ type: 'text' }) url!: string
  }
  const columns = [{ property: 'source.url', normalize: trim() }]
  const Page = declared(entity('Page', { source: embedded(() => Source) }), UniqueText({ as: 'name', columns }))
  const { manager } = await db.dataSource([Page])
  const given = await findOrCreate(manager, Page, { source: { url: ' a ' } })
  expect(given).toMatchObject({ created: true, entity: { id: 1, source: { url: 'a' } } })
  expect(await findOrCreate(manager, Page, { source: { url: 'a' } })).toMatchObject({ created: false })
  expect(await manager.save(manager.create(Page, { source: { url: ' b' } }))).toEqual({ id: 2, source: { url: 'b' } })
})

test.each([
  ['@UniqueName', UniqueName({ namespace: 'handles' })],
  ['@NumberWithin', NumberWithin({ scope: ['page'] })],
] as const)('%s as a standard decorator is refused too', (name, decorator) => {
  const standard = decorator as unknown as (value: undefined, context: object) => void
  expect(() => standard(undefined, { kind: 'field', name: 'url' })).toThrow(
    `${name} on url: it is compiled as a standard`,
  )
})
