import type { EntityText } from '../core'
import { queryOf } from '../schema/table'
import { readJson } from '../sql/catalog'
import { EQUALS, joinOf, tableName } from '../sql/text-table'

/** The size in bytes of an index, including its partitions, and of the server's cache. */
interface IndexSize {
  readonly index: number
  /** `shared_buffers`. */
  readonly cache: number
  readonly page: number
}

/** The size of a text's unique index, on a connection of its own. */
export async function indexSizeOf({ dataSource, declaration: { table } }: EntityText): Promise<IndexSize> {
  return await readJson(
    queryOf(dataSource),
    `SELECT pg_catalog.jsonb_build_object(
              'index', coalesce((
                SELECT pg_catalog.sum(pg_catalog.pg_relation_size(coalesce(p.relid, i.indexrelid)))
                  FROM pg_catalog.pg_index AS i ${joinOf('pg_class', 'c', 'i.indexrelid')}
                  LEFT JOIN LATERAL pg_catalog.pg_partition_tree(i.indexrelid) AS p ON true
                 WHERE i.indrelid ${EQUALS} pg_catalog.to_regclass($1) AND c.relname ${EQUALS} $2), 0),
              'cache', pg_catalog.pg_size_bytes(pg_catalog.current_setting('shared_buffers')),
              'page', pg_catalog.current_setting('block_size')::integer)::pg_catalog.text AS state`,
    [tableName(table), table.index],
  )
}
