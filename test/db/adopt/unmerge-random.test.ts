import { appendFileSync } from 'node:fs'
import type { DataSource } from 'typeorm'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { abandon, adopt, type MergedKey, mergeDuplicates, type MergeOptions, unmerge } from '../../../src/adopt'
import { type Random, seededRandom } from '../../stress/random'
import { useDatabase } from '../../support/database'
import { CHANGED, KEEPER, referringTables, TABLES } from './referring'
import { pageOf } from './stage'

/** A seed and a number of cases from there: UNMERGE_SEED=7 UNMERGE_CASES=1000. The kinds of the cases go to UNMERGE_KINDS. */
const SEED = Number(process.env['UNMERGE_SEED'] ?? 1)
const CASES = Number(process.env['UNMERGE_CASES'] ?? 24)
const KINDS = process.env['UNMERGE_KINDS']

const db = useDatabase({ wrapped: true })
const Page = pageOf({})
const AT_LEISURE = { lockMilliseconds: 2_000, holdMilliseconds: 10_000, userTriggers: 'fire' } as const
const PATIENT = { lockMilliseconds: 2_000, holdMilliseconds: 10_000 } as const
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

/** What every reference means, whichever of equal pages it names; and the rows that no merge may lose. */
const meaningsOf = async (): Promise<readonly (readonly string[])[]> => {
  const url = (column: string): string => `(select url from page as p where p.id = t.${column})`
  const meanings = [
    ...['visit', 'journal', 'item', 'cover'].map((name) => `select id, ${url('page')} from ${name} as t`),
    `select id, target_type, case target_type when 'page' then ${url('target_id')} else target_id::text end from file as t`,
    `select distinct member, ${url('page')} from mark as t`,
    `select distinct ${url('a')}, ${url('b')} from link as t`,
    `select distinct ${url('page')} from seat as t`,
    `select word from note`,
    `select word from echo`,
    `select id, (select url from page as p where p.code = t.code) from named as t`,
  ]
  const rows: (readonly string[])[] = []
  for (const one of meanings) rows.push(await all(one))
  return rows
}

/** What clients may change, by table and key. */
type References = ReadonlyMap<string, string | null>

async function referencesOf(): Promise<References> {
  const found = CHANGED.map(({ table, column }) => `select '${table}' as t, id, ${column}::text as value from ${table}`)
  const { rows } = await client.query<{ t: string; id: number; value: string | null }>(
    [...found, `select 'page', id, title from page`].join(' union all '),
  )
  return new Map(rows.map(({ t, id, value }) => [`${t} ${id}`, value]))
}

/** Clients change, delete and add references, and correct titles. */
async function changeSome(random: Random): Promise<void> {
  const { rows: pages } = await client.query<{ id: number }>('select id from page order by id')
  const page = (): number => random.pick(pages).id
  for (const { table, column } of CHANGED) {
    const { rows } = await client.query<{ id: number }>(`select id from ${table} order by id`)
    for (const { id } of rows) {
      if (random.chance(0.85)) continue
      if (random.chance(0.3)) await client.query(`delete from ${table} where id = $1`, [id])
      else if (random.chance(0.2)) await client.query(`update ${table} set ${column} = null where id = $1`, [id])
      else await client.query(`update ${table} set ${column} = $2 where id = $1`, [id, page()])
    }
  }
  await client.query('insert into visit values (100, $1)', [page()])
  await client.query('insert into journal (page) values ($1)', [page()])
  if (random.chance(0.5)) await client.query(`update page set title = 'corrected' where id = $1`, [page()])
}

