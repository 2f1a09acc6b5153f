import { columnDrift } from '../schema/readiness'
import { compareRows, nullChanges } from '../schema/rows'
import { renameColumns, renameIndex } from '../sql/alter'
import type { InstalledTrigger, InstalledTriggers } from '../sql/catalog'
import { quote } from '../sql/identifier'
import { tableName, textRules, type TextTable } from '../sql/text-table'
import { dropFunctions, dropTrigger, isKernel, parseNote, type TriggerNote } from '../sql/trigger-set'
import { type GuardNote, guardOf } from '../triggers/guard'
import { guardNotesOf } from '../triggers/plan'
import { AdoptionError } from './session'
import { type AdoptedTable, dropObjects, dropTriggers, nameOf } from './table'
import { requireAdoptable } from './refusals'
import type { Swap, Target } from './target'

/**
 * The table with hidden columns, index and check of other names. These exist beside those of the guard until they
 * replace them. The guard's own name is the same, so both tables lead to the same objects of the adoption.
 */
export const beside = (on: AdoptedTable): AdoptedTable => ({
  ...on,
  table: {
    ...on.table,
    hash: nameOf(on, 'hash'),
    number: nameOf(on, 'number'),
    chained: nameOf(on, 'chained'),
    index: nameOf(on, 'index'),
    check: nameOf(on, 'check'),
  },
})

const FIRST_SUFFIX = '_place_insert'

/** Selects the triggers and functions of one guard, and the kernel, among all those of a table. */
export function guardIn(
  installed: InstalledTriggers,
  { table }: { readonly table: TextTable },
  { name }: Pick<TriggerNote, 'name'>,
): InstalledTriggers {
  const own = installed.functions.filter(({ body, trusted }) => {
    const note = trusted ? parseNote(body) : undefined
    return note?.kind === 'guard' && note.name === name
  })
  const runsOwn = ({ runs }: InstalledTrigger): boolean =>
    own.some((one) => one.name === runs.name && one.schema === runs.schema)
  // A table that was renamed keeps the names of its triggers.
  const prefixes = installed.triggers
    .filter((one) => runsOwn(one) && one.name.endsWith(FIRST_SUFFIX))
    .map((one) => one.name.slice(0, -FIRST_SUFFIX.length))
  const suffixes = guardOf(table).triggers.map((one) => one.name.slice(table.guard.length))
  const names = new Set([table.guard, ...prefixes].flatMap((prefix) => suffixes.map((suffix) => prefix + suffix)))
  return {
    ...installed,
    functions: installed.functions.filter((one) => own.includes(one) || isKernel(one.body)),
    triggers: installed.triggers.filter((one) => names.has(one.name) || runsOwn(one)),
  }
}

/**
 * Drops the old guard with its columns, which also drops its index and check. Gives their names to the new columns, and
 * makes the new guard. All of this changes only the catalog, and no row is read.
 */
export function swapGuards(on: AdoptedTable, { final, before, loosened }: Swap): string[] {
  const [relation, { table }] = [tableName(final.table), final]
  const gone = [before.hash, before.number, before.chained].map((name) => `DROP COLUMN ${quote(name)}`)
  const renames = new Map([
    [on.table.hash, table.hash],
    [on.table.number, table.number],
    [on.table.chained, table.chained],
  ])
  return [
    ...before.triggers.map((name) => dropTrigger(relation, name)),
    ...dropTriggers(on),
    ...dropFunctions(before.functions),
    ...dropObjects(on),
    `ALTER TABLE ${relation} ${[...gone, ...loosened.map((name) => `ALTER COLUMN ${quote(name)} DROP NOT NULL`)].join(', ')}`,
    ...renameColumns(table, renames).up,
    ...renameIndex(table, on.table.index, table.index).up,
    `ALTER TABLE ${relation} RENAME CONSTRAINT ${quote(on.table.check)} TO ${quote(table.check)}`,
    ...guardOf(table).create,
  ]
}

/**
 * Returns the target of an adoption. If a guard of another declaration exists, the target has columns beside those of
 * the guard, and they replace those in the end.
 */
