import { columnDrift } from '../schema/readiness'
import { compareRows } from '../schema/rows'
import { quote } from '../sql/identifier'
import { isElsewhere } from '../sql/spread'
import { tableName } from '../sql/text-table'
import { GUARD_TRIGGERS, type GuardNote, guardNotesOf } from '../triggers/guard'
import { AdoptionError } from './session'
import { type AdoptionFacts, nameOf } from './table'
import type { Target } from './target'

/**
 * Refuses a table that the steps of an adoption cannot handle. To read or abandon such a table is allowed.
 *
 * @throws AdoptionError
 */
export function refuseTarget(target: Target): void {
  const guarded = guardedAs(target)
  const obstacle = guarded === 'renormalized' ? undefined : obstacleOf(target.facts)
  if (obstacle !== undefined)
    throw new AdoptionError('unsupported', `${tableName(target.table)} cannot be adopted: ${obstacle}`)
  if (guarded === 'none') refuseForeignWork(target)
  if (guarded === 'none' && !target.stored) refuseTaken(target)
  if (guarded !== 'other') return
  throw unsupportedChange(
    target,
    'its guard has another declaration',
    'Add a property with the new declaration, adopt it, and drop the old one (docs/changing-a-declaration.md).',
  )
}

/** Returns why the steps cannot adopt a table and what to do, as a clause and sentences. */
function obstacleOf({ distribution, hidesRows, children, rules }: AdoptionFacts): string | undefined {
  if (isElsewhere(distribution)) {
    return (
      'Citus manages it. Run undistribute_table() for it, then adopt it. ' +
      'Which tables Citus can manage afterwards is in docs/scale.md.'
    )
  }
  if (hidesRows) {
    return (
      'policies hide rows of it from this role. ' +
      'Use a role with BYPASSRLS, or its owner without FORCE ROW LEVEL SECURITY.'
    )
  }
  if (children.length > 0) {
    return `${children.join(', ')} ${children.length === 1 ? 'inherits' : 'inherit'} from it. Use a migration.`
  }
  return rules.length > 0
    ? `it has rules (${rules.join(', ')}). Drop them, or move their work to a trigger.`
    : undefined
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
  const { declaration, table } = target
  return new AdoptionError(
    'unsupported',
    `"${declaration.name}" of ${tableName(table)} cannot be changed by adopt as it is declared now: ${why}. ${next}`,
  )
}

/** Refuses hidden columns that belong to another text, perhaps a renamed one, or to a text without a guard. */
function refuseForeignWork(target: Target): void {
  const { declaration, state, table, facts } = target
  const check = facts.checks.find(
    ({ name, columns }) =>
      columns.includes(table.number) && name !== table.check && !name.startsWith(nameOf(target, 'filled_')),
  )
  if (check) {
    throw unsupportedChange(
      target,
      `the check ${quote(check.name)} is on ${quote(table.number)}, as that of a text with guard: false does`,
      'Give it its guard by a migration that changes nothing else.',
    )
  }
  const ours = new Set([table.hash, table.number, table.chained])
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
