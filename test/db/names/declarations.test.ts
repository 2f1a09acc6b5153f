import {
  ChildEntity,
  Column,
  DataSource,
  Entity,
  EntitySchema,
  PrimaryColumn,
  PrimaryGeneratedColumn,
  TableInheritance,
} from 'typeorm'
import { describe, expect, test } from 'vitest'
import { DeclarationError, TextRejectedError, UniqueText } from '../../../src'
import { Name, UniqueName, type UniqueNameOptions, uniqueNameSchema } from '../../../src/names'
import { lowerCase, normalizer, trim } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { embedded, entity, uniqueName } from '../../support/entity'
import { generate } from '../../support/generated'
import { rejection } from '../../support/ledger'
import { holderName } from '../../../src/registry/name-declarations'

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

test('without Name among the entities it says: add it', async () => {
  const User = entity('User', { handle: uniqueName({ namespace: 'handle' }) })
  await expect(initialise(User)).rejects.toBeInstanceOf(DeclarationError)
  await expect(initialise(User)).rejects.toThrow(
    '@UniqueName on User.handle: the table that keeps the names is missing. Add Name of typeorm-unique-text/names',
  )
  await initialise(User, Name)
  await initialise(Name, User)
})

describe('one normalizer for a namespace', () => {
  function entities(one: UniqueNameOptions['normalize'], other: UniqueNameOptions['normalize']): Function[] {
    const options = (normalize: UniqueNameOptions['normalize']): UniqueNameOptions => ({
      namespace: 'handle',
      ...(normalize ? { normalize } : {}),
    })
    const User = entity('User', { handle: uniqueName(options(one)) })
    const Team = entity('Team', { slug: uniqueName(options(other)) })
    return [User, Team, Name]
  }
  const custom = (text: string): string => text.trim()

  test.each<[string, UniqueNameOptions['normalize'], UniqueNameOptions['normalize']]>([
    ['another', lowerCase(), trim()],
    ['none', lowerCase(), undefined],
    ['another version', normalizer('own', 1, custom), normalizer('own', 2, custom)],
  ])('%s is refused', async (_, one, other) => {
    await expect(initialise(...entities(one, other))).rejects.toThrow(
      'the namespace "handle" is normalized differently by User.handle. Give both the same normalizer',
    )
  })

  test('the same passes, also when it is made twice', async () => {
    await initialise(...entities(lowerCase(), lowerCase()))
    await initialise(...entities(normalizer('own', 1, custom), normalizer('own', 1, custom)))
  })
})

test('a unique text and a name on one property are refused, in either order', () => {
  const message = /is on it too.*Remove one of them/
  expect(() => {
    class First {
      @UniqueText() @UniqueName({ namespace: 'handle' }) handle!: string
    }
    return First
  }).toThrow(message)
  expect(() => {
    class Second {
      @UniqueName({ namespace: 'handle' }) @UniqueText() handle!: string
    }
    return Second
  }).toThrow(message)
})

test('a text of several columns cannot have the column of a name', async () => {
  @Entity()
  @UniqueText({ as: 'both', columns: ['handle', 'title'] })
  class User {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueName({ namespace: 'handle' }) handle!: string
    @Column({ type: 'text' }) title!: string
  }
  await expect(initialise(User, Name)).rejects.toThrow('another declaration has the column "handle"')
})

test('a primary key that JSON cannot hold by a type of every schema is refused', async () => {
  @Entity()
  class Listed {
    @PrimaryColumn({ type: 'enum', enum: ['a', 'b'] }) kind!: 'a' | 'b'
    @UniqueName({ namespace: 'handle' }) handle!: string
  }
  await expect(initialise(Listed, Name)).rejects.toThrow('the primary key "kind" cannot be of type enum')
})

test('a name of an abstract parent is one of each entity that extends it', async () => {
  abstract class Base {
    @PrimaryGeneratedColumn('uuid') id!: string
    @UniqueName({ namespace: 'shared' }) handle!: string
  }
  @Entity({ name: 'first_child' })
  class First extends Base {}
  @Entity({ name: 'second_child' })
  class Second extends Base {}
  const dataSource = await db.dataSource([Name, First, Second])
  await dataSource.getRepository(First).save({ handle: 'a' })
  const refused = await rejection(dataSource.getRepository(Second).save({ handle: 'a' }))
  expect(refused).toMatchObject({ taken: [{ entity: 'Second', holder: 'First' }] })
})

test('a name on an embedded, a number, a list or a column of another type is refused', async () => {
  class Part {
    @UniqueName({ namespace: 'handle' }) handle!: string
  }
  const Embedding = entity('Embedding', { part: embedded(() => Part) })
  @Entity()
  class Listed {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueName({ namespace: 'handle' }) @Column({ type: 'text', array: true }) handles!: string[]
  }
  @Entity()
  class Counted {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueName({ namespace: 'handle' }) @Column({ type: 'uuid' }) handle!: string
  }
  await expect(initialise(Embedding, Name)).rejects.toThrow('a property of an embedded cannot declare it')
  await expect(initialise(Listed, Name)).rejects.toThrow('"handles" must be of type text or varchar')
  await expect(initialise(Counted, Name)).rejects.toThrow('"handle" must be of type text or varchar')
})

