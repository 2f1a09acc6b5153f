import { readFileSync } from 'node:fs'
import path from 'node:path'
import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { expect, test } from 'vitest'
import { findOrCreate, UniqueText } from '../../../src'
import { adopt } from '../../../src/adopt'
import { doctor } from '../../../src/doctor'
import { useDatabase } from '../../support/database'
import { generate, migrate } from '../../support/generated'
import { violations } from '../../support/guarded-table'
import { AT_LEISURE, tableOf } from './stage'

const db = useDatabase({ wrapped: true })
const client = db.useClient({ emptied: true })

class Row {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column({ type: 'integer' }) tenant!: number
}
@Entity({ name: 'page' })
class Before extends Row {
  @UniqueText() url!: string
}
@Entity({ name: 'page' })
class After extends Row {
  @UniqueText({ scope: ['tenant'] }) link!: string
}

/** The SQL of the recipe, step by step. */
function statements(): readonly string[] {
  const page = readFileSync(path.join(import.meta.dirname, '../../../docs/changing-a-declaration.md'), 'utf8')
  const [, recipe = ''] = /^## How do I change a large table in use\?$(.+?)^## /msu.exec(page) ?? []
  return [...recipe.matchAll(/```sql\n(.+?)```/gsu)].map(([, sql = '']) => sql)
}

test('a declaration is changed on a table in use by a second property, as the page says', async () => {
  const [copy = '', fill = '', drop = '', ...more] = statements()
  expect(more).toEqual([])
  const old = await db.dataSource([Before], { synchronize: false })
  await migrate(old)
  await client.query(`insert into page (tenant, url) select i % 3, 'text ' || i from generate_series(1, 300) as i`)
  const written = async (sql: string): Promise<unknown> => (await client.query(sql)).rows[0]

  await client.query(copy)
  await client.query(fill)
  expect(await findOrCreate(old.manager, Before, { tenant: 1, url: 'of old code' })).toMatchObject({ created: true })
  const dataSource = await db.dataSource([After], { synchronize: false })
  expect(await adopt(dataSource, After, AT_LEISURE)).toMatchObject({ step: 'done', duplicates: { groups: 0 } })

  // Old and new instances side by side, under both declarations.
  const { manager } = dataSource
  expect(await findOrCreate(old.manager, Before, { tenant: 1, url: 'text 5' })).toMatchObject({ created: false })
  expect(await findOrCreate(manager, After, { tenant: 1, link: 'of old code' })).toMatchObject({ created: false })
  expect(await findOrCreate(manager, After, { tenant: 2, link: 'of new code' })).toMatchObject({ created: true })
  expect(await findOrCreate(old.manager, Before, { tenant: 2, url: 'of new code' })).toMatchObject({ created: false })
  await old.manager.update(Before, { url: 'text 7' }, { url: 'changed by old code' })
  await manager.update(After, { id: 8 }, { link: 'changed by new code' })
  expect(await written('select count(*)::int as n from page where url is distinct from link')).toEqual({ n: 0 })
  await expect(manager.insert(After, { tenant: 2, link: 'of old code' })).rejects.toMatchObject({ code: '23505' })

  await client.query(drop)
  await migrate(dataSource)
  expect((await generate(dataSource)).up).toEqual([])
  expect(
    await written(`select string_agg(attname, ' ' order by attnum) as columns from pg_attribute
    where attrelid = 'page'::regclass and attnum > 0 and not attisdropped`),
  ).toEqual({
    columns: 'id tenant link linkHash linkHashNumber linkHashChained',
  })
  expect(await findOrCreate(manager, After, { tenant: 2, link: 'of old code' })).toMatchObject({ created: true })
  expect(await violations(client, tableOf(dataSource, After))).toEqual([])
  expect((await doctor(dataSource)).findings).toEqual([])
})

test('adopt refuses another declaration of a guarded text, and says how it is changed', async () => {
  await migrate(await db.dataSource([Before], { synchronize: false }))
  @Entity({ name: 'page' })
  class Page extends Row {
    @UniqueText({ scope: ['tenant'] }) url!: string
  }
  const dataSource = await db.dataSource([Page], { synchronize: false })
  await expect(adopt(dataSource, Page)).rejects.toMatchObject({
    reason: 'unsupported',
    message: expect.stringMatching(/add a property with the new declaration/iu),
  })
  expect((await doctor(dataSource)).findings.map(({ next }) => next)).toContain(
    'Run migration:generate, then migration:run.',
  )
})
