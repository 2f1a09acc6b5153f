import type { DataSource, FindOperator, FindOptionsWhere, ObjectLiteral, Repository, ValueTransformer } from 'typeorm'
import {
  And,
  Any,
  Between,
  Brackets,
  ChildEntity,
  Column,
  DeleteDateColumn,
  Entity,
  EntitySchema,
  Equal,
  ILike,
  In,
  IsNull,
  JoinColumn,
  Like,
  ManyToOne,
  MoreThan,
  Not,
  NotBrackets,
  OneToMany,
  Or,
  PrimaryGeneratedColumn,
  Raw,
  TableInheritance,
} from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { DeclarationError, findOrCreate, UniqueText, uniqueTextSchema } from '../../../src'
import { lowerCase, trim, url } from '../../../src/text'
import { textCondition, textEquals, textIn } from '../../../src/typeorm-calls'
import { useDatabase } from '../../support/database'
import { column, embedded, entity, text, toOne } from '../../support/entity'
import { loggerOf } from '../../support/logger'
import { oneHash } from '../../support/digests'

@Entity({ name: 'page' })
class Page {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ normalize: url() }) url!: string
  @UniqueText({ normalize: lowerCase(), nullable: true, digest: 'sha256' }) alias!: string | null
  @Column({ type: 'integer', default: 0 }) hits!: number
  @DeleteDateColumn({ type: 'timestamptz' }) deletedAt!: Date | null
  @OneToMany(() => Link, (link) => link.page) links!: Link[]
}

@Entity({ name: 'link' })
class Link {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @ManyToOne(() => Page, (page) => page.links, { nullable: false }) page!: Page
  @Column({ type: 'text', default: '' }) label!: string
}

const db = useDatabase()
/** What TypeORM has sent: SQL, and its parameters. */
const sent: { readonly sql: string; readonly parameters: readonly unknown[] }[] = []

function record(dataSource: DataSource): DataSource {
  dataSource.logger = loggerOf({ logQuery: (sql, parameters: unknown[] = []) => void sent.push({ sql, parameters }) })
  return dataSource
}

let dataSource: DataSource
let pages: Repository<Page>
let links: Repository<Link>

beforeAll(async () => {
  dataSource = record(await db.dataSource([Page, Link]))
  pages = dataSource.getRepository(Page)
  links = dataSource.getRepository(Link)
})

const [A, B, C] = ['http://a.example/', 'http://b.example/', 'http://c.example/'] as const
/** Another spelling of A. */
const SPELLED = 'HTTP://A.example:80'
const REFUSED = 'ftp://a.example/'

beforeEach(async () => {
  await dataSource.query('truncate page, link restart identity')
  await pages.insert([
    { url: A, alias: 'first' },
    { url: B, alias: 'second' },
    { url: C, alias: null },
  ])
  await links.insert([{ page: { id: 1 } }, { page: { id: 2 } }])
  sent.length = 0
})

/** The last statement looks by the hash too. */
function expectHash(property = 'urlHash'): void {
  expect(sent.at(-1)?.sql).toMatch(new RegExp(`"${property}" = (ANY\\()?\\$`))
}

function expectNoHash(): void {
  expect(sent.at(-1)?.sql).not.toContain('Hash" =')
}

const idsBy = async (where: FindOptionsWhere<Page> | FindOptionsWhere<Page>[]): Promise<number[]> =>
  (await pages.findBy(where)).map(({ id }) => id).toSorted((left, right) => left - right)

const equalities: Readonly<Record<string, readonly [string | FindOperator<string>, readonly number[]]>> = {
  'a text': [SPELLED, [1]],
  Equal: [Equal(SPELLED), [1]],
  In: [In([SPELLED, B]), [1, 2]],
  'In with a refused text': [In([REFUSED, SPELLED]), [1]],
  Any: [Any([SPELLED, B]), [1, 2]],
  'Any with a refused text': [Any([REFUSED, SPELLED]), [1]],
  'Or of equalities': [Or(Equal(SPELLED), In([B])), [1, 2]],
  'And with a pattern': [And(Equal(SPELLED), Like('http%')), [1]],
  textEquals: [textEquals(SPELLED), [1]],
  textIn: [textIn([SPELLED, B, REFUSED]), [1, 2]],
  'Or of textEquals': [Or(textEquals(SPELLED), textEquals(B)), [1, 2]],
}

