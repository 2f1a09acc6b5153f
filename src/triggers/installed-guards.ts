import { createHash } from 'node:crypto'
import type { Finding } from '../errors'
import type { Change } from '../sql/alter'
import type { InstalledFunction, InstalledTrigger, InstalledTriggers } from '../sql/catalog'
import { attach, detach } from '../sql/library'
import { tableName, type TextTable } from '../sql/text-table'
import { dropTrigger } from '../sql/trigger-set'
import { wordsOf } from '../sql/written'
import {
  type Guard,
  GUARD_TRIGGERS,
  type GuardDeclaration,
  PROTOCOL_VERSION,
  shortDeclaration,
  wholeDeclaration,
} from './guard'
import { formDifference, NAMES_OTHERS, OTHER_DECLARATION, otherProtocol, ownerDifference, sameKeys } from './plan'

/** A guard on a table, also of a text that is no longer declared. */
export interface InstalledGuard {
  readonly declaration: GuardDeclaration
  readonly triggers: readonly InstalledTrigger[]
  readonly functions: readonly InstalledFunction[]
  /** Its functions belong to a role that could change the table as its owner can. Otherwise it proves nothing. */
  readonly trusted: boolean
}

/** The declaration in the argument of a trigger. Undefined for another trigger. */
function declarationIn({ args }: InstalledTrigger): GuardDeclaration | undefined {
  const [argument = '', end, ...more] = Buffer.from(args, 'hex').toString('utf8').split('\0')
  if (end !== '' || more.length > 0) return undefined
  try {
    const given = JSON.parse(argument) as GuardDeclaration
    if (given.kind !== 'text' || typeof given.name !== 'string' || !isNames(given.text)) return undefined
    const whole = wholeDeclaration(given)
    return [whole.scope, whole.prefixes, whole.normalizers].every(isNames) ? whole : undefined
  } catch {
    return undefined
  }
}

const isNames = (value: unknown): value is readonly string[] =>
  Array.isArray(value) && value.every((one) => typeof one === 'string')

const isRunBy = ({ schema, name }: InstalledFunction, runs: InstalledTrigger['runs']): boolean =>
  runs.name === name && runs.schema === schema

/** Returns the guards of a table. Triggers of one guard have one argument. */
export function guardsIn({ triggers, functions }: Pick<InstalledTriggers, 'triggers' | 'functions'>): InstalledGuard[] {
  const byArgument = new Map<string, InstalledTrigger[]>()
  for (const one of triggers) byArgument.set(one.args, [...(byArgument.get(one.args) ?? []), one])
  return [...byArgument.values()].flatMap((all) => {
    const declaration = all[0] && declarationIn(all[0])
    if (!declaration) return []
    const own = functions.filter((one) => all.some(({ runs }) => isRunBy(one, runs)))
    // A function that is not ours, on a trigger with our name, is not among these.
    const trusted = all.every(({ runs }) => own.some((one) => one.trusted && isRunBy(one, runs)))
    return [{ declaration, triggers: all, functions: own, trusted }]
  })
}

/** The former rules of the rows, from the declaration of an installed guard. */
export interface GuardNote
  extends Omit<GuardDeclaration, 'text' | 'deleted' | 'spread'>, Pick<TextTable, 'text' | 'deleted'> {
  readonly installed: InstalledGuard
}

/** The declarations that only the table's owner, or a role that can act as the owner, can have written. */
export const guardNotesOf = (installed: InstalledTriggers): GuardNote[] =>
  guardsIn(installed).flatMap((installedGuard) => {
    const { declaration, trusted } = installedGuard
    const { spread: _, ...rules } = declaration
    const { prefixes, text } = rules
    const other = otherProtocol({ protocol: PROTOCOL_VERSION }, declaration, PROTOCOL_VERSION)
    if (!trusted || other !== undefined) return []
    return [
      {
        ...rules,
        text: text.map((name, position) => ({ name, prefix: prefixes[position] ?? '' })),
        deleted: declaration.deleted,
        installed: installedGuard,
      },
    ]
  })

/** Returns the triggers of a table without those of guards, which are planned by themselves. */
export function withoutGuards<T extends InstalledTriggers>(installed: T): T {
  const guards = guardsIn(installed)
  const triggers = new Set(guards.flatMap((one) => one.triggers))
  const functions = new Set(guards.flatMap((one) => one.functions))
  return {
    ...installed,
    triggers: installed.triggers.filter((one) => !triggers.has(one)),
    functions: installed.functions.filter((one) => !functions.has(one)),
  }
}

