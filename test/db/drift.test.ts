import type { Client } from 'pg'
import { beforeAll, describe, expect, test } from 'vitest'
import type { Finding } from '../../src/errors'
import { tableState } from '../../src/sql/catalog'
import { guardOf } from '../../src/sql/guard'
import { md5 } from '../../src/text/digest'
import { findDrift } from '../../src/typeorm/drift'
import { useDatabase } from '../support/database'
import { createGuardedTable, textTable } from '../support/guarded-table'

const db = useDatabase()
const table = textTable({ digest: md5, scope: ['site'] })
const guard = guardOf(table)
let client: Client

beforeAll(async () => {
  client = await db.client()
  await createGuardedTable(client, table)
  await client.query('create schema elsewhere')
})

/** What is found after these statements, which are undone. */
async function driftAfter(...statements: readonly string[]): Promise<Finding[]> {
  await client.query('begin')
  try {
    for (const statement of statements) await client.query(statement)
    const query = async (sql: string, values?: unknown[]): Promise<unknown[]> => (await client.query(sql, values)).rows
    return findDrift(table, (await tableState(query, 'page', [guard])).table)
  } finally {
    await client.query('rollback')
  }
}

const INSERT = 'unique_text_page_url_place_insert'
const { place, settle } = { place: `"${guard.place.name}"`, settle: `"${guard.settle.name}"` }
const createInsert = guard.triggers.find(({ name }) => name === INSERT)?.create ?? ''
const WITHOUT_GUARD = `drop function ${place}, ${settle} cascade`
const index = (definition: string): string => `drop index "page url"; create ${definition}`
const KEY = 'site, "urlHash", "urlHashNumber"'

const ofIndex = (kind: Finding['kind']): Finding => ({ kind, object: 'index', name: 'page url' })
const ofCheck = (kind: Finding['kind']): Finding => ({ kind, object: 'check', name: 'page url check' })
const ofColumn = (kind: Finding['kind'], name: string): Finding => ({ kind, object: 'column', name })
const ofGuard = (name: string, detail: string): Finding => ({ kind: 'different', object: 'guard', name, detail })

describe('is seen', () => {
  test.each<[what: string, statement: string, findings: Finding[]]>([
    ['a table that is gone', 'drop table page', [{ kind: 'missing', object: 'table', name: 'page' }]],
    ['an index that is gone', 'drop index "page url"', [ofIndex('missing')]],
    ['an index that is not unique', index(`index "page url" on page (${KEY})`), [ofIndex('different')]],
    ['a partial index', index(`unique index "page url" on page (${KEY}) where id > 5`), [ofIndex('different')]],
    [
      'an index in another order',
      index('unique index "page url" on page ("urlHash", site, "urlHashNumber")'),
      [ofIndex('different')],
    ],
    ['an index with a column more', index(`unique index "page url" on page (${KEY}, id)`), [ofIndex('different')]],
    [
      'an index that failed to be made',
      `update pg_index set indisvalid = false where indexrelid = '"page url"'::regclass`,
      [ofIndex('invalid')],
    ],
    [
      'an index that takes no rows yet',
      `update pg_index set indisready = false where indexrelid = '"page url"'::regclass`,
      [ofIndex('invalid')],
    ],
    ['a check that is gone', 'alter table page drop constraint "page url check"', [ofCheck('missing')]],
    [
      'a check that old rows may break',
      `alter table page drop constraint "page url check";
       alter table page add constraint "page url check" check (id > 0) not valid`,
      [ofCheck('invalid')],
    ],
    [
      'a function of another owner',
      `alter function ${settle} owner to pg_monitor`,
      [ofGuard(guard.settle.name, 'it does not belong to the owner of the table')],
    ],
    [
      'a function with another body',
      `create or replace function ${settle} returns trigger language plpgsql security definer
         set enable_seqscan = off set row_security = off set search_path = pg_catalog, public, pg_temp
         as 'begin return null; end'`.replace(settle, `${settle}()`),
      [ofGuard(guard.settle.name, 'its body is another')],
    ],
    [
      'a function that runs as its caller',
      `alter function ${place} security invoker`,
      [ofGuard(guard.place.name, 'it is not SECURITY DEFINER')],
    ],
    [
      'a function with a setting more',
      `alter function ${place} set work_mem to '1MB'`,
      [ofGuard(guard.place.name, 'its settings are others')],
    ],
    [
      'a comment of another declaration',
      `comment on function ${settle} is 'typeorm-unique-text: another'`,
      [ofGuard(guard.settle.name, 'its comment tells of another declaration')],
    ],
    [
      'a trigger that is gone',
      `drop trigger "${INSERT}" on page`,
      [{ kind: 'missing', object: 'guard', name: INSERT }],
    ],
    [
      'a trigger that is off',
      `alter table page disable trigger "${INSERT}"`,
      [{ kind: 'disabled', object: 'guard', name: INSERT }],
    ],
    [
      'a trigger for replicas only',
      `alter table page enable replica trigger "${INSERT}"`,
      [{ kind: 'disabled', object: 'guard', name: INSERT }],
    ],
    [
      'a trigger at another moment',
      `drop trigger "${INSERT}" on page; ${createInsert.replace('BEFORE', 'AFTER')}`,
      [ofGuard(INSERT, 'it fires at another moment')],
    ],
    [
      'a trigger without its condition',
      `drop trigger "${INSERT}" on page; ${createInsert.replace(/WHEN .*/, '')}`,
      [ofGuard(INSERT, 'it fires at another moment')],
    ],
    [
      'a trigger of another function',
      `drop trigger "${INSERT}" on page; ${createInsert.replace(place, settle)}`,
      [ofGuard(INSERT, 'it runs another function')],
    ],
    [
      'a trigger of a function elsewhere that has the same name',
      `create function elsewhere.${place}() returns trigger language plpgsql as 'begin return new; end';
       drop trigger "${INSERT}" on page; ${createInsert.replace(place, `elsewhere.${place}`)}`,
      [ofGuard(INSERT, 'it runs another function')],
    ],
  ])('%s', async (_, statement, findings) => {
    expect(await driftAfter(statement)).toEqual(findings)
  })

  test.each([
    ['is gone', 'drop column "urlHashChained"', ofColumn('missing', 'urlHashChained')],
    ['has another type', 'alter "urlHashNumber" type bigint', ofColumn('different', 'urlHashNumber')],
  ])('a hidden column that %s', async (_, change, finding) => {
    expect(await driftAfter(WITHOUT_GUARD, `alter table page ${change}`)).toContainEqual(finding)
  })

  test('a guard that moved to another schema', async () => {
    const findings = await driftAfter(`alter function ${place} set schema elsewhere`)
    expect(findings).toContainEqual({ kind: 'missing', object: 'guard', name: guard.place.name })
  })

  test('triggers of which no comment tells', async () => {
    const findings = await driftAfter(`comment on function ${place} is null`)
    const detail = 'no comment of the guard says that it was made like this'
    expect(findings.slice(1)).toEqual(guard.triggers.map(({ name }) => ofGuard(name, detail)))
  })
})

test.each([
  ['the guard as it was made', 'select'],
  ['an index that brings a column along', index(`unique index "page url" on page (${KEY}) include (id)`)],
  ['a trigger that fires on replicas too', `alter table page enable always trigger "${INSERT}"`],
])('is no drift: %s', async (_, statement) => {
  expect(await driftAfter(statement)).toEqual([])
})
