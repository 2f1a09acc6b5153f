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

test('a property with the name of a hidden column is refused, before and after the text', async () => {
  @Entity()
  class Before {
    @PrimaryGeneratedColumn('identity') id!: number
    @Column({ type: 'text' }) urlHash!: string
    @UniqueText() url!: string
  }
  @Entity()
  class After {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueText() url!: string
    @Column({ type: 'integer' }) urlHashNumber!: number
  }
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
  for (const entity of [Before, After, Related, Inheriting]) {
    const message = /needs the property name "urlHash(Number|Chained)?" for a hidden column\. Rename your property/
    await expect(initialise(entity)).rejects.toThrow(message)
    await expect(initialise(entity)).rejects.toBeInstanceOf(DeclarationError)
  }
})

test('a text with the name of a hidden column is refused', async () => {
  @Entity()
  class Page {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueText() url!: string
    @UniqueText() urlHash!: string
  }
  await expect(initialise(Page)).rejects.toThrow('"urlHash" for a hidden column')
})

test('a column with the database name of a hidden column is refused', async () => {
  @Entity()
  class Page {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueText() url!: string
    @Column({ type: 'text', name: 'urlHash' }) other!: string
  }
  @Entity()
  class Given {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueText({ hidden: { hash: 'other' } }) url!: string
    @Column({ type: 'text' }) other!: string
  }
  await expect(initialise(Page)).rejects.toThrow(/"urlHash" for a hidden column, which "other" has\. Rename/)
  await expect(initialise(Given)).rejects.toThrow(/"other" for a hidden column, which "other" has\. Rename/)
})

test('one name for two hidden columns is refused', async () => {
  @Entity()
  class Given {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueText({ hidden: { hash: 'same', number: 'same' } }) url!: string
  }
  @Entity()
  class LikeDefault {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueText({ hidden: { chained: 'urlHash' } }) url!: string
  }
  for (const entity of [Given, LikeDefault]) {
    await expect(initialise(entity)).rejects.toThrow(
      'two of its hidden columns have one name. Pass the option "hidden"',
    )
    await expect(initialise(entity)).rejects.toBeInstanceOf(DeclarationError)
  }
})

test('hidden columns may exchange their names', async () => {
  @Entity()
  class Page {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueText({ hidden: { hash: 'urlHashNumber', number: 'urlHash' } }) url!: string
  }
  await initialise(Page)
})

test('an EntitySchema with a property of the name of a hidden column is refused', () => {
  const columns = { id: { type: Number, primary: true }, urlHash: { type: 'text' } } as const
  expect(() => uniqueTextSchema({ name: 'Page', columns }, { url: {} })).toThrow(
    'uniqueTextSchema() for Page.url: it needs the property name "urlHash" for a hidden column. Rename your property',
  )
  const id = { type: Number, primary: true } as const
  expect(() => uniqueTextSchema({ name: 'Page', columns: { id } }, { urlHash: {}, url: {} })).toThrow(DeclarationError)
})

const otherIndexes = {
  'unique: true': () => {
    @Entity()
    class Page {
      @PrimaryGeneratedColumn('identity') id!: number
      @UniqueText() @Column({ type: 'text', unique: true }) url!: string
    }
    return Page
  },
  '@Index() on the property': () => {
    @Entity()
    class Page {
      @PrimaryGeneratedColumn('identity') id!: number
      @Index() @UniqueText() url!: string
    }
    return Page
  },
  '@Index() of several columns on the class': () => {
    @Entity()
    @Index(['site', 'url'])
    class Page {
      @PrimaryGeneratedColumn('identity') id!: number
      @Column({ type: 'integer' }) site!: number
      @UniqueText() url!: string
    }
    return Page
  },
  '@Unique() on the class': () => {
    @Entity()
    @Unique(['url'])
    class Page {
      @PrimaryGeneratedColumn('identity') id!: number
      @UniqueText() url!: string
    }
    return Page
  },
  '@Index({ fulltext: true }), which Postgres takes for any other': () => {
    @Entity()
    class Page {
      @PrimaryGeneratedColumn('identity') id!: number
      @Index({ fulltext: true }) @UniqueText() url!: string
    }
    return Page
  },
  "@Index({ type: 'btree' })": () => {
    @Entity()
    class Page {
      @PrimaryGeneratedColumn('identity') id!: number
      @Index({ type: 'btree' }) @UniqueText() url!: string
    }
    return Page
  },
  'a length that may not fit': () => {
    @Entity()
    class Page {
      @PrimaryGeneratedColumn('identity') id!: number
      @Index() @UniqueText() @Column({ type: 'varchar', length: 651 }) url!: string
    }
    return Page
  },
  '@PrimaryColumn': () => {
    @Entity()
    class Page {
      @PrimaryColumn({ type: 'text' }) @UniqueText() url!: string
    }
    return Page
  },
  'a composed text': () => {
    @Entity()
    @UniqueText({ as: 'url', columns: ['path'] })
    class Page {
      @PrimaryGeneratedColumn('identity') id!: number
      @Index() @Column({ type: 'varchar', length: 4000 }) path!: string
    }
    return Page
  },
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
    const entity = make()
    await expect(initialise(entity)).rejects.toThrow(
      /the text is also in the btree of .*, which refuses long texts\. Remove/,
    )
    await expect(initialise(entity)).rejects.toBeInstanceOf(DeclarationError)
  },
)

