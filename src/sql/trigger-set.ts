import { createHash } from 'node:crypto'
import type { Change, FilledColumn } from './alter'
import { list, literal, packed, qualified, quote, withoutComments } from './identifier'
import { dropFunctions, dropKernel, dropTrigger, makeFunctions, type RelationName } from './trigger-ddl'

/** What keeps rows right: the texts of a column, the names that rows hold, or the numbers that they have. */
export type TriggerKind = 'guard' | 'names' | 'numbers'

/** Starts the body of every function of a set; by it the function is found, whatever became of its name. */
export const TRIGGER_MARK = '-- typeorm-unique-text '

/** How the names of a text's triggers begin, also of those that an adoption makes for a while. */
export const TEXT_TRIGGERS = 'unique_text_'

/** Follows the mark in a function that stands once in a schema, for all tables of their owner. */
const KERNEL = 'kernel'

/** Bits of `pg_trigger.tgtype`. A trigger without `row` fires once for each statement, and one without `before` after it. */
export const FIRES = { row: 1, before: 2, insert: 4, delete: 8, update: 16, truncate: 32 } as const

/** Few enough to be read, enough to tell two statements apart. */
const DIGEST_DIGITS = 8

/** A trigger, as it should stand. */
export interface Trigger {
  readonly name: string
  /** The function's name. */
  readonly runs: string
  /** As `pg_trigger.tgtype` has it: a sum of `FIRES`. */
  readonly type: number
  /** It has a WHEN. */
  readonly conditional: boolean
  /** The columns that it must name, in this order. undefined: whichever. */
  readonly columns?: readonly string[]
  /** The columns that its condition names, in any order. undefined: whichever. */
  readonly compares?: readonly string[]
  /** The whole CREATE TRIGGER statement. */
  readonly create: string
}

/** When a trigger fires, and what it runs. */
export interface Firing {
  readonly name: string
  readonly time: 'BEFORE' | 'AFTER'
  /** The last one is of the columns, where some are named. */
  readonly events: readonly Exclude<keyof typeof FIRES, 'row' | 'before'>[]
  /** Of `UPDATE OF`. @default []: whichever */
  readonly columns?: readonly string[]
  /** @default 'ROW' */
  readonly each?: 'ROW' | 'STATEMENT'
  /** Transition tables. */
  readonly referencing?: string
  /**
   * For an OR. As short as can be: the server parses and plans it once for each statement that writes to the table, and
   * it is false for practically every row. What else must hold, the function looks at.
   */
  readonly when?: readonly string[]
  /** A function in the table's schema. */
  readonly runs: string
  /** @default [] */
  readonly args?: readonly string[]
}

/** A function that triggers run, as it should stand in the table's schema. */
export interface TriggerFunction {
  readonly name: string
  readonly body: string
}

/** Triggers of one table and the functions that they run, as they should stand. */
export interface TriggerSet {
  readonly kind: TriggerKind
  /** Tells it from others of its kind on the table; it stays where the table is renamed. */
  readonly name: string
  readonly table: RelationName
  /** A table of another schema whose name the functions find too. */
  readonly path: RelationName | undefined
  /** By what they are to the set: in which columns it finds what it works on. A renamed one is followed. */
  readonly columns: Readonly<Record<string, string>>
  /** Tables that its functions keep to themselves, in the table's schema; of its owner. */
  readonly tables: readonly string[]
  /** What the body of the first function says. */
  readonly note: TriggerNote
  /** The oldest protocol of an installed set that this release can work with. */
  readonly accepts: number
  /** The body of the first one holds the note. */
  readonly functions: readonly TriggerFunction[]
  /** Functions that all tables of the schema share: triggers run them by the table and the arguments they come with. */
  readonly kernel: readonly TriggerFunction[]
  readonly triggers: readonly (Trigger & { readonly digest: string })[]
  /** Every statement that makes the set, and every one that removes it. */
  readonly create: readonly string[]
  readonly drop: readonly string[]
}

/**
 * What the body of the first function of a set says, as JSON in a comment: what the catalog does not show, and what is to
 * be known of a set that nobody declares any more. Comments of the catalog would not do: a dump may leave them out, and
 * they do not reach other nodes of a cluster.
 */
export interface TriggerNote {
  readonly kind: TriggerKind
  readonly name: string
  /** Raised when a change of what the triggers do makes an installed set wrong. */
  readonly protocol: number
  /** The oldest protocol of a release that can work with this set. @default protocol */
  readonly serves?: number
  readonly path?: RelationName
  readonly columns?: Readonly<Record<string, string>>
  /** `adopt` is not done with the rows: nobody may rely on the set yet. */
  readonly adopting?: boolean
  /** Digests of the statements that made the triggers: the server gives a condition back in words of its own. */
  readonly triggers: readonly string[]
}

/** What becomes of the rows when a set of triggers goes that nobody declares any more; its triggers are gone by then. */
export interface RemovedRows {
  readonly change?: Change
  /** Columns that go with the set where no entity declares them, and on the way back get their values from `fill`. */
  readonly filled?: readonly FilledColumn[]
  readonly fill?: readonly string[]
}

/** The table as it is by now. */
export interface RemovedFrom {
  readonly schema: string | undefined
  readonly table: string
  /** Columns of the primary key. */
  readonly primary: readonly string[]
}

