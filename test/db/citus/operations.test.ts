import { randomUUID } from 'node:crypto'
import {
  Column,
  type DataSource,
  Entity,
  In,
  JoinColumn,
  Like,
  ManyToOne,
  PrimaryColumn,
  PrimaryGeneratedColumn,
  QueryBuilder,
} from 'typeorm'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import {
  DeclarationError,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  ImmutableTextError,
  insertOrFail,
  SchemaDriftError,
  TextTakenError,
  UniqueText,
  UnsupportedDatabaseError,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { findHolder, Name, UniqueName } from '../../../src/names'
import { NumberWithin } from '../../../src/numbers'
import { forgetToken, once, OnceToken, removeExpiredTokens } from '../../../src/once'
import { findOrCreateStream } from '../../../src/stream'
import { fewHashes } from '../../support/digests'
import { hasCitus, useCluster } from '../../support/citus'
import { citusPages } from '../../support/citus-pages'
import { entity } from '../../support/entity'
import { gatePart } from '../../support/gate-part'

/** Five hashes, so that most texts meet another in a chain. */
const digest = fewHashes(5)

const { ByScope, OneShard, OfTenant, ByHash, fields } = citusPages({ digest, maxChainLength: 1000 })

@Entity({ name: 'shop' })
class Shop {
  @PrimaryColumn('int') id!: number
}

/** Has a foreign key to a reference table, which makes it a local table of Citus. */
const KeptLocal = entity('KeptLocal', {
  ...fields,
  owner: (target: object, property: string): void => {
    ManyToOne(() => Shop)(target, property)
    JoinColumn({ name: 'shop' })(target, property)
  },
})

@Entity({ name: 'reference' })
class Reference {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @Column('int') shop!: number
  @UniqueText({ scope: ['shop'] }) url!: string
}

@Entity({ name: 'counted' })
class Counted {
  @PrimaryGeneratedColumn({ type: 'bigint' }) id!: string
  @PrimaryColumn('int') shop!: number
  @UniqueText({ scope: ['shop'], digest, maxChainLength: 1000 }) url!: string
}

@Entity({ name: 'named' })
class Named {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @PrimaryColumn('int') shop!: number
  @UniqueName({ namespace: 'spread' }) handle!: string
}

@Entity({ name: 'numbered' })
class Numbered {
  @PrimaryColumn('uuid') id: string = randomUUID()
  @PrimaryColumn('int') shop!: number
  @UniqueText({ scope: ['shop'], digest }) url!: string
  @NumberWithin({ scope: ['shop'] }) number!: number
}

const TABLE_ONLY = 'is kept by triggers that know one table, without shards or partitions'
const NEEDS_CITUS = '"number" needs the option { citus: true } and a migration'

const entities = [ByHash, ByScope, OneShard, OfTenant, KeptLocal, Shop, Reference, Counted]

describe.runIf(hasCitus)('on a cluster', () => {
  const cluster = useCluster()
  const nodes: DataSource[] = []

  beforeAll(async () => {
    const coordinator = await cluster.dataSource(entities)
    await coordinator.query(`SET citus.enable_schema_based_sharding = on; CREATE SCHEMA tenant`)
    await coordinator.synchronize()
    await coordinator.query(`SELECT create_distributed_table('by_scope', 'shop')`)
    await coordinator.query(`SELECT create_distributed_table('one_shard', NULL)`)
    await coordinator.query(`SELECT create_reference_table('reference')`)
    await coordinator.query(`SELECT create_distributed_table('counted', 'shop')`)
    await coordinator.query(`INSERT INTO shop SELECT generate_series(0, 2000)`)
    await coordinator.query(`SELECT create_reference_table('shop')`)
    // Citus makes the table anew for this, without the comments on its columns.
    await coordinator.synchronize()
    nodes.push(coordinator, await cluster.dataSource(entities, 1), await cluster.dataSource(entities, 2))
  }, 60_000)

  const tables = [
    { entity: ByScope, title: 'distributed by its scope' },
    { entity: ByHash, title: 'distributed by its hash' },
    { entity: OneShard, title: 'of one shard' },
    { entity: OfTenant, title: 'in a schema for a tenant' },
    { entity: KeptLocal, title: 'kept local by Citus' },
  ]
  /** In the gate every other table is asked through a worker. */
  const places = gatePart(
    2,
    tables.flatMap((table, index) => [index % 2, (index + 1) % 2].map((node) => ({ ...table, node }))),
  )

  test('a distributed schema holds its table', async () => {
    const rows = await nodes[0]?.query(
      `SELECT 1 FROM pg_dist_partition WHERE logicalrelid = 'tenant.of_tenant'::regclass`,
    )
    expect(rows).toHaveLength(1)
  })

  test('migration:generate finds nothing to do', async () => {
    const { upQueries } = (await nodes[0]?.driver.createSchemaBuilder().log()) ?? {}
    expect(upQueries).toStrictEqual([])
  })

  test('a reference table is refused, with the reason', async () => {
    const made = findOrCreate((nodes[0] as DataSource).manager, Reference, { id: randomUUID(), shop: 1, url: 'a' })
    await expect(made).rejects.toThrow(SchemaDriftError)
    await expect(made).rejects.toThrow('reference table of Citus')
    const saved = nodes[0]?.manager.save(Reference, { id: randomUUID(), shop: 1, url: 'a' })
    await expect(saved).rejects.toThrow('reference table of Citus')
  })

  test('once is refused where another node would answer, in each way to distribute its table, and works in a table of the coordinator', async () => {
    const { manager } = await cluster.dataSource([OnceToken])
    const run = async (): Promise<unknown> => await once(manager, 'token', () => 'answer', { expires: '1 hour' })
    const { tablePath } = manager.connection.getMetadata(OnceToken)
    await manager.connection.synchronize()
    for (const [sql, Refusal] of [
      [`create_distributed_table('${tablePath}', NULL)`, UnsupportedDatabaseError],
      [`create_reference_table('${tablePath}')`, SchemaDriftError],
    ] as const) {
      await manager.query(`SELECT ${sql}`)
      await expect(run()).rejects.toThrow(Refusal)
      await expect(forgetToken(manager, 'token')).rejects.toThrow(Refusal)
      await expect(removeExpiredTokens(manager)).rejects.toThrow(Refusal)
      await manager.query(`DROP TABLE ${tablePath}`)
      await manager.connection.synchronize()
    }
    expect(await run()).toMatchObject({ answer: 'answer', replayed: false })
    expect(await run()).toMatchObject({ answer: 'answer', replayed: true })
    await manager.query(`UPDATE ${tablePath} SET expires_at = '2000-01-01'`)
    expect(await removeExpiredTokens(manager)).toBe(1)
  })

  test('names, and numbers without their option, of a distributed table are refused at start, with the reason', async () => {
    const { manager } = await cluster.dataSource([Named, Numbered, Name])
    await manager.query(`CREATE TABLE named (id uuid, shop int, handle text NOT NULL, PRIMARY KEY (id, shop));
      CREATE TABLE numbered (id uuid, shop int, url text NOT NULL, number int NOT NULL, PRIMARY KEY (id, shop))`)
    for (const table of ['named', 'numbered'])
      await manager.query(`SELECT create_distributed_table('${table}', 'shop')`)
    await expect(findHolder(manager, 'spread', 'x')).rejects.toThrow(TABLE_ONLY)
    await expect(manager.save(manager.create(Named, { shop: 1, handle: 'x' }))).rejects.toThrow(TABLE_ONLY)
    const row = { id: randomUUID(), shop: 1, url: 'x' }
    await expect(findOrCreate(manager, Numbered, row)).rejects.toThrow(NEEDS_CITUS)
    await expect(manager.save(manager.create(Numbered, row))).rejects.toThrow(NEEDS_CITUS)
  })

  test.each([0, 1])(
    'rows saved together never get ids of each other, from the first call on, by node %i',
    async (node) => {
      const { manager } = await cluster.dataSource([Counted], node)
      const rows = (): Counted[] =>
        Array.from({ length: 20 }, (_, shop) =>
          manager.create(Counted, { shop, url: `${node} ${shop} ${randomUUID()}` }),
        )
      const together = { saved: rows(), inserted: rows(), upserted: rows() }
      await expect(manager.save(together.saved)).rejects.toThrow(DeclarationError)
      await expect(manager.insert(Counted, together.inserted)).rejects.toThrow(DeclarationError)
      await expect(manager.upsert(Counted, together.upserted, ['id', 'shop'])).rejects.toThrow(DeclarationError)
      await expect(
        manager.transaction(
          async (inside) => await inside.save([...rows(), inside.create(Counted, { shop: 1, url: 'x' })]),
        ),
      ).rejects.toThrow(DeclarationError)
      expect(await manager.count(Counted, { where: { url: Like(`${node} %`) } })).toBe(0)
      const given = await insertOrFail(manager, Counted, rows())
      const held = await manager.findBy(Counted, { id: In(given.map(({ id }) => id)) })
      expect(new Map(held.map(({ id, url }) => [id, url]))).toStrictEqual(
        new Map(given.map(({ id, url }) => [id, url])),
      )
    },
  )

  test.each([0, 1])('rows of one shard are saved together, each with its own id, by node %i', async (node) => {
    const { manager } = await cluster.dataSource([Counted], node)
    const rows = Array.from({ length: 50 }, (_, index) =>
      manager.create(Counted, { shop: 77, url: `of one shop ${node} ${index}` }),
    )
    await manager.save(rows)
    const held = await manager.findBy(Counted, { id: In(rows.map(({ id }) => id)) })
    const byId = (given: readonly Counted[]): Map<string, string> => new Map(given.map(({ id, url }) => [id, url]))
    expect(byId(held)).toStrictEqual(byId(rows))
  })

  describe.each(places)('$title, through node $node', ({ entity, node }) => {
    const manager = (): DataSource['manager'] => (nodes[node] as DataSource).manager
    const row = (url: string, shop = node): { id: string; shop: number; url: string } => ({
      id: randomUUID(),
      shop,
      url,
    })
    const count = async (shop = node): Promise<{ rows: number; texts: number }> => {
      const held = await manager().find(entity, { where: { shop }, withDeleted: true })
      return { rows: held.length, texts: new Set(held.map(({ url }) => url)).size }
    }

    test('findOrCreate creates a text once, whatever hash it shares', async () => {
      const texts = Array.from({ length: 12 }, (_, index) => `one ${index}`)
      const created = []
      for (const url of [...texts, ...texts]) created.push((await findOrCreate(manager(), entity, row(url))).created)
      expect(created).toStrictEqual([...texts.map(() => true), ...texts.map(() => false)])
    })

    test('findOrCreateMany answers each input by its text, over many shards', async () => {
      const inputs = Array.from({ length: 60 }, (_, index) => ({
        ...row(`many ${index % 30}`, 1000 * node + 100 + (index % 6)),
      }))
      const answers = await findOrCreateMany(manager(), entity, inputs)
      const told = answers.map((answer) =>
        'entity' in answer ? [answer.entity.shop, answer.entity.url] : answer.error,
      )
      expect(told).toStrictEqual(inputs.map(({ shop, url }) => [shop, url]))
      expect(answers.filter((answer) => 'entity' in answer && answer.created)).toHaveLength(30)
      const again = await findOrCreateMany(manager(), entity, inputs)
      expect(again.map((answer) => 'entity' in answer && [answer.created, answer.entity.id])).toStrictEqual(
        answers.map((answer) => 'entity' in answer && [false, answer.entity.id]),
      )
    })

    test('a stream creates and finds', async () => {
      const inputs = Array.from({ length: 40 }, (_, index) =>
        row(`stream ${index % 20}`, 1000 * node + 200 + (index % 3)),
      )
      const told = []
      for await (const answer of findOrCreateStream(manager().connection, entity, inputs)) {
        told.push('entity' in answer ? `${answer.entity.shop} ${answer.entity.url}` : answer.error)
      }
      expect(told).toStrictEqual(inputs.map(({ shop, url }) => `${shop} ${url}`))
    })

    test('upsertByText updates the row that holds the text, or creates one', async () => {
      const first = await upsertByText(manager(), entity, { ...row('upsert'), title: 'a' })
      const second = await upsertByText(manager(), entity, { ...row('upsert'), title: 'b' }, { update: ['title'] })
      expect([first.created, second.created, second.entity.id, second.entity.title]).toStrictEqual([
        true,
        false,
        first.entity.id,
        'b',
      ])
    })

    test('insertOrFail gives each of a list its own row', async () => {
      const given = Array.from({ length: 30 }, (_, index) => ({
        ...row(`list ${index}`, 1000 * node + 300 + (index % 7)),
        title: `${index}`,
      }))
      const ids = given.map(({ id }) => id)
      const inserted = await insertOrFail(manager(), entity, given)
      expect(inserted.map(({ id, title }) => [id, title])).toStrictEqual(ids.map((id, index) => [id, `${index}`]))
    })

    test('insertOrFail builds the INSERT of a row once, and a second time only if a text shares its hash', async () => {
      const built = vi.spyOn(QueryBuilder.prototype, 'getQueryAndParameters')
      const inserts: number[] = []
      for (let nth = 0; nth < 6; nth += 1) {
        built.mockClear()
        await insertOrFail(manager(), entity, row(`built ${nth}`, 1000 * node + 600))
        inserts.push(built.mock.results.filter(({ value }) => String(value).startsWith('INSERT')).length)
      }
      built.mockRestore()
      expect(inserts[0]).toBe(1)
      // Of six texts, two share one of five hashes.
      expect(Math.max(...inserts)).toBe(2)
    })

    test('insertOrFail and save say who holds a text', async () => {
      const { id } = await insertOrFail(manager(), entity, row('taken'))
      const refused = await insertOrFail(manager(), entity, row('taken')).catch((error: unknown) => error)
      expect(refused).toBeInstanceOf(TextTakenError)
      expect((refused as TextTakenError).taken[0]?.id).toMatchObject({ id })
      await expect(manager().save(entity, row('taken'))).rejects.toThrow(TextTakenError)
    })

    test.skipIf(entity === ByHash)('updateOrFail changes a text, and refuses one that is taken', async () => {
      // Of another hash each: a text does not become another one of equal hash in place.
      const [from, to, held] = ['u1', 'u2', 'u3', 'u4', 'u5', 'u6', 'u7', 'u8', 'u9'].reduce<string[]>(
        (chosen, text) => (chosen.some((one) => digest.js(one) === digest.js(text)) ? chosen : [...chosen, text]),
        [],
      ) as [string, string, string]
      const { id } = await insertOrFail(manager(), entity, row(from))
      await insertOrFail(manager(), entity, row(held))
      const key = entity === ByScope ? { id, shop: node } : { id }
      const changed = await updateOrFail(manager(), entity, key, { url: to })
      expect(changed).toMatchObject({ id, url: to })
      await expect(updateOrFail(manager(), entity, key, { url: held })).rejects.toThrow(TextTakenError)
    })

    test.runIf(entity === ByHash)(
      'updateOrFail does not change the text by whose hash the row lies there',
      async () => {
        const { id } = await insertOrFail(manager(), entity, row('stays'))
        await expect(updateOrFail(manager(), entity, { id }, { url: 'goes' })).rejects.toThrow(ImmutableTextError)
      },
    )

    test('look-ups and conditions find the row', async () => {
      const { id } = await insertOrFail(manager(), entity, row('look'))
      const found = [
        await findOneByText(manager(), entity, { shop: node, url: 'look' }),
        await manager().findOneBy(entity, { shop: node, url: 'look' }),
        await manager().createQueryBuilder(entity, 'p').where({ shop: node, url: 'look' }).getOne(),
      ]
      expect(found.map((one) => one?.id)).toStrictEqual([id, id, id])
    })

    test('a row that is deleted makes room, also for the rest of its chain', async () => {
      const texts = Array.from({ length: 10 }, (_, index) => `gone ${index}`)
      await findOrCreateMany(
        manager(),
        entity,
        texts.map((url) => row(url, 400 + node)),
      )
      for (const url of texts.slice(0, 5)) await manager().delete(entity, { shop: 400 + node, url })
      const again = await findOrCreateMany(
        manager(),
        entity,
        texts.map((url) => row(url, 400 + node)),
      )
      expect(again.map((one) => 'entity' in one && one.created)).toStrictEqual(texts.map((_, index) => index < 5))
      expect(await count(400 + node)).toStrictEqual({ rows: 10, texts: 10 })
    })

    test('a row that is deleted softly holds its text', async () => {
      const { id } = await insertOrFail(manager(), entity, row('soft'))
      await manager().softDelete(entity, { shop: node, url: 'soft' })
      expect(await findOneByText(manager(), entity, { shop: node, url: 'soft' })).toBeNull()
      expect((await findOrCreate(manager(), entity, row('soft'))).entity.id).toBe(id)
      await expect(insertOrFail(manager(), entity, row('soft'))).rejects.toMatchObject({ taken: [{ deleted: true }] })
    })

    test('save and raw SQL store what shares a hash', async () => {
      const before = await count()
      for (let index = 0; index < 8; index += 1) await manager().save(entity, row(`saved ${index}`))
      const { tablePath } = manager().connection.getMetadata(entity)
      const hash = [
        `INSERT INTO ${tablePath} (id, shop, url, "urlHash", "urlHashNumber") VALUES ($1, $2, $3, $4, NULL)`,
        digest.js('raw'),
      ]
      const plain = [`INSERT INTO ${tablePath} (id, shop, url) VALUES ($1, $2, $3)`]
      const [sql = '', ...more] = entity === ByHash ? hash : plain
      await manager().query(sql, [randomUUID(), node, 'raw', ...more])
      expect(await count()).toStrictEqual({ rows: before.rows + 9, texts: before.texts + 9 })
    })

    test('in a transaction of the caller, nothing aborts it', async () => {
      const told = await manager().transaction(async (inside) => {
        const first = await findOrCreate(inside, entity, row('inside'))
        const second = await findOrCreate(inside, entity, row('inside'))
        const refused = await insertOrFail(inside, entity, row('inside')).catch((error: unknown) => error)
        return [first.created, second.created, refused instanceof TextTakenError, await inside.query('SELECT 1 AS one')]
      })
      expect(told).toStrictEqual([true, false, true, [{ one: 1 }]])
    })
  })
})
