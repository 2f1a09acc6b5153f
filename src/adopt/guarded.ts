import { columnDrift } from '../schema/readiness'
import { compareRows } from '../schema/rows'
import { quote } from '../sql/identifier'
import { tableName } from '../sql/text-table'
import { GUARD_TRIGGERS, type GuardNote, guardNotesOf } from '../triggers/guard'
import { requireAdoptable } from './refusals'
import { AdoptionError } from './session'
import { nameOf } from './table'
import type { Target } from './target'

/**
 * @param begun whether the hidden columns belong to an adoption that has begun
 * @throws AdoptionError if the steps cannot adopt the table
 */
export function refuseTarget(target: Target, begun: boolean): void {
  const guarded = guardedAs(target)
  if (guarded !== 'renormalized') requireAdoptable(target.facts, tableName(target.on.table))
  if (guarded === 'none') refuseForeignWork(target)
  if (guarded === 'none' && !begun) refuseTaken(target)
  if (guarded !== 'other') return
  throw unsupportedChange(
    target,
    'its guard has another declaration',
    'Add a property with the new declaration, adopt it, and drop the old one (docs/changing-a-declaration.md).',
  )
}

/** Refuses a guard that has lost a hidden column, because every write would fail. @throws AdoptionError */
export function refuseLost(target: Target): void {
  const lost = columnDrift(target.declaration.table, target.state).find(({ kind }) => kind === 'missing')
  if (!lost) return
  const next = 'Give it its name again, or run migration:generate and migration:run.'
  throw unsupportedChange(target, `its guard exists, but the column ${quote(lost.name)} does not`, next)
}

/** The guard's note, if one exists. */
export const noteOf = ({ declaration, state }: Pick<Target, 'declaration' | 'state'>): GuardNote | undefined =>
  guardNotesOf(state).find(({ name }) => name === declaration.name)

function unsupportedChange(target: Target, why: string, next: string): AdoptionError {
  const { declaration, on } = target
  return new AdoptionError(
    'unsupported',
    `"${declaration.name}" of ${tableName(on.table)} cannot be changed by adopt as it is declared now: ${why}. ${next}`,
  )
}

/** Refuses hidden columns that belong to another text, perhaps a renamed one, or to a text without a guard. */
function refuseForeignWork(target: Target): void {
  const { declaration, state, on, facts } = target
  const check = facts.checks.find(
    ({ name, columns }) =>
      columns.includes(on.table.number) && name !== on.table.check && !name.startsWith(nameOf(on, 'filled_')),
  )
  if (check) {
    throw unsupportedChange(
      target,
      `the check ${quote(check.name)} stands on ${quote(on.table.number)}, as that of a text with guard: false does`,
      'Give it its guard by a migration that changes nothing else.',
    )
  }
  const ours = new Set([on.table.hash, on.table.number, on.table.chained])
  const other = guardNotesOf(state).find(
    ({ name: text, hash, number, chained }) =>
      text !== declaration.name && [hash, number, chained].some((name) => ours.has(name)),
  )
  if (!other) return
  throw unsupportedChange(
    target,
    `its hidden columns belong to the guard of "${other.name}"`,
    `Rename "${other.name}" to "${declaration.name}" by a migration that changes nothing else.`,
  )
}

/**
 * Refuses a taken column name: the triggers would break every write to the table, and `abandon` would drop the column.
 *
 * @throws AdoptionError if such a column exists and cannot be the hidden one
 */
export function refuseTaken(target: Target): void {
  const { declaration, state } = target
  const taken = columnDrift(declaration.table, state).find(({ kind }) => kind === 'different')
  if (!taken) return
  const type = state.columns.find(({ name }) => name === taken.name)?.type
  throw unsupportedChange(
    target,
    `the column ${quote(taken.name)} is there already, of type ${type}`,
    'Rename it, or give the hidden column another name by the option "hidden".',
  )
}

/**
 * Whether a guard exists, and whether rows differ from its declaration only in the normalizer. If some of its triggers
 * are missing or disabled, the rows written meanwhile are unknown. The result is then `none`, and every step is done.
 */
export function guardedAs({
  declaration,
  state,
}: Pick<Target, 'declaration' | 'state'>): 'none' | 'renormalized' | 'other' {
  const note = noteOf({ declaration, state })
  if (!note) return 'none'
  const { table } = declaration
  const { texts, held } = compareRows(note, note.digest, table)
  if (texts || held) return 'other'
  const { triggers } = note.installed
  const isOn = triggers.length === GUARD_TRIGGERS.size && triggers.every(({ enabled }) => enabled)
  return isOn ? 'renormalized' : 'none'
}
