import type { Change } from '../sql/alter'
import type { InstalledFunction, InstalledKernel, InstalledTrigger, InstalledTriggers } from '../sql/catalog'
import { asGuardNote, type GuardNote } from './guard'
import { plainName, qualified, withoutComments } from '../sql/identifier'
import {
  dropFunctions,
  dropKernel,
  dropTrigger,
  functionSettings,
  type FunctionSource,
  makeFunctions,
  type OwnedFunction,
  type RelationName,
  renameFunction,
  type SharedFunction,
} from '../sql/trigger-ddl'
import { isKernel, parseNote, type TriggerFunction, type TriggerNote, type TriggerSet } from '../sql/trigger-set'

/** The triggers of one table: as they should stand, and as they do. */
export interface TriggerSite {
  /** Undefined where `search_path` finds the table anyway, as in TypeORM's own SQL. */
  readonly schema: string | undefined
  readonly table: string
  readonly wanted: readonly TriggerSet[]
  readonly installed: InstalledTriggers
  /** The schema that `search_path` begins with. */
  readonly searchSchema: string
  /** The table itself changes between the two parts of the plan. */
  readonly touched: boolean
}

/** What comes before TypeORM changes the tables, and what after. Empty where the triggers stand as they should. */
export interface SetPlan {
  readonly before: Change
  readonly after: Change
}

/**
 * Changes what differs, and no more: a function whose body differs is replaced under its triggers, for instance.
 * Triggers are taken away before the table changes, since one that names a column blocks DROP COLUMN and ALTER TYPE.
 *
 * What `planAllFunctions` says comes in between.
 */
export function planSets(site: TriggerSite): SetPlan {
  const functions = planFunctions(site)
  const triggers = planTriggers(site, functions)
  const relation = relationOf(site)
  return {
    before: takeAway(site, functions, triggers),
    after: {
      up: triggers.made.map(({ create }) => create),
      down: triggers.made.map(({ name }) => dropTrigger(relation, name)),
    },
  }
}

/** Functions of a table that has taken its triggers along to another name make room for those of the table that comes. */
export function makeRoom(sites: readonly TriggerSite[], orphans: readonly InstalledTriggers[]): Change {
  const moves = sites.flatMap((site) => {
    const fresh = new Set(planFunctions(site).fresh.map(({ name }) => name))
    return orphans
      .flatMap(({ table, functions }) => functions.map((one) => ({ ...one, table })))
      .filter(({ schema, name }) => schema === (site.schema ?? site.searchSchema) && fresh.has(name))
      .map(({ name, table }) => ({ schema: site.schema, name, to: plainName('unique_text_of', table, name) }))
  })
  return {
    up: moves.map(({ schema, name, to }) => renameFunction({ schema, name }, to)),
    down: moves.map(({ schema, name, to }) => renameFunction({ schema, name: to }, name)),
  }
}

/**
 * The functions of all sites: those of each schema are made and secured by one statement, before any trigger that is to
 * run them; what no trigger runs any more goes after all else.
 *
 * The way back leaves the newer of two bodies of the kernel, for what has one name does one thing; and it never makes a
 * body that was found, which anybody may have put there.
 *
 * @param known every function that this release may have made for all tables of a schema
 */
export function planAllFunctions(
  sites: readonly TriggerSite[],
  installed: readonly InstalledKernel[],
  known: readonly TriggerFunction[],
): SetPlan {
  const homes = new Map<string, TriggerSite[]>()
  for (const site of sites) homes.set(homeOf(site), [...(homes.get(homeOf(site)) ?? []), site])
  const made = [...homes.values()].map((some) => makeAll(some, installed))
  const left = installed.map((one): Change => {
    const site = sites.find((each) => homeOf(each) === one.schema)
    const body = known.find(({ name }) => name === one.name)?.body
    // Tables without an entity need it.
    const isNeeded = one.tables.some(
      ([schema, table]) => !sites.some((each) => homeOf(each) === schema && each.table === table),
    )
    const isWanted = homes.get(one.schema)?.some((each) => kernelOf(each).some(({ name }) => name === one.name))
    if (!site || body === undefined || isNeeded || isWanted) return { up: [], down: [] }
    const source = { name: one.name, body, schema: site.schema, relation: relationOf(site) }
    return {
      up: [dropKernel(source)],
      down: makeFunctions({ kernel: [source], shares: [{ relation: source.relation, source }] }),
    }
  })
  return { before: joined(made), after: joined(left) }
}

