import { qualified, quote } from './identifier'
import { differentKey, differentNames, namedSet, pathOf } from './name-body'
import { giveBody } from './name-give'
import type { HolderTable } from './name-table'
import { takeBody } from './name-take'
import { FIRES, type Trigger, type TriggerSet, triggerSet } from './trigger-set'

/** Raised when a change of what the triggers do makes an installed set wrong. */
const PROTOCOL_VERSION = 1

/** What the set of a holder's table is called. */
export const HOLDER_SET = 'holder'

/** The triggers of a table whose rows hold names: one set for all of its names. */
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
    columns: Object.fromEntries(names.map(({ column }) => [column, column])),
    docs: 'docs/protocol-names.md of the package says what it does, and why no name is held twice.',
    functions: [
      { name: take, body: takeBody(holder), says: `gives rows the names in ${columns}, and takes those they had.` },
      { name: give, body: giveBody(holder), says: `takes the names in ${columns} from rows that go.` },
    ],
    triggers: (home) => triggersOf({ ...holder, schema: home }, take, give),
    note: { protocol: PROTOCOL_VERSION, holder: holder.holder, primary, names, of: { ...of, digest: of.digest.name } },
  })
}

const { row, insert, update, truncate } = FIRES
const OLD_ROWS = 'OLD TABLE AS old_rows'
const NEW_ROWS = 'NEW TABLE AS new_rows'

function triggersOf(holder: HolderTable, take: string, give: string): Trigger[] {
  const changed = [...differentNames(holder, 'OLD', 'NEW'), ...differentKey(holder, 'OLD', 'NEW')].join('\n    OR ')
  const compares = [...holder.primary.map(({ name }) => name), ...holder.names.map(({ column }) => column)]
  const each = 'FOR EACH STATEMENT'
  return [
    trigger(holder, take, { event: 'insert', type: insert, lines: [`REFERENCING ${NEW_ROWS}`, each] }),
    trigger(holder, take, {
      event: 'update',
      type: row + update,
      compares,
      lines: [
        `REFERENCING ${OLD_ROWS} ${NEW_ROWS}`,
        '-- The first row that differs does the work for the whole statement; other UPDATEs run no function.',
        'FOR EACH ROW',
        `WHEN (${changed})`,
      ],
    }),
    trigger(holder, give, { event: 'delete', type: FIRES.delete, lines: [`REFERENCING ${OLD_ROWS}`, each] }),
    trigger(holder, give, { event: 'truncate', type: truncate, lines: [each] }),
  ]
}

interface Firing extends Pick<Trigger, 'type' | 'compares'> {
  readonly event: string
  readonly lines: readonly string[]
}

function trigger({ schema, table }: HolderTable, runs: string, { event, lines, ...firing }: Firing): Trigger {
  const name = namedSet(table, event)
  const all = [
    `CREATE TRIGGER ${quote(name)}`,
    `AFTER ${event.toUpperCase()} ON ${qualified(schema, table)}`,
    ...lines,
    `EXECUTE FUNCTION ${qualified(schema, runs)}()`,
  ]
  return { ...firing, name, runs, conditional: lines.some((line) => line.startsWith('WHEN')), create: all.join('\n  ') }
}
