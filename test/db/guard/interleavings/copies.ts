import { at, begin, commit, copy, interleaving, P, Q, remove, rollback, slow } from '../../../support/interleaving'

/** Rows that are sent with the number and flag that they had elsewhere. */
export const copies = [
  interleaving('the flagged anchor of a copied chain arrives last', {
    given: '',
    steps: [P(copy('a2@1', 'a3@2', 'a1@0!'))],
    rows: 'a2@0! a3@1 a1@2',
  }),
  interleaving('a chain is copied row by row into one that exists', {
    given: 'a4@0',
    steps: [P(copy('a2@1')), P(copy('a1@0!'))],
    rows: 'a4@0! a2@1 a1@2',
  }),
  interleaving('a flagged row whose text is held elsewhere in the chain is refused', {
    given: 'a1@0! a2@1',
    steps: [P(copy('a2@0!'), '23505'), P(copy('a1@0!'), '23505')],
    rows: 'a1@0! a2@1',
  }),
  interleaving('two sessions copy rows of one chain', {
    given: 'a3@0',
    steps: [P(begin), P(copy('a2@1')), Q(copy('a1@0!'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a3@0! a2@1 a1@2', 'a3@0! a2@1'),
  }),
  interleaving('a flagged row waits for the delete of the anchor', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(remove('a1')), Q(copy('a3@0!'), 'waits'), P(commit), Q.ends(at(1, '40001'))],
    rows: at('a2@0! a3@1', 'a2@0!'),
  }),
  interleaving('a copied anchor that is alone is flagged again by the next text', {
    given: '',
    steps: [P(begin), P(copy('a1@0!')), Q(slow('a2'), 'waits'), P(rollback), Q.ends(1), P(copy('a1@0!'))],
    rows: 'a2@0! a1@1',
  }),
]
