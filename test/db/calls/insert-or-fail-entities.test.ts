import type { DeepPartial, Relation } from 'typeorm'
import {
  BeforeInsert,
  ChildEntity,
  Column,
  CreateDateColumn,
  DefaultNamingStrategy,
  Entity,
  EntitySchema,
  Index,
  JoinColumn,
  ManyToOne,
  OneToMany,
  OneToOne,
  PrimaryColumn,
  PrimaryGeneratedColumn,
  TableInheritance,
  Tree,
  TreeChildren,
  TreeParent,
} from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import {
  DeclarationError,
  ImmutableTextError,
  insertOrFail,
  TextTakenError,
  UniqueText,
  uniqueTextSchema,
  updateOrFail,
} from '../../../src'
import { lowerCase } from '../../../src/text'
import { Url } from '../../../src/url'
import { useDatabase } from '../../support/database'
import { takenBy } from '../../support/results'
import { column, entity, plain, text } from '../../support/entity'
import { rejection } from '../../support/ledger'

const db = useDatabase()

const taken = async (call: Promise<unknown>): Promise<TextTakenError['taken']> => (await takenBy(call)).taken

class Snake extends DefaultNamingStrategy {
  override columnName(property: string, custom: string | undefined, prefixes: string[]): string {
    return [...prefixes, custom ?? property].join('_').replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
  }
}

class Place {
  @Column({ type: 'text' }) city!: string
  @Column({ type: 'integer', array: true }) rooms!: number[]
}

@Entity()
class Team {
  @PrimaryGeneratedColumn('uuid') id!: string
  @UniqueText() fullName!: string
  @OneToMany(() => Person, (person) => person.team) people!: Relation<Person>[]
}

@Entity()
class Person {
  @PrimaryGeneratedColumn('uuid') id!: string
  @UniqueText({ scope: ['team', 'place.city'] }) nickName!: string
  @ManyToOne(() => Team, (team) => team.people, { nullable: false }) team!: Team
  @Column(() => Place) place!: Place
  @Column({ type: 'jsonb' }) extra!: { deep: string[] }
  @Column({ type: 'bytea', select: false }) secret!: Buffer
  @Column({
    type: 'bigint',
    transformer: { to: (value: bigint) => String(value), from: (value: string) => BigInt(value) },
  })
  @Index({ unique: true })
  score!: bigint
  @Column({ type: 'enum', enum: ['low', 'high'], default: 'low' }) level!: 'low' | 'high'
  @CreateDateColumn() createdAt!: Date
}

/** Its primary key is a relation. */
@Entity()
class Badge {
  @PrimaryColumn({ type: 'uuid' }) personId!: string
  @OneToOne(() => Person) @JoinColumn({ name: 'person_id' }) person!: Person
  @UniqueText() code!: string
}

test('embeddeds, a naming strategy, scopes by relation and embedded, JSON, arrays, transformers, hidden columns', async () => {
  const { manager } = await db.dataSource([Team, Person, Badge], { namingStrategy: new Snake() })
  const [red, blue] = await insertOrFail(manager, Team, [{ fullName: 'red' }, { fullName: 'blue' }])
  if (!red || !blue) throw new Error('No teams.')
  const values = {
    nickName: 'n',
    team: red,
    place: { city: 'c', rooms: [1, 2] },
    extra: { deep: ['a', 'ü'] },
    secret: Buffer.from([0, 255]),
    score: 2n ** 60n,
  }
  const person = await insertOrFail(manager, Person, values)
  const { secret: _, ...shown } = values
  expect(person).toMatchObject({ ...shown, level: 'low', createdAt: expect.any(Date) as Date })
  const found = await manager.findOneOrFail(Person, { where: { id: person.id }, relations: { team: true } })
  expect(found).toMatchObject({ ...shown, level: 'low' })
  const other = { ...values, score: 1n }
  expect(await taken(insertOrFail(manager, Person, other))).toEqual([
    { entity: 'Person', property: 'nickName', id: { id: person.id }, row: 0 },
  ])
  const second = await insertOrFail(manager, Person, { ...other, team: { id: blue.id } })
  expect(await taken(updateOrFail(manager, Person, second.id, { team: red }))).toMatchObject([
    { id: { id: person.id } },
  ])
  expect(await taken(updateOrFail(manager, Person, second.id, { team: { id: red.id } }))).toHaveLength(1)
  const moved = { team: red, place: { city: 'd' } }
  const now = await updateOrFail(manager, Person, second.id, moved)
  expect(now).toMatchObject({ nickName: 'n', place: { city: 'd', rooms: [1, 2] }, score: 1n })
  expect(await taken(updateOrFail(manager, Person, second.id, { place: { city: 'c' } }))).toHaveLength(1)
  await insertOrFail(manager, Badge, { personId: person.id, code: 'b' })
  expect(await taken(insertOrFail(manager, Badge, { person: second, code: 'b' }))).toEqual([
    { entity: 'Badge', property: 'code', id: { personId: person.id }, row: 0 },
  ])
  expect(await taken(manager.save(Badge, { personId: second.id, code: 'b' }))).toEqual([
    { entity: 'Badge', property: 'code', id: { personId: person.id }, row: 0 },
  ])
})

