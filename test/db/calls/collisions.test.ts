import { hash } from 'node:crypto'
import type { Client } from 'pg'
import type { EntityManager } from 'typeorm'
import { describe, expect, test, vi } from 'vitest'
import {
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  type FindOrCreateManyResult,
  ImmutableTextError,
} from '../../../src'
import { findImportTarget, importLines } from '../../../src/cli/import'
import { readLines } from '../../../src/cli/list'
import type { TextTable } from '../../../src/sql/text-table'
import { textsOfEntity } from '../../../src/registry/registry'
import { Url } from '../../../src/url'
import { copyIn } from '../../stress/copy-in'
import { entity, text } from '../../support/entity'
import { onlyRowOf, rowOf } from '../../support/results'
import { type Pair, STEVENS, SUFFIX_SAFE, URL_PATHS } from '../../support/md5-collisions'
import { useDatabase } from '../../support/database'
import { oneHash } from '../../support/digests'
import { violations } from '../../support/guarded-table'
import { Page } from '../../support/titled-page'

const LONGEST_CHAIN = 1_000

/** Every text has one hash: what an attacker could do to MD5, without the collisions it would take. */
const Crowded = entity('Crowded', { text: text({ digest: oneHash, maxChainLength: LONGEST_CHAIN }) })
type Crowded = InstanceType<typeof Crowded>

const db = useDatabase()
const dataSource = db.useDataSource([Page, Crowded, Url])
const { manager } = dataSource
const client = db.useClient()

const pairs: readonly { readonly name: string; readonly texts: Pair }[] = [
  { name: 'the published pair', texts: STEVENS },
  { name: 'the pair that survives a suffix', texts: SUFFIX_SAFE },
  { name: 'the same with a suffix', texts: [`${SUFFIX_SAFE[0]}?q=ä#f`, `${SUFFIX_SAFE[1]}?q=ä#f`] },
]

/** A row as a caller got it; undefined from those who get none. */
type Given = Pick<Page, 'id' | 'url'> | undefined

/** Brings one text into the table. */
type Entrance = (manager: EntityManager, url: string) => Promise<Given>

const md5 = (text: string): string => hash('md5', text)

const entitiesOf = (results: readonly FindOrCreateManyResult<Page>[]): Page[] =>
  results.map((result) => rowOf(result).entity)

const entrances: Readonly<Record<string, Entrance>> = {
  findOrCreate: async (manager, url) => (await findOrCreate(manager, Page, { url })).entity,
  'findOrCreateMany, each alone': async (manager, url) =>
    (await onlyRowOf(findOrCreateMany(manager, Page, [{ url }]))).entity,
  save: (manager, url) => manager.save(Page, { url }),
  'insert of a repository': async (manager, url) => {
    const { identifiers } = await manager.getRepository(Page).insert({ url })
    return { id: Number(identifiers[0]?.['id']), url }
  },
  'insert by a query builder': async (manager, url) => {
    const { generatedMaps } = await manager.createQueryBuilder().insert().into(Page).values({ url }).execute()
    return { id: Number(generatedMaps[0]?.['id']), url }
  },
  'upsert, the hash left to the guard': async (manager, url) => {
    const { identifiers } = await manager.upsert(Page, { url, title: url }, ['urlHash', 'urlHashNumber'])
    return { id: Number(identifiers[0]?.['id']), url }
  },
  'SQL without a hash': (manager, url) => insert(manager, '(url) values ($1)', [url]),
  'SQL with the hash and a number of its own': (manager, url) =>
    insert(manager, '(url, "urlHash", "urlHashNumber") values ($1, $2, 7)', [url, md5(url)]),
  'SQL with a wrong hash and no number': (manager, url) =>
    insert(manager, '(url, "urlHash", "urlHashNumber") values ($1, $2, null)', [url, md5('another')]),
  'SQL, ON CONFLICT DO NOTHING': (manager, url) => insert(manager, '(url) values ($1) on conflict do nothing', [url]),
  'COPY without a hash': (manager, url) => copy(manager, 'copy page (url) from stdin', [url]),
  'COPY with the hash and a number of its own': (manager, url) =>
    copy(manager, 'copy page (url, "urlHash", "urlHashNumber") from stdin', [`${url}\t${md5(url)}\t7`]),
  'UPDATE of another row into the collision': async (manager, url) => {
    const row = await insert(manager, '(url) values ($1)', [`other ${url}`])
    return await sql(manager, 'update page set url = $2 where id = $1 returning id, url', [row?.id, url])
  },
  'update of a repository into the collision': async (manager, url) => {
    const page = await manager.save(Page, { url: `other ${url}` })
    await manager.getRepository(Page).update(page.id, { url })
    return { id: page.id, url }
  },
  'save of a changed entity into the collision': async (manager, url) => {
    const page = await manager.save(Object.assign(new Page(), { url: `other ${url}` }))
    page.url = url
    return await manager.save(page)
  },
}

