import {
  at,
  begin,
  change,
  commit,
  fast,
  fastUpsertText,
  find,
  interleaving,
  P,
  Q,
  remove,
  rollback,
  slow,
  upsertText,
} from '../../../support/interleaving'

/** Texts that change in place (the hash stays), which is refused, and move across chains and scopes. */
export const updates = [
  interleaving('a change in place waits for the insert of the new text, and is refused', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(slow('a3')), Q(change('a2', 'a3'), '40001'), Q(change('a1', 'a3'), 'waits'), P(commit)],
    rows: 'a1@0! a2@1 a3@2',
  }),
  interleaving('a change in place waits for the deletion of the anchor, and is refused', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(remove('a1')), Q(change('a2', 'a3'), 'waits'), P(commit), Q.ends('40001')],
    rows: 'a2@0!',
  }),
  interleaving('an upsert that sets the text, while a text of equal hash comes to the empty chain', {
    given: '',
    steps: [
      P(begin),
      P(slow('a1')),
      Q(upsertText('a2'), 'waits'),
      P(commit),
      Q.ends('40001'),
      Q(upsertText('a2')),
      Q(upsertText('a1')),
    ],
    rows: 'a1@0! a2@1',
  }),
  interleaving('an upsert that sets the text, while its text is deleted and one of equal hash promoted', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(remove('a1')), Q(upsertText('a1'), 'waits'), P(commit), Q.ends('40001'), Q(upsertText('a1'))],
    rows: 'a2@0! a1@1',
  }),
  interleaving('an upsert that sets the text, while its text is deleted and one of equal hash comes', {
    given: 'a1@0',
    steps: [
      P(begin),
      P(remove('a1')),
      P(fast('a2')),
      Q(upsertText('a1'), 'waits'),
      P(commit),
      Q.ends('40001'),
      Q(upsertText('a1')),
    ],
    rows: 'a2@0! a1@1',
  }),
  interleaving('an upsert that sets the text and sends hash and number 0 does not overwrite another text', {
    given: 'a1@0',
    steps: [P(fastUpsertText('a1')), P(fastUpsertText('a2'), '40001'), P(upsertText('a2'))],
    rows: 'a1@0! a2@1',
  }),
  interleaving('a stale insert: another row moved to the text, at a freed number, since the snapshot', {
    given: 'a1@0! a2@1 b1@0',
    steps: [
      P(begin),
      P(find('a1')),
      Q(remove('a2')),
      Q(change('b1', 'a3')),
      P(slow('a3'), at('23505', '40001')),
      P(commit, 'ROLLBACK'),
    ],
    rows: 'a1@0! a3@1',
  }),
  interleaving('two moves into one text of an empty chain: the first commits', {
    given: 'a1@0 b1@0',
    steps: [
      P(begin),
      P(change('a1', 'c1')),
      Q(change('b1', 'c1'), 'waits'),
      P(commit),
      Q.ends(at('23505', '23505', '40001')),
    ],
    rows: 'b1@0 c1@0',
  }),
  interleaving('two moves into one text of an empty chain: the first rolls back', {
    given: 'a1@0 b1@0',
    steps: [P(begin), P(change('a1', 'c1')), Q(change('b1', 'c1'), 'waits'), P(rollback), Q.ends(1)],
    rows: 'a1@0 c1@0',
  }),
  interleaving('two moves into one text of a chain', {
    given: 'a1@0 b1@0 c1@0',
    steps: [P(begin), P(change('a1', 'c2')), Q(change('b1', 'c2'), 'waits'), P(commit), Q.ends(at('23505', '40001'))],
    rows: 'b1@0 c1@0! c2@1',
  }),
  interleaving('two moves that cross: each takes the other chain', {
    given: 'a1@0 b1@0',
    steps: [P(begin), P(change('a1', 'b2')), Q(change('b1', 'a2'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a2@0 b2@0!', 'b1@0! b2@1'),
  }),
  interleaving('a move out of a chain and a slow insert into it of the text that is promoted', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(change('a1', 'b1')), Q(slow('a2'), 'waits'), P(commit), Q.ends(at('23505', '40001'))],
    rows: 'a2@0! b1@0',
  }),
  interleaving('a move out of a chain and a slow insert of the text that moves away', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(change('a1', 'b1')), Q(slow('a1'), 'waits'), P(commit), Q.ends(at('23505', '23505', '40001'))],
    rows: 'a2@0! b1@0',
  }),
  interleaving('a move into a chain whose anchor is being deleted', {
    given: 'a1@0! a2@1 b1@0',
    steps: [P(begin), P(remove('a1')), Q(change('b1', 'a2'), 'waits'), P(commit), Q.ends(at('23505', '40001'))],
    rows: 'a2@0! b1@0',
  }),
  interleaving('a deletion waits for the move of its row to another chain, and finds it no more', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(change('a1', 'b1')), Q(remove('a1'), 'waits'), P(commit), Q.ends(at(0, '40001'))],
    rows: 'a2@0! b1@0',
  }),
  interleaving('a row moves to another scope, where an insert waits for it', {
    given: 'a1@0 2/b1@0',
    steps: [
      P(begin),
      P(change('a1', '2/a1')),
      Q(slow('2/a1'), 'waits'),
      P(commit),
      Q.ends(at('23505', '23505', '40001')),
    ],
    rows: '2/a1@0 2/b1@0',
  }),
  interleaving('a row moves to another scope, and its old number is for the insert that waits there', {
    given: 'a1@0',
    steps: [P(begin), P(change('a1', '2/a1')), Q(fast('a1'), 'waits'), P(commit), Q.ends(1)],
    rows: 'a1@0 2/a1@0',
  }),
  interleaving('equal texts in two scopes do not wait for each other', {
    given: 'a1@0 2/a1@0',
    steps: [P(begin), P(slow('a2')), Q(slow('2/a2')), P(commit)],
    rows: 'a1@0! a2@1 2/a1@0! 2/a2@1',
  }),
  interleaving('the anchor moves to a scope that holds the text, whose chain is growing', {
    given: 'a1@0! a2@1 2/a1@0',
    steps: [
      P(begin),
      P(slow('2/a3')),
      Q(change('a1', '2/a1'), 'waits'),
      P(commit),
      Q.ends(at('23505', '23505', '40001')),
    ],
    rows: 'a1@0! a2@1 2/a1@0! 2/a3@1',
  }),
  interleaving('a row at number 1 moves to a scope whose chain is growing', {
    given: 'a1@0! a2@1 2/a1@0',
    steps: [P(begin), P(slow('2/a3')), Q(change('a2', '2/a2'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a1@0! 2/a1@0! 2/a3@1 2/a2@2', 'a1@0! a2@1 2/a1@0! 2/a3@1'),
  }),
]
