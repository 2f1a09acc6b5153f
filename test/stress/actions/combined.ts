import { literal, quote } from '../../../src/sql/identifier'
import { type Action, statement } from '../action'
import {
  anyKey,
  assign,
  collidingKey,
  type Form,
  holdsKey,
  inChain,
  insertSql,
  isAnchor,
  isScoped,
  type Key,
  keyColumns,
  severalKeys,
  type Subject,
} from '../subject'

const withDelete = (subject: Subject, where: string, rest: string): string =>
  `WITH gone AS (DELETE FROM ${subject.relation} WHERE ${where} RETURNING id) ${rest}`

/** The statement of the design: a text goes in slowly, the anchor goes, the text goes in again at number 0. */
function slowDeleteFast(subject: Subject, key: Key, order: readonly Form[]): string {
  const [first = 'slow', second = 'fast'] = order
  return (
    `WITH a AS (${insertSql(subject, [[key, first]])} ON CONFLICT DO NOTHING RETURNING id), ` +
    `gone AS (DELETE FROM ${subject.relation} WHERE ${inChain(subject, key)} AND ${isAnchor(subject)} RETURNING id) ` +
    insertSql(subject, [[key, second]])
  )
}

/** Several writes in one statement, where triggers see rows of their own statement; and locks without a write. */
export const combinedActions: readonly Action[] = [
  statement('WITH DELETE of the anchor, INSERT fast', 3, (subject, random) => {
    const key = anyKey(subject, random)
    const rest = insertSql(subject, [[collidingKey(subject, key, random), 'fast']])
    return withDelete(subject, `${inChain(subject, key)} AND ${isAnchor(subject)}`, rest)
  }),
  statement('WITH DELETE of a chain, INSERT slow', 2, (subject, random) => {
    const key = anyKey(subject, random)
    return withDelete(subject, inChain(subject, key), insertSql(subject, [[key, 'slow']]))
  }),
  statement('WITH DELETE, UPDATE to what it held', 2, (subject, random) => {
    const [key, other] = [anyKey(subject, random), anyKey(subject, random)]
    const rest = `UPDATE ${subject.relation} SET ${assign(subject, key)} WHERE ${holdsKey(subject, other)}`
    return withDelete(subject, holdsKey(subject, key), rest)
  }),
  statement('WITH INSERT slow, DELETE of the anchor, INSERT fast', 2, (subject, random) =>
    slowDeleteFast(subject, anyKey(subject, random), ['slow', 'fast']),
  ),
  statement('WITH INSERT fast, DELETE of the anchor, INSERT slow', 1, (subject, random) =>
    slowDeleteFast(subject, anyKey(subject, random), ['fast', 'slow']),
  ),
  statement('WITH DELETE, then INSERT of what was deleted', 1, (subject, random) => {
    const columns = keyColumns(subject)
    return (
      `WITH gone AS (DELETE FROM ${subject.relation} WHERE ${inChain(subject, anyKey(subject, random))} RETURNING ${columns}) ` +
      `INSERT INTO ${subject.relation} (${columns}) SELECT ${columns} FROM gone ON CONFLICT DO NOTHING`
    )
  }),
  statement(
    'MERGE',
    3,
    (subject, random) => {
      const scoped = isScoped(subject)
      const source = severalKeys(subject, random, 4).map(({ text, tenant }) => `(${literal(text)}, ${tenant})`)
      return (
        `MERGE INTO ${subject.relation} AS t USING (VALUES ${source.join(', ')}) AS s (text, tenant) ` +
        `ON t.text = s.text${scoped ? ' AND t.tenant = s.tenant' : ''} ` +
        `WHEN MATCHED AND t.${quote(subject.table.number)} = 0 THEN DELETE ` +
        `WHEN MATCHED THEN UPDATE SET note = 'merged' WHEN NOT MATCHED THEN INSERT (${keyColumns(subject)}) VALUES (${scoped ? 's.tenant, ' : ''}s.text)`
      )
    },
    { since: 150_000 },
  ),
  statement(
    'SELECT FOR UPDATE of a chain',
    1,
    (subject, random) =>
      `SELECT id FROM ${subject.relation} WHERE ${inChain(subject, anyKey(subject, random))} FOR UPDATE`,
  ),
  statement(
    'SELECT FOR UPDATE NOWAIT of an anchor',
    1,
    (subject, random) =>
      `SELECT id FROM ${subject.relation} WHERE ${inChain(subject, anyKey(subject, random))} AND ${isAnchor(subject)} FOR UPDATE NOWAIT`,
  ),
  statement(
    'SELECT FOR KEY SHARE, as a foreign key does',
    2,
    (subject, random) =>
      `SELECT id FROM ${subject.relation} WHERE ${inChain(subject, anyKey(subject, random))} FOR KEY SHARE`,
  ),
]