const Media = entity('Media', { title: text() })
TableInheritance({ column: { type: 'varchar', name: 'kind' } })(Media)
@ChildEntity()
class Film extends Media {
  @UniqueText({ nullable: true }) imdb!: string | null
}
@ChildEntity()
class Song extends Media {
  @Column({ type: 'integer', nullable: true }) bars!: number | null
}

test('single-table inheritance: a text is taken by a row of any class, and every class has its own texts', async () => {
  const { manager } = await db.dataSource([Media, Film, Song])
  const film = await insertOrFail(manager, Film, { title: 'a', imdb: 'tt1' })
  expect(film).toBeInstanceOf(Film)
  const call = insertOrFail(manager, [
    [Song, { title: 'a', bars: 1 }],
    [Film, { title: 'b', imdb: 'tt1' }],
  ])
  const refused = await taken(call)
  expect(refused).toEqual([
    { entity: 'Media', property: 'title', id: { id: film.id }, row: 0 },
    { entity: 'Film', property: 'imdb', id: { id: film.id }, row: 1 },
  ])
  const song = await insertOrFail(manager, Song, { title: 'b', bars: 1 })
  expect(await manager.find(Media, { order: { id: 'asc' } })).toEqual([film, song])
  expect(await updateOrFail(manager, Song, song.id, { title: 'c' })).toMatchObject({ id: song.id, title: 'c', bars: 1 })
  expect(await taken(updateOrFail(manager, Song, song.id, { title: 'a' }))).toMatchObject([{ id: { id: film.id } }])
  const both = insertOrFail(manager, [
    [Song, { title: 'same' }],
    [Film, { title: 'same' }],
  ])
  expect(await taken(both)).toEqual([{ entity: 'Media', property: 'title', id: undefined, row: 1, repeated: true }])
})

interface Tag {
  id: number
  label: string
  weight: number | null
}

test('an EntitySchema', async () => {
  const Tags = new EntitySchema<Tag>(
    uniqueTextSchema<Tag>(
      {
        name: 'tag',
        columns: {
          id: { type: 'integer', primary: true, generated: true },
          weight: { type: 'integer', nullable: true },
        },
      },
      { label: {} },
    ),
  )
  const { manager } = await db.dataSource([Tags])
  const tag = await insertOrFail(manager, Tags, { label: 'a' })
  expect(tag).toEqual({ id: 1, label: 'a', weight: null })
  expect(await taken(insertOrFail(manager, Tags, { label: 'a' }))).toEqual([
    { entity: 'tag', property: 'label', id: { id: 1 }, row: 0 },
  ])
  expect(await updateOrFail(manager, Tags, 1, { label: 'b', weight: 2 })).toEqual({ id: 1, label: 'b', weight: 2 })
})

test('many rows of many columns, more than one statement takes', async () => {
  interface Wide {
    [column: string]: unknown
  }
  const names = Array.from({ length: 80 }, (_, index) => `c${index}`)
  const columns = Object.fromEntries(names.map((name) => [name, { type: 'integer' } as const]))
  const Wides = new EntitySchema<Wide>(
    uniqueTextSchema<Wide>(
      { name: 'wide', columns: { id: { type: 'integer', primary: true, generated: true }, ...columns } },
      { label: {} },
    ),
  )
  const { manager } = await db.dataSource([Wides])
  const rows = Array.from({ length: 1_000 }, (_, nth) => ({
    label: `${nth}`,
    ...Object.fromEntries(names.map((name) => [name, nth])),
  }))
  expect(await insertOrFail(manager, Wides, rows)).toMatchObject(rows)
  expect(await manager.count(Wides)).toBe(1_000)
})

const Address = entity('Address', { host: column('text'), path: plain() })
UniqueText({
  as: 'address',
  columns: [
    { property: 'host', normalize: lowerCase() },
    { property: 'path', prefix: '/' },
  ],
})(Address)

