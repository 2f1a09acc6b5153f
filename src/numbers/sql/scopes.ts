import { all, dollarQuote, list, literal, qualified, quote } from '../../sql/identifier'
import { beforeStart, isCounted, relation, scopeOf } from './fragments'
import { type NumberTable, scopeKey, scopesName, scopesTable } from '../../sql/numbers'
import { OF_TABLE, SQLSTATE } from '../../sql/sqlstate'
import { isInShardOf } from '../../sql/spread'
import { EQUALS, field, op, tableName } from '../../sql/text-table'
import type { KeptTable, TriggerNote } from '../../sql/trigger-set'

/**
 * Makes the table of scopes anew from the existing rows. It holds a row for each scope, which is the scope's mutex.
 * With a count, the sum of `n` over the parts of a scope is the number of its rows that count.
 *
 * It is one statement, so that no row is inserted in between. The table of scopes belongs to the numbered table's
 * owner, whose functions write it. A role that may read the numbered table may read it too.
 *
 * @param counted whether existing rows count from the start
 * @param had the SQL that keeps the numbers of the former table of scopes
 */
export function makeScopes(table: NumberTable, counted: boolean = table.count, had?: FormerScopes): string {
  const [of, scopes] = [tableName(table), scopesTable(table)]
  const [key, by] = [scopeKey(table), scopeOf(table, 'r')]
  const filter = isCounted(table, 'r').map((one) => ` FILTER (WHERE ${one})`)
  const columns = [
    ...by.map((one, position) => `${one} AS ${key[position] ?? ''}`),
    '0::pg_catalog.int2 AS part',
    `${counted ? `pg_catalog.count(*)${filter.join('')}` : '0::pg_catalog.int8'} AS n`,
    ...(table.reuse === false ? ['NULL::pg_catalog.int8 AS last'] : []),
  ]
  // Without rows there is no scope, even if the table is one scope: a restore of data inserts all rows of this table.
  const group = by.length === 0 ? ` HAVING pg_catalog.count(*) ${op('>')} 0` : ` GROUP BY ${by.join(', ')}`
  const rows = `SELECT ${columns.join(', ')}
    FROM ${counted ? `ONLY ${of} AS r${group}` : `${of} AS r LIMIT 0`}`
  const is = (row: string, name: string): string => `${row}.oid ${EQUALS} ${literal(name)}::pg_catalog.regclass`
  return `DO ${dollarQuote(`
DECLARE
  command pg_catalog.text;
BEGIN
  LOCK TABLE ${of} IN SHARE ROW EXCLUSIVE MODE;${table.count ? refuseToCount(is('c', of)) : ''}${had?.save ?? ''}
  DROP TABLE IF EXISTS ${scopes};
  CREATE TABLE ${scopes} WITH (fillfactor = 50) AS
    ${had?.join(rows) ?? rows};
  ALTER TABLE ${scopes} ADD PRIMARY KEY (${[...key, 'part'].join(', ')});${table.count ? refuseCopies(scopes) : ''}
  -- Whatever default privileges have granted.
  FOR command IN
    SELECT pg_catalog.format(p.command, k.oid::pg_catalog.regclass,
        CASE WHEN p.role ${EQUALS} 0 THEN 'PUBLIC' ELSE p.role::pg_catalog.regrole::pg_catalog.text END)
      FROM pg_catalog.pg_class AS k, pg_catalog.pg_class AS c, LATERAL (
        SELECT 'REVOKE ALL ON %s FROM %s', a.grantee FROM pg_catalog.aclexplode(k.relacl) AS a
         WHERE a.grantee ${op('<>')} k.relowner
        UNION ALL
        SELECT 'ALTER TABLE %s OWNER TO %s', c.relowner
        UNION ALL
        SELECT 'GRANT SELECT ON %s TO %s', a.grantee FROM pg_catalog.aclexplode(c.relacl) AS a
         WHERE a.privilege_type ${EQUALS} 'SELECT' AND a.grantee ${op('<>')} c.relowner
      ) AS p (command, role)
     WHERE ${is('k', scopes)} AND ${is('c', of)}
  LOOP
    EXECUTE command;
  END LOOP;
END
`)}`
}

