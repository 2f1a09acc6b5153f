import { literal, quote } from '../../sql/identifier'
import {
  differ,
  differentKey,
  differentNames,
  hasKey,
  holderKey,
  holderRows,
  type HolderTable,
  namedSet,
  nameField,
  namesOfRow,
  namesTableOf,
  newRows,
  NO_JOIN,
  oldRows,
  pathOf,
  refuseRenamedColumns,
  refuseOtherTable,
} from './fragments'
import type { Former } from '../../registry/registry'
import type { NamesTable } from '../../sql/names-table'
import { OF_TABLE, SQLSTATE } from '../../sql/sqlstate'
import { equal, op } from '../../sql/text-table'
import {
  type Firing,
  type RemovedFrom,
  type RemovedRows,
  type Trigger,
  TRIGGER_MARK,
  type TriggerNote,
  triggerOn,
  type TriggerSet,
  triggerSet,
} from '../../sql/trigger-set'
import { type DigestName, digests } from '../../text/digest'
import { claimAllNames, type HolderNote, releaseAllNames } from './claim-all'
import { onRows, requireHolder, shardVariables } from './shards'
import { takeBody } from './take'

/** The name of the trigger set on a holder's table. */
export const HOLDER_SET = 'holder'

/** The version in the note. Raise it if a change of the triggers makes an installed set wrong. */
const PROTOCOL_VERSION = 1

