import { ChildEntity, Column, Entity, PrimaryGeneratedColumn, TableInheritance } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import {
  firstFreeText,
  type FreeTextOptions,
  insertOrFail,
  insertOrNull,
  TextRejectedError,
  TextTakenError,
  TransactionAbortedError,
  UniqueText,
  UniqueTextError,
  updateOrFail,
} from '../../../src'
import { formerNamesOf, Name, rename, UniqueName } from '../../../src/names'
import { serverError } from '../../../src/sql/sqlstate'
import { lowerCase, normalizer } from '../../../src/text'
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

type Numbered<Name extends string> = { readonly [Property in Name]: string }

/** Candidates `ada`, `ada-2`, `ada-3` and so on. */
const numbered = <Name extends string>(property: Name, text: string, count = 50, from = 1): Numbered<Name>[] =>
  Array.from(
    { length: count },
    (_, index) => ({ [property]: from + index === 1 ? text : `${text}-${from + index}` }) as Numbered<Name>,
  )

const freeHandle = async (name: string, options: FreeTextOptions<InstanceType<typeof Person>> = {}) =>
  (await firstFreeText(manager, Person, numbered('handle', name, 9), options))?.handle

const addPerson = async (name: string): Promise<string> => {
  const handle = (await freeHandle(name)) ?? ''
  return (await insertOrFail(manager, Person, { handle })).handle
}

/** As in docs/recipes.md, with a count of the writes. */
async function insertNumbered(name: string, own = manager): Promise<{ handle: string; writes: number }> {
  for (let writes = 0; writes < 9; writes++) {
    const from = writes === 0 ? 1 : Math.ceil(Math.random() * 50 * 10 ** writes)
    const free = await firstFreeText(own, Seat, numbered('slug', name, 50, from))
    const seat = free && (await insertOrNull(own, Seat, { hall: '1', row: free.slug, ...free }))
    if (seat) return { handle: seat.slug, writes: writes + 1 }
  }
  throw new Error('refused nine times')
}