async function sql(manager: EntityManager, statement: string, values: unknown[]): Promise<Given> {
  const rows: unknown = await manager.query(statement, values)
  // TypeORM gives the rows of an UPDATE with their count.
  return ((Array.isArray(rows) && Array.isArray(rows[0]) ? rows[0] : rows) as Page[])[0]
}

const insert = (manager: EntityManager, values: string, parameters: string[]): Promise<Given> =>
  sql(manager, `insert into page ${values} returning id, url`, parameters)

async function copy(manager: EntityManager, statement: string, lines: readonly string[]): Promise<Given> {
  const { queryRunner } = manager
  await copyIn(queryRunner ? ((await queryRunner.connect()) as Client) : client, statement, lines)
  return undefined
}

/** Brings both texts in at once. */
const both: Readonly<Record<string, (manager: EntityManager, texts: Pair) => Promise<readonly Given[]>>> = {
  'findOrCreateMany of both': async (manager, [a, b]) =>
    entitiesOf(await findOrCreateMany(manager, Page, [{ url: a }, { url: b }])),
  'findOrCreate of both at once': async (manager, texts) =>
    entitiesOf(await Promise.all(texts.map((url) => findOrCreate(manager, Page, { url })))),
  'save of both': (manager, [a, b]) => manager.save(Page, [{ url: a }, { url: b }]),
  'upsert of both': async (manager, [a, b]) => {
    await manager.upsert(Page, [{ url: a }, { url: b }], ['urlHash', 'urlHashNumber'])
    return []
  },
  'one INSERT of both': async (manager, texts) => {
    await manager.query('insert into page (url) values ($1), ($2)', [...texts])
    return []
  },
  'COPY of both': async (manager, texts) => [await copy(manager, 'copy page (url) from stdin', texts)],
}

/** In the order of their numbers. */
const stored = async (): Promise<{ id: number; url: string; n: number }[]> =>
  (
    await client.query<{ id: number; url: string; n: number }>(
      `select id, url, "urlHashNumber" as n from page order by n`,
    )
  ).rows

function tableOf(entity: typeof Page): TextTable {
  const [declaration] = textsOfEntity(dataSource.getMetadata(entity))
  if (!declaration) throw new TypeError('It declares a text.')
  return declaration.table
}

async function expectTwoRows(texts: Pair, given: readonly Given[]): Promise<void> {
  const rows = await stored()
  expect(rows.map(({ n }) => n)).toEqual([0, 1])
  expect(rows.map(({ url }) => url).toSorted()).toEqual([...texts].toSorted())
  const ids = new Map(rows.map(({ id, url }) => [url, id]))
  for (const { id, url } of given.filter((row) => row !== undefined)) expect([url, id]).toEqual([url, ids.get(url)])
  for (const url of texts) {
    expect(await findOneByText(manager, Page, { url })).toMatchObject({ id: ids.get(url), url })
    expect(await findOrCreate(manager, Page, { url })).toMatchObject({ created: false, attempts: 1 })
  }
  expect(await violations(client, tableOf(Page))).toEqual([])
}

const settings: Readonly<Record<string, <T>(work: (manager: EntityManager) => Promise<T>) => Promise<T>>> = {
  'outside a transaction': (work) => work(manager),
  'in a transaction': (work) => dataSource.transaction(work),
  'in a SERIALIZABLE transaction': (work) => dataSource.transaction('SERIALIZABLE', work),
}

/** The entrances that digest in JavaScript, in the guard, and those of TypeORM. */
const WITH_EVERY_PAIR: readonly string[] = [
  'findOrCreate',
  'SQL without a hash',
  'save',
  'findOrCreate of both at once',
]

describe.each(pairs)('$name', ({ texts }) => {
  test('collides', () => {
    expect(texts[0]).not.toBe(texts[1])
    expect(md5(texts[0])).toBe(md5(texts[1]))
  })

  // Neither the other entrances nor a transaction see which pair it is.
  const isFirst = texts === STEVENS
  const some = <Way>(ways: Readonly<Record<string, Way>>): [string, Way][] =>
    Object.entries(ways).filter(([name]) => isFirst || WITH_EVERY_PAIR.includes(name))

  describe.each(Object.entries(settings).slice(0, isFirst ? undefined : 1))('%s', (_, run) => {
    test.each(some(entrances))('%s keeps both, numbered 0 and 1, each caller with its own', async (_, enter) => {
      const given = await run(async (manager) => [await enter(manager, texts[0]), await enter(manager, texts[1])])
      expect(given.map((row, place) => row?.url ?? texts[place])).toEqual(texts)
      await expectTwoRows(texts, given)
      expect((await stored()).map(({ url }) => url)).toEqual(texts)
    })

    test.each(some(both))('%s keeps both, numbered 0 and 1, each caller with its own', async (_, enter) => {
      const given = await run((manager) => enter(manager, texts))
      given.forEach((row, place) => expect(row?.url ?? texts[place]).toBe(texts[place]))
      await expectTwoRows(texts, given)
    })
  })

  test.each([
    ['the anchor', 0],
    ['the other', 1],
  ] as const)(
    'UPDATE of %s out of the collision leaves the other row with its text, its id and number 0',
    async (_, place) => {
      for (const url of texts) await findOrCreate(manager, Page, { url })
      const before = await stored()
      await client.query('update page set url = $2 where url = $1', [texts[place], 'elsewhere'])
      const left = before[1 - place]
      expect((await stored()).filter(({ url }) => url !== 'elsewhere')).toEqual([{ ...left, n: 0 }])
      const back = await findOrCreate(manager, Page, { url: texts[place] })
      expect(back.created).toBe(true)
      await client.query(`delete from page where url = 'elsewhere'`)
      await expectTwoRows(texts, [back.entity])
    },
  )
})

