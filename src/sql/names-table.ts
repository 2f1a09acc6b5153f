import type { Digest } from '../text/digest'
import type { Statement } from './find'
import { qualified, quote } from './identifier'
import { type ServerError, SQLSTATE } from './sqlstate'
import { equal, op } from './text-table'

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

/** The table of names, with its database names. */
export interface NamesTable {
  /** If undefined, `search_path` decides. */
  readonly schema: string | undefined
  readonly table: string
  readonly columns: Readonly<Record<NamesColumn, string>>
  /** The unique index over namespace, hash and hash number. Every refusal names it as its constraint. */
  readonly index: string
  readonly digest: Digest
}

/** The fate of a former name after an UPDATE changes it. */
export interface FormerPolicy {
  /** `free`: the row is removed. `reserved`: others cannot take it. `redirect`: it also leads to its holder. */
  readonly state: 'free' | 'reserved' | 'redirect'
  /** A PostgreSQL interval (`90 days`). If undefined, the policy has no end. */
  readonly interval?: string | undefined
}

/** A name of a refused statement, as an element of the DETAIL of its 23505. It never contains the text. */
export interface RefusedName {
  /** The column of the writing table that was to hold the name. */
  readonly column: string
  /** The primary key of the row that was to hold the name. */
  readonly of: readonly unknown[]
  /** The holder: its table as stored, its column and its key. The key is null for a role that cannot read it. */
  readonly holder: string
  readonly holderColumn: string
  readonly key: readonly unknown[] | null
  readonly state: 'held' | 'reserved' | 'redirect'
}

/** Returns the names that the triggers of a holder's table refused. */
export function refusedNames(
  { code, constraint, detail }: ServerError,
  { index }: Pick<NamesTable, 'index'>,
): readonly RefusedName[] {
  if (code !== SQLSTATE.uniqueViolation || constraint !== index || detail?.startsWith('[') !== true) return []
  try {
    return JSON.parse(detail) as RefusedName[]
  } catch {
    return []
  }
}

/**
 * The table of the holder of a row of the table of names, as `RefusedName.holder` has it: with its schema if that is not
 * the schema of the table of names. The dot in a name is escaped, because the table `a`.`b.c` differs from `a.b`.`c`.
 */
export const holderOfRow = ({ columns }: Pick<NamesTable, 'columns'>, row: string): string =>
  `(SELECT pg_catalog.concat(CASE WHEN h.relnamespace ${op('<>')} k.relnamespace
      THEN pg_catalog.concat(${ESCAPED('s.nspname')}, '.') END, ${ESCAPED('h.relname')})
    FROM pg_catalog.pg_class AS h
    JOIN pg_catalog.pg_namespace AS s ON ${equal('s.oid', 'h.relnamespace')}
    JOIN pg_catalog.pg_class AS k ON ${equal('k.oid', `${row}.tableoid`)}
    WHERE ${equal('h.oid', `${row}.${quote(columns.holder)}`)})`

const ESCAPED = (name: string): string =>
  `pg_catalog.replace(pg_catalog.replace(${name}::pg_catalog.text, ':', '::'), '.', ':.')`

/** A requested name that has a holder. */
export interface FoundName extends Pick<RefusedName, 'holder' | 'holderColumn' | 'state'> {
  /** 0-based position in the request. */
  readonly requested: number
  /** The primary key of the holder, as texts. */
  readonly key: readonly string[]
}

/**
 * Finds the holders of several names. Former names count until their time is over.
 *
 * Parameters: an array of namespaces, one of names, and one of their hashes.
 */
export function takenNamesStatement(names: NamesTable): Statement<FoundName> {
  const field = (column: NamesColumn): string => `n.${quote(names.columns[column])}`
  return {
    name: '',
    sql: `SELECT i.ordinal ${op('-')} 1, ${holderOfRow(names, 'n')}, ${field('property')}, ${field('state')},
  (SELECT pg_catalog.json_agg(v) FROM pg_catalog.jsonb_array_elements_text(${field('key')}) AS v)::pg_catalog.text
FROM ROWS FROM (${[1, 2, 3].map((one) => `pg_catalog.unnest($${one}::pg_catalog.text[])`).join(', ')})
  WITH ORDINALITY AS i (namespace, text, hash, ordinal)
JOIN ${qualified(names.schema, names.table)} AS n ON ${equal(field('namespace'), 'i.namespace')}
  AND ${equal(field('hash'), `i.hash::pg_catalog.${names.digest.type}`)}
  AND ${equal(`${field('text')} COLLATE pg_catalog."C"`, 'i.text')}
WHERE ${equal(field('state'), `'held'`)} OR ${field('until')} IS NULL
  OR ${field('until')} ${op('>')} pg_catalog.statement_timestamp()`,
    parse: ([requested, holder, holderColumn, state, key]) => ({
      requested: Number(requested),
      holder: String(holder),
      holderColumn: String(holderColumn),
      state: state as FoundName['state'],
      key: JSON.parse(String(key)) as string[],
    }),
  }
}
