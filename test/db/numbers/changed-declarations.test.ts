import { type DataSource, EntitySchema, type EntitySchemaOptions } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { SchemaDriftError } from '../../../src'
import { countWithin, numberWithinSchema, type NumberWithinOptions } from '../../../src/numbers'
import { useDatabase } from '../../support/database'
import { countsOf } from '../../support/numbered-table'
import { runAll } from '../../support/generated'
import { back, nothingLeft, step } from '../../support/generated-steps'

const db = useDatabase({ wrapped: true })
const client = db.useClient()

async function emptied(): Promise<void> {
  await client.query('drop schema public cascade; drop schema if exists other cascade; create schema public')
}
beforeEach(emptied)

type Row = Record<string, unknown>
type Scalars = Record<string, string | number | null>
type Columns = EntitySchemaOptions<Row>['columns']

const integer = { type: 'integer' } as const
const maybe = { type: 'integer', nullable: true } as const
const BASE: Columns = { id: { type: 'integer', primary: true }, tenant: integer, site: integer }

interface Shape {
  readonly columns?: Columns
  readonly numbers?: Readonly<Record<string, NumberWithinOptions>>
  readonly tableName?: string
  readonly schema?: string
}

const open = async ({ columns = {}, numbers, tableName = 'comment', schema }: Shape): Promise<DataSource> => {
  const where = { tableName, ...(schema === undefined ? {} : { schema }) }
  const options = { name: 'Comment', ...where, columns: { ...BASE, ...columns } }
  const entity = new EntitySchema<Row>(numbers ? numberWithinSchema(options, numbers) : options)
  return await db.dataSource([entity], { synchronize: false })
}

const plain = (): Promise<DataSource> => open({})
const numbered = (options: NumberWithinOptions = {}): Promise<DataSource> =>
  open({ numbers: { number: { scope: ['tenant'], ...options } } })

async function fill(ids: readonly number[], { tenants = 2, sites = 3 } = {}): Promise<void> {
  for (const id of ids) {
    await client.query(`insert into comment (id, tenant, site) values (${id}, ${id % tenants}, ${id % sites})`)
  }
}

/** `id:number`, and the count behind the first row of a scope. */
async function rows(column = 'number', scope: readonly string[] = ['tenant']): Promise<string> {
  const counts = new Map(await countsOf(client, 'comment', scope))
  const found = await client.query<{ row: Scalars }>('select to_jsonb(c) as row from comment as c order by id')
  return found.rows
    .map(({ row }) => {
      const key = scope.map((name) => String(row[name])).join('/')
      const count = counts.get(key)
      counts.delete(key)
      return `${String(row['id'])}:${String(row[column] ?? '')}${count === undefined ? '' : `#${count}`}`
    })
    .join(' ')
}

test('a number that a reverted migration removed has its index as before', async () => {
  const before = await numbered()
  await step(before)
  const index = async (): Promise<unknown[]> =>
    (await client.query(`select indexdef from pg_indexes where indexdef like '%tenant, number)'`)).rows
  const found = await index()
  expect(found).toHaveLength(1)
  await back(before, await step(await plain()))
  expect(await index()).toEqual(found)
})

test('a table with rows is numbered in key order within each scope, there, back and there again', async () => {
  const before = await plain()
  await step(before)
  await fill([5, 1, 4, 2, 3])
  const dataSource = await numbered({ count: true })
  const made = await step(dataSource)
  expect(await rows()).toBe('1:1#3 2:1#2 3:2 4:2 5:3')
  await fill([6, 7])
  expect(await rows()).toMatch(/6:3 7:4$/)
  expect(await countWithin(dataSource.manager, 'Comment', { tenant: 1 })).toBe(4)
  await back(before, made)
  await fill([8])
  await step(dataSource)
  expect(await rows()).toBe('1:1#4 2:1#4 3:2 4:2 5:3 6:3 7:4 8:4')
})

test('an empty table, and a new one, need no numbering', async () => {
  const made = await step(await numbered({ count: true }))
  await fill([1, 2, 3])
  expect(await rows()).toBe('1:1#2 2:1#1 3:2')
  await runAll(await plain(), made.down)
  expect((await client.query(`select proname from pg_proc where pronamespace = 'public'::regnamespace`)).rows).toEqual(
    [],
  )
})

test('rows that are deleted softly are numbered, and not counted', async () => {
  const columns = { deletedAt: { type: 'timestamptz', nullable: true, deleteDate: true } } as const
  await step(await open({ columns }))
  await fill([1, 2, 3, 5])
  await client.query('update comment set "deletedAt" = now() where id = 3')
  await step(await open({ columns, numbers: { number: { scope: ['tenant'], count: true } } }))
  expect(await rows()).toBe('1:1#2 2:1#1 3:2 5:3')
})

