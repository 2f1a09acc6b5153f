import { fitName, list, literal, qualified, quote } from './identifier'
import { differentChain, differentText, isFreed, isLive, type TextTable, tableName } from './text-table'
import { FIRES, type Trigger } from './trigger-set'

/** What a trigger's name adds to that of the guard. */
type Suffix = 'place_insert' | 'place_update' | 'settle_insert' | 'settle_update' | 'settle_delete'

const { row, before, insert, update } = FIRES
const TYPES: Readonly<Record<Suffix, number>> = {
  place_insert: row + before + insert,
  place_update: row + before + update,
  settle_insert: row + insert,
  settle_update: row + update,
  settle_delete: row + FIRES.delete,
}

export const triggerName = (table: TextTable, suffix: Suffix): string => fitName(`${table.guard}_${suffix}`)

/** The columns that `place_update` names, in this order; by them `settle` finds that one was renamed. */
export const watchedColumns = ({ text, scope, hash, number, chained, deleted }: TextTable): string[] => [
  ...text.map(({ name }) => name),
  ...scope,
  hash,
  number,
  chained,
  ...(deleted === undefined ? [] : [deleted]),
]

/** The five triggers, in the order to create; docs/protocol.md says what each is for. */
export function guardTriggers(table: TextTable, place: string, settle: string): Trigger[] {
  return [...placeTriggers(table, place), ...settleTriggers(table, settle)]
}

function placeTriggers(table: TextTable, place: string): Trigger[] {
  const [hash, number, chained] = [quote(table.hash), quote(table.number), quote(table.chained)]
  const columns = list(watchedColumns(table).map(quote), 4)
  const call: Call = { name: place, argument: String(table.maxChainLength) }
  const moved = [
    ...differentText(table, 'OLD', 'NEW'),
    ...differentChain(table, 'OLD', 'NEW'),
    `OLD.${number} IS DISTINCT FROM NEW.${number}`,
    `OLD.${chained} AND NEW.${chained} IS NOT TRUE`,
    ...restored(table),
  ]
  return [
    trigger(table, 'place_insert', call, [
      'BEFORE INSERT',
      '-- With hash and number 0 from the client nothing runs: check and index decide.',
      `WHEN (NEW.${hash} IS NULL OR NEW.${number} IS DISTINCT FROM 0)`,
    ]),
    trigger(table, 'place_update', call, [
      `BEFORE UPDATE OF ${columns}\n `,
      '-- Naming columns keeps other UPDATEs from preparing this condition. The check reads the text at each of them.',
      `WHEN (${moved.join('\n    OR ')})`,
    ]),
  ]
}

/** The row was deleted softly and takes its text again; for an OR. */
function restored(table: TextTable): string[] {
  return table.deleted === undefined ? [] : [[...isFreed(table, 'OLD'), ...isLive(table, 'NEW')].join(' AND ')]
}

/**
 * Conditions as short as can be: the server parses and plans them once for each statement that writes to the table, and
 * they are false for practically every row. What else must hold, the function looks at.
 */
function settleTriggers(table: TextTable, settle: string): Trigger[] {
  const [number, chained] = [quote(table.number), quote(table.chained)]
  const call: Call = { name: settle }
  return [
    trigger(table, 'settle_insert', call, [
      'AFTER INSERT',
      '-- AFTER: in a BEFORE trigger an UPDATE over several rows of a chain would meet rows that its own trigger',
      '-- has changed, and fail with 27000 for ever.',
      `WHEN (NEW.${number} > 0)`,
    ]),
    trigger(table, 'settle_update', call, [
      'AFTER UPDATE',
      "-- No columns are named: a user's own BEFORE trigger may change those that the statement does not name.",
      `WHEN (OLD.${chained} OR NEW.${chained} OR NEW.${number} > 0)`,
    ]),
    trigger(table, 'settle_delete', call, [
      'AFTER DELETE',
      '-- Only an anchor that has, or had, others: every other DELETE is free of the function.',
      `WHEN (OLD.${chained})`,
    ]),
  ]
}

/** The function that a trigger runs, with its argument. */
interface Call {
  readonly name: string
  readonly argument?: string
}

function trigger(table: TextTable, suffix: Suffix, call: Call, [event = '', ...when]: readonly string[]): Trigger {
  const name = triggerName(table, suffix)
  const lines = [
    `CREATE TRIGGER ${quote(name)}`,
    `${event} ON ${tableName(table)} FOR EACH ROW`,
    ...when,
    `EXECUTE FUNCTION ${qualified(table.schema, call.name)}(${call.argument === undefined ? '' : literal(call.argument)})`,
  ]
  return { name, runs: call.name, type: TYPES[suffix], conditional: true, create: lines.join('\n  ') }
}
