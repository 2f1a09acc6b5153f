import type { HolderTable } from '../../../src/names/sql/fragments'
import { NAMES_SQL } from '../../../src/library/names'
import { type Change, mutate } from '../../support/mutate'
import { attachHolder } from '../../support/names-table'
import type { Level } from '../../support/sessions'

const LIBRARY = NAMES_SQL.replaceAll('CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION')

/** Triggers with one part taken out, to show that the tests would miss it. */
export interface NameMutation {
  readonly name: string
  readonly triggers: (holder: HolderTable) => readonly string[]
  /** The interleaving that must come out otherwise, or a sequence: the rules alone, which take no waiting. */
  readonly found: string
  readonly level: Level
}

/** An interleaving, at READ COMMITTED where no level is given. */
type Finder = string | readonly [interleaving: string, level: Level]

function mutation(name: string, finder: Finder, ...changes: readonly Change[]): NameMutation {
  const [found, level] = typeof finder === 'string' ? ([finder, 'READ COMMITTED'] as const) : finder
  return {
    name,
    found,
    level,
    triggers: (holder) => [...mutate(name, [LIBRARY], changes), attachHolder(holder)],
  }
}

const on =
  (table: string) =>
  (...given: Parameters<typeof mutation>): NameMutation => {
    const made = mutation(...given)
    return {
      ...made,
      triggers: (holder) => (holder.table === table ? made.triggers(holder) : [LIBRARY, attachHolder(holder)]),
    }
  }

/** Of one table only, so that two tables differ. */
const onOrgs = on('orgs')
/** The table with two names. */
const onUsers = on('users')

const without = (event: string, finder: Finder): NameMutation =>
  mutation(`no trigger after ${event}`, finder, [
    new RegExp(`(AFTER ${event.toUpperCase()} ON %s[^']*FOR EACH STATEMENT)'`),
    `$1 WHEN (false)'`,
  ])

