import { Column, type DataSource, Entity, JoinColumn, ManyToOne, PrimaryColumn, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { doctor } from '../../../src/doctor'
import { findHolder, Name, UniqueName } from '../../../src/names'
import { NumberWithin } from '../../../src/numbers'
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
  @NumberWithin({ scope: ['tenant'], citus: true }) number!: number
}

@Entity('member')
class Member extends OfTenant {
  @UniqueName({ namespace: 'members' }) handle!: string
}

const NEEDS_OPTION = "needs the option { citus: 'local' }"

describe.runIf(hasCitus)('a table that Citus keeps local, for its foreign key to a reference table', () => {
  const cluster = useCluster()
  let dataSource: DataSource

  beforeAll(async () => {
    dataSource = await cluster.dataSource([Tenant, Invoice, Member, Name])
    await dataSource.synchronize()
    await dataSource.query(`INSERT INTO tenant VALUES (1), (2), (3), (7); SELECT create_reference_table('tenant')`)
    const rows = await dataSource.query(`SELECT logicalrelid::text AS name FROM pg_dist_partition ORDER BY 1`)
    expect(rows).toStrictEqual([{ name: '"Odd  invoice 100%s"' }, { name: 'member' }, { name: 'tenant' }])
  }, 60_000)

  test('numbers its rows, from the first use on', async () => {
    const { manager } = dataSource
    const saved = await manager.save([1, 1, 2].map((tenant) => manager.create(Invoice, { tenant })))
    expect(saved.map(({ number }) => number)).toEqual([1, 2, 1])
    await manager.update(Invoice, { id: saved[2]?.id as number }, { tenant: 1 })
    expect(await manager.findOneBy(Invoice, { id: saved[2]?.id as number })).toMatchObject({ number: 3 })
    const { findings } = await doctor(dataSource, { entities: [Invoice] })
    expect(findings).toStrictEqual([])
  })

  test('numbers what a client inserts through a worker', async () => {
    const worker = await cluster.client(1)
    const { rows } = await worker.query(
      `INSERT INTO "Odd  invoice 100%s" (id, tenant) VALUES (1000, 7), (1001, 7) RETURNING number`,
    )
    expect(rows).toEqual([{ number: 1 }, { number: 2 }])
  })

  test('goes on with its numbers where the foreign key goes, and comes again', async () => {
    const { manager } = dataSource
    const save = async (): Promise<number> => (await manager.save(manager.create(Invoice, { tenant: 3 }))).number
    expect(await save()).toBe(1)
    const [{ name }] = await manager.query(
      `SELECT conname AS name FROM pg_constraint WHERE conrelid = '"Odd  invoice 100%s"'::regclass AND contype = 'f'`,
    )
    await manager.query(`ALTER TABLE "Odd  invoice 100%s" DROP CONSTRAINT "${name}"`)
    expect(await manager.query(`SELECT FROM pg_dist_partition WHERE logicalrelid::text LIKE '%invoice%'`)).toEqual([])
    expect(await save()).toBe(2)
    await manager.query(
      `ALTER TABLE "Odd  invoice 100%s" ADD CONSTRAINT "${name}" FOREIGN KEY (tenant) REFERENCES tenant`,
    )
    expect(await save()).toBe(3)
  })

  test('keeps no names that do not expect it: the first use, save and the doctor say so', async () => {
    const { manager } = dataSource
    await expect(findHolder(manager, 'members', 'ada')).rejects.toThrow(NEEDS_OPTION)
    await expect(manager.save(manager.create(Member, { tenant: 1, handle: 'ada' }))).rejects.toThrow(NEEDS_OPTION)
    const { findings } = await doctor(dataSource, { entities: [Member] })
    expect(findings).toStrictEqual([
      expect.objectContaining({ code: 'table.spread', detail: expect.stringContaining(NEEDS_OPTION) as string }),
    ])
  })
})
