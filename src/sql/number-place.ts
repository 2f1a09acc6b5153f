import { quote } from './identifier'
import {
  all,
  allEqual,
  byNumberDown,
  type NumberTable,
  relation,
  sameScopes,
  scopeKey,
  scopeOf,
  scopesName,
  standsOn,
} from './number-table'
import { indented, raiseNumber, refuseFamily, refuseOtherColumns, refuseOtherTables } from './number-scopes'
import { SQLSTATE } from './sqlstate'

/** The highest number of each type. */
const HIGHEST: Readonly<Record<string, string>> = {
  smallint: '32767',
  integer: '2147483647',
  bigint: '9223372036854775807',
}

/**
 * BEFORE INSERT OR UPDATE: takes the number after the highest of the scope. For a statement, it only looks whether it can.
 *
 * The scope's row in the table of scopes is its mutex, and is made where there is none. Those who wait for it wait in one
 * line. Every SELECT takes a new snapshot at READ COMMITTED because the function is VOLATILE; the one after the lock shows
 * what earlier holders have committed, and nobody else can add to it.
 */
export function placeNumberBody(table: NumberTable): string {
  const [number, scope] = [quote(table.number), scopeOf(table, 'NEW')]
  const highest = HIGHEST[table.type] ?? '2147483647'
  return `
#variable_conflict use_variable
DECLARE
  plain boolean := ${standsOn(table)};
  newest bigint;
BEGIN${refuseOtherTables(table)}
  -- Once for an INSERT, unless it may have named the whole of a partition.
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' OR TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT'
    OR pg_catalog.pg_partition_root(TG_RELID) IS NOT NULL
  THEN${indented(`${refuseOtherColumns(table)}${table.count ? refuseFamily(table) : ''}`)}
  END IF;
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT' THEN
    RETURN NULL;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' AND NEW.${number} OPERATOR(pg_catalog.=) OLD.${number} THEN
    -- Who moves a row and gives it no other number means the next one there.
    NEW.${number} := NULL;
  END IF;${letNullsPass(scope)}
  -- Nobody else adds a row to the scope before this transaction ends.
  LOOP
    PERFORM FROM ${scopesName(table)} AS k
    WHERE ${all(6, ...allEqual(scopeKey(table, 'k'), scope), 'k.part OPERATOR(pg_catalog.=) 0')}
    FOR NO KEY UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO ${scopesName(table)} (${[...scopeKey(table), 'part', 'n'].join(', ')})
    VALUES (${[...scope, '0', '0'].join(', ')}) ON CONFLICT DO NOTHING;
    EXIT WHEN FOUND;
  END LOOP;
  SELECT t.${number} INTO newest FROM ${relation(table)} AS t
  WHERE ${all(4, ...sameScopes(table, 't', 'NEW'), '(t.tableoid OPERATOR(pg_catalog.=) TG_RELID OR NOT plain)')}
  ORDER BY ${byNumberDown(table, 't')} LIMIT 1;
  IF NEW.${number} IS NULL AND newest OPERATOR(pg_catalog.>=) ${highest} THEN
    ${raiseNumber(table, atTheEnd)}
  END IF;
  NEW.${number} := coalesce(NEW.${number}, greatest(newest, 0) OPERATOR(pg_catalog.+) 1, 1);
  RETURN NEW;
END
`
}

const atTheEnd = {
  sqlstate: SQLSTATE.outOfRange,
  message: 'a row of the scope has the highest number that its type can hold',
  hint: 'Give that row a lower number or delete it, or make the column a bigint.',
}

/** The column itself refuses them. */
const letNullsPass = (scope: readonly string[]): string =>
  scope.length === 0
    ? ''
    : `
  IF ${scope.map((one) => `${one} IS NULL`).join(' OR ')} THEN
    RETURN NEW;
  END IF;`
