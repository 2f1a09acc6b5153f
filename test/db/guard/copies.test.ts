import { beforeEach, describe, expect, test } from 'vitest'
import { orders } from '../../model/combine'
import { useDatabase } from '../../support/database'
import { freshTable, putRows, rowsOf, textTable, violations } from '../../support/guarded-table'
import { guardOf } from '../../../src/triggers/guard'

/** Rows arrive in any order where they are copied: by a dump of data alone, and on their way to another partition. */
const client = useDatabase().useClient()
const CHAIN = 'a1@0! a2@1 a3@2 b1@0'
const columns = 'url, "urlHash", "urlHashNumber", "urlHashChained"'
const texts = ['a1', 'a2', 'a3', 'b1']

describe('rows of a dump, with the triggers on', () => {
  const page = textTable({ deleted: 'deletedAt' })
  beforeEach(async () => {
    await freshTable(client, page)
    await putRows(client, page, `${CHAIN} a4@0!~ a5@1~`)
    await client.query('create table dumped as select * from page; truncate page')
  })
  const all = [...texts, 'a4', 'a5']
  const stored = async (): Promise<string[]> => (await rowsOf(client, page)).split(' ').map((row) => row.slice(0, 2))
  const at = (order: readonly string[]): string => `array_position(array['${order.join("','")}'], url)`

  test('are stored in every order, by one statement', async () => {
    for (const order of orders(['a1', 'a2', 'a3', 'a4'])) {
      const rest = all.filter((text) => !order.includes(text))
      await client.query(`truncate page; insert into page select * from dumped order by ${at([...order, ...rest])}`)
      expect([(await stored()).toSorted(), await violations(client, page)]).toEqual([all.toSorted(), []])
    }
  })
  test('are stored in every order, by a statement for each', async () => {
    for (const order of orders(['a1', 'a2', 'a3'])) {
      await client.query('truncate page')
      for (const text of [...order, 'b1', 'a5', 'a4'])
        await client.query('insert into page select * from dumped where url = $1', [text])
      expect([(await stored()).toSorted(), await violations(client, page)]).toEqual([all.toSorted(), []])
    }
  })
  test('are not lost with --on-conflict-do-nothing', async () => {
    await client.query(`insert into page select * from dumped order by url desc on conflict do nothing`)
    expect([(await stored()).toSorted(), await violations(client, page)]).toEqual([all.toSorted(), []])
  })
  test('are as they were with --disable-triggers', async () => {
    await client.query('alter table page disable trigger all; insert into page select * from dumped order by url desc')
    await client.query('alter table page enable trigger all')
    expect(await rowsOf(client, page)).toBe('a1@0! a2@1 a3@2 a4@0!~ a5@1~ b1@0')
  })
})

describe('rows that move to another partition of their scope', () => {
  const page = textTable({ scope: ['tenant'] })
  const schema = async (): Promise<void> => {
    await freshTable(client, page, { guard: [] })
    await client.query(`alter table page rename to template;
      create table page (like template including defaults including constraints) partition by list (tenant);
      alter table page alter id drop not null;
      create unique index "page url of all" on page (tenant, "urlHash", "urlHashNumber");
      create table one partition of page for values in (1);
      create table two partition of page for values in (2)`)
    for (const statement of guardOf(page).create) await client.query(statement)
  }
  beforeEach(schema)
  const start = async (): Promise<void> => await putRows(client, page, CHAIN)
  const move = async (order: readonly string[]): Promise<void> => {
    await client.query(
      `with gone as (delete from page where tenant = 1 and url = any ($1) returning ${columns})
      insert into page (tenant, ${columns}) select 2, ${columns} from gone order by array_position($1, url)`,
      [order],
    )
  }

  test.each([
    ['by one statement', (order: readonly string[]) => [order]],
    ['by a statement for each', (order: readonly string[]) => order.map((text) => [text])],
  ])('arrive in every order, %s', async (_, parts) => {
    for (const order of orders(texts.slice(0, 3))) {
      await start()
      for (const part of parts([...order, 'b1'])) await move(part)
      const rows = (await rowsOf(client, page)).split(' ').map((row) => row.replace(/@.*/u, ''))
      expect([rows.toSorted(), await violations(client, page)]).toEqual([texts.map((text) => `2/${text}`), []])
    }
  })
})
