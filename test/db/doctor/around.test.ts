import type { Client } from 'pg'
import { DataSource } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { findOrCreate, insertOrFail } from '../../../src'
import { adopt } from '../../../src/adopt'
import { doctor, type DoctorFinding } from '../../../src/doctor'
import { findingsOfAdoption } from '../../../src/doctor/doctor'
import { type Copy, useTemplate } from '../../support/template'
import { Comment, ENTITIES, fill, Page, Soft, User } from './entities'

const template = useTemplate(async (url) => {
  const made = await new DataSource({ type: 'postgres', url, entities: ENTITIES, synchronize: true }).initialize()
  await fill(made)
  await made.destroy()
})
let copy: Copy
let client: Client
let dataSource: DataSource

/** A database with rows of every kind, and then what these statements make of it. */
async function changed(...statements: readonly string[]): Promise<void> {
  copy = await template.fresh()
  client = copy.client
  dataSource = await copy.dataSource(ENTITIES)
  for (const statement of statements) await client.query(statement)
}

async function told(entity: new () => object): Promise<string[]> {
  const { findings } = await doctor(dataSource, { entities: [entity] })
  return findings.map(inWords)
}

const inWords = ({ code, severity, count, detail }: DoctorFinding): string =>
  `${severity} ${code} ${count}${detail === undefined ? '' : `; ${detail.replaceAll(/"?(?:IDX|CHK)_\w+"?/gu, 'NAME')}`}`

async function indexOf(table: string): Promise<string> {
  const { rows } = await client.query<{ name: string }>(
    `select indexrelid::regclass::text as name from pg_index where indrelid = $1::regclass and not indisprimary`,
    [table],
  )
  return rows[0]?.name ?? ''
}

/** A table of pages without anything of ours, and one whose rows are in partitions. */
const PLAIN = ['drop table page cascade', 'create table page (id integer primary key, url text not null, title text)']
const PARTITIONED = [
  `${PLAIN.join('; ')} partition by range (id)`,
  'create table page_1 partition of page for values from (0) to (10)',
]

/** A role that may read, and do nothing else. */
const READER = [
  `do $$ begin if not exists (select from pg_roles where rolname = 'doctor reader') then create role "doctor reader" login password 'x'; end if; end $$`,
  'grant usage on schema public to "doctor reader"',
  'grant select on all tables in schema public to "doctor reader"',
]

async function byReader(): Promise<DataSource> {
  const url = new URL(copy.url)
  url.username = 'doctor reader'
  url.password = 'x'
  const extra = { options: '-c default_transaction_read_only=on' }
  return await copy.dataSource(ENTITIES, { url: url.href, extra })
}

