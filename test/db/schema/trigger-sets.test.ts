import {
  type DataSource,
  type EntityMetadata,
  getMetadataArgsStorage,
  Index,
  type ObjectLiteral,
  type ObjectType,
} from 'typeorm'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { findOrCreate, SchemaDriftError } from '../../../src'
import { type Firing, type Trigger, triggerOn, type TriggerSet, triggerSet } from '../../../src/sql/trigger-set'
import { attachDataSource } from '../../../src/declare/data-source'
import { dataSourceOf, registry, type TriggerWork } from '../../../src/registry/registry'
import { ensureTriggers } from '../../../src/schema/readiness'
import { registerTriggers } from '../../../src/schema/table'
import { useDatabase } from '../../support/database'
import { dropSchemas } from '../../support/databases'
import { column, entity, key, plain, text } from '../../support/entity'
import { generate, migrate, runAll } from '../../support/generated'

registry.removals.set('names', () => ({}))

const db = useDatabase()
const client = db.useClient()

// The sets are of the kind `names`.
beforeAll(() => import('../../../src/names'))

beforeEach(async () => {
  await dropSchemas(client)
  await client.query('create schema public; create schema books; create table books.entry (what text, rows bigint)')
})

type Thing = ObjectType<ObjectLiteral>

interface Options {
  /** What the note holds, and nothing else. */
  readonly version?: number
  readonly text?: string
  readonly indexed?: boolean
}

const WORDS = { name: 'words', type: 'integer', nullable: false }

/** A set with triggers of every shape: the words of each row, and a book in another schema of what was written. */
function bookKeeping(table: string, schema: string | undefined, { version = 1, text = 'text' }: Options): TriggerSet {
  const [count, book] = [`${table} count`, `${table} book`]
  return triggerSet({
    kind: 'names',
    name: 'book keeping',
    table: { schema, name: table },
    path: { schema: 'books', name: 'entry' },
    columns: { text },
    docs: 'a test',
    functions: [
      {
        name: count,
        says: 'counts words.',
        body: `
BEGIN
  NEW.words := pg_catalog.length(NEW.${text});
  RETURN NEW;
END
`,
      },
      {
        name: book,
        says: 'keeps the book.',
        body: `
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    INSERT INTO entry VALUES (TG_OP, NULL);
  ELSE
    INSERT INTO entry SELECT TG_OP, pg_catalog.count(*) FROM changed;
  END IF;
  RETURN NULL;
END
`,
      },
    ],
    triggers: (home) => {
      const trigger = (name: string, firing: Omit<Firing, 'name'>): Trigger =>
        triggerOn({ schema: home, name: table }, { name: `${table} ${name}`, ...firing })
      const [gone, came] = ['OLD TABLE AS changed', 'NEW TABLE AS changed']
      return [
        trigger('words', { time: 'BEFORE', events: ['insert'], when: ['NEW.words IS NULL'], runs: count }),
        trigger('inserted', { time: 'AFTER', events: ['insert'], each: 'STATEMENT', referencing: came, runs: book }),
        trigger('deleted', { time: 'AFTER', events: ['delete'], each: 'STATEMENT', referencing: gone, runs: book }),
        trigger('updated', {
          time: 'AFTER',
          events: ['update'],
          referencing: gone,
          when: [`OLD.${text} IS DISTINCT FROM NEW.${text}`],
          runs: book,
        }),
        trigger('truncated', { time: 'AFTER', events: ['truncate'], each: 'STATEMENT', runs: book }),
      ]
    },
    note: { protocol: 99, version },
  })
}

function work({ tableName, schema }: EntityMetadata, options: Options): TriggerWork {
  const table = schema === undefined ? `"${tableName}"` : `"${schema}"."${tableName}"`
  const entry = (what: string): string => `INSERT INTO books.entry SELECT '${what}', count(*) FROM ${table}`
  return {
    set: bookKeeping(tableName, schema, options),
    indexes: options.indexed ? [{ name: 'thing by words', columns: ['words', 'id'] }] : [],
    rows: {
      filled: [WORDS],
      fill: { up: [`UPDATE ${table} SET words = length(${options.text ?? 'text'}) WHERE words IS NULL`], down: [] },
      install: { up: [entry('install')], down: [entry('uninstall')] },
      follow: (before) => ({
        install: { up: [entry(`from ${String(Reflect.get(before, 'version'))}`)], down: [entry('back')] },
      }),
    },
  }
}

