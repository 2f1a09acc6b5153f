import { all, list, literal, quote, transition } from '../../sql/identifier'
import { keptScopes, NOTED, NUMBERS_PROTOCOL_VERSION, uncounted } from './scopes'
import {
  beforeStart,
  isCounted,
  isScopeOf,
  type NumberRefusal,
  raiseNumber,
  relation,
  sameScopes,
  scopeOf,
  valuesOfKey,
} from './fragments'
import { type NumberTable, scopeKey, scopesName } from '../../sql/numbers'
import { SQLSTATE } from '../../sql/sqlstate'
import { type Firing, type Trigger, triggerOn, type TriggerSet, triggerSet } from '../../sql/trigger-set'
import { EQUALS, field, op } from '../../sql/text-table'

/** The highest number of each type. */
export const HIGHEST: Readonly<Record<string, string>> = {
  smallint: '32767',
  integer: '2147483647',
  bigint: '9223372036854775807',
}

/**
 * Gives a row the number after the highest of its scope, BEFORE INSERT OR UPDATE. For a statement, it only checks if it
 * can.
 *
 * The scope's row in the table of scopes is its mutex, and is made if it does not exist. Sessions wait for it in one
 * line. Every SELECT takes a new snapshot at READ COMMITTED because the function is VOLATILE. The one after the lock
 * shows what earlier holders have committed, and nobody else can add to it.
 */
function placeBody(table: NumberTable): string {
  const [number, scopes, key] = [`NEW.${quote(table.number)}`, scopesName(table), scopeKey(table).join(', ')]
  return `
#variable_conflict use_variable
DECLARE
  ${IS_PLAIN(table)}
  ours boolean;
  newest bigint;
BEGIN${refuseOtherTables(table)}
  -- Once for a statement that names the columns, unless it may have named the whole of a partition.
  IF TG_LEVEL ${EQUALS} 'STATEMENT' OR TG_OP ${EQUALS} 'UPDATE'
    OR plain IS NOT TRUE
  THEN${refuseOtherColumns(table)}
  END IF;
  IF TG_LEVEL ${EQUALS} 'STATEMENT' THEN
    RETURN NULL;
  END IF;${table.count ? refusePartition(table) : ''}${keepMovedRows(table)}
  SELECT k.last INTO newest FROM ${scopes} AS k
  WHERE ${all(4, ...isScopeOf(table, 'k', 'NEW'))}
  FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    INSERT INTO ${scopes} AS k (${key}) VALUES (${valuesOfKey(table, 'NEW').join(', ')})
    ON CONFLICT (${key}) DO UPDATE SET n = k.n RETURNING k.last INTO newest;
  END IF;
  newest := greatest(newest, (
    ${newestOf(table, 4)}
  ));${setNumber(table, number)}
  RETURN NEW;
END
`
}

/**
 * Does the same in a shard of Citus, or in the table before it is distributed. The shards have no table of scopes beside
 * them, so the mutex is an advisory lock on the shard: however many scopes a statement has, it takes one lock.
 */
function placeInShardBody(table: NumberTable): string {
  const escaped = (name: string): string => name.replaceAll('%', '%%')
  const scope = table.scope.map((one) => ({ ...one, name: escaped(one.name) }))
  const newest = newestOf({ ...table, scope, number: escaped(table.number) }, 6)
  return `
DECLARE
  newest bigint;
BEGIN
  IF TG_LEVEL ${EQUALS} 'STATEMENT' OR TG_OP ${EQUALS} 'UPDATE' THEN${refuseOtherColumns(table)}
  END IF;
  IF TG_LEVEL ${EQUALS} 'STATEMENT' THEN
    RETURN NULL;
  END IF;${keepMovedRows(table)}
  PERFORM pg_catalog.pg_advisory_xact_lock(
    pg_catalog.hashtextextended(${literal(table.triggers)}, TG_RELID::pg_catalog.int8));
  EXECUTE pg_catalog.format(${literal(newest)}, TG_RELID::pg_catalog.regclass) INTO newest USING NEW;${setNumber(table, `NEW.${quote(table.number)}`)}
  RETURN NEW;
END
`
}

/** Whether the trigger is on the table itself, and not on a partition. Children by INHERITS have their own numbers. */
const IS_PLAIN = (table: NumberTable): string =>
  `plain boolean := TG_RELID ${EQUALS} pg_catalog.to_regclass(${literal(relation(table))})::pg_catalog.oid;`

