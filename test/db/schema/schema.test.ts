import {
  Column,
  DefaultNamingStrategy,
  Entity,
  EntitySchema,
  JoinColumn,
  ManyToOne,
  type NamingStrategyInterface,
  PrimaryGeneratedColumn,
} from 'typeorm'
import { describe, expect, test } from 'vitest'
import { findOrCreate, UniqueText, uniqueTextSchema } from '../../../src'
import { trim } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { column, entity, text } from '../../support/entity'
import { generate, migrate, runAll } from '../../support/generated'

const db = useDatabase({ wrapped: true })

const snake = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

class SnakeNaming extends DefaultNamingStrategy implements NamingStrategyInterface {
  override tableName(target: string, given: string | undefined): string {
    return given ?? snake(target).slice(1)
  }
  override columnName(property: string, given: string | undefined, prefixes: string[]): string {
    return snake([...prefixes, given ?? property].join('_'))
  }
}

abstract class Base {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ normalize: trim() }) longText!: string
}

@Entity()
class FirstThing extends Base {}

@Entity()
class SecondThing extends Base {}

const Site = entity('Site', {})
type Site = InstanceType<typeof Site>

@Entity()
class Varied {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column({ type: 'varchar', length: 4000 }) @UniqueText() before!: string
  @UniqueText() @Column({ type: 'text', name: 'after column' }) after!: string
  @UniqueText({ nullable: true, digest: 'sha256' }) perhaps!: string | null
  @UniqueText({ scope: ['site'], indexName: 'site text' }) inSite!: string
  @ManyToOne(() => Site, { nullable: false }) @JoinColumn() site!: Site
}

const Hostile = entity(
  'Hostile',
  { text: text({ name: 'ünï text', hidden: { hash: 'h h', number: "n'n", chained: 'select' } }) },
  { name: 'A täble; with $guard$' },
)

const longName = 'apropertywhosenameisnearthelimitofsixtythreebytesof'

const Long = entity(
  'Long',
  { [longName]: text() },
  { name: 'tableWhoseNameIsAlsoNearTheLimitOfSixtyThreeBytesOfPostgres' },
)

const Plain = new EntitySchema(
  uniqueTextSchema(
    {
      name: 'Plain',
      columns: {
        id: { type: Number, primary: true, generated: true },
        tenant: { type: 'integer' },
        first: { type: 'text' },
        second: { type: 'text', nullable: true },
      },
    },
    { url: { scope: ['tenant'] }, both: { columns: ['first', { property: 'second', prefix: '/' }] } },
  ),
)

const entities = { FirstThing, SecondThing, Varied, Site, Hostile, Long, Plain }

describe.each([
  ['the default naming strategy', {}],
  ['a snake-case naming strategy', { namingStrategy: new SnakeNaming() }],
  ['another schema', { schema: 'Other schema' }],
])('with %s', (_, options) => {
  test('synchronize makes it all, a second look finds nothing, and the operations work', async () => {
    const client = await db.client()
    await client.query(
      'drop schema public cascade; create schema public; drop schema if exists "Other schema" cascade; create schema "Other schema"',
    )
    const dataSource = await db.dataSource(Object.values(entities), options)
    const { manager } = dataSource
    expect((await generate(dataSource)).up).toEqual([])

    const results = [
      await findOrCreate(manager, FirstThing, { longText: ' a ' }),
      await findOrCreate(manager, SecondThing, { longText: 'a' }),
      await findOrCreate(manager, Hostile, { text: 'a' }),
      await findOrCreate(manager, Long, { [longName]: 'a' }),
      await findOrCreate(manager, 'Plain', { url: 'a', tenant: 1, first: 'x', second: null }, { by: 'url' }),
    ]
    expect(results.map(({ created }) => created)).toEqual(results.map(() => true))
    expect(results[0]?.entity).toEqual({ id: 1, longText: 'a' })
    const site = await manager.save(manager.create(Site, {}))
    const values = { before: 'a', after: 'a', perhaps: null, inSite: 'a', site }
    const { entity } = await findOrCreate(manager, Varied, values, { by: 'inSite' })
    expect(entity).toEqual({ id: 1, before: 'a', after: 'a', perhaps: null, inSite: 'a' })
    expect(await findOrCreate(manager, Varied, { before: 'a' }, { by: 'before' })).toMatchObject({ created: false })
    const byBoth = { first: 'x', second: null }
    expect(await findOrCreate(manager, 'Plain', byBoth, { by: 'both' })).toMatchObject({ created: false })
  })
})