describe.each(Object.entries(equalities))('an equality by %s', (_, [condition, ids]) => {
  test('looks by the hash, in the spelling that is stored, in find options', async () => {
    expect(await idsBy({ url: condition })).toEqual(ids)
    expectHash()
    expect(sent.at(-1)?.parameters.flat()).toContain(A)
    expect(await pages.countBy({ url: condition })).toBe(ids.length)
    expectHash()
  })

  test('does so in the conditions of a query builder', async () => {
    const found = await pages.createQueryBuilder('p').where({ url: condition }).orderBy('p.id').getMany()
    expect(found.map(({ id }) => id)).toEqual(ids)
    expectHash()
  })

  test('can be negated, and then names no hash that would not help', async () => {
    expect(await idsBy({ url: Not(condition) })).toEqual([1, 2, 3].filter((id) => !ids.includes(id)))
    expectNoHash()
  })
})

test('every call that takes conditions looks by the hash', async () => {
  const where = { url: SPELLED }
  const all = () => pages.createQueryBuilder()
  const calls: Readonly<Record<string, () => Promise<unknown>>> = {
    find: () => pages.find({ where }),
    findOne: () => pages.findOne({ where }),
    findOneBy: () => pages.findOneBy(where),
    findOneByOrFail: () => pages.findOneByOrFail(where),
    findAndCount: () => pages.findAndCountBy(where),
    exists: () => pages.existsBy(where),
    count: () => pages.count({ where }),
    sum: () => pages.sum('hits', where),
    average: () => pages.average('hits', where),
    minimum: () => pages.minimum('hits', where),
    maximum: () => pages.maximum('hits', where),
    withDeleted: () => pages.find({ where, withDeleted: true }),
    'a list': () => pages.findBy([where, { url: B }]),
    cached: () => pages.find({ where, cache: false, comment: 'why' }),
    'a manager': () => dataSource.manager.findBy(Page, where),
    'a transaction': () => dataSource.transaction((manager) => manager.findOneBy(Page, where)),
    'select.where': () => pages.createQueryBuilder().where(where).getMany(),
    'select.where of a list': () => all().where([where, { url: B }]).getMany(), // prettier-ignore
    'select.andWhere': () => pages.createQueryBuilder('p').where('p.id > 0').andWhere(where).getMany(),
    'select.orWhere': () => pages.createQueryBuilder('p').where('p.id < 0').orWhere(where).getMany(),
    brackets: () => all().where(new Brackets((qb) => qb.where(where))).getMany(), // prettier-ignore
    'not brackets': () => all().where(new NotBrackets((qb) => qb.where(where))).getMany(), // prettier-ignore
    'a clone': () => pages.createQueryBuilder().clone().where(where).getMany(),
    'a builder of a builder': () =>
      pages.createQueryBuilder().createQueryBuilder().select('p').from(Page, 'p').where(where).getMany(),
    'find options on a builder': () => pages.createQueryBuilder('p').setFindOptions({ where }).getMany(),
    'a sub-query': () =>
      links
        .createQueryBuilder('l')
        .where((qb) => `l.pageId IN ${qb.subQuery().select('p.id').from(Page, 'p').where(where).getQuery()}`)
        .getMany(),
    update: () => pages.update(where, { hits: 1 }),
    increment: () => pages.increment(where, 'hits', 1),
    decrement: () => pages.decrement(where, 'hits', 1),
    softDelete: () => pages.softDelete(where),
    restore: () => pages.restore(where),
    'update.where': () => pages.createQueryBuilder().update().set({ hits: 2 }).where(where).execute(),
    'softDelete.where': () => pages.createQueryBuilder().softDelete().where(where).execute(),
    'restore.where': () => pages.createQueryBuilder().restore().where(where).execute(),
    'delete.where': () => dataSource.createQueryBuilder().delete().from(Page).where({ url: B, id: 99 }).execute(),
    'relation conditions': () => links.findBy({ page: where }),
    'two relations away': () => pages.findBy({ links: { page: where } }),
    'conditions on a joined alias': () =>
      links.createQueryBuilder('l').innerJoin('l.page', 'p').where({ page: where }).getMany(),
    'a relation with a load strategy': () =>
      links.find({ where: { page: where }, relations: { page: true }, relationLoadStrategy: 'query' }),
    lock: () => dataSource.transaction((manager) => manager.find(Page, { where, lock: { mode: 'pessimistic_write' } })),
    delete: () => pages.delete({ ...where, id: 99 }),
  }
  const results: Record<string, unknown> = {}
  for (const [name, call] of Object.entries(calls)) {
    sent.length = 0
    await call()
    const texts = sent.filter(({ parameters }) => parameters.some((one) => [A, B, SPELLED].includes(String(one))))
    const all = texts.every(({ sql, parameters }) => sql.includes('"urlHash" = $') && !parameters.includes(SPELLED))
    results[name] = texts.length > 0 && all
  }
  expect(results).toEqual(Object.fromEntries(Object.keys(calls).map((name) => [name, true])))
})

