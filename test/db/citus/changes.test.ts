import { randomUUID } from 'node:crypto'
import type { Client } from 'pg'
import {
  Column,
  type DataSource,
  DeleteDateColumn,
  Entity,
  Index,
  type MigrationInterface,
  type ObjectLiteral,
  type ObjectType,
  PrimaryColumn,
  type QueryRunner,
} from 'typeorm'
import { afterEach, beforeAll, describe, expect, test } from 'vitest'
import {
  findOrCreate,
  normalizeTexts,
  SchemaDriftError,
  UniqueText,
  type UniqueTextPropertyOptions,
} from '../../../src'
import { trim } from '../../../src/text'
import { chainFaults, hasCitus, useCluster } from '../../support/citus'
import { type Declaration, textsOfTable } from '../../../src/registry/registry'
import { ensureLibrary } from '../../../src/sql/library'
import { fillHashes } from '../../../src/triggers/guard'
import { generate, type Generated } from '../../support/generated'
import { rejection } from '../../support/ledger'
import { STEVENS, SUFFIX_SAFE } from '../../support/md5-collisions'

type Entityish = ObjectType<ObjectLiteral>

/** How a table is distributed, and by what SQL. */
const DISTRIBUTIONS = { scope: `'shop'`, hash: `'urlHash'`, shard: 'NULL' } as const
type Distribution = keyof typeof DISTRIBUTIONS

/** What an entity declares. */
interface Shape {
  readonly table?: string
  /** null: a column of TypeORM's. */
  readonly url?: UniqueTextPropertyOptions | null
  readonly link?: UniqueTextPropertyOptions
  readonly alias?: UniqueTextPropertyOptions
  readonly more?: true
  readonly deletes?: true
}

function page(distribution: Distribution, shape: Shape): Entityish {
  @Entity({ name: shape.table ?? 'page' })
  class Page {
    @PrimaryColumn('uuid') id: string = randomUUID()
    @Column('int', { primary: distribution === 'scope' }) shop!: number
    @Column('int', { default: 1 }) tenant!: number
  }
  const spread = distribution === 'hash' ? { spread: 'citus' as const } : {}
  for (const name of ['url', 'link', 'alias'] as const) {
    const options = shape[name]
    if (options) UniqueText({ scope: ['shop'], ...spread, ...options })(Page.prototype, name)
  }
  if (shape.url === null) Column('text')(Page.prototype, 'url')
  if (shape.deletes) DeleteDateColumn()(Page.prototype, 'deletedAt')
  if (shape.more) Column('int', { default: 5 })(Page.prototype, 'more')
  if (shape.more) Index('more_index', ['more'])(Page)
  return Page
}

/** What becomes of a change, and of its revert. */
type Outcome = 'runs' | 'runs, is not reverted' | 'is refused' | 'is refused, is reverted'

/** By the hash: where the table is distributed by it. What cannot be declared there has no such outcome. */
type Change = readonly [name: string, from: Shape, to: Shape, outcome: Outcome, byHash?: Outcome]

const ALIAS = { url: {}, alias: { nullable: true } }
const TENANTS = { scope: ['shop', 'tenant'] }
const SHA256 = { digest: 'sha256' } as const
const DELETED = { ignoreDeleted: true }