test('a foreign key that refers to the text, which would need another unique index, is refused', async () => {
  @Entity()
  class Page {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueText() url!: string
  }
  @Entity()
  class Link {
    @PrimaryGeneratedColumn('identity') id!: number
    @ManyToOne(() => Page, { createForeignKeyConstraints: false })
    @JoinColumn({ referencedColumnName: 'url' })
    page!: Page
  }
  await initialise(Page, Link)
  @Entity()
  class Short {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueText() @Column({ type: 'varchar', length: 100, unique: true }) code!: string
  }
  @Entity()
  class ToShort {
    @PrimaryGeneratedColumn('identity') id!: number
    @ManyToOne(() => Short) @JoinColumn({ referencedColumnName: 'code' }) page!: Short
  }
  await initialise(Short, ToShort)
  @Entity()
  class Other {
    @PrimaryGeneratedColumn('identity') id!: number
    @ManyToOne(() => Page) @JoinColumn({ referencedColumnName: 'url' }) page!: Page
  }
  const message =
    '@UniqueText on Page.url: the foreign key of "page" refers to the text, and would need another unique index over ' +
    'it, which refuses long texts. Refer to the primary key, or pass { createForeignKeyConstraints: false }'
  await expect(initialise(Page, Other)).rejects.toThrow(message)
  await expect(initialise(Page, Other)).rejects.toBeInstanceOf(DeclarationError)
})

test('a generated column is refused as a text, and in a scope', async () => {
  const generated = { generatedType: 'STORED', asExpression: 'lower(name)' } as const
  @Entity()
  class Text {
    @PrimaryGeneratedColumn('identity') id!: number
    @Column({ type: 'text' }) name!: string
    @UniqueText() @Column({ type: 'text', ...generated }) lower!: string
  }
  await expect(initialise(Text)).rejects.toThrow('"lower" is generated (asExpression) after the guard has run')
  @Entity()
  class Scope {
    @PrimaryGeneratedColumn('identity') id!: number
    @Column({ type: 'text' }) name!: string
    @Column({ type: 'text', ...generated }) lower!: string
    @UniqueText({ scope: ['lower'] }) text!: string
  }
  await expect(initialise(Scope)).rejects.toThrow(DeclarationError)
})

test('another btree over the text of a class in single table inheritance is refused', async () => {
  @Entity()
  @TableInheritance({ column: { type: 'text', name: 'type' } })
  class Medium {
    @PrimaryGeneratedColumn('identity') id!: number
  }
  @ChildEntity()
  class Book extends Medium {
    @Index() @UniqueText() isbn!: string
  }
  await expect(initialise(Medium, Book)).rejects.toThrow('the text is also in the btree of')
})

test('other indexes over the text are the business of their user', async () => {
  @Entity()
  class Page {
    @PrimaryGeneratedColumn('identity') id!: number
    @Index({ where: 'length(url) < 100' }) @UniqueText() url!: string
    @Index() @UniqueText() @Column({ type: 'varchar', length: 100 }) code!: string
    @Index('by_hand', { synchronize: false }) @UniqueText() title!: string
    @Index({ spatial: true }) @UniqueText() searched!: string
    @Index() @UniqueText() @Column({ type: 'varchar', length: 650 }) longest!: string
  }
  await initialise(Page)
})

test('a hash index over the text is too, where TypeORM makes one of it and no btree', async () => {
  @Entity()
  class Page {
    @PrimaryGeneratedColumn('identity') id!: number
    @Index({ type: 'hash' }) @UniqueText() url!: string
  }
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
  await expect(initialise(Person)).rejects.toThrow('two classes of one table declare it, ')
  @Entity()
  @TableInheritance({ column: { type: 'text', name: 'type' } })
  class Medium {
    @PrimaryGeneratedColumn('identity') id!: number
  }
  @ChildEntity()
  class Book extends Medium {
    @UniqueText({ nullable: true }) code!: string | null
  }
  @ChildEntity()
  class Film extends Medium {
    @UniqueText({ nullable: true }) code!: string | null
  }
  await expect(initialise(Medium, Book, Film)).rejects.toBeInstanceOf(DeclarationError)
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
  @Entity()
  class Site {
    @PrimaryGeneratedColumn('identity') id!: number
  }
  @Entity()
  class Related {
    @PrimaryGeneratedColumn('identity') id!: number
    @ManyToOne(() => Site) @JoinColumn() site!: Site
    @UniqueText({ scope: ['site'] }) url!: string
  }
  @Entity()
  class Plain {
    @PrimaryGeneratedColumn('identity') id!: number
    @Column({ type: 'integer', nullable: true }) site!: number | null
    @UniqueText({ scope: ['site'] }) url!: string
  }
  await expect(initialise(Site, Related)).rejects.toThrow(
    'the scope "site" must be NOT NULL. Pass { nullable: false } to the relation.',
  )
  await expect(initialise(Plain)).rejects.toThrow('must be NOT NULL. Remove "nullable: true" from its @Column.')
})

test('a property of an embedded is refused, and the class form that is named instead works', async () => {
  class Refused {
    @UniqueText() url!: string
  }
  @Entity()
  class WithRefused {
    @PrimaryGeneratedColumn('identity') id!: number
    @Column(() => Refused) source!: Refused
  }
  await expect(initialise(WithRefused)).rejects.toThrow(
    "Declare it on the entity instead: @UniqueText({ as: 'name', columns: ['embedded.url'] }).",
  )

  class Source {
    @Column({ type: 'text' }) url!: string
  }
  @Entity()
  @UniqueText({ as: 'name', columns: [{ property: 'source.url', normalize: trim() }] })
  class Page {
    @PrimaryGeneratedColumn('identity') id!: number
    @Column(() => Source) source!: Source
  }
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
