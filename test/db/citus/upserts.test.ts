import {
  Check,
  Column,
  type DataSource,
  type EntitySubscriberInterface,
  EventSubscriber,
  PrimaryColumn,
  Unique,
} from 'typeorm'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import { findOrCreateMany, type FindOrCreateManyResult, upsertByText, type UpsertByTextOptions } from '../../../src'
import { serverError } from '../../../src/sql/sqlstate'
import { hasCitus, useCluster } from '../../support/citus'
import { fewHashes } from '../../support/digests'
import { column, declared, deleteDate, entity, key, plain, text, updateDate, version } from '../../support/entity'
import { gatePart } from '../../support/gate-part'
import { STEVENS, SUFFIX_SAFE } from '../../support/md5-collisions'
import { queriesOf } from '../../support/queries'
import { rowOf } from '../../support/results'

/** Five hashes, so that most texts meet another in a chain. */
const digest = fewHashes(5)

const fields = {
  id: key('uuid'),
  title: column('varchar', { nullable: true, length: 6 }),
  slug: plain(),
  price: column('integer', { nullable: true }),
  rank: column('integer', { default: 7 }),
  seen: column('timestamptz', { nullable: true }),
  tags: column('jsonb', { nullable: true }),
  changedAt: updateDate(),
  deletedAt: deleteDate(),
  version: version(),
} as const

const cheap = Check('check_price', '"price" < 1000')

const ByScope = declared(
  entity('ByScope', { ...fields, shop: key('integer'), url: text({ scope: ['shop'], digest, maxChainLength: 1000 }) }),
  cheap,
  Unique('one_slug', ['shop', 'slug']),
)
const ByHash = declared(
  entity('ByHash', {
    ...fields,
    shop: column('integer'),
    url: text({ scope: ['shop'], digest, maxChainLength: 1000, spread: 'citus' }),
  }),
  cheap,
)
const OneShard = declared(
  entity('OneShard', {
    ...fields,
    shop: column('integer'),
    url: text({ scope: ['shop'], digest, maxChainLength: 1000 }),
  }),
  cheap,
  Unique('one_slug_of_shard', ['slug', 'shop']),
)
/** Values that differ in the call are equal once they are stored: `'a'` and `'a '`. */
const Padded = declared(
  entity('Padded', {
    ...fields,
    shop: ((target: object, property: string) => PrimaryColumn('char', { length: 4 })(target, property)) as ReturnType<
      typeof key<'varchar'>
    >,
    url: text({ scope: ['shop'], digest, maxChainLength: 1000 }),
  }),
  cheap,
)
const Real = entity('Real', {
  ...fields,
  shop: column('integer'),
  url: text({ scope: ['shop'], spread: 'citus' }),
})
const Listed = entity('Listed', {
  id: key('uuid'),
  shop: key('integer'),
  url: text({ scope: ['shop'] }),
  labels: Column('integer', { array: true }),
})
const Large = entity('Large', {
  id: key('uuid'),
  shop: key('integer'),
  url: text({ scope: ['shop'] }),
  price: column('integer', { default: 0 }),
})

const entities = [ByScope, ByHash, OneShard, Padded, Real, Listed, Large]
type Page = InstanceType<typeof ByScope>

/** The side that is written in batches, and the side where a subscriber listens, which is written row by row. */
const SIDES = [0, 1] as const
const SHOPS = 3

/** Rows are written one by one if anybody listens. */
@EventSubscriber()
class Listener implements EntitySubscriberInterface {
  afterUpdate(): void {}
}

/** Numbers that are the same in every run with one seed. */
function numbersOf(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
    return Math.floor((state / 2_147_483_648) * below)
  }
}

let made = 0
/** Equal on both sides but for the first digit. */
const idOf = (side: number, nth: number): string => `${side}0000000-0000-4000-8000-${String(nth).padStart(12, '0')}`

