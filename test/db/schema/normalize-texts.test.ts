import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { Column, type DataSource, Entity, type EntityTarget, type ObjectLiteral, PrimaryColumn } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, normalizeTexts, type TextRejectedError, UniqueText } from '../../../src'
import { findHolder, Name, UniqueName } from '../../../src/names'
import { lowerCase, type Normalizer, normalizer, Refusal } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { column, entity } from '../../support/entity'
import { generate, migrate } from '../../support/generated'

const db = useDatabase({ wrapped: true })

const lower = (version: number): Normalizer => normalizer('lower', version, (text) => text.toLowerCase())

/** A table `page` whose key takes more than JavaScript's numbers and dates. */
function entityOf(normalize: Normalizer | undefined, more?: PropertyDecorator): EntityTarget<ObjectLiteral> {
  @Entity('page')
  class Page {
    @PrimaryColumn('bigint') id!: string
    @PrimaryColumn('timestamptz') since!: Date
    @UniqueText({ ...(normalize ? { normalize } : {}), nullable: true }) url!: string | null
    @UniqueName({ namespace: 'page', nullable: true, ...(normalize ? { normalize } : {}) }) handle!: string | null
  }
  more?.(Page.prototype, 'more')
  return Page
}

const open = async (entity: EntityTarget<ObjectLiteral>): Promise<DataSource> =>
  await db.dataSource([entity as Function, Name], { synchronize: false })

/** Runs a migration in its transaction, with what a person fills in for the marked statements. */
async function runFilled(
  dataSource: DataSource,
  Page: EntityTarget<ObjectLiteral>,
  { statements, call }: { readonly statements: readonly string[]; readonly call: string },
): Promise<number[]> {
  const queryRunner = dataSource.createQueryRunner()
  const changed: number[] = []
  await queryRunner.startTransaction()
  try {
    for (const statement of statements) {
      if (!statement.startsWith('-- Replace')) await queryRunner.query(statement)
      else if (call === 'await normalizeTexts(queryRunner, Page)') {
        changed.push(await normalizeTexts(queryRunner, Page))
      } else throw new Error(call)
    }
    await queryRunner.commitTransaction()
    return changed
  } catch (error) {
    await queryRunner.rollbackTransaction()
    throw error
  } finally {
    await queryRunner.release()
  }
}

/** The last of the lines that docs/changing-a-declaration.md has for this. */
async function documented(): Promise<string> {
  const page = await readFile(path.join(import.meta.dirname, '../../../docs/changing-a-declaration.md'), 'utf8')
  const [, lines = ''] = /<!-- lines: normalize -->\n\n```ts\n(.*?)\n```/s.exec(page) ?? []
  return lines.split('\n').at(-1) ?? ''
}

const rows = async ({ manager }: DataSource): Promise<unknown> =>
  await manager.query('SELECT * FROM page ORDER BY id, since')

const insert = async ({ manager }: DataSource, values: string): Promise<unknown> =>
  await manager.query(`INSERT INTO page (id, since, url, handle) VALUES ${values}`)

const key = (id: number): string => `${id}, '2020-01-01 00:00:00.123456+02'`

/** The table as it is before the normalizer changes. */
let before: DataSource

beforeEach(async () => {
  before = await db.dataSource([entityOf(undefined) as Function, Name], { synchronize: false, dropSchema: true })
  await migrate(before)
})

test('a migration is marked with the call that the page shows, and the call does what it asks for', async () => {
  await insert(before, `(${key(1)}, 'A', 'Ann'), (${key(2)}, 'b', NULL), (${key(3)}, NULL, 'Cy')`)
  const Page = entityOf(lower(1))
  const after = await open(Page)
  const { up } = await generate(after)
  const call = await documented()
  const marks = up.flatMap((one) => /^-- Replace this statement by: {2}(.*?) {2}of the package/.exec(one)?.[1] ?? [])
  // One for the text, and one for the name; the first call does both.
  expect(marks).toEqual([call, call])
  expect(await runFilled(after, Page, { statements: up, call })).toEqual([2, 0])
  expect(await rows(after)).toMatchObject([
    { url: 'a', handle: 'ann' },
    { url: 'b', handle: null },
    { url: null, handle: 'cy' },
  ])
  expect((await generate(after)).up).toEqual([])
  const found = await findOrCreate(after.manager, Page, { url: 'A', id: '9', since: new Date() })
  expect(found).toMatchObject({ created: false, entity: { id: '1' } })
  expect(await findHolder(after.manager, 'page', 'ANN')).toMatchObject({ id: { id: '1' } })
})

test('on the way back it normalizes as the entity declares it by then', async () => {
  const Page = entityOf(lower(2))
  const [first, second] = [await open(entityOf(lower(1))), await open(Page)]
  await migrate(first)
  await insert(first, `(${key(1)}, 'a', 'ann')`)
  const { up, down } = await generate(second)
  const call = await documented()
  await runFilled(second, Page, { statements: up, call })
  await runFilled(first, 'Page', { statements: down, call })
  expect((await generate(first)).up).toEqual([])
})

