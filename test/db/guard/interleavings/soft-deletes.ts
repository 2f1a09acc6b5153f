import {
  at,
  begin,
  commit,
  fast,
  fastOrNothing,
  interleaving,
  P,
  Q,
  remove,
  restore,
  rollback,
  slow,
  softDelete,
  sql,
} from '../../../support/interleaving'

/** On a table whose softly deleted rows free their texts: `a1@0~` is such a row. */
export const softDeletes = [
  interleaving('a softly deleted row frees its text', {
    given: 'a1@0',
    steps: [P(softDelete('a1')), Q(fast('a1')), Q(slow('a1'), '23505')],
    rows: 'a1@0 a1@0~',
  }),
  interleaving('after the anchor was softly deleted, the promoted text is held by number 0', {
    given: 'a1@0! a2@1',
    steps: [P(softDelete('a1')), Q(fast('a2'), '23505'), Q(slow('a2'), '23505')],
    rows: 'a2@0! a1@0!~',
  }),
  interleaving('a fast insert waits for a soft delete of the anchor that commits, and takes its text', {
    given: 'a1@0',
    steps: [P(begin), P(softDelete('a1')), Q(fast('a1'), 'waits'), P(commit), Q.ends(1)],
    rows: 'a1@0 a1@0~',
  }),
  interleaving('a fast insert waits for a soft delete of the anchor that rolls back', {
    given: 'a1@0',
    steps: [P(begin), P(softDelete('a1')), Q(fast('a1'), 'waits'), P(rollback), Q.ends('23505')],
    rows: 'a1@0',
  }),
  interleaving('a fast insert waits for a soft delete of the anchor, and meets the promoted row', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(softDelete('a1')), Q(fast('a2'), 'waits'), P(commit), Q.ends('23505')],
    rows: 'a2@0! a1@0!~',
  }),
  interleaving('a slow insert of a colliding text waits for a soft delete of the anchor that commits', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(softDelete('a1')), Q(slow('a3'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a2@0! a3@1 a1@0!~', 'a2@0! a1@0!~'),
  }),
  interleaving('a soft delete of the unflagged anchor waits for a colliding insert, and promotes it', {
    given: 'a1@0',
    steps: [P(begin), P(slow('a2')), Q(softDelete('a1'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a2@0! a1@0!~', 'a1@0! a2@1'),
  }),
  interleaving('a soft delete that waits for a colliding insert, and then an insert of that text', {
    given: 'a1@0',
    steps: [
      P(begin),
      P(slow('a2')),
      Q(softDelete('a1'), 'waits'),
      P(commit),
      Q.ends(at(1, '40001')),
      Q(fastOrNothing('a2'), 0),
    ],
    rows: at('a2@0! a1@0!~', 'a1@0! a2@1'),
  }),
  interleaving('a fast insert that does nothing meets a soft delete in progress of the row that it hits', {
    given: 'a1@0',
    steps: [P(begin), P(softDelete('a1')), Q(fastOrNothing('a1'), 'waits'), P(commit), Q.ends(1)],
    rows: 'a1@0 a1@0~',
  }),
  interleaving('a restore waits for an insert of its text, and is refused', {
    given: 'a1@0~',
    steps: [P(begin), P(fast('a1')), Q(restore('a1'), 'waits'), P(commit), Q.ends('23505')],
    rows: 'a1@0 a1@0~',
  }),
  interleaving('a restore waits for an insert of its text that rolls back', {
    given: 'a1@0~',
    steps: [P(begin), P(fast('a1')), Q(restore('a1'), 'waits'), P(rollback), Q.ends(1)],
    rows: 'a1@0',
  }),
  interleaving('an insert waits for a restore of its text, and is refused', {
    given: 'a1@0~',
    steps: [P(begin), P(restore('a1')), Q(fast('a1'), 'waits'), P(commit), Q.ends('23505')],
    rows: 'a1@0',
  }),
  interleaving('a slow insert waits for a restore of its text, in a chain, and is refused', {
    given: 'a1@0 a2@0~',
    steps: [P(begin), P(restore('a2')), Q(slow('a2'), 'waits'), P(commit), Q.ends(at('23505', '40001'))],
    rows: 'a1@0! a2@1',
  }),
  interleaving('a restore waits for a colliding insert, and takes the next number', {
    given: 'a1@0 a3@0~',
    steps: [P(begin), P(slow('a2')), Q(restore('a3'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a1@0! a2@1 a3@2', 'a1@0! a2@1 a3@0~'),
  }),
  interleaving('two restores of one row: the second finds nothing to do', {
    given: 'a1@0~',
    steps: [P(begin), P(restore('a1')), Q(restore('a1'), 'waits'), P(commit), Q.ends(at(0, '40001'))],
    rows: 'a1@0',
  }),
  interleaving('two restores of two rows with one text: the second is refused', {
    given: 'a1@0~ 2/a1@0~',
    steps: [
      P(sql('bring both into one tenant', 'UPDATE page SET tenant = 1', 2)),
      P(begin),
      P(sql('restore the first', 'UPDATE page SET "deletedAt" = NULL WHERE id = 1')),
      Q(sql('restore the second', 'UPDATE page SET "deletedAt" = NULL WHERE id = 2'), 'waits'),
      P(commit),
      Q.ends(at('23505', '23505', '40001')),
    ],
    rows: 'a1@0 a1@0~',
  }),
  interleaving('two restores of texts of one hash, in an empty chain: the second comes to its gate too early', {
    given: 'a1@0~ a2@1~',
    steps: [
      P(begin),
      P(restore('a1')),
      Q(restore('a2'), 'waits'),
      P(commit),
      Q.ends(at('23505', '23505', '40001')),
      Q(restore('a2')),
    ],
    rows: 'a1@0! a2@1',
  }),
  interleaving('a hard delete of a softly deleted row waits for nobody, whatever its flag', {
    given: 'a2@0! a3@1 a1@0!~',
    steps: [P(begin), P(slow('a4')), Q(remove('a1')), P(commit)],
    rows: 'a2@0! a3@1 a4@2',
  }),
  interleaving('a statement that restores two texts of one hash numbers them', {
    given: 'a1@0!~ a2@1~',
    steps: [P(sql('restore all', 'UPDATE page SET "deletedAt" = NULL', 2)), Q(fast('a2'), '23505')],
    rows: 'a1@0! a2@1',
  }),
  interleaving('a statement that softly deletes a whole chain leaves it free', {
    given: 'a1@0! a2@1 a3@2',
    steps: [P(sql('soft delete all', 'UPDATE page SET "deletedAt" = now()', 3)), Q(fast('a3')), Q(slow('a2'))],
    rows: 'a3@0! a2@1 a1@0!~ a2@1~ a3@2~',
  }),
  interleaving('a restored row goes behind what has come meanwhile, and its text is held there', {
    given: 'a1@0~',
    steps: [P(slow('a2')), P(restore('a1')), P(remove('a2')), Q(fast('a1'), '23505')],
    rows: 'a1@0!',
  }),
  interleaving('a row that is restored at the number that it had touches the anchor too', {
    given: 'a1@1~',
    steps: [P(slow('a2')), P(restore('a1')), P(remove('a2')), Q(fast('a1'), '23505')],
    rows: 'a1@0!',
  }),
  interleaving('a softly deleted row at number 0 is no anchor', {
    given: 'a1@0~',
    steps: [P(slow('a2')), Q(fast('a2'), '23505')],
    rows: 'a2@0 a1@0~',
  }),
  interleaving('a restored row that was at number 2 is numbered anew, where its text has a holder', {
    given: 'a1@0! a2@1 a2@2~',
    steps: [P(restore('a2'), '23505')],
    rows: 'a1@0! a2@1 a2@2~',
  }),
]
