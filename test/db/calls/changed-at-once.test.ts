import { createHash } from 'node:crypto'
import { EntityNotFoundError, type ObjectLiteral, QueryFailedError } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { ImmutableTextError, TextRejectedError, TextTakenError, UniqueText, updateOrFail } from '../../../src'
import { doctor } from '../../../src/doctor'
import { Name } from '../../../src/names'
import { url } from '../../../src/text'
import type { Digest } from '../../../src/text/digest'
import { seededRandom } from '../../stress/random'
import { meet } from '../../support/blocked'
import { useDatabase } from '../../support/database'
import {
  column,
  deleteDate,
  entity,
  key,
  plain,
  text,
  toOne,
  uniqueName,
  updateDate,
  uuidKey,
  version,
} from '../../support/entity'
import { rejection } from '../../support/ledger'
import { loggerOf } from '../../support/logger'
import { STEVENS, SUFFIX_SAFE } from '../../support/md5-collisions'
import { takenBy } from '../../support/results'

const Page = entity('Page', {
  url: text({ normalize: url() }),
  title: plain(),
  rank: column('integer', { unique: true, nullable: true }),
  version: version(),
  changed: updateDate(),
})
const fields = { tenant: column('text'), note: plain(), deleted: deleteDate() }
const options = { scope: ['tenant'], nullable: true, ignoreDeleted: true } as const
/** Texts of equal length share one hash. Only the texts that are set aside are longer. */
const byLength: Digest = {
  name: 'by_length',
  type: 'uuid',
  js: (given) => createHash('md5').update(String(given.length)).digest('hex'),
  sql: (given) => `pg_catalog.md5(pg_catalog.length(${given})::pg_catalog.text)::pg_catalog.uuid`,
}
const Chained = entity('Chained', { text: text({ ...options, digest: byLength }), ...fields })
const Scoped = entity('Scoped', { text: text(options), ...fields })
const Guardless = entity('Guardless', { text: text({ ...options, guard: false, digest: 'sha256' }), ...fields })
const Plain = entity('Plain', { text: text() })
const Short = entity('Short', { id: key('integer'), text: column('varchar', { length: 12 }) })
UniqueText()(Short.prototype, 'text')
const Fixed = entity('Fixed', { id: uuidKey(), text: text({ immutable: true, nullable: true }) })
const User = entity('User', { handle: uniqueName({ namespace: 'handle', former: 'redirect' }) })
const Owner = entity('Owner', { name: key('text') })
const Account = entity('Account', {
  tenant: key('text'),
  number: key('integer'),
  owner: toOne(() => Owner, { nullable: false }),
  handle: text({ scope: ['owner'] }),
  email: text({ nullable: true }),
  data: column('jsonb', { nullable: true }),
  tags: column('text', { array: true, nullable: true }),
})

const db = useDatabase()
const statements: string[] = []
const logger = loggerOf({ logQuery: (sql: string) => void statements.push(sql) })
const entities = [Page, Chained, Scoped, Guardless, Plain, Short, Fixed, Owner, Account, User, Name]
const dataSource = db.useDataSource(entities, { logger })
const { manager } = dataSource
const client = db.useClient()
const sessions = { other: client, observer: db.useClient() }

beforeEach(async () => {
  await client.query(`
    insert into page (url, title, version)
      select 'http://' || n || '.example/', 'old', 1 from generate_series(1, 5) as n;
    insert into plain (text) values ('a'), ('b'), ('c');
    insert into owner values ('x'), ('y');
    insert into account (tenant, number, "ownerName", handle, email)
      values ('t', 1, 'x', 'a', 'a@x'), ('t', 2, 'x', 'b', null), ('u', 1, 'y', 'a', 'b@y')`)
})

const texts = async (): Promise<string[]> => {
  const rows = await manager.find(Plain, { order: { id: 'asc' } })
  return rows.map((row) => row.text)
}

