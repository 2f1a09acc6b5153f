import { all, literal, quote, transition } from '../../sql/identifier'
import {
  differ,
  differentKey,
  hasKey,
  hasNamedKey,
  holderKey,
  holderRows,
  type HolderTable,
  type NameColumn,
  nameFields,
  namesOfRow,
  namesTableOf,
  newest,
  newRows,
  NO_JOIN,
  oldRows,
  refuseRenamedColumns,
  standingRow,
  becomesHeld,
  columnsToInsert,
  hashed,
  isFree,
  onConflict,
} from './fragments'
import { SQLSTATE } from '../../sql/sqlstate'
import { equal, op } from '../../sql/text-table'
import { bound, ofHolder, onRows, requireHolder, shardVariables } from './shards'

/** The maximum number of rounds. Each round locks the row that conflicts with a name; others can change it before. */
const CLAIM_ROUNDS = 16

/** The number of refused names that an error reports. No others are looked for. */
const REPORTED = 10

const declarations = (holder: HolderTable): string => `
#variable_conflict use_variable
DECLARE
  given pg_catalog.int8;
  done pg_catalog.int8;
  freed pg_catalog.int8[];
  taken pg_catalog.int8[];
  refused pg_catalog.jsonb[];
  refusal pg_catalog.jsonb;
  one pg_catalog.record;
  found_id pg_catalog.int8;${shardVariables(holder)}`

/**
 * Runs AFTER INSERT for each statement, and AFTER UPDATE for each row whose key or names differ. It makes the rows of
 * the statement hold the names that they have at that time, and releases the names that they no longer have.
 */
export function takeBody(holder: HolderTable): string {
  return `${declarations(holder)}
BEGIN${requireHolder(holder)}${refuseRenamedColumns(holder)}
  IF ${equal('TG_OP', `'INSERT'`)} THEN${insertNames(holder)}
  ELSE${moveKeys(holder)}${changeOneName(holder)}${changeNames(holder)}
  END IF;
  IF done ${op('<')} given THEN${takeOneByOne(holder)}
  END IF;
  IF freed IS NOT NULL THEN${releaseNames(holder, `${op('=')} ANY (freed)`)}
  END IF;
  RETURN NULL;
END
`
}

const touched = (holder: HolderTable): string => `FROM ${newRows(holder)} AS r
      CROSS JOIN LATERAL ${standingRow(holder, 'r')}
      ${namesOfRow(holder)}`

function insertNames(holder: HolderTable): string {
  const counted = holder.names.map(({ column }) => `pg_catalog.count(r.${quote(column)})`)
  const insert = `
    INSERT INTO ${namesTableOf(holder)} AS n ${columnsToInsert(holder)}
    SELECT DISTINCT ON (c.namespace, c.hash)
      c.namespace, c.text, c.hash, 0, ${literal(holder.holder)}, c.property, c.key, 'held'
    FROM (
      SELECT v.*, ${hashed(holder, 'v.text')} AS hash, ${holderKey(holder, 't')} AS key
      ${touched(holder)}
      WHERE v.text IS NOT NULL
    ) AS c
    ORDER BY c.namespace, c.hash
    ${onConflict(holder)}`
  return `${onRows(holder, insert)};
    GET DIAGNOSTICS done = ROW_COUNT;
    SELECT ${counted.join(` ${op('+')} `)} INTO given FROM ${newRows(holder)} AS r;`
}

function changeNames(holder: HolderTable): string {
  const change = `
    WITH changed AS MATERIALIZED (
      SELECT v.*, ${holderKey(holder, 't')} AS key, h.id AS former_id,
        h.namespace AS former_namespace, h.hash AS former_hash, h.text AS former_text
      ${touched(holder)}
      ${heldByRow(holder)}
      WHERE ${IS_DIFFERENT}
    ), names AS (
      SELECT c.namespace, ${hashed(holder, 'c.text')} AS hash, c.text, c.property, c.key
      FROM changed AS c WHERE c.text IS NOT NULL
      UNION ALL
      SELECT c.former_namespace, c.former_hash, c.former_text, c.property, c.key
      FROM changed AS c WHERE c.former_id IS NOT NULL
    ), passed AS (
      INSERT INTO ${namesTableOf(holder)} AS n ${columnsToInsert(holder)}
      SELECT DISTINCT ON (c.namespace, c.hash)
        c.namespace, c.text, c.hash, 0, ${literal(holder.holder)}, c.property, c.key, 'held'
      FROM names AS c
      ORDER BY c.namespace, c.hash
      ${onConflict(holder)}
      RETURNING 1
    )
    SELECT (SELECT pg_catalog.count(c.text) FROM changed AS c),
      (SELECT pg_catalog.count(*) FROM passed),
      (SELECT pg_catalog.array_agg(c.former_id) FROM changed AS c WHERE c.former_id IS NOT NULL)`
  return `${onRows(holder, change)}
    INTO given, done, freed;`
}

