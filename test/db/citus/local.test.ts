import {
  Column,
  type DataSource,
  DeleteDateColumn,
  Entity,
  JoinColumn,
  ManyToOne,
  PrimaryColumn,
  PrimaryGeneratedColumn,
} from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { doctor } from '../../../src/doctor'
import { findHolder, Name, UniqueName } from '../../../src/names'
import { countWithin, NumberWithin } from '../../../src/numbers'
import { hasCitus, useCluster } from '../../support/citus'

@Entity('tenant')
class Tenant {
  @PrimaryColumn('int') id!: number
}

class OfTenant {
  @PrimaryGeneratedColumn() id!: number
  @Column('int') tenant!: number
  @ManyToOne(() => Tenant) @JoinColumn({ name: 'tenant' }) of?: Tenant
}

@Entity('Odd  invoice 100%s')
class Invoice extends OfTenant {
  @NumberWithin({ scope: ['tenant'], count: true }) number!: number
  @DeleteDateColumn() deletedAt!: Date | null
}

@Entity('member')
class Member extends OfTenant {
  @UniqueName({ namespace: 'members' }) handle!: string
}

const TABLE_ONLY = 'is kept by triggers that know one table, without shards or partitions'

describe.runIf(hasCitus)('a table that Citus keeps local, for its foreign key to a reference table', () => {
  const cluster = useCluster()
  let dataSource: DataSource

  beforeAll(async () => {
    dataSource = await cluster.dataSource([Tenant, Invoice, Member, Name])
    await dataSource.synchronize()
    await dataSource.query(`INSERT INTO tenant VALUES (1), (2); SELECT create_reference_table('tenant')`)
    const rows = await dataSource.query(`SELECT logicalrelid::text AS name FROM pg_dist_partition ORDER BY 1`)
    expect(rows).toStrictEqual([{ name: '"Odd  invoice 100%s"' }, { name: 'member' }, { name: 'tenant' }])
  }, 60_000)

  test('keeps no numbers: save and the doctor say so', async () => {
    const { manager } = dataSource
    await expect(manager.save(manager.create(Invoice, { tenant: 1 }))).rejects.toThrow(TABLE_ONLY)
    await expect(countWithin(manager, Invoice, { tenant: 1 })).rejects.toThrow(TABLE_ONLY)
    const { findings } = await doctor(dataSource, { entities: [Invoice] })
    expect(findings.filter(({ code }) => code === 'table.spread')).toStrictEqual([
      expect.objectContaining({ detail: expect.stringContaining(TABLE_ONLY) as string }),
    ])
  })

  test('keeps no names: the first use, save and the doctor say so', async () => {
    const { manager } = dataSource
    await expect(findHolder(manager, 'members', 'ada')).rejects.toThrow(TABLE_ONLY)
    await expect(manager.save(manager.create(Member, { tenant: 1, handle: 'ada' }))).rejects.toThrow(TABLE_ONLY)
    const { findings } = await doctor(dataSource, { entities: [Member] })
    expect(findings).toStrictEqual([
      expect.objectContaining({ code: 'table.spread', detail: expect.stringContaining(TABLE_ONLY) as string }),
    ])
  })
})
