import type { DataSource, FindOptionsWhere, Repository } from 'typeorm'
import {
  Any,
  Brackets,
  Column,
  DeleteDateColumn,
  Entity,
  Equal,
  In,
  Index,
  IsNull,
  Like,
  ManyToOne,
  MoreThan,
  Not,
  OneToMany,
  Or,
  PrimaryGeneratedColumn,
} from 'typeorm'
import { beforeAll, expect, test } from 'vitest'
import { findOneByText, findOrCreate, UniqueText } from '../../../src'
import { url } from '../../../src/text'
import { textCondition, textEquals, textIn } from '../../../src/typeorm-calls'
import { useDatabase } from '../../support/database'
import { entity } from '../../support/entity'
import { loggerOf } from '../../support/logger'

const Site = entity('Site', {})
type Site = InstanceType<typeof Site>

@Entity({ name: 'page' })
@UniqueText({ as: 'place', columns: ['host', { property: 'path', prefix: '/' }], indexName: 'page_place' })
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ normalize: url(), indexName: 'page_url' }) url!: string
  @UniqueText({ digest: 'sha256', nullable: true, indexName: 'page_alias', lookup: 'hash' }) alias!: string | null
  @UniqueText({ scope: ['site'], indexName: 'page_slug', lookup: 'hash' }) slug!: string
  @UniqueText({ ignoreDeleted: true, indexName: 'page_code' }) code!: string
  @ManyToOne(() => Site, { nullable: false }) site!: Site
  @Column({ type: 'text' }) host!: string
  @Column({ type: 'text', nullable: true }) path!: string | null
  @Column({ type: 'integer', default: 0 }) hits!: number
  @DeleteDateColumn({ type: 'timestamptz' }) deletedAt!: Date | null
  @OneToMany(() => Link, (link) => link.page) links!: Link[]
}

@Entity({ name: 'link' })
class Link {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @Index() @ManyToOne(() => Page, (page) => page.links, { nullable: false }) page!: Page
}

const ROWS = 20_000

const db = useDatabase()
let plain: DataSource
let pages: Repository<Page>
let links: Repository<Link>
let sent: { readonly sql: string; readonly parameters: unknown[] }[] = []

const logger = loggerOf({ logQuery: (sql, parameters: unknown[] = []) => void sent.push({ sql, parameters }) })

/** The text of the 1,000th row, and another spelling of it. */
const [STORED, SPELLED, OTHER] = ['http://a.example/1000', 'HTTP://A.example:80/1000', 'http://a.example/2000']
const dataSource = db.useDataSource([Site, Page, Link], { emptied: false })
const { manager } = dataSource
const client = db.useClient()

beforeAll(async () => {
  plain = await db.dataSource([Site, Page, Link], { synchronize: false }, { rewriteQueries: false })
  pages = dataSource.getRepository(Page)
  links = dataSource.getRepository(Link)
  await client.query('insert into site select from generate_series(1, 10)')
  await client.query('alter table page disable trigger all')
  await client.query(`
    insert into page (url, "urlHash", alias, "aliasHash", slug, "slugHash", code, "codeHash", host, path, "placeHash", "siteId")
    select url, md5(url)::uuid, alias, sha256(convert_to(alias, 'UTF8')), slug, md5(slug)::uuid, code, md5(code)::uuid,
           'a.example', i, md5('a.example/' || i)::uuid, 1 + i % 10
      from generate_series(1, ${ROWS}) as i,
           lateral (select 'http://a.example/' || i as url, 'alias ' || i as alias, 'slug ' || i as slug, 'code ' || i as code) as text`)
  await client.query('alter table page enable trigger all')
  await client.query(`insert into link ("pageId") select 1 + i * 9 from generate_series(1, ${ROWS / 10}) as i`)
  await client.query('vacuum analyze')
  // The first write of a DataSource asks whether its database has Citus.
  for (const one of [dataSource, plain]) await one.manager.delete(Page, { id: 0 })
  dataSource.logger = logger
  plain.logger = logger
}, 300_000)

interface Plan {
  readonly 'Node Type': string
  readonly 'Index Name'?: string
  readonly 'Relation Name'?: string
  readonly Plans?: readonly Plan[]
}

const nodes = (plan: Plan): readonly Plan[] => [plan, ...(plan.Plans ?? []).flatMap(nodes)]

/** It has ten rows. */
const isScan = (node: Plan): boolean => node['Node Type'] === 'Seq Scan' && node['Relation Name'] !== 'site'

/** How Postgres would run each statement that a call sends: names of indexes, and `Seq Scan`. */
async function plansOf(call: () => Promise<unknown>): Promise<string[][]> {
  sent = []
  await call()
  const plans: string[][] = []
  for (const { sql, parameters } of sent.filter(({ sql: one }) => /^\s*(SELECT|UPDATE|DELETE|WITH)/.test(one))) {
    const { rows } = await client.query<{ 'QUERY PLAN': [{ Plan: Plan }] }>(`explain (format json) ${sql}`, parameters)
    const found = nodes(rows[0]?.['QUERY PLAN'][0].Plan as Plan)
    plans.push(found.flatMap((node) => node['Index Name'] ?? (isScan(node) ? 'Seq Scan' : [])))
  }
  return plans
}