/** Returns the triggers of a table whose rows hold names, as one set for all of its names. */
export function nameTriggersOf(holder: HolderTable): TriggerSet {
  const { schema, table, primary, names, of } = holder
  const [take, give] = [namedSet(table, 'take'), namedSet(table, 'give')]
  const path = pathOf(holder)
  const columns = names.map(({ column }) => `"${column}"`).join(', ')
  return triggerSet({
    kind: 'names',
    name: HOLDER_SET,
    table: { schema, name: table },
    ...(path ? { path } : {}),
    writes: { schema: of.schema, name: of.table },
    columns: Object.fromEntries(names.map(({ column }) => [column, column])),
    docs: 'maintainers/protocol-names.md',
    functions: [
      {
        name: take,
        body: takeBody(holder),
        says: `makes rows hold the names in ${columns}, and releases those they had.`,
      },
      {
        name: give,
        body: giveBody(holder),
        says: `releases the names in ${columns} of rows that are deleted.`,
      },
    ],
    triggers: (home) => triggersOf({ ...holder, schema: home }, take, give),
    note: {
      protocol: PROTOCOL_VERSION,
      holder: holder.holder,
      primary,
      names,
      // A common schema is left out, because a DataSource that names it and one that omits it mean the same.
      of: { ...of, schema: of.schema === schema ? undefined : of.schema, digest: of.digest.name },
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
    // The first row that differs does the work for the whole statement. Other UPDATEs run no function.
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

/** Runs AFTER DELETE and AFTER TRUNCATE for each statement. It removes all names of the rows, former ones too. */
function giveBody(holder: HolderTable): string {
  const { of } = holder
  const names = namesTableOf(holder)
  const id = nameField(of, 'n', 'id')
  const find = `
  SELECT pg_catalog.array_agg(n.id), pg_catalog.array_agg(n.key)
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
  ) AS n`
  return `
#variable_conflict use_variable
DECLARE
  gone pg_catalog.int8[];
  keys pg_catalog.jsonb[];${shardVariables(holder)}
BEGIN${requireHolder(holder)}${refuseRenamedColumns(holder)}${truncated(holder)}${onRows(holder, find)}
  INTO gone, keys;
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
        ${OF_TABLE};
    END IF;
    DELETE FROM ${namesTableOf(table)} AS n
    WHERE ${equal(nameField(table.of, 'n', 'holder'), literal(table.holder))};
    RETURN NULL;
  END IF;`
}

/** The condition that the name still has the holder that it had when its row was deleted. */
const isStill = ({ holder, of }: HolderTable, key: string): string =>
  `${equal(nameField(of, 'n', 'holder'), literal(holder))}
          AND ${equal(nameField(of, 'n', 'key'), key)}`

/** Skips existing rows: a user's trigger may have restored one, and a row of a child by INHERITS may share its key. */
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

/** The note on a holder's table. */
interface NoteOfNames extends TriggerNote, HolderNote {
  readonly primary: HolderTable['primary']
  readonly of: Omit<NamesTable, 'digest'> & { readonly digest: string }
}

/** Returns the holder's table that a note describes, or undefined for another kind of note. */
export function notedHolder(
  note: Former,
  { schema, table, of: now }: Pick<RemovedFrom, 'schema' | 'table'> & Partial<Pick<HolderTable, 'of'>>,
): HolderTable | undefined {
  if (note.kind !== 'names' || note.name !== HOLDER_SET) return undefined
  const { holder, primary, names, of } = note as NoteOfNames
  const digest = digests[of.digest as DigestName] ?? digests.md5
  // If the note has no path, both tables were in one schema.
  const home = now ? now.schema : note.path ? undefined : schema
  return { schema, table, holder, primary, names, of: { ...of, schema: of.schema ?? home, digest } }
}

/** Removes the names of a table with their declaration. A revert makes the rows hold them again. */
export function removedNames(note: Former, from: RemovedFrom): RemovedRows {
  const holder = notedHolder(note, from)
  return holder ? { change: { up: [releaseAllNames(holder)], down: [claimAllNames(holder)] } } : {}
}

/** The version in the note. Raise it if a change of the triggers makes an installed set wrong. */
const DIRECT_PROTOCOL_VERSION = 1

/**
 * Returns the triggers of the table of names, which refuse direct changes of held names: a user changes the holder.
 * They ignore writes of any trigger, such as ours, because these are deeper than the statement of a client.
 */
export function namesGuard(names: NamesTable): TriggerSet {
  const runs = namedSet(names.table, 'refuse')
  return triggerSet({
    kind: 'names',
    name: 'direct',
    table: { schema: names.schema, name: names.table },
    docs: 'maintainers/protocol-names.md',
    functions: [
      { name: runs, body: refuseBody(names), says: 'refuses to change a name that is held but through its holder.' },
    ],
    triggers: (schema) => refusals({ ...names, schema }, runs),
    note: { protocol: DIRECT_PROTOCOL_VERSION },
  })
}

/** The only condition. The function checks the rest: the server plans a condition for every statement, even ours. */
const DIRECT = equal('pg_catalog.pg_trigger_depth()', '0')

function refusals(names: NamesTable, runs: string): Trigger[] {
  const trigger = (event: Firing['events'][number], firing: Pick<Firing, 'time' | 'each' | 'when'>): Trigger =>
    triggerOn(
      { schema: names.schema, name: names.table },
      { name: namedSet(names.table, event), events: [event], runs, ...firing },
    )
  return [
    ...(['insert', 'update', 'delete'] as const).map((event) => trigger(event, { time: 'BEFORE', when: [DIRECT] })),
    trigger('truncate', { time: 'AFTER', each: 'STATEMENT' }),
  ]
}

/** Reads from a table's size whether it has rows, which needs no privilege. After TRUNCATE the size is zero. */
function refuseBody(names: NamesTable): string {
  const state = (row: string): string => nameField(names, row, 'state')
  const isHeld = (row: string): string => equal(state(row), `'held'`)
  const all = (row: string): string[] =>
    (['namespace', 'text', 'holder', 'property', 'key', 'state'] as const).map((one) => nameField(names, row, one))
  const on = (operation: string): string => equal('TG_OP', `'${operation}'`)
  return `
BEGIN${refuseOtherTable(names.table)}
  IF ${on('DELETE')} AND NOT ${isHeld('OLD')} THEN
    RETURN OLD;
  ELSIF (${on('INSERT')}
      OR ${on('UPDATE')} AND NOT ${isHeld('OLD')})
    AND (${equal(state('NEW'), `'reserved'`)} OR ${equal(state('NEW'), `'redirect'`)}) THEN
    RETURN NEW;
  ELSIF ${on('UPDATE')}
    AND NOT (
      ${differ(all('OLD'), all('NEW'))}
    ) THEN
    RETURN NEW;
  ELSIF ${on('TRUNCATE')} AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_trigger AS t
    JOIN pg_catalog.pg_proc AS p ON ${equal('p.oid', 't.tgfoid')}
    WHERE pg_catalog.strpos(p.prosrc, ${literal(`${TRIGGER_MARK}names`)}) ${op('>')} 0
      AND t.tgrelid ${op('<>')} TG_RELID
      -- Of this table of names: its schema is where they find names, or stands before its name. Settings of the
      -- session decide what is quoted.
      AND (pg_catalog.strpos(
        pg_catalog.translate(pg_catalog.array_to_string(p.proconfig, ' '), '"', ''),
        pg_catalog.translate(pg_catalog.format(' %s,', TG_TABLE_SCHEMA), '"', '')) ${op('>')} 0
      OR pg_catalog.strpos(
        pg_catalog.translate(p.prosrc, '"', ''),
        pg_catalog.translate(pg_catalog.concat(TG_TABLE_SCHEMA, '.', TG_TABLE_NAME), '"', '')) ${op('>')} 0)
      AND pg_catalog.pg_relation_size(t.tgrelid) ${op('>')} 0
  ) THEN
    -- The holders' tables are empty too, perhaps by the same statement.
    RETURN NULL;
  END IF;
  RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.heldName}',
    MESSAGE = 'a name that is held cannot be written directly, and a former one is "reserved" or "redirect"',
    HINT = 'Change or delete the row that holds it: the name follows in the same statement.',
    ${OF_TABLE};
END
`
}
