import type { InsertEvent } from 'typeorm'
import {
  BeforeInsert,
  ChildEntity,
  Column,
  Entity,
  JoinColumn,
  ManyToMany,
  JoinTable,
  ManyToOne,
  OneToMany,
  PrimaryGeneratedColumn,
  TableInheritance,
  Tree,
  TreeChildren,
  TreeParent,
} from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { DeclarationError, findOrCreate, findOrCreateMany, UniqueText } from '../../../src'
import { useDatabase } from '../../support/database'
import { onlyRowOf } from '../../support/results'
import { column, deleteDate, entity, key, plain, text, toOne } from '../../support/entity'
import { rejection } from '../../support/ledger'

const db = useDatabase()

/** A key of two columns, both the user's. */
const Shelf = entity('Shelf', { hall: key('text'), number: key('integer'), topic: plain() })
type Shelf = InstanceType<typeof Shelf>

/** Referred to by a code. */
const Country = entity('Country', { code: column('text', { unique: true }), name: text() })
type Country = InstanceType<typeof Country>

/** Its key is the user's, and its text another column. */
const Language = entity('Language', { iso: key('text'), name: text() })
type Language = InstanceType<typeof Language>

const Person = entity('Person', { name: text() })
TableInheritance({ column: { type: 'varchar', name: 'kind' } })(Person)
type Person = InstanceType<typeof Person>
@ChildEntity()
class Editor extends Person {
  @Column({ type: 'text', nullable: true }) office!: string | null
}
@ChildEntity()
class Reader extends Person {}

class Origin {
  @Column({ type: 'integer', nullable: true }) year!: number | null
  @ManyToOne(() => Country, { nullable: true })
  @JoinColumn({ name: 'countryCode', referencedColumnName: 'code' })
  country!: Country | null
}

@Entity()
class Paper {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() title!: string
  @Column(() => Origin) origin!: Origin
  @ManyToOne(() => Shelf, { nullable: true })
  @JoinColumn([
    { name: 'shelfHall', referencedColumnName: 'hall' },
    { name: 'shelfNumber', referencedColumnName: 'number' },
  ])
  shelf!: Shelf | null
  @ManyToOne(() => Language, { nullable: true }) language!: Language | null
  @ManyToOne(() => Person, { nullable: true }) person!: Person | null
  @ManyToOne(() => Editor, { nullable: true }) editor!: Editor | null
  @ManyToOne(() => Paper, (paper) => paper.sequels, { nullable: true }) prequel!: Paper | null
  @OneToMany(() => Paper, (paper) => paper.prequel) sequels!: Paper[]
  @ManyToOne(() => Country, { nullable: true, lazy: true }) printedIn!: Promise<Country | null>
  @ManyToMany(() => Shelf, { lazy: true }) @JoinTable() copies!: Promise<Shelf[]>
}

const heard: unknown[] = []

@Entity()
class Note {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() text!: string
  @Column({ type: 'text', nullable: true }) by!: string | null
  @ManyToOne(() => Paper, { nullable: true }) paper!: Paper | null
  @BeforeInsert() hear(): void {
    heard.push(this.paper?.id)
    this.by = 'listener'
  }
}

/** Two texts. */
const Account = entity('Account', { email: text({ nullable: true }), phone: text({ nullable: true }) })
const Session = entity('Session', { token: text(), account: toOne(() => Account) })

@Entity()
class Box {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column({ type: 'text' }) label!: string
  @ManyToOne(() => Person, { nullable: true, cascade: true }) keeper!: Person | null
  @OneToMany(() => Loan, (loan: Loan) => loan.box, { cascade: true }) loans!: Loan[]
}
@Entity()
class Loan {
  @PrimaryGeneratedColumn('identity') id!: number
  @ManyToOne(() => Box, (box) => box.loans, { nullable: false }) box!: Box
  @ManyToOne(() => Person, { nullable: false }) to!: Person
}
const Copy = entity('Copy', { deletedAt: deleteDate(), text: text(), box: toOne(() => Box) })

@Entity()
@Tree('adjacency-list')
class Topic {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() name!: string
  @TreeParent() parent!: Topic | null
  @TreeChildren() children!: Topic[]
}

