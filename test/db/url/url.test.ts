import * as fc from 'fast-check'
import { Entity } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { DeclarationError } from '../../../src'
import { formatUrl, parseUrl, Url, type UrlParts } from '../../../src/url'
import { useDatabase } from '../../support/database'
import { realUrls } from '../../unit/text/real-urls'
import { entity, toOne } from '../../support/entity'

@Entity({ name: 'links' })
class Link extends Url {
  label(): string {
    return this.host
  }
}

const Reference = entity('Reference', { url: toOne(() => Url, { nullable: false }) })

const db = useDatabase()
const dataSource = db.useDataSource([Url], { emptied: false })

const parse = async (text: string): Promise<Url> => {
  const url = await Url.parse(text)
  if (!url) throw new Error('That should be a URL.')
  return url
}

test('spellings of one URL are one row, returned as it is stored', async () => {
  const first = await parse('HTTP://Example.com:80/a/../b?q#f')
  const second = await parse('http://example.com/b?q#f')
  expect(second).toEqual(first)
  expect(second).toBeInstanceOf(Url)
  expect(String(second)).toBe('http://example.com/b?q#f')
  expect(second.pathComponent).toBe('/b?q#f')
  expect(second.pathComponentHash).toMatch(/^[0-9a-f]{32}$/)
  const [row] = (await dataSource.query('select * from urls where id = $1', [first.id])) as unknown[]
  expect(row).toEqual({
    id: first.id,
    scheme: 'http',
    host: 'example.com',
    port: 0,
    path: '/b',
    query: 'q',
    fragment: 'f',
    path_component_hash: second.pathComponentHash.replace(/(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-'),
    hash_number: 0,
    hash_chained: false,
  })
})

test('what is no URL is null, and writes nothing', async () => {
  const before = await Url.count()
  for (const text of ['', null, 'ftp://a.example/', '//a.example/', 'word', 'http:///', 'http://u:p@a.example/']) {
    expect(await Url.parse(text)).toBeNull()
  }
  expect(await Url.count()).toBe(before)
})

test('user information is stripped where the call says so, and never stored', async () => {
  const strip = { userInformation: 'strip' } as const
  const plain = await parse('http://strip.example/x')
  for (const text of ['http://u:p@strip.example/x', 'http://u@strip.example/x', 'http://u:p%40@strip.example/x']) {
    expect((await Url.parse(text, strip))?.id).toBe(plain.id)
    expect(await Url.parse(text)).toBeNull()
  }
  const [first, second] = await Url.parseMany(['http://u@strip.example/y', 'http://u@/y'], strip)
  expect([first && 'entity' in first && String(first.entity), second]).toEqual(['http://strip.example/y', null])
  await dataSource.transaction(async (manager) => {
    expect((await Url.parse('http://u@strip.example/x', { manager, ...strip }))?.id).toBe(plain.id)
  })
  for (const wrong of [{ userInformation: true }, { strip: true }, null, 5]) {
    await expect(Url.parse('http://a.example/', wrong as object)).rejects.toThrow(DeclarationError)
  }
})

describe('two URLs', () => {
  test.each([
    ['http://a.example/', 'https://a.example/'],
    ['http://a.example/', 'http://b.example/'],
    ['http://a.example/', 'http://a.example:8080/'],
    ['http://a.example/x', 'http://a.example/x?'],
    ['http://a.example/x', 'http://a.example/x#'],
    ['http://a.example/x?#', 'http://a.example/x?'],
    ['http://a.example/a//b', 'http://a.example/a/b'],
    ['http://a.example/%2541', 'http://a.example/A'],
    ['http://a.example/x?a=1&b=2', 'http://a.example/x?b=2&a=1'],
    // Compose alike: a fragment that holds a question mark, against a query in a fragmentless path.
    ['http://a.example/p#f?q', 'http://a.example/p?q#f'],
  ])('%s and %s stay two', async (left, right) => {
    const [one, two] = [await parse(left), await parse(right)]
    expect(one.id).not.toBe(two.id)
    expect([String(one), String(two)]).toEqual([left, right])
  })
})

test('a URL of any length is one row', async () => {
  const text = `https://a.example/${'long/'.repeat(200_000)}?${'q'.repeat(1_000_000)}`
  expect((await parse(text)).id).toBe((await parse(text)).id)
})

test('it works in the transaction of a manager that is passed', async () => {
  await expect(
    dataSource.transaction(async (manager) => {
      expect(await Url.parse('http://rolled.back.example/', manager)).not.toBeNull()
      throw new Error('rolled back')
    }),
  ).rejects.toThrow('rolled back')
  expect(await Url.countBy({ host: 'rolled.back.example' })).toBe(0)
})

describe('one URL is one row, whichever way its parts come', () => {
  const spelled = (host: string) => ({ scheme: 'HTTP', host: host.toUpperCase(), port: 80, path: '/a/../x' })
  const stored = (host: string) => ({ scheme: 'http', host, port: 0, path: '/x', query: null, fragment: null })

  test('findOrCreate, findOrCreateMany and findOneByText', async () => {
    const host = 'operations.example'
    const url = await parse(`http://${host}/x`)
    expect(await Url.findOrCreate(spelled(host))).toMatchObject({ created: false, entity: url })
    expect(await Url.findOrCreateMany([spelled(host)])).toMatchObject([{ created: false, entity: url }])
    expect(await Url.findOneByText(spelled(host))).toEqual(url)
  })

  test('findOrCreate without a port takes the default', async () => {
    const { entity } = await Url.findOrCreate({ scheme: 'https', host: 'port.example', path: '/' })
    expect(String(entity)).toBe('https://port.example/')
  })

  test('findOrCreate leaves the given object alone', async () => {
    const given = Object.freeze(spelled('frozen.example'))
    expect((await Url.findOrCreate(given)).entity).toMatchObject(stored('frozen.example'))
  })

  test('save, and the entity holds what is stored', async () => {
    const url = await Url.create({ ...spelled('save.example') }).save()
    expect(url).toMatchObject(stored('save.example'))
    expect(await Url.findOneBy({ id: url.id })).toEqual(url)
    expect((await parse('http://save.example/x')).id).toBe(url.id)
  })

  test('insert of a plain object, upsert and the query builder', async () => {
    await Url.insert(spelled('insert.example'))
    await Url.upsert(spelled('upsert.example'), { conflictPaths: ['id'] })
    await dataSource.createQueryBuilder().insert().into(Url).values(spelled('builder.example')).execute()
    for (const host of ['insert.example', 'upsert.example', 'builder.example']) {
      expect(await Url.findOneByOrFail({ host })).toMatchObject(stored(host))
    }
    await expect(Url.insert(spelled('insert.example'))).rejects.toMatchObject({ driverError: { code: '23505' } })
  })

  test('conditions on scheme and host', async () => {
    const { id } = await parse('http://where.example/x')
    expect(await Url.findOneBy({ scheme: 'HTTP', host: 'Where.EXAMPLE', path: '/x' })).toMatchObject({ id })
  })

  test('a part that reaches into the next is refused before any SQL', async () => {
    const values = { ...stored('refused.example'), path: '/x?y' }
    await expect(Url.findOrCreate(values)).rejects.toMatchObject({ code: 'TEXT_REJECTED', property: 'path' })
    await expect(Url.create({ ...values }).save()).rejects.toMatchObject({ code: 'TEXT_REJECTED', property: 'path' })
    await expect(Url.insert({ ...values, path: '/', scheme: 'ftp' })).rejects.toMatchObject({ property: 'scheme' })
    expect(await Url.countBy({ host: 'refused.example' })).toBe(0)
  })
})

describe('raw SQL can store no row that is not a URL', () => {
  const row = { scheme: 'http', host: 'raw.example', port: 0, path: '/', query: null, fragment: null }
  const insert = async (values: object): Promise<unknown> =>
    await dataSource.query(
      'insert into urls (scheme, host, port, path, query, fragment) values ($1, $2, $3, $4, $5, $6)',
      Object.values({ ...row, ...values }),
    )

  test.each([
    { scheme: 'ftp' },
    { scheme: 'HTTP' },
    { scheme: '' },
    { host: '' },
    { host: 'Raw.example' },
    { host: 'é' },
    { host: 'a/b' },
    { host: 'a:80' },
    { host: 'u@b' },
    { host: 'a b' },
    { host: 'a%' },
    { host: '[::1' },
    { host: '[x]' },
    { port: -1 },
    { port: 65_536 },
    { port: 80 },
    { scheme: 'https', port: 443 },
    { path: '' },
    { path: 'nope' },
    { path: '/x?y' },
    { path: '/x#y' },
    { query: 'a#b' },
    ...['/ ', '/é', '/\u0001', '/\u007f', '/%7e', '/%7E', '/%c3%A9', '/%41', '/"', '/<', '/`', '/^', '/{', '/\\'].map(
      (path) => ({
        path,
      }),
    ),
    ...['/a/../b', '/a/./b', '/..', '/.', '/../', '/a/..', '/./'].map((path) => ({ path })),
    ...[' ', "'", '"', 'é', '%2d', '%aF', '\n'].map((query) => ({ query })),
    ...[' ', '`', '<', '%5f', '\u202e'].map((fragment) => ({ fragment })),
    ...['127.1', '127.0.0.01', '0x7f.0.0.1', '2130706433', '1.2.3.256', '1.2.3.4.', '1.2.3.4.5', 'a.0x', 'a.1'].map(
      (host) => ({
        host,
      }),
    ),
    ...['[0:0:0:0:0:0:0:1]', '[::0]', '[::01]', '[1::0:1]', '[::ffff:1.2.3.4]', '[1:0:0:2:0:0:0:3]', '[::1.2.3.4]'].map(
      (host) => ({ host }),
    ),
  ])('%j', async (values) => {
    await expect(insert(values)).rejects.toMatchObject({
      driverError: { code: '23514', constraint: 'url_parts_check' },
    })
  })

  test.each([
    { scheme: 'https', port: 80 },
    { port: 443 },
    { port: 65_535 },
    { host: '[2001:db8::1]' },
    { host: `a_b!"$&'()*+,-.;=\`{}~z` },
    { query: '?' },
    { fragment: '#?' },
    ...['/%', '/%zz', '/%3%34', '/%%341', '/..a', '/a..', '/...', '/%2F', '/|[]'].map((path) => ({ path })),
    ...['/../', '%', '^`\\{}|'].map((query) => ({ query })),
    ...['[::]', '[::1]', '[::ffff:102:304]', '[::5]', '[::1:2]', '[1:0:0:2::3]', '[::ffff:0:0]'].map((host) => ({
      host,
    })),
    ...['127.0.0.1', '0.0.0.0', '1.2.3.4a', '09.a', 'a.1e', 'a..b', 'a.b.'].map((host) => ({ host })),
  ])('but %j', async (values) => {
    await insert(values)
  })
})

test('every real URL passes the check, and one that raw SQL can store is what parseUrl gives', async () => {
  const client = await db.client()
  await client.query(
    'create temp table raw (scheme varchar, host varchar, port int, path text, query text, fragment text)',
  )
  const fill = async (rows: readonly unknown[]): Promise<void> => {
    await client.query('truncate raw')
    await client.query('insert into raw select * from json_populate_recordset(null::raw, $1)', [JSON.stringify(rows)])
  }
  await fill(realUrls().flatMap((text) => parseUrl(text) ?? []))
  expect(
    (
      await client.query(
        'select * from raw where not unique_text_is_url_v1(scheme, host, port, path, query, fragment) limit 9',
      )
    ).rows,
  ).toEqual([])
  await client.query(`create function pg_temp.passes(scheme varchar, host varchar, port int, path text, query text, fragment text)
    returns boolean language plpgsql as $$ begin return unique_text_is_url_v1(scheme, host, port, path, query, fragment); exception when others then return false; end $$`)
  const characters = (alphabet: string, maxLength: number): fc.Arbitrary<string> =>
    fc.string({ unit: fc.constantFrom(...Array.from(alphabet)), maxLength })
  const part = characters("%%%%0123456789abcdefABCDEF/./..?#|~-_'^[{`x", 8)
  const group = fc.constantFrom('0', '0', '0', '1', 'ab', 'ffff')
  const groups = fc.array(group, { maxLength: 8 }).map((list) => list.join(':'))
  const host = fc.oneof(
    fc.array(fc.nat({ max: 300 }), { minLength: 1, maxLength: 5 }).map((list) => list.join('.')),
    groups.map((list) => `[${list}]`),
    fc.tuple(groups, groups).map(([before, after]) => `[${before}::${after}]`),
    characters('ab.0x1-', 6),
  )
  const rows = fc.record({
    scheme: fc.constant('http'),
    host,
    port: fc.constant(0),
    path: part.map((rest) => `/${rest}`),
    query: fc.option(part),
    fragment: fc.option(part),
  })
  await fill(fc.sample(rows, 20_000))
  const stored = await client.query<UrlParts>(
    'select * from raw where pg_temp.passes(scheme, host, port, path, query, fragment)',
  )
  expect(stored.rows.length).toBeGreaterThan(500)
  for (const row of stored.rows) expect(parseUrl(formatUrl(row))).toEqual(row)
})

describe('a URL with query and one without', () => {
  const [PLAIN, ASKED] = ['http://found.example/x', 'http://found.example/x?q#f'] as const
  beforeAll(() => Url.parseMany([ASKED, PLAIN]))
  test.each([PLAIN, ASKED, 'HTTP://Found.example:80/a/../x'])(
    'findOneByText(%s) finds the one that is meant',
    async (text) => {
      const expected = String(new URL(text))
      expect(String(await Url.findOneByText(text))).toBe(expected)
      expect(String(await Url.findOneByText(new URL(text)))).toBe(expected)
      expect(String(await Url.findOneBy(Url.conditions(text)))).toBe(expected)
      expect(await Url.countBy(Url.conditions(text))).toBe(1)
    },
  )
  test('what is no URL finds nothing', async () => {
    expect(await Url.findOneByText('ftp://found.example/x')).toBeNull()
    expect(await Url.findBy(Url.conditions('ftp://found.example/x'))).toEqual([])
    const parts = { scheme: 'http', host: 'found.example', path: '/x' }
    expect(String(await Url.findOneByText(parts))).toBe(PLAIN)
  })
  test('conditions go into relations, and use the unique index', async () => {
    const source = await db.dataSource([Url, Reference])
    const references = source.getRepository(Reference)
    const url = await Url.findOneByText(PLAIN)
    await references.insert({ url: url ?? undefined } as never)
    expect(await references.countBy({ url: Url.conditions(PLAIN) })).toBe(1)
    expect(await references.countBy({ url: Url.conditions(ASKED) })).toBe(0)
    const builder = source.createQueryBuilder(Url, 'u').where(Url.conditions(PLAIN))
    expect(builder.getQuery()).toContain('"u"."path_component_hash" = ')
    Url.useDataSource(dataSource)
  })
})

test('parse takes a URL object', async () => {
  const url = await Url.parse(new URL('http://object.example/x?y'))
  expect(String(url)).toBe('http://object.example/x?y')
})

test('a URL that was loaded in part does not pretend to be one', async () => {
  const { id } = await parse('http://part.example/x')
  const part = await Url.findOneOrFail({ where: { id }, select: { id: true, host: true } })
  expect(() => String(part)).toThrow('This URL was loaded without "scheme", "port". Select it.')
  expect(() => part.pathComponentHash).toThrow(DeclarationError)
})

test('parse of a subclass gives its instances', async () => {
  await db.dataSource([Url, Link])
  const link = await Link.parse('http://link.example/x')
  expect(link).toBeInstanceOf(Link)
  expect(link?.label()).toBe('link.example')
})

describe('findOrCreate takes a text or a URL object', () => {
  test('and tells whether it was created', async () => {
    const first = await Url.findOrCreate('HTTP://Text.example:80/a/../b?q#f')
    expect(first).toMatchObject({
      created: true,
      attempts: 1,
      entity: { host: 'text.example', path: '/b', query: 'q' },
    })
    const again = await Url.findOrCreate(new URL('http://text.example/b?q#f'))
    expect(again).toMatchObject({ created: false, attempts: 1, entity: first.entity })
  })

  test('and throws TextRejectedError for what parse gives null for', async () => {
    for (const text of ['', 'ftp://a.example/', 'http:///', 'http://u:p@a.example/', 'http://a.example:0/']) {
      await expect(Url.findOrCreate(text)).rejects.toMatchObject({ code: 'TEXT_REJECTED', property: 'url' })
    }
  })

  test('with options, of a subclass too', async () => {
    await db.dataSource([Url, Link])
    const { entity, created } = await Link.findOrCreate('http://options.example/', { deleted: 'return' })
    expect([entity.label(), created]).toEqual(['options.example', true])
  })
})

describe('parseMany', () => {
  test('tells parts that are empty from parts that are not there, in one call', async () => {
    const parts = ['', '?', '#', '?#', '?q', '#q', '?q#', '?#q', '?0', '#0']
    const texts = parts.flatMap((one) => [`http://a.empty.example/${one}`, `http://b.empty.example/${one}`])
    const results = await Url.parseMany(texts)
    expect(results.map((result) => result && 'entity' in result && String(result.entity))).toEqual(texts)
    expect(results.every((result) => result && 'created' in result && result.created)).toBe(true)
  })

  test('gives what parse gives, in the order of the texts', async () => {
    await parse('http://many.example/known')
    const texts = [
      'http://many.example/new?q',
      null,
      'HTTP://Many.example/known',
      'nothing',
      undefined,
      new URL('http://many.example/new?q'),
      'http://many.example/new#f',
    ]
    const results = await Url.parseMany(texts)
    const told = results.map((result) => result && 'entity' in result && [String(result.entity), result.created])
    expect(told).toEqual([
      ['http://many.example/new?q', true],
      null,
      ['http://many.example/known', false],
      null,
      null,
      ['http://many.example/new?q', false],
      ['http://many.example/new#f', true],
    ])
    const singles = await Promise.all(texts.map((text) => Url.parse(text)))
    expect(results.map((result) => result && 'entity' in result && result.entity)).toEqual(singles)
  })

  test('gives an error to a row that the database refuses, and to no other', async () => {
    await dataSource.query(`ALTER TABLE urls ADD CONSTRAINT unwanted CHECK (host <> 'unwanted.example')`)
    const results = await Url.parseMany(['http://wanted.example/', 'http://unwanted.example/', 'word'])
    await dataSource.query('ALTER TABLE urls DROP CONSTRAINT unwanted')
    expect(results).toMatchObject([
      { created: true, entity: { host: 'wanted.example' } },
      { error: { driverError: { code: '23514', constraint: 'unwanted' } } },
      null,
    ])
  })

  test('works in the transaction of a manager that is passed, and refuses options that it does not take', async () => {
    await expect(
      dataSource.transaction(async (manager) => {
        expect(await Url.parseMany(['http://rolled.back.example/'], { manager })).toMatchObject([{ created: true }])
        throw new Error('rolled back')
      }),
    ).rejects.toThrow('rolled back')
    expect(await Url.countBy({ host: 'rolled.back.example' })).toBe(0)
    for (const wrong of [{ window: 1 }, { create: {} }, { by: 'url' }, { manager: dataSource }, null, 5, []]) {
      const call = Url.parseMany(['http://a.example/'], wrong as object)
      await expect(call).rejects.toThrow(DeclarationError)
      await expect(call).rejects.toThrow('parseMany(): ')
    }
    await expect(Url.parseMany('http://a.example/' as never)).rejects.toThrow(DeclarationError)
    expect(await Url.parseMany([])).toEqual([])
  })

  test('of a subclass gives its instances', async () => {
    await db.dataSource([Url, Link])
    const [link] = await Link.parseMany(['http://many.link.example/x'])
    expect(link && 'entity' in link && link.entity.label()).toBe('many.link.example')
  })
})
