import { type DataSource, Entity, PrimaryColumn } from 'typeorm'
import { beforeEach, expect, test } from 'vitest'
import { UniqueText } from '../../../src'
import { adopt } from '../../../src/adopt'
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
  await expect(adopt(dataSource, Page)).rejects.toMatchObject({ keys: [{ id: '9007199254740997' }] })
  expect(await adopt(dataSource, Page, { rejected: 'keep' })).toMatchObject({
    rejected: [{ key: { id: '9007199254740997' } }],
    duplicates: { first: [[{ id: '9007199254740993' }, { id: '9007199254740995' }]] },
  })
})
