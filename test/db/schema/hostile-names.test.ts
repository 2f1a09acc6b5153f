import { loadModule, parseSync } from '@libpg-query/parser'
import { Client } from 'pg'
import { Column, type DataSource, type EntityManager, type ObjectLiteral, PrimaryColumn } from 'typeorm'
import { beforeAll, expect, test } from 'vitest'
import {
  countByText,
  deleteByText,
  existsByText,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  firstFreeText,
  insertOrFail,
  UniqueText,
  updateOrFail,
  upsertByText,
} from '../../../src'
import { abandon, adopt, mergeDuplicates } from '../../../src/adopt'
import { doctor } from '../../../src/doctor'
import { findOrCreateHolder, formerNamesOf, Name, rename, swapNames, UniqueName } from '../../../src/names'
import { countWithin, NumberWithin, recount } from '../../../src/numbers'
import { findOrCreateStream } from '../../../src/stream'
import { quote } from '../../../src/sql/identifier'
import { useDatabase } from '../../support/database'
import { entity, declared, together, type Declaration } from '../../support/entity'
import { recordSentSql } from '../../support/sent-sql'
import { gatePart } from '../../support/gate-part'
import { openTour, TOUR } from '../../support/tour'
import { newList } from '../adopt/restore'

const sql = recordSentSql()
const db = useDatabase({ wrapped: true })

