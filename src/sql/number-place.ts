import { all, refuseOtherTable, relation, standsOn } from './guard-body'
import { quote } from './identifier'
import { byNumber, countColumn, type NumberTable, rowsOfScope, seedOf } from './number-table'
import { field } from './text-table'

/** So many new scopes a transaction locks one by one; then it tries for a lock on all that nobody has begun. */
const SCOPES_LOCKED = 1_000

/** How many new scopes the transaction has begun; it ends with it, and goes back with a savepoint. */
const BEGUN = 'unique_text.scopes_begun'

/**
 * BEFORE INSERT OR UPDATE: takes the number after the highest of the scope.
 *
 * The oldest row of the scope is its mutex. It stays the same while rows come, so that those who wait for it wait in one
 * line, and go on with its next holder's commit. Every SELECT takes a new snapshot at READ COMMITTED because the function
 * is VOLATILE; the second one shows what earlier holders have committed, and nobody else can add to it.
 */
export function placeNumberBody(table: NumberTable): string {
  const number = quote(table.number)
  return `
#variable_conflict use_variable
DECLARE
  plain boolean := ${standsOn(table)};
  home pg_catalog.oid := TG_RELID;
  stays boolean := TG_OP = 'UPDATE'${sameScope(table)};
  begun boolean := false;
  oldest bigint;
  newest bigint;
  scopes integer;
BEGIN${refuseOtherTable(table)}
  IF NOT plain THEN
    -- Partitions share their locks.
    home := pg_catalog.to_regclass(${quoted(table)});
  END IF;${keepCount(table)}
  IF stays AND NEW.${number} IS NOT NULL THEN
    RETURN NEW;
  ELSIF TG_OP = 'UPDATE' AND NEW.${number} IS NOT DISTINCT FROM OLD.${number} THEN
    -- Who moves a row and gives it no other number means the next one there.
    NEW.${number} := NULL;
  END IF;
  LOOP
    -- Nobody else adds a row to the scope before this transaction ends. A delete of this row is waited for.
    SELECT t.${number} INTO oldest FROM ${relation(table)} AS t
    WHERE ${all(6, ...rowsOfScope(table, 't', 'NEW'))}
    ORDER BY ${byNumber(table, 't')} LIMIT 1
    FOR NO KEY UPDATE;
    IF FOUND THEN
      SELECT t.${number} INTO newest FROM ${relation(table)} AS t
      WHERE ${all(8, ...rowsOfScope(table, 't', 'NEW'))}
      ORDER BY ${byNumber(table, 't', ' DESC')} LIMIT 1;
      -- Whoever was waited for may have given the row another number, and others hold the oldest by now.
      EXIT WHEN NOT EXISTS (
        SELECT FROM ${relation(table)} AS t
        WHERE ${all(10, ...rowsOfScope(table, 't', 'NEW'), `t.${number} OPERATOR(pg_catalog.<) oldest`)}
      );
      CONTINUE;
    END IF;
    -- The scope is empty, and nobody else begins it meanwhile.
    EXIT WHEN begun;${beginScope(table)}
    begun := true;
  END LOOP;
  NEW.${number} := coalesce(NEW.${number}, greatest(newest, 0) + 1, 1);
  RETURN NEW;
END
`
}

const quoted = (table: NumberTable): string => `'${relation(table).replaceAll("'", "''")}'`

/** What one row says of the others is ours to write; a row that leaves its scope says nothing more. */
function keepCount(table: NumberTable): string {
  if (table.count === undefined) return ''
  const count = countColumn(table)
  return `
  NEW.${count} := CASE WHEN stays THEN OLD.${count} END;`
}

/** Texts by Postgres' own operator: one for varchar could be anybody's who may create objects in the schema. */
const sameScope = (table: NumberTable): string => {
  const [before, after] = ['OLD', 'NEW'].map((row) =>
    table.scope.map(({ name, textual }) => `${field(row, name)}${textual ? '::pg_catalog.text' : ''}`).join(', '),
  )
  return table.scope.length === 0
    ? ''
    : `\n    AND ROW(${before})
      IS NOT DISTINCT FROM ROW(${after})`
}

/** The index would let one of two through, and refuse the other. */
function beginScope(table: NumberTable): string {
  const seed = seedOf(table)
  const parts = table.scope.map(({ name, textual }) => {
    const value = field('NEW', name)
    return textual ? `pg_catalog.hashtext(${value}::pg_catalog.text)` : value
  })
  return `
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(home::pg_catalog.int4, ${seed});
    scopes := 1
      + coalesce(nullif(pg_catalog.current_setting('${BEGUN}', true), ''), '0')::pg_catalog.int4;
    PERFORM pg_catalog.set_config('${BEGUN}', scopes::pg_catalog.text, true);
    -- The server's table of locks is small: whoever begins very many scopes tries to keep everybody out of new ones.
    IF scopes <= ${SCOPES_LOCKED} OR NOT pg_catalog.pg_try_advisory_xact_lock(home::pg_catalog.int4, ${seed}) THEN
      PERFORM pg_catalog.pg_advisory_xact_lock(
        home::pg_catalog.int4,
        pg_catalog.hash_record(ROW(${[seed, ...parts].join(', ')}))
      );
    END IF;`
}
