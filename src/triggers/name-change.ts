import { literal } from '../sql/identifier'
import {
  differ,
  holderKey,
  nameFields,
  namesOfRow,
  namesTableOf,
  newest,
  newRows,
  NO_JOIN,
  oldRows,
  standingRow,
} from '../sql/name-body'
import type { HolderTable, NameColumn } from '../sql/name-table'
import { equal, op } from '../sql/text-table'

/** The name `h` that the table of names says the row `t` holds in the column. */
export function heldByRow(holder: HolderTable): string {
  const field = nameFields(holder)
  return `LEFT JOIN LATERAL (
        SELECT ${field('n', 'id', 'namespace', 'hash', 'number', 'text')}
        FROM ${namesTableOf(holder)} AS n
        WHERE ${equal(field('n', 'key'), holderKey(holder, 't'))}
          AND ${equal(field('n', 'holder'), literal(holder.holder))}
          AND ${equal(field('n', 'property'), 'v.property')}
          AND ${equal(field('n', 'state'), `'held'`)}
        ${newest('n')}
      ) AS h (id, namespace, hash, number, text) ON true`
}

export const IS_DIFFERENT: string = differ(['h.text'], ['v.text'])

/**
 * The statement has one row, and one name of it is another: two small statements in place of the pass over all, whose
 * start takes longer than its work. A name that they do not take is left to the pass.
 */
export function changeOneName(holder: HolderTable): string {
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

/** In parentheses. */
export const columnsToInsert = (holder: HolderTable): string =>
  `(
      ${nameFields(holder)('', 'namespace', 'text', 'hash', 'number', 'holder', 'property', 'key', 'state')}
    )`

export const hashed = ({ of }: HolderTable, text: string): string => of.digest.sql(text)

/** The name `n` is a former one that the row with this key may take. */
export function isFree(holder: HolderTable, key: string): string {
  const field = nameFields(holder)
  return `${field('n', 'state')} ${op('<>')} 'held'
        AND (${field('n', 'until')} ${op('<=')} pg_catalog.statement_timestamp()
          OR ${equal(field('n', 'holder'), literal(holder.holder))}
            AND ${equal(field('n', 'key'), key)})`
}

/** What becomes of a former name that is taken. */
export const becomesHeld = (holder: HolderTable): string => {
  const field = nameFields(holder)
  return `${field('', 'state')} = 'held', ${field('', 'since')} = pg_catalog.statement_timestamp(),
         ${field('', 'until')} = NULL`
}

/**
 * DO UPDATE locks the conflicting row even if it changes nothing. So every statement locks the names that it takes or
 * gives up in one order, and two statements over two tables never form a cycle of waits.
 */
export const onConflict = (holder: HolderTable): string => {
  const field = nameFields(holder)
  const copied = (['holder', 'property', 'key'] as const).map(
    (column) => `${field('', column)} = ${field('EXCLUDED', column)}`,
  )
  return `ON CONFLICT (${field('', 'namespace', 'hash', 'number')}) DO UPDATE
      SET ${copied.join(',\n        ')},
        ${becomesHeld(holder)}
      WHERE ${equal(`${field('n', 'text')} COLLATE pg_catalog."C"`, `${field('EXCLUDED', 'text')} COLLATE pg_catalog."C"`)}
        AND ${isFree(holder, field('EXCLUDED', 'key'))}`
}

/**
 * By what each column makes of a former name.
 *
 * @param ids which names, said of their id
 */
export function releaseNames(holder: HolderTable, ids: string): string {
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

/**
 * At REPEATABLE READ and above a snapshot may be older than what an adoption has claimed for a row, and the name of the
 * row would stay when it goes. So names that seem not to be claimed are claimed first: where they have been, it fails
 * with 40001.
 */
export function claimOldNames(holder: HolderTable): string {
  const field = nameFields(holder)
  return `
    IF pg_catalog.current_setting('transaction_isolation') ${op('!~~')} 'read %' THEN
      FOR one IN
        SELECT v.*, ${hashed(holder, 'v.text')} AS hash, ${holderKey(holder, 'r')} AS key
        FROM ${oldRows(holder)} AS r
        ${namesOfRow(holder, 'r')}
        WHERE v.text IS NOT NULL AND NOT EXISTS (
          SELECT FROM ${namesTableOf(holder)} AS n
          WHERE ${equal(field('n', 'key'), holderKey(holder, 'r'))}
            AND ${equal(field('n', 'holder'), literal(holder.holder))}
            AND ${equal(field('n', 'property'), 'v.property')}
            AND ${equal(field('n', 'state'), `'held'`)}
          ${NO_JOIN}
        )
        ORDER BY v.namespace, hash
      LOOP
        INSERT INTO ${namesTableOf(holder)} (${field('', 'namespace', 'text', 'holder', 'property', 'key', 'state')})
        VALUES (one.namespace, one.text, ${literal(holder.holder)}, one.property, one.key, 'held')
        ON CONFLICT DO NOTHING;
      END LOOP;
    END IF;`
}