const persons = [Person, Editor, Reader]
const entities = [Box, Loan, Copy, Topic, Shelf, Country, Language, ...persons, Paper, Note, Account, Session]
const dataSource = db.useDataSource(entities)
const { manager } = dataSource

beforeEach(() => {
  heard.length = 0
})

const resolve = { relations: 'findOrCreate' } as const

const paper = (title: string): Promise<Paper> =>
  manager.findOneOrFail(Paper, {
    where: { title },
    relations: { shelf: true, language: true, person: true, editor: true, prequel: true, origin: { country: true } },
  })

/** Both ways of calling. */
const operations = {
  findOrCreate: async (values: object, options = {}): Promise<Paper> =>
    (await findOrCreate(manager, Paper, values, options)).entity,
  findOrCreateMany: async (values: object, options = {}): Promise<Paper> =>
    (await onlyRowOf(findOrCreateMany(manager, Paper, [values], options))).entity,
} as const

describe.each(Object.entries(operations))('%s', (_, call) => {
  test('a key of several columns is given as an object, and a new row of it is saved', async () => {
    await manager.insert(Shelf, { hall: 'A', number: 1, topic: 'old' })
    await call({ title: 'by key', shelf: { hall: 'A', number: 1 } })
    await call({ title: 'by key, resolving', shelf: { hall: 'A', number: 1 } }, resolve)
    const created = await call({ title: 'new', shelf: { hall: 'B', number: 2, topic: 'new' } }, resolve)
    expect(created.shelf).toBeInstanceOf(Shelf)
    expect((await paper('by key')).shelf).toMatchObject({ topic: 'old' })
    expect((await paper('by key, resolving')).shelf).toMatchObject({ topic: 'old' })
    expect((await paper('new')).shelf).toMatchObject({ hall: 'B', number: 2, topic: 'new' })
  })

  test('a relation in an embedded, by a column that is not the primary key', async () => {
    await findOrCreate(manager, Country, { code: 'FR', name: 'France' })
    await call({ title: 'by code', origin: { year: 1, country: { code: 'FR' } } })
    await call({ title: 'by code, resolving', origin: { country: { code: 'FR' } } }, resolve)
    const given = { title: 'new', origin: { year: 2, country: { code: 'DE', name: 'Germany' } } }
    const { origin } = await call(given, resolve)
    expect(origin).toMatchObject({ year: 2, country: { code: 'DE' } })
    expect(given.origin.country).toEqual({ code: 'DE', name: 'Germany' })
    for (const [title, code] of [
      ['by code', 'FR'],
      ['by code, resolving', 'FR'],
      ['new', 'DE'],
    ] as const) {
      expect((await paper(title)).origin.country).toMatchObject({ code })
    }
  })

  test("a key of the user's own beside a text: the text decides", async () => {
    await findOrCreate(manager, Language, { iso: 'fr', name: 'French' })
    await call({ title: 'found', language: { iso: 'xx', name: 'French' } }, resolve)
    await call({ title: 'new', language: { iso: 'de', name: 'German' } }, resolve)
    expect((await paper('found')).language).toMatchObject({ iso: 'fr' })
    expect((await paper('new')).language).toMatchObject({ iso: 'de', name: 'German' })
  })

  test('a row that is given by its key is not changed, whatever else the object has', async () => {
    const { entity } = await findOrCreate(manager, Person, { name: 'Anne' })
    for (const options of [{}, resolve]) {
      await call({ title: JSON.stringify(options), person: { id: entity.id, name: 'changed' } }, options)
    }
    expect(await manager.find(Person)).toMatchObject([{ id: entity.id, name: 'Anne' }])
  })

  test('null and undefined in relations', async () => {
    const values = { title: 'x', person: null, shelf: undefined, sequels: [], origin: { country: null } }
    const created = await call(values, resolve)
    expect(created).toMatchObject({ person: null, sequels: [] })
    expect(await paper('x')).toMatchObject({ person: null, shelf: null })
  })

  test('a new object of a child class becomes a row of its class', async () => {
    const person = Object.assign(new Editor(), { name: 'Ed', office: 'here' })
    const created = await call({ title: 'x', person, editor: { name: 'Ed' } }, resolve)
    expect(created.person).toBeInstanceOf(Editor)
    expect(created.editor?.id).toBe(created.person?.id)
    expect((await paper('x')).person).toMatchObject({ office: 'here' })
  })

  test('a text that a row of another class holds is taken, and nothing is stored', async () => {
    await findOrCreate(manager, Reader, { name: 'Rea' })
    const refused = call({ title: 'x', editor: { name: 'Rea' } }, resolve)
    expect(await rejection(refused)).toMatchObject({ code: 'TEXT_TAKEN', taken: [{ entity: 'Reader' }] })
    expect(await manager.count(Paper)).toBe(0)
  })

  test('rows of one class that own each other', async () => {
    const prequel = { title: '2', prequel: { title: '1' }, sequels: [{ title: '2b' }] }
    await call({ title: '3', prequel, sequels: [{ title: '4', sequels: [{ title: '5' }] }] }, resolve)
    for (const [title, before] of [
      ['2', '1'],
      ['3', '2'],
      ['4', '3'],
      ['5', '4'],
      ['2b', '2'],
    ] as const) {
      expect((await paper(title)).prequel).toMatchObject({ title: before })
    }
  })

  test('a circle of owners is refused before any SQL', async () => {
    const one = { title: 'one', prequel: {} }
    one.prequel = { title: 'two', prequel: one }
    const refused = call(one, resolve)
    await expect(refused).rejects.toBeInstanceOf(DeclarationError)
    await expect(refused).rejects.toThrow(/Paper: new objects form a cycle/)
  })

  test('lazy relations: promises, and what was set on an entity', async () => {
    const { entity: country } = await findOrCreate(manager, Country, { code: 'FR', name: 'France' })
    await call({ title: 'promised', printedIn: Promise.resolve(country) })
    const made = manager.create(Paper, { title: 'made' })
    made.printedIn = Promise.resolve(country)
    await call(made)
    await call({ title: 'new', printedIn: Promise.resolve({ code: 'DE', name: 'Germany' }) }, resolve)
    const copies = Promise.resolve([{ hall: 'A', number: 1, topic: 'x' }])
    const created = await call({ title: 'plain', printedIn: { code: 'FR', name: 'France' }, copies }, resolve)
    expect(await created.printedIn).toMatchObject({ id: country.id })
    expect(await created.copies).toMatchObject([{ hall: 'A' }])
    for (const [title, code] of [
      ['promised', 'FR'],
      ['made', 'FR'],
      ['new', 'DE'],
      ['plain', 'FR'],
    ] as const) {
      expect(await (await paper(title)).printedIn).toMatchObject({ code })
    }
    expect(await (await paper('plain')).copies).toHaveLength(1)
  })

  test('a promise that fails is the error of the row', async () => {
    const printedIn = (): Promise<Country> => Promise.reject(new Error('not loaded'))
    for (const options of [{}, resolve]) {
      await expect(call({ title: 'x', printedIn: printedIn() }, options)).rejects.toThrow('not loaded')
    }
  })
})

