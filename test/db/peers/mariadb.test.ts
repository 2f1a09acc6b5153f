import type { EntitySchemaOptions, ObjectLiteral } from 'typeorm'
import { Column, Entity, EntitySchema, Index, PrimaryGeneratedColumn } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { DeclarationError, findOrCreate, UniqueText, uniqueTextSchema } from '../../../src'
import { nfc } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { entity, text } from '../../support/entity'

const Blob = entity('Blob', { a: text({ nullable: true }) })

@Entity()
class Several {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() a!: string
  @Index({ unique: true }) @Column({ type: 'integer' }) b!: number
  @UniqueText({ nullable: true }) c!: string | null
  @UniqueText({ digest: 'sha256' }) d!: string
}

/** Two keys of several columns: unique(a, b), unique(c, d). */
@Entity()
@UniqueText({ as: 'ab', columns: ['a', { property: 'b', prefix: '/' }] })
@UniqueText({ as: 'cd', columns: ['c', { property: 'd', prefix: '/' }] })
class Keys {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @Column({ type: 'text' }) a!: string
  @Column({ type: 'text', nullable: true }) b!: string | null
  @Column({ type: 'text' }) c!: string
  @Column({ type: 'text' }) d!: string
}

const Letters = entity('Letters', { exact: text(), composed: text({ normalize: nfc(), nullable: true }) })

const db = useDatabase()
const dataSource = db.useDataSource([Blob, Several, Keys, Letters])
const { manager } = dataSource
const client = db.useClient()

const texts = async (): Promise<unknown[]> =>
  (await client.query<{ a: string | null }>('SELECT a FROM blob ORDER BY id')).rows.map(({ a }) => a)
const refused = { code: '23505' }

describe('long_unique: one column', () => {
  test('values of every length and NULLs are stored, a duplicate is refused', async () => {
    const long = 'm'.repeat(40_000)
    await client.query(`INSERT INTO blob (a) VALUES ('1'), ('sachin'), (NULL), (NULL), ($1)`, [long])
    for (const again of ['1', 'sachin', long]) {
      await expect(client.query('INSERT INTO blob (a) VALUES ($1)', [again])).rejects.toMatchObject(refused)
    }
    expect(await texts()).toEqual(['1', 'sachin', null, null, long])
  })

  test('very long: texts of 6 MB that differ in the last character alone', async () => {
    const long = 'sachin'.repeat(1_000_000)
    for (const end of ['1', '2']) await findOrCreate(manager, Blob, { a: `${long}${end}` })
    expect(await findOrCreate(manager, Blob, { a: `${long}2` })).toMatchObject({ created: false, entity: { id: 2 } })
    await expect(client.query('INSERT INTO blob (a) VALUES ($1)', [`${long}1`])).rejects.toMatchObject(refused)
  })

  test("a column of one's own with the name of the hidden one is refused before there is a table", async () => {
    const options: EntitySchemaOptions<ObjectLiteral> = {
      name: 'Own',
      columns: { id: { type: 'integer', primary: true, generated: 'increment' }, aHash: { type: 'integer' } },
    }
    const opened = async () => await db.dataSource([new EntitySchema(uniqueTextSchema(options, { a: {} }))])
    await expect(opened()).rejects.toBeInstanceOf(DeclarationError)
    expect((await client.query(`SELECT to_regclass('own') AS own`)).rows).toEqual([{ own: null }])
  })

  test('collation: texts are compared by character, without case, accents or padding, unless a normalizer says so', async () => {
    const alike = ['ae', 'AE', 'Ä', 'A\u0308', 'ae ', ' ae', 'ｅ', 'e', '']
    for (const exact of alike) await findOrCreate(manager, Letters, { exact }, { by: 'exact' })
    expect(await manager.count(Letters)).toBe(alike.length)
    const by = { by: 'composed' }
    const one = await findOrCreate(manager, Letters, { exact: 'x', composed: 'A\u0308' }, by)
    const two = await findOrCreate(manager, Letters, { exact: 'y', composed: '\u00c4' }, by)
    expect(two).toMatchObject({ created: false, entity: { id: one.entity.id } })
  })
})