/** The SQL that copies numbers which are not reused from the former table of scopes to the new one. */
interface FormerScopes {
  /** A statement that runs before the former table is dropped. */
  readonly save: string
  /** Makes the query of the new table's rows from the rows that it has by itself, and adds a statement after it. */
  readonly join: (rows: string) => string
}

/**
 * Copies the numbers that are not reused from the former table of scopes to the new one. There are none if a restore
 * has omitted the former table.
 *
 * @param places the place of each column of the new scope in the former one
 */
export function formerScopes(from: NumberTable, to: NumberTable, places: readonly number[]): FormerScopes {
  const [key, scopes] = [[...scopeKey(to), 'part'], scopesTable(from)]
  const before = 'numbers_scopes_before'
  const was = to.schema === undefined ? before : qualified(to.schema, before)
  const shape = [...scopeOf(to, 'r').map((one, at) => `${one} AS s${places[at]}`), 'NULL::pg_catalog.int8 AS last']
  return {
    save: `
  CREATE TABLE IF NOT EXISTS ${scopes} AS SELECT ${shape.join(', ')} FROM ${tableName(to)} AS r LIMIT 0;
  ALTER TABLE ${scopes} RENAME TO ${before};`,
    join: (rows) => `SELECT ${key.join(', ')}, pg_catalog.sum(k.n)::pg_catalog.int8 AS n, pg_catalog.max(k.last) AS last
    FROM (
      (${rows})
      UNION ALL
      SELECT ${[...places.map((place) => `w.s${place}`), 'w.part', '0', 'w.last'].join(', ')} FROM ${was} AS w
      WHERE w.last IS NOT NULL
    ) AS k GROUP BY ${key.join(', ')};
  DROP TABLE ${was}`,
  }
}

const COPIES = 'restore_with_disable_triggers'

/**
 * Refuses copied counts: data that is restored while triggers are on would count twice. The built-in function refuses
 * every INSERT, and needs no owner of ours. Like other triggers, it is off with --disable-triggers and on a replica.
 */
const refuseCopies = (scopes: string): string => `
  CREATE TRIGGER ${COPIES} BEFORE INSERT ON ${scopes} FOR EACH ROW
    WHEN (pg_catalog.pg_trigger_depth() ${EQUALS} 0 AND NEW.n ${op('<>')} 0)
    EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger();`

/** Describes the table of scopes that should exist. */
export const keptScopes = (table: NumberTable): KeptTable => ({
  name: scopesName(table),
  columns: {
    ...Object.fromEntries(table.scope.map(({ name }, position) => [`s${position}`, { like: name }])),
    part: 'smallint',
    n: 'bigint',
    ...(table.reuse === false ? { last: 'bigint' } : {}),
  },
  primary: [...scopeKey(table), 'part'],
  trigger: table.count ? COPIES : undefined,
})

/** Returns the statements that restore the trigger on a table of scopes. */
export const guardScopes = (table: NumberTable): string[] => [
  `DROP TRIGGER IF EXISTS ${COPIES} ON ${scopesTable(table)}`,
  refuseCopies(scopesTable(table)).trim().replace(/;$/, ''),
]

export const dropScopes = (table: Pick<NumberTable, 'schema' | 'triggers'>): string =>
  `DROP TABLE IF EXISTS ${scopesTable(table)}`

/** Indents SQL by one level. */
export const indented = (sql: string): string => sql.replaceAll('\n', '\n  ')

interface NumberRefusal {
  readonly sqlstate: string
  readonly message: string
  readonly hint: string
}

