import { Column, Entity, Index, PrimaryGeneratedColumn } from 'typeorm'
import { describe, expect, test } from 'vitest'
import {
  DeclarationError,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  TextRejectedError,
  UniqueText,
  upsertByText,
} from '../../../src'
import { fewHashes, oneHash } from '../../support/digests'
import { useDatabase } from '../../support/database'
import { queriesOf } from '../../support/queries'
import { column, entity, text } from '../../support/entity'
import { Page } from '../../support/titled-page'

const db = useDatabase()

const Crowded = entity('Crowded', { text: text({ digest: oneHash, maxChainLength: 20 }) })

@Entity()
class Article {
  @PrimaryGeneratedColumn('uuid') id!: string
  @UniqueText({ scope: ['tenant'], digest: fewHashes(16) }) body!: string
  @Column({ type: 'integer' }) tenant!: number
  @Index({ unique: true }) @Column({ type: 'varchar', length: 20, nullable: true }) slug!: string | null
  @Column({ type: 'text', array: true, default: () => `'{}'` }) tags!: string[]
  @Column({ type: 'jsonb', nullable: true }) extra!: unknown
  @Column({ type: 'timestamptz', nullable: true }) at!: Date | null
  @Column({ type: 'smallint', default: 7 }) rank!: number
}

const dataSource = db.useDataSource([Page, Crowded, Article])
const { manager } = dataSource

describe('findOrCreate', () => {
  test('creates once, finds after that, and burns no id on a hit', async () => {
    const first = await findOrCreate(manager, Page, { url: 'a', title: 'T' })
    expect(first).toEqual({ entity: { id: 1, url: 'a', title: 'T' }, created: true, attempts: 1 })
    expect(first.entity).toBeInstanceOf(Page)
    const second = await findOrCreate(manager, Page, { url: 'a', title: 'other' })
    expect(second).toEqual({ entity: { id: 1, url: 'a', title: 'T' }, created: false, attempts: 1 })
    expect((await findOrCreate(manager, Page, { url: 'b' })).entity.id).toBe(2)
  })

  test('does not touch a row that it finds, and sends nothing for no rows', async () => {
    await findOrCreate(manager, Page, { url: 'a' })
    const version = (): Promise<unknown> => dataSource.query('select xmin, ctid from page')
    const before = await version()
    await findOrCreate(manager, Page, { url: 'a', title: 'other' })
    await findOrCreateMany(manager, Page, [{ url: 'a', title: 'other' }])
    expect(await version()).toEqual(before)
    const sent = await queriesOf(dataSource, async () => {
      expect(await findOrCreateMany(manager, Page, [])).toEqual([])
      expect(await upsertByText(manager, Page, [])).toEqual([])
    })
    expect(sent).toEqual([])
  })

  test('keeps texts of equal hash apart, numbered from 0', async () => {
    const ids = []
    for (const text of ['a', 'b', 'c', 'b', 'a']) ids.push((await findOrCreate(manager, Crowded, { text })).entity.id)
    expect(ids).toEqual([ids[0], ids[1], ids[2], ids[1], ids[0]])
    expect(await dataSource.query('select text, "textHashNumber" as n from crowded order by n')).toEqual([
      { text: 'a', n: 0 },
      { text: 'b', n: 1 },
      { text: 'c', n: 2 },
    ])
    expect(await findOneByText(manager, Crowded, { text: 'c' })).toMatchObject({ text: 'c' })
    expect(await findOneByText(manager, Crowded, { text: 'd' })).toBeNull()
  })

  test('throws the refusal of another unique index as the driver made it, and the transaction goes on', async () => {
    await findOrCreate(manager, Article, { body: 'a', tenant: 1, slug: 's' })
    await manager.transaction(async (inner) => {
      await expect(findOrCreate(inner, Article, { body: 'b', tenant: 1, slug: 's' })).rejects.toMatchObject({
        code: '23505',
        constraint: expect.stringMatching(/^IDX_/),
      })
      const [, refused] = await findOrCreateMany(inner, Article, [
        { body: 'c', tenant: 1, slug: 'u' },
        { body: 'd', tenant: 1, slug: 's' },
      ])
      expect(refused).toMatchObject({ error: { code: '23505' } })
      await findOrCreate(inner, Article, { body: 'e', tenant: 1, slug: 't' })
    })
    expect((await manager.find(Article)).map(({ body }) => body).sort()).toEqual(['a', 'c', 'e'])
  })

  test('is unique within the scope only, and round-trips every type', async () => {
    const values = { body: 'a', tags: ['x', 'y"\\,', ''], extra: { k: [1, null] }, at: new Date(0) }
    const one = await findOrCreate(manager, Article, { ...values, tenant: 1 })
    const [two] = await findOrCreateMany(manager, Article, [{ ...values, tenant: 2 }])
    expect(one.entity).toMatchObject({ ...values, tenant: 1, rank: 7, slug: null })
    expect(two).toMatchObject({ created: true, attempts: 1, entity: { ...values, tenant: 2, rank: 7, slug: null } })
    expect(await manager.findOneBy(Article, { tenant: 2 })).toEqual(two && 'entity' in two ? two.entity : undefined)
    await expect(findOrCreate(manager, Article, { body: 'a' })).rejects.toBeInstanceOf(DeclarationError)
  })
})