test('a refused text in a condition finds nothing and does not throw; negated, it is every row that has a text', async () => {
  expect(await pages.findOneBy({ url: REFUSED })).toBeNull()
  for (const none of [Equal(REFUSED), In([REFUSED]), Any([REFUSED]), textEquals(REFUSED), textIn([REFUSED])]) {
    expect(await idsBy({ url: none })).toEqual([])
    expect(await idsBy({ url: Not(none) })).toEqual([1, 2, 3])
    expect(await idsBy({ url: Not(Not(none)) })).toEqual([])
  }
  expect(await idsBy({ url: Not(REFUSED) })).toEqual([1, 2, 3])
  expect(await idsBy({ url: Or(Equal(REFUSED), Equal(B)) })).toEqual([2])
  expect(await pages.update({ url: REFUSED }, { hits: 9 })).toMatchObject({ affected: 0 })
  expect(await pages.delete({ url: REFUSED })).toMatchObject({ affected: 0 })
  expect(await idsBy({ url: '\u0000' })).toEqual([])
  expect(await idsBy({ url: 'http://a/\uD800' })).toEqual([])
})

test('Not leaves out the rows without a text, whether the text is refused or not', async () => {
  expect(await idsBy({ alias: Not('FIRST') })).toEqual([2])
  expect(await idsBy({ alias: Not('\u0000') })).toEqual([1, 2])
  expect(await idsBy({ alias: Not(In(['\u0000'])) })).toEqual([1, 2])
  expect(await idsBy({ alias: Not(Equal('\u0000')) })).toEqual([1, 2])
  expect(await idsBy({ alias: IsNull() })).toEqual([3])
  expect(await idsBy({ alias: Not(IsNull()) })).toEqual([1, 2])
  expect(await idsBy({ alias: Or(IsNull(), Equal('FIRST')) })).toEqual([1, 3])
})

test('patterns, ranges and SQL are never normalized', async () => {
  await pages.update({ id: 1 }, { alias: 'abc' })
  expect(await idsBy({ alias: Like('AB%') })).toEqual([])
  expect(await idsBy({ alias: Like('ab%') })).toEqual([1])
  expect(await idsBy({ alias: ILike('AB%') })).toEqual([1])
  expect(await idsBy({ alias: Between('A', 'Z') })).toEqual([])
  expect(await idsBy({ alias: MoreThan('Z') })).toEqual([1, 2])
  expect(await idsBy({ alias: Raw((path) => `${path} = :one`, { one: 'ABC' }) })).toEqual([])
  expect(await idsBy({ alias: Raw((path) => `${path} = :one`, { one: 'abc' }) })).toEqual([1])
  expect(await idsBy({ url: Like('HTTP%') })).toEqual([])
  expect(await idsBy({ url: Not(Like('HTTP%')) })).toEqual([1, 2, 3])
  expect(await idsBy({ url: Or(Equal(SPELLED), Like('http://b%')) })).toEqual([1, 2])
  const query = pages.createQueryBuilder('p').where({ alias: Like('ab%') })
  expect(await query.getCount()).toBe(1)
  expectNoHash()
})

test('a list is empty, or holds NULL, as in TypeORM', async () => {
  expect(await idsBy({ url: In([]) })).toEqual([])
  expect(await idsBy({ url: Not(In([])) })).toEqual([1, 2, 3])
  expect(await idsBy({ url: Any([]) })).toEqual([])
  expect(await idsBy({ url: textIn([]) })).toEqual([])
  expect(await idsBy({ alias: In(['FIRST', null]) })).toEqual([1])
})

