import { randomUUID } from 'node:crypto'
import { Column, type DataSource, Entity, PrimaryColumn } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, TransactionAbortedError, UniqueText } from '../../../src'
import { fewHashes } from '../../support/digests'
import { chainFaults, hasCitus, useCluster } from '../../support/citus'
import { gatePart } from '../../support/gate-part'

const digest = fewHashes(3)
const TEXTS = 12
const CLIENTS_PER_NODE = 3
const STEPS = 40

@Entity({ name: 'by_hash' })
class ByHash {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @Column('int') shop!: number
  @UniqueText({ scope: ['shop'], digest, spread: 'citus' }) url!: string
}

@Entity({ name: 'by_scope' })
class ByScope {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @PrimaryColumn('int') shop!: number
  @UniqueText({ scope: ['shop'], digest }) url!: string
}

describe.runIf(hasCitus)('through all nodes at once', () => {
  const cluster = useCluster()
  const nodes: DataSource[] = []

  beforeAll(async () => {
    const coordinator = await cluster.dataSource([ByHash, ByScope])
    await coordinator.synchronize()
    await coordinator.query(`SELECT create_distributed_table('by_scope', 'shop')`)
    nodes.push(
      coordinator,
      await cluster.dataSource([ByHash, ByScope], 1),
      await cluster.dataSource([ByHash, ByScope], 2),
    )
  }, 60_000)

  const levels = ['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'] as const
  const cases = [ByHash, ByScope].flatMap((entity) => levels.map((level) => ({ entity, level, name: entity.name })))

  test.each(gatePart(2, cases))(
    '$name at $level holds no text twice, and no chain without its anchor',
    async ({ entity, level }) => {
      const random = (below: number): number => Math.floor(Math.random() * below)
      const row = (): { id: string; shop: number; url: string } => ({
        id: randomUUID(),
        shop: random(2),
        url: `t${random(TEXTS)}`,
      })
      const step = async ({ manager }: DataSource): Promise<void> => {
        const { shop, url } = row()
        const kind = random(4)
        if (kind === 0) await manager.delete(entity, { shop, url })
        else if (kind === 1) await findOrCreateMany(manager, entity, Array.from({ length: 5 }, row))
        else if (kind === 2) await manager.save(entity, row())
        else {
          await manager.transaction(level, async (inside) => {
            await findOrCreate(inside, entity, row())
            await inside.delete(entity, { shop, url })
            await findOrCreate(inside, entity, row())
          })
        }
      }
      /** What a loser of a race is told. */
      const isLoss = (error: unknown): boolean =>
        error instanceof TransactionAbortedError ||
        ['40001', '40P01', '23505', 'TEXT_TAKEN', 'ATTEMPTS_EXHAUSTED'].includes(
          String(Reflect.get(Object(error), 'code')),
        )
      /** So Citus tells of a transaction that SERIALIZABLE refuses at its COMMIT on another node. */
      const isLostCommit = (error: unknown): boolean =>
        level === 'SERIALIZABLE' && Reflect.get(Object(error), 'routine') === 'ErrorIfPostCommitFailedShardPlacements'
      const strange: unknown[] = []
      const client = async (node: DataSource): Promise<void> => {
        for (let count = 0; count < STEPS; count += 1) {
          await step(node).catch((error: unknown) => isLoss(error) || isLostCommit(error) || strange.push(error))
        }
      }
      await Promise.all(nodes.flatMap((node) => Array.from({ length: CLIENTS_PER_NODE }, () => client(node))))
      expect(strange).toStrictEqual([])
      const { tablePath } = (nodes[0] as DataSource).getMetadata(entity)
      expect(await nodes[0]?.query(chainFaults(tablePath))).toStrictEqual([])
    },
    60_000,
  )

  test('a guard that sets the hash where it should compare it stores a text twice, and the check sees it', async () => {
    const [coordinator] = nodes as [DataSource]
    await coordinator.query('DELETE FROM by_hash')
    const [{ definition }] = await coordinator.query(
      `SELECT pg_get_functiondef(p.oid) AS definition FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid
        WHERE t.tgrelid = 'by_hash'::regclass AND t.tgname LIKE '%place_insert'`,
    )
    const naive = definition.replace(/IF \(NEW\."urlHash"[^]*?END IF;/u, `NEW."urlHash" := ${digest.sql('NEW.url')};`)
    expect(naive).not.toBe(definition)
    const texts = Array.from({ length: TEXTS }, (_, index) => `t${index}`)
    const far = texts.filter((text) => digest.js(text) !== digest.js('t0'))
    const insert = `INSERT INTO by_hash (id, shop, url, "urlHash", "urlHashNumber") VALUES ($1, 1, 't0', $2, NULL)`
    const all = [...new Set([digest.js('t0'), ...far.map(digest.js)])]
    const store = async (): Promise<unknown[]> => {
      const errors: unknown[] = []
      for (const hash of all) {
        await coordinator.query(insert, [randomUUID(), hash]).catch((error: unknown) => errors.push(error))
      }
      return errors
    }
    expect(await store()).toHaveLength(all.length - 1)
    expect(await coordinator.query(chainFaults('by_hash'))).toStrictEqual([])
    await coordinator.query(naive)
    try {
      await store()
      expect(await coordinator.query(chainFaults('by_hash'))).not.toStrictEqual([])
    } finally {
      await coordinator.query(definition)
      await coordinator.query('DELETE FROM by_hash')
    }
    expect(await store()).toHaveLength(all.length - 1)
  })

  test('the check sees a text twice that came past the guard', async () => {
    const [coordinator] = nodes as [DataSource]
    await coordinator.query('DELETE FROM by_scope')
    await coordinator.query('ALTER TABLE by_scope DISABLE TRIGGER ALL')
    const insert = 'INSERT INTO by_scope (id, shop, url, "urlHash", "urlHashNumber") VALUES ($1, 1, $2, $3, $4)'
    for (const number of [0, 1]) await coordinator.query(insert, [randomUUID(), 'a', digest.js('a'), number])
    await coordinator.query('ALTER TABLE by_scope ENABLE TRIGGER ALL')
    expect(await coordinator.query(chainFaults('by_scope'))).toHaveLength(1)
  })
})
