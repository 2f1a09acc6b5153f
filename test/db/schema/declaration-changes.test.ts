import {
  Column,
  type ColumnOptions,
  DeleteDateColumn,
  type DataSource,
  Entity,
  EntitySchema,
  type ObjectLiteral,
  type ObjectType,
  PrimaryGeneratedColumn,
} from 'typeorm'
import { describe, expect, test } from 'vitest'
import {
  findOrCreate,
  UniqueText,
  type UniqueTextClassOptions,
  type UniqueTextPropertyOptions,
  uniqueTextSchema,
} from '../../../src'
import { normalizer, trim } from '../../../src/text'
import { textsOfEntity } from '../../../src/registry/registry'
import { useDatabase } from '../../support/database'
import { column, entity, key, plain, text } from '../../support/entity'
import { fewHashes } from '../../support/digests'
import { generate as generated, type Generated } from '../../support/generated'
import { rowsOf, violations } from '../../support/guarded-table'
import { rejection } from '../../support/ledger'
import { STEVENS, SUFFIX_SAFE } from '../../support/md5-collisions'
import { gatePart } from '../../support/gate-part'

const db = useDatabase({ wrapped: true })
const client = db.useClient({ emptied: true })

type Entityish = ObjectType<ObjectLiteral>

const BOTH = { site: column('integer', { default: 1 }), tenant: column('integer', { default: 1 }) }

/** The table `page`, declared in one way or another. */
function page(options: UniqueTextPropertyOptions, column?: ColumnOptions): Entityish {
  const Page = entity('Page', { ...BOTH, url: text(options) })
  if (column) Column({ type: 'text', ...column })(Page.prototype as object, 'url')
  return Page
}

const plainPage = (nullable = false): Entityish => entity('Page', { ...BOTH, url: column('text', { nullable }) })

const barePage = (): Entityish => entity('Page', BOTH)

const renamedPage = (options: UniqueTextPropertyOptions): Entityish => entity('Page', { ...BOTH, link: text(options) })

const twoTexts = (url: UniqueTextPropertyOptions, alias: UniqueTextPropertyOptions): Entityish =>
  entity('Page', { site: BOTH.site, url: text(url), alias: text({ nullable: true, ...alias }) })

const QUERY = { property: 'query', prefix: '?' }
const FRAGMENT = { property: 'fragment', prefix: '#' }

function composedPage(options: Partial<UniqueTextClassOptions>): Entityish {
  const all: UniqueTextClassOptions = { as: 'url', columns: ['path', QUERY], ...options }
  const Page = entity('Page', { site: BOTH.site, path: column('text'), query: plain(), fragment: plain() })
  UniqueText(all)(Page)
  return Page
}

/** `composedPage` with a column more. */
function withAnchor(column: ColumnOptions, digest: 'md5' | 'sha256' = 'md5'): Entityish {
  const Page = composedPage({ digest, columns: ['path', QUERY, { property: 'anchor', prefix: '#' }] })
  Column({ type: 'text', ...column })(Page.prototype as object, 'anchor')
  return Page
}

/** `page` with a delete date. */
function softPage(options: UniqueTextPropertyOptions, column: ColumnOptions = {}): Entityish {
  const Page = page(options)
  DeleteDateColumn(column)(Page.prototype as object, 'deletedAt')
  return Page
}

function renamedSoftPage(): Entityish {
  const Page = page({ ignoreDeleted: true })
  DeleteDateColumn()(Page.prototype as object, 'removedAt')
  return Page
}

/** What a dump would hold, in an order of its own: columns that were dropped and made again stand at the end. */
async function dump(): Promise<unknown> {
  const { rows } = await client.query(
    `select
       (select jsonb_agg(to_jsonb(t) order by id) from page as t) as rows,
       (select json_agg(format('%s %s %s %s %s', attname, format_type(atttypid, atttypmod), attnotnull,
                 pg_get_expr(adbin, adrelid), col_description(attrelid, attnum)) order by attname)
          from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
         where attrelid = 'page'::regclass and attnum > 0 and not attisdropped) as columns,
       (select json_agg(pg_get_indexdef(indexrelid) order by indexrelid::regclass::text)
          from pg_index where indrelid = 'page'::regclass) as indexes,
       (select json_agg(conname || ' ' || pg_get_constraintdef(oid) order by conname)
          from pg_constraint where conrelid = 'page'::regclass and contype <> 'n') as constraints,
       (select json_agg(pg_get_triggerdef(oid) order by tgname)
          from pg_trigger where tgrelid = 'page'::regclass and not tgisinternal) as triggers,
       (select json_agg(pg_get_functiondef(oid) || coalesce(obj_description(oid), '') || proacl::text order by proname)
          from pg_proc where pronamespace = 'public'::regnamespace) as functions`,
  )
  return rows
}

