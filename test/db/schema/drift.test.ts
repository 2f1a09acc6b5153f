import { beforeAll, describe, expect, test } from 'vitest'
import type { Finding } from '../../../src/errors'
import { tableState } from '../../../src/sql/catalog'
import { guardOf, KERNEL } from '../../../src/triggers/guard'
import { md5 } from '../../../src/text/digest'
import { findDrift, OTHER_ORDER, OTHER_ROWS } from '../../../src/schema/readiness'
import { useDatabase } from '../../support/database'
import { createGuardedTable, textTable } from '../../support/guarded-table'

const db = useDatabase()
const table = textTable({ digest: md5, scope: ['site'] })
const guard = guardOf(table)
const client = db.useClient()

beforeAll(async () => {
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

const PLACE = guard.functions[0]?.name ?? ''
const [INSERT, UPDATE, REST] = ['place_insert', 'place_update', 'rest'].map((suffix) => `${PLACE}_${suffix}`)
const createOf = (trigger: string | undefined): string =>
  guard.triggers.find(({ name }) => name === trigger)?.create ?? ''
const WITHOUT_GUARD = `drop function ${PLACE}, ${KERNEL} cascade`
/** With another body, or what is left of it. */
const replaced = (name: string, change: (body: string) => string): string => {
  const body = [...guard.functions, ...guard.kernel].find((one) => one.name === name)?.body ?? ''
  return `create or replace function ${name}() returns trigger language plpgsql security definer as $other$${change(body)}$other$`
}
const noted = (from: string | RegExp, to: string): string =>
  replaced(PLACE, (body) => {
    const changed = body.replace(from, to)
    expect(changed).not.toBe(body)
    return changed
  })
const index = (definition: string): string => `drop index "page url"; create ${definition}`
const setIndex = (change: string): string => `update pg_index set ${change} where indexrelid = '"page url"'::regclass`
const KEY = 'site, "urlHash", "urlHashNumber"'

const ofIndex = (kind: Finding['kind']): Finding => ({ kind, object: 'index', name: 'page url' })
const ofCheck = (kind: Finding['kind']): Finding => ({ kind, object: 'check', name: 'page url check' })
const ofColumn = (kind: Finding['kind'], name: string): Finding => ({ kind, object: 'column', name })
const NO_NOTE = 'it holds no note of the package'
const ofProtocol = (protocol: number): string => `it has protocol ${protocol}, and this release works with 1 to 1`
const ofGuard = (name = '', detail: string): Finding => ({ kind: 'different', object: 'guard', name, detail })
const insertIs = (kind: Finding['kind']): Finding[] => [{ kind, object: 'guard', name: INSERT ?? '' }]

describe('is seen', () => {
  test.each<[what: string, statement: string, findings: Finding[]]>([
    ['a table that is gone', 'drop table page', [{ kind: 'missing', object: 'table', name: 'page' }]],
    ['an index that is gone', 'drop index "page url"', [ofIndex('missing')]],
    ['an index that is not unique', index(`index "page url" on page (${KEY})`), [ofIndex('different')]],
    [
      'a partial index',
      index(`unique index "page url" on page (${KEY}) where id > 5`),
      [{ ...ofIndex('different'), detail: OTHER_ROWS }],
    ],
    [
      'an index in another order',
      index('unique index "page url" on page ("urlHash", site, "urlHashNumber")'),
      [{ ...ofIndex('different'), detail: OTHER_ORDER }],
    ],
    ['an index with a column more', index(`unique index "page url" on page (${KEY}, id)`), [ofIndex('different')]],
    ['an index that failed to be made', setIndex('indisvalid = false'), [ofIndex('invalid')]],
    ['an index that takes no rows yet', setIndex('indisready = false'), [ofIndex('invalid')]],
    ['a check that is gone', 'alter table page drop constraint "page url check"', [ofCheck('missing')]],
    [
      'a check that old rows may break',
      `alter table page drop constraint "page url check";
       alter table page add constraint "page url check" check (id > 0) not valid`,
      [ofCheck('invalid')],
    ],
    ...[PLACE, KERNEL].flatMap((name): [string, string, Finding[]][] => [
      [
        `another owner of ${name}`,
        `alter function ${name} owner to pg_monitor`,
        [ofGuard(name, 'it does not belong to the owner of the table')],
      ],
      [
        `that ${name} runs as its caller`,
        `alter function ${name} security invoker`,
        [ofGuard(name, 'it is not SECURITY DEFINER')],
      ],
    ]),
    ['a function without a note', noted(/^-- \{[^]+?(?=\nDECLARE)/m, ''), [ofGuard(PLACE, NO_NOTE)]],
    ['a function of somebody else', replaced(PLACE, () => 'begin return new; end'), [ofGuard(PLACE, NO_NOTE)]],
    ['a note that cannot be read', noted('-- {', '-- {,'), [ofGuard(PLACE, NO_NOTE)]],
    ['a note of an older protocol', noted('"protocol":1', '"protocol":0'), [ofGuard(PLACE, ofProtocol(0))]],
    ['a note of a newer protocol', noted('"protocol":1', '"protocol":2'), [ofGuard(PLACE, ofProtocol(2))]],
    [
      'a note of a newer protocol that serves newer releases only',
      noted('"protocol":1', '"protocol":3, "serves":2'),
      [ofGuard(PLACE, ofProtocol(3))],
    ],
    ...[
      ['"digest":"md5"', '"digest":"sha256"'],
      ['"normalizers":["custom@1"]', '"normalizers":["custom@2"]'],
      ['"scope":["site"]', '"scope":["other"]'],
      ['"maxChainLength":1000', '"maxChainLength":1001'],
      ['"protocol":1,', '"protocol":1, "immutable":true,'],
      ['"protocol":1,', '"protocol":1, "whatever":1,'],
    ].map(([from = '', to = '']): [string, string, Finding[]] => [
      `a note with ${to}`,
      noted(from, to),
      [ofGuard(PLACE, 'it was made for another declaration')],
    ]),
    ['a trigger that is gone', `drop trigger "${INSERT}" on page`, insertIs('missing')],
    ['a trigger that is off', `alter table page disable trigger "${INSERT}"`, insertIs('disabled')],
    ['a trigger for replicas only', `alter table page enable replica trigger "${INSERT}"`, insertIs('disabled')],
    [
      'a trigger at another moment',
      `drop trigger "${INSERT}" on page; ${createOf(INSERT).replace('BEFORE', 'AFTER')}`,
      [ofGuard(INSERT, 'it fires at another moment')],
    ],
    [
      'a trigger without its condition',
      `drop trigger "${INSERT}" on page; ${createOf(INSERT).replace(/WHEN [^]*?(?=EXECUTE)/, '')}`,
      [ofGuard(INSERT, 'it fires at another moment')],
    ],
    [
      'a trigger of another function',
      `drop trigger "${INSERT}" on page; ${createOf(INSERT).replace(/(?<=FUNCTION ).+/, `${KERNEL}()`)}`,
      [ofGuard(INSERT, 'it runs another function')],
    ],
    [
      'a trigger of a function elsewhere that has the same name',
      `create function elsewhere.${PLACE}() returns trigger language plpgsql as 'begin return new; end';
       drop trigger "${INSERT}" on page; ${createOf(INSERT).replace(/(?<=FUNCTION )/, 'elsewhere.')}`,
      [ofGuard(INSERT, 'it runs another function')],
    ],
    ...[UPDATE, REST].map((name): [string, string, Finding[]] => [
      `other columns of ${name}`,
      `drop trigger "${name}" on page; ${createOf(name).replace(/,\s+"urlHashChained"(?=\s+ON)/, '')}`,
      [ofGuard(name, 'it names other columns')],
    ]),
    [
      'the same columns in another order',
      `drop trigger "${REST}" on page; ${createOf(REST).replace('"url", "site"', '"site", "url"')}`,
      [ofGuard(REST, 'it names other columns')],
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

  test.each([PLACE, KERNEL])('that %s moved to another schema', async (name) => {
    const findings = await driftAfter(`alter function ${name} set schema elsewhere`)
    expect(findings).toContainEqual({ kind: 'missing', object: 'guard', name })
    const ofTriggers = guard.triggers.filter(({ runs }) => runs === name)
    expect(ofTriggers).not.toEqual([])
    for (const trigger of ofTriggers) expect(findings).toContainEqual(ofGuard(trigger.name, 'it runs another function'))
  })

  test("that the schema's owner dropped a function of the kernel, and made one of the same name", async () => {
    const findings = await driftAfter(
      `drop function ${KERNEL} cascade`,
      `create function ${KERNEL}() returns trigger language plpgsql as 'begin return null; end'`,
    )
    const triggers = guard.triggers.filter(({ runs }) => runs === KERNEL).map(({ name }) => name)
    const missing = [KERNEL, ...triggers].map((name) => ({ kind: 'missing', object: 'guard', name }))
    expect(findings).toEqual(missing)
  })
})

/** Another release may have made the same in other words; `migration:generate` compares those. */
test.each([
  ['the guard as it was made', 'select'],
  ['an index that brings a column along', index(`unique index "page url" on page (${KEY}) include (id)`)],
  ['a trigger that fires on replicas too', `alter table page enable always trigger "${INSERT}"`],
  ['another code of the kernel', replaced(KERNEL, (body) => body.replace('BEGIN', 'BEGIN PERFORM 1;'))],
  ['another code under the same note', noted('BEGIN', 'BEGIN PERFORM 1;')],
  ['other words in a comment', noted('do not edit', 'made by machine')],
  ['a newer protocol that serves this release', noted('"protocol":1', '"protocol":2, "serves":1')],
  ['triggers that another release made with other conditions', noted(/"triggers":\[[^\]]+\]/, '"triggers":["abc"]')],
  ['a setting more', `alter function ${PLACE} set work_mem to '1MB'`],
  ['a setting less', `alter function ${KERNEL} reset enable_seqscan`],
  ['another search_path', `alter function ${PLACE} set search_path to public`],
  ['another search_path of the kernel', `alter function ${KERNEL} set search_path to public`],
  ['that everybody may execute the kernel', `grant execute on function ${KERNEL} to public`],
])('is no drift: %s', async (_, statement) => {
  expect(await driftAfter(statement)).toEqual([])
})
