import type { Digest } from '../text/digest'
import { type ServerError, SQLSTATE } from './sqlstate'

/** The columns of the table of names. */
export type NamesColumn =
  | 'id'
  | 'namespace'
  | 'text'
  | 'hash'
  | 'number'
  | 'holder'
  | 'property'
  | 'key'
  | 'since'
  | 'state'
  | 'until'

/** The table of names, by its database names. */
export interface NamesTable {
  /** undefined: `search_path` decides. */
  readonly schema: string | undefined
  readonly table: string
  readonly columns: Readonly<Record<NamesColumn, string>>
  /** The unique index over namespace, hash and hash number: the constraint of every refusal. */
  readonly index: string
  readonly digest: Digest
}

/** What an UPDATE that changes a name makes of the former one. */
export interface FormerPolicy {
  /** `free`: its row goes. `reserved`: nobody else can take it. `redirect`: that, and it still leads to its holder. */
  readonly state: 'free' | 'reserved' | 'redirect'
  /** As an interval of Postgres (`90 days`). undefined: no end. */
  readonly interval?: string | undefined
}

/** A column that holds a name. */
export interface NameColumn {
  readonly column: string
  readonly namespace: string
  readonly former: FormerPolicy
  /** What made the stored texts, as `name@version`. @default none@1 */
  readonly normalizer?: string
}

/** A table whose rows hold names, by its database names. */
export interface HolderTable {
  /** undefined: `search_path` decides. */
  readonly schema: string | undefined
  readonly table: string
  /** What the table of names calls it: its path in TypeORM, with the schema only where the entity declares one. */
  readonly holder: string
  /** The primary key, in the order of the values of `key`; types as Postgres writes them (`character varying`). */
  readonly primary: readonly { readonly name: string; readonly type: string }[]
  readonly names: readonly NameColumn[]
  readonly of: NamesTable
}

/** A name of a statement that was refused, as an element of the DETAIL of its 23505; never with the text. */
export interface RefusedName {
  /** The column of the writing table that was to hold it. */
  readonly column: string
  /** The primary key of the row that was to hold it. */
  readonly of: readonly unknown[]
  /** Whose it is: `HolderTable.holder`, its column, and the primary key of the row; null for who cannot read it. */
  readonly holder: string
  readonly holderColumn: string
  readonly key: readonly unknown[] | null
  readonly state: 'held' | 'reserved' | 'redirect'
}

/** The names that the triggers of a holder's table refused; undefined for another error. */
export function refusedNames(
  { code, constraint, detail }: ServerError,
  { index }: Pick<NamesTable, 'index'>,
): readonly RefusedName[] | undefined {
  if (code !== SQLSTATE.uniqueViolation || constraint !== index || detail?.startsWith('[') !== true) return undefined
  try {
    return JSON.parse(detail) as RefusedName[]
  } catch {
    return undefined
  }
}