/** What a set is made of. */
export interface TriggerSetParts {
  readonly kind: TriggerKind
  readonly name: string
  readonly table: RelationName
  /** For a table whose schema its entity leaves out, while that of the triggers is in another one. */
  readonly path?: RelationName | undefined
  /** @default {} */
  readonly columns?: Readonly<Record<string, string>>
  /** @default [] */
  readonly tables?: readonly string[]
  /** The page that says what the functions do, as their first line tells. */
  readonly docs: string
  readonly functions: readonly {
    readonly name: string
    readonly body: string
    /** A sentence that says what it does, for a comment. */
    readonly says: string
  }[]
  /** @default [] */
  readonly kernel?: readonly TriggerFunction[]
  /** For a table in this schema, which is undefined where `search_path` decides. */
  readonly triggers: (schema: string | undefined) => readonly Trigger[]
  /** @default the note's protocol */
  readonly accepts?: number
  /** What the note is to hold besides; members that are undefined are left out. */
  readonly note: Readonly<Record<string, unknown>> & { readonly protocol: number }
}

/** Puts marks, notes and digests onto triggers and their functions, so that they are found and compared. */
export function triggerSet({ kind, name, table, columns, kernel = [], ...parts }: TriggerSetParts): TriggerSet {
  const relation = qualified(table.schema, table.name)
  const triggers = parts.triggers(table.schema)
  // Without the schema: a DataSource that names it and one that leaves it out mean the same triggers.
  const digests = parts.triggers(undefined).map(({ create }) => digestOf(create))
  const { protocol, ...rest } = parts.note
  const note = present({
    protocol,
    kind,
    name,
    path: parts.path,
    columns,
    ...rest,
    triggers: digests,
  }) as unknown as TriggerNote
  const functions = parts.functions.map(({ says, name: called, body }, position) => ({
    name: called,
    body:
      `${headOf(kind, parts.docs)}\n-- It ${says.replaceAll(/\s+/g, ' ')}` +
      `${position === 0 ? `\n${commentOf(note)}` : ''}${body}`,
  }))
  const sources = functions.map((one) => ({ ...one, schema: table.schema, path: parts.path, relation }))
  const shared = kernel.map((one) => ({ ...one, schema: table.schema, relation }))
  const shares = shared.map((source) => ({ relation, source }))
  return {
    kind,
    name,
    table,
    path: parts.path,
    columns: columns ?? {},
    tables: parts.tables ?? [],
    note,
    accepts: parts.accepts ?? protocol,
    functions,
    kernel,
    triggers: triggers.map((one, index) => ({ ...one, digest: digests[index] ?? '' })),
    create: [...makeFunctions({ fresh: sources, kernel: shared, shares }), ...triggers.map(({ create }) => create)],
    drop: [
      ...triggers.map((one) => dropTrigger(relation, one.name)),
      dropFunctions(sources),
      ...shared.map(dropKernel),
    ],
  }
}

const LINE_CHARACTERS = 116

/** Every trigger of every set is made here. */
export function triggerOn(table: RelationName, firing: Firing): Trigger {
  const { name, time, events, columns = [], each = 'ROW', referencing, when = [], runs, args = [] } = firing
  const fires = `${time} ${events.join(' OR ').toUpperCase()}${columns.length === 0 ? '' : ' OF'}`
  const on = [
    `ON ${qualified(table.schema, table.name)}`,
    ...(referencing === undefined ? [] : [`REFERENCING ${referencing}`]),
  ]
  const [first = '', ...more] = args.map(literal)
  const create = packed(
    [
      `CREATE TRIGGER ${quote(name)} ${fires}`,
      ...columns.map((one, at) => `${quote(one)}${at < columns.length - 1 ? ',' : ''}`),
      `${on.join(' ')} FOR EACH ${each}`,
      ...when.map((one, at) => `${at === 0 ? 'WHEN (' : 'OR '}${one}${at === when.length - 1 ? ')' : ''}`),
      ...[`EXECUTE FUNCTION ${qualified(table.schema, runs)}(${first}`, ...more].map(
        (one, at) => `${one}${at < more.length ? ',' : ')'}`,
      ),
    ],
    ' ',
    LINE_CHARACTERS,
  ).join('\n  ')
  const type = [
    ...events,
    ...(each === 'ROW' ? ['row' as const] : []),
    ...(time === 'BEFORE' ? ['before' as const] : []),
  ]
    .map((one) => FIRES[one])
    .reduce((sum, one) => sum + one, 0)
  return { name, runs, type, conditional: when.length > 0, ...(columns.length > 0 ? { columns } : {}), create }
}

const digestOf = (sql: string): string =>
  createHash('sha256').update(withoutComments(sql)).digest('hex').slice(0, DIGEST_DIGITS)

const present = (members: Readonly<Record<string, unknown>>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined))

const headOf = (kind: string, docs: string): string =>
  `\n${TRIGGER_MARK}${kind}: generated, do not edit; see ${docs} of the package.`

/** A function of the kernel, with its mark. Its name holds its version: two releases may have one each. */
export const kernelFunction = (name: string, docs: string, body: string): TriggerFunction => ({
  name,
  body: `${headOf(KERNEL, docs)}${body}`,
})

/** Whether a body is that of a function which all tables of a schema share. */
export const isKernel = (body: string): boolean => body.trimStart().startsWith(`${TRIGGER_MARK}${KERNEL}`)

/** In lines, so that a migration can be read. */
function commentOf(note: TriggerNote): string {
  const members = Object.entries(note).map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`)
  return `-- {${list(members, 0).replaceAll('\n', '\n-- ')}}`
}

/** undefined where the body holds no note. */
export function parseNote(body: string): TriggerNote | undefined {
  const lines = body.split('\n').map((line) => line.trim())
  const start = lines.findIndex((line) => line.startsWith('-- {'))
  const end = lines.findIndex((line, index) => index >= start && line.endsWith('}'))
  if (start < 0 || end < 0 || !body.trimStart().startsWith(TRIGGER_MARK)) return undefined
  const json = lines.slice(start, end + 1).map((line) => line.replace(/^--/, ''))
  try {
    return JSON.parse(json.join(' ')) as TriggerNote
  } catch {
    return undefined
  }
}
