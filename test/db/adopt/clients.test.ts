import type { Client } from 'pg'
import type { DataSource } from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { serverError } from '../../../src/sql/sqlstate'
import { useDatabase } from '../../support/database'
import { generate } from '../../support/generated'
import { violations } from '../../support/guarded-table'
import { adoptWith } from '../../support/seams'
import { disturb } from './disturb'
import { randomOf } from './ledger'
import { BUSY, CHANGE_TEXT, type Entityish, faults, fillTable, pageOf, tableOf, LOCK_TIMEOUT } from './stage'
import { gatePart } from '../../support/gate-part'

const db = useDatabase({ wrapped: true })
const ROWS = 1_000
/** Small and short: many batches, and many attempts. */
const OPTIONS = { batchMilliseconds: 10, lockMilliseconds: 50, holdMilliseconds: 10_000 }

let client: Client
let writer: Client
let holder: Client

beforeAll(async () => {
  ;[client, writer, holder] = [await db.client(), await db.client(), await db.client()]
  // A statement that meets the command's own lock gives up: it would wait for a command that waits for this test.
  for (const one of [client, writer, holder]) await one.query(`set lock_timeout = '20ms'`)
})
beforeEach(async () => {
  await holder.query('rollback')
  await client.query(
    `set lock_timeout = 0; drop schema public cascade; create schema public; set lock_timeout = '20ms'`,
  )
  await fillTable(client, ROWS)
})

/** What clients do, each by a statement of its own, and what the table then has to hold. */
class Clients {
  readonly texts = new Map<number, string>()
  readonly refused: string[] = []
  private open = 0
  private held = new Map<number, string | undefined>()

  constructor(private readonly random: () => number) {}

  async read(): Promise<void> {
    const { rows } = await client.query<{ id: number; url: string }>('select id, url from page')
    for (const { id, url } of rows) this.texts.set(id, url)
  }

  private pick(): number {
    const ids = [...this.texts.keys()].filter((id) => !this.held.has(id))
    return ids[Math.floor(this.random() * ids.length)] ?? 0
  }

  /** Of them some stand there already, normalized or not. */
  private text(): string {
    const [kind, n] = [this.random(), Math.floor(this.random() * ROWS)]
    return kind < 0.3 ? `TWICE ${n % 7}` : kind < 0.5 ? `TEXT ${n}` : `new ${this.texts.size} ${n}`
  }

  private async run(by: Client, sql: string, values: unknown[]): Promise<{ id: number }[]> {
    try {
      return (await by.query<{ id: number }>(sql, values)).rows
    } catch (error) {
      const code = serverError(error)?.code ?? String(error)
      this.refused.push(code)
      return []
    }
  }

  async step(): Promise<void> {
    const [kind, id, text] = [this.random(), this.pick(), this.text()]
    if (kind < 0.3) {
      const [row] = await this.run(writer, 'insert into page (url) values ($1) returning id', [text])
      if (row) this.texts.set(row.id, text)
    } else if (kind < 0.5) {
      const [row] = await this.run(writer, `${CHANGE_TEXT} returning id`, [id, text])
      if (row) this.texts.set(id, text)
    } else if (kind < 0.7) {
      await this.run(writer, `update page set title = 'short' where id = $1 returning id`, [id])
    } else {
      const [row] = await this.run(writer, 'delete from page where id = $1 returning id', [id])
      if (row) this.texts.delete(id)
    }
  }

  /** Opens a transaction that changes, deletes or only locks rows, and ends it some steps later. */
  async hold(): Promise<void> {
    if (this.open === 0 && this.random() < 0.7) return
    this.open += 1
    if (this.open % 7 === 6) await this.letGo(this.random() < 0.7)
    if (this.open % 7 !== 1) return
    await holder.query('begin')
    try {
      for (let rows = 0; rows < 5; rows += 1) await this.holdRow()
    } catch (error) {
      this.refused.push(serverError(error)?.code ?? String(error))
      await this.letGo(false)
    }
  }

  private async holdRow(): Promise<void> {
    const [id, text, kind] = [this.pick(), this.text(), this.random()]
    const values = [id, text]
    if (kind < 0.4) {
      const { rowCount } = await holder.query(CHANGE_TEXT, values)
      if (rowCount) this.held.set(id, text)
    } else if (kind < 0.7) {
      const { rowCount } = await holder.query('delete from page where id = $1', [id])
      if (rowCount) this.held.set(id, undefined)
    } else if ((await holder.query('select from page where id = $1 for update', [id])).rowCount) {
      this.held.set(id, this.texts.get(id))
    }
  }

  async letGo(commit = true): Promise<void> {
    const { command } = await holder.query(commit ? 'commit' : 'rollback')
    if (command === 'COMMIT') {
      for (const [id, text] of this.held) {
        if (text === undefined) this.texts.delete(id)
        else this.texts.set(id, text)
      }
    }
    this.held.clear()
    this.open = 0
  }
}

async function adoptAmong(
  dataSource: DataSource,
  Page: Entityish,
  seed: number,
  userTriggers?: 'fire',
): Promise<Clients> {
  const random = randomOf(seed)
  const clients = new Clients(random)
  await clients.read()
  const table = tableOf(dataSource, Page)
  const report = await adoptWith(
    dataSource,
    Page,
    { ...OPTIONS, userTriggers },
    disturb(clients, { random, faults: async () => await faults(client, table) }),
  )
  await clients.letGo()
  expect(report.step).toBe('done')
  return clients
}

describe.each([
  ['the triggers are off for what the command writes', undefined],
  ['the triggers fire for what the command writes', 'fire'],
] as const)('%s', (_, fire) => {
  test.each(gatePart(3, [1, 2, 3]))('clients write between any two statements, by the seed %i', async (seed) => {
    const Page = pageOf(BUSY)
    const dataSource = await db.dataSource([Page], { synchronize: false })
    if (fire === undefined) {
      await client.query(`create function nothing() returns trigger language plpgsql as 'begin return new; end';
        create trigger nothing before update on page for each row execute function nothing()`)
    }
    const clients = await adoptAmong(dataSource, Page, seed, fire)
    const { rows } = await client.query<{ id: number; url: string }>('select id, url from page')
    const stored = new Map(rows.map(({ id, url }) => [id, url.toLowerCase()]))
    expect(stored).toEqual(new Map([...clients.texts].map(([id, text]) => [id, text.toLowerCase()])))
    const found = await violations(client, tableOf(dataSource, Page))
    expect(found.filter((one) => !one.startsWith('text twice'))).toEqual([])
    // But for the lock, which only this test does not wait for, and duplicates once the guard stands.
    expect(clients.refused.filter((code) => ![...LOCK_TIMEOUT, '23505'].includes(code))).toEqual([])
    expect((await generate(dataSource)).up).toEqual([])
    expect((await client.query(`select from page where "urlHashNumber" >= 1073741824`)).rowCount).toBe(0)
  })
})
