import { quote } from '../../../src/sql/identifier'
import type { Random } from '../random'
import { type Action, statement } from '../action'
import {
  anyKey,
  assign,
  collidingKey,
  hashOf,
  holdsAny,
  holdsKey,
  inChain,
  isAnchor,
  type Key,
  severalKeys,
  type Subject,
} from '../subject'

const update = ({ relation }: Subject, set: string, where: string): string =>
  `UPDATE ${relation} SET ${set} WHERE ${where}`

const column = (name: 'hash' | 'number' | 'chained', { table }: Subject): string => quote(table[name])

/** Sends each of these texts where another of them is, in one statement. */
function rotate(subject: Subject, keys: readonly Key[]): string {
  const cases = keys.map(({ text }, index) => `WHEN '${text}' THEN '${keys[(index + 1) % keys.length]?.text}'`)
  return update(subject, `text = CASE text ${cases.join(' ')} ELSE text END`, holdsAny(subject, keys))
}

const ofOneScope = (subject: Subject, random: Random, most: number): Key[] => {
  const keys = severalKeys(subject, random, most)
  return keys.filter(({ tenant }) => tenant === keys[0]?.tenant)
}

/** Raw SQL that changes rows, and what clients send that have no idea of hash, number and flag. */
export const updateActions: readonly Action[] = [
  statement('UPDATE of the text within its chain', 4, (subject, random) => {
    const key = anyKey(subject, random)
    return update(subject, assign(subject, collidingKey(subject, key, random)), holdsKey(subject, key))
  }),
  statement('UPDATE of the text', 4, (subject, random) =>
    update(subject, `text = '${anyKey(subject, random).text}'`, holdsKey(subject, anyKey(subject, random))),
  ),
  statement('UPDATE of the anchor’s text', 3, (subject, random) =>
    update(
      subject,
      assign(subject, anyKey(subject, random)),
      `${inChain(subject, anyKey(subject, random))} AND ${isAnchor(subject)}`,
    ),
  ),
  statement('UPDATE of several to their neighbours', 2, (subject, random) =>
    update(
      subject,
      `text = 'text ' || lpad(((right(text, 2)::int + 1) % ${subject.textCount})::text, 2, '0')`,
      holdsAny(subject, severalKeys(subject, random, 4)),
    ),
  ),
  statement('UPDATE that swaps two', 2, (subject, random) => rotate(subject, ofOneScope(subject, random, 2))),
  statement('UPDATE that swaps two of a chain', 2, (subject, random) => {
    const key = anyKey(subject, random)
    return rotate(subject, [key, collidingKey(subject, key, random)])
  }),
  statement('UPDATE that rotates several', 1, (subject, random) => rotate(subject, ofOneScope(subject, random, 5))),
  statement('UPDATE of an unrelated column', 3, (subject, random) =>
    update(subject, `note = 'n${random.int(10)}'`, holdsAny(subject, severalKeys(subject, random, 4))),
  ),
  statement('UPDATE of nothing', 1, (subject, random) =>
    update(subject, `text = text, ${column('hash', subject)} = NULL`, inChain(subject, anyKey(subject, random))),
  ),
  statement('UPDATE of the number', 2, (subject, random) =>
    update(subject, `${column('number', subject)} = ${random.int(3)}`, holdsKey(subject, anyKey(subject, random))),
  ),
  statement(
    'UPDATE of the flag',
    2,
    (subject, random) =>
      update(
        subject,
        `${column('chained', subject)} = ${random.pick(['false', 'true', 'NULL'])}`,
        inChain(subject, anyKey(subject, random)),
      ),
    // Where the flag is set the guard keeps it; where it is not, a NULL is a NULL.
    { expected: ['23502'] },
  ),
  statement('UPDATE of the hash', 1, (subject, random) =>
    update(
      subject,
      `${column('hash', subject)} = ${hashOf(subject, anyKey(subject, random))}`,
      holdsKey(subject, anyKey(subject, random)),
    ),
  ),
  statement(
    'UPDATE of the scope',
    3,
    (subject, random) => update(subject, 'tenant = 3 - tenant', holdsKey(subject, anyKey(subject, random))),
    { scoped: true },
  ),
  statement(
    'UPDATE of the scope of a chain',
    1,
    (subject, random) => update(subject, 'tenant = 3 - tenant', inChain(subject, anyKey(subject, random))),
    { scoped: true },
  ),
]