describe.runIf(hasCitus)('an upsert of a list', () => {
  const cluster = useCluster()
  const nodes: DataSource[] = []
  const node = (nth: number): DataSource => nodes[nth] as DataSource
  const listening: DataSource[] = []

  beforeAll(async () => {
    const coordinator = await cluster.dataSource(entities)
    await coordinator.synchronize()
    for (const table of ['by_scope', 'padded', 'listed', 'large'])
      await coordinator.query(`SELECT create_distributed_table('${table}', 'shop')`)
    await coordinator.query(`SELECT create_distributed_table('one_shard', NULL)`)
    await coordinator.query(`CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
    for (const table of ['by_scope', 'by_hash', 'one_shard', 'padded'])
      await coordinator.query(
        `CREATE TRIGGER z_keep BEFORE UPDATE ON ${table} FOR EACH ROW
           WHEN (OLD.title = 'kept' AND NEW.price <> OLD.price) EXECUTE FUNCTION keep()`,
      )
    for (const nth of [0, 1]) listening.push(await cluster.dataSource(entities, nth, { subscribers: [Listener] }))
    nodes.push(coordinator, await cluster.dataSource(entities, 1), await cluster.dataSource(entities, 2))
  }, 60_000)

  /** Awaits the moment when a session waits for a lock on any node. */
  const untilBlocked = async (): Promise<void> => {
    while ((await node(0).query<object[]>('SELECT FROM citus_lock_waits')).length === 0);
  }

  const tables = [
    { name: 'by its scope', target: ByScope },
    { name: 'by its hash', target: ByHash },
    { name: 'in one shard', target: OneShard },
    { name: 'by a padded scope', target: Padded as unknown as typeof ByScope },
  ]

  const options: readonly UpsertByTextOptions<Page>[] = [
    {},
    { update: ['title', 'price'] },
    { update: ['price', 'slug'], skipUpdateIfNoValuesChanged: true },
    { update: ['price', 'tags'], where: ({ stored, given }) => `${stored.price} < ${given.price}` },
    { update: { price: ({ stored, given }) => `${stored.price} + ${given.price}`, title: true } },
    { update: ['title'], create: { rank: 9 } },
    { update: ['price', 'title'], where: ({ stored }) => `${stored.rank} < 9`, skipUpdateIfNoValuesChanged: true },
  ]

  /** What both sides must have alike. */
  const shown = ({ shop, id, deletedAt, ...row }: Page, side: number): unknown => ({
    ...row,
    changedAt: undefined,
    shop: typeof shop === 'number' ? shop - side * 100 : String(shop).slice(1).trimEnd(),
    id: id.slice(1),
    isDeleted: deletedAt !== null,
  })
  const told = (result: FindOrCreateManyResult<Page>, side: number): unknown => {
    if ('entity' in result) return [result.created, result.attempts, shown(result.entity, side)]
    return [result.error.constructor.name, Reflect.get(result.error, 'code'), serverError(result.error)?.code]
  }

  const cases = tables.flatMap((table) => options.map((option, nth) => ({ ...table, option, nth })))

  test.each(gatePart(2, cases))(
    'is the same as row by row, of a table $name, with options $nth',
    async ({ target, option, nth }) => {
      const random = numbersOf(nth + 1)
      const one = <Value>(...values: readonly Value[]): Value => values[random(values.length)] as Value
      // Row by row, the server may read a value that is too long before it knows that the row needs no update.
      const long = nth === 6 ? 'long' : 'too long'
      const given = (): { readonly shop: number; readonly isPadded: boolean; readonly row: Partial<Page> } => {
        const { title, slug, price, rank, seen, tags } = {
          title: one('a', 'b', 'kept', long, null),
          slug: one('s1', 's2', 's3', 's4', null),
          price: one(1, 2, 3, 4, 5, 6, 2000, 'none' as unknown as number),
          rank: one(1, 9),
          seen: one(new Date(0), new Date('2020-02-02T20:20:20.202Z'), null),
          tags: one({ a: 1 }, ['x', '"'], null),
        }
        const row: Partial<Page> = { url: `text ${random(40)}`, price, ...(random(3) > 0 && { title }) }
        if (random(8) === 0) Object.assign(row, { slug })
        if (random(3) === 0) Object.assign(row, { rank })
        if (random(4) === 0) Object.assign(row, { seen, tags })
        return { shop: random(SHOPS), isPadded: random(2) === 0, row }
      }
      const rowsOf = (side: number, inputs: readonly ReturnType<typeof given>[], first: number): Page[] =>
        inputs.map(({ shop, isPadded, row }, index) => {
          const padded = `${side}${shop + nth * SHOPS}${isPadded ? ' ' : ''}`
          const ofSide = target === tables[3]?.target ? padded : shop + side * 100 + nth * SHOPS
          return { ...row, id: idOf(side, first + index), shop: ofSide } as Page
        })
      const compared = async (run: (side: 0 | 1) => Promise<unknown>): Promise<void> =>
        expect(await run(0)).toStrictEqual(await run(1))

      for (let round = 0; round < 6; round += 1) {
        const inputs = Array.from({ length: 4 + random(40) }, given)
        const first = made
        made += inputs.length
        const { manager } = node(round % 2)
        const heard = (listening[round % 2] as DataSource).manager
        await compared(async (side) => {
          const rows = rowsOf(side, inputs, first)
          const results = await upsertByText(side === 0 ? manager : heard, target, rows, option)
          return results.map((result) => told(result, side))
        })
        const gone = { url: `text ${random(40)}` }
        for (const side of SIDES) {
          const [row] = rowsOf(side, [{ shop: random(1), isPadded: false, row: gone }], 0)
          await (round % 2 ? manager.delete(target, gone) : manager.softDelete(target, { ...gone, shop: row?.shop }))
        }
        await compared(async (side) => {
          const start = idOf(side, 0).slice(0, 1)
          const all = await manager.find(target, { withDeleted: true, order: { id: 'ASC' } })
          return all.filter(({ id }) => id.startsWith(start)).map((row) => shown(row, side))
        })
      }
    },
    60_000,
  )

  test('of texts with equal MD5 updates each, and creates each', async () => {
    const { manager } = node(0)
    const urls = [...STEVENS, ...SUFFIX_SAFE, 'a', 'b', 'c']
    const rows = (price: number): Partial<InstanceType<typeof Real>>[] =>
      urls.map((url, index) => ({ id: idOf(2, (made += 1)), shop: 1, url, price: price + index }))
    for (const [price, created] of [
      [10, true],
      [20, false],
    ] as const) {
      const results = (await upsertByText(manager, Real, rows(price), { update: ['price'] })).map(rowOf)
      expect(results.map((one) => [one.created, one.entity.url, one.entity.price])).toStrictEqual(
        urls.map((url, index) => [created, url, price + index]),
      )
    }
    expect(await manager.count(Real)).toBe(urls.length)
  })

  test('is one UPDATE of known rows and one INSERT of new ones, and a list of arrays is sent row by row', async () => {
    const { manager } = node(0)
    const rows = (count: number): Partial<InstanceType<typeof Real>>[] =>
      Array.from({ length: count }, (_, index) => ({ id: idOf(3, (made += 1)), shop: 2, url: `${index}`, price: 1 }))
    const kinds = async (run: () => Promise<unknown>): Promise<string[]> =>
      (await queriesOf(node(0), run)).map((sql) => sql.slice(0, 6))
    await upsertByText(manager, Real, [{ id: idOf(3, (made += 1)), shop: 2, url: 'first' }])
    expect(await kinds(() => upsertByText(manager, Real, rows(200)))).toStrictEqual(['UPDATE', 'INSERT'])
    expect(await kinds(() => upsertByText(manager, Real, rows(200)))).toStrictEqual(['UPDATE'])
    expect(await kinds(() => upsertByText(manager, Real, rows(210)))).toStrictEqual(['UPDATE', 'INSERT'])
    const skipping = { update: ['price'], skipUpdateIfNoValuesChanged: true } as const
    expect(await kinds(() => upsertByText(manager, Real, rows(210), skipping))).toStrictEqual(['UPDATE', 'SELECT'])
    const labelled = Array.from({ length: 9 }, (_, index) => ({
      id: idOf(4, (made += 1)),
      shop: 1,
      url: `${index}`,
      labels: [index, 2],
    }))
    for (const created of [true, false]) {
      const results = (await upsertByText(manager, Listed, labelled, { update: ['labels'] })).map(rowOf)
      expect(results.map((one) => [one.created, one.entity.labels])).toStrictEqual(
        labelled.map(({ labels }) => [created, labels]),
      )
    }
  })

  test('reads the index of shards with many rows, and smaller shards once, as a list of look-ups does', async () => {
    const { manager } = node(0)
    const insert = async (first: number, last: number): Promise<unknown> =>
      await manager.query(
        `INSERT INTO large (id, shop, url, "urlHash")
           SELECT gen_random_uuid(), nth % 100, nth, md5(nth::text)::uuid FROM generate_series(${first}, ${last}) AS nth`,
      )
    const plansOf = async (update: 'price'[], ofOneShop = false): Promise<string[]> => {
      const rows = Array.from({ length: 300 }, (_, nth) => {
        const number = ofOneShop ? (nth + 1) * 100 : nth + 1
        return { id: idOf(7, (made += 1)), shop: number % 100, url: `${number}`, price: 1 }
      })
      const logged = vi.spyOn(node(0).logger, 'logQuery')
      const results = await upsertByText(manager, Large, rows, { update, skipUpdateIfNoValuesChanged: true })
      const sent = [...logged.mock.calls]
      logged.mockRestore()
      expect(results.map((one) => rowOf(one).entity.url)).toStrictEqual(rows.map(({ url }) => url))
      const plans: string[] = []
      for (const [sql, values] of sent) {
        const plan = await manager.query<{ 'QUERY PLAN': string }[]>(`EXPLAIN ${sql}`, values as unknown[])
        plans.push(plan.map((line) => line['QUERY PLAN']).join('\n'))
      }
      return plans
    }
    await upsertByText(manager, Large, [{ id: idOf(7, (made += 1)), shop: 1, url: 'first' }])
    await manager.query('ANALYZE large')
    await insert(1, 4000)
    const ofSmall = [...(await plansOf([])), ...(await plansOf(['price'])), ...(await plansOf(['price']))]
    expect(ofSmall).toHaveLength(4)
    for (const plan of ofSmall) expect(plan).toContain('Hash Join')
    await insert(4001, 40_000)
    await manager.query('ANALYZE large')
    await manager.query('UPDATE large SET price = 0')
    const ofLarge = [...(await plansOf([])), ...(await plansOf(['price'])), ...(await plansOf(['price']))]
    expect(ofLarge).toHaveLength(4)
    for (const plan of ofLarge) {
      expect(plan).not.toContain('Task Count: 1\n')
      expect(plan).toMatch(/Index Scan .* on large_/)
      expect(plan).not.toContain('Seq Scan')
    }
    expect(await plansOf([], true)).toStrictEqual([expect.stringContaining('Task Count: 1\n')])
  })

  test('updates a row once if a new row of its batch is refused', async () => {
    const { manager } = node(0)
    const row = (url: string, price: number): Partial<Page> => ({ id: idOf(5, (made += 1)), shop: 50, url, price })
    const known = ['k1', 'k2', 'k3', 'k4', 'k5']
    await upsertByText(
      manager,
      ByScope,
      known.map((url) => row(url, 1)),
    )
    const results = await upsertByText(manager, ByScope, [
      ...known.map((url) => row(url, 2)),
      row('new', 3),
      row('refused', 2000),
      row('new too', 3),
    ])
    expect(
      results.map((one) => ('entity' in one ? [one.created, one.entity.version] : serverError(one.error)?.code)),
    ).toStrictEqual([...known.map(() => [false, 2]), [true, 1], '23514', [true, 1]])
  })

  test('of a text that several rows hold refuses it, and changes neither', async () => {
    const { manager } = node(0)
    const client = await cluster.client()
    const rows = ['one', 'two', 'three', 'four', 'five'].map((url) => ({
      id: idOf(6, (made += 1)),
      shop: 60,
      url,
      price: 1,
    }))
    await findOrCreateMany(manager, ByScope, rows)
    await client.query('ALTER TABLE by_scope DISABLE TRIGGER ALL')
    try {
      await client.query(
        `INSERT INTO by_scope (id, shop, url, "urlHash", "urlHashNumber", price, version)
       SELECT $1, shop, url, "urlHash", 900, price, 1 FROM by_scope WHERE shop = 60 AND url = 'two'`,
        [idOf(6, (made += 1))],
      )
    } finally {
      await client.query('ALTER TABLE by_scope ENABLE TRIGGER ALL')
    }
    const results = await upsertByText(
      manager,
      ByScope,
      rows.map((row) => ({ ...row, price: 2 })),
      { update: ['price'] },
    )
    expect(results.map((one) => ('error' in one ? one.error.constructor.name : one.entity.price))).toStrictEqual([
      2,
      'DuplicateTextError',
      2,
      2,
      2,
    ])
    expect(await manager.find(ByScope, { where: { url: 'two', shop: 60 }, select: { price: true } })).toStrictEqual([
      expect.objectContaining({ price: 1 }),
      expect.objectContaining({ price: 1 }),
    ])
    await manager.delete(ByScope, { shop: 60 })
  })

  test.each([
    { name: 'by its scope', target: ByScope },
    { name: 'by its hash', target: ByHash },
    { name: 'in one shard', target: OneShard },
  ])(
    'by several callers through all nodes loses no update, of a table $name',
    async ({ target }) => {
      const random = numbersOf(8)
      const CALLERS = 6
      const CALLS = 8
      const TEXTS = 30
      let asked = 0
      const caller = async (nth: number): Promise<void> => {
        for (let call = 0; call < CALLS; call += 1) {
          const urls = Array.from({ length: TEXTS }, (_, index) => `busy ${index}`).filter(() => random(2) === 0)
          asked += urls.length
          const rows = urls.map((url) => ({ id: idOf(7, (made += 1)), shop: 70, url, price: made % 900 }))
          const results = await upsertByText(node(nth % 3).manager, target, rows, { update: ['price'] })
          expect(results.map((result) => rowOf(result).entity.url)).toStrictEqual(urls)
        }
      }
      await Promise.all(Array.from({ length: CALLERS }, async (_, nth) => await caller(nth)))
      const all = await node(0).manager.findBy(target, { shop: 70 })
      expect(new Set(all.map(({ url }) => url)).size).toBe(all.length)
      // A version counts the writes of its row.
      expect(all.reduce((sum, row) => sum + row.version, 0)).toBe(asked)
    },
    60_000,
  )

  test('that is in a deadlock with a transaction is repeated', async () => {
    const rows = ['d1', 'd2', 'd3', 'd4', 'd5', 'd6'].map((url) => ({
      id: idOf(8, (made += 1)),
      shop: 80,
      url,
      price: 1,
    }))
    await upsertByText(node(0).manager, ByHash, rows)
    const client = await cluster.client(1)
    const change = (url: string): Promise<unknown> =>
      client.query(`UPDATE by_hash SET rank = rank + 1 WHERE shop = 80 AND url = '${url}'`)
    for (const [held, wanted] of [
      ['d1', 'd6'],
      ['d6', 'd1'],
    ] as const) {
      await client.query('BEGIN')
      await change(held)
      const upserting = upsertByText(
        node(0).manager,
        ByHash,
        rows.map((row) => ({ ...row, price: 2 })),
      )
      await untilBlocked()
      await change(wanted).then(
        () => client.query('COMMIT'),
        () => client.query('ROLLBACK'),
      )
      expect((await upserting).map((result) => rowOf(result).entity.price)).toStrictEqual(rows.map(() => 2))
    }
  }, 60_000)

  test('of one row updates the row that has taken the place of the one it found', async () => {
    const client = await cluster.client()
    const [old, replacing, given] = [1, 2, 3].map((price) => ({
      id: idOf(9, (made += 1)),
      shop: 90,
      url: 'replaced',
      price,
    })) as [Page, Page, Page]
    await upsertByText(node(0).manager, ByScope, old)
    await client.query('BEGIN')
    await client.query('DELETE FROM by_scope WHERE shop = 90')
    await client.query(`INSERT INTO by_scope (id, shop, url, price, version) VALUES ($1, 90, 'replaced', 2, 1)`, [
      replacing.id,
    ])
    const upserting = upsertByText(node(0).manager, ByScope, given, { update: ['price'] })
    await untilBlocked()
    await client.query('COMMIT')
    expect(await upserting).toMatchObject({ created: false, entity: { id: replacing.id, price: 3, version: 2 } })
  })
})
