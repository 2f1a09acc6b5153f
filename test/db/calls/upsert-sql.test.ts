import { BeforeUpdate, Column, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { DeclarationError, UniqueText, upsertByText } from '../../../src'
import { untilBlocked } from '../../support/blocked'
import { column, embedded, entity, text, uniqueName, updateDate, version } from '../../support/entity'
import { Name } from '../../../src/names'
import { lowerCase } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { fewHashes } from '../../support/digests'
import { rejection } from '../../support/ledger'

class Meta {
  @Column({ type: 'integer', nullable: true }) size!: number | null
}

const Page = entity('Page', {
  url: text({ digest: fewHashes(4) }),
  hits: column('integer', { name: 'Hits of it', default: 0 }),
  title: column('varchar', { length: 20, default: 'untitled' }),
  fetchedAt: column('timestamptz', { nullable: true }),
  tags: column('jsonb', { nullable: true }),
  meta: embedded(() => Meta),
  updatedAt: updateDate(),
  version: version(),
})

@Entity({ name: 'heard' })
class Heard {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
  @Column({ type: 'integer', default: 0 }) hits!: number
  @Column({ type: 'integer', default: 0 }) step!: number
  @Column({ type: 'text', nullable: true }) note!: string | null
  @BeforeUpdate() updating(): void {
    this.note = 'on update'
  }
}

const Account = entity('Account', {
  url: text(),
  alias: text({ nullable: true, normalize: lowerCase() }),
  handle: uniqueName({ namespace: 'page', nullable: true }),
})

const db = useDatabase()
const dataSource = db.useDataSource([Page, Heard, Account, Name])
const { manager } = dataSource
const observer = db.useClient()
beforeEach(() => dataSource.query('TRUNCATE page, heard RESTART IDENTITY'))

const url = 'http://example.com/'
const count = {
  create: { hits: 1 },
  update: { hits: ({ stored }: { stored: { hits: string } }) => `${stored.hits} + 1` },
}

type Both<Columns> = Readonly<Record<'stored' | 'given', Columns>>

describe('an upsert with SQL', () => {
  test('creates with the values of "create", and counts what is there', async () => {
    const first = await upsertByText(manager, Page, { url }, count)
    expect(first).toMatchObject({ created: true, entity: { hits: 1, version: 1 } })
    const second = await upsertByText(manager, Page, { url }, count)
    expect(second).toMatchObject({ created: false, entity: { id: first.entity.id, hits: 2, version: 2 } })
  })

  test('takes over what "true" names, beside SQL over both rows', async () => {
    const given = { url, title: 'old', hits: 5, meta: { size: 3 } }
    await upsertByText(manager, Page, given)
    const changed = { ...given, title: 'new', hits: 2, meta: { size: 4 } }
    const { entity } = await upsertByText(manager, Page, changed, {
      update: {
        title: true,
        hits: ({ stored, given: row }) => `greatest(${stored.hits}, ${row.hits})`,
        'meta.size': ({ stored, given: row }) => `${stored['meta.size']} * ${row['meta.size']}`,
      },
    })
    expect(entity).toMatchObject({ title: 'new', hits: 5, meta: { size: 12 } })
  })

  test('of many rows counts each of equal texts, one after the other', async () => {
    const rows = [{ url }, { url: 'http://example.org/' }, { url }, { url }]
    const results = await upsertByText(manager, Page, rows, count)
    expect(results).toMatchObject([
      { created: true, entity: { hits: 3 } },
      { created: true, entity: { hits: 1 } },
      { created: false, entity: { hits: 3 } },
      { created: false, entity: { hits: 3 } },
    ])
    const again = await upsertByText(manager, Page, rows.slice(0, 2), count)
    expect(again).toMatchObject([{ entity: { hits: 4 } }, { entity: { hits: 2 } }])
  })

  test('updates only what "where" is true of, for one row and for many', async () => {
    const at = (second: number): Date => new Date(Date.UTC(2026, 0, 1, 0, 0, second))
    const where = ({ stored, given }: Both<{ fetchedAt: string }>): string => `${stored.fetchedAt} < ${given.fetchedAt}`
    const write = async (title: string, second: number): Promise<string> => {
      const row = { url, title, fetchedAt: at(second) }
      return (await upsertByText(manager, Page, row, { where })).entity.title
    }
    expect(await write('5', 5)).toBe('5')
    expect(await write('3', 3)).toBe('5')
    expect(await write('7', 7)).toBe('7')
    const other = 'http://example.org/'
    const rows = [
      { url, title: '6', fetchedAt: at(6) },
      { url: other, title: '1', fetchedAt: at(1) },
      { url: other, title: '0', fetchedAt: at(0) },
      { url, title: '8', fetchedAt: at(8) },
    ]
    const results = await upsertByText(manager, Page, rows, { where })
    expect(results.map((result) => 'entity' in result && result.entity.title)).toEqual(['8', '1', '1', '8'])
    // NULL is not true.
    await dataSource.getRepository(Page).update({ url }, { fetchedAt: null })
    expect(await write('9', 9)).toBe('8')
    const [{ version }] = await dataSource.query('SELECT version FROM page WHERE url = $1', [url])
    expect(version).toBe(4)
  })

  test('leaves alone a row whose SQL changes nothing, if it is told to', async () => {
    const greatest = ({ stored, given }: Both<{ hits: string }>): string => `greatest(${stored.hits}, ${given.hits})`
    const options = { skipUpdateIfNoValuesChanged: true, update: { hits: greatest } }
    await upsertByText(manager, Page, { url, hits: 3 }, options)
    const versions = []
    for (const hits of [2, 4]) {
      versions.push((await upsertByText(manager, Page, { url, hits }, options)).entity.version)
      const [result] = await upsertByText(manager, Page, [{ url, hits }], options)
      versions.push(result && 'entity' in result && result.entity.version)
    }
    expect(versions).toEqual([1, 1, 2, 2])
  })

  test('acts on the row that holds the text, beside others of equal hash', async () => {
    const pages = Array.from({ length: 40 }, (_, index) => ({ url: `http://example.com/${index}` }))
    await upsertByText(manager, Page, pages, count)
    await upsertByText(manager, Page, pages.slice(0, 20), count)
    for (const page of pages.slice(0, 10)) await upsertByText(manager, Page, page, count)
    const sql = 'SELECT "Hits of it" AS hits, count(*)::int AS rows FROM page GROUP BY 1 ORDER BY 1'
    expect(await dataSource.query(sql)).toEqual([
      { hits: 1, rows: 20 },
      { hits: 2, rows: 10 },
      { hits: 3, rows: 10 },
    ])
  })

  test('takes an object of JSON and NULL as the given row', async () => {
    const tags = ({ stored, given }: Both<{ tags: string }>): string => `${stored.tags} || ${given.tags}`
    const merge = { update: { tags } }
    await upsertByText(manager, Page, { url, tags: { a: 1 } }, merge)
    await upsertByText(manager, Page, [{ url, tags: { b: 2 } }], merge)
    const { entity } = await upsertByText(manager, Page, { url, tags: { c: 3 } }, merge)
    expect(entity.tags).toEqual({ a: 1, b: 2, c: 3 })
    await upsertByText(manager, Page, { url, tags: null }, merge)
    expect(await dataSource.getRepository(Page).findOneBy({ url })).toMatchObject({ tags: null })
  })

  test('is heard like any other, and adds what a listener sets', async () => {
    const hits = ({ stored, given }: Both<{ hits: string; step: string }>): string => `${stored.hits} + ${given.step}`
    const options = { update: { hits } }
    await upsertByText(manager, Heard, { url, step: 2 }, options)
    const { entity } = await upsertByText(manager, Heard, { url, step: 5 }, options)
    expect(entity).toMatchObject({ hits: 5, note: 'on update' })
    expect(await dataSource.getRepository(Heard).findOneBy({ url })).toMatchObject({
      hits: 5,
      step: 2,
      note: 'on update',
    })
  })

  test('reports the row whose SQL the server refuses, and loses no other', async () => {
    const rows = [
      { url, hits: 0 },
      { url: 'http://example.org/', hits: 1 },
    ]
    await upsertByText(manager, Page, rows)
    const results = await upsertByText(manager, Page, rows, {
      update: { hits: ({ given }) => `7 / ${given.hits}` },
    })
    expect(results).toMatchObject([{ error: { code: '22012' } }, { entity: { hits: 7 } }])
  })
})

describe('calls at the same time', () => {
  test('count what the other has counted, once it has committed', async () => {
    await upsertByText(manager, Page, { url }, count)
    const runner = dataSource.createQueryRunner()
    await runner.startTransaction()
    await upsertByText(runner.manager, Page, { url }, count)
    const single = upsertByText(manager, Page, { url }, count)
    const batch = upsertByText(manager, Page, [{ url }], count)
    await untilBlocked(observer, 2)
    await runner.commitTransaction()
    await runner.release()
    await Promise.all([single, batch])
    expect(await dataSource.getRepository(Page).findOneBy({ url })).toMatchObject({ hits: 4 })
  })

  test('lose no count of many', async () => {
    const pages = Array.from({ length: 8 }, (_, index) => ({ url: `http://example.com/${index}` }))
    const calls = Array.from({ length: 40 }, async (_, nth) =>
      nth % 2 === 0
        ? await upsertByText(manager, Page, pages, count)
        : await Promise.all(pages.map((page) => upsertByText(manager, Page, page, count))),
    )
    await Promise.all(calls)
    const rows = await dataSource.getRepository(Page).find()
    expect(rows.map(({ hits }) => hits)).toEqual(pages.map(() => 40))
  })
})

describe('what is refused before any SQL', () => {
  const messageOf = async (call: Promise<unknown>): Promise<string> => {
    const error = await rejection(call)
    if (!(error instanceof DeclarationError)) throw error
    return error.message
  }
  const refusal = async (options: object): Promise<string> =>
    await messageOf(upsertByText(manager, Page, { url }, options))

  test('SQL of a text or a name, which would not be normalized', async () => {
    for (const name of ['alias', 'handle']) {
      const options = { by: 'url', update: { [name]: () => `'x'` } }
      const message = await messageOf(upsertByText(manager, Account, { url }, options))
      expect(message).toContain(`cannot set "${name}" of Account to SQL`)
    }
    expect(await refusal({ update: { url: () => `'x'` } })).toContain('the row is found by it')
  })

  test('a property that is none, or of several columns, in SQL', async () => {
    expect(
      await refusal({ update: { hits: ({ stored }: Record<'stored', { hit: string }>) => stored.hit } }),
    ).toContain('"hit"')
    expect(await refusal({ update: { meta: () => '1' } })).toContain('"meta"')
    expect(await refusal({ where: () => '' })).toContain('must return SQL')
    expect(await refusal({ update: { hits: false } })).toContain('update must be')
    expect(await refusal({ where: 'true' })).toContain('where must be')
  })

  test('a property that "create" gives and "update" takes over', async () => {
    expect(await refusal({ create: { title: 'new' }, update: ['title'] })).toContain('"title"')
    expect(await refusal({ create: { titel: 'new' } })).toContain('"titel"')
  })

  test('a row without what its SQL uses; in a list, that row alone', async () => {
    const options = { update: { hits: ({ given }: Record<'given', { hits: string }>) => given.hits } }
    expect(await refusal(options)).toContain('"given.hits"')
    const results = await upsertByText(manager, Page, [{ url }, { url: `${url}2`, hits: 1 }], options)
    expect(results).toMatchObject([{ error: { name: 'DeclarationError' } }, { created: true }])
  })
})
