import { type EntityManager, Unique } from 'typeorm'
import { describe, expect, test, vi } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany, insertOrFail, updateOrFail, upsertByText } from '../../../src'
import { findOrCreateStream } from '../../../src/stream'
import { column, entity, plain, text } from '../../support/entity'
import { rejection } from '../../support/ledger'
import { queriesOf } from '../../support/queries'
import { useDatabase } from '../../support/database'

const db = useDatabase()

const Item = entity('Item', {
  text: text(),
  a: column('integer', { default: 7 }),
  b: plain(),
  c: column('text', { default: () => `upper('left out')` }),
  json: column('jsonb', { nullable: true }),
  long: plain(),
})
type Item = InstanceType<typeof Item>

const Post = entity('Post', { text: text(), slug: plain() })
Unique(['slug'], { deferrable: 'INITIALLY IMMEDIATE' })(Post)

const codeOf = (result: unknown): unknown =>
  (result as { error?: { driverError?: { code?: unknown } } }).error?.driverError?.code ?? Object.keys(result as object)

const columnsOf = (result: unknown): unknown => {
  const { entity } = result as { entity: Item }
  return [entity.a, entity.b, entity.c, entity.json, entity.long]
}

const CREATED = ['entity', 'created', 'attempts']

const dataSource = db.useDataSource([Item, Post])
const { manager } = dataSource

const statementsOf = async (work: () => Promise<unknown>): Promise<number> => (await queriesOf(dataSource, work)).length

test.each(['b', 'c'] as const)('U+0000 in the plain column %s is refused by its name', async (property) => {
  const bad = { text: 'bad', [property]: 'left\0right' }
  const reason = { code: 'TEXT_REJECTED', property, reason: 'it contains U+0000' }
  const [good, refused] = await findOrCreateMany(manager, Item, [{ text: 'good' }, bad])
  expect(good).toMatchObject({ created: true })
  expect(refused).toMatchObject({ error: reason })
  expect(await rejection(findOrCreate(manager, Item, bad))).toMatchObject(reason)
  expect(await rejection(upsertByText(manager, Item, bad))).toMatchObject(reason)
  expect(await rejection(insertOrFail(manager, Item, bad))).toMatchObject(reason)
  expect(await rejection(updateOrFail(manager, Item, 1, { [property]: 'left\0right' }))).toMatchObject(reason)
})

describe('a bad row sinks no other', () => {
  const raise = async (code: string): Promise<void> => {
    await dataSource.query(`
      create or replace function refuse() returns trigger language plpgsql as
        $$ begin raise exception using errcode = '${code}', message = 'no'; end $$;
      create or replace trigger refuse before insert on item for each row when (new.b = 'bad') execute function refuse()`)
  }

  test.each(['P0001', '0A000', '55000', 'XX000'])('whatever SQLSTATE it brings: %s', async (code) => {
    await raise(code)
    const rows = Array.from({ length: 20 }, (_, index) => ({ text: `${index}`, b: index % 9 === 4 ? 'bad' : 'good' }))
    const expected = rows.map(({ b }) => (b === 'bad' ? code : CREATED))
    expect((await findOrCreateMany(manager, Item, rows)).map(codeOf)).toEqual(expected)
    const inTransaction = await dataSource.transaction(async (manager) => {
      const again = rows.map(({ text, b }) => ({ text: `again ${text}`, b }))
      return await findOrCreateMany(manager, Item, again)
    })
    expect(inTransaction.map(codeOf)).toEqual(expected)
    expect(await manager.count(Item)).toBe(36)
  })

  test('nor does one whose value has no text, or that TypeORM itself refuses', async () => {
    const circular: unknown[] = []
    circular.push({ circular })
    const rows = [{ text: 'a', json: { n: 1n } }, { text: 'b' }, { text: 'c', json: circular }, { text: 'd\0' }]
    const results = await findOrCreateMany(manager, Item, rows)
    const told = results.map((result) => ('error' in result ? (result.error as Error).constructor.name : 'stored'))
    expect(told).toEqual(['TypeError', 'stored', 'TypeError', 'TextRejectedError'])
  })

  test('a statement that is refused as a whole is not sent again for each row', async () => {
    await dataSource.query(`drop role if exists reader; create role reader`)
    await dataSource.query(`grant select on item to reader`)
    const rows = Array.from({ length: 500 }, (_, index) => ({ text: `${index}` }))
    await findOneByText(manager, Item, { text: 'ready' })
    const statements = await statementsOf(() =>
      dataSource.transaction(async (manager) => {
        await manager.query('set local role reader')
        const results = await findOrCreateMany(manager, Item, rows)
        expect(new Set(results.map(codeOf))).toEqual(new Set(['42501']))
      }),
    )
    expect(statements).toBeLessThan(10)
    await dataSource.query(`drop owned by reader; drop role reader`)
  })
})