describe('two rows swap their texts', () => {
  const changes = [
    { id: 1, text: 'b' },
    { id: 2, text: 'a' },
  ]
  test.each([[changes], [changes.toReversed()]])('whatever their order: %j', async (given) => {
    const rows = await updateOrFail(manager, Plain, given)
    expect(rows).toEqual(given)
    expect(rows[0]).toBeInstanceOf(Plain)
    expect(await texts()).toEqual(['b', 'a', 'c'])
  })

  test('as entries for several entities', async () => {
    const [, page] = await updateOrFail(manager, [
      [Page, 1, { url: 'http://2.example' }],
      [Page, 2, { url: 'http://1.example', title: 'new' }],
      [Account, { tenant: 't', number: 1 }, { handle: 'b' }],
      [Account, { tenant: 't', number: 2 }, { handle: 'a', data: { list: [1] } }],
    ])
    expect(page).toMatchObject({ id: 2, url: 'http://1.example/', title: 'new', version: 2 })
    await updateOrFail(manager, Account, [
      { tenant: 't', number: 1, tags: ['a,b', '"'] as never },
      { tenant: 't', number: 2, tags: [] as never },
    ])
    const accounts = await manager.find(Account, { order: { tenant: 'asc', number: 'asc' } })
    expect(accounts.map(({ handle }) => handle)).toEqual(['b', 'a', 'a'])
    expect(accounts).toMatchObject([{ tags: ['a,b', '"'] }, { data: { list: [1] }, tags: [] }, {}])
  })

  test('of which each moves to the scope of the other, with its text', async () => {
    await updateOrFail(manager, Account, [
      { tenant: 't', number: 1, owner: { name: 'y' } },
      { tenant: 'u', number: 1, owner: { name: 'x' } },
    ])
    expect(await manager.countBy(Account, { tenant: 't', number: 1, owner: { name: 'y' }, handle: 'a' })).toBe(1)
    expect(await manager.countBy(Account, { tenant: 'u', number: 1, owner: { name: 'x' }, handle: 'a' })).toBe(1)
  })

  test.each([
    ['of equal MD5', SUFFIX_SAFE],
    ['of equal MD5, which differ with a common end', STEVENS],
  ])('%s', async (_, [one, other]) => {
    await client.query('update plain set text = $1 where id = 1', [one])
    await client.query('update plain set text = $1 where id = 2', [other])
    await updateOrFail(manager, Plain, [
      { id: 1, text: other },
      { id: 2, text: one },
    ])
    expect(await texts()).toEqual([other, one, 'c'])
  })

  test('in a column that is hardly longer than they are', async () => {
    await client.query(`insert into short values (1, 'abcdefghijkl'), (2, 'abcdefghijkm')`)
    await updateOrFail(manager, Short, [
      { id: 1, text: 'abcdefghijkm' },
      { id: 2, text: 'abcdefghijkl' },
    ])
    expect(await manager.countBy(Short, { id: 1, text: 'abcdefghijkm' })).toBe(1)
  })

  test("in the caller's transaction, and the transaction goes on after a refusal", async () => {
    await dataSource.transaction(async (own) => {
      const error = await takenBy(
        updateOrFail(own, Plain, [
          { id: 1, text: 'b' },
          { id: 2, text: 'c' },
        ]),
      )
      expect(error.taken).toEqual([{ entity: 'Plain', property: 'text', id: { id: 3 }, row: 1 }])
      await updateOrFail(own, Plain, changes)
    })
    expect(await texts()).toEqual(['b', 'a', 'c'])
  })
})