/** Raises an error that names the unique index as its constraint, so that a client recognizes it. */
export const raiseNumber = (table: NumberTable, { sqlstate, message, hint }: NumberRefusal): string =>
  `RAISE EXCEPTION USING ERRCODE = '${sqlstate}',
      MESSAGE = ${literal(message)},
      HINT = ${literal(hint)},
      CONSTRAINT = ${literal(table.index)}, ${OF_TABLE};`

const another = (): NumberRefusal => ({
  sqlstate: SQLSTATE.wrongState,
  message: 'what numbers the rows names another table or column than its own',
  hint: 'Something was renamed, dropped or given away: disable the triggers, and generate a migration.',
})

/**
 * Refuses a replaced table. The schema's owner could give the name of the table of scopes to their own table or view,
 * whose code would run as this function's owner. The OID is a constant of the plan, which is made anew when the name
 * means another table. If another table had taken the numbered table's name, its rows would decide the numbers.
 *
 * A table of scopes has triggers only if its counts are copied, or if Citus manages it. If Citus manages the table of
 * scopes without the numbered table, a lock lasts for its statement only, so the function refuses to number rows.
 */
export const refuseOtherTables = (table: NumberTable): string => `
  SELECT k.relkind ${EQUALS} 'r'
    AND pg_catalog.pg_get_userbyid(k.relowner) ${EQUALS} current_user${table.count ? ' INTO ours' : ', k.relhastriggers\n  INTO ours, spread'}
  FROM pg_catalog.pg_class AS k
  WHERE k.oid ${EQUALS} '${scopesName(table)}'::pg_catalog.regclass;
  IF ours IS NULL THEN
    RAISE serialization_failure USING MESSAGE = 'numbers are newer than the snapshot';
  ELSIF ours AND plain THEN
  ELSIF NOT ours OR NOT EXISTS (
    SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
    WHERE p.relid ${EQUALS} pg_catalog.to_regclass(${literal(relation(table))})::pg_catalog.oid
  ) THEN${findShard(table)}
    IF shard IS NULL THEN
      ${raiseNumber(table, another())}
    END IF;
  END IF;${table.count ? '' : refuseSpreadScopes(table)}`

const refuseSpreadScopes = (table: NumberTable): string => `
  IF spread AND shard IS NULL AND TG_OP ${op('<>')} 'TRUNCATE' THEN
    IF EXISTS (
      SELECT FROM pg_catalog.pg_trigger AS g
      WHERE g.tgrelid ${EQUALS} '${scopesName(table)}'::pg_catalog.regclass AND g.tgisinternal
    ) THEN
      ${raiseNumber(table, another())}
    END IF;
  END IF;`

/** The schema's owner could have replaced the shard. Citus hides shards in `pg_class`, but not their row types. */
const isOwnShard = (): string => `
        AND (z.shardid IS NULL OR EXISTS (
          SELECT FROM pg_catalog.pg_type AS y
          WHERE y.oid ${EQUALS} pg_catalog.to_regtype(pg_catalog.shard_name(z.logicalrelid, z.shardid))
            AND y.typrelid ${EQUALS}
              pg_catalog.to_regclass(pg_catalog.shard_name(z.logicalrelid, z.shardid))
            AND pg_catalog.pg_get_userbyid(y.typowner) ${EQUALS} current_user))`

