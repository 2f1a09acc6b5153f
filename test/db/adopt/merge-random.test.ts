import type { DataSource } from 'typeorm'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { abandon, adopt, mergeDuplicates, type MergeOptions } from '../../../src/adopt'
import { type Random, seededRandom } from '../../stress/random'
import { useDatabase } from '../../support/database'
import { KEEPER, referringTables, TABLES } from './referring'
import { linesOf, newList, restore } from './restore'
import { AT_LEISURE, pageOf } from './stage'

/** A seed and a number of cases from there: MERGE_SEED=7 MERGE_CASES=1000. */
const SEED = Number(process.env['MERGE_SEED'] ?? 1)
const CASES = Number(process.env['MERGE_CASES'] ?? 24)

const db = useDatabase({ wrapped: true })
const Page = pageOf({})
const client = db.useClient()
let superuser: DataSource
let keeper: DataSource

beforeAll(async () => {
  await client.query(`do $$ begin create role ${KEEPER}; exception when duplicate_object then null; end $$`)
  superuser = await db.dataSource([Page], { synchronize: false })
  keeper = await db.dataSource([Page], { synchronize: false, extra: { options: `-c role=${KEEPER}` } })
})
afterAll(async () => {
  await client.query(`drop owned by ${KEEPER} cascade; drop role ${KEEPER}`)
})

const all = async (sql: string): Promise<readonly string[]> => {
  const { rows } = await client.query<{ row: string }>(`select q.*::text as row from (${sql}) as q order by 1`)
  return rows.map(({ row }) => row)
}

/** The rows of every table, as texts. */
async function stateOf(): Promise<Readonly<Record<string, readonly string[]>>> {
  const states: Record<string, readonly string[]> = {}
  for (const [table, columns] of Object.entries(TABLES)) states[table] = await all(`select ${columns} from ${table}`)
  return states
}

/** What every reference means, whichever of equal pages it names. */
const meaningsOf = async (): Promise<readonly (readonly string[])[]> => {
  const url = (column: string): string => `(select url from page as p where p.id = t.${column})`
  const meanings = [
    ...['visit', 'journal', 'item', 'cover'].map((name) => `select id, ${url('page')} from ${name} as t`),
    `select id, target_type, case target_type when 'page' then ${url('target_id')} else target_id::text end from file as t`,
    `select member, ${url('page')} from mark as t`,
    `select ${url('a')}, ${url('b')} from link as t`,
    `select ${url('page')} from seat as t`,
    `select word from note`,
    `select word from echo`,
    `select id, (select url from page as p where p.code = t.code) from named as t`,
  ]
  const rows: (readonly string[])[] = []
  for (const one of meanings) rows.push(await all(one))
  return rows
}

const optionsOf = (random: Random): MergeOptions => ({
  keep: random.pick(['oldest', 'newest']),
  list: newList(),
  also: [`file.target_id where target_type = 'page'`],
  lockMilliseconds: 2_000,
  batchMilliseconds: random.pick([1, 50]),
})

const seeds = Array.from({ length: CASES }, (_, index) => SEED + index)

test.each(seeds)('a merge changes what it lists, loses nothing, and the script restores it: seed %i', async (seed) => {
  const random = seededRandom(seed)
  await client.query(`drop schema public cascade; create schema public; grant all on schema public to ${KEEPER}`)
  await client.query(referringTables(random))
  await client.query(`insert into file (target_id, target_type) values (1, 'page')`)
  const dataSource = random.chance(0.4) ? keeper : superuser
  const [before, meanings] = [await stateOf(), await meaningsOf()]
  const options = optionsOf(random)
  await adopt(dataSource, Page, { ...AT_LEISURE, userTriggers: 'fire' })
  const { merged, kept: left, redirected: turned } = await mergeDuplicates(dataSource, Page, options)
  const made = await stateOf()
  expect(await meaningsOf()).toEqual(meanings)
  const count = (state: typeof before): Record<string, number> =>
    Object.fromEntries(Object.entries(state).map(([table, rows]) => [table, rows.length]))
  expect(count(made)).toEqual({ ...count(before), page: (count(before)['page'] ?? 0) - merged })
  const twice = await client.query(`select from page group by url having count(*) > 1`)
  expect(left.length === 0).toBe(twice.rowCount === 0)
  const changes = linesOf(options.list).filter((line) => 'table' in line)
  const committed = new Set(
    linesOf(options.list)
      .filter((line) => 'committed' in line)
      .map((line) => line['transaction']),
  )
  const real = changes.filter((line) => committed.has(line['transaction']))
  expect(real.filter((line) => 'row' in line)).toHaveLength(merged)
  expect(real.filter((line) => 'key' in line)).toHaveLength(turned.reduce((sum, { rows }) => sum + rows, 0))

  await abandon(dataSource, Page, AT_LEISURE)
  const restored = restore(db.url, options.list)
  expect(new Set(restored)).toEqual(new Set(restored.map((line) => (line.startsWith('I') ? 'INSERT 0 1' : 'UPDATE 1'))))
  expect(await stateOf()).toEqual(before)
  const counts = await client.query(
    `select from page as p where exists (select from pg_trigger where tgname = 'counted' and tgrelid = 'visit'::regclass)
       and visits <> (select count(*) from visit as v where v.page = p.id)`,
  )
  expect(counts.rowCount).toBe(0)
})
