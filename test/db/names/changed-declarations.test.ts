import { type DataSource, EntitySchema, type EntitySchemaOptions } from 'typeorm'
import { beforeEach, describe, expect, test } from 'vitest'
import { SchemaDriftError, uniqueTextSchema } from '../../../src'
import {
  findHolder,
  findOrCreateHolder,
  Name,
  rename,
  uniqueNameSchema,
  type UniqueNameOptions,
} from '../../../src/names'
import { lowerCase } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { generate, migrate, runAll } from '../../support/generated'
import { back, nothingLeft, step } from '../../support/generated-steps'
import { rejection } from '../../support/ledger'

const db = useDatabase({ wrapped: true })
const client = db.useClient()

async function emptied(): Promise<void> {
  await client.query('drop schema public cascade; drop schema if exists other cascade; create schema public')
}
beforeEach(emptied)

type Row = Record<string, unknown>
type Columns = NonNullable<EntitySchemaOptions<Row>['columns']>
type Names = Readonly<Record<string, Partial<UniqueNameOptions>>>

interface Shape {
  readonly name: string
  readonly columns?: Columns
  readonly names?: Names
  readonly id?: Columns['id']
  readonly tableName?: string
  readonly schema?: string
}

const text = { type: 'text' } as const
const maybe = { type: 'text', nullable: true } as const

function entity({ name, columns = {}, names, id = { type: 'integer' }, ...where }: Shape): EntitySchema<Row> {
  const options = { name, tableName: name, ...where, columns: { id: { ...id, primary: true }, ...columns } }
  const all = Object.entries(names ?? {}).map(([property, one]) => [property, { namespace: 'handle', ...one }] as const)
  return new EntitySchema<Row>(names ? uniqueNameSchema(options, Object.fromEntries(all)) : options)
}

/** Two tables, of which the shapes tell what differs from a plain one with a handle. */
const open = (...shapes: readonly Shape[]): Promise<DataSource> =>
  db.dataSource([Name, ...shapes.map(entity)], { synchronize: false })

const plainUser: Shape = { name: 'user', columns: { handle: text } }
const plainTeam: Shape = { name: 'team', columns: { slug: text } }
const user: Shape = { name: 'user', names: { handle: { former: 'redirect' } } }
const team: Shape = { name: 'team', names: { slug: {} } }

async function fill(): Promise<void> {
  await client.query(`insert into "user" (id, handle) values (1, 'ann'), (2, 'bob')`)
  await client.query(`insert into team (id, slug) values (1, 'red'), (2, 'blue')`)
}