test('name and nullable hold in either order of the decorators', async () => {
  @Entity()
  class Ordered {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueText({ name: 'given', nullable: true }) @Column({ type: 'varchar' }) above!: string | null
    @Column({ type: 'varchar' }) @UniqueText({ name: 'other', nullable: true }) below!: string | null
    @UniqueText({ nullable: false }) @Column({ type: 'text', nullable: true }) needed!: string
  }
  const dataSource = await db.dataSource([Ordered])
  const columns = dataSource.getMetadata(Ordered).columns.filter(({ isVirtual, isPrimary }) => !isVirtual && !isPrimary)
  expect(columns.map(({ databaseName, isNullable, type }) => [databaseName, isNullable, type])).toEqual([
    ['given', true, 'varchar'],
    ['other', true, 'varchar'],
    ['needed', false, 'text'],
  ])
  await dataSource.getRepository(Ordered).insert({ above: null, below: null, needed: 'text' })
})

test('save and insert leave the stored text and no hidden column on the entity', async () => {
  const dataSource = await db.dataSource([FirstThing], { dropSchema: true })
  const repository = dataSource.getRepository(FirstThing)
  const saved = await repository.save(repository.create({ longText: '  x ' }))
  expect(saved).toEqual({ id: 1, longText: 'x' })
  const given = { longText: ' y' }
  const { generatedMaps } = await repository.insert(given)
  expect(given).toEqual({ id: 2, longText: 'y' })
  expect(generatedMaps).toEqual([{ id: 2 }])
  expect(await repository.find({ order: { id: 1 } })).toEqual([saved, given])
  expect(await repository.findOneBy({ longText: ' y  ' })).toEqual(given)
  saved.longText = 'z '
  expect(await repository.save(saved)).toEqual({ id: 1, longText: 'z' })
})

test('declaring, and then widening, a column of a filled table keeps its texts', async () => {
  @Entity({ name: 'thing' })
  class Short {
    @PrimaryGeneratedColumn('identity') id!: number
    @Column({ type: 'varchar', length: 50 }) @UniqueText() text!: string
  }
  @Entity({ name: 'thing' })
  class Wide {
    @PrimaryGeneratedColumn('identity') id!: number
    @Column({ type: 'varchar', length: 100 }) @UniqueText() text!: string
    @Column({ type: 'integer', nullable: true }) added!: number | null
  }
  const Undeclared = entity('Undeclared', { text: column('varchar', { length: 40, unique: true }) }, { name: 'thing' })
  const bare = await db.dataSource([Undeclared], { dropSchema: true })
  await bare.manager.insert(Undeclared, { text: 'kept' })
  await bare.destroy()
  await (await db.dataSource([Short])).destroy()
  const wide = await db.dataSource([Wide])
  expect((await generate(wide)).up).toEqual([])
  const widest = await findOrCreate(wide.manager, Wide, { text: 'x'.repeat(100) })
  expect(widest.entity.added).toBeNull()
  expect(await findOrCreate(wide.manager, Wide, { text: 'kept' })).toMatchObject({ created: false, entity: { id: 1 } })
})

test('a renamed property keeps its texts, and the way back too', async () => {
  const other = text({ nullable: true })
  const Before = entity('Thing', { text: text({ normalize: trim() }), other })
  const After = entity('Thing', { renamed: text({ normalize: trim() }), other })
  const before = await db.dataSource([Before], { dropSchema: true })
  await before.manager.insert(Before, { text: 'kept' })
  await before.destroy()
  const after = await db.dataSource([After], { synchronize: false })
  const { up, down } = await migrate(after)
  expect(up.filter((sql) => sql.includes('DROP COLUMN'))).toEqual([])
  expect((await generate(after)).up).toEqual([])
  const found = await findOrCreate(after.manager, After, { renamed: ' kept' }, { by: 'renamed' })
  expect(found).toEqual({ entity: { id: 1, renamed: 'kept', other: null }, created: false, attempts: 1 })
  await runAll(after, down)
  const again = await db.dataSource([Before], { synchronize: false })
  expect((await generate(again)).up).toEqual([])
  expect(await again.manager.find(Before)).toEqual([{ id: 1, text: 'kept', other: null }])
})
