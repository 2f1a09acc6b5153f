import { ChildEntity, Column, Entity, type EntityManager, PrimaryGeneratedColumn, TableInheritance } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import {
  DeclarationError,
  insertOrFail,
  TextRejectedError,
  TextTakenError,
  TransactionAbortedError,
  UniqueText,
  updateOrFail,
  withFreeText,
} from '../../../src'
import { formerNamesOf, Name, rename, UniqueName } from '../../../src/names'
import { serverError } from '../../../src/sql/sqlstate'
import { lowerCase, normalizer } from '../../../src/text'
import { meet } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { deleteDate, entity, key, plain, text, toOne, uniqueName, uuidKey } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { STEVENS } from '../../support/md5-collisions'
import { queriesOf } from '../../support/queries'

const short = normalizer('short handle', 1, (name) => {
  if (name.length > 7) throw new Error('longer than 7 characters')
  return name.toLowerCase()
})
const HANDLE = { namespace: 'handle', normalize: short } as const

const Person = entity('Person', {
  handle: uniqueName({ ...HANDLE, former: 'redirect' }),
  email: text({ nullable: true }),
  title: plain(),
})
const Club = entity('Club', {
  handle: uniqueName({ ...HANDLE, former: { reserveFor: '90 days' } }),
  nick: uniqueName({ namespace: 'nick', former: 'reserve', nullable: true }),
})
const Seat = entity('Seat', {
  hall: key('bigint'),
  row: key('text'),
  slug: uniqueName({ namespace: 'slug', former: 'reserve' }),
})

const Animal = entity('Animal', {})
TableInheritance({ column: { type: 'varchar', name: 'kind' } })(Animal)

@ChildEntity()
class Cat extends Animal {
  @UniqueName({ ...HANDLE, former: 'reserve' }) handle!: string
}

@ChildEntity()
class Dog extends Animal {
  @UniqueName({ namespace: 'tag', former: 'redirect' }) tag!: string
}

const Team = entity('Team', {
  id: uuidKey(),
  handle: uniqueName(HANDLE),
  nick: uniqueName({ ...HANDLE, nullable: true }),
})

const Post = entity('Post', {
  blog: toOne(() => Club, { nullable: false }),
  slug: text({ scope: ['blog'], normalize: lowerCase() }),
  other: text({ nullable: true }),
})
const Draft = entity('Draft', { slug: text({ ignoreDeleted: true }), deletedAt: deleteDate() })
const Kept = entity('Kept', { slug: text(), deletedAt: deleteDate() })

@Entity({ name: 'hidden' })
class Hidden {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() @Column({ type: 'text', select: false }) slug!: string
}

const db = useDatabase()
const dataSource = db.useDataSource([Name, Person, Club, Seat, Animal, Cat, Dog, Team, Post, Draft, Kept])
const { manager } = dataSource
const other = db.useClient()
const observer = db.useClient()

/** Inserts a person with the name that is free. */
const insertPerson = (handle: string, own = manager): Promise<{ handle: string }> =>
  insertOrFail(own, Person, { handle })

const addPerson = async (name: string): Promise<string> =>
  (await withFreeText(manager, Person, { handle: name }, (handle) => insertPerson(handle))).handle

const handles = async (): Promise<string[]> =>
  (await manager.find(Person, { order: { id: 'ASC' } })).map((one) => one.handle)

