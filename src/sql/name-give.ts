import { literal, quote } from './identifier'
import {
  hasKey,
  holderKey,
  holderRows,
  nameField,
  namesOfRow,
  namesTableOf,
  NO_JOIN,
  refuseOtherHolder,
} from './name-body'
import type { HolderTable } from './name-table'
import { SQLSTATE } from './sqlstate'
import { equal, op } from './text-table'

/** AFTER DELETE and AFTER TRUNCATE, for each statement: all names of a row go with it, former ones too. */
export function giveBody(holder: HolderTable): string {
  const { of } = holder
  const names = namesTableOf(holder)
  const id = nameField(of, 'n', 'id')
  return `
#variable_conflict use_column
DECLARE
  gone pg_catalog.int8[];
  keys pg_catalog.jsonb[];
BEGIN${refuseOtherHolder(holder)}${truncated(holder)}
  SELECT pg_catalog.array_agg(n.id), pg_catalog.array_agg(n.key) INTO gone, keys
  FROM (
    SELECT n.*
    FROM old_rows AS r
    CROSS JOIN LATERAL (
      SELECT ${id} AS id, ${nameField(of, 'n', 'key')} AS key,
        ${nameField(of, 'n', 'namespace')} AS namespace, ${nameField(of, 'n', 'hash')} AS hash
      FROM ${names} AS n
      WHERE ${equal(nameField(of, 'n', 'key'), holderKey(holder, 'r'))}
        AND ${equal(nameField(of, 'n', 'holder'), literal(holder.holder))}
        AND ${isGone(holder)}
      ${NO_JOIN}
    ) AS n
    ORDER BY n.namespace, n.hash
  ) AS n;
  IF pg_catalog.cardinality(gone) ${op('>')} 1 THEN
    -- In the order in which every statement locks names. A former name that has expired may have another holder by now.
    gone := ARRAY(
      SELECT n.id FROM ROWS FROM (pg_catalog.unnest(gone), pg_catalog.unnest(keys)) AS u (id, key)
      CROSS JOIN LATERAL (
        SELECT ${id} AS id FROM ${names} AS n
        WHERE ${equal(id, 'u.id')} AND ${isStill(holder, 'u.key')}
        FOR NO KEY UPDATE
      ) AS n
    );
  END IF;
  DELETE FROM ${names} AS n
  WHERE ${equal(id, 'ANY (gone)')}
    AND (pg_catalog.cardinality(keys) ${op('>')} 1
      OR ${isStill(holder, 'keys[1]')});
  RETURN NULL;
END
`
}

function truncated(table: HolderTable): string {
  return `
  IF ${equal('TG_OP', `'TRUNCATE'`)} THEN
    -- It takes rows that an older snapshot does not show; their names would stay, and nobody could have them.
    IF pg_catalog.current_setting('transaction_isolation') ${op('!~~')} 'read %' THEN
      RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.featureNotSupported}',
        MESSAGE = 'a table whose rows hold names can be truncated at READ COMMITTED only',
        SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
    DELETE FROM ${namesTableOf(table)} AS n
    WHERE ${equal(nameField(table.of, 'n', 'holder'), literal(table.holder))};
    RETURN NULL;
  END IF;`
}

/** The name has the holder that it had when its row went. */
const isStill = ({ holder, of }: HolderTable, key: string): string =>
  `${equal(nameField(of, 'n', 'holder'), literal(holder))}
          AND ${equal(nameField(of, 'n', 'key'), key)}`

/** A trigger of the user may have put the row back, and a row of a child by INHERITS may have the key of another. */
function isGone(holder: HolderTable): string {
  const { of } = holder
  const same = hasKey(holder, 't', (name) => `r.${quote(name)}`)
  return `NOT EXISTS (
          SELECT FROM ${holderRows(holder)}
          ${namesOfRow(holder)}
          WHERE ${same.join(' AND ')}
            AND ${equal('v.property', nameField(of, 'n', 'property'))}
            AND (${nameField(of, 'n', 'state')} ${op('<>')} 'held'
              OR ${equal('v.text', `${nameField(of, 'n', 'text')} COLLATE pg_catalog."C"`)})
          ${NO_JOIN}
        )`
}
