import { qualified, quote } from './identifier'

import type { NamesColumn, NamesTable, RefusedName } from './name-table'
import type { Statement } from './statements'
import { equal, op } from './text-table'

/** A name that somebody has, of those that were asked for. */
export interface FoundName extends Pick<RefusedName, 'holder' | 'holderColumn' | 'state'> {
  /** 0-based position of what was asked. */
  readonly requested: number
  /** The primary key of its holder, as texts. */
  readonly key: readonly string[]
}

/**
 * Who has which of several names; former ones count until their time is over.
 *
 * Parameters: an array of namespaces, of names and of their hashes.
 */
export function takenNamesStatement(names: NamesTable): Statement<FoundName> {
  const field = (column: NamesColumn): string => `n.${quote(names.columns[column])}`
  return {
    name: '',
    sql: `SELECT i.ordinal ${op('-')} 1, ${field('holder')}, ${field('property')}, ${field('state')},
  (SELECT pg_catalog.json_agg(v) FROM pg_catalog.jsonb_array_elements_text(${field('key')}) AS v)::pg_catalog.text
FROM ROWS FROM (${[1, 2, 3].map((one) => `pg_catalog.unnest($${one}::pg_catalog.text[])`).join(', ')})
  WITH ORDINALITY AS i (namespace, text, hash, ordinal)
JOIN ${qualified(names.schema, names.table)} AS n ON ${equal(field('namespace'), 'i.namespace')}
  AND ${equal(field('hash'), `i.hash::pg_catalog.${names.digest.type}`)}
  AND ${equal(`${field('text')} COLLATE pg_catalog."C"`, 'i.text')}
WHERE ${equal(field('state'), `'held'`)} OR ${field('until')} IS NULL
  OR ${field('until')} ${op('>')} pg_catalog.statement_timestamp()
ORDER BY i.ordinal`,
    parse: ([requested, holder, holderColumn, state, key]) => ({
      requested: Number(requested),
      holder: String(holder),
      holderColumn: String(holderColumn),
      state: state as FoundName['state'],
      key: JSON.parse(String(key)) as string[],
    }),
  }
}