describe('withFreeText, with a name', () => {
  test('takes the name, or the first candidate that no row of any entity holds or keeps', async () => {
    expect(await addPerson('Ada')).toBe('ada')
    await insertOrFail(manager, Club, [{ handle: 'ada-2' }, { handle: 'ada-3' }])
    await rename(manager, Club, 2, { handle: 'club' })
    expect(await addPerson('Ada')).toBe('ada-4')
    await manager.delete(Club, { id: 1 })
    expect(await addPerson('ada')).toBe('ada-2')
    expect(await addPerson('ada')).toBe('ada-5')
    await other.query(`UPDATE names SET until = now() - interval '1 second' WHERE text = 'ada-3'`)
    expect(await addPerson('ada')).toBe('ada-3')
  })

  test('a free name is one statement, and a taken one three more', async () => {
    await addPerson('ada')
    for (let n = 0; n < 2; n++) {
      await addPerson(`bob${n}`)
      expect(await queriesOf(dataSource, () => addPerson(`eve${n}`))).toHaveLength(1)
      expect(await queriesOf(dataSource, () => addPerson('ada'))).toHaveLength(4)
    }
  })

  test('asks a function for candidates, and writes what it is given', async () => {
    await addPerson('ada')
    const tried: string[] = []
    const written = await withFreeText(
      manager,
      Person,
      { handle: 'ada' },
      async (handle) => {
        tried.push(handle)
        return await insertOrFail(manager, [
          [Person, { handle, title: 'Countess' }],
          [Club, { handle: `+${handle}` }],
        ])
      },
      { candidates: (name, n) => `${name}${'x'.repeat(n)}`, by: 'handle' },
    )
    expect(written).toMatchObject([{ handle: 'adaxx', title: 'Countess' }, { handle: '+adaxx' }])
    expect(tried).toEqual(['ada', 'adaxx'])
  })

  test('of a child in single table inheritance too', async () => {
    const add = (): Promise<Cat> =>
      withFreeText(manager, Cat, { handle: 'tom' }, (handle) => insertOrFail(manager, Cat, { handle }))
    const [one, two] = [await add(), await add()]
    expect([one.handle, two.handle]).toEqual(['tom', 'tom-2'])
    await rename(manager, Cat, two.id, { handle: 'kit' })
    expect(await formerNamesOf(manager, Cat, two.id)).toMatchObject([{ name: 'tom-2' }])
    const dog = await insertOrFail(manager, Dog, { tag: 'rex' })
    await rename(manager, Dog, dog.id, { tag: 'max' })
    expect(await formerNamesOf(manager, Dog, dog.id)).toMatchObject([{ name: 'rex', property: 'tag' }])
    expect(await formerNamesOf(manager, Cat, dog.id)).toEqual([])
  })

  test('leaves a row the name that it has, and gives it back one that is kept for it', async () => {
    await insertOrFail(manager, Person, [{ handle: 'ada' }, { handle: 'ada-2' }, { handle: 'ada-3' }])
    const name = async (id: number | undefined): Promise<string> =>
      await withFreeText(
        manager,
        Person,
        { handle: 'ada' },
        async (handle) => (await rename(manager, Person, 3, { handle })).handle,
        id === undefined ? {} : { id },
      )
    expect(await name(3)).toBe('ada-3')
    await rename(manager, Person, 2, { handle: 'bob' })
    await rename(manager, Person, 3, { handle: 'eve' })
    // The second is kept for another row.
    expect(await name(3)).toBe('ada-3')
    expect(await name(undefined)).toBe('ada-4')
  })

  test('tells the row by its key, however that is written', async () => {
    const id = '6f9619ff-8b86-d011-b42d-00c04fc964ff'
    await insertOrFail(manager, Person, { handle: 'ada' })
    await insertOrFail(manager, Team, { id, handle: 'ada-2', nick: 'ada-3' })
    for (const one of [id.toUpperCase(), `{${id}}`, { id }]) {
      const write = (handle: string): Promise<{ handle: string }> => updateOrFail(manager, Team, id, { handle })
      // The third is its nick.
      expect(await withFreeText(manager, Team, { handle: 'ada' }, write, { id: one, by: 'handle' })).toMatchObject({
        handle: 'ada-2',
      })
    }
    await expect(rename(manager, Team, id, { handle: 'ada-3' })).rejects.toThrow('as "nick"')
  })

  test('tries the name again if it has become free', async () => {
    await insertOrFail(manager, Club, { handle: 'ada' })
    const added = await withFreeText(manager, Person, { handle: 'ada' }, async (handle) => {
      try {
        return await insertOrFail(manager, Person, { handle })
      } catch (error) {
        await manager.delete(Club, { handle })
        throw error
      }
    })
    expect(added).toMatchObject({ handle: 'ada' })
  })

  test('a write with another name of the same property is not written a thousand times', async () => {
    await insertOrFail(manager, Person, [{ handle: 'fixed' }, { handle: 'ada' }])
    for (const [name, most] of [
      ['new', 3],
      ['ada', 1],
    ] as const) {
      let writes = 0
      const error = await rejection(
        withFreeText(manager, Person, { handle: name }, async (handle) => {
          writes++
          return await insertOrFail(manager, Person, [{ handle }, { handle: 'fixed' }])
        }),
      )
      expect(error).toMatchObject({ code: 'TEXT_TAKEN' })
      expect(writes).toBe(most)
    }
  })

  test('a write that does not use the name is not written a thousand times', async () => {
    await insertOrFail(manager, Person, [{ handle: 'ada' }, { handle: 'eve' }])
    let writes = 0
    const write = async (): Promise<unknown> => {
      writes++
      return await insertOrFail(manager, Person, { handle: 'eve' })
    }
    await expect(withFreeText(manager, Person, { handle: 'ada' }, write)).rejects.toThrow(TextTakenError)
    expect(writes).toBe(2)
  })

  test('candidates get the name as it is stored', async () => {
    await addPerson('ada')
    const got: string[] = []
    const candidates = (name: string, n: number): string => {
      got.push(name)
      return `${name}.${n}`
    }
    const added = await withFreeText(manager, Person, { handle: 'ADA' }, (handle) => insertPerson(handle), {
      candidates,
    })
    expect(added).toMatchObject({ handle: 'ada.2' })
    expect(new Set(got)).toEqual(new Set(['ada']))
  })

  test('save reports the taken name if it has ended the transaction, and works behind a savepoint', async () => {
    await addPerson('ada')
    const add = async (inside: EntityManager, nested: boolean): Promise<unknown> =>
      await withFreeText(inside, Person, { handle: 'ada' }, async (handle) => {
        if (nested) return await inside.transaction((one) => one.save(Person, { handle }))
        return await inside.save(Person, { handle })
      })
    const error = await rejection(dataSource.transaction((inside) => add(inside, false)))
    expect(error).toMatchObject({ code: 'TEXT_TAKEN', taken: [{ id: { id: 1 } }] })
    expect(await dataSource.transaction((inside) => add(inside, true))).toMatchObject({ handle: 'ada-2' })
    expect(await add(manager, false)).toMatchObject({ handle: 'ada-3' })
  })

  test('passes on what is not the name, after one write', async () => {
    await insertOrFail(manager, Person, { handle: 'ada', email: 'a@b.c' })
    let writes = 0
    const write = async (handle: string): Promise<unknown> => {
      writes++
      return await insertOrFail(manager, Person, { handle, email: 'a@b.c' })
    }
    const both = await rejection(withFreeText(manager, Person, { handle: 'ada' }, write))
    expect(both).toMatchObject({ code: 'TEXT_TAKEN', taken: [{ property: 'email' }, { property: 'handle' }] })
    expect(writes).toBe(1)
    const club = await rejection(
      withFreeText(manager, Person, { handle: 'new' }, () => insertOrFail(manager, Club, { handle: 'ada' })),
    )
    expect(club).toMatchObject({ taken: [{ entity: 'Club', property: 'handle' }] })
    const failed = new Error('failed')
    expect(await rejection(withFreeText(manager, Person, { handle: 'ada' }, () => Promise.reject(failed)))).toBe(failed)
  })

  test('a candidate that the normalizer rejects ends it only when its turn comes', async () => {
    expect([await addPerson('abcde'), await addPerson('abcde')]).toEqual(['abcde', 'abcde-2'])
    for (let n = 3; n < 10; n++) await addPerson('abcde')
    const error = await rejection(addPerson('abcde'))
    expect(error).toBeInstanceOf(TextRejectedError)
    expect(error).toMatchObject({ property: 'handle', cause: { message: 'longer than 7 characters' } })
    await expect(addPerson('much too long')).rejects.toThrow(TextRejectedError)
    await expect(addPerson(undefined as never)).rejects.toThrow(DeclarationError)
  })

  test('candidates that do not differ are refused, as wrong arguments are', async () => {
    await addPerson('ada')
    const write = (handle: string): Promise<unknown> => insertPerson(handle)
    for (const candidates of [(): string => 'ADA', (name: string): string => name.slice(0, 3)]) {
      const error = await rejection(withFreeText(manager, Person, { handle: 'ada' }, write, { candidates }))
      expect(error).toBeInstanceOf(DeclarationError)
      expect(String(error)).toContain('candidates for "handle" are equal')
    }
    const nothing = withFreeText(manager, Person, { handle: 'ada' }, write, { candidates: () => undefined as never })
    await expect(nothing).rejects.toThrow(TextRejectedError)
    await expect(withFreeText(manager, Person, { handle: 'ada' }, 'x' as never)).rejects.toThrow(
      'write must be a function',
    )
    await expect(withFreeText(manager, Person, { handle: 'ada' }, write, { candidates: 'x' as never })).rejects.toThrow(
      'candidates must be a function',
    )
    await expect(withFreeText(manager, Person, { handle: 'ada' }, write, { id: {} })).rejects.toThrow(DeclarationError)
    expect(await handles()).toEqual(['ada'])
  })

  test('of a thousand names that are taken, one is written, and its refusal thrown', async () => {
    const seat = { hall: '1', slug: 'slug' }
    await manager.query(
      `INSERT INTO seat (hall, row, slug) SELECT 1, n, 'slug' || coalesce('-' || nullif(n, 1), '') FROM generate_series(1, 999) AS n`,
    )
    const tried: string[] = []
    const add = async (): Promise<string> =>
      await withFreeText(manager, Seat, { slug: seat.slug }, async (slug) => {
        tried.push(slug)
        return (await insertOrFail(manager, Seat, { hall: '2', row: slug, slug })).slug
      })
    expect(await add()).toBe('slug-1000')
    expect(await rejection(add())).toMatchObject({ code: 'TEXT_TAKEN', taken: [{ id: { hall: '1', row: '1' } }] })
    expect(tried).toEqual(['slug', 'slug-1000', 'slug'])
  })

  test('in a transaction it stays usable, and is rolled back with it', async () => {
    await addPerson('ada')
    const rolledBack = dataSource.transaction(async (inside) => {
      for (const name of ['ada-2', 'ada-3']) {
        const added = withFreeText(inside, Person, { handle: 'ada' }, (handle) => insertPerson(handle, inside))
        expect(await added).toMatchObject({ handle: name })
      }
      throw new Error('back')
    })
    await expect(rolledBack).rejects.toThrow('back')
    expect(await handles()).toEqual(['ada'])
  })

  test('above READ COMMITTED, a name that is newer than the snapshot aborts the transaction', async () => {
    const call = dataSource.transaction('REPEATABLE READ', async (inside) => {
      await inside.count(Person)
      await addPerson('ada')
      return await withFreeText(inside, Person, { handle: 'ada' }, (handle) => insertPerson(handle, inside))
    })
    expect(await rejection(call)).toBeInstanceOf(TransactionAbortedError)
  })

  test.each([
    ['COMMIT', 'ada-3'],
    ['ROLLBACK', 'ada-2'],
  ] as const)('it waits for a candidate that another session has written, and after %s gets %s', async (end, gets) => {
    await addPerson('ada')
    const insert = `INSERT INTO club (handle) VALUES ('ada-2')`
    expect(await meet({ other, observer }, insert, () => addPerson('ada'), end)).toBe(gets)
  })

  test('40 at once get 40 names without a gap', async () => {
    const got = await Promise.all(Array.from({ length: 40 }, () => addPerson('ada')))
    const expected = ['ada', ...Array.from({ length: 39 }, (_, index) => `ada-${index + 2}`)]
    expect(got.toSorted()).toEqual(expected.toSorted())
    expect((await handles()).toSorted()).toEqual(expected.toSorted())
  })
})