type Calls = Readonly<Record<string, () => Promise<unknown>>>

/** The names of the calls of which one statement scans a table, or none uses the index. */
async function withoutIndex(index: string, calls: Calls): Promise<string[]> {
  const failed: string[] = []
  for (const [name, call] of Object.entries(calls)) {
    const plans = await plansOf(call)
    const used = plans.flat()
    if (!used.includes(index) || used.includes('Seq Scan')) failed.push(`${name}: ${JSON.stringify(plans)}`)
  }
  return failed
}

async function expectIndex(index: string, calls: Calls): Promise<void> {
  expect(await withoutIndex(index, calls)).toEqual([])
}

const where = { url: SPELLED }
const page = { id: 1000 }
const site = { id: 1 }

// conditions.test.ts has every call that takes conditions; here one of each kind of statement is planned.
test('find options by property use the unique index', async () => {
  expect(await pages.findOneBy(where)).toMatchObject(page)
  await expectIndex('page_url', {
    findOneBy: () => pages.findOneBy(where),
    existsBy: () => pages.existsBy(where),
    sum: () => pages.sum('hits', where),
    withDeleted: () => pages.find({ where, withDeleted: true }),
    lock: () => dataSource.transaction((manager) => manager.find(Page, { where, lock: { mode: 'pessimistic_write' } })),
    'an entity': () => pages.findBy(Object.assign(new Page(), where) as FindOptionsWhere<Page>),
  })
})

test('equalities by operators use the unique index', async () => {
  expect(await pages.countBy({ url: In([SPELLED, OTHER]) })).toBe(2)
  await expectIndex('page_url', {
    Equal: () => pages.findBy({ url: Equal(SPELLED) }),
    In: () => pages.findBy({ url: In([SPELLED, OTHER]) }),
    Any: () => pages.findBy({ url: Any([SPELLED, OTHER]) }),
    Or: () => pages.findBy({ url: Or(Equal(SPELLED), Equal(OTHER)) }),
  })
})

test('lists of conditions use the unique index', async () => {
  await expectIndex('page_url', {
    'of texts': () => pages.findBy([where, { url: OTHER }]),
    'with another index': () => pages.findBy([where, { id: 7 }]),
  })
})

test('conditions on related entities use the unique index', async () => {
  expect(await links.findBy({ page: where })).toHaveLength(1)
  await expectIndex('page_url', {
    'find options': () => links.findBy({ page: where }),
    'a query builder': () => links.createQueryBuilder('l').innerJoin('l.page', 'p').where({ page: where }).getMany(),
  })
})

test('pages with relations use the unique index', async () => {
  await expectIndex('page_url', {
    'joined, in two statements': () => pages.find({ where, relations: { links: true }, take: 10, skip: 0 }),
    'each relation by a query of its own': () =>
      pages.find({ where, relations: { links: true }, relationLoadStrategy: 'query' }),
  })
})

test('criteria use the unique index', async () => {
  await expectIndex('page_url', {
    update: () => pages.update(where, { hits: 1 }),
    delete: () => pages.delete({ ...where, id: 1 }),
  })
})

test('conditions by property of query builders use the unique index', async () => {
  const query = () => pages.createQueryBuilder('p')
  const either = new Brackets((qb) => qb.where(where).orWhere({ url: OTHER }))
  await expectIndex('page_url', {
    orWhere: () => query().where('p.id = 7').orWhere(where).getMany(),
    Brackets: () => query().where(either).getMany(),
    update: () => query().update().set({ hits: 3 }).where(where).execute(),
  })
})

test('textEquals and textIn use the unique index, also with rewriteQueries: false', async () => {
  for (const source of [dataSource, plain]) {
    const repository = source.getRepository(Page)
    expect(await repository.findOneBy({ url: textEquals(SPELLED) })).toMatchObject(page)
    await expectIndex('page_url', {
      textEquals: () => repository.findBy({ url: textEquals(SPELLED) }),
      textIn: () => repository.findBy({ url: textIn([SPELLED, OTHER]) }),
      update: () => repository.update({ url: textEquals(SPELLED) }, { hits: 4 }),
      related: () => source.getRepository(Link).findBy({ page: { url: textEquals(SPELLED) } }),
    })
  }
})

test('textCondition uses the unique index, in conditions and in joins', async () => {
  const condition = textCondition(manager, Page, 'p', where)
  const filtered = pages.createQueryBuilder('p').where(...condition)
  const joined = links.createQueryBuilder('l').innerJoin('l.page', 'p', ...condition)
  expect(await filtered.getOne()).toMatchObject(page)
  await expectIndex('page_url', { where: () => filtered.getMany(), join: () => joined.getMany() })
})

