import { literal, quote } from '../sql/identifier'
import {
  differentKey,
  differentNames,
  hasKey,
  holderKey,
  holderRows,
  namedSet,
  nameField,
  namesOfRow,
  namesTableOf,
  newRows,
  NO_JOIN,
  oldRows,
  pathOf,
  refuseOtherHolder,
} from '../sql/name-body'
import { claimOldNames } from './name-change'
import type { HolderTable } from '../sql/name-table'
import { takeBody } from './name-take-body'
import { SQLSTATE } from '../sql/sqlstate'
import { equal, op } from '../sql/text-table'
import { type Firing, type Trigger, triggerOn, type TriggerSet, triggerSet } from '../sql/trigger-set'

/** Raised when a change of what the triggers do makes an installed set wrong. */
const PROTOCOL_VERSION = 1

/** What the set of a holder's table is called. */
export const HOLDER_SET = 'holder'

/**
 * The triggers of a table whose rows hold names: one set for all of its names.
 *
 * @param adopting the same triggers for a table of which a command claims the names: there are rows that hold none yet
 */
export function nameTriggersOf(holder: HolderTable, adopting = false): TriggerSet {
  const { schema, table, primary, names, of } = holder
  const [take, give] = [namedSet(table, 'take'), namedSet(table, 'give')]
  const path = pathOf(holder)
  const columns = names.map(({ column }) => `"${column}"`).join(', ')
  return triggerSet({
    kind: 'names',
    name: HOLDER_SET,
    table: { schema, name: table },
    ...(path ? { path } : {}),
    columns: Object.fromEntries(names.map(({ column }) => [column, column])),
    docs: 'docs/protocol-names.md',
    functions: [
      {
        name: take,
        body: takeBody(holder, adopting),
        says: `gives rows the names in ${columns}, and takes those they had.`,
      },
      { name: give, body: giveBody(holder, adopting), says: `takes the names in ${columns} from rows that go.` },
    ],
    triggers: (home) => triggersOf({ ...holder, schema: home }, take, give),
    note: {
      protocol: PROTOCOL_VERSION,
      ...(adopting ? { adopting } : {}),
      holder: holder.holder,
      primary,
      names,
      of: { ...of, digest: of.digest.name },
    },
  })
}

function triggersOf(holder: HolderTable, take: string, give: string): Trigger[] {
  const { schema, table } = holder
  const [was, is] = [`OLD TABLE AS ${oldRows(holder)}`, `NEW TABLE AS ${newRows(holder)}`]
  const trigger = (event: Firing['events'][number], firing: Omit<Firing, 'name' | 'time' | 'events'>): Trigger =>
    triggerOn({ schema, name: table }, { name: namedSet(table, event), time: 'AFTER', events: [event], ...firing })
  return [
    trigger('insert', { each: 'STATEMENT', referencing: is, runs: take }),
    // The first row that differs does the work for the whole statement; other UPDATEs run no function.
    {
      ...trigger('update', {
        referencing: `${was} ${is}`,
        when: [...differentNames(holder, 'OLD', 'NEW'), ...differentKey(holder, 'OLD', 'NEW')],
        runs: take,
      }),
      compares: [...holder.primary.map(({ name }) => name), ...holder.names.map(({ column }) => column)],
    },
    trigger('delete', { each: 'STATEMENT', referencing: was, runs: give }),
    trigger('truncate', { each: 'STATEMENT', runs: give }),
  ]
}

/** AFTER DELETE and AFTER TRUNCATE, for each statement: all names of a row go with it, former ones too. */
function giveBody(holder: HolderTable, adopting: boolean): string {
  const { of } = holder
  const names = namesTableOf(holder)
  const id = nameField(of, 'n', 'id')
  return `
#variable_conflict use_variable
DECLARE
  gone pg_catalog.int8[];
  keys pg_catalog.jsonb[];${adopting ? '\n  one record;' : ''}
BEGIN${refuseOtherHolder(holder)}${truncated(holder)}${adopting ? claimOldNames(holder) : ''}
  SELECT pg_catalog.array_agg(n.id), pg_catalog.array_agg(n.key) INTO gone, keys
  FROM (
    SELECT n.*
    FROM ${oldRows(holder)} AS r
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