/** What `migration:generate` would write now. */
async function generate(entity: Entityish): Promise<Generated & { dataSource: DataSource }> {
  const dataSource = await db.dataSource([entity], { synchronize: false })
  return { dataSource, ...(await generated(dataSource)) }
}

async function run(statements: readonly string[]): Promise<void> {
  await client.query('begin')
  try {
    for (const statement of statements) await client.query(statement)
    await client.query('commit')
  } catch (error) {
    await client.query('rollback')
    throw error
  }
}

async function create(entity: Entityish, rows: string): Promise<void> {
  const { dataSource, up } = await generate(entity)
  await dataSource.destroy()
  await run([...up, rows])
}

/** All that an entity's declarations promise about the rows, and that TypeORM finds nothing to do. */
async function expectSettled(entity: Entityish): Promise<void> {
  const { dataSource, up } = await generate(entity)
  expect(up).toEqual([])
  for (const { table } of textsOfEntity(dataSource.getMetadata(entity))) {
    expect(await violations(client, table)).toEqual([])
  }
  await dataSource.destroy()
}

async function shown(entity: Entityish): Promise<string> {
  const { dataSource } = await generate(entity)
  const [declaration] = textsOfEntity(dataSource.getMetadata(entity))
  await dataSource.destroy()
  const rows = declaration ? await rowsOf(client, declaration.table) : ''
  return rows.replaceAll(STEVENS[0], 'A').replaceAll(STEVENS[1], 'B')
}

const quoted = (text: string): string => `'${text.replaceAll("'", "''")}'`
const [A, B] = STEVENS.map(quoted) as [string, string]
const [C, D] = SUFFIX_SAFE.map((text) => quoted(`${text}?suffix`)) as [string, string]

const insert = (...rows: readonly string[]): string => `insert into page (site, url) values ${rows.join(', ')}`
const insertComposed = (...rows: readonly string[]): string =>
  `insert into page (path, query, fragment) values ${rows.join(', ')}`

const insertSoft = (...rows: readonly string[]): string =>
  `insert into page (url, "deletedAt") values ${rows.join(', ').replaceAll('now()', `'2026-01-02 03:04:05'`)}`

const TOGETHER = insert(`(1, ${A})`, `(1, ${B})`)
const APART = insert(`(1, ${A})`, `(2, ${B})`)
const COMPOSED = insertComposed(`(${A}, null, null)`, `(${B}, null, null)`)
const ALIKE = insertComposed(`('a?b', null, null)`, `('a', 'b', null)`)
const DELETED = insertSoft(`(${A}, now())`, `(${B}, null)`, `('other', now())`)

/** What is expected is in the notation of `rowsOf`, with A and B for the two published texts. */
type Change = readonly [before: Entityish, rows: string, after: Entityish, expected?: string]

const few = fewHashes(2)