/** What a decorator of another entry does. */
function booked(options: Options = {}) {
  return (target: Function): void => {
    getMetadataArgsStorage().indices.push({
      target,
      columns: function (this: { readonly entityMetadata: EntityMetadata; synchronize: boolean }) {
        const { entityMetadata: metadata } = this
        this.synchronize = false
        attachDataSource(dataSourceOf(metadata), 'this test')
        registerTriggers(metadata, 'book keeping', () => work(metadata, options))
        return ['id']
      },
    })
  }
}

interface Shape {
  readonly name?: string
  readonly schema?: string
  readonly options?: Options
}

const THING = { id: key('integer'), text: column('text'), words: column('integer') }

function bookedThing({ name = 'thing', schema, options = {} }: Shape = {}): Thing {
  const BookedThing = entity('BookedThing', THING, { name, ...(schema === undefined ? {} : { schema }) })
  booked({ indexed: true, ...options })(BookedThing)
  Index('thing by words', ['words', 'id'], { unique: true })(BookedThing)
  return BookedThing
}

const PlainThing = entity('PlainThing', { id: THING.id, text: THING.text }, { name: 'thing' })
const CountedThing = entity('CountedThing', THING, { name: 'thing' })

const open = async (entity: Thing): Promise<DataSource> =>
  await db.dataSource([entity], { synchronize: false }, { prepare: true })

async function book(): Promise<string> {
  const { rows } = await client.query<{ entry: string }>(`select concat_ws(' ', what, rows) as entry from books.entry`)
  await client.query('delete from books.entry')
  return rows.map(({ entry }) => entry).join(', ')
}

/** That the triggers do their work, and nothing is left to generate. */
async function expectBooked(dataSource: DataSource): Promise<void> {
  expect((await generate(dataSource)).up).toEqual([])
  await book()
  await client.query(`insert into thing (id, text) select n, 'abc' from generate_series(101, 103) as n`)
  await client.query(`update thing set text = 'abcd' where id > 101`)
  await client.query('update thing set words = 7 where id > 101')
  const { rows } = await client.query('delete from thing where id > 100 returning words')
  expect(rows.map(({ words }: { words: number }) => words).toSorted((a, b) => a - b)).toEqual([3, 7, 7])
  expect(await book()).toBe('INSERT 3, UPDATE 2, UPDATE 2, DELETE 3')
}

