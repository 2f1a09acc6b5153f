import type { DataSource } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findDeclaration, findTarget } from '../../../src/adopt/target'
import { beside } from '../../../src/adopt/swap'
import type { AdoptedTable } from '../../../src/adopt/table'
import { guardOf } from '../../../src/triggers/guard'
import type { TextTable } from '../../../src/sql/text-table'
import { useDatabase } from '../../support/database'
import { generate } from '../../support/generated'
import { violations } from '../../support/guarded-table'
import { adoptWith } from '../../support/seams'
import { crashAt, endSession } from './disturb'
import { faults, tableOf } from './stage'
import { fillPages, pageAs, SWAPS } from './swap-stage'

const db = useDatabase({ wrapped: true })
const OPTIONS = { lockMilliseconds: 2_000, holdMilliseconds: 5_000 }
const ROWS = 60
const client = db.useClient()

/** Which of two guards stands. */
async function standing(before: TextTable, after: TextTable): Promise<'before' | 'after' | 'none'> {
  const { rows } = await client.query<{ body: string }>(
    `select prosrc as body from pg_trigger join pg_proc as p on p.oid = tgfoid
      where tgrelid = 'page'::regclass and tgname = $1`,
    [guardOf(before).triggers[0]?.name],
  )
  const is = (table: TextTable): boolean => rows[0]?.body === guardOf(table).functions[0]?.body
  return is(before) ? 'before' : is(after) ? 'after' : 'none'
}

/** Of the second one only what comes once the guards change: until then it is as the first. */
const CASES = SWAPS.filter(({ name }) => /^a scope that goes|must not be NULL/.test(name))

describe.each(CASES)('$name', (swap) => {
  const [Before, After] = [pageAs(swap.before), pageAs(swap.after)]
  let after: DataSource
  let made: readonly string[]
  let besides: AdoptedTable
  let tables: Record<'before' | 'after', TextTable>

  beforeAll(async () => {
    await client.query('drop schema public cascade; create schema public')
    const before = await db.dataSource([Before], { synchronize: false })
    made = (await generate(before)).up
    for (const statement of made) await client.query(statement)
    after = await db.dataSource([After], { synchronize: false, extra: { application_name: 'adopts' } })
    const { on } = await findTarget(
      findDeclaration(after, After),
      async (sql, values) => await after.query(sql, values),
    )
    besides = beside(on)
    tables = { before: tableOf(before, Before), after: tableOf(after, After) }
  })

  async function fill(): Promise<void> {
    await client.query('drop schema public cascade; create schema public')
    for (const statement of made) await client.query(statement)
    await fillPages(client, swap, ROWS)
  }

  /** A text that meets no other one by its hash: a chain that holds one text twice takes no third row. */
  async function alone(start: string): Promise<string> {
    const { js } = tables.after.digest
    const { rows } = await client.query<{ url: string | null }>('select url from page')
    const taken = new Set(rows.map(({ url }) => js(url ?? '')))
    let text = start
    while (taken.has(js(text))) text += '.'
    return text
  }

  const found = async (which: 'before' | 'after'): Promise<string[]> =>
    (await violations(client, tables[which])).filter((one) => which === 'before' || !one.startsWith('text twice'))

  /** By raw SQL, as code does it that knows no hash. */
  async function write(url: string): Promise<string> {
    const written = client.query(`insert into page (site, url, query) values (1, $1, '1')`, [url])
    return await written.then(
      () => 'stored',
      (error: { code: string }) => error.code,
    )
  }

  test('a command that ends at whatever statement leaves one guard whole, and is gone on with', async () => {
    await fill()
    const whole = crashAt(client, 0)
    await adoptWith(after, After, OPTIONS, whole)
    const count = whole.statements.length
    expect(count).toBeGreaterThan(30)
    const swapped = whole.statements.findIndex((sql) => sql.includes('RENAME COLUMN'))
    for (let crash = swap.narrows ? 3 : swapped; crash <= count; crash += 1) {
      const at = `crash at ${crash}: ${whole.statements[crash - 1]?.slice(0, 200)}`
      await fill()
      await adoptWith(after, After, OPTIONS, crashAt(client, crash)).catch(() => {})
      await endSession(client)
      const which = await standing(tables.before, tables.after)
      const text = await alone(`while ${crash}`)
      const left = {
        faults: which === 'none' ? ['no guard'] : await found(which),
        beside: which === 'before' ? await faults(client, besides.table) : [],
        writes: [await write(text), await write(text)],
      }
      expect({ at, ...left }).toEqual({ at, faults: [], beside: [], writes: ['stored', '23505'] })
      const report = await adoptWith(after, After, OPTIONS, crashAt(client, 0))
      const { rowCount: rows } = await client.query('select from page')
      const end = { step: report.step, stands: await standing(tables.before, tables.after), rows }
      const faultsAfter = await found('after')
      expect({ at, ...end, faultsAfter }).toEqual({
        at,
        step: 'done',
        stands: 'after',
        rows: ROWS + 1,
        faultsAfter: [],
      })
    }
    expect((await generate(after)).up).toEqual([])
  }, 600_000)
})
