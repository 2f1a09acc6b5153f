import { OPEN_TRANSACTIONS, type Query } from './catalog'
import type { Referrer } from './doctor-rows'

/** What stands around a table, and what a change of the table meets there. */
export interface Surroundings {
  /** Its rows are in its partitions. */
  readonly partitioned: boolean
  /** Policies hide rows from the role that asks. */
  readonly hidesRows: boolean
  /** Without TOAST's indexes and those of the table. In bytes, partitions included. */
  readonly heapBytes: number
  readonly indexBytes: number
  /** Triggers that fire on UPDATE, ours too; not those that Postgres makes. */
  readonly updateTriggers: readonly string[]
  readonly publications: readonly string[]
  readonly subscriptions: readonly string[]
  /** Tables by INHERITS, above and below. */
  readonly relatives: readonly string[]
  readonly partitions: number
  readonly referrers: readonly Referrer[]
  /** Columns named like a reference, of the type of the key, which no foreign key holds to the table. */
  readonly lookalikes: readonly string[]
  /** Of the oldest transaction of the database that is open, but for this one; null where there is none. */
  readonly oldestSeconds: number | null
}

const names = (value: string, from: string): string =>
  `(SELECT coalesce(pg_catalog.jsonb_agg(${value} ORDER BY ${value}), '[]') ${from})`

const RELATION = (oid: string): string =>
  `(SELECT pg_catalog.format('%I.%I', said_in.nspname, said.relname) FROM pg_catalog.pg_class AS said
     JOIN pg_catalog.pg_namespace AS said_in ON said_in.oid OPERATOR(pg_catalog.=) said.relnamespace
    WHERE said.oid OPERATOR(pg_catalog.=) ${oid})`

const COLUMNS = (keys: string, relation: string): string =>
  `(SELECT pg_catalog.jsonb_agg(a.attname ORDER BY k.position)
      FROM pg_catalog.unnest(${keys}) WITH ORDINALITY AS k (attnum, position)
      JOIN pg_catalog.pg_attribute AS a
        ON a.attrelid OPERATOR(pg_catalog.=) ${relation} AND a.attnum OPERATOR(pg_catalog.=) k.attnum)`

/** Whether an index of the whole referring table begins with the columns of the foreign key, in whatever order. */
const INDEXED = `EXISTS (SELECT FROM pg_catalog.pg_index AS i
          WHERE i.indrelid OPERATOR(pg_catalog.=) f.conrelid AND i.indisvalid AND i.indpred IS NULL
            AND (i.indkey::pg_catalog.int2[])[0:pg_catalog.cardinality(f.conkey) OPERATOR(pg_catalog.-) 1]
              OPERATOR(pg_catalog.@>) f.conkey)`

/** Of the table and its partitions. */
const SIZE = (of: string): string =>
  `(SELECT coalesce(pg_catalog.sum(pg_catalog.${of}(p.relid)), pg_catalog.${of}(c.oid))::bigint
      FROM pg_catalog.pg_partition_tree(c.oid) AS p)`

/** A column `page_id` or `pageId`, of the type of the only column of the key of `page`. */
const LOOKALIKES = `FROM pg_catalog.pg_attribute AS a
      JOIN pg_catalog.pg_class AS o ON o.oid OPERATOR(pg_catalog.=) a.attrelid
      JOIN pg_catalog.pg_index AS i ON i.indrelid OPERATOR(pg_catalog.=) c.oid AND i.indisprimary
      JOIN pg_catalog.pg_attribute AS k ON k.attrelid OPERATOR(pg_catalog.=) c.oid
       AND k.attnum OPERATOR(pg_catalog.=) i.indkey[0]
     WHERE i.indnkeyatts OPERATOR(pg_catalog.=) 1 AND o.relkind OPERATOR(pg_catalog.=) ANY ('{r,p}') AND NOT o.relispartition
       AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped
       AND a.atttypid OPERATOR(pg_catalog.=) k.atttypid
       AND pg_catalog.lower(pg_catalog.replace(a.attname::pg_catalog.text, '_', '')) OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.text[])
       AND NOT EXISTS (
         SELECT FROM pg_catalog.pg_constraint AS f
          WHERE f.conrelid OPERATOR(pg_catalog.=) o.oid AND f.contype OPERATOR(pg_catalog.=) 'f'
            AND a.attnum OPERATOR(pg_catalog.=) ANY (f.conkey))`