describe('what the database lacks', () => {
  test('hidden columns that are missing are a matter of adopt, and duplicates are found all the same', async () => {
    await changed(...PLAIN)
    await client.query(`insert into page values (1, 'http://a/'), (2, 'http://a/'), (3, 'http://b/')`)
    const { findings } = await doctor(dataSource, { entities: [Page] })
    const missing = findings.filter(({ code }) => code.endsWith('.missing'))
    expect(missing.filter(({ next }) => !next.startsWith('Run typeorm-unique-text adopt, '))).toEqual([])
    const found = findings.map(inWords)
    expect(found.filter((one) => !one.includes('guard.'))).toMatchInlineSnapshot(`
      [
        "error column.missing 1; urlHash",
        "error column.missing 1; urlHashNumber",
        "error column.missing 1; urlHashChained",
        "error index.missing 1; NAME",
        "error check.missing 1; NAME",
        "warning reference.undeclared 1; public.visit."pageId"",
        "error text.unadopted 3; next step begin; short locks: begin ACCESS EXCLUSIVE, check ACCESS EXCLUSIVE, check ACCESS EXCLUSIVE, guard SHARE ROW EXCLUSIVE, clean ACCESS EXCLUSIVE",
        "warning disk.needed 1; up to 1 MB for new versions of rows, and the index",
        "error text.twice 1",
      ]
    `)
    expect(found.filter((one) => one.includes('guard.missing'))).toHaveLength(1)
  })

  test('hidden columns that are there but empty', async () => {
    await changed(
      'drop table page cascade',
      `create table page (id integer primary key, url text not null, title text, "urlHash" uuid,
         "urlHashNumber" integer not null default 0, "urlHashChained" boolean not null default false)`,
      `insert into page values (1, 'http://a/'), (2, 'http://b/')`,
    )
    expect((await told(Page)).filter((one) => !one.includes('guard.'))).toMatchInlineSnapshot(`
      [
        "error column.different 1; urlHash: it may be NULL",
        "error index.missing 1; NAME",
        "error check.missing 1; NAME",
        "warning reference.undeclared 1; public.visit."pageId"",
        "error text.unadopted 2; next step begin; short locks: begin ACCESS EXCLUSIVE, check ACCESS EXCLUSIVE, check ACCESS EXCLUSIVE, guard SHARE ROW EXCLUSIVE, clean ACCESS EXCLUSIVE",
        "warning disk.needed 1; up to 1 MB for new versions of rows, and the index",
        "error hash.missing 2",
      ]
    `)
  })

  test('an adoption that is not at its end: its next step, and the locks that are left', async () => {
    await changed(...PLAIN, ...READER)
    const locks = { lockMilliseconds: 2_000, holdMilliseconds: 10_000 }
    await adopt(dataSource, Page, { ...locks, property: 'url', until: 'index' })
    for (const source of [dataSource, await byReader()]) {
      const { tables, healthy } = await doctor(source, { entities: [Page] })
      expect(healthy).toBe(false)
      expect(tables[0]?.declarations[0]?.adoption?.locks.slice(-3)).toEqual([
        { step: 'check', mode: 'ACCESS EXCLUSIVE' },
        { step: 'guard', mode: 'SHARE ROW EXCLUSIVE' },
        { step: 'clean', mode: 'ACCESS EXCLUSIVE' },
      ])
      expect(tables[0]?.declarations[0]?.adoption?.step).toBe(source === dataSource ? 'check' : 'begin')
    }
    await adopt(dataSource, Page, { ...locks, property: 'url' })
    const { tables } = await doctor(dataSource, { entities: [Page] })
    expect(tables[0]?.declarations[0]).not.toHaveProperty('adoption')
  })

  test('a column of the text, a key, and a table that are missing end nothing but the look at them', async () => {
    await changed('alter table page drop column url cascade', 'drop table "user" cascade')
    const { findings, tables } = await doctor(dataSource)
    expect(findings.filter(({ code }) => /(?:table|column)\./u.test(code)).map(inWords)).toMatchInlineSnapshot(`
      [
        "error column.missing 1; url",
        "error table.missing 1; user",
      ]
    `)
    expect(tables.map(({ entity }) => entity)).toContain('Soft')
  })

  test('the table of names that is missing', async () => {
    await changed('drop table names cascade')
    expect(await told(User)).toEqual(['error table.missing 1; names'])
    const { findings } = await doctor(dataSource)
    expect(findings.map(({ code, entity }) => `${entity} ${code}`)).toContain('Name table.missing')
  })

  test('an index that is invalid', async () => {
    await changed()
    const name = await indexOf('page')
    await client.query(`drop index ${name}`)
    await client.query(`set session_replication_role = replica`)
    await client.query(`insert into page (url, "urlHash") select url, "urlHash" from page where id = 3`)
    await client.query(`set session_replication_role = origin`)
    const failed = client.query(`create unique index concurrently ${name} on page ("urlHash", "urlHashNumber")`)
    await expect(failed).rejects.toMatchObject({ code: '23505' })
    expect((await told(Page)).slice(0, 2)).toMatchInlineSnapshot(`
      [
        "error index.invalid 1; NAME",
        "error text.twice 1",
      ]
    `)
  })
})

