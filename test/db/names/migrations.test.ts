import type { DataSource } from 'typeorm'
import { describe, expect, test } from 'vitest'
import { SchemaDriftError } from '../../../src'
import { findHolder, findOrCreateHolder, Name, rename } from '../../../src/names'
import { lowerCase } from '../../../src/text'
import { useDatabase } from '../../support/database'
import { column, entity, uniqueName } from '../../support/entity'
import { generate, type Generated, migrate, runAll } from '../../support/generated'
import { rejection } from '../../support/ledger'

const db = useDatabase()

const Plain = entity('Plain', { handle: column('text') }, { name: 'user' })
const User = entity('User', { handle: uniqueName({ namespace: 'handle', former: 'redirect' }) })
const Reserving = entity(
  'Reserving',
  { handle: uniqueName({ namespace: 'handle', former: 'reserve' }) },
  { name: 'user' },
)
const RenamedColumn = entity(
  'RenamedColumn',
  { nick: uniqueName({ namespace: 'handle', former: 'redirect' }) },
  { name: 'user' },
)
const OtherNamespace = entity(
  'OtherNamespace',
  { handle: uniqueName({ namespace: 'login', former: 'redirect' }) },
  { name: 'user' },
)
const Normalized = entity(
  'Normalized',
  { handle: uniqueName({ namespace: 'handle', former: 'redirect', normalize: lowerCase() }) },
  { name: 'user' },
)
const RenamedTable = entity(
  'RenamedTable',
  { handle: uniqueName({ namespace: 'handle', former: 'redirect' }) },
  { name: 'people' },
)
const Team = entity('Team', { handle: uniqueName({ namespace: 'handle' }) })

const open = (entities: Function[], dropSchema = false): Promise<DataSource> =>
  db.dataSource(entities, { synchronize: false, dropSchema })

/** A table of users, as `from` declares it, with two rows, of which one has a former name where it has names. */
async function filled(from: Function): Promise<DataSource> {
  const dataSource = await open([Name, from], true)
  await migrate(dataSource)
  await dataSource.query(`INSERT INTO "user" (handle) VALUES ('ada'), ('old')`)
  await dataSource.query(`UPDATE "user" SET handle = 'grace' WHERE id = 2`)
  return dataSource
}

/** The same rows in a table that knows nothing of names, for an entity that does. */
async function filledPlain(): Promise<DataSource> {
  const plain = await filled(Plain)
  await plain.query('DROP TABLE names CASCADE')
  return await open([Name, User])
}

async function kept(dataSource: DataSource): Promise<string[]> {
  const rows = (await dataSource.query('SELECT * FROM names ORDER BY text')) as Record<string, unknown>[]
  return rows.map(
    (one) =>
      `${String(one['namespace'])} ${String(one['text'])} ${String(one['holder'])}.${String(one['holder_column'])} ` +
      `${JSON.stringify(one['holder_key'])} ${String(one['state'])}`,
  )
}

const USERS = [
  'handle ada user.handle [1] held',
  'handle grace user.handle [2] held',
  'handle old user.handle [2] redirect',
]

async function isDone(dataSource: DataSource): Promise<void> {
  expect(await generate(dataSource)).toEqual({ up: [], down: [] })
}

/** The change and the way back, on the same rows; a second generate finds nothing, each time. */
async function change(
  from: Function,
  to: Function,
  between: (changed: DataSource) => Promise<void>,
): Promise<Generated> {
  const before = await filled(from)
  const found = await kept(before)
  const changed = await open([Name, to])
  const generated = await migrate(changed)
  await isDone(changed)
  await between(changed)
  await runAll(changed, generated.down)
  await isDone(before)
  expect(await kept(before)).toEqual(found)
  return generated
}

test('a first migration makes table and triggers, and its way back leaves nothing', async () => {
  const dataSource = await open([Name, User, Team], true)
  const generated = await migrate(dataSource)
  await isDone(dataSource)
  await dataSource.query(`INSERT INTO "user" (handle) VALUES ('ada')`)
  await expect(dataSource.query(`INSERT INTO team (handle) VALUES ('ada')`)).rejects.toThrow('Taken: "handle" of Team')
  await runAll(dataSource, generated.down)
  expect(await dataSource.query(`SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace`)).toEqual([])
})