/** Somebody takes the code of a row that was merged, which cannot come back then. */
async function takeCode(random: Random, merged: readonly MergedKey[], before: readonly string[]): Promise<string[]> {
  const codes = merged.flatMap(({ row }) => {
    const code = new RegExp(`^\\(${row['id']},.*?,("code \\d+"),`).exec(
      before.find((one) => one.startsWith(`(${row['id']},`)) ?? '',
    )
    return code?.[1] ? [[String(row['id']), code[1].slice(1, -1)] as const] : []
  })
  if (codes.length === 0) return []
  const [id, code] = random.pick(codes)
  const { rowCount } = await client.query(
    `insert into page (url, code) select 'new', $1 where not exists (select from page where code = $1)`,
    [code],
  )
  return rowCount === 0 ? [] : [id]
}

const keepOf = (random: Random): MergeOptions['keep'] => {
  if (random.chance(0.6)) return random.pick(['oldest', 'newest'])
  return (rows) => ({
    keep: random.pick(rows),
    set: random.chance(0.7) ? { title: rows.map((row) => row['title'] as string).join(' and ') } : {},
  })
}

/** References before the merge, after it, after the changes of clients, and after unmerge. */
type Seen = Readonly<Record<'references' | 'turned' | 'changed' | 'found', References>>

/** The row with the reference, or the row that it refers to, cannot come back: `stuck` are the ids of such rows. */
function isStuck(key: string, { references, turned }: Seen, stuck: readonly string[]): boolean {
  const [old, kept] = [references.get(key), turned.get(key)]
  return stuck.length > 0 && old !== kept && (key.startsWith('page') || stuck.includes(String(old)))
}

/** Clients have changed or deleted what the merge made of a reference. */
const isChanged = (key: string, { turned, changed }: Seen): boolean =>
  turned.get(key) !== undefined && changed.get(key) !== turned.get(key)

/** What nobody has changed is as it was before the merge, and all else as somebody made it. */
function afterUnmerge(seen: Seen, stuck: readonly string[]): References {
  const { references, turned, changed, found } = seen
  const expected = new Map([...references, ...[...changed].filter(([key]) => !references.has(key))])
  for (const key of references.keys()) {
    if (!isChanged(key, seen) && isStuck(key, seen, stuck)) expected.set(key, turned.get(key) ?? null)
    else if (isChanged(key, seen) && changed.has(key)) expected.set(key, changed.get(key) ?? null)
    else if (isChanged(key, seen)) expected.delete(key)
  }
  for (const id of stuck) expected.delete(`page ${id}`)
  return new Map([...expected, ...[...found].filter(([key]) => key.startsWith('page') && !references.has(key))])
}

/** What a client has changed, and would otherwise be put back, is reported. */
const reportedOf = (seen: Seen, stuck: readonly string[]): string[] =>
  [...seen.references]
    .filter(([key, was]) => isChanged(key, seen) && seen.turned.get(key) !== was && !isStuck(key, seen, stuck))
    .map(([key]) => key)

const shown = (map: References, seen: Seen, stuck: readonly string[]): string[] =>
  [...map]
    .filter(([key]) => !isStuck(key, seen, stuck) || !key.startsWith('page'))
    .map(([key, value]) => `${key}: ${value}`)
    .toSorted()

const seeds = Array.from({ length: CASES }, (_, index) => SEED + index)

/** @param gone gets the rows that go */
const optionsOf = (random: Random, gone: MergedKey[]): MergeOptions => ({
  keep: keepOf(random),
  also: [`file.target_id where target_type = 'page'`],
  conflict: random.chance(0.5) ? { mark: 'merge', seat: 'merge', 'public.link': 'merge' } : {},
  lockMilliseconds: 2_000,
  batchMilliseconds: random.pick([1, 50]),
  onMerged: (rows) => void gone.push(...rows),
})

/** Writes what kind of case it was to a file, if one is named. */
function note(seed: number, merged: number, left: number, leftBack: number): void {
  const kind = left + leftBack === 0 ? 'exact' : 'left and reported'
  if (KINDS) appendFileSync(KINDS, `${seed} ${kind}; merged ${merged}, left ${left}, unmerge left ${leftBack}\n`)
}

const PAGE = '"public"."page"'
const LINK = '"public"."link"'
const CHANGED_SINCE = 'it has changed since the merge'

