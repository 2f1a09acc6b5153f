import { setTimeout as sleep } from 'node:timers/promises'
import { AfterInsert, BeforeInsert, Column, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { FindOrCreateOptions } from '../../../src'
import {
  DeclarationError,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  TextRejectedError,
  TransactionAbortedError,
  UniqueText,
  upsertByText,
} from '../../../src'
import { entityTextOf } from '../../../src/calls/entity-text'
import { PreparedMany } from '../../../src/calls/many'
import { trim } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { queriesOf } from '../../support/queries'
import { column, embedded, entity, plain, text, toOne } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { Author } from '../../support/entities'

const db = useDatabase()

class Counters {
  @Column({ type: 'integer', default: 0 }) views!: number
  @Column({ type: 'integer', default: 0 }) likes!: number
}

const Page = entity('Page', {
  url: text({ normalize: trim(), scope: ['site'] }),
  site: column('integer', { default: 1 }),
  title: plain(),
  counters: embedded(() => Counters),
  author: toOne(() => Author),
  authorId: column('integer', { nullable: true }),
})
type Page = InstanceType<typeof Page>

const heard: object[] = []

@Entity()
class Heard {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() text!: string
  @Column({ type: 'text', nullable: true }) note!: string | null
  @BeforeInsert() hear(): void {
    heard.push({ text: this.text, note: this.note })
  }
}

// One connection: a call that held it while a function of the user's runs would wait for ever.
const dataSource = db.useDataSource([Author, Page, Heard], { extra: { max: 1 }, poolErrorHandler: () => {} })
const { manager } = dataSource

beforeEach(async () => {
  // The first use asks the catalog.
  await findOneByText(manager, Page, { url: 'none' })
})
afterEach(() => {
  vi.restoreAllMocks()
})

const statementsOf = (call: () => Promise<unknown>): Promise<string[]> => queriesOf(dataSource, call)

const never = (): never => {
  throw new Error('create() was called')
}

describe('create, as an object', () => {
  test('gives values to the row that is created, and none to one that is found', async () => {
    const options = { create: { title: 'New' } }
    expect(await findOrCreate(manager, Page, { url: 'a' }, options)).toMatchObject({
      created: true,
      entity: { url: 'a', title: 'New' },
    })
    const again = await findOrCreate(manager, Page, { url: 'a' }, { create: { title: 'Other' } })
    expect(again).toMatchObject({ created: false, entity: { title: 'New' } })
  })

  test('fills in the columns of an embedded that the values leave out', async () => {
    const values = { url: 'a', counters: { views: 2 } }
    const { entity } = await findOrCreate(manager, Page, values, { create: { counters: { likes: 3 } } })
    expect(entity.counters).toEqual({ views: 2, likes: 3 })
  })

  test('leaves both objects as they were', async () => {
    const values = Object.freeze({ url: ' a ' })
    const create = Object.freeze({ title: 'x' })
    await findOrCreate(manager, Page, values, { create })
    expect([values, create]).toEqual([{ url: ' a ' }, { title: 'x' }])
  })
})

describe('create, as a function', () => {
  test('is called once where the row is missing, and what it returns is stored', async () => {
    const create = vi.fn(() => Promise.resolve({ title: 'fetched' }))
    const { entity, created, attempts } = await findOrCreate(manager, Page, { url: 'a' }, { create })
    expect({ entity, created, attempts }).toMatchObject({ entity: { title: 'fetched' }, created: true, attempts: 1 })
    expect(create).toHaveBeenCalledTimes(1)
    expect(await manager.findOneByOrFail(Page, { id: entity.id })).toMatchObject({ title: 'fetched' })
  })

  test('is not called for a row that is found, which takes one statement', async () => {
    await findOrCreate(manager, Page, { url: 'a' })
    const statements = await statementsOf(() => findOrCreate(manager, Page, { url: 'a' }, { create: never }))
    expect(statements).toHaveLength(1)
  })

  test('runs while no pooled connection is held: it can ask for the only one', async () => {
    const create = async () => {
      const { entity } = await findOrCreate(manager, Author, { name: 'Ann' })
      return { author: entity }
    }
    const { entity } = await findOrCreate(manager, Page, { url: 'a' }, { create })
    expect(await manager.findOneByOrFail(Page, { id: entity.id })).toMatchObject({ authorId: expect.any(Number) })
  })

  test('runs while no lock of the call is held: others can create the very row, which is found then', async () => {
    const create = async () => {
      await manager.query('BEGIN; SET LOCAL lock_timeout TO 1')
      await manager.query(`INSERT INTO page (url, title) VALUES ('a', 'theirs')`)
      await manager.query('COMMIT')
      return { title: 'ours' }
    }
    const result = await findOrCreate(manager, Page, { url: 'a' }, { create })
    expect(result).toMatchObject({ created: false, entity: { title: 'theirs' } })
  })

  test('throws to the caller as it is, and nothing is written', async () => {
    const thrown = Object.assign(new Error('no answer'), { code: '40001' })
    const create = vi.fn(() => Promise.reject<object>(thrown))
    expect(await rejection(findOrCreate(manager, Page, { url: 'a' }, { create }))).toBe(thrown)
    expect(create).toHaveBeenCalledTimes(1)
    expect(await manager.count(Page)).toBe(0)
  })

  test('is called once for all attempts', async () => {
    await dataSource.query(`
      CREATE SEQUENCE page_inserts;
      CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('page_inserts') < 3 THEN RAISE EXCEPTION USING ERRCODE = '40001'; END IF;
        RETURN NEW; END $$;
      CREATE TRIGGER a_lose BEFORE INSERT ON page FOR EACH ROW EXECUTE FUNCTION lose()`)
    try {
      const create = vi.fn(() => ({ title: 'once' }))
      const result = await findOrCreate(manager, Page, { url: 'a' }, { create })
      expect(result).toMatchObject({ created: true, attempts: 3, entity: { title: 'once' } })
      expect(create).toHaveBeenCalledTimes(1)
    } finally {
      await dataSource.query('DROP TRIGGER a_lose ON page; DROP FUNCTION lose; DROP SEQUENCE page_inserts')
    }
  })

  test.each([
    ['undefined', undefined],
    ['null', null],
    ['an array', []],
    ['a string', 'title'],
  ])('is told that it must return an object, where it returns %s', async (_, value) => {
    const create = (() => value) as unknown as () => object
    const error = await rejection(findOrCreate(manager, Page, { url: 'a' }, { create }))
    expect(error).toBeInstanceOf(DeclarationError)
    expect(String(error)).toMatch(/"create" must return an object with properties of Page, got/)
  })

  test('may itself find or create the same text in the same transaction', async () => {
    const result = await dataSource.transaction(async (inner) => {
      const create = async () => {
        await findOrCreate(inner, Page, { url: 'a' }, { create: { title: 'inner' } })
        return { title: 'outer' }
      }
      return await findOrCreate(inner, Page, { url: 'a' }, { create })
    })
    expect(result).toMatchObject({ created: false, entity: { title: 'inner' } })
  })

  test('leaves the transaction usable where it throws', async () => {
    await dataSource.transaction(async (inner) => {
      const refused = findOrCreate(inner, Page, { url: 'a' }, { create: never })
      expect(String(await rejection(refused))).toContain('create() was called')
      await findOrCreate(inner, Page, { url: 'b' })
    })
    expect(await manager.find(Page)).toMatchObject([{ url: 'b' }])
  })

  test('that ends the transaction meanwhile is told so', async () => {
    const queryRunner = dataSource.createQueryRunner()
    try {
      await queryRunner.startTransaction()
      const create = async () => {
        await queryRunner.rollbackTransaction()
        return { title: 'late' }
      }
      const error = await rejection(findOrCreate(queryRunner.manager, Page, { url: 'a' }, { create }))
      expect(error).toMatchObject({ code: 'TRANSACTION_ABORTED' })
    } finally {
      await queryRunner.release()
    }
    expect(await manager.count(Page)).toBe(0)
  })
})

describe('what the values and create both give', () => {
  const ways: [string, (values: object) => FindOrCreateOptions<Page>][] = [
    ['an object', (values) => ({ create: values })],
    ['a function', (values) => ({ create: () => sleep(0, values) })],
  ]
  const call = (create: FindOrCreateOptions<Page>) =>
    findOrCreate(manager, Page, { url: 'a', site: 1, title: 'given', authorId: null }, create)

  test.each(ways)('may be the same, the whole entity for instance (%s)', async (_, way) => {
    const { entity } = await call(way({ url: ' a', site: 1, title: 'given', counters: { views: 1 } }))
    expect(entity).toMatchObject({ url: 'a', site: 1, title: 'given', counters: { views: 1 } })
  })

  test.each(ways)('must not differ, for one would be dropped (%s)', async (_, way) => {
    for (const other of [{ url: 'b' }, { site: 2 }, { title: 'other' }, { title: null }]) {
      const error = await rejection(call(way(other)))
      expect(error).toBeInstanceOf(DeclarationError)
      expect(String(error)).toContain(
        `"${Object.keys(other).join('')}" of Page has one value in the values and another`,
      )
    }
    expect(await manager.count(Page)).toBe(0)
  })

  test.each(ways)('is compared by column: a relation and its column are one (%s)', async (_, way) => {
    const { entity: author } = await findOrCreate(manager, Author, { name: 'Ann' })
    const error = await rejection(call(way({ author })))
    expect(String(error)).toContain('"authorId" of Page has one value')
  })

  test.each(ways)('a new row of a relation is refused as among the values (%s)', async (_, way) => {
    const error = await rejection(findOrCreate(manager, Page, { url: 'a' }, way({ author: { name: 'Ann' } })))
    expect(error).toBeInstanceOf(DeclarationError)
    expect(String(error)).toContain('"author" of Page')
  })

  test.each(ways)('a text that create gives is checked as every text (%s)', async (_, way) => {
    expect(await rejection(call(way({ url: '\0' })))).toBeInstanceOf(TextRejectedError)
  })
})

describe('with a BeforeInsert listener', () => {
  beforeEach(() => {
    heard.length = 0
  })

  test.each([
    ['an object', { note: 'n' }],
    ['a function', () => ({ note: 'n' })],
  ])('the listener sees what create gives (%s)', async (_, create) => {
    const { entity, created } = await findOrCreate(manager, Heard, { text: 'a' }, { create })
    expect({ created, note: entity.note, heard }).toEqual({
      created: true,
      note: 'n',
      heard: [{ text: 'a', note: 'n' }],
    })
  })

  test('neither is called for a row that is found', async () => {
    await findOrCreate(manager, Heard, { text: 'a' })
    heard.length = 0
    await findOrCreate(manager, Heard, { text: 'a' }, { create: never })
    expect(heard).toEqual([])
  })
})

describe('findOrCreateMany', () => {
  const urls = (...list: string[]) => list.map((url) => ({ url }))

  test('an object gives values to every row that is created', async () => {
    await findOrCreate(manager, Page, { url: 'b', title: 'old' })
    const results = await findOrCreateMany(manager, Page, urls('a', 'b', 'c'), { create: { title: 'new' } })
    expect(results).toMatchObject(
      [[true, 'new'], [false, 'old'], [true, 'new']].map(([created, title]) => ({ created, entity: { title } })), // prettier-ignore
    )
  })

  test('an object sends the statement that the same values would send', async () => {
    const asValues = await statementsOf(() => findOrCreateMany(manager, Page, [{ url: 'a', title: 'x' }]))
    const asCreate = await statementsOf(() => findOrCreateMany(manager, Page, urls('b'), { create: { title: 'x' } }))
    expect(asCreate).toEqual(asValues)
  })

  test('a function is called for the missing rows, in the order of the inputs, with the input and its index', async () => {
    const list = Array.from({ length: 40 }, (_, index) => `page ${index}`)
    await findOrCreateMany(manager, Page, urls(...list.filter((_, index) => index % 2 === 0)))
    const inputs = urls(...list)
    const called: [unknown, number][] = []
    const create = async (values: object, index: number) => {
      called.push([values, index])
      return await sleep(index % 3, { title: `title ${index}` })
    }
    const results = await findOrCreateMany(manager, Page, inputs, { create })
    const odd = inputs.flatMap((input, index) => (index % 2 === 0 ? [] : [[input, index]]))
    expect(called).toEqual(odd)
    expect(called[0]?.[0]).toBe(inputs[1])
    expect(results).toMatchObject(
      inputs.map(({ url }, index) => ({
        created: index % 2 === 1,
        attempts: 1,
        entity: { url, title: index % 2 === 1 ? `title ${index}` : null },
      })),
    )
  })

  test('a function costs one statement where nothing is missing, and one more where something is', async () => {
    const call = (...list: string[]) =>
      findOrCreateMany(manager, Page, urls(...list), { create: () => ({ title: 'x' }) })
    expect(await statementsOf(() => call('a', 'b', 'c'))).toHaveLength(2)
    expect(await statementsOf(() => call('a', 'b', 'c'))).toHaveLength(1)
  })

  test('a function is called once for equal texts, with the first of them', async () => {
    const create = vi.fn((values: object, index: number) => ({ title: `${index}` }))
    const results = await findOrCreateMany(manager, Page, urls('a', 'b', ' a ', 'a'), { create })
    expect(create.mock.calls.map(([, index]) => index)).toEqual([0, 1])
    expect(results.map((result) => 'entity' in result && result.entity.title)).toEqual(['0', '1', '0', '0'])
  })

  test('a function that throws, or returns what it must not, fails its row alone', async () => {
    const thrown = new Error('no answer')
    const create = (values: { url?: string | undefined }) => {
      if (values.url === 'b') throw thrown
      if (values.url === 'c') return { url: 'another' }
      if (values.url === 'd') return undefined as unknown as object
      return { title: 'x' }
    }
    const results = await findOrCreateMany(manager, Page, urls('a', 'b', 'c', 'd', 'e', 'b'), { create })
    expect(results).toMatchObject([
      { created: true },
      { error: thrown },
      { error: expect.any(DeclarationError) as Error },
      { error: expect.any(DeclarationError) as Error },
      { created: true },
      { error: thrown },
    ])
    expect(await manager.find(Page, { select: { url: true }, order: { url: 'ASC' } })).toMatchObject(urls('a', 'e'))
  })

  test('what a function throws is an Error in the result, whatever it was', async () => {
    const create = (): object => {
      // oxlint-disable-next-line typescript/only-throw-error
      throw 'just a string'
    }
    const [result] = await findOrCreateMany(manager, Page, urls('a'), { create })
    expect(result).toMatchObject({ error: { message: expect.any(String) as string, cause: 'just a string' } })
    expect(result && 'error' in result && result.error).toBeInstanceOf(Error)
  })

  test('a function runs while no pooled connection is held, and may find or create rows of the same call', async () => {
    const create = async (values: { url?: string | undefined }) => {
      if (values.url === 'a') await findOrCreate(manager, Page, { url: 'b', title: 'inner' })
      return { title: 'outer' }
    }
    const results = await findOrCreateMany(manager, Page, urls('a', 'b'), { create })
    expect(results).toMatchObject([
      { created: true, entity: { title: 'outer' } },
      { created: false, entity: { title: 'inner' } },
    ])
  })

  test("in the caller's transaction, functions run before the first row is written", async () => {
    const observer = await db.client()
    await dataSource.transaction(async (inner) => {
      const create = async () => {
        const { rows } = await observer.query(
          `SELECT FROM pg_locks WHERE relation = 'page'::regclass AND mode = 'RowExclusiveLock'`,
        )
        return { title: `${rows.length} locks` }
      }
      const results = await findOrCreateMany(inner, Page, urls('a', 'b', 'c'), { create })
      expect(results).toMatchObject(['a', 'b', 'c'].map(() => ({ entity: { title: '0 locks' } })))
    })
  })

  test('a row that the look-up cannot take goes its own way, and so do the others of its batch', async () => {
    const create = vi.fn((values: { url?: string | undefined }) => {
      if (values.url === 'throws') throw new RangeError('thrown')
      return { title: 'x' }
    })
    const inputs = [{ url: 'a' }, { url: 'b', site: 2 ** 40 }, { url: 'throws' }, { url: 'c' }]
    const results = await findOrCreateMany(manager, Page, inputs, { create })
    expect(results).toMatchObject([
      { created: true, entity: { title: 'x' } },
      { error: { code: '22003' } },
      { error: expect.any(RangeError) as Error },
      { created: true },
    ])
    expect(new Set(create.mock.calls.map(([{ url }]) => url))).toEqual(new Set(['a', 'c', 'throws']))
  })

  test('BeforeInsert listeners see what the function gives', async () => {
    heard.length = 0
    const inputs = [{ text: 'a' }, { text: 'b' }]
    await findOrCreateMany(manager, Heard, inputs, { create: (_, index) => ({ note: `${index}` }) })
    expect(heard).toEqual(expect.arrayContaining([{ text: 'a', note: '0' }, { text: 'b', note: '1' }])) // prettier-ignore
    expect(heard).toHaveLength(2)
  })

  test('an error of the transaction that the function meets is that of the whole call', async () => {
    const aborted = new TransactionAbortedError(undefined)
    const create = () => {
      throw aborted
    }
    expect(await rejection(findOrCreateMany(manager, Page, urls('a', 'b'), { create }))).toBe(aborted)
  })

  test("relations: 'findOrCreate' is refused beside it, before any SQL", async () => {
    let error: unknown
    const statements = await statementsOf(async () => {
      const options = { create: { title: 'x' }, relations: 'findOrCreate' } as const
      error = await rejection(findOrCreateMany(manager, Page, urls('a'), options))
    })
    expect(error).toBeInstanceOf(DeclarationError)
    expect(String(error)).toContain(`"create" cannot be given with relations: 'findOrCreate'`)
    expect(statements).toEqual([])
  })
})

test('AfterInsert hears of the entity that BeforeInsert has seen, which is the result', async () => {
  const seen: object[] = []
  @Entity()
  class Twice {
    @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
    @UniqueText() text!: string
    @BeforeInsert() before(): void {
      seen.push(this)
    }
    @AfterInsert() after(): void {
      seen.push(this)
    }
  }
  const { manager } = await db.dataSource([Twice])
  const { entity } = await findOrCreate(manager, Twice, { text: 'a' })
  const [many] = await findOrCreateMany(manager, Twice, [{ text: 'b' }])
  const results = [entity, entity, many && 'entity' in many && many.entity, many && 'entity' in many && many.entity]
  expect(entity.id).toBeGreaterThan(0)
  expect(seen).toHaveLength(4)
  for (const [index, one] of seen.entries()) expect(one).toBe(results[index])
})

test('a row stays though its AfterInsert throws outside of a transaction, and the call throws that error', async () => {
  @Entity()
  class Heeded {
    @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
    @UniqueText() text!: string
    @AfterInsert() after(): void {
      throw new RangeError('after')
    }
  }
  const { manager } = await db.dataSource([Heeded])
  const calls = {
    findOrCreate: (text: string) => findOrCreate(manager, Heeded, { text }),
    insertOrFail: (text: string) => insertOrFail(manager, Heeded, { text }),
    'insertOrFail of several': (text: string) => insertOrFail(manager, Heeded, [{ text }, { text: `${text}, too` }]),
    upsertByText: (text: string) => upsertByText(manager, Heeded, { text }),
  }
  for (const [text, call] of Object.entries(calls)) {
    await expect(call(text)).rejects.toThrow(new RangeError('after'))
    expect([text, await manager.existsBy(Heeded, { text })]).toEqual([text, true])
  }
})

test('rows about which a look-up says nothing are completed too, beside rows that are complete', async () => {
  const { manager } = await db.dataSource([Page, Author])
  const create = ({ url }: { readonly url: string }): object => {
    // Without this row, the batches that write are others than those that look.
    if (url === 'refused') throw new RangeError('refused')
    return { title: `of ${url}` }
  }
  const rows = new PreparedMany<Page>(entityTextOf(manager, Page, undefined), undefined, { create, batchRows: 3 })
  const urls = Array.from({ length: 16 }, (_, index) => `u${index}`)
  // One look-up fails for a site that is no number.
  await rows.addAll([{ url: 'refused' }, ...urls.map((url) => ({ url })), { url: 'x', site: 'x' as never }])
  const [refused, ...results] = await rows.run(manager)
  expect(refused).toMatchObject({ error: { name: 'RangeError' } })
  const titles = results.map((one) => ('entity' in one ? one.entity.title : one.error.name))
  expect(titles).toEqual([...urls.map((url) => `of ${url}`), 'QueryFailedError'])
})
