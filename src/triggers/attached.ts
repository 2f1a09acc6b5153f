import { createHash } from 'node:crypto'
import type { Finding } from '../errors'
import type { InstalledFunction, InstalledTrigger, InstalledTriggers } from '../sql/catalog'
import { attach, detach, ensureLibrary, neededFor, partOf, temporary } from '../sql/library'
import { type TableName, tableName } from '../sql/text-table'
import { type Wording, wordsOf } from '../sql/written'
import { columnsOf, type Declared, kindOfDeclaration, MADE, shortDeclaration, wholeDeclaration } from './kinds'

/** A trigger that attach makes. */
export interface WantedTrigger {
  readonly name: string
  /** The events on which it fires, as `pg_trigger.tgtype`. No two triggers of a declaration fire on the same. */
  readonly type: number
  /** What its function is for. Triggers with an equal value run one function. */
  readonly runs: string
  /** Whether it has a condition. */
  readonly conditional: boolean
  /** The text after REFERENCING. @default '' */
  readonly transitions?: string
}

/** A table that attach makes beside the triggers, as it should exist. */
export interface KeptTable {
  readonly name: string
  /** The types of the columns. `like` gives a column the type of a column of the triggers' table. */
  readonly columns: Readonly<Record<string, string | { readonly like: string }>>
  readonly primary: readonly string[]
  /** A trigger on the table itself. */
  readonly trigger: string
}

/** A declaration that a table should have, with all of its keys. */
export interface WantedDeclaration<D extends Declared = Declared> {
  readonly table: TableName
  readonly declaration: D
  /** The first part of the names of triggers, which a finding names. */
  readonly label: string
  readonly triggers: readonly WantedTrigger[]
  /** Tables that attach makes beside it, in the table's schema and with its owner. */
  readonly tables: readonly KeptTable[]
  /** A table that the triggers write to, as the owner of their own. */
  readonly writes?: TableName | undefined
  /** The statements that make, or replace, and drop the triggers. */
  readonly attach: string
  readonly detach: string
  /** Attach, behind what makes the library if it is missing. */
  readonly create: readonly string[]
  /** Replaces the statements if something that the triggers of a former declaration keep goes over to this one. */
  readonly handOver?: (former: Declared) => HandOver | undefined
}

export interface HandOver {
  /** Detaches the former and attaches this one, and the way back. */
  readonly up: readonly [detach: string, attach: string]
  readonly down: readonly [detach: string, attach: string]
}

export const wantedDeclaration = <D extends Declared>(
  parts: Omit<WantedDeclaration<D>, 'attach' | 'detach' | 'create'>,
): WantedDeclaration<D> => {
  const { table, declaration } = parts
  const { kind } = declaration
  const attached = attach(table, kind, shortDeclaration(declaration))
  const create = [ensureLibrary(table.schema, partOf(kind)), attached]
  return { ...parts, attach: attached, detach: detach(table, declaration), create }
}

/**
 * Everything that states the conditions of the triggers of declarations in the server's words.
 *
 * @param home the schema of their table
 */
export const wordedDeclared = (wanted: readonly WantedDeclaration[], home: string): Wording[] => [
  ...neededFor(wanted.map(({ declaration }) => partOf(declaration.kind)))
    .filter((part) => part !== 'report')
    .map((part) => ({ key: 'library', make: () => temporary.library(part) })),
  ...wanted.map(({ declaration, label, writes }): Wording => {
    const within =
      declaration.kind === 'name' ? { in: writes && tableName({ ...writes, schema: writes.schema ?? home }) } : {}
    const declared = { ...shortDeclaration(declaration), guard: label, ...within }
    return { key: 'declaration', make: (name) => temporary.attach(name, declaration.kind, declared) }
  }),
]

/** A declaration that a table has, perhaps one that is no longer wanted. */
export interface InstalledDeclaration<D extends Declared = Declared> {
  readonly declaration: D
  readonly triggers: readonly InstalledTrigger[]
  readonly functions: readonly InstalledFunction[]
  /** Its functions belong to a role that could change the table as its owner can. Otherwise it proves nothing. */
  readonly trusted: boolean
}