/** Selects the highest number in the scope of NEW. A shard, which `format` names, is asked for by EXECUTE. */
function newestOf(table: NumberTable, indent: number): string {
  const [rows, row] = table.citus ? ['ONLY %s', '$1'] : [relation(table), 'NEW']
  const where = [
    ...sameScopes(table, 't', row),
    ...(table.citus ? [] : [`(t.tableoid ${EQUALS} TG_RELID OR plain IS NOT TRUE)`]),
  ]
  const order = [...scopeOf(table, 't'), field('t', table.number)].map((one) => `${one} DESC`)
  return [
    `SELECT t.${quote(table.number)} FROM ${rows} AS t`,
    ...(where.length === 0 ? [] : [`WHERE ${all(indent + 2, ...where)}`]),
    `ORDER BY ${order.join(', ')} LIMIT 1`,
  ].join(`\n${' '.repeat(indent)}`)
}

/** Lets NULLs in the scope pass, because the columns themselves refuse them. */
function keepMovedRows(table: NumberTable): string {
  const number = quote(table.number)
  const nulls = scopeOf(table, 'NEW').map((one) => `${one} IS NULL`)
  return `
  IF TG_OP ${EQUALS} 'UPDATE' AND NEW.${number} ${EQUALS} OLD.${number} THEN
    -- Who moves a row and gives it no other number means the next one there.
    NEW.${number} := NULL;
  END IF;${
    nulls.length === 0
      ? ''
      : `
  IF ${nulls.join(' OR ')} THEN
    RETURN NEW;
  END IF;`
  }`
}

const setNumber = (table: NumberTable, number: string): string => `
  IF ${number} IS NULL AND newest ${op('>=')} ${HIGHEST[table.type] ?? HIGHEST['integer']} THEN
    ${raiseNumber(table, {
      sqlstate: SQLSTATE.outOfRange,
      message: 'a row of the scope has the highest number that its type can hold',
      hint:
        table.reuse === false
          ? 'The number is not given again. Make the column a bigint.'
          : 'Give that row a lower number or delete it, or make the column a bigint.',
    })}
  END IF;
  ${number} := coalesce(${number}, greatest(newest, ${beforeStart(table)}) ${op('+')} 1);`

const another = (): NumberRefusal => ({
  sqlstate: SQLSTATE.wrongState,
  message: 'what numbers the rows names another table or column than its own',
  hint: 'Something was renamed, dropped or given away: disable the triggers, and generate a migration.',
})

/**
 * Refuses a replaced table. The schema's owner could give the name of the table of scopes to their own table or view,
 * whose code would run as this function's owner. The OID is a constant of the plan, which is made anew when the name
 * means another table. If another table had taken the numbered table's name, its rows would decide the numbers.
 */
const refuseOtherTables = (table: NumberTable): string => `
  SELECT k.relkind ${EQUALS} 'r'
    AND pg_catalog.pg_get_userbyid(k.relowner) ${EQUALS} current_user
  INTO ours FROM pg_catalog.pg_class AS k
  WHERE k.oid ${EQUALS} '${scopesName(table)}'::pg_catalog.regclass;
  IF ours IS NULL THEN
    RAISE serialization_failure USING MESSAGE = 'numbers are newer than the snapshot';
  ELSIF ours AND plain THEN
    -- Most rows need no query about partitions.
  ELSIF NOT ours OR NOT EXISTS (
    SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
    WHERE p.relid ${EQUALS} pg_catalog.to_regclass(${literal(relation(table))})::pg_catalog.oid
  ) THEN
    ${raiseNumber(table, another())}
  END IF;`

/** The columns that the functions name. The statement's trigger names them too, in this order. */
const lookedAt = ({ scope, number, count, deleted }: NumberTable): string[] => [
  ...scope.map(({ name }) => name),
  number,
  ...(count && deleted !== undefined ? [deleted] : []),
]

/**
 * Refuses renamed columns, which a trigger follows and a function does not. pg_get_triggerdef uses no snapshot, and our
 * SQL is parsed with the current names. An old snapshot still shows the former names and the former triggers.
 */
const refuseOtherColumns = (table: NumberTable): string => `
    IF NOT EXISTS (
      SELECT FROM pg_catalog.pg_trigger AS g
      WHERE g.tgrelid ${EQUALS} ${table.citus ? 'TG_RELID' : `pg_catalog.to_regclass(${literal(relation(table))})::pg_catalog.oid`}
        AND g.tgfoid ${EQUALS} '${nameOf(table, 'place')}'::pg_catalog.regproc::pg_catalog.oid
        AND pg_catalog.strpos(pg_catalog.pg_get_triggerdef(g.oid),
          pg_catalog.concat(' OF ', pg_catalog.concat_ws(', ',
            ${list(
              lookedAt(table).map((name) => `pg_catalog.quote_ident(${literal(name)})`),
              12,
            )}
          ), ' ON ')) ${op('>')} 0
    ) THEN
      ${raiseNumber(table, another())}
    END IF;`

