import crypto from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import { Column, DeleteDateColumn, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest'
import {
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  insertOrFail,
  UniqueText,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { sha256, type Digest } from '../../../src/text/digest'
import { declarationsOf } from '../../../src/registry/registry'
import { useDatabase } from '../../support/database'
import { generate, migrate, runAll } from '../../support/generated'
import { violations } from '../../support/guarded-table'

/** A database and a process in which nobody may make an MD5, as where FIPS 140 is enforced. */
const db = useDatabase()
const client = db.useClient()

const { hash, createHash } = crypto

beforeAll(async () => {
  for (const type of ['text', 'bytea']) {
    await client.query(`alter function pg_catalog.md5(${type}) rename to md5_as_it_was`)
    await client.query(
      `create function pg_catalog.md5(${type}) returns text language plpgsql immutable
        as $$ begin raise exception 'could not compute MD5 hash: unsupported'; end $$`,
    )
  }
  const refuse = (algorithm: string): void => {
    if (/^(?:rsa-)?md5$/i.test(algorithm)) throw new Error('error:0308010C:digital envelope routines::unsupported')
  }
  const replaced = {
    hash: (...args: Parameters<typeof hash>) => {
      refuse(args[0])
      return hash(...args)
    },
    createHash: (...args: Parameters<typeof createHash>) => {
      refuse(args[0])
      return createHash(...args)
    },
  }
  Object.assign(crypto, replaced)
  syncBuiltinESMExports()
})
afterAll(() => {
  Object.assign(crypto, { hash, createHash })
  syncBuiltinESMExports()
})
beforeEach(() => client.query('drop schema public cascade; create schema public'))

/** SHA-256, cut to two bits: texts collide. */
const twoBits: Digest = {
  ...sha256,
  name: 'sha256_two_bits',
  js: (text) => `\\x0${(parseInt(sha256.js(text).slice(-1), 16) & 3).toString(16)}`,
  sql: (text) =>
    `pg_catalog.set_byte('\\x00'::bytea, 0, pg_catalog.get_byte(${sha256.sql(text)}, 31) OPERATOR(pg_catalog.&) 3)`,
}

@Entity()
class Page {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ digest: 'sha256' }) url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

@Entity()
class Colliding {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueText({ digest: twoBits, ignoreDeleted: true }) url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
  @DeleteDateColumn() deletedAt!: Date | null
}

test('MD5 is refused here, by the server and by Node.js', async () => {
  await expect(client.query(`select md5('a')`)).rejects.toThrow('unsupported')
  expect(() => crypto.hash('md5', 'a')).toThrow('unsupported')
})

test('the package loads', async () => {
  vi.resetModules()
  for (const entry of ['../../../src', '../../../src/text', '../../../src/typeorm-calls', '../../../src/url']) {
    await expect(import(entry)).resolves.toBeTypeOf('object')
  }
})

test.each([Page, Colliding])('with SHA-256, %o is migrated, and every operation works', async (entity) => {
  const dataSource = await db.dataSource([entity], { synchronize: false })
  const { down } = await migrate(dataSource)
  expect(await generate(dataSource)).toEqual({ up: [], down: [] })
  const { manager } = dataSource
  const texts = Array.from({ length: 20 }, (_, n) => ({ url: `text ${n}` }))

  expect(await findOrCreate(manager, entity, { url: 'text 0' })).toMatchObject({ created: true })
  const many = await findOrCreateMany(manager, entity, texts)
  expect(many.filter((one) => 'created' in one && one.created)).toHaveLength(19)
  expect(await findOneByText(manager, entity, { url: 'text 7' })).toMatchObject({ url: 'text 7' })
  expect(await manager.findOneBy(entity, { url: 'text 7' })).toMatchObject({ url: 'text 7' })

  const saved = await manager.save(entity, { url: 'saved' })
  await expect(manager.save(entity, { url: 'saved' })).rejects.toBeInstanceOf(Error)
  await manager.update(entity, saved.id, { url: 'changed' })
  await manager.save(entity, { id: saved.id, title: 'kept' })
  await insertOrFail(manager, entity, { url: 'inserted' })
  const taken = { code: 'TEXT_TAKEN', taken: [{ id: { id: saved.id } }] }
  await expect(insertOrFail(manager, entity, { url: 'changed' })).rejects.toMatchObject(taken)
  await expect(updateOrFail(manager, entity, 1, { url: 'changed' })).rejects.toMatchObject(taken)
  expect(await upsertByText(manager, entity, { url: 'changed', title: 'x' })).toMatchObject({ created: false })
  await manager.delete(entity, { url: 'text 0' })

  const [{ table } = { table: undefined }] = declarationsOf(dataSource.getMetadata(entity))
  expect(table && (await violations(client, table))).toEqual([])
  await runAll(dataSource, down)
})

test('a table without a hash yet gets it by SHA-256, over the rows that it has', async () => {
  await client.query(
    `create table page (id integer generated by default as identity primary key, url text not null, title text)`,
  )
  await client.query(`insert into page (url) values ('a'), ('b')`)
  const dataSource = await db.dataSource([Page], { synchronize: false })
  await migrate(dataSource)
  expect(await findOrCreate(dataSource.manager, Page, { url: 'a' })).toMatchObject({ created: false })
  expect(await generate(dataSource)).toEqual({ up: [], down: [] })
})
