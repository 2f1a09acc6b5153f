import { randomUUID } from 'node:crypto'
import { Column, DataSource, Entity, Like, PrimaryColumn } from 'typeorm'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, UniqueText } from '../../../src'
import { doctor } from '../../../src/doctor'
import { chainFaults, clusterScript } from '../../support/citus'
import { useServers } from '../../support/citus-servers'
import { fewHashes } from '../../support/digests'

const digest = fewHashes(5)

@Entity({ name: 'by_scope' })
class ByScope {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @PrimaryColumn('int') shop!: number
  @UniqueText({ scope: ['shop'], digest, maxChainLength: 1_000 }) url!: string
}

@Entity({ name: 'by_hash' })
class ByHash {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @Column('int') shop!: number
  @UniqueText({ scope: ['shop'], digest, maxChainLength: 1_000, spread: 'citus' }) url!: string
}

@Entity({ name: 'guardless' })
class Guardless {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @Column('int') shop!: number
  @UniqueText({ scope: ['shop'], digest: 'sha256', guard: false, spread: 'citus' }) url!: string
}

const entities = [ByScope, ByHash, Guardless]

const SHOPS = 12
const TEXTS = 8
const CLIENTS_PER_NODE = 2
/** Calls between one event and the next. */
const CALLS = 40

