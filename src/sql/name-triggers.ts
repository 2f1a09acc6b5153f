import { differentKey, differentNames, namedSet, pathOf } from './name-body'
import { giveBody } from './name-give'
import type { HolderTable } from './name-table'
import { takeBody } from './name-take'
import { type Firing, type Trigger, triggerOn, type TriggerSet, triggerSet } from './trigger-set'

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
    docs: 'docs/protocol-names.md',
    functions: [
      { name: take, body: takeBody(holder), says: `gives rows the names in ${columns}, and takes those they had.` },
      { name: give, body: giveBody(holder), says: `takes the names in ${columns} from rows that go.` },
    ],
    triggers: (home) => triggersOf({ ...holder, schema: home }, take, give),
    note: { protocol: PROTOCOL_VERSION, holder: holder.holder, primary, names, of: { ...of, digest: of.digest.name } },
  })
}

const OLD_ROWS = 'OLD TABLE AS old_rows'
const NEW_ROWS = 'NEW TABLE AS new_rows'

function triggersOf(holder: HolderTable, take: string, give: string): Trigger[] {
  const { schema, table } = holder
  const trigger = (event: Firing['events'][number], firing: Omit<Firing, 'name' | 'time' | 'events'>): Trigger =>
    triggerOn({ schema, name: table }, { name: namedSet(table, event), time: 'AFTER', events: [event], ...firing })
  return [
    trigger('insert', { each: 'STATEMENT', referencing: NEW_ROWS, runs: take }),
    // The first row that differs does the work for the whole statement; other UPDATEs run no function.
    {
      ...trigger('update', {
        referencing: `${OLD_ROWS} ${NEW_ROWS}`,
        when: [...differentNames(holder, 'OLD', 'NEW'), ...differentKey(holder, 'OLD', 'NEW')],
        runs: take,
      }),
      compares: [...holder.primary.map(({ name }) => name), ...holder.names.map(({ column }) => column)],
    },
    trigger('delete', { each: 'STATEMENT', referencing: OLD_ROWS, runs: give }),
    trigger('truncate', { each: 'STATEMENT', runs: give }),
  ]
}
