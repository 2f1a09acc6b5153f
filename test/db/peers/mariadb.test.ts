import type { ObjectLiteral } from 'typeorm'
import { Column, Entity, EntitySchema, PrimaryGeneratedColumn } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { findOrCreate, UniqueText, uniqueTextSchema } from '../../../src'
import { nfc } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { entity, text } from '../../support/entity'

const Blob = entity('Blob', { a: text({ nullable: true }) })

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
const dataSource = db.useDataSource([Blob, Keys, Letters])
const { manager } = dataSource
const client = db.useClient()

const refused = { code: '23505' }

describe('long_unique: one column', () => {
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

test('long_unique: a column that comes or goes beside it breaks nothing', async () => {
  await client.query(`INSERT INTO blob (a) VALUES ('1'), ('2')`)
  await client.query('ALTER TABLE blob ADD COLUMN b integer')
  await expect(client.query(`INSERT INTO blob (a, b) VALUES ('1', 2)`)).rejects.toMatchObject(refused)
  await client.query('ALTER TABLE blob DROP COLUMN b, ADD COLUMN c integer')
  await expect(client.query(`INSERT INTO blob (a, c) VALUES ('2', 2)`)).rejects.toMatchObject(refused)
  await client.query('ALTER TABLE blob DROP COLUMN c')
})
