import { randomUUID } from 'node:crypto'
import type { Client } from 'pg'
import { Column, DataSource, Entity, type EntityManager, PrimaryColumn } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import {
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  updateOrFail,
  UniqueText,
  upsertByText,
} from '../../../src'
import { findOrCreateStream } from '../../../src/stream'
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

  test('a statement whose plan is kept survives it', async () => {
    // A single connection, and more new rows than it takes for a call to insert without a look.
    const { manager } = await cluster.dataSource([ByShop], 0, { poolSize: 1 })
    await manager.query('TRUNCATE by_shop')
    const lists = async (name: string): Promise<void> => {
      const rows = (way: string) => [row(`${name} ${way} 1`), row(`${name} ${way} 2`)]
      const results = [
        ...(await findOrCreateMany(manager, ByShop, rows('found'))),
        ...(await upsertByText(manager, ByShop, rows('upserted'))),
      ]
      expect(results.map((one) => 'created' in one && one.created)).toEqual([true, true, true, true])
    }
    for (let index = 0; index < 80; index += 1) await findOrCreate(manager, ByShop, row(`${index}`))
    for (let index = 0; index < 10; index += 1) await lists(`${index}`)
    await manager.query(`SELECT create_distributed_table('by_shop', 'shop')`)
    expect(await findOrCreate(manager, ByShop, row('next'))).toMatchObject({ created: true, entity: { url: 'next' } })
    await lists('next')
    await manager.query(`SELECT undistribute_table('by_shop')`)
  })

  test("0A000 of a user's trigger is the error of its row", async () => {
    const { manager } = dataSource
    await manager.query(`TRUNCATE by_shop;
      CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '0A000'; END $$;
      CREATE TRIGGER refuse BEFORE INSERT ON by_shop FOR EACH ROW WHEN (NEW.title = 'no') EXECUTE FUNCTION refuse()`)
    const results = await findOrCreateMany(manager, ByShop, [{ ...row('a'), title: 'no' }, row('b')])
    expect(results).toMatchObject([{ error: { code: '0A000' } }, { created: true }])
    await manager.query('DROP FUNCTION refuse() CASCADE')
  })
})

type Row = ByShop | ByHash

const row = (url: string): Pick<Row, 'id' | 'shop' | 'url'> => ({ id: randomUUID(), shop: 1, url })

/** Each creates a text and then meets it, by a call of its own. */
const OPERATIONS: Readonly<Record<string, (manager: EntityManager, url: string) => Promise<unknown>>> = {
  findOrCreate: async (manager, url) => {
    expect((await findOrCreate(manager, ByShop, row(url))).created).toBe(true)
    expect((await findOrCreate(manager, ByShop, row(url))).created).toBe(false)
  },
  'findOrCreate at once': async (manager, url) => {
    const calls = Array.from({ length: 24 }, (_, index) => findOrCreate(manager, ByShop, row(`${url} ${index % 12}`)))
    expect((await Promise.all(calls)).filter(({ created }) => created)).toHaveLength(12)
  },
  findOrCreateMany: async (manager, url) => {
    const rows = [1, 2, 3, 4, 5].map((one) => row(`${url} ${one}`))
    const created = [true, false].map((one) => rows.map(() => one))
    const told = []
    for (const _ of created)
      told.push(
        (await findOrCreateMany(manager, ByShop, rows)).map((one) => ('entity' in one ? one.created : one.error)),
      )
    expect(told).toStrictEqual(created)
  },
  stream: async (manager, url) => {
    const told = []
    for await (const one of findOrCreateStream(
      manager.connection,
      ByShop,
      [1, 2, 1].map((n) => row(`${url} ${n}`)),
    ))
      told.push('entity' in one ? one.created : one.error)
    expect(told).toStrictEqual([true, true, false])
  },
  upsertByText: async (manager, url) => {
    for (const title of ['a', 'b']) {
      const { entity } = await upsertByText(manager, ByShop, { ...row(url), title }, { update: ['title'] })
      expect(entity.title).toBe(title)
    }
  },
  'upsertByText of many': async (manager, url) => {
    for (const title of ['a', 'b']) {
      const rows = [1, 2].map((one) => ({ ...row(`${url} ${one}`), title }))
      const given = await upsertByText(manager, ByShop, rows, { update: ['title'] })
      expect(given.map((one) => ('entity' in one ? one.entity.title : one.error))).toStrictEqual([title, title])
    }
  },
  insertOrFail: async (manager, url) => {
    await insertOrFail(manager, ByShop, [row(url), row(`${url} 2`)])
    await expect(insertOrFail(manager, ByShop, row(url))).rejects.toMatchObject({ code: 'TEXT_TAKEN' })
  },
  updateOrFail: async (manager, url) => {
    const { id } = await manager.save(ByShop, row(url))
    await updateOrFail(manager, ByShop, { id, shop: 1 }, { url: `${url} 2` })
    expect(await findOneByText(manager, ByShop, { shop: 1, url: `${url} 2` })).toMatchObject({ id })
    expect(await manager.findOneBy(ByShop, { shop: 1, url })).toBeNull()
  },
  save: async (manager, url) => {
    await manager.save([1, 2, 3].map((one) => manager.create(ByShop, row(`${url} ${one}`))))
    await expect(manager.save(ByShop, row(`${url} 1`))).rejects.toMatchObject({ code: 'TEXT_TAKEN' })
  },
}

describe.runIf(hasCitus)('an instance goes on while its table', () => {
  const cluster = useCluster()
  const managers = new Map<string, EntityManager>()
  let client: Client

  beforeAll(async () => {
    const first = await cluster.dataSource([ByShop])
    await first.synchronize()
    client = await cluster.client()
    await client.query(`CREATE TABLE shop (id int PRIMARY KEY); INSERT INTO shop VALUES (1);
      SELECT create_reference_table('shop')`)
    for (const [name, run] of Object.entries(OPERATIONS)) {
      const { manager } = await cluster.dataSource([ByShop])
      await run(manager, `${name} at first`)
      managers.set(name, manager)
    }
  }, 60_000)

  const MOVES = [
    ['is distributed', `SELECT create_distributed_table('by_shop', 'shop')`],
    ['is undistributed', `SELECT undistribute_table('by_shop')`],
    ['is put in one shard', `SELECT create_distributed_table('by_shop', NULL)`],
    ['comes back', `SELECT undistribute_table('by_shop')`],
    ['is kept local', `ALTER TABLE by_shop ADD CONSTRAINT fk FOREIGN KEY (shop) REFERENCES shop`],
  ] as const

  describe.each(MOVES)('%s', (title, sql) => {
    beforeAll(async () => {
      await client.query(sql)
    }, 60_000)

    test.each(Object.entries(OPERATIONS))('%s', async (name, run) => {
      const manager = managers.get(name) as EntityManager
      await run(manager, `${name} ${title}`)
      expect(await client.query(chainFaults('by_shop'))).toMatchObject({ rows: [] })
    })
  })
})
