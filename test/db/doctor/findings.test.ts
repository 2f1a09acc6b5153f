import type { Client } from 'pg'
import { DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { doctor, type DoctorFinding } from '../../../src/doctor'
import { Name, UniqueName } from '../../../src/names'
import { migrate } from '../../support/generated'
import { type Copy, useTemplate } from '../../support/template'
import { Colliding, Comment, ENTITIES, fill, Organization, Page, Person, Scoped, Soft, Ticket, User } from './entities'

const template = useTemplate(async (url) => {
  const made = await new DataSource({ type: 'postgres', url, entities: ENTITIES, synchronize: true }).initialize()
  await fill(made)
  await made.destroy()
})
let client: Client
let dataSource: DataSource

@Entity('foreign')
class Foreign {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueName({ namespace: 'foreign' }) handle!: string
}

/** What was made wrong on purpose, past triggers; a database with rows of every kind stands before each. */
async function broken(...statements: readonly string[]): Promise<Copy> {
  const copy = await template.fresh()
  client = copy.client
  dataSource = await copy.dataSource(ENTITIES)
  for (const statement of statements) {
    await client.query(`begin; set local session_replication_role = replica; ${statement}; commit`)
  }
  return copy
}

/** In words, without what every database has here. */
async function told(entity?: new () => object): Promise<string[]> {
  const { findings } = await doctor(dataSource, { batchRows: 3, ...(entity && { entities: [entity] }) })
  return findings.filter(({ severity }) => severity === 'error').map(inWords)
}

const inWords = ({ code, entity, property, count, keys, detail }: DoctorFinding): string =>
  [
    `${entity}${property === null ? '' : `.${property}`} ${code} ${count}`,
    detail?.replace(/(?:IDX|CHK)_\w+/u, 'NAME') ?? [],
    keys.map((key) => JSON.stringify(key)).join(' '),
  ]
    .flat()
    .filter(Boolean)
    .join('; ')

const WITHOUT_CHECKS = (table: string): string =>
  `do $$ declare c record; begin for c in select conname from pg_constraint where conrelid = '${table}'::regclass and contype = 'c'
   loop execute format('alter table ${table} drop constraint %I', c.conname); end loop; end $$`

const WITHOUT_INDEX = (table: string, column: string): string =>
  `do $$ declare i record; begin for i in select indexrelid::regclass as name from pg_index as x join pg_attribute as a
     on a.attrelid = x.indrelid and a.attnum = any (x.indkey) where x.indrelid = '${table}'::regclass and not indisprimary and a.attname = '${column}'
   loop execute format('drop index %s', i.name); end loop; end $$`

describe('texts', () => {
  test('a text that stands twice in its scope is found, also without the index', async () => {
    await broken(
      WITHOUT_INDEX('page', 'urlHash'),
      `insert into page (url, "urlHash") select url, "urlHash" from page where id in (2, 5)`,
      `insert into page (url, "urlHash") select url, "urlHash" from page where id = 2`,
    )
    expect(await told(Page)).toMatchInlineSnapshot(`
      [
        "Page.url index.missing 1; NAME",
        "Page.url text.twice 3; {"id":2} {"id":11} {"id":13} {"id":5} {"id":12}",
        "Page.url chain.unflagged 2; {"id":2} {"id":5}",
        "Page.url chain.number 2; {"id":2} {"id":5}",
      ]
    `)
  })

  test('a text that stands twice at two numbers is found where index and check stand', async () => {
    await broken(`insert into page (url, "urlHash", "urlHashNumber") select url, "urlHash", 1 from page where id = 2`)
    expect(await told(Page)).toMatchInlineSnapshot(`
      [
        "Page.url text.twice 1; {"id":2} {"id":11}",
        "Page.url chain.unflagged 1; {"id":2}",
      ]
    `)
  })

  test('equal texts with different hashes are found', async () => {
    await broken(
      WITHOUT_CHECKS('page'),
      `insert into page (url, "urlHash") select url, md5('other')::uuid from page where id = 2`,
    )
    expect(await told(Page)).toMatchInlineSnapshot(`
      [
        "Page.url check.missing 1; NAME",
        "Page.url text.twice 1; {"id":2} {"id":11}",
        "Page.url hash.wrong 1; {"id":11}",
      ]
    `)
  })

  test('texts of different scopes, of rows that are deleted softly, and NULLs are not twice', async () => {
    await broken(`update soft set "deletedAt" = now()`)
    expect(await told()).toEqual([])
  })

  test('groups are told with their references before and after normalizing', async () => {
    await broken(
      WITHOUT_INDEX('page', 'urlHash'),
      `insert into page (url, "urlHash") select url, "urlHash" from page where id = 2`,
      `insert into page (url, "urlHash") select 'HTTP://example.com/' || n, md5('HTTP://example.com/' || n)::uuid from generate_series(2, 4) as n`,
      `insert into visit ("pageId") select id from page where id > 10`,
    )
    const groupsNow = async (): Promise<DoctorFinding[]> =>
      (await doctor(dataSource, { entities: [Page] })).findings.filter(({ groups }) => groups)
    const reference = { table: 'public.visit', columns: ['pageId'], indexed: false }
    expect(await groupsNow()).toMatchObject([
      { code: 'text.twice', count: 1, groups: { groups: 1, largest: 2, references: [{ ...reference, rows: 1 }] } },
      {
        code: 'text.twiceNormalized',
        count: 3,
        groups: { groups: 3, largest: 2, references: [{ ...reference, rows: 3 }] },
      },
    ])
    const indexedBy = async (index: string): Promise<unknown> => {
      await client.query(`drop index if exists visit_page; create index visit_page on visit ${index}`)
      return (await groupsNow())[0]?.groups?.references[0]?.indexed
    }
    expect(await indexedBy('("pageId") where id > 1')).toBe(false)
    expect(await indexedBy('(id, "pageId")')).toBe(false)
    expect(await indexedBy('("pageId", id)')).toBe(true)
  })

  test('texts that the normalizer changes or refuses are counted with reasons, and never told', async () => {
    await broken(
      `insert into page (url, "urlHash") values ('HTTP://secret/', md5('HTTP://secret/')::uuid), ('secret', md5('secret')::uuid)`,
      `insert into "user" (handle) values ('SECRET')`,
    )
    const report = await doctor(dataSource)
    expect(JSON.stringify(report).toLowerCase()).not.toContain('secret')
    expect(report.findings.filter(({ code }) => code !== 'chain.collision').map(inWords)).toMatchInlineSnapshot(`
      [
        "Page.url text.unnormalized 1; {"id":11}",
        "Page.url text.rejected 1; it is not an http or https URL; {"id":12}",
        "User.handle text.unnormalized 1; {"id":11}",
        "User.handle name.missing 1; {"id":11}",
      ]
    `)
  })

  test('a URL whose parts are not normalized together is found', async () => {
    await broken(WITHOUT_CHECKS('urls'), `update urls set host = 'EXAMPLE.com' where id = 3`)
    expect(await told()).toMatchInlineSnapshot(`
      [
        "Url.url check.missing 1; NAME",
        "Url check.missing 1; url_parts_check",
        "Url.url text.unnormalized 1; {"id":3}",
      ]
    `)
  })

  test('a row without a text is found where the text is required', async () => {
    await broken(
      WITHOUT_CHECKS('page'),
      `alter table page alter url drop not null`,
      `update page set url = null where id = 4`,
    )
    expect(await told(Page)).toMatchInlineSnapshot(`
      [
        "Page.url column.different 1; url: it may be NULL",
        "Page.url check.missing 1; NAME",
        "Page.url text.null 1; {"id":4}",
        "Page.url hash.wrong 1; {"id":4}",
      ]
    `)
  })

  test('the texts of composite columns and composite keys are told apart column by column', async () => {
    await broken(
      WITHOUT_INDEX('person', 'nameHash'),
      `insert into person (first, last, "nameHash") select first, last, "nameHash" from person where id in (1, 2)`,
      WITHOUT_INDEX('scoped', 'noteHash'),
      `insert into scoped (tenant, at, note, "noteHash") select tenant, at + '1 day', note, "noteHash" from scoped where note = 'note 3'`,
    )
    expect(await told(Person)).toMatchInlineSnapshot(`
      [
        "Person.name index.missing 1; NAME",
        "Person.name text.twice 2; {"id":1} {"id":11} {"id":2} {"id":12}",
        "Person.name chain.unflagged 2; {"id":1} {"id":2}",
        "Person.name chain.number 2; {"id":1} {"id":2}",
      ]
    `)
    expect(await told(Scoped)).toMatchInlineSnapshot(`
      [
        "Scoped.note index.missing 1; NAME",
        "Scoped.note text.twice 2; {"tenant":"t0","at":"2026-01-01 00:00:00.006+00"} {"tenant":"t0","at":"2026-01-02 00:00:00.006+00"} {"tenant":"t1","at":"2026-01-01 00:00:00.007+00"} {"tenant":"t1","at":"2026-01-02 00:00:00.007+00"}",
        "Scoped.note chain.unflagged 2; {"tenant":"t0","at":"2026-01-01 00:00:00.006+00"} {"tenant":"t1","at":"2026-01-01 00:00:00.007+00"}",
        "Scoped.note chain.number 2; {"tenant":"t0","at":"2026-01-01 00:00:00.006+00"} {"tenant":"t1","at":"2026-01-01 00:00:00.007+00"}",
      ]
    `)
  })
})

describe('hashes and chains', () => {
  test('a hash that is not of the text, and one that is missing, are found', async () => {
    await broken(
      WITHOUT_CHECKS('page'),
      `alter table page alter "urlHash" drop not null`,
      `update page set "urlHash" = md5('other')::uuid where id = 3; update page set "urlHash" = null where id in (4, 5)`,
    )
    expect(await told(Page)).toMatchInlineSnapshot(`
      [
        "Page.url column.different 1; urlHash: it may be NULL",
        "Page.url check.missing 1; NAME",
        "Page.url hash.wrong 1; {"id":3}",
        "Page.url hash.missing 2; {"id":4} {"id":5}",
      ]
    `)
  })

  test('a chain without anchor is found, alone and in company', async () => {
    await broken(
      `delete from "Colliding rows" where "textHashNumber" = 0 and id < 3`,
      `update page set "urlHashNumber" = 2 where id = 7`,
    )
    expect(await told(Colliding)).toMatchInlineSnapshot(`
      [
        "Colliding.text chain.anchorless 2; {"id":3} {"id":4}",
      ]
    `)
    expect(await told(Page)).toMatchInlineSnapshot(`
      [
        "Page.url chain.anchorless 1; {"id":7}",
      ]
    `)
  })

  test('an unflagged anchor of a chain with others is found', async () => {
    await broken(`update "Colliding rows" set "textHashChained" = false`)
    expect(await told(Colliding)).toMatchInlineSnapshot(`
      [
        "Colliding.text chain.unflagged 2; {"id":1} {"id":2}",
      ]
    `)
  })

  test('numbers that are negative or twice in a chain are found', async () => {
    await broken(WITHOUT_CHECKS('"Colliding rows"'), `update "Colliding rows" set "textHashNumber" = -1 where id = 9`)
    expect((await told(Colliding)).filter((one) => one.includes('chain'))).toMatchInlineSnapshot(`
      [
        "Colliding.text chain.number 1; {"id":9}",
      ]
    `)
    await broken(WITHOUT_INDEX('"Colliding rows"', 'textHash'), `update "Colliding rows" set "textHashNumber" = 0`)
    expect((await told(Colliding)).filter((one) => one.includes('chain'))).toMatchInlineSnapshot(`
      [
        "Colliding.text chain.number 2; {"id":1} {"id":2}",
      ]
    `)
  })

  test('a chain of rows of which some are deleted softly has no others', async () => {
    await broken(
      `insert into soft (id, text, "textHash", "textHashNumber", "deletedAt") select gen_random_uuid(), text, "textHash", 5, now() from soft`,
    )
    expect(await told(Soft)).toEqual([])
  })
})

describe('names', () => {
  test('a name that the table of names does not hold is found', async () => {
    await broken(`delete from names where text = 'user3'`, `update names set state = 'reserved' where text = 'org4'`)
    expect((await told()).map((one) => one.replace(/"[0-9a-f-]{36}"/u, 'UUID'))).toMatchInlineSnapshot(`
      [
        "User.handle name.missing 1; {"id":4}",
        "Organization.slug name.missing 1; {"id":UUID}",
      ]
    `)
  })

  test('a name that its row does not have, or that no row holds, is found', async () => {
    await broken(
      `update "user" set handle = 'other' where id = 5`,
      `delete from organization where slug = 'org7'`,
      `update names set holder = '-' where text = 'user8'`,
    )
    expect((await told()).map((one) => one.replace(/"[0-9a-f-]{36}"/u, 'UUID'))).toMatchInlineSnapshot(`
      [
        "User.handle name.missing 2; {"id":5} {"id":9}",
        "Name.text name.untrue 3; unique_name_names_write; {"id":5} {"id":6} {"id":15}",
      ]
    `)
    expect(await told(Organization)).toHaveLength(1)
  })

  test('a name that a table of another program holds is for that one to judge, until the table goes', async () => {
    const copy = await broken()
    const other = await copy.dataSource([Foreign, Name])
    await migrate(other)
    await other.query(`insert into "foreign" (handle) values ('theirs')`)
    expect(await told()).toEqual([])
    await other.query('drop table "foreign"')
    expect(await told()).toEqual([expect.stringContaining('Name.text name.untrue 1')])
  })

  test('a former name of a row that is gone, and a state that is not known, are found', async () => {
    await broken(
      `delete from "user" where handle = 'renamed'`,
      `alter table names disable trigger user; update names set state = 'lost' where text = 'user4'`,
      `alter table names enable trigger user`,
    )
    expect(await told(Name)).toEqual([expect.stringMatching(/^Name\.text name\.untrue 3/)])
  })

  test('a name in another namespace than its declaration is found from both sides', async () => {
    await broken(`update names set namespace = 'elsewhere' where text = 'user3'`)
    expect(await told(User)).toMatchInlineSnapshot(`
      [
        "User.handle name.missing 1; {"id":4}",
        "Name.text name.untrue 1; unique_name_names_write; {"id":9}",
      ]
    `)
  })
})

describe('numbers', () => {
  test('a number that is missing or twice is found', async () => {
    await broken(
      WITHOUT_INDEX('comment', 'number'),
      `alter table comment alter number drop not null; update comment set number = null where id = 4; update comment set number = 1 where page = 'p1'`,
    )
    expect((await told(Comment)).filter((one) => one.includes('number.') && !one.includes('index')))
      .toMatchInlineSnapshot(`
      [
        "Comment.number number.twice 2; {"id":2} {"id":5} {"id":8}",
        "Comment.number number.missing 1; {"id":4}",
      ]
    `)
    await broken(WITHOUT_INDEX('ticket', 'number'), `update ticket set number = 1 where id < 4`)
    expect((await told(Ticket)).filter((one) => one.includes('number.twice'))).toMatchInlineSnapshot(`
      [
        "Ticket.number number.twice 2; {"id":1} {"id":2} {"id":3}",
      ]
    `)
  })

  test('a count that is wrong or missing is found', async () => {
    await broken(`update comment set "deletedAt" = now() where page = 'p1' and number = 2`)
    expect(await told(Comment)).toMatchInlineSnapshot(`
      [
        "Comment.number count.wrong 1; {"id":2}",
      ]
    `)
    await broken(
      `do $$ begin execute (select format('delete from %s where s0 = %L', oid::regclass, 'p2') from pg_class
         where relname like 'numbers%comment%scopes%' and relkind = 'r'); end $$`,
    )
    expect(await told(Comment)).toMatchInlineSnapshot(`
      [
        "Comment.number count.wrong 1; {"id":3}",
      ]
    `)
  })

  test('a count of a scope whose rows are all gone is found, on the last page too', async () => {
    await broken(
      `insert into comment (page, number) select 'q' || lpad(i::text, 4, '0'), 1 from generate_series(1, 1100) as i`,
      `insert into numbers_comment__number_scopes select page, 1 from comment where page like 'q%' on conflict do nothing`,
      `delete from comment where page in ('p1', 'q0600', 'q1100')`,
    )
    expect(await told(Comment)).toEqual([expect.stringMatching(/^Comment\.number count\.wrong 3/)])
  })

  test('counts of a table that is empty are found', async () => {
    await broken(`delete from comment`)
    expect(await told(Comment)).toEqual([expect.stringMatching(/^Comment\.number count\.wrong 3/)])
  })
})

describe('what the doctor says to do mends it', () => {
  const REMEDIES = {
    'hash.wrong': [
      [`update page set "urlHash" = md5('other')::uuid where id = 3`],
      `update page set url = url || 'x' where id = 3; update page set url = left(url, -1) where id = 3`,
    ],
    'chain.anchorless': [
      [`delete from "Colliding rows" where id = 1`],
      `set local session_replication_role = replica; update "Colliding rows" set "textHashNumber" = 0, "textHashChained" = true where id = 3`,
    ],
    'chain.unflagged': [
      [`update "Colliding rows" set "textHashChained" = false where id = 1`],
      `set local session_replication_role = replica; update "Colliding rows" set "textHashChained" = true where id = 1`,
    ],
    'name.missing': [
      [`delete from names where text = 'user3'`],
      `update "user" set handle = handle || 'x' where id = 4; update "user" set handle = left(handle, -1) where id = 4`,
    ],
    'name.untrue': [
      [`delete from organization where slug = 'org7'`],
      `alter table names disable trigger unique_name_names_write; delete from names where text = 'org7';
       alter table names enable trigger unique_name_names_write`,
    ],
    'count.wrong': [[`delete from comment where id = 5`], withoutTrigger('comment')],
  } as const
  test.each(Object.entries(REMEDIES))('%s', async (code, [faults, remedy]) => {
    const unchecked = code === 'hash.wrong' ? [WITHOUT_CHECKS('page')] : []
    await broken(...unchecked, ...faults)
    const found = async (): Promise<boolean> => (await told()).some((one) => one.includes(code))
    expect(await found()).toBe(true)
    await client.query(`begin; ${remedy}; commit`)
    await dataSource.synchronize()
    expect(await told()).toEqual([])
  })
})

/** Takes one trigger of ours from a table. */
function withoutTrigger(table: string): string {
  return `do $$ begin execute (select format('drop trigger %I on ${table}', min(tgname)) from pg_trigger
    where tgrelid = '${table}'::regclass and not tgisinternal); end $$`
}