test('a list may be as long as before, for its hashes are one parameter', async () => {
  const texts = Array.from({ length: 60_000 }, (_, index) => `http://a.example/${index}`)
  expect(await idsBy({ url: In([...texts, A]) })).toEqual([1])
  expect(await idsBy({ url: textIn([...texts, ...texts.map((text) => `${text}/`), A]) })).toEqual([1])
})

test('conditions are not changed, and may be frozen', async () => {
  const operator = In([SPELLED])
  const where = Object.freeze({ url: operator, page: undefined })
  const given = Object.freeze({ url: SPELLED })
  const deep = Object.freeze({ page: Object.freeze({ url: Equal(SPELLED) }) })
  for (let time = 0; time < 2; time++) {
    expect(await pages.countBy({ url: where.url })).toBe(1)
    expect(await pages.countBy(given)).toBe(1)
    expect(await links.countBy(deep)).toBe(1)
    expect(await pages.update(given, { hits: 1 })).toMatchObject({ affected: 1 })
  }
  expect(operator.value).toEqual([SPELLED])
  expect(deep.page.url.value).toBe(SPELLED)
  expect(Object.keys(given)).toEqual(['url'])
})

test('an entity can be the condition, also one that leads back to itself', async () => {
  const page = Object.assign(new Page(), { url: SPELLED })
  expect(await pages.findBy(page as FindOptionsWhere<Page>)).toMatchObject([{ id: 1 }])
  expectHash()
  expect(page).toEqual(Object.assign(new Page(), { url: SPELLED }))
  @Entity({ name: 'folder' })
  class Folder {
    @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
    @UniqueText() @Column({ type: 'text', transformer: marked }) name!: string
    @ManyToOne(() => Folder, { nullable: true }) parent!: Folder | null
  }
  const folders = record(await db.dataSource([Folder])).getRepository(Folder)
  const folder = Object.assign(new Folder(), { name: '>root' })
  await folders.save(folder)
  folder.parent = folder
  const query = folders.createQueryBuilder('f').leftJoin('f.parent', 'parent').where(folder)
  expect(await query.getMany()).toEqual([])
  const byName = folders.createQueryBuilder().where(Object.assign(new Folder(), { name: '>root' }))
  expect(await byName.getCount()).toBe(1)
  expectHash('nameHash')
})

test('an entity with accessors can be the condition by its relation', async () => {
  @Entity({ name: 'doc' })
  class Doc {
    @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
    @UniqueText({ normalize: url() })
    get address(): string {
      return this.held
    }
    set address(given: string) {
      this.held = given.trim()
    }
    private held!: string
  }
  const Ref = entity('Ref', { doc: toOne(() => Doc) })
  const { manager } = await db.dataSource([Doc, Ref])
  const doc = await manager.save(Object.assign(new Doc(), { address: A }))
  await manager.save(Object.assign(new Ref(), { doc }))
  const query = manager.createQueryBuilder(Ref, 'r').innerJoin('r.doc', 'd').where({ doc })
  expect(await query.getCount()).toBe(1)
  expect(doc.address).toBe(A)
})

test('a hash that the conditions name themselves stays', async () => {
  const hash = '00000000-0000-0000-0000-000000000000'
  expect(await pages.findBy({ url: A, urlHash: hash } as FindOptionsWhere<Page>)).toEqual([])
})

test('rewriteQueries: false leaves the SQL to TypeORM, normalizes all the same, and not what textEquals asks for', async () => {
  const off = record(await db.dataSource([Page, Link], {}, { rewriteQueries: false }))
  const repository = off.getRepository(Page)
  sent.length = 0
  expect(await repository.findBy({ url: SPELLED })).toMatchObject([{ id: 1 }])
  expectNoHash()
  expect(await repository.findBy({ url: Any([SPELLED]) })).toMatchObject([{ id: 1 }])
  expectNoHash()
  expect(await repository.update({ url: SPELLED }, { hits: 1 })).toMatchObject({ affected: 1 })
  expectNoHash()
  expect(await repository.findBy({ url: REFUSED })).toEqual([])
  expect(await repository.findBy({ alias: Like('FIRST') })).toEqual([])
  expect(await repository.findBy({ url: textEquals(SPELLED) })).toMatchObject([{ id: 1 }])
  expectHash()
  expect(await repository.update({ url: textIn([SPELLED, B]) }, { hits: 1 })).toMatchObject({ affected: 2 })
  expectHash()
})

