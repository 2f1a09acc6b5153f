import { all, chainOf, columns, raise, refuseOtherTable, relation, standsOn, whenAll } from './guard-body'
import { literal, quote } from './identifier'
import { SQLSTATE } from './sqlstate'
import {
  differentText,
  hashOf,
  isFreed,
  isLive,
  sameChain,
  sameScope,
  sameText,
  type TextTable,
  textIsNull,
} from './text-table'

/** A reader that finds the anchor gone reads again; more often than this only where others keep removing it. */
const ROUNDS = 16

/**
 * BEFORE INSERT OR UPDATE: computes the hash and finds the number.
 *
 * Every SELECT takes a new snapshot at READ COMMITTED because the function is VOLATILE; the second read after the lock
 * depends on it. At REPEATABLE READ the lock raises 40001 where the anchor has changed since the snapshot.
 */
export function placeBody(table: TextTable): string {
  const { hash, chained } = columns(table)
  return `
#variable_conflict use_variable
DECLARE
  plain boolean := ${standsOn(table)};
  locked boolean := false;
  first integer;
  last integer;
  taken integer;
  length bigint;
BEGIN${refuseOtherTable(table)}${keepUnchanged(table)}${withoutText(table)}
  NEW.${hash} := ${hashOf(table, 'NEW', '\n    || ')};
  NEW.${chained} := false;${withoutChain(table)}${findEmpty(table)}${refuseInPlace(table)}${findNumber(table)}
END
`
}

/** A text that stays where it is keeps its number; only a promotion writes another, which is 0. */
function keepUnchanged(table: TextTable): string {
  const { hash, number, chained } = columns(table)
  const same = [...sameScope(table, 'OLD', 'NEW'), ...sameText(table, 'OLD', 'NEW')]
  if (table.deleted !== undefined) same.push(`(${[...isLive(table, 'OLD'), ...isFreed(table, 'NEW')].join(' OR ')})`)
  return `${whenAll(`TG_OP = 'UPDATE'`, ...same)}
    -- Number 0 is what a promotion writes, and for the index to decide; nobody clears the flag.
    NEW.${hash} := OLD.${hash};
    NEW.${number} := CASE WHEN NEW.${number} = 0 THEN 0 ELSE OLD.${number} END;
    NEW.${chained} := OLD.${chained} OR NEW.${chained} IS TRUE;
    RETURN NEW;
  END IF;${table.immutable ? refuseChange(table) : ''}`
}

/** The scope counts as part of an immutable text; a text that was NULL may still be given. */
function refuseChange(table: TextTable): string {
  const given = table.nullable ? [`NOT (${textIsNull(table, 'OLD').join(' AND ')})`] : []
  // Anybody's operator could come in the way of IS DISTINCT FROM.
  const other = sameScope(table, 'OLD', 'NEW').map((same) => `NOT ${same}`)
  const different = [...differentText(table, 'OLD', 'NEW'), ...other]
  // Without soft deletes, what has not changed does not come here.
  const changed = table.deleted === undefined ? [] : [`(${different.join(`\n      OR `)})`]
  const message = literal('the text is immutable')
  return `${whenAll(`TG_OP = 'UPDATE'`, ...given, ...changed)}${raise(table, 4, { sqlstate: SQLSTATE.immutableText, message })}
  END IF;`
}

function withoutText(table: TextTable): string {
  if (!table.nullable) return ''
  const { hash, number, chained } = columns(table)
  return `${whenAll(...textIsNull(table, 'NEW'))}
    NEW.${hash} := NULL;
    NEW.${number} := 0;
    NEW.${chained} := false;
    RETURN NEW;
  END IF;`
}

function withoutChain(table: TextTable): string {
  if (table.deleted === undefined) return ''
  return `
  -- Deleted softly, it is in no chain. Once it is restored, it gets a number that is free then.
  ${whenAll(...isFreed(table, 'NEW')).trim()}
    NEW.${columns(table).number} := 0;
    RETURN NEW;
  END IF;`
}

/**
 * A query of its own, and as little of one as can be: it is most of what a row without a hash costs. Rows of children by
 * INHERITS only send it on to the queries that leave them out.
 */
function findEmpty(table: TextTable): string {
  return `
  -- Practically every chain is empty. Should it not stay so, the index refuses number 0.
  PERFORM FROM ${relation(table)} AS t
  WHERE ${all(4, ...sameChain(table, 't', 'NEW'), ...isLive(table, 't'))}
  LIMIT 1;
  IF NOT FOUND THEN
    NEW.${columns(table).number} := 0;
    RETURN NEW;
  END IF;`
}

/** In an INSERT, OLD is NULL; a chain that an UPDATE leaves a row in is not empty. An immutable text has been refused. */
function refuseInPlace(table: TextTable): string {
  if (table.immutable) return ''
  const message = literal('a text cannot become another one of equal hash in place')
  const hint = 'An upsert met the row of another text: try again. An UPDATE: store the new text as a new row.'
  return `
  -- An upsert that sets the text would do this to a row of another text that took its number meanwhile.
  ${whenAll(...sameChain(table, 'OLD', 'NEW'), ...isLive(table, 'OLD')).trim()}${raise(table, 4, { sqlstate: SQLSTATE.serializationFailure, message, hint })}
  END IF;`
}

function findNumber(table: TextTable): string {
  const { number, chained } = columns(table)
  const exhausted = literal('could not lock the anchor of a chain due to concurrent deletes')
  const full = `pg_catalog.format('the chain is full: %s texts share one hash', TG_ARGV[0])`
  return `
  FOR round IN 1..${ROUNDS} LOOP
    -- Once without the lock and, unless that is enough, once more under it: a new query has a new snapshot, which
    -- shows all that earlier holders of the lock have committed, and nobody can add more.
    ${readChain(table)}
    IF locked AND taken IS NULL AND length >= TG_ARGV[0]::pg_catalog.int4 THEN${raise(table, 6, { sqlstate: SQLSTATE.chainLimit, message: full })}
    ELSIF locked THEN
      NEW.${number} := coalesce(taken, last + 1);
      RETURN NEW;
    ELSIF last IS NULL OR taken = 0 OR first <> 0 THEN
      -- Empty, or taken at 0: the index decides, and knows no snapshots. Others but no anchor: this very statement
      -- took it, to wait for another would fail for ever; settle compares and flags what comes to 0.
      NEW.${number} := coalesce(taken, 0);
      NEW.${chained} := (first <> 0 AND taken IS NULL) IS TRUE;
      RETURN NEW;
    END IF;
    -- The anchor is the mutex of the chain; at REPEATABLE READ this fails where it has changed since the snapshot.
    PERFORM 1 FROM ${relation(table)} AS t
    WHERE ${all(6, ...chainOf(table, 't', 'NEW'), `t.${number} = 0`)}
    FOR NO KEY UPDATE;
    locked := FOUND;
  END LOOP;${raise(table, 2, { sqlstate: SQLSTATE.serializationFailure, message: exhausted })}`
}

function readChain(table: TextTable): string {
  const number = `t.${quote(table.number)}`
  return `SELECT pg_catalog.min(${number}), pg_catalog.max(${number}), pg_catalog.count(*),
      pg_catalog.min(${number}) FILTER (
        WHERE ${all(10, ...sameText(table, 't', 'NEW'))}
      )
    INTO first, last, length, taken
    FROM ${relation(table)} AS t
    WHERE ${all(6, ...chainOf(table, 't', 'NEW'))};`
}
