import { expect, test } from 'vitest'
import { numberOf } from '../../../src/numbers/sql/declared'
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
      ['the scope is not locked', ' FOR NO KEY UPDATE;', ';', 'three insert'],
      ['the lock lets another in', 'FOR NO KEY UPDATE', 'FOR KEY SHARE', 'three insert'],
      ['the oldest is read in place of the newest', `, ' DESC LIMIT 1'`, `, ' LIMIT 1'`, 'three insert'],
      ['a new scope is not begun', /INSERT INTO %11\$s AS k \(%14\$s\) VALUES[^;]+;/, 'NULL;', 'two begin a scope'],
      [
        'a row that moves keeps its number',
        /IF TG_OP = 'UPDATE' AND NEW\.%13\$s = OLD[^]+?END IF;/,
        '',
        'two move to one scope',
      ],
      [
        'only an UPDATE that names the scope moves a row',
        `'place_update', true, 'BEFORE UPDATE'`,
        `'place_update', true, 'BEFORE UPDATE OF tenant, number'`,
        'another trigger derives the scope',
      ],
      [
        'columns are not looked at',
        /SELECT CASE WHEN look\.oid[^;]+;/,
        'NULL;',
        'a column is renamed, and another takes its name',
      ],
      [
        'tables are not looked at',
        /SELECT k\.relkind = 'r' AND[^;]+;/,
        'NULL;',
        'a table of another takes the place of ours',
      ],
    ],
  ],
  [
    counted,
    [
      ['rows that come are not counted', `'_count_insert', counts`, `'count_insert', false`, 'three insert'],
      ['rows that go are not counted', `'count_delete', counts`, `'count_delete', false`, 'one is deleted'],
      ['rows that move are not counted there', `concat(gone, ' UNION ALL ', came)`, 'gone', 'one moves'],
      ['rows that move are counted here', `concat(gone, ' UNION ALL ', came)`, 'came', 'one moves'],
      ['a deleted row counts', `FROM came AS r', ' WHERE ' || live`, `FROM came AS r'`, 'one is restored'],
      [
        'a row that is deleted twice counts twice',
        `FROM gone AS r', ' WHERE ' || live`,
        `FROM gone AS r'`,
        'a deleted one is removed',
      ],
      ['the count is set, not added', 'k.n + excluded.n', 'excluded.n', 'three insert'],
      ['TRUNCATE leaves the counts', 'TRUNCATE %11$s;', 'NULL;', 'all go at once'],
    ],
  ],
  [
    kept,
    [
      [
        'the highest number is not read',
        'SELECT k.last INTO',
        'SELECT NULL::bigint INTO',
        'all are deleted, and one is inserted',
      ],
      [
        'the highest number is not stored',
        `'keep_insert', keeps`,
        `'keep_insert', false`,
        'the newest of two statements is deleted',
      ],
      [
        'the number of a row that moves is not stored',
        `'keep_update', keeps`,
        `'keep_update', false`,
        'one that has moved is deleted',
      ],
      [
        'only the first number of a scope is stored',
        'k.last >= NEW.%13$s',
        'k.last IS NOT NULL',
        'the newest of two statements is deleted',
      ],
      [
        'a given number takes no mutex',
        'CASE WHEN NOT counts AND NOT keeps THEN format',
        'CASE WHEN NOT counts THEN format',
        'a given number comes and goes while an insert waits at the primary key',
      ],
      [
        'a number that is changed takes no mutex',
        `'BEFORE UPDATE', 'ROW', changed`,
        `'BEFORE UPDATE', 'ROW', '(OLD.tenant = NEW.tenant) IS NOT TRUE OR NEW.number IS NULL'`,
        'one is renumbered, and back, while an insert waits at the primary key',
      ],
    ],
  ],
]

const ALL = MUTATIONS.flatMap(([table, of]) =>
  of.map(([name, from, to, found, level = 'READ COMMITTED']) => ({ name, table, from, to, found, level })),
)

test.each(gatePart(4, ALL))('it is seen when $name', async ({ name, table, from, to, found, level }) => {
  const triggers = mutate(name, numberOf(table).create, [[from, to]])
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
