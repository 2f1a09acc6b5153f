import type { Change } from '../sql/alter'
import type { InstalledFunction, InstalledTrigger, InstalledTriggers } from '../sql/catalog'
import { plainName, qualified, withoutComments } from '../sql/identifier'
import {
  dropFunctions,
  dropTrigger,
  functionSettings,
  type FunctionSource,
  type KeptTable,
  makeFunctions,
  type OwnedFunction,
  parseNote,
  renameFunction,
  type TriggerFunction,
  type TriggerNote,
  type TriggerSet,
} from '../sql/trigger-set'
import { wordsOf } from '../sql/written'

/** The triggers of one table: the wanted ones and the installed ones. */
export interface TableTriggers {
  /** Undefined if `search_path` finds the table anyway, as in TypeORM's own SQL. */
  readonly schema: string | undefined
  readonly table: string
  readonly wanted: readonly TriggerSet[]
  readonly installed: InstalledTriggers
  /** The schema that `search_path` begins with. */
  readonly searchSchema: string
}

/** The triggers of one table, and what changes about the table. */
export interface TriggerSite extends TableTriggers {
  readonly functions: FunctionPlan
  /** Whether the table itself changes between the two parts of the plan. */
  readonly touched: boolean
  /** Whether the table is made between the two parts of the plan. A revert drops it with its triggers. */
  readonly isNew: boolean
}

/** The changes before and after TypeORM changes the tables. Both are empty if the triggers are as they should be. */
export interface SetPlan {
  readonly before: Change
  readonly after: Change
}

/** The plan for the functions of all tables. */
export interface FunctionsPlan extends Pick<SetPlan, 'before'> {
  /** The statements that end a revert, when the tables that this plan made are dropped. They drop their functions. */
  readonly last: readonly string[]
}

/**
 * Changes only what differs. For instance, a function whose body differs is replaced, and its triggers remain. Triggers
 * are dropped before the table changes, because a trigger that names a column blocks DROP COLUMN and ALTER TYPE.
 *
 * The statements of `planAllFunctions` run between the two parts.
 */
export function planSets(site: TriggerSite): SetPlan {
  const { wanted, installed, functions, touched } = site
  const rebuilt = new Set(functions.fresh.map(({ name }) => name))
  const stands = (one: TriggerSet['triggers'][number]): boolean => {
    const found = installed.triggers.find(({ name }) => name === one.name)
    const same =
      found?.enabled === true &&
      found.unguarded.length === 0 &&
      !found.extension &&
      !isOtherTrigger(one, found, installed)
    return same && !touched && !rebuilt.has(one.runs)
  }
  const all = wanted.flatMap(({ triggers }) => triggers)
  const standing = new Set(all.filter(stands).map(({ name }) => name))
  const made = all.filter(({ name }) => !standing.has(name))
  const obsolete = installed.triggers.filter(({ name }) => !standing.has(name))
  const gone = functions.obsolete.map((one) => asSource(site, one))
  const relation = relationOf(site)
  return {
    before: {
      up: [...obsolete.map(({ name }) => dropTrigger(relation, name)), ...dropFunctions(gone)],
      down: [...makeFunctions({ fresh: gone }), ...obsolete.map(({ definition }) => definition)],
    },
    after: {
      up: made.map(({ create }) => create),
      down: site.isNew ? [] : made.map(({ name }) => dropTrigger(relation, name)),
    },
  }
}

/** Renames functions of a table that has another name or schema now, if a new table needs their names. */
export function makeRoom(sites: readonly TriggerSite[], orphans: readonly InstalledTriggers[]): Change {
  const moves = sites.flatMap((site) => {
    const fresh = new Set(site.functions.fresh.map(({ name }) => name))
    return orphans
      .flatMap(({ schema: of, table, functions }) => functions.map((one) => ({ ...one, of, table })))
      .filter(({ schema, name }) => schema === homeOf(site) && fresh.has(name))
      .map(({ schema, name, of, table }) => {
        const to = plainName('unique_text_of', ...(of === schema ? [] : [of]), table, name)
        return { schema: site.schema, name, to }
      })
  })
  return {
    up: moves.map(({ schema, name, to }) => renameFunction({ schema, name }, to)),
    down: moves.map(({ schema, name, to }) => renameFunction({ schema, name: to }, name)),
  }
}

