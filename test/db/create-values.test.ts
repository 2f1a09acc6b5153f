import { setTimeout as sleep } from 'node:timers/promises'
import {
  BeforeInsert,
  Column,
  type DataSource,
  Entity,
  type EntityManager,
  JoinColumn,
  ManyToOne,
  PrimaryGeneratedColumn,
} from 'typeorm'
import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import {
  DeclarationError,
  findOneByText,
  findOrCreate,
  type FindOrCreateOptions,
  TextRejectedError,
  UniqueText,
} from '../../src'
import { trim } from '../../src/text'
import { useDatabase } from '../support/database'
import { rejection } from '../support/ledger'

const db = useDatabase()

@Entity()
class Author {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() name!: string
}

class Counters {
  @Column({ type: 'integer', default: 0 }) views!: number
  @Column({ type: 'integer', default: 0 }) likes!: number
}

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ normalize: trim(), scope: ['site'] }) url!: string
  @Column({ type: 'integer', default: 1 }) site!: number
  @Column({ type: 'text', nullable: true }) title!: string | null
  @Column(() => Counters) counters!: Counters
  @ManyToOne(() => Author, { nullable: true }) @JoinColumn() author!: Author | null
  @Column({ type: 'integer', nullable: true }) authorId!: number | null
}

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

let dataSource: DataSource
let manager: EntityManager

beforeAll(async () => {
  // One connection: a call that held it while a function of the user's runs would wait for ever.
  dataSource = await db.dataSource([Author, Page, Heard], { extra: { max: 1 }, poolErrorHandler: () => {} })
  manager = dataSource.manager
})
beforeEach(async () => {
  await dataSource.query('TRUNCATE author, page, heard')
  // The first use asks the catalog.
  await findOneByText(manager, Page, { url: 'none' })
})
afterEach(() => {
  vi.restoreAllMocks()
})

async function statementsOf(call: () => Promise<unknown>): Promise<string[]> {
  const sent = vi.spyOn(dataSource.logger, 'logQuery')
  await call()
  const statements = sent.mock.calls.map(([sql]) => sql)
  sent.mockRestore()
  return statements
}

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

  test('sends the statement that the same values would send, and only that one', async () => {
    const asValues = await statementsOf(() => findOrCreate(manager, Page, { url: 'a', title: 'x', authorId: null }))
    const asCreate = await statementsOf(() =>
      findOrCreate(manager, Page, { url: 'b', authorId: null }, { create: { title: 'x' } }),
    )
    expect(asCreate).toHaveLength(1)
    expect(asCreate).toEqual(asValues)
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
    const create = vi.fn(async () => await Promise.resolve({ title: 'fetched' }))
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

  test('may be synchronous', async () => {
    const { entity } = await findOrCreate(manager, Page, { url: 'a' }, { create: () => ({ title: 'at once' }) })
    expect(entity.title).toBe('at once')
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
    const create = vi.fn(async () => await Promise.reject<object>(thrown))
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
    ['a function', (values) => ({ create: async () => await sleep(0, values) })],
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
