import { randomUUID } from 'node:crypto'
import { Column, DataSource, Entity, PrimaryColumn } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOneByText, findOrCreate, UniqueText } from '../../../src'
import { chainFaults, hasCitus, useCluster } from '../../support/citus'
import { STEVENS } from '../../support/md5-collisions'

@Entity({ name: 'by_shop' })
class ByShop {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @PrimaryColumn('int') shop!: number
  @Column('text', { nullable: true }) title?: string | null
  @UniqueText({ scope: ['shop'] }) url!: string
}

@Entity({ name: 'by_hash' })
class ByHash {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @Column('int') shop!: number
  @UniqueText({ scope: ['shop'], spread: 'hash' }) url!: string
}

/** The key holds the hash, as for a table that is partitioned by it. */
const hashed = { entity: ByHash, table: 'by_hash', column: 'urlHash' }

describe.runIf(hasCitus)('a table in use gets to a cluster, and back', () => {
  const cluster = useCluster()
  let dataSource: DataSource

  beforeAll(async () => {
    dataSource = await cluster.dataSource([ByShop, ByHash])
    await dataSource.synchronize()
  }, 60_000)

  test.each([{ entity: ByShop, table: 'by_shop', column: 'shop' }, hashed, { ...hashed, column: null }])(
    '$table by $column, with two texts of equal MD5 and the anchor behind its member',
    async ({ entity, table, column }) => {
      const { manager } = dataSource
      await manager.query(`TRUNCATE ${table}`)
      for (const url of [...STEVENS, 'other']) await findOrCreate(manager, entity, { id: randomUUID(), shop: 1, url })
      const rows = (): Promise<{ url: string }[]> => manager.query(`SELECT url FROM ${table}`)
      const before = await rows()
      expect(before.map(({ url }) => url)).not.toStrictEqual([...STEVENS, 'other'])
      await manager.query(`SELECT create_distributed_table($1::regclass, $2)`, [table, column])
      const urls = async (): Promise<string[]> => (await rows()).map(({ url }) => url).toSorted()
      expect(await urls()).toStrictEqual(before.map(({ url }) => url).toSorted())
      expect(await manager.query(chainFaults(table))).toStrictEqual([])
      await manager.query(`SELECT undistribute_table($1::regclass)`, [table])
      expect(await urls()).toStrictEqual(before.map(({ url }) => url).toSorted())
      expect(await manager.query(chainFaults(table))).toStrictEqual([])
      const again = await cluster.dataSource([entity])
      for (const url of STEVENS)
        expect(await findOneByText(again.manager, entity, { shop: 1, url })).toMatchObject({ url })
    },
  )
})
