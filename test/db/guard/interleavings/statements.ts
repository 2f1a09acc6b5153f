import { at, begin, commit, fast, interleaving, P, Q, remove, rollback, slow, sql } from '../../../support/interleaving'
import { firstLetter } from '../../../support/guarded-table'

const HASH_A = `'${firstLetter.js('a')}'`

const replaceFast = (from: string, to: string): ReturnType<typeof sql> =>
  sql(
    `delete ${from} and fast insert of ${to} in one statement`,
    `WITH d AS (DELETE FROM page WHERE url = '${from}' RETURNING tenant)
     INSERT INTO page (tenant, url, "urlHash", "urlHashNumber") SELECT tenant, '${to}', ${HASH_A}, 0 FROM d`,
  )

const replaceSlow = (from: string, to: string): ReturnType<typeof sql> =>
  sql(
    `delete ${from} and slow insert of ${to} in one statement`,
    `WITH d AS (DELETE FROM page WHERE url = '${from}' RETURNING tenant)
     INSERT INTO page (tenant, url) SELECT tenant, '${to}' FROM d`,
  )

/** The CTEs hang on each other's rows, so they run in the order written. */
const insertAndDelete = sql(
  'slow insert of a2, then delete a1, in one statement',
  `WITH i AS (INSERT INTO page (url) VALUES ('a2') RETURNING id)
   DELETE FROM page WHERE url = 'a1' AND EXISTS (SELECT FROM i)`,
)

const insertDeleteInsert = (last: string): ReturnType<typeof sql> =>
  sql(
    `slow insert of a2, delete a1, fast insert of ${last}, in one statement`,
    `WITH i AS (INSERT INTO page (url) VALUES ('a2') RETURNING id),
          d AS (DELETE FROM page WHERE url = 'a1' AND EXISTS (SELECT FROM i) RETURNING tenant)
     INSERT INTO page (url, "urlHash", "urlHashNumber") SELECT '${last}', ${HASH_A}, 0 FROM d`,
  )

const exchange = (pairs: Readonly<Record<string, string>>): ReturnType<typeof sql> => {
  const whens = Object.entries(pairs).map(([from, to]) => `WHEN '${from}' THEN '${to}'`)
  const name = Object.entries(pairs).map(([from, to]) => `${from} to ${to}`)
  const statement = `UPDATE page SET url = CASE url ${whens.join(' ')} END WHERE url IN ('${Object.keys(pairs).join("', '")}')`
  return sql(`change ${name.join(' and ')} in one statement`, statement, whens.length)
}

/** Several changes of a chain in one statement. */
export const statements = [
  interleaving('a statement that inserts and deletes the unflagged anchor leaves the new row as anchor', {
    given: 'a1@0',
    steps: [
      P(begin),
      P(insertAndDelete),
      Q(slow('a2'), 'waits'),
      P(commit),
      Q.ends(at('23505', '40001')),
      Q(fast('a2'), '23505'),
    ],
    rows: 'a2@0!',
  }),
  interleaving('the forced statement: slow insert of a text, delete of the anchor, fast insert of that text', {
    given: 'a1@0',
    steps: [P(begin), P(insertDeleteInsert('a2'), '23505'), P(commit, 'ROLLBACK'), Q(slow('a2'))],
    rows: 'a1@0! a2@1',
  }),
  interleaving('slow insert, delete of the anchor and fast insert of a third text in one statement', {
    given: 'a1@0',
    steps: [
      P(begin),
      P(insertDeleteInsert('a3')),
      Q(slow('a2'), 'waits'),
      P(commit),
      Q.ends(at('23505', '40001')),
      Q(remove('a3')),
      Q(fast('a2'), '23505'),
    ],
    rows: 'a2@0!',
  }),
  interleaving('a statement that deletes the anchor and takes number 0 with another text', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(replaceFast('a1', 'a3')), Q(slow('a3'), 'waits'), P(commit), Q.ends(at('23505', '40001'))],
    rows: 'a3@0! a2@1',
  }),
  interleaving('a statement that deletes the anchor and takes number 0 with another text, which is then deleted', {
    given: 'a1@0! a2@1',
    steps: [P(replaceFast('a1', 'a3')), P(remove('a3')), Q(fast('a2'), '23505')],
    rows: 'a2@0!',
  }),
  interleaving('a statement that deletes the anchor and takes number 0 with a text of the chain', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(replaceFast('a1', 'a2'), '23505'), P(commit, 'ROLLBACK')],
    rows: 'a1@0! a2@1',
  }),
  interleaving('a statement that deletes the anchor and inserts the slow way into the same chain', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(replaceSlow('a1', 'a3')), Q(slow('a3'), 'waits'), P(commit), Q.ends(at('23505', '40001'))],
    rows: 'a3@0! a2@1',
  }),
  interleaving('a statement that deletes the anchor and inserts a text of the chain the slow way', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(replaceSlow('a1', 'a2'), '23505'), P(commit, 'ROLLBACK')],
    rows: 'a1@0! a2@1',
  }),
  interleaving('a statement that moves the anchor out and another row into its chain', {
    given: 'a1@0! a2@1 b1@0',
    steps: [P(exchange({ a1: 'c1', b1: 'a3' })), Q(fast('a2'), '23505'), Q(slow('a2'), '23505')],
    rows: 'a3@0! a2@1 c1@0',
  }),
  interleaving('texts swapped in one chain are refused', {
    given: 'a1@0! a2@1',
    steps: [P(begin), P(exchange({ a1: 'a2', a2: 'a1' }), '40001'), P(rollback), Q(slow('a2'), '23505')],
    rows: 'a1@0! a2@1',
  }),
  interleaving('rows that change chains in one statement, with an insert into one of them', {
    given: 'a1@0 b1@0',
    steps: [
      P(begin),
      P(exchange({ a1: 'b2', b1: 'a2' })),
      Q(slow('b2'), 'waits'),
      P(commit),
      Q.ends(at('23505', '40001')),
    ],
    rows: 'a2@0 b2@0!',
  }),
  interleaving('all texts of a chain move to another chain in one statement', {
    given: 'a1@0! a2@1 a3@2',
    steps: [
      P(begin),
      P(exchange({ a1: 'b4', a2: 'b5', a3: 'b6' })),
      Q(slow('b5'), 'waits'),
      P(commit),
      Q.ends(at('23505', '23505', '40001')),
    ],
    rows: 'b4@0! b5@1 b6@2',
  }),
  interleaving('all rows of a chain go in one statement while an insert waits', {
    given: 'a1@0! a2@1 a3@2',
    steps: [
      P(begin),
      P(sql('delete all', 'DELETE FROM page', 3)),
      Q(slow('a3'), 'waits'),
      P(commit),
      Q.ends(at(1, '40001')),
    ],
    rows: at('a3@0', ''),
  }),
]
