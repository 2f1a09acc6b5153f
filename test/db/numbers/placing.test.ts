import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { countedTable, createNumberedTable, numbersOf, numberTable, wrongCounts } from '../../support/numbered-table'

const db = useDatabase()
const client = db.useClient()

const plain = numberTable()
const counted = countedTable()

describe.each([
  ['without a count', plain],
  ['with a count', counted],
])('%s', (_name, table) => {
  const made = (): Promise<void> => createNumberedTable(client, table)
  const wrong = async (): Promise<string[]> => (!table.count ? [] : await wrongCounts(client, table))
  const shown = async (): Promise<string> => {
    expect(await wrong()).toEqual([])
    return (await numbersOf(client, table)).replaceAll(/ #\d+/g, '')
  }

  test('each row gets the number after the highest of its scope', async () => {
    await made()
    for (const tenant of [1, 2, 1, 1, 2]) await client.query('insert into comment (tenant) values ($1)', [tenant])
    expect(await shown()).toBe('1: 1 2 3; 2: 1 2')
  })

  test('RETURNING gives the number', async () => {
    await made()
    const { rows } = await client.query('insert into comment (tenant) values (1), (1) returning number')
    expect(rows).toEqual([{ number: 1 }, { number: 2 }])
  })

  test('a bulk insert makes contiguous runs in input order', async () => {
    await made()
    await client.query(
      `insert into comment (tenant, title) select 1 + g % 3, g::text from generate_series(1, 3000) as g`,
    )
    const { rows } = await client.query(
      `select from (select number - row_number() over (partition by tenant order by title::integer) as off from comment) as r
        where off <> 0`,
    )
    expect(rows).toEqual([])
    expect(await shown()).toMatch(/^1: 1 2 3 .* 1000; 2: 1 2 .* 1000; 3: 1 .* 1000$/)
  })

  test('no gap after a rollback, of a transaction or to a savepoint', async () => {
    await made()
    await client.query('insert into comment (tenant) values (1)')
    await client.query('begin; insert into comment (tenant) values (1), (2); rollback')
    await client.query(
      'begin; insert into comment (tenant) values (1), (2); savepoint s; insert into comment (tenant) values (1), (2), (3); ' +
        'rollback to s; insert into comment (tenant) values (1), (3); commit',
    )
    expect(await shown()).toBe('1: 1 2 3; 2: 1; 3: 1')
  })

  test('a number that the client gives is kept, and the next row follows the highest', async () => {
    await made()
    await client.query('insert into comment (tenant, number) values (1, 5), (1, 3)')
    await client.query('insert into comment (tenant) values (1)')
    await expect(client.query('insert into comment (tenant, number) values (1, 5)')).rejects.toMatchObject({
      code: '23505',
      constraint: 'comment_number',
    })
    await client.query('insert into comment (tenant, number) values (2, -5)')
    await client.query('insert into comment (tenant) values (2)')
    expect(await shown()).toBe('1: 3 5 6; 2: -5 1')
  })

  test('a delete at the end gives the number free, one in the middle leaves a hole', async () => {
    await made()
    await client.query('insert into comment (tenant) select 1 from generate_series(1, 5)')
    await client.query('delete from comment where number in (3, 5)')
    await client.query('insert into comment (tenant) values (1)')
    expect(await shown()).toBe('1: 1 2 4 5')
  })

  test('the oldest row may go, and the scope may become empty', async () => {
    await made()
    await client.query('insert into comment (tenant) select 1 from generate_series(1, 3)')
    await client.query('delete from comment where number = 1')
    await client.query('insert into comment (tenant) values (1)')
    expect(await shown()).toBe('1: 2 3 4')
    await client.query('delete from comment')
    await client.query('insert into comment (tenant) values (1)')
    expect(await shown()).toBe('1: 1')
  })

  test('a row that moves to another scope gets the next number there', async () => {
    await made()
    await client.query('insert into comment (tenant) values (1), (1), (1), (2)')
    await client.query('update comment set tenant = 2 where tenant = 1 and number = 2')
    expect(await shown()).toBe('1: 1 3; 2: 1 2')
    await client.query('update comment set tenant = 3 - tenant')
    expect(await shown()).toMatch(/^1: \d+ \d+; 2: \d+ \d+$/)
    await client.query('update comment set tenant = 7, number = number + 100 * id')
    expect((await shown()).split(' ').length).toBe(5)
  })

  test('a soft delete and a restore keep the number', async () => {
    await made()
    await client.query('insert into comment (tenant) values (1), (1), (1)')
    await client.query('update comment set "deletedAt" = now() where number >= 2')
    await client.query('insert into comment (tenant) values (1)')
    expect(await shown()).toBe('1: 1 2~ 3~ 4')
    await client.query('update comment set "deletedAt" = null where number = 3')
    expect(await shown()).toBe('1: 1 2~ 3 4')
  })

  test('one statement may delete, insert and move', async () => {
    await made()
    await client.query('insert into comment (tenant) values (1), (1), (1), (2)')
    await client.query(
      `with gone as (delete from comment where tenant = 1 and number in (1, 3) returning 1),
            moved as (update comment set tenant = 1 where tenant = 2 returning 1)
       insert into comment (tenant) values (1), (2), (3)`,
    )
    expect(await wrong()).toEqual([])
    const { rows } = await client.query('select tenant, count(*)::integer as n from comment group by 1 order by 1')
    expect(rows).toEqual([
      { tenant: 1, n: 3 },
      { tenant: 2, n: 1 },
      { tenant: 3, n: 1 },
    ])
  })

  test('ON CONFLICT DO NOTHING uses no number up', async () => {
    await made()
    await client.query('create unique index on comment (title)')
    for (const title of ['a', 'a', 'b', 'a', 'c']) {
      await client.query('insert into comment (tenant, title) values (1, $1) on conflict do nothing', [title])
    }
    expect(await shown()).toBe('1: 1 2 3')
  })

  test('a transaction may begin 20,000 scopes, and then write to as many', async () => {
    await made()
    await client.query('begin')
    await client.query('insert into comment (tenant) select g from generate_series(1, 20000) as g')
    await client.query('insert into comment (tenant) select g from generate_series(1, 20000) as g')
    await client.query('commit')
    const { rows } = await client.query('select number, count(*)::integer as n from comment group by 1 order by 1')
    expect(rows).toEqual([
      { number: 1, n: 20000 },
      { number: 2, n: 20000 },
    ])
    expect(await wrong()).toEqual([])
  })
})

test('TRUNCATE begins every scope anew, and its count', async () => {
  await createNumberedTable(client, counted)
  await client.query('insert into comment (tenant) values (1), (1); truncate comment')
  await client.query('insert into comment (tenant) values (1), (1), (2)')
  expect(await numbersOf(client, counted)).toBe('1: 1 2 #2; 2: 1 #1')
})

test.each(['repeatable read', 'serializable'])(
  'TRUNCATE at %s clears the counts of scopes that are newer than its snapshot, too',
  async (level) => {
    await createNumberedTable(client, counted)
    const other = await db.client()
    await other.query(`begin isolation level ${level}; select 1`)
    await client.query('insert into comment (tenant) values (1)')
    await other.query('truncate comment; commit')
    expect(await wrongCounts(client, counted)).toEqual([])
    await client.query('insert into comment (tenant) values (1)')
    expect(await numbersOf(client, counted)).toBe('1: 1 #1')
  },
)

describe('TRUNCATE with a count and without reuse', () => {
  const kept = countedTable({ reuse: false })

  test('clears the counts and keeps the highest numbers', async () => {
    await createNumberedTable(client, kept)
    await client.query('insert into comment (tenant) values (1), (1), (2); truncate comment')
    expect(await wrongCounts(client, kept)).toEqual([])
    await client.query('insert into comment (tenant) values (1), (2), (3)')
    expect(await numbersOf(client, kept)).toBe('1: 3 #1; 2: 2 #1; 3: 1 #1')
  })

  test.each(['repeatable read', 'serializable'])('is refused at %s', async (level) => {
    await createNumberedTable(client, kept)
    await client.query(`begin isolation level ${level}; insert into comment (tenant) values (1)`)
    await expect(client.query('truncate comment')).rejects.toMatchObject({ code: '0A000' })
    await client.query('rollback')
  })
})
