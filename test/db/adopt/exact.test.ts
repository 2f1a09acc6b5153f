import { type DataSource, Entity, PrimaryColumn } from 'typeorm'
import { beforeEach, expect, test } from 'vitest'
import { UniqueText } from '../../../src'
import { abandon, adopt, mergeDuplicates, type MergeRows, unmerge } from '../../../src/adopt'
import { normalizer, Refusal } from '../../../src/text'
import { useDatabase } from '../../support/database'

const db = useDatabase({ wrapped: true })
const client = db.useClient()

beforeEach(async () => {
  await client.query(
    `drop schema public cascade; create schema public;
     create table page (id bigint primary key, url text not null, hits bigint, price numeric, score float8,
       loud text generated always as (upper(url)) stored);
     insert into page values (9007199254740993, 'a', 9007199254740993, 12345678901234567890.125, 0.30000000000000004),
       (9007199254740995, 'a', null, null, null), (9007199254740997, 'b!', 7, 1.50, null)`,
  )
})

const strict = normalizer('strict', 1, (text) => {
  if (text.includes('!')) throw new Refusal('no exclamation marks')
  return text
})

@Entity({ name: 'page' })
class Page {
  @PrimaryColumn('bigint') id!: string
  @UniqueText({ normalize: strict }) url!: string
}

const open = async (): Promise<DataSource> => await db.dataSource([Page], { synchronize: false })

test('rows are told by the keys that they have', async () => {
  const dataSource = await open()
  await expect(adopt(dataSource, Page)).rejects.toMatchObject({ message: expect.stringMatching(/"9007199254740997"/) })
  expect(await adopt(dataSource, Page, { refused: 'keep' })).toMatchObject({
    refused: [{ key: { id: '9007199254740997' } }],
    duplicates: { first: [[{ id: '9007199254740993' }, { id: '9007199254740995' }]] },
  })
})

test('a function that merges gets values that are not rounded, and sets them', async () => {
  const dataSource = await open()
  await adopt(dataSource, Page, { refused: 'keep' })
  const keep: MergeRows = ([first = {}, second = {}]) => {
    const { hits, price, score } = first
    expect({ hits, price, score }).toEqual({
      hits: '9007199254740993',
      price: '12345678901234567890.125',
      score: 0.1 + 0.2,
    })
    return { keep: { id: second['id'] as string }, set: { hits, price, score } }
  }
  expect(await mergeDuplicates(dataSource, Page, { keep })).toMatchObject({ merged: 1, left: [] })
  const { rows } = await client.query(`select id, hits, price, score from page where url = 'a'`)
  expect(rows).toEqual([
    { id: '9007199254740995', hits: '9007199254740993', price: '12345678901234567890.125', score: 0.1 + 0.2 },
  ])
})

test('a row of another table that went comes back without its generated columns', async () => {
  await client.query(
    `create table bookmark (id integer generated always as identity primary key, member integer not null,
       page bigint not null references page (id), note text, twice integer generated always as (member * 2) stored,
       unique (member, page));
     insert into bookmark (member, page, note) values (1, 9007199254740993, 'x'), (1, 9007199254740995, 'y')`,
  )
  const all = async (): Promise<unknown[]> => (await client.query('select * from bookmark order by id')).rows
  const before = await all()
  const dataSource = await open()
  await adopt(dataSource, Page, { refused: 'keep' })
  await mergeDuplicates(dataSource, Page, { keep: 'oldest', conflict: { bookmark: 'merge' } })
  expect(await all()).toHaveLength(1)
  await abandon(dataSource, Page)
  expect(await unmerge(dataSource, Page)).toEqual({ restored: 1, left: [] })
  expect(await all()).toEqual(before)
})
