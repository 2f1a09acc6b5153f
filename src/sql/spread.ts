import { fitName, literal, qualified, quote } from './identifier'
import type { TextTable } from './text-table'

/** As the catalog's, which imports what is here. */
type Query = (sql: string, parameters?: unknown[]) => Promise<readonly unknown[]>

/** Where the rows of a table are. */
export interface Spread {
  /** undefined: not on other nodes of a cluster. */
  readonly distribution: Distribution | undefined
  /** Of the cluster; true where there is none. */
  readonly isCoordinator: boolean
  /** Columns by which the table, or a partition of it, is partitioned; `''` for an expression. */
  readonly partitionedBy: readonly string[]
  /** Partitions that one of the table's triggers for rows does not serve. */
  readonly unguarded: readonly string[]
}

/** What the metadata of a cluster says of a table. */
export interface Distribution {
  /** The rows are in shards by a column, in one shard, or in a copy on every node. */
  readonly kind: 'column' | 'single' | 'reference'
  readonly column: string | undefined
}

/** What the catalog says of where the rows of the table `r` are, as JSON. */
export const SPREAD_OF_R = `jsonb_build_object(
  'citus', EXISTS (SELECT FROM pg_extension AS e WHERE e.extname = 'citus'),
  'partitionedBy', (
    SELECT coalesce(jsonb_agg(DISTINCT coalesce(a.attname, '')), '[]')
      FROM pg_partition_tree(r.oid) AS p
      JOIN pg_partitioned_table AS d ON d.partrelid = p.relid
      CROSS JOIN LATERAL unnest(d.partattrs) AS k (attnum)
      LEFT JOIN pg_attribute AS a ON a.attrelid = d.partrelid AND a.attnum = k.attnum AND k.attnum > 0),
  'unguarded', (
    SELECT coalesce(jsonb_agg(DISTINCT c.relname), '[]')
      FROM pg_partition_tree(r.oid) AS p
      JOIN pg_class AS c ON c.oid = p.relid
      -- A statement that names the table fires triggers for statements of this table alone.
      JOIN pg_trigger AS g ON g.tgrelid = r.oid AND g.tgname = ANY ($3) AND g.tgtype & 1 = 1
     WHERE p.level > 0 AND c.relkind = 'r' AND NOT EXISTS (
       SELECT FROM pg_trigger AS o
        WHERE o.tgrelid = p.relid AND o.tgname = g.tgname AND o.tgfoid = g.tgfoid AND o.tgenabled IN ('O', 'A'))))`

/** What `SPREAD_OF_R` gives. */
export interface CatalogSpread extends Pick<Spread, 'partitionedBy' | 'unguarded'> {
  /** The database has the extension. */
  readonly citus: boolean
}

/** Of tables that the cluster knows. Only where the extension is there. */
const DISTRIBUTION = `SELECT
  CASE WHEN d.partmethod <> 'n' THEN 'column' WHEN d.repmodel = 't' THEN 'reference'
    WHEN d.colocationid = 0 THEN 'local' ELSE 'single' END AS kind,
  CASE WHEN d.partmethod <> 'n' THEN column_to_column_name(d.logicalrelid, d.partkey::text) END AS "column",
  citus_is_coordinator() AS coordinator
FROM pg_catalog.pg_dist_partition AS d
WHERE d.logicalrelid = pg_catalog.to_regclass($1)`

/**
 * Asks what only the metadata of a cluster says.
 *
 * @param relation the table's name as SQL
 */
export async function spreadOf(
  query: Query,
  relation: string,
  { citus, partitionedBy, unguarded }: CatalogSpread,
): Promise<Spread> {
  const [known] = (citus ? await query(DISTRIBUTION, [relation]) : []) as readonly {
    readonly kind: Distribution['kind'] | 'local'
    readonly column: string | null
    readonly coordinator: boolean
  }[]
  const distribution =
    known && known.kind !== 'local' ? { kind: known.kind, column: known.column ?? undefined } : undefined
  return { distribution, isCoordinator: known?.coordinator ?? true, partitionedBy, unguarded }
}

/** Whether the database has the extension, without which no table is distributed. */
export const hasCitus = async (query: Query): Promise<boolean> =>
  (await query(`SELECT FROM pg_catalog.pg_extension AS e WHERE e.extname = 'citus'`)).length > 0

/** @param relation the table's name as SQL */
export async function isDistributed(query: Query, relation: string): Promise<boolean> {
  const { distribution } = await spreadOf(query, relation, { citus: true, partitionedBy: [], unguarded: [] })
  return distribution !== undefined
}

type SpreadTable = Pick<TextTable, 'schema' | 'table' | 'hash' | 'spread'>

/** TypeORM's CREATE TABLE with partitions; any other statement as it is. */
export function spreadTable({ schema, table, hash, spread }: SpreadTable, sql: string): string {
  const made = /^CREATE TABLE ((?:"(?:[^"]|"")*"\.)?"(?:[^"]|"")*") \(/u.exec(sql)?.[1]
  if (typeof spread !== 'object' || made === undefined) return sql
  if (made !== quote(table) && !made.endsWith(`${schema === undefined ? '' : quote(schema)}.${quote(table)}`))
    return sql
  const end = sql.indexOf('; COMMENT ON COLUMN ')
  const [create, comments] = end === -1 ? [sql, ''] : [sql.slice(0, end), sql.slice(end)]
  const home = made.slice(0, made.length - quote(table).length)
  const partitions = Array.from({ length: spread.partitions }, (_, index) => {
    const name = `${home}${quote(fitName(`${table}_p${index}`))}`
    return `;\nCREATE TABLE ${name} PARTITION OF ${made} FOR VALUES WITH (MODULUS ${spread.partitions}, REMAINDER ${index})`
  })
  return `${create} PARTITION BY HASH (${quote(hash)})${partitions.join('')}${comments}`
}

export const distribute = ({ schema, table, hash }: SpreadTable): string =>
  `SELECT create_distributed_table(${literal(qualified(schema, table))}, ${literal(hash)})`
