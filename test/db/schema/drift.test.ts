import { beforeAll, describe, expect, test } from 'vitest'
import type { Finding } from '../../../src/errors'
import { tableState } from '../../../src/sql/catalog'
import { guardOf } from '../../../src/triggers/guard'
import { md5 } from '../../../src/text/digest'
import { findDrift, OTHER_ORDER, OTHER_ROWS } from '../../../src/schema/readiness'
import { useDatabase } from '../../support/database'
import { CHAIN, createGuardedTable, textTable } from '../../support/guarded-table'

const db = useDatabase()
const table = textTable({ digest: md5, scope: ['site'] })
const guard = guardOf(table)
const names = guard.triggers.map(({ name }) => name)
const client = db.useClient()

/** The source of each function and the definition of each trigger. */
const [bodies, definitions] = [new Map<string, string>(), new Map<string, string>()]

beforeAll(async () => {
  await createGuardedTable(client, table)
  await client.query('create schema elsewhere')
  const { rows } = await client.query<Record<'name' | 'trigger' | 'body' | 'definition', string>>(
    `select proname as name, tgname as trigger, prosrc as body, pg_get_triggerdef(t.oid) as definition
       from pg_trigger as t join pg_proc as p on p.oid = tgfoid where tgrelid = 'page'::regclass`,
  )
  for (const one of rows) {
    bodies.set(one.name, one.body)
    definitions.set(one.trigger, one.definition)
  }
})

/** What is found after these statements, which are undone. */
async function driftAfter(...statements: readonly Late[]): Promise<Finding[]> {
  await client.query('begin')
  try {
    for (const one of statements) await client.query(typeof one === 'string' ? one : one())
    const query = async (sql: string, values?: unknown[]): Promise<unknown[]> => (await client.query(sql, values)).rows
    return findDrift(table, (await tableState(query, 'page', [])).table)
  } finally {
    await client.query('rollback')
  }
}

const PLACE = table.guard
const [INSERT, UPDATE, REST] = ['place_insert', 'place_update', 'rest'].map((suffix) => `${PLACE}_${suffix}`) as [
  string,
  string,
  string,
]
const WITHOUT_GUARD = `drop function ${PLACE}, ${CHAIN} cascade`

/** A statement that is known once the guard exists. */
type Late = string | (() => string)

/** Makes a trigger anew, with another definition. */
const remade =
  (trigger: string, from: string | RegExp, to: string): (() => string) =>
  () => {
    const [before = '', after = ''] = [definitions.get(trigger), definitions.get(trigger)?.replace(from, to)]
    expect(after).not.toBe(before)
    return `drop trigger "${trigger}" on page; ${after}`
  }

/** Gives a function another body. */
const replaced =
  (name: string, change: (body: string) => string): (() => string) =>
  () =>
    `create or replace function ${name}() returns trigger language plpgsql security definer as $other$${change(bodies.get(name) ?? '')}$other$`

/** Changes the declaration in the argument of the main trigger. */
const declared = (from: string, to: string): string =>
  `do $$ begin
     update pg_trigger set tgargs = decode(replace(encode(tgargs, 'escape'), '${from}', '${to}'), 'escape')
      where tgrelid = 'page'::regclass and strpos(encode(tgargs, 'escape'), '${from}') > 0;
     if not found then raise 'no change'; end if;
   end $$`
const index = (definition: string): string => `drop index "page url"; create ${definition}`
const setIndex = (change: string): string => `update pg_index set ${change} where indexrelid = '"page url"'::regclass`
const KEY = 'site, "urlHash", "urlHashNumber"'

const ofIndex = (kind: Finding['kind']): Finding => ({ kind, object: 'index', name: 'page url' })
const ofCheck = (kind: Finding['kind']): Finding => ({ kind, object: 'check', name: 'page url check' })
const ofColumn = (kind: Finding['kind'], name: string): Finding => ({ kind, object: 'column', name })
const ofProtocol = (protocol: number): string => `it has protocol ${protocol}, and this release works with 1`
const ofGuard = (name = '', detail: string): Finding => ({ kind: 'different', object: 'guard', name, detail })
const insertIs = (kind: Finding['kind']): Finding[] => [{ kind, object: 'guard', name: INSERT ?? '' }]

