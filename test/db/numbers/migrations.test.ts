import { EntitySchema, type EntitySchemaOptions } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { SchemaDriftError } from '../../../src'
import { countWithin, numberWithinSchema, type NumberWithinOptions } from '../../../src/numbers'
import { useDatabase } from '../../support/database'
import { countsOf } from '../../support/numbered-table'
import { generate, migrate, runAll } from '../../support/generated'

const db = useDatabase({ wrapped: true })
const client = db.useClient({ emptied: true })

interface Comment {
  id: number
  tenant: number
  topic: string
  number: number
}

const COLUMNS = {
  id: { type: 'integer', primary: true, generated: 'identity' as never, generatedIdentity: 'ALWAYS' },
  tenant: { type: 'integer' },
  topic: { type: 'text' },
  deletedAt: { type: 'timestamptz', deleteDate: true, nullable: true },
} as const

type Of = EntitySchema<Comment>

/** Without options: an entity that has no number. */
const comment = (options?: NumberWithinOptions, more: Partial<EntitySchemaOptions<Comment>> = {}): Of => {
  const schema = { name: 'Comment', tableName: 'comment', columns: COLUMNS, ...more } as EntitySchemaOptions<Comment>
  return new EntitySchema(options ? numberWithinSchema(schema, { number: options }) : schema)
}

const using = (entity: Of) => db.dataSource([entity], { synchronize: false })

/** Ten rows of tenants 1 and 2 in turn, of which number 3 of tenant 1 is deleted softly. */
async function filled(): Promise<void> {
  await migrate(await using(comment()))
  await client.query(
    `insert into comment (tenant, topic, "deletedAt") select 1 + g % 2, 'topic ' || g % 3, case when g = 6 then now() end
       from generate_series(1, 10) as g`,
  )
}

const shown = async (columns = plain): Promise<string> => {
  const { rows } = await client.query<{ one: string }>(`select ${columns} as one from comment order by id`)
  return rows.map(({ one }) => one).join(' ')
}

/** `scope=count`. */
const counts = async (): Promise<string> =>
  [...(await countsOf(client, 'comment', ['scope']))]
    .map((one) => one.join('='))
    .toSorted()
    .join(' ')

const NUMBERED = '2:1 1:1 2:2 1:2 2:3 1:3 2:4 1:4 2:5 1:5'
const plain = `tenant || ':' || number`

/** Nothing is left to do, and the way back leads to where nothing was left to do before. */
async function goesAndReturns(before: Of, after: Of): Promise<void> {
  const dataSource = await using(after)
  const { down } = await migrate(dataSource)
  expect(await generate(dataSource)).toEqual({ up: [], down: [] })
  const seen = [await shown('to_jsonb(comment)::text'), await counts()]
  await runAll(dataSource, down)
  expect(await generate(await using(before))).toEqual({ up: [], down: [] })
  await migrate(dataSource)
  expect([await shown('to_jsonb(comment)::text'), await counts()]).toEqual(seen)
}

const inTenant = comment({ scope: ['tenant'] })
const counted = comment({ scope: ['tenant'], count: true })

test('rows that are there are numbered in key order within each scope', async () => {
  await filled()
  await goesAndReturns(comment(), inTenant)
  expect(await shown(plain)).toBe(NUMBERED)
})

test('rows that are there are counted', async () => {
  await filled()
  await goesAndReturns(comment(), counted)
  expect(await shown()).toBe(NUMBERED)
  expect(await counts()).toBe('1=4 2=5')
  const { manager } = await using(counted)
  expect(await countWithin(manager, counted, { tenant: 1 })).toBe(4)
})

test('a new table is numbered from the start', async () => {
  const dataSource = await using(counted)
  await migrate(dataSource)
  expect(await generate(dataSource)).toEqual({ up: [], down: [] })
  const saved = await dataSource.manager.save(counted, [
    { tenant: 1, topic: 'a' },
    { tenant: 1, topic: 'b' },
  ])
  expect(saved.map(({ number }) => number)).toEqual([1, 2])
})