test('operations of this package use the unique index', async () => {
  expect(await findOneByText(manager, Page, { url: SPELLED }, { by: 'url' })).toMatchObject(page)
  const { parameters } = sent.at(-1) ?? { parameters: [] }
  expect(parameters).toContain(STORED)
  await expectIndex('page_url', {
    findOneByText: () => findOneByText(manager, Page, { url: SPELLED }, { by: 'url' }),
    findOrCreate: () =>
      findOrCreate(manager, Page, { url: SPELLED, slug: 's', code: 'c', host: 'h', site }, { by: 'url' }),
  })
})

test('a hash of SHA-256 is found by the unique index too', async () => {
  expect(await pages.countBy({ alias: In(['alias 1', 'alias 2']) })).toBe(2)
  const calls = {
    equal: () => pages.findBy({ alias: 'alias 1' }),
    in: () => pages.findBy({ alias: In(['alias 1', 'alias 2']) }),
  }
  const plans = [await plansOf(calls.equal), await plansOf(calls.in)].flat()
  // Postgres may take either index.
  for (const used of plans) expect(used).toEqual([expect.stringMatching(/^page_alias(_lookup)?$/)])
})

test('a text in a scope uses the unique index where the scope is given, and the look-up index where it is not', async () => {
  expect(await pages.findBy({ slug: 'slug 1000', site })).toMatchObject([page])
  const [used] = await plansOf(() => pages.findBy({ slug: 'slug 1000', site }))
  expect(used).toEqual([expect.stringMatching(/^page_slug(_lookup)?$/)])
  expect(await pages.findBy({ slug: 'slug 1000' })).toMatchObject([page])
  await expectIndex('page_slug_lookup', { 'without the scope': () => pages.findBy({ slug: 'slug 1000' }) })
})

test('a text of several columns uses the unique index where the conditions give them all', async () => {
  const whole = { host: 'a.example', path: '1000' }
  expect(await pages.findBy(whole)).toMatchObject([page])
  await expectIndex('page_place', {
    all: () => pages.findBy(whole),
    'a list for one': () => pages.findBy({ ...whole, path: In(['1000', '1001']) }),
    NULL: () => pages.findBy({ host: 'a.example', path: IsNull() }),
    criteria: () => pages.update(whole, { hits: 5 }),
  })
  expect(await plansOf(() => pages.findBy({ host: 'b.example' }))).toEqual([['Seq Scan']])
})

test('a text that a deletion frees uses the unique index for rows that are not deleted, and no index for all', async () => {
  // The first look-up asks the catalog.
  await pages.findBy({ code: 'code 1' })
  await expectIndex('page_code', {
    find: () => pages.findBy({ code: 'code 1' }),
    related: () => links.findBy({ page: { code: 'code 1' } }),
  })
  expect(await plansOf(() => pages.find({ where: { code: 'code 1' }, withDeleted: true }))).toEqual([['Seq Scan']])
  expect(await plansOf(() => pages.update({ code: 'code 1' }, { hits: 6 }))).toEqual([['Seq Scan']])
})

test('conditions that are strings, joins and raw SQL use the look-up index', async () => {
  const byText = { alias: 'alias 1000' }
  expect(await pages.createQueryBuilder('p').where('p.alias = :alias', byText).getOne()).toMatchObject(page)
  await expectIndex('page_alias_lookup', {
    'a string': () => pages.createQueryBuilder('p').where('p.alias = :alias', byText).getMany(),
    'a join': () => links.createQueryBuilder('l').innerJoin('l.page', 'p', 'p.alias = :alias', byText).getMany(),
    'raw SQL': () => dataSource.query('SELECT * FROM page WHERE alias = $1', ['alias 1000']),
    'with rewriteQueries: false': () => plain.getRepository(Page).findBy(byText),
  })
  expect(await plansOf(() => pages.createQueryBuilder('p').where('p.url = :url', { url: STORED }).getMany())).toEqual([
    ['Seq Scan'],
  ])
})

test('patterns, ranges and negations use no index of this package', async () => {
  for (const condition of [
    Like('http://a.example/1000%'),
    MoreThan('http://a.example/9999'),
    Not(SPELLED),
    Not(In([SPELLED])),
  ]) {
    expect(await plansOf(() => pages.exists({ where: { url: condition, hits: 99 } }))).toEqual([['Seq Scan']])
  }
})

test('a refused text reads no table', async () => {
  for (const condition of ['ftp://a', In(['ftp://a']), textEquals('ftp://a')]) {
    expect(await plansOf(() => pages.findBy({ url: condition }))).toEqual([[]])
    expect(await plansOf(() => pages.update({ url: condition }, { hits: 7 }))).toEqual([[]])
  }
})

test('with rewriteQueries: false a condition by property uses no index of this package', async () => {
  expect(await plain.getRepository(Page).findOneBy(where)).toMatchObject(page)
  expect(await plansOf(() => plain.getRepository(Page).findOneBy(where))).toEqual([['Seq Scan']])
})
