import { createHash } from 'node:crypto'
import type { Relation } from 'typeorm'
import {
  AfterLoad,
  ChildEntity,
  Column,
  DataSource,
  Entity,
  ManyToOne,
  OneToMany,
  PrimaryGeneratedColumn,
  RelationId,
  TableInheritance,
  VirtualColumn,
} from 'typeorm'
import { describe, expect, test } from 'vitest'
import { findImportTarget, importLines } from '../../../src/cli/import'
import {
  DeclarationError,
  DuplicateTextError,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  UniqueText,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { quote } from '../../../src/sql/identifier'
import { useDatabase } from '../../support/database'
import { onlyRowOf } from '../../support/results'
import { entity, plain, text, version } from '../../support/entity'

const db = useDatabase()

const Animal = entity('Animal', { name: text() })
TableInheritance({ column: { type: 'varchar', name: 'kind' } })(Animal)

@ChildEntity()
class Cat extends Animal {
  @Column({ type: 'integer', nullable: true }) lives!: number | null
}

@ChildEntity('hound')
class Dog extends Animal {
  @Column({ type: 'text', nullable: true }) trick!: string | null
}

const Counted = entity('Counted', { text: text(), note: plain(), version: version() })

const bracketed = {
  to: (value: unknown) => (typeof value === 'string' ? `[${value}]` : value),
  from: (value: unknown) => (typeof value === 'string' ? value.slice(1, -1) : value),
}

@Entity()
class Wrapped {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column({ type: 'text', transformer: bracketed }) @UniqueText({ scope: ['site'] }) text!: string
  @Column({ type: 'text', transformer: bracketed }) site!: string
  @Column({ type: 'text', transformer: bracketed, nullable: true }) note!: string | null
}

const loaded: object[] = []

@Entity()
class Heard {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() text!: string
  @Column({ type: 'text', default: 'by default' }) note!: string
  @AfterLoad() load(): void {
    loaded.push({ id: this.id, text: this.text, note: this.note })
  }
}

@Entity()
class Word {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() text!: string
  @OneToMany(() => Computed, ({ word }) => word) all!: Relation<Computed>[]
}

@Entity()
class Computed {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() text!: string
  @ManyToOne(() => Word, ({ all }) => all, { nullable: true }) word!: Word | null
  @RelationId((computed: Computed) => computed.word) wordId!: number | null
  @VirtualColumn({ type: 'integer', query: (alias) => `SELECT length(${alias}.text)` }) length!: number
}

const dataSource = db.useDataSource([Animal, Cat, Dog, Counted, Wrapped, Heard, Word, Computed], { emptied: false })
const { manager } = dataSource

/** The row of one text, by either operation. */
const operations = {
  findOrCreate: async (entity: typeof Animal, name: string) => (await findOrCreate(manager, entity, { name })).entity,
  findOrCreateMany: async (entity: typeof Animal, name: string) =>
    (await onlyRowOf(findOrCreateMany(manager, entity, [{ name }]))).entity,
} as const

test('a row of a class with one child has no property of the child', async () => {
  const Vehicle = entity('Vehicle', { name: text() })
  TableInheritance({ column: { type: 'varchar', name: 'kind' } })(Vehicle)
  @ChildEntity()
  class Lorry extends Vehicle {
    @Column({ type: 'integer', nullable: true }) load!: number | null
  }
  const { manager } = await db.dataSource([Vehicle, Lorry])
  await manager.save(manager.create(Vehicle, { name: 'a' }))
  const found = await findOrCreate(manager, Vehicle, { name: 'a' })
  expect(found.entity).toStrictEqual(await manager.findOneBy(Vehicle, { name: 'a' }))
})

describe.each(Object.entries(operations))('single table inheritance and %s', (operation, call) => {
  test('a child that is created is a row of its class', async () => {
    const { id } = await call(Dog, `dog by ${operation}`)
    expect(await dataSource.query('SELECT kind FROM animal WHERE id = $1', [id])).toEqual([{ kind: 'hound' }])
    expect(await manager.findOneBy(Dog, { id })).toBeInstanceOf(Dog)
    expect(await manager.findOneBy(Cat, { id })).toBeNull()
  })

  test('the parent finds a child as what it is', async () => {
    const name = `cat by ${operation}`
    await manager.save(manager.create(Cat, { name, lives: 9 }))
    const found = await call(Animal, name)
    expect(found).toBeInstanceOf(Cat)
    expect(found).toMatchObject({ name })
  })

  test('a row has the properties that find gives it, and none of another class', async () => {
    await manager.save(manager.create(Cat, { name: `own by ${operation}`, lives: 9 }))
    for (const name of [`own by ${operation}`, `created by ${operation}`]) {
      const given = await call(Animal, name)
      expect(given).toStrictEqual(await manager.findOneBy(Animal, { name }))
    }
  })

  test('the parent creates a row of its own', async () => {
    const { id } = await call(Animal, `animal by ${operation}`)
    expect(await dataSource.query('SELECT kind FROM animal WHERE id = $1', [id])).toEqual([{ kind: 'Animal' }])
  })
})

test('a version begins at 1, as it does with save, and counts on', async () => {
  const { entity } = await findOrCreate(manager, Counted, { text: 'a' })
  expect(entity.version).toBe(1)
  const [many] = await findOrCreateMany(manager, Counted, [{ text: 'b' }])
  expect(many).toMatchObject({ entity: { version: 1 } })
  await manager.save(Object.assign(entity, { note: 'changed' }))
  expect((await findOrCreate(manager, Counted, { text: 'a' })).entity.version).toBe(2)
})

test("a user's own transformers decide what is stored and hashed, and what comes back", async () => {
  const input = { text: 'a', site: 's', note: 'n' }
  const { entity } = await findOrCreate(manager, Wrapped, input)
  expect(entity).toMatchObject(input)
  const hash = createHash('md5').update('[a]').digest('hex')
  expect(
    await dataSource.query(`SELECT text, site, note, replace("textHash"::text, '-', '') AS hash FROM wrapped`),
  ).toEqual([{ text: '[a]', site: '[s]', note: '[n]', hash }])
  expect(await findOneByText(manager, Wrapped, { text: 'a', site: 's' })).toMatchObject({ id: entity.id })
  const [again] = await findOrCreateMany(manager, Wrapped, [input])
  expect(again).toMatchObject({ created: false, entity: input })
  expect(await manager.findOneBy(Wrapped, { text: 'a' })).toMatchObject(input)
})

describe('what TypeORM computes while it reads stands on what find gives, and on no result', () => {
  const results: Record<string, (text: string) => Promise<Computed>> = {
    'findOrCreate that creates': async (text) => (await findOrCreate(manager, Computed, { text })).entity,
    'findOrCreate that finds': async (text) => {
      await manager.save(manager.create(Computed, { text }))
      return (await findOrCreate(manager, Computed, { text })).entity
    },
    findOrCreateMany: async (text) => (await onlyRowOf(findOrCreateMany(manager, Computed, [{ text }]))).entity,
    upsertByText: async (text) => (await upsertByText(manager, Computed, { text })).entity,
    insertOrFail: (text) => insertOrFail(manager, Computed, { text }),
    updateOrFail: async (text) => {
      const { id } = await insertOrFail(manager, Computed, { text: `${text} before` })
      return await updateOrFail(manager, Computed, id, { text })
    },
    findOneByText: async (text) => {
      await insertOrFail(manager, Computed, { text })
      const found = await findOneByText(manager, Computed, { text })
      if (!found) throw new TypeError('not found')
      return found
    },
  }

  test.each(Object.entries(results))('%s', async (text, call) => {
    const result = await call(text)
    const { length, wordId, ...columns } = await manager.findOneByOrFail(Computed, { text })
    expect([length, wordId]).toEqual([text.length, null])
    expect(result).toMatchObject(columns)
    expect(Object.keys(result).toSorted()).toEqual(Object.keys(columns).toSorted())
  })

  test('a value that is brought for it is dropped, as save drops it', async () => {
    const { entity } = await findOrCreate(manager, Computed, { text: 'brought', length: 99 })
    expect(Object.keys(entity)).toEqual(['id', 'text'])
    const saved = await insertOrFail(manager, Computed, { text: 'brought too', length: 99 })
    expect(await manager.findOneByOrFail(Computed, { id: saved.id })).toMatchObject({ length: 11 })
  })

  test('what is loaded of a relation has it', async () => {
    const word = await manager.save(manager.create(Word, { text: 'of computed' }))
    await insertOrFail(manager, Computed, { text: 'related', word })
    const found = await findOneByText(manager, Word, { text: 'of computed' }, { relations: { all: true } })
    expect(found?.all).toMatchObject([{ length: 7, wordId: word.id }])
  })
})

test('listeners hear whole entities from an import, which reads no more than it must where nobody listens', async () => {
  async function* list() {
    yield ['a', 'b']
  }
  const target = findImportTarget(dataSource, { entity: 'Heard' })
  await importLines(dataSource, target, list())
  loaded.length = 0
  expect(await importLines(dataSource, target, list())).toMatchObject({ created: 0, found: 2 })
  expect(loaded).toHaveLength(2)
  expect(loaded).toContainEqual({ id: expect.any(Number) as number, text: 'a', note: 'by default' })
})

test('a row of a batch that leaves out a column gets the default of its domain, as it would alone', async () => {
  const Noted = entity('Noted', { text: text(), note: plain() })
  const { manager } = await db.dataSource([Noted])
  await manager.query(`create domain note as text default 'by domain'; alter table noted alter note type note`)
  const results = await findOrCreateMany(manager, Noted, [{ text: 'a' }, { text: 'b', note: 'given' }])
  expect(results).toMatchObject([{ entity: { note: 'by domain' } }, { entity: { note: 'given' } }])
})

test('a role that may not lock rows is told of duplicates that it sees', async () => {
  const role = quote(`T reader ${createHash('sha256').update(db.url).digest('hex').slice(0, 8)}`)
  const client = await db.client()
  await manager.insert(Word, { text: 'x' })
  // As a guard that was switched off would have let it in.
  await client.query(`
    SET session_replication_role = replica;
    INSERT INTO word (text, "textHash", "textHashNumber") SELECT text, "textHash", 1 FROM word;
    CREATE ROLE ${role};
    GRANT SELECT, INSERT ON word TO ${role}`)
  try {
    const outcome = dataSource.transaction(async (manager) => {
      await manager.query(`SET LOCAL ROLE ${role}`)
      await findOrCreate(manager, Word, { text: 'x' })
    })
    await expect(outcome).rejects.toBeInstanceOf(DuplicateTextError)
  } finally {
    await client.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
  }
})

test('a role that may read what an entity has, and no other column, finds and creates one or many', async () => {
  const role = quote(`T columns ${createHash('sha256').update(db.url).digest('hex').slice(0, 8)}`)
  const client = await db.client()
  await client.query(`
    CREATE ROLE ${role};
    GRANT SELECT (id, text, note, version, "textHash", "textHashNumber"), INSERT (text, note, version, "textHash"),
      UPDATE (note, version) ON counted TO ${role}`)
  try {
    await dataSource.transaction(async (manager) => {
      await manager.query(`SET LOCAL ROLE ${role}`)
      expect(await findOrCreate(manager, Counted, { text: 'one' })).toMatchObject({ created: true })
      const texts = ['one', 'two', 'three', 'four', 'five']
      const inputs = texts.map((text) => ({ text }))
      const many = await findOrCreateMany(manager, Counted, inputs)
      expect(many).toMatchObject(inputs.map((entity) => ({ entity, created: entity.text !== 'one' })))
      const rows = [...texts, 'six'].map((text) => ({ text, note: 'new' }))
      const upserted = await upsertByText(manager, Counted, rows)
      expect(upserted).toMatchObject(rows.map((entity) => ({ entity, created: entity.text === 'six' })))
    })
  } finally {
    await client.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
  }
})

describe('refused, with a remedy', () => {
  const initialise = async (entity: new () => object): Promise<unknown> => {
    const refused = new DataSource({ type: 'postgres', url: db.url, entities: [entity] })
    try {
      await refused.initialize()
      await refused.destroy()
      return undefined
    } catch (error) {
      return error
    }
  }

  test('a number, where the compiler leaves the type behind', async () => {
    @Entity()
    class Site {
      @PrimaryGeneratedColumn('identity') id!: number
      // @ts-expect-error (a number is no text; JavaScript would not say so)
      @UniqueText() url!: number
    }
    // As with `emitDecoratorMetadata`.
    Reflect.defineMetadata('design:type', Number, Site.prototype, 'url')
    const error = await initialise(Site)
    expect(error).toBeInstanceOf(DeclarationError)
    expect(String(error)).toContain('"url" is a Number, and a text is a string. Declare it as string, or give it')
  })

  test.each(['citext', 'cube', 'geography', 'geometry', 'hstore', 'ltree'] as const)(
    'a scope of type %s',
    async (type) => {
      @Entity()
      class Site {
        @PrimaryGeneratedColumn('identity') id!: number
        @UniqueText({ scope: ['owner'] }) url!: string
        @Column({ type }) owner!: string
      }
      const error = await initialise(Site)
      expect(error).toBeInstanceOf(DeclarationError)
      expect(String(error)).toContain(`of type ${type}. Use text or varchar`)
    },
  )
})