test('a property of an embedded with the name of a unique text is no unique text', async () => {
  class Source {
    @Column({ type: 'text' }) url!: string
  }
  const Copy = entity('Copy', { url: text({ normalize: url() }), source: embedded(() => Source) })
  const copies = record(await db.dataSource([Copy])).getRepository(Copy)
  await copies.insert({ url: SPELLED, source: { url: SPELLED } })
  expect(await copies.countBy({ source: { url: SPELLED } })).toBe(1)
  expectNoHash()
  expect(await copies.countBy({ source: { url: A } })).toBe(0)
  const query = copies.createQueryBuilder().where({ source: { url: SPELLED }, url: SPELLED })
  expect(await query.getCount()).toBe(1)
})

test("a transformer of the user's own sees a text within an embedded once", async () => {
  class Named {
    @Column({ type: 'text', transformer: marked }) name!: string
  }
  const Crate = entity('Crate', { named: embedded(() => Named) })
  UniqueText({ as: 'label', columns: ['named.name'] })(Crate)
  const crates = record(await db.dataSource([Crate])).getRepository(Crate)
  await crates.save({ named: { name: '>>ab' } })
  for (const name of ['>>ab', Equal('>>ab'), In(['>>ab']), Like('>>a%'), textEquals('>>ab')]) {
    expect(await crates.countBy({ named: { name } })).toBe(1)
  }
})

test('a query of what is no entity is left to TypeORM', async () => {
  const query = dataSource
    .createQueryBuilder()
    .select('p.id', 'id')
    .from((qb) => qb.select(['q.id AS id', 'q.url AS url']).from(Page, 'q'), 'p')
  expect(await query.clone().where({ url: A }).getRawMany()).toEqual([{ id: 1 }])
  expectNoHash()
  const spelled = query.clone().where([{ url: SPELLED }])
  expect(await spelled.getRawMany()).toEqual([])
})

test('textEquals and textIn on what is no unique text are refused, as is what they cannot look for', async () => {
  const Plain = entity('Plain', { title: column('text') })
  const plain = (await db.dataSource([Plain], { synchronize: false })).getRepository(Plain)
  const refusal =
    'textEquals() and textIn() are for a unique text, and "Plain.title" is not one here. Use Equal() or In().'
  await expect(plain.findBy({ title: textEquals('a') })).rejects.toThrow(refusal)
  await expect(links.findBy({ label: textEquals('a') })).rejects.toThrow(DeclarationError)
  expect(() => textEquals(undefined as unknown as string)).toThrow('expects a text, got undefined')
  expect(() => textIn('a' as unknown as string[])).toThrow('textIn() expects a list of texts')
})

test('textCondition gives SQL and parameters for joins and conditions of a query builder', async () => {
  const condition = (texts: Partial<Page>): ReturnType<typeof textCondition> =>
    textCondition(dataSource.manager, Page, 'p', texts)
  const joined = links.createQueryBuilder('l').innerJoin('l.page', 'p', ...condition({ url: SPELLED }))
  expect(await joined.getMany()).toEqual([{ id: 1, label: '' }])
  expectHash()
  const by = (texts: Partial<Page>) => pages.createQueryBuilder('p').where(...condition(texts))
  const either = by({ url: SPELLED }).orWhere(...condition({ url: B }))
  expect(await either.getCount()).toBe(2)
  expect(await by({ url: SPELLED, alias: 'FIRST' }).getMany()).toMatchObject([{ id: 1 }])
  expectHash('aliasHash')
  expect(await by({ url: REFUSED }).getMany()).toEqual([])
  expect(await by({ alias: null }).getMany()).toMatchObject([{ id: 3 }])
})

test('textCondition takes unique texts, and nothing else', () => {
  const make = (texts: object): unknown => textCondition(dataSource.manager, Page, 'p', texts)
  expect(() => make({})).toThrow(
    "textCondition() expects an alias and a unique text of Page, as in { url: 'https://example.com' }. Give both.",
  )
  expect(() => make({ url: A, hits: 1 })).toThrow('"hits" is not one. Add other conditions with andWhere().')
  expect(() => make({ url: 1 })).toThrow('expected a string, got number')
  expect(() => make({ url: Like('a') })).toThrow(DeclarationError)
  expect(() => make({ url: In([A, B]) })).toThrow(DeclarationError)
  expect(() => textCondition(pages as never, Page, 'p', { url: A })).toThrow('Pass its property "manager".')
})