const changes: Readonly<Record<string, Change>> = {
  'another maximum length of a chain': [page({ maxChainLength: 5 }), TOGETHER, page({ maxChainLength: 6 }), 'A@0! B@1'],
  'a scope that parts a chain': [
    page({}),
    insert(`(1, ${A})`, `(2, ${B})`, `(2, 'other')`),
    page({ scope: ['site'] }),
    'A@0 2/B@0 2/other@0',
  ],
  'a scope that parts a chain of which two stay together': [
    page({ digest: few }),
    insert(...[1, 2, 2, 2, 3, 3].map((site, n) => `(${site}, 'text ${n}')`)),
    page({ digest: few, scope: ['site'] }),
  ],
  'a scope that is gone, so that two chains become one': [
    page({ scope: ['site'] }),
    insert(`(1, ${A})`, `(2, ${B})`, `(2, 'other')`),
    page({}),
    'A@0! B@1 other@0',
  ],
  'a scope of another column': [page({ scope: ['site'] }), APART, page({ scope: ['tenant'] }), 'A@0! B@1'],
  'a scope in another order': [page({ scope: ['site', 'tenant'] }), TOGETHER, page({ scope: ['tenant', 'site'] })],
  'md5 to sha256': [page({}), insert(`(1, ${A})`, `(1, ${B})`, `(1, ${C})`, `(1, ${D})`), page({ digest: 'sha256' })],
  'sha256 to md5, where texts collide': [page({ digest: 'sha256' }), TOGETHER, page({ digest: 'md5' }), 'A@0! B@1'],
  'sha256 to md5, of texts that may be NULL': [
    page({ digest: 'sha256', nullable: true }),
    insert(`(1, ${A})`, `(1, ${B})`, `(1, null)`, `(1, null)`),
    page({ digest: 'md5', nullable: true }),
    'A@0! B@1 -@0 -@0',
  ],
  'texts that may be NULL': [page({}), TOGETHER, page({ nullable: true }), 'A@0! B@1'],
  'texts that may no longer be NULL': [page({ nullable: true }), TOGETHER, page({}), 'A@0! B@1'],
  'md5 to sha256, and NULL allowed': [page({}), TOGETHER, page({ digest: 'sha256', nullable: true })],
  'md5 to sha256, and NULL no longer allowed': [page({ nullable: true }), TOGETHER, page({ digest: 'sha256' })],
  'hidden names': [page({}), TOGETHER, page({ hidden: { hash: 'h', number: 'n', chained: 'c' } }), 'A@0! B@1'],
  'hidden names with digest, scope, nullability and index name at once': [
    page({}),
    insert(`(1, ${A})`, `(1, ${B})`, `(2, ${C})`),
    page({
      hidden: { hash: 'h', number: 'n', chained: 'c' },
      digest: 'sha256',
      scope: ['site'],
      nullable: true,
      indexName: 'by site',
    }),
  ],
  'the name of the index': [
    page({ scope: ['tenant', 'site'] }),
    TOGETHER,
    page({ scope: ['tenant', 'site'], indexName: 'other name' }),
  ],
  'the name of the text column': [page({}), TOGETHER, page({ name: 'link' }), 'A@0! B@1'],
  'a renamed property': [page({}), TOGETHER, renamedPage({}), 'A@0! B@1'],
  'a renamed property with the column name kept': [page({}), TOGETHER, renamedPage({ name: 'url' }), 'A@0! B@1'],
  'a renamed property with another digest and a scope': [
    page({}),
    APART,
    renamedPage({ digest: 'sha256', scope: ['site'] }),
  ],
  'a first declaration where texts collide': [
    plainPage(),
    insert(`(1, ${A})`, `(1, ${C})`, `(1, ${B})`, `(1, ${D})`, `(2, 'other')`),
    page({}),
  ],
  'a first declaration of texts that may be NULL': [
    plainPage(true),
    insert(`(1, ${A})`, `(1, ${B})`, `(1, null)`, `(1, null)`),
    page({ nullable: true }),
    'A@0! B@1 -@0 -@0',
  ],
  'a first declaration of texts that could be NULL and are not': [plainPage(true), TOGETHER, page({}), 'A@0! B@1'],
  'a first declaration of a column that is new and has a default': [
    barePage(),
    'insert into page default values',
    page({}, { default: 'same' }),
    'same@0',
  ],
  'a declaration that is gone': [page({}), TOGETHER, plainPage()],
  'a declaration that is gone, of texts that may be NULL': [
    page({ nullable: true, digest: 'sha256', scope: ['site'] }),
    insert(`(1, ${A})`, `(1, ${B})`, '(1, null)'),
    plainPage(true),
  ],
  'a further column of a composed text': [
    composedPage({}),
    insertComposed(`(${A}, null, 'f')`, `(${B}, null, null)`, `('/', 'q', 'f')`),
    composedPage({ columns: ['path', QUERY, FRAGMENT] }),
  ],
  'a new column of a composed text, and another digest': [
    composedPage({}),
    COMPOSED,
    withAnchor({ nullable: true }, 'sha256'),
  ],
  'a new column of a composed text, with a default': [composedPage({}), COMPOSED, withAnchor({ default: 'top' })],
  'a column less in a composed text': [
    composedPage({ columns: ['path', QUERY, FRAGMENT] }),
    insertComposed(`(${A}, null, null)`, `(${B}, null, null)`, `('/', 'q', 'f')`),
    composedPage({}),
  ],
  'columns of a composed text in another order': [
    composedPage({}),
    ALIKE,
    composedPage({ columns: ['query', { property: 'path', prefix: '?' }] }),
  ],
  'lengths in place of prefixes, which part texts that only composed alike': [
    composedPage({}),
    ALIKE,
    composedPage({ columns: ['path', 'query'] }),
    '1:a1:b@0 3:a?b-@0',
  ],
  'prefixes in place of lengths, with which texts compose alike': [
    composedPage({ columns: ['path', 'query'] }),
    ALIKE,
    composedPage({}),
    'a?b@0! a?b@1',
  ],
  'another name for a composed text': [composedPage({}), ALIKE, composedPage({ as: 'whole' }), 'a?b@0! a?b@1'],
  'another name and other columns of a composed text, with the hash column kept': [
    composedPage({ hidden: { hash: 'h' } }),
    insertComposed(`(${A}, null, null)`, `(${B}, null, null)`, `('/', 'q', null)`),
    composedPage({ as: 'whole', columns: ['path', FRAGMENT, QUERY], hidden: { hash: 'h' } }),
  ],
  'another name and other columns of a composed text, with the hash number kept': [
    composedPage({ hidden: { number: 'n' } }),
    insertComposed(`(${A}, null, null)`, `(${B}, null, null)`, `('/', 'q', null)`),
    composedPage({ as: 'whole', columns: ['path', FRAGMENT, QUERY], hidden: { number: 'n' } }),
  ],
  'a text that takes over the column name of another, which gets a new one': [
    twoTexts({ nullable: true, name: 'link' }, { name: 'other' }),
    `insert into page (link, other) values (${A}, 'a'), (${B}, 'b')`,
    twoTexts({ nullable: true, name: 'third' }, { name: 'link' }),
    'A@0! B@1',
  ],
  'hidden columns whose names another of them takes over': [
    page({ hidden: { hash: 'h', number: 'n' } }),
    TOGETHER,
    page({ hidden: { hash: 'x', number: 'h', chained: 'n' } }),
    'A@0! B@1',
  ],
  'deleted rows that free their texts': [softPage({}), DELETED, softPage({ ignoreDeleted: true }), 'B@0 A@0~ other@0~'],
  'deleted rows that free their texts, with the delete date new': [
    page({}),
    TOGETHER,
    softPage({ ignoreDeleted: true }),
    'A@0! B@1',
  ],
  'deleted rows that hold their texts again': [
    softPage({ ignoreDeleted: true }),
    DELETED,
    softPage({}),
    'A@0! B@1 other@0',
  ],
  'deleted rows that free their texts, in another column': [
    softPage({ ignoreDeleted: true }),
    insertSoft(`(${A}, now())`, `(${B}, null)`, `(${B}, now())`, `('other', now())`),
    renamedSoftPage(),
    'B@0 A@0~ B@0~ other@0~',
  ],
  'a delete date of another type': [
    softPage({ ignoreDeleted: true }),
    insertSoft(`(${A}, now())`, `(${B}, null)`, `(${B}, now())`),
    softPage({ ignoreDeleted: true }, { type: 'timestamp with time zone', precision: 3 }),
    'B@0 A@0~ B@0~',
  ],
  'deleted rows that free their texts, by another digest, within a scope': [
    softPage({}),
    insertSoft(`(${A}, now())`, `(${B}, null)`),
    softPage({ ignoreDeleted: true, digest: 'sha256', scope: ['site'] }),
    'B@0 A@0~',
  ],
  'a normalizer that is gone': [page({ normalize: trim() }), '', page({})],
}

