import { expect, test } from 'vitest'
import { numberTriggers } from '../../../src/numbers/sql/triggers'
import { type NumberTable, scopesName } from '../../../src/sql/numbers'
import { useDatabase } from '../../support/database'
import { mutate } from '../../support/mutate'
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
const kept = numberTable({ reuse: false })

/** In order, without rival sessions; what one session alone can see. */
const ALONE: readonly NumberPlay[] = [
  { name: 'one is deleted', given: [3], steps: ['P delete 1/1'] },
  { name: 'one moves', given: [3, 2], steps: ['P move 1/1 to 2'] },
  { name: 'the newest moves', given: [3, 2], steps: ['P move 1/3 to 2', 'P insert 1'] },
  { name: 'one is restored', given: [2], steps: ['P soft 1/2', 'P soft 1/1', 'P restore 1/2', 'P soft 1/2'] },
  {
    name: 'a deleted one is removed',
    given: [3],
    steps: ['P soft 1/2', 'P delete from comment where number in (2, 3)'],
  },
  { name: 'all go at once', given: [2, 1], steps: ['P truncate comment', 'P insert 1'] },
  {
    name: 'another trigger derives the scope',
    given: [2, 1],
    steps: [
      `P create function derived() returns trigger language plpgsql as $$ begin new.tenant := new.title; return new; end $$`,
      'P create trigger a before update on comment for each row execute function derived()',
      `P update comment set title = '2' where tenant = 1 and number = 1`,
      'P drop function derived cascade',
    ],
  },
  {
    name: 'a column is renamed, and another takes its name',
    given: [2],
    steps: [
      'P alter table comment rename tenant to old',
      'P alter table comment add tenant integer not null default 1',
      'P insert into comment (old) values (1)',
      'P alter table comment drop tenant',
      'P alter table comment rename old to tenant',
    ],
  },
  {
    name: 'a table of another takes the place of ours',
    given: [1],
    steps: [
      'P begin',
      'P create role number_taker',
      `P alter table ${scopesName(plain)} owner to number_taker`,
      'P insert 1',
      'P rollback',
    ],
  },
]

const MUTATIONS: readonly Mutation[] = [
  { name: 'the scope is not locked', from: /FOR NO KEY UPDATE;/, to: ';', found: 'three insert', table: plain },
  {
    name: 'the lock lets another in',
    from: 'FOR NO KEY UPDATE',
    to: 'FOR KEY SHARE',
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
    name: 'a new scope is not begun',
    from: /INSERT INTO \S+ \(s0, part, n\)\s+VALUES [^;]+;/,
    to: 'EXIT;',
    found: 'two begin a scope',
    table: plain,
  },
  {
    name: 'a row that moves keeps its number',
    from: /IF TG_OP OPERATOR\(pg_catalog\.=\) 'UPDATE' AND NEW\."number"[^]+?END IF;/,
    to: '',
    found: 'two move to one scope',
    table: plain,
  },
  {
    name: 'only an UPDATE that names the scope moves a row',
    from: 'BEFORE UPDATE ON',
    to: 'BEFORE UPDATE OF tenant, number ON',
    found: 'another trigger derives the scope',
    table: plain,
  },
  {
    name: 'columns are not looked at',
    from: /IF EXISTS \(\s+SELECT FROM pg_catalog\.pg_trigger AS g[^]+?END IF;/,
    to: '',
    found: 'a column is renamed, and another takes its name',
    table: plain,
  },
  {
    name: 'tables are not looked at',
    from: /ELSIF NOT ours OR[^]+?END IF;/,
    to: 'END IF;',
    found: 'a table of another takes the place of ours',
    table: plain,
  },
  {
    name: 'rows that come are not counted',
    from: /AFTER INSERT\s+ON "comment"\s+REFERENCING NEW TABLE AS came/,
    to: 'AFTER TRUNCATE ON "comment"',
    found: 'three insert',
  },
  {
    name: 'rows that go are not counted',
    from: /FROM gone AS c\s+WHERE/,
    to: 'FROM gone AS c WHERE false AND',
    found: 'one is deleted',
  },
  { name: 'rows that move are not counted there', from: 'AS s0, 1 AS n', to: 'AS s0, 0 AS n', found: 'one moves' },
  { name: 'rows that move are counted here', from: 'AS s0, -1 AS n', to: 'AS s0, 0 AS n', found: 'one moves' },
  { name: 'a deleted row counts', from: /WHERE came\."deletedAt" IS NULL/, to: '', found: 'one is restored' },
  {
    name: 'a row that is deleted twice counts twice',
    from: /(FROM gone AS c)\s+WHERE c\."deletedAt" IS NULL/,
    to: '$1',
    found: 'a deleted one is removed',
  },
  {
    name: 'the count is set, not added',
    from: 'k.n OPERATOR(pg_catalog.+) excluded.n',
    to: 'excluded.n',
    found: 'three insert',
  },
  {
    name: 'the numbers of rows that are gone are not read',
    from: 'SELECT pg_catalog.max(k.last) FROM',
    to: 'SELECT max(NULL::int8) FROM',
    found: 'all are deleted, and one is inserted',
    table: kept,
  },
  {
    name: 'an older snapshot is believed',
    from: /IF NOT pg_catalog\.starts_with\([^]+?END IF;/,
    to: '',
    found: 'one comes and goes after a snapshot',
    table: kept,
    level: 'REPEATABLE READ',
  },
  {
    name: 'the numbers of rows that move are given again',
    from: 'OLD."number" IS NOT NULL AND NOT EXISTS',
    to: `TG_OP = 'DELETE' AND NOT EXISTS`,
    found: 'the newest moves',
    table: kept,
  },
  {
    name: 'of rows that go, one that is not the newest is forgotten',
    from: 'k.last OPERATOR(pg_catalog.>=) OLD."number"',
    to: 'k.last IS NOT NULL',
    found: 'a snapshot from before two came, of which the older goes',
    table: kept,
    level: 'REPEATABLE READ',
  },
  {
    name: 'a given number takes no mutex',
    from: 'BEFORE INSERT ON "comment" FOR EACH ROW',
    to: 'BEFORE INSERT ON "comment" FOR EACH ROW WHEN (NEW.number IS NULL)',
    found: 'a given number comes and goes while an insert waits at the primary key',
    table: kept,
  },
  {
    name: 'a number that is changed takes no mutex',
    from: 'OR (OLD."number" OPERATOR(pg_catalog.=) NEW."number") IS NOT TRUE',
    to: 'OR NEW."number" IS NULL',
    found: 'one is renumbered, and back, while an insert waits at the primary key',
    table: kept,
  },
  { name: 'TRUNCATE leaves the counts', from: /TRUNCATE numbers[^;]+;/, to: 'NULL;', found: 'all go at once' },
]

test.each(MUTATIONS)(
  'it is seen when $name',
  async ({ name, from, to, found, table = counted, level = 'READ COMMITTED' }) => {
    const triggers = mutate(name, numberTriggers(table).create, [[from, to]])
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
