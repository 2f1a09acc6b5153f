import { literal } from './identifier'
import { holderKey, nameFields, namesOfRow, namesTableOf, NO_JOIN } from './name-body'
import { hashed } from './name-change'
import type { HolderTable } from './name-table'
import { equal, op } from './text-table'

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
        FROM old_rows AS r
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
