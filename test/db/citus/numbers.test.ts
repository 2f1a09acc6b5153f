import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import path from 'node:path'
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
import { numberPlays } from '../../support/number-interleavings'
import { useNumberStage } from '../../support/number-plays'
import type { NumberTable } from '../../../src/sql/numbers'
import { numberTriggers } from '../../../src/numbers/sql/triggers'
import { makeScopes } from '../../../src/numbers/sql/scopes'
import { countedTable, numbersOf, numberTable, scopesWithGaps, wrongCounts } from '../../support/numbered-table'

const golden = (name: string): string =>
  readFileSync(path.resolve(import.meta.dirname, `../../golden/numbers/${name}.txt`), 'utf8')

const LOCAL = `SELECT citus_add_local_table_to_metadata('comment')`
const KINDS = [
  ['without a count', numberTable()],
  ['with a count', countedTable()],
  ['without reuse', numberTable({ reuse: false })],
] as const

describe.runIf(hasCitus)('on a table that Citus keeps local', () => {
  const cluster = useCluster()
  const stage = useNumberStage({ client: () => cluster.client() })

  test.each(
    (['READ COMMITTED', 'REPEATABLE READ'] as const).flatMap((level) => KINDS.map((kind) => [level, ...kind] as const)),
  )(
    'at %s, numbers %s come as on any other table in every interleaving',
    async (level, name, table) => {
      const lines: string[] = []
      for (const play of numberPlays)
        lines.push(`${play.name}\n  ${await stage.play(play, { table, level, prepare: LOCAL })}`)
      expect(`${lines.join('\n')}\n`).toBe(golden(`${level} ${name}`))
    },
    300_000,
  )
})

/** `comment`, without an identity: Citus does not undistribute one. */
async function create(client: Client, table: NumberTable): Promise<void> {
  await client.query(`create table comment (tenant integer not null, number integer not null,
    "deletedAt" timestamptz, id uuid not null default gen_random_uuid(), primary key (tenant, id));
    create unique index comment_number on comment (tenant, number)`)
  await client.query(makeScopes(table))
  for (const statement of numberTriggers(table).create) await client.query(statement)
}

const DISTRIBUTE = `select create_distributed_table('numbers_comment__number_scopes', 's0');
  select create_distributed_table('comment', 'tenant', colocate_with => 'numbers_comment__number_scopes')`

/** The same, distributed by the tenant with its table of scopes. */
async function distribute(client: Client, table = numberTable()): Promise<void> {
  await create(client, table)
  await client.query(DISTRIBUTE)
}

const drop = async (client: Client): Promise<void> => {
  await client.query('drop table if exists comment cascade; drop table if exists numbers_comment__number_scopes')
  // Shards that were moved away still have the triggers.
  await client.query('call citus_cleanup_orphaned_resources()')
}

const insert = (tenant: number, rows = 1): string =>
  `insert into comment (tenant) select ${tenant} from generate_series(1, ${rows}) returning number`