/** The argument of a trigger: kind and name, and in the main one the whole declaration. Undefined for another trigger. */
function argumentOf({ args }: InstalledTrigger): Declared | undefined {
  const [argument = '', end, ...more] = Buffer.from(args, 'hex').toString('utf8').split('\0')
  if (end !== '' || more.length > 0) return undefined
  try {
    const given = JSON.parse(argument) as Declared | null
    return given && kindOfDeclaration(given) ? given : undefined
  } catch {
    return undefined
  }
}

const isRunBy = ({ schema, name }: InstalledFunction, runs: InstalledTrigger['runs']): boolean =>
  runs.name === name && runs.schema === schema

/**
 * Returns what is attached to a table, beginning with what can be trusted. Triggers of one kind and name belong together,
 * except those of other roles. If not exactly one of them has the declaration, nothing is known of it.
 */
export function attachedTo({
  triggers,
  functions,
}: Pick<InstalledTriggers, 'triggers' | 'functions'>): InstalledDeclaration[] {
  const groups = new Map<string, { kind: Declared['kind']; name: string; isOurs: boolean; all: InstalledTrigger[] }>()
  for (const trigger of triggers) {
    const { kind, name } = argumentOf(trigger) ?? {}
    if (kind === undefined || name === undefined) continue
    // A function that is not ours, on a trigger with our name, is not among these.
    const isOurs = functions.some((one) => one.trusted && isRunBy(one, trigger.runs))
    const key = JSON.stringify([kind, name, isOurs])
    const group = groups.get(key) ?? { kind, name, isOurs, all: [] }
    groups.set(key, { ...group, all: [...group.all, trigger] })
  }
  const attached = [...groups.values()].flatMap(({ kind, name, isOurs, all }) => {
    const whole = all.flatMap((one) => {
      const argument = argumentOf(one)
      return argument && 'bodies' in argument ? [{ argument, type: one.type }] : []
    })
    const [main] = whole.length === 1 && whole[0]?.type === kindOfDeclaration({ kind })?.main ? whole : []
    const declaration = wholeDeclaration(main?.argument ?? { kind, name })
    const own = functions.filter((one) => all.some(({ runs }) => isRunBy(one, runs)))
    return declaration ? [{ declaration, triggers: all, functions: own, trusted: isOurs && main !== undefined }] : []
  })
  return attached.toSorted((one, other) => Number(other.trusted) - Number(one.trusted))
}

/** Returns what is attached of a kind, if only the table's owner can have written it, in a version that we know. */
export const trustedIn = <D extends Declared>(
  kind: D['kind'],
  installed: InstalledTriggers,
): InstalledDeclaration<D>[] =>
  attachedTo(installed).filter((one): one is InstalledDeclaration<D> => {
    const { declaration, trusted } = one
    const protocol = kindOfDeclaration(declaration)?.protocol ?? 0
    return trusted && declaration.kind === kind && otherProtocol({ protocol }, declaration) === undefined
  })

/** The keys that describe the release or the names of objects, and no rule. */
export const UNCOMPARED: readonly string[] = [...MADE, 'guard']

/** Returns why this release cannot work with a declaration that is installed, as a clause, or undefined if it can. */
export function declarationDifference(wanted: Declared, found: Declared): string | undefined {
  const other = otherProtocol(wanted, found)
  if (other !== undefined) return other
  return sameKeys(wanted, found, new Set(UNCOMPARED)) ? undefined : OTHER_DECLARATION
}

/** Whether two declarations are equal but for some keys. */
export function sameKeys(wanted: object, found: object, without: ReadonlySet<string>): boolean {
  const [one, other]: Readonly<Record<string, unknown>>[] = [{ ...wanted }, { ...found }]
  const keys = [...Object.keys(wanted), ...Object.keys(found)].filter((key) => !without.has(key))
  return keys.every((key) => JSON.stringify(one?.[key]) === JSON.stringify(other?.[key]))
}

/** Returns why a release of the wanted protocol cannot work with an installed one, as a clause. */
const otherProtocol = (
  { protocol: wanted }: Pick<Declared, 'protocol'>,
  { protocol, serves = protocol }: Declared,
): string | undefined =>
  protocol < wanted || wanted < serves
    ? `it has protocol ${protocol}, and this release works with ${wanted}`
    : undefined

export const OTHER_DECLARATION = 'it was made for another declaration'

/**
 * Whether columns were renamed and other columns have their names now. Nobody knows whether the rows fit these others.
 */
