import { Column, DeleteDateColumn, Entity, PrimaryColumn } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { UniqueText } from '../../../src'
import { doctor } from '../../../src/doctor'
import { NumberWithin } from '../../../src/numbers'
import { generate, migrate } from '../../support/generated'
import { ABOUT, type About, inShort, usePlanted } from './planted'
import { gatePart } from '../../support/gate-part'

const planted = usePlanted()

const OF_DATABASE = (settings: string): string =>
  `do $$ declare s text; begin foreach s in array array[${settings}] loop
   execute format('alter database %I set %s', current_database(), s); end loop; end $$`
/** For each of our tables, as `%1$s`. */
const EVERY = (what: string): string =>
  `do $$ declare t text; begin for t in select distinct tgrelid::regclass::text from pg_trigger
   where not tgisinternal and tgparentid = 0 loop execute format($f$ ${what} $f$, t); end loop; end $$`

interface Odd {
  readonly title: string
  /** Each is a transaction of its own. */
  readonly sql: readonly string[]
  readonly about?: readonly About[]
  readonly options?: object
  readonly generates?: false
  /** A migration is due first. */
  readonly migrates?: true
  /** Warnings that are true, beside those of a database as it was made. */
  readonly warnings?: readonly string[]
}

const ODD: readonly Odd[] = [
  {
    title: 'all is owned by another role',
    sql: [
      `do $$ begin create role "Odd owner"; exception when duplicate_object then end $$`,
      `grant all on schema public to "Odd owner"`,
      `do $$ declare o text; begin
         for o in select oid::regclass::text from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') loop
           execute format('alter table %s owner to "Odd owner"', o); end loop;
         for o in select oid::regprocedure::text from pg_proc where pronamespace = 'public'::regnamespace and prolang <> 13 loop
           execute format('alter function %s owner to "Odd owner"', o); end loop; end $$`,
    ],
  },
  {
    title: 'settings of the database that change what the server writes',
    sql: [
      OF_DATABASE(`'datestyle = "SQL, DMY"', 'standard_conforming_strings = off', 
        'bytea_output = escape', 'intervalstyle = sql_standard', 'timezone = "Asia/Kathmandu"', 'extra_float_digits = 0',
        'escape_string_warning = off', 'transform_null_equals = on', 'default_transaction_isolation = serializable',
        'plpgsql.extra_errors = "all"', 'row_security = off', 'xmloption = document'`),
    ],
  },
  {
    title: 'quote_all_identifiers, under which migration:generate refuses to work',
    sql: [OF_DATABASE(`'quote_all_identifiers = on'`)],
    generates: false,
  },
  {
    title: 'transactions that are read-only unless they say otherwise',
    sql: [OF_DATABASE(`'default_transaction_read_only = on'`)],
  },
  {
    title: 'another order of search_path',
    sql: [
      `create schema "A first"; create table "A first".lookalike (id integer)`,
      OF_DATABASE(`'search_path = public, pg_catalog, "A first", pg_temp'`),
    ],
  },
  {
    title: 'privileges for others, on tables and by default',
    sql: [
      `alter default privileges grant execute on functions to pg_monitor`,
      `alter default privileges grant all on tables to pg_monitor`,
      EVERY('grant select, insert, update, delete on %1$s to public; grant trigger, references on %1$s to pg_monitor'),
    ],
  },
  {
    title: "triggers, indexes, checks and statistics of the user's",
    sql: [
      `create function mine() returns trigger language plpgsql as 'begin return new; end'`,
      EVERY(`create trigger "A mine" before insert on %1$s for each row execute function mine();
        create trigger "Z mine" after insert or delete on %1$s for each row execute function mine();
        alter table %1$s add constraint mine check (true)`),
      `create index mine_1 on page (lower(url)); create unique index mine_2 on page (id, url) where id > 3`,
      `create index mine_3 on page using hash (url); create statistics mine_4 on id, url from page`,
    ],
    about: ['texts', 'names', 'numbers', 'tokens', 'parts'],
  },
  {
    title: "columns of the user's, and gaps where columns were",
    sql: [
      EVERY('alter table %1$s add gone integer default 7'),
      EVERY('alter table %1$s drop gone'),
      EVERY('alter table %1$s add mine integer default 7'),
    ],
  },
  {
    title: 'a column that was dropped and made again, behind the others',
    sql: [
      `alter table page drop title; alter table page add title text`,
      `alter table soft alter "textHashNumber" set storage plain, alter text set storage external, alter text set statistics 500`,
    ],
  },
  {
    title: 'publications of all, and full identities of rows',
    sql: [`create publication "Odd publication" for all tables`, EVERY('alter table %1$s replica identity full')],
    warnings: ['replication.publication'],
  },
  {
    title: 'partitions that were detached and attached again',
    sql: [
      `do $$ declare p text; b text; begin select inhrelid::regclass::text, pg_get_expr(relpartbound, c.oid) into p, b
         from pg_inherits join pg_class as c on c.oid = inhrelid where inhparent = 'shard'::regclass order by 1 limit 1;
       execute format('alter table shard detach partition %s', p);
       execute format('alter table shard attach partition %s %s', p, b); end $$`,
    ],
    about: ['parts'],
  },
  {
    title: 'views and foreign keys on the tables',
    sql: [
      `create view mine as select * from page; create view mine_2 as select * from shard; create view mine_3 as select * from names`,
      `create table mine_4 (page integer references page, usr integer references "user")`,
      `create materialized view mine_5 as select url from page`,
    ],
  },
  {
    title: 'unlogged tables',
    sql: [
      `alter table visit set unlogged; alter table page set unlogged; alter table comment set unlogged`,
      `alter table once_tokens set unlogged; alter table names set unlogged`,
      `alter table "user" set unlogged; alter table organization set unlogged`,
      `alter table numbers_comment__number_scopes set unlogged`,
    ],
  },
  {
    title: 'indexes that were built again, and are stored in another way',
    sql: [
      'reindex table concurrently page',
      'reindex table concurrently once_tokens',
      `do $$ declare i text; begin for i in select indexrelid::regclass::text from pg_index join pg_class as c on c.oid = indexrelid
         where relkind = 'i' and relnamespace = 'public'::regnamespace loop execute format('alter index %s set (fillfactor = 70)', i); end loop; end $$`,
    ],
    about: ['texts', 'numbers', 'tokens', 'parts'],
  },
  {
    title: 'a schema that was renamed, whose functions a migration has made to follow',
    sql: [
      'alter schema public rename to "Odd schema"',
      'create schema public',
      'alter extension "uuid-ossp" set schema public',
    ],
    options: { schema: 'Odd schema' },
    migrates: true,
  },
  {
    title: 'tables with other options of storage',
    sql: [
      `alter table page set (fillfactor = 70, autovacuum_enabled = off); alter table comment set (fillfactor = 70)`,
    ],
  },
  {
    title: 'policies that show all rows, and a trigger of events',
    sql: [
      `create table noted (tag text)`,
      `create function note() returns event_trigger language plpgsql as 'begin insert into public.noted values (tg_tag); end'`,
      `create event trigger "Odd note" on ddl_command_end execute function note()`,
      EVERY('create policy odd on %1$s using (true); alter table %1$s enable row level security'),
    ],
  },
]