describe.runIf(clusterScript !== undefined)('a cluster whose servers are killed', () => {
  const servers = useServers()
  const nodes: DataSource[] = []
  const coordinator = (): DataSource => nodes[0] as DataSource

  beforeAll(async () => {
    for (const url of servers.urls())
      nodes.push(await new DataSource({ type: 'postgres', url, entities, poolSize: 4, logging: false }).initialize())
    await coordinator().synchronize()
    await coordinator().query(`SELECT create_distributed_table('by_scope', 'shop')`)
  }, 60_000)
  afterAll(async () => await Promise.all(nodes.map(async (node) => await node.destroy())))

  const forgetStandby = async (): Promise<void> => {
    await servers.query(0, 'ALTER SYSTEM RESET synchronous_standby_names')
  }
  /** What the coordinator of each transaction has decided is done on every node. */
  const recover = async (): Promise<void> => {
    await servers.start()
    await forgetStandby()
    await servers.query(0, 'SELECT pg_reload_conf()')
    for (const node of nodes.keys()) await servers.query(node, 'SELECT recover_prepared_transactions()')
  }
  const prepared = async (): Promise<number[]> =>
    await Promise.all(
      nodes.map(async (_, node) => (await servers.query(node, 'SELECT gid FROM pg_prepared_xacts')).length),
    )

  afterEach(async () => {
    await recover()
    expect(await prepared()).toStrictEqual([0, 0, 0])
    for (const { tableName } of coordinator().entityMetadatas)
      expect(await servers.query(0, chainFaults(tableName))).toStrictEqual([])
    expect((await doctor(coordinator())).findings.filter(({ severity }) => severity === 'error')).toStrictEqual([])
  }, 60_000)

  const row = (url: string, shop: number): { id: string; shop: number; url: string } => ({
    id: randomUUID(),
    shop,
    url,
  })
  /** In one transaction, of texts of several hashes and so on both workers. */
  const storeAll = async (entity: (typeof entities)[number], url: string): Promise<void> => {
    await coordinator().transaction(async (manager) => {
      for (let shop = 0; shop < SHOPS; shop += 1) await findOrCreate(manager, entity, row(`${url} ${shop}`, shop))
    })
  }
  const stored = async (entity: (typeof entities)[number], url: string): Promise<number> =>
    await coordinator().manager.countBy(entity, { url: Like(`${url} %`) })

  /** Commits wait for a standby that never comes: that of the coordinator when all others have prepared. */
  const holdCommits = async (): Promise<void> => {
    await servers.query(0, `ALTER SYSTEM SET synchronous_standby_names = 'nobody'`)
    await servers.query(0, 'SELECT pg_reload_conf()')
  }
  /** Until both workers have prepared, and the coordinator has decided; servers of their own wait as well. */
  const untilHeld = async (): Promise<void> => {
    for (;;) {
      const [, ...workers] = await prepared()
      const sql = `SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query ILIKE 'COMMIT%'`
      const held = await servers.query(0, sql)
      if (held.length > 0 && workers.every((count) => count > 0)) return
    }
  }

  describe.each([
    { name: 'by a hash', entity: ByHash },
    { name: 'without a guard', entity: Guardless },
  ])('$name, between PREPARE and COMMIT PREPARED', ({ entity }) => {
    test('a worker that is killed commits what it has prepared', async () => {
      await storeAll(entity, 'before')
      await holdCommits()
      const call = storeAll(entity, 'worker')
      await untilHeld()
      await servers.kill(1)
      await forgetStandby()
      await servers.query(0, 'SELECT pg_reload_conf()')
      await call
      await recover()
      expect(await stored(entity, 'worker')).toBe(SHOPS)
      // Who held it is found, and nothing is stored again.
      await storeAll(entity, 'worker')
      expect(await stored(entity, 'worker')).toBe(SHOPS)
    }, 120_000)

    test('a coordinator that is killed has decided, and the workers follow', async () => {
      await holdCommits()
      const call = storeAll(entity, 'coordinator').catch((error: unknown) => error)
      await untilHeld()
      await forgetStandby()
      await servers.kill(0)
      expect(await call).toBeInstanceOf(Error)
      await recover()
      expect(await stored(entity, 'coordinator')).toBe(SHOPS)
      await storeAll(entity, 'coordinator')
      expect(await stored(entity, 'coordinator')).toBe(SHOPS)
    }, 120_000)

    test('a worker that is killed before it prepares undoes all of it', async () => {
      const call = coordinator().transaction(async (manager) => {
        for (let shop = 0; shop < SHOPS; shop += 1) await findOrCreate(manager, entity, row(`undone ${shop}`, shop))
        await servers.kill(2)
      })
      expect(await call.catch((error: unknown) => error)).toBeInstanceOf(Error)
      await recover()
      expect(await stored(entity, 'undone')).toBe(0)
      await storeAll(entity, 'undone')
      expect(await stored(entity, 'undone')).toBe(SHOPS)
    }, 120_000)
  })

  /** Clients of all nodes that find or create, and what they were told. */
  class Load {
    readonly told = new Map<string, Set<string>>()
    calls = 0
    done = 0
    #over = false
    readonly #clients: Promise<void>[]

    constructor() {
      this.#clients = nodes.flatMap((node) =>
        Array.from({ length: CLIENTS_PER_NODE }, async () => await this.#client(node)),
      )
    }

    async #client({ manager }: DataSource): Promise<void> {
      const random = (below: number): number => Math.floor(Math.random() * below)
      while (!this.#over) {
        const entity = entities[random(entities.length)] ?? ByScope
        const one = (): ReturnType<typeof row> => row(`t${random(TEXTS)}`, random(SHOPS))
        const [shop, url] = [random(SHOPS), `gone ${random(TEXTS)}`]
        const call = [
          async () => this.#tell(entity.name, [(await findOrCreate(manager, entity, one())).entity]),
          async () => {
            const results = await findOrCreateMany(manager, entity, [one(), one(), one()])
            this.#tell(
              entity.name,
              results.flatMap((result) => ('entity' in result ? result.entity : [])),
            )
          },
          async () => {
            const found = await manager.transaction(async (inside) => [
              (await findOrCreate(inside, entity, one())).entity,
              (await findOrCreate(inside, entity, one())).entity,
            ])
            this.#tell(entity.name, found)
          },
          async () => await findOrCreate(manager, entity, row(url, shop)),
          async () => await manager.delete(entity, { shop, url }),
        ][random(5)]
        await call?.().then(
          () => (this.done += 1),
          () => {},
        )
        this.calls += 1
      }
    }

    /** Nobody deletes these. */
    #tell(entity: string, rows: readonly { readonly id: string; readonly shop: number; readonly url: string }[]): void {
      for (const { id, shop, url } of rows) {
        const key = `${entity} ${shop} ${url}`
        this.told.set(key, (this.told.get(key) ?? new Set()).add(id))
      }
    }

    /** So many calls have ended, or succeeded, since. */
    async until(what: 'calls' | 'done', more = CALLS): Promise<void> {
      const goal = this[what] + more
      while (this[what] < goal) await servers.query(0, 'SELECT').catch(() => {})
    }

    async end(): Promise<void> {
      this.#over = true
      await Promise.all(this.#clients)
    }
  }

  /** Every row that somebody was told of stands, and is the only one of its text. */
  const requireTold = async ({ told }: Load): Promise<void> => {
    for (const entity of entities) {
      const held = new Map(
        (await coordinator().manager.find(entity)).map(({ id, shop, url }) => [`${entity.name} ${shop} ${url}`, id]),
      )
      for (const [key, ids] of told)
        if (key.startsWith(`${entity.name} `)) expect([...ids]).toStrictEqual([held.get(key)])
    }
    expect(told.size).toBeGreaterThan(SHOPS)
  }

  test.each([
    ['a worker', 1],
    ['the coordinator', 0],
  ])(
    'under load %s is killed twice, and what was told stands',
    async (_, node) => {
      const load = new Load()
      for (let round = 0; round < 2; round += 1) {
        await load.until('done')
        await servers.kill(node)
        await load.until('calls', CALLS / 2)
        await servers.start()
      }
      await load.until('done')
      await load.end()
      await recover()
      await requireTold(load)
    },
    240_000,
  )

  test('shards that move under load take their triggers along, and what was told stands', async () => {
    const load = new Load()
    const shards = await servers.query<{ id: string; from: number; to: number }>(
      0,
      `SELECT min(s.shardid) AS id, s.nodeport AS from, w.nodeport AS to FROM citus_shards AS s
        JOIN pg_dist_node AS w ON w.nodeport <> s.nodeport AND w.groupid <> 0
       WHERE s.table_name::text IN ('by_scope', 'by_hash', 'guardless') GROUP BY s.table_name, s.nodeport, w.nodeport`,
    )
    for (const { id, from, to } of shards) {
      await load.until('done', CALLS / 4)
      await servers.query(
        0,
        `SELECT citus_move_shard_placement(${id}, '127.0.0.1', ${from}, '127.0.0.1', ${to}, 'force_logical')`,
      )
    }
    expect(shards.length).toBeGreaterThanOrEqual(4)
    await load.until('done')
    await load.end()
    await requireTold(load)
  }, 240_000)
})
