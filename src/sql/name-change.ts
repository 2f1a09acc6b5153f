import { literal } from './identifier'
import { differ, holderKey, nameFields, namesOfRow, namesTableOf, newest, standingRow } from './name-body'
import { columnsToInsert, hashed, onConflict } from './name-claim'
import { releaseNames } from './name-release'
import type { HolderTable } from './name-table'
import { equal, op } from './text-table'

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
      ${isOne}NOT EXISTS (SELECT FROM new_rows OFFSET 1) AS is_alone
    INTO one
    FROM ${standingRow(holder, 'NEW')}
    ${namesOfRow(holder)}
    ${heldByRow(holder)}
    WHERE ${IS_DIFFERENT};`
}