test('24 clients that take, change, hold and free names at mixed levels leave each name with one row', async () => {
  let written = 0
  const refused = new Set<string>()
  const turn = async (client: number, round: number): Promise<void> => {
    const name = `n${(client * 7 + round) % 5}`
    const kind = (client + round * 5) % 4
    await dataSource.transaction(LEVELS[(client + round) % 3] ?? 'SERIALIZABLE', async (inside) => {
      const id = 1 + ((client + round) % 40)
      if (kind === 0) await withFreeText(inside, Person, { handle: name }, (handle) => insertPerson(handle, inside))
      if (kind === 1)
        await withFreeText(inside, Club, { handle: name }, (handle) => insertOrFail(inside, Club, { handle }))
      if (kind === 2 && (await inside.existsBy(Person, { id })))
        await withFreeText(inside, Person, { handle: name }, (handle) => rename(inside, Person, id, { handle }), { id })
      if (kind === 3) await inside.delete(Club, { id })
      if ((client * 3 + round) % 5 === 0) throw new Error('back')
    })
    written++
  }
  await Promise.all(
    Array.from({ length: 24 }, async (_, client) => {
      for (let round = 0; round < 12; round++) {
        await turn(client, round).catch((error: unknown) => refused.add(codeOf(error)))
      }
    }),
  )
  expect([...refused].filter((code) => !['40001', '40P01', 'back'].includes(code))).toEqual([])
  expect(written).toBeGreaterThan(24)
  const rows = await dataSource.query<unknown[]>(`
    SELECT * FROM (SELECT 'person' AS holder, id, handle FROM person UNION ALL SELECT 'club', id, handle FROM club) AS r
    FULL JOIN (SELECT * FROM names WHERE state = 'held' AND namespace = 'handle') AS n
      ON n.text = r.handle AND n.holder = r.holder AND n.holder_key = jsonb_build_array(r.id)
    WHERE n.text IS NULL OR r.id IS NULL`)
  expect(rows).toEqual([])
})

