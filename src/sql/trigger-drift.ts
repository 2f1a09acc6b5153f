import type { InstalledFunction, InstalledTrigger, InstalledTriggers } from './catalog'
import { asGuardNote, type GuardNote } from './guard'
import { qualified, withoutComments } from './identifier'
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
 * Whether a function differs from what is wanted, so that a migration should replace it. Comments do not count, nor does
 * who may execute it: on another table it raises an error, or acts on that table.
 */
export function isDifferent(
  wanted: TriggerFunction & Pick<TriggerSet, 'path'>,
  found: InstalledFunction,
  installed: InstalledTriggers,
): boolean {
  const settings = functionSettings(homesOf(wanted, installed)).toSorted().join('\n')
  return !found.definer || found.settings.join('\n') !== settings || hasOtherCode(wanted, found)
}

/** The code or the note; other comments do not count. */
export const hasOtherCode = (wanted: TriggerFunction, found: Pick<InstalledFunction, 'body'>): boolean =>
  withoutComments(found.body) !== withoutComments(wanted.body) || !isSameNote(wanted, found)

/** The schemas that functions of a set find names in. */
const homesOf = ({ path }: Pick<TriggerSet, 'path'>, { schema, homes }: InstalledTriggers): string[] =>
  path ? [homes[qualified(path.schema, path.name)] ?? '', schema] : [schema]

export const isSameNote = (wanted: Pick<TriggerFunction, 'body'>, found: Pick<InstalledFunction, 'body'>): boolean =>
  JSON.stringify(parseNote(found.body)) === JSON.stringify(parseNote(wanted.body))

/**
 * What of an installed set this release cannot work with, as a clause; undefined where it can. Only versions and what
 * was declared are compared: another release may have made the same in other words.
 */
export function noteDifference(
  { note: wanted, accepts }: TriggerSet,
  found: TriggerNote | undefined,
): string | undefined {
  if (!found) return 'it holds no note of the package'
  const { protocol, serves = protocol } = found
  if (protocol < accepts || wanted.protocol < serves) {
    return `it has protocol ${protocol}, and this release works with ${accepts} to ${wanted.protocol}`
  }
  const declared = new Set([...Object.keys(wanted), ...Object.keys(found)].filter((key) => !RELEASED.has(key)))
  const [one, other]: Record<string, unknown>[] = [{ ...wanted }, { ...found }]
  const differs = [...declared].some((key) => JSON.stringify(one?.[key]) !== JSON.stringify(other?.[key]))
  return differs ? 'it was made for another declaration' : undefined
}

/** What a note says of the release that wrote it. */
const RELEASED: ReadonlySet<string> = new Set(['protocol', 'serves', 'triggers'])

/** The bodies of the functions on a table that only its owner, or a role that can act as the owner, can have written. */
const trustedBodies = ({ functions }: InstalledTriggers): string[] =>
  functions.flatMap(({ body, trusted }) => (trusted ? body : []))

/** Of sets of every kind. */
export const notesOf = (installed: InstalledTriggers): TriggerNote[] =>
  trustedBodies(installed).flatMap((body) => parseNote(body) ?? [])

export const guardNotesOf = (installed: InstalledTriggers): GuardNote[] =>
  notesOf(installed).flatMap((note) => asGuardNote(note) ?? [])

const sorted = (names: readonly string[]): string => JSON.stringify([...new Set(names)].toSorted())

/** How a trigger differs from what is wanted, as a clause, but for the words of its condition. */
export function triggerDifference(
  wanted: TriggerSet['triggers'][number],
  found: InstalledTrigger,
  { schema }: InstalledTriggers,
): string | undefined {
  if (found.runs.name !== wanted.runs || found.runs.schema !== schema) return 'it runs another function'
  if (found.type !== wanted.type || found.conditional !== wanted.conditional) return 'it fires at another moment'
  if (wanted.columns && JSON.stringify(wanted.columns) !== JSON.stringify(found.columns))
    return 'it names other columns'
  // It follows a column that is renamed, and the function that it runs does not.
  if (wanted.compares && sorted(wanted.compares) !== sorted(found.blocks)) return 'it compares other columns'
  return undefined
}

/** Whether a trigger differs from what is wanted, so that a migration should make it anew. */
export function isOtherTrigger(
  wanted: TriggerSet['triggers'][number],
  found: InstalledTrigger,
  installed: InstalledTriggers,
): boolean {
  return (
    triggerDifference(wanted, found, installed) !== undefined ||
    !notesOf(installed).some(({ triggers }) => triggers.includes(wanted.digest))
  )
}