describe('findOrCreateMany', () => {
  test('aligns with its input, with duplicates, collisions and rejected texts in it', async () => {
    await findOrCreate(manager, Crowded, { text: 'known' })
    const results = await findOrCreateMany(manager, Crowded, [
      { text: 'new' },
      { text: 'known' },
      { text: 'new' },
      { text: 'bad\0' },
      { text: 'newer' },
    ])
    const told = results.map((result) =>
      'error' in result ? (result.error as Error).constructor : [result.entity.text, result.created],
    )
    expect(told).toEqual([['new', true], ['known', false], ['new', false], TextRejectedError, ['newer', true]])
  })

  test('tells the row that the database refuses, wherever it stands, and creates the rest', async () => {
    const inputs = Array.from({ length: 50 }, (_, index) => ({
      body: `text ${index}`,
      tenant: 1,
      slug: index === 33 ? 'longer than twenty characters' : null,
    }))
    const results = await findOrCreateMany(manager, Article, inputs)
    expect(results.map((result) => 'created' in result && result.created)).toEqual(inputs.map((_, i) => i !== 33))
    expect(results[33]).toMatchObject({ error: { code: '22001' } })
  })
})

test('a full chain is refused with a clear error, and the transaction stays usable', async () => {
  const texts = Array.from({ length: 20 }, (_, index) => ({ text: `t${index}` }))
  await findOrCreateMany(manager, Crowded, texts)
  await manager.transaction(async (inner) => {
    await expect(findOrCreate(inner, Crowded, { text: 'one too many' })).rejects.toMatchObject({ code: 'CHAIN_LIMIT' })
    expect(await inner.count(Crowded)).toBe(20)
  })
})

test('columns whose names hold line breaks have statements of their own', async () => {
  const Lines = entity('Lines', {
    text: text(),
    first: column('text', { nullable: true, name: 'x' }),
    second: column('text', { nullable: true, name: 'y' }),
    both: column('text', { nullable: true, name: 'x\ny' }),
  })
  const { manager } = await db.dataSource([Lines])
  await findOrCreate(manager, Lines, { text: 'a', first: '1', second: '2' })
  await findOrCreate(manager, Lines, { text: 'b', both: '3' })
  await findOrCreateMany(manager, Lines, [{ text: 'c', first: '4', second: '5' }])
  await findOrCreateMany(manager, Lines, [{ text: 'd', both: '6' }])
  const stored = await manager.find(Lines, { order: { text: 'ASC' } })
  expect(stored.map(({ first, second, both }) => [first, second, both])).toEqual([
    ['1', '2', null],
    [null, null, '3'],
    ['4', '5', null],
    [null, null, '6'],
  ])
})
