import { quote } from './identifier'
import { CAME, countBody, GONE } from './number-count'
import { placeNumberBody } from './number-place'
import { type NumberTable, sameScopes, scopesName } from './number-table'
import type { RelationName } from './trigger-ddl'
import { type Trigger, triggerOn, triggerSet, type TriggerNote, type TriggerSet } from './trigger-set'

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

const onTable = ({ schema, table }: NumberTable): RelationName => ({ schema, name: table })

function placeTriggers(table: NumberTable, runs: string): Trigger[] {
  const number = `NEW.${quote(table.number)} IS NULL`
  const same = sameScopes(table, 'OLD', 'NEW')
  const moved = same.length === 0 ? [] : [`(${same.join('\n    AND ')}) IS NOT TRUE`]
  const trigger = (event: 'insert' | 'update', each: 'ROW' | 'STATEMENT', when: readonly string[] = []): Trigger =>
    triggerOn(onTable(table), {
      name: nameOf(table, `place_${event}${each === 'ROW' ? '' : 's'}`),
      time: 'BEFORE',
      events: [event],
      each,
      when,
      runs,
    })
  // A row that comes with a number, as a restored one does, is for the index to decide. With a count it comes by all the
  // same: its statement may have named the whole of a partition. Of an UPDATE no columns are named, for another trigger
  // may derive the scope.
  return [
    trigger('insert', 'STATEMENT'),
    trigger('insert', 'ROW', table.count ? [] : [number]),
    trigger('update', 'ROW', [...moved, number]),
  ]
}

const OLD_ROWS = `OLD TABLE AS ${GONE}`
const NEW_ROWS = `NEW TABLE AS ${CAME}`

function countTrigger(table: NumberTable, runs: string, event: (typeof EVENTS)[number]): Trigger {
  const referencing = { insert: NEW_ROWS, update: `${OLD_ROWS} ${NEW_ROWS}`, delete: OLD_ROWS, truncate: undefined }[
    event
  ]
  return triggerOn(onTable(table), {
    name: nameOf(table, `count_${event}`),
    time: 'AFTER',
    events: [event],
    each: 'STATEMENT',
    ...(referencing === undefined ? {} : { referencing }),
    runs,
  })
}
