import { expect, test } from 'vitest'
import { numberTriggers } from '../../../src/sql/number-triggers'
import type { NumberTable } from '../../../src/sql/number-table'
import { useDatabase } from '../../support/database'
import { numberPlays } from '../../support/number-interleavings'
import { type NumberPlay, useNumberStage } from '../../support/number-plays'
import { countedTable, numberTable } from '../../support/numbered-table'
import type { Level } from '../../support/sessions'

const stage = useNumberStage(useDatabase())

interface Mutation {
  /** What is taken out. */
  readonly name: string
  readonly from: string | RegExp
  readonly to: string
  /** The interleaving that must come out otherwise. */
  readonly found: string
  readonly table?: NumberTable
  /** @default 'READ COMMITTED' */
  readonly level?: Level
}

const plain = numberTable()
const counted = countedTable()

/** In order, without rival sessions; what one session alone can see. */
const ALONE: readonly NumberPlay[] = [
  { name: 'the holder is deleted', given: [3], steps: ['P delete 1/1'] },
  { name: 'the holder moves', given: [3, 2], steps: ['P move 1/1 to 2'] },
  { name: 'one is restored', given: [2], steps: ['P soft 1/2', 'P soft 1/1', 'P restore 1/2', 'P soft 1/2'] },
  {
    name: 'a deleted one is removed',
    given: [3],
    steps: ['P soft 1/2', 'P delete from comment where number in (2, 3)'],
  },
  { name: 'a deleted one begins a scope', given: [2], steps: ['P soft 1/2', 'P move 1/2 to 2'] },
  {
    name: 'one statement deletes the holder and inserts',
    given: [1],
    steps: ['P with gone as (delete from comment) insert into comment (tenant, number) values (1, 7)'],
  },
  { name: 'the count is written', given: [2], steps: ['P update comment set "number count" = 9', 'P insert 1'] },
]

const MUTATIONS: readonly Mutation[] = [
  {
    name: 'the oldest row is not locked',
    from: /LIMIT 1\s+FOR NO KEY UPDATE;\s+IF FOUND/,
    to: 'LIMIT 1; IF FOUND',
    found: 'three insert',
    table: plain,
  },
  {
    name: 'the lock lets another in',
    from: 'FOR NO KEY UPDATE;\n    IF FOUND',
    to: 'FOR KEY SHARE;\n    IF FOUND',
    found: 'three insert',
    table: plain,
  },
  {
    name: 'the oldest is read in place of the newest',
    from: /ORDER BY t\."tenant" DESC, t\."number" DESC/,
    to: 'ORDER BY t."tenant", t."number"',
    found: 'three insert',
    table: plain,
  },
  {
    name: 'a new scope is not locked',
    from: /PERFORM pg_catalog\.pg_advisory_xact_lock\([^]+?\);/,
    to: 'NULL;',
    found: 'two begin a scope',
    table: plain,
  },
  {
    name: 'a new scope is not looked at again',
    from: 'begun := true;',
    to: 'EXIT;',
    found: 'two begin a scope',
    table: plain,
  },
  {
    name: 'who begins many keeps nobody out',
    from: /PERFORM pg_catalog\.pg_advisory_xact_lock_shared[^;]+;/,
    to: '',
    found: 'many scopes are begun',
    table: plain,
  },
  {
    name: 'who begins many asks nobody',
    from: 'OR NOT pg_catalog.pg_try_advisory_xact_lock(home::pg_catalog.int4,',
    to: 'OR NOT (true OR NULL = ',
    found: 'a scope is begun before many are',
    table: plain,
  },
  {
    name: 'a row that moves keeps its number',
    from: /IF TG_OP = 'UPDATE' AND NEW\."number" IS NOT DISTINCT[^]+?END IF;/,
    to: '',
    found: 'two move to one scope',
    table: plain,
  },
  {
    name: 'a number that is given takes no lock',
    from: /(BEFORE INSERT ON "comment" FOR EACH ROW)/,
    to: '$1 WHEN (NEW."number" IS NULL)',
    found: 'a number is given in a scope that is begun',
  },
  {
    name: 'a holder that another chose is not looked for again',
    from: /(chosen one\.\s+)UPDATE[^]+?CONTINUE WHEN FOUND;/,
    to: '$1',
    found: 'the oldest and another are deleted at once',
  },
  {
    name: 'a holder that is deleted takes its count along for ever',
    from: /coalesce\(pg_catalog\.max\(g\."number count"\), 0\)/,
    to: '0',
    found: 'the holder is deleted',
  },
  {
    name: 'a holder that moves takes its count along for ever',
    from: /CASE WHEN pg_catalog\.sum\(c\."held by"\) < 0 THEN [^]+? END AS/,
    to: '0 AS',
    found: 'the holder moves',
  },
  {
    name: 'a holder that moves keeps its count',
    from: /NEW\."number count" := CASE[^;]+;/,
    to: '',
    found: 'the holder moves',
  },
  { name: 'rows that come are not counted', from: /(AFTER INSERT)/, to: 'AFTER TRUNCATE', found: 'three insert' },
  {
    name: 'soft deletes are not counted',
    from: ` OR pg_catalog.sum(c."live by") <> 0`,
    to: '',
    found: 'one is restored',
  },
  {
    name: 'a deleted row counts',
    from: /CASE WHEN "deletedAt" IS NULL THEN (-?1) ELSE 0 END/,
    to: '$1',
    found: 'one is restored',
  },
  {
    name: 'a row that is deleted twice counts twice',
    from: / FILTER \(WHERE g\."deletedAt" IS NULL\)/,
    to: '',
    found: 'a deleted one is removed',
  },
  {
    name: 'a scope that begins with a deleted row has no holder',
    from: 'pg_catalog.sum(c."rows by") <> 0 OR ',
    to: '',
    found: 'a deleted one begins a scope',
  },
  {
    name: 'nothing stands in for a holder that is gone',
    from: /UPDATE "comment" AS t SET "number count" = r\."changed by"[^;]+;/,
    to: '',
    found: 'the holder is deleted',
  },
  {
    name: 'the count is set, not added',
    from: 't."number count" + r."changed by"',
    to: 'r."changed by"',
    found: 'three insert',
  },
  {
    name: 'anybody writes the count',
    from: /\s+OR OLD\."number count" IS DISTINCT FROM[^)]+\(\) = 0/,
    to: '',
    found: 'the count is written',
  },
]