test('a listener sees the owner as a row, and what it sets is stored', async () => {
  const { entity } = await findOrCreate(manager, Note, { text: 'a', paper: { title: 'p' } }, resolve)
  const { id } = await paper('p')
  expect(heard).toEqual([id])
  expect(entity).toMatchObject({ by: 'listener', paper: { id } })
})

test('a tree of an adjacency list, up and down', async () => {
  const values = { name: 'b', parent: { name: 'a' }, children: [{ name: 'c', children: [{ name: 'd' }] }] }
  await findOrCreate(manager, Topic, values, resolve)
  const topics = await manager.find(Topic, { relations: { parent: true }, order: { name: 'ASC' } })
  expect(topics.map(({ name, parent }) => [name, parent?.name])).toEqual([
    ['a', undefined],
    ['b', 'a'],
    ['c', 'b'],
    ['d', 'c'],
  ])
})

test('a nested class with several texts: the one that the object brings', async () => {
  const first = await findOrCreate(manager, Session, { token: 'a', account: { email: 'e' } }, resolve)
  const again = await findOrCreate(manager, Session, { token: 'b', account: { email: 'e' } }, resolve)
  expect(again.entity.account?.id).toBe(first.entity.account?.id)
  await findOrCreate(manager, Session, { token: 'c', account: {} }, resolve)
  expect(await manager.count(Account)).toBe(2)
  const both = findOrCreate(manager, Session, { token: 'd', account: { email: 'e', phone: 'p' } }, resolve)
  await expect(both).rejects.toThrow(
    /"account" of Session holds a Account with several unique texts \("email", "phone"\)/,
  )
})

