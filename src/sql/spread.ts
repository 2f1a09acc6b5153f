import type { Query } from './catalog'

/** Where the rows of a table are. */
export interface Spread {
  /** undefined: not on other nodes of a cluster. */
  readonly distribution: Distribution | undefined
  /** Of the cluster; true where there is none. */
  readonly isCoordinator: boolean
  /** Columns by which the table, or a partition of it, is partitioned; `''` for an expression. */
  readonly partitionedBy: readonly string[]
  /** Partitions that one of the table's triggers does not serve. */
  readonly unguarded: readonly string[]
}

/** What the metadata of a cluster says of a table. */
export interface Distribution {
  /** The rows are in shards by a column, in one shard, or in a copy on every node. */
  readonly kind: 'column' | 'single' | 'reference'
  readonly column: string | undefined
}

const PARTITIONS = `SELECT
  EXISTS (SELECT FROM pg_catalog.pg_extension AS e WHERE e.extname = 'citus') AS citus,
  coalesce((SELECT pg_catalog.json_agg(DISTINCT coalesce(a.attname, ''))
    FROM pg_catalog.pg_partition_tree(pg_catalog.to_regclass($1)) AS p
    JOIN pg_catalog.pg_partitioned_table AS d ON d.partrelid = p.relid
    CROSS JOIN LATERAL pg_catalog.unnest(d.partattrs) AS k (attnum)
    LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.partrelid AND a.attnum = k.attnum AND k.attnum > 0
  ), '[]')::text AS "partitionedBy",
  coalesce((SELECT pg_catalog.json_agg(DISTINCT c.relname)
    FROM pg_catalog.pg_partition_tree(pg_catalog.to_regclass($1)) AS p
    JOIN pg_catalog.pg_class AS c ON c.oid = p.relid
    CROSS JOIN pg_catalog.pg_trigger AS g
    WHERE p.level > 0 AND c.relkind = 'r' AND NOT g.tgisinternal
      AND g.tgrelid = pg_catalog.to_regclass($1) AND pg_catalog.starts_with(g.tgname, 'unique_text_')
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger AS o
        WHERE o.tgrelid = p.relid AND o.tgname = g.tgname AND o.tgfoid = g.tgfoid AND o.tgenabled IN ('O', 'A'))
  ), '[]')::text AS "unguarded"`

/** Of tables that the cluster knows. Only where the extension is there. */
const DISTRIBUTION = `SELECT
  CASE WHEN d.partmethod <> 'n' THEN 'column' WHEN d.repmodel = 't' THEN 'reference'
    WHEN d.colocationid = 0 THEN 'local' ELSE 'single' END AS kind,
  CASE WHEN d.partmethod <> 'n' THEN column_to_column_name(d.logicalrelid, d.partkey::text) END AS "column",
  citus_is_coordinator() AS coordinator
FROM pg_catalog.pg_dist_partition AS d
WHERE d.logicalrelid = pg_catalog.to_regclass($1)`

/** @param relation the table's name as SQL */
export async function spreadOf(query: Query, relation: string): Promise<Spread> {
  const [row] = (await query(PARTITIONS, [relation])) as readonly {
    readonly citus: boolean
    readonly partitionedBy: string
    readonly unguarded: string
  }[]
  const [known] = (row?.citus === true ? await query(DISTRIBUTION, [relation]) : []) as readonly {
    readonly kind: Distribution['kind'] | 'local'
    readonly column: string | null
    readonly coordinator: boolean
  }[]
  return {
    distribution: known && known.kind !== 'local' ? { kind: known.kind, column: known.column ?? undefined } : undefined,
    isCoordinator: known?.coordinator ?? true,
    partitionedBy: JSON.parse(row?.partitionedBy ?? '[]') as string[],
    unguarded: JSON.parse(row?.unguarded ?? '[]') as string[],
  }
}