test('added to a table with rows, they hold their names, and on the way back hold none', async () => {
  const { up } = await change(Plain, User, async (changed) => {
    expect(await kept(changed)).toEqual(USERS.slice(0, 2))
    await rename(changed.manager, User, 1, { handle: 'new' })
    expect(await findHolder(changed.manager, 'handle', 'ada', { former: true })).toMatchObject({ name: 'new' })
    await changed.query(`UPDATE "user" SET handle = 'ada' WHERE id = 1`)
  })
  expect(up.filter((one) => one.includes('DROP COLUMN'))).toEqual([])
})

test('a migration without a transaction that stops anywhere leaves no rows behind that hold no names', async () => {
  const { up } = await generate(await filledPlain())
  for (const stop of up.keys()) {
    const dataSource = await filledPlain()
    for (const statement of up.slice(0, stop)) await dataSource.query(statement)
    await migrate(dataSource)
    expect([stop, await kept(dataSource)]).toEqual([stop, USERS.slice(0, 2)])
  }
})

test('names that clash stop the migration, which tells rows by table and key', async () => {
  const before = await open([Name, Plain, Team], true)
  await migrate(before)
  await before.query(`INSERT INTO "user" (handle) SELECT 'n' || i FROM generate_series(1, 20) AS i`)
  await before.query(`INSERT INTO team (handle) VALUES ('n7')`)
  const changed = await open([Name, User, Team])
  await expect(migrate(changed)).rejects.toThrow(/rows hold one name: user\.handle \[7\] and team\.handle \[1\]/)
  await before.query(`UPDATE team SET handle = 'other'`)
  await migrate(changed)
  await isDone(changed)
  expect(await kept(changed)).toHaveLength(21)
})

test('texts that are not normalized are refused, until the migration normalizes them', async () => {
  await filled(Plain)
  const changed = await open([Name, Normalized])
  const { up } = await generate(changed)
  await expect(runAll(changed, up)).rejects.toThrow(
    'column "handle" of table "user" has texts normalized by none@1, not yet by lower-case@1; the first by primary key (id): 1, 2',
  )
  const own = up.map((one) => (one.includes('not yet by') ? `UPDATE "user" SET handle = lower(handle)` : one))
  await runAll(changed, own)
  await isDone(changed)
  expect(await kept(changed)).toEqual(USERS.slice(0, 2))
})

test('a decorator that is gone releases the names; on the way back its rows take them again', async () => {
  const before = await filled(User)
  const changed = await open([Name, Plain])
  const { down } = await migrate(changed)
  await isDone(changed)
  expect(await kept(changed)).toEqual([])
  await changed.query(`INSERT INTO "user" (handle) VALUES ('late')`)
  await runAll(changed, down)
  await isDone(before)
  expect(await kept(before)).toEqual([...USERS.slice(0, 2), 'handle late user.handle [3] held'])
})

test('a column that is renamed takes its names with it, former ones too', async () => {
  const { up } = await change(User, RenamedColumn, async (changed) => {
    expect(await kept(changed)).toEqual(USERS.map((one) => one.replace('user.handle', 'user.nick')))
    await rename(changed.manager, RenamedColumn, 1, { nick: 'x' })
    await rename(changed.manager, RenamedColumn, 1, { nick: 'ada' })
    await changed.query(`DELETE FROM names WHERE text = 'x'`)
  })
  expect(up.filter((one) => one.includes('DROP COLUMN'))).toEqual([])
})

test('another namespace takes the names along, former ones too', async () => {
  const before = await filled(User)
  const changed = await open([Name, OtherNamespace])
  const { down } = await migrate(changed)
  await isDone(changed)
  expect(await kept(changed)).toEqual(USERS.map((one) => one.replace('handle', 'login')))
  await runAll(changed, down)
  await isDone(before)
  expect(await kept(before)).toEqual(USERS)
})

