import { literal, quote } from './identifier'
import { SQLSTATE } from './sqlstate'
import { hashOf, sameChain, sameScope, sameText, type TextTable, textIsNull } from './text-table'

/** A reader that finds the anchor gone reads again; more often than this only where others keep removing it. */
const ROUNDS = 8

/**
 * The table inside the functions, where `search_path` is fixed to the table's schema: no schema is named, so a dump
 * restored into another one still works.
 */
const relation = (table: TextTable): string => quote(table.table)

/** Columns of the row that a trigger assigns to. */
function columns(table: TextTable): Record<'hash' | 'number' | 'chained', string> {
  return { hash: quote(table.hash), number: quote(table.number), chained: quote(table.chained) }
}

/**
 * BEFORE INSERT OR UPDATE: computes the hash and finds the number.
 *
 * Every SELECT takes a new snapshot at READ COMMITTED because the function is VOLATILE; the second read after the lock
 * depends on it. At REPEATABLE READ the lock raises 40001 where the anchor has changed since the snapshot.
 *
 * A chain that shows others but no anchor is one from which this very statement took it: its removal holds off whoever
 * would lock the anchor, and `settle` compares and flags what is put at 0 then. To wait for another anchor would fail
 * for ever.
 */
export function placeBody(table: TextTable): string {
  const { hash, number, chained } = columns(table)
  const chain = sameChain(table, 't', 'NEW')
  const read = `SELECT pg_catalog.min(t.${number}), pg_catalog.max(t.${number}), pg_catalog.min(t.${number}) FILTER (WHERE ${sameText(table, 't', 'NEW')}), pg_catalog.count(*)
      INTO first, last, taken, length FROM ${relation(table)} AS t WHERE ${chain} AND t.${number} <> own;`
  return `
#variable_conflict use_variable
DECLARE
  first integer;
  last integer;
  taken integer;
  length bigint;
  own integer := -1;
  stays boolean := false;
BEGIN
  IF TG_OP = 'UPDATE' THEN
    stays := coalesce(${[...sameScope(table, 'OLD', 'NEW'), 'true'].join(' AND ')}, false);
    IF stays AND ${sameText(table, 'OLD', 'NEW')} THEN
      NEW.${hash} := OLD.${hash};
      NEW.${number} := CASE WHEN NEW.${number} = 0 THEN 0 ELSE OLD.${number} END;
      NEW.${chained} := OLD.${chained} OR coalesce(NEW.${chained}, false);
      RETURN NEW;
    END IF;${table.immutable ? refuseChange(table) : ''}
  END IF;${table.nullable ? withoutText(table) : ''}
  NEW.${hash} := ${hashOf(table, 'NEW')};
  IF stays THEN
    stays := NEW.${hash} IS NOT DISTINCT FROM OLD.${hash};
  END IF;
  IF stays THEN
    own := OLD.${number};
    NEW.${chained} := OLD.${chained} OR coalesce(NEW.${chained}, false);
  ELSE
    NEW.${chained} := false;
  END IF;
  FOR round IN 1..${ROUNDS} LOOP
    ${read}
    IF own = 0 THEN
      NEW.${number} := coalesce(taken, 0);
      RETURN NEW;
    END IF;
    IF NOT stays AND (last IS NULL OR taken = 0) THEN
      NEW.${number} := 0;
      RETURN NEW;
    END IF;
    IF first IS DISTINCT FROM 0 THEN
      NEW.${number} := coalesce(taken, CASE WHEN stays THEN own ELSE 0 END);
      NEW.${chained} := NEW.${chained} OR NEW.${number} = 0;
      RETURN NEW;
    END IF;
    PERFORM 1 FROM ${relation(table)} AS t WHERE ${chain} AND t.${number} = 0 FOR NO KEY UPDATE;
    IF FOUND THEN
      ${read}
      IF taken IS NULL AND NOT stays AND length >= ${table.maxChainLength} THEN
        ${raise(table, SQLSTATE.chainLimit, `the chain is full: ${table.maxChainLength} texts share one hash`)}
      END IF;
      NEW.${number} := coalesce(taken, CASE WHEN stays THEN own ELSE last + 1 END);
      RETURN NEW;
    END IF;
  END LOOP;
  RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.serializationFailure}', MESSAGE = 'could not lock the anchor of a chain due to concurrent deletes';
END
`
}

/**
 * AFTER INSERT, UPDATE or DELETE, for a chain that has others than its anchor: touches the anchor, or promotes the
 * lowest where it is gone. Not in a BEFORE trigger: there an UPDATE over several rows of the chain meets rows that its
 * own trigger has changed, and fails with 27000 for ever.
 */
export function settleBody(table: TextTable): string {
  const { number, chained } = columns(table)
  const chain = sameChain(table, 't', 'r')
  return `
#variable_conflict use_variable
DECLARE
  r record;
  anchor record;
  lowest integer;
BEGIN
  IF TG_ARGV[0] = 'new' THEN
    r := NEW;
  ELSE
    r := OLD;
  END IF;
  FOR round IN 1..${ROUNDS} LOOP
    SELECT pg_catalog.min(t.${number}) INTO lowest FROM ${relation(table)} AS t WHERE ${chain} AND t.${number} > 0;
    IF lowest IS NULL THEN
      RETURN NULL;
    END IF;
    UPDATE ${relation(table)} AS t SET ${chained} = true WHERE ${chain} AND t.${number} = 0 RETURNING t.* INTO anchor;
    IF FOUND THEN
      PERFORM 1 FROM ${relation(table)} AS t WHERE ${chain} AND t.${number} > 0 AND ${sameText(table, 't', 'anchor')};
      IF FOUND THEN
        ${raise(table, SQLSTATE.uniqueViolation, `duplicate key value violates unique constraint ${quote(table.index)}`)}
      END IF;
      RETURN NULL;
    END IF;
    UPDATE ${relation(table)} AS t SET ${number} = 0, ${chained} = true WHERE ${chain} AND t.${number} = lowest;
    IF FOUND THEN
      RETURN NULL;
    END IF;
  END LOOP;
  RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.serializationFailure}', MESSAGE = 'could not promote a row of a chain due to concurrent deletes';
END
`
}

/** The scope counts as part of an immutable text; a text that was NULL may still be given. */
function refuseChange(table: TextTable): string {
  const raised = raise(table, SQLSTATE.immutableText, 'the text is immutable')
  if (!table.nullable) return `\n    ${raised}`
  return `\n    IF NOT (${textIsNull(table, 'OLD')}) THEN\n      ${raised}\n    END IF;`
}

function withoutText(table: TextTable): string {
  const { hash, number, chained } = columns(table)
  return `
  IF ${textIsNull(table, 'NEW')} THEN
    NEW.${hash} := NULL;
    NEW.${number} := 0;
    NEW.${chained} := false;
    RETURN NEW;
  END IF;`
}

/** An error with our index as its constraint, so that a client can tell it from others; never with the text. */
function raise(table: TextTable, sqlstate: string, message: string): string {
  return (
    `RAISE EXCEPTION USING ERRCODE = '${sqlstate}', MESSAGE = ${literal(message)}, ` +
    `CONSTRAINT = ${literal(table.index)}, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;`
  )
}