/**
 * Plans the functions of all sites. One statement for each schema makes and secures its functions, before any trigger
 * that runs them. Functions that no trigger runs any more are dropped after all else.
 */
export function planAllFunctions(sites: readonly TriggerSite[]): FunctionsPlan {
  const homes = new Map<string, TriggerSite[]>()
  for (const site of sites) homes.set(homeOf(site), [...(homes.get(homeOf(site)) ?? []), site])
  const made = [...homes.values()].map(makeAll)
  return { before: joined(made), last: made.flatMap(({ last }) => last) }
}

/** Plans all functions of the tables of one schema. */
function makeAll(sites: readonly TriggerSite[]): Change & Pick<FunctionsPlan, 'last'> {
  const fresh = sites.flatMap((site) => site.functions.fresh.map((one) => sourceOf(site, one)))
  const temporary = (isNew: boolean): OwnedFunction[] =>
    sites
      .filter((site) => site.isNew === isNew)
      .flatMap((site) => {
        const { fresh: made, lasting } = site.functions
        return made.filter(({ name }) => !lasting.has(name)).map((one) => sourceOf(site, one))
      })
  const replaced = sites.flatMap((site) => site.functions.replaced.map(({ wanted }) => sourceOf(site, wanted)))
  const before = sites.flatMap((site) => site.functions.replaced.map(({ found }) => asSource(site, found)))
  return {
    up: makeFunctions({ fresh, replaced }),
    down: [...dropFunctions(temporary(false)), ...makeFunctions({ replaced: before })],
    last: dropFunctions(temporary(true)),
  }
}

const homeOf = ({ schema, searchSchema }: TableTriggers): string => schema ?? searchSchema

const relationOf = ({ schema, table }: TableTriggers): string => qualified(schema, table)

const sourceOf = (
  site: TableTriggers,
  one: TriggerFunction & Pick<FunctionSource, 'path' | 'writes'>,
): OwnedFunction => ({
  schema: site.schema,
  name: one.name,
  body: one.body,
  path: one.path,
  writes: one.writes,
  relation: relationOf(site),
})

const joined = (changes: readonly Change[]): Change => ({
  up: changes.flatMap(({ up }) => up),
  down: changes.flatMap(({ down }) => down).toReversed(),
})

/** A function with the properties that its whole set shares. */
type SetFunction = TriggerFunction & Pick<TriggerSet, 'path' | 'writes'>

/** What happens to the functions of one table. */
interface FunctionPlan {
  readonly fresh: readonly SetFunction[]
  /** The names of the fresh functions that replace those of an untrusted role. A revert keeps them. */
  readonly lasting: ReadonlySet<string>
  readonly replaced: readonly { readonly wanted: SetFunction; readonly found: InstalledFunction }[]
  readonly obsolete: readonly InstalledFunction[]
}

export function planFunctions({ wanted, installed }: TableTriggers): FunctionPlan {
  const pairs = wanted
    .flatMap(({ functions, path, writes }) => functions.map((one) => ({ ...one, path, writes })))
    .map((one) => {
      const found = installedFunction(installed, one)
      // A function of another role is made anew, because that role could put its own body back at any moment.
      return { wanted: one, found: found?.owned ? found : undefined }
    })
  const untrusted = installed.functions.filter(({ trusted }) => !trusted)
  const kept = pairs.flatMap((pair) => (pair.found ? { wanted: pair.wanted, found: pair.found } : []))
  return {
    fresh: pairs.flatMap((pair) => (pair.found ? [] : pair.wanted)),
    lasting: new Set(untrusted.filter(({ schema }) => schema === installed.schema).map(({ name }) => name)),
    replaced: kept.filter(({ wanted: one, found }) => functionDifference(one, found, installed) !== undefined),
    // An untrusted function only loses its triggers on this table. A revert must never make its body the owner's.
    obsolete: installed.functions.filter(
      (one) => one.trusted && !one.shared && !kept.some(({ found }) => found === one),
    ),
  }
}

function asSource(site: TableTriggers, found: InstalledFunction): OwnedFunction {
  const { schema, name, body, settings } = found
  // A table of another schema whose name the function finds, which the note of its set records.
  const finds = !settings.includes(functionSettings([schema]).at(-1) ?? '')
  const path = finds ? notesOf(site.installed).find((note) => note.path)?.path : undefined
  return { schema: schema === site.searchSchema ? undefined : schema, name, body, path, relation: relationOf(site) }
}