describe('another namespace, in which somebody has a former name of a row,', () => {
  const [ada, grace, old] = USERS.map((one) => one.replace('handle', 'login'))
  const had = async (until: string): Promise<DataSource> => {
    const before = await filled(User)
    await before.query(`INSERT INTO names (namespace, text, holder, holder_column, holder_key, state, until)
      VALUES ('login', 'old', 'elsewhere', 'handle', '[1]', 'reserved', ${until})`)
    return before
  }

  test('is refused with the keys of both, until one of them gives way', async () => {
    const before = await had('NULL')
    const changed = await open([Name, OtherNamespace])
    await expect(migrate(changed)).rejects.toThrow(
      /user\.handle \[2\] and elsewhere\.handle \[1\] .*Delete these former names/,
    )
    expect(await kept(before)).toEqual([...USERS, 'login old elsewhere.handle [1] reserved'])
    await before.query(`DELETE FROM names WHERE namespace = 'handle' AND text = 'old'`)
    await migrate(changed)
    expect(await kept(changed)).toEqual([ada, grace, 'login old elsewhere.handle [1] reserved'])
  })

  test('takes all names along where the time of the other is over', async () => {
    await had(`now() - interval '1 second'`)
    const changed = await open([Name, OtherNamespace])
    await migrate(changed)
    expect(await kept(changed)).toEqual([ada, grace, old])
  })

  test('takes the others along where the time of the former name is over', async () => {
    const before = await had('NULL')
    await before.query(
      `UPDATE names SET until = now() - interval '1 second' WHERE namespace = 'handle' AND text = 'old'`,
    )
    const changed = await open([Name, OtherNamespace])
    await migrate(changed)
    expect(await kept(changed)).toEqual([ada, grace, 'login old elsewhere.handle [1] reserved'])
  })
})

test('another policy for former names is for those that are given up from then on', async () => {
  await change(User, Reserving, async (changed) => {
    expect(await kept(changed)).toEqual(USERS)
    await rename(changed.manager, Reserving, 1, { handle: 'new' })
    expect(await kept(changed)).toContain('handle ada user.handle [1] reserved')
    await changed.query(`UPDATE "user" SET handle = 'ada' WHERE id = 1; DELETE FROM names WHERE text = 'new'`)
  })
})

test('a table that is renamed by hand refuses writes until a migration follows it', async () => {
  const before = await filled(User)
  await before.query('ALTER TABLE "user" RENAME TO people')
  await expect(before.query(`INSERT INTO people (handle) VALUES ('new')`)).rejects.toThrow('name another table')
  const changed = await open([Name, RenamedTable])
  await migrate(changed)
  await isDone(changed)
  expect(await kept(changed)).toEqual(USERS.map((one) => one.replace('user.', 'people.')))
  await changed.query(`INSERT INTO people (handle) VALUES ('new')`)
  await expect(changed.query(`INSERT INTO people (handle) VALUES ('ada')`)).rejects.toThrow('Taken: "handle"')
})

test.each([
  ['the name', 'handle', `text NOT NULL DEFAULT 'x'`],
  ['the key', 'id', 'integer'],
])('a namesake of a column that was renamed is drift on first use: %s', async (_, column, type) => {
  await filled(User)
  const dataSource = await open([Name, User])
  await dataSource.query(`ALTER TABLE "user" RENAME ${column} TO other; ALTER TABLE "user" ADD ${column} ${type}`)
  const { manager } = dataSource
  const calls = [
    () => findHolder(manager, 'handle', 'ada'),
    () => rename(manager, User, 1, { handle: 'new' }),
    () => findOrCreateHolder(manager, User, { handle: 'new' }),
  ]
  for (const call of calls) {
    const error = await rejection(call())
    expect(error).toBeInstanceOf(SchemaDriftError)
    expect(error).toMatchObject({
      findings: [{ name: 'unique_name_user_update', detail: 'it compares other columns' }],
    })
  }
})

test('an entity that comes later takes its names with it when its migration is undone', async () => {
  const before = await filled(User)
  const changed = await open([Name, User, Team])
  const { down } = await migrate(changed)
  await changed.query(`INSERT INTO team (handle) VALUES ('team')`)
  await runAll(changed, down)
  await isDone(before)
  expect(await kept(before)).toEqual(USERS)
})

test('synchronize does the same', async () => {
  await filled(Plain)
  const dataSource = await db.dataSource([Name, User])
  expect(await kept(dataSource)).toEqual(USERS.slice(0, 2))
  await isDone(dataSource)
})
