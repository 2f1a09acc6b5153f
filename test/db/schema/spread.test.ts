import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { type DataSource, In } from 'typeorm'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import {
  DeclarationError,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  hashOf,
  ImmutableTextError,
  insertOrFail,
  SchemaDriftError,
  TextTakenError,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { doctor } from '../../../src/doctor'
import { findHolder, Name } from '../../../src/names'
import { untilBlocked } from '../../support/blocked'
import { column, entity, key, numberWithin, plain, text, uniqueName } from '../../support/entity'
import { useDatabase } from '../../support/database'
import { generate } from '../../support/generated'
import { fewHashes } from '../../support/digests'

const digest = fewHashes(6)

const KEY = { id: key('uuid'), shop: key('integer') }
const UNIQUE = { digest, maxChainLength: 1000, scope: ['shop'] } as const

const Spread = entity(
  'Spread',
  { id: key('uuid'), shop: column('integer'), title: plain(), url: text({ ...UNIQUE, spread: 'hash' }) },
  { name: 'spread page' },
)
const ByScope = entity('ByScope', { ...KEY, title: plain(), url: text(UNIQUE) })

/** Its table is partitioned by LIST, by HASH, and by RANGE with partitions of partitions. */
const Numbered = entity('Numbered', { ...KEY, url: text(UNIQUE), number: numberWithin({ scope: ['shop'] }) })

const handle = uniqueName({ namespace: 'spread' })
const Named = entity('Named', { ...KEY, url: text({ digest, scope: ['shop'] }), handle })
const NamedOnly = entity('NamedOnly', { ...KEY, handle })
const Misspread = entity('Misspread', { id: key('uuid'), other: key('uuid'), url: text({ digest }) })

const database = useDatabase()
let dataSource: DataSource

beforeAll(async () => {
  dataSource = await database.dataSource([Spread, ByScope], { synchronize: false })
  const page = await readFile(path.join(import.meta.dirname, '../../../docs/scale.md'), 'utf8')
  const statements = /## Partitions by the hash.*?```sql\n(CREATE TABLE .*?)```/su.exec(page)?.[1] ?? ''
  await dataSource.query(statements.replaceAll(/\bpage\b/gu, '"spread page"'))
  await dataSource.synchronize()
  // As a user turns a table into a partitioned one.
  await dataSource.query(`ALTER TABLE by_scope RENAME TO plain;
    CREATE TABLE by_scope (LIKE plain INCLUDING DEFAULTS INCLUDING CONSTRAINTS) PARTITION BY LIST (shop);
    DROP TABLE plain;
    ALTER TABLE by_scope ADD PRIMARY KEY (id, shop);
    CREATE TABLE by_scope_1 PARTITION OF by_scope FOR VALUES IN (1);
    CREATE TABLE by_scope_2 PARTITION OF by_scope DEFAULT PARTITION BY HASH (shop);
    CREATE TABLE by_scope_3 PARTITION OF by_scope_2 FOR VALUES WITH (MODULUS 1, REMAINDER 0)`)
  await dataSource.synchronize()
})

const tables = [
  { entity: Spread, title: 'spread by its hash' },
  { entity: ByScope, title: 'partitioned by its scope' },
]

test('a table that is spread by its hash has partitions, and the hash in its key', async () => {
  const rows = await dataSource.query(
    `SELECT (SELECT count(*)::int FROM pg_partition_tree('"spread page"') WHERE level = 1) AS partitions,
       (SELECT pg_get_constraintdef(oid) FROM pg_constraint
         WHERE conrelid = '"spread page"'::regclass AND contype = 'p') AS key`,
  )
  expect(rows).toStrictEqual([{ partitions: 16, key: 'PRIMARY KEY (id, "urlHash")' }])
})

test('migration:generate finds nothing to do, and the entity has its own key', async () => {
  expect((await generate(dataSource)).up).toStrictEqual([])
  expect(dataSource.getMetadata(Spread).primaryColumns.map(({ propertyName }) => propertyName)).toStrictEqual(['id'])
})

const row = (url: string, shop = 1): { id: string; shop: number; url: string } => ({ id: randomUUID(), shop, url })

describe.each(tables)('a table $title', ({ entity }) => {
  test('finds and creates, one by one and many', async () => {
    const texts = Array.from({ length: 20 }, (_, index) => `a${index}`)
    const created = []
    for (const url of [...texts, ...texts]) {
      created.push((await findOrCreate(dataSource.manager, entity, row(url))).created)
    }
    expect(created).toStrictEqual([...texts.map(() => true), ...texts.map(() => false)])
    const inputs = Array.from({ length: 60 }, (_, index) => row(`m${index % 25}`, index % 3))
    const answers = await findOrCreateMany(dataSource.manager, entity, inputs)
    expect(answers).toMatchObject(inputs.map(({ shop, url }) => ({ entity: { shop, url } })))
  })

  test('save stores texts of equal hash, several at once, each with its own id', async () => {
    const given = Array.from({ length: 30 }, (_, index) => row(`s${index}`, index % 3))
    const rows = dataSource.manager.create(entity, given)
    await dataSource.manager.save(rows)
    const held = await dataSource.manager.find(entity, { where: rows.map(({ id }) => ({ id })) })
    expect(new Map(held.map(({ id, url }) => [id, url]))).toStrictEqual(new Map(rows.map(({ id, url }) => [id, url])))
  })

  test('a taken text is a TextTakenError by save, insert and insertOrFail, with its holder', async () => {
    // One hash for each text: the id that shares one must not be taken for the text.
    const { id } = await insertOrFail(dataSource.manager, entity, row('taken'))
    await expect(dataSource.manager.save(entity, row('taken'))).rejects.toThrow(TextTakenError)
    await expect(dataSource.manager.insert(entity, row('taken'))).rejects.toThrow(TextTakenError)
    const refused = await insertOrFail(dataSource.manager, entity, row('taken')).catch((error: unknown) => error)
    expect((refused as TextTakenError).taken[0]?.id).toMatchObject({ id })
  })

  test('upserts, looks up and deletes', async () => {
    const { entity: first } = await upsertByText(dataSource.manager, entity, { ...row('u'), title: 'a' })
    const second = await upsertByText(dataSource.manager, entity, { ...row('u'), title: 'b' }, { update: ['title'] })
    expect([second.created, second.entity.id, second.entity.title]).toStrictEqual([false, first.id, 'b'])
    expect((await findOneByText(dataSource.manager, entity, { shop: 1, url: 'u' }))?.id).toBe(first.id)
    await dataSource.manager.delete(entity, { shop: 1, url: 'u' })
    expect(await dataSource.manager.findOneBy(entity, { shop: 1, url: 'u' })).toBeNull()
  })

  // Postgres 18 crashed: https://github.com/postgres/postgres/commit/1b5dd3a
  test('an upsert of many waits for rows that others update, whatever their partitions', async () => {
    const rows = Array.from({ length: 40 }, (_, index) => ({ ...row(`w${index}`, index % 7), title: 'before' }))
    await findOrCreateMany(dataSource.manager, entity, rows)
    const sql = `UPDATE "${dataSource.getMetadata(entity).tableName}" SET title = 'meanwhile' WHERE url = ANY ($1)`
    const held = await database.client()
    await held.query('BEGIN')
    await held.query(sql, [['w3', 'w11', 'w20', 'w38']])
    const after = rows.map((one) => ({ ...one, title: 'after' }))
    const upsert = upsertByText(dataSource.manager, entity, after, { update: ['title'] })
    await untilBlocked(held)
    await held.query('COMMIT')
    expect(await upsert).toMatchObject(rows.map(() => ({ entity: { title: 'after' } })))
  })

  test('two upserts with one text in many scopes do not deadlock, whatever their orders', async () => {
    const inputs = Array.from({ length: 40 }, (_, index) => ({ ...row('many scopes', 10 + index), title: 'first' }))
    const upsert = async (given: object[]): Promise<unknown> =>
      await dataSource.transaction(async (manager) => await upsertByText(manager, entity, given, { update: ['title'] }))
    const held = await database.client()
    const observer = await database.client()
    const { tableName } = dataSource.getMetadata(entity)
    const key = ['many scopes', digest.js('many scopes')]
    const insert = `INSERT INTO "${tableName}" (id, shop, url, "urlHash") VALUES (gen_random_uuid(), 30, $1, $2)`
    const change = `UPDATE "${tableName}" SET title = 'meanwhile' WHERE shop = 30 AND url = $1 AND "urlHash" = $2`
    for (const sql of [insert, change]) {
      await held.query('BEGIN')
      await held.query(sql, key)
      const first = upsert(inputs)
      await untilBlocked(observer)
      const second = upsert(inputs.toReversed().map((one) => ({ ...one, id: randomUUID(), title: 'second' })))
      await untilBlocked(observer, 2)
      await held.query('ROLLBACK')
      expect(await first).toMatchObject(inputs.map(() => ({ created: sql === insert })))
      expect(await second).toMatchObject(inputs.map(() => ({ created: false, entity: { title: 'second' } })))
    }
  })

  test("an upsert of many in the caller's transaction refuses one row, and writes the others", async () => {
    const inputs = Array.from({ length: 40 }, (_, index) => ({ ...row(`t${index}`, index % 7), title: 'before' }))
    await findOrCreateMany(dataSource.manager, entity, inputs.slice(0, 20))
    const name = dataSource.getMetadata(entity).tableName
    await dataSource.query(`ALTER TABLE "${name}" ADD CONSTRAINT apt CHECK (title <> 'unfit')`)
    const unfit = [7, 33]
    const after = inputs.map((one, index) => ({ ...one, title: unfit.includes(index) ? 'unfit' : 'after' }))
    const results = await dataSource.transaction(
      async (manager) => await upsertByText(manager, entity, after, { update: ['title'] }),
    )
    await dataSource.query(`ALTER TABLE "${name}" DROP CONSTRAINT apt`)
    expect(results.flatMap((result, index) => ('error' in result ? [index] : []))).toStrictEqual(unfit)
    const stored = await dataSource.manager.findBy(entity, { url: In(inputs.map(({ url }) => url)) })
    const titles = new Map(stored.map(({ url, title }) => [url, title]))
    expect(inputs.map(({ url }) => titles.get(url))).toStrictEqual(
      inputs.map((_, index) => (index === 33 ? undefined : index === 7 ? 'before' : 'after')),
    )
  })

  test('a row that appears while an upsert of many waits is updated too', async () => {
    // The first has a scope of its own, so that no chain makes it wait.
    const rows = Array.from({ length: 40 }, (_, index) => ({
      ...row(`n${index}`, index === 0 ? 50 : index % 7),
      title: 'before',
    }))
    await findOrCreateMany(dataSource.manager, entity, rows.slice(1))
    const held = await database.client()
    await held.query('BEGIN')
    await held.query(`UPDATE "${dataSource.getMetadata(entity).tableName}" SET title = 'meanwhile' WHERE url = 'n9'`)
    const after = rows.map((one) => ({ ...one, title: 'after' }))
    const upsert = upsertByText(dataSource.manager, entity, after, { update: ['title'] })
    await untilBlocked(held)
    const { entity: first } = await findOrCreate(dataSource.manager, entity, { ...row('n0', 50), title: 'meanwhile' })
    // If the statement that updates the rows that were locked waited for this one, the server would crash.
    const later = await database.client()
    await later.query(
      `BEGIN; UPDATE "${dataSource.getMetadata(entity).tableName}" SET title = 'later' WHERE url = 'n0'`,
    )
    await held.query('COMMIT')
    await untilBlocked(held)
    await later.query('COMMIT')
    expect((await upsert)[0]).toMatchObject({ created: false, entity: { id: first.id, title: 'after' } })
  })
})

test('many rows swap their texts after a wait, whatever their partitions', async () => {
  const Swapped = entity('Swapped', { ...KEY, title: plain(), url: text({ scope: ['shop'] }) })
  // Rows of a large table are looked up one by one.
  const extra = { options: '-c enable_hashjoin=off -c enable_mergejoin=off' }
  const own = await database.dataSource([Swapped], { synchronize: false, extra })
  await own.query(`CREATE TABLE swapped (id uuid, shop integer, PRIMARY KEY (id, shop)) PARTITION BY LIST (shop);
    ${[1, 2, 3, 4, 5].map((shop) => `CREATE TABLE swapped_${shop} PARTITION OF swapped FOR VALUES IN (${shop});`).join(' ')}`)
  await own.synchronize()
  const given = Array.from({ length: 500 }, (_, index) => row(`s${index}`, 1 + (index % 5)))
  await findOrCreateMany(own.manager, Swapped, given)
  await own.query('ANALYZE swapped')
  const held = await database.client()
  await held.query(`BEGIN; UPDATE swapped SET title = 'meanwhile' WHERE url = ANY ('{s1,s3,s4}')`)
  const pairs = given.slice(0, 10)
  const changes = pairs.map(({ id, shop }, index) => ({ id, shop, url: pairs[(index + 5) % 10]?.url ?? '' }))
  const swap = updateOrFail(own.manager, Swapped, changes)
  await untilBlocked(held)
  await held.query('COMMIT')
  expect(await swap).toMatchObject(changes)
})

test('an upsert of many creates rows whose scopes are rounded, and updates none of them', async () => {
  const Rounded = entity('Rounded', {
    id: key('uuid'),
    price: column('numeric', { precision: 6, scale: 1, primary: true }),
    hits: column('integer', { default: 0 }),
    url: text({ scope: ['price'] }),
  })
  const own = await database.dataSource([Rounded], { synchronize: false })
  await own.query(`CREATE TABLE rounded (id uuid, price numeric(6, 1), PRIMARY KEY (id, price)) PARTITION BY HASH (price);
    CREATE TABLE rounded_0 PARTITION OF rounded FOR VALUES WITH (MODULUS 1, REMAINDER 0)`)
  await own.synchronize()
  const inputs = Array.from({ length: 20 }, (_, index) => ({ id: randomUUID(), price: '0.25', url: `r${index}` }))
  const results = await upsertByText(own.manager, Rounded, inputs, {
    update: { hits: ({ stored }) => `${stored.hits} + 1` },
  })
  expect(results).toMatchObject(inputs.map(() => ({ created: true, entity: { price: '0.3', hits: 0 } })))
})

test('a text of a spread table is not changed: by updateOrFail, save or SQL', async () => {
  const { id } = await insertOrFail(dataSource.manager, Spread, { id: randomUUID(), shop: 9, url: 'fixed' })
  await expect(updateOrFail(dataSource.manager, Spread, id, { url: 'other' })).rejects.toThrow(ImmutableTextError)
  await expect(dataSource.manager.save(Spread, { id, url: 'other' })).rejects.toThrow(ImmutableTextError)
  await expect(
    dataSource.query(`UPDATE "spread page" SET url = 'other', "urlHash" = $2 WHERE id = $1`, [id, digest.js('other')]),
  ).rejects.toMatchObject({ code: 'IMMUTABLE_TEXT' })
})

test('SQL that sends no hash, or another, is refused with 23514', async () => {
  const other = digest.js(['a', 'b', 'c', 'd'].find((text) => digest.js(text) !== digest.js('raw')) ?? '')
  const insert = `INSERT INTO "spread page" (id, shop, url, "urlHash", "urlHashNumber") VALUES ($1, 9, 'raw', $2, $3)`
  for (const [hash, number] of [
    [other, null],
    [other, 0],
    [other, 1],
    [null, 0],
  ]) {
    await expect(dataSource.query(insert, [randomUUID(), hash, number])).rejects.toMatchObject({ code: '23514' })
  }
  await dataSource.query(insert, [randomUUID(), digest.js('raw'), null])
  // A parameter with the hash of the refused text would be taken for it, and one in six has it.
  const ids = Array.from({ length: 100 }, () => randomUUID())
  const id = ids.find((one) => digest.js(one) !== digest.js('raw'))
  await expect(dataSource.query(insert, [id, digest.js('raw'), null])).rejects.toMatchObject({ code: 'TEXT_TAKEN' })
})

test('a partition whose triggers are off is found at start', async () => {
  const client = await database.client()
  await client.query('ALTER TABLE by_scope_3 DISABLE TRIGGER ALL')
  const fresh = await database.dataSource([ByScope], { synchronize: false })
  await expect(findOneByText(fresh.manager, ByScope, { shop: 5, url: 'x' })).rejects.toThrow(SchemaDriftError)
  await expect(findOneByText(fresh.manager, ByScope, { shop: 5, url: 'x' })).rejects.toThrow('"by_scope_3"')
  await client.query('ALTER TABLE by_scope_3 ENABLE TRIGGER ALL')
  expect(await findOneByText(fresh.manager, ByScope, { shop: 5, url: 'x' })).toBeNull()
})

describe('a partition that leaves and comes back', () => {
  const inSeven = (url: string): ReturnType<typeof row> => row(url, 7)
  const part = async (name: string, options: object = {}): Promise<readonly string[]> => {
    const { findings } = await doctor(dataSource, { entities: [ByScope], table: name, ...options })
    return findings.filter(({ severity }) => severity === 'error').map(({ code }) => code)
  }
  const left = async (): Promise<void> => {
    await dataSource.query(`CREATE TABLE by_scope_7 PARTITION OF by_scope FOR VALUES IN (7)`)
    await findOrCreateMany(dataSource.manager, ByScope, ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'].map(inSeven))
    await dataSource.query(`ALTER TABLE by_scope DETACH PARTITION by_scope_7`)
  }
  const insert = `INSERT INTO by_scope_7 (id, shop, url, "urlHash", "urlHashNumber", "urlHashChained") VALUES ($1, 7, $2, $3, $4, false)`

  afterEach(async () => await dataSource.query('DROP TABLE IF EXISTS by_scope_7'))

  test('is whole while nobody has written to it, has its guard again, and readiness finds nothing', async () => {
    await left()
    expect(await part('by_scope_7')).toStrictEqual([])
    await dataSource.query('ALTER TABLE by_scope ATTACH PARTITION by_scope_7 FOR VALUES IN (7)')
    const { manager } = await database.dataSource([ByScope], { synchronize: false })
    expect((await findOrCreate(manager, ByScope, inSeven('a'))).created).toBe(false)
    await expect(manager.save(ByScope, inSeven('a'))).rejects.toThrow(TextTakenError)
  })

  test('is found to hold a text twice, and a chain without an anchor, before it is attached', async () => {
    await left()
    await dataSource.query(insert, [randomUUID(), 'a', digest.js('a'), 50])
    expect(await part('by_scope_7')).toContain('text.twice')
    await dataSource.query(`DELETE FROM by_scope_7 WHERE "urlHash" = $1 AND "urlHashNumber" = 0`, [digest.js('b')])
    expect(await part('"by_scope_7"', { batchRows: 3 })).toContain('chain.anchorless')
  })

  test('the doctor looks at an attached one too, and says which table is not there', async () => {
    expect(await part('by_scope_1')).toStrictEqual([])
    const { findings, healthy } = await doctor(dataSource, { entities: [ByScope], table: 'by_scope_9' })
    expect([healthy, findings.map(({ code, detail }) => [code, detail])]).toStrictEqual([
      false,
      [['table.missing', 'by_scope_9']],
    ])
    await expect(doctor(dataSource, { table: 'by_scope_1' })).rejects.toThrow(DeclarationError)
  })
})

/** As a user turns a table that stands into a partitioned one; the package gives it the rest. */
async function partition(own: DataSource, table: string, by: string, partitions: readonly string[]): Promise<void> {
  await own.query(`ALTER TABLE ${table} RENAME TO plain;
    CREATE TABLE ${table} (LIKE plain INCLUDING DEFAULTS INCLUDING CONSTRAINTS) PARTITION BY ${by};
    DROP TABLE plain;
    ALTER TABLE ${table} ADD PRIMARY KEY (id, shop);
    ${partitions.join('; ')}`)
}

const PARTITIONS = [
  [
    'LIST',
    ['CREATE TABLE n1 PARTITION OF numbered FOR VALUES IN (1)', 'CREATE TABLE n2 PARTITION OF numbered DEFAULT'],
  ],
  [
    'HASH',
    [0, 1, 2].map(
      (part) => `CREATE TABLE n${part} PARTITION OF numbered FOR VALUES WITH (MODULUS 3, REMAINDER ${part})`,
    ),
  ],
  [
    'RANGE',
    [
      'CREATE TABLE n1 PARTITION OF numbered FOR VALUES FROM (MINVALUE) TO (2)',
      'CREATE TABLE n2 PARTITION OF numbered FOR VALUES FROM (2) TO (MAXVALUE) PARTITION BY RANGE (shop)',
      'CREATE TABLE n3 PARTITION OF n2 FOR VALUES FROM (2) TO (3)',
      'CREATE TABLE n4 PARTITION OF n2 FOR VALUES FROM (3) TO (MAXVALUE)',
    ],
  ],
] as const

describe.each(PARTITIONS)('a table partitioned by %s of its scope', (method, partitions) => {
  let own: DataSource
  beforeAll(async () => {
    own = await database.dataSource([Numbered], { synchronize: false })
    await own.synchronize()
    await partition(own, 'numbered', `${method} (shop)`, partitions)
    await own.synchronize()
  })
  afterAll(async () => await own.query('DROP TABLE numbered'))

  test('migration:generate finds nothing to do', async () => {
    expect((await generate(own)).up).toStrictEqual([])
  })

  test('holds each text once, and numbers the rows of each scope, by every writer at once', async () => {
    const texts = Array.from({ length: 40 }, (_, index) => row(`t${index % 10}`, index % 4))
    const saved = texts.map(async (one) => await own.manager.save(Numbered, { ...one, id: randomUUID() }))
    const [ended] = await Promise.all([
      Promise.allSettled(saved),
      findOrCreateMany(own.manager, Numbered, texts),
      ...texts.map(async (one) => await findOrCreate(own.manager, Numbered, { ...one, id: randomUUID() })),
    ])
    const strange = ended.filter((one) => one.status === 'rejected' && !(one.reason instanceof TextTakenError))
    expect(strange).toStrictEqual([])
    await own.manager.delete(Numbered, { shop: 1, url: 't1' })
    await insertOrFail(own.manager, Numbered, [row('new', 1), row('new', 2)])
    const held = await own.manager.find(Numbered)
    expect(new Set(held.map(({ shop, url }) => `${shop} ${url}`)).size).toBe(held.length)
    const numbers = [0, 1, 2, 3].map((shop) => held.filter((one) => one.shop === shop).map(({ number }) => number))
    for (const list of numbers) expect(new Set(list).size).toBe(list.length)
    expect(Math.max(...(numbers[2] ?? []))).toBe(numbers[2]?.length)
    const { findings } = await doctor(own, { entities: [Numbered] })
    expect(findings.filter(({ severity }) => severity === 'error')).toStrictEqual([])
  })

  test('a text that goes to another scope goes to its partition, with its number', async () => {
    const { id } = await insertOrFail(own.manager, Numbered, row('moves', 1))
    await insertOrFail(own.manager, Numbered, row('held', 3))
    await updateOrFail(own.manager, Numbered, { id, shop: 1 }, { shop: 3 })
    expect(await findOneByText(own.manager, Numbered, { shop: 3, url: 'moves' })).toMatchObject({ id })
    await expect(updateOrFail(own.manager, Numbered, { id, shop: 3 }, { url: 'held' })).rejects.toThrow(TextTakenError)
  })

  test('a text goes to a partition where others of its hash live, by every call, and back', async () => {
    const { manager } = own
    const alike = Array.from({ length: 100 }, (_, index) => `alike ${index}`).filter(
      (url) => digest.js(url) === digest.js('alike 0'),
    )
    const [first = '', second = '', third = '', fourth = ''] = alike
    await insertOrFail(manager, Numbered, [row(first, 3), row(second, 1), row(third, 1), row(fourth, 1)])
    await updateOrFail(manager, Numbered, await manager.findOneByOrFail(Numbered, { url: second }), { shop: 3 })
    await manager.update(Numbered, { url: third }, { shop: 3 })
    await own.query('UPDATE numbered SET shop = 3 WHERE url = $1', [fourth])
    expect(await manager.countBy(Numbered, { shop: 3, url: In(alike) })).toBe(4)
    await manager.delete(Numbered, { url: first })
    await manager.update(Numbered, { url: In(alike) }, { shop: 1 })
    expect(await manager.countBy(Numbered, { shop: 1, url: In(alike) })).toBe(3)
    const { findings } = await doctor(own, { entities: [Numbered] })
    expect(findings.filter(({ severity }) => severity === 'error')).toStrictEqual([])
  })
})

test.each([
  [
    'with a text',
    Named,
    'named',
    async ({ manager }: DataSource) => await findOneByText(manager, Named, { shop: 1, url: 'x' }),
  ],
  ['alone', NamedOnly, 'named_only', async ({ manager }: DataSource) => await findHolder(manager, 'spread', 'x')],
] as const)('names on a partitioned table, %s, are refused at start with the reason', async (_, entity, table, use) => {
  const own = await database.dataSource([entity, Name], { synchronize: false })
  await own.synchronize()
  await own.query(`DROP TABLE ${table}`)
  await own.query(`CREATE TABLE ${table} (id uuid, shop int, url text, handle text NOT NULL, "urlHash" uuid, "urlHashNumber" int DEFAULT 0,
    "urlHashChained" boolean DEFAULT false, PRIMARY KEY (id, shop)) PARTITION BY LIST (shop)`)
  await own.query(`CREATE TABLE named_0 PARTITION OF ${table} DEFAULT`)
  const fresh = await database.dataSource([entity, Name], { synchronize: false })
  await expect(use(fresh)).rejects.toThrow('kept by triggers that know one table')
  await own.query(`DROP TABLE ${table}`)
})

test('a table that is partitioned by its hash without saying so is refused at start', async () => {
  const own = await database.dataSource([Misspread], { synchronize: false })
  await own.synchronize()
  await own.query(`ALTER TABLE misspread RENAME TO plain;
    CREATE TABLE misspread (LIKE plain INCLUDING DEFAULTS INCLUDING CONSTRAINTS) PARTITION BY HASH ("urlHash");
    DROP TABLE plain;
    CREATE TABLE misspread_0 PARTITION OF misspread FOR VALUES WITH (MODULUS 1, REMAINDER 0)`)
  await own.synchronize().catch(() => undefined)
  const client = await database.client()
  await expect(findOneByText(own.manager, Misspread, { url: 'x' })).rejects.toThrow(SchemaDriftError)
  await client.query('DROP TABLE misspread')
})

test.each([
  ['nullable', { nullable: true }],
  ['ignoreDeleted', { ignoreDeleted: true }],
])('spread with %s is refused', async (_, options) => {
  const declare = async (): Promise<unknown> => {
    const Refused = entity('Refused', { id: key('uuid'), url: text({ ...options, spread: 'hash' }) })
    return await database.dataSource([Refused], { synchronize: false })
  }
  await expect(declare()).rejects.toThrow(DeclarationError)
})

test('hashOf gives scope and hash as they are stored, without the database', async () => {
  const { id } = await insertOrFail(dataSource.manager, Spread, { id: randomUUID(), shop: 9, url: 'hashed' })
  const [row] = await dataSource.query(
    `SELECT shop, replace("urlHash"::text, '-', '') AS hash FROM "spread page" WHERE id = $1`,
    [id],
  )
  const { scope, hash } = hashOf(dataSource.manager, Spread, { shop: 9, url: 'hashed' })
  expect({ ...scope, hash }).toStrictEqual(row)
})
