import { describe, expect, test } from 'vitest'
import { DeclarationError, UnsupportedDatabaseError } from '../../../src'
import { countWithin, recount } from '../../../src/numbers'
import { untilBlocked } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import { column, deleteDate, entity, numberWithin } from '../../support/entity'

const Note = entity('Note', {
  post: column('integer'),
  number: numberWithin({ scope: ['post'], count: true }),
  deletedAt: deleteDate(),
})
const Line = entity('Line', { number: numberWithin({ count: true }) })
const Visit = entity('Visit', {
  place: column('text'),
  day: column('timestamptz'),
  number: numberWithin({ scope: ['place', 'day'], count: true }),
})

const db = useDatabase()
const dataSource = db.useDataSource([Note, Line, Visit])
const { manager } = dataSource
const other = db.useClient()

const counts = (...posts: readonly number[]): Promise<number[]> =>
  Promise.all(posts.map((post) => countWithin(dataSource.manager, Note, { post })))

/** Writes as a restore does, while the triggers are off. */
const behind = (sql: string): Promise<unknown> =>
  dataSource.query(`alter table note disable trigger user; ${sql}; alter table note enable trigger user`)

describe('recount', () => {
  test('counts one scope, or all: rows behind the triggers, deleted ones, scopes without a row, large parts', async () => {
    await dataSource.query('insert into note (post) select 1 from generate_series(1, 600)')
    await behind(`delete from note where post = 1 and number > 100; update note set "deletedAt" = now() where number = 1;
      insert into note (post, number) values (2, 1), (2, 2)`)
    expect(await counts(1, 2, 3)).toEqual([600, 0, 0])
    expect(await recount(manager, Note, { post: 2 })).toBe(2)
    expect(await counts(1, 2, 3)).toEqual([600, 2, 0])
    expect(await recount(manager, Note)).toBe(101)
    expect(await counts(1, 2, 3)).toEqual([99, 2, 0])
    await dataSource.query('insert into note (post) select 1 from generate_series(1, 300)')
    expect(await counts(1)).toEqual([399])
    await behind('delete from note')
    expect(await recount(manager, Note)).toBe(0)
    expect(await counts(1, 2)).toEqual([0, 0])
  })

  test('counts a number of the whole table, and a scope of a text and a time', async () => {
    const day = new Date('2026-03-01T10:20:30.123Z')
    await manager.insert(Line, [{}, {}])
    await manager.insert(Visit, [
      { place: "a'b", day },
      { place: "a'b", day },
      { place: '', day },
    ])
    const [{ tables }] = await dataSource.query<[{ tables: string[] }]>(
      `select array_agg(oid::regclass::text) as tables from pg_class where relname ~ '^numbers_(line|visit).*_scopes$'`,
    )
    expect(tables).toHaveLength(2)
    for (const table of tables) await dataSource.query(`update ${table} set n = 77`)
    expect(await recount(manager, Line)).toBe(2)
    await dataSource.query(`set datestyle to 'SQL, DMY'`)
    expect(await recount(manager, Visit)).toBe(3)
    expect(await countWithin(manager, Line, {})).toBe(2)
    expect(await countWithin(manager, Visit, { place: "a'b", day })).toBe(2)
  })

  /** Begins while an insert and a delete of the scope are under way, whose rows no snapshot of then shows. */
  async function beside(level: 'READ COMMITTED' | 'REPEATABLE READ' | 'SERIALIZABLE'): Promise<unknown> {
    // The last ones count in another part than the scope's lock.
    await dataSource.query('insert into note (post) select 1 from generate_series(1, 300)')
    await behind('insert into note (post, number) values (1, 999)')
    await other.query('begin; insert into note (post) values (1)')
    const counted = dataSource
      .transaction(level, (manager) => recount(manager, Note, { post: 1 }))
      .catch((error: unknown) => (error as { code?: string }).code)
    await untilBlocked(await db.client())
    await other.query('delete from note where number < 3; commit')
    return await counted
  }

  test('is exact beside an insert and a delete', async () => {
    expect(await beside('READ COMMITTED')).toBe(300)
    expect(await counts(1)).toEqual([300])
  })

  test.each(['REPEATABLE READ', 'SERIALIZABLE'] as const)(
    'at %s fails beside them, and is exact when tried again',
    async (level) => {
      expect(['TRANSACTION_ABORTED', '40001']).toContain(await beside(level))
      expect(await recount(dataSource.manager, Note)).toBe(300)
      expect(await counts(1)).toEqual([300])
    },
  )

  test('counts no row in a scope that no index can hold', async () => {
    const place = Array.from({ length: 300_000 }, (_, index) => index.toString(36)).join('')
    const day = new Date()
    await manager.transaction(async (inside) => {
      expect(await recount(inside, Visit, { place, day })).toBe(0)
      expect(await countWithin(inside, Visit, { place, day })).toBe(0)
    })
  })

  test('makes an insert wait until it commits, and loses nothing of it', async () => {
    await behind('insert into note (post, number) values (1, 1)')
    await other.query('begin')
    await dataSource.transaction(async (manager) => {
      expect(await recount(manager, Note, { post: 1 })).toBe(1)
      await other.query(`set local lock_timeout = '50ms'`)
      await expect(other.query('insert into note (post) values (1)')).rejects.toMatchObject({ code: '55P03' })
    })
    await other.query('rollback; insert into note (post) values (1)')
    expect(await counts(1)).toEqual([2])
  })

  test('refuses to count where policies hide rows from the role, and counts nothing less', async () => {
    await dataSource.query('insert into note (post) values (1), (1)')
    const role = `"recount ${db.url.slice(-8)}"`
    await dataSource.query(`create role ${role}; alter table note owner to ${role}, force row level security;
      alter table note enable row level security; grant all on all tables in schema public to ${role}`)
    try {
      for (const scope of [{ post: 1 }, undefined]) {
        const call = dataSource.transaction(async (manager) => {
          await manager.query(`set local role ${role}`)
          return await recount(manager, Note, scope)
        })
        await expect(call).rejects.toBeInstanceOf(UnsupportedDatabaseError)
      }
      expect(await counts(1)).toEqual([2])
    } finally {
      await dataSource.query(`alter table note owner to current_user, no force row level security;
        alter table note disable row level security; drop owned by ${role}; drop role ${role}`)
    }
  })

  test('is undone with the transaction of the caller', async () => {
    await behind('insert into note (post, number) values (1, 1)')
    await dataSource
      .transaction(async (manager) => {
        await recount(manager, Note)
        throw new Error('undone')
      })
      .catch(() => {})
    expect(await counts(1)).toEqual([0])
  })
})

