import { EntitySchema, type EntitySchemaColumnOptions } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { TextTakenError } from '../../../src'
import { findHolder, findOrCreateHolder, Name, rename, swapNames, uniqueNameSchema } from '../../../src/names'
import { useDatabase } from '../../support/database'
import { rejection } from '../../support/ledger'

/** A row by its key, whatever type that has. */
interface Keyed {
  readonly id: string | number | boolean | Date
  readonly handle: string
}

const db = useDatabase()

function keyed(name: string, id: EntitySchemaColumnOptions): EntitySchema<Keyed> {
  const columns = { id: { ...id, primary: true } }
  return new EntitySchema<Keyed>(
    uniqueNameSchema({ name, columns }, { handle: { namespace: 'handle', former: 'redirect' } }),
  )
}

const at = (time: string): Date => new Date(`2026-01-02T${time}Z`)

const KEYS: readonly (readonly [type: string, EntitySchemaColumnOptions, first: Keyed['id'], second: Keyed['id']])[] = [
  ['char', { type: 'char', length: 4 }, 'ab1 ', 'ab2 '],
  ['char of a ULID', { type: 'char', length: 26 }, '01ARZ3NDEKTSV4RRFFQ69G5FAV', '01ARZ3NDEKTSV4RRFFQ69G5FAW'],
  ['date', { type: 'date' }, '2026-01-02', '2026-01-03'],
  ['timestamptz', { type: 'timestamptz' }, at('03:04:05.120'), at('03:04:05.123')],
  ['timestamp', { type: 'timestamp' }, at('03:04:05.120'), at('03:04:05.123')],
  ['bigint', { type: 'bigint' }, '9223372036854775806', '9223372036854775807'],
  ['numeric', { type: 'numeric', precision: 30, scale: 5 }, '12345678901234567.00010', '12345678901234567.00011'],
  ['boolean', { type: 'boolean' }, true, false],
  ['varchar', { type: 'varchar', length: 4 }, 'ab1', 'ab 1'],
]

describe.each(KEYS)('a primary key of type %s', (type, column, first, second) => {
  test('tells two rows apart, and is given as TypeORM gives it', async () => {
    const Row = keyed(type.replaceAll(' ', '_'), column)
    const { manager } = await db.dataSource([Name, Row])
    await manager.insert(Row, { id: first, handle: 'a' })
    const refused = await rejection(manager.insert(Row, { id: second, handle: 'a' }))
    expect(refused).toBeInstanceOf(TextTakenError)
    expect(refused).toMatchObject({ taken: [{ id: { id: first }, property: 'handle', row: 0 }] })
    await manager.insert(Row, { id: second, handle: 'b' })
    expect(await findHolder(manager, 'handle', 'b', { entity: true })).toMatchObject({
      id: { id: second },
      entity: { id: second, handle: 'b' },
    })
    const [one, two] = await swapNames(manager, Row, { id: first }, { id: second })
    expect([one, two]).toEqual([
      { id: first, handle: 'b' },
      { id: second, handle: 'a' },
    ])
    expect(await rename(manager, Row, { id: first }, { handle: 'c' })).toEqual({ id: first, handle: 'c' })
    expect(await rejection(rename(manager, Row, { id: first }, { handle: 'a' }))).toMatchObject({
      taken: [{ id: { id: second }, property: 'handle' }],
    })
    expect(await findHolder(manager, 'handle', 'b', { former: true, entity: true })).toMatchObject({
      id: { id: first },
      name: 'c',
      former: true,
      entity: { id: first },
    })
    await manager.query(`DELETE FROM ${type.replaceAll(' ', '_')}`)
    expect(await manager.find(Name)).toEqual([])
  })
})

test('a bigint key is exact in Name too', async () => {
  const Big = keyed('big', { type: 'bigint' })
  const { manager } = await db.dataSource([Name, Big])
  await manager.insert(Big, { id: '9223372036854775807', handle: 'a' })
  expect(await manager.find(Name)).toMatchObject([{ key: ['9223372036854775807'] }])
  await manager.query('DELETE FROM big')
})

test('an output format of the session changes no key', async () => {
  const Zoned = keyed('zoned', { type: 'timestamptz' })
  const { manager } = await db.dataSource([Name, Zoned])
  await manager.insert(Zoned, { id: at('03:04:05.120'), handle: 'z' })
  await manager.transaction(async ({ queryRunner }) => {
    await queryRunner?.query(
      `SET LOCAL timezone TO 'Asia/Kolkata'; SET LOCAL datestyle TO german; UPDATE zoned SET handle = 'y'`,
    )
  })
  const names = await manager.find(Name, { order: { text: 'ASC' } })
  await manager.query('TRUNCATE zoned')
  expect(names.map(({ text, key, state }) => [text, ...key, state])).toEqual([
    ['y', '2026-01-02T03:04:05.12', 'held'],
    ['z', '2026-01-02T03:04:05.12', 'redirect'],
  ])
})

test.each<[string, EntitySchemaColumnOptions]>([
  ['enum', { type: 'enum', enum: ['red', 'blue'] }],
  ['enum', { type: 'simple-enum', enum: ['red', 'blue'] }],
  ['bytea', { type: 'bytea' }],
  ['bit', { type: 'bit', length: 8 }],
  ['interval', { type: 'interval' }],
  ['real', { type: 'real' }],
  ['double precision', { type: 'double precision' }],
  ['jsonb', { type: 'jsonb' }],
  ['integer[]', { type: 'integer', array: true }],
])('a primary key of type %s is refused: its JSON leads back to no value', async (type, column) => {
  await expect(db.dataSource([Name, keyed('odd', column)])).rejects.toThrow(
    `the primary key "id" cannot be of type ${type}. Use text, uuid or a number.`,
  )
})

test('findOrCreateHolder is refused a name that another property of the entity has, at once', async () => {
  const Two = new EntitySchema<{ id: number; slug: string; alias: string | null }>(
    uniqueNameSchema(
      { name: 'two', columns: { id: { type: 'integer', primary: true, generated: true } } },
      { slug: { namespace: 'slug' }, alias: { namespace: 'slug', nullable: true } },
    ),
  )
  const { manager } = await db.dataSource([Name, Two])
  await manager.insert(Two, { slug: 'a', alias: 'x' })
  const refused = await rejection(findOrCreateHolder(manager, Two, { slug: 'x' }, { by: 'slug' }))
  expect(refused).toBeInstanceOf(TextTakenError)
  expect(refused).toMatchObject({
    message: expect.stringContaining('"slug" of two (held by another row as "alias")') as string,
    taken: [{ property: 'slug', holderProperty: 'alias', id: { id: 1 } }],
  })
})
