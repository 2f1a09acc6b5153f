import { Column, type DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, UniqueText } from '../../../src'
import { abandon, adopt, mergeDuplicates, planAdoption } from '../../../src/adopt'
import { STEPS } from '../../../src/adopt/options'
import { doctor } from '../../../src/doctor'
import { NumberWithin } from '../../../src/numbers'
import { lowerCase } from '../../../src/text'
import { textsOfEntity } from '../../../src/registry/registry'
import { useDatabase } from '../../support/database'
import { generate } from '../../support/generated'
import { violations } from '../../support/guarded-table'
import { adoptWith } from '../../support/seams'
import { type Entityish, tableOf } from './stage'
import { newList } from './restore'
import { type Declared, pageAs } from './swap-stage'

const db = useDatabase({ wrapped: true })
const OPTIONS = { lockMilliseconds: 1_000, holdMilliseconds: 10_000 }
const SCOPED = pageAs({ url: { scope: ['site'] } })
const WHOLE = pageAs({ url: {} })
const client = db.useClient({ emptied: true })
let scoped: DataSource
let whole: DataSource

beforeAll(async () => {
  scoped = await db.dataSource([SCOPED], { synchronize: false })
  whole = await db.dataSource([WHOLE], { synchronize: false })
})

/** Ten texts that stand in two sites, and twenty that stand in one. */
async function fill(): Promise<void> {
  await scoped.synchronize()
  await client.query(
    `insert into page (site, url) select i % 2, case when i <= 20 then 'text ' || (i + 1) / 2 else 'one ' || i end from generate_series(1, 40) as i`,
  )
}

const opened = async (declared: Declared): Promise<[DataSource, Entityish]> => {
  const Page = pageAs(declared)
  return [await db.dataSource([Page], { synchronize: false }), Page]
}

const failure = async (work: Promise<unknown>): Promise<{ reason?: string; message: string }> =>
  await work.then(
    () => ({ message: 'done' }),
    (error: { reason?: string; message: string }) => error,
  )

async function shape(): Promise<unknown[]> {
  const { rows } = await client.query(
    `select format('%s %s', relname, attname) as name from pg_class join pg_attribute on attrelid = pg_class.oid
      where relnamespace = 'public'::regnamespace and not attisdropped and relname !~ '^unique_text_adoptions'
     union all select tgname from pg_trigger where not tgisinternal
     union all select proname || prosrc from pg_proc where pronamespace = 'public'::regnamespace
     union all select conname from pg_constraint where conrelid = 'page'::regclass
     union all select to_jsonb(page)::text from page order by 1`,
  )
  return rows
}

describe.each(STEPS.slice(0, 5))('stopped after %s', (until) => {
  test('it goes on, and before that no operation of the new code answers', async () => {
    await fill()
    expect(await adopt(whole, WHOLE, { ...OPTIONS, until })).toMatchObject({ step: STEPS[STEPS.indexOf(until) + 1] })
    await expect(findOrCreate(whole.manager, WHOLE, { site: 1, url: 'one 21' })).rejects.toMatchObject({
      code: 'SCHEMA_DRIFT',
    })
    expect(await findOrCreate(scoped.manager, SCOPED, { site: 1, url: `until ${until}` })).toMatchObject({
      created: true,
    })
    expect(await violations(client, tableOf(scoped, SCOPED))).toEqual([])
    expect(await adopt(whole, WHOLE, OPTIONS)).toMatchObject({ step: 'done', duplicates: { groups: 10, surplus: 10 } })
    expect((await generate(whole)).up).toEqual([])
  })

  test.each(['new', 'old'])('abandon by the %s declaration leaves the old guard whole', async (which) => {
    await fill()
    const before = await shape()
    await adopt(whole, WHOLE, { ...OPTIONS, until })
    await (which === 'new' ? abandon(whole, WHOLE, OPTIONS) : abandon(scoped, SCOPED, OPTIONS))
    expect(await shape()).toEqual(before)
    expect((await generate(scoped)).up).toEqual([])
    expect(await adopt(scoped, SCOPED)).toMatchObject({ unchanged: true })
    expect(await adopt(whole, WHOLE, OPTIONS)).toMatchObject({ step: 'done' })
  })
})

test('once the guards have changed, abandon takes the new one away', async () => {
  await fill()
  expect(await adopt(whole, WHOLE, { ...OPTIONS, until: 'guard' })).toMatchObject({ step: 'clean' })
  await abandon(whole, WHOLE, OPTIONS)
  const { rows } = await client.query<{ n: number }>(
    `select (select count(*) from pg_trigger where tgrelid = 'page'::regclass)::int as n`,
  )
  expect(rows).toEqual([{ n: 0 }])
})

