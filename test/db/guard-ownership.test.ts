import { createHash } from 'node:crypto'
import type { Client } from 'pg'
import { type DataSource, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, SchemaDriftError, UniqueText } from '../../src'
import { literal, quote } from '../../src/sql/identifier'
import { useDatabase } from '../support/database'
import { generate, migrate, runAll } from '../support/generated'

const db = useDatabase()
// Roles belong to the whole server, so their names hold the database's.
const suffix = createHash('sha256').update(db.url).digest('hex').slice(0, 8)
const attacker = `T attacker ${suffix}`
const owner = `T owner ${suffix}`
const PLACE = '"unique_text_page.url_place"()'
const SETTLE = '"unique_text_page.url_settle"()'

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText() url!: string
}

let client: Client
beforeAll(async () => {
  client = await db.client()
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

async function comments(): Promise<string> {
  const { rows } = await client.query<{ comment: string }>(
    `select obj_description(oid) as comment from pg_proc where oid = to_regprocedure($1)`,
    [PLACE],
  )
  return rows[0]?.comment ?? ''
}

const right = { owner: 'postgres', definer: true, others: false }

test("a function that another role made before the migration does not stay that role's", async () => {
  await client.query(`set role ${quote(attacker)}`)
  for (const name of [PLACE, SETTLE]) {
    await client.query(`create function ${name} returns trigger language plpgsql as 'begin return new; end'`)
    await client.query(`grant execute on function ${name} to public`)
  }
  await client.query('reset role')
  await migrate(await open())
  expect(await installed()).toEqual([right, right])
  await client.query(`set role ${quote(attacker)}`)
  const replaced = client.query(`alter function ${PLACE} security invoker`)
  await expect(replaced).rejects.toMatchObject({ code: '42501' })
})

describe('a function that another role holds on to with a trigger of its own', () => {
  const hold = async (): Promise<void> => {
    await client.query(`set role ${quote(attacker)}`)
    await client.query(`create function ${PLACE} returns trigger language plpgsql as 'begin return new; end'`)
    await client.query('create table bait (id integer)')
    await client.query(`create trigger hold after insert on bait for each row execute function ${PLACE}`)
    await client.query('reset role')
  }
  test('is refused by a migration that does not expect it, and nothing is made', async () => {
    const dataSource = await open()
    const { up } = await generate(dataSource)
    await hold()
    await expect(runAll(dataSource, up)).rejects.toMatchObject({ code: '2BP01' })
    const { rows } = await client.query(`select to_regclass('page') as page`)
    expect(rows).toEqual([{ page: null }])
  })
  test('gets another name from one that is generated then', async () => {
    await hold()
    const dataSource = await open()
    await migrate(dataSource)
    expect(await installed()).toEqual([right, { owner: quote(attacker), definer: false, others: true }, right])
    expect((await generate(dataSource)).up).toEqual([])
  })
})

describe('a role that is no superuser', () => {
  const openAs = async (role: string): Promise<DataSource> =>
    await db.dataSource([Page], {
      synchronize: false,
      extra: { options: `-c role=${role.replaceAll(' ', String.raw`\ `)}` },
    })

  test('makes, changes and removes the guards of its own tables', async () => {
    const dataSource = await openAs(owner)
    const { down } = await migrate(dataSource)
    const own = { ...right, owner: quote(owner) }
    expect(await installed()).toEqual([own, own])
    await client.query(`alter function ${PLACE} reset all`)
    await migrate(dataSource)
    expect((await generate(dataSource)).up).toEqual([])
    expect(await findOrCreate(dataSource.manager, Page, { url: 'x' })).toMatchObject({ created: true })
    await runAll(dataSource, down)
    expect(await installed()).toEqual([])
  })
  test('cannot take over the guard of a table that it may write', async () => {
    await migrate(await open())
    await client.query(`grant all on all tables in schema public to ${quote(attacker)}`)
    await client.query(`alter function ${PLACE} reset all`)
    await expect(migrate(await openAs(attacker))).rejects.toMatchObject({ code: '42501' })
  })
})

test('what default privileges grant is revoked', async () => {
  await client.query(`alter default privileges grant execute on functions to public, ${quote(attacker)}`)
  try {
    await migrate(await open())
    expect(await installed()).toEqual([right, right])
  } finally {
    await client.query(`alter default privileges revoke execute on functions from ${quote(attacker)}`)
  }
})

test('who may execute a function stops no operation, and is mended by what is generated, both ways', async () => {
  const dataSource = await open()
  await migrate(dataSource)
  await client.query(`grant execute on all functions in schema public to public, ${quote(attacker)}`)
  expect(await findOrCreate(dataSource.manager, Page, { url: 'x' })).toMatchObject({ created: true })
  const { down } = await migrate(dataSource)
  expect(await installed()).toEqual([right, right])
  expect((await generate(dataSource)).up).toEqual([])
  await runAll(dataSource, down)
  expect(await installed()).toEqual([right, right])
})

describe('what an untrusted role owns', () => {
  const EVIL = `create or replace function ${PLACE} returns trigger language plpgsql as 'begin /* evil */ return new; end'`

  test('and puts on the table with a forged comment steers no migration', async () => {
    const dataSource = await open()
    await migrate(dataSource)
    const forged = (await comments()).replace('"index":"', '"index":"other ').replace('md5', 'sha256')
    await client.query('revoke all on page from public')
    await client.query(`grant trigger on page to ${quote(attacker)}; set role ${quote(attacker)}`)
    await client.query(`create function forged() returns trigger language plpgsql as 'begin return new; end'`)
    await client.query(`comment on function forged() is ${literal(forged)}`)
    await client.query('create trigger forged after insert on page for each row execute function forged()')
    await client.query('reset role')
    const { up, down } = await generate(dataSource)
    expect(up).toEqual(['DROP TRIGGER IF EXISTS "forged" ON "page"'])
    expect(down).toEqual([expect.stringMatching(/^CREATE TRIGGER forged /)])
  })
  test('does not come back as the work of the owner', async () => {
    const dataSource = await open()
    await migrate(dataSource)
    await client.query(`alter function ${PLACE} owner to ${quote(attacker)}; set role ${quote(attacker)}`)
    await client.query(EVIL)
    await client.query('reset role')
    const { up, down } = await migrate(dataSource)
    expect([...up, ...down].join()).not.toContain('evil')
    await runAll(dataSource, down)
    expect(await installed()).toEqual([right, right])
    await migrate(dataSource)
    expect(await findOrCreate(dataSource.manager, Page, { url: 'x' })).toMatchObject({ created: true })
  })
})

describe.each([
  [
    'the body',
    `create or replace function ${PLACE} returns trigger language plpgsql security definer
    set enable_seqscan to off set search_path to pg_catalog, public, pg_temp as 'begin return new; end'`,
  ],
  ['the owner', `alter function ${PLACE} owner to ${quote(attacker)}`],
  ['the owner of the second function', `alter function ${SETTLE} owner to ${quote(attacker)}`],
  ['SECURITY DEFINER', `alter function ${PLACE} security invoker`],
  ['the search_path', `alter function ${PLACE} set search_path to public`],
  ['a setting that is gone', `alter function ${SETTLE} reset enable_seqscan`],
  ['a setting that came', `alter function ${SETTLE} set work_mem to '64kB'`],
  ['the owner of the table', `alter table page owner to ${quote(owner)}`],
])('%s', (_, change) => {
  const whose = change.includes('alter table') ? { ...right, owner: quote(owner) } : right

  test('that differs is drift, whatever the comment says', async () => {
    const dataSource = await open()
    await migrate(dataSource)
    await client.query(change)
    const drift = findOrCreate(dataSource.manager, Page, { url: 'x' })
    await expect(drift).rejects.toBeInstanceOf(SchemaDriftError)
    await expect(drift).rejects.toThrow(/guard "unique_text_page\.url_\w+" is (?:different \(.+\)|missing)/)
  })
  test('that differs is mended by what is generated, both ways', async () => {
    const dataSource = await open()
    await migrate(dataSource)
    await client.query(change)
    const { down } = await migrate(dataSource)
    expect(await installed()).toEqual([whose, whose])
    expect((await generate(dataSource)).up).toEqual([])
    expect(await findOrCreate(dataSource.manager, Page, { url: 'x' })).toMatchObject({ created: true })
    await runAll(dataSource, down)
    expect((await generate(dataSource)).up.length).toBeLessThanOrEqual(14)
    await migrate(dataSource)
    expect(await installed()).toEqual([whose, whose])
  })
})