describe('an option changes', () => {
  beforeEach(filled)

  test('a count comes', async () => {
    await migrate(await using(inTenant))
    await client.query('delete from comment where number = 2')
    await goesAndReturns(inTenant, counted)
    expect(await shown()).toBe('2:1 1:1 2:3 1:3 2:4 1:4 2:5 1:5')
    expect(await counts()).toBe('1=3 2=4')
    expect(
      await client.query('insert into comment (tenant, topic) values (1, $1) returning number', ['x']),
    ).toMatchObject({
      rows: [{ number: 6 }],
    })
  })

  test('a count goes', async () => {
    await migrate(await using(counted))
    await goesAndReturns(counted, inTenant)
    expect(await shown(plain)).toBe(NUMBERED)
  })

  test('a narrower scope keeps the numbers', async () => {
    await migrate(await using(inTenant))
    await goesAndReturns(inTenant, comment({ scope: ['tenant', 'topic'] }))
    expect(await shown(plain)).toBe(NUMBERED)
  })

  test('another scope numbers the rows anew', async () => {
    await migrate(await using(inTenant))
    await goesAndReturns(inTenant, comment())
    await migrate(await using(counted))
    const other = comment({ scope: ['topic'], count: true })
    await goesAndReturns(counted, other)
    expect(await shown(`right(topic, 1) || ':' || number`)).toBe('1:1 2:1 0:1 1:2 2:2 0:2 1:3 2:3 0:3 1:4')
    expect(await counts()).toBe('topic 0=2 topic 1=4 topic 2=3')
  })

  test('a delete date that comes changes the count', async () => {
    const { deletedAt: _, ...columns } = COLUMNS
    const without = comment({ scope: ['tenant'], count: true }, { columns })
    await migrate(await using(without))
    await goesAndReturns(without, counted)
    expect(await counts()).toBe('1=5 2=5')
  })
})

test('a declaration that is gone takes its triggers along', async () => {
  await filled()
  await migrate(await using(counted))
  await goesAndReturns(counted, comment())
  const { rows } = await client.query(
    `select proname from pg_proc where proname like 'numbers%' union select relname from pg_class where relname like 'numbers%'`,
  )
  expect(rows).toEqual([])
})

test('a renamed table keeps its numbers', async () => {
  await filled()
  await migrate(await using(counted))
  await client.query('alter table comment rename to remark')
  await expect(client.query(`insert into remark (tenant, topic) values (1, 'x')`)).rejects.toMatchObject({
    code: '55000',
  })
  const remark = comment({ scope: ['tenant'], count: true }, { tableName: 'remark' })
  const dataSource = await using(remark)
  await migrate(dataSource)
  expect(await generate(dataSource)).toEqual({ up: [], down: [] })
  expect(await dataSource.manager.save(remark, { tenant: 1, topic: 'x' })).toMatchObject({ number: 6 })
  expect(await countWithin(dataSource.manager, remark, { tenant: 1 })).toBe(5)
})

describe('a table of scopes', () => {
  const write = (): Promise<unknown> => client.query(`insert into comment (tenant, topic) values (1, 'x')`)
  test.each([
    ['is gone', (scopes: string) => [`drop table ${scopes}`]],
    [
      'did not go to another owner with its table',
      (scopes: string) => {
        const role = `t_owner_${scopes.slice(-8)}_${process.pid}`
        return [`create role ${role}; grant all on schema public to ${role}; alter table comment owner to ${role}`]
      },
    ],
  ])('that %s is told, and made again by a migration', async (_, change) => {
    await filled()
    const dataSource = await using(counted)
    await migrate(dataSource)
    const { rows } = await client.query<{ name: string }>(
      `select relname as name from pg_class where relname ~ '_scopes$'`,
    )
    for (const statement of change(rows[0]?.name ?? '')) await client.query(statement)
    await expect(countWithin(dataSource.manager, counted, { tenant: 1 })).rejects.toThrow(SchemaDriftError)
    await migrate(dataSource)
    expect(await generate(dataSource)).toEqual({ up: [], down: [] })
    await write()
    expect(await countWithin(dataSource.manager, counted, { tenant: 1 })).toBe(5)
    await client.query('drop schema public cascade; create schema public')
    const { rows: owners } = await client.query<{ owner: string }>(
      `select rolname as owner from pg_roles where rolname ~ '^t_owner_.*_${process.pid}$'`,
    )
    for (const { owner } of owners) await client.query(`drop role ${owner}`)
  })
})

test('synchronize makes the same', async () => {
  await filled()
  const dataSource = await db.dataSource([counted], { synchronize: true })
  expect(await shown()).toBe(NUMBERED)
  expect(await counts()).toBe('1=4 2=5')
  expect(await generate(dataSource)).toEqual({ up: [], down: [] })
})