/** A statement on a partitioned parent fires no statement trigger of this table. */
const refusePartition = (table: NumberTable): string => `
  IF pg_catalog.pg_partition_root(TG_RELID) IS NOT NULL THEN
    ${raiseNumber(table, uncounted)}
  END IF;`

/** A statement on a parent or child table fires other triggers, and writes this table's rows all the same. */
const refuseFamily = (table: NumberTable): string => `
  IF EXISTS (
    SELECT FROM pg_catalog.pg_inherits AS h
    WHERE h.inhrelid ${EQUALS} TG_RELID OR h.inhparent ${EQUALS} TG_RELID
  ) THEN
    ${raiseNumber(table, uncounted)}
  END IF;`

/**
 * Stores the highest number of a scope, AFTER a row got its number. Nothing has to be stored when a row goes, whether by
 * DELETE, TRUNCATE or with its partition. The first row of a statement finds all others of its scope, so only one of
 * them writes. Not BEFORE the row is stored, because ON CONFLICT may skip it.
 */
function keepBody(table: NumberTable): string {
  const [key, scopes, number] = [scopeKey(table).join(', '), scopesName(table), `NEW.${quote(table.number)}`]
  return `
#variable_conflict use_column
DECLARE
  ${IS_PLAIN(table)}
  ours boolean;
BEGIN${refuseOtherTables(table)}
  IF NOT EXISTS (
    SELECT FROM ${scopes} AS k
    WHERE ${all(6, ...isScopeOf(table, 'k', 'NEW'), `k.last ${op('>=')} ${number}`)}
  ) THEN
    INSERT INTO ${scopes} AS k (${key}, last)
    VALUES (${valuesOfKey(table, 'NEW').join(', ')}, greatest(${number}, (
      ${newestOf(table, 6)}
    )))
    ON CONFLICT (${key}) DO UPDATE SET last = greatest(k.last, excluded.last);
  END IF;
  RETURN NULL;
END
`
}

/**
 * Updates the counts of the scopes of a statement, after it, in the order of the scopes. It only adds to counts and never
 * sets them. Therefore each of several triggers does its part, in any order, and independent of what other triggers write
 * meanwhile. An INSERT holds the mutex since its rows were placed.
 */
function countBody(table: NumberTable): string {
  const [gone, came] = transitions(table)
  const key = scopeKey(table).join(', ')
  const places = scopeKey(table)
    .map((_, position) => position + 1)
    .join(', ')
  const changes = (rows: string, sign: string): string =>
    `SELECT ${valuesOfKey(table, rows)
      .map((one, at) => `${one} AS ${scopeKey(table)[at] ?? ''}`)
      .join(', ')}, ${sign}1 AS n FROM ${rows}${isCounted(table, rows)
      .map((one) => ` WHERE ${one}`)
      .join('')}`
  const add = (rows: string): string => `
    INSERT INTO ${scopesName(table)} AS k (${key}, n)
    SELECT ${scopeKey(table, 'c').join(', ')}, pg_catalog.sum(c.n)
    FROM (
      ${rows}
    ) AS c
    GROUP BY ${places} HAVING pg_catalog.sum(c.n) ${op('<>')} 0 ORDER BY ${places}
    ON CONFLICT (${key}) DO UPDATE SET n = k.n ${op('+')} excluded.n;`
  return `
#variable_conflict use_column
DECLARE
  ${IS_PLAIN(table)}
  ours boolean;
BEGIN${refuseOtherTables(table)}${refuseFamily(table)}
  IF TG_OP ${EQUALS} 'INSERT' THEN${add(changes(came, ''))}
  ELSIF TG_OP ${EQUALS} 'DELETE' THEN${add(changes(gone, '-'))}
  ELSIF TG_OP ${EQUALS} 'UPDATE' THEN${add(`${changes(gone, '-')}
      UNION ALL
      ${changes(came, '')}`)}
  ${table.reuse === false ? clearCounts(table) : `ELSE\n    TRUNCATE ${scopesName(table)};`}
  END IF;
  RETURN NULL;
END
`
}