export const nameMutations: readonly NameMutation[] = [
  without('insert', 'a taken name is refused'),
  mutation('no trigger after update', 'a taken name is refused', [
    'FOR EACH ROW WHEN (%s OR %s)',
    'FOR EACH ROW WHEN (false AND (%s OR %s))',
  ]),
  without('delete', 'a delete takes all names'),
  without('truncate', 'TRUNCATE takes all names'),
  onOrgs(
    'claims are taken in another order',
    'bulk writes over two tables in opposite order: one waits for the other, and neither for ever',
    [/ORDER BY c\.namespace, c\.hash(?= \{on_conflict\}\$sql)/, 'ORDER BY c.namespace DESC, c.hash DESC'],
  ),
  mutation(
    'what is given up is not locked in the pass',
    'a bulk rename against one that takes the names it gives up, in opposite order',
    [/WHERE c\.former_id IS NOT NULL(?=\n {4}\), passed)/, 'WHERE false'],
  ),
  mutation(
    'one row locks its names in another order',
    'a rename locks what it gives up before what it takes, where that is the order',
    ['one.hash < one.former_hash', 'one.hash > one.former_hash'],
  ),
  mutation(
    'rows of a statement lock one after the other',
    'a bulk rename against one that takes the names it gives up, in opposite order',
    ['NOT EXISTS (SELECT FROM new_rows OFFSET 1) AS is_alone', 'true AS is_alone'],
  ),
  mutation('a name in a chain is given up without a lock of the anchor', 'a rename out of a chain locks its anchor', [
    ' AND one.former_number = 0',
    '',
  ]),
  onUsers('one name of a row is changed for all of them', 'columns of a row change at once', [
    'count(*) OVER () = 1 AND',
    '',
  ]),
  mutation('what one row did not get is not looked at', 'a former name of equal hash stays', [
    /IF done = 1 THEN(?=\s+RETURN)/,
    'IF true THEN',
  ]),
  mutation('what one row gives up stays', 'a former name of equal hash stays', [
    'freed := ARRAY[one.former_id];',
    'freed := NULL;',
  ]),
  mutation(
    'a delete locks in the order of its rows',
    'a bulk delete against one that takes its names, in opposite order',
    ['ORDER BY n.namespace, n.hash) AS gone', ') AS gone'],
  ),
  mutation('what the pass did not take is not looked at', 'a taken name is refused', [
    'IF done < given THEN',
    'IF false THEN',
  ]),
  mutation('what is in the way is not locked', 'a delete of a name in a chain against a claim of it', [
    / FOR NO KEY UPDATE;(?=\s+IF found_id)/,
    ';',
  ]),
  mutation(
    'what is in the way is locked against its removal only',
    'a claim of a name in a chain waits for the key that its row gets',
    [/FOR NO KEY UPDATE;(?=\s+IF found_id)/, 'FOR KEY SHARE;'],
  ),
  mutation(
    'names that go along with a key are not locked',
    'a key that changes against one that takes a former name of its row which has ended',
    ['FOR NO KEY UPDATE OF n', ''],
  ),
  mutation(
    'names that go along with a key are locked against their removal only',
    'a key that changes against one that takes a former name of its row which has ended',
    ['FOR NO KEY UPDATE OF n', 'FOR KEY SHARE OF n'],
  ),
  mutation(
    'names that go along with keys are locked in the order of the rows',
    'keys that change lock all names in one order, and not row by row',
    ['ORDER BY n.namespace, n.text_hash FOR', 'FOR'],
  ),
  mutation('a name that its row has no more is not taken', 'rows exchange their names', [
    "OR n.state = 'held' AND n.holder",
    'OR false AND n.holder',
  ]),
  mutation(
    'whether its row has a name is told by an old snapshot',
    'a name that moves to another row while one waits for it is not taken for one that nobody has',
    [
      /n\.state <> 'held' AND (\(n\.until[^$]+?)(?=\$sql\$;\s+-- INSERT: all)/,
      `(n.holder = EXCLUDED.holder AND NOT EXISTS (SELECT FROM {table} AS t WHERE t.id = (n.holder_key->>0)::integer
       AND t.handle = n.text) OR n.state <> 'held' AND $1)`,
    ],
  ),
  mutation('held names are taken from rows that have them', 'a taken name is refused', [
    "n.state = 'held' AND n.holder = {holder} AND NOT EXISTS (SELECT FROM {table}",
    "n.state = 'held' AND n.holder = {holder} OR false AND NOT EXISTS (SELECT FROM {table}",
  ]),
  mutation(
    'a former name is not taken back',
    'own former names are taken back',
    ['OR n.holder = EXCLUDED.holder AND n.holder_key = EXCLUDED.holder_key', ''],
    ['OR n.holder = {holder} AND n.holder_key = $6', ''],
  ),
  mutation('a reservation never ends', 'what has ended is free', [/n\.until <= statement_timestamp\(\)/g, 'false']),
  mutation('the text is not compared where hashes are equal', 'NULL gives up a name', [
    'n.text COLLATE "C" = EXCLUDED.text',
    'true',
  ]),
  mutation('names that are given up stay', 'a taken name is refused', ['IF freed IS NOT NULL THEN', 'IF false THEN']),
  mutation('what another row took is released all the same', 'columns of a row exchange their names', [
    'taken := taken || found_id;',
    '',
  ]),
  mutation('texts of equal hash come twice to one place', 'texts of equal hash in one statement', [
    /SELECT DISTINCT ON \([^)]+\)/,
    'SELECT',
  ]),
  mutation('a delete leaves former names', 'a delete takes all names', [
    'n.holder_key = {key_of_r} AND n.holder = {holder}',
    "n.holder_key = {key_of_r} AND n.holder = {holder} AND n.state = 'held'",
  ]),
  mutation(
    'a delete takes what another row has by now',
    'a delete against one that takes a former name which has ended',
    ['n.id = gone.id AND n.holder = {holder} AND n.holder_key = gone.key', 'n.id = gone.id'],
  ),
  mutation(
    'an old row with the key of a new one is taken for it',
    ['a key that is free again, while an old snapshot shows the row that had it', 'REPEATABLE READ'],
    [/age\(t\.xmin\) LIMIT/g, 'age(t.xmin) DESC LIMIT'],
  ),
  mutation(
    'what an old snapshot shows as held is taken for held',
    [
      'a name of a row that is gone, which an old snapshot shows, is not taken for that of the new row with its key',
      'REPEATABLE READ',
    ],
    [/\s+FOR KEY SHARE\)/, ')'],
  ),
  mutation('names do not go along with a key', 'keys move up by one, and names go along once', [
    'EXIT WHEN NOT moves;',
    'EXIT;',
  ]),
  mutation('a delete does not look whether the row is back', 'a trigger puts a row back', [
    /AND NOT EXISTS \((?=\s+SELECT FROM \{table\} AS t \{names_of_t\} WHERE \{t_is_r\})/,
    'AND NOT EXISTS (SELECT WHERE false) OR EXISTS (',
  ]),
  mutation('names go along with a key for each row', 'keys move up by one, and names go along once', [
    /\s+AND NOT EXISTS \(SELECT FROM \{table\} AS t WHERE \{t_is_old\}\)/,
    '',
  ]),
  mutation('rows are taken for what the statement made them', 'a trigger changes the row once more', [
    /rows CONSTANT text := '[^']*'/,
    `rows CONSTANT text := 'new_rows AS t {names_of_t}'`,
  ]),
  mutation('TRUNCATE is allowed where a snapshot is old', 'TRUNCATE is refused where a snapshot is old', [
    `NOT starts_with(current_setting('transaction_isolation'), 'read ')`,
    'false',
  ]),
]