describe.each(gatePart(3, Object.entries(changes)))('%s', (_, [before, rows, after, expected = '']) => {
  test('leaves rows, chains, hash and check right, up, down and up again', async () => {
    await create(before, rows)
    const original = await dump()
    const { dataSource, up, down } = await generate(after)
    await dataSource.destroy()
    expect(up).not.toEqual([])

    await run(up)
    await expectSettled(after)
    const changed = await dump()
    // Without notation, what `expectSettled` holds is all there is to say.
    expect(expected === '' ? '' : await shown(after)).toBe(expected)

    await run(down)
    expect(await dump()).toEqual(original)
    await expectSettled(before)

    await run(up)
    expect(await dump()).toEqual(changed)
  })
})

test.each(['a renamed property', 'a renamed property with the column name kept', 'the name of the text column'])(
  '%s keeps the index as it is built, up and down',
  async (name) => {
    const [before, rows, after] = changes[name] as Change
    await create(before, rows)
    const built = async (): Promise<unknown[]> =>
      (await client.query(`select relfilenode from pg_class where relname like 'IDX%' order by 1`)).rows
    const original = await built()
    expect(original).toHaveLength(1)
    const { up, down } = await generate(after)
    await run(up)
    expect(await built()).toEqual(original)
    await run(down)
    expect(await built()).toEqual(original)
  },
)

