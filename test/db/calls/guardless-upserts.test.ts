import { BeforeUpdate, Column, type DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { TextTakenError, UniqueText, upsertByText } from '../../../src'
import { doctor } from '../../../src/doctor'
import { lowerCase } from '../../../src/text'
import { useDatabase } from '../../support/database'
import type { Entityish } from '../adopt/stage'

const GUARDLESS = { digest: 'sha256', guard: false } as const

interface Linkish {
  id: number
  handle: string
  path: string
  query: string | null
  email: string | null
}

/** A text with a guard, by which rows are found, beside two without one. */
function linkOf(heard: boolean): Entityish {
  class Link implements Linkish {
    @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
    @UniqueText({ normalize: lowerCase() }) handle!: string
    @Column('text') path!: string
    @Column({ type: 'varchar', length: 20, nullable: true }) query!: string | null
    @UniqueText({ ...GUARDLESS, nullable: true }) email!: string | null
    hear(): void {
      this.email = this.email === 'heard' ? 'set by a listener' : this.email
    }
  }
  if (heard) BeforeUpdate()(Link.prototype, 'hear')
  UniqueText({ as: 'address', columns: ['path', { property: 'query', prefix: '?' }], ...GUARDLESS })(Link)
  Entity({ name: 'link' })(Link)
  return Link
}

const db = useDatabase({ wrapped: true })

describe.each([
  ['that nobody hears of', false],
  ['that a listener hears of', true],
])('an upsert by another text %s gives texts without a guard their hashes', (_, heard) => {
  const Link = linkOf(heard)
  let dataSource: DataSource

  beforeAll(async () => {
    dataSource = await db.dataSource([Link])
  })
  beforeEach(async () => {
    await dataSource.query('TRUNCATE link RESTART IDENTITY')
    await dataSource.manager.save(Link, [
      { handle: 'a', path: '/a', query: 'q', email: 'a@x.example' },
      { handle: 'b', path: '/b', query: null, email: 'b@x.example' },
    ])
  })

  const upsert = (values: Partial<Linkish>, update?: readonly (keyof Linkish)[]): Promise<unknown> =>
    upsertByText(dataSource.manager, Link, values, { by: 'handle', ...(update ? { update } : {}) } as never)

  const stored = async (handle: string): Promise<unknown> => {
    expect((await doctor(dataSource)).findings).toEqual([])
    return await dataSource.manager.findOne(Link, {
      where: { handle },
      select: { path: true, query: true, email: true },
    })
  }

  test.each<[string, Partial<Linkish>, readonly (keyof Linkish)[] | undefined, Partial<Linkish>]>([
    ['that becomes NULL', { email: null }, undefined, { path: '/a', query: 'q', email: null }],
    ['of which the row gives a part', { query: 'new' }, undefined, { path: '/a', query: 'new' }],
    ['of which the row gives the other part', { path: '/new' }, undefined, { path: '/new', query: 'q' }],
    ['of which a part becomes NULL', { query: null }, undefined, { path: '/a', query: null }],
    ['of which a part is listed', { path: '/new', query: 'new' }, ['query'], { path: '/a', query: 'new' }],
    [
      'of which nothing is listed',
      { path: '/new', query: 'new', email: 'new' },
      ['email'],
      { path: '/a', email: 'new' },
    ],
  ])('%s', async (_case, values, update, expected) => {
    expect(await upsert({ handle: 'A', ...values }, update)).toMatchObject({ created: false, entity: expected })
    expect(await stored('a')).toMatchObject(expected)
  })

  test('in a list, whose rows give different parts, and one text twice', async () => {
    const results = await upsertByText(
      dataSource.manager,
      Link,
      [
        { handle: 'a', path: '/1' },
        { handle: 'b', query: '2', email: null },
        { handle: 'c', path: '/3', query: '3' },
        { handle: 'c', query: '4', email: 'c@x.example' },
        { handle: 'a', email: 'new' },
      ] as never,
      { by: 'handle' },
    )
    expect((results as { error?: unknown }[]).map(({ error }) => error)).toEqual(Array.from({ length: 5 }))
    expect(await stored('a')).toMatchObject({ path: '/1', query: 'q', email: 'new' })
    expect(await stored('b')).toMatchObject({ path: '/b', query: '2', email: null })
    expect(await stored('c')).toMatchObject({ path: '/3', query: '4', email: 'c@x.example' })
  })

  test('and is refused where another row holds what it comes to', async () => {
    await upsert({ handle: 'b', path: '/a', query: 'other' })
    await expect(upsert({ handle: 'b', query: 'q' })).rejects.toBeInstanceOf(TextTakenError)
    expect(await stored('b')).toMatchObject({ path: '/a', query: 'other' })
  })

  test('also of what a listener sets', async () => {
    await upsert({ handle: 'a', email: 'heard' })
    expect(await stored('a')).toMatchObject({ email: heard ? 'set by a listener' : 'heard' })
  })
})
