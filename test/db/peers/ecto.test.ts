import { describe, expect, test } from 'vitest'
import { findOrCreate } from '../../../src'
import { useDatabase } from '../../support/database'
import { oneHash } from '../../support/digests'
import { column, entity, plain, text } from '../../support/entity'

const Post = entity('Post', { url: text(), title: plain(), visits: column('integer', { default: 0 }) })

/** Every text has one hash. */
const Crowded = entity('Crowded', { url: text({ digest: oneHash }), visits: column('integer', { default: 0 }) })

const db = useDatabase()
const dataSource = db.useDataSource([Post, Crowded])
const { manager } = dataSource
const client = db.useClient()

const posts = (): Promise<unknown> => dataSource.query('SELECT url, title, visits FROM post ORDER BY id')
const target = '("urlHash", "urlHashNumber")'
const refused = { driverError: { code: '23505' } }

describe('upsert via insert', () => {
  test('on conflict raise: an insert without a word about conflicts is refused', async () => {
    await manager.insert(Post, { url: 'first' })
    await expect(manager.insert(Post, { url: 'first' })).rejects.toMatchObject(refused)
  })

  test('on conflict ignore: the second insert changes nothing and gives no id', async () => {
    const insert = () =>
      dataSource.createQueryBuilder().insert().into(Post).values({ url: 'first' }).orIgnore().execute()
    expect((await insert()).raw).toEqual([expect.objectContaining({ id: 1 })])
    expect((await insert()).raw).toEqual([])
    expect(await dataSource.manager.count(Post)).toBe(1)
  })

  test('on conflict ignore and conflict target: a conflict elsewhere is still an error', async () => {
    await client.query(`INSERT INTO post (url) VALUES ('first')`)
    const onId = client.query(`INSERT INTO post (url) VALUES ('first') ON CONFLICT (id) DO NOTHING`)
    await expect(onId).rejects.toMatchObject({ code: '23505' })
    const onText = await client.query(`INSERT INTO post (url) VALUES ('first') ON CONFLICT ${target} DO NOTHING`)
    expect(onText.rowCount).toBe(0)
  })

  test('on conflict with inc: a counter goes up, the row stays one', async () => {
    const visit = `INSERT INTO post AS t (url, visits) VALUES ('first', 1)
      ON CONFLICT ${target} DO UPDATE SET visits = t.visits + EXCLUDED.visits`
    for (let count = 0; count < 3; count += 1) await client.query(visit)
    expect(await posts()).toEqual([{ url: 'first', title: null, visits: 3 }])
  })

  test('on conflict with inc, where every text has one hash: each text has its own counter', async () => {
    for (const url of ['a', 'b', 'a', 'c', 'b', 'a']) {
      await client.query(
        `INSERT INTO crowded AS t (url, visits) VALUES ($1, 1)
         ON CONFLICT ${target} DO UPDATE SET visits = t.visits + 1 WHERE t.url = EXCLUDED.url`,
        [url],
      )
    }
    const counted = await dataSource.manager.find(Crowded, { order: { url: 'ASC' } })
    expect(counted.map(({ url, visits }) => [url, visits])).toEqual([
      ['a', 3],
      ['b', 2],
      ['c', 1],
    ])
  })

  test('on conflict keyword list and conflict target: what is set is set, and the key stays', async () => {
    const insert = `INSERT INTO post (url, title) VALUES ('u', 'first')
      ON CONFLICT ${target} DO UPDATE SET title = 'second' RETURNING id, title`
    expect((await client.query(insert)).rows).toEqual([{ id: 1, title: 'first' }])
    expect((await client.query(insert)).rows).toEqual([{ id: 1, title: 'second' }])
  })

  test('on conflict query having condition: where the condition fails, nothing is written', async () => {
    await client.query(`INSERT INTO post (url, title, visits) VALUES ('u', 'first', 1)`)
    const stale = await client.query(
      `INSERT INTO post AS t (url) VALUES ('u') ON CONFLICT ${target}
       DO UPDATE SET title = 'second' WHERE t.visits = 2 RETURNING id`,
    )
    expect(stale.rowCount).toBe(0)
    expect(await posts()).toEqual([{ url: 'u', title: 'first', visits: 1 }])
  })

  test('on conflict and returning: an update that sets the text to itself gives the whole row', async () => {
    const { entity } = await findOrCreate(dataSource.manager, Post, { url: 'old', title: 't' })
    const { rows } = await client.query(
      `INSERT INTO post (url) VALUES ('old') ON CONFLICT ${target} DO UPDATE SET url = EXCLUDED.url RETURNING id, title`,
    )
    expect(rows).toEqual([{ id: entity.id, title: 't' }])
  })

  test('on conflict and returning, with another text: the row moves, and its old text is free', async () => {
    await client.query(`INSERT INTO post (url) VALUES ('old')`)
    for (const renamed of ['new1', 'new2']) {
      const { rows } = await client.query(
        `INSERT INTO post (url) VALUES ('old') ON CONFLICT ${target} DO UPDATE SET url = '${renamed}' RETURNING url`,
      )
      expect(rows).toEqual([{ url: renamed }])
      await client.query(`INSERT INTO post (url) VALUES ('old')`)
    }
    expect(await posts()).toMatchObject([{ url: 'new1' }, { url: 'new2' }, { url: 'old' }])
  })
})

describe('upsert via insert_all', () => {
  test('on conflict ignore: the count is of rows that were inserted', async () => {
    const insert = async (...urls: string[]) =>
      (await client.query('INSERT INTO post (url) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING', [urls])).rowCount
    expect([await insert('a', 'b'), await insert('a', 'b'), await insert('b', 'c', 'c')]).toEqual([2, 0, 1])
  })

  test('on conflict replace_all and conflict_target: several rows each get their own values', async () => {
    const upsert = (title: string, visits: number) =>
      client.query(
        `INSERT INTO post (url, title, visits) VALUES ('a', $1, $2), ('b', $1, $2)
         ON CONFLICT ${target} DO UPDATE SET title = EXCLUDED.title, visits = EXCLUDED.visits`,
        [title, visits],
      )
    await upsert('first', 13)
    await upsert('updated', 17)
    expect(await posts()).toEqual(['a', 'b'].map((url) => ({ url, title: 'updated', visits: 17 })))
  })
})