async function standing(): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select tgname as name from pg_trigger where not tgisinternal union all
     select proname from pg_proc where pronamespace = 'public'::regnamespace order by 1`,
  )
  return rows.map(({ name }) => name)
}

describe('a set of triggers', () => {
  test('of every shape is made with its table, and a second generate finds nothing', async () => {
    const dataSource = await open(bookedThing())
    const { down } = await migrate(dataSource)
    expect(await book()).toBe('')
    await expectBooked(dataSource)
    await client.query('truncate thing')
    expect(await book()).toBe('TRUNCATE')
    await runAll(dataSource, down)
    expect(await standing()).toEqual([])
  })

  test('comes to a table with rows: columns are filled, rows installed, and the way back undoes it', async () => {
    await migrate(await open(PlainThing))
    await client.query(`insert into thing values (1, 'a'), (2, 'abc')`)
    const dataSource = await open(bookedThing())
    for (const _ of [1, 2]) {
      const { down } = await migrate(dataSource)
      expect(await book()).toBe('install 2')
      expect((await client.query('select words from thing order by id')).rows).toEqual([{ words: 1 }, { words: 3 }])
      await expectBooked(dataSource)
      await runAll(dataSource, down)
      expect(await book()).toBe('uninstall 2')
      expect(await standing()).toEqual([])
      expect((await client.query('select * from thing order by id')).rows).toEqual([
        { id: 1, text: 'a' },
        { id: 2, text: 'abc' },
      ])
    }
  })

  test('fills a column that stood there with NULLs', async () => {
    await migrate(await open(PlainThing))
    await client.query(`alter table thing add words integer; insert into thing values (1, 'a', 9), (2, 'abc', null)`)
    const dataSource = await open(bookedThing())
    const { down } = await migrate(dataSource)
    expect((await client.query('select words from thing order by id')).rows).toEqual([{ words: 9 }, { words: 3 }])
    await expectBooked(dataSource)
    await runAll(dataSource, down)
    await client.query(`insert into thing values (3, 'a')`)
  })

  test('is made by synchronize, and whoever finds it complete says nothing', async () => {
    const dataSource = await db.dataSource([bookedThing()], {}, { prepare: true })
    await expectBooked(dataSource)
    await db.dataSource([bookedThing()], {}, { prepare: true })
    expect(await book()).toBe('')
  })

  test('goes when its declaration is gone, and comes back on the way back', async () => {
    const booking = await open(bookedThing())
    await migrate(booking)
    const plain = await open(CountedThing)
    const { down } = await migrate(plain)
    expect(await standing()).toEqual([])
    expect((await generate(plain)).up).toEqual([])
    await runAll(plain, down)
    await expectBooked(booking)
  })

  test('makes way for a column that changes its type', async () => {
    await migrate(await open(bookedThing()))
    const Wider = entity('Wider', { ...THING, more: column('integer', { nullable: true }) }, { name: 'thing' })
    booked()(Wider)
    const dataSource = await open(Wider)
    await migrate(dataSource)
    expect(await book()).toBe('')
    await expectBooked(dataSource)
  })

  test('that says another thing of the rows follows what the note says', async () => {
    await migrate(await open(bookedThing()))
    const dataSource = await open(bookedThing({ options: { version: 2 } }))
    const { up, down } = await migrate(dataSource)
    expect(up.filter((one) => /TRIGGER/.test(one))).toEqual([])
    expect(await book()).toBe('from 1 0')
    await expectBooked(dataSource)
    await runAll(dataSource, down)
    expect(await book()).toBe('back 0')
    expect((await generate(await open(bookedThing()))).up).toEqual([])
  })

  test('of a table in another schema runs there', async () => {
    await client.query('create schema other')
    const dataSource = await open(bookedThing({ schema: 'other' }))
    await migrate(dataSource)
    expect((await generate(dataSource)).up).toEqual([])
    await client.query(`insert into other.thing (id, text) values (1, 'x')`)
    expect(await book()).toBe('INSERT 1')
    const plain = await db.dataSource([CountedThing], { synchronize: false, schema: 'other' }, { prepare: true })
    const { down } = await migrate(plain)
    await runAll(plain, down)
    expect((await generate(dataSource)).up).toEqual([])
  })
})

describe('a second generate mends', () => {
  test.each([
    ['a trigger that is disabled', 'alter table thing disable trigger "thing inserted"', 'install 1'],
    ['a trigger that is gone', 'drop trigger "thing truncated" on thing', 'install 1'],
    [
      'a trigger of a statement that fires for each row',
      `drop trigger "thing inserted" on thing; create trigger "thing inserted" after insert on thing
       referencing new table as changed for each row execute function "thing book"()`,
      '',
    ],
    [
      'a trigger that got a condition',
      `drop trigger "thing truncated" on thing; create trigger "thing truncated" after truncate on thing
       for each statement when (current_user <> 'x') execute function "thing book"()`,
      '',
    ],
    [
      'a trigger that lost its condition',
      `drop trigger "thing updated" on thing; create trigger "thing updated" after update on thing
       referencing old table as changed for each row execute function "thing book"()`,
      '',
    ],
    ['a path that leads elsewhere', 'alter function "thing book"() set search_path to pg_catalog, public, pg_temp', ''],
    [
      'a note that is gone',
      `do $do$ begin
         execute (select regexp_replace(pg_get_functiondef('"thing count"()'::regprocedure), e'\\n-- {[^\\n]*(\\n-- [^\\n]*)*', ''));
       end $do$`,
      'install 1',
    ],
  ])('%s', async (_, statement, entries) => {
    const dataSource = await open(bookedThing())
    await migrate(dataSource)
    await client.query(`insert into thing values (1, 'a', 1)`)
    await book()
    await client.query(statement)
    const { up } = await migrate(dataSource)
    expect(up).not.toEqual([])
    expect(await book()).toBe(entries)
    await expectBooked(dataSource)
  })
})

test('a renamed column keeps its texts, whatever else changes, and the way back too', async () => {
  await migrate(await open(bookedThing()))
  await client.query(`insert into thing (id, text) values (1, 'abc')`)
  const { id, words } = THING
  const Renamed = entity(
    'Renamed',
    { id, title: column('text'), words, one: plain(), other: plain() },
    { name: 'thing' },
  )
  booked({ text: 'title' })(Renamed)
  const dataSource = await open(Renamed)
  const { down } = await migrate(dataSource)
  expect((await generate(dataSource)).up).toEqual([])
  expect((await client.query('select title, words from thing')).rows).toEqual([{ title: 'abc', words: 3 }])
  await client.query(`insert into thing (id, title) values (2, 'ab')`)
  await runAll(dataSource, down)
  expect((await client.query('select text, words from thing order by id')).rows).toEqual([
    { text: 'abc', words: 3 },
    { text: 'ab', words: 2 },
  ])
  await expectBooked(await open(bookedThing()))
})

test('the triggers of a table that was renamed get their new names, and rows stay as they are', async () => {
  await migrate(await open(bookedThing()))
  await client.query('alter table thing rename to object')
  const dataSource = await open(bookedThing({ name: 'object' }))
  const { down } = await migrate(dataSource)
  expect((await generate(dataSource)).up).toEqual([])
  expect((await standing()).filter((name) => name.startsWith('thing'))).toEqual([])
  await runAll(dataSource, down)
  await client.query('alter table object rename to thing')
  expect((await generate(await open(bookedThing()))).up).toEqual([])
})

test('the first operation on a unique text refuses a table that lacks the other triggers', async () => {
  const Both = entity('Both', { ...THING, text: text() }, { name: 'thing' })
  booked()(Both)
  const dataSource = await open(Both)
  await migrate(dataSource)
  await client.query('alter table thing disable trigger "thing inserted"')
  const error = await findOrCreate(dataSource.manager, Both, { id: 1, text: 'x' }).then(String, (one: unknown) => one)
  expect(error).toBeInstanceOf(SchemaDriftError)
  expect((error as SchemaDriftError).findings).toEqual([
    { kind: 'disabled', object: 'trigger', name: 'thing inserted' },
  ])
  await client.query('alter table thing enable trigger "thing inserted"')
  await findOrCreate(dataSource.manager, Both, { id: 1, text: 'x', words: 1 })
})

test('a table without a unique text is looked at once, and again after a failure', async () => {
  const dataSource = await open(bookedThing())
  let asked = 0
  const ensure = async (): Promise<void> => {
    await ensureTriggers(dataSource.getMetadata('BookedThing'), async (sql, values) => {
      asked++
      return await dataSource.query<unknown[]>(sql, values)
    })
  }
  await expect(ensure()).rejects.toMatchObject({ findings: [{ kind: 'missing', object: 'table', name: 'thing' }] })
  await migrate(dataSource)
  await client.query('drop trigger "thing truncated" on thing; drop index "thing by words"')
  await expect(ensure()).rejects.toMatchObject({
    findings: [
      { kind: 'missing', object: 'index', name: 'thing by words' },
      { kind: 'missing', object: 'trigger', name: 'thing truncated' },
    ],
  })
  await migrate(dataSource)
  await ensure()
  await ensure()
  expect(asked).toBe(3)
})

test('a table of the same name beside the triggers is not taken for the one of their path', async () => {
  await client.query('create table entry (what text, rows bigint)')
  const dataSource = await open(bookedThing())
  await migrate(dataSource)
  await expectBooked(dataSource)
  expect((await client.query('select from entry')).rows).toEqual([])
})