/** In a shard of Citus: the shard of the table of scopes that belongs to it. */
const findShard = (table: NumberTable): string => `
    IF ours AND pg_catalog.to_regclass('pg_catalog.pg_dist_shard') IS NOT NULL THEN
      SELECT coalesce(pg_catalog.shard_name(z.logicalrelid, z.shardid), ${literal(scopesName(table))})
      INTO shard
      FROM pg_catalog.pg_dist_partition AS p
      JOIN pg_catalog.pg_dist_shard AS s ON s.logicalrelid ${EQUALS} p.logicalrelid
      LEFT JOIN pg_catalog.pg_dist_partition AS o
        ON o.logicalrelid ${EQUALS} '${scopesName(table)}'::pg_catalog.regclass
      LEFT JOIN pg_catalog.pg_dist_shard AS z ON z.logicalrelid ${EQUALS} o.logicalrelid
        AND coalesce(z.shardminvalue, '') ${EQUALS} coalesce(s.shardminvalue, '')
      WHERE ${isInShardOf(relation(table))}
        -- Copies of a shard would number their rows apart.
        AND p.repmodel ${EQUALS} 's'${table.count ? '' : isOwnShard()}
        AND ${isWithScopes(table)};
    END IF;`

/** Citus keeps the table `p` on the coordinator, where its scopes are, or each shard of it lies beside one of theirs. */
function isWithScopes(table: NumberTable): string {
  const local = ['o.logicalrelid IS NULL', `p.colocationid ${EQUALS} 0`, `p.partmethod ${EQUALS} 'n'`]
  // A shard counts what is copied into it once more.
  if (table.count) return all(8, ...local)
  const by = (row: string): string =>
    `pg_catalog.column_to_column_name(${row}.logicalrelid, ${row}.partkey::pg_catalog.text)`
  const key = scopeKey(table).map(
    (name, at) => `
              WHEN ${literal(table.scope[at]?.name ?? '')} THEN ${literal(name)}`,
  )
  const mapped =
    key.length === 0
      ? 'NULL'
      : `CASE ${by('p')}${key.join('')}
            END`
  const together = [
    `o.colocationid ${EQUALS} p.colocationid`,
    `p.colocationid ${op('<>')} 0`,
    `coalesce(${by('o')}, '')
            ${EQUALS} coalesce(
              ${mapped}, '')`,
  ]
  return `(${all(10, ...local)}
          OR ${all(10, ...together)})`
}

/** The columns that the functions name. The trigger that detects renamed columns names them too, in this order. */
export const lookedAt = ({ scope, number, count, deleted }: NumberTable): string[] => [
  ...scope.map(({ name }) => name),
  number,
  ...(count && deleted !== undefined ? [deleted] : []),
]

/** The name of the statement-level trigger. */
export const lookTrigger = ({ triggers }: NumberTable): string => `${triggers}_look`

/**
 * Refuses renamed columns, which a trigger follows and a function does not. pg_get_triggerdef uses no snapshot, and our
 * SQL is parsed with the current names. An old snapshot still shows the former names and the former triggers.
 */
export const refuseOtherColumns = (table: NumberTable): string => `
  IF EXISTS (
    SELECT FROM pg_catalog.pg_trigger AS g
    WHERE g.tgrelid ${EQUALS} pg_catalog.to_regclass(${literal(relation(table))})::pg_catalog.oid
      AND g.tgname ${EQUALS} ${literal(lookTrigger(table))}
      AND pg_catalog.strpos(pg_catalog.pg_get_triggerdef(g.oid), pg_catalog.concat(' OF ', pg_catalog.concat_ws(', ',
        ${list(
          lookedAt(table).map((name) => `pg_catalog.quote_ident(${literal(name)})`),
          8,
        )}
      ), ' ON ')) ${EQUALS} 0
  ) THEN
    ${raiseNumber(table, another())}
  END IF;`

const uncounted: NumberRefusal = {
  sqlstate: SQLSTATE.featureNotSupported,
  message: 'a table with partitions, or with children by INHERITS, keeps no count',
  hint: 'Declare @NumberWithin without "count", and count the rows by SQL.',
}

/** A statement on a parent or child table fires other triggers, and writes this table's rows all the same. */
export const refuseFamily = (table: NumberTable): string => `
  IF EXISTS (
    SELECT FROM pg_catalog.pg_inherits AS h
    WHERE h.inhrelid ${EQUALS} TG_RELID OR h.inhparent ${EQUALS} TG_RELID
  ) THEN
    ${raiseNumber(table, uncounted)}
  END IF;`