/** The property has a mark in front of what is stored, and a second pass would take off another. */
const marked: ValueTransformer = {
  to: (value: unknown) => {
    if (typeof value === 'object' && value !== null) throw new TypeError('It expects a text.')
    return typeof value === 'string' ? value.slice(1) : value
  },
  from: (value: unknown) => (typeof value === 'string' ? `>${value}` : value),
}

test("a transformer of the user's own comes before the normalizer, once, in find options and in query builders", async () => {
  @Entity({ name: 'marked' })
  class Marked {
    @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
    @UniqueText({ normalize: url() }) @Column({ type: 'text', transformer: marked }) url!: string
  }
  const repository = record(await db.dataSource([Marked])).getRepository(Marked)
  await repository.save([{ url: `>${A}` }, { url: `>${B}` }])
  const spelled = `>${SPELLED}`
  const patterns = [Equal(spelled), In([spelled]), Like('>http://a%'), textEquals(spelled)]
  const wheres: FindOptionsWhere<Marked>['url'][] = [spelled, ...patterns]
  for (const one of wheres) {
    const where = { url: one ?? '' }
    for (let time = 0; time < 2; time++) expect(await repository.findBy(where)).toEqual([{ id: 1, url: `>${A}` }])
    expect(await repository.createQueryBuilder().where(where).getMany()).toEqual([{ id: 1, url: `>${A}` }])
    expect(await repository.findBy({ url: Not(where.url) })).toEqual([{ id: 2, url: `>${B}` }])
  }
  expectNoHash()
  await repository.findBy({ url: `>${SPELLED}` })
  expectHash()
})

describe('a text of several columns', () => {
  class Address {
    @Column({ type: 'text', transformer: { to: (value: unknown) => value, from: (value: unknown) => value } })
    host!: string
    @Column({ type: 'text', nullable: true }) path!: string | null
  }
  const Site = entity('Site', {})
  type Site = InstanceType<typeof Site>
  @Entity({ name: 'place' })
  @UniqueText({
    as: 'whole',
    columns: [
      { property: 'address.host', normalize: lowerCase() },
      { property: 'address.path', prefix: '/', normalize: trim() },
    ],
    scope: ['site'],
  })
  class Place {
    @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
    @Column(() => Address) address!: Address
    @ManyToOne(() => Site, { nullable: false }) @JoinColumn() site!: Site
  }
  const Visit = entity('Visit', { place: toOne(() => Place) })
  type Visit = InstanceType<typeof Visit>
  let places: Repository<Place>
  let visits: Repository<Visit>

  beforeAll(async () => {
    const own = record(await db.dataSource([Site, Place, Visit], { invalidWhereValuesBehavior: { null: 'sql-null' } }))
    places = own.getRepository(Place)
    visits = own.getRepository(Visit)
    await own.getRepository(Site).insert([{}, {}])
    await places.insert([
      { address: { host: 'a', path: 'x' }, site: { id: 1 } },
      { address: { host: 'a', path: null }, site: { id: 1 } },
      { address: { host: 'a', path: 'x' }, site: { id: 2 } },
    ])
    await visits.insert([{ place: { id: 1 } }])
  })

  const found = async (where: FindOptionsWhere<Place>): Promise<readonly number[]> => {
    const ids = (await places.findBy(where)).map(({ id }) => id)
    const built = await places.createQueryBuilder('p').leftJoin('p.site', 'site').where(where).getMany()
    return built.length === ids.length ? ids.toSorted((left, right) => left - right) : []
  }

  test('looks by the hash where the conditions give every column, NULL included', async () => {
    expect(await found({ address: { host: 'A', path: ' x' } })).toEqual([1, 3])
    expectHash('wholeHash')
    expect(await found({ address: { host: 'A', path: IsNull() } })).toEqual([2])
    expectHash('wholeHash')
    expect(await found({ address: { host: 'A', path: In(['x ', 'y']) }, site: { id: 2 } })).toEqual([3])
    expectHash('wholeHash')
    expect(await found({ address: { host: 'A', path: Or(IsNull(), Equal('x')) } })).toEqual([1, 2, 3])
    expectHash('wholeHash')
    expect(await places.countBy({ address: { host: 'A', path: null as unknown as string } })).toBe(1)
    expectHash('wholeHash')
    expect(await visits.countBy({ place: { address: { host: 'A', path: 'x' } } })).toBe(1)
    expectHash('wholeHash')
    expect(
      await places.update({ address: { host: 'A', path: 'x' }, site: { id: 2 } }, { site: { id: 2 } }),
    ).toMatchObject({ affected: 1 })
    expectHash('wholeHash')
  })

  test('is normalized in a list within the embedded', async () => {
    expect(await places.countBy({ address: [{ host: 'A', path: ' x' }, { host: 'b' }] })).toBe(2)
    expect(await places.countBy({ address: [{ host: Like('A') }, { path: '\u0000' }] })).toBe(0)
  })

  test('looks by no hash of NULL where TypeORM makes no condition of it', async () => {
    const invalidWhereValuesBehavior = { null: 'ignore' } as const
    const lenient = await db.dataSource([Site, Place, Visit], { synchronize: false, invalidWhereValuesBehavior })
    const where = { address: { host: 'A', path: null as unknown as string } }
    expect(await lenient.getRepository(Place).countBy(where)).toBe(3)
  })

  test('is left alone where they do not, or name several texts for two columns, and is normalized all the same', async () => {
    expect(await found({ address: { host: 'A' } })).toEqual([1, 2, 3])
    expectNoHash()
    expect(await found({ address: { host: 'A', path: Like('x%') } })).toEqual([1, 3])
    expectNoHash()
    expect(await found({ address: { host: In(['A', 'b']), path: In(['x', 'y']) } })).toEqual([1, 3])
    expectNoHash()
  })

  test('is what textCondition looks for, with NULL for null', async () => {
    const count = async (path: string | null): Promise<number> => {
      const condition = textCondition(places.manager, Place, 'p', { address: { host: 'A', path } })
      const query = places.createQueryBuilder('p').where(...condition)
      return await query.getCount()
    }
    expect([await count(' x'), await count(null), await count('y'), await count('\u0000')]).toEqual([2, 1, 0, 0])
    const part = (): unknown => textCondition(places.manager, Place, 'p', { address: { host: 'A' } })
    expect(part).toThrow('textCondition() expects unique texts of Place, and all columns of each; "address" is not one')
  })

  test('is not looked for by textEquals in one of its columns', async () => {
    expect(await found({ address: { host: textEquals('A'), path: textEquals('x') } })).toEqual([1, 3])
    const refusal = 'needs a condition on each of "address.host", "address.path"'
    await expect(places.findBy({ address: { host: textEquals('A') } })).rejects.toThrow(refusal)
    await expect(places.findBy({ address: { host: textEquals('A') } })).rejects.toBeInstanceOf(DeclarationError)
  })
})

