import type { DataSource } from 'typeorm'
import { beforeAll, beforeEach, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { generate } from '../../support/generated'
import { violations } from '../../support/guarded-table'
import { adoptWith } from '../../support/seams'
import { crashAt } from './disturb'
import { faults, fillTable, pageOf, tableOf } from './stage'
import { gatePart } from '../../support/gate-part'

const db = useDatabase({ wrapped: true })
const Page = pageOf()
const OPTIONS = { lockMilliseconds: 2_000, holdMilliseconds: 5_000 }
const client = db.useClient({ emptied: true })
let dataSource: DataSource

beforeAll(async () => {
  dataSource = await db.dataSource([Page], { synchronize: false, extra: { application_name: 'adopts' } })
  // The pool tells of a connection that was ended.
})
beforeEach(async () => {
  await fillTable(client, 600)
})

async function rowsOf(): Promise<string> {
  const { rows } = await client.query<{ shown: string }>(
    `select string_agg(format('%s %s %s %s %s', id, url, "urlHash", "urlHashNumber", "urlHashChained"), ', ' order by id) as shown from page`,
  )
  return rows[0]?.shown ?? ''
}

test('a command that ends at whatever statement is gone on with by the same command, to the same end', async () => {
  const whole = crashAt(client, 0)
  await adoptWith(dataSource, Page, OPTIONS, whole)
  const wanted = await rowsOf()
  const count = whole.statements.length
  expect(count).toBeGreaterThan(30)
  const crashes = Array.from({ length: count - 2 }, (_, index) => index + 3)
  for (const crash of gatePart(4, crashes)) {
    await client.query('drop schema public cascade; create schema public')
    await fillTable(client, 600)
    await adoptWith(dataSource, Page, OPTIONS, crashAt(client, crash)).catch(() => {})
    expect(await faults(client, tableOf(dataSource, Page)), `crash at ${crash}`).toEqual([])
    await client.query(`insert into page (url) values ('while it was down ${crash}')`)
    const report = await adoptWith(dataSource, Page, OPTIONS, crashAt(client, 0))
    expect(report.step, `crash at ${crash}: ${whole.statements[crash - 1]}`).toBe('done')
    const found = await violations(client, tableOf(dataSource, Page))
    expect(
      found.filter((one) => !one.startsWith('text twice')),
      `crash at ${crash}`,
    ).toEqual([])
    await client.query(`delete from page where url like 'while%'`)
    expect((await rowsOf()).split(', ').length).toBe(wanted.split(', ').length)
  }
  expect((await generate(dataSource)).up).toEqual([])
}, 300_000)
