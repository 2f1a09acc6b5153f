import { at, begin, change, commit, find, interleaving, P, Q, remove, slow, sql } from '../../../support/interleaving'
import type { Setting } from '../../../support/stage'

/** A table that is partitioned by its scope, at two levels: tenant 1, tenant 2, and all others. */
export const partitioned = (name: string, guard: readonly string[]): Setting => ({
  name,
  guard: [],
  and: [
    `ALTER TABLE page RENAME TO template;
     CREATE TABLE page (LIKE template INCLUDING DEFAULTS INCLUDING CONSTRAINTS) PARTITION BY LIST (tenant);
     ALTER TABLE page ALTER id DROP NOT NULL;
     CREATE UNIQUE INDEX "page url of all" ON page (tenant, "urlHash", "urlHashNumber");
     CREATE TABLE one PARTITION OF page FOR VALUES IN (1);
     CREATE TABLE others PARTITION OF page DEFAULT PARTITION BY RANGE (tenant);
     CREATE TABLE two PARTITION OF others FOR VALUES FROM (2) TO (3);
     CREATE TABLE more PARTITION OF others DEFAULT`,
    ...guard,
  ],
})

const moveAll = sql('move all of tenant 1', 'UPDATE page SET tenant = 2 WHERE tenant = 1', 2)

/** A row whose scope changes goes to another partition: for Postgres a DELETE in one table and an INSERT in another. */
export const partitionMoves = [
  interleaving('a row moves to where another text of equal hash lives, on, and back', {
    given: 'a1@0 2/a2@0 3/a3@0',
    steps: [P(change('a1', '2/a1')), P(change('2/a1', '3/a1')), P(change('3/a1', 'a1'))],
    rows: 'a1@0 2/a2@0! 3/a3@0!',
  }),
  interleaving('a row moves within a partition that holds several scopes', {
    given: '3/a1@0 4/a2@0',
    steps: [P(change('3/a1', '4/a1')), P(change('4/a2', '3/a2'))],
    rows: '3/a2@0 4/a1@0!',
  }),
  interleaving('a row moves to where its text lives', {
    given: 'a1@0 2/a2@0! 2/a1@1',
    steps: [P(change('a1', '2/a1'), '23505'), P(change('2/a1', 'a1'), '23505')],
    rows: 'a1@0 2/a2@0! 2/a1@1',
  }),
  interleaving('one statement moves a whole chain to another', {
    given: 'a1@0! a2@1 2/a3@0',
    steps: [P(moveAll)],
    rows: '2/a3@0! 2/a1@1 2/a2@2',
  }),
  interleaving('a row changes its text with its partition', {
    given: 'b1@0 2/a2@0',
    steps: [P(change('b1', '2/a1'))],
    rows: '2/a2@0! 2/a1@1',
  }),
  interleaving('an anchor moves away while a text comes to its chain', {
    given: 'a1@0! a2@1 3/a4@0',
    steps: [
      P(begin),
      P(change('a1', '3/a1')),
      Q(slow('a3'), 'waits'),
      P(commit),
      // What Postgres raises for a row that has left its partition, at every level.
      Q.ends('40001'),
      Q(slow('a3')),
    ],
    rows: 'a2@0! a3@1 3/a4@0! 3/a1@1',
  }),
  interleaving('two rows move to an empty chain at once', {
    given: 'a1@0 2/a2@0',
    steps: [
      P(begin),
      P(change('a1', '3/a1')),
      Q(change('2/a2', '3/a2'), 'waits'),
      P(commit),
      Q.ends(at('23505', '23505', '40001')),
      Q(change('2/a2', '3/a2')),
    ],
    rows: '3/a1@0! 3/a2@1',
  }),
  interleaving('a row moves to a chain whose anchor is deleted meanwhile', {
    given: 'a1@0 2/a2@0! 2/a3@1',
    steps: [P(begin), P(remove('2/a2')), Q(change('a1', '2/a1'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('2/a3@0! 2/a1@1', 'a1@0 2/a3@0!'),
  }),
  interleaving('a row moves to a chain that has grown since the snapshot', {
    given: 'a1@0 2/a2@0',
    steps: [P(begin), P(find('a1')), Q(slow('2/a3')), P(change('a1', '2/a1'), at(1, '40001'))],
    rows: at('2/a2@0! 2/a3@1 2/a1@2', 'a1@0 2/a2@0! 2/a3@1'),
  }),
]
