import { Column, DeleteDateColumn, Entity, PrimaryColumn, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOrCreate, UniqueText } from '../../../src'
import { adopt, AdoptionError } from '../../../src/adopt'
import { doctor } from '../../../src/doctor'
import { Name, UniqueName } from '../../../src/names'
import { countWithin, NumberWithin } from '../../../src/numbers'
import { hasCitus, useCluster } from '../../support/citus'
import { migrate, generate, runAll } from '../../support/generated'

@Entity({ name: 'Odd  page -- of it' })
class OddPage {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column('int') shop!: number
  @UniqueText() url!: string
  @UniqueName({ namespace: 'of.pages', former: 'redirect' }) handle!: string
  @NumberWithin({ scope: ['shop'], count: true }) number!: number
  @DeleteDateColumn() deletedAt!: Date | null
}

class Row {
  @PrimaryColumn({ type: 'integer' }) shop!: number
  @PrimaryColumn({ type: 'integer' }) id!: number
}
@Entity('account')
class Account extends Row {
  @Column('text') handle!: string
}
@Entity('account')
class Named extends Row {
  @UniqueName({ namespace: 'handle' }) handle!: string
}
@Entity('account')
class Numbered extends Account {
  @NumberWithin({ scope: ['shop'], count: true }) number!: number
}
@Entity('account')
class Texted extends Row {
  @UniqueText({ scope: ['shop'] }) handle!: string
}
@Entity('local_account')
class LocalNamed {
  @PrimaryColumn({ type: 'integer' }) id!: number
  @UniqueName({ namespace: 'handle' }) handle!: string
}

// Citus deparses DDL of a database that it is installed in, whether or not a table is distributed.
describe.runIf(hasCitus)('where Citus is installed', () => {
  const cluster = useCluster()

  test('the migration of a text, a name and a counted number runs for a table whose name wants quotes', async () => {
    const dataSource = await cluster.dataSource([OddPage, Name])
    const { down } = await migrate(dataSource)
    expect((await generate(dataSource)).up).toEqual([])
    const { manager } = dataSource
    await findOrCreate(manager, OddPage, { url: 'a', handle: 'first', shop: 1 })
    await manager.save(OddPage, { url: 'b', handle: 'second', shop: 1 })
    expect(await manager.findOneBy(OddPage, { handle: 'second' })).toMatchObject({ url: 'b', number: 2 })
    expect(await countWithin(manager, OddPage, { shop: 1 })).toBe(2)
    await runAll(dataSource, down)
  })

  describe('a table that is distributed', () => {
    beforeAll(async () => {
      await migrate(await cluster.dataSource([Account]))
      await migrate(await cluster.dataSource([Name, LocalNamed]))
      const client = await cluster.client()
      await client.query(`select create_distributed_table('account', 'shop');
        insert into account select i % 2, i, 'handle ' || i from generate_series(1, 6) as i;
        insert into local_account values (1, 'local')`)
    })

    test.each([
      ['a name', [Named, LocalNamed, Name], 'handle'],
      ['a counted number', [Numbered], 'number'],
    ] as const)('with %s is a finding of the doctor', async (_, entities, property) => {
      const { findings } = await doctor(await cluster.dataSource([...entities]))
      // The table was made for another entity, without the look-up index of a name.
      const errors = findings.filter(({ severity, code }) => severity === 'error' && code !== 'index.missing')
      const next = expect.stringContaining('undistribute_table()') as string
      expect(errors).toEqual([
        expect.objectContaining({
          code: 'table.spread',
          entity: entities[0].name,
          detail: expect.stringContaining(`"${property}"`) as string,
          next,
        }),
      ])
    })

    test('is refused by adopt for a text, and nothing is changed', async () => {
      const dataSource = await cluster.dataSource([Texted])
      const error: unknown = await adopt(dataSource, Texted).catch((one: unknown) => one)
      expect(error).toBeInstanceOf(AdoptionError)
      expect(error).toMatchObject({ reason: 'unsupported', message: expect.stringContaining('undistribute_table()') })
      const { findings } = await doctor(dataSource, { entities: [Texted] })
      const codes = findings.map(({ code }) => code)
      expect(codes).not.toContain('adoption.unfinished')
      expect(codes).not.toContain('rows.unreadable')
    })

    test('that keeps the names is a finding too', async () => {
      const client = await cluster.client()
      await client.query(`delete from local_account; select create_reference_table('names')`)
      const { findings } = await doctor(await cluster.dataSource([LocalNamed, Name]))
      expect(findings.map(({ code, entity }) => [code, entity])).toContainEqual(['table.spread', 'Name'])
    })
  })
})