describe('after a change', () => {
  test('no text of a chain that a scope parted can be stored twice', async () => {
    await create(page({}), APART)
    const { up, dataSource } = await generate(page({ scope: ['site'] }))
    await run(up)
    const honest = client.query(`insert into page (site, url, "urlHash") values (2, ${B}, md5(${B})::uuid)`)
    await expect(honest).rejects.toMatchObject({ code: '23505' })
    await dataSource.destroy()
  })

  test('an index that was dropped by hand stands again, over rows that fit it', async () => {
    const Page = page({ indexName: 'one text' })
    await create(Page, insert(`(1, ${A})`))
    await client.query('drop index "one text"')
    await client.query(`insert into page (url, "urlHash") values (${B}, md5(${B})::uuid)`)
    await run((await generate(Page)).up)
    await expectSettled(Page)
    expect(await shown(Page)).toBe('A@0! B@1')
  })

  test('a check that was dropped by hand stands again, over rows that fit it', async () => {
    await create(page({}), insert(`(1, ${A})`))
    await client.query(
      `do $$ begin execute format('alter table page drop constraint %I',
         (select conname from pg_constraint where conrelid = 'page'::regclass and contype = 'c')); end $$`,
    )
    await client.query(`insert into page (url, "urlHash") values (${B}, md5('wrong')::uuid)`)
    await run((await generate(page({}))).up)
    await expectSettled(page({}))
    expect(await shown(page({}))).toBe('A@0! B@1')
  })

  test('rows that came while the guard was away get their numbers when it is made again', async () => {
    await create(page({}), insert(`(1, ${A})`))
    await client.query('drop function unique_text_page__url, unique_text_chain_v1 cascade')
    await client.query(`insert into page (url, "urlHash", "urlHashNumber") values (${B}, md5(${B})::uuid, 7)`)
    await run((await generate(page({}))).up)
    await expectSettled(page({}))
    expect(await shown(page({}))).toBe('A@0! B@1')
  })

  test('a primary key that gets another name with it is no hindrance, up and down', async () => {
    @Entity({ name: 'page' })
    class Keyed {
      @PrimaryGeneratedColumn('identity') key!: number
      @Column({ type: 'integer', default: 1 }) site!: number
      @Column({ type: 'integer', default: 1 }) tenant!: number
      @UniqueText({ digest: 'sha256' }) url!: string
    }
    await create(page({}), TOGETHER)
    const original = await dump()
    const { up, down } = await generate(Keyed)
    await run(up)
    await expectSettled(Keyed)
    await run(down)
    expect(await dump()).toEqual(original)
  })

  test('a hidden column that becomes a plain one keeps what it holds', async () => {
    const kept = { ...BOTH, url: column('text'), md5: column('uuid', { name: 'urlHash' }) }
    const Kept = entity('Page', kept)
    await create(page({}), insert(`(1, ${A})`))
    await run((await generate(Kept)).up)
    const { rows } = await client.query(`select "urlHash" = md5(url)::uuid as kept from page`)
    expect(rows).toEqual([{ kept: true }])
    expect((await generate(Kept)).up).toEqual([])
  })

  test('a table that inherits takes no number of a chain, and may hold a text again', async () => {
    await create(page({}), 'create table kid () inherits (page)')
    await client.query(`insert into kid (id, url, "urlHash") values (-1, ${A}, md5(${A})::uuid)`)
    await client.query(insert(`(1, ${A})`, `(1, ${B})`))
    const { up, down, dataSource } = await generate(page({ scope: ['site'] }))
    const numbers = `select id, "urlHashNumber" as number from page order by id`
    const expected = [-1, 1, 2].map((id) => ({ id, number: id === 2 ? 1 : 0 }))
    await run(up)
    expect((await client.query(numbers)).rows).toEqual(expected)
    await run(down)
    expect((await client.query(numbers)).rows).toEqual(expected)
    await dataSource.destroy()
  })

  test('the rows from before are found by the new rules', async () => {
    await create(page({}), APART)
    const After = page({ digest: 'sha256', scope: ['site'] })
    const { up, dataSource } = await generate(After)
    await run(up)
    for (const [position, url] of STEVENS.entries()) {
      const found = await findOrCreate(dataSource.manager, After, { url, site: position + 1 })
      expect(found).toMatchObject({ created: false, entity: { id: position + 1 } })
    }
  })

  test('rows that were written in between are right on the way back', async () => {
    await create(page({}), insert(`(1, ${A})`))
    const before = page({})
    const { up, down } = await generate(page({ digest: 'sha256', scope: ['site'], nullable: true }))
    await run(up)
    await client.query(insert(`(2, ${B})`, `(1, ${C})`, `(1, ${D})`))
    await run(down)
    await expectSettled(before)
    expect(await shown(before)).toContain('A@0! B@1')
  })

  test('a property and a column that come with the scope keep the rows', async () => {
    const Bare = entity('Page', { url: text() })
    await create(Bare, `insert into page (url) values (${A}), (${B})`)
    const { up, down } = await generate(page({ scope: ['site'] }))
    await run(up)
    await expectSettled(page({ scope: ['site'] }))
    await run(down)
    await expectSettled(Bare)
  })
})