export const servesNamesakes = (
  { declaration }: Pick<WantedDeclaration, 'declaration'>,
  found: InstalledDeclaration,
): boolean =>
  declarationDifference(declaration, found.declaration) === undefined &&
  found.triggers.some((one) => namesOthers(one, declaration))

const namesOthers = ({ columns }: InstalledTrigger, declaration: Declared): boolean =>
  columns.length > 0 && columns.join('\0') !== Object.values(columnsOf(declaration)).join('\0')

/** Whether all of its triggers exist and fire. */
export const isWhole = ({ declaration, triggers }: InstalledDeclaration): boolean =>
  (declaration.triggers ?? []).every((type) => triggers.some((one) => one.type === type)) &&
  triggers.every(({ enabled, unguarded }) => enabled && unguarded.length === 0)

/** Whether the table that the triggers write to is missing. */
export const lacksWritten = (
  { writes }: Pick<WantedDeclaration, 'writes'>,
  { homes }: Pick<InstalledTriggers, 'homes'>,
): boolean => writes !== undefined && homes[tableName(writes)] === null

/** The trigger that fires on these events. */
const firing = (
  { triggers }: Pick<InstalledDeclaration, 'triggers'>,
  type: number | undefined,
): InstalledTrigger | undefined => triggers.find((one) => one.type === type)

/** A wanted declaration, the installed one, and how they are compared. */
interface Comparison {
  readonly wanted: WantedDeclaration
  readonly found: InstalledDeclaration
  readonly state: InstalledTriggers
  /** Why this release cannot work with its declaration, as a clause. */
  readonly difference: string | undefined
  /** Whether another release made it, perhaps with other triggers and code. */
  readonly isOthers: boolean
  /** Whether everything is compared, as a migration does. */
  readonly exact: boolean
}

/**
 * Returns the parts of a declaration that this release cannot work with.
 *
 * @param exact whether everything is compared, as a migration does
 */
export function attachedDrift(wanted: WantedDeclaration, state: InstalledTriggers, exact: boolean): Finding[] {
  const { declaration, label } = wanted
  const object = objectOf(wanted)
  const ofCode = object === 'guard' ? object : 'function'
  const all = attachedTo(state).filter((one) => isOf(declaration, one))
  const [found] = all
  if (!found) return [{ kind: 'missing', object, name: label }]
  // Triggers that are missing, because their function was given to another role.
  const given = all.filter((one) => wanted.triggers.some(({ type }) => !firing(found, type) && firing(one, type)))
  // Without its main trigger, which is reported below, its declaration is not known.
  const isKnown = firing(found, kindOfDeclaration(declaration)?.main) !== undefined
  const difference = isKnown ? declarationDifference(declaration, found.declaration) : undefined
  const isOthers = difference === undefined && found.declaration.protocol !== declaration.protocol
  const comparison = { wanted, found, state, difference, isOthers, exact: exact && !isOthers }
  const different = (name: string, detail: string | undefined, on = object): Finding[] =>
    detail === undefined ? [] : [{ kind: 'different', object: on, name, detail }]
  return [
    ...different(label, difference ?? (comparison.exact ? codeDifference(comparison) : undefined), ofCode),
    ...[found, ...given]
      .flatMap(({ functions }) => functions)
      .flatMap((one) => different(one.name, functionDifference(one, comparison.exact), ofCode)),
    ...wanted.triggers
      .filter(({ type }) => !given.some((one) => firing(one, type)))
      .flatMap((one) => triggerDrift(one, comparison)),
    ...wanted.tables.flatMap((table) => {
      const isGone = state.tables.every(({ name }) => name !== table.name)
      return different(table.name, isGone || exact ? tableDifference(table, state) : undefined, 'table')
    }),
  ]
}

const objectOf = ({ declaration }: WantedDeclaration): Finding['object'] =>
  kindOfDeclaration(declaration)?.object ?? 'trigger'

/** Whether a declaration is that of a kind and name. */
export const isOf = ({ kind, name }: Declared, { declaration }: Pick<InstalledDeclaration, 'declaration'>): boolean =>
  declaration.kind === kind && declaration.name === name