const refuseOne = (holder: HolderTable): string => {
  const field = nameFields(holder)
  return `
          SELECT pg_catalog.jsonb_build_object('column', one.property, 'of', one.key,
            'holder', ${field('n', 'holder')}, 'holderColumn', ${field('n', 'property')},
            'key', CASE WHEN ${mayRead} THEN ${field('n', 'key')} END, 'state', ${field('n', 'state')})
          INTO refusal FROM ${namesTableOf(holder)} AS n WHERE ${equal(field('n', 'id'), 'found_id')};
          refused := pg_catalog.array_append(refused, refusal);`
}

function takeOne(holder: HolderTable): string {
  const field = nameFields(holder)
  const names = namesTableOf(holder)
  const values = ['found_id', 'one.property', 'one.key']
  const key = bound(holder, 3, 'one.key')
  const take = `
        UPDATE ${names} AS n
        SET ${field('', 'holder')} = ${literal(holder.holder)}, ${field('', 'property')} = ${bound(holder, 2, 'one.property')},
          ${field('', 'key')} = ${key}, ${becomesHeld(holder)}
        WHERE ${equal(field('n', 'id'), bound(holder, 1, 'found_id'))}
          AND (${isFree(holder, key)}
            OR ${isAbandoned(holder)})`
  // EXECUTE does not set FOUND.
  const [count, isTaken] =
    holder.citus === undefined ? ['', 'FOUND'] : ['\n        GET DIAGNOSTICS done = ROW_COUNT;', equal('done', '1')]
  return `
      FOR round IN 1..${CLAIM_ROUNDS} LOOP
        -- Locked, it stays as it is; what the next query sees of its holder is what goes with it.
        SELECT ${field('n', 'id')} INTO found_id FROM ${names} AS n
        WHERE ${isNameOf(holder, 'one')}
        FOR NO KEY UPDATE;
        IF found_id IS NULL THEN
          -- Another text of equal hash: the guard finds the number, or the index sees that others were faster.
          INSERT INTO ${names} (${field('', 'namespace', 'text', 'holder', 'property', 'key', 'state')})
          VALUES (one.namespace, one.text, ${literal(holder.holder)}, one.property, one.key, 'held')
          ON CONFLICT DO NOTHING;
          EXIT WHEN FOUND;
          IF ${equal('round', String(CLAIM_ROUNDS))} THEN${exhausted(holder)}
          END IF;
          CONTINUE;
        END IF;${onRows(holder, take, values)};${count}
        IF ${isTaken} THEN
          taken := pg_catalog.array_append(taken, found_id);
        ELSE${refuseOne(holder)}
        END IF;
        EXIT;
      END LOOP;`
}

/** Takes the names that the pass did not take. They are held, or another text of equal hash has number 0. */
function takeOneByOne(holder: HolderTable): string {
  const field = nameFields(holder)
  const names = namesTableOf(holder)
  const left = `
      SELECT v.*, ${hashed(holder, 'v.text')} AS hash, ${holderKey(holder, 't')} AS key
      ${touched(holder)}
      WHERE v.text IS NOT NULL AND NOT EXISTS (
        SELECT FROM ${names} AS n
        WHERE ${all(10, ...isHeldBy(holder, 't'), equal(`${field('n', 'text')} COLLATE pg_catalog."C"`, 'v.text'))}
        -- An old snapshot may show what a row that is gone held by this key: then this fails with 40001.
        FOR KEY SHARE
      )
      ORDER BY v.namespace, hash`
  return `
    FOR one IN${onRows(holder, left)}
    LOOP${takeOne(holder)}
      EXIT WHEN ${equal('pg_catalog.cardinality(refused)', String(REPORTED))};
    END LOOP;
    IF refused IS NOT NULL THEN${refuse(holder)}
    END IF;
    freed := ARRAY(
      SELECT u.id FROM pg_catalog.unnest(freed) AS u (id) EXCEPT SELECT u.id FROM pg_catalog.unnest(taken) AS u (id)
    );`
}

