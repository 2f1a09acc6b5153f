import type { InstalledTriggers } from '../sql/catalog'
import { fillTexts } from '../sql/library'
import { hashExpression, type TextRows, type TextTable } from '../sql/text-table'
import { type InstalledDeclaration, trustedIn, type WantedDeclaration, wantedDeclaration } from './attached'
import { type GuardDeclaration, isOwnDigest, shortDeclaration } from './kinds'

/** The guard of a text, as it should exist. */
export type Guard = WantedDeclaration<GuardDeclaration>

/** The rules of rows, perhaps without what only a guard needs. */
type GuardedRows = TextRows & Partial<Pick<TextTable, 'immutable' | 'maxChainLength' | 'guard'>>

function declarationOf({ immutable = false, maxChainLength = 100, guard, ...table }: GuardedRows): GuardDeclaration {
  return {
    kind: 'text',
    protocol: 1,
    name: table.name,
    text: table.text.map(({ name }) => name),
    prefixes: table.text.map(({ prefix }) => prefix),
    scope: table.scope,
    hash: table.hash,
    number: table.number,
    chained: table.chained,
    index: table.index,
    check: table.check,
    digest: table.digest.name,
    nullable: table.nullable,
    immutable,
    maxChainLength,
    normalizers: table.normalizers,
    ...(isOwnDigest(table.digest) ? { hashed: hashExpression(table, 'NEW') } : {}),
    ...(table.deleted === undefined ? {} : { deleted: table.deleted }),
    ...(table.spread === undefined ? {} : { spread: true }),
    ...(guard === undefined || guard === `unique_text_${table.table}__${table.name}` ? {} : { guard }),
  }
}

/**
 * Gives every row the declared hash, number and flag. Rows that hold the same text are refused.
 *
 * @param digest the name of the digest. If it is not that of the rows, the digest is not known, and the statement fails
 */
export function fillHashes(rows: TextRows, digest: string = rows.digest.name): string {
  const declaration: GuardDeclaration = { ...declarationOf(rows), digest }
  return fillTexts(rows, shortDeclaration(declaration))
}

/** The ends of the names of triggers, by the events on which they fire, as `pg_trigger.tgtype`. */
export const GUARD_TRIGGERS: ReadonlyMap<number, string> = new Map([
  [7, 'place_insert'],
  [19, 'place_update'],
  [23, 'rest'],
  [5, 'settle_insert'],
  [17, 'settle_update'],
  [9, 'settle_delete'],
])

/** Returns the guard that a text should have. */
export function guardOf(table: TextTable): Guard {
  const triggers = [...GUARD_TRIGGERS].map(([type, suffix]) => {
    const name = `${table.guard}_${suffix}`
    return { name, type, runs: suffix.startsWith('place_') ? 'the text' : 'the chains', conditional: true }
  })
  return wantedDeclaration({ table, declaration: declarationOf(table), label: table.guard, triggers, tables: [] })
}

/** Returns the guard of a text in a list, which is empty for a text without a guard. */
export const guardsOf = (table: TextTable): Guard[] => (table.guardless === true ? [] : [guardOf(table)])

/** The former rules of the rows, from the declaration of an installed guard. */
export interface GuardNote
  extends Omit<GuardDeclaration, 'text' | 'deleted' | 'spread'>, Pick<TextTable, 'text' | 'deleted'> {
  readonly installed: InstalledDeclaration<GuardDeclaration>
}

/** The declarations that only the table's owner, or a role that can act as the owner, can have written. */
export const guardNotesOf = (state: InstalledTriggers): GuardNote[] =>
  trustedIn<GuardDeclaration>('text', state).map((installed) => {
    const { spread: _, ...rules } = installed.declaration
    const { prefixes, text, deleted } = rules
    return {
      ...rules,
      text: text.map((name, position) => ({ name, prefix: prefixes[position] ?? '' })),
      deleted,
      installed,
    }
  })
