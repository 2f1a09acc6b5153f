import type { DataSource } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, SchemaDriftError } from '../../../src'
import { guardOf } from '../../../src/triggers/guard'
import { trim } from '../../../src/text'
import { textsOfTable } from '../../../src/registry/registry'
import { useDatabase } from '../../support/database'
import { entity, plain, text } from '../../support/entity'
import { doctor } from '../../../src/doctor'
import { fewHashes } from '../../support/digests'
import { generate, migrate, runAll } from '../../support/generated'
import { CHAIN } from '../../support/guarded-table'
import { install } from '../../support/releases'

const db = useDatabase()

const Page = entity('Page', { url: text(), title: plain() })

/** A release that starts: nothing of what it asks the database is known yet. */
const start = async (): Promise<DataSource> => await db.dataSource([Page], { synchronize: false })

/** Puts another release's function where that of this one stands; triggers, owner and settings stay. */
async function replace(dataSource: DataSource, name: string, change: (body: string) => string): Promise<void> {
  const sql = 'select prosrc as body from pg_proc where proname = $1'
  const [found] = await dataSource.query<{ body: string }[]>(sql, [name])
  const body = change(found?.body ?? '')
  expect(body).not.toBe(found?.body)
  await dataSource.query(
    `create or replace function ${name}() returns trigger language plpgsql security definer
       set enable_seqscan to off set row_security to off set search_path to pg_catalog, pg_temp as $other$${body}$other$`,
  )
}

const guardName = (dataSource: DataSource): string =>
  textsOfTable(dataSource.getMetadata(Page)).map(({ table }) => table.guard)[0] ?? ''

let before: DataSource
beforeEach(async () => {
  const client = await db.client()
  await client.query('drop schema public cascade; create schema public')
  before = await start()
  await migrate(before)
  await findOrCreate(before.manager, Page, { url: 'https://example.com/first' })
})

/** What a release that is running, and one that starts, must be able to do. */
async function works(dataSource: DataSource, path: string): Promise<void> {
  const { created } = await findOrCreate(dataSource.manager, Page, { url: `https://example.com/${path}` })
  const again = await findOrCreate(dataSource.manager, Page, { url: `https://example.com/${path}` })
  await dataSource.getRepository(Page).save({ url: `https://example.com/${path}/saved` })
  expect([created, again.created]).toEqual([true, false])
}

describe('other code in the database', () => {
  test.each(['of the chains', 'of the text'])('%s serves both releases, and a migration replaces it', async (what) => {
    const name = what === 'of the text' ? guardName(before) : CHAIN
    await replace(before, name, (body) => body.replace(/RETURN (NEW|NULL);/, 'PERFORM 1; RETURN $1;'))
    const after = await start()
    await works(after, 'function')
    const { up, down } = await generate(after)
    expect(Array.from(up.join('\n').matchAll(/^SELECT "unique_text_(\w+)_v1"/gm), ([, one]) => one)).toEqual(['attach'])
    await Promise.all([runAll(after, up), works(before, 'function/before')])
    await works(after, 'function/after')
    expect((await generate(after)).up).toEqual([])
    await runAll(after, down)
    expect((await generate(after)).up).toEqual([])
  })
})

/** Puts a declaration of another protocol into the main trigger, or another one. */
const declare = async (dataSource: DataSource, from: string, to: string): Promise<void> => {
  const [row] = await dataSource.query<{ changed: string }[]>(
    `with changed as (
       update pg_trigger set tgargs = decode(replace(encode(tgargs, 'escape'), $1, $2), 'escape')
        where tgrelid = 'page'::regclass and strpos(encode(tgargs, 'escape'), $1) > 0 returning 1)
     select count(*)::text as changed from changed`,
    [from, to],
  )
  expect(row?.changed).toBe('1')
}

describe('the protocol of what is installed', () => {
  const protocol = async (version: number, serves: number): Promise<void> => {
    await declare(before, '"protocol": 1', `"protocol": ${version}, "serves": ${serves}`)
  }

  test('a later one that serves this release is no drift', async () => {
    await protocol(2, 1)
    await works(await start(), 'served')
  })
  test('a later one that does not serve this release is told', async () => {
    await protocol(3, 2)
    const refused = works(await start(), 'not served')
    await expect(refused).rejects.toThrow(SchemaDriftError)
    await expect(refused).rejects.toThrow('it has protocol 3, and this release works with 1')
  })
  test('another library, which a later one makes that serves this release, is no drift', async () => {
    const [set] = textsOfTable(before.getMetadata(Page)).map(({ table }) => guardOf(table))
    await runAll(before, set ? install(set, 'next') : [])
    await works(await start(), 'another library')
  })
  test('a release that is running goes on, whatever is installed meanwhile', async () => {
    await works(before, 'running')
    await protocol(2, 1)
    await works(before, 'still running')
  })
})