describe('a scope of a wrong kind is refused:', () => {
  const call = async (scope: unknown, entity: unknown = Note): Promise<unknown> => {
    for (const one of [countWithin, recount]) {
      await expect(one(dataSource.manager, entity as typeof Note, scope as object)).rejects.toBeInstanceOf(
        DeclarationError,
      )
    }
    return await countWithin(dataSource.manager, entity as typeof Note, scope as object).catch(
      (error: Error) => error.message,
    )
  }

  test.each([
    ['a function', () => 1],
    ['a symbol', Symbol('post')],
    ['a Map', new Map([['post', 1]])],
    ['a list', [1]],
    ['a Date', new Date()],
    ['null', null],
    ['a number', 1],
  ])('%s in place of a scope', async (_, scope) => {
    expect(await call(scope)).toContain('expected an object with the scope')
    expect(await call(scope, Line)).toContain('expected an object with the scope')
  })

  test.each([
    ['a function', () => 1],
    ['a symbol', Symbol('post')],
    ['a Map', new Map()],
    ['NaN', Number.NaN],
    ['Infinity', Number.POSITIVE_INFINITY],
    ['a Date', new Date()],
    ['a Buffer', Buffer.from('1')],
    ['an object', { id: 1 }],
    ['a list', [1]],
  ])('%s as the value of an integer', async (_, post) => {
    const message = await call({ post })
    expect(message).toContain('"post" of the scope is a integer')
  })

  test('a Date that is none, and one for a text', async () => {
    expect(await call({ place: 'x', day: new Date('x') }, Visit)).toContain('"day" of the scope')
    expect(await call({ place: new Date(), day: new Date() }, Visit)).toContain('"place" of the scope')
  })

  test('a bigint is a number', async () => {
    expect(await countWithin(dataSource.manager, Note, { post: 1n as unknown as number })).toBe(0)
  })
})
