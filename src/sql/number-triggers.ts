import { fitName, qualified, quote } from './identifier'
import { CAME, countBody, type CountedEvent, GONE } from './number-count'
import { placeNumberBody } from './number-place'
import { countColumn, type NumberTable } from './number-table'
import { differentScope, tableName } from './text-table'
import { FIRES, type Trigger, triggerSet, type TriggerNote, type TriggerSet } from './trigger-set'

/** Raised when a change of what the triggers do makes an installed set wrong; part of the note. */
const PROTOCOL_VERSION = 1

/** What of a declaration the rows depend on. */
const NOTED = ['scope', 'number', 'count', 'deleted'] as const

/** What the comment on the first function says. */
export interface NumberNote extends TriggerNote, Pick<NumberTable, (typeof NOTED)[number]> {
  readonly kind: 'numbers'
}

/** undefined where the note is that of another set, or of a version which wrote something else. */
export const asNumberNote = (note: TriggerNote): NumberNote | undefined =>
  note.kind === 'numbers' && note.protocol === PROTOCOL_VERSION ? (note as NumberNote) : undefined

/** What gives rows their numbers and keeps the count; docs/numbers.md says how, and why it is enough. */
export function numberTriggers(table: NumberTable): TriggerSet {
  const counting = table.count === undefined ? [] : EVENTS.map((event) => counter(table, event))
  return triggerSet({
    kind: 'numbers',
    name: table.name,
    table: { schema: table.schema, name: table.table },
    columns: columnsOf(table),
    docs: 'docs/numbers.md of the package says what it does, and why no two rows get one number.',
    functions: [
      {
        name: nameOf(table, 'place'),
        body: placeNumberBody(table),
        says: `gives a row the number after the highest ${quote(table.number)} of its scope.`,
      },
      ...counting.map(({ event, name }) => ({
        name,
        body: countBody(table, event),
        says: `keeps the number of rows in ${countColumn(table)} after each ${event}.`,
      })),
    ],
    triggers: (schema) => [
      ...placeTriggers({ ...table, schema }),
      ...counting.map((one) => countTrigger({ ...table, schema }, one)),
    ],
    note: { protocol: PROTOCOL_VERSION, ...Object.fromEntries(NOTED.map((key) => [key, table[key]])) },
  })
}

const columnsOf = ({ scope, number, count, deleted }: NumberTable): Readonly<Record<string, string>> => ({
  number,
  ...Object.fromEntries(scope.map(({ name }, position) => [`scope ${position}`, name])),
  ...(count === undefined ? {} : { count }),
  ...(deleted === undefined ? {} : { deleted }),
})

const EVENTS = ['insert', 'update', 'delete'] as const satisfies readonly CountedEvent[]

/** A function that counts, and the trigger of the same name. */
interface Counter {
  readonly event: CountedEvent
  readonly name: string
}

const nameOf = (table: NumberTable, suffix: string): string => fitName(`${table.triggers}_${suffix}`)

const counter = (table: NumberTable, event: CountedEvent): Counter => ({ event, name: nameOf(table, `count_${event}`) })

function placeTriggers(table: NumberTable): Trigger[] {
  const { scope, number, count } = table
  const columns = [...scope.map(({ name }) => name), number, ...(count === undefined ? [] : [count])]
  const moved = [
    ...differentScope({ scope: scope.map(({ name }) => name) }, 'OLD', 'NEW'),
    `NEW.${quote(number)} IS NULL`,
    ...(count === undefined ? [] : [written(table)]),
  ]
  const [insert, update] = [nameOf(table, 'place_insert'), nameOf(table, 'place_update')]
  const on = `ON ${tableName(table)} FOR EACH ROW`
  const run = `EXECUTE FUNCTION ${qualified(table.schema, nameOf(table, 'place'))}()`
  // A row that comes with a number, as a restored one does, is for the index to decide, and changes the count.
  const when = count === undefined ? `\n  WHEN (NEW.${quote(number)} IS NULL)` : ''
  return [
    {
      name: insert,
      runs: nameOf(table, 'place'),
      type: FIRES.row + FIRES.before + FIRES.insert,
      conditional: count === undefined,
      create: `CREATE TRIGGER ${quote(insert)}\n  BEFORE INSERT ${on}${when}\n  ${run}`,
    },
    {
      name: update,
      runs: nameOf(table, 'place'),
      type: FIRES.row + FIRES.before + FIRES.update,
      conditional: true,
      create: `CREATE TRIGGER ${quote(update)}
  BEFORE UPDATE OF ${columns.map(quote).join(', ')} ${on}
  WHEN (${moved.join('\n    OR ')})
  ${run}`,
    },
  ]
}

/** A client writes the count; the triggers themselves do it from within one. */
const written = (table: NumberTable): string =>
  `OLD.${countColumn(table)} IS DISTINCT FROM NEW.${countColumn(table)} AND pg_catalog.pg_trigger_depth() = 0`

function countTrigger(table: NumberTable, { event, name }: Counter): Trigger {
  const referencing = {
    insert: `NEW TABLE AS ${CAME}`,
    update: `OLD TABLE AS ${GONE} NEW TABLE AS ${CAME}`,
    delete: `OLD TABLE AS ${GONE}`,
  }[event]
  return {
    name,
    runs: name,
    type: FIRES[event],
    conditional: false,
    create: `CREATE TRIGGER ${quote(name)}
  AFTER ${event.toUpperCase()} ON ${tableName(table)}
  REFERENCING ${referencing} FOR EACH STATEMENT
  EXECUTE FUNCTION ${qualified(table.schema, name)}()`,
  }
}