/** Warnings about rows and tables that every one of these databases gives. */
const USUAL = new Set(['table.partitioned', 'reference.undeclared', 'trigger.user', 'table.inherits'])

describe('a healthy database in which the doctor and migration:generate find nothing to do', () => {
  test.each(gatePart(3, ODD))(
    '$title',
    async ({ sql, about = Object.keys(ABOUT) as About[], options = {}, generates, migrates, warnings = [] }) => {
      const copy = await planted.fresh()
      for (const one of sql) await copy.client.query(one)
      for (const which of about) {
        const dataSource = await copy.dataSource(ABOUT[which], options)
        if (migrates === true) await migrate(dataSource)
        const { findings } = await doctor(dataSource)
        const alarms = findings.filter(
          ({ severity, code }) => severity !== 'information' && !USUAL.has(code) && !warnings.includes(code),
        )
        expect([which, ...inShort(alarms), ...alarms.map(({ detail }) => detail)]).toEqual([which])
        if (generates === false) continue
        // TypeORM drops what the user has added, under the locks of the tables.
        const { up } = await generate(dataSource)
        const ofUser = up.some((one) => /mine/.test(one)) ? /mine|LOCK TABLE/ : /mine/
        expect(up.filter((one) => !ofUser.test(one)).map((one) => one.slice(0, 300))).toEqual([])
      }
    },
  )
})

/** TypeORM takes no name with a quote. */
@Entity('Odd table; --', { schema: 'Odd $guard$ schema' })
class OddPage {
  @PrimaryColumn({ type: 'integer', name: 'old id' }) id!: number
  @Column({ type: 'text', name: 'new WHEN (true) EXECUTE FUNCTION' }) section!: string
  @UniqueText({ scope: ['section'], ignoreDeleted: true, name: 'a\\b url USING %s' }) url!: string
  @NumberWithin({ scope: ['section'], count: true, name: 'WHERE' }) number!: number
  @DeleteDateColumn({ name: 'deleted at WITH (x)' }) deletedAt!: Date | null
}

test('names that look like SQL', async () => {
  const copy = await planted.fresh()
  await copy.client.query(`create schema "Odd $guard$ schema"`)
  const dataSource = await copy.dataSource([OddPage])
  await dataSource.synchronize()
  await dataSource.manager.insert(OddPage, { id: 1, section: 'a', url: 'b' })
  expect((await doctor(dataSource)).findings).toEqual([])
  expect((await generate(dataSource)).up).toEqual([])
})