test('rows that become equal are named by the statements below it, and all is as it was', async () => {
  await insert(before, `(${key(1)}, 'A', NULL), (${key(2)}, 'a', NULL)`)
  const stored = await rows(before)
  const Page = entityOf(lower(1))
  const after = await open(Page)
  const { up } = await generate(after)
  const run = runFilled(after, Page, { statements: up, call: await documented() })
  await expect(run).rejects.toMatchObject({ code: '23505' })
  expect(await rows(before)).toEqual(stored)
})

describe('the call', () => {
  const normalize = async (dataSource: DataSource, entity: EntityTarget<ObjectLiteral> = 'Page'): Promise<number> => {
    const queryRunner = dataSource.createQueryRunner()
    try {
      return await normalizeTexts(queryRunner, entity)
    } finally {
      await queryRunner.release()
    }
  }

  test('takes more rows than it reads at once, and each of them once', async () => {
    await before.query(`INSERT INTO page (id, since, url)
      SELECT i % 50, '2020-01-01'::timestamptz + i * '1 microsecond'::interval, 'U' || i FROM generate_series(1, 2500) AS i`)
    const after = await open(entityOf(lower(1)))
    expect(await normalize(after)).toBe(2500)
    const [row] = await after.query<{ n: string }[]>(
      `SELECT count(*) AS n FROM page WHERE url = 'u' || (extract(microseconds FROM since)::int % 1000000)`,
    )
    expect(row).toEqual({ n: '2500' })
    expect(await normalize(after)).toBe(0)
  })

  test('names up to ten rows whose texts the normalizer rejects, and leaves their texts out', async () => {
    await before.query(
      `INSERT INTO page (id, since, url) SELECT i, now(), 'secret' || i FROM generate_series(1, 30) AS i`,
    )
    const never = normalizer('never', 1, () => {
      throw new Refusal('it is never right')
    })
    const after = await open(entityOf(never))
    const error = await normalize(after).catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ code: 'TEXT_REJECTED', property: 'url' })
    const { message } = error as Error
    expect(message).toMatch(/it is never right, in the rows that "keys" of this error has\. /)
    const { keys } = error as TextRejectedError
    expect(keys?.map(({ id, since }: ObjectLiteral) => [id, typeof since])).toEqual(
      Array.from({ length: 10 }, (_, index) => [`${index + 1}`, 'string']),
    )
    expect(message).not.toContain('secret')
  })

  test('leaves out a column that the table does not have yet', async () => {
    await insert(before, `(${key(1)}, 'A', NULL)`)
    const after = await open(entityOf(lower(1), UniqueText({ normalize: lower(1), nullable: true })))
    expect(await normalize(after)).toBe(1)
  })

  test('does not shorten a text that its column cannot hold', async () => {
    @Entity('short')
    class Short {
      @PrimaryColumn('integer') id!: number
      @Column('varchar', { length: 3 })
      @UniqueText({ normalize: normalizer('long', 1, (text) => text.padEnd(4, '.')) })
      url!: string
    }
    const dataSource = await db.dataSource([Short], { synchronize: true })
    await dataSource.query(`INSERT INTO short (id, url) VALUES (1, 'abc')`)
    await expect(normalize(dataSource, Short)).rejects.toMatchObject({ code: '22001' })
  })

  test('writes the row of its own table where a child by INHERITS has one of the same key', async () => {
    await before.query('CREATE TABLE kid () INHERITS (page)')
    await insert(before, `(${key(1)}, 'A', NULL)`)
    await before.query(`INSERT INTO kid (id, since, url, "urlHash") VALUES (${key(1)}, 'B', md5('B')::uuid)`)
    const after = await open(entityOf(lower(1)))
    await after.query('ALTER TABLE page DISABLE TRIGGER ALL; ALTER TABLE kid DISABLE TRIGGER ALL')
    const [check] = await after.query<{ name: string }[]>(
      `SELECT conname AS name FROM pg_constraint WHERE conrelid = 'page'::regclass AND contype = 'c' LIMIT 1`,
    )
    await after.query(`ALTER TABLE page DROP CONSTRAINT "${check?.name}"`)
    expect(await normalize(after)).toBe(2)
    const texts = await after.query('SELECT tableoid::regclass::text AS part, url FROM page ORDER BY part')
    expect(texts).toEqual([
      { part: 'kid', url: 'b' },
      { part: 'page', url: 'a' },
    ])
  })

  test('refuses an entity without texts, and a table that is not there', async () => {
    const Plain = entity('Plain', { url: column('text') })
    const dataSource = await db.dataSource([Plain], { synchronize: true })
    await expect(normalize(dataSource, Plain)).rejects.toMatchObject({ code: 'INVALID_DECLARATION' })
    await before.query('DROP TABLE page CASCADE')
    await expect(normalize(before)).rejects.toMatchObject({ code: 'SCHEMA_DRIFT' })
  })

  test('is done with a text that is a name too by one look', async () => {
    await insert(before, `(${key(1)}, 'A', 'A')`)
    const after = await open(entityOf(lowerCase()))
    expect(await normalize(after)).toBe(1)
  })
})