describe('what stands around a table', () => {
  test('triggers of the user on UPDATE, publications, tables by INHERITS and columns like references are warned of', async () => {
    await changed(
      `create function touched() returns trigger language plpgsql as 'begin return new; end'`,
      `create trigger touched before update on page for each row execute function touched()`,
      `create trigger inserted before insert on page for each row execute function touched()`,
      `create table old_page () inherits (page)`,
      `create table link (id integer, page_id integer, "pagesId" integer, "pageId" bigint)`,
    )
    await client.query(`drop publication if exists "All Pages"`)
    await client.query(`create publication "All Pages" for table page`)
    expect(await told(Page)).toMatchInlineSnapshot(`
      [
        "warning trigger.user 1; touched",
        "warning replication.publication 1; All Pages",
        "warning table.inherits 1; public.old_page",
        "warning reference.undeclared 1; public.link.page_id",
      ]
    `)
    await client.query(`drop publication "All Pages"`)
  })

  test('a publication that has a table without the whole one of its scopes or names', async () => {
    await changed(`create publication part for table "user", comment, page`)
    const incomplete = async (entity: new () => object): Promise<string[]> =>
      (await told(entity)).filter((one) => one.includes('incomplete'))
    try {
      expect(await incomplete(Page)).toEqual([])
      expect(await incomplete(User)).toEqual(['warning replication.incomplete 1; part without names'])
      expect(await incomplete(Comment)).toEqual([
        'warning replication.incomplete 1; part without numbers_comment__number_scopes',
      ])
      await client.query('alter publication part add table names, numbers_comment__number_scopes')
      expect([...(await incomplete(User)), ...(await incomplete(Comment))]).toEqual([])
      const { rows } = await client.query(`select current_setting('server_version_num')::integer >= 150000 as filters`)
      if (!(rows as { filters: boolean }[])[0]?.filters) return
      for (const part of [`names (id, text)`, `names where (state = 'held')`]) {
        await client.query(`alter publication part set table "user", ${part}`)
        expect([part, await incomplete(User)]).toEqual([part, ['warning replication.incomplete 1; part without names']])
      }
      for (const whole of ['all tables', 'tables in schema public']) {
        await client.query(`drop publication part; create publication part for ${whole}`)
        expect([...(await incomplete(User)), ...(await incomplete(Comment))]).toEqual([])
      }
    } finally {
      await client.query('drop publication part')
    }
  })

  test('a publication has a partitioned table by its partitions, or by its root', async () => {
    await changed(...PARTITIONED, 'create table page_2 partition of page default')
    for (const root of [false, true]) {
      await client.query(`create publication part for table page with (publish_via_partition_root = ${root})`)
      try {
        expect((await told(Page)).filter((one) => one.includes('publication'))).toEqual([
          'warning replication.publication 1; part',
        ])
      } finally {
        await client.query('drop publication part')
      }
    }
  })

  test('rows of children by INHERITS are no rows of the table', async () => {
    await changed(`create table old_page () inherits (page)`)
    await client.query(`set session_replication_role = replica`)
    await client.query(`insert into old_page select * from page`)
    await client.query(`set session_replication_role = origin`)
    const { findings, tables } = await doctor(dataSource, { entities: [Page] })
    expect(findings.filter(({ severity }) => severity === 'error')).toEqual([])
    expect(tables[0]?.declarations[0]?.rows).toBe(10)
  })

  test('in a partitioned table adopt is not what to do next', async () => {
    await changed(...PARTITIONED, `insert into page values (1, 'http://a/'), (2, 'http://a/')`)
    for (const part of [{}, { table: 'page_1' }]) {
      const { findings } = await doctor(dataSource, { entities: [Page], ...part })
      const twice = findings.find(({ code }) => code === 'text.twice')
      expect(twice?.next).toMatch(/^Turn what refers.*adopt takes no partitioned table/)
    }
  })

  test('rows of partitions are rows of the table', async () => {
    await changed(
      ...PARTITIONED,
      'create table page_2 partition of page for values from (10) to (20)',
      `insert into page values (1, 'http://a/'), (12, 'http://a/'), (13, 'http://b/')`,
    )
    expect((await told(Page)).filter((one) => / (?:text|table)\./u.test(one))).toMatchInlineSnapshot(`
      [
        "error table.spread 1; it is spread by "id", which is not in the scope of "url"",
        "warning table.partitioned 2",
        "error text.twice 1",
      ]
    `)
  })

  test('triggers of an adoption that is not done are no triggers of the user', async () => {
    await changed(...PLAIN)
    await client.query(`insert into page values (1, 'http://a/')`)
    await adopt(dataSource, Page, { until: 'begin' })
    const found = await told(Page)
    expect(found).toContainEqual(expect.stringMatching(/^error text\.unadopted 1; next step fill/))
    expect(found.filter((one) => one.includes('trigger.user'))).toEqual([])
  })

  test('where no lock is left, that is said', () => {
    const place = { entity: 'Page', property: 'url' }
    const [found] = findingsOfAdoption({ step: 'fill', locks: [] }, place, { rows: 1, heapBytes: 1 })
    expect(found?.detail).toBe('next step fill; short locks: none')
  })

  test('a unique index of the user over texts that become equal is said before adopt stops at it', async () => {
    await changed(
      'drop table page cascade',
      'create table page (id integer primary key, url varchar(99) not null unique, title text)',
      'create unique index on page (lower(title))',
      `insert into page values (1, 'http://a/'), (2, 'http://b/')`,
    )
    const isIndex = (one: string): boolean => one.includes('index.user')
    expect((await told(Page)).filter(isIndex)).toEqual([])
    await client.query(`insert into page values (3, 'HTTP://A')`)
    expect((await told(Page)).filter(isIndex)).toEqual(['warning index.user 1; page_url_key'])
  })

  test('row security that hides rows is said', async () => {
    await changed('create policy none on page using (false)', 'alter table page enable row level security', ...READER)
    const { findings } = await doctor(await byReader(), { entities: [Page] })
    expect(findings.map(inWords)).toEqual(['warning rows.hidden 1'])
  })

  test('a role that may not make temporary tables hears that definitions were not compared', async () => {
    await changed(...READER)
    const onDatabase = async (what: string): Promise<void> => {
      await client.query(`do $$ begin execute format('${what}', current_database()); end $$`)
    }
    await onDatabase('revoke temporary on database %I from public')
    try {
      const { findings } = await doctor(await byReader(), { entities: [Soft] })
      expect(findings.map(inWords)).toEqual(['warning definitions.uncompared 1'])
    } finally {
      await onDatabase('grant temporary on database %I to public')
    }
  })

  test('SELECT on the tables is all that it needs', async () => {
    await changed(...READER)
    const { healthy, tables } = await doctor(await byReader())
    expect(healthy).toBe(true)
    expect(tables.length).toBe(11)
  })

  test('a transaction that is open for more than a minute is told of', async () => {
    await changed()
    const { findingsAround } = await import('../../../src/doctor/doctor')
    const around = { oldestSeconds: 61, found: {} }
    const found = findingsAround(dataSource.getMetadata(Soft), {} as never, around as never)
    expect(found.map(inWords).filter((one) => !one.includes('uncompared'))).toEqual([
      'warning transaction.old 1; open for 61 s',
    ])
  })
})