test('synchronize does the same at once, for an EntitySchema in another schema', async () => {
  const schema = 'Other schema'
  const declared = (options: UniqueTextPropertyOptions): EntitySchema =>
    new EntitySchema(
      uniqueTextSchema(
        {
          name: 'Page',
          tableName: 'page',
          schema,
          columns: { id: { type: Number, primary: true, generated: true }, site: { type: 'integer' } },
        },
        { url: options },
      ),
    )
  await client.query(`drop schema if exists "${schema}" cascade; create schema "${schema}"`)
  const before = await db.dataSource([declared({})])
  await before.query(`insert into "${schema}".page (site, url) values (1, ${A}), (2, ${B}), (2, ${C}), (2, ${D})`)
  await before.destroy()

  const after = await db.dataSource([declared({ digest: 'sha256', scope: ['site'], hidden: { hash: 'h' } })])
  expect((await after.driver.createSchemaBuilder().log()).upQueries).toEqual([])
  const [declaration] = textsOfEntity(after.getMetadata('Page'))
  expect(declaration && (await violations(client, declaration.table))).toEqual([])
  expect(await findOrCreate(after.manager, 'Page', { url: STEVENS[1], site: 2 })).toMatchObject({ created: false })
  await after.destroy()

  const back = await db.dataSource([declared({})])
  const [original] = textsOfEntity(back.getMetadata('Page'))
  expect(original && (await violations(client, original.table))).toEqual([])
  await client.query(`drop schema "${schema}" cascade`)
})

