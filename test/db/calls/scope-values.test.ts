import { Column, type ColumnType, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { DeclarationError, findOneByText, findOrCreate, findOrCreateMany, UniqueText } from '../../../src'
import { useDatabase } from '../../support/database'
import { column, entity, text } from '../../support/entity'

const db = useDatabase()

const SCOPES: readonly [string, object, readonly [unknown, unknown, ...unknown[]]][] = [
  ['numeric', { precision: 10, scale: 2 }, [1.234, '1.23', 1.2301]],
  ['timestamptz', { precision: 0 }, [new Date(1_700_000_000_400), new Date(1_700_000_000_000)]],
  ['timestamp', { precision: 3 }, ['2024-01-01 00:00:00.0004', '2024-01-01']],
  ['uuid', {}, ['A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11']],
  ['integer', {}, [1, '1', 1n, ' 1']],
  ['bigint', {}, [2n ** 60n, String(2n ** 60n)]],
  ['varchar', { length: 3 }, ['abc', 'abc  ']],
  ['char', { length: 3 }, ['a', 'a  ']],
  ['bytea', {}, [Buffer.from([255]), '\\xff']],
  ['boolean', {}, [true, 't']],
  ['interval', { precision: 0 }, ['1.2 seconds', '1 second']],
]

const scopes = SCOPES.map(([type, options, values], index) => {
  class Scoped {
    id!: number
    site!: unknown
    text!: string
  }
  PrimaryGeneratedColumn('identity')(Scoped.prototype, 'id')
  Column({ ...options, type: type as ColumnType })(Scoped.prototype, 'site')
  UniqueText({ scope: ['site'] })(Scoped.prototype, 'text')
  Entity(`scoped ${index}`)(Scoped)
  return { type, values, Scoped }
})

const Port = entity('Port', { port: column('integer', { default: 80 }), text: text({ scope: ['port'] }) })

@Entity()
class Day {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column({ type: 'date', default: () => 'current_date' }) day!: string
  @UniqueText({ scope: ['day'] }) text!: string
}

const Named = entity('Named', { site: column('varchar', { length: 3 }), text: text({ scope: ['site'] }) })
const Folded = entity('Folded', { site: column('text', { collation: 'no case' }), text: text({ scope: ['site'] }) })

const entities = [...scopes.map(({ Scoped }) => Scoped), Port, Day, Named]
const { manager } = db.useDataSource(entities)

describe('a scope is compared as it is stored', () => {
  test('by the collation of its column: one row of a batch is created once', async () => {
    const client = await db.client()
    await client.query(`CREATE COLLATION "no case" (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
    const { manager } = await db.dataSource([Folded])
    const results = await findOrCreateMany(manager, Folded, [
      { site: 'A', text: 'x' },
      { site: 'a', text: 'x' },
      { site: 'b', text: 'x' },
    ])
    expect(results).toMatchObject([
      { created: true, entity: { site: 'A' } },
      { created: false, entity: { site: 'A' } },
      { created: true, entity: { site: 'b' } },
    ])
  })

  test.each(scopes)('$type: values that are stored alike are one scope, in a call and in a batch', async (one) => {
    const [first] = one.values
    expect(await findOrCreate(manager, one.Scoped, { site: first, text: 'alone' })).toMatchObject({ created: true })
    for (const site of one.values) {
      const again = await findOrCreate(manager, one.Scoped, { site, text: 'alone' })
      expect(again).toMatchObject({ created: false, attempts: 1, entity: { id: 1 } })
      expect(await findOneByText(manager, one.Scoped, { site, text: 'alone' })).toMatchObject({ id: 1 })
    }
    const together = one.values.map((site) => ({ site, text: 'together' }))
    const results = await findOrCreateMany(manager, one.Scoped, together)
    expect(results.map((result) => 'entity' in result && result.created)).toEqual(one.values.map((_, nth) => nth === 0))
    const ids = results.map((result) => ('entity' in result ? result.entity.id : result.error))
    expect(new Set(ids).size).toBe(1)
    expect(await manager.count(one.Scoped)).toBe(2)
  })

  test('one that is too long for its column is found by nothing, and refused by an insert', async () => {
    await findOrCreate(manager, Named, { site: 'abc', text: 'x' })
    expect(await findOneByText(manager, Named, { site: 'abcd', text: 'x' })).toBeNull()
    await expect(findOrCreate(manager, Named, { site: 'abcd', text: 'x' })).rejects.toMatchObject({ code: '22001' })
    const results = await findOrCreateMany(manager, Named, [{ site: 'abcd', text: 'x' }, { site: 'abc', text: 'x' }]) // prettier-ignore
    expect(results).toMatchObject([{ error: { code: '22001' } }, { created: false }])
  })
})

describe('a scope', () => {
  test.each(['a\0', '\uD800'])('that cannot be stored exactly is refused, with its property', async (site) => {
    const refused = expect.objectContaining({ code: 'TEXT_REJECTED', property: 'site' })
    await expect(findOrCreate(manager, Named, { site, text: 'x' })).rejects.toEqual(refused)
    expect(await findOneByText(manager, Named, { site, text: 'x' })).toBeNull()
    expect(await findOrCreateMany(manager, Named, [{ site, text: 'x' }])).toEqual([{ error: refused }])
  })

  test('with a constant default may be left out; one that SQL computes must be given', async () => {
    const { entity } = await findOrCreate(manager, Port, { text: 'x' })
    expect(entity).toMatchObject({ port: 80 })
    expect(await findOrCreate(manager, Port, { text: 'x', port: 80 })).toMatchObject({ created: false })
    expect(await findOneByText(manager, Port, { text: 'x' })).toMatchObject({ id: entity.id })
    await expect(findOrCreate(manager, Day, { text: 'x' })).rejects.toBeInstanceOf(DeclarationError)
  })
})
