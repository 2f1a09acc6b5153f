import type { Change } from './alter'
import type { Query } from './catalog'
import { literal, qualified, quote } from './identifier'
import { type TextTable, tableName } from './text-table'

/** Starts the comment on every index of ours. */
const INDEX_COMMENT = 'typeorm-unique-text: '

/** The index that the option `lookup` adds: over the text itself, for equality in SQL that names no hash. */
export interface LookupIndex {
  readonly rows: Pick<TextTable, 'schema' | 'table'>
  readonly name: string
  readonly column: string
}

const METHOD = 'USING hash'

/** Of `hash`: one key is four bytes, however long the text; a btree refuses long ones. */
export function addLookup({ rows, name, column }: LookupIndex): Change {
  const comment = `${INDEX_COMMENT}finds "${column}" by equality in SQL that names no hash; no other use needs it.`
  const index = qualified(rows.schema, name)
  return {
    up: [
      `CREATE INDEX ${quote(name)} ON ${tableName(rows)} ${METHOD} (${quote(column)})`,
      `COMMENT ON INDEX ${index} IS ${literal(comment)}`,
    ],
    down: [`DROP INDEX ${index}`],
  }
}

/**
 * The look-up indexes that stand in these schemas: those with our comment, and those of the names that are wanted, which
 * somebody may have made beforehand without locking the table.
 */
export async function installedLookups(
  query: Query,
  schemas: readonly string[],
  wanted: readonly string[],
): Promise<readonly string[]> {
  const rows = (await query(
    `SELECT c.relname AS name
       FROM pg_catalog.pg_index AS i
       JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid
       JOIN pg_catalog.pg_am AS a ON a.oid OPERATOR(pg_catalog.=) c.relam
       JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
      WHERE n.nspname OPERATOR(pg_catalog.=) ANY ($1) AND a.amname OPERATOR(pg_catalog.=) 'hash' AND i.indisvalid
        AND (pg_catalog.starts_with(pg_catalog.obj_description(c.oid, 'pg_class'), $2) OR c.relname OPERATOR(pg_catalog.=) ANY ($3))`,
    [schemas, INDEX_COMMENT, wanted],
  )) as readonly { readonly name: string }[]
  return rows.map(({ name }) => name)
}
