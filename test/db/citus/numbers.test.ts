import { randomUUID } from 'node:crypto'
import type { Client } from 'pg'
import { Column, type DataSource, Entity, PrimaryColumn } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, insertOrFail, SchemaDriftError, UniqueText } from '../../../src'
import { doctor } from '../../../src/doctor'
import { NumberWithin } from '../../../src/numbers'
import { serverError } from '../../../src/sql/sqlstate'
import { untilBlocked } from '../../support/blocked'
import { hasCitus, useCluster } from '../../support/citus'
import { rejection } from '../../support/ledger'
import { numberOf } from '../../../src/numbers/sql/declared'
import { numberTable, scopesWithGaps } from '../../support/numbered-table'

const inShards = numberTable({ citus: true })

/** `comment`, without an identity: Citus does not undistribute one. */
async function create(client: Client): Promise<void> {
  await client.query(`create table comment (tenant integer not null, number integer not null,
    "deletedAt" timestamptz, id uuid not null default gen_random_uuid(), primary key (tenant, id));
    create unique index comment_number on comment (tenant, number)`)
  for (const statement of numberOf(inShards).create) await client.query(statement)
}

const DISTRIBUTE = `select create_distributed_table('comment', 'tenant')`

/** The same, distributed by the tenant. */
async function distribute(client: Client): Promise<void> {
  await create(client)
  await client.query(DISTRIBUTE)
}

const drop = async (client: Client): Promise<void> => {
  await client.query('drop table if exists comment cascade')
  // Shards that were moved away still have the triggers.
  await client.query('call citus_cleanup_orphaned_resources()')
}

const insert = (tenant: number, rows = 1): string =>
  `insert into comment (tenant) select ${tenant} from generate_series(1, ${rows}) returning number`

describe.runIf(hasCitus)('on a table that is distributed by a column of the scope', () => {
  const cluster = useCluster()
  const nodes: Client[] = []
  const numbers = async (client: Client, sql: string): Promise<number[]> =>
    (await client.query<{ number: number }>(sql)).rows.map(({ number }) => number)
  /** A worker's observer, on which the sessions of the others wait. */
  const blocked = async (): Promise<void> => {
    const [, first, second] = nodes as [Client, Client, Client]
    await Promise.race([untilBlocked(first), untilBlocked(second)])
  }

  beforeAll(async () => {
    for (const node of [0, 1, 2]) nodes.push(await cluster.client(node))
  }, 60_000)

  test('all nodes number rows, given numbers stay', async () => {
    const [coordinator, worker, other] = nodes as [Client, Client, Client]
    await drop(coordinator)
    await distribute(coordinator)
    expect(await numbers(coordinator, insert(1, 2))).toEqual([1, 2])
    expect(await numbers(worker, insert(1))).toEqual([3])
    expect(await numbers(other, insert(1, 2))).toEqual([4, 5])
    await other.query('insert into comment (tenant, number) values (1, 9)')
    expect(await numbers(coordinator, insert(1))).toEqual([10])
    await worker.query('truncate comment')
    expect(await numbers(worker, insert(1))).toEqual([1])
  })

  test('a statement of 20,000 scopes takes one lock in each shard', async () => {
    const [coordinator, worker] = nodes as [Client, Client]
    await drop(coordinator)
    await distribute(coordinator)
    const bulk = 'insert into comment (tenant) select n from generate_series(1, 20000) as n'
    await coordinator.query(bulk)
    await worker.query(bulk)
    const { rows } = await coordinator.query('select number, count(*)::int as n from comment group by 1 order by 1')
    expect(rows).toEqual([
      { number: 1, n: 20_000 },
      { number: 2, n: 20_000 },
    ])
  }, 60_000)

  test('a column that is renamed, and another of its name, are refused', async () => {
    const [coordinator] = nodes as [Client]
    await drop(coordinator)
    await distribute(coordinator)
    await coordinator.query('alter table comment rename number to was')
    await coordinator.query('alter table comment add number integer')
    await expect(coordinator.query('insert into comment (tenant, was) values (1, 3)')).rejects.toMatchObject({
      code: '55000',
    })
  })

  test.each([
    ['commits', 'commit', [4]],
    ['gives up', 'rollback', [3]],
  ])('an insert through another node waits, and is next when the first one %s', async (_, end, expected) => {
    const [coordinator, worker] = [await cluster.client(), await cluster.client(1)]
    await drop(coordinator)
    await distribute(coordinator)
    await coordinator.query(insert(1, 2))
    await coordinator.query('begin')
    expect(await numbers(coordinator, insert(1))).toEqual([3])
    const waits = numbers(worker, insert(1))
    await blocked()
    await coordinator.query(end)
    expect(await waits).toEqual(expected)
  })

  test('two begin a scope at once, from two nodes', async () => {
    const [first, second] = [await cluster.client(1), await cluster.client(2)]
    await drop(nodes[0] as Client)
    await distribute(nodes[0] as Client)
    await first.query('begin')
    expect(await numbers(first, insert(5))).toEqual([1])
    const waits = numbers(second, insert(5))
    await blocked()
    await first.query('commit')
    expect(await waits).toEqual([2])
  })

  test('two that insert into two scopes in opposite order deadlock, and one gets through', async () => {
    const [first, second] = [await cluster.client(), await cluster.client(2)]
    await drop(nodes[0] as Client)
    await distribute(nodes[0] as Client)
    for (const client of [first, second]) await client.query('begin')
    await first.query(insert(1))
    await second.query(insert(2))
    const outcomes = await Promise.allSettled([first.query(insert(2)), second.query(insert(1))])
    const codes = outcomes.map((one) => (one.status === 'rejected' ? serverError(one.reason)?.code : 'ok'))
    expect(new Set(codes)).toEqual(new Set(['40P01', 'ok']))
    for (const client of [first, second]) await client.query('commit')
    expect(await scopesWithGaps(nodes[0] as Client, numberTable())).toBe(0)
  }, 60_000)

  test('the number of an older snapshot is refused', async () => {
    const [first, second] = [await cluster.client(), await cluster.client(2)]
    await drop(nodes[0] as Client)
    await distribute(nodes[0] as Client)
    await second.query(insert(1, 2))
    await first.query('begin isolation level repeatable read')
    await first.query('select from comment where tenant = 1')
    await second.query(insert(1))
    const lost: unknown = await first.query(insert(1)).then(
      () => 'ok',
      (error: unknown) => serverError(error)?.code,
    )
    expect(lost).toBe('23505')
    await first.query('rollback')
    expect(await numbers(first, insert(1))).toEqual([4])
  })

  test('the numbers go on where the table is undistributed', async () => {
    const [coordinator] = nodes as [Client]
    await drop(coordinator)
    await distribute(coordinator)
    await coordinator.query(insert(1))
    await coordinator.query(`select undistribute_table('comment')`)
    expect(await numbers(coordinator, insert(1))).toEqual([2])
    await coordinator.query(DISTRIBUTE)
    expect(await numbers(coordinator, insert(1))).toEqual([3])
  })
})