describe('what is said to be run, word for word, mends it', () => {
  /** The findings of this code, before and after all that their details name was run. */
  async function followed(entity: new () => object, code: string): Promise<{ told: string[]; left: string[] }> {
    const found = async (): Promise<string[]> => {
      const { findings } = await doctor(dataSource, { entities: [entity] })
      return findings
        .filter((one) => one.code === code)
        .flatMap(({ detail = '' }) => detail.split(/, (?=ALTER|REVOKE)/u))
    }
    const told = await found()
    for (const statement of told) await client.query(statement)
    return { told, left: await found() }
  }

  test('a table of names that is UNLOGGED beside a table that is not', async () => {
    await changed('alter table names set unlogged')
    const { told, left } = await followed(User, 'table.unlogged')
    expect(told).toEqual(['ALTER TABLE public.names SET LOGGED'])
    expect(left).toEqual([])
  })

  test('counts that are UNLOGGED, or that everybody may write', async () => {
    await changed()
    const { rows } = await client.query<{ name: string }>(
      `select oid::regclass::text as name from pg_class where relkind = 'r' and relname like 'number%comment%'`,
    )
    expect(rows).toHaveLength(1)
    await client.query(`alter table ${rows[0]?.name} set unlogged; grant select, update on ${rows[0]?.name} to public`)
    expect((await followed(Comment, 'table.unlogged')).left).toEqual([])
    const { told, left } = await followed(Comment, 'table.granted')
    expect(told).toEqual([`REVOKE INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER ON public.${rows[0]?.name} FROM PUBLIC`])
    expect(left).toEqual([])
  })

  test('session_replication_role of the database and of a role', async () => {
    await changed()
    const { rows } = await client.query<{ name: string }>('select quote_ident(current_database()) as name')
    const name = rows[0]?.name ?? ''
    await client.query(`alter database ${name} set session_replication_role = replica;
      create role "replays rows"; alter role "replays rows" in database ${name} set session_replication_role = replica`)
    const { told, left } = await followed(Page, 'guard.replica')
    expect(told).toEqual([
      `ALTER DATABASE ${name} RESET session_replication_role`,
      `ALTER ROLE "replays rows" IN DATABASE ${name} RESET session_replication_role`,
    ])
    expect(left).toEqual([])
    await client.query('drop role "replays rows"')
  })

  test('first use refuses a session in which no trigger fires', async () => {
    await changed()
    const extra = { options: '-c session_replication_role=replica' }
    const replays = await copy.dataSource(ENTITIES, { extra })
    for (const call of [
      () => findOrCreate(replays.manager, Page, { url: 'http://a/' }),
      () => insertOrFail(replays.manager, User, { handle: 'new' }),
    ])
      await expect(call()).rejects.toMatchObject({
        code: 'SCHEMA_DRIFT',
        findings: [{ kind: 'disabled', object: 'guard', name: 'session_replication_role' }],
      })
  })

  test('a rule is for a person to decide', async () => {
    await changed(
      'create rule "drops all" as on insert to names do instead nothing',
      'create rule logs as on update to page do also select 1',
    )
    expect(await told(User)).toContainEqual('warning table.rule 1; "drops all" ON public.names')
    expect(await told(Page)).toContainEqual('warning table.rule 1; logs ON public.page')
    await client.query('drop rule "drops all" on names; drop rule logs on page')
    expect((await told(User)).filter((one) => one.includes('rule'))).toEqual([])
  })
})
