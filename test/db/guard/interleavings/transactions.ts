import {
  at,
  begin,
  commit,
  fast,
  interleaving,
  P,
  Q,
  remove,
  retitle,
  rollbackToSavepoint,
  savepoint,
  slow,
  slowOrNothing,
  sql,
  upsert,
} from '../../../support/interleaving'

const child = (url: string): ReturnType<typeof sql> =>
  sql(`insert a child of ${url}`, `INSERT INTO child (page_id) SELECT id FROM page WHERE url = '${url}'`)

/** Savepoints, upsert, foreign keys, and what a client cannot do to the hidden columns. */
export const transactions = [
  interleaving('a slow insert rolled back to a savepoint holds no anchor', {
    given: 'a1@0',
    steps: [P(begin), P(savepoint), P(slow('a2')), P(rollbackToSavepoint), Q(slow('a2')), P(commit)],
    rows: 'a1@0! a2@1',
  }),
  interleaving('a slow insert before the savepoint still holds the anchor', {
    given: 'a1@0',
    steps: [
      P(begin),
      P(slow('a2')),
      P(savepoint),
      P(slow('a3')),
      P(rollbackToSavepoint),
      Q(slow('a3'), 'waits'),
      P(commit),
      Q.ends(at(1, '40001')),
    ],
    rows: at('a1@0! a2@1 a3@2', 'a1@0! a2@1'),
  }),
  interleaving('a promotion rolled back to a savepoint leaves the anchor', {
    given: 'a1@0! a2@1',
    steps: [
      P(begin),
      P(savepoint),
      P(remove('a1')),
      Q(slow('a2'), 'waits'),
      P(rollbackToSavepoint),
      Q.ends('23505'),
      P(commit),
    ],
    rows: 'a1@0! a2@1',
  }),
  interleaving('a deletion rolled back to a savepoint and then repeated', {
    given: 'a1@0! a2@1',
    steps: [
      P(begin),
      P(savepoint),
      P(remove('a1')),
      P(rollbackToSavepoint),
      P(remove('a1')),
      Q(fast('a2'), 'waits'),
      P(commit),
      Q.ends('23505'),
    ],
    rows: 'a2@0!',
  }),
  interleaving('a refusal inside a savepoint leaves the transaction usable', {
    given: 'a1@0',
    steps: [
      Q(slow('a2')),
      P(begin),
      P(savepoint),
      P(slow('a2'), '23505'),
      P(rollbackToSavepoint),
      P(slow('a3')),
      P(commit),
    ],
    rows: 'a1@0! a2@1 a3@2',
  }),
  interleaving('an upsert waits for an insert of its text and updates that row', {
    given: 'a1@0',
    steps: [P(begin), P(slow('a2')), Q(upsert('a2'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: 'a1@0! a2@1',
  }),
  interleaving('an upsert waits for a deletion of its text and inserts it', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(remove('a2')), Q(upsert('a2'), 'waits'), P(commit), Q.ends(at(1, 1, '40001'))],
    rows: at('a1@0! a2@1', 'a1@0! a2@1', 'a1@0!'),
  }),
  interleaving('an upsert waits for the deletion of the anchor and updates the promoted row', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(remove('a1')), Q(upsert('a2'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: 'a2@0!',
  }),
  interleaving('a child of the anchor does not stop a touch', {
    given: 'a1@0',
    steps: [P(begin), P(child('a1')), Q(slow('a2')), P(commit)],
    rows: 'a1@0! a2@1',
  }),
  interleaving('a touch does not stop a child of the anchor', {
    given: 'a1@0',
    steps: [P(begin), P(slow('a2')), Q(child('a1')), P(commit)],
    rows: 'a1@0! a2@1',
  }),
  interleaving('promotion waits for a child of the row to be promoted', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(child('a2')), Q(remove('a1'), 'waits'), P(commit), Q.ends(at(1, 1, '40001'))],
    rows: at('a2@0!', 'a2@0!', 'a1@0! a2@1'),
  }),
  interleaving('a child of the row that is promoted waits for the promotion', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(remove('a1')), Q(child('a2'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: 'a2@0!',
  }),
  interleaving('a child of the anchor waits for its deletion and is refused', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(remove('a1')), Q(child('a1'), 'waits'), P(commit), Q.ends(at('23503', '40001'))],
    rows: 'a2@0!',
  }),
  interleaving('several rows of a chain in one insert, with an insert of one of them', {
    given: 'a1@0',
    steps: [
      P(begin),
      P(sql('insert a2, a3 and b1 at once', `INSERT INTO page (url) VALUES ('a2'), ('a3'), ('b1')`, 3)),
      Q(slowOrNothing('a3'), 'waits'),
      P(commit),
      Q.ends(at(0, '40001')),
    ],
    rows: 'a1@0! a2@1 a3@2 b1@0',
  }),
  interleaving('an update of another column of the anchor holds up a collision', {
    given: 'a1@0',
    steps: [P(begin), P(retitle('a1')), Q(slow('a2'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a1@0! a2@1', 'a1@0'),
  }),
  interleaving('a client that chooses the number does not get it', {
    given: 'a1@0',
    steps: [
      P(begin),
      P(sql('give a1 number 5', 'UPDATE page SET "urlHashNumber" = 5')),
      Q(fast('a1'), 'waits'),
      P(commit),
      Q.ends('23505'),
    ],
    rows: 'a1@0',
  }),
  interleaving('a client that clears the flag while another deletes the anchor', {
    given: 'a1@0! a2@1',
    steps: [
      P(begin),
      P(sql('clear the flag', 'UPDATE page SET "urlHashChained" = false', 2)),
      Q(remove('a1'), 'waits'),
      P(commit),
      Q.ends(at(1, '40001')),
      Q(fast('a2'), at('23505', '23505')),
    ],
    rows: at('a2@0!', 'a1@0! a2@1'),
  }),
]