describe('what cannot be', () => {
  test('equal texts at a first declaration are named by primary key, with what to do', async () => {
    await create(plainPage(), insert(`(1, 'secret')`, `(1, ${A})`, `(2, 'secret')`, `(1, ${B})`, `(1, ${A})`))
    const { up } = await generate(page({}))
    expect(await rejection(run(up))).toMatchObject({
      code: '23505',
      table: 'page',
      message:
        'rows of table "page" hold the same text for "url". ' +
        'Of each group delete or change all but one, then run this again.',
      detail: 'The rows by primary key (id): 1, 3; 2, 5',
    })
    await client.query('delete from page where id in (3, 5)')
    await run(up)
    await expectSettled(page({}))
  })

  test('equal texts in two scopes that become one are named, with a primary key of two columns', async () => {
    const keyed = (options: UniqueTextPropertyOptions): Entityish => {
      const Page = entity('Page', { site: key('integer'), url: text(options) })
      Column({ type: 'text', primary: true, name: 'the key' })(Page.prototype as object, 'key')
      return Page
    }
    const rows = `insert into page (site, "the key", url) values (1, 'a', 'x'), (2, 'a', 'x'), (2, 'b', 'y')`
    await create(keyed({ scope: ['site'] }), rows)
    const { up } = await generate(keyed({}))
    await expect(run(up)).rejects.toMatchObject({
      detail: 'The rows by primary key (site, the key): (1,a), (2,a)',
    })
  })

  /** As a migration runs them that has no transaction. */
  async function runSingly(statements: readonly string[]): Promise<void> {
    for (const statement of statements) await client.query(statement)
  }

  test('deleted rows that would hold a text twice are named before the delete date goes, on the way', async () => {
    await create(
      softPage({ ignoreDeleted: true }),
      insertSoft(`('a', now())`, `('a', null)`, `('b', now())`, `('b', now())`),
    )
    const { up } = await generate(page({}))
    await expect(runSingly(up)).rejects.toMatchObject({
      code: '23505',
      message: expect.stringContaining('Of each group') as string,
      detail: 'The rows by primary key (id): 1, 2; 3, 4',
    })
    expect(await shown(softPage({ ignoreDeleted: true }))).toBe('a@0 a@0~ b@0~ b@0~')
    await client.query('delete from page where id in (1, 3)')
    const { up: rest } = await generate(page({}))
    await run(rest)
    await expectSettled(page({}))
    expect(await shown(page({}))).toBe('a@0 b@0')
  })

  test('and on the way back, where the migration has made the delete date', async () => {
    await create(page({}), insert(`(1, 'a')`))
    const { up, down } = await generate(softPage({ ignoreDeleted: true }))
    await run(up)
    await run([insertSoft(`('a', now())`)])
    await expect(runSingly(down)).rejects.toMatchObject({ code: '23505' })
    expect(await shown(softPage({ ignoreDeleted: true }))).toBe('a@0 a@0~')
  })

  test('NULLs are named where the text becomes NOT NULL, on the way and on the way back', async () => {
    await create(page({ nullable: true }), insert(`(1, null)`, `(1, 'a')`, `(1, null)`))
    const { up } = await generate(page({}))
    const message = expect.stringContaining('rows of table "page" hold NULL in "url". Give them a value') as string
    const detail = 'The rows by primary key (id): 1, 3'
    await expect(run(up)).rejects.toMatchObject({ code: '23502', message, detail })
    await client.query(`delete from page where url is null`)
    await run(up)
    await expectSettled(page({}))

    const { up: back, down } = await generate(page({ nullable: true }))
    await run(back)
    await client.query(insert(`(1, null)`))
    await expect(run(down)).rejects.toMatchObject({
      code: '23502',
      detail: 'The rows by primary key (id): 4',
    })
  })

  test('NULLs are named at a first declaration, in the scope too', async () => {
    const Before = entity('Page', { site: column('integer', { nullable: true }), url: column('text') })
    const After = entity('Page', { site: column('integer'), url: text({ scope: ['site'] }) })
    await create(Before, insert(`(1, 'a')`, `(null, 'b')`))
    const { up } = await generate(After)
    await expect(run(up)).rejects.toMatchObject({
      message: expect.stringContaining('hold NULL in "site"') as string,
      detail: 'The rows by primary key (id): 2',
    })
  })

  test("a user's trigger that undoes the numbering is an error", async () => {
    await create(page({}), APART)
    await client.query(
      `create function undo() returns trigger language plpgsql as 'begin return old; end';
       create trigger undo before update on page for each row execute function undo()`,
    )
    const { up } = await generate(page({ scope: ['site'] }))
    await expect(run(up)).rejects.toMatchObject({
      code: '55000',
      message: expect.stringContaining('a trigger on table "page" undid the numbering of "url"') as string,
      detail: 'Rows: 2',
    })
  })

  test('rows that row security hides are an error, not left as they are', async () => {
    await create(page({}), APART)
    const { up } = await generate(page({ scope: ['site'] }))
    await client.query(
      `alter table page enable row level security; alter table page force row level security;
       create policy partly on page using (site = 1); drop role if exists migrator; create role migrator;
       grant all on schema public to migrator; alter table page owner to migrator;
       do $$ declare f regprocedure; begin
         for f in select oid from pg_proc where pronamespace = 'public'::regnamespace loop
           execute format('alter function %s owner to migrator', f);
         end loop;
       end $$`,
    )
    // By its message: a role that is not the owner of something gets this code too.
    await expect(run(['set local role migrator', ...up])).rejects.toMatchObject({
      code: '42501',
      message: 'query would be affected by row-level security policy for table "page"',
    })
    await client.query('alter table page owner to current_user; drop owned by migrator cascade; drop role migrator')
  })

  test("a user's AFTER trigger that undoes the numbering behind it is an error", async () => {
    await create(page({}), APART)
    await client.query(
      `create function undo() returns trigger language plpgsql as $$ begin
         update page set "urlHashNumber" = 7 where id = new.id and "urlHashNumber" <> 7; return null; end $$;
       create trigger undo after update on page for each row execute function undo()`,
    )
    const { up } = await generate(page({ digest: few }))
    const message = expect.stringContaining('undid the numbering of "url"') as string
    await expect(run(up)).rejects.toMatchObject({ code: '55000', message, detail: 'Rows: 2' })
  })

  test('a way back to a digest that is known no more says so', async () => {
    await create(page({ digest: few }), insert(`(1, 'a')`))
    const { up, down } = await generate(page({}))
    await run(up)
    await expectSettled(page({}))
    await expect(run(down)).rejects.toThrow('the digest "few2" is not known')
  })
})