/** Every client takes its turns, until all are done and all moves are made. */
async function storm(
  clients: readonly Client[],
  turn: (client: Client, round: number) => Promise<unknown>,
): Promise<string[]> {
  const errors: string[] = []
  await Promise.all(
    clients.map(async (client) => {
      for (let round = 0; round < 20; round++) {
        try {
          await turn(client, round)
        } catch (error) {
          errors.push(serverError(error)?.code ?? String(error))
          await client.query('rollback')
        }
      }
    }),
  )
  return errors
}

describe.runIf(hasCitus)('20 clients over all nodes', () => {
  const cluster = useCluster()
  let clients: Client[]
  let mover: Client

  beforeAll(async () => {
    mover = await cluster.client()
    clients = await Promise.all(Array.from({ length: 20 }, (_, index) => cluster.client(index % 3)))
  }, 60_000)

  const turn = async (client: Client, round: number): Promise<void> => {
    await client.query('begin')
    await client.query(insert(1 + (round % 4), 1 + (round % 3)))
    await client.query(round % 5 === 4 ? 'rollback' : 'commit')
  }

  test('leave numbers 1 to n while shards move', async () => {
    await drop(mover)
    await distribute(mover)
    const moves = async (): Promise<void> => {
      for (let moved = 0; moved < 6; moved++) {
        const { rows } = await mover.query<{ shard: string; host: string; from: number; to: number }>(
          `select p.shardid as shard, n.nodename as host, n.nodeport as from, o.nodeport as to
             from pg_dist_placement as p join pg_dist_node as n using (groupid)
             join pg_dist_node as o on o.groupid not in (0, n.groupid)
            where p.shardid = get_shard_id_for_distribution_column('comment', $1::int)`,
          [1 + (moved % 4)],
        )
        const [{ shard, host, from, to }] = rows as [(typeof rows)[number]]
        await mover.query(`select citus_move_shard_placement($1::bigint, $2::text, $3, $2, $4, 'block_writes')`, [
          shard,
          host,
          from,
          to,
        ])
      }
    }
    const [errors] = await Promise.all([storm(clients, turn), moves()])
    expect(errors).toEqual([])
    expect(await scopesWithGaps(mover, numberTable())).toBe(0)
    const { rows } = await mover.query('select count(*)::int as rows from comment')
    expect(rows).toEqual([{ rows: 20 * 31 }])
  }, 300_000)
})

@Entity('ticket')
class Ticket {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @PrimaryColumn('int') shop!: number
  @UniqueText({ scope: ['shop'] }) title!: string
  @NumberWithin({ scope: ['shop'], citus: true }) number!: number
}