test('another declaration is drift', async () => {
  await declare(before, '"protocol": 1', '"maxChainLength": 7, "protocol": 1')
  await expect(works(await start(), 'declared')).rejects.toThrow('it was made for another declaration')
})

test('both releases write at once while everything is replaced', async () => {
  const after = await start()
  const urls = Array.from({ length: 40 }, (_, n) => `https://example.com/at-once/${n % 20}`)
  const write = async (dataSource: DataSource): Promise<boolean[]> =>
    await Promise.all(urls.map(async (url) => (await findOrCreate(dataSource.manager, Page, { url })).created))
  const upgrade = async (): Promise<void> => {
    await replace(before, CHAIN, (body) => body.replace('RETURN NULL;', 'PERFORM 2; RETURN NULL;'))
    await replace(before, guardName(before), (body) => body.replace('RETURN NEW;', 'PERFORM 2; RETURN NEW;'))
    for (const statement of (await generate(after)).up) await after.query(statement)
  }
  const [one, other] = await Promise.all([write(before), write(after), upgrade()])
  expect([...one, ...other].filter(Boolean)).toHaveLength(20)
  expect(await after.getRepository(Page).count()).toBe(21)
})

const Crowded = entity('Crowded', { url: text({ digest: fewHashes(3) }), title: plain() })

test('no text is stored twice while two releases are installed in turns, with many connections of both', async () => {
  const first = await db.dataSource([Crowded], { synchronize: false, poolSize: 8 })
  await migrate(first)
  // Each asks the catalog when it comes: the one before the next release is installed, the other after.
  const later = await db.dataSource([Crowded], { synchronize: false, poolSize: 8 })
  await findOrCreate(first.manager, Crowded, { url: 'text 0' })
  const [set] = textsOfTable(first.getMetadata(Crowded)).map(({ table }) => guardOf(table))
  if (!set) throw new TypeError('There is one text.')
  const installed: string[] = []
  const put = async (release: 'this' | 'next'): Promise<void> => {
    await runAll(first, install(set, release))
    installed.push(release)
  }
  await put('next')
  await findOrCreate(later.manager, Crowded, { url: 'text 0' })
  const texts = Array.from({ length: 30 }, (_, n) => `text ${n}`)
  const write = async ({ manager }: DataSource, offset: number): Promise<void> => {
    for (let round = 0; round < 6; round += 1) {
      await Promise.all(
        texts.map(async (url, index) => {
          if ((index + round + offset) % 4 === 0) await manager.delete(Crowded, { url })
          else if ((index + round) % 4 === 1) await manager.query(UPSERT, [url])
          else await findOrCreate(manager, Crowded, { url })
        }),
      )
    }
  }
  const takeTurns = async (): Promise<void> => {
    for (let turn = 0; turn < 8; turn += 1) await put(turn % 2 === 0 ? 'this' : 'next')
  }
  await Promise.all([write(first, 0), write(later, 2), takeTurns()])
  expect(installed).toHaveLength(9)
  await put('this')
  expect(await duplicates(first)).toEqual([])
  const { findings } = await doctor(first)
  expect(findings.filter(({ severity }) => severity === 'error')).toEqual([])
})

const UPSERT = `insert into crowded (url) values ($1) on conflict do nothing`

const duplicates = async (dataSource: DataSource): Promise<unknown> =>
  await dataSource.query(`select url from crowded group by url having count(*) > 1`)

test('what a later release has made and this one can work with is known to a migration, which stays one statement', async () => {
  const Perhaps = entity('Page', { url: text({ normalize: trim(), nullable: true }), title: plain() })
  const Trimmed = entity('Page', { url: text({ normalize: trim() }), title: plain() })
  const client = await db.client()
  await client.query('drop schema public cascade; create schema public')
  const first = await db.dataSource([Trimmed], { synchronize: false })
  await migrate(first)
  await findOrCreate(first.manager, Trimmed, { url: 'a' })
  const sets = textsOfTable(first.getMetadata(Trimmed)).map(({ table }) => guardOf(table))
  for (const set of sets) await runAll(first, install(set, 'next'))
  const after = await db.dataSource([Perhaps], { synchronize: false })
  const { up } = await generate(after)
  expect(up).toHaveLength(1)
  await runAll(after, up)
  expect(await findOrCreate(after.manager, Perhaps, { url: ' a ' })).toMatchObject({ created: false })
})
