import { createHash } from 'node:crypto'
import type { DataSource } from 'typeorm'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, SchemaDriftError } from '../../../src'
import { KERNEL } from '../../../src/triggers/guard'
import { literal, quote } from '../../../src/sql/identifier'
import { useDatabase } from '../../support/database'
import { entity, text } from '../../support/entity'
import { generate, migrate, runAll } from '../../support/generated'
import { Page } from '../../support/entities'

const db = useDatabase()
// Roles belong to the whole server, so their names hold the database's.
const suffix = createHash('sha256').update(db.url).digest('hex').slice(0, 8)
const attacker = `T attacker ${suffix}`
const owner = `T owner ${suffix}`
const TEXT = 'unique_text_page__url()'
const CHAIN = `${KERNEL}()`
const ALL = [TEXT, CHAIN]

const client = db.useClient()
beforeAll(async () => {
  await client.query(`create role ${quote(attacker)}; create role ${quote(owner)}`)
})
afterAll(async () => {
  for (const role of [attacker, owner]) {
    await client.query(`drop owned by ${quote(role)} cascade; drop role ${quote(role)}`)
  }
})
beforeEach(async () => {
  await client.query('reset role; drop schema public cascade; create schema public')
  await client.query(`grant usage, create on schema public to ${quote(attacker)}, ${quote(owner)}`)
})

const open = async (): Promise<DataSource> => await db.dataSource([Page], { synchronize: false })

const openAs = async (role: string): Promise<DataSource> =>
  await db.dataSource([Page], {
    synchronize: false,
    extra: { options: `-c role=${role.replaceAll(' ', String.raw`\ `)}` },
  })

async function migrated(opened = open()): Promise<DataSource> {
  const dataSource = await opened
  await migrate(dataSource)
  return dataSource
}

/** Runs statements as the attacker. */
const attack = async (...statements: readonly string[]): Promise<void> =>
  void (await client.query(`set role ${quote(attacker)}; ${statements.join('; ')}; reset role`))

const harmless = (name: string): string =>
  `create function ${name} returns trigger language plpgsql as 'begin return new; end'`

interface Installed {
  readonly owner: string
  readonly definer: boolean
  readonly others: boolean
}

async function installed(): Promise<Installed[]> {
  const { rows } = await client.query<Installed>(
    `select p.proowner::regrole::text as owner, p.prosecdef as definer,
            exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
                     where a.grantee <> p.proowner) as others
       from pg_proc as p where p.pronamespace = 'public'::regnamespace order by p.proname`,
  )
  return rows
}

async function bodyOf(name: string): Promise<string> {
  const { rows } = await client.query<{ body: string }>(
    'select prosrc as body from pg_proc where oid = $1::regprocedure',
    [name],
  )
  return rows[0]?.body ?? ''
}

const right = { owner: 'postgres', definer: true, others: false }

test("a function that another role made before the migration does not stay that role's", async () => {
  for (const name of ALL) await attack(harmless(name), `grant execute on function ${name} to public`)
  await migrate(await open())
  expect(await installed()).toEqual(ALL.map(() => right))
  await client.query(`set role ${quote(attacker)}`)
  for (const name of ALL) {
    const replaced = client.query(`alter function ${name} security invoker`)
    await expect(replaced).rejects.toMatchObject({ code: '42501' })
  }
})

/** A trigger runs its function whoever may execute it by then: the owner's must not act on another role's table. */
describe('a function that another role holds on to with a trigger of its own', () => {
  const hold = async (name: string): Promise<void> => {
    const trigger = `create trigger hold after insert on bait for each row execute function ${name}`
    await attack(harmless(name), 'create table bait (id integer)', trigger)
  }
  const untouched = [{ owner: quote(attacker), definer: false, others: true }]

  test.each([
    [TEXT, '2BP01'],
    [CHAIN, '55000'],
  ])('is refused by a migration that does not expect it, and nothing is made: %s', async (name, code) => {
    const dataSource = await open()
    const { up } = await generate(dataSource)
    await hold(name)
    await expect(runAll(dataSource, up)).rejects.toMatchObject({ code })
    const { rows } = await client.query(`select to_regclass('page') as page`)
    expect(rows).toEqual([{ page: null }])
    expect(await installed()).toEqual(untouched)
  })
  test('gets another name from one that is generated then, where it is that of the text', async () => {
    await hold(TEXT)
    const dataSource = await migrated()
    expect(await installed()).toEqual([right, ...untouched, right])
    expect((await generate(dataSource)).up).toEqual([])
  })
  test.each([CHAIN])('is refused by one that is generated then too, which tells what to do: %s', async (name) => {
    await hold(name)
    const hint = expect.stringContaining('one owner')
    await expect(migrate(await open())).rejects.toMatchObject({ code: '55000', hint })
    expect(await installed()).toEqual(untouched)
  })
})

