import type { Expected, Interleaving, Operation, PerLevel } from '../../../support/interleaving'
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
  remove,
  rollback,
  slow,
  slowOrNothing,
  upsert,
} from '../../../support/interleaving'

interface Writer {
  readonly operation: Operation
  /** What it gives where the text is there in the end. */
  readonly refused: Expected
  /** It takes number 0 or nothing, so it cannot store `a2` beside `a1`. */
  readonly onlyAnchor?: true
}

const writersOf = (text: string): readonly Writer[] => [
  { operation: fast(text), refused: '23505', onlyAnchor: true },
  { operation: fastOrNothing(text), refused: 0, onlyAnchor: true },
  { operation: slow(text), refused: '23505' },
  { operation: slowOrNothing(text), refused: 0 },
  { operation: upsert(text), refused: 1 },
  { operation: change('z1', text), refused: '23505' },
]

/** Where the text is there in the end. ON CONFLICT acts on a row that the snapshot does not show: not above READ COMMITTED. */
const refusal = ({ operation: { name }, refused }: Writer): PerLevel<Expected> =>
  name.includes('ON CONFLICT') ? at(refused, '40001') : at(refused, refused)

/**
 * Where the text is gone in the end. A writer that read the chain has read the text, and at SERIALIZABLE it cannot store
 * it after that.
 */
const acceptance = ({ onlyAnchor }: Writer): PerLevel<Expected> => (onlyAnchor ? at(1, 1) : at(1, 1, '40001'))

/** The rows after the writer has stored its text at this number, or has not. */
function stored({ operation: { name } }: Writer, others: string, row: string): string {
  const rest = name.startsWith('change') ? '' : 'z1@0'
  return [others, row, rest].filter(Boolean).join(' ')
}

function insertInProgress(writer: Writer): Interleaving[] {
  const { name } = writer.operation
  const start = [P(begin), P(fast('a1')), Q(writer.operation, 'waits')]
  return [
    interleaving(`insert of the text in progress, which commits: ${name}`, {
      given: 'z1@0',
      steps: [...start, P(commit), Q.ends(refusal(writer))],
      rows: 'a1@0 z1@0',
    }),
    interleaving(`insert of the text in progress, which rolls back: ${name}`, {
      given: 'z1@0',
      steps: [...start, P(rollback), Q.ends(1)],
      rows: stored(writer, '', 'a1@0'),
    }),
  ]
}

function deleteInProgress(writer: Writer): Interleaving[] {
  const { name } = writer.operation
  const start = [P(begin), P(remove('a1')), Q(writer.operation, 'waits')]
  return [
    interleaving(`delete of the text in progress, which commits: ${name}`, {
      given: 'a1@0 z1@0',
      steps: [...start, P(commit), Q.ends(acceptance(writer))],
      rows: at(
        stored(writer, '', 'a1@0'),
        stored(writer, '', 'a1@0'),
        writer.onlyAnchor ? stored(writer, '', 'a1@0') : 'z1@0',
      ),
    }),
    interleaving(`delete of the text in progress, which rolls back: ${name}`, {
      given: 'a1@0 z1@0',
      steps: [...start, P(rollback), Q.ends(writer.refused)],
      rows: 'a1@0 z1@0',
    }),
  ]
}

function deleteInChainInProgress(writer: Writer): Interleaving[] {
  const { name } = writer.operation
  const start = [P(begin), P(remove('a2')), Q(writer.operation, 'waits')]
  return [
    interleaving(`delete of the text at number 1 in progress, which commits: ${name}`, {
      given: 'a1@0! a2@1 z1@0',
      steps: [...start, P(commit), Q.ends(acceptance(writer))],
      rows: at(stored(writer, 'a1@0!', 'a2@1'), stored(writer, 'a1@0!', 'a2@1'), 'a1@0! z1@0'),
    }),
    interleaving(`delete of the text at number 1 in progress, which rolls back: ${name}`, {
      given: 'a1@0! a2@1 z1@0',
      steps: [...start, P(rollback), Q.ends(writer.refused)],
      rows: 'a1@0! a2@1 z1@0',
    }),
  ]
}

/** The text is deleted and comes again at another number, and its old number goes to another text. */
function replaceInProgress(writer: Writer): Interleaving[] {
  const { name } = writer.operation
  const start = [P(begin), P(remove('a2')), P(slow('a3')), P(slow('a2')), Q(writer.operation, 'waits')]
  return [
    interleaving(`the text at number 1 goes and comes again at number 2 in one transaction, which commits: ${name}`, {
      given: 'a1@0! a2@1 z1@0',
      steps: [...start, P(commit), Q.ends(at(writer.refused, '40001'))],
      rows: 'a1@0! a3@1 a2@2 z1@0',
    }),
    interleaving(
      `the text at number 1 goes and comes again at number 2 in one transaction, which rolls back: ${name}`,
      {
        given: 'a1@0! a2@1 z1@0',
        steps: [...start, P(rollback), Q.ends(writer.refused)],
        rows: 'a1@0! a2@1 z1@0',
      },
    ),
  ]
}

/**
 * MDEV-37199: two inserters of one text with a delete between stored it twice, for the index entry that the second
 * waited for was not the one that counted in the end. Every kind of writer, with the first committing and rolling back.
 * @see https://jira.mariadb.org/browse/MDEV-37199
 */
export const mdev37199: readonly Interleaving[] = [
  ...writersOf('a1').flatMap(insertInProgress),
  ...writersOf('a1').flatMap(deleteInProgress),
  ...writersOf('a2')
    .filter(({ onlyAnchor }) => !onlyAnchor)
    .flatMap(deleteInChainInProgress),
  ...writersOf('a2')
    .filter(({ onlyAnchor }) => !onlyAnchor)
    .flatMap(replaceInProgress),
]