test('the number of statements does not grow with the rows, and no row counts twice', async () => {
  await client.query(`insert into plain (text) select 'row ' || n from generate_series(4, 1000) as n; analyze plain`)
  const counted = async (rows: number): Promise<string[]> => {
    statements.length = 0
    await updateOrFail(
      manager,
      Plain,
      Array.from({ length: rows }, (_, nth) => ({ id: nth + 4, text: `row ${((nth + 1) % rows) + 4}` })),
    )
    return [...statements]
  }
  await counted(2)
  const few = await counted(2)
  expect(few.filter((sql) => sql.startsWith('WITH'))).toHaveLength(2)
  expect(await counted(900)).toEqual(few)
  const { rows } = await client.query(`select text from plain where id in (4, 903) order by id`)
  expect(rows).toEqual([{ text: 'row 5' }, { text: 'row 4' }])
})

test('the error of one change names the way', async () => {
  const { message } = await takenBy(updateOrFail(manager, Plain, 1, { text: 'b' }))
  expect(message).toContain('To swap texts, change both rows in one updateOrFail().')
})

interface Row {
  readonly id: number
  readonly tenant: string
  readonly text: string | null
  readonly isDeleted: boolean
}

/** The rows as they must be, and the positions of the changes that must be refused. */
function expected(rows: readonly Row[], changes: readonly Partial<Row>[]): { after: Row[]; taken: number[] } {
  const after = rows.map((row) => ({ ...row, ...changes.find(({ id }) => id === row.id) }))
  const keyOf = ({ tenant, text: held, isDeleted }: Row): string | undefined =>
    isDeleted || held === null ? undefined : `${tenant} ${held}`
  const isKept = (id: number): boolean =>
    Object.keys(changes.find((one) => one.id === id) ?? {}).every((name) => ['id', 'note'].includes(name))
  const held = new Set(after.filter(({ id }) => isKept(id)).map(keyOf))
  const taken = changes.flatMap(({ id = 0 }, position) => {
    const key = keyOf(after.find((row) => row.id === id) as Row)
    if (key === undefined || isKept(id)) return []
    if (held.has(key)) return [position]
    held.add(key)
    return []
  })
  return { after, taken }
}

describe.each([
  ['chains', Chained],
  ['texts', Scoped],
  ['texts without a guard', Guardless],
] as const)('%s, changed at random', (_, Kind) => {
  test('end as if the changes happened at once, or every taken text is named', async () => {
    const random = seededRandom(46)
    const table = manager.connection.getMetadata(Kind).tableName
    const outcomes: unknown[] = []
    const wanted: { readonly taken: readonly number[]; readonly [other: string]: unknown }[] = []
    for (let round = 0; round < 50; round += 1) {
      await client.query(`truncate "${table}" restart identity`)
      const rows: Row[] = []
      while (rows.length < 6) {
        const row = {
          id: rows.length + 1,
          tenant: random.pick(['x', 'y']),
          text: random.pick(['a', 'b', 'c', null]),
          isDeleted: random.chance(0.25),
        }
        if (expected([...rows, row], [row]).taken.length > 0) continue
        rows.push(row)
        await manager.insert(Kind, {
          tenant: row.tenant,
          text: row.text,
          deleted: row.isDeleted ? new Date(0) : null,
        })
      }
      const changes = random.sample(rows, 2 + random.int(4)).map(({ id }): Partial<Row> => {
        const change: Record<string, unknown> = { id, note: 'n' }
        if (random.chance(0.5)) change['text'] = random.pick(['a', 'b', 'c', null])
        if (random.chance(0.25)) change['tenant'] = random.pick(['x', 'y'])
        if (random.chance(0.2)) change['isDeleted'] = random.chance(0.5)
        return change
      })
      const { after, taken } = expected(rows, changes)
      const given = changes.map(({ isDeleted, ...change }): ObjectLiteral => ({
        ...change,
        ...(isDeleted === undefined ? {} : { deleted: isDeleted ? new Date(0) : null }),
      }))
      const call = await updateOrFail(manager, Kind, given as never).catch((error: unknown) => error)
      const stored = await client.query<Row>(
        `select id, tenant, text, deleted is not null as "isDeleted" from "${table}" order by id`,
      )
      const rowOf = ({ id, tenant, text: held, isDeleted }: Row): Row => ({ id, tenant, text: held, isDeleted })
      outcomes.push({
        round,
        rows,
        changes,
        taken: call instanceof TextTakenError ? call.taken.map(({ row }) => row) : call instanceof Error ? call : [],
        stored: stored.rows,
      })
      wanted.push({
        round,
        rows,
        changes,
        taken,
        stored: (taken.length > 0 ? rows : after).map(rowOf),
      })
    }
    expect(outcomes).toEqual(wanted)
    expect(wanted.filter(({ taken }) => taken.length === 0).length).toBeGreaterThan(10)
    const { findings } = await doctor(dataSource)
    expect(findings.filter(({ severity }) => severity === 'error')).toEqual([])
  })
})