const refuseToCount = (isTable: string): string => `
  IF EXISTS (
    SELECT FROM pg_catalog.pg_class AS c LEFT JOIN pg_catalog.pg_inherits AS h
      ON h.inhrelid ${EQUALS} c.oid OR h.inhparent ${EQUALS} c.oid
    WHERE ${isTable} AND (c.relkind ${EQUALS} 'p' OR h.inhrelid IS NOT NULL)
  ) THEN
    RAISE EXCEPTION USING ERRCODE = '${uncounted.sqlstate}', MESSAGE = ${literal(uncounted.message)},
      HINT = ${literal(uncounted.hint)};
  END IF;`

/** The rows to number. Their table is locked, and has none of our triggers. */
interface NumberedRows {
  readonly table: NumberTable
  /** The columns of the primary key, whose order is that of the numbers. */
  readonly primary: readonly string[]
}

/** Numbers every row that has no number, in key order, after the highest of its scope. */
export function numberRows({ table, primary }: NumberedRows): string {
  const number = quote(table.number)
  return `UPDATE ${tableName(table)} AS t SET ${number} = n."number"
FROM (
  SELECT ${selectPrimary('r', primary)},
    greatest(pg_catalog.max(r.${number}) OVER (${partition(table, 'r')}), ${beforeStart(table)})
      ${op('+')} pg_catalog.count(*) FILTER (WHERE r.${number} IS NULL) OVER (
        ${partition(table, 'r')} ORDER BY ${primary.map((name) => field('r', name)).join(', ')} ROWS UNBOUNDED PRECEDING
      ) AS "number"
  FROM ${tableName(table)} AS r
) AS n
WHERE ${all(2, ...sameKey(primary), `t.${number} IS NULL`)}`
}

/** Numbers all rows anew, in key order from `start`. The unique index must not exist. */
export function renumberRows({ table, primary }: NumberedRows): string {
  const number = quote(table.number)
  return `UPDATE ${tableName(table)} AS t SET ${number} = n."number"
FROM (
  SELECT ${selectPrimary('r', primary)}, pg_catalog.row_number() OVER (
    ${partition(table, 'r')} ORDER BY ${primary.map((name) => field('r', name)).join(', ')}
  ) ${op('+')} ${beforeStart(table)} AS "number"
  FROM ${tableName(table)} AS r
) AS n
WHERE ${all(2, ...sameKey(primary), `(t.${number} ${EQUALS} n."number") IS NOT TRUE`)}`
}

const partition = (table: NumberTable, row: string): string =>
  table.scope.length === 0 ? '' : `PARTITION BY ${scopeOf(table, row).join(', ')}`

const selectPrimary = (row: string, primary: readonly string[]): string =>
  primary.map((name, position) => `${field(row, name)} AS "key ${position}"`).join(', ')

const sameKey = (primary: readonly string[]): string[] =>
  primary.map((name, position) => `${field('t', name)} ${EQUALS} n."key ${position}"`)

/** The version in the note. Raise it if a change of the triggers makes an installed set wrong. */
export const NUMBERS_PROTOCOL_VERSION = 1

/** The parts of a declaration that the rows depend on. */
export const NOTED = ['scope', 'number', 'type', 'count', 'reuse', 'start', 'deleted'] as const

/** The note in the first function. */
export interface NumberNote extends TriggerNote, Pick<NumberTable, (typeof NOTED)[number]> {
  readonly kind: 'numbers'
  /** The `triggers` of the table, which begin the name of its table of scopes. */
  readonly prefix: string
}

/** Returns undefined if the note is that of another set, or of another version. */
export const asNumberNote = (note: TriggerNote): NumberNote | undefined =>
  note.kind === 'numbers' && note.protocol === NUMBERS_PROTOCOL_VERSION ? (note as NumberNote) : undefined
