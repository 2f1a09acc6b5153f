import {
  Column,
  type ColumnOptions,
  type DataSource,
  Entity,
  EntitySchema,
  Index,
  type ObjectLiteral,
  type ObjectType,
  PrimaryGeneratedColumn,
} from 'typeorm'
import { expect, test } from 'vitest'
import { DeclarationError, UniqueText, type UniqueTextPropertyOptions, uniqueTextSchema } from '../../../src'
import { useDatabase } from '../../support/database'
import { column, embedded, entity, text } from '../../support/entity'
import { generate, migrate, runAll } from '../../support/generated'

const db = useDatabase({ wrapped: true })
const client = db.useClient({ emptied: true })

type Entityish = ObjectType<ObjectLiteral>

const site = column('integer', { default: 1 })

function page(options: UniqueTextPropertyOptions, column?: ColumnOptions): Entityish {
  const Page = entity('Page', { site, url: text(options) })
  if (column) Column(column)(Page.prototype as object, 'url')
  return Page
}

const renamedPage = (options: UniqueTextPropertyOptions): Entityish => entity('Page', { site, link: text(options) })
const plainPage = (): Entityish => entity('Page', { site, url: column('text') })
const pageWithoutText = (): Entityish => entity('Page', { site })

const emptied = () => client.query('drop schema public cascade; create schema public')

const LOOKUP = { lookup: 'hash', indexName: 'page_url' } as const
const NONE = { indexName: 'page_url' } as const

async function use<T>(entity: Entityish, work: (dataSource: DataSource) => Promise<T>): Promise<T> {
  const dataSource = await db.dataSource([entity], { synchronize: false })
  try {
    return await work(dataSource)
  } finally {
    await dataSource.destroy()
  }
}

const lookups = async (): Promise<unknown> => {
  const { rows } = await client.query<{ definition: string }>(
    `select indexdef as definition from pg_indexes where schemaname = 'public' and indexdef like '%USING hash%' order by 1`,
  )
  return rows.map(({ definition }) => definition)
}

const URL_LOOKUP = 'CREATE INDEX page_url_lookup ON public.page USING hash (url)'

/** From one declaration to the other, and back: the way, and what stands at its end. */
async function change(from: Entityish, to: Entityish) {
  await use(from, migrate)
  const generated = await use(to, migrate)
  expect(await use(to, generate)).toEqual({ up: [], down: [] })
  const there = await lookups()
  await use(to, (dataSource) => runAll(dataSource, generated.down))
  expect(await use(from, generate)).toEqual({ up: [], down: [] })
  return { generated, there, back: await lookups() }
}

test('the option lookup makes a hash index over the text, and a second generate finds nothing to do', async () => {
  await use(page(LOOKUP), migrate)
  expect(await lookups()).toEqual([URL_LOOKUP])
  expect(await use(page(LOOKUP), generate)).toEqual({ up: [], down: [] })
  const { rows } = await client.query<{ comment: string }>(
    `select obj_description('page_url_lookup'::regclass) as comment`,
  )
  expect(rows[0]?.comment).toContain('typeorm-unique-text: finds "url" by equality in SQL that names no hash')
  await client.query(`insert into page (url) values (repeat('x', 100000))`)
})

test('it comes and goes with the option, leaves triggers in peace, and the way back restores it', async () => {
  const added = await change(page(NONE), page(LOOKUP))
  expect(added).toMatchObject({ there: [URL_LOOKUP], back: [] })
  expect(added.generated.up.filter((statement) => /TRIGGER|FUNCTION/.test(statement))).toEqual([])
  await emptied()
  const removed = await change(page(LOOKUP), page(NONE))
  expect(removed).toMatchObject({ there: [], back: [URL_LOOKUP] })
})

test('it follows a renamed property and a renamed unique index', async () => {
  expect(await change(page(LOOKUP), renamedPage(LOOKUP))).toMatchObject({
    there: ['CREATE INDEX page_url_lookup ON public.page USING hash (link)'],
    back: [URL_LOOKUP],
  })
  await emptied()
  const renamed = await change(page(LOOKUP), page({ lookup: 'hash', indexName: 'other' }))
  expect(renamed).toMatchObject({
    there: ['CREATE INDEX other_lookup ON public.page USING hash (url)'],
    back: [URL_LOOKUP],
  })
  expect(renamed.generated.up.filter((statement) => statement.includes('USING hash'))).toEqual([])
})