describe('the published pair, in other ways', () => {
  const texts = STEVENS

  test('an import keeps both, and counts a collision', async () => {
    const report = await importLines(
      dataSource,
      findImportTarget(dataSource, { entity: 'Page' }),
      readLines(lines(`${texts.join('\n')}\n${texts[0]}\n`)),
    )
    expect(report).toMatchObject({ created: 2, found: 1, rejected: 0, collisions: 1, end: { kind: 'done' } })
    await expectTwoRows(texts, [])
  })
})

async function* lines(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text)
}

describe.each(Object.entries(URL_PATHS))('Url, colliding in its %s', (_, paths) => {
  const urlsOn = (host: string): string[] => paths.map((path) => `http://${host}${path}`)

  const parsed = async (text: string, manager?: EntityManager): Promise<Url> => {
    const url = await (manager ? Url.parse(text, manager) : Url.parse(text))
    if (!url) throw new Error('That should be a URL.')
    return url
  }

  const numbers = async (): Promise<unknown[]> =>
    (await client.query<{ id: string; n: number }>('select id, hash_number as n from urls order by id')).rows.map(
      ({ id, n }) => [id, n],
    )

  test.each(Object.entries(settings))(
    'parse %s gives each its own row, numbered 0 and 1 on each host',
    async (name, run) => {
      const texts = [...urlsOn('example.com'), ...urlsOn('example.org')]
      const urls = await run(async (manager) => {
        const given: Url[] = []
        for (const text of texts) {
          given.push(await (name === 'outside a transaction' ? parsed(text) : parsed(text, manager)))
        }
        return given
      })
      expect(urls.map(String)).toEqual(texts)
      expect(new Set(urls.map((url) => url.pathComponentHash)).size).toBe(1)
      expect(await numbers()).toEqual(urls.map(({ id }, place) => [id, place % 2]))
      for (const [place, text] of texts.entries()) expect(await parsed(text)).toEqual(urls[place])
    },
  )

  test('an import keeps both', async () => {
    const target = findImportTarget(dataSource, { entity: 'Url' })
    const report = await importLines(dataSource, target, readLines(lines(urlsOn('example.com').join('\n'))))
    expect(report).toMatchObject({ created: 2, found: 0, rejected: 0, collisions: 1 })
    expect((await Url.find()).map(String).toSorted()).toEqual(urlsOn('example.com').toSorted())
  })

  test("deleting the anchor changes nobody's text or id, and the one that is left becomes number 0", async () => {
    const [first = '', second = ''] = urlsOn('example.com')
    const [a, b] = [await parsed(first), await parsed(second)]
    await a.remove()
    expect(await numbers()).toEqual([[b.id, 0]])
    expect(await parsed(second)).toEqual(b)
    const again = await parsed(first)
    expect(String(again)).toBe(first)
    expect(await numbers()).toEqual([
      [b.id, 0],
      [again.id, 1],
    ])
  })

  test('a stored one cannot be changed into the other', async () => {
    const [first = '', second = ''] = urlsOn('example.com')
    const [a, b] = [await parsed(first), await parsed(second)]
    Object.assign(a, { path: b.path, query: b.query, fragment: b.fragment })
    await expect(a.save()).rejects.toBeInstanceOf(ImmutableTextError)
    expect(await parsed(first)).toMatchObject({ id: a.id })
  })
})

test('a text that nobody holds is refused where another of its hash is stored twice, with the doctor as the next step', async () => {
  await client.query(`alter table crowded disable trigger user; truncate crowded;
    insert into crowded (text, "textHash", "textHashNumber", "textHashChained")
      select 'a', '${oneHash.js('')}', n, n = 0 from generate_series(0, 1) as n; alter table crowded enable trigger user`)
  vi.spyOn(Math, 'random').mockReturnValue(0)
  const error = await findOrCreate(manager, Crowded, { text: 'b' }).catch((caught: unknown) => caught)
  vi.restoreAllMocks()
  expect(error).toMatchObject({
    code: 'ATTEMPTS_EXHAUSTED',
    message: expect.stringContaining('run the doctor'),
    cause: { driverError: { code: '23505', hint: expect.stringContaining('run the doctor') } },
  })
  await client.query('truncate crowded')
})
