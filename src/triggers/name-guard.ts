import { literal } from '../sql/identifier'
import { differ, namedSet, nameField, refuseOtherTable } from '../sql/name-body'
import type { NamesTable } from '../sql/name-table'
import { SQLSTATE } from '../sql/sqlstate'
import { type Firing, type Trigger, TRIGGER_MARK, triggerOn, type TriggerSet, triggerSet } from '../sql/trigger-set'
import { equal, op } from '../sql/text-table'

/** Raised when a change of what the triggers do makes an installed set wrong. */
const PROTOCOL_VERSION = 1

const nameOf = ({ table }: Pick<NamesTable, 'table'>, suffix: string): string => namedSet(table, suffix)

/** Names of the triggers that keep held names from being written directly. */
export const directWrites = (names: Pick<NamesTable, 'table'>): string[] =>
  ['insert', 'update', 'delete'].map((event) => nameOf(names, event))

/**
 * The triggers of the table of names itself: whoever wants a held name changed changes its holder. What our own triggers
 * do there, as any other that is at work, is deeper than the statement of a client.
 */
export function namesGuard(names: NamesTable): TriggerSet {
  const runs = nameOf(names, 'refuse')
  return triggerSet({
    kind: 'names',
    name: 'direct',
    table: { schema: names.schema, name: names.table },
    docs: 'docs/protocol-names.md',
    functions: [
      { name: runs, body: refuseBody(names), says: 'refuses to change a name that is held but through its holder.' },
    ],
    triggers: (schema) => refusals({ ...names, schema }, runs),
    note: { protocol: PROTOCOL_VERSION },
  })
}

/** What else must hold, the function looks at: the server plans a condition anew for each statement, ours included. */
const DIRECT = equal('pg_catalog.pg_trigger_depth()', '0')

function refusals(names: NamesTable, runs: string): Trigger[] {
  const trigger = (event: Firing['events'][number], firing: Pick<Firing, 'time' | 'each' | 'when'>): Trigger =>
    triggerOn(
      { schema: names.schema, name: names.table },
      { name: nameOf(names, event), events: [event], runs, ...firing },
    )
  return [
    ...(['insert', 'update', 'delete'] as const).map((event) => trigger(event, { time: 'BEFORE', when: [DIRECT] })),
    trigger('truncate', { time: 'AFTER', each: 'STATEMENT' }),
  ]
}

/** The size of a table says whether it has rows, and needs no privilege: TRUNCATE leaves none. */
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
    SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
END
`
}
