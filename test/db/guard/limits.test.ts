import { beforeEach, describe, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { firstLetter, freshTable, rowsOf, textTable, violations } from '../../support/guarded-table'
import { endOrWait, openSession, type Outcome, type Session } from '../../support/sessions'

/** What maintainers/protocol.md says under "Where the claim ends". */
const db = useDatabase()
const client = db.useClient()
const page = textTable()

beforeEach(() => freshTable(client, page))

const HASH = firstLetter.js('a')
const INSERT_A1 = `insert into page (url) values ('a1')`

describe('a plain DO NOTHING drops a text that nobody has, in a true collision', () => {
  test('where it sends hash and number 0', async () => {
    await client.query(`insert into page (url) values ('a1')`)
    const { rowCount } = await client.query(
      `insert into page (url, "urlHash") values ('a2', '${HASH}') on conflict do nothing`,
    )
    expect(rowCount).toBe(0)
    expect(await rowsOf(client, page)).toBe('a1@0')
  })
  test('where it leaves the hash out and another text comes to the empty chain meanwhile', async () => {
    const { outcome } = await meet(INSERT_A1, `insert into page (url) values ('a2') on conflict do nothing`)
    expect(outcome).toMatchObject({ ok: true, count: 0 })
    expect(await rowsOf(client, page)).toBe('a1@0')
  })
  test('and without DO NOTHING it is a 23505 there, which is right when it is tried again', async () => {
    const { other, outcome } = await meet(INSERT_A1, `insert into page (url) values ('a2')`)
    expect(outcome).toMatchObject({ sqlstate: '23505', constraint: 'page url' })
    await other.run(`insert into page (url) values ('a2')`)
    expect(await rowsOf(client, page)).toBe('a1@0! a2@1')
  })
})

describe('a trigger of the user that runs during a touch', () => {
  const audit = async (name: string, table: string): Promise<void> => {
    await client.query(`create schema if not exists audit; create table if not exists audit.log (url text);
      create function ${name}() returns trigger language plpgsql
        as $$ begin insert into ${table} values (NEW.url); return null; end $$;
      create trigger z after update on page for each row execute function ${name}();
      insert into page (url) values ('a1')`)
  }
  test("finds only names of the table's schema, or with a schema before them", async () => {
    await client.query(`set search_path to ${await path()}, audit`)
    await audit('own', 'log')
    await client.query(`update page set title = 'x'`)
    await expect(client.query(`insert into page (url) values ('a2')`)).rejects.toMatchObject({ code: '42P01' })
    await client.query('drop trigger z on page')
    await client.query(
      `create or replace function own() returns trigger language plpgsql set search_path from current
         as $$ begin insert into log values (NEW.url); return null; end $$;
       create trigger z after update on page for each row execute function own()`,
    )
    await client.query(`insert into page (url) values ('a2')`)
    expect(await rowsOf(client, page)).toBe('a1@0! a2@1')
    await client.query('drop schema audit cascade')
  })
  test('runs as the owner of the table', async () => {
    await client.query(`create table who (name text);
      create function own() returns trigger language plpgsql
        as $$ begin insert into who values (current_user); return null; end $$;
      create trigger z after update on page for each row execute function own();
      create role "T only inserts"; grant usage on schema ${await path()} to "T only inserts";
      grant insert on page to "T only inserts"; set role "T only inserts";
      insert into page (url) values ('a1'), ('a2'); reset role`)
    const { rows } = await client.query('select distinct name <> $1 as other from who', ['T only inserts'])
    await client.query('drop owned by "T only inserts"; drop role "T only inserts"')
    expect(rows).toEqual([{ other: true }])
  })
})

/** One chain is one lock: transactions that write several of its texts in different orders meet as rows do. */
test('transactions of several statements on one chain can deadlock, and one of them succeeds', async () => {
  const other = await db.client()
  await other.query(`set search_path to ${await path()}; set deadlock_timeout to '10ms'`)
  await client.query(`insert into page (url) values ('a1'), ('b1')`)
  await client.query(`begin; insert into page (url) values ('a2')`)
  await other.query(`begin; insert into page (url) values ('b2')`)
  const one = client.query(`insert into page (url) values ('b3')`)
  const two = other.query(`insert into page (url) values ('a3')`)
  const outcomes = await Promise.allSettled([one, two])
  expect(outcomes.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected'])
  expect(outcomes.find(({ status }) => status === 'rejected')).toMatchObject({ reason: { code: '40P01' } })
  await Promise.all([client.query('commit'), other.query('commit')])
  expect(await violations(client, page)).toEqual([])
})

/** `before` is in progress while the statement of another session waits for it. */
async function meet(before: string, statement: string): Promise<{ other: Session; outcome: Outcome }> {
  const other = await openSession(await db.client())
  await other.run(`set search_path to ${await path()}`)
  await client.query(`begin; ${before}`)
  const waiting = other.start(statement)
  expect(await endOrWait(await db.client(), { session: other, statement: waiting })).toBe('waits')
  await client.query('commit')
  return { other, outcome: await waiting.outcome }
}

async function path(): Promise<string> {
  const { rows } = await client.query<{ path: string }>('select quote_ident(current_schema()) as path')
  return rows[0]?.path ?? ''
}