const CHANGES: readonly Change[] = [
  ['the table is renamed', { url: {} }, { url: {}, table: 'site' }, 'runs', 'runs'],
  ['the text is renamed', { url: {} }, { link: {} }, 'runs', 'runs'],
  ['a column and an index are added', { url: {} }, { url: {}, more: true }, 'runs', 'runs'],
  ['the text becomes immutable', { url: {} }, { url: { immutable: true } }, 'runs'],
  ['chains may be longer', { url: {} }, { url: { maxChainLength: 200 } }, 'runs', 'runs'],
  ['the guard goes', { url: SHA256 }, { url: { ...SHA256, guard: false } }, 'runs', 'runs'],
  ['the guard comes', { url: { ...SHA256, guard: false } }, { url: SHA256 }, 'runs', 'runs'],
  ['the text gets a hash index', { url: {} }, { url: { lookup: 'hash' } }, 'runs'],
  ['a second text is added', { url: {} }, ALIAS, 'runs'],
  ['a second text is removed', ALIAS, { url: {} }, 'runs, is not reverted'],
  ['the text is a column only', { url: {} }, { url: null }, 'runs, is not reverted'],
  ['a column becomes a text', { url: null }, { url: {} }, 'is refused, is reverted'],
  ['another digest', { url: {} }, { url: SHA256 }, 'is refused', 'is refused'],
  ['another normalizer', { url: {} }, { url: { normalize: trim() } }, 'is refused', 'is refused'],
  ['the scope gets a column', { url: {} }, { url: TENANTS }, 'is refused', 'is refused'],
  ['the scope loses a column', { url: TENANTS }, { url: {} }, 'is refused', 'is refused'],
  ['the text may be NULL', { url: {} }, { url: { nullable: true } }, 'is refused'],
  ['the text may not be NULL', { url: { nullable: true } }, { url: {} }, 'is refused'],
  ['deleted rows hold no text', { url: {}, deletes: true }, { url: DELETED, deletes: true }, 'is refused'],
  ['deleted rows hold their texts', { url: DELETED, deletes: true }, { url: {}, deletes: true }, 'is refused'],
]

const CASES = CHANGES.flatMap(([name, from, to, outcome, byHash]) => {
  const outcomes: readonly (readonly [Distribution, Outcome | undefined])[] = [
    ['scope', outcome],
    ['shard', outcome],
    ['hash', byHash],
  ]
  return outcomes.flatMap(([distribution, one]) => (one ? [{ name, from, to, distribution, outcome: one }] : []))
})

/** As `migration:generate` writes it, and a person completes it. */
function migrationOf({ up, down }: Generated, entity: Entityish): MigrationInterface {
  const run = async (queryRunner: QueryRunner, statements: readonly string[]): Promise<void> => {
    for (const sql of statements) {
      if (sql.startsWith('-- Replace this statement by:')) await normalizeTexts(queryRunner, entity)
      else await queryRunner.query(sql)
    }
  }
  return {
    name: 'Change1700000000000',
    up: async (queryRunner) => await run(queryRunner, up),
    down: async (queryRunner) => await run(queryRunner, down),
  }
}

