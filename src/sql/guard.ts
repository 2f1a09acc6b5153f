import { createHash } from 'node:crypto'
import { commentOnFunction, createFunctions, dropFunctions, dropTrigger } from './guard-ddl'
import { fitName, list } from './identifier'
import { placeBody } from './guard-place'
import { settleBody } from './guard-settle'
import { type GuardTrigger, guardTriggers } from './guard-triggers'
import { type TextTable, tableName } from './text-table'

/** Raised when a change of the protocol makes an installed guard wrong; part of the guard's comment. */
const PROTOCOL_VERSION = 1

/** Start the body and the comment of every function of a guard; by them it is found, whatever became of its name. */
export const GUARD_MARK = '-- typeorm-unique-text guard'
export const GUARD_COMMENT = 'typeorm-unique-text: '

const HEADER = `
${GUARD_MARK}: generated, do not edit.
-- docs/protocol.md of the package says what it does, and why no text can be stored twice.`

/** Few enough to be read, enough to tell two statements apart. */
const DIGEST_DIGITS = 8

/** A function of the guard, as it should stand in the table's schema. */
export interface GuardFunction {
  readonly name: string
  readonly body: string
  readonly comment: string
}

/** The guard of one text, as it should stand. */
export interface Guard {
  readonly table: { readonly schema: string | undefined; readonly name: string }
  /** BEFORE: computes the hash and takes the place in the chain. Its comment holds the note. */
  readonly place: GuardFunction
  /** AFTER: touches and promotes. */
  readonly settle: GuardFunction
  readonly triggers: readonly (GuardTrigger & { readonly digest: string })[]
  /** Every statement that makes the guard, and every one that removes it. */
  readonly create: readonly string[]
  readonly drop: readonly string[]
}

/** What each part of the guard does is in docs/protocol.md. */
export function guardOf(table: TextTable): Guard {
  const [placeName, settleName] = [fitName(`${table.guard}_place`), fitName(`${table.guard}_settle`)]
  const triggers = guardTriggers(table, placeName, settleName)
  // Without the schema: a DataSource that names it and one that leaves it out mean the same guard.
  const plain = guardTriggers({ ...table, schema: undefined }, placeName, settleName)
  const digests = plain.map(({ create }) => createHash('sha256').update(create).digest('hex').slice(0, DIGEST_DIGITS))
  const of = table.text.map(({ name }) => `"${name}"`).join(', ')
  const place: GuardFunction = {
    name: placeName,
    body: HEADER + placeBody(table),
    comment: `${GUARD_COMMENT}computes the hash of ${of} and finds its number in the chain.\n${noteOf(table, digests)}`,
  }
  const settle: GuardFunction = {
    name: settleName,
    body: HEADER + settleBody(table),
    comment: `${GUARD_COMMENT}keeps an anchor in the chains of ${of} when rows come, change and go.`,
  }
  const functions = [place, settle].map((one) => ({ ...one, schema: table.schema }))
  return {
    table: { schema: table.schema, name: table.table },
    place,
    settle,
    triggers: triggers.map((one, index) => ({ ...one, digest: digests[index] ?? '' })),
    create: [
      ...createFunctions(tableName(table), functions),
      ...functions.map((one) => commentOnFunction(one, one.comment)),
      ...triggers.map(({ create }) => create),
    ],
    drop: [...triggers.map(({ name }) => dropTrigger(tableName(table), name)), dropFunctions(functions)],
  }
}

/** What of a declaration the rows depend on, as the guard's comment holds it. */
const NOTED = [
  'name',
  'text',
  'normalizers',
  'scope',
  'deleted',
  'nullable',
  'hash',
  'number',
  'chained',
  'index',
  'check',
] as const

/**
 * What the comment on `place` says, as JSON: enough to find a drift that the catalog does not show, to follow a renamed
 * column, and to make the rows anew as they were.
 */
export interface GuardNote extends Pick<TextTable, (typeof NOTED)[number]> {
  readonly protocol: number
  /** The name of the digest. */
  readonly digest: string
  /** Digests of the statements that made the triggers: the server gives a condition back in words of its own. */
  readonly triggers: readonly string[]
}

/** In lines, so that a migration can be read. */
function noteOf(table: TextTable, triggers: readonly string[]): string {
  const members: Readonly<Record<string, unknown>> = {
    protocol: PROTOCOL_VERSION,
    digest: table.digest.name,
    ...Object.fromEntries(NOTED.map((key) => [key, table[key]])),
    triggers,
  }
  const lines = Object.entries(members)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`)
  return `{${list(lines, 0)}}`
}

/** undefined where the comment holds no note, or that of a version which wrote something else. */
export function parseGuardComment(comment: string | null): GuardNote | undefined {
  // The last one: a name can hold a line break, which JSON escapes.
  const start = [...(comment ?? '').matchAll(/\n *\{/g)].at(-1)?.index
  if (comment === null || start === undefined) return undefined
  try {
    const note = JSON.parse(comment.slice(start)) as GuardNote
    return note.protocol === PROTOCOL_VERSION ? note : undefined
  } catch {
    return undefined
  }
}