test('numbers that stand already stay, and the others follow them', async () => {
  await step(await open({ columns: { number: maybe } }))
  await fill([1, 2, 3, 4, 5])
  await client.query('update comment set number = 7 where id = 3')
  const made = await step(await numbered())
  expect(await rows()).toBe('1:8 2:1 3:7 4:2 5:9')
  await back(await open({ columns: { number: maybe } }), made)
  expect(await rows()).toBe('1:8 2:1 3:7 4:2 5:9')
})

describe('what changes is followed, and so is its way back:', () => {
  test('a narrower scope keeps the numbers, and the way back gives them anew', async () => {
    const wide = await numbered({ count: true })
    await step(wide)
    await fill([1, 2, 3, 4])
    const made = await step(await numbered({ scope: ['tenant', 'site'], count: true }))
    expect(await rows('number', ['tenant', 'site'])).toBe('1:1#1 2:1#1 3:2#1 4:2#1')
    await fill([7, 8])
    await back(wide, made)
    expect((await rows()).match(/#\d+/g)).toEqual(['#3', '#3'])
    await fill([9, 10])
  })

  test('a wider scope gives the numbers anew', async () => {
    const narrow = await numbered({ scope: ['tenant', 'site'] })
    await step(narrow)
    await fill([1, 2, 3, 4, 7, 8])
    expect(await rows()).toBe('1:1 2:1 3:1 4:1 7:2 8:2')
    const made = await step(await numbered())
    expect(await rows()).toBe('1:1 2:1 3:2 4:2 7:3 8:3')
    const whole = await step(await numbered({ scope: [] }))
    expect(await rows('number', [])).toBe('1:1 2:2 3:3 4:4 7:5 8:6')
    await back(await numbered(), whole)
    await fill([9])
    await back(narrow, made)
    await fill([10])
  })

  test('another column of the scope', async () => {
    const before = await numbered({ count: true })
    await step(before)
    await fill([1, 2, 3, 4])
    const made = await step(await numbered({ scope: ['site'], count: true }))
    expect(await rows('number', ['site'])).toBe('1:1#2 2:1#1 3:1#1 4:2')
    await back(before, made)
    expect(await rows()).toBe('1:1#2 2:1#2 3:2 4:2')
  })

  test('a count that comes and goes', async () => {
    const before = await numbered()
    await step(before)
    await fill([1, 2, 3])
    await client.query('delete from comment where id = 1')
    const counted = await numbered({ count: true })
    const made = await step(counted)
    expect(await rows()).toBe('2:1#1 3:2#1')
    await back(before, made)
    await fill([4])
    await step(counted)
    const gone = await step(before)
    await fill([5])
    await back(counted, gone)
    expect(await rows()).toBe('2:1#2 3:2#2 4:2 5:3')
  })

  describe('numbers that are not given again', () => {
    /** The number that a new row gets; the row goes again. */
    const next = async (column = 'number', scope = 'tenant'): Promise<unknown> => {
      const { rows: found } = await client.query<Scalars>(
        `insert into comment (id, ${scope}, site) values (99, 1, 1) returning *`,
      )
      await client.query('delete from comment where id = 99')
      return found[0]?.[column]
    }

    test('begin and end with the option', async () => {
      const before = await numbered()
      await step(before)
      await fill([1, 3])
      const made = await step(await numbered({ reuse: false }))
      expect([await next(), await next()]).toEqual([3, 4])
      await back(before, made)
      expect([await next(), await next()]).toEqual([3, 3])
    })

    test('outlive a count, a start, a bigint, another order of the scope, and each way back', async () => {
      const scope = ['tenant', 'site']
      await step(await numbered({ scope, reuse: false }))
      expect([await next(), await next()]).toEqual([1, 2])
      const other = { scope: scope.toReversed(), reuse: false, count: true }
      const reversed = await numbered(other)
      const ordered = await step(reversed)
      expect(await next()).toBe(3)
      const started = await numbered({ ...other, start: 10 })
      const made = await step(started)
      expect([await next(), await next()]).toEqual([10, 11])
      await back(reversed, made)
      expect(await next()).toBe(12)
      await back(await numbered({ scope, reuse: false }), ordered)
      expect(await next()).toBe(13)
      await step(await open({ columns: { number: { type: 'bigint' } }, numbers: { number: { scope, reuse: false } } }))
      expect(await next()).toBe('14')
    })

    test('outlive a renamed number and a renamed scope, a trigger that was disabled, and the table of scopes they are in', async () => {
      const before = await numbered({ reuse: false })
      await step(before)
      await fill([1])
      expect([await next(), await next()]).toEqual([2, 3])
      await client.query('alter table comment disable trigger numbers_comment__number_keep_insert')
      await step(before)
      expect(await next()).toBe(4)
      const { tenant: _, ...others } = BASE
      const renamed = new EntitySchema<Row>(
        numberWithinSchema(
          { name: 'Comment', tableName: 'comment', columns: { ...others, owner: integer } },
          { place: { scope: ['owner'], reuse: false } },
        ),
      )
      const dataSource = await db.dataSource([renamed], { synchronize: false })
      const made = await step(dataSource)
      expect(await next('place', 'owner')).toBe(5)
      await back(before, made)
      expect(await next()).toBe(6)
      await client.query('drop table numbers_comment__number_scopes')
      await step(before)
      expect(await next()).toBe(2)
    })

    test('are not read from a view that another role has put in the place of the table of scopes', async () => {
      await step(await numbered({ reuse: false }))
      await client.query(`create function taken() returns boolean language plpgsql as
          $$ begin raise 'called as %', current_user; end $$;
        alter table numbers_comment__number_scopes rename to kept;
        create view numbers_comment__number_scopes as select 1 as s0, 0::bigint as n, 9::bigint as last where taken()`)
      await expect(step(await numbered({ reuse: false, start: 5 }))).rejects.toMatchObject({
        driverError: { code: '55000', hint: expect.stringContaining('who made it') as string },
      })
    })

    test('are forgotten with another scope, and outlive TRUNCATE', async () => {
      await step(await numbered({ reuse: false, start: 5 }))
      expect([await next(), await next()]).toEqual([5, 6])
      await client.query('truncate comment')
      expect([await next(), await next()]).toEqual([7, 8])
      await step(await numbered({ reuse: false, scope: ['site'] }))
      expect(await next()).toBe(1)
    })
  })

  test('rows that exist have numbers from the start', async () => {
    const before = await plain()
    await step(before)
    await fill([1, 2, 3])
    const made = await step(await numbered({ start: 1000 }))
    expect(await rows()).toBe('1:1000 2:1000 3:1001')
    await back(before, made)
    await step(await numbered())
    expect(await rows()).toBe('1:1 2:1 3:2')
    await step(await numbered({ start: 1000 }))
    await fill([4, 5])
    expect(await rows()).toBe('1:1 2:1 3:2 4:1000 5:1000')
  })

  test('rows that count no more, being deleted softly', async () => {
    const dated = { deletedAt: { type: 'timestamptz', nullable: true } } as const
    await step(await open({ columns: dated, numbers: { number: { scope: ['tenant'], count: true } } }))
    await fill([1, 2, 3])
    await client.query('update comment set "deletedAt" = now() where id = 3')
    const soft = { deletedAt: { ...dated.deletedAt, deleteDate: true } }
    const made = await step(await open({ columns: soft, numbers: { number: { scope: ['tenant'], count: true } } }))
    expect(made.up).not.toEqual([])
    expect(await rows()).toBe('1:1#1 2:1#1 3:2')
    await runAll(await plain(), made.down)
    expect(await rows()).toBe('1:1#2 2:1#1 3:2')
  })

  test('a number of another type', async () => {
    const before = await numbered()
    await step(before)
    await fill([1, 3, 5])
    await client.query('delete from comment where id = 1')
    const made = await step(
      await open({ columns: { number: { type: 'bigint' } }, numbers: { number: { scope: ['tenant'] } } }),
    )
    expect(await rows()).toBe('3:2 5:3')
    await back(before, made)
    expect(await rows()).toBe('3:2 5:3')
  })

  test('a renamed number and a renamed scope, whatever else changes', async () => {
    const before = await numbered({ count: true })
    await step(before)
    await fill([1, 2, 3, 4, 5])
    await client.query('delete from comment where id = 1')
    const { tenant: _, ...others } = BASE
    const columns = { ...others, owner: integer, one: maybe, two: maybe }
    const renamed = new EntitySchema<Row>(
      numberWithinSchema(
        { name: 'Comment', tableName: 'comment', columns },
        { place: { scope: ['owner'], count: true } },
      ),
    )
    const dataSource = await db.dataSource([renamed], { synchronize: false })
    const made = await step(dataSource)
    expect(await rows('place', ['owner'])).toBe('2:1#2 3:2#2 4:2 5:3')
    expect(await countWithin(dataSource.manager, 'Comment', { owner: 1 })).toBe(2)
    await back(before, made)
    expect(await rows()).toBe('2:1#2 3:2#2 4:2 5:3')
    await fill([6])
    expect(await rows()).toMatch(/6:3$/)
  })
})

describe('a declaration that is gone', () => {
  test('goes with its columns, and comes back with numbers', async () => {
    const before = await numbered({ count: true })
    await step(before)
    await fill([1, 2, 3, 4, 5])
    const without = await plain()
    const made = await step(without)
    const left = await client.query(`select proname from pg_proc where pronamespace = 'public'::regnamespace
        and proname not like 'unique\\_text\\_%' union all
      select relname from pg_class where relname like 'numbers%'`)
    expect(left.rows).toEqual([])
    await fill([6, 7])
    await back(before, made)
    expect(await rows()).toBe('1:1#4 2:1#3 3:2 4:2 5:3 6:3 7:4')
    await fill([8])
    expect(await rows()).toMatch(/8:4$/)
  })

  test('leaves its column where an entity keeps it', async () => {
    const before = await numbered()
    await step(before)
    await fill([1, 2, 3])
    const kept = await open({ columns: { number: integer } })
    const made = await step(kept)
    expect(await rows()).toBe('1:1 2:1 3:2')
    await back(before, made)
  })
})

test('two numbers that are gone leave nothing to a new one, which numbers the rows by its own scope', async () => {
  const before = await open({ numbers: { number: { scope: ['tenant'] }, place: { scope: ['tenant', 'site'] } } })
  await step(before)
  await fill([1, 2, 3, 4])
  await client.query('delete from comment where id = 1')
  await step(await open({ numbers: { rank: { scope: ['tenant'] } } }))
  expect(await rows('rank')).toBe('2:1 3:1 4:2')
})

test('a row without a number gets one before the column is NOT NULL again', async () => {
  const dataSource = await numbered({ count: true })
  await step(dataSource)
  await fill([1, 2, 3])
  await client.query(`alter table comment alter number drop not null; alter table comment disable trigger user;
    update comment set number = null where id < 3; alter table comment enable trigger user`)
  await step(dataSource)
  expect(await rows()).toBe('1:3#2 2:1#1 3:2')
})

test('a table that was renamed goes on from its numbers', async () => {
  await step(await numbered({ count: true }))
  await fill([1, 2, 3])
  await client.query('alter table comment rename to remark')
  const write = client.query('insert into remark (id, tenant, site) values (5, 1, 1)')
  await expect(write).rejects.toMatchObject({ code: '55000' })
  const dataSource = await open({ tableName: 'remark', numbers: { number: { scope: ['tenant'], count: true } } })
  await step(dataSource)
  await client.query('alter table remark rename to comment; alter table comment rename to remark')
  await client.query('insert into remark (id, tenant, site) values (5, 1, 1)')
  expect((await client.query('select number from remark where id = 5')).rows).toEqual([{ number: 3 }])
  expect(await countWithin(dataSource.manager, 'Comment', { tenant: 1 })).toBe(3)
})

const SCOPES = 'numbers_comment__number_scopes'

test.each([
  ['is gone', `drop table ${SCOPES}`],
  [
    'did not go to another owner with its table',
    `create role ${SCOPES}_${process.pid}; grant all on schema public to ${SCOPES}_${process.pid};
     alter table comment owner to ${SCOPES}_${process.pid}`,
  ],
])('a table of scopes that %s is told, and made again by a migration', async (_, change) => {
  const dataSource = await numbered({ count: true })
  await step(dataSource)
  await fill([1, 3])
  await client.query(change)
  const { manager } = await numbered({ count: true })
  await expect(countWithin(manager, 'Comment', { tenant: 1 })).rejects.toThrow(SchemaDriftError)
  await step(dataSource)
  await fill([5])
  expect(await countWithin(manager, 'Comment', { tenant: 1 })).toBe(3)
  await emptied()
  await client.query(`drop role if exists ${SCOPES}_${process.pid}`)
})

test('rows that were written while a trigger was away are numbered and counted by the next migration', async () => {
  const dataSource = await numbered({ count: true })
  await step(dataSource)
  await fill([1, 2])
  await client.query('alter table comment disable trigger user; insert into comment values (3, 1, 1, 9), (4, 0, 1, 9)')
  await step(dataSource)
  expect(await rows()).toBe('1:1#2 2:1#2 3:9 4:9')
})

test('a table of another schema is numbered there', async () => {
  await client.query('create schema other')
  await step(await open({ schema: 'other' }))
  await client.query('insert into other.comment values (1, 1, 1), (2, 1, 1)')
  const made = await step(await open({ schema: 'other', numbers: { number: { scope: ['tenant'], count: true } } }))
  await client.query('insert into other.comment values (3, 1, 1)')
  expect((await client.query('select id, number from other.comment order by id')).rows).toEqual([
    { id: 1, number: 1 },
    { id: 2, number: 2 },
    { id: 3, number: 3 },
  ])
  await runAll(await plain(), made.down)
})

test('synchronize does the same', async () => {
  await step(await plain())
  await fill([1, 2, 3])
  const options = { name: 'Comment', tableName: 'comment', columns: BASE }
  const entity = new EntitySchema<Row>(numberWithinSchema(options, { number: { scope: ['tenant'], count: true } }))
  const dataSource = await db.dataSource([entity])
  expect(await rows()).toBe('1:1#2 2:1#1 3:2')
  await nothingLeft(dataSource)
})