@Entity('parcel')
class Parcel {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @Column('int', { name: '100%s shop' }) shop!: number
  @NumberWithin({ scope: ['shop'], citus: true }) number!: number
  @NumberWithin({ citus: true }) total!: number
}

@Entity('copied')
class Copied {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @PrimaryColumn('int') shop!: number
  @NumberWithin({ scope: ['shop'], citus: true }) number!: number
}

/** Of one name in every call. */
function memo({ url = {}, number }: { readonly url?: object; readonly number?: null }): new () => object {
  class Memo {
    id!: string
    shop!: number
    url!: string
    number!: number
  }
  PrimaryColumn('uuid')(Memo.prototype, 'id')
  PrimaryColumn('int')(Memo.prototype, 'shop')
  UniqueText({ scope: ['shop'], ...url })(Memo.prototype, 'url')
  if (number !== null) NumberWithin({ scope: ['shop'], citus: true })(Memo.prototype, 'number')
  Entity('memo')(Memo)
  return Memo
}

describe.runIf(hasCitus)('an entity with a number', () => {
  const cluster = useCluster()
  let coordinator: DataSource

  beforeAll(async () => {
    coordinator = await cluster.dataSource([Ticket, Parcel])
    await coordinator.synchronize()
  }, 60_000)

  test('has no finding of the doctor once it is distributed', async () => {
    const { manager } = coordinator
    expect(await manager.save(manager.create(Ticket, { shop: 1, title: 'first' }))).toMatchObject({ number: 1 })
    await manager.query(`SELECT create_distributed_table('ticket', 'shop')`)
    expect((await doctor(coordinator, { entities: [Ticket] })).findings).toEqual([])
    expect(await manager.save(manager.create(Ticket, { shop: 1, title: 'second' }))).toMatchObject({ number: 2 })
  })

  test.each([0, 1, 2])('is numbered by every call through node %i', async (node) => {
    const { manager } = await cluster.dataSource([Ticket], node)
    const shop = 10 + node
    const ticket = (title: string): Ticket => manager.create(Ticket, { shop, title })
    expect(await manager.save(ticket('a'))).toMatchObject({ number: 1 })
    const saved = await manager.save([ticket('b'), ticket('c')])
    expect(saved.map(({ number }) => number)).toEqual([2, 3])
    expect((await findOrCreate(manager, Ticket, { id: randomUUID(), shop, title: 'd' })).entity).toMatchObject({
      number: 4,
    })
    expect((await findOrCreate(manager, Ticket, { id: randomUUID(), shop, title: 'a' })).entity).toMatchObject({
      number: 1,
    })
    const many = await findOrCreateMany(
      manager,
      Ticket,
      ['e', 'f', 'g'].map((title) => ({ id: randomUUID(), shop, title })),
    )
    expect(new Set(many.map((one) => ('entity' in one ? one.entity.number : one.error)))).toEqual(new Set([5, 6, 7]))
    expect(await insertOrFail(manager, Ticket, { id: randomUUID(), shop, title: 'h' })).toMatchObject({ number: 8 })
  })

  test('is refused in shards with copies, which would number their rows apart', async () => {
    const { manager } = await cluster.dataSource([Copied])
    await manager.connection.synchronize()
    await manager.transaction(async (inside) => {
      await inside.query('SET LOCAL citus.shard_replication_factor TO 2')
      await inside.query(`SELECT create_distributed_table('copied', 'shop')`)
    })
    await expect(manager.save(manager.create(Copied, { shop: 1 }))).rejects.toThrow(/between the copies of a shard/)
  })

  test('keeps its number where another option changes, and leaves the shards before its number goes', async () => {
    const options = { url: { maxChainLength: 200 } }
    const other = await cluster.dataSource([memo(options)])
    const first = await cluster.dataSource([memo({})])
    await first.synchronize()
    await first.query(`SELECT create_distributed_table('memo', 'shop')`)
    await other.synchronize()
    const memos = other.getRepository('Memo')
    expect(await memos.save({ id: randomUUID(), shop: 1, url: 'a' })).toMatchObject({ number: 1 })
    const without = await cluster.dataSource([memo({ ...options, number: null })])
    const refused = await rejection(without.synchronize())
    expect(refused).toBeInstanceOf(SchemaDriftError)
    expect(await memos.save({ id: randomUUID(), shop: 1, url: 'b' })).toMatchObject({ number: 2 })
  })

  test('keeps even a number of the whole table in one shard', async () => {
    const { manager } = coordinator
    await manager.query(`SELECT create_distributed_table('parcel', NULL)`)
    expect((await doctor(coordinator, { entities: [Parcel] })).findings).toEqual([])
    for (const node of [0, 1, 2]) {
      const { manager: through } = await cluster.dataSource([Parcel], node)
      expect(await through.save(through.create(Parcel, { shop: node % 2 }))).toMatchObject({
        number: 1 + Math.floor(node / 2),
        total: node + 1,
      })
    }
  })
})
