import { literal, quote } from './identifier'
import {
  differentKey,
  hasKey,
  hasNamedKey,
  holderKey,
  holderRows,
  nameFields,
  namesOfRow,
  namesTableOf,
  NO_JOIN,
  standingRow,
} from './name-body'
import { heldByRow, IS_DIFFERENT } from './name-change'
import type { HolderTable } from './name-table'
import { equal, op } from './text-table'

/**
 * The key of a row goes over to another; the names, former ones too, go with it, all of the statement's at once, for two
 * rows may have exchanged their keys. Both tables have the rows in one order. They have those of children by INHERITS
 * too, whose keys may be those of rows of this table: names stay where their row does.
 *
 * A row that is gone by now takes its names along. A row that gets the key of a deleted row inherits nothing.
 */
export function moveKeys(holder: HolderTable): string {
  return `
    -- The first row of the statement that differs moves the keys of all; no later one differs, or leaves a name behind.
    IF (${differentKey(holder, 'OLD', 'NEW').join(' OR ')}
      OR EXISTS (SELECT FROM new_rows OFFSET 1)) AND (EXISTS (
      SELECT FROM ${standingRow(holder, 'NEW')}
      ${namesOfRow(holder)}
      ${heldByRow(holder)}
      WHERE ${IS_DIFFERENT}
    ) OR ${isLeft(holder)}) THEN${changedKeys(holder)}${moveNames(holder)}
    END IF;`
}

/** A name is left at the key that the row had. */
function isLeft(holder: HolderTable): string {
  const field = nameFields(holder)
  return `(${differentKey(holder, 'OLD', 'NEW').join(' OR ')}) AND EXISTS (
      SELECT FROM ${namesTableOf(holder)} AS n
      WHERE ${equal(field('n', 'key'), holderKey(holder, 'OLD'))}
        AND ${equal(field('n', 'holder'), literal(holder.holder))}
    ) AND NOT EXISTS (
      SELECT FROM ${holderRows(holder)} WHERE ${hasKey(holder, 't', (name) => `OLD.${quote(name)}`).join(' AND ')}
    )`
}

/** The row with this key stands in the table. A collation may call two keys equal. */
const isAt = (holder: HolderTable, key: string): string =>
  [...hasNamedKey(holder, 't', key), equal(holderKey(holder, 't'), key)].join('\n            AND ')

const stands = (holder: HolderTable, key: string): string =>
  `EXISTS (
          SELECT FROM ${holderRows(holder)}
          WHERE ${isAt(holder, key)}
          ${NO_JOIN}
        )`

/** Which keys have changed, and what becomes of names that stand at them. */
function changedKeys(holder: HolderTable): string {
  const keys = (rows: string): string =>
    `pg_catalog.unnest((SELECT pg_catalog.array_agg(${holderKey(holder, 'r')}) FROM ${rows} AS r))`
  return `
      WITH changed AS MATERIALIZED (
        SELECT c.*
        FROM ROWS FROM (
          ${keys('old_rows')},
          ${keys('new_rows')}
        ) AS c (former, key)
        WHERE c.former ${op('<>')} c.key
      ), left_keys AS MATERIALIZED (
        -- A cascade may have changed a key twice.
        SELECT c.*, c.key ${op('=')} ANY (SELECT o.former FROM changed AS o) AS goes_on, ${stands(holder, 'c.key')} AS is_there
        FROM changed AS c
        WHERE c.former ${op('=')} ANY (SELECT o.key FROM changed AS o)
          OR NOT ${stands(holder, 'c.former')}
      ), moves AS (
        SELECT c.former AS key, CASE WHEN c.is_there OR c.goes_on THEN c.key END AS next, NOT c.goes_on AS is_last
        FROM left_keys AS c
        UNION ALL
        SELECT c.key, NULL, true FROM left_keys AS c
        WHERE c.is_there AND NOT c.goes_on AND EXISTS (
          SELECT FROM ${holderRows(holder)}
          ${namesOfRow(holder)}
          ${heldByRow(holder)}
          WHERE ${isAt(holder, 'c.key')}
            AND v.text IS NOT NULL AND ${IS_DIFFERENT}
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
        FROM moves AS m
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
      FROM moved AS m WHERE ${equal(field('n', 'id'), 'm.id')} AND m.next IS NOT NULL;`
}