describe('rows of one batch that bring different properties', () => {
  const rows = Array.from({ length: 64 }, (_, set) => ({
    text: `${set}`,
    ...(set & 1 && { a: set }),
    ...(set & 2 && { b: null }),
    ...(set & 4 && { c: 'given' }),
    ...(set & 8 && { json: [set] }),
    ...(set & 16 && { long: 'x' }),
    ...(set & 32 && { id: 1_000 + set }),
  }))

  test('share their statements: one for those that bring an identity, one for those that do not', async () => {
    await findOneByText(manager, Item, { text: 'ready' })
    const statements = await statementsOf(async () => {
      const results = await findOrCreateMany(manager, Item, rows)
      expect(results.map((result) => 'entity' in result && result.created)).toEqual(rows.map(() => true))
    })
    expect(statements).toBeLessThanOrEqual(3)
  })

  test('get the defaults of what they leave out, as they do alone', async () => {
    const many = await findOrCreateMany(manager, Item, rows)
    for (const [index, row] of rows.entries()) {
      const id = row.id === undefined ? undefined : row.id + 1_000
      const one = await findOrCreate(manager, Item, { ...row, text: `alone ${index}`, ...(id && { id }) })
      expect(columnsOf(many[index])).toEqual(columnsOf(one))
    }
  })

  test('are limited by all that they bring, not by their text alone', async () => {
    const megabyte = 'x'.repeat(2 ** 20)
    const long = Array.from({ length: 40 }, (_, index) => ({ text: `${index}`, long: megabyte }))
    const lengths: number[] = []
    const logged = vi.spyOn(dataSource.logger, 'logQuery').mockImplementation((sql, parameters) => {
      if (sql.includes('unnest(')) lengths.push(((parameters as unknown[][])[0] ?? []).length)
    })
    const results = await findOrCreateMany(manager, Item, long)
    logged.mockRestore()
    expect(results.every((result) => 'entity' in result)).toBe(true)
    expect(Math.max(...lengths)).toBeLessThanOrEqual(16)
  })
})

describe('a deferrable constraint of the entity', () => {
  test('hinders no create, and its violation is an error of its own row', async () => {
    expect(await findOrCreate(manager, Post, { text: 'a', slug: 's' })).toMatchObject({ created: true })
    expect(await findOrCreate(manager, Post, { text: 'a', slug: 't' })).toMatchObject({ created: false })
    const rows = ['a', 'b', 'c'].map((text) => ({ text, slug: text === 'b' ? 's' : text }))
    expect((await findOrCreateMany(manager, Post, rows)).map(codeOf)).toEqual([CREATED, '23505', CREATED])
    await dataSource.transaction(async (inner) => {
      await expect(findOrCreate(inner, Post, { text: 'd', slug: 's' })).rejects.toMatchObject({ code: '23505' })
      expect(await findOrCreate(inner, Post, { text: 'd' })).toMatchObject({ created: true })
    })
  })
})