test.each(MUTATIONS)(
  'it is seen when $name',
  async ({ from, to, found, table = counted, level = 'READ COMMITTED' }) => {
    const whole = numberTriggers(table).create
    const triggers = whole.map((one) => one.replaceAll(from instanceof RegExp ? new RegExp(from, 'g') : from, to))
    expect(triggers.join('\n')).not.toBe(whole.join('\n'))
    const play = [...numberPlays, ...ALONE].find((one) => one.name === found)
    if (!play) throw new TypeError(`There is no interleaving "${found}".`)
    const [as, mutated] = [await stage.play(play, { table, level }), await outcome(play, { table, level, triggers })]
    expect(mutated).not.toBe(as)
  },
)

/** A mutation may fail while the rows before the first step are stored. */
async function outcome(...args: Parameters<typeof stage.play>): Promise<string> {
  try {
    return await stage.play(...args)
  } catch (error) {
    return String(error)
  }
}

test('it is seen at REPEATABLE READ when nothing keeps the count to one row', async () => {
  const play = numberPlays.find(({ name }) => name === 'a snapshot from before the scope was begun')
  if (!play) throw new TypeError('There is no such interleaving.')
  const on = { table: counted, level: 'REPEATABLE READ' } as const
  const index = `do $$ begin execute (select format('drop index %s', indexrelid::regclass) from pg_index
    where indrelid = 'comment'::regclass and indpred is not null); end $$`
  expect(await stage.play(play, { ...on, prepare: index })).toContain('1: 1=1 2=1')
  expect(await stage.play(play, on)).toContain('1: 2=1')
})

test('one statement may delete the row that holds the count, and insert another', async () => {
  const play = ALONE.find(({ name }) => name.startsWith('one statement'))
  if (!play) throw new TypeError('There is no such play.')
  expect(await stage.play(play, { table: counted, level: 'READ COMMITTED' })).toMatch(/1: 7=1$/)
})
