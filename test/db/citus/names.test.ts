import { Column, DeleteDateColumn, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { findOrCreate, UniqueText } from '../../../src'
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
})