test.each<[string, unknown, RegExp]>([
  ['no options', undefined, /the options must be an object/],
  ['no namespace', {}, /namespace must be a text of 1 to 63 characters/],
  ['an empty namespace', { namespace: '' }, /namespace must be/],
  ['a namespace that Postgres cannot store', { namespace: 'a\0' }, /namespace must be/],
  ['a namespace of 64 characters', { namespace: 'n'.repeat(64) }, /namespace must be/],
  ['an unknown option', { namespace: 'a', scope: ['tenant'] }, /there is no option "scope"/],
  ['a policy that is none', { namespace: 'a', former: 'keep' }, /former must be 'free', 'reserve', 'redirect'/],
  ['two policies', { namespace: 'a', former: { reserveFor: '1 day', redirectFor: '1 day' } }, /former must be/],
  ['a time that is none', { namespace: 'a', former: { reserveFor: '90' } }, /"reserveFor" must be a whole number and/],
  ['a normalizer that was not made', { namespace: 'a', normalize: lowerCase }, /normalizer\('name', 1, fn\)/],
  ['a nullable that is none', { namespace: 'a', nullable: 1 }, /nullable must be true or false/],
])('%s is refused when the class is defined', (_, options, message) => {
  const declare = (): unknown => {
    class User {
      @UniqueName(options as UniqueNameOptions) handle!: string
    }
    return User
  }
  expect(declare).toThrow(message)
  expect(declare).toThrow(DeclarationError)
  expect(() => uniqueNameSchema({ name: 'User', columns: {} }, { handle: options as UniqueNameOptions })).toThrow(
    message,
  )
})

test('a decorator without parentheses is refused', () => {
  expect(() => {
    class User {
      // @ts-expect-error it is a function that makes one
      @UniqueName handle!: string
    }
    return User
  }).toThrow('@UniqueName is not called: write @UniqueName(), with parentheses.')
})

@Entity({ name: 'animal' })
@TableInheritance({ column: { type: 'varchar', name: 'kind' } })
class Animal {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
}

@ChildEntity()
class Cat extends Animal {
  @UniqueName({ namespace: 'pet', normalize: lowerCase() }) call!: string
}

@Entity({ name: 'owner' })
class Owner {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueName({ namespace: 'handle', normalize: lowerCase(), name: 'Handle' })
  @Column({ type: 'varchar', length: 100, comment: 'kept' })
  handle!: string
  @UniqueName({ namespace: 'nick', nullable: true }) nick!: string | null
}

const Place = new EntitySchema<{ id: number; handle: string }>(
  uniqueNameSchema(
    { name: 'place', columns: { id: { type: 'integer', primary: true, generated: true } } },
    { handle: { namespace: 'handle', normalize: lowerCase() } },
  ),
)

test('the columns are made as declared, a hash index finds a row, and no unique index refuses one', async () => {
  const dataSource = await db.dataSource([Name, Owner, Animal, Cat, Place])
  const columns = (await dataSource.query(
    `SELECT column_name AS name, data_type AS type, character_maximum_length AS length, is_nullable AS nullable
       FROM information_schema.columns WHERE table_name = 'owner' ORDER BY ordinal_position`,
  )) as unknown[]
  expect(columns.slice(1)).toEqual([
    { name: 'Handle', type: 'character varying', length: 100, nullable: 'NO' },
    { name: 'nick', type: 'text', length: null, nullable: 'YES' },
  ])
  const indexes = (await dataSource.query(
    `SELECT tablename AS table, indexdef AS sql FROM pg_indexes
      WHERE tablename IN ('owner', 'animal', 'place') AND indexname NOT LIKE 'PK%' ORDER BY 1, 2`,
  )) as { table: string; sql: string }[]
  expect(indexes.map(({ table, sql }) => `${table} ${sql.replace(/^.* USING/, 'USING')}`)).toEqual([
    'animal USING btree (kind)',
    'animal USING hash (call)',
    'owner USING hash ("Handle")',
    'owner USING hash (nick)',
    'place USING hash (handle)',
  ])
  expect(await generate(dataSource)).toEqual({ up: [], down: [] })
})

test("TypeORM's own writes and conditions are normalized, and the entity holds what is stored", async () => {
  const dataSource = await db.dataSource([Name, Owner, Animal, Cat, Place])
  const owners = dataSource.getRepository(Owner)
  const saved = await owners.save({ handle: 'Ada', nick: null })
  expect(saved.handle).toBe('ada')
  expect(await owners.findOneBy({ handle: 'ADA' })).toEqual({ id: saved.id, handle: 'ada', nick: null })
  await owners.update({ handle: 'aDa' }, { handle: 'Grace' })
  expect(await owners.existsBy({ handle: 'GRACE' })).toBe(true)
  await expect(owners.save({ handle: 'a\0' })).rejects.toThrow(TextRejectedError)
  const cat = await dataSource.getRepository(Cat).save({ call: 'Tom' })
  expect(cat.call).toBe('tom')
  const place = await dataSource.getRepository(Place).save({ handle: 'Here' })
  expect(place.handle).toBe('here')
})

test('tables whose schema and name read alike are two holders', async () => {
  const inSchema = (name: string, schema: string, tableName: string): EntitySchema =>
    new EntitySchema(
      uniqueNameSchema(
        { name, schema, tableName, columns: { id: { type: 'integer', primary: true } } },
        { handle: { namespace: 'handle' } },
      ),
    )
  const entities = [Name, inSchema('One', 'a', 'b.c'), inSchema('Other', 'a.b', 'c')]
  const dataSource = await new DataSource({ type: 'postgres', url: db.url, entities }).initialize()
  const holders = ['One', 'Other'].map((name) => holderName(dataSource.getMetadata(name)))
  await dataSource.destroy()
  expect(holders).toEqual(['a.b:.c', 'a:.b.c'])
})