test('a listener that finds or creates on the same connection is not waited for', async () => {
  dataSource.subscribers.push({
    listenTo: () => Language,
    beforeInsert: async ({ manager: own, entity }: InsertEvent<Language>) => {
      const author = { name: `speaker of ${entity.name}` }
      await findOrCreate(own, Paper, { title: `in ${entity.name}`, person: author }, resolve)
      await findOrCreate(own, Person, author)
    },
  })
  try {
    await dataSource.transaction(async (own) => {
      const papers = ['a', 'b'].map((name) => ({ title: name, language: { iso: name, name } }))
      const [both, one] = await Promise.all([
        findOrCreateMany(own, Paper, papers, resolve),
        findOrCreate(own, Paper, { title: 'c', language: { iso: 'a', name: 'a' } }, resolve),
      ])
      expect([...both, one]).toMatchObject([{ created: true }, { created: true }, { created: true }])
    })
    await findOrCreate(manager, Paper, { title: 'd', language: { iso: 'd', name: 'd' } }, resolve)
  } finally {
    dataSource.subscribers.pop()
  }
  expect(await manager.count(Paper)).toBe(7)
  expect(await manager.count(Person)).toBe(3)
})

test('one connection is enough', async () => {
  const small = await db.dataSource(entities, { synchronize: false, extra: { max: 1 } })
  const papers = ['a', 'b'].map((title) => ({ title, person: { name: title }, shelf: { hall: 'A', number: 1 } }))
  await small.manager.insert(Shelf, { hall: 'A', number: 1 })
  const calls = papers.map((values) => findOrCreate(small.manager, Paper, values, resolve))
  expect(await Promise.all(calls)).toMatchObject([{ created: true }, { created: true }])
})

test('an object without a text that brings one with a text, and a list', async () => {
  const loans = [{ to: { name: 'Anne' } }, { to: { name: 'Bert' } }]
  await findOrCreate(manager, Copy, { text: 'x', box: { label: 'b', keeper: { name: 'Anne' }, loans } }, resolve)
  const [box] = await manager.find(Box, {
    relations: { keeper: true, loans: { to: true } },
    order: { loans: { id: 'ASC' } },
  })
  expect(box).toMatchObject({
    label: 'b',
    keeper: { name: 'Anne' },
    loans: [{ to: { name: 'Anne' } }, { to: { name: 'Bert' } }],
  })
  expect(await manager.count(Person)).toBe(2)
})

test('a row that is softly deleted is restored, or refused with its place', async () => {
  const { entity } = await findOrCreate(manager, Copy, { text: 'x', box: { label: 'b' } }, resolve)
  await manager.softDelete(Copy, { id: entity.id })
  const inputs = [
    { text: 'new', box: { label: 'c' } },
    { text: 'x', box: { label: 'd' } },
  ]
  const [created, refused] = await findOrCreateMany(manager, Copy, inputs, { ...resolve, deleted: 'throw' })
  expect(created).toMatchObject({ created: true })
  expect(refused).toMatchObject({ error: { code: 'TEXT_TAKEN', taken: [{ id: { id: entity.id }, row: 1 }] } })
  const restored = await findOrCreate(
    manager,
    Copy,
    { text: 'x', box: { label: 'e' } },
    { ...resolve, deleted: 'restore' },
  )
  expect(restored).toMatchObject({ created: false, entity: { id: entity.id, deletedAt: null, box: { label: 'b' } } })
  expect(await manager.count(Box)).toBe(2)
})

test('create gives objects too, and is called only for a row that is missing', async () => {
  let calls = 0
  const options = {
    ...resolve,
    create: () => {
      calls += 1
      return { person: { name: 'Anne' } }
    },
  }
  const first = await findOrCreate(manager, Paper, { title: 'x' }, options)
  expect(first).toMatchObject({ created: true, entity: { person: { name: 'Anne' } } })
  expect(await findOrCreate(manager, Paper, { title: 'x' }, options)).toMatchObject({ created: false })
  expect(calls).toBe(1)
})
