import type { HolderTable } from '../../../src/sql/names'
import { nameTriggersOf } from '../../../src/names/sql/triggers'
import { type Change, mutate } from '../../support/mutate'

/** Triggers with one part taken out, to show that the tests would miss it. */
export interface NameMutation {
  readonly name: string
  readonly triggers: (holder: HolderTable) => readonly string[]
}

const mutation = (name: string, ...changes: readonly Change[]): NameMutation => ({
  name,
  triggers: (holder) => mutate(name, nameTriggersOf(holder).create, changes),
})

const on =
  (table: string) =>
  (name: string, ...changes: readonly Change[]): NameMutation => ({
    name,
    triggers: (holder) =>
      holder.table === table ? mutation(name, ...changes).triggers(holder) : nameTriggersOf(holder).create,
  })

/** Of one table only, so that two tables differ. */
const onOrgs = on('orgs')
/** The table with two names. */
const onUsers = on('users')

const without = (event: string): NameMutation =>
  mutation(`no trigger after ${event}`, [new RegExp(`^CREATE TRIGGER [^]*AFTER ${event.toUpperCase()}[^]*$`), 'SELECT'])

const FREE = /n\."state" OPERATOR\(pg_catalog\.<>\) 'held'\s+AND \(/g
const ABANDONED = `n.holder = 'users' AND NOT EXISTS (
  SELECT FROM users AS t WHERE t.id = (n.holder_key ->> 0)::integer AND t.handle = n.text) OR n.state <> 'held' AND (`

export const nameMutations: readonly NameMutation[] = [
  ...['insert', 'update', 'delete', 'truncate'].map(without),
  onOrgs('claims are taken in another order', [
    /ORDER BY c\.namespace, c\.hash\n/,
    'ORDER BY c.namespace DESC, c.hash DESC\n',
  ]),
  mutation('what is given up is not locked in the pass', [
    'WHERE c.former_id IS NOT NULL\n    ), passed',
    'WHERE false\n    ), passed',
  ]),
  mutation('one row locks its names in another order', [
    'one.hash OPERATOR(pg_catalog.<) one.former_hash',
    'one.hash > one.former_hash',
  ]),
  mutation('rows of a statement lock one after the other', [
    'NOT EXISTS (SELECT FROM new_rows OFFSET 1) AS is_alone',
    'true AS is_alone',
  ]),
  mutation('a name in a chain is given up without a lock of the anchor', [
    ' AND one.former_number OPERATOR(pg_catalog.=) 0',
    '',
  ]),
  onUsers('one name of a row is changed for all of them', [
    'pg_catalog.count(*) OVER () OPERATOR(pg_catalog.=) 1 AND ',
    '',
  ]),
  mutation('what one row did not get is not looked at', [
    /IF done OPERATOR\(pg_catalog\.=\) 1 THEN(?=\s+RETURN)/,
    'IF true THEN',
  ]),
  mutation('what one row gives up stays', [/n\."id" OPERATOR\(pg_catalog\.=\) one\.former_id/g, 'false']),
  mutation('a delete locks in the order of its rows', [
    'pg_catalog.cardinality(gone) OPERATOR(pg_catalog.>) 1',
    'false',
  ]),
  mutation('what the pass did not take is not looked at', [
    'IF done OPERATOR(pg_catalog.<) given THEN',
    'IF false THEN',
  ]),
  mutation('what is in the way is not locked', [/FOR NO KEY UPDATE;(?=\s+IF found_id)/, ';']),
  mutation('what is in the way is locked against its removal only', [
    /FOR NO KEY UPDATE;(?=\s+IF found_id)/,
    'FOR KEY SHARE;',
  ]),
  mutation('names that go along with a key are not locked', ['FOR NO KEY UPDATE OF n', '']),
  mutation('names that go along with a key are locked against their removal only', [
    'FOR NO KEY UPDATE OF n',
    'FOR KEY SHARE OF n',
  ]),
  mutation('names that go along with keys are locked in the order of the rows', [
    /ORDER BY n\."namespace", n\."text_hash"(?=\s+FOR NO KEY UPDATE OF n)/,
    '',
  ]),
  mutation('a delete takes the one name that another row has by now', [
    /OR n\."holder" OPERATOR\(pg_catalog\.=\) '\w+'\s+AND n\."holder_key" OPERATOR\(pg_catalog\.=\) keys\[1\]/,
    'OR true',
  ]),
  mutation('a name that its row has no more is not taken', [
    /OR n\."state" OPERATOR\(pg_catalog\.=\) 'held'\s+AND/,
    'OR false AND',
  ]),
  mutation('whether its row has a name is told by an old snapshot', [FREE, ABANDONED]),
  mutation('held names are taken from rows that have them', [
    /('held'\s+AND n\."holder" OPERATOR\(pg_catalog\.=\) '\w+') AND NOT EXISTS \(/,
    '$1 OR false AND NOT EXISTS (',
  ]),
  mutation(
    'a former name is not taken back',
    [
      /OR n\."holder" OPERATOR\(pg_catalog\.=\) '\w+'\s+AND n\."holder_key" OPERATOR\(pg_catalog\.=\) EXCLUDED\."holder_key"/g,
      '',
    ],
    [/OR n\."holder" OPERATOR\(pg_catalog\.=\) '\w+'\s+AND n\."holder_key" OPERATOR\(pg_catalog\.=\) one\.key/, ''],
  ),
  mutation('a reservation never ends', [/n\."until" OPERATOR\(pg_catalog\.<=\) [^\n]+/g, 'false']),
  mutation('the text is not compared where hashes are equal', [
    /n\."text" COLLATE pg_catalog\."C" OPERATOR\(pg_catalog\.=\) EXCLUDED\."text" COLLATE pg_catalog\."C"/g,
    'true',
  ]),
  mutation('names that are given up stay', ['IF freed IS NOT NULL THEN', 'IF false THEN']),
  mutation('what another row took is released all the same', [
    'taken := pg_catalog.array_append(taken, found_id);',
    '',
  ]),
  mutation('texts of equal hash come twice to one place', [/SELECT DISTINCT ON \([^)]+\)/, 'SELECT']),
  mutation('a delete leaves former names', [
    /n\."holder" OPERATOR\(pg_catalog\.=\) ('\w+')(?=\s+AND NOT EXISTS)/g,
    `n."holder" = $1 AND n."state" = 'held'`,
  ]),
  mutation('a delete takes what another row has by now', [
    /n\."holder" OPERATOR\(pg_catalog\.=\) '\w+'\s+AND n\."holder_key" OPERATOR\(pg_catalog\.=\) (?:u\.key|keys\[1\])/g,
    'true',
  ]),
  mutation('an old row with the key of a new one is taken for it', [/age\(t\.xmin\) LIMIT/g, 'age(t.xmin) DESC LIMIT']),
  mutation('what an old snapshot shows as held is taken for held', ['FOR KEY SHARE', '']),
  mutation('names do not go along with a key', [
    /IF \(\(OLD[^;]+?\s+OR EXISTS \(SELECT FROM new_rows OFFSET 1\)\) AND/,
    'IF false AND',
  ]),
  mutation('a delete does not look whether the row is back', [
    /AND NOT EXISTS \((?=\s+SELECT FROM ONLY "\w+" AS t\s+CROSS JOIN LATERAL [^;]+? AS v \(namespace, property, text\)\s+WHERE t\."id" OPERATOR\(pg_catalog\.=\) r\."id")/,
    'AND NOT EXISTS (SELECT WHERE false) OR EXISTS (',
  ]),
  mutation('names go along with a key for each row', [
    / AND NOT EXISTS \(\s+SELECT FROM ONLY "(users|orgs)" AS t WHERE t\."id" OPERATOR\(pg_catalog\.=\) OLD\."id"\s+\)/,
    '',
  ]),
  mutation('rows are taken for what the statement made them', [
    /SELECT (?:t\."\w+"(?:, )?)+\s+FROM ONLY "\w+" AS t WHERE t\."id" OPERATOR\(pg_catalog\.=\) r\."id"\s+ORDER BY pg_catalog\.age\(t\.xmin\) LIMIT 1/g,
    'SELECT r.*',
  ]),
  mutation('TRUNCATE is allowed where a snapshot is old', [`OPERATOR(pg_catalog.!~~) 'read %'`, `LIKE 'no'`]),
]
