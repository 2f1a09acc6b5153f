import type { EntitySchemaOptions } from 'typeorm'
import { Column, Entity, PrimaryColumn, PrimaryGeneratedColumn, TableInheritance, ChildEntity } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { DeclarationError } from '../../../src'
import { NumberWithin, numberWithinSchema, type NumberWithinOptions } from '../../../src/numbers'
import { useDatabase } from '../../support/database'
import { column, entity, numberWithin } from '../../support/entity'

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
  test('a scope that is no column', async () => {
    const NoScope = entity('NoScope', { number: numberWithin({ scope: ['tenant'] }) })
    await refused(
      async () => await db.dataSource([NoScope]),
      /@NumberWithin on NoScope.number: the scope names "tenant"/,
    )
  })

  test('a scope that may be NULL', async () => {
    const NullScope = entity('NullScope', {
      tenant: column('integer', { nullable: true }),
      number: numberWithin({ scope: ['tenant'] }),
    })
    await refused(async () => await db.dataSource([NullScope]), /must be NOT NULL/)
  })

  test('a column of another type', async () => {
    @Entity()
    class OtherType {
      @PrimaryGeneratedColumn('identity') id!: number
      @NumberWithin() @Column({ type: 'text' }) number!: string
    }
    await refused(async () => await db.dataSource([OtherType]), /must be of type integer, bigint or smallint/)
  })

  test('a start that its type cannot hold', async () => {
    @Entity()
    class FarStart {
      @PrimaryGeneratedColumn('identity') id!: number
      @NumberWithin({ start: 40_000 }) @Column({ type: 'smallint' }) number!: number
    }
    await refused(async () => await db.dataSource([FarStart]), /start is above the highest smallint/)
  })

  test('a number that may be NULL', async () => {
    @Entity()
    class NullNumber {
      @PrimaryGeneratedColumn('identity') id!: number
      @NumberWithin() @Column({ type: 'integer', nullable: true }) number!: number
    }
    await refused(async () => await db.dataSource([NullNumber]), /cannot be nullable/)
  })

  test('a number with a default', async () => {
    @Entity()
    class DefaultNumber {
      @PrimaryGeneratedColumn('identity') id!: number
      @NumberWithin() @Column({ type: 'integer', default: 7 }) number!: number
    }
    await refused(async () => await db.dataSource([DefaultNumber]), /given a default/)
  })

  test('a part of the primary key', async () => {
    @Entity()
    class KeyNumber {
      @PrimaryColumn({ type: 'integer' }) tenant!: number
      @NumberWithin({ scope: ['tenant'] }) @PrimaryColumn({ type: 'integer' }) number!: number
    }
    await refused(async () => await db.dataSource([KeyNumber]), /part of the primary key/)
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