describe('names', () => {
  const handles = async (): Promise<unknown> => {
    const rows = await manager.find(User, { order: { id: 'asc' } })
    return rows.map(({ handle }) => handle)
  }
  beforeEach(() => manager.insert(User, [{ handle: 'a' }, { handle: 'b' }, { handle: 'c' }]))

  test('go round, whatever the order, and a name that somebody gives up is no former name', async () => {
    await updateOrFail(manager, User, [
      { id: 2, handle: 'c' },
      { id: 1, handle: 'b' },
      { id: 3, handle: 'd' },
    ])
    expect(await handles()).toEqual(['b', 'c', 'd'])
    await updateOrFail(manager, User, [
      { id: 1, handle: 'c' },
      { id: 2, handle: 'b' },
    ])
    expect(await handles()).toEqual(['c', 'b', 'd'])
    expect(await manager.find(Name, { select: { text: true }, where: { state: 'redirect' } })).toEqual([{ text: 'a' }])
  })

  test('that another row keeps are taken', async () => {
    const call = updateOrFail(manager, User, [
      { id: 1, handle: 'b' },
      { id: 2, handle: 'c' },
    ])
    expect((await takenBy(call)).taken).toEqual([{ entity: 'User', property: 'handle', id: { id: 3 }, row: 1 }])
    expect(await handles()).toEqual(['a', 'b', 'c'])
  })
})

describe('one after another', () => {
  test('if a row is given in two spellings of its key', async () => {
    const id = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'
    await manager.insert(Fixed, { id, text: null })
    await updateOrFail(manager, Fixed, [
      { id: id.toUpperCase(), text: null },
      { id, text: 'a' },
    ])
    expect(await manager.findBy(Fixed, { text: 'a' })).toHaveLength(1)
  })

  test('if a change has SQL, a condition or a row twice', async () => {
    const [, page] = await updateOrFail(manager, [
      [Page, 1, { url: 'http://new.example' }],
      [Page, 2, { url: 'http://1.example', title: () => `upper('sql')` }],
    ])
    expect(page).toMatchObject({ url: 'http://1.example/', title: 'SQL' })
    await updateOrFail(manager, [
      [Page, { id: 1, title: 'old' }, { url: 'http://a.example' }],
      [Page, 2, { url: 'http://new.example' }],
    ])
    await updateOrFail(manager, [
      [Page, 1, { url: 'http://b.example' }],
      [Page, 1, { title: 'again' }],
    ])
    expect(await manager.findOneBy(Page, { id: 1 })).toMatchObject({ url: 'http://b.example/', title: 'again' })
  })

  test('if another unique index allows that only', async () => {
    await client.query('update page set rank = id')
    await updateOrFail(manager, [
      [Page, 1, { rank: 10, title: 'a' }],
      [Page, 5, { rank: 1, title: 'b' }],
      [Page, 4, { rank: 5, title: 'c' }],
      [Page, 3, { rank: 4, title: 'd' }],
    ])
    const rows = await manager.find(Page, { order: { id: 'asc' } })
    expect(rows.map(({ rank }) => rank)).toEqual([10, 2, 4, 5, 1])
    const swap = updateOrFail(manager, Page, [
      { id: 1, rank: 2 },
      { id: 2, rank: 10 },
    ])
    expect(await rejection(swap)).toBeInstanceOf(QueryFailedError)
  })
})