test('the text of a class in single table inheritance is looked for by the hash, from the class and from its root', async () => {
  const Medium = entity('Medium', {})
  TableInheritance({ column: { type: 'text', name: 'type' } })(Medium)
  @ChildEntity()
  class Book extends Medium {
    @UniqueText({ normalize: trim() }) isbn!: string
  }
  @ChildEntity()
  class Film extends Medium {
    @UniqueText({ normalize: lowerCase() }) title!: string
  }
  const { manager } = record(await db.dataSource([Medium, Book, Film]))
  await findOrCreate(manager, Book, { isbn: '1' })
  await findOrCreate(manager, Film, { title: 'one' })
  expect(await manager.findBy(Book, { isbn: ' 1' })).toMatchObject([{ id: 1 }])
  expectHash('isbnHash')
  expect(await manager.findBy(Film, { title: 'ONE' })).toMatchObject([{ id: 2 }])
  expectHash('titleHash')
  expect(await manager.findBy(Medium, { title: 'ONE' } as ObjectLiteral)).toMatchObject([{ id: 2 }])
  expectHash('titleHash')
})

test('the text of an EntitySchema is looked for by the hash, under the names that it has in the database', async () => {
  interface Tag {
    readonly id: number
    readonly label: string
  }
  const Tag = new EntitySchema<Tag>(
    uniqueTextSchema<Tag>(
      { name: 'Tag', tableName: 'Tags of all', columns: { id: { type: Number, primary: true, generated: true } } },
      { label: { name: 'the label', normalize: trim(), hidden: { hash: 'the hash' } } },
    ),
  )
  const repository = record(await db.dataSource([Tag])).getRepository(Tag)
  await repository.insert({ label: 'one' })
  expect(await repository.findBy({ label: ' one' })).toMatchObject([{ id: 1 }])
  expectHash('the hash')
  expect(await repository.createQueryBuilder('t').where({ label: ' one' }).getCount()).toBe(1)
  expectHash('the hash')
  expect(await repository.delete({ label: ' one ' })).toMatchObject({ affected: 1 })
  expectHash('the hash')
})