describe('long_unique: several columns', () => {
  test('each text of a row is unique by itself, beside an ordinary unique column', async () => {
    await client.query(`INSERT INTO several (a, b, c, d) VALUES ('1', 2, '3', '4'), ('maria', 345, NULL, 'dasd')`)
    const clashes = [`'1', 9, '9', '9'`, `'9', 2, '9', '9'`, `'9', 9, '3', '9'`, `'9', 9, '9', '4'`]
    for (const values of clashes) {
      const insert = client.query(`INSERT INTO several (a, b, c, d) VALUES (${values})`)
      await expect(insert).rejects.toMatchObject(refused)
    }
    await client.query(`INSERT INTO several (a, b, c, d) VALUES ('9', 9, NULL, '9')`)
  })

  test('keys of several columns are each unique; NULL equals NULL in them', async () => {
    await client.query(`INSERT INTO keys (a, b, c, d) VALUES ('1', '1', '1', '1'), ('2', NULL, '2', '2')`)
    const clashes = [`'1', '1', '9', '9'`, `'9', '9', '1', '1'`, `'2', NULL, '9', '9'`, `'1', '1', '2', '2'`]
    for (const values of clashes) {
      await expect(client.query(`INSERT INTO keys (a, b, c, d) VALUES (${values})`)).rejects.toMatchObject(refused)
    }
    await client.query(`INSERT INTO keys (a, b, c, d) VALUES ('1', '2', '1', '2'), ('1', NULL, '2', '1')`)
  })

  // MariaDB has room for 64 indexes on a table.
  test('64 indexes: a table may have many unique texts', async () => {
    const names = Array.from({ length: 24 }, (_, index) => `t${index}`)
    const wide = uniqueTextSchema<ObjectLiteral>(
      { name: 'Wide', columns: { id: { type: 'integer', primary: true, generated: 'increment' } } },
      Object.fromEntries(names.map((name) => [name, {}])),
    )
    const { manager } = await db.dataSource([new EntitySchema(wide)])
    const row = (start: number) => Object.fromEntries(names.map((name, index) => [name, `${start + index}`]))
    await findOrCreate(manager, 'Wide', row(0), { by: 't0' })
    // Equal texts in other columns are no duplicates.
    await findOrCreate(manager, 'Wide', row(1), { by: 't0' })
    for (const [index, name] of names.entries()) {
      const clash = { ...row(1_000), [name]: `${index}` }
      await expect(manager.insert('Wide', clash)).rejects.toMatchObject({ driverError: refused })
    }
    expect(await manager.count('Wide')).toBe(2)
  })
})

describe('long_unique: ALTER TABLE', () => {
  test('a column that comes or goes beside it breaks nothing', async () => {
    await client.query(`INSERT INTO blob (a) VALUES ('1'), ('2')`)
    await client.query('ALTER TABLE blob ADD COLUMN b integer')
    await expect(client.query(`INSERT INTO blob (a, b) VALUES ('1', 2)`)).rejects.toMatchObject(refused)
    await client.query('ALTER TABLE blob DROP COLUMN b, ADD COLUMN c integer')
    await expect(client.query(`INSERT INTO blob (a, c) VALUES ('2', 2)`)).rejects.toMatchObject(refused)
    await client.query('ALTER TABLE blob DROP COLUMN c')
  })

  const plain = (name: string, more: EntitySchemaOptions<ObjectLiteral>['columns'] = {}) => ({
    name,
    columns: { id: { type: 'integer' as const, primary: true, generated: 'increment' as const }, ...more },
  })

  test('MDEV-18799, MDEV-37296 a second one fails on duplicates, and leaves the first as it was', async () => {
    const first = { a: {} }
    const before = await db.dataSource([
      new EntitySchema(uniqueTextSchema(plain('Twice', { b: { type: 'text' } }), first)),
    ])
    await before.query(`INSERT INTO twice (a, b) VALUES ('1', '1'), ('2', '1')`)
    const both = new EntitySchema(uniqueTextSchema(plain('Twice'), { ...first, b: {} }))
    await expect(db.dataSource([both])).rejects.toThrow(/duplicate|same text|twice/iu)
    await expect(client.query(`INSERT INTO twice (a, b) VALUES ('1', '3')`)).rejects.toMatchObject(refused)
    expect(await findOrCreate(before.manager, 'Twice', { a: '3', b: '1' })).toMatchObject({ created: true })
  })

  test('dropping the column drops its index and guard; other columns can be written on', async () => {
    const before = await db.dataSource([
      new EntitySchema(uniqueTextSchema(plain('Dropped', { f: { type: 'integer', nullable: true } }), { x: {} })),
    ])
    await before.query(`INSERT INTO dropped (f, x) VALUES (1, 'foo')`)
    await before.destroy()
    // No unique text is left, so nothing attaches itself: that is what withUniqueText() is for.
    const left = new EntitySchema(plain('Dropped', { f: { type: 'integer', nullable: true } }))
    await db.dataSource([left], {}, {})
    await client.query('UPDATE dropped SET f = 2; INSERT INTO dropped (f) VALUES (2)')
    expect((await client.query(`SELECT tgname FROM pg_trigger WHERE tgrelid = 'dropped'::regclass`)).rows).toEqual([])
  })
})
