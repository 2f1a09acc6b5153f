import { createHash } from 'node:crypto'
import type { Change, FilledColumn } from './alter'
import { list, qualified } from './identifier'
import { commentOnFunction, createFunctions, dropFunctions, dropTrigger, type Relation } from './trigger-ddl'

/** What keeps rows right: the texts of a column, the names that rows hold, or the numbers that they have. */
export type TriggerKind = 'guard' | 'names' | 'numbers'

/** Start the body and the comment of every function of a set; by them it is found, whatever became of its name. */
export const TRIGGER_MARK = '-- typeorm-unique-text '
export const TRIGGER_COMMENT = 'typeorm-unique-text: '

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
  /** The whole CREATE TRIGGER statement. */
  readonly create: string
}

/** A function that triggers run, as it should stand in the table's schema. */
export interface TriggerFunction {
  readonly name: string
  readonly body: string
  readonly comment: string
}

/** Triggers of one table and the functions that they run, as they should stand. */
export interface TriggerSet {
  readonly kind: TriggerKind
  /** Tells it from others of its kind on the table; it stays where the table is renamed. */
  readonly name: string
  readonly table: Relation
  /** A table of another schema whose name the functions find too. */
  readonly path: Relation | undefined
  /** By what they are to the set: in which columns it finds what it works on. A renamed one is followed. */
  readonly columns: Readonly<Record<string, string>>
  /** The comment on the first one holds the note. */
  readonly functions: readonly TriggerFunction[]
  readonly triggers: readonly (Trigger & { readonly digest: string })[]
  /** Every statement that makes the set, and every one that removes it. */
  readonly create: readonly string[]
  readonly drop: readonly string[]
}

/**
 * What the comment on the first function of a set says, as JSON: what the catalog does not show, and what is to be known
 * of a set that nobody declares any more.
 */
export interface TriggerNote {
  /** undefined: a guard. */
  readonly kind?: Exclude<TriggerKind, 'guard'>
  readonly name: string
  /** Raised when a change of what the triggers do makes an installed set wrong. */
  readonly protocol: number
  readonly path?: Relation
  readonly columns?: Readonly<Record<string, string>>
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
  readonly table: Relation
  /** For a table whose schema its entity leaves out, while that of the triggers is in another one. */
  readonly path?: Relation | undefined
  /** @default {} */
  readonly columns?: Readonly<Record<string, string>>
  /** What a reader of a function's source is told after its first line, as a comment. */
  readonly docs: string
  readonly functions: readonly {
    readonly name: string
    readonly body: string
    /** A sentence that says what it does, for the comment. */
    readonly says: string
  }[]
  /** For a table in this schema, which is undefined where `search_path` decides. */
  readonly triggers: (schema: string | undefined) => readonly Trigger[]
  /** What the comment is to hold besides; members that are undefined are left out. */
  readonly note: Readonly<Record<string, unknown>> & { readonly protocol: number }
}

/** Puts marks, notes and digests onto triggers and their functions, so that they are found and compared. */
export function triggerSet({ kind, name, table, path, columns = {}, docs, ...parts }: TriggerSetParts): TriggerSet {
  const relation = qualified(table.schema, table.name)
  const triggers = parts.triggers(table.schema)
  // Without the schema: a DataSource that names it and one that leaves it out mean the same triggers.
  const digests = parts
    .triggers(undefined)
    .map(({ create }) => createHash('sha256').update(create).digest('hex').slice(0, DIGEST_DIGITS))
  const { protocol, ...rest } = parts.note
  const note = noteOf({
    protocol,
    ...(kind === 'guard' ? {} : { kind, name, path, columns }),
    ...rest,
    triggers: digests,
  })
  const functions = parts.functions.map(({ says, ...one }, position) => ({
    name: one.name,
    body: `\n${TRIGGER_MARK}${kind}: generated, do not edit.\n-- ${docs}${one.body}`,
    comment: `${TRIGGER_COMMENT}${says}${position === 0 ? `\n${note}` : ''}`,
  }))
  const sources = functions.map((one) => ({ ...one, schema: table.schema, path }))
  return {
    kind,
    name,
    table,
    path,
    columns,
    functions,
    triggers: triggers.map((one, index) => ({ ...one, digest: digests[index] ?? '' })),
    create: [
      ...createFunctions(relation, sources),
      ...sources.map((one) => commentOnFunction(one, one.comment)),
      ...triggers.map(({ create }) => create),
    ],
    drop: [...triggers.map((one) => dropTrigger(relation, one.name)), dropFunctions(sources)],
  }
}

/** In lines, so that a migration can be read. */
function noteOf(members: Readonly<Record<string, unknown>>): string {
  const lines = Object.entries(members)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`)
  return `{${list(lines, 0)}}`
}

/** undefined where the comment holds no note. */
export function parseNote(comment: string | null): TriggerNote | undefined {
  // The last one: a name can hold a line break, which JSON escapes.
  const start = [...(comment ?? '').matchAll(/\n *\{/g)].at(-1)?.index
  if (comment === null || start === undefined) return undefined
  try {
    return JSON.parse(comment.slice(start)) as TriggerNote
  } catch {
    return undefined
  }
}