/** The keys that describe the release or the names of objects, and no rule. */
const UNCOMPARED: ReadonlySet<string> = new Set(['protocol', 'serves', 'triggers', 'bodies', 'on', 'guard'])

/** Returns why this release cannot work with an installed guard, as a clause, or undefined if it can. */
function declarationDifference(wanted: GuardDeclaration, found: GuardDeclaration): string | undefined {
  const other = otherProtocol(wanted, found, wanted.protocol)
  if (other !== undefined) return other
  return sameKeys(wanted, found, UNCOMPARED) ? undefined : OTHER_DECLARATION
}

/** The columns that `UPDATE OF` names, in their order. */
const columnsOf = ({ text, scope, hash, number, chained, deleted }: GuardDeclaration): string[] => [
  ...text,
  ...scope,
  hash,
  number,
  chained,
  ...(deleted === undefined ? [] : [deleted]),
]

/**
 * Whether columns were renamed and other columns have their names now. Nobody knows whether the rows fit these others.
 */
export const servesNamesakes = ({ declaration }: Guard, { triggers, declaration: found }: InstalledGuard): boolean =>
  declarationDifference(declaration, found) === undefined && triggers.some((one) => namesOthers(one, found))

/** The trigger that runs the function of chains: its `pg_trigger.tgtype`. */
const REST = 23

/** The trigger of a guard that fires on these events. */
const firing = ({ triggers }: InstalledGuard, type: number): InstalledTrigger | undefined =>
  triggers.find((one) => one.type === type)

/** A wanted guard, the installed one, and how they are compared. */
interface Comparison {
  readonly guard: Guard
  readonly found: InstalledGuard
  readonly state: InstalledTriggers
  /** Why this release cannot work with its declaration, as a clause. */
  readonly difference: string | undefined
  /** Whether another release made it, perhaps with other triggers and code. */
  readonly isOthers: boolean
  /** Whether everything is compared, as a migration does. */
  readonly exact: boolean
}

const different = (name: string, detail: string | undefined): Finding[] =>
  detail === undefined ? [] : [{ kind: 'different', object: 'guard', name, detail }]

/**
 * Returns the parts of a guard that this release cannot work with.
 *
 * @param exact whether everything is compared, as a migration does
 */
export function guardDrift(guard: Guard, state: InstalledTriggers, exact: boolean): Finding[] {
  const { table, declaration } = guard
  const all = guardsIn(state).filter((one) => one.declaration.name === table.name)
  const found = all.find(({ trusted }) => trusted) ?? all[0]
  if (!found) return [{ kind: 'missing', object: 'guard', name: table.guard }]
  const difference = declarationDifference(declaration, found.declaration)
  const isOthers = difference === undefined && found.declaration.protocol !== declaration.protocol
  const comparison = { guard, found, state, difference, isOthers, exact: exact && !isOthers }
  return [
    ...different(table.guard, difference ?? (comparison.exact ? codeDifference(comparison) : undefined)),
    ...found.functions.flatMap((one) =>
      different(one.name, ownerDifference(one) ?? (comparison.exact ? formDifference(one, []) : undefined)),
    ),
    ...[...GUARD_TRIGGERS].flatMap(([type, suffix]) => triggerDrift(type, suffix, comparison)),
  ]
}

function codeDifference({ found, state }: Comparison): string | undefined {
  const isWhole = [...GUARD_TRIGGERS.keys()].every((type) => firing(found, type))
  if (isWhole && codeOf(found) !== found.declaration.bodies) return 'its body differs'
  // The guard works, and an insert without the hash costs more.
  return found.declaration.on?.join('\0') === [state.schema, state.table].join('\0')
    ? undefined
    : 'its table was renamed'
}

function triggerDrift(type: number, suffix: string, comparison: Comparison): Finding[] {
  const { guard, found, isOthers } = comparison
  const name = `${guard.table.guard}_${suffix}`
  const one = firing(found, type)
  if (!one) return isOthers ? [] : [{ kind: 'missing', object: 'guard', name }]
  const at = { kind: 'disabled', object: 'guard', name: one.name } as const
  if (!one.enabled) return [at]
  if (one.unguarded.length > 0) return one.unguarded.map((part) => ({ ...at, detail: `on the partition "${part}"` }))
  return isOthers ? [] : different(one.name, triggerDifference(one, name, comparison))
}