const SURROUNDINGS = `SELECT pg_catalog.jsonb_build_object(
    'partitioned', c.relkind OPERATOR(pg_catalog.=) 'p',
    'hidesRows', pg_catalog.row_security_active(c.oid),
    'heapBytes', ${SIZE('pg_table_size')},
    'indexBytes', ${SIZE('pg_indexes_size')},
    'updateTriggers', ${names(
      't.tgname::pg_catalog.text',
      `FROM pg_catalog.pg_trigger AS t
      WHERE t.tgrelid OPERATOR(pg_catalog.=) c.oid AND NOT t.tgisinternal
        AND (t.tgtype::pg_catalog.int4 OPERATOR(pg_catalog.&) 16) OPERATOR(pg_catalog.<>) 0`,
    )},
    'publications', ${names(
      'p.pubname::pg_catalog.text',
      `FROM pg_catalog.pg_publication_tables AS p
      JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
      WHERE p.schemaname OPERATOR(pg_catalog.=) n.nspname AND p.tablename OPERATOR(pg_catalog.=) c.relname`,
    )},
    'subscriptions', ${names(
      's.subname::pg_catalog.text',
      `FROM pg_catalog.pg_subscription_rel AS r
      JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) r.srsubid
      WHERE r.srrelid OPERATOR(pg_catalog.=) c.oid`,
    )},
    'relatives', ${names(
      RELATION('h.relative'),
      `FROM (
        SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i WHERE i.inhparent OPERATOR(pg_catalog.=) c.oid
        UNION ALL
        SELECT i.inhparent FROM pg_catalog.pg_inherits AS i WHERE i.inhrelid OPERATOR(pg_catalog.=) c.oid) AS h (relative)
      WHERE c.relkind OPERATOR(pg_catalog.<>) 'p' AND NOT c.relispartition`,
    )},
    'partitions', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_partition_tree(c.oid) AS p WHERE p.isleaf AND p.level OPERATOR(pg_catalog.>) 0),
    'referrers', (SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
        'table', ${RELATION('f.conrelid')}, 'columns', ${COLUMNS('f.conkey', 'f.conrelid')},
        'refersTo', ${COLUMNS('f.confkey', 'c.oid')}, 'indexed', ${INDEXED}) ORDER BY f.oid), '[]')
      FROM pg_catalog.pg_constraint AS f
      WHERE f.confrelid OPERATOR(pg_catalog.=) c.oid AND f.contype OPERATOR(pg_catalog.=) 'f'
        AND f.conparentid OPERATOR(pg_catalog.=) 0),
    'lookalikes', ${names(`pg_catalog.format('%s.%I', ${RELATION('o.oid')}, a.attname)`, LOOKALIKES)},
    'oldestSeconds', (SELECT pg_catalog.floor(pg_catalog.date_part('epoch',
        pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.min(s.xact_start)))
      FROM ${OPEN_TRANSACTIONS})
  )::pg_catalog.text AS state
  FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)`

/**
 * Reads the catalog about one table.
 *
 * @param relation its name as SQL
 * @param references names of columns that would look like references to it, in lower case and without underscores
 * @returns undefined where there is no such table
 */
export async function readSurroundings(
  query: Query,
  relation: string,
  references: readonly string[],
): Promise<Surroundings | undefined> {
  const [row] = (await query(SURROUNDINGS, [relation, references])) as readonly { state: string }[]
  return row && (JSON.parse(row.state) as Surroundings)
}

/**
 * @param name as a user writes it in SQL
 * @returns the table's name as SQL, whatever `search_path` is then; undefined where there is none
 */
export async function relationNamed(query: Query, name: string): Promise<string | undefined> {
  const rows = (await query(
    `SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name
       FROM pg_catalog.pg_class AS c
       JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
      WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)`,
    [name],
  )) as readonly { readonly name: string }[]
  return rows[0]?.name
}