/** Returns the function of that name in the table's schema. */
export function installedFunction(
  { functions, schema }: InstalledTriggers,
  { name }: Pick<TriggerFunction, 'name'>,
): InstalledFunction | undefined {
  return functions.find((one) => one.name === name && one.schema === schema)
}

/**
 * Returns why this release cannot work with an installed set, as a clause, or undefined if it can. It compares only
 * versions and declarations, because another release may have written the same in other words.
 */
export function noteDifference(
  { note: wanted, accepts }: TriggerSet,
  found: TriggerNote | undefined,
): string | undefined {
  if (!found) return 'it holds no note of the package'
  const protocol = otherProtocol(wanted, found, accepts)
  if (protocol !== undefined) return protocol
  return sameKeys(wanted, found, RELEASED) ? undefined : OTHER_DECLARATION
}

/** Whether two declarations are equal but for some keys. */
export function sameKeys(wanted: object, found: object, without: ReadonlySet<string>): boolean {
  const [one, other]: Readonly<Record<string, unknown>>[] = [{ ...wanted }, { ...found }]
  const keys = [...Object.keys(wanted), ...Object.keys(found)].filter((key) => !without.has(key))
  return keys.every((key) => JSON.stringify(one?.[key]) === JSON.stringify(other?.[key]))
}

/** Returns why a release cannot work with an installed protocol, as a clause. */
export const otherProtocol = (
  { protocol: wanted }: Pick<TriggerNote, 'protocol'>,
  { protocol, serves = protocol }: Pick<TriggerNote, 'protocol' | 'serves'>,
  accepts: number,
): string | undefined =>
  protocol < accepts || wanted < serves
    ? `it has protocol ${protocol}, and this release works with ${accepts} to ${wanted}`
    : undefined

export const OTHER_DECLARATION = 'it was made for another declaration'

/** The keys of a note that describe the release that wrote it. */
const RELEASED: ReadonlySet<string> = new Set(['protocol', 'serves', 'triggers'])

/** The notes of all sets, from bodies that only the table's owner, or a role that can act as the owner, can write. */
export const notesOf = ({ functions }: InstalledTriggers): TriggerNote[] =>
  functions.flatMap(({ body, trusted }) => (trusted ? (parseNote(body) ?? []) : []))

/**
 * Whether a migration should make a trigger anew. If the server's words for its condition are unknown, the digest of
 * the statement that made it decides, which the note of its set contains.
 */
function isOtherTrigger(
  wanted: TriggerSet['triggers'][number],
  found: InstalledTrigger,
  installed: InstalledTriggers,
): boolean {
  if (triggerDifference(wanted, found, installed) !== undefined) return true
  if (wanted.when === '' || installed.written?.has(`trigger ${wanted.name}`)) return false
  return !notesOf(installed).some(({ triggers }) => triggers.includes(wanted.digest))
}

/** The properties of every function: plpgsql, and the defaults volatile, not strict and parallel unsafe. */
const FORM = 'plpgsql v f u'

/** Returns why a function cannot run as the owner of its table, as a clause. */
export function ownerDifference({ owned, definer }: Pick<InstalledFunction, 'owned' | 'definer'>): string | undefined {
  if (!owned) return 'it does not belong to the owner of the table'
  return definer ? undefined : 'it is not SECURITY DEFINER'
}

/**
 * Returns how a function differs from the wanted one, as a clause, so that a migration replaces it. Comments do not
 * count. If another table's owner may execute it, that owner gets an error, or acts on that table.
 */
export function functionDifference(
  wanted: TriggerFunction & Partial<Pick<TriggerSet, 'path'>>,
  found: Omit<InstalledFunction, 'owned' | 'trusted' | 'shared'>,
  installed: Pick<InstalledTriggers, 'schema' | 'homes'>,
): string | undefined {
  const { path } = wanted
  const { schema, homes } = installed
  // The schemas in which the function finds names.
  const searched = path ? [homes[qualified(path.schema, path.name)] ?? '', schema] : [schema]
  // The code and the note count; other comments do not.
  const isOther = withoutComments(found.body) !== withoutComments(wanted.body) || !isSameNote(wanted, found)
  return formDifference(found, searched) ?? (isOther ? 'its body differs' : undefined)
}

