import { literal } from '../../../src/sql/identifier'
import { type Action, statement } from '../action'
import {
  anyKey,
  assign,
  collidingKey,
  holdsAny,
  holdsKey,
  inChain,
  insertSql,
  isAnchor,
  severalKeys,
  type Subject,
} from '../subject'

const soft = (name: string, weight: number, sql: Parameters<typeof statement>[2]): Action =>
  statement(name, weight, sql, { soft: true })

const deleteSoftly = ({ relation }: Subject, where: string): string =>
  `UPDATE ${relation} SET "deletedAt" = now() WHERE "deletedAt" IS NULL AND ${where}`

/** One row of those that were deleted with this condition, or all. */
const restore = ({ relation }: Subject, where: string, limit = ''): string =>
  `UPDATE ${relation} SET "deletedAt" = NULL ` +
  `WHERE id IN (SELECT id FROM ${relation} WHERE "deletedAt" IS NOT NULL AND ${where} ORDER BY id ${limit})`

/** On the table whose softly deleted rows free their texts. */
export const softActions: readonly Action[] = [
  soft('soft delete', 12, (subject, random) => deleteSoftly(subject, holdsKey(subject, anyKey(subject, random)))),
  soft('soft delete of an anchor', 10, (subject, random) =>
    deleteSoftly(subject, `${inChain(subject, anyKey(subject, random))} AND ${isAnchor(subject)}`),
  ),
  soft('soft delete of several', 6, (subject, random) =>
    deleteSoftly(subject, `(${holdsAny(subject, severalKeys(subject, random, 6))})`),
  ),
  soft('soft delete of a chain', 3, (subject, random) =>
    deleteSoftly(subject, inChain(subject, anyKey(subject, random))),
  ),
  soft('restore', 16, (subject, random) =>
    restore(subject, holdsKey(subject, anyKey(subject, random)), `LIMIT 1 OFFSET ${random.int(2)}`),
  ),
  soft('restore of a chain', 4, (subject, random) => restore(subject, inChain(subject, anyKey(subject, random)))),
  soft('restore with another text', 3, (subject, random) => {
    const key = anyKey(subject, random)
    const set = assign(subject, collidingKey(subject, key, random))
    return restore(subject, holdsKey(subject, key), 'LIMIT 1').replace('SET', `SET ${set},`)
  }),
  soft('UPDATE of the text of a deleted row', 3, (subject, random) => {
    const where = `"deletedAt" IS NOT NULL AND ${holdsKey(subject, anyKey(subject, random))}`
    return `UPDATE ${subject.relation} SET ${assign(subject, anyKey(subject, random))} WHERE ${where}`
  }),
  soft('soft delete with another text', 2, (subject, random) => {
    const sql = deleteSoftly(subject, holdsKey(subject, anyKey(subject, random)))
    return sql.replace('SET', `SET ${assign(subject, anyKey(subject, random))},`)
  }),
  soft(
    'INSERT of a deleted row',
    3,
    (subject, random) =>
      `INSERT INTO ${subject.relation} (text, "deletedAt") VALUES (${literal(anyKey(subject, random).text)}, now())`,
  ),
  soft(
    'DELETE of deleted rows',
    6,
    (subject, random) =>
      `DELETE FROM ${subject.relation} WHERE "deletedAt" IS NOT NULL AND ${inChain(subject, anyKey(subject, random))}`,
  ),
  soft('WITH soft delete of the anchor, INSERT fast', 4, (subject, random) => {
    const key = anyKey(subject, random)
    const gone = deleteSoftly(subject, `${inChain(subject, key)} AND ${isAnchor(subject)}`)
    return `WITH gone AS (${gone} RETURNING id) ${insertSql(subject, [[collidingKey(subject, key, random), 'fast']])}`
  }),
  soft('WITH restore, soft delete of the anchor', 3, (subject, random) => {
    const key = anyKey(subject, random)
    const gone = deleteSoftly(subject, `${inChain(subject, key)} AND ${isAnchor(subject)}`)
    return `WITH back AS (${restore(subject, holdsKey(subject, key), 'LIMIT 1')} RETURNING id) ${gone}`
  }),
  {
    name: 'softDelete()',
    weight: 4,
    soft: true,
    run: async ({ manager, random }, subject) => {
      await manager.softDelete(subject.entity, { text: anyKey(subject, random).text })
    },
  },
  {
    name: 'restore()',
    weight: 4,
    soft: true,
    run: async ({ manager, random }, subject) => {
      await manager.restore(subject.entity, { text: anyKey(subject, random).text })
    },
  },
]
