import {
  at,
  begin,
  change,
  commit,
  fast,
  fastOrNothing,
  interleaving,
  P,
  Q,
  R,
  remove,
  retitle,
  rollback,
  slow,
} from '../../../support/interleaving'

/** The anchor goes, and the lowest row that is left becomes the anchor. */
export const promotion = [
  interleaving('after the anchor went, the promoted text is held by number 0', {
    given: 'a1@0! a2@1',
    steps: [P(remove('a1')), Q(fast('a2'), '23505'), Q(slow('a2'), '23505')],
    rows: 'a2@0!',
  }),
  interleaving('after two anchors went, the third text is held by number 0', {
    given: 'a1@0! a2@1 a3@2',
    steps: [P(remove('a1')), P(remove('a2')), Q(fast('a3'), '23505')],
    rows: 'a3@0!',
  }),
  interleaving('after the anchor moved to another chain, the promoted text is held by number 0', {
    given: 'a1@0! a2@1',
    steps: [P(change('a1', 'b1')), Q(fast('a2'), '23505')],
    rows: 'a2@0! b1@0',
  }),
  interleaving('a fast insert waits for a deletion of the anchor that commits, and meets the promoted row', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(remove('a1')), Q(fast('a2'), 'waits'), P(commit), Q.ends('23505')],
    rows: 'a2@0!',
  }),
  interleaving('a fast insert waits for a deletion of the anchor that rolls back', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(remove('a1')), Q(fast('a2'), 'waits'), P(rollback), Q.ends('23505')],
    rows: 'a1@0! a2@1',
  }),
  interleaving('a slow insert of another text waits for a deletion of the anchor that commits', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(remove('a1')), Q(slow('a3'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a2@0! a3@1', 'a2@0!'),
  }),
  interleaving('a slow insert of the promoted text waits for a deletion of the anchor that commits', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(remove('a1')), Q(slow('a2'), 'waits'), P(commit), Q.ends(at('23505', '40001'))],
    rows: 'a2@0!',
  }),
  interleaving('a slow insert waits for a deletion of the anchor that rolls back', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(remove('a1')), Q(slow('a3'), 'waits'), P(rollback), Q.ends(1)],
    rows: 'a1@0! a2@1 a3@2',
  }),
  interleaving('a slow insert waits for a deletion of the only row and takes its number', {
    given: 'a1@0',
    steps: [P(begin), P(remove('a1')), Q(slow('a2'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a2@0', ''),
  }),
  interleaving('a deletion of the anchor waits for a slow insert, whose row it then promotes', {
    given: 'a1@0',
    steps: [P(begin), P(slow('a2')), Q(remove('a1'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a2@0!', 'a1@0! a2@1'),
  }),
  interleaving('a deletion of the anchor waits for a slow insert that rolls back', {
    given: 'a1@0',
    steps: [P(begin), P(slow('a2')), Q(remove('a1'), 'waits'), P(rollback), Q.ends(1)],
    rows: '',
  }),
  interleaving('promotion waits for an update of the row to be promoted', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(retitle('a2')), Q(remove('a1'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a2@0!', 'a1@0! a2@1'),
  }),
  interleaving('promotion waits for the row to be promoted, which moves to another chain: the next is promoted', {
    given: 'a1@0! a2@1 a3@2',
    steps: [P(begin), P(change('a2', 'b1')), Q(remove('a1'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a3@0! b1@0', 'a1@0! a3@2 b1@0'),
  }),
  interleaving('promotion waits for a deletion of the row to be promoted: none is left', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(remove('a2')), Q(remove('a1'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('', 'a1@0!'),
  }),
  interleaving('promotion waits for a deletion of the row to be promoted: the next is promoted', {
    given: 'a1@0! a2@1 a3@2',
    steps: [P(begin), P(remove('a2')), Q(remove('a1'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a3@0!', 'a1@0! a3@2'),
  }),
  interleaving('promotion waits for a deletion of the row to be promoted that rolls back', {
    given: 'a1@0! a2@1 a3@2',
    steps: [P(begin), P(remove('a2')), Q(remove('a1'), 'waits'), P(rollback), Q.ends(1)],
    rows: 'a2@0! a3@2',
  }),
  interleaving('a deletion waits for the promotion of its row, and promotes in its turn', {
    given: 'a1@0! a2@1 a3@2',
    steps: [P(begin), P(remove('a1')), Q(remove('a2'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a3@0!', 'a2@0! a3@2'),
  }),
  interleaving('a deletion stopped before it promotes lets no insert in at number 0', {
    given: 'a1@0! a2@1',
    steps: [P.stops('written', remove('a1')), Q(fast('a2'), 'waits'), P.goes(1), Q.ends('23505')],
    rows: 'a2@0!',
  }),
  interleaving('a move of the anchor stopped before it promotes lets no slow insert past the anchor', {
    given: 'a1@0! a2@1 b1@0',
    steps: [P.stops('written', change('a1', 'b2')), Q(slow('a2'), 'waits'), P.goes(1), Q.ends(at('23505', '40001'))],
    rows: 'a2@0! b1@0! b2@1',
  }),
  interleaving('a slow insert stopped before its touch holds the anchor against its deletion', {
    given: 'a1@0',
    steps: [P.stops('written', slow('a2')), Q(remove('a1'), 'waits'), P.goes(1), Q.ends(at(1, '40001'))],
    rows: at('a2@0!', 'a1@0! a2@1'),
  }),
  interleaving('deletion of the anchor and of the promoted row, with an insert that waits for both', {
    given: 'a1@0! a2@1',
    steps: [
      P(begin),
      P(remove('a1')),
      Q(remove('a2'), 'waits'),
      R(fastOrNothing('a2'), 'waits'),
      P(rollback),
      Q.ends(1),
      R.ends(0),
    ],
    rows: 'a1@0!',
  }),
]