const rowsIn = (state: Readonly<Record<string, readonly string[]>>, table: string): readonly string[] =>
  state[table] ?? []

test.each(seeds)('a merge and its way back leave every row as it was, or report it: seed %i', async (seed) => {
  const random = seededRandom(seed)
  await client.query(`drop schema public cascade; create schema public; grant all on schema public to ${KEEPER}`)
  await client.query(referringTables(random))
  const dataSource = random.chance(0.4) ? keeper : superuser
  const [before, references, meanings] = [await stateOf(), await referencesOf(), await meaningsOf()]
  const gone: MergedKey[] = []
  const options = optionsOf(random, gone)
  await adopt(dataSource, Page, AT_LEISURE)
  const merged = await mergeDuplicates(dataSource, Page, options)
  const [made, turned] = [await stateOf(), await referencesOf()]
  expect(gone).toHaveLength(merged.merged)
  expect(rowsIn(made, 'page')).toHaveLength(rowsIn(before, 'page').length - merged.merged)
  expect(await meaningsOf()).toEqual(meanings)
  for (const table of ['mark', 'seat', 'link', 'visit', 'note', 'item']) {
    const lost = merged.changes.filter((one) => one.columns === undefined && one.table.endsWith(`."${table}"`))
    const rows = lost.reduce((sum, one) => sum + one.rows, 0)
    expect([table, rowsIn(made, table).length]).toEqual([table, rowsIn(before, table).length - rows])
  }
  const twice = await client.query(`select from page group by url having count(*) > 1`)
  expect(merged.left.length === 0 ? twice.rowCount : 0).toBe(0)

  if (random.chance(0.6)) await changeSome(random)
  const changed = await referencesOf()
  await abandon(dataSource, Page, PATIENT)
  const taken = random.chance(0.15) ? await takeCode(random, gone, rowsIn(before, 'page')) : []
  const { restored, left } = await unmerge(dataSource, Page, { batchMilliseconds: random.pick([1, 50]) })
  // A row that cannot come back keeps back those that a row with two references in its key refers to as well.
  const stuck = left
    .filter(({ table, reason }) => table === PAGE && reason !== CHANGED_SINCE)
    .map(({ row }) => String(row['id']))
  expect(stuck).toEqual(expect.arrayContaining(taken))
  expect(taken.length === 0 ? stuck : []).toEqual([])
  expect(restored).toBe(merged.merged - stuck.length)

  const seen = { references, turned, changed, found: await referencesOf() }
  expect(shown(seen.found, seen, stuck)).toEqual(shown(afterUnmerge(seen, stuck), seen, stuck))
  // Beside a row that cannot come back, links and titles of the row that stayed are reported too.
  const reports = left.filter(
    ({ table, reason }) => stuck.length === 0 || reason !== CHANGED_SINCE || ![PAGE, LINK].includes(table),
  )
  const reported = new Set(reports.map(({ table, row }) => `${table.split('"')[3]} ${String(row['id'])}`))
  expect([...reported].toSorted()).toEqual(
    [...new Set([...reportedOf(seen, stuck), ...stuck.map((id) => `page ${id}`)])].toSorted(),
  )
  const after = await stateOf()
  const others = Object.keys(TABLES).filter((name) => name !== 'page' && CHANGED.every(({ table }) => table !== name))
  for (const name of stuck.length === 0 ? others : []) expect([name, after[name]]).toEqual([name, before[name]])
  const isUntouched = left.length === 0 && String([...changed]) === String([...turned])
  expect(isUntouched ? after : before).toEqual(before)
  const counts = await client.query(
    `select from page as p where exists (select from pg_trigger where tgname = 'counted' and tgrelid = 'visit'::regclass)
       and visits <> (select count(*) from visit as v where v.page = p.id)`,
  )
  expect(counts.rowCount).toBe(0)
  note(seed, merged.merged, merged.left.length, left.length)
})
