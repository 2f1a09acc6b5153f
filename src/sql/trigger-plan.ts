import type { Change } from './alter'
import type { InstalledFunction, InstalledKernel, InstalledTrigger, InstalledTriggers } from './catalog'
import { plainName, qualified } from './identifier'
import {
  createFunctions,
  createKernel,
  dropFunctions,
  dropKernel,
  dropTrigger,
  type FunctionSource,
  functionSettings,
  renameFunction,
  replaceFunctions,
  requireOwner,
  type Relation,
} from './trigger-ddl'
import { hasOtherCode, installedFunction, isDifferent, isOtherTrigger, notesOf } from './trigger-drift'
import { isKernel, type TriggerFunction, type TriggerSet } from './trigger-set'

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
 */
export function planSets(site: TriggerSite): SetPlan {
  const functions = planFunctions(site)
  const triggers = planTriggers(site, functions)
  return { before: takeAway(site, functions, triggers), after: make(site, functions, triggers) }
}

/** Functions of a table that has taken its triggers along to another name make room for those of the table that comes. */
export function makeRoom(sites: readonly TriggerSite[], strangers: readonly InstalledTriggers[]): Change {
  const moves = sites.flatMap((site) => {
    const fresh = new Set(planFunctions(site).fresh.map(({ name }) => name))
    return strangers
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
 * What comes before any table changes, and what after all of them. The way back leaves the newer of two bodies, for what
 * has one name does one thing; and it never makes a body that was found, which anybody may have put there.
 *
 * @param known every function that this release may have made
 */
export function planKernel(
  sites: readonly TriggerSite[],
  installed: readonly InstalledKernel[],
  known: readonly TriggerFunction[],
): SetPlan {
  const wanted = new Map<string, { readonly source: FunctionSource; readonly site: TriggerSite }>()
  for (const site of sites) {
    for (const one of site.wanted.flatMap(({ kernel }) => kernel)) {
      const key = qualified(homeOf(site), one.name)
      if (!wanted.has(key)) wanted.set(key, { source: { ...one, schema: site.schema }, site })
    }
  }
  const made = [...wanted.values()].map(({ source, site }): Change => {
    const found = installed.find(({ schema, name }) => schema === homeOf(site) && name === source.name)
    const isOwned = sites.every(({ installed: { functions, schema } }) =>
      functions.every(
        (one) => one.name !== source.name || one.schema !== schema || schema !== homeOf(site) || one.owned,
      ),
    )
    const stands = found && isOwned && !hasOtherCode(source, found) && isSecure(found)
    const owned = requireOwner(
      newcomers(stands ? sites : sites.filter((one) => one !== site), source, homeOf(site)),
      source,
    )
    if (stands) return { up: owned, down: [] }
    return {
      up: [...createKernel(qualified(site.schema, site.table), [source]), ...owned],
      down: found ? [] : [dropKernel(source)],
    }
  })
  const left = installed.map((one): Change => {
    const site = sites.find((each) => homeOf(each) === one.schema)
    const body = known.find(({ name }) => name === one.name)?.body
    // Tables without an entity need it.
    const isNeeded = one.tables.some(
      ([schema, table]) => !sites.some((each) => homeOf(each) === schema && each.table === table),
    )
    if (!site || body === undefined || isNeeded || wanted.has(qualified(one.schema, one.name)))
      return { up: [], down: [] }
    const source = { name: one.name, body, schema: site.schema }
    return { up: [dropKernel(source)], down: createKernel(qualified(site.schema, site.table), [source]) }
  })
  return { before: joined(made), after: joined(left) }
}

const homeOf = ({ schema, searchSchema }: TriggerSite): string => schema ?? searchSchema

/** The tables of this schema that are to run a shared function, and do not yet; as SQL. */
const newcomers = (sites: readonly TriggerSite[], { name }: FunctionSource, home: string): string[] =>
  sites
    .filter((one) => homeOf(one) === home)
    .filter(({ wanted }) => wanted.some(({ kernel }) => kernel.some((each) => each.name === name)))
    .filter(({ installed }) => !installed.functions.some((one) => one.name === name && one.schema === home))
    .map(({ schema, table }) => qualified(schema, table))

const isSecure = ({ schema, definer, granted, settings }: InstalledKernel): boolean =>
  definer && !granted && settings.join('\n') === functionSettings([schema]).toSorted().join('\n')

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
    replaced: kept.filter((pair) => pair.found.granted || isDifferent(pair.wanted, pair.found, installed)),
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
    const same = found?.enabled === true && !isOtherTrigger(one, found, installed)
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
  const relation = qualified(site.schema, site.table)
  const gone = functions.obsolete.map((one) => asSource(site, one))
  return {
    up: [
      ...triggers.obsolete.map(({ name }) => dropTrigger(relation, name)),
      ...(gone.length === 0 ? [] : [dropFunctions(gone)]),
    ],
    down: [
      ...atOnce(byPath(gone).flatMap((some) => createFunctions(relation, some))),
      ...triggers.obsolete.map(({ definition }) => definition),
    ],
  }
}

function make(site: TriggerSite, functions: FunctionPlan, triggers: TriggerPlan): Change {
  const relation = qualified(site.schema, site.table)
  const home = ({ name, body, path }: SetFunction): FunctionSource => ({ schema: site.schema, name, body, path })
  const fresh = functions.fresh.map(home)
  const temporary = fresh.filter(({ name }) => !functions.lasting.has(name))
  const replaced = functions.replaced.map(({ wanted }) => home(wanted))
  const before = functions.replaced.map(({ found }) => asSource(site, found))
  return {
    up: [
      ...atOnce(byPath(fresh).flatMap((some) => createFunctions(relation, some))),
      ...atOnce(byPath(replaced).flatMap((some) => replaceFunctions(relation, some))),
      ...triggers.made.map(({ create }) => create),
    ],
    down: [
      ...triggers.made.map(({ name }) => dropTrigger(relation, name)),
      ...(temporary.length === 0 ? [] : [dropFunctions(temporary)]),
      ...atOnce(byPath(before).flatMap((some) => replaceFunctions(relation, some))),
    ],
  }
}

/** The server runs statements that come in one string as one transaction, also where a migration has none. */
const atOnce = (statements: readonly string[]): string[] => (statements.length === 0 ? [] : [statements.join(';\n')])

/** Those that find names in one schema are made secure together. */
function byPath(functions: readonly FunctionSource[]): FunctionSource[][] {
  const groups = new Map<string, FunctionSource[]>()
  for (const one of functions) {
    const path = one.path ? qualified(one.path.schema, one.path.name) : ''
    groups.set(path, [...(groups.get(path) ?? []), one])
  }
  return [...groups.values()]
}

function asSource({ searchSchema, installed }: TriggerSite, found: InstalledFunction): FunctionSource {
  const { schema, name, body } = found
  return { schema: schema === searchSchema ? undefined : schema, name, body, path: pathOf(found, installed) }
}

/** The table of another schema whose name a function finds, as the note of its set tells. */
function pathOf({ settings, schema }: InstalledFunction, installed: InstalledTriggers): Relation | undefined {
  if (settings.includes(functionSettings([schema]).at(-1) ?? '')) return undefined
  return notesOf(installed).find(({ path }) => path)?.path
}
