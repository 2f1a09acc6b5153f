import { randomUUID } from 'node:crypto'
import { type DataSource, Entity, PrimaryColumn } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import {
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  HashCollisionError,
  ImmutableTextError,
  insertOrFail,
  TextTakenError,
  UniqueText,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { findOrCreateStream } from '../../../src/stream'
import { sha256 } from '../../../src/text/digest'
import { hasCitus, useCluster } from '../../support/citus'
import { citusPages } from '../../support/citus-pages'
import { gatePart } from '../../support/gate-part'
import { rejection } from '../../support/ledger'

const { ByScope, OneShard, OfTenant, ByHash } = citusPages({ digest: 'sha256', guard: false })

@Entity({ name: 'guarded' })
class Guarded {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @PrimaryColumn('int') shop!: number
  @UniqueText({ scope: ['shop'] }) url!: string
}

const entities = [ByHash, ByScope, OneShard, OfTenant, Guarded]

describe.runIf(hasCitus)('on a cluster that takes no triggers', () => {
  const cluster = useCluster()
  const nodes: DataSource[] = []

  beforeAll(async () => {
    for (const [node, url] of cluster.urls().entries()) {
      const name = decodeURIComponent(new URL(url).pathname.slice(1))
      const client = await cluster.client(node)
      await client.query('SET citus.enable_ddl_propagation = off')
      await client.query(`ALTER DATABASE ${name} SET citus.enable_unsafe_triggers = off`)
    }
    const coordinator = await cluster.dataSource(entities)
    await coordinator.query(`SET citus.enable_schema_based_sharding = on; CREATE SCHEMA tenant`)
    await coordinator.synchronize()
    await coordinator.query(`SELECT create_distributed_table('by_scope', 'shop')`)
    await coordinator.query(`SELECT create_distributed_table('one_shard', NULL)`)
    nodes.push(coordinator, await cluster.dataSource(entities, 1), await cluster.dataSource(entities, 2))
  }, 60_000)

  test('which refuses a table with a guard', async () => {
    const distributed = nodes[0]?.query(`SELECT create_distributed_table('guarded', 'shop')`)
    await expect(distributed).rejects.toThrow('because it has triggers')
  })

  test('migration:generate finds nothing to do', async () => {
    const { upQueries } = (await nodes[0]?.driver.createSchemaBuilder().log()) ?? {}
    expect(upQueries).toStrictEqual([])
  })

  const tables = [
    { entity: ByScope, title: 'distributed by its scope' },
    { entity: ByHash, title: 'distributed by its hash' },
    { entity: OneShard, title: 'of one shard' },
    { entity: OfTenant, title: 'in a schema for a tenant' },
  ]
  /** In the gate every other table is asked through a worker. */
  const places = gatePart(
    2,
    tables.flatMap((table, index) => [index % 2, (index + 1) % 2].map((node) => ({ ...table, node }))),
  )

  describe.each(places)('$title, through node $node', ({ entity, node }) => {
    const manager = (): DataSource['manager'] => (nodes[node] as DataSource).manager
    const row = (url: string, shop = node): { id: string; shop: number; url: string } => ({
      id: randomUUID(),
      shop,
      url,
    })
    const rows = (name: string, count: number): ReturnType<typeof row>[] =>
      Array.from({ length: count }, (_, index) => row(`${name} ${index % 15}`, 100 * node + (index % 5)))
    const keyOf = ({ id }: { id: string }): object => (entity === ByScope ? { id, shop: node } : { id })

    test('findOrCreate, findOrCreateMany and a stream create each text once', async () => {
      const one = row('one')
      expect((await findOrCreate(manager(), entity, one)).created).toBe(true)
      expect(await findOrCreate(manager(), entity, row('one'))).toMatchObject({
        created: false,
        entity: { id: one.id },
      })
      const given = rows('many', 30)
      const results = await findOrCreateMany(manager(), entity, given)
      expect(results.map((result) => 'entity' in result && result.entity.url)).toStrictEqual(
        given.map(({ url }) => url),
      )
      expect(results.filter((result) => 'entity' in result && result.created)).toHaveLength(15)
      const streamed = []
      for await (const result of findOrCreateStream(manager().connection, entity, rows('many', 30)))
        streamed.push('entity' in result && result.created)
      expect(streamed).toStrictEqual(given.map(() => false))
    })

    test('upsertByText, insertOrFail, save and insert send the hash', async () => {
      await upsertByText(manager(), entity, { ...row('upsert'), title: 'a' })
      const second = await upsertByText(manager(), entity, { ...row('upsert'), title: 'b' }, { update: ['title'] })
      expect(second).toMatchObject({ created: false, entity: { title: 'b' } })
      const list = await insertOrFail(manager(), entity, rows('list', 15))
      expect(list.map(({ url }) => url)).toStrictEqual(rows('list', 15).map(({ url }) => url))
      await manager().save(entity, row('saved'))
      await manager().insert(entity, row('inserted'))
      for (const url of ['saved', 'inserted'])
        expect(await findOneByText(manager(), entity, { shop: node, url })).toMatchObject({ url })
    })

    test('a taken text is told with its holder', async () => {
      const { id } = await insertOrFail(manager(), entity, row('taken'))
      for (const call of [
        async () => await insertOrFail(manager(), entity, row('taken')),
        async () => await manager().save(entity, row('taken')),
      ]) {
        const refused = await rejection(call())
        expect(refused).toBeInstanceOf(TextTakenError)
        expect((refused as TextTakenError).taken[0]?.id).toMatchObject({ id })
      }
    })

    test.skipIf(entity === ByHash)('a changed text gets its hash by updateOrFail, save and update', async () => {
      const changed = await insertOrFail(manager(), entity, row('change'))
      expect(await updateOrFail(manager(), entity, keyOf(changed), { url: 'first' })).toMatchObject({ url: 'first' })
      await manager().save(entity, { ...keyOf(changed), url: 'second' })
      await manager().update(entity, { shop: node, url: 'second' }, { url: 'third' })
      const found = await manager().findOneBy(entity, { shop: node, url: 'third' })
      expect(found?.id).toBe(changed.id)
    })

    test.runIf(entity === ByHash)('a text by whose hash the row lies there is not changed', async () => {
      const { id } = await insertOrFail(manager(), entity, row('stays'))
      for (const call of [
        async () => await updateOrFail(manager(), entity, { id }, { url: 'goes' }),
        async () => await manager().update(entity, { id }, { url: 'goes' }),
        async () => await manager().save(entity, { id, url: 'goes' }),
      ]) {
        await expect(call()).rejects.toBeInstanceOf(ImmutableTextError)
      }
    })

    test('a deleted row makes room, and one that is deleted softly holds its text', async () => {
      const { id } = await insertOrFail(manager(), entity, row('gone'))
      await manager().softDelete(entity, { shop: node, url: 'gone' })
      expect((await findOrCreate(manager(), entity, row('gone'))).entity.id).toBe(id)
      await manager().delete(entity, { shop: node, url: 'gone' })
      expect((await findOrCreate(manager(), entity, row('gone'))).created).toBe(true)
    })

    test('raw SQL sends the hash, or is refused', async () => {
      const { tablePath } = manager().connection.getMetadata(entity)
      const sql = `INSERT INTO ${tablePath} (id, shop, url) VALUES ($1, $2, 'raw')`
      const refused = await rejection(manager().query(sql, [randomUUID(), node]))
      // By the hash, Citus knows no shard without it.
      expect(['23502', '22004']).toContain(Reflect.get(Object(refused), 'code'))
      const whole = `INSERT INTO ${tablePath} (id, shop, url, "urlHash") VALUES ($1, $2, 'raw', $3)`
      const wrong = manager().query(whole, [randomUUID(), node, sha256.js('other')])
      await expect(wrong).rejects.toMatchObject({ code: '23514' })
      await manager().query(whole, [randomUUID(), node, sha256.js('raw')])
      expect((await findOrCreate(manager(), entity, row('raw'))).created).toBe(false)
    })
  })

  test('through all nodes at once each text is stored once', async () => {
    const random = (below: number): number => Math.floor(Math.random() * below)
    const row = (): { id: string; shop: number; url: string } => ({
      id: randomUUID(),
      shop: 7,
      url: `t${random(8)}`,
    })
    const strange: unknown[] = []
    const isLoss = (error: unknown): boolean =>
      ['TRANSACTION_ABORTED', '40001', '40P01', 'TEXT_TAKEN'].includes(String(Reflect.get(Object(error), 'code')))
    for (const { entity } of tables) {
      const { tablePath } = (nodes[0] as DataSource).getMetadata(entity)
      const client = async ({ manager }: DataSource): Promise<void> => {
        for (let step = 0; step < 30; step += 1) {
          const { shop, url } = row()
          const writes = [
            async () => await findOrCreateMany(manager, entity, [row(), row(), row()]),
            async () => await findOrCreate(manager, entity, row()),
            async () => await manager.save(entity, row()),
            async () => await manager.delete(entity, { shop, url }),
            async () => await manager.update(entity, { shop, url }, { url: row().url }),
          ]
          // By its hash the last one is refused.
          await writes[random(entity === ByHash ? 4 : 5)]?.().catch(
            (error: unknown) => isLoss(error) || strange.push(error),
          )
        }
      }
      await Promise.all([...nodes, ...nodes].map(client))
      const twice = await nodes[0]?.query(
        `SELECT url FROM ${tablePath} WHERE shop = 7 GROUP BY url HAVING count(*) > 1`,
      )
      expect(twice).toStrictEqual([])
    }
    expect(strange).toStrictEqual([])
  })

  test.each(tables)('another text of equal hash is refused, $title', async ({ entity }) => {
    const [{ manager }] = nodes as [DataSource]
    const { tablePath } = manager.connection.getMetadata(entity)
    const [check] = manager.connection.getMetadata(entity).checks
    await manager.query(`ALTER TABLE ${tablePath} DROP CONSTRAINT "${check?.name}"`)
    const forged = `INSERT INTO ${tablePath} (id, shop, url, "urlHash") VALUES ($1, 1, 'forged', $2)`
    await manager.query(forged, [randomUUID(), sha256.js('a')])
    const row = (url: string): object => ({ id: randomUUID(), shop: 1, url })
    for (const call of [
      async () => await findOrCreate(manager, entity, row('a') as never),
      async () => await insertOrFail(manager, entity, row('a')),
      async () => await manager.save(entity, row('a')),
    ]) {
      expect(await rejection(call())).toBeInstanceOf(HashCollisionError)
    }
    const results = await findOrCreateMany(manager, entity, [row('a'), row('b')] as never[])
    expect(results).toMatchObject([{ error: { code: 'HASH_COLLISION' } }, { created: true }])
  })
})