/** Others take and release the name too often, or a user's trigger on the table of names undoes what is written. */
const exhausted = (holder: HolderTable): string => `
            RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.serializationFailure}',
              MESSAGE = 'could not take a name due to concurrent changes, or a trigger on the table of names',
              ${ofHolder(holder)};`

const isNameOf = (holder: HolderTable, row: string): string => {
  const field = nameFields(holder)
  return `${equal(field('n', 'namespace'), `${row}.namespace`)} AND ${equal(field('n', 'hash'), `${row}.hash`)}
          AND ${equal(`${field('n', 'text')} COLLATE pg_catalog."C"`, `${row}.text`)}`
}

/** The row that is recorded as holder no longer has the name, because this very statement has changed the row. */
function isAbandoned(holder: HolderTable): string {
  const field = nameFields(holder)
  const same = hasNamedKey(holder, 't', field('n', 'key'))
  return `${equal(field('n', 'state'), `'held'`)}
              AND ${equal(field('n', 'holder'), literal(holder.holder))} AND NOT EXISTS (
              SELECT FROM ${holderRows(holder)}
              ${namesOfRow(holder)}
              WHERE ${same.join(' AND ')}
                AND ${equal('v.property', field('n', 'property'))}
                AND ${equal('v.text', `${field('n', 'text')} COLLATE pg_catalog."C"`)}
              ${NO_JOIN}
            )`
}

/** The role that writes, not this function's owner, can read the table of names, so that its keys are no secret. */
const mayRead = `EXISTS (
              SELECT FROM pg_catalog.pg_roles AS r, pg_catalog.pg_class AS c
              WHERE r.rolname ${op('=')} CASE
                WHEN pg_catalog.current_setting('role') ${op('=')} 'none' THEN SESSION_USER
                ELSE pg_catalog.current_setting('role')
              END
                AND c.oid ${op('=')} n.tableoid AND NOT c.relrowsecurity
                AND pg_catalog.has_table_privilege(r.oid, c.oid, 'SELECT')
            )`

const refuse = (holder: HolderTable): string => `
      RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.uniqueViolation}',
        MESSAGE = ${literal(`duplicate key value violates unique constraint ${quote(holder.of.index)}`)},
        DETAIL = pg_catalog.to_json(refused),
        CONSTRAINT = ${literal(holder.of.index)}, ${ofHolder(holder)};`

/**
 * Moves the names of rows whose keys change, former ones too. It moves all names of the statement at once, because two
 * rows may have exchanged their keys. Both transition tables have the rows in one order. They include rows of children
 * by INHERITS. If such a row has the key of a row of this table, the names stay with the latter.
 *
 * A row that no longer exists loses its names. A row that gets the key of a deleted row inherits nothing.
 */
function moveKeys(holder: HolderTable): string {
  const [now, before] = [bound(holder, 1, 'NEW'), bound(holder, 2, 'OLD')]
  const differs = `(${differentKey(holder, before, now).join(' OR ')}
      OR EXISTS (SELECT FROM ${newRows(holder)} OFFSET 1)) AND (EXISTS (
      SELECT FROM ${standingRow(holder, now)}
      ${namesOfRow(holder)}
      ${heldByRow(holder)}
      WHERE ${IS_DIFFERENT}
    ) OR ${isLeft(holder, now, before)})`
  const find =
    holder.citus === undefined ? '' : `${onRows(holder, `SELECT ${differs}`, ['NEW', 'OLD'])} INTO moves;\n   `
  return `
    -- The first row of the statement that differs moves the keys of all; no later one differs, or leaves a name behind.
   ${find} IF ${holder.citus === undefined ? differs : 'moves'} THEN${onRows(holder, changedKeys(holder) + moveNames(holder))};
    END IF;`
}

/** The condition that a name is left at the old key of the row. */
function isLeft(holder: HolderTable, now: string, before: string): string {
  const field = nameFields(holder)
  return `(${differentKey(holder, before, now).join(' OR ')}) AND EXISTS (
      SELECT FROM ${namesTableOf(holder)} AS n
      WHERE ${equal(field('n', 'key'), holderKey(holder, before))}
        AND ${equal(field('n', 'holder'), literal(holder.holder))}
    ) AND NOT EXISTS (
      SELECT FROM ${holderRows(holder)} WHERE ${hasKey(holder, 't', (name) => `${before}.${quote(name)}`).join(' AND ')}
    )`
}