/** A role with CREATE on the database owns a trusted extension, and may add what it owns to it. */
describe('an extension of another role', () => {
  const triggers = async (): Promise<number> => {
    const { rows } = await client.query('select from pg_trigger where tgrelid = $1::regclass', ['page'])
    return rows.length
  }
  const members = async (): Promise<unknown[]> =>
    (
      await client.query(
        `select deptype::text as type, objid::regprocedure::text as name from pg_depend as d
          where refclassid = 'pg_extension'::regclass and classid = 'pg_proc'::regclass and objid::regproc::text ~ '^unique_'`,
      )
    ).rows
  beforeEach(async () => {
    await client.query(`drop extension if exists citext cascade;
      do $$ begin execute format('grant create on database %I to ${quote(attacker)}', current_database()); end $$`)
    await attack('create extension citext schema public')
  })
  const plant = (name: string): Promise<void> => attack(harmless(name), `alter extension citext add function ${name}`)

  test('that has a function of the kernel from before does not take the triggers along', async () => {
    await plant(CHAIN)
    const dataSource = await migrated()
    expect(await members()).toEqual([])
    await attack('drop extension citext cascade')
    expect(await triggers()).toBe(6)
    expect((await generate(dataSource)).up).toEqual([])
  })
  test('that has the function of the text from before is refused, and nothing is made', async () => {
    await plant(TEXT)
    await expect(migrate(await open())).rejects.toMatchObject({ code: '2BP01' })
    expect((await client.query(`select to_regclass('page') as page`)).rows).toEqual([{ page: null }])
  })
  test('that has a function of the kernel is refused, where the role that migrates may not take it out', async () => {
    await plant(CHAIN)
    await client.query(`grant ${quote(attacker)} to ${quote(owner)}; alter function ${CHAIN} owner to ${quote(owner)};
      revoke ${quote(attacker)} from ${quote(owner)}`)
    await expect(migrate(await openAs(owner))).rejects.toMatchObject({ code: '42501' })
  })
  test('does not keep a trigger either where the migrating role may make no temporary tables', async () => {
    const dataSource = await migrated(openAs(owner))
    await client.query(`alter trigger unique_text_page__url_settle_delete on page depends on extension citext;
      do $$ begin execute format('revoke temporary on database %I from public', current_database()); end $$`)
    await migrate(dataSource)
    await client.query('drop extension citext cascade')
    expect(await triggers()).toBe(6)
  })
  test.each([
    ['a function of the kernel as its member', `alter extension citext add function ${CHAIN}`],
    ['the function of the text as its member', `alter extension citext add function ${TEXT}`],
    ['a function of the kernel that depends on it', `alter function ${CHAIN} depends on extension citext`],
    ['the function of the text that depends on it', `alter function ${TEXT} depends on extension citext`],
    [
      'a trigger that depends on it',
      'alter trigger unique_text_page__url_settle_delete on page depends on extension citext',
    ],
  ])('that got %s stops no operation, and what is generated takes it out', async (_, change) => {
    const dataSource = await migrated()
    await client.query(change)
    expect(await findOrCreate(dataSource.manager, Page, { url: 'x' })).toMatchObject({ created: true })
    await migrate(dataSource)
    expect((await generate(dataSource)).up).toEqual([])
    await client.query('drop extension citext cascade')
    expect(await triggers()).toBe(6)
    expect(await installed()).toEqual(ALL.map(() => right))
  })
})