/**
 * Returns how a function differs from every function of ours, except for its body.
 *
 * @param searched the schemas in which it finds names, besides pg_catalog
 */
export const formDifference = (
  found: Omit<InstalledFunction, 'owned' | 'trusted' | 'shared'>,
  searched: readonly string[],
): string | undefined =>
  firstOf({
    'it is not SECURITY DEFINER': !found.definer,
    'a role that does not own it may execute it': found.granted,
    'it belongs to an extension': found.extension,
    'it is not a plain function of plpgsql': found.form !== FORM,
    'its settings differ': found.settings.join('\n') !== functionSettings(searched).toSorted().join('\n'),
  })

const firstOf = (differences: Readonly<Record<string, boolean>>): string | undefined =>
  Object.entries(differences).find(([, differs]) => differs)?.[0]

export const isSameNote = (wanted: Pick<TriggerFunction, 'body'>, found: Pick<InstalledFunction, 'body'>): boolean =>
  JSON.stringify(parseNote(found.body)) === JSON.stringify(parseNote(wanted.body))

const sorted = (names: readonly string[]): string => JSON.stringify([...new Set(names)].toSorted())

/** Returns how a trigger differs from the wanted one. A condition counts if the server's words are known. */
export function triggerDifference(
  wanted: TriggerSet['triggers'][number],
  found: InstalledTrigger,
  { schema, written }: InstalledTriggers,
): string | undefined {
  const { columns, compares } = wanted
  const words = written?.get(`trigger ${wanted.name}`)
  const args = Buffer.from(wanted.args.map((one) => `${one}\0`).join('')).toString('hex')
  return firstOf({
    'it runs another function': found.runs.name !== wanted.runs || found.runs.schema !== schema,
    'it fires at another moment': found.type !== wanted.type || found.conditional !== (wanted.when !== ''),
    [NAMES_OTHERS]: columns !== undefined && JSON.stringify(columns) !== JSON.stringify(found.columns),
    // The trigger follows a renamed column, and the function that it runs does not.
    [COMPARES_OTHERS]: compares !== undefined && sorted(compares) !== sorted(found.blocks),
    // Another release may have made the same in another way.
    ...(written && {
      'it has other arguments': args !== found.args,
      'it has other transition tables': wanted.transitions !== found.transitions,
      'it belongs to an extension': found.extension,
      'its condition differs': words !== undefined && words !== wordsOf(found.definition),
    }),
  })
}

export const NAMES_OTHERS = 'it names other columns'
const COMPARES_OTHERS = 'it compares other columns'

/**
 * Whether a trigger is the one in the note except for its columns: these were renamed, and other columns have their
 * names now. Nobody knows whether the rows fit these other columns.
 */
export const hasNamesakes = ({ triggers }: TriggerSet, note: TriggerNote, installed: InstalledTriggers): boolean =>
  triggers.some((wanted) => {
    const found = installed.triggers.find(({ name }) => name === wanted.name)
    const difference = found && note.triggers.includes(wanted.digest) && triggerDifference(wanted, found, installed)
    return difference === NAMES_OTHERS || difference === COMPARES_OTHERS
  })

/** Returns how a table that a set keeps differs from the wanted one, as a clause. */
export function tableDifference(wanted: KeptTable, { tables, columns = [] }: InstalledTriggers): string | undefined {
  const found = tables.find(({ name }) => name === wanted.name)
  if (!found) return 'it is gone, or does not belong to the owner of the table that it serves'
  const typeOf = (name: string): string => columns.find((column) => column.name === name)?.declared ?? ''
  const types = Object.entries(wanted.columns).map(([name, type]) => [
    name,
    typeof type === 'string' ? type : typeOf(type.like),
  ])
  return firstOf({
    'it has other columns': columns.length > 0 && types.some(([name = '', type]) => found.columns[name] !== type),
    'it has another primary key': JSON.stringify(found.primary) !== JSON.stringify(wanted.primary),
    [LACKS_TRIGGER]: wanted.trigger !== undefined && !found.triggers.includes(wanted.trigger),
  })
}

/** This difference can be repaired without reading the rows. */
export const LACKS_TRIGGER = 'its trigger is missing or disabled'