const LEVELS = ['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'] as const

/** The SQLSTATE that ended a transaction. */
function codeOf(error: unknown): string {
  if (error instanceof TransactionAbortedError) return codeOf(error.cause)
  return serverError(error)?.code ?? (error instanceof Error ? error.message : String(error))
}

describe('withFreeText, with a unique text', () => {
  beforeEach(async () => {
    await insertOrFail(manager, Club, [{ handle: 'one' }, { handle: 'two' }])
  })
  const blog = { id: 1 } as InstanceType<typeof Club>
  const addPost = async (slug: string, of = blog): Promise<string> =>
    await withFreeText(
      manager,
      Post,
      { slug, blog: of },
      async (free) => (await insertOrFail(manager, Post, { slug: free, blog: of })).slug,
    )

  test('takes the first free one within the scope', async () => {
    expect([await addPost('Hello'), await addPost('hello'), await addPost('HELLO')]).toEqual([
      'hello',
      'hello-2',
      'hello-3',
    ])
    expect(await addPost('hello', { id: 2 } as typeof blog)).toBe('hello')
    await manager.delete(Post, { slug: 'hello-2' })
    expect(await addPost('hello')).toBe('hello-2')
  })

  test('leaves a row the text that it has', async () => {
    for (const slug of ['hello', 'hello-2', 'hello-3']) await addPost(slug)
    const write = async (slug: string): Promise<unknown> => await updateOrFail(manager, Post, 3, { slug })
    expect(await withFreeText(manager, Post, { slug: 'hello', blog }, write, { id: 3 })).toMatchObject({
      slug: 'hello-3',
    })
    expect(await withFreeText(manager, Post, { slug: 'hello', blog }, write)).toMatchObject({ slug: 'hello-4' })
  })

  test('two texts of one hash are two texts', async () => {
    const [one, other] = STEVENS
    const add = (slug: string): Promise<{ slug: string }> =>
      withFreeText(manager, Kept, { slug }, (free) => insertOrFail(manager, Kept, { slug: free }))
    expect([await add(one), await add(other), await add(other)]).toMatchObject([
      { slug: one },
      { slug: other },
      { slug: `${other}-2` },
    ])
  })

  test('a row that is softly deleted holds its text, unless that is ignored', async () => {
    const add = async (Of: typeof Draft | typeof Kept): Promise<string> =>
      await withFreeText(manager, Of, { slug: 'a' }, async (slug) => (await insertOrFail(manager, Of, { slug })).slug)
    for (const [Of, second, third] of [
      [Draft, 'a', 'a-2'],
      [Kept, 'a-2', 'a-3'],
    ] as const) {
      expect(await add(Of)).toBe('a')
      await manager.softDelete(Of, { slug: 'a' })
      expect(await add(Of)).toBe(second)
      expect(await add(Of)).toBe(third)
    }
  })

  test('goes on where its row holds another text than it seems', async () => {
    // Deleted softly, it does not hold its text.
    await insertOrFail(manager, Draft, { slug: 'a' })
    await manager.softDelete(Draft, 1)
    await insertOrFail(manager, Draft, { slug: 'a' })
    const restore = (slug: string): Promise<unknown> => updateOrFail(manager, Draft, 1, { slug, deletedAt: null })
    expect(await withFreeText(manager, Draft, { slug: 'a' }, restore, { id: 1 })).toMatchObject({ slug: 'a-2' })
    // Its other name is one that it holds.
    const id = '6f9619ff-8b86-d011-b42d-00c04fc964ff'
    await insertOrFail(manager, Team, { id, handle: 'x', nick: 'ada' })
    const write = (handle: string): Promise<unknown> => updateOrFail(manager, Team, id, { handle })
    expect(await withFreeText(manager, Team, { handle: 'ada' }, write, { id })).toMatchObject({ handle: 'ada-2' })
  })

  test('its row may have no text, or one that is not normalized', async () => {
    await insertOrFail(manager, Post, [
      { slug: 'a', blog, other: 'x' },
      { slug: 'b', blog, other: null },
    ])
    const write = (other: string): Promise<unknown> => updateOrFail(manager, Post, 2, { other })
    expect(await withFreeText(manager, Post, { other: 'x' }, write, { id: 2 })).toMatchObject({ other: 'x-2' })
    await addPerson('ada')
    const random = (): string => `ada${Math.floor(Math.random() * 20)}`
    const add = (handle: string): Promise<unknown> => insertPerson(handle)
    for (let n = 0; n < 10; n++) await withFreeText(manager, Person, { handle: 'ada' }, add, { candidates: random })
    expect(await manager.count(Person)).toBe(11)
  })

  test('reads a text that is not selected by itself', async () => {
    const { manager: own } = await db.dataSource([Hidden])
    for (const slug of ['a', 'a-2']) await insertOrFail(own, Hidden, { slug })
    const write = async (slug: string): Promise<string> => {
      await updateOrFail(own, Hidden, 2, { slug })
      return slug
    }
    expect(await withFreeText(own, Hidden, { slug: 'a' }, write, { id: 2 })).toBe('a-2')
  })

  test('40 at once get 40 texts without a gap', async () => {
    const got = await Promise.all(Array.from({ length: 40 }, () => addPost('hello')))
    const expected = ['hello', ...Array.from({ length: 39 }, (_, index) => `hello-${index + 2}`)]
    expect(got.toSorted()).toEqual(expected.toSorted())
  })

  test('says which texts there are, and what belongs to one', async () => {
    const write = (): Promise<unknown> => Promise.resolve()
    const of = async (values: object, options: object = {}): Promise<string> =>
      String(await rejection(withFreeText(manager, Post, values, write, options)))
    expect(await of({})).toContain('withFreeText() of Post expects one of "slug", "other"')
    expect(await of({ slug: 'a', other: 'b', blog })).toContain('expects one of')
    expect(await of({ slug: 'a' })).toContain('blog')
    expect(await of({ slug: 'a', blog, id: 1 })).toContain('Leave out "id"')
    expect(await of({ slug: 'a', blog }, { by: 'id' })).toContain('expects one of')
    expect(await of({ slug: null, blog }, { by: 'slug' })).toContain('expected a string')
    const name = await rejection(withFreeText(manager, Club, { handle: 'a', id: 1 }, write))
    expect(String(name)).toContain('the name "handle" has no scope. Leave "id" out')
    await addPost('hello')
    const withOther = (slug: string): Promise<unknown> => insertOrFail(manager, Post, { slug, blog, other: 'b' })
    await withFreeText(manager, Post, { slug: 'hello', blog }, withOther)
    const again = withFreeText(manager, Post, { slug: 'new', blog }, withOther)
    expect(await rejection(again)).toMatchObject({ taken: [{ property: 'other' }] })
  })
})

