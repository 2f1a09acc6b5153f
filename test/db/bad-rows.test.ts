import { Column, Entity, type EntityManager, PrimaryGeneratedColumn, Unique } from 'typeorm'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { findOneByText, findOrCreate, findOrCreateMany, UniqueText } from '../../src'
import { useDatabase } from '../support/database'

const db = useDatabase()

@Entity()
class Item {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() text!: string
  @Column({ type: 'integer', default: 7 }) a!: number
  @Column({ type: 'text', nullable: true }) b!: string | null
  @Column({ type: 'text', default: () => `upper('left out')` }) c!: string
  @Column({ type: 'jsonb', nullable: true }) json!: unknown
  @Column({ type: 'text', nullable: true }) long!: string | null
}

@Entity()
@Unique(['slug'], { deferrable: 'INITIALLY IMMEDIATE' })
class Post {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() text!: string
  @Column({ type: 'text', nullable: true }) slug!: string | null
}

const codeOf = (result: unknown): unknown =>
  (result as { error?: { driverError?: { code?: unknown } } }).error?.driverError?.code ?? Object.keys(result as object)

const columnsOf = (result: unknown): unknown => {
  const { entity } = result as { entity: Item }
  return [entity.a, entity.b, entity.c, entity.json, entity.long]
}

const CREATED = ['entity', 'created', 'attempts']

async function open() {
  const dataSource = await db.dataSource([Item, Post], { dropSchema: true })
  const statements = vi.spyOn(dataSource.logger, 'logQuery')
  return { dataSource, manager: dataSource.manager, sent: () => statements.mock.calls.length }
}

describe('a bad row sinks no other', () => {
  let opened: Awaited<ReturnType<typeof open>>
  beforeEach(async () => {
    opened = await open()
  })

  const raise = async (code: string): Promise<void> => {
    await opened.dataSource.query(`
      create or replace function refuse() returns trigger language plpgsql as
        $$ begin raise exception using errcode = '${code}', message = 'no'; end $$;
      create trigger refuse before insert on item for each row when (new.b = 'bad') execute function refuse()`)
  }

  test.each(['P0001', '54000', '42501', '44000', '42P01', '0A000', '55000', 'XX000', 'ABCDE', '22023', '23514'])(
    'whatever SQLSTATE it brings: %s',
    async (code) => {
      await raise(code)
      const rows = Array.from({ length: 20 }, (_, index) => ({ text: `${index}`, b: index % 9 === 4 ? 'bad' : 'good' }))
      const expected = rows.map(({ b }) => (b === 'bad' ? code : CREATED))
      expect((await findOrCreateMany(opened.manager, Item, rows)).map(codeOf)).toEqual(expected)
      const inTransaction = await opened.dataSource.transaction(async (manager) => {
        const again = rows.map(({ text, b }) => ({ text: `again ${text}`, b }))
        return await findOrCreateMany(manager, Item, again)
      })
      expect(inTransaction.map(codeOf)).toEqual(expected)
      expect(await opened.manager.count(Item)).toBe(36)
    },
  )

  test('nor does one whose value has no text, or that TypeORM itself refuses', async () => {
    const circular: unknown[] = []
    circular.push({ circular })
    const rows = [{ text: 'a', json: { n: 1n } }, { text: 'b' }, { text: 'c', json: circular }, { text: 'd\0' }]
    const results = await findOrCreateMany(opened.manager, Item, rows)
    expect(results.map((result) => ('error' in result ? (result.error as Error).constructor.name : 'stored'))).toEqual([
      'TypeError',
      'stored',
      'TypeError',
      'TextRejectedError',
    ])
  })

  test('a statement that is refused as a whole is not sent again for each row', async () => {
    await opened.dataSource.query(`drop role if exists reader; create role reader`)
    await opened.dataSource.query(`grant select on item to reader`)
    const rows = Array.from({ length: 500 }, (_, index) => ({ text: `${index}` }))
    await findOneByText(opened.manager, Item, { text: 'ready' })
    const before = opened.sent()
    const results = await opened.dataSource.transaction(async (manager) => {
      await manager.query('set local role reader')
      return await findOrCreateMany(manager, Item, rows)
    })
    expect(new Set(results.map(codeOf))).toEqual(new Set(['42501']))
    expect(opened.sent() - before).toBeLessThan(10)
    await opened.dataSource.query(`drop owned by reader; drop role reader`)
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
    const { manager, sent } = await open()
    await findOneByText(manager, Item, { text: 'ready' })
    const before = sent()
    const results = await findOrCreateMany(manager, Item, rows)
    expect(results.map((result) => 'entity' in result && result.created)).toEqual(rows.map(() => true))
    expect(sent() - before).toBeLessThanOrEqual(3)
  })

  test('get the defaults of what they leave out, as they do alone', async () => {
    const { manager } = await open()
    const many = await findOrCreateMany(manager, Item, rows)
    for (const [index, row] of rows.entries()) {
      const id = row.id === undefined ? undefined : row.id + 1_000
      const one = await findOrCreate(manager, Item, { ...row, text: `alone ${index}`, ...(id && { id }) })
      expect(columnsOf(many[index])).toEqual(columnsOf(one))
    }
  })

  test('are limited by all that they bring, not by their text alone', async () => {
    const { manager } = await open()
    const megabyte = 'x'.repeat(2 ** 20)
    const long = Array.from({ length: 40 }, (_, index) => ({ text: `${index}`, long: megabyte }))
    const lengths: number[] = []
    vi.spyOn(manager.connection.logger, 'logQuery').mockImplementation((sql, parameters) => {
      if (sql.includes('unnest(')) lengths.push(((parameters as unknown[][])[0] ?? []).length)
    })
    const results = await findOrCreateMany(manager, Item, long)
    expect(results.every((result) => 'entity' in result)).toBe(true)
    expect(Math.max(...lengths)).toBeLessThanOrEqual(16)
  })
})

describe('a deferrable constraint of the entity', () => {
  test('hinders no create, and its violation is an error of its own row', async () => {
    const { manager, dataSource } = await open()
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

@Entity()
class Late {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() text!: string
  @Column({ type: 'text', nullable: true }) slug!: string | null
}

describe('a deferrable constraint that comes after the first call', () => {
  const change = async (sql: string): Promise<EntityManager> => {
    const { manager } = await db.dataSource([Late])
    await findOrCreate(manager, Late, { text: 'first' })
    await findOrCreateMany(manager, Late, [{ text: 'first' }])
    await manager.query(sql)
    return manager
  }
  const LATER = 'ALTER TABLE late ADD CONSTRAINT later UNIQUE (slug) DEFERRABLE'

  test('hinders no call', async () => {
    const manager = await change(LATER)
    expect(await findOrCreate(manager, Late, { text: 'second', slug: 's' })).toMatchObject({ created: true })
    await manager.query('DROP TABLE late CASCADE')
  })

  test('fails one list, or one transaction, and not the next', async () => {
    const manager = await change(LATER)
    const [first] = await findOrCreateMany(manager, Late, [{ text: 'third' }])
    expect(first).toMatchObject({ error: { code: '55000' } })
    expect(await findOrCreateMany(manager, Late, [{ text: 'third' }])).toMatchObject([{ created: true }])
    await manager.query('DROP TABLE late CASCADE')
  })
})
