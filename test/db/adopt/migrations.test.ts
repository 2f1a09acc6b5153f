import {
  Column,
  Entity,
  type MigrationInterface,
  PrimaryColumn,
  PrimaryGeneratedColumn,
  type QueryRunner,
} from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, UniqueText } from '../../../src'
import { adopt } from '../../../src/adopt'
import { trim } from '../../../src/text'
import { Name, UniqueName, type UniqueNameOptions } from '../../../src/names'
import { NumberWithin, type NumberWithinOptions } from '../../../src/numbers'
import { useDatabase } from '../../support/database'
import { column, entity, text, toOne } from '../../support/entity'
import { generate, migrate } from '../../support/generated'
import { type Entityish, fillTable, pageOf } from './stage'

const db = useDatabase({ wrapped: true })
const Page = pageOf({})
const client = db.useClient({ emptied: true })

/** More than a migration takes; without hashes they are quickly made. */
async function fillLarge(): Promise<void> {
  await fillTable(client, 0)
  await client.query(`insert into page (url) select 'text ' || i from generate_series(1, 100001) as i`)
}

test('a migration refuses a large table at once, with the command to run', async () => {
  await fillLarge()
  const dataSource = await db.dataSource([Page], { synchronize: false })
  const failure: unknown = await migrate(dataSource).catch((error: unknown) => error)
  expect(String(failure)).toMatch(
    /for more than 5 seconds.*typeorm-unique-text adopt -d ormconfig\.ts --entity Page\.url/,
  )
  const { up } = await generate(dataSource)
  // Nothing was changed, and only its own function comes before it: also where a migration has no transaction.
  expect(up[0]).toMatch(/^-- typeorm-unique-text: .*"unique_text_refuse_large_v1"\('"page"'.*ALTER TABLE/s)
})

test('the limit is a time: a few rows of long texts are refused, too', async () => {
  await fillTable(client, 0)
  await client.query('alter table page alter column url set storage external')
  const fill = async (rows: number): Promise<unknown> =>
    await client.query(`insert into page (url) select i || repeat('x', 1000000) from generate_series(1, ${rows}) as i`)
  await fill(130)
  const dataSource = await db.dataSource([Page], { synchronize: false })
  await expect(migrate(dataSource)).rejects.toThrow(/for more than 5 seconds/)
  await client.query('truncate page')
  await fill(50)
  await migrate(dataSource)
})

test('the size is asked before the first lock, and a lock is not awaited for ever', async () => {
  const Plain = entity('Plain', { url: column('text') }, { name: 'one' })
  const PlainVisit = entity('PlainVisit', { one: toOne(() => Plain), url: column('text') }, { name: 'visit' })
  const One = entity('One', { url: text() })
  const Visit = entity('Visit', { one: toOne(() => One), url: text() })
  await db.dataSource([Plain, PlainVisit])
  const dataSource = await db.dataSource([One, Visit], { synchronize: false })
  const { up } = await generate(dataSource)
  const found = /"unique_text_refuse_large_v1"\('"\w+"|concat\('LOCK TABLE /g
  const refused = ['one', 'visit'].map((table) => `"unique_text_refuse_large_v1"('"${table}"`)
  expect(up.join(';').match(found)).toEqual([...refused, `concat('LOCK TABLE `])
  const settings: unknown[] = []
  for (const own of ['0', '7s']) {
    await dataSource
      .transaction(async (manager) => {
        await manager.query(`set local lock_timeout = '${own}'`)
        for (const statement of up) await manager.query(statement)
        settings.push(...(await manager.query('show lock_timeout')))
        await manager.query('set constraints all immediate')
        throw new Error('rolled back')
      })
      .catch(() => {})
  }
  expect(settings).toEqual([{ lock_timeout: '5s' }, { lock_timeout: '7s' }])
})

test('a migration of another declaration refuses a large table too, and leaves the guard', async () => {
  await db.dataSource([Page])
  await client.query(
    `insert into page (url, "urlHash") select 'text ' || i, md5('text ' || i)::uuid from generate_series(1, 100001) as i`,
  )
  const dataSource = await db.dataSource([pageOf({ digest: 'sha256' })], { synchronize: false })
  expect(String(await migrate(dataSource).catch((error: unknown) => error))).toMatch(
    /for more than 5 seconds.*add a property with the new declaration.*changing-a-declaration/,
  )
  const { rows } = await client.query(
    `select count(*)::int as n from pg_trigger where tgrelid = 'page'::regclass and not tgisinternal`,
  )
  expect(rows).toEqual([{ n: 6 }])
})

function userOf(options: Partial<UniqueNameOptions>): Entityish {
  @Entity({ name: 'users' })
  class User {
    @PrimaryGeneratedColumn('identity') id!: number
    @UniqueName({ namespace: 'handle', ...options }) handle!: string
  }
  return User
}

function commentOf(options: NumberWithinOptions): Entityish {
  @Entity({ name: 'comment' })
  class Comment {
    @PrimaryGeneratedColumn('identity') id!: number
    @Column({ type: 'integer' }) post!: number
    @NumberWithin(options) number!: number
  }
  return Comment
}

const WORKS = [
  {
    kind: 'names',
    table: 'users',
    columns: 'handle text not null',
    rows: `users (handle) select 'name ' || i`,
    first: userOf({}),
    changed: userOf({ namespace: 'login' }),
  },
  {
    kind: 'numbers',
    table: 'comment',
    columns: 'post integer not null',
    rows: 'comment (post) select i % 7',
    first: commentOf({ scope: ['post'] }),
    changed: commentOf({}),
  },
] as const

describe.each(WORKS)('of $kind', ({ kind, table, columns, rows, first, changed }) => {
  const open = async (entity: Entityish, extra = {}) =>
    await db.dataSource([entity, ...(kind === 'names' ? [Name] : [])], { synchronize: false, extra })
  const fill = async (count: number): Promise<unknown> =>
    await client.query(`insert into ${rows} from generate_series(1, ${count}) as i`)
  const refused = new RegExp(`for more than 5 seconds.*their ${kind}`)

  beforeEach(async () => {
    await client.query(`create table ${table} (id integer generated by default as identity primary key, ${columns})`)
  })

  test('a first migration refuses a large table before it changes it, and says how it runs', async () => {
    await fill(100_001)
    const dataSource = await open(first)
    const failure = String(await migrate(dataSource).catch((error: unknown) => error))
    expect(failure).toMatch(refused)
    expect(failure).not.toContain('typeorm-unique-text adopt')
    const { up } = await generate(dataSource)
    const onTable = up.filter((one) => one.includes(`"${table}"`))
    expect(onTable[0]).toMatch(/SELECT "unique_text_refuse_large_v1"\('"\w+"'.*"unique_text_attach_/s)
  })

  test('a changed declaration refuses a large table too', async () => {
    await migrate(await open(first))
    await client.query('set session_replication_role = replica')
    await client.query(kind === 'names' ? 'select' : 'alter table comment alter number drop not null')
    await fill(100_001)
    await client.query('set session_replication_role = origin')
    const dataSource = await open(changed)
    const failure = String(await migrate(dataSource).catch((error: unknown) => error))
    expect(failure).toMatch(refused)
    expect(failure).not.toContain('typeorm-unique-text adopt')
  })

  test('what the refusal advises is done as it says, and a small table needs nothing', async () => {
    await fill(100_001)
    const failure = String(await migrate(await open(first)).catch((error: unknown) => error))
    const [, options] = /\(extra: \{ options: '([^']+)' \} of the DataSource\)/u.exec(failure) ?? []
    expect(options).toBe('-c unique_text.maintenance=on')
    const dataSource = await open(first, { options })
    await migrate(dataSource)
    expect((await generate(dataSource)).up).toEqual([])
    await client.query(`truncate ${table}`)
    await migrate(await open(changed))
  })
})

test('a name in a new column changes no row of a large table, and is not refused', async () => {
  await client.query('create table users (id integer generated by default as identity primary key)')
  await client.query('insert into users select from generate_series(1, 100001)')
  const dataSource = await db.dataSource([userOf({ nullable: true }), Name], { synchronize: false })
  await migrate(dataSource)
  expect((await generate(dataSource)).up).toEqual([])
})

test('a maintenance window is told by a setting', async () => {
  await fillLarge()
  const extra = { options: '-c unique_text.maintenance=on' }
  const dataSource = await db.dataSource([Page], { synchronize: false, extra })
  await migrate(dataSource)
  expect((await generate(dataSource)).up).toEqual([])
})

test('a large partitioned table is refused by adopt, and migrated in a maintenance window', async () => {
  await client.query(`create table page (id integer generated by default as identity, tenant integer not null,
    url text not null, primary key (id, tenant)) partition by list (tenant)`)
  for (const tenant of [1, 2])
    await client.query(`create table page_${tenant} partition of page for values in (${tenant})`)
  await client.query(
    `insert into page (tenant, url) select 1 + i % 2, 'text ' || i from generate_series(1, 100001) as i`,
  )
  @Entity({ name: 'page' })
  class Page {
    @PrimaryGeneratedColumn('identity') id!: number
    @PrimaryColumn({ type: 'integer' }) tenant!: number
    @UniqueText({ scope: ['tenant'] }) url!: string
  }
  const dataSource = await db.dataSource([Page], { synchronize: false })
  await expect(migrate(dataSource)).rejects.toThrow(/for more than 5 seconds.*unique_text\.maintenance/)
  // The partitions are small, and what they hold together counts.
  await client.query(`truncate page; alter table page alter url set storage external`)
  for (const tenant of [1, 2])
    await client.query(
      `alter table page_${tenant} alter url set storage external;
       insert into page (tenant, url) select ${tenant}, i || repeat('x', 1000000) from generate_series(1, 65) as i`,
    )
  await expect(migrate(dataSource)).rejects.toThrow(/for more than 5 seconds/)
  await client.query(`truncate page; insert into page (tenant, url) values (2, 'text 3')`)
  await expect(adopt(dataSource, Page)).rejects.toThrow(/is partitioned.*with unique_text\.maintenance on/)
  await migrate(
    await db.dataSource([Page], { synchronize: false, extra: { options: '-c unique_text.maintenance=on' } }),
  )
  expect((await generate(dataSource)).up).toEqual([])
  const created = [2, 1].map(async (tenant) => {
    const found = await findOrCreate(dataSource.manager, Page, { tenant, url: 'text 3' })
    return found.created
  })
  expect(await Promise.all(created)).toEqual([false, true])
})

test('a migration sees that a killed client leaves no statement behind', async () => {
  await fillTable(client, 0)
  const dataSource = await db.dataSource([Page], { synchronize: false })
  const { up } = await generate(dataSource)
  await dataSource.transaction(async (manager) => {
    for (const statement of up) await manager.query(statement)
    expect(await manager.query('show client_connection_check_interval')).toEqual([
      { client_connection_check_interval: '2s' },
    ])
  })
  expect(await dataSource.query('show client_connection_check_interval')).toEqual([
    { client_connection_check_interval: '0' },
  ])
})

function migrationOf(name: string, up: readonly string[] | ((queryRunner: QueryRunner) => Promise<void>)) {
  return class {
    name = name
    async up(queryRunner: QueryRunner): Promise<void> {
      if (typeof up === 'function') return await up(queryRunner)
      for (const one of up) await queryRunner.query(one)
    }
    async down(): Promise<void> {}
  }
}

test('a migration with other work, or behind a pending one, is not marked as run', async () => {
  await fillTable(client, 0)
  const { up } = await generate(await db.dataSource([Page], { synchronize: false }))
  const faked = async (...migrations: (new () => MigrationInterface)[]): Promise<unknown> => {
    const dataSource = await db.dataSource([Page], { synchronize: false, migrations })
    return await adopt(dataSource, Page, { fake: 'Adds1795255200005' }).catch((error: unknown) => error)
  }
  const adds = (more: readonly string[]) => migrationOf('Adds1795255200005', [...up, ...more])
  const other = await faked(adds(['alter table "page" add "rank" integer']))
  expect(String(other)).toMatch(/does other work/)
  const joined = await faked(migrationOf('Adds1795255200005', [`${up.join(';\n')};\nupdate "page" set "title" = 'x'`]))
  expect(String(joined)).toMatch(/does other work/)
  const code = await faked(migrationOf('Adds1795255200005', async (runner) => await runner.dropColumn('page', 'title')))
  expect(String(code)).toMatch(/does other work/)
  const behind = await faked(adds([]), migrationOf('Before1795255200004', ['select 1']))
  expect(String(behind)).toMatch(/not the first.*Before1795255200004, Adds/)
  expect(await client.query(`select from pg_attribute where attname in ('urlHash', 'rank')`)).toMatchObject({
    rowCount: 0,
  })
  expect(await faked(adds([]))).toMatchObject({ step: 'done' })
})

test('a migration that was generated elsewhere is marked as run', async () => {
  await fillTable(client, 0)
  const source = await db.dataSource([Page], { synchronize: false })
  const { up } = await generate(source)
  const AddsText1795255200000 = migrationOf('AddsText1795255200000', up)
  const dataSource = await db.dataSource([Page], { synchronize: false, migrations: [AddsText1795255200000] })
  await client.query(`insert into page (url) values ('one'), ('two')`)
  await expect(adopt(dataSource, Page, { fake: 'Other1' })).rejects.toThrow(/AddsText1795255200000/)
  await adopt(dataSource, Page, { fake: 'AddsText1795255200000' })
  expect(await dataSource.runMigrations()).toEqual([])
  expect((await generate(dataSource)).up).toEqual([])
  // The next one, generated there too, calls what this one has created.
  const next = await generate(await db.dataSource([pageOf({ digest: 'sha256' })], { synchronize: false }))
  expect(next.up.filter((one) => one.includes('unique_text_fill_v1'))).toHaveLength(1)
  expect(next.up.join()).not.toContain('CREATE FUNCTION')
})

test('a migration with all that one of a text can have is marked as run, and one that fills another text is not', async () => {
  await fillTable(client, 0)
  await client.query('alter table page alter url drop not null')
  const Trimmed = pageOf({ normalize: trim() })
  const { up } = await generate(await db.dataSource([Trimmed], { synchronize: false }))
  expect(up.join()).toMatch(/SAVEPOINT unique_text.*23502.*"unique_text_refuse_rows_v1".*"unique_text_fill_v1"/s)
  const faked = async (statements: readonly string[]): Promise<unknown> => {
    const migrations = [migrationOf('Trims1795255200006', statements)]
    const dataSource = await db.dataSource([Trimmed], { synchronize: false, migrations })
    return await adopt(dataSource, Trimmed, { fake: 'Trims1795255200006' }).catch((error: unknown) => error)
  }
  const other = up.map((one) => one.replaceAll(/"IDX_\w+"/gu, '"other"').replaceAll('"urlHash', '"otherHash'))
  expect(String(await faked(other))).toMatch(/does other work/)
  expect(await faked(up)).toMatchObject({ step: 'done' })
})

test('what the refusal of a large table advises is done as it says, and a migration behind it runs too', async () => {
  await fillLarge()
  const source = await db.dataSource([Page], { synchronize: false })
  const { up } = await generate(source)
  const migrations = [
    migrationOf('AddsText1795255200001', up),
    migrationOf('Unrelated1795255200002', ['create table unrelated (id integer)']),
  ]
  const dataSource = await db.dataSource([Page], { synchronize: false, migrations })
  const failure = String(await dataSource.runMigrations().catch((error: unknown) => error))
  expect(failure).toContain(`typeorm-unique-text adopt -d ormconfig.ts --entity ${Page.name}.url --fake NAME`)
  await adopt(dataSource, Page, { fake: 'AddsText1795255200001' })
  expect(await dataSource.runMigrations()).toMatchObject([{ name: 'Unrelated1795255200002' }])
  expect(await client.query('select from unrelated')).toMatchObject({ rowCount: 0 })
  expect((await generate(dataSource)).up).toEqual([])
  await client.query('drop table unrelated')
})