describe('formerNamesOf', () => {
  test('gives what is kept for the row, the newest first, of every property', async () => {
    await insertOrFail(manager, Club, [{ handle: 'a', nick: 'x' }, { handle: 'other' }])
    await updateOrFail(manager, Club, 2, { handle: 'of 2' })
    await rename(manager, Club, 1, { handle: 'b' })
    await rename(manager, Club, 1, { handle: 'c' })
    await rename(manager, Club, 1, { nick: null })
    const names = await formerNamesOf(manager, Club, 1)
    expect(names).toEqual([
      { name: 'x', property: 'nick', state: 'reserved', since: expect.any(Date), until: null },
      { name: 'b', property: 'handle', state: 'reserved', since: expect.any(Date), until: expect.any(Date) },
      { name: 'a', property: 'handle', state: 'reserved', since: expect.any(Date), until: expect.any(Date) },
    ])
    const [, { since, until } = { since: new Date(0), until: null }] = names
    expect(Math.round((Number(until) - Number(since)) / 86_400_000)).toBe(90)
    await other.query(`UPDATE names SET until = now() WHERE text = 'b'`)
    await rename(manager, Club, 1, { handle: 'a' })
    expect((await formerNamesOf(manager, Club, { id: 1 })).map(({ name }) => name)).toEqual(['c', 'x'])
  })

  test('of a redirect, of a key of several columns, and of no row', async () => {
    await insertOrFail(manager, Person, { handle: 'ada' })
    await rename(manager, Person, 1, { handle: 'eve' })
    expect(await formerNamesOf(manager, Person, 1)).toMatchObject([{ name: 'ada', state: 'redirect', until: null }])
    const at = { hall: '9007199254740993', row: `it's` }
    await insertOrFail(manager, Seat, [
      { ...at, slug: 'one' },
      { ...at, hall: '9007199254740992', slug: 'other' },
    ])
    await rename(manager, Seat, at, { slug: 'two' })
    expect(await formerNamesOf(manager, Seat, at)).toMatchObject([{ name: 'one', property: 'slug' }])
    expect(await formerNamesOf(manager, Seat, { ...at, hall: '9007199254740992' })).toEqual([])
    expect(await formerNamesOf(manager, Person, 2)).toEqual([])
  })

  test('an entity without names is refused', async () => {
    await expect(formerNamesOf(manager, Name, '1')).rejects.toThrow('Name declares no name')
  })
})
