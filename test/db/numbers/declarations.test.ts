import type { ColumnOptions, EntitySchemaOptions } from 'typeorm'
import { ChildEntity, Column, Entity, PrimaryGeneratedColumn, TableInheritance } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { DeclarationError } from '../../../src'
import { NumberWithin, numberWithinSchema, type NumberWithinOptions } from '../../../src/numbers'
import { useDatabase } from '../../support/database'
import { column, entity, key, numberWithin } from '../../support/entity'

const db = useDatabase()

const refused = async (work: () => unknown, message: RegExp): Promise<void> => {
  const asked = (async () => await work())()
  await expect(asked).rejects.toThrow(DeclarationError)
  await expect(asked).rejects.toThrow(message)
}

describe('is refused where the class is defined', () => {
  test.each([
    ['an option that does not exist', { sope: ['tenant'] }, /no option "sope"/],
    ['a scope that is no list', { scope: 'tenant' }, /scope must be a list/],
    ['a property that is named twice', { scope: ['tenant', 'tenant'] }, /each of them once/],
    ['a count that is no boolean', { scope: ['tenant'], count: 'yes' }, /count must be true or false/],
    ['a reuse that is no boolean', { reuse: 'no' }, /reuse must be true or false/],
    ['a start that is no number above 0', { start: 0 }, /start must be a whole number above 0/],
    ['shards of Citus that count', { citus: true, count: true }, /Leave out "citus"/],
    ['shards of Citus that keep numbers', { citus: true, reuse: false }, /Leave out "citus"/],
    ['an empty name', { name: '' }, /name must be a non-empty string/],
    ['options that are no object', null, /options must be an object/],
  ])('%s', async (_name, options, message) => {
    await refused(() => {
      class Comment {
        @NumberWithin(options as NumberWithinOptions) number!: number
      }
      return Comment
    }, message)
  })

  test('a decorator that is not called', async () => {
    await refused(() => {
      class Comment {
        number!: number
      }
      ;(NumberWithin as unknown as (target: object, property: string) => void)(Comment.prototype, 'number')
    }, /write @NumberWithin\(\)/)
  })

  test('two on one property', async () => {
    await refused(() => {
      class Comment {
        @NumberWithin() @NumberWithin() number!: number
      }
      return Comment
    }, /declared twice/)
  })

  test('what is no EntitySchema', async () => {
    await refused(
      () => numberWithinSchema([] as unknown as EntitySchemaOptions<object>, {}),
      /takes the options of an EntitySchema/,
    )
  })
})

describe('is refused where it contradicts the entity', () => {
  /** A number, on a column that is declared so. */
  const on =
    (options: ColumnOptions, of?: NumberWithinOptions) =>
    (target: object, property: string): void => {
      Column(options)(target, property)
      NumberWithin(of)(target, property)
    }
  const inTenant = numberWithin({ scope: ['tenant'] })

  test.each([
    ['a scope that is no column', { number: inTenant }, /@NumberWithin on Refused.number: the scope names "tenant"/],
    [
      'a scope that may be NULL',
      { tenant: column('integer', { nullable: true }), number: inTenant },
      /must be NOT NULL/,
    ],
    ['a column of another type', { number: on({ type: 'text' }) }, /must be of type integer, bigint or smallint/],
    [
      'a start that its type cannot hold',
      { number: on({ type: 'smallint' }, { start: 40_000 }) },
      /start is above the highest smallint/,
    ],
    ['a number that may be NULL', { number: on({ type: 'integer', nullable: true }) }, /cannot be nullable/],
    ['a number with a default', { number: on({ type: 'integer', default: 7 }) }, /given a default/],
    [
      'a part of the primary key',
      { tenant: key('integer'), number: on({ type: 'integer', primary: true }, { scope: ['tenant'] }) },
      /part of the primary key/,
    ],
  ] as const)('%s', async (_, fields, message) => {
    const Refused = entity('Refused', fields)
    await refused(async () => await db.dataSource([Refused]), message)
  })

  test('a class that shares its table', async () => {
    @Entity()
    @TableInheritance({ column: { type: 'varchar', name: 'kind' } })
    class Base {
      @PrimaryGeneratedColumn('identity') id!: number
    }
    @ChildEntity()
    class Numbered extends Base {
      @NumberWithin() number!: number
    }
    await refused(async () => await db.dataSource([Base, Numbered]), /shares its table with others/)
  })
})