const Late = entity('Late', { text: text(), slug: plain() })
type Late = InstanceType<typeof Late>

describe('a deferrable constraint that comes after the first call', () => {
  const change = async (sql: string): Promise<EntityManager> => {
    const { manager } = await db.dataSource([Late])
    await findOrCreate(manager, Late, { text: 'first' })
    await findOrCreateMany(manager, Late, [{ text: 'first' }])
    await manager.query(sql)
    return manager
  }
  const LATER = 'ALTER TABLE late ADD CONSTRAINT later UNIQUE (slug) DEFERRABLE'

  const texts = (count: number) => Array.from({ length: count }, (_, nth) => ({ text: `text ${nth}`, slug: `s${nth}` }))
  const [one] = texts(1) as [Late]

  const CALLS: Readonly<Record<string, (manager: EntityManager) => Promise<unknown>>> = {
    'findOrCreateMany of one': (manager) => findOrCreateMany(manager, Late, texts(1)),
    'findOrCreateMany of 1,500': (manager) => findOrCreateMany(manager, Late, texts(1_500)),
    'findOrCreateMany with create': (manager) =>
      findOrCreateMany(manager, Late, [{ text: 'x' }, { text: 'y' }], { create: () => ({ slug: null }) }),
    'upsertByText of a list': (manager) => upsertByText(manager, Late, texts(5)),
    'upsertByText of one': (manager) => upsertByText(manager, Late, one),
    insertOrFail: (manager) => insertOrFail(manager, Late, texts(5)),
    updateOrFail: async (manager) => {
      const { id } = await insertOrFail(manager, Late, { text: 'x' })
      return await updateOrFail(manager, Late, { id }, { text: 'y' })
    },
    'findOrCreate with relations': (manager) => findOrCreate(manager, Late, one, { relations: 'findOrCreate' }),
    findOrCreate: (manager) => findOrCreate(manager, Late, one),
  }
  const hasError = (results: unknown): boolean => [results].flat().some((one) => Object.hasOwn(Object(one), 'error'))

  describe.each(Object.entries(CALLS))('%s', (name, call) => {
    test('goes on outside a transaction', async () => {
      const manager = await change(LATER)
      expect(hasError(await call(manager))).toBe(false)
      await manager.query('DROP TABLE late CASCADE')
    })

    test('goes on in a transaction, or says that it is to be run again', async () => {
      const manager = await change(LATER)
      const run = () => manager.transaction(async (own) => hasError(await call(own)))
      const lost = run().catch((error: unknown) => Object(error).code as unknown)
      expect(await lost).toBe(LOSE.has(name) ? 'TRANSACTION_ABORTED' : false)
      expect(await run().catch((error: unknown) => Object(error).code as unknown)).not.toBe('TRANSACTION_ABORTED')
      await manager.query('DROP TABLE late CASCADE')
    })
  })
  // They set no savepoint, which every call would pay for.
  const LOSE: ReadonlySet<string> = new Set(['findOrCreate', 'upsertByText of one'])

  test('fails no input of a stream', async () => {
    const manager = await change('SELECT 1')
    async function* inputs() {
      yield* texts(100)
      await manager.query(LATER)
      yield* texts(5_000)
    }
    const results: unknown[] = []
    for await (const result of findOrCreateStream(manager.dataSource, Late, inputs())) results.push(result)
    expect(hasError(results)).toBe(false)
    await manager.query('DROP TABLE late CASCADE')
  })

  test('is no other 55000, which says something of its row', async () => {
    const manager = await change(`CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql
      AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '55000'; END $$;
      CREATE TRIGGER no BEFORE INSERT ON late FOR EACH ROW EXECUTE FUNCTION no()`)
    const error = await rejection(manager.transaction((own) => findOrCreate(own, Late, one)))
    expect(error).toMatchObject({ driverError: { code: '55000' } })
    await manager.query('DROP TABLE late CASCADE; DROP FUNCTION no()')
  })
})
