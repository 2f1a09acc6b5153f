import { all, dollarQuote, literal } from '../../sql/identifier'
import { holderRelation, holderRows, type HolderTable, isHolder, raiseRenamed } from './fragments'
import { OF_TABLE } from '../../sql/sqlstate'
import { equal } from '../../sql/text-table'

/*
 * The triggers of a local table of Citus run on its shard. A statement that names the table there would be planned by
 * Citus, which joins no table of its own to a transition table. So the statements name the shard in place of the table.
 * Its name is not known before, so EXECUTE runs them if the declaration allows Citus to keep the table local. In all
 * other functions they are as they are.
 */

/** The variables that the statements of a table that may be local to Citus need. */
export const shardVariables = (holder: HolderTable): string =>
  holder.citus === undefined
    ? ''
    : `
  moves boolean;
  holder_rows pg_catalog.text := ${literal(holderRows(holder))};`

/** Requires that the trigger is on the table that the functions name, or on its shard. */
export const requireHolder = (holder: HolderTable): string => `
  IF NOT (${isHolder(holder)}) THEN${holder.citus === undefined ? raiseRenamed() : readShard(holder)}
  END IF;`

const readShard = (holder: HolderTable): string => `
    IF pg_catalog.to_regclass('pg_catalog.pg_dist_shard') IS NOT NULL THEN
      SELECT pg_catalog.concat('ONLY ', TG_RELID::pg_catalog.regclass, ' AS t') INTO holder_rows
      FROM pg_catalog.pg_dist_partition AS p
      JOIN pg_catalog.pg_dist_shard AS s ON ${equal('s.logicalrelid', 'p.logicalrelid')}
      JOIN pg_catalog.pg_type AS y ON ${equal('y.typrelid', 'TG_RELID')}
      WHERE ${all(
        8,
        equal('p.logicalrelid', `pg_catalog.to_regclass(${literal(holderRelation(holder))})`),
        equal('s.shardid', `pg_catalog.substring(TG_TABLE_NAME, '_([0-9]{1,18})$')::pg_catalog.int8`),
        equal('TG_RELID', 'pg_catalog.to_regclass(pg_catalog.shard_name(s.logicalrelid, s.shardid))'),
        equal('p.partmethod', `'n'`),
        equal('p.repmodel', `'s'`),
        equal('p.colocationid', '0'),
        // Another role's shard is a trap: its casts would run as the function's owner. Citus hides shards in pg_class,
        // but not their row types.
        equal('pg_catalog.pg_get_userbyid(y.typowner)', 'current_user'),
      )};
    ELSE
      holder_rows := NULL;
    END IF;
    IF holder_rows IS NULL THEN${raiseRenamed()}
    END IF;`

/** A variable in a statement: as it is, or the value of EXECUTE at the 1-based position. */
export const bound = (holder: HolderTable, position: number, variable: string): string =>
  holder.citus === undefined ? variable : `$${position}`

/** Returns a statement that reads rows of the holder's table, or its EXECUTE, without INTO and the semicolon. */
export function onRows(holder: HolderTable, sql: string, values: readonly string[] = []): string {
  if (holder.citus === undefined) return sql
  const parts = sql.split(`FROM ${holderRows(holder)}`).map((part) => dollarQuote(part))
  const using = values.length === 0 ? '' : ` USING ${values.join(', ')}`
  return ` EXECUTE pg_catalog.concat(${parts.join(", 'FROM ', holder_rows, ")})${using}`
}

/** The table that an error names: the holder's, also if the trigger is on its shard. */
export const ofHolder = ({ citus, table }: HolderTable): string =>
  citus === undefined ? OF_TABLE : `SCHEMA = TG_TABLE_SCHEMA, TABLE = ${literal(table)}`
