import { literal } from '../../../src/sql/identifier'
import { type Action, statement } from '../action'
import {
  anyKey,
  holdsAny,
  holdsKey,
  inChain,
  isAnchor,
  isScoped,
  keyColumns,
  severalKeys,
  type Subject,
} from '../subject'

const from = ({ relation }: Subject): string => `DELETE FROM ${relation}`

/** Raw SQL that takes rows away; an anchor above all, for then another row is promoted. */
export const removeActions: readonly Action[] = [
  statement(
    'DELETE by text',
    6,
    (subject, random) => `${from(subject)} WHERE ${holdsKey(subject, anyKey(subject, random))}`,
  ),
  statement(
    'DELETE by id',
    3,
    (subject, random) =>
      `${from(subject)} WHERE id = (SELECT id FROM ${subject.relation} ORDER BY id OFFSET ${random.int(10)} LIMIT 1)`,
  ),
  statement(
    'DELETE of an anchor',
    6,
    (subject, random) => `${from(subject)} WHERE ${inChain(subject, anyKey(subject, random))} AND ${isAnchor(subject)}`,
  ),
  statement('DELETE of every anchor', 1, (subject) => `${from(subject)} WHERE ${isAnchor(subject)}`),
  statement(
    'DELETE of several',
    4,
    (subject, random) => `${from(subject)} WHERE ${holdsAny(subject, severalKeys(subject, random, 6))}`,
  ),
  statement(
    'DELETE of a chain',
    3,
    (subject, random) => `${from(subject)} WHERE ${inChain(subject, anyKey(subject, random))}`,
  ),
  statement(
    'DELETE of all but the anchor',
    2,
    (subject, random) =>
      `${from(subject)} WHERE ${inChain(subject, anyKey(subject, random))} AND NOT ${isAnchor(subject)}`,
  ),
  statement('TRUNCATE', 0.1, ({ relation }) => `TRUNCATE ${relation} CASCADE`),
  {
    name: 'DELETE, then INSERT again',
    weight: 2,
    run: async (writer, subject) => {
      const key = anyKey(subject, writer.random)
      const values = isScoped(subject) ? `${key.tenant}, ${literal(key.text)}` : literal(key.text)
      await writer.sql(`${from(subject)} WHERE ${holdsKey(subject, key)}`)
      await writer.sql(`INSERT INTO ${subject.relation} (${keyColumns(subject)}) VALUES (${values})`)
    },
  },
]