/** The condition that the row `t` has exactly this key. A collation may treat two different keys as equal. */
const isAt = (holder: HolderTable, key: string): string =>
  [...hasNamedKey(holder, 't', key), equal(holderKey(holder, 't'), key)].join('\n            AND ')

const stands = (holder: HolderTable, key: string): string =>
  `EXISTS (
          SELECT FROM ${holderRows(holder)}
          WHERE ${isAt(holder, key)}
          ${NO_JOIN}
        )`

/** The names of queries in WITH that precede any use of either table. A query with a table's name would hide it. */
const withQueries = ({ table, of }: HolderTable): readonly [changed: string, left: string, moves: string] => [
  transition('changed', table, of.table),
  transition('left_keys', table, of.table),
  transition('moves', table, of.table),
]

/** Finds the keys that have changed, and where the names at these keys move. */
function changedKeys(holder: HolderTable): string {
  const keys = (rows: string): string =>
    `pg_catalog.unnest((SELECT pg_catalog.array_agg(${holderKey(holder, 'r')}) FROM ${rows} AS r))`
  const [changed, left, moves] = withQueries(holder)
  return `
      WITH ${changed} AS MATERIALIZED (
        SELECT c.*
        FROM ROWS FROM (
          ${keys(oldRows(holder))},
          ${keys(newRows(holder))}
        ) AS c (former, key)
        WHERE c.former ${op('<>')} c.key
      ), ${left} AS MATERIALIZED (
        -- A cascade may have changed a key twice.
        SELECT c.*, c.key ${op('=')} ANY (SELECT o.former FROM ${changed} AS o) AS goes_on, ${stands(holder, 'c.key')} AS is_there
        FROM ${changed} AS c
        WHERE c.former ${op('=')} ANY (SELECT o.key FROM ${changed} AS o)
          OR NOT ${stands(holder, 'c.former')}
      ), ${moves} AS (
        SELECT c.former AS key, CASE WHEN c.is_there OR c.goes_on THEN c.key END AS next, NOT c.goes_on AS is_last
        FROM ${left} AS c
        UNION ALL
        SELECT c.key, NULL, true FROM ${left} AS c
        WHERE c.is_there AND NOT c.goes_on AND EXISTS (
          SELECT FROM ${holderRows(holder)}
          ${namesOfRow(holder)}
          ${heldByRow(holder)}
          WHERE ${isAt(holder, 'c.key')}
            AND ${IS_DIFFERENT}
          ${NO_JOIN}
        )`
}

function moveNames(holder: HolderTable): string {
  const field = nameFields(holder)
  const isHeld = (row: string): string => equal(field(row, 'state'), `'held'`)
  return `
      ), moved AS MATERIALIZED (
        SELECT ${field('n', 'id')} AS id, CASE WHEN NOT (m.is_last AND ${isHeld('n')} AND EXISTS (
          -- A trigger has given the row another name before this.
          SELECT FROM ${namesTableOf(holder)} AS o
          WHERE ${equal(field('o', 'key'), 'm.next')} AND ${equal(field('o', 'holder'), literal(holder.holder))}
            AND ${equal(field('o', 'property'), field('n', 'property'))} AND ${isHeld('o')}
          ${NO_JOIN}
        )) THEN m.next END AS next
        FROM ${withQueries(holder)[2]} AS m
        JOIN ${namesTableOf(holder)} AS n ON ${equal(field('n', 'key'), 'm.key')}
          AND ${equal(field('n', 'holder'), literal(holder.holder))}
        ORDER BY ${field('n', 'namespace')}, ${field('n', 'hash')}
        FOR NO KEY UPDATE OF n
      ), gone AS (
        DELETE FROM ${namesTableOf(holder)} AS n USING moved AS m
        WHERE ${equal(field('n', 'id'), 'm.id')} AND m.next IS NULL
          AND NOT (m.id ${op('=')} ANY (SELECT o.id FROM moved AS o WHERE o.next IS NOT NULL))
      )
      UPDATE ${namesTableOf(holder)} AS n SET ${field('', 'key')} = m.next
      FROM moved AS m WHERE ${equal(field('n', 'id'), 'm.id')} AND m.next IS NOT NULL`
}

/** Predicates for an AND: the row with the names `v` holds the name `n` in the column of `v`. */
function isHeldBy(holder: HolderTable, row: string): string[] {
  const field = nameFields(holder)
  return [
    equal(field('n', 'key'), holderKey(holder, row)),
    equal(field('n', 'holder'), literal(holder.holder)),
    equal(field('n', 'property'), 'v.property'),
    equal(field('n', 'state'), `'held'`),
  ]
}