test('a DataSource without unique texts makes the query builders of TypeORM', async () => {
  const Other = entity('Other', {})
  const plain = await db.dataSource([Other], { synchronize: false })
  expect(Object.hasOwn(plain, 'createQueryBuilder')).toBe(false)
  const ours = pages.createQueryBuilder()
  const theirs = plain.getRepository(Other).createQueryBuilder()
  expect(ours.constructor.name).toBe(theirs.constructor.name)
  expect(ours).toBeInstanceOf(theirs.constructor)
  expect(Object.keys(dataSource)).not.toContain('createQueryBuilder')
})

test('texts of equal hash are told apart', async () => {
  const Same = entity('Same', { text: text({ digest: oneHash }) })
  const { manager } = record(await db.dataSource([Same]))
  await manager.insert(Same, [{ text: 'a' }, { text: 'b' }, { text: 'c' }])
  expect(await manager.findBy(Same, { text: 'b' })).toMatchObject([{ text: 'b' }])
  expectHash('textHash')
  expect(await manager.countBy(Same, { text: In(['a', 'c', 'd']) })).toBe(2)
  expect(await manager.delete(Same, { text: 'c' })).toMatchObject({ affected: 1 })
})

test('null and undefined are what TypeORM makes of them', async () => {
  const given = (value: unknown): FindOptionsWhere<Page> => ({ url: value }) as FindOptionsWhere<Page>
  const ignoring = await db.dataSource([Page, Link], {
    invalidWhereValuesBehavior: { null: 'ignore', undefined: 'ignore' },
  })
  for (const value of [null, undefined]) expect(await ignoring.manager.countBy(Page, given(value))).toBe(3)
  const strict = await db.dataSource([Page, Link], {
    invalidWhereValuesBehavior: { null: 'throw', undefined: 'throw' },
  })
  for (const value of [null, undefined]) {
    await expect(strict.manager.countBy(Page, given(value))).rejects.toThrow('value encountered in property')
  }
  const meaning = await db.dataSource([Page, Link], { invalidWhereValuesBehavior: { null: 'sql-null' } })
  expect(await meaning.manager.countBy(Page, { alias: null } as unknown as FindOptionsWhere<Page>)).toBe(1)
})

test('a result is cached under its conditions', async () => {
  const cached = await db.dataSource([Page, Link], { cache: true })
  const count = async (text: string): Promise<number> =>
    (await cached.getRepository(Page).find({ where: { url: text }, cache: 60_000 })).length
  // The first look-up of a DataSource sees the table; its SQL, and so its place in the cache, is another.
  await count(C)
  expect([await count(SPELLED), await count(REFUSED), await count(B)]).toEqual([1, 0, 1])
  await links.createQueryBuilder().delete().execute()
  await pages.delete({ url: In([A, B]) })
  expect([await count(A), await count(REFUSED), await count(B)]).toEqual([1, 0, 1])
})

test('the condition under which an upsert overwrites is normalized, and keeps its meaning', async () => {
  const upsert = (text: string): Promise<unknown> =>
    dataSource
      .createQueryBuilder()
      .insert()
      .into(Page)
      .values({ id: 1, url: A, hits: 7 })
      .orUpdate(['hits'], ['id'], { overwriteCondition: { where: { url: text } } })
      .execute()
  for (const other of [B, REFUSED]) await upsert(other)
  expect(await pages.findOneBy({ id: 1 })).toMatchObject({ hits: 0 })
  await upsert(SPELLED)
  expect(await pages.findOneBy({ id: 1 })).toMatchObject({ hits: 7 })
})

test('a DataSource that is initialised again looks by the hash again', async () => {
  const again = await db.dataSource([Page, Link], { synchronize: false })
  await again.destroy()
  await record(again).initialize()
  expect(await again.getRepository(Page).findBy({ url: SPELLED })).toMatchObject([{ id: 1 }])
  expectHash()
  expect(await again.getRepository(Page).update({ url: SPELLED }, { hits: 1 })).toMatchObject({ affected: 1 })
  expectHash()
})