describe('firstFreeText, of a name', () => {
  test('returns the candidate that no row of any entity holds or keeps', async () => {
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

  test('is one statement, and a second one for the row', async () => {
    await addPerson('ada')
    await freeHandle('ada', { id: 1 })
    expect(await queriesOf(dataSource, () => freeHandle('ada'))).toHaveLength(1)
    expect(await queriesOf(dataSource, () => freeHandle('ada', { id: 1 }))).toHaveLength(2)
  })

  test('returns the very candidate, and null if all are held', async () => {
    await insertOrFail(manager, Person, [{ handle: 'ada' }, { handle: 'eve' }])
    const candidates = [{ handle: 'ADA' }, { handle: 'Bob' }, { handle: 'bob' }]
    expect(await firstFreeText(manager, Person, candidates)).toBe(candidates[1])
    expect(await firstFreeText(manager, Person, [{ handle: 'ADA' }, { handle: 'eve' }])).toBeNull()
    expect(await firstFreeText(manager, Person, [])).toBeNull()
  })

  test('of a child in single table inheritance too', async () => {
    await insertOrFail(manager, Cat, [{ handle: 'tom' }, { handle: 'tim' }])
    const candidates = [{ handle: 'tom' }, { handle: 'tim' }, { handle: 'kit' }]
    expect(await firstFreeText(manager, Cat, candidates)).toEqual({ handle: 'kit' })
    expect(await firstFreeText(manager, Cat, candidates, { id: 2 })).toEqual({ handle: 'tim' })
  })

  test('leaves a row the name that it has, and gives it back one that is kept for it', async () => {
    await insertOrFail(manager, Person, [{ handle: 'ada' }, { handle: 'ada-2' }, { handle: 'ada-3' }])
    expect(await freeHandle('ada', { id: 3 })).toBe('ada-3')
    await rename(manager, Person, 2, { handle: 'bob' })
    await rename(manager, Person, 3, { handle: 'eve' })
    // The second is kept for another row.
    expect(await freeHandle('ada', { id: 3 })).toBe('ada-3')
    expect(await freeHandle('ada')).toBe('ada-4')
    expect(await freeHandle('ada', { id: 99 })).toBe('ada-4')
  })

  test('tells the row by its key, however that is written', async () => {
    const id = '6f9619ff-8b86-d011-b42d-00c04fc964ff'
    await insertOrFail(manager, Person, { handle: 'ada' })
    await insertOrFail(manager, Team, { id, handle: 'ada-2', nick: 'ada-3' })
    for (const one of [id.toUpperCase(), `{${id}}`, { id }]) {
      const candidates = numbered('handle', 'ada', 4)
      expect(await firstFreeText(manager, Team, candidates, { id: one, by: 'handle' })).toBe(candidates[1])
    }
  })

  test('a candidate that cannot be stored is refused with its position, as wrong arguments are', async () => {
    const tooLong = await rejection(firstFreeText(manager, Person, numbered('handle', 'abcde', 10)))
    expect(tooLong).toBeInstanceOf(TextRejectedError)
    expect(tooLong).toMatchObject({ property: 'handle', row: 9, cause: { message: 'longer than 7 characters' } })
    const wrong = async (candidates: unknown, options: object = {}): Promise<string> => {
      const error = await rejection(firstFreeText(manager, Person, candidates as [], options))
      expect(error).toBeInstanceOf(UniqueTextError)
      return String(error)
    }
    expect(await wrong([{ handle: 'a' }, {}])).toContain('expected a string')
    expect(await wrong([{ handle: 'a', id: 1 }])).toContain('the name "handle" has no scope. Leave "id" out')
    expect(await wrong({ handle: 'a' })).toContain('Expected an array')
    expect(await wrong([{ handle: 'a' }], { id: {} })).toContain('primary key')
    const many = await queriesOf(dataSource, () => wrong(numbered('handle', 'a', 51)))
    expect(many).toEqual([])
    expect(await wrong(numbered('handle', 'a', 51))).toContain('at most 50 candidates, got 51')
  })

  test('in a transaction it sees what the transaction has written', async () => {
    await addPerson('ada')
    const rolledBack = dataSource.transaction(async (inside) => {
      for (const name of ['ada-2', 'ada-3']) {
        const free = await firstFreeText(inside, Person, numbered('handle', 'ada', 9))
        expect(free).toEqual({ handle: name })
        await insertOrFail(inside, Person, { handle: name })
      }
      throw new Error('back')
    })
    await expect(rolledBack).rejects.toThrow('back')
    expect(await freeHandle('ada')).toBe('ada-2')
  })

  test('40 callers at once, each of which starts elsewhere after a refusal: no caller makes more than 4 writes', async () => {
    const got = await Promise.all(Array.from({ length: 40 }, () => insertNumbered('ada')))
    expect(new Set(got.map(({ handle }) => handle)).size).toBe(40)
    expect(Math.max(...got.map(({ writes }) => writes))).toBeLessThanOrEqual(4)
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
      if (kind === 3) await inside.delete(Club, { id })
      else {
        const Of = kind === 1 ? Club : Person
        const free = await firstFreeText(inside, Of, numbered('handle', name), kind === 2 ? { id } : {})
        if (kind < 2 && free) await insertOrNull(inside, Of, free)
        if (kind === 2 && free && (await inside.existsBy(Person, { id }))) await rename(inside, Person, id, free)
      }
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
  expect([...refused].filter((code) => !['TEXT_TAKEN', '40001', '40P01', 'back'].includes(code))).toEqual([])
  expect(written).toBeGreaterThan(24)
  const rows = await dataSource.query<unknown[]>(`
    SELECT * FROM (SELECT 'person'::regclass AS holder, id, handle FROM person UNION ALL SELECT 'club'::regclass, id, handle FROM club) AS r
    FULL JOIN (SELECT * FROM names WHERE state = 'held' AND namespace = 'handle') AS n
      ON n.text = r.handle AND n.holder = r.holder AND n.holder_key = jsonb_build_array(r.id)
    WHERE n.text IS NULL OR r.id IS NULL`)
  expect(rows).toEqual([])
})

const LEVELS = ['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'] as const

/** The error or SQLSTATE that ended a transaction. */
function codeOf(error: unknown): string {
  if (error instanceof TextTakenError) return error.code
  if (error instanceof TransactionAbortedError) return codeOf(error.cause)
  return serverError(error)?.code ?? (error instanceof Error ? error.message : String(error))
}

describe('firstFreeText, of a unique text', () => {
  beforeEach(async () => {
    await insertOrFail(manager, Club, [{ handle: 'one' }, { handle: 'two' }])
  })
  const blog = { id: 1 } as InstanceType<typeof Club>
  const freeSlug = async (text: string, of = blog, options: FreeTextOptions<InstanceType<typeof Post>> = {}) => {
    const candidates = numbered('slug', text, 9).map((one) => ({ ...one, blog: of }))
    return (await firstFreeText(manager, Post, candidates, { by: 'slug', ...options }))?.slug
  }

  test('returns the first free one within the scope', async () => {
    await insertOrFail(manager, Post, [
      { slug: 'hello', blog },
      { slug: 'hello-2', blog },
    ])
    expect(await freeSlug('HELLO')).toBe('HELLO-3')
    expect(await freeSlug('hello', { id: 2 } as typeof blog)).toBe('hello')
    await manager.delete(Post, { slug: 'hello-2' })
    expect(await freeSlug('hello')).toBe('hello-2')
  })

  test('leaves a row the text that it has, in its own scope', async () => {
    const two = { id: 2 } as typeof blog
    for (const slug of ['hello', 'hello-2']) await insertOrFail(manager, Post, { slug, blog })
    await insertOrFail(manager, Post, { slug: 'hello', blog: two })
    expect(await freeSlug('hello', blog, { id: 2 })).toBe('hello-2')
    expect(await freeSlug('hello', blog, { id: 3 })).toBe('hello-3')
    expect(await freeSlug('hello', two, { id: 3 })).toBe('hello')
  })

  test('two texts of one hash are two texts', async () => {
    const [one, second] = STEVENS
    await insertOrFail(manager, Kept, { slug: one })
    expect(await firstFreeText(manager, Kept, [{ slug: one }, { slug: second }])).toEqual({ slug: second })
  })

  test('a row that is softly deleted holds its text, unless that is ignored', async () => {
    for (const [Of, free] of [
      [Draft, 'a'],
      [Kept, 'a-2'],
    ] as const) {
      await insertOrFail(manager, Of, { slug: 'a' })
      await manager.softDelete(Of, { slug: 'a' })
      expect(await firstFreeText(manager, Of, numbered('slug', 'a', 9))).toEqual({ slug: free })
    }
    // The row with the key 1 is deleted, and another one holds its text.
    await insertOrFail(manager, Draft, { slug: 'a' })
    expect(await firstFreeText(manager, Draft, numbered('slug', 'a', 9), { id: 1 })).toEqual({ slug: 'a-2' })
    expect(await firstFreeText(manager, Kept, numbered('slug', 'a', 9), { id: 1 })).toEqual({ slug: 'a' })
  })

  test('its row may have no text', async () => {
    await insertOrFail(manager, Post, [
      { slug: 'a', blog, other: 'x' },
      { slug: 'b', blog, other: null },
    ])
    const options = { by: 'other', id: 2 }
    expect(await firstFreeText(manager, Post, numbered('other', 'x', 9), options)).toEqual({ other: 'x-2' })
  })

  test('of a text that is not selected by itself', async () => {
    const { manager: own } = await db.dataSource([Hidden])
    for (const slug of ['a', 'a-2']) await insertOrFail(own, Hidden, { slug })
    expect(await firstFreeText(own, Hidden, numbered('slug', 'a', 9), { id: 2 })).toEqual({ slug: 'a-2' })
  })

  test('says which texts there are, and what belongs to one', async () => {
    const of = async (values: object, options: object = { by: 'slug' }): Promise<string> =>
      String(await rejection(firstFreeText(manager, Post, [values], options)))
    expect(await of({ slug: 'a', blog }, {})).toContain('"slug", "other"')
    expect(await of({ slug: 'a' })).toContain('blog')
    expect(await of({ slug: 'a', blog, id: 1 })).toContain('Leave out "id"')
    expect(await of({ slug: 'a', blog }, { by: 'id' })).toContain('"slug", "other"')
    expect(await of({ slug: null, blog })).toContain('expected a string')
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
