import type { Client } from 'pg'
import { beforeAll, describe, expect, test } from 'vitest'
import type { NumberTable } from '../../../src/sql/numbers'
import { serverError } from '../../../src/sql/sqlstate'
import { useDatabase } from '../../support/database'
import {
  countedTable,
  createNumberedTable,
  numberTable,
  scopesWithGaps,
  wrongCounts,
} from '../../support/numbered-table'
import { LEVELS } from '../../support/sessions'

const db = useDatabase()
const CLIENTS = 32
const TURNS = 25
const SCOPES = 8
let clients: Client[]

beforeAll(async () => {
  clients = await Promise.all(Array.from({ length: CLIENTS }, () => db.client()))
  // Those who do everything meet in every order.
  for (const client of clients) await client.query(`set deadlock_timeout to '5ms'`)
})

type Turn = (client: Client, random: (below: number) => number) => Promise<unknown>

/** What a client may hear of others, and nothing else. */
const LOST: ReadonlySet<string> = new Set(['40001', '40P01', '23505'])

/** Every client takes its turns; what failed is rolled back. @returns how often each SQLSTATE came */
async function storm(turn: Turn): Promise<Record<string, number>> {
  const errors: Record<string, number> = {}
  await Promise.all(
    clients.map(async (client, index) => {
      const random = randomOf(index + 1)
      for (let round = 0; round < TURNS; round++) {
        try {
          await turn(client, random)
        } catch (error) {
          const code = serverError(error)?.code ?? String(error)
          errors[code] = (errors[code] ?? 0) + 1
          await client.query('rollback')
        }
      }
    }),
  )
  expect(Object.keys(errors).filter((code) => !LOST.has(code))).toEqual([])
  return errors
}

/** Mulberry32. */
function randomOf(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let value = Math.imul(state ^ (state >>> 15), 1 | state)
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value
    return Math.floor((((value ^ (value >>> 14)) >>> 0) / 2 ** 32) * below)
  }
}

const begin = (random: (below: number) => number, mixed: boolean): string =>
  `begin isolation level ${mixed ? (LEVELS[random(3)] ?? '') : LEVELS[0]}`

const insert: Turn = (client, random) =>
  client.query('insert into comment (tenant) select $1 from generate_series(1, $2)', [
    1 + random(SCOPES),
    1 + random(3),
  ])

const ACTIONS: readonly Turn[] = [
  insert,
  insert,
  (client, random) =>
    client.query('delete from comment where id % 7 = $1 and tenant = $2', [random(7), random(SCOPES + 1)]),
  (client, random) => client.query('delete from comment where tenant = $1', [random(SCOPES + 1)]),
  (client, random) =>
    client.query('update comment set "deletedAt" = now() where id % 5 = $1 and tenant = $2', [
      random(5),
      random(SCOPES + 1),
    ]),
  (client, random) => client.query('update comment set "deletedAt" = null where id % 5 = $1', [random(5)]),
  (client, random) =>
    client.query('update comment set tenant = $2 where id % 11 = $1 and tenant <> $2', [
      random(11),
      1 + random(SCOPES),
    ]),
  (client, random) => client.query('update comment set title = $2 where id % 3 = $1', [random(3), 'x']),
  async (client, random) => {
    await client.query('savepoint s')
    await insert(client, random)
    await client.query('rollback to s')
  },
]

describe.each([
  ['without a count', numberTable()],
  ['with a count', countedTable()],
] as [string, NumberTable][])('%s', (_name, table) => {
  test('32 clients that insert and roll back leave numbers 1 to n, and lose nothing', async () => {
    await createNumberedTable(await db.client(), table)
    const errors = await storm(async (client, random) => {
      await client.query('begin')
      await insert(client, random)
      await client.query(random(3) === 0 ? 'rollback' : 'commit')
    })
    expect(errors).toEqual({})
    expect(await scopesWithGaps(await db.client(), table)).toBe(0)
  })
})

test.each([
  ['READ COMMITTED', false],
  ['mixed levels', true],
])('32 clients that do everything at %s leave one right count in each scope', async (_name, mixed) => {
  const table = countedTable()
  const observer = await db.client()
  await createNumberedTable(observer, table)
  const errors = await storm(async (client, random) => {
    await client.query(begin(random, mixed))
    for (let left = 1 + random(2); left > 0; left--) await ACTIONS[random(ACTIONS.length)]?.(client, random)
    if (random(200) === 0) await client.query('truncate comment')
    await client.query(random(5) === 0 ? 'rollback' : 'commit')
  })
  expect(await wrongCounts(observer, table)).toEqual([])
  // It was no quiet hour, and most got through.
  const lost = Object.values(errors).reduce((sum, one) => sum + one, 0)
  expect(lost).toBeLessThan(CLIENTS * TURNS)
})

const kept = { reuse: false, start: 1000 } as const
test.each([
  ['READ COMMITTED', false, numberTable(kept)],
  ['mixed levels', true, numberTable(kept)],
  ['READ COMMITTED with a count', false, countedTable(kept)],
  ['mixed levels with a count', true, countedTable(kept)],
])('32 clients that write at %s give no number twice, nor again', async (_name, mixed, table) => {
  await createNumberedTable(await db.client(), table)
  const given = new Map<string, number>()
  const errors = await storm(async (client, random) => {
    await client.query(begin(random, mixed))
    const numbers: string[] = []
    for (let left = 1 + random(3); left > 0; left--) {
      const scope = 1 + random(2)
      const { rows } = await client.query<{ tenant: number; number: number }>(
        [
          'insert into comment (tenant) select $1 from generate_series(1, 2) returning tenant, number',
          'delete from comment where tenant = $1 and number >= (select max(number) - 2 from comment where tenant = $1)',
          `update comment set tenant = 3 - tenant where id = (select max(id) from comment where tenant = $1)
             returning tenant, number`,
        ][random(3)] ?? '',
        [scope],
      )
      numbers.push(...rows.map((row) => `${row.tenant}/${row.number}`))
    }
    if (random(100) === 0 && !(mixed && table.count)) await client.query('truncate comment')
    if (random(5) === 0) return await client.query('rollback')
    await client.query('commit')
    for (const one of numbers) given.set(one, (given.get(one) ?? 0) + 1)
    return undefined
  })
  expect(table.count ? await wrongCounts(await db.client(), table) : []).toEqual([])
  expect([...given].filter(([, times]) => times > 1)).toEqual([])
  expect(given.size).toBeGreaterThan(100)
  expect([...given.keys()].filter((one) => Number(one.split('/')[1]) < 1000)).toEqual([])
  // Without a snapshot nobody is refused, unless two delete rows in another order.
  expect(Object.keys(errors).filter((code) => !mixed && code !== '40P01')).toEqual([])
})