describe('is seen', () => {
  test.each<[what: string, statement: Late, findings: Finding[]]>([
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
    ...[PLACE, CHAIN].flatMap((name): [string, string, Finding[]][] => [
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
    ['an older protocol', declared('"protocol": 1', '"protocol": 0'), [ofGuard(PLACE, ofProtocol(0))]],
    ['a newer protocol', declared('"protocol": 1', '"protocol": 2'), [ofGuard(PLACE, ofProtocol(2))]],
    [
      'a newer protocol that serves newer releases only',
      declared('"protocol": 1', '"protocol": 3, "serves": 2'),
      [ofGuard(PLACE, ofProtocol(3))],
    ],
    ...[
      ['"number": ', '"digest": "sha256", "number": '],
      ['["custom@1"]', '["custom@2"]'],
      ['"scope": ["site"]', '"scope": ["other"]'],
      ['"maxChainLength": 1000', '"maxChainLength": 1001'],
      ['"protocol": 1', '"immutable": true, "protocol": 1'],
      ['"protocol": 1', '"protocol": 1, "whatever": 1'],
    ].map(([from = '', to = '']): [string, string, Finding[]] => [
      `a declaration with ${to}`,
      declared(from, to),
      [ofGuard(PLACE, 'it was made for another declaration')],
    ]),
    [
      'a declaration that is gone with its trigger',
      `drop trigger "${REST}" on page`,
      [{ kind: 'missing', object: 'guard', name: REST }],
    ],
    [
      'two declarations',
      () => (definitions.get(REST) ?? '').replace(REST, `${REST}_twice`),
      [ofGuard(PLACE, 'it was made for another declaration')],
    ],
    ['a trigger that is gone', `drop trigger "${INSERT}" on page`, insertIs('missing')],
    ['a trigger that is off', `alter table page disable trigger "${INSERT}"`, insertIs('disabled')],
    ['a trigger for replicas only', `alter table page enable replica trigger "${INSERT}"`, insertIs('disabled')],
    [
      'a trigger at another moment',
      remade(INSERT, 'BEFORE', 'AFTER'),
      [{ kind: 'missing', object: 'guard', name: INSERT }, ofGuard(INSERT, 'it runs another function')],
    ],
    [
      'a trigger without its condition',
      remade(INSERT, /WHEN .*(?=EXECUTE)/, ''),
      [ofGuard(INSERT, 'it fires at another moment')],
    ],
    [
      'a trigger of another function',
      remade(INSERT, /(?<=FUNCTION )[^(]+/, CHAIN),
      [ofGuard(INSERT, 'it runs another function')],
    ],
    [
      'a trigger of a function elsewhere that has the same name',
      () =>
        `create function elsewhere.${PLACE}() returns trigger language plpgsql security definer as 'begin return new; end';
         ${remade(INSERT, /(?<=FUNCTION )/, 'elsewhere.')()}`,
      [ofGuard(INSERT, 'it runs another function')],
    ],
    ...[UPDATE, REST].map((name): [string, Late, Finding[]] => [
      `other columns of ${name}`,
      remade(name, /, "urlHashChained"(?= ON)/, ''),
      [ofGuard(name, 'it names other columns')],
    ]),
    [
      'the same columns in another order',
      remade(REST, 'url, site', 'site, url'),
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

  test.each([PLACE, CHAIN])('that %s moved to another schema', async (name) => {
    const findings = await driftAfter(`alter function ${name} set schema elsewhere`)
    const ofTriggers = names.filter((one) => /place/.test(one) === (name === PLACE))
    expect(findings).toEqual(ofTriggers.map((one) => ofGuard(one, 'it runs another function')))
  })

  test("that the schema's owner dropped the function of chains, and made one of the same name", async () => {
    const findings = await driftAfter(
      `drop function ${CHAIN} cascade`,
      `create function ${CHAIN}() returns trigger language plpgsql as 'begin return null; end'`,
    )
    const missing = names.filter((one) => !/place/.test(one))
    expect(findings).toEqual(missing.map((name) => ({ kind: 'missing', object: 'guard', name })))
  })
})

/** First use compares declarations; `migration:generate` compares code too. */
test.each<[what: string, statement: Late]>([
  ['the guard as it was made', 'select'],
  ['an index that brings a column along', index(`unique index "page url" on page (${KEY}) include (id)`)],
  ['a trigger that fires on replicas too', `alter table page enable always trigger "${INSERT}"`],
  ['another code of the chains', replaced(CHAIN, (body) => body.replace('BEGIN', 'BEGIN PERFORM 1;'))],
  ['another code of the text', replaced(PLACE, (body) => body.replace('BEGIN', 'BEGIN PERFORM 1;'))],
  ['a newer protocol that serves this release', declared('"protocol": 1', '"protocol": 2, "serves": 1')],
  ['a setting more', `alter function ${PLACE} set work_mem to '1MB'`],
  ['a setting less', `alter function ${CHAIN} reset enable_seqscan`],
  ['another search_path', `alter function ${PLACE} set search_path to public`],
  ['another search_path of the chains', `alter function ${CHAIN} set search_path to public`],
  ['that everybody may execute the function of chains', `grant execute on function ${CHAIN} to public`],
])('is no drift: %s', async (_, statement) => {
  expect(await driftAfter(statement)).toEqual([])
})