/** Returns how a function differs from every function that attach makes, except for its body, as a clause. */
const functionDifference = (found: InstalledFunction, exact: boolean): string | undefined =>
  firstOf({
    'it does not belong to the owner of the table': !found.owned,
    'it is not SECURITY DEFINER': !found.definer,
    'a role that does not own it may execute it': exact && found.granted,
    'it belongs to an extension': exact && found.extension,
    'it is not a plain function of plpgsql': exact && found.form !== FORM,
    'its settings differ': exact && found.settings.join('\n') !== SETTINGS.join('\n'),
  })

/** The properties of every function: plpgsql, and the defaults volatile, not strict and parallel unsafe. */
const FORM = 'plpgsql v f u'

/** The settings of every function, in the order of their names. src/library/attach.sql explains them. */
const SETTINGS = ['enable_seqscan=off', 'row_security=off', 'search_path=pg_catalog, pg_temp'] as const

const firstOf = (differences: Readonly<Record<string, boolean>>): string | undefined =>
  Object.entries(differences).find(([, differs]) => differs)?.[0]

/** Returns how a table that attach makes differs from the wanted one, as a clause. */
function tableDifference(wanted: KeptTable, { tables, columns = [] }: InstalledTriggers): string | undefined {
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
    'its trigger is missing or disabled': !found.triggers.includes(wanted.trigger),
  })
}

function codeDifference({ wanted, found, state }: Comparison): string | undefined {
  const { bodies, on } = found.declaration
  const isComplete = wanted.triggers.every(({ type }) => firing(found, type))
  if (isComplete && codeOf(found) !== bodies) return 'its body differs'
  // The triggers work, and may cost more.
  return on === undefined || on.join('\0') === [state.schema, state.table].join('\0')
    ? undefined
    : 'its table was renamed'
}

function triggerDrift(one: WantedTrigger, comparison: Comparison): Finding[] {
  const { found, isOthers } = comparison
  const object = objectOf(comparison.wanted)
  const trigger = firing(found, one.type)
  if (!trigger) return isOthers ? [] : [{ kind: 'missing', object, name: one.name }]
  const at = { kind: 'disabled', object, name: trigger.name } as const
  if (!trigger.enabled) return [at]
  if (trigger.unguarded.length > 0)
    return trigger.unguarded.map((part) => ({ ...at, detail: `on the partition "${part}"` }))
  const detail = isOthers ? undefined : triggerDifference(one, trigger, comparison)
  return detail === undefined ? [] : [{ kind: 'different', object, name: trigger.name, detail }]
}

function triggerDifference(
  one: WantedTrigger,
  found: InstalledTrigger,
  { wanted, found: all, state, difference, exact }: Comparison,
): string | undefined {
  if (found.runs.schema !== state.schema || runsAnother(one, found, wanted, all)) return 'it runs another function'
  if (found.conditional !== one.conditional) return 'it fires at another moment'
  if (difference === undefined && namesOthers(found, wanted.declaration)) return 'it names other columns'
  return exact ? definitionDifference(one, found, state.written) : undefined
}

/** Whether a trigger runs the function of the main trigger, and should not, or the other way round. */
function runsAnother(
  one: WantedTrigger,
  { runs }: InstalledTrigger,
  { declaration, triggers }: WantedDeclaration,
  all: InstalledDeclaration,
): boolean {
  const main = kindOfDeclaration(declaration)?.main
  const ofMain = all.triggers.find(({ type }) => type === main)?.runs.name
  const isAlike = triggers.some((each) => each.type === main && each.runs === one.runs)
  return ofMain !== undefined && (runs.name === ofMain) !== isAlike
}

function definitionDifference(
  { name, conditional, transitions = '' }: WantedTrigger,
  { extension, definition, ...found }: InstalledTrigger,
  written: InstalledTriggers['written'],
): string | undefined {
  if (extension) return 'it belongs to an extension'
  if (found.transitions !== transitions) return 'it has other transition tables'
  const words = conditional ? written?.get(`trigger ${name}`) : undefined
  return words === undefined || words === wordsOf(definition) ? undefined : 'its condition differs'
}

/** The digest of the code that the triggers of a declaration run, as attach makes it. */
function codeOf({ triggers, functions }: InstalledDeclaration): string {
  const code = triggers.map(({ type, runs }) => {
    const body = functions.find((one) => isRunBy(one, runs))?.body ?? ''
    return { type, line: `${type} ${body}` }
  })
  code.sort((one, other) => one.type - other.type)
  return createHash('sha256')
    .update(code.map(({ line }) => line).join(''))
    .digest('hex')
}