describe('a role that is no superuser', () => {
  test('makes, changes and removes the guards of its own tables', async () => {
    const dataSource = await openAs(owner)
    const { down } = await migrate(dataSource)
    const own = { ...right, owner: quote(owner) }
    expect(await installed()).toEqual(ALL.map(() => own))
    await client.query(`alter function ${TEXT} reset all`)
    await migrate(dataSource)
    expect((await generate(dataSource)).up).toEqual([])
    expect(await findOrCreate(dataSource.manager, Page, { url: 'x' })).toMatchObject({ created: true })
    await runAll(dataSource, down)
    expect(await installed()).toEqual([])
  })
  test('drops its schema beside what another role left without a table', async () => {
    const dataSource = await migrated(openAs(owner))
    await attack(`create function left_over() returns trigger language plpgsql as ${literal(await bodyOf(TEXT))}`)
    await dataSource.dropDatabase()
    const { rows } = await client.query(
      `select p.proname as name from pg_proc as p where p.pronamespace = 'public'::regnamespace`,
    )
    expect(rows).toEqual([{ name: 'left_over' }])
  })
  test.each([
    ['has arguments', 'create function work(integer) returns integer language sql as'],
    ['makes no row', 'create function work(integer, text) returns void language sql as'],
  ])('that drops the schema drops no function by the name of a marked one that %s', async (_, create) => {
    const dataSource = await open()
    await client.query(`create function work() returns integer language sql as 'select 1'; set role ${quote(attacker)};
      ${create} $$-- typeorm-unique-text guard\nselect 1$$; reset role`)
    await dataSource.dropDatabase()
    expect((await client.query(`select from pg_proc where proname = 'work'`)).rowCount).toBe(2)
  })
  test('drops its schema beside a marked function that an extension needs', async () => {
    await client.query(`create extension if not exists citext; create function kept() returns trigger language plpgsql as
      $$-- typeorm-unique-text guard\nbegin return new; end$$; alter extension citext add function kept()`)
    await (await open()).dropDatabase()
    expect((await client.query(`select from pg_proc where proname = 'kept'`)).rowCount).toBe(1)
  })
  test('cannot take over the guard of a table that it may write', async () => {
    await migrate(await open())
    await client.query(`grant all on all tables in schema public to ${quote(attacker)}`)
    await client.query(`alter function ${TEXT} reset all`)
    await expect(migrate(await openAs(attacker))).rejects.toMatchObject({ code: '42501' })
  })
})

test('what default privileges grant is revoked', async () => {
  await client.query(`alter default privileges grant execute on functions to public, ${quote(attacker)}`)
  try {
    await migrate(await open())
    expect(await installed()).toEqual(ALL.map(() => right))
  } finally {
    await client.query(`alter default privileges revoke execute on functions from ${quote(attacker)}`)
  }
})

test('who may execute a function stops no operation, and is mended by what is generated, both ways', async () => {
  const dataSource = await migrated()
  await client.query(`grant execute on all functions in schema public to public, ${quote(attacker)}`)
  expect(await findOrCreate(dataSource.manager, Page, { url: 'x' })).toMatchObject({ created: true })
  const { down } = await migrate(dataSource)
  expect(await installed()).toEqual(ALL.map(() => right))
  expect((await generate(dataSource)).up).toEqual([])
  await runAll(dataSource, down)
  expect(await installed()).toEqual(ALL.map(() => right))
})

describe('what an untrusted role owns', () => {
  const EVIL = `create or replace function ${TEXT} returns trigger language plpgsql as 'begin /* evil */ return new; end'`

  test('and puts on the table with a forged note steers no migration', async () => {
    const dataSource = await migrated()
    const body = await bodyOf(TEXT)
    const forged = body.replace('"index":"', '"index":"other ').replace('md5', 'sha256')
    expect(forged).not.toBe(body)
    await client.query('revoke all on page from public')
    await client.query(`grant trigger on page to ${quote(attacker)}`)
    await attack(
      `create function forged() returns trigger language plpgsql as $forged$${forged}$forged$`,
      'create trigger forged after insert on page for each row execute function forged()',
    )
    const { up, down } = await generate(dataSource)
    expect(up).toEqual(['DROP TRIGGER IF EXISTS "forged" ON "page"'])
    expect(down).toEqual([expect.stringMatching(/^CREATE TRIGGER forged /)])
  })
  test('does not come back as the work of the owner', async () => {
    const dataSource = await migrated()
    await client.query(`alter function ${TEXT} owner to ${quote(attacker)}`)
    await attack(EVIL)
    const { up, down } = await migrate(dataSource)
    expect([...up, ...down].join()).not.toContain('evil')
    await runAll(dataSource, down)
    expect(await installed()).toEqual(ALL.map(() => right))
    await migrate(dataSource)
    expect(await findOrCreate(dataSource.manager, Page, { url: 'x' })).toMatchObject({ created: true })
  })
})

