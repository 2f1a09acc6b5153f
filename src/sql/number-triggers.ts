import { qualified, quote } from './identifier'
import { CAME, countBody, GONE } from './number-count'
import { placeNumberBody } from './number-place'
import { type NumberTable, sameScopes, scopesName } from './number-table'
import { tableName } from './text-table'
import { FIRES, type Trigger, triggerSet, type TriggerNote, type TriggerSet } from './trigger-set'

/** Raised when a change of what the triggers do makes an installed set wrong; part of the note. */
const PROTOCOL_VERSION = 1

/** What of a declaration the rows depend on. */
const NOTED = ['scope', 'number', 'type', 'count', 'deleted'] as const

/** What the comment on the first function says. */
export interface NumberNote extends TriggerNote, Pick<NumberTable, (typeof NOTED)[number]> {
  readonly kind: 'numbers'
  /** `triggers` of the table; by it the table of scopes is found. */
  readonly prefix: string
}

/** undefined where the note is that of another set, or of a version which wrote something else. */
export const asNumberNote = (note: TriggerNote): NumberNote | undefined =>
  note.kind === 'numbers' && note.protocol === PROTOCOL_VERSION ? (note as NumberNote) : undefined

/** What gives rows their numbers and keeps the count; docs/numbers.md says how, and why it is enough. */
export function numberTriggers(table: NumberTable): TriggerSet {
  const [place, count] = [nameOf(table, 'place'), nameOf(table, 'count')]
  return triggerSet({
    kind: 'numbers',
    name: table.name,
    table: { schema: table.schema, name: table.table },
    columns: columnsOf(table),
    tables: [scopesName(table)],
    docs: 'docs/numbers.md',
    functions: [
      {
        name: place,
        body: placeNumberBody(table),
        says: 'gives a row the number after the highest of its scope.',
      },
      ...(table.count ? [{ name: count, body: countBody(table), says: 'counts the rows of each scope.' }] : []),
    ],
    triggers: (schema) => [
      ...placeTriggers({ ...table, schema }, place),
      ...(table.count ? EVENTS.map((event) => countTrigger({ ...table, schema }, count, event)) : []),
    ],
    note: {
      protocol: PROTOCOL_VERSION,
      ...Object.fromEntries(NOTED.map((key) => [key, table[key]])),
      prefix: table.triggers,
    },
  })
}

const columnsOf = ({ scope, number, deleted }: NumberTable): Readonly<Record<string, string>> => ({
  number,
  ...Object.fromEntries(scope.map(({ name }, position) => [`scope ${position}`, name])),
  ...(deleted === undefined ? {} : { deleted }),
})

const EVENTS = ['insert', 'update', 'delete', 'truncate'] as const

const nameOf = (table: NumberTable, suffix: string): string => `${table.triggers}_${suffix}`

function placeTriggers(table: NumberTable, runs: string): Trigger[] {
  const number = `NEW.${quote(table.number)} IS NULL`
  const same = sameScopes(table, 'OLD', 'NEW')
  const moved = same.length === 0 ? [] : [`(${same.join('\n    AND ')}) IS NOT TRUE`]
  const trigger = (event: 'insert' | 'update', each: 'ROW' | 'STATEMENT', when: readonly string[] = []): Trigger => {
    const name = nameOf(table, `place_${event}${each === 'ROW' ? '' : 's'}`)
    const condition = when.length === 0 ? '' : `\n  WHEN (${when.join('\n    OR ')})`
    return {
      name,
      runs,
      type: FIRES.before + FIRES[event] + (each === 'ROW' ? FIRES.row : 0),
      conditional: when.length > 0,
      create: `CREATE TRIGGER ${quote(name)}
  BEFORE ${event.toUpperCase()} ON ${tableName(table)} FOR EACH ${each}${condition}
  EXECUTE FUNCTION ${qualified(table.schema, runs)}()`,
    }
  }
  // A row that comes with a number, as a restored one does, is for the index to decide. With a count it comes by all the
  // same: its statement may have named the whole of a partition. Of an UPDATE no columns are named, for another trigger
  // may derive the scope.
  return [
    trigger('insert', 'STATEMENT'),
    trigger('insert', 'ROW', table.count ? [] : [number]),
    trigger('update', 'ROW', [...moved, number]),
  ]
}

function countTrigger(table: NumberTable, runs: string, event: (typeof EVENTS)[number]): Trigger {
  const name = nameOf(table, `count_${event}`)
  const referencing = {
    insert: `NEW TABLE AS ${CAME}`,
    update: `OLD TABLE AS ${GONE} NEW TABLE AS ${CAME}`,
    delete: `OLD TABLE AS ${GONE}`,
    truncate: '',
  }[event]
  return {
    name,
    runs,
    type: FIRES[event],
    conditional: false,
    create: `CREATE TRIGGER ${quote(name)}
  AFTER ${event.toUpperCase()} ON ${tableName(table)}${referencing === '' ? '' : `\n  REFERENCING ${referencing}`} FOR EACH STATEMENT
  EXECUTE FUNCTION ${qualified(table.schema, runs)}()`,
  }
}