describe('nothing is changed', () => {
  test.each<[string, () => Promise<unknown>, new (...args: never[]) => Error]>([
    [
      'if a row is missing',
      () =>
        updateOrFail(manager, Plain, [
          { id: 1, text: 'b' },
          { id: 2, text: 'a' },
          { id: 99, text: 'd' },
        ]),
      EntityNotFoundError,
    ],
    [
      'if a text is rejected',
      () =>
        updateOrFail(manager, Page, [
          { id: 1, url: 'http://2.example' },
          { id: 2, url: 'nonsense' },
        ]),
      TextRejectedError,
    ],
    [
      'if the list has a text twice',
      () =>
        updateOrFail(manager, Plain, [
          { id: 1, text: 'd' },
          { id: 2, text: 'd' },
        ]),
      TextTakenError,
    ],
  ])('%s', async (_, call, type) => {
    expect(await rejection(call())).toBeInstanceOf(type)
    expect(await texts()).toEqual(['a', 'b', 'c'])
    expect(await manager.countBy(Page, { version: 1 })).toBe(5)
  })

  test('if a text is immutable, and it stays where it does not change', async () => {
    const [one, two] = await manager.save(Fixed, [{ text: 'a' }, { text: null }])
    const [first = '', second = ''] = [one?.id, two?.id]
    const passOn = updateOrFail(manager, Fixed, [
      { id: first, text: 'b' },
      { id: second, text: 'a' },
    ])
    expect(await rejection(passOn)).toBeInstanceOf(ImmutableTextError)
    const twice = updateOrFail(manager, Fixed, [
      { id: first, text: 'a' },
      { id: second, text: 'a' },
    ])
    expect((await takenBy(twice)).taken).toMatchObject([{ row: 1, repeated: true }])
  })
})

describe('others', () => {
  const swap = (): Promise<unknown> =>
    updateOrFail(manager, Plain, [
      { id: 1, text: 'b' },
      { id: 2, text: 'a' },
    ])

  test('who change a row of the swap first are waited for', async () => {
    await meet(sessions, `update plain set text = 'd' where id = 2`, swap)
    expect(await texts()).toEqual(['b', 'a', 'c'])
  })

  test('who take one of the texts meanwhile are named', async () => {
    const call = meet(
      sessions,
      `update plain set text = 'd' where id = 2; update plain set text = 'b' where id = 3`,
      swap,
    )
    expect((await takenBy(call)).taken).toEqual([{ entity: 'Plain', property: 'text', id: { id: 3 }, row: 0 }])
    expect(await texts()).toEqual(['a', 'd', 'b'])
  })

  test('who swap the same rows the other way round come before or after', async () => {
    await client.query('begin')
    await client.query(`select from plain where id = 1 for update`)
    const calls = [
      swap(),
      updateOrFail(manager, Plain, [
        { id: 2, text: 'a' },
        { id: 1, text: 'b' },
      ]),
    ]
    await client.query('commit')
    await Promise.all(calls)
    expect(await texts()).toEqual(['b', 'a', 'c'])
  })

  test('many clients who permute the same rows all succeed', async () => {
    const { manager: many } = await db.dataSource(entities, { poolSize: 12, synchronize: false })
    const random = seededRandom(7)
    const ids = [1, 2, 3]
    const calls = Array.from({ length: 60 }, () => {
      const order = random.sample(ids, 3)
      const held = random.sample(['a', 'b', 'c'], 3)
      return updateOrFail(
        many,
        Plain,
        order.map((id, nth) => ({ id, text: held[nth] ?? '' })),
      )
    })
    const settled = await Promise.allSettled(calls)
    expect(settled.filter(({ status }) => status === 'rejected')).toEqual([])
    expect((await texts()).toSorted()).toEqual(['a', 'b', 'c'])
  })
})