describe.runIf(hasCitus)('on a table that is distributed by a column of the scope, with its scopes', () => {
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

  test.each([numberTable(), numberTable({ reuse: false })])(
    'all nodes number rows, given numbers stay',
    async (table) => {
      const [coordinator, worker, other] = nodes as [Client, Client, Client]
      await drop(coordinator)
      await distribute(coordinator, table)
      expect(await numbers(coordinator, insert(1, 2))).toEqual([1, 2])
      expect(await numbers(worker, insert(1))).toEqual([3])
      expect(await numbers(other, insert(1, 2))).toEqual([4, 5])
      await other.query('insert into comment (tenant, number) values (1, 9)')
      expect(await numbers(coordinator, insert(1))).toEqual([10])
      await coordinator.query('delete from comment where number = 10')
      expect(await numbers(worker, insert(1))).toEqual([table.reuse === false ? 11 : 10])
      await worker.query('truncate comment')
      // As anywhere, what TRUNCATE removes is given again; what was deleted before is not.
      expect(await numbers(worker, insert(1))).toEqual([table.reuse === false ? 11 : 1])
    },
  )

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

  test.each([numberTable(), numberTable({ reuse: false })])(
    'two begin a scope at once, from two nodes',
    async (table) => {
      const [first, second] = [await cluster.client(1), await cluster.client(2)]
      await drop(nodes[0] as Client)
      await distribute(nodes[0] as Client, table)
      await first.query('begin')
      expect(await numbers(first, insert(5))).toEqual([1])
      const waits = numbers(second, insert(5))
      await blocked()
      await first.query('commit')
      expect(await waits).toEqual([2])
    },
  )

  test('a number that goes while an insert waits is not given again', async () => {
    const [first, second] = [await cluster.client(1), await cluster.client(2)]
    await drop(nodes[0] as Client)
    await distribute(nodes[0] as Client, numberTable({ reuse: false }))
    await first.query(insert(1, 3))
    await first.query('begin')
    expect(await numbers(first, insert(1))).toEqual([4])
    const waits = numbers(second, insert(1))
    await blocked()
    await first.query('delete from comment where number = 4')
    await first.query('commit')
    expect(await waits).toEqual([5])
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

  test('an older snapshot is refused, or its number is', async () => {
    const [first, second] = [await cluster.client(), await cluster.client(2)]
    await drop(nodes[0] as Client)
    await distribute(nodes[0] as Client, numberTable({ reuse: false }))
    await second.query(insert(1, 2))
    await first.query('begin isolation level repeatable read')
    await first.query('select from comment where tenant = 1')
    await second.query(insert(1))
    await second.query('delete from comment where number = 3')
    const lost: unknown = await first.query(insert(1)).then(
      () => 'ok',
      (error: unknown) => serverError(error)?.code,
    )
    expect(lost).toBe('40001')
    await first.query('rollback')
    expect(await numbers(first, insert(1))).toEqual([4])
  })

  test('a table without its scopes, or scopes without their table, number nothing', async () => {
    const [coordinator, worker] = nodes as [Client, Client]
    await drop(coordinator)
    await distribute(coordinator)
    await coordinator.query(insert(1))
    await coordinator.query(`select undistribute_table('comment')`)
    await expect(coordinator.query(insert(1))).rejects.toMatchObject({ code: '55000' })
    await coordinator.query(`select undistribute_table('numbers_comment__number_scopes')`)
    expect(await numbers(coordinator, insert(1))).toEqual([2])
    await coordinator.query(`select create_distributed_table('comment', 'tenant')`)
    await expect(coordinator.query(insert(1))).rejects.toMatchObject({ code: '42P01' })
    await expect(worker.query(insert(1))).rejects.toMatchObject({ code: '42P01' })
    await coordinator.query(
      `select create_distributed_table('numbers_comment__number_scopes', 's0', colocate_with => 'none')`,
    )
    await expect(worker.query(insert(1))).rejects.toMatchObject({ code: '55000' })
  })

  test('scopes in a shard that somebody else has put in place of its own are not written', async () => {
    const [coordinator, worker] = nodes as [Client, Client]
    await drop(coordinator)
    await distribute(coordinator)
    await coordinator.query(insert(1))
    const { rows } = await coordinator.query<{ shard: string; port: number }>(
      `select shard_name('numbers_comment__number_scopes'::regclass, s.shardid) as shard, n.nodeport as port
         from pg_dist_shard as s join pg_dist_placement using (shardid) join pg_dist_node as n using (groupid)
        where s.shardid = get_shard_id_for_distribution_column('numbers_comment__number_scopes', 1)`,
    )
    const [{ shard, port }] = rows as [(typeof rows)[number]]
    const on = nodes.find((one) => one.port === port) ?? worker
    const role = `stranger_${process.pid}`
    await coordinator.query(`create role ${role}`)
    await on.query(`set citus.enable_manual_changes_to_shards to on; set citus.override_table_visibility to off;
      alter table ${shard} owner to ${role}`)
    await expect(coordinator.query(insert(1))).rejects.toMatchObject({ code: '55000' })
    await on.query(`alter table ${shard} owner to current_user;
      reset citus.enable_manual_changes_to_shards; reset citus.override_table_visibility`)
    expect(await numbers(coordinator, insert(1))).toEqual([2])
    await coordinator.query(`drop role ${role}`)
  })

  test('counts are not copied into shards', async () => {
    const [coordinator] = nodes as [Client]
    await drop(coordinator)
    await create(coordinator, countedTable())
    await coordinator.query('insert into comment (tenant) values (1)')
    await expect(
      coordinator.query(`select create_distributed_table('numbers_comment__number_scopes', 's0')`),
    ).rejects.toMatchObject({ code: 'XX000' })
    await drop(coordinator)
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

  test('lose no number while the table is moved to the coordinator and back', async () => {
    await drop(mover)
    await distribute(mover, numberTable({ reuse: false }))
    const given = new Map<string, number>()
    const take = async (client: Client, round: number): Promise<void> => {
      const tenant = 1 + (round % 3)
      await client.query('begin')
      const { rows } = await client.query<{ number: number }>(insert(tenant, 2))
      await client.query('delete from comment where tenant = $1 and number = $2', [tenant, rows[1]?.number])
      await client.query('commit')
      for (const { number } of rows) given.set(`${tenant}/${number}`, (given.get(`${tenant}/${number}`) ?? 0) + 1)
    }
    // The move may be the victim of a deadlock with the clients, and is then done again.
    const move = async (sql: string): Promise<void> => {
      for (let done = false; !done;) {
        try {
          await mover.query(`begin; set local citus.multi_shard_modify_mode to 'sequential'; ${sql}; commit`)
          done = true
        } catch (error) {
          await mover.query('rollback')
          if (serverError(error)?.code !== '40P01') throw error
        }
      }
    }
    const back = async (): Promise<void> => {
      await move(`select undistribute_table('comment'); select undistribute_table('numbers_comment__number_scopes')`)
      await move(DISTRIBUTE)
    }
    const [errors] = await Promise.all([storm(clients, take), back()])
    // Only what a table that goes to another place refuses, and nothing silently.
    expect(
      [...new Set(errors)].filter(
        (code) => !['40001', '40P01', '23505', '42P01', '55000', '0A000', 'XX000'].includes(code),
      ),
    ).toEqual([])
    expect([...given].filter(([, times]) => times > 1)).toEqual([])
    expect(given.size).toBeGreaterThan(100)
    expect(await numbersOf(mover, numberTable())).toContain('1:')
  }, 300_000)

  test('count every row of a table that is local for a while', async () => {
    await drop(mover)
    await create(mover, countedTable())
    const local = async (): Promise<void> => {
      for (let times = 0; times < 3; times++) {
        await mover.query(`select citus_add_local_table_to_metadata('comment')`)
        await mover.query(`select undistribute_table('comment')`)
      }
    }
    const [errors] = await Promise.all([
      storm(
        clients.filter((_, index) => index % 3 === 0),
        turn,
      ),
      local(),
    ])
    expect([...new Set(errors)].filter((code) => !['40001', '40P01'].includes(code))).toEqual([])
    expect(await wrongCounts(mover, countedTable())).toEqual([])
    expect(await scopesWithGaps(mover, countedTable())).toBe(0)
  }, 300_000)
})

@Entity('ticket')
class Ticket {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @PrimaryColumn('int') shop!: number
  @UniqueText({ scope: ['shop'] }) title!: string
  @NumberWithin({ scope: ['shop'], reuse: false }) number!: number
}

@Entity('parcel')
class Parcel {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @Column('int') shop!: number
  @NumberWithin({ scope: ['shop'] }) number!: number
  @NumberWithin() total!: number
}

@Entity('copied')
class Copied {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @PrimaryColumn('int') shop!: number
  @NumberWithin({ scope: ['shop'] }) number!: number
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
  if (number !== null) NumberWithin({ scope: ['shop'], reuse: false })(Memo.prototype, 'number')
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

  test('is refused until its table of scopes is distributed with it, as the error says', async () => {
    const { manager } = coordinator
    await manager.save(manager.create(Ticket, { shop: 1, title: 'first' }))
    await manager.query(`SELECT create_distributed_table('ticket', 'shop')`).catch(() => {})
    await manager.query(`SELECT create_distributed_table('numbers_ticket__number_scopes', 's0')`)
    const { findings } = await doctor(coordinator, { entities: [Ticket] })
    expect(findings.map(({ code }) => code)).toContain('table.spread')
    await manager.query(`SELECT undistribute_table('numbers_ticket__number_scopes')`)
    await manager.query(`SELECT create_distributed_table('numbers_ticket__number_scopes', 's0');
      SELECT create_distributed_table('ticket', 'shop', colocate_with => 'numbers_ticket__number_scopes')`)
    expect((await doctor(coordinator, { entities: [Ticket] })).findings).toEqual([])
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
    await manager.delete(Ticket, { shop, title: 'h' })
    expect(await manager.save(ticket('i'))).toMatchObject({ number: 9 })
  })

  test('is refused in shards with copies, which would number their rows apart', async () => {
    const { manager } = await cluster.dataSource([Copied])
    await manager.connection.synchronize()
    await manager.transaction(async (inside) => {
      await inside.query('SET LOCAL citus.shard_replication_factor TO 2')
      await inside.query(`SELECT create_distributed_table('numbers_copied__number_scopes', 's0')`)
      await inside.query(
        `SELECT create_distributed_table('copied', 'shop', colocate_with => 'numbers_copied__number_scopes')`,
      )
    })
    await expect(manager.save(manager.create(Copied, { shop: 1 }))).rejects.toThrow(/between the copies of a shard/)
  })

  test('keeps its number where another option changes, and leaves the shards before its number goes', async () => {
    const options = { url: { maxChainLength: 200 } }
    const other = await cluster.dataSource([memo(options)])
    const first = await cluster.dataSource([memo({})])
    await first.synchronize()
    for (const sql of [
      `SELECT create_distributed_table('numbers_memo__number_scopes', 's0')`,
      `SELECT create_distributed_table('memo', 'shop', colocate_with => 'numbers_memo__number_scopes')`,
    ])
      await first.query(sql)
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
    for (const sql of [
      `SELECT create_distributed_table('numbers_parcel__number_scopes', NULL, colocate_with => 'none')`,
      `SELECT create_distributed_table('numbers_parcel__total_scopes', NULL, colocate_with => 'numbers_parcel__number_scopes')`,
      `SELECT create_distributed_table('parcel', NULL, colocate_with => 'numbers_parcel__number_scopes')`,
    ])
      await manager.query(sql)
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
