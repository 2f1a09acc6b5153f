import type { InstalledFunction, InstalledGuards, InstalledTrigger } from './catalog'
import { type Guard, type GuardFunction, type GuardNote, parseGuardComment } from './guard'
import { guardSettings } from './guard-ddl'
import { withoutLayout } from './identifier'

/** The function of that name, in the table's schema. */
export function installedFunction(
  { functions, schema }: InstalledGuards,
  { name }: Pick<GuardFunction, 'name'>,
): InstalledFunction | undefined {
  return functions.find((one) => one.name === name && one.schema === schema)
}

/**
 * How a function differs from what is wanted, as a clause; undefined where it does not. Its comment does not count, nor
 * does who may execute it: on another table it raises an error, so the guard is exact whoever may.
 */
export function functionDifference(
  wanted: GuardFunction,
  found: InstalledFunction,
  { schema }: InstalledGuards,
): string | undefined {
  if (!found.owned) return 'it does not belong to the owner of the table'
  if (withoutLayout(found.body) !== withoutLayout(wanted.body)) return 'its body is another'
  if (!found.definer) return 'it is not SECURITY DEFINER'
  if (found.settings.join('\n') !== guardSettings(schema).toSorted().join('\n')) return 'its settings are others'
  return undefined
}

/** Whether the comment on a function says what it should. */
export const sameComment = (wanted: GuardFunction, found: InstalledFunction): boolean =>
  found.comment !== null && withoutLayout(found.comment) === withoutLayout(wanted.comment)

/** What the comments on a table's guards say; only those that nobody but its owner, or who can act for him, can write. */
export const notesOf = ({ functions }: InstalledGuards): GuardNote[] =>
  functions.flatMap(({ comment, trusted }) => (trusted ? parseGuardComment(comment) : undefined) ?? [])

/** How a trigger differs from what is wanted, as a clause; undefined where it does not. */
export function triggerDifference(
  wanted: Guard['triggers'][number],
  found: InstalledTrigger,
  guards: InstalledGuards,
): string | undefined {
  if (found.runs.name !== wanted.runs || found.runs.schema !== guards.schema) return 'it runs another function'
  if (found.type !== wanted.type || !found.conditional) return 'it fires at another moment'
  const made = notesOf(guards).some(({ triggers }) => triggers.includes(wanted.digest))
  return made ? undefined : 'no comment of the guard says that it was made like this'
}
