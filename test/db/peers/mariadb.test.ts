import type { EntitySchemaOptions, ObjectLiteral } from 'typeorm'
import { Column, Entity, EntitySchema, Index, PrimaryGeneratedColumn } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { DeclarationError, findOrCreate, findOrCreateMany, UniqueText, uniqueTextSchema } from '../../../src'
import { nfc } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { oneHash } from '../../support/digests'
import { entity, text } from '../../support/entity'
import { endOrWait, LEVELS, openSession } from '../../support/sessions'

const Blob = entity('Blob', { a: text({ nullable: true }) })
const Colliding = entity('Colliding', { a: text({ digest: oneHash }) })

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
const dataSource = db.useDataSource([Blob, Colliding, Several, Keys, Letters])
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

  test('a statement with one duplicate among its rows stores none of them', async () => {
    await client.query(`INSERT INTO blob (a) VALUES ('22')`)
    await expect(client.query(`INSERT INTO blob (a) VALUES ('12'), ('22')`)).rejects.toMatchObject(refused)
    await expect(client.query(`INSERT INTO blob (a) VALUES ('m'), ('m')`)).rejects.toMatchObject(refused)
    expect(await texts()).toEqual(['22'])
  })

  test('lengths that differ by one are two texts', async () => {
    const rows = [4_000, 4_001, 40_000, 40_010].map((length) => ({ a: 's'.repeat(length) }))
    const results = await findOrCreateMany(dataSource.manager, Blob, rows)
    expect(results.map((one) => 'created' in one && one.created)).toEqual([true, true, true, true])
  })

  test('very long: texts of 6 MB that differ in the last character alone', async () => {
    const long = 'sachin'.repeat(1_000_000)
    for (const end of ['1', '2']) await findOrCreate(manager, Blob, { a: `${long}${end}` })
    expect(await findOrCreate(manager, Blob, { a: `${long}2` })).toMatchObject({ created: false, entity: { id: 2 } })
    await expect(client.query('INSERT INTO blob (a) VALUES ($1)', [`${long}1`])).rejects.toMatchObject(refused)
  })

  test('visibility of db_row_hash: entities show no hidden column, however they were got', async () => {
    const saved = await manager.save(manager.create(Blob, { a: 'saved' }))
    const made = (await findOrCreate(manager, Blob, { a: 'made' })).entity
    const built = await manager.createQueryBuilder(Blob, 'blob').getMany()
    for (const entity of [saved, made, ...(await manager.find(Blob)), ...built]) {
      expect(Object.keys(entity).sort()).toEqual(['a', 'id'])
    }
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

  // MariaDB allows it.
  test('a column that two of them share is refused, by name, before there is a table', async () => {
    @Entity()
    @UniqueText({ as: 'ab', columns: ['a', { property: 'b', prefix: '/' }] })
    @UniqueText({ as: 'bc', columns: ['b', { property: 'c', prefix: '/' }] })
    class Sharing {
      @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
      @Column({ type: 'text' }) a!: string
      @Column({ type: 'text' }) b!: string
      @Column({ type: 'text' }) c!: string
    }
    await expect(db.dataSource([Sharing])).rejects.toThrow(/Sharing.*another declaration has the column "b"/u)
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

  test('MDEV-18922 adding it to a filled table keeps what the column holds', async () => {
    const nullableText = { type: 'text' as const, nullable: true }
    const before = await db.dataSource([new EntitySchema(plain('Filled', { a: nullableText }))])
    await before.query(`INSERT INTO filled (a) VALUES ('2'), ('3'), ('4')`)
    await before.destroy()
    const after = await db.dataSource([new EntitySchema(uniqueTextSchema(plain('Filled'), { a: { nullable: true } }))])
    expect(await after.query('SELECT a FROM filled ORDER BY id')).toEqual([{ a: '2' }, { a: '3' }, { a: '4' }])
    await expect(client.query(`INSERT INTO filled (a) VALUES ('3')`)).rejects.toMatchObject(refused)
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

describe('long_unique_update', () => {
  beforeEach(() => client.query(`INSERT INTO blob (a) VALUES ('1'), ('2'), ('3'), ('4'), (NULL)`))

  test('to a free text it goes through, to a taken one it does not', async () => {
    await client.query(`UPDATE blob SET a = '11' WHERE a = '1'`)
    await expect(client.query(`UPDATE blob SET a = '3' WHERE a = '2'`)).rejects.toMatchObject(refused)
    await expect(client.query(`UPDATE blob SET a = '3' WHERE a IS NULL`)).rejects.toMatchObject(refused)
    expect(await texts()).toEqual(['11', '2', '3', '4', null])
  })

  test('no change in the key: a row may be set to what it holds', async () => {
    expect((await client.query(`UPDATE blob SET a = a`)).rowCount).toBe(5)
    expect((await client.query(`UPDATE blob SET a = '3' WHERE a = '3'`)).rowCount).toBe(1)
  })

  test('of many rows, of which one is taken, changes none', async () => {
    await expect(client.query(`UPDATE blob SET a = 'x' WHERE a > '1'`)).rejects.toMatchObject(refused)
    await client.query(`UPDATE blob SET a = a || '0'`)
    expect(await texts()).toEqual(['10', '20', '30', '40', null])
  })

  test('a text that was given up can be taken at once', async () => {
    await client.query(`UPDATE blob SET a = 'old' WHERE a = '1'`)
    expect(await findOrCreate(dataSource.manager, Blob, { a: '1' })).toMatchObject({ created: true })
    await client.query(`DELETE FROM blob WHERE a = '2'; INSERT INTO blob (a) VALUES ('2')`)
  })
})

describe('long_unique_debug: all texts have one hash', () => {
  test('same_long_unique_hash: what collides is stored, what is equal is refused', async () => {
    for (const text of ['xyz', 'abc', 'sachin']) await client.query('INSERT INTO colliding (a) VALUES ($1)', [text])
    for (const text of ['sachin', 'xyz']) {
      await expect(client.query('INSERT INTO colliding (a) VALUES ($1)', [text])).rejects.toMatchObject(refused)
    }
    await client.query(`INSERT INTO colliding (a) VALUES ('maria')`)
    // In place, no text becomes another one of equal hash, be it taken or not.
    const update = client.query(`UPDATE colliding SET a = 'abc' WHERE a = 'maria'`)
    await expect(update).rejects.toMatchObject({ code: '40001' })
    expect(await dataSource.manager.count(Colliding)).toBe(4)
  })

  test('REPLACE: a row deleted and stored again in one transaction keeps the others apart', async () => {
    for (const text of ['foo', 'bar', 'baz']) await client.query('INSERT INTO colliding (a) VALUES ($1)', [text])
    await client.query(`BEGIN; DELETE FROM colliding WHERE a = 'foo'; INSERT INTO colliding (a) VALUES ('foo'); COMMIT`)
    for (const text of ['foo', 'bar', 'baz']) {
      expect(await findOrCreate(dataSource.manager, Colliding, { a: text })).toMatchObject({ created: false })
    }
  })
})

describe.each(LEVELS)('long_unique_innodb: concurrent insert of one text at %s', (level) => {
  const taken = level === 'SERIALIZABLE' ? '40001' : '23505'

  test.each([
    { end: 'COMMIT', second: { ok: false, sqlstate: taken } },
    { end: 'ROLLBACK', second: { ok: true, count: 1 } },
  ])('the second waits; after the $end of the first it knows', async ({ end, second }) => {
    const [first, other] = [await openSession(await db.client()), await openSession(await db.client())]
    for (const session of [first, other]) await session.run(`BEGIN ISOLATION LEVEL ${level}`)
    const insert = `INSERT INTO blob (a) VALUES ('${level}')`
    await first.run(insert)
    const waiting = other.start(insert)
    expect(await endOrWait(client, { session: other, statement: waiting })).toBe('waits')
    await first.run(end)
    expect(await waiting.outcome).toMatchObject(second)
    await other.run('COMMIT')
    expect(await texts()).toEqual([level])
  })
})