/** Joins the name `h` that the row `t` holds in the column, according to the table of names. */
function heldByRow(holder: HolderTable): string {
  const field = nameFields(holder)
  return `LEFT JOIN LATERAL (
        SELECT ${field('n', 'id', 'namespace', 'hash', 'number', 'text')}
        FROM ${namesTableOf(holder)} AS n
        WHERE ${all(10, ...isHeldBy(holder, 't'))}
        ${newest('n')}
      ) AS h (id, namespace, hash, number, text) ON true`
}

const IS_DIFFERENT: string = differ(['h.text'], ['v.text'])

/**
 * Handles a statement that has one row, of which one name differs. Two small statements replace the pass over all rows,
 * which takes longer to start than to work. The pass handles a name that they do not take.
 */
function changeOneName(holder: HolderTable): string {
  // The first row of a statement changes the names of all, and no later one does anything.
  if (holder.citus !== undefined)
    return `
    IF NOT moves AND EXISTS (SELECT FROM ${newRows(holder)} OFFSET 1) THEN
      RETURN NULL;
    END IF;`
  return `${seeChange(holder)}
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
    IF one.is_alone AND ${equal('one.former_number', '0')} AND one.text IS NOT NULL THEN
      FOR step IN 1..2 LOOP
        -- In the order in which every statement locks names.
        IF ${equal(`(${equal('step', '1')})`, `(one.hash ${op('<')} one.former_hash)`)} THEN
          INSERT INTO ${namesTableOf(holder)} AS n ${columnsToInsert(holder)}
          VALUES (one.namespace, one.text, one.hash, 0, ${literal(holder.holder)}, one.property, one.key, 'held')
          ${onConflict(holder)};
          GET DIAGNOSTICS done = ROW_COUNT;
        ELSE${releaseNames(holder, `${op('=')} one.former_id`)}
        END IF;
      END LOOP;
      IF ${equal('done', '1')} THEN
        RETURN NULL;
      END IF;
    END IF;`
}

function seeChange(holder: HolderTable): string {
  const isOne = holder.names.length === 1 ? '' : `${equal('pg_catalog.count(*) OVER ()', '1')} AND `
  return `
    -- An earlier row of the statement has done the work for all of them; then nothing differs here.
    SELECT v.*, ${hashed(holder, 'v.text')} AS hash, ${holderKey(holder, 't')} AS key,
      h.id AS former_id, h.hash AS former_hash, h.number AS former_number,
      ${isOne}NOT EXISTS (SELECT FROM ${newRows(holder)} OFFSET 1) AS is_alone
    INTO one
    FROM ${standingRow(holder, 'NEW')}
    ${namesOfRow(holder)}
    ${heldByRow(holder)}
    WHERE ${IS_DIFFERENT}
    LIMIT 1;`
}

/**
 * Releases names, with one statement for each policy of former names.
 *
 * @param ids the operator and the ids that select the names
 */
function releaseNames(holder: HolderTable, ids: string): string {
  const kind = ({ former }: NameColumn): string => `${former.state} ${former.interval ?? ''}`
  const kinds = new Set(holder.names.map(kind))
  return [...kinds]
    .map((one) =>
      releaseAs(
        holder,
        holder.names.filter((name) => kind(name) === one),
        ids,
      ),
    )
    .join('')
}

function releaseAs(holder: HolderTable, columns: readonly NameColumn[], ids: string): string {
  const field = nameFields(holder)
  const { state, interval } = columns[0]?.former ?? { state: 'free' }
  const where = `WHERE ${field('n', 'id')} ${ids}${
    columns.length === holder.names.length
      ? ''
      : ` AND (${columns.map(({ column }) => equal(field('n', 'property'), literal(column))).join(' OR ')})`
  };`
  if (state === 'free') return `\n    DELETE FROM ${namesTableOf(holder)} AS n ${where}`
  const now = 'pg_catalog.statement_timestamp()'
  const until = interval === undefined ? 'NULL' : `${now} ${op('+')} ${literal(interval)}::pg_catalog.interval`
  return `
    UPDATE ${namesTableOf(holder)} AS n
    SET ${field('', 'state')} = ${literal(state)}, ${field('', 'since')} = ${now},
      ${field('', 'until')} = ${until}
    ${where}`
}