describe('a text of several columns', () => {
  test('is taken column by column, also by a change of one of them', async () => {
    const { manager } = await db.dataSource([Address])
    const one = await insertOrFail(manager, Address, { host: 'A', path: 'x' })
    expect(one).toEqual({ id: 1, host: 'a', path: 'x' })
    const address = { entity: 'Address', property: 'address', row: 0 }
    expect(await taken(insertOrFail(manager, Address, { host: 'a', path: 'x' }))).toEqual([
      { ...address, id: { id: 1 } },
    ])
    // Composed they are alike, and are not equal.
    const two = await insertOrFail(manager, Address, { host: 'a/x', path: null })
    const three = await insertOrFail(manager, Address, { host: 'a', path: 'y' })
    expect(await taken(updateOrFail(manager, Address, three.id, { path: 'x' }))).toEqual([
      { ...address, id: { id: 1 } },
    ])
    expect(await updateOrFail(manager, Address, three.id, { host: 'B' })).toMatchObject({ host: 'b', path: 'y' })
    expect(await taken(insertOrFail(manager, Address, { host: 'a/x' }))).toEqual([{ ...address, id: { id: two.id } }])
  })

  test('is normalized as a whole, as save does', async () => {
    const { manager } = await db.dataSource([Url])
    const one = await Url.parse('http://a.example/x?q', manager)
    const parts: DeepPartial<Url> = { scheme: 'HTTP', host: 'A.example', port: 80, path: '/x', query: 'q' }
    expect(await taken(insertOrFail(manager, Url, parts))).toEqual([
      { entity: 'Url', property: 'url', id: { id: one?.id }, row: 0 },
    ])
    const other = await insertOrFail(manager, Url, { ...parts, query: 'r' })
    expect(other).toMatchObject({ scheme: 'http', host: 'a.example', query: 'r' })
    expect(await rejection(updateOrFail(manager, Url, other.id, { query: 'q' }))).toBeInstanceOf(ImmutableTextError)
  })
})

@Entity()
@Tree('materialized-path')
class Branch {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() name!: string
  @TreeChildren() children!: Branch[]
  @TreeParent() parent!: Branch | null
}

test('a row of a tree changes its text, and not its place, which only save writes', async () => {
  const { manager } = await db.dataSource([Branch])
  const root = await manager.save(Branch, { name: 'root' })
  const leaf = await manager.save(Branch, { name: 'leaf', parent: root })
  expect(await taken(updateOrFail(manager, Branch, leaf.id, { name: 'root' }))).toMatchObject([{ id: { id: root.id } }])
  expect(await updateOrFail(manager, Branch, leaf.id, { name: 'new' })).toMatchObject({ id: leaf.id, name: 'new' })
  expect((await manager.getTreeRepository(Branch).findDescendants(root)).map(({ name }) => name)).toContain('new')
  for (const parent of [null, { id: leaf.id }]) {
    const move = updateOrFail(manager, Branch, leaf.id, { parent })
    expect(await rejection(move)).toMatchObject({ message: expect.stringContaining('is a tree') as string })
  }
  expect(await rejection(insertOrFail(manager, Branch, { name: 'x' }))).toBeInstanceOf(DeclarationError)
})

const Rating = entity('Rating', {
  stars: column('numeric', { precision: 3, scale: 1 }),
  text: text({ scope: ['stars'] }),
})

test('a scope that is stored in another form is the scope as it is stored', async () => {
  const { manager } = await db.dataSource([Rating])
  const [one, two] = await insertOrFail(manager, Rating, [
    { stars: '1.04', text: 'a' },
    { stars: '2', text: 'a' },
  ])
  expect(one).toMatchObject({ stars: '1.0' })
  expect(await taken(insertOrFail(manager, Rating, { stars: '0.96', text: 'a' }))).toMatchObject([
    { id: { id: one?.id } },
  ])
  expect(await taken(updateOrFail(manager, Rating, two?.id ?? 0, { stars: '1.01' }))).toMatchObject([
    { id: { id: one?.id } },
  ])
})

@Entity()
class Counted {
  static count = (): Promise<number> => Promise.resolve(0)
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() text!: string
  @Column({ type: 'integer' }) before!: number
  @BeforeInsert() async fill(): Promise<void> {
    this.before = await Counted.count()
  }
}

describe('a pool of one connection', () => {
  let dataSource: Awaited<ReturnType<typeof db.dataSource>>
  beforeAll(async () => {
    dataSource = await db.dataSource([Counted], { extra: { max: 1 } })
    Counted.count = () => dataSource.manager.count(Counted)
  })

  test('is enough for listeners that ask the database', async () => {
    await insertOrFail(dataSource.manager, Counted, { text: 'a' })
    expect(await insertOrFail(dataSource.manager, Counted, [{ text: 'b' }, { text: 'c' }])).toMatchObject([
      { before: 1 },
      { before: 1 },
    ])
    expect(await taken(insertOrFail(dataSource.manager, Counted, { text: 'a' }))).toHaveLength(1)
  })
})
