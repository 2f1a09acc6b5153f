import { own, primaryKeyAsJson, samePrimary, texts } from '../sql/adopt-fill'
import { type AdoptedTable, type Held, nameOf, objectOf } from '../sql/adopt-table'
import { ownAlone } from '../sql/adopt-owned'
import { functionOf, sameTexts } from './adopt-triggers'
import { literal, quote } from '../sql/identifier'
import { field, tableName } from '../sql/text-table'
import { makeFunctions } from '../sql/trigger-ddl'

/** Rows that somebody has written, by primary key (`k0`, …), in the order of `seq`. */
const writtenOf = (on: Held): string => objectOf(on, 'written')

/** Set in the session that follows: what it writes itself is not noted. */
export const FOLLOWS = 'unique_text.follows'

/** What the triggers need; without a lock on the table itself. */
export const createWritten = (on: AdoptedTable): string[] => [
  `CREATE TABLE ${writtenOf(on)} AS SELECT ${on.primary.map((name, index) => `t.${quote(name)} AS k${index}`).join(', ')} ` +
    `FROM ${tableName(on.table)} AS t WITH NO DATA`,
  `ALTER TABLE ${writtenOf(on)} ADD seq pg_catalog.int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY`,
  ...ownAlone(on, [writtenOf(on)]),
  ...makeFunctions({ fresh: [functionOf(on, 'follow', followBody(on))] }),
]

function followBody(on: AdoptedTable): string {
  const [columns, values] = [on.primary.map((_, index) => `k${index}`), on.primary.map((name) => field('NEW', name))]
  return `
BEGIN
  IF coalesce(pg_catalog.current_setting('${FOLLOWS}', true), '') OPERATOR(pg_catalog.<>) 'on' THEN
    INSERT INTO ${writtenOf(on)} (${columns.join(', ')}) VALUES (${values.join(', ')});
  END IF;
  RETURN NULL;
END
`
}

const TRIGGERS = ['follow_insert', 'follow_update'] as const

const dropFollowing = (on: Held): string[] =>
  TRIGGERS.map((one) => `DROP TRIGGER IF EXISTS ${quote(nameOf(on, one))} ON ${tableName(on.table)}`)

/** From their commit on every row that gets a text is noted. */
export function beginFollowing(on: AdoptedTable): string[] {
  const [insert, update] = TRIGGERS.map((one) => quote(nameOf(on, one)))
  const run = `FOR EACH ROW EXECUTE FUNCTION ${objectOf(on, 'follow')}()`
  const other = `NOT (${sameTexts(on, 'OLD', 'NEW').join(' AND ')})`
  return [
    `CREATE TRIGGER ${insert} AFTER INSERT ON ${tableName(on.table)} ${run}`,
    `CREATE TRIGGER ${update} AFTER UPDATE ON ${tableName(on.table)} ${run.replace(' EXECUTE', ` WHEN (${other}) EXECUTE`)}`,
  ]
}

/** Takes away what notes the rows, also where a command was killed. */
export const endFollowing = (on: Held): string[] => [
  ...dropFollowing(on),
  `DROP FUNCTION IF EXISTS ${objectOf(on, 'follow')}()`,
  `DROP TABLE IF EXISTS ${writtenOf(on)}`,
]

/** Whether rows are noted: a command follows, or was killed as it did. */
export const findFollowing = (on: Held): string =>
  `SELECT pg_catalog.to_regclass(${literal(writtenOf(on))}) IS NOT NULL AS found`

/** The first $1 notes, each with its row as it is by now; without `spot` where the row is gone. */
export const readWritten = (on: AdoptedTable): string =>
  `SELECT q.seq::pg_catalog.text AS seq, t.ctid::pg_catalog.text AS spot, ${primaryKeyAsJson(on, 't')}::pg_catalog.text AS key, ${texts(on)} FROM ` +
  `(SELECT * FROM ${writtenOf(on)} AS w ORDER BY w.seq LIMIT $1::pg_catalog.int8) AS q LEFT JOIN ${own(on)} ON ${samePrimary(on, 'q')}`

export const dropWritten = (on: Held): string =>
  `DELETE FROM ${writtenOf(on)} AS w WHERE w.seq OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`