/** `holder.column key text`, with the state where it is not held. */
async function names(): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select concat_ws(' ', replace(holder::text, '"', '') || '.' || holder_column, holder_key, text, nullif(state, 'held')) as name
       from names order by 1`,
  )
  return rows.map(({ name }) => name)
}

const FILLED = ['team.slug [1] red', 'team.slug [2] blue', 'user.handle [1] ann', 'user.handle [2] bob']

const message = (work: Promise<unknown>): Promise<string> => work.then(() => 'done', String)

/** What a migration is refused with: a message without values of rows, and the keys. */
const refusal = async (work: Promise<unknown>): Promise<string> => {
  const error: unknown = await work.then(
    () => 'done',
    (one: unknown) => one,
  )
  expect(String(error)).toMatch(/rows hold, or have held, one name: \d+\. The DETAIL has the keys of ten\./)
  return (error as { readonly driverError: { readonly detail: string } }).driverError.detail.replaceAll(
    /public\.|"/g,
    '',
  )
}

/** Both tables with rows, from a time without names. */
async function filledPlain(): Promise<DataSource> {
  const before = await db.dataSource([plainUser, plainTeam].map(entity), { synchronize: false })
  await step(before)
  await fill()
  return before
}

test('a table is detached and its names are deleted by one statement', async () => {
  await filledPlain()
  const whole = await open(user, team)
  const added = await step(whole)
  const removed = await generate(await open(plainUser, team))
  for (const statements of [added.down, removed.up]) {
    expect(statements.join(';').match(/detach_name_v1"\('"user"'.*/g)).toEqual([
      expect.stringContaining(`pg_catalog.to_regclass('"names"')`),
    ])
  }
})

test('tables with rows get their names, there, back and there again', async () => {
  const before = await filledPlain()
  const dataSource = await open(user, team)
  const made = await step(dataSource)
  expect(made.up.filter((one) => one.includes('DROP COLUMN'))).toEqual([])
  expect(await names()).toEqual(FILLED)
  await client.query(`update "user" set handle = 'anna' where id = 1`)
  expect(await findHolder(dataSource.manager, 'handle', 'ann', { former: true })).toMatchObject({
    id: { id: 1 },
    former: true,
  })
  await back(before, made)
  await client.query(`delete from "user" where id = 2`)
  await step(dataSource)
  expect(await names()).toEqual(['team.slug [1] red', 'team.slug [2] blue', 'user.handle [1] anna'])
})

test('new tables need no names, and the way back leaves nothing', async () => {
  const dataSource = await open(user, team)
  const { down } = await step(dataSource)
  await fill()
  expect(await names()).toEqual(FILLED)
  await runAll(dataSource, down)
  const { rows } = await client.query(
    `select relname from pg_class where relnamespace = 'public'::regnamespace union all
     select proname from pg_proc where pronamespace = 'public'::regnamespace`,
  )
  expect(rows).toEqual([])
})

test('synchronize does the same', async () => {
  await filledPlain()
  const dataSource = await db.dataSource([Name, entity(user), entity(team)])
  expect(await names()).toEqual(FILLED)
  await nothingLeft(dataSource)
})

test('rows that would hold one name are refused, by their keys and never by the text', async () => {
  await filledPlain()
  await client.query(`insert into "user" (id, handle) values (3, 'red'), (4, 'bob')`)
  const said = await refusal(migrate(await open(user, team)))
  expect(said).toContain('user.handle [4] and user.handle [2]')
  await client.query(`delete from "user" where id = 4`)
  const next = await refusal(migrate(await open(user, team)))
  expect(next).toContain('team.slug [1] and user.handle [3]')
  expect(said + next).not.toMatch(/\bbob\b|\bred\b/)
  expect((await client.query(`select to_regclass('names') as name`)).rows).toEqual([{ name: null }])
  await client.query(`update "user" set handle = 'eve' where id = 3`)
  await step(await open(user, team))
  expect(await names()).toEqual([...FILLED, 'user.handle [3] eve'])
})

test('a second table joins a namespace that has names already', async () => {
  await step(await open(user, plainTeam))
  await fill()
  const joined = await step(await open(user, team))
  expect(await names()).toEqual(FILLED)
  await back(await open(user, plainTeam), joined)
  expect(await names()).toEqual(FILLED.slice(2))
})

test('a migration without a transaction that stops anywhere leaves no rows behind that hold no names', async () => {
  await filledPlain()
  const { up } = await generate(await open(user, team))
  for (const stop of up.keys()) {
    await emptied()
    await filledPlain()
    const dataSource = await open(user, team)
    for (const statement of up.slice(0, stop)) await dataSource.query(statement)
    await migrate(dataSource)
    expect([stop, await names()]).toEqual([stop, FILLED])
  }
})

test('a table that comes later takes its names with it when its migration is undone', async () => {
  const before = await open(user)
  await step(before)
  const made = await step(await open(user, team))
  await fill()
  await back(before, made)
  expect(await names()).toEqual(FILLED.slice(2))
})

describe('a declaration that is gone', () => {
  test('takes the names of its table along, and brings them back', async () => {
    const whole = await open(user, team)
    await step(whole)
    await fill()
    await client.query(`update "user" set handle = 'anna' where id = 1`)
    const gone = await open(plainUser, team)
    const made = await step(gone)
    expect(await names()).toEqual(FILLED.slice(0, 2))
    await client.query(`update "user" set handle = 'eve' where id = 2`)
    await back(whole, made)
    expect(await names()).toEqual([...FILLED.slice(0, 2), 'user.handle [1] anna', 'user.handle [2] eve'])
  })

  test('goes with its column', async () => {
    const whole = await open({ name: 'user', names: { handle: { nullable: true } } }, team)
    await step(whole)
    await fill()
    const gone = await open({ name: 'user' }, team)
    const made = await step(gone)
    expect(await names()).toEqual(FILLED.slice(0, 2))
    await back(whole, made)
    expect(await names()).toEqual(FILLED.slice(0, 2))
    await client.query(`update "user" set handle = 'ann'`).catch(() => {})
    await client.query(`update "user" set handle = 'ann' where id = 1`)
    expect(await names()).toEqual(FILLED.slice(0, 3))
  })

  test('frees its names for others in the same migration', async () => {
    const whole = await open(user, plainTeam)
    await step(whole)
    await fill()
    await client.query(`update team set slug = 'ann' where id = 1`)
    const swapped = await open(plainUser, team)
    const made = await step(swapped)
    expect(await names()).toEqual(['team.slug [1] ann', 'team.slug [2] blue'])
    await back(whole, made)
    expect(await names()).toEqual(FILLED.slice(2))
  })
})

describe('what is renamed keeps its names, former ones too, and so on the way back:', () => {
  async function expectMoved(after: Shape, moved: readonly string[], rename = ''): Promise<void> {
    const whole = await open(user, team)
    await step(whole)
    await fill()
    await client.query(`update "user" set handle = 'anna' where id = 1`)
    if (rename) {
      await client.query(`alter table "user" rename to ${rename}`)
      await client.query(`insert into ${rename} (id, handle) values (7, 'eve'); delete from ${rename} where id = 7`)
    }
    const renamed = await open(after, team)
    const made = await step(renamed)
    expect(made.up.filter((one) => one.includes('DROP COLUMN'))).toEqual([])
    const former = 'former' in (Object.values(after.names ?? {})[0] ?? {})
    expect(await names()).toEqual([...FILLED.slice(0, 2), ...moved].toSorted())
    expect(await findHolder(renamed.manager, 'handle', 'ann', { former })).toMatchObject({ id: { id: 1 }, former })
    await runAll(renamed, made.down)
    if (rename) {
      await client.query(`alter table ${rename} rename to "user"`)
      await step(whole)
    }
    await nothingLeft(whole)
    expect(await names()).toEqual([
      ...FILLED.slice(0, 2),
      'user.handle [1] ann redirect',
      'user.handle [1] anna',
      'user.handle [2] bob',
    ])
  }
  const renamed = (to: string): string[] => [`${to} [1] ann redirect`, `${to} [1] anna`, `${to} [2] bob`]

  test('a property', async () => {
    await expectMoved({ name: 'user', names: { nick: { former: 'redirect' } } }, renamed('user.nick'))
  })

  test('a property, whatever else changes', async () => {
    const columns = { one: maybe, two: maybe }
    await expectMoved({ name: 'user', columns, names: { nick: { former: 'redirect' } } }, renamed('user.nick'))
  })

  test('a property, while the type of another one changes', async () => {
    const two = await open({
      name: 'user',
      names: { handle: { former: 'redirect' }, alias: { namespace: 'a', nullable: true } },
    })
    await step(two)
    await client.query(`insert into "user" (id, handle, alias) values (1, 'ann', 'x')`)
    await client.query(`update "user" set handle = 'anna' where id = 1`)
    const columns = { alias: { type: 'varchar', length: 40, nullable: true } } as const
    const renamed = await open({
      name: 'user',
      columns,
      names: { nick: { former: 'redirect' }, alias: { namespace: 'a', nullable: true } },
    })
    const made = await step(renamed)
    expect(made.up.join()).toMatch(/ALTER (?:COLUMN )?"alias"|"alias" TYPE/)
    expect(await names()).toEqual(['user.alias [1] x', 'user.nick [1] ann redirect', 'user.nick [1] anna'])
    await runAll(renamed, made.down)
    expect(await names()).toEqual(['user.alias [1] x', 'user.handle [1] ann redirect', 'user.handle [1] anna'])
    await nothingLeft(two)
  })

  test('a table', async () => {
    const shape = { ...user, tableName: 'person' }
    await expectMoved(shape, renamed('person.handle'), 'person')
  })

  test('a column of the type varchar', async () => {
    const columns = { handle: { type: 'varchar', length: 50 } } as const
    await expectMoved({ ...user, columns }, renamed('user.handle'))
  })
})

describe('what changes is followed, and so is its way back:', () => {
  test('another namespace', async () => {
    const whole = await open(user, team)
    await step(whole)
    await fill()
    await client.query(`update "user" set handle = 'anna' where id = 1`)
    const moved = await names()
    const other = await open({ name: 'user', names: { handle: { namespace: 'nick', former: 'redirect' } } }, team)
    const made = await step(other)
    expect(await names()).toEqual(moved)
    const former = { id: { id: 1 }, name: 'anna', former: true }
    expect(await findHolder(other.manager, 'nick', 'ann', { former: true })).toMatchObject(former)
    expect(await findHolder(other.manager, 'handle', 'anna')).toBeNull()
    await client.query(`insert into "user" (id, handle) values (3, 'eve')`)
    await back(whole, made)
    expect(await findHolder(whole.manager, 'handle', 'eve')).toMatchObject({ id: { id: 3 } })
    expect(await findHolder(whole.manager, 'handle', 'ann', { former: true })).toMatchObject(former)
  })

  test('another namespace, in which another row holds a former name, once that is deleted', async () => {
    const nick: Shape = { name: 'team', names: { slug: { namespace: 'nick' } } }
    await step(await open(user, nick))
    await client.query(`insert into "user" (id, handle) values (1, 'ann'), (2, 'bob')`)
    await client.query(`insert into team (id, slug) values (1, 'ann')`)
    await client.query(`update "user" set handle = handle || '2'`)
    const both = await open({ name: 'user', names: { handle: { namespace: 'nick', former: 'redirect' } } }, nick)
    const said = await refusal(migrate(both))
    expect(said).toContain('user.handle [1] and team.slug [1]')
    expect(said).not.toMatch(/\bann\b/)
    await client.query(`delete from names where namespace = 'handle' and text = 'ann'`)
    await step(both)
    const { rows } = await client.query<{ name: string }>(
      `select concat_ws(' ', namespace, replace(holder::text, '"', ''), text, state) as name from names order by 1`,
    )
    expect(rows.map(({ name }) => name)).toEqual([
      'nick team ann held',
      'nick user ann2 held',
      'nick user bob redirect',
      'nick user bob2 held',
    ])
  })

  test('two namespaces that are swapped, former names too', async () => {
    const swappable = (handle: string, login: string): Shape => ({
      name: 'user',
      names: { handle: { namespace: handle, former: 'redirect' }, login: { namespace: login, former: 'reserve' } },
    })
    const before = await open(swappable('a', 'b'))
    await step(before)
    await client.query(`insert into "user" (id, handle, login) values (1, 'ann', 'ann'), (2, 'bob', 'eve')`)
    await client.query(`update "user" set handle = handle || '2', login = case id when 1 then 'bob' else 'ann2' end`)
    await client.query(`insert into "user" (id, handle, login) values (3, 'eve', 'eve3')`)
    const stored = async (): Promise<string[]> => {
      const { rows } = await client.query<{ name: string }>(
        `select concat_ws(' ', namespace, holder_column, text, state) as name from names order by 1`,
      )
      return rows.map(({ name }) => name)
    }
    const names = await stored()
    const made = await step(await open(swappable('b', 'a')))
    const other = (name: string): string => `${name.startsWith('a ') ? 'b' : 'a'}${name.slice(1)}`
    expect(await stored()).toEqual(names.map(other).toSorted())
    await back(before, made)
    expect(await stored()).toEqual(names)
  })

  describe('another namespace, in which somebody has a former name of a row,', () => {
    const other: Shape = { name: 'user', names: { handle: { namespace: 'login', former: 'redirect' } } }
    const THEIRS = 'elsewhere.handle [1] bob reserved'
    const MOVED = ['user.handle [1] ann', 'user.handle [2] bobby']
    const had = async (until: string): Promise<void> => {
      await step(await open(user))
      await client.query(`insert into "user" (id, handle) values (1, 'ann'), (2, 'bob');
        update "user" set handle = 'bobby' where id = 2;
        create table if not exists elsewhere ();
        insert into names (namespace, text, holder, holder_column, holder_key, state, until)
          values ('login', 'bob', 'elsewhere', 'handle', '[1]', 'reserved', ${until})`)
    }

    test('is refused with the keys of both, until one of them gives way', async () => {
      await had('null')
      const before = await names()
      expect(await refusal(migrate(await open(other)))).toMatch(/user\.handle \[2\] and \S*elsewhere\.handle \[1\]/)
      expect(await names()).toEqual(before)
      await client.query(`delete from names where namespace = 'handle' and text = 'bob'`)
      await step(await open(other))
      expect(await names()).toEqual([THEIRS, ...MOVED])
    })
    test('takes all names along where the time of the other is over', async () => {
      await had(`now() - interval '1 second'`)
      await step(await open(other))
      expect(await names()).toEqual([MOVED[0], 'user.handle [2] bob redirect', MOVED[1]])
    })
    test('takes the others along where the time of the former name is over', async () => {
      await had('null')
      await client.query(
        `update names set until = now() - interval '1 second' where namespace = 'handle' and text = 'bob'`,
      )
      await step(await open(other))
      expect(await names()).toEqual([THEIRS, ...MOVED])
    })
  })

  test.each([
    ['free', []],
    ['reserve', ['user.handle [2] bob reserved']],
  ] as const)('what becomes of former names (%s), without a look at the rows', async (policy, given) => {
    const whole = await open(user, team)
    await step(whole)
    await fill()
    await client.query(`update "user" set handle = 'anna' where id = 1`)
    const other = await open({ name: 'user', names: { handle: { former: policy } } }, team)
    const made = await step(other)
    expect(made.up.filter((one) => one.includes('LOCK TABLE'))).toEqual([])
    await client.query(`update "user" set handle = 'bobby' where id = 2`)
    const former = (await names()).filter((one) => /re(?:direct|served)$/.test(one))
    expect(former).toEqual(['user.handle [1] ann redirect', ...given])
    await back(whole, made)
  })

  test('a second name of a table that comes and goes', async () => {
    const whole = await open({ ...user, columns: { mail: maybe } })
    await step(whole)
    await client.query(`insert into "user" (id, handle, mail) values (1, 'ann', 'a@x'), (2, 'bob', null)`)
    const both = { handle: { former: 'redirect' }, mail: { namespace: 'mail', nullable: true } } as const
    const more = await open({ name: 'user', names: both })
    const made = await step(more)
    expect(await names()).toEqual(['user.handle [1] ann', 'user.handle [2] bob', 'user.mail [1] a@x'])
    await back(whole, made)
    expect(await names()).toEqual(FILLED.slice(2))
    await step(more)
    const less = await step(whole)
    expect(await names()).toEqual(FILLED.slice(2))
    await client.query(`update "user" set mail = 'b@x' where id = 2`)
    await back(more, less)
    expect(await names()).toEqual([...FILLED.slice(2), 'user.mail [1] a@x', 'user.mail [2] b@x'])
  })
})

test('another normalizer is refused while the column has texts, and so is its way back', async () => {
  const whole = await open(user, plainTeam)
  await step(whole)
  await fill()
  const other = await open({ name: 'user', names: { handle: { normalize: lowerCase() } } }, plainTeam)
  const { up, down } = await generate(other)
  const said = await message(runAll(other, up))
  expect(said).toMatch(/column "handle" of table "user" has texts normalized by custom@1|none@1/)
  expect(said).toContain('lower-case@1')
  const refusal = up.filter((one) => one.includes('SQL cannot normalize'))
  expect(refusal).toHaveLength(1)
  await runAll(
    other,
    up.map((one) => (one === refusal[0] ? `update "user" set handle = lower(handle)` : one)),
  )
  await nothingLeft(other)
  await runAll(whole, down)
  await nothingLeft(whole)
})

test('a normalizer that goes asks for nothing, and its way back does', async () => {
  const before = await open({ name: 'user', names: { handle: { normalize: lowerCase() } } }, plainTeam)
  await step(before)
  await fill()
  const without = await open(user, plainTeam)
  const { down } = await step(without)
  expect(await message(runAll(without, down))).toContain('normalized by none@1, not yet by lower-case@1')
  await client.query('truncate "user"')
  await runAll(without, down)
  await nothingLeft(before)
})

test('keys of another type give every row its names anew', async () => {
  const whole = await open({ ...user, id: { type: 'integer', generated: 'increment' } }, team)
  await step(whole)
  await fill()
  const other = await open({ ...user, id: { type: 'uuid', generated: 'uuid' } }, team)
  const { down } = await step(other)
  const { rows } = await client.query<{ id: string }>(`select id from "user" where handle = 'ann'`)
  expect(await findHolder(other.manager, 'handle', 'ann')).toMatchObject({ id: { id: rows[0]?.id } })
  await runAll(whole, down)
  await nothingLeft(whole)
  expect(await findHolder(whole.manager, 'handle', 'ann')).toMatchObject({ id: { id: expect.any(Number) as number } })
})

test('a first normalizer is refused too, and asks nothing of a new column', async () => {
  await step(await open({ name: 'user' }, plainTeam))
  const named = { name: 'user', names: { handle: { normalize: lowerCase(), nullable: true } } }
  const made = await step(await open(named, plainTeam))
  await client.query(`insert into "user" (id, handle) values (1, 'ann')`)
  await runAll(await open({ name: 'user' }, plainTeam), made.down)
  await client.query(`insert into team (id, slug) values (1, 'Red')`)
  const team = { name: 'team', names: { slug: { normalize: lowerCase() } } }
  const refused = await message(migrate(await open({ name: 'user' }, team)))
  expect(refused).toContain('SQL cannot normalize')
  expect(refused).toContain(
    'column "slug" of table "team" has texts normalized by none@1, not yet by lower-case@1. SQL cannot',
  )
})

test('a unique text that becomes a name, and a name that becomes a unique text, keep their texts', async () => {
  const options = { name: 'user', tableName: 'user', columns: { id: { type: 'integer', primary: true } } } as const
  const unique = new EntitySchema<Row>(uniqueTextSchema<Row>({ ...options }, { handle: {} }))
  const before = await db.dataSource([Name, unique, entity(plainTeam)], { synchronize: false })
  await step(before)
  await fill()
  const whole = await open(user, plainTeam)
  const made = await step(whole)
  expect(await names()).toEqual(FILLED.slice(2))
  await back(before, made)
  expect(await names()).toEqual([])
  await step(whole)
  const again = await step(before)
  expect(await names()).toEqual([])
  await expect(client.query(`insert into "user" (id, handle) values (9, 'ann')`)).rejects.toMatchObject({
    code: '23505',
  })
  await back(whole, again)
  expect(await names()).toEqual(FILLED.slice(2))
})

test('names that were written while a trigger was away are put right by the next migration', async () => {
  const whole = await open(user, team)
  await step(whole)
  await fill()
  await client.query(
    `alter table "user" disable trigger user; update "user" set handle = 'anna' where id = 1;
     delete from "user" where id = 2; insert into "user" (id, handle) values (3, 'eve')`,
  )
  await step(whole)
  expect(await names()).toEqual([...FILLED.slice(0, 2), 'user.handle [1] anna', 'user.handle [3] eve'])
})

test('holders in another schema than the names', async () => {
  await client.query('create schema other')
  const elsewhere = { ...user, schema: 'other' }
  const whole = await open(elsewhere, team)
  const { down } = await step(whole)
  await client.query(`insert into other."user" (id, handle) values (1, 'ann')`)
  expect(await names()).toEqual(['other.user.handle [1] ann'])
  expect(await findHolder(whole.manager, 'handle', 'ann', { entity: true })).toMatchObject({
    entity: { handle: 'ann' },
  })
  await runAll(whole, down)
})

test.each([
  ['the name', 'handle', `text not null default 'x'`],
  ['the key', 'id', 'integer'],
])('a namesake of a column that was renamed is drift on first use: %s', async (_, column, type) => {
  await step(await open(user))
  await client.query(`alter table "user" rename ${column} to other; alter table "user" add ${column} ${type}`)
  const { manager } = await open(user)
  for (const call of [
    () => findHolder(manager, 'handle', 'ann'),
    () => rename(manager, 'user', 1, { handle: 'new' }),
    () => findOrCreateHolder(manager, 'user', { handle: 'new' }),
  ]) {
    const error = await rejection(call())
    expect(error).toBeInstanceOf(SchemaDriftError)
    expect(error).toMatchObject({
      findings: [{ name: 'unique_name_user_columns', detail: 'it names other columns' }],
    })
  }
})