test('the old declaration does not go on with what the new one began', async () => {
  await fill()
  await adopt(whole, WHOLE, { ...OPTIONS, until: 'fill' })
  expect(await failure(adopt(scoped, SCOPED))).toMatchObject({ reason: 'changed' })
  const [other, Other] = await opened({ url: { digest: 'sha256' } })
  expect(await failure(adopt(other, Other))).toMatchObject({ reason: 'changed' })
  await adopt(whole, WHOLE, OPTIONS)
})

test('duplicates of the new rules are merged', async () => {
  await fill()
  await adopt(whole, WHOLE, OPTIONS)
  expect(await mergeDuplicates(whole, WHOLE, { keep: 'oldest', list: newList() })).toMatchObject({
    merged: 10,
    left: [],
  })
  expect(await violations(client, tableOf(whole, WHOLE))).toEqual([])
})

test('the steps are told without doing them', async () => {
  await fill()
  const before = await shape()
  const plan = await planAdoption(whole, WHOLE)
  expect(plan.filter(({ lock }) => lock !== undefined).map(({ step, lock }) => `${step} ${lock}`)).toEqual([
    'begin ACCESS EXCLUSIVE',
    'check ACCESS EXCLUSIVE',
    'check ACCESS EXCLUSIVE',
    'guard ACCESS EXCLUSIVE',
    'clean ACCESS EXCLUSIVE',
  ])
  expect(plan.find(({ step, lock }) => step === 'guard' && lock)?.statements.join()).toMatch(
    /DROP TRIGGER.*DROP COLUMN "urlHash".*RENAME COLUMN .* TO "urlHash".*CREATE TRIGGER/s,
  )
  expect(await shape()).toEqual(before)
})

test('the doctor says what adopt would do, and looks at texts by the new rules', async () => {
  await fill()
  const { findings, tables } = await doctor(whole)
  expect(tables[0]?.declarations[0]?.adoption).toMatchObject({ step: 'begin' })
  expect(tables[0]?.declarations[0]?.adoption?.locks.map(({ step }) => step)).toEqual([
    'begin',
    'check',
    'check',
    'guard',
    'clean',
  ])
  expect(findings.map(({ code, count }) => `${code} ${count}`)).toEqual(
    expect.arrayContaining(['text.unadopted 40', 'text.twice 10']),
  )
  expect(findings.filter(({ code }) => /^(?:hash|chain)\./.test(code))).toEqual([])
  await adopt(whole, WHOLE, { ...OPTIONS, until: 'index' })
  expect((await doctor(whole)).tables[0]?.declarations[0]?.adoption).toMatchObject({ step: 'check' })
  await adopt(whole, WHOLE, OPTIONS)
  expect((await doctor(whole)).tables[0]?.declarations[0]).not.toHaveProperty('adoption')
})

describe('a text that must not be NULL any more', () => {
  let Nullable: Entityish
  let nullable: DataSource
  beforeEach(async () => {
    ;[nullable, Nullable] = await opened({ url: { nullable: true } })
    await nullable.synchronize()
    await client.query(`insert into page (url) select nullif('text ' || i, 'text 3') from generate_series(1, 5) as i`)
  })

  test('rows without one are named before anything is changed', async () => {
    const before = await shape()
    expect(await failure(adopt(whole, WHOLE, OPTIONS))).toMatchObject({
      reason: 'nulls',
      message: expect.stringMatching(/NULL in "url", the first of them: \{"id": ?3\}/) as string,
    })
    expect(await shape()).toEqual(before)
  })

  test('rows that lose theirs meanwhile stop it before the guards change', async () => {
    await client.query(`update page set url = 'text 3' where url is null`)
    await adopt(whole, WHOLE, { ...OPTIONS, until: 'check' })
    await client.query(`insert into page (url) values (null); update page set url = null where id = 2`)
    expect(await failure(adopt(whole, WHOLE, OPTIONS))).toMatchObject({ reason: 'nulls' })
    expect(await findOrCreate(nullable.manager, Nullable, { url: 'text 1' })).toMatchObject({ created: false })
    await client.query(`delete from page where url is null`)
    expect(await adopt(whole, WHOLE, OPTIONS)).toMatchObject({ step: 'done' })
    expect((await generate(whole)).up).toEqual([])
  })

  test('a row that lost its text in the last moment is named afterwards, and no further one comes', async () => {
    await client.query(`update page set url = 'text 3' where url is null`)
    let written = false
    const beforeStatement = async (sql: string): Promise<void> => {
      if (written || !/^BEGIN; .*LOCK TABLE/s.test(sql) || !(await isReady())) return
      written = true
      await client.query(`insert into page (url) values (null)`)
    }
    const isReady = async (): Promise<boolean> =>
      (await client.query(`select from unique_text_adoptions where state->>'step' = 'guard'`)).rowCount === 1
    const stopped = adoptWith(whole, WHOLE, OPTIONS, { beforeStatement })
    expect(await failure(stopped)).toMatchObject({ reason: 'nulls' })
    expect(written).toBe(true)
    await expect(client.query(`insert into page (url) values (null)`)).rejects.toMatchObject({ code: '23514' })
    expect(await findOrCreate(whole.manager, WHOLE, { url: 'text 1' })).toMatchObject({ created: false })
    await client.query(`update page set url = 'text 9' where url is null`)
    expect(await adopt(whole, WHOLE, OPTIONS)).toMatchObject({ step: 'done' })
    expect(await violations(client, tableOf(whole, WHOLE))).toEqual([])
    expect((await generate(whole)).up).toEqual([])
  })
})