/** The highest numbers stay. A snapshot may not show a scope whose rows are truncated. */
const clearCounts = (table: NumberTable): string => `ELSIF pg_catalog.starts_with(
    pg_catalog.current_setting('transaction_isolation'), 'read '
  ) THEN
    UPDATE ${scopesName(table)} AS k SET n = 0 WHERE k.n ${op('<>')} 0;
  ELSE
    ${raiseNumber(table, {
      sqlstate: SQLSTATE.featureNotSupported,
      message: 'TRUNCATE removes rows that the snapshot does not show, and their count would remain',
      hint: 'Truncate the table at READ COMMITTED.',
    })}`

/** The names of the transition tables. */
const transitions = ({ table }: NumberTable): readonly [gone: string, came: string] => [
  transition('gone', table),
  transition('came', table),
]

/** Returns the triggers that number rows, keep the highest number and the count. docs/numbers.md explains them. */
export function numberTriggers(table: NumberTable): TriggerSet {
  const { scope, number, deleted } = table
  const keeps = table.reuse === false
  return triggerSet({
    kind: 'numbers',
    name: table.name,
    table: { schema: table.schema, name: table.table },
    columns: {
      number,
      ...Object.fromEntries(scope.map(({ name }, position) => [`scope ${position}`, name])),
      ...(deleted === undefined ? {} : { deleted }),
    },
    tables: table.citus ? [] : [keptScopes(table)],
    docs: 'docs/numbers.md',
    functions: [
      {
        name: nameOf(table, 'place'),
        body: table.citus ? placeInShardBody(table) : placeBody(table),
        says: 'gives a row the number after the highest of its scope.',
      },
      ...(keeps
        ? [{ name: nameOf(table, 'keep'), body: keepBody(table), says: 'stores the highest number of a scope.' }]
        : []),
      ...(table.count
        ? [{ name: nameOf(table, 'count'), body: countBody(table), says: 'counts the rows of each scope.' }]
        : []),
    ],
    triggers: (schema) => triggersOf({ ...table, schema }),
    note: {
      protocol: NUMBERS_PROTOCOL_VERSION,
      ...Object.fromEntries(NOTED.map((key) => [key, table[key]])),
      prefix: table.triggers,
    },
  })
}

const nameOf = (table: NumberTable, suffix: string): string => `${table.triggers}_${suffix}`

function triggersOf(table: NumberTable): Trigger[] {
  const keeps = table.reuse === false
  const isNull = `NEW.${quote(table.number)} IS NULL`
  const isOther = (same: readonly string[]): string[] =>
    same.length === 0 ? [] : [`(${same.join('\n    AND ')}) IS NOT TRUE`]
  const moved = isOther(sameScopes(table, 'OLD', 'NEW'))
  const changed = isOther([`${field('OLD', table.number)} ${EQUALS} ${field('NEW', table.number)}`])
  const trigger = (runs: 'place' | 'keep' | 'count', name: string, firing: Omit<Firing, 'name' | 'runs'>): Trigger =>
    triggerOn(
      { schema: table.schema, name: table.table },
      { ...firing, name: nameOf(table, name), runs: nameOf(table, runs) },
    )
  const [gone, came] = transitions(table)
  const counts = {
    insert: `NEW TABLE AS ${came}`,
    update: `OLD TABLE AS ${gone} NEW TABLE AS ${came}`,
    delete: `OLD TABLE AS ${gone}`,
    truncate: '',
  } as const
  // The index decides about a row that has a number, such as a restored one. With a count the trigger fires for it all
  // the same, because its statement may have named a partitioned parent. Without reuse the row takes the mutex.
  // Otherwise it could be inserted and deleted while an insert that was given its number waits at another index. The
  // UPDATE triggers name no columns, because another trigger may derive the scope.
  return [
    trigger('place', 'look', {
      time: 'BEFORE',
      events: table.count ? ['insert', 'delete', 'update'] : ['insert', 'update'],
      columns: lookedAt(table),
      each: 'STATEMENT',
    }),
    trigger('place', 'place_insert', {
      time: 'BEFORE',
      events: ['insert'],
      when: table.count || keeps ? [] : [isNull],
    }),
    trigger('place', 'place_update', {
      time: 'BEFORE',
      events: ['update'],
      when: [...moved, ...(keeps ? changed : [isNull])],
    }),
    ...(keeps
      ? [
          trigger('keep', 'keep_insert', { time: 'AFTER', events: ['insert'] }),
          trigger('keep', 'keep_update', { time: 'AFTER', events: ['update'], when: [...moved, ...changed] }),
        ]
      : []),
    ...(table.count
      ? (['insert', 'update', 'delete', 'truncate'] as const).map((event) =>
          trigger('count', `count_${event}`, {
            time: 'AFTER',
            events: [event],
            each: 'STATEMENT',
            referencing: counts[event],
          }),
        )
      : []),
  ]
}
