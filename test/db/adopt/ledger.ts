import { setTimeout as pause } from 'node:timers/promises'
import { Client } from 'pg'
import type { DataSource } from 'typeorm'
import { doctor } from '../../../src/doctor'
import { guardOf } from '../../../src/triggers/guard'
import { serverError } from '../../../src/sql/sqlstate'
import type { TextTable } from '../../../src/sql/text-table'
import { violations } from '../../support/guarded-table'
import { CHANGE_TEXT } from './stage'

/** Numbers that come in the same order in each run. */
export function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 48_271) % 2_147_483_647
    return state / 2_147_483_647
  }
}

/**
 * What clients write into `page` is noted in their own transactions, with the triggers that stood then; what the command
 * writes is not. Ids of transactions would not do: the command has one as soon as it waits for the table, so a writer
 * that has the table by then may get a later one.
 */
export async function openLedger(client: Pick<Client, 'query'>): Promise<void> {
  await client.query(
    `create table original as select id, url from page;
     create function triggers_now() returns text[] language sql as
       $$ select array_agg(tgname || ' ' || xmin) from pg_trigger where tgrelid = 'page'::regclass $$;
     create table wrote (seq bigserial primary key, kind text, id integer, url text, triggers text[] default triggers_now());
     create function note() returns trigger language plpgsql as $$ begin
       insert into wrote (kind, id, url) values (tg_op, coalesce(new.id, old.id), new.url);
       return null;
     end $$;
     create trigger note_insert_delete after insert or delete on page for each row execute function note();
     create trigger note_update after update on page for each row when (old.url is distinct from new.url)
       execute function note()`,
  )
}

/** What contradicts the ledger once the table is adopted, in words. */
export async function ledgerFaults(
  client: Pick<Client, 'query'>,
  dataSource: DataSource,
  table: TextTable,
): Promise<string[]> {
  const names = guardOf(table).triggers.map(({ name }) => name)
  const { rows } = await client.query<{ fault: string }>(
    `with guarded as (select array_agg(tgname || ' ' || xmin) as triggers from pg_trigger where tgrelid = 'page'::regclass and tgname = any ($1)),
     last as (select distinct on (id) id, kind, url, triggers from wrote order by id, seq desc),
     wanted as (
       select coalesce(l.id, o.id) as id, coalesce(l.url, o.url) as url, l.triggers from original as o full join last as l on l.id = o.id
        where l.kind is distinct from 'DELETE'),
     stands as (select p.id, p.url, w.id as wanted, w.url as wrote, w.triggers from page as p full join wanted as w on w.id = p.id)
     select 'no guard stands' as fault from guarded where triggers is null
     union all
     select format('row %s holds "%s" where "%s" was written', coalesce(id, wanted), url, wrote) from stands
      where lower(url) is distinct from lower(wrote)
     union all
     select format('"%s" is not normalized and was written before the guard stood', s.url) from stands as s, guarded as g
      where s.url <> lower(s.url) and not coalesce(s.triggers && g.triggers, false)
     union all
     select format('"%s" was stored by row %s where it stood', s.url, s.id) from stands as s, guarded as g
      where s.triggers && g.triggers and exists (select from page as o where o.url = s.url and o.id <> s.id)
     union all
     select format('row %s has the number %s of a client', id, "urlHashNumber") from page where "urlHashNumber" >= 1073741824`,
    [names],
  )
  const [found, report] = [await violations(client, table), await doctor(dataSource)]
  const known = new Set<string>(['text.twice', 'text.twiceNormalized', 'text.unnormalized'])
  const errors = report.findings.filter(({ severity, code }) => severity === 'error' && !known.has(code))
  return [
    ...rows.map(({ fault }) => fault),
    ...found.filter((one) => !one.startsWith('text twice')),
    ...errors.map(({ code, count, keys }) => `${code}: ${count} ${JSON.stringify(keys)}`),
  ]
}

/** Old code that goes on writing whatever happens to the command, and comes again when the server is gone. */
export class Writers {
  readonly refused = new Set<string>()
  private readonly all: Promise<void>[]
  private ended = false

  constructor(
    private readonly url: string,
    private readonly rows: number,
    seeds: readonly number[],
  ) {
    this.all = seeds.map(async (seed) => await this.write(randomOf(seed)))
  }

  async end(): Promise<void> {
    this.ended = true
    await Promise.all(this.all)
  }

  private async write(random: () => number): Promise<void> {
    let client: Client | undefined
    while (!this.ended) {
      try {
        client ??= await this.connect()
        for (const [sql, values] of this.statements(random)) await client.query(sql, values)
        // Leaves the machine to the command too.
        await pause(4)
      } catch (error) {
        const code = serverError(error)?.code
        if (code !== undefined && !/^(?:57P|08)/.test(code)) {
          this.refused.add(code)
          // The server may stop before it answers: then the connection is made again.
          const isBack = await client?.query('rollback').then(
            () => true,
            () => false,
          )
          if (isBack === true) continue
        }
        await client?.end().catch(() => {})
        client = undefined
        await pause(20)
      }
    }
    await client?.end()
  }

  private async connect(): Promise<Client> {
    const client = new Client({ connectionString: this.url })
    client.on('error', () => {})
    await client.connect()
    return client
  }

  private statements(random: () => number): [string, unknown[]][] {
    const [kind, n] = [random(), Math.floor(random() * this.rows)]
    const some = random()
    const text = some < 0.3 ? `TWICE ${n % 7}` : some < 0.5 ? `TEXT ${n}` : `new ${Math.floor(random() * 1e6)}`
    const one: [string, unknown[]] =
      kind < 0.35
        ? ['insert into page (url) values ($1)', [text]]
        : kind < 0.6
          ? [CHANGE_TEXT, [n, text]]
          : kind < 0.75
            ? [`update page set title = $2 where id = $1`, [n, text]]
            : ['delete from page where id = $1', [n]]
    if (random() < 0.7) return [one]
    return [['begin', []], one, ['select pg_sleep(0.02)', []], [random() < 0.8 ? 'commit' : 'rollback', []]]
  }
}
