import { expect, test } from 'vitest'
import { numberTriggers } from '../../../src/numbers/sql/triggers'
import { type NumberTable, scopesName } from '../../../src/sql/numbers'
import { useDatabase } from '../../support/database'
import { mutate } from '../../support/mutate'
import { numberPlays } from '../../support/number-interleavings'
import { type NumberPlay, useNumberStage } from '../../support/number-plays'
import { countedTable, numberTable } from '../../support/numbered-table'
import type { Level } from '../../support/sessions'
import { gatePart } from '../../support/gate-part'

const stage = useNumberStage(useDatabase())

/** What is taken out, and the interleaving that must come out otherwise. */
type Mutation = readonly [name: string, from: string | RegExp, to: string, found: string, level?: Level]

const plain = numberTable()
const counted = countedTable()
const kept = numberTable({ reuse: false })

/** In order, without rival sessions; what one session alone can see. */
const ALONE: readonly NumberPlay[] = [
  { name: 'one is deleted', given: [3], steps: ['P delete 1/1'] },
  { name: 'one moves', given: [3, 2], steps: ['P move 1/1 to 2'] },
  { name: 'the newest moves', given: [3, 2], steps: ['P move 1/3 to 2', 'P insert 1'] },
  { name: 'one that has moved is deleted', given: [3, 2], steps: ['P move 1/1 to 2', 'P delete 2/3', 'P insert 2'] },
  { name: 'the newest of two statements is deleted', given: [2], steps: ['P insert 1', 'P delete 1/3', 'P insert 1'] },
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

const MUTATIONS: readonly (readonly [table: NumberTable, of: readonly Mutation[]])[] = [
  [
    plain,
    [
      ['the scope is not locked', /FOR NO KEY UPDATE;/, ';', 'three insert'],
      ['the lock lets another in', 'FOR NO KEY UPDATE', 'FOR KEY SHARE', 'three insert'],
      [
        'the oldest is read in place of the newest',
        /ORDER BY t\."tenant" DESC, t\."number" DESC/,
        'ORDER BY t."tenant", t."number"',
        'three insert',
      ],
      ['a new scope is not begun', /INSERT INTO \S+ AS k \(s0\) VALUES [^;]+;/, 'NULL;', 'two begin a scope'],
      [
        'a row that moves keeps its number',
        /IF TG_OP OPERATOR\(pg_catalog\.=\) 'UPDATE' AND NEW\."number"[^]+?END IF;/,
        '',
        'two move to one scope',
      ],
      [
        'only an UPDATE that names the scope moves a row',
        'BEFORE UPDATE ON',
        'BEFORE UPDATE OF tenant, number ON',
        'another trigger derives the scope',
      ],
      [
        'columns are not looked at',
        /IF NOT EXISTS \(\s+SELECT FROM pg_catalog\.pg_trigger AS g[^]+?END IF;/,
        '',
        'a column is renamed, and another takes its name',
      ],
      [
        'tables are not looked at',
        /ELSIF NOT ours OR[^]+?END IF;/,
        'END IF;',
        'a table of another takes the place of ours',
      ],
    ],
  ],
  [
    counted,
    [
      [
        'rows that come are not counted',
        /AFTER INSERT\s+ON "comment"\s+REFERENCING NEW TABLE AS came/,
        'AFTER TRUNCATE ON "comment"',
        'three insert',
      ],
      [
        'rows that go are not counted',
        /(AS s0, -1 AS n FROM gone\s+WHERE) (?!.*UNION)/,
        '$1 false AND ',
        'one is deleted',
      ],
      [
        'rows that move are not counted there',
        /(UNION ALL\s+SELECT came."tenant" AS s0), 1 AS n/,
        '$1, 0 AS n',
        'one moves',
      ],
      ['rows that move are counted here', /-1 AS n (FROM gone\s+WHERE \S+ IS NULL\s+UNION)/, '0 AS n $1', 'one moves'],
      ['a deleted row counts', /(UNION ALL[^;]+?FROM came)\s+WHERE came\."deletedAt" IS NULL/, '$1', 'one is restored'],
      [
        'a row that is deleted twice counts twice',
        /(FROM gone)\s+WHERE gone\."deletedAt" IS NULL/,
        '$1',
        'a deleted one is removed',
      ],
      ['the count is set, not added', 'k.n OPERATOR(pg_catalog.+) excluded.n', 'excluded.n', 'three insert'],
      ['TRUNCATE leaves the counts', /TRUNCATE numbers[^;]+;/, 'NULL;', 'all go at once'],
    ],
  ],
  [
    kept,
    [
      [
        'the highest number is not read',
        'SELECT k.last INTO',
        'SELECT NULL::int8 INTO',
        'all are deleted, and one is inserted',
      ],
      [
        'the highest number is not stored',
        'AFTER INSERT ON "comment" FOR EACH ROW',
        'AFTER INSERT ON "comment" FOR EACH ROW WHEN (false)',
        'the newest of two statements is deleted',
      ],
      [
        'the number of a row that moves is not stored',
        'AFTER UPDATE ON',
        'AFTER UPDATE OF title ON',
        'one that has moved is deleted',
      ],
      [
        'only the first number of a scope is stored',
        'k.last OPERATOR(pg_catalog.>=) NEW."number"',
        'k.last IS NOT NULL',
        'the newest of two statements is deleted',
      ],
      [
        'a given number takes no mutex',
        'BEFORE INSERT ON "comment" FOR EACH ROW',
        'BEFORE INSERT ON "comment" FOR EACH ROW WHEN (NEW.number IS NULL)',
        'a given number comes and goes while an insert waits at the primary key',
      ],
      [
        'a number that is changed takes no mutex',
        'OR (OLD."number" OPERATOR(pg_catalog.=) NEW."number") IS NOT TRUE',
        'OR NEW."number" IS NULL',
        'one is renumbered, and back, while an insert waits at the primary key',
      ],
    ],
  ],
]

const ALL = MUTATIONS.flatMap(([table, of]) =>
  of.map(([name, from, to, found, level = 'READ COMMITTED']) => ({ name, table, from, to, found, level })),
)

test.each(gatePart(4, ALL))('it is seen when $name', async ({ name, table, from, to, found, level }) => {
  const triggers = mutate(name, numberTriggers(table).create, [[from, to]])
  const play = [...numberPlays, ...ALONE].find((one) => one.name === found)
  if (!play) throw new TypeError(`There is no interleaving "${found}".`)
  const [as, mutated] = [await stage.play(play, { table, level }), await outcome(play, { table, level, triggers })]
  expect(mutated).not.toBe(as)
})

/** A mutation may fail while the rows before the first step are stored. */
async function outcome(...args: Parameters<typeof stage.play>): Promise<string> {
  try {
    return await stage.play(...args)
  } catch (error) {
    return String(error)
  }
}