test('a table that changed hands is drift', async () => {
  const dataSource = await migrated()
  await client.query(`alter table page owner to ${quote(owner)}`)
  const found = findOrCreate(dataSource.manager, Page, { url: 'x' })
  await expect(found).rejects.toBeInstanceOf(SchemaDriftError)
  await expect(found).rejects.toThrow(/does not belong to the owner of the table/)
})

test.each([
  ['the owner of the table', `alter table page owner to ${quote(owner)}`],
  ['the owner of a function of the kernel', `alter function ${CHAIN} owner to ${quote(attacker)}`],
  ['SECURITY DEFINER of the kernel', `alter function ${CHAIN} security invoker`],
  ['the search_path of the kernel', `alter function ${CHAIN} set search_path to public`],
  ['a setting that is gone', `alter function ${CHAIN} reset enable_seqscan`],
])('%s that differs is mended by what is generated, both ways', async (_, change) => {
  const whose = change.includes('alter table') ? { ...right, owner: quote(owner) } : right
  const dataSource = await migrated()
  await client.query(change)
  const { up, down } = await migrate(dataSource)
  expect(up).not.toEqual([])
  expect(await installed()).toEqual(ALL.map(() => whose))
  expect((await generate(dataSource)).up).toEqual([])
  expect(await findOrCreate(dataSource.manager, Page, { url: 'x' })).toMatchObject({ created: true })
  await runAll(dataSource, down)
  expect((await generate(dataSource)).up.length).toBeLessThanOrEqual(14)
  await migrate(dataSource)
  expect(await installed()).toEqual(ALL.map(() => whose))
})

/** All tables of a schema share the functions of the kernel, which run as the owner of one of them. */
describe('a table of another owner in the same schema', () => {
  const Other = entity('Other', { url: text() })
  const openBoth = async (): Promise<DataSource> => await db.dataSource([Page, Other], { synchronize: false })

  test('is refused by the migration, which tells what to do, and the first one works on', async () => {
    const dataSource = await migrated()
    await client.query(`create table other (like page); alter table other owner to ${quote(owner)}`)
    await expect(migrate(await openBoth())).rejects.toMatchObject({
      code: '55000',
      message: 'table other and function unique_text_chain_v1(), which its triggers would run, have different owners',
      hint: 'Give them one owner, or put one of them into another schema.',
    })
    expect(await installed()).toEqual(ALL.map(() => right))
    expect(await findOrCreate(dataSource.manager, Page, { url: 'x' })).toMatchObject({ created: true })
  })
  test('has a kernel of its own in another schema', async () => {
    await client.query(`drop schema if exists elsewhere cascade; create schema elsewhere`)
    await client.query(`grant usage, create on schema elsewhere to ${quote(owner)}`)
    await migrate(await open())
    const elsewhere = await db.dataSource([Page], { synchronize: false, schema: 'elsewhere' })
    await migrate(elsewhere)
    await client.query(`alter table elsewhere.page owner to ${quote(owner)}`)
    await migrate(elsewhere)
    const { rows } = await client.query(
      `select distinct pronamespace::regnamespace::text as schema, proowner::regrole::text as owner from pg_proc
        where proname ~ '^unique_text_' order by 1`,
    )
    expect(rows).toEqual([
      { schema: 'elsewhere', owner: quote(owner) },
      { schema: 'public', owner: 'postgres' },
    ])
    await client.query('drop schema elsewhere cascade')
  })
})
