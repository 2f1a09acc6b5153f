import { type DataSource, Entity, type EntityManager, PrimaryGeneratedColumn } from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { DeclarationError, findOrCreate, SchemaDriftError, UniqueText } from '../../../src'
import { doctor } from '../../../src/doctor'
import { findHolder, Name, rename, swapNames, UniqueName } from '../../../src/names'
import { countWithin, NumberWithin } from '../../../src/numbers'
import { once, OnceToken } from '../../../src/once'
import { useDatabase } from '../../support/database'
import { column, entity } from '../../support/entity'
import { generate } from '../../support/generated'
import { rejection } from '../../support/ledger'

abstract class Held {
  @PrimaryGeneratedColumn('identity') id!: number
  @UniqueName({ namespace: 'handle', former: 'redirect' }) handle!: string
}

@Entity()
class Member extends Held {
  @UniqueText() url!: string
  @NumberWithin({ count: true }) position!: number
}

const PlainMember = entity('PlainMember', { handle: column('text') }, { name: 'member' })

const ELSEWHERE = {
  kind: 'different',
  object: 'table',
  name: 'names',
  detail: expect.stringContaining('another schema') as unknown,
}

const db = useDatabase()
/** Has no schema: `search_path` selects the tenant. */
let using: DataSource
const client = db.useClient()

beforeAll(async () => {
  using = await db.dataSource([Name, OnceToken, Member], { synchronize: false }, { tenantsBySearchPath: true })
})

const inPath = <T>(path: string, work: (manager: EntityManager) => Promise<T>): Promise<T> =>
  using.transaction(async (manager) => {
    await manager.query(`select set_config('search_path', $1, true)`, [path])
    return await work(manager)
  })

const add = async (manager: EntityManager, handle: string): Promise<Member> =>
  (await findOrCreate(manager, Member, { url: handle, handle })).entity

const holderOf = async (manager: EntityManager, handle: string): Promise<unknown> =>
  (await findHolder(manager, 'handle', handle, { former: true }))?.id

describe('tables that a DataSource with the schema of a tenant has made', () => {
  let a: DataSource
  let b: DataSource

  beforeEach(async () => {
    await client.query(`drop schema if exists tenant_a cascade; drop schema if exists tenant_b cascade;
      create schema tenant_a; create schema tenant_b`)
    const migrated = (schema: string): Promise<DataSource> => db.dataSource([Name, OnceToken, Member], { schema })
    a = await migrated('tenant_a')
    b = await migrated('tenant_b')
  })

  test('a text, a name, a number and a token of each tenant', async () => {
    for (const tenant of ['tenant_a', 'tenant_b']) {
      expect(await inPath(tenant, (manager) => add(manager, 'ann'))).toMatchObject({ id: 1, position: 1 })
      expect(await inPath(tenant, (manager) => countWithin(manager, Member, {}))).toBe(1)
      const paid = await inPath(tenant, (manager) => once(manager, 'x', () => Promise.resolve(tenant)))
      expect(paid).toMatchObject({ answer: tenant, replayed: false })
    }
  })

  test('names that one of them has given are found, refused, changed, swapped and released by the other', async () => {
    const ann = await add(a.manager, 'ann')
    const bob = await inPath('tenant_a', (manager) => add(manager, 'bob'))
    expect(await holderOf(a.manager, 'bob')).toEqual({ id: bob.id })
    await inPath('tenant_a', async (manager) => {
      expect(await holderOf(manager, 'ann')).toEqual({ id: ann.id })
      const error = await rejection(manager.transaction((inner) => inner.insert(Member, { url: 'x', handle: 'ann' })))
      expect(error).toMatchObject({ taken: [{ entity: 'Member', property: 'handle', id: { id: ann.id } }] })
      await swapNames(manager, Member, ann.id, bob.id)
    })
    expect(await holderOf(a.manager, 'ann')).toEqual({ id: bob.id })
    await inPath('tenant_a', (manager) => rename(manager, Member, ann.id, { handle: 'eve' }))
    expect(await holderOf(a.manager, 'bob')).toEqual({ id: ann.id })
    await rename(a.manager, Member, ann.id, { handle: 'bob' })
    await a.manager.delete(Member, { id: bob.id })
    await inPath('tenant_a', async (manager) => {
      expect(await holderOf(manager, 'ann')).toBeUndefined()
      expect(await holderOf(manager, 'bob')).toEqual({ id: ann.id })
      await manager.delete(Member, { id: ann.id })
    })
    expect(await a.manager.count(Name)).toBe(0)
  })

  test('no tenant sees the names of another', async () => {
    const ann = await inPath('tenant_a', (manager) => add(manager, 'ann'))
    expect(await inPath('tenant_b', (manager) => holderOf(manager, 'ann'))).toBeUndefined()
    await add(b.manager, 'bob')
    await inPath('tenant_b', (manager) => add(manager, 'ann'))
    expect(await inPath('tenant_b', (manager) => holderOf(manager, 'ann'))).toEqual({ id: 2 })
    await b.query('truncate tenant_b.member')
    expect(await inPath('tenant_a', (manager) => holderOf(manager, 'ann'))).toEqual({ id: ann.id })
    expect(await b.manager.count(Name)).toBe(0)
  })

  test('neither the migrating DataSource nor the doctor finds anything to change', async () => {
    await inPath('tenant_a', (manager) => add(manager, 'ann'))
    expect(await generate(a)).toEqual({ up: [], down: [] })
    expect((await doctor(a)).findings).toEqual([])
  })

  test('a declaration that is gone releases the names of its tenant', async () => {
    await add(a.manager, 'ann')
    await add(b.manager, 'ann')
    const without = await db.dataSource([Name, OnceToken, PlainMember], { schema: 'tenant_a' }, {})
    expect([await without.manager.count(Name), await b.manager.count(Name)]).toEqual([0, 1])
  })
})