/** Every name that a statement gives: expressions, aliases, columns of results, and variables of functions. */
function namesIn(statement: string): string[] {
  const found: string[] = []
  const read = (tree: unknown): void => {
    if (Array.isArray(tree)) for (const one of tree) read(one)
    else if (typeof tree === 'object' && tree !== null) {
      for (const [key, value] of Object.entries(tree as Record<string, unknown>)) {
        if (['ctename', 'aliasname'].includes(key)) found.push(String(value))
        if (key === 'colnames') found.push(...(value as { String: { sval: string } }[]).map((one) => one.String.sval))
        if (key === 'ResTarget' && typeof (value as { name?: unknown }).name === 'string')
          found.push((value as { name: string }).name)
        read(value)
      }
    }
  }
  read(parseSync(statement))
  const variables = /^\s+([a-z_]+) (?:CONSTANT )?(?:pg_catalog\.|boolean|record|"|text|integer)/gmu
  return [...found, ...Array.from(statement.matchAll(variables), ([, name]) => name ?? '')]
}

/** What the tour sends, whose entities have ordinary names. */
async function allNames(): Promise<string[]> {
  await loadModule()
  const tour = await openTour(db)
  for (const one of Object.values(TOUR)) await one(tour)
  const found = [...sql.ours(), ...tour.made].flatMap(namesIn)
  await (await db.client()).query('drop schema public cascade; create schema public')
  return [...new Set(found)]
    .filter((name) => !/hash|^(?:names|once_tokens|site|page|user|comment)$/iu.test(name))
    .toSorted()
}

/** The errors that the server has sent to this process, as SQLSTATE and message. */
const errors: string[] = []
const HANDLER = '_handleErrorMessage'
const prototype = Client.prototype as unknown as Record<typeof HANDLER, (error: Error & { code: string }) => void>
const handle = prototype[HANDLER]
prototype[HANDLER] = function (error) {
  errors.push(error.code === '23505' ? error.code : `${error.code} ${error.message}`)
  handle.call(this, error)
}

const reason = (error: unknown): string => `${String(error)} ${JSON.stringify(Object(error).taken)}`

type Row = new () => ObjectLiteral

/** An entity with every kind of declaration, whose table and columns have these names. */
function entityOf(nth: number, names: readonly string[], schema?: string): Row {
  const at = (index: number): string => names[(nth + index) % names.length] ?? ''
  const unique = (index: number): Declaration =>
    together(Column({ type: 'text', name: at(index) }), UniqueText({ scope: ['tenant'] }))
  const made = entity(
    `Hostile${nth}`,
    {
      id: Object.assign(PrimaryColumn({ type: 'integer', name: at(1) }), { isKey: true } as const),
      tenant: Column({ type: 'text', name: at(2) }),
      text: unique(3),
      first: Column({ type: 'text', name: at(4), default: 'first' }),
      last: Column({ type: 'text', name: at(5), nullable: true }),
      plain: Column({ type: 'text', name: at(6), nullable: true, unique: true }),
      handle: together(
        Column({ type: 'text', name: at(7), nullable: true }),
        UniqueName({ namespace: 'handle', nullable: true, former: 'reserve' }),
      ),
      number: together(Column({ type: 'integer', name: at(8) }), NumberWithin({ scope: ['tenant'], count: true })),
    },
    { name: at(0), ...(schema === undefined ? {} : { schema }) },
  )
  return declared(made, UniqueText({ as: 'pair', columns: ['first', 'last'] }))
}

/** Every call, with rows of its own. */
const calls = (Row: Row, nth: number): Readonly<Record<string, (manager: EntityManager) => Promise<unknown>>> => {
  let id = 0
  const row = (text: string) => ({
    id: (id += 1),
    tenant: 't',
    text,
    first: `f ${text}`,
    last: null,
    handle: `${nth} ${text}`,
  })
  const key = (text: string) => ({ tenant: 't', text })
  const pairs = (text: string) => ({ ...row(text), first: text, last: text })
  return {
    insertOrFail: (manager) => insertOrFail(manager, Row, row('a')),
    'insertOrFail of several': (manager) => insertOrFail(manager, Row, [row('b'), row('c')]),
    'insertOrFail of what is taken': (manager) => insertOrFail(manager, Row, row('a')).catch(reason),
    'insertOrFail of several that are taken': (manager) =>
      insertOrFail(manager, Row, [row('a'), row('b')]).catch(reason),
    findOneByText: (manager) => findOneByText(manager, Row, key('a'), { by: 'text' }),
    'findOneByText of a pair': (manager) => findOneByText(manager, Row, { first: 'f a', last: 'x' }, { by: 'pair' }),
    existsByText: (manager) => existsByText(manager, Row, key('a'), { by: 'text' }),
    countByText: (manager) => countByText(manager, Row, [key('a'), key('b')], { by: 'text' }),
    'countByText of pairs': (manager) => countByText(manager, Row, [{ first: 'a', last: 'b' }], { by: 'pair' }),
    findOrCreate: (manager) => findOrCreate(manager, Row, row('d'), { by: 'text' }),
    findOrCreateMany: (manager) => findOrCreateMany(manager, Row, [row('e'), row('a')], { by: 'text' }),
    'findOrCreateMany of pairs': (manager) => findOrCreateMany(manager, Row, [pairs('f'), pairs('g')], { by: 'pair' }),
    upsertByText: (manager) => upsertByText(manager, Row, { ...row('h'), plain: 'x' }, { by: 'text' }),
    'upsertByText of several': (manager) =>
      upsertByText(manager, Row, [{ ...row('h'), plain: 'y' }, row('i')], { by: 'text', update: ['plain'] }),
    updateOrFail: (manager) => updateOrFail(manager, Row, 1, { text: 'a2', plain: 'z' }),
    'updateOrFail to what is taken': (manager) =>
      updateOrFail(manager, Row, 1, { text: 'b', handle: `${nth} b` }).catch(reason),
    'updateOrFail to another key that is taken': (manager) =>
      updateOrFail(manager, Row, 1, { plain: 'y' }).catch(reason),
    deleteByText: (manager) => deleteByText(manager, Row, key('c'), { by: 'text' }),
    rename: (manager) => rename(manager, Row, 1, { handle: `${nth} new` }),
    swapNames: (manager) => swapNames(manager, Row, 1, 2),
    firstFreeText: (manager) =>
      firstFreeText(
        manager,
        Row,
        [
          { tenant: 't', text: 'a2' },
          { tenant: 't', text: 'free' },
        ],
        { by: 'text' },
      ),
    'firstFreeText of names': (manager) =>
      firstFreeText(manager, Row, [{ handle: `${nth} new` }, { handle: 'free' }], { by: 'handle' }),
    formerNamesOf: (manager) => formerNamesOf(manager, Row, 1),
    findOrCreateHolder: (manager) => findOrCreateHolder(manager, Row, { ...row('j') }, { by: 'handle' }),
    countWithin: (manager) => countWithin(manager, Row, { tenant: 't' }),
    recount: (manager) => recount(manager, Row, { tenant: 't' }),
    'a stream': async (manager) => {
      const inputs = ['k', 'l', 'm'].map((text) => row(text))
      for await (const answer of findOrCreateStream(manager.dataSource, Row, inputs, { by: 'text' })) void answer
    },
    "TypeORM's save": (manager) => manager.save(Row, row('n')),
    "TypeORM's update of a taken text": (manager) => manager.update(Row, 1, { text: 'b' }).catch(reason),
    "TypeORM's delete": (manager) => manager.delete(Row, 2),
  }
}

/** What each call answers, and the errors that it meets at the server. */
async function answersOf(dataSource: DataSource, Row: Row, nth: number): Promise<string[]> {
  const lines: string[] = []
  for (const [name, call] of Object.entries(calls(Row, nth))) {
    errors.length = 0
    const answer = await call(dataSource.manager).then(
      (found) =>
        JSON.stringify(found)
          ?.replaceAll(`"${nth} `, `"`)
          .replaceAll(/"since":"[^"]+"|Hostile\d+/gu, '') ?? 'nothing',
      (error: unknown) => String(error),
    )
    lines.push(`${name}: ${answer}, ${errors.join(' ')}`)
  }
  return lines
}

// A table and its columns take nine names in a row, so each name is that of a column at least.
let names: readonly string[] = []
beforeAll(async () => {
  // Tables may be called like types too.
  names = [...new Set([...(await allNames()), 'path', 'interval'])]
  expect(names).toEqual(expect.arrayContaining(['input', 'i0', 'r', 'found', 'changed']))
}, 60_000)

test('every call works on tables and columns that are called like any name in a statement', async () => {
  const rows = gatePart(8, [...names.keys()]).map((nth) => entityOf(nth, names))
  const ordinary = entityOf(
    9000,
    'zero one two three four five six seven eight'.split(' ').map((name) => `ordinary ${name}`),
  )
  const dataSource = await db.dataSource([...rows, ordinary, Name])
  const expected = await answersOf(dataSource, ordinary, 9000)
  const wrong: string[] = []
  for (const [index, row] of rows.entries()) {
    const answers = await answersOf(dataSource, row, index)
    const { tableName, columns } = dataSource.getMetadata(row)
    for (const [call, line] of answers.entries())
      if (line !== expected[call])
        wrong.push(`${tableName} (${columns.map((one) => one.databaseName).join()}): ${line}`)
  }
  expect(wrong).toEqual([])
}, 600_000)

/** Adopts a table with two equal texts, merges them, examines it, and abandons it. */
async function toolsOn(dataSource: DataSource, client: Client, Row: Row): Promise<string> {
  const { tableName, columns } = dataSource.getMetadata(Row)
  const named = (property: string): string =>
    quote(columns.find((one) => one.propertyName === property)?.databaseName ?? '')
  await client.query(`create table ${quote(tableName)} (${named('id')} integer primary key, ${named('tenant')} text not null, ${named('text')} text not null);
    create table "of it" (${named('id')} integer primary key, ${named('text')} integer references ${quote(tableName)});
    insert into ${quote(tableName)} select i, 't', 'text ' || i % 3 from generate_series(1, 6) as i;
    insert into "of it" select i, i from generate_series(1, 6) as i`)
  try {
    const { duplicates } = await adopt(dataSource, Row)
    const {
      merged,
      redirected: turned,
      kept: left,
    } = await mergeDuplicates(dataSource, Row, { keep: 'oldest', list: newList() })
    const { findings } = await doctor(dataSource, { entities: [Row] })
    await abandon(dataSource, Row)
    const codes = findings
      .map(({ code }) => code)
      .filter((code) => code !== 'table.different' && code !== 'reference.undeclared')
    return JSON.stringify([duplicates?.surplus, merged, turned.map(({ rows }) => rows), left, codes])
  } catch (error) {
    return String(error)
  } finally {
    await client.query(`drop table "of it"; drop table ${quote(tableName)}`)
  }
}

test('adopt, its merge, the doctor and abandon work on such tables too', async () => {
  await (await db.client()).query('drop schema public cascade; create schema public')
  const rows = gatePart(8, [...names.keys()]).map((nth) => {
    const at = (index: number): string => names[(nth + index) % names.length] ?? ''
    return entity(
      `Tool${nth}`,
      {
        id: Object.assign(PrimaryColumn({ type: 'integer', name: at(1) }), { isKey: true } as const),
        tenant: Column({ type: 'text', name: at(2) }),
        text: together(Column({ type: 'text', name: at(3) }), UniqueText({ scope: ['tenant'] })),
      },
      { name: at(0) },
    )
  })
  const dataSource = await db.dataSource(rows, { synchronize: false })
  const client = await db.client()
  const wrong: string[] = []
  for (const row of rows) {
    const found = await toolsOn(dataSource, client, row)
    if (found !== '[3,3,[3],[],[]]') wrong.push(`${dataSource.getMetadata(row).tableName}: ${found}`)
  }
  expect(wrong).toEqual([])
}, 600_000)
