import type { Finding } from '../errors'
import type { TableState } from '../sql/catalog'
import { guardsOf } from '../triggers/guard'
import { indexCondition, sameCondition } from '../sql/alter'
import type { TextTable } from '../sql/text-table'
import { installedFunction, noteDifference, triggerDifference } from '../triggers/trigger-plan'
import { parseNote, type TriggerSet } from '../sql/trigger-set'
import type { TriggerWork, UniqueIndex } from '../registry/registry'

/** What contradicts the declaration; empty if nothing does. */
export function findDrift(table: TextTable, state: TableState | null): Finding[] {
  if (!state) return [{ kind: 'missing', object: 'table', name: table.table }]
  return [
    ...columnDrift(table, state),
    ...indexDrift(indexOf(table), state),
    ...checkDrift(table, state),
    ...guardsOf(table).flatMap((guard) => triggerDrift(guard, state)),
  ]
}

/** Hidden columns that are missing, or have another type. */
export function columnDrift(table: TextTable, { columns }: TableState): Finding[] {
  const types: Record<string, string> = {
    [table.hash]: table.digest.type,
    [table.number]: 'integer',
    [table.chained]: 'boolean',
  }
  return Object.entries(types).flatMap(([name, type]): Finding[] => {
    const found = columns.find((column) => column.name === name)
    if (!found) return [{ kind: 'missing', object: 'column', name }]
    // With quote_all_identifiers the server quotes the names of types too.
    return found.type.replaceAll('"', '') === type ? [] : [{ kind: 'different', object: 'column', name }]
  })
}

function indexDrift({ name, columns, where }: UniqueIndex, { indexes }: TableState): Finding[] {
  const found = indexes.find((one) => one.name === name)
  if (!found) return [{ kind: 'missing', object: 'index', name }]
  if (!found.valid) return [{ kind: 'invalid', object: 'index', name }]
  const same =
    found.unique && sameCondition(where, found.condition) && JSON.stringify(found.columns) === JSON.stringify(columns)
  return same ? [] : [{ kind: 'different', object: 'index', name }]
}

const indexOf = (table: TextTable): UniqueIndex => {
  const where = indexCondition(table)
  const columns = [...table.scope, table.hash, table.number]
  return { name: table.index, columns, ...(where === undefined ? {} : { where }) }
}

/** What contradicts the triggers that were registered for a table, and the indexes on which they stand. */
export const workDrift = (works: readonly TriggerWork[], state: TableState): Finding[] =>
  works.flatMap(({ set, indexes = [] }) => [
    ...indexes.flatMap((index) => indexDrift(index, state)),
    ...triggerDrift(set, state),
  ])

function checkDrift(table: TextTable, { checks }: TableState): Finding[] {
  const found = checks.find(({ name }) => name === table.check)
  if (!found) return [{ kind: 'missing', object: 'check', name: table.check }]
  return found.valid ? [] : [{ kind: 'invalid', object: 'check', name: table.check }]
}

/**
 * The parts of a set of triggers that this release cannot work with. Only `migration:generate` compares code: what
 * another release has made serves, as long as their protocols say so, so that both can run while one is deployed.
 */
function triggerDrift(set: TriggerSet, state: TableState): Finding[] {
  const isGuard = set.kind === 'guard'
  const [first] = set.functions
  const installed = first && installedFunction(state, first)
  const note = installed && parseNote(installed.body)
  const difference = noteDifference(set, note)
  const isAnothers = difference === undefined && note?.protocol !== set.note.protocol
  const ofFunctions = functionsOf(set, state, isAnothers).flatMap((name): Finding[] => {
    const at = { object: isGuard ? 'guard' : 'function', name } as const
    const found = installedFunction(state, { name })
    if (!found) return [{ kind: 'missing', ...at }]
    if (!found.owned) return different(at, 'it does not belong to the owner of the table')
    if (!found.definer) return different(at, 'it is not SECURITY DEFINER')
    return name === first?.name ? different(at, difference) : []
  })
  const ofTriggers = set.triggers.flatMap((wanted): Finding[] => {
    const at = { object: isGuard ? 'guard' : 'trigger', name: wanted.name } as const
    const found = state.triggers.find(({ name }) => name === wanted.name)
    if (!found) return [{ kind: 'missing', ...at }]
    if (!found.enabled) return [{ kind: 'disabled', ...at }]
    if (!isAnothers) return different(at, triggerDifference(wanted, found, state))
    return different(at, found.runs.schema === state.schema ? undefined : 'it runs a function of another schema')
  })
  const ofTables = set.tables.flatMap((name): Finding[] =>
    state.tables.includes(name)
      ? []
      : different({ object: 'table', name }, 'it is gone, or does not belong to the owner of the table that it serves'),
  )
  return [...ofFunctions, ...ofTriggers, ...ofTables]
}

/** What must stand: of a set that another release has made, whatever its triggers run, for instance another kernel. */
function functionsOf({ functions, kernel, triggers }: TriggerSet, state: TableState, isAnothers: boolean): string[] {
  const own = functions.map(({ name }) => name)
  if (!isAnothers) return [...own, ...kernel.map(({ name }) => name)]
  const named = new Set(triggers.map(({ name }) => name))
  const run = state.triggers.filter(({ name }) => named.has(name)).map(({ runs }) => runs.name)
  return [...new Set([...own.slice(0, 1), ...run])]
}

const different = (at: Pick<Finding, 'object' | 'name'>, detail: string | undefined): Finding[] =>
  detail === undefined ? [] : [{ kind: 'different', ...at, detail }]