test('it goes with the decorator, and with the column, and the way back restores it', async () => {
  expect(await change(page(LOOKUP), plainPage())).toMatchObject({ there: [], back: [URL_LOOKUP] })
  await emptied()
  expect(await change(page(LOOKUP), pageWithoutText())).toMatchObject({ there: [], back: [URL_LOOKUP] })
})

test('it is made for a text that is declared on a filled table, and stays when the column changes its type', async () => {
  await use(plainPage(), migrate)
  await client.query(`insert into page (url) values (repeat('x', 100000)), ('a')`)
  await use(page(LOOKUP), migrate)
  expect(await lookups()).toEqual([URL_LOOKUP])
  await client.query('truncate page')
  expect(await change(page(LOOKUP), page(LOOKUP, { type: 'varchar', length: 50 }))).toMatchObject({
    there: [URL_LOOKUP],
    back: [URL_LOOKUP],
  })
})

test('it is made in a schema of its own, for an EntitySchema and for a column of an embedded, whatever their names', async () => {
  await client.query('drop schema if exists "The schema" cascade; create schema "The schema"')
  class Source {
    @Column({ type: 'text', name: 'The url' }) url!: string
  }
  const Page = entity('Page', { source: embedded(() => Source) }, { name: 'The page', schema: 'The schema' })
  UniqueText({ as: 'name', columns: ['source.url'], lookup: 'hash', indexName: 'i'.repeat(60) })(Page)
  const Tag = new EntitySchema<ObjectLiteral>(
    uniqueTextSchema<ObjectLiteral>(
      { name: 'Tag', schema: 'The schema', columns: { id: { type: Number, primary: true, generated: true } } },
      { label: LOOKUP },
    ),
  )
  const dataSource = await db.dataSource([Page, Tag], { synchronize: false })
  const { down } = await migrate(dataSource)
  expect(await generate(dataSource)).toEqual({ up: [], down: [] })
  const made = async (): Promise<unknown[]> =>
    await dataSource.query(
      `select indexdef as definition from pg_indexes where schemaname = 'The schema' and indexdef like '%USING hash%' order by 1`,
    )
  expect(await made()).toEqual([
    {
      definition: expect.stringMatching(
        /^CREATE INDEX i{54}_[0-9a-f]{8} ON "The schema"."The page" USING hash \("sourceThe Url"\)$/,
      ) as unknown,
    },
    { definition: 'CREATE INDEX page_url_lookup ON "The schema".tag USING hash (label)' },
  ])
  await runAll(dataSource, down)
  expect(await made()).toEqual([])
})

test('synchronize makes it at once, and dropSchema anew', async () => {
  for (const dropSchema of [false, true, false]) {
    await (await db.dataSource([page(LOOKUP)], { dropSchema })).destroy()
    expect(await lookups()).toEqual([URL_LOOKUP])
  }
})

test('one that was made beforehand under its name is taken as it is', async () => {
  await use(page(NONE), migrate)
  await client.query('create index concurrently page_url_lookup on page using hash (url)')
  expect(await use(page(LOOKUP), generate)).toEqual({ up: [], down: [] })
  // As CREATE INDEX CONCURRENTLY leaves it when it is cancelled.
  await client.query(`update pg_index set indisvalid = false where indexrelid = 'page_url_lookup'::regclass`)
  expect((await use(page(LOOKUP), generate)).up).toContainEqual(
    expect.stringMatching(/^CREATE INDEX "page_url_lookup"/),
  )
})

test("a hash index of the user's own is left to TypeORM", async () => {
  @Entity({ name: 'page' })
  class Own {
    @PrimaryGeneratedColumn('identity') id!: number
    @Index('mine', { synchronize: false }) @UniqueText(LOOKUP) url!: string
  }
  await use(Own, migrate)
  await client.query('create index mine on page using hash (url)')
  expect(await use(Own, generate)).toEqual({ up: [], down: [] })
})

test('lookup takes hash, and a text of one column', () => {
  expect(() => page({ lookup: 'btree' as 'hash' })).toThrow("@UniqueText on Page.url: lookup must be 'hash'.")
  expect(() => {
    UniqueText({ as: 'both', columns: ['host', 'path'], lookup: 'hash' })(
      class Link {
        host!: string
      },
    )
  }).toThrow('@UniqueText on Link: lookup is for a text of one column. Remove it; use textCondition() in SQL.')
  expect(() => page({ lookup: 'btree' as 'hash' })).toThrow(DeclarationError)
})