describe('a normalizer', () => {
  const raised = normalizer('trim', 2, (text) => text.trim().toLowerCase())

  const trimmed = page({ normalize: trim() })

  test.each([
    ['added', page({}), trimmed, 'by none@1, not yet by trim@1'],
    ['raised', trimmed, page({ normalize: raised }), 'by trim@1, not yet by trim@2'],
    ['declared with the text', plainPage(), trimmed, 'by none@1, not yet by trim@1'],
  ])('%s on a table with rows is refused until code has normalized them', async (_, before, after, says) => {
    await create(before, insert(`(1, ' a')`, `(1, 'b')`))
    const original = await dump()
    const { up, dataSource } = await generate(after)
    const message = `column "url" of table "page" has texts normalized ${says}. SQL cannot normalize them`
    await expect(run(up)).rejects.toMatchObject({
      code: '55000',
      message: expect.stringContaining(message) as string,
      detail: 'The rows by primary key (id): 1, 2',
    })
    expect(await dump()).toEqual(original)

    // As docs/changing-a-declaration.md says.
    const code = 'update page set url = btrim(url)'
    await run(up.map((statement) => (statement.includes('SQL cannot normalize') ? code : statement)))
    await expectSettled(after)
    expect(await findOrCreate(dataSource.manager, after, { url: ' a ' })).toMatchObject({ created: false })
  })

  test.each(['up', 'down'] as const)('asks for a transaction before the guard is taken away: %s', async (way) => {
    await create(page({ normalize: trim() }), insert(`(1, 'a')`))
    const migration = await generate(page({ normalize: raised }))
    if (way === 'down') {
      await run(migration.up.map((statement) => (statement.includes('SQL cannot normalize') ? 'SELECT' : statement)))
    }
    const original = await dump()
    const other = await db.client()
    const alone = async (): Promise<void> => {
      for (const statement of migration[way]) await other.query(statement)
    }
    await expect(alone()).rejects.toMatchObject({ code: '25P01' })
    expect(await dump()).toEqual(original)
  })

  test('on a table without rows is a matter of the guard only', async () => {
    await create(page({ normalize: trim() }), '')
    const { up, down } = await generate(page({ normalize: raised }))
    await run(up)
    await expectSettled(page({ normalize: raised }))
    await run(down)
    await expectSettled(page({ normalize: trim() }))
  })

  test('that is gone asks for nothing, but its way back does', async () => {
    await create(page({ normalize: trim() }), insert(`(1, 'a')`))
    const { up, down } = await generate(page({}))
    await run(up)
    await expectSettled(page({}))
    await expect(run(down)).rejects.toThrow('has texts normalized by none@1, not yet by trim@1')
  })

  test('of one column of a composed text is found, also where another column had it', async () => {
    const columns = (one: string, other: string): Entityish =>
      composedPage({
        columns: [
          { property: 'path', normalize: normalizer(one, 1, (text) => text) },
          { property: 'query', normalize: normalizer(other, 1, (text) => text) },
        ],
      })
    await create(columns('one', 'other'), insertComposed(`('a', null, null)`))
    const { up } = await generate(columns('other', 'one'))
    await expect(run(up)).rejects.toThrow(
      'column "path" of table "page" has texts normalized by one@1, not yet by other@1',
    )
  })
})