/** All that is made for the tables of one schema. */
function makeAll(sites: readonly TriggerSite[], installed: readonly InstalledKernel[]): Change {
  const functions = sites.map((site) => ({ site, ...planFunctions(site) }))
  const fresh = functions.flatMap((one) => one.fresh.map((each) => sourceOf(one.site, each)))
  const temporary = functions.flatMap((one) =>
    one.fresh.filter(({ name }) => !one.lasting.has(name)).map((each) => sourceOf(one.site, each)),
  )
  const replaced = functions.flatMap((one) => one.replaced.map(({ wanted }) => sourceOf(one.site, wanted)))
  const before = functions.flatMap((one) => one.replaced.map(({ found }) => asSource(one.site, found)))
  const shared = planKernel(sites, installed)
  return {
    up: makeFunctions({ fresh, replaced, ...shared }),
    down: [
      ...(temporary.length === 0 ? [] : [dropFunctions(temporary)]),
      ...makeFunctions({ replaced: before }),
      ...shared.kernel.filter((one) => !isFound(installed, homeOf(one.site), one)).map(dropKernel),
    ],
  }
}

const isFound = (installed: readonly InstalledKernel[], home: string, source: Pick<FunctionSource, 'name'>): boolean =>
  installed.some(({ schema, name }) => schema === home && name === source.name)

/** Functions that tables of one schema share: those that are to be made, and the tables that do not run them yet. */
function planKernel(
  sites: readonly TriggerSite[],
  installed: readonly InstalledKernel[],
): { readonly kernel: readonly (OwnedFunction & { readonly site: TriggerSite })[]; readonly shares: SharedFunction[] } {
  const wanted = new Map<string, OwnedFunction & { readonly site: TriggerSite }>()
  for (const site of sites) {
    for (const one of kernelOf(site)) if (!wanted.has(one.name)) wanted.set(one.name, { ...sourceOf(site, one), site })
  }
  const kernel = [...wanted.values()].filter((source) => !stands(source, sites, installed))
  return {
    kernel,
    shares: [...wanted.values()].flatMap((source) =>
      sites
        .filter((site) => kernelOf(site).some(({ name }) => name === source.name))
        .filter((site) => kernel.includes(source) || !runsAlready(site, source))
        .map((site) => ({ relation: relationOf(site), source })),
    ),
  }
}

const kernelOf = ({ wanted }: TriggerSite): TriggerFunction[] => wanted.flatMap(({ kernel }) => [...kernel])

const runsAlready = ({ installed }: TriggerSite, { name }: Pick<FunctionSource, 'name'>): boolean =>
  installed.functions.some((one) => one.name === name && one.schema === installed.schema)

function stands(
  source: OwnedFunction & { readonly site: TriggerSite },
  sites: readonly TriggerSite[],
  installed: readonly InstalledKernel[],
): boolean {
  const found = installed.find(({ schema, name }) => schema === homeOf(source.site) && name === source.name)
  const isOwned = sites.every(({ installed: { functions, schema } }) =>
    functions.every((one) => one.name !== source.name || one.schema !== schema || one.owned),
  )
  return found !== undefined && isOwned && !hasOtherCode(source, found) && isSecure(found)
}

const homeOf = ({ schema, searchSchema }: TriggerSite): string => schema ?? searchSchema

const relationOf = ({ schema, table }: TriggerSite): string => qualified(schema, table)

const sourceOf = (
  site: TriggerSite,
  one: TriggerFunction & { readonly path?: RelationName | undefined },
): OwnedFunction => ({
  schema: site.schema,
  name: one.name,
  body: one.body,
  path: one.path,
  relation: relationOf(site),
})

const isSecure = ({ schema, definer, granted, extension, settings }: InstalledKernel): boolean =>
  definer && !granted && !extension && settings.join('\n') === functionSettings([schema]).toSorted().join('\n')

const joined = (changes: readonly Change[]): Change => ({
  up: changes.flatMap(({ up }) => up),
  down: changes.flatMap(({ down }) => down).toReversed(),
})

/** A function with what all of its set share. */
type SetFunction = TriggerFunction & Pick<TriggerSet, 'path'>

interface FunctionPlan {
  readonly fresh: readonly SetFunction[]
  /** Of the fresh ones, those that take the place of an untrusted role's. The way back leaves them, not those. */
  readonly lasting: ReadonlySet<string>
  readonly replaced: readonly { readonly wanted: SetFunction; readonly found: InstalledFunction }[]
  readonly obsolete: readonly InstalledFunction[]
}