export function targetOf(target: Target): Target {
  const note = noteOf(target)
  if (!note || guardedAs(target) !== 'other') return target
  const { declaration, on: final, state } = target
  const nullable = new Set(state.columns.filter((one) => one.nullable).map(({ name }) => name))
  const { tightened, loosened } = nullChanges(declaration, (name) => nullable.has(name))
  const on = beside(final)
  const { hash } = on.table
  const isRequired = state.columns.some(({ name }) => name === hash) && !nullable.has(hash)
  const { functions, triggers } = guardIn(state, final, note)
  return {
    ...target,
    on,
    // Until the guards change, a row without a text has no hash.
    required: final.table.nullable || tightened.length > 0 || isRequired ? [] : [hash],
    // Texts are not changed, because the old guard would check each.
    normalizes: false,
    swap: {
      final,
      before: {
        hash: note.hash,
        number: note.number,
        chained: note.chained,
        rules: JSON.stringify([textRules(note, note.digest), note.deleted]),
        // The kernel is part of every guard, so it is kept for the others.
        functions: functions.flatMap(({ schema, name, body }) => (isKernel(body) ? [] : [{ schema, name }])),
        triggers: triggers.map(({ name }) => name),
      },
      loosened,
      tightened,
    },
  }
}

/**
 * @param begun whether the hidden columns belong to an adoption that has begun
 * @throws AdoptionError if the change needs several steps or a migration
 */
export function refuseTarget(target: Target, begun: boolean): void {
  const guarded = guardedAs(target)
  if (guarded !== 'renormalized') requireAdoptable(target.facts, tableName(target.on.table))
  if (guarded === 'none') refuseForeignWork(target)
  if (guarded === 'none' && !begun) refuseTaken(target)
  const note = noteOf(target)
  if (guarded !== 'other' || !note) return
  refuseColumns(target, note)
  // The old guard refuses texts by its own rules, so rows are normalized only under the new guard.
  const [first] = compareRows(note, note.digest, target.on.table).normalizers
  if (!first) return
  throw unsupportedChange(
    target,
    `${quote(first.column)} has another normalizer too (${first.from}, now ${first.to})`,
    'Adopt it with the normalizer that it had, and then once more with the new one.',
  )
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

function refuseColumns(target: Target, note: GuardNote): void {
  const { on, state, declaration } = target
  const { text, scope, deleted, hash, number, chained, spread } = on.table
  const has = (name: string): boolean => state.columns.some((one) => one.name === name)
  const wanted = [...text.map(({ name }) => name), ...scope, ...(deleted === undefined ? [] : [deleted])]
  const missing = wanted.find((name) => !has(name))
  if (missing !== undefined) {
    throw unsupportedChange(
      target,
      `there is no column ${quote(missing)}`,
      'Add it by a migration of its own, before the text is declared with it.',
    )
  }
  const old = [note.hash, note.number, note.chained]
  const gone = old.find((name) => !has(name))
  if (gone !== undefined) {
    throw unsupportedChange(target, `its guard has lost the column ${quote(gone)}`, 'Run abandon, and adopt it again.')
  }
  const taken = [hash, number, chained].find((name) => has(name) && !old.includes(name))
  if (taken !== undefined) {
    throw unsupportedChange(target, `the column ${quote(taken)} is there already`, 'Rename it.')
  }
  const index = state.indexes.find(
    ({ name, columns }) => name !== note.index && columns.some((one) => old.includes(one)),
  )
  if (index) {
    throw unsupportedChange(
      target,
      `the index ${quote(index.name)} has a hidden column of "${declaration.name}", which would take it along`,
      'Drop it, and make it again afterwards.',
    )
  }
  if (spread !== undefined) throw unsupportedChange(target, 'its table is spread by the hash', 'Use a migration.')
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
  const { triggers } = guardIn(state, declaration, note)
  const isOn = triggers.length >= note.triggers.length && triggers.every(({ enabled }) => enabled)
  return isOn ? 'renormalized' : 'none'
}
