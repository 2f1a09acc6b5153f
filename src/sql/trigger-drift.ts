import type { InstalledFunction, InstalledTrigger, InstalledTriggers } from './catalog'
import { type GuardNote, parseGuardComment } from './guard'
import { qualified, withoutLayout } from './identifier'
import { functionSettings } from './trigger-ddl'
import { parseNote, type TriggerFunction, type TriggerNote, type TriggerSet } from './trigger-set'

/** The function of that name, in the table's schema. */
export function installedFunction(
  { functions, schema }: InstalledTriggers,
  { name }: Pick<TriggerFunction, 'name'>,
): InstalledFunction | undefined {
  return functions.find((one) => one.name === name && one.schema === schema)
}

/**
 * How a function differs from what is wanted, as a clause; undefined where it does not. Its comment does not count, nor
 * does who may execute it: on another table it raises an error, so the guard is exact whoever may.
 */
export function functionDifference(
  wanted: TriggerFunction & Pick<TriggerSet, 'path'>,
  found: InstalledFunction,
  installed: InstalledTriggers,
): string | undefined {
  if (!found.owned) return 'it does not belong to the owner of the table'
  if (withoutLayout(found.body) !== withoutLayout(wanted.body)) return 'its body is another'
  if (!found.definer) return 'it is not SECURITY DEFINER'
  if (found.settings.join('\n') !== functionSettings(homesOf(wanted, installed)).toSorted().join('\n'))
    return 'its settings are others'
  return undefined
}

/** The schemas that functions of a set find names in. */
const homesOf = ({ path }: Pick<TriggerSet, 'path'>, { schema, homes }: InstalledTriggers): string[] =>
  path ? [homes[qualified(path.schema, path.name)] ?? '', schema] : [schema]

/** Whether the comment on a function says what it should. */
export const sameComment = (wanted: TriggerFunction, found: InstalledFunction): boolean =>
  found.comment !== null && withoutLayout(found.comment) === withoutLayout(wanted.comment)

/** What the comments on a table's functions say; only those that nobody but its owner, or who can act for him, can write. */
const trustedComments = ({ functions }: InstalledTriggers): (string | null)[] =>
  functions.flatMap(({ comment, trusted }) => (trusted ? comment : []))

/** Of sets of every kind. */
export const notesOf = (installed: InstalledTriggers): TriggerNote[] =>
  trustedComments(installed).flatMap((comment) => parseNote(comment) ?? [])

export const guardNotesOf = (installed: InstalledTriggers): GuardNote[] =>
  trustedComments(installed).flatMap((comment) => parseGuardComment(comment) ?? [])

/** How a trigger differs from what is wanted, as a clause; undefined where it does not. */
export function triggerDifference(
  wanted: TriggerSet['triggers'][number],
  found: InstalledTrigger,
  installed: InstalledTriggers,
): string | undefined {
  if (found.runs.name !== wanted.runs || found.runs.schema !== installed.schema) return 'it runs another function'
  if (found.type !== wanted.type || found.conditional !== wanted.conditional) return 'it fires at another moment'
  const made = notesOf(installed).some(({ triggers }) => triggers.includes(wanted.digest))
  return made ? undefined : 'no comment of the guard says that it was made like this'
}