describe('a table of names that tenants would share', () => {
  @Entity({ name: 'names', schema: 'shared' })
  class SharedName extends Name {}

  @Entity({ name: 'member', schema: 'tenant_a' })
  class MemberOfA extends Held {}

  @Entity({ name: 'member', schema: 'tenant_b' })
  class MemberOfB extends Held {}

  @Entity({ name: 'member' })
  class AnyMember extends Held {}

  beforeEach(async () => {
    await client.query(`drop schema if exists tenant_a cascade; drop schema if exists tenant_b cascade;
      drop schema if exists shared cascade; drop table if exists names;
      create schema tenant_a; create schema tenant_b; create schema shared`)
  })

  test('is refused where its entity has a schema', async () => {
    const refused = await rejection(
      db.dataSource([SharedName, AnyMember], { synchronize: false }, { tenantsBySearchPath: true }),
    )
    expect(refused).toBeInstanceOf(DeclarationError)
    expect(refused).toMatchObject({ message: expect.stringContaining('in the table of schema "shared"') as unknown })
  })

  test('is refused for a holder with a schema, whose functions know one table of names', async () => {
    const refused = await rejection(
      db.dataSource([Name, MemberOfA], { synchronize: false }, { tenantsBySearchPath: true }),
    )
    expect(refused).toBeInstanceOf(DeclarationError)
    expect(refused).toMatchObject({ message: expect.stringContaining('the table of schema "tenant_a"') as unknown })
  })

  test('is refused where search_path finds it behind the schema of the tenant', async () => {
    const made = await db.dataSource([Name, MemberOfA, MemberOfB])
    await made.getRepository(MemberOfA).save({ handle: 'ann' })
    const plain = await db.dataSource([Name, AnyMember], { synchronize: false }, { tenantsBySearchPath: true })
    for (const tenant of ['tenant_a', 'tenant_b']) {
      const refused = await rejection(
        plain.transaction(async (manager) => {
          await manager.query(`set local search_path to ${tenant}, public`)
          return await findHolder(manager, 'handle', 'ann')
        }),
      )
      expect(refused).toBeInstanceOf(SchemaDriftError)
      expect(refused).toMatchObject({ findings: expect.arrayContaining([ELSEWHERE]) as unknown })
    }
  })

  test('is refused where search_path finds another one than the functions do', async () => {
    await db.dataSource([Name, AnyMember], { schema: 'tenant_a' })
    await (await db.dataSource([Name])).destroy()
    const plain = await db.dataSource([Name, AnyMember], { synchronize: false }, { tenantsBySearchPath: true })
    const find = (path: string): Promise<unknown> =>
      plain.transaction(async (manager) => {
        await manager.query(`set local search_path to ${path}`)
        return await findHolder(manager, 'handle', 'ann')
      })
    expect(await rejection(find('public, tenant_a'))).toMatchObject({ findings: [ELSEWHERE] })
    expect(await find('tenant_a, public')).toBeNull()
    expect(await rejection(find('public, tenant_a'))).toMatchObject({ findings: [ELSEWHERE] })
  })

  test('keeps the names of each schema apart, also where one DataSource leaves out what another one names', async () => {
    const made = await db.dataSource([SharedName, MemberOfA, MemberOfB])
    await made.getRepository(MemberOfA).save({ handle: 'ann' })
    await made.getRepository(MemberOfB).save({ handle: 'bob' })
    const url = new URL(db.url)
    url.searchParams.set('options', '-c search_path=tenant_b')
    const ofB = await db.dataSource([SharedName, AnyMember], { url: url.href, synchronize: false })
    expect((await findHolder(ofB.manager, 'handle', 'bob'))?.entityName).toBe('AnyMember')
    const other = await rejection(findHolder(ofB.manager, 'handle', 'ann'))
    expect(other).toMatchObject({ message: expect.stringContaining('the table "tenant_a.member"') as unknown })
    expect(await generate(ofB)).toEqual({ up: [], down: [] })
  })
})