describe.runIf(hasCitus)('on a distributed table', () => {
  const cluster = useCluster()
  const nodes: Client[] = []
  const sources: DataSource[] = []
  let client: Client

  beforeAll(async () => {
    for (const node of cluster.urls().keys()) nodes.push(await cluster.client(node))
    client = nodes[0] as Client
    await client.query('SET citus.shard_count = 2')
  }, 60_000)

  afterEach(async () => {
    await Promise.all(sources.splice(0).map(async (one) => await one.destroy()))
    await client.query('DROP TABLE IF EXISTS page, site, other, migrations CASCADE')
    for (const name of await functions(client)) await client.query(`DROP FUNCTION ${name}() CASCADE`)
  })

  /** In the state of `from` rather than a new one: the hook finds out by itself. */
  async function declare(...entities: readonly Entityish[]): Promise<DataSource> {
    const options = { extra: { max: 2, options: '-c citus.shard_count=2' } }
    const dataSource = await cluster.dataSource([...entities], 0, options, {})
    sources.push(dataSource)
    return dataSource
  }

  async function functions(node: Client): Promise<string[]> {
    const { rows } = await node.query<{ name: string }>(
      `SELECT quote_ident(proname) AS name FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND prorettype = 'trigger'::regtype ORDER BY 1`,
    )
    return rows.map(({ name }) => name)
  }

  /** What the table consists of; of the shards on the workers whatever any of them has. */
  async function dump(table = 'page'): Promise<unknown> {
    const read = async (node: Client, tables: string): Promise<readonly unknown[]> => {
      // The id of a shard is at the end of its names.
      const plain = (sql: string): string => String.raw`regexp_replace(${sql}, '_\d{6,}', '', 'g')`
      const { rows } = await node.query(
        `WITH t AS (SELECT oid FROM pg_class WHERE relkind = 'r' AND relname ~ $1)
         SELECT (SELECT json_agg(DISTINCT d) FROM t, pg_index AS i, ${plain('pg_get_indexdef(i.indexrelid)')} AS d WHERE i.indrelid = t.oid) AS indexes,
           (SELECT json_agg(DISTINCT d ORDER BY d) FROM t, pg_constraint AS c, concat(${plain('c.conname')}, pg_get_constraintdef(c.oid)) AS d WHERE c.conrelid = t.oid AND c.contype <> 'n') AS constraints,
           (SELECT json_agg(DISTINCT d ORDER BY d) FROM t, pg_trigger AS g, concat(g.tgenabled, ${plain('pg_get_triggerdef(g.oid)')}) AS d WHERE g.tgrelid = t.oid AND NOT tgisinternal) AS triggers,
           (SELECT json_agg(DISTINCT d ORDER BY d) FROM t, pg_attribute AS a, concat_ws(' ', a.attname, a.atttypid::regtype, a.attnotnull) AS d WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns,
           (SELECT json_agg(json_build_array(p.proname, p.prosrc, p.proconfig, p.prosecdef, p.proowner::regrole, p.proacl) ORDER BY p.proname)
              FROM pg_proc AS p WHERE p.pronamespace = 'public'::regnamespace AND p.prorettype = 'trigger'::regtype) AS functions`,
        [tables],
      )
      return rows
    }
    return [
      await read(client, `^${table}$`),
      ...(await Promise.all(nodes.slice(1).map(async (node) => await read(node, String.raw`^${table}_\d+$`)))),
    ]
  }

  const distribute = async (distribution: Distribution): Promise<unknown> =>
    await client.query(`SELECT create_distributed_table('page', ${DISTRIBUTIONS[distribution]})`)

  /** Rows of two shops, with two texts of equal MD5 in each; of different tenants. */
  async function fill({ manager }: DataSource, entity: Entityish, shape: Shape): Promise<void> {
    for (const shop of [1, 2]) {
      for (const [index, url] of [...STEVENS, 'x', ' y '].entries()) {
        const row = { id: randomUUID(), shop, tenant: index, url }
        if (shape.url) await findOrCreate(manager, entity, row, shape.alias ? { by: 'url' } : {})
        else await manager.save(entity, row)
      }
    }
    if (shape.deletes) await client.query(`UPDATE page SET "deletedAt" = now() WHERE url = $1`, [STEVENS[0]])
  }

  const rowsOf = async ({ table = 'page', link }: Shape): Promise<readonly unknown[]> =>
    (await client.query(`SELECT id, shop, tenant, trim(${link ? 'link' : 'url'}) AS text FROM ${table} ORDER BY id`))
      .rows

  /** Nothing is left to do, every chain is whole, and the guard lengthens and shortens chains in the shards. */
  async function expectWhole({ manager }: DataSource, entity: Entityish, shape: Shape): Promise<void> {
    const { up } = await generate(manager.connection)
    // Citus leaves out comments where it makes a table anew.
    expect(up.filter((sql) => !sql.startsWith('COMMENT ON COLUMN'))).toStrictEqual([])
    const text = shape.link ? 'link' : 'url'
    const options = shape[text]
    if (!options) return
    const faults = chainFaults(shape.table ?? 'page', {
      text,
      ...(options.scope ? { scope: [...options.scope] } : {}),
      ...(options.ignoreDeleted ? { where: '"deletedAt" IS NULL' } : {}),
    })
    expect((await client.query(faults)).rows).toStrictEqual([])
    const by = shape.alias ? { by: text } : {}
    const row = (url: string, shop: number): object => ({ id: randomUUID(), shop, tenant: 1, [text]: url })
    for (const url of [STEVENS[1], 'x']) {
      const known = { ...row(url, 1), tenant: url === 'x' ? 2 : 1 }
      expect((await findOrCreate(manager, entity, known, by)).created).toBe(false)
    }
    for (const url of SUFFIX_SAFE) expect((await findOrCreate(manager, entity, row(url, 3), by)).created).toBe(true)
    expect((await client.query(faults)).rows).toStrictEqual([])
    for (const url of SUFFIX_SAFE) {
      await manager.delete(entity, { shop: 3, [text]: url })
      expect((await client.query(faults)).rows).toStrictEqual([])
    }
  }

  /** The statements that a refusal advises. */
  function recipeOf(error: unknown): readonly string[] {
    expect(error).toBeInstanceOf(SchemaDriftError)
    expect(error).toMatchObject({ code: 'SCHEMA_DRIFT', findings: [{ object: 'table', name: 'page' }] })
    return [...(error as Error).message.matchAll(/SELECT \w+\([^)]*\)/g)].map(([sql]) => sql)
  }

  test.each(['scope', 'shard', 'hash'] as const)(
    'by %s: the statement that numbers rows is refused, whatever ran before it',
    async (distribution) => {
      const dataSource = await declare(page(distribution, { url: {} }))
      await dataSource.synchronize()
      if (distribution !== 'hash') await distribute(distribution)
      const [{ table: rows }] = textsOfTable(dataSource.getMetadata('Page')) as [Declaration]
      await client.query(ensureLibrary(rows.schema, 'rows'))
      const refused = await rejection(client.query(fillHashes(rows)))
      expect(refused).toMatchObject({ code: '55000', table: 'page' })
    },
  )

  test.each(['scope', 'shard', 'hash'] as const)(
    'by %s: normalizeTexts() of a migration from a database without Citus is refused',
    async (distribution) => {
      const Page = page(distribution, { url: { normalize: trim() } })
      const dataSource = await declare(Page)
      await dataSource.synchronize()
      if (distribution !== 'hash') await distribute(distribution)
      const queryRunner = dataSource.createQueryRunner()
      const [undo = '', again = ''] = recipeOf(await rejection(normalizeTexts(queryRunner, Page)))
      await client.query(undo)
      expect(await normalizeTexts(queryRunner, Page)).toBe(0)
      await client.query(again)
      await queryRunner.release()
    },
  )

  /** attach makes the code for the present name, at a revert that of the renamed table. Triggers keep their names. */
  const revertedDump = async (before: DataSource, name = 'page', other = 'page'): Promise<unknown> => {
    if (name !== other) await before.synchronize()
    return JSON.parse(JSON.stringify(await dump()).replaceAll(`unique_text_${other}__`, `unique_text_${name}__`))
  }

  test.each(CASES)('by $distribution: $name, and $outcome', async ({ distribution, from, to, outcome }) => {
    const [Before, After] = [page(distribution, from), page(distribution, to)]
    const before = await declare(Before)
    await before.synchronize()
    await fill(before, Before, from)
    if (distribution !== 'hash') await distribute(distribution)
    await expectWhole(before, Before, from)
    const [rows, found] = [await rowsOf(from), await dump()]
    const after = await declare(After)
    const migrate = async (): Promise<void> => {
      const migration = migrationOf(await generate(after), After)
      after.migrations.splice(0, 1, migration)
      await after.runMigrations()
      await expectWhole(after, After, to)
      expect(await rowsOf(to)).toStrictEqual(rows)
    }
    const rename = async (one = 'page', other = 'page'): Promise<unknown> =>
      one === other || (await client.query(`ALTER TABLE ${one} RENAME TO ${other}`))
    const refuse = async (): Promise<readonly string[]> => {
      const error = await rejection(generate(after))
      expect(await rejection(after.synchronize())).toMatchObject({ message: (error as Error).message })
      expect(await dump()).toStrictEqual(found)
      return recipeOf(error)
    }
    const refuseRevert = async (): Promise<void> => {
      const error = await rejection(after.undoLastMigration())
      expect(error).toMatchObject({ code: '55000', driverError: { table: 'page' } })
      await expectWhole(after, After, to)
    }
    const isRefused = outcome.startsWith('is refused')
    const [undo = '', again = ''] = isRefused
      ? await refuse()
      : [`SELECT undistribute_table('page')`, `SELECT create_distributed_table('page', ${DISTRIBUTIONS[distribution]})`]
    if (isRefused) await client.query(undo)
    await rename(from.table, to.table)
    await migrate()
    if (isRefused) await client.query(again)
    await expectWhole(after, After, to)
    const isReverted = outcome === 'runs' || outcome === 'is refused, is reverted'
    if (!isReverted) {
      await refuseRevert()
      await client.query(undo)
    }
    await after.undoLastMigration()
    if (!isReverted) await client.query(again)
    await rename(to.table, from.table)
    expect(await rowsOf(from)).toStrictEqual(rows)
    expect(await revertedDump(before, from.table, to.table)).toStrictEqual(found)
    await expectWhole(before, Before, from)
    const synchronize = async (): Promise<void> => {
      await rename(from.table, to.table)
      await after.synchronize()
      await expectWhole(after, After, to)
      expect(await rowsOf(to)).toStrictEqual(rows)
    }
    if (!isRefused) await synchronize()
  })

  test.each(['scope', 'hash', 'shard'] as const)(
    'by %s: the first migration is reverted, on every node',
    async (distribution) => {
      const shape = { url: {} }
      const Page = page(distribution, shape)
      const dataSource = await declare(Page)
      const migration = migrationOf(await generate(dataSource), Page)
      dataSource.migrations.push(migration)
      for (const _ of ['once', 'again']) {
        await dataSource.runMigrations()
        if (distribution !== 'hash') await distribute(distribution)
        await fill(dataSource, Page, shape)
        await expectWhole(dataSource, Page, shape)
        await dataSource.undoLastMigration()
        for (const node of nodes) {
          expect(await functions(node)).toStrictEqual([])
          const tables = String.raw`SELECT FROM pg_class WHERE relname ~ '^page(_\d+)?$'`
          expect((await node.query(tables)).rows).toStrictEqual([])
        }
      }
    },
  )

  test('a migration that was generated before the table was distributed is refused', async () => {
    const shape = { url: {} }
    const Page = page('scope', shape)
    const before = await declare(Page)
    await before.synchronize()
    await fill(before, Page, shape)
    const After = page('scope', { url: SHA256 })
    const after = await declare(After)
    after.migrations.push(migrationOf(await generate(after), After))
    await distribute('scope')
    const found = await dump()
    const refused = await rejection(after.runMigrations())
    expect(refused).toMatchObject({
      code: '55000',
      driverError: { table: 'page', hint: expect.stringContaining('undistribute_table') },
    })
    expect(await dump()).toStrictEqual(found)
    await expectWhole(before, Page, shape)
  })

  test('statements that Citus forwards one by one are refused without a transaction', async () => {
    const before = await declare(page('scope', { url: {} }))
    await before.synchronize()
    await distribute('scope')
    const found = await dump()
    const After = page('scope', { link: {} })
    const after = await declare(After)
    after.migrations.push(migrationOf(await generate(after), After))
    expect(await rejection(after.runMigrations({ transaction: 'none' }))).toMatchObject({ code: '25P01' })
    expect(await dump()).toStrictEqual(found)
  })

  test('two tables change in one migration, which locks both', async () => {
    const both = (shape: Shape): readonly Entityish[] => [
      page('scope', shape),
      page('scope', { ...shape, table: 'other' }),
    ]
    const [from, to] = [{ url: {} }, { link: {} }]
    const before = await declare(...both(from))
    await before.synchronize()
    for (const { target } of before.entityMetadatas) await fill(before, target as Entityish, from)
    for (const table of ['page', 'other']) await client.query(`SELECT create_distributed_table('${table}', 'shop')`)
    const after = await declare(...both(to))
    const generated = await generate(after)
    expect(generated.up.filter((sql) => sql.includes('\'"other" IN ACCESS EXCLUSIVE\''))).toHaveLength(1)
    const [After] = after.entityMetadatas.map(({ target }) => target as Entityish)
    after.migrations.push(migrationOf(generated, After as Entityish))
    await after.runMigrations()
    for (const { target, tableName: table } of after.entityMetadatas)
      await expectWhole(after, target as Entityish, { ...to, table })
    await after.undoLastMigration()
    for (const { target, tableName: table } of before.entityMetadatas)
      await expectWhole(before, target as Entityish, { ...from, table })
  })

  test('a scope that loses the column of the distribution is refused', async () => {
    const before = await declare(page('scope', { url: TENANTS }))
    await before.synchronize()
    await distribute('scope')
    const found = await dump()
    const after = await declare(page('scope', { url: { scope: ['tenant'] } }))
    for (const work of [async () => await generate(after), async () => await after.synchronize()]) {
      const refused = await rejection(work())
      expect(refused).toBeInstanceOf(SchemaDriftError)
      expect((refused as Error).message).toContain('it is spread by "shop", which is not in the scope of "url"')
    }
    expect(await dump()).toStrictEqual(found)
  })

  test('a text by whose hash the table is distributed is removed from an undistributed one', async () => {
    const [from, to] = [{ url: {} }, { url: null }]
    const [Before, After] = [page('hash', from), page('shard', to)]
    const before = await declare(Before)
    await before.synchronize()
    await fill(before, Before, from)
    const [rows, found] = [await rowsOf(from), await dump()]
    const after = await declare(After)
    const refused = await rejection(generate(after))
    const [undo = ''] = recipeOf(refused)
    expect((refused as Error).message).toContain('by another column')
    expect(await dump()).toStrictEqual(found)
    await client.query(undo)
    after.migrations.push(migrationOf(await generate(after), After))
    await after.runMigrations()
    await client.query(`SELECT create_distributed_table('page', 'id')`)
    await expectWhole(after, After, to)
    expect(await rejection(after.undoLastMigration())).toMatchObject({ code: '55000' })
    await client.query(undo)
    await after.undoLastMigration()
    await distribute('hash')
    await expectWhole(before, Before, from)
    expect([await rowsOf(from), await dump()]).toStrictEqual([rows, found])
  })

  test.each([
    {
      title: 'a local table of Citus',
      place: `SELECT citus_add_local_table_to_metadata('page')`,
      undo: `SELECT undistribute_table('"page"', cascade_via_foreign_keys => true)`,
    },
    {
      title: 'a reference table',
      place: `SELECT create_reference_table('page')`,
      undo: `SELECT undistribute_table('"page"')`,
    },
  ])('the texts of $title change after undistribute_table()', async ({ place, undo }) => {
    const [from, to] = [{ url: {} }, { url: TENANTS }]
    const [Before, After] = [page('shard', from), page('shard', to)]
    const before = await declare(Before)
    await before.synchronize()
    await fill(before, Before, from)
    await client.query(place)
    const found = await dump()
    const after = await declare(After)
    const refused = await rejection(generate(after))
    expect(refused).toBeInstanceOf(SchemaDriftError)
    expect(await dump()).toStrictEqual(found)
    await client.query(undo)
    await after.synchronize()
    await expectWhole(after, After, to)
  })
})