describe('what has to be done in several steps', () => {
  test('another normalizer at once', async () => {
    await fill()
    const [both, Both] = await opened({ url: { normalize: lowerCase() } })
    expect(await failure(adopt(both, Both))).toMatchObject({
      reason: 'unsupported',
      message: expect.stringMatching(/another normalizer too \(none@1, now lower-?case@1\).*then once more/i) as string,
    })
    await adopt(whole, WHOLE, OPTIONS)
    await mergeDuplicates(whole, WHOLE, { keep: 'oldest', list: newList() })
    await adopt(both, Both, OPTIONS)
    expect((await generate(both)).up).toEqual([])
  })

  test('a column that is not there', async () => {
    await whole.synchronize()
    await client.query('alter table page drop column site')
    expect(await failure(adopt(scoped, SCOPED))).toMatchObject({
      reason: 'unsupported',
      message: expect.stringContaining('there is no column "site"') as string,
    })
  })

  test('an index of the user with a hidden column', async () => {
    await fill()
    await client.query('create index mine on page ("urlHash", title)')
    expect(await failure(adopt(whole, WHOLE))).toMatchObject({
      reason: 'unsupported',
      message: expect.stringContaining('"mine"') as string,
    })
  })
})

test('a view over the old columns ends the command in its last transaction, and nothing is lost', async () => {
  await fill()
  await client.query('create view hashes as select "urlHash" from page')
  await expect(adopt(whole, WHOLE, OPTIONS)).rejects.toMatchObject({ driverError: { code: '2BP01' } })
  expect(await violations(client, tableOf(scoped, SCOPED))).toEqual([])
  await client.query('drop view hashes')
  expect(await adopt(whole, WHOLE, OPTIONS)).toMatchObject({ step: 'done' })
})

test('triggers of the user do not run', async () => {
  await fill()
  await client.query(`create function touch() returns trigger language plpgsql as $$ begin new.title := 'touched'; return new; end $$;
    create trigger touch before update on page for each row execute function touch()`)
  await adopt(whole, WHOLE, OPTIONS)
  expect((await client.query(`select from page where title = 'touched'`)).rowCount).toBe(0)
})

describe('a table with another text and a number', () => {
  const entity = (url: object, slug: object): Entityish => {
    @Entity({ name: 'page' })
    class Page {
      @PrimaryGeneratedColumn('identity') id!: number
      @Column({ type: 'integer', default: 1 }) site!: number
      @UniqueText(url) url!: string
      @UniqueText(slug) slug!: string
      @NumberWithin({ scope: ['site'] }) number!: number
    }
    return Page
  }

  test.each([
    ['another scope', { scope: ['site'] }],
    ['another normalizer', { normalize: lowerCase() }],
  ] as const)('%s of one leaves the others as they are', async (_, url) => {
    const [Before, After] = [entity({}, {}), entity(url, {})]
    await db.dataSource([Before])
    await client.query(`insert into page (url, slug) select 'url ' || i, 'slug ' || i from generate_series(1, 20) as i`)
    const after = await db.dataSource([After], { synchronize: false })
    expect(await adopt(after, After, { ...OPTIONS, property: 'url' })).toMatchObject({ step: 'done' })
    expect((await generate(after)).up).toEqual([])
    await expect(client.query(`insert into page (url, slug) values ('new', 'slug 3')`)).rejects.toMatchObject({
      code: '23505',
    })
    await client.query(`insert into page (url, slug) values ('new', 'new')`)
    const { rows } = await client.query(`select number from page where slug = 'new'`)
    expect(rows).toEqual([{ number: 21 }])
    for (const { table } of textsOfEntity(after.getMetadata(After))) {
      expect(await violations(client, table)).toEqual([])
    }
  })
})