function triggerDifference(found: InstalledTrigger, name: string, comparison: Comparison): string | undefined {
  const { guard, state, difference, exact } = comparison
  const chain = firing(comparison.found, REST)?.runs.name
  const runsChain = found.runs.name === chain
  const isOther = chain !== undefined && runsChain === name.startsWith(`${guard.table.guard}_place_`)
  if (isOther || found.runs.schema !== state.schema) return 'it runs another function'
  if (!found.conditional) return 'it fires at another moment'
  if (difference === undefined && namesOthers(found, guard.declaration)) return NAMES_OTHERS
  return exact ? definitionDifference(found, state.written?.get(`trigger ${name}`)) : undefined
}

const namesOthers = ({ columns }: InstalledTrigger, declaration: GuardDeclaration): boolean =>
  columns.length > 0 && columns.join('\0') !== columnsOf(declaration).join('\0')

function definitionDifference(
  { extension, definition }: InstalledTrigger,
  words: string | undefined,
): string | undefined {
  if (extension) return 'it belongs to an extension'
  return words === undefined || words === wordsOf(definition) ? undefined : 'its condition differs'
}

/** The digest of the code that the triggers of a guard run, as attach makes it. */
function codeOf({ triggers, functions }: InstalledGuard): string {
  const code = triggers.map(({ type, runs }) => {
    const body = functions.find((one) => isRunBy(one, runs))?.body ?? ''
    return { type, line: `${type} ${body}` }
  })
  code.sort((one, other) => one.type - other.type)
  return createHash('sha256')
    .update(code.map(({ line }) => line).join(''))
    .digest('hex')
}

/** A table with the guards that it should have and those that it has. */
export interface GuardedTable extends Pick<TextTable, 'schema' | 'table'> {
  readonly guards: readonly Guard[]
  readonly installed: InstalledTriggers
  /** Whether the table itself changes between the two parts of the plan. */
  readonly touched: boolean
}

/**
 * Plans the guards of a table. One that differs is dropped before the table changes, because a trigger that names a
 * column blocks DROP COLUMN and ALTER TYPE, and is made anew afterwards.
 */
export function planGuards({ guards, installed, touched, ...table }: GuardedTable): {
  readonly before: Change
  readonly after: Change
} {
  const made = guards.filter((one) => touched || guardDrift(one, installed, true).length > 0)
  const found = guardsIn(installed)
  const replaced = touched ? [] : made.filter((one) => isReplaceable(one, found))
  const standing = new Set(guards.filter((one) => !made.includes(one)).map((one) => one.table.name))
  const all = found.filter(
    ({ trusted, declaration: { name } }) =>
      !replaced.some((one) => one.table.name === name) && (!trusted || !standing.has(name)),
  )
  // What an untrusted role has put beside a guard only loses its triggers.
  const beside = all.filter(({ declaration }) => standing.has(declaration.name)).flatMap(({ triggers }) => triggers)
  const gone = all.filter(({ declaration }) => !standing.has(declaration.name))
  const names = [...new Set(gone.map(({ declaration }) => declaration.name))]
  // A declaration contains SQL. A revert makes only that of a role that could change the table as its owner can.
  const restored = names.flatMap((name) => {
    const trusted = gone.find((one) => one.trusted && one.declaration.name === name)
    if (!trusted) return made.filter((one) => one.table.name === name).map((one) => one.attach)
    return [again(table, trusted)]
  })
  const back = replaced.map((one) => {
    const trusted = found.find((other) => other.trusted && other.declaration.name === one.table.name)
    return trusted ? again(table, trusted) : one.attach
  })
  return {
    before: {
      up: [
        ...beside.map(({ name }) => dropTrigger(tableName(table), name)),
        ...names.map((name) => detach(table, name)),
      ],
      down: [...beside.map(({ definition }) => definition), ...restored],
    },
    after: {
      up: made.map((one) => one.attach),
      down: [...made.filter((one) => !replaced.includes(one)).map((one) => one.detach), ...back],
    },
  }
}

const again = (table: Pick<TextTable, 'schema' | 'table'>, { declaration }: InstalledGuard): string =>
  attach(table, { ...shortDeclaration(declaration) })

/** The keys that change what the triggers do, and nothing about the rows. */
const OF_TRIGGERS: ReadonlySet<string> = new Set([...UNCOMPARED, 'maxChainLength', 'immutable'])

/** Whether attach can replace what a table has of a text while the rows remain. Then readers do not wait. */
function isReplaceable({ declaration }: Guard, all: readonly InstalledGuard[]): boolean {
  const found = all.filter((one) => one.declaration.name === declaration.name)
  return found.length > 0 && found.every((one) => sameKeys(declaration, one.declaration, OF_TRIGGERS))
}
