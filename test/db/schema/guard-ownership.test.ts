import { createHash } from 'node:crypto'
import type { DataSource } from 'typeorm'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, SchemaDriftError } from '../../../src'
import { literal, quote } from '../../../src/sql/identifier'
import { useDatabase } from '../../support/database'
import { entity, text } from '../../support/entity'
import { CHAIN as CHAIN_NAME } from '../../support/guarded-table'
import { generate, migrate, runAll } from '../../support/generated'
import { Page } from '../../support/entities'

const db = useDatabase()
// Roles belong to the whole server, so their names hold the database's.
const suffix = createHash('sha256').update(db.url).digest('hex').slice(0, 8)
const attacker = `T attacker ${suffix}`
const owner = `T owner ${suffix}`
const TEXT = 'unique_text_page__url()'
const CHAIN = `${CHAIN_NAME}()`
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

/** The functions that the triggers of the table run. */
async function installed(): Promise<Installed[]> {
  const { rows } = await client.query<Installed>(
    `select p.proowner::regrole::text as owner, p.prosecdef as definer,
            exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
                     where a.grantee <> p.proowner) as others
       from pg_proc as p where p.pronamespace = 'public'::regnamespace
        and p.oid in (select tgfoid from pg_trigger where tgrelid = to_regclass('page')) order by p.proname`,
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
  const { rows } = await client.query<{ name: string }>(
    `select distinct tgfoid::regprocedure::text as name from pg_trigger where tgrelid = 'page'::regclass`,
  )
  await client.query(`set role ${quote(attacker)}`)
  for (const { name } of rows) {
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
  test.each(ALL)('is not run, and stays as it is: %s', async (name) => {
    const dataSource = await open()
    const { up } = await generate(dataSource)
    await hold(name)
    await runAll(dataSource, up)
    expect(await installed()).toEqual(ALL.map(() => right))
    const { rows } = await client.query(
      `select proowner::regrole::text as owner from pg_proc where oid = $1::regprocedure`,
      [name],
    )
    expect(rows).toEqual([{ owner: quote(attacker) }])
    expect((await generate(dataSource)).up).toEqual([])
    expect(await findOrCreate(dataSource.manager, Page, { url: 'x' })).toMatchObject({ created: true })
  })
})

/** A role with CREATE on the database owns a trusted extension, and may add what it owns to it. */
describe('an extension of another role', () => {
  const triggers = async (): Promise<number> => {
    const { rows } = await client.query('select from pg_trigger where tgrelid = $1::regclass', ['page'])
    return rows.length
  }
  beforeEach(async () => {
    await client.query(`drop extension if exists citext cascade;
      do $$ begin execute format('grant create on database %I to ${quote(attacker)}', current_database()); end $$`)
    await attack('create extension citext schema public')
  })
  const plant = (name: string): Promise<void> => attack(harmless(name), `alter extension citext add function ${name}`)

  test.each(ALL)('that has a function of the name from before does not take the triggers along: %s', async (name) => {
    await plant(name)
    const dataSource = await migrated()
    await attack('drop extension citext cascade')
    expect(await triggers()).toBe(6)
    expect((await generate(dataSource)).up).toEqual([])
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

  test.each(['main', 'other'])('and puts on the table as a forged %s trigger steers no migration', async (which) => {
    const dataSource = await migrated()
    const { rows } = await client.query<{ argument: string }>(
      `select convert_from(substring(tgargs from 1 for octet_length(tgargs) - 1), 'UTF8') as argument
         from pg_trigger where tgrelid = 'page'::regclass and tgtype = 23`,
    )
    const argument = rows[0]?.argument ?? ''
    const forged =
      which === 'main' ? argument.replace('"index": "', '"index": "other ') : '{"kind": "text", "name": "url"}'
    expect(forged).not.toBe(argument)
    await client.query(`grant trigger on page to ${quote(attacker)}`)
    await attack(
      harmless('unique_text_forged()'),
      `create trigger forged after insert on page for each row execute function unique_text_forged(${literal(forged)})`,
    )
    expect(await findOrCreate(dataSource.manager, Page, { url: 'x' })).toMatchObject({ created: true })
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

/** The tables of one owner share the function of chains, which runs as that owner. */
describe('a table of another owner in the same schema', () => {
  const Other = entity('Other', { url: text() })

  test('has functions of its own', async () => {
    await migrated()
    await client.query(`create table other (like page including identity); alter table other owner to ${quote(owner)}`)
    const dataSource = await db.dataSource([Page, Other], { synchronize: false })
    await migrate(dataSource)
    expect(await installed()).toEqual(ALL.map(() => right))
    const { rows } = await client.query(
      `select distinct proowner::regrole::text as owner from pg_trigger join pg_proc as p on p.oid = tgfoid
        where tgrelid = 'other'::regclass`,
    )
    expect(rows).toEqual([{ owner: quote(owner) }])
    expect((await generate(dataSource)).up).toEqual([])
    for (const one of [Page, Other]) {
      expect(await findOrCreate(dataSource.manager, one, { url: 'x' })).toMatchObject({ created: true })
    }
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
        where proname ~ '^unique_text_' and prorettype = 'trigger'::regtype order by 1`,
    )
    expect(rows).toEqual([
      { schema: 'elsewhere', owner: quote(owner) },
      { schema: 'public', owner: 'postgres' },
    ])
    await client.query('drop schema elsewhere cascade')
  })
})