function planFunctions({ wanted, installed }: TriggerSite): FunctionPlan {
  const pairs = wanted
    .flatMap(({ functions, path }) => functions.map((one) => ({ ...one, path })))
    .map((one) => {
      const found = installedFunction(installed, one)
      // What belongs to another role is made anew, for that role could put its own body back at any moment.
      return { wanted: one, found: found?.owned ? found : undefined }
    })
  const untrusted = installed.functions.filter(({ trusted }) => !trusted)
  const shared = new Set(wanted.flatMap(({ kernel }) => kernel.map(({ name }) => name)))
  const kept = pairs.flatMap((pair) => (pair.found ? { wanted: pair.wanted, found: pair.found } : []))
  return {
    fresh: pairs.flatMap((pair) => (pair.found ? [] : pair.wanted)),
    lasting: new Set(untrusted.filter(({ schema }) => schema === installed.schema).map(({ name }) => name)),
    replaced: kept.filter(
      ({ wanted: one, found }) => found.granted || found.extension || isDifferent(one, found, installed),
    ),
    // An untrusted one only loses its triggers on this table: its body must never come back as the owner's.
    obsolete: installed.functions.filter(
      (one) =>
        one.trusted &&
        !one.shared &&
        !shared.has(one.name) &&
        !isKernel(one.body) &&
        !kept.some(({ found }) => found === one),
    ),
  }
}

interface TriggerPlan {
  readonly made: TriggerSet['triggers']
  readonly obsolete: readonly InstalledTrigger[]
}

function planTriggers({ wanted, installed, touched }: TriggerSite, { fresh }: FunctionPlan): TriggerPlan {
  const rebuilt = new Set(fresh.map(({ name }) => name))
  const stands = (one: TriggerSet['triggers'][number]): boolean => {
    const found = installed.triggers.find(({ name }) => name === one.name)
    const same = found?.enabled === true && !found.extension && !isOtherTrigger(one, found, installed)
    return same && !touched && !rebuilt.has(one.runs)
  }
  const [all, standing] = [wanted.flatMap(({ triggers }) => triggers), new Set<string>()]
  for (const one of all) if (stands(one)) standing.add(one.name)
  return {
    made: all.filter(({ name }) => !standing.has(name)),
    obsolete: installed.triggers.filter(({ name }) => !standing.has(name)),
  }
}

function takeAway(site: TriggerSite, functions: FunctionPlan, triggers: TriggerPlan): Change {
  const relation = relationOf(site)
  const gone = functions.obsolete.map((one) => asSource(site, one))
  return {
    up: [
      ...triggers.obsolete.map(({ name }) => dropTrigger(relation, name)),
      ...(gone.length === 0 ? [] : [dropFunctions(gone)]),
    ],
    down: [...makeFunctions({ fresh: gone }), ...triggers.obsolete.map(({ definition }) => definition)],
  }
}

function asSource(site: TriggerSite, found: InstalledFunction): OwnedFunction {
  const { schema, name, body } = found
  const path = pathOf(found, site.installed)
  return { schema: schema === site.searchSchema ? undefined : schema, name, body, path, relation: relationOf(site) }
}

/** The table of another schema whose name a function finds, as the note of its set tells. */
function pathOf({ settings, schema }: InstalledFunction, installed: InstalledTriggers): RelationName | undefined {
  if (settings.includes(functionSettings([schema]).at(-1) ?? '')) return undefined
  return notesOf(installed).find(({ path }) => path)?.path
}

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
function isDifferent(
  wanted: TriggerFunction & Pick<TriggerSet, 'path'>,
  found: InstalledFunction,
  installed: InstalledTriggers,
): boolean {
  const settings = functionSettings(homesOf(wanted, installed)).toSorted().join('\n')
  return !found.definer || found.settings.join('\n') !== settings || hasOtherCode(wanted, found)
}

/** The code or the note; other comments do not count. */
const hasOtherCode = (wanted: TriggerFunction, found: Pick<InstalledFunction, 'body'>): boolean =>
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
  if (found.adopting === true) return 'adopt is not done with the rows'
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
function isOtherTrigger(
  wanted: TriggerSet['triggers'][number],
  found: InstalledTrigger,
  installed: InstalledTriggers,
): boolean {
  return (
    triggerDifference(wanted, found, installed) !== undefined ||
    !notesOf(installed).some(({ triggers }) => triggers.includes(wanted.digest))
  )
}
