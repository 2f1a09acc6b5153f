import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { beforeEach, expect, test } from 'vitest'
import { findOrCreate, UniqueText } from '../../../src'
import { findHolder, Name, UniqueName } from '../../../src/names'
import { useDatabase } from '../../support/database'

const db = useDatabase()
const client = db.useClient()
beforeEach(() => client.query('drop table if exists page, name cascade'))

type Type = { readonly type: 'text' } | { readonly type: 'varchar'; readonly length?: number }

function declared(type: Type): new () => object {
  @Entity({ name: 'page' })
  class Page {
    @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
    @UniqueText() @Column(type) url!: string
    @UniqueName({ namespace: 'handles' }) @Column(type) handle!: string
  }
  return Page
}

const columns = async (): Promise<unknown> =>
  (
    await client.query(`select attname, attnum, format_type(atttypid, atttypmod) as type from pg_attribute
      where attrelid = 'page'::regclass and attname in ('url', 'handle') order by attnum`)
  ).rows

test.each([
  [{ type: 'varchar', length: 40 }, { type: 'text' }, 'text'],
  [{ type: 'text' }, { type: 'varchar' }, 'character varying'],
  [{ type: 'varchar', length: 40 }, { type: 'varchar', length: 90 }, 'character varying(90)'],
] as const)('the type of a text and of a name changes in place, from %j to %j', async (from, to, type) => {
  const before = await db.dataSource([declared(from), Name])
  await before.query(`insert into page (url, handle) values ('a', 'x')`)
  await before.destroy()
  const stood = (await columns()) as readonly { readonly attnum: number }[]
  const target = declared(to)
  const after = await db.dataSource([target, Name])
  expect(await columns()).toEqual(stood.map((column) => ({ ...column, type })))
  const given: object = { url: 'a' }
  expect(await findOrCreate(after.manager, target, given)).toMatchObject({ created: false })
  expect(await findHolder(after.manager, 'handles', 'x')).toMatchObject({ id: { id: 1 } })
  await after.destroy()
})
