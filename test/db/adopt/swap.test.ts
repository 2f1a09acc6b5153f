import type { DataSource } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { adopt } from '../../../src/adopt'
import { useDatabase } from '../../support/database'
import { generate } from '../../support/generated'
import { violations } from '../../support/guarded-table'
import { type Entityish, tableOf } from './stage'
import { fillPages, pageAs, SWAPS, type SwapCase } from './swap-stage'

const db = useDatabase({ wrapped: true })
const OPTIONS = { lockMilliseconds: 1_000, holdMilliseconds: 10_000 }
const client = db.useClient({ emptied: true })

interface Stage {
  readonly before: DataSource
  readonly after: DataSource
  readonly Before: Entityish
  readonly After: Entityish
}

async function open(swap: SwapCase, rows: number): Promise<Stage> {
  const [Before, After] = [pageAs(swap.before), pageAs(swap.after)]
  const before = await db.dataSource([Before])
  await fillPages(client, swap, rows)
  const after = await db.dataSource([After], { synchronize: false })
  return { before, after, Before, After }
}

const named = async (sql: string): Promise<string[]> =>
  (await client.query<{ name: string }>(sql)).rows.map(({ name }) => name)

/** All that an adoption makes for itself. */
const leftovers = async (): Promise<string[]> =>
  await named(
    `select relname as name from pg_class where relnamespace = 'public'::regnamespace and relname ~ '_(queue|work|numbers|index)$'
     union all select attname from pg_attribute where attrelid = 'page'::regclass and attname ~ '_(hash|number|chained)$'
     union all select proname from pg_proc where pronamespace = 'public'::regnamespace and proname ~ '_(place|note)$'
     union all select conname from pg_constraint where conrelid = 'page'::regclass and conname ~ '_(check|filled_.)$'
     union all select tgname from pg_trigger where tgrelid = 'page'::regclass and tgname ~ '_note_(insert|update|delete)$'`,
  )

const known = (found: readonly string[]): string[] => found.filter((one) => !one.startsWith('text twice'))

describe.each(SWAPS)('$name', (swap) => {
  test('takes the place of the old guard', async () => {
    const { after, After } = await open(swap, 400)
    const report = await adopt(after, After, OPTIONS)
    expect(report).toMatchObject({ step: 'done', counts: { filled: 400, normalized: 0 } })
    const found = await violations(client, tableOf(after, After))
    expect(known(found)).toEqual([])
    expect(found.length > 0).toBe(swap.narrows)
    expect(report.duplicates?.groups).toBe(found.length)
    expect((await generate(after)).up).toEqual([])
    expect(await leftovers()).toEqual([])
    expect(await adopt(after, After)).toMatchObject({ step: 'done', unchanged: true, locks: [] })
  })

  test('is what a migration would have made', async () => {
    const { after, After } = await open({ ...swap, narrows: false }, 0)
    const wanted = await shapeOf(async () => {
      await after.synchronize()
    })
    const got = await shapeOf(async () => {
      await adopt(after, After, OPTIONS)
    })
    expect(got).toEqual(wanted)

    async function shapeOf(change: () => Promise<void>): Promise<string[]> {
      await client.query('drop schema public cascade; create schema public')
      await db.dataSource([pageAs(swap.before)])
      await fillPages(client, { ...swap, narrows: false, before: {} }, 50)
      await change()
      return await named(
        `select attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull || ' ' || coalesce(pg_get_expr(adbin, adrelid), '')
                || coalesce(col_description(attrelid, attnum), '') as name
           from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
          where attrelid = 'page'::regclass and attnum > 0 and not attisdropped
         union all select conname || ' ' || pg_get_constraintdef(oid) from pg_constraint where conrelid = 'page'::regclass and contype <> 'n'
         union all select pg_get_indexdef(indexrelid) from pg_index where indrelid = 'page'::regclass
         union all select pg_get_triggerdef(oid) from pg_trigger where tgrelid = 'page'::regclass
         union all select proname || prosrc || proconfig::text from pg_proc where pronamespace = 'public'::regnamespace
         union all select (to_jsonb(page) - array['urlHashNumber', 'urlHashChained', 'wholeHashNumber', 'wholeHashChained'])::text from page
         order by 1`,
      )
    }
  })
})
