import { fitName } from './identifier'
import { placeBody } from './guard-place'
import { settleBody } from './guard-settle'
import { guardTriggers } from './guard-triggers'
import type { TextTable } from './text-table'
import {
  parseNote,
  type TriggerFunction,
  triggerSet,
  type TriggerNote,
  type TriggerSet,
  type TriggerSetParts,
} from './trigger-set'

/** Raised when a change of the protocol makes an installed guard wrong; part of the guard's comment. */
const PROTOCOL_VERSION = 1

/** The guard of one text, as it should stand. */
export interface Guard extends TriggerSet {
  /** BEFORE: computes the hash and takes the place in the chain. Its comment holds the note. */
  readonly place: TriggerFunction
  /** AFTER: touches and promotes. */
  readonly settle: TriggerFunction
}

/** What each part of the guard does is in docs/protocol.md. */
export function guardOf(table: TextTable): Guard {
  const [placeName, settleName] = [fitName(`${table.guard}_place`), fitName(`${table.guard}_settle`)]
  const of = table.text.map(({ name }) => `"${name}"`).join(', ')
  const placed = {
    name: placeName,
    body: placeBody(table),
    says: `computes the hash of ${of} and finds its number in the chain.`,
  }
  const settled = {
    name: settleName,
    body: settleBody(table),
    says: `keeps an anchor in the chains of ${of} when rows come, change and go.`,
  }
  const set = triggerSet({
    kind: 'guard',
    name: table.name,
    table: { schema: table.schema, name: table.table },
    docs: 'docs/protocol.md of the package says what it does, and why no text can be stored twice.',
    functions: [placed, settled],
    triggers: (schema) => guardTriggers({ ...table, schema }, placeName, settleName),
    note: noteOf(table),
  })
  const [place, settle] = set.functions as [TriggerFunction, TriggerFunction]
  return { ...set, place, settle }
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
 * What the comment on `place` says: enough to find a drift that the catalog does not show, to follow a renamed column,
 * and to make the rows anew as they were.
 */
export interface GuardNote extends TriggerNote, Pick<TextTable, (typeof NOTED)[number]> {
  readonly kind?: never
  /** The name of the digest. */
  readonly digest: string
}

const noteOf = (table: TextTable): TriggerSetParts['note'] => ({
  protocol: PROTOCOL_VERSION,
  digest: table.digest.name,
  ...Object.fromEntries(NOTED.map((key) => [key, table[key]])),
})

/** undefined where the comment holds no note of a guard, or that of a version which wrote something else. */
export function parseGuardComment(comment: string | null): GuardNote | undefined {
  const note = parseNote(comment)
  return note?.kind === undefined && note?.protocol === PROTOCOL_VERSION ? (note as GuardNote) : undefined
}
