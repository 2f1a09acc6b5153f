import { triggerName, watchedColumns } from './guard-triggers'
import { list, literal, quote } from './identifier'
import { SQLSTATE } from './sqlstate'
import {
  differentScope,
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
 * The table inside the functions, where `search_path` is fixed to the table's schema: no schema is named, so a dump
 * restored into another one still works.
 */
const relation = (table: TextTable): string => quote(table.table)

/** Columns of the row that a trigger assigns to. */
function columns(table: TextTable): Record<'hash' | 'number' | 'chained', string> {
  return { hash: quote(table.hash), number: quote(table.number), chained: quote(table.chained) }
}

/** Predicates, one a line, for a place in the text that is indented so far. */
const all = (indent: number, ...predicates: readonly string[]): string => predicates.join(`\n${' '.repeat(indent)}AND `)

/** `IF … THEN`, one predicate a line. */
const whenAll = (...predicates: readonly string[]): string =>
  `\n  IF ${all(4, ...predicates)}${predicates.length > 1 ? '\n  ' : ' '}THEN`

/**
 * The rows of a chain. Without ONLY, which a partitioned table cannot have, the table's name means its children by
 * INHERITS too; `tableoid` leaves them out.
 */
const chainOf = (table: TextTable, left: string, right: string): string[] => [
  ...sameChain(table, left, right),
  ...isLive(table, left),
  `(${left}.tableoid = TG_RELID OR NOT plain)`,
]

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
  plain boolean := ${standsOn(table)}; -- else a partition
  locked boolean := false;
  first integer;
  last integer;
  taken integer;
  length bigint;
BEGIN${refuseOtherTable(table)}${keepUnchanged(table)}${withoutText(table)}
  NEW.${hash} := ${hashOf(table, 'NEW', '\n    || ')};
  NEW.${chained} := false;${withoutChain(table)}${refuseInPlace(table)}${findNumber(table)}
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
  const different = [...differentText(table, 'OLD', 'NEW'), ...differentScope(table, 'OLD', 'NEW')]
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

/** In an INSERT, OLD is NULL. An immutable text has been refused already. */
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
  -- Practically every chain is empty. Should it not stay so, the index refuses number 0.
  IF NOT EXISTS (
    SELECT FROM ${relation(table)} AS t
    WHERE ${all(6, ...chainOf(table, 't', 'NEW'))}
  ) THEN
    NEW.${number} := 0;
    RETURN NEW;
  END IF;
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

/**
 * AFTER INSERT, UPDATE or DELETE, for a chain that has others than its anchor: touches the anchor, or promotes the
 * lowest where it is gone; then looks at what it finds, whatever was meant.
 */
export function settleBody(table: TextTable): string {
  return `
#variable_conflict use_variable
DECLARE
  plain boolean := ${standsOn(table)}; -- else a partition
  lowest integer;
  r record := OLD;
BEGIN${refuseOtherTable(table)}${refuseOtherColumns(table)}
  IF TG_ARGV[0] = 'new' THEN
    r := NEW;
  END IF;${anchorLowest(table)}${refuseTwice(table)}
  RETURN NULL;
END
`
}

function anchorLowest(table: TextTable): string {
  const { number, chained } = columns(table)
  const message = literal('a trigger of the table undoes what the guard does to a chain')
  const hint = 'The trigger must keep hash, hash number and flag as they are, and let their UPDATE pass.'
  return `
  SELECT t.${number} INTO lowest FROM ${relation(table)} AS t
  WHERE ${all(4, ...chainOf(table, 't', 'r'))}
  ORDER BY t.${number} LIMIT 1
  FOR NO KEY UPDATE;
  IF lowest IS NULL THEN
    RETURN NULL;
  ELSIF lowest = 0 THEN
    -- Also where it is true: on the new version fail, with 40001, transactions with an older snapshot, in place of
    -- acting on that. A lock would leave no trace.
    UPDATE ${relation(table)} AS t SET ${chained} = true
    WHERE ${all(6, ...chainOf(table, 't', 'r'), `t.${number} = 0`)};
  ELSE
    UPDATE ${relation(table)} AS t SET ${number} = 0, ${chained} = true
    WHERE ${all(6, ...chainOf(table, 't', 'r'), `t.${number} = lowest`)};
  END IF;
  -- The row was locked and there: only a trigger of the table can have undone this.
  IF NOT FOUND OR NOT EXISTS (
    SELECT FROM ${relation(table)} AS t
    WHERE ${all(6, ...chainOf(table, 't', 'r'), `t.${number} = 0`, `t.${chained}`)}
  ) THEN${raise(table, 4, { sqlstate: SQLSTATE.objectNotInPrerequisiteState, message, hint })}
  END IF;`
}

function refuseTwice(table: TextTable): string {
  const { number } = columns(table)
  const twin = [...chainOf(table, 't', 's'), ...sameText(table, 't', 's'), `t.${number} <> s.${number}`]
  const message = literal(`duplicate key value violates unique constraint ${quote(table.index)}`)
  return `
  -- This statement may have put a text at 0 past every proof; a trigger may have changed a text after the proof.
  -- Compared by number: an old snapshot can show two rows at one number, of which one is gone.
  IF EXISTS (
    SELECT FROM ${relation(table)} AS s JOIN ${relation(table)} AS t
      ON ${all(6, ...twin)}
    WHERE ${all(6, ...chainOf(table, 's', 'r'), `s.${number} IN (0, r.${number})`)}
  ) THEN${raise(table, 4, { sqlstate: SQLSTATE.uniqueViolation, message })}
  END IF;`
}

const ownTable = (table: TextTable): string => `pg_catalog.to_regclass(${literal(relation(table))})::pg_catalog.oid`

/** Whether the trigger runs for the table that the function names; in a partition it does not. */
const standsOn = (table: TextTable): string => `TG_RELID OPERATOR(pg_catalog.=) ${ownTable(table)}`

const renamed = {
  sqlstate: SQLSTATE.objectNotInPrerequisiteState,
  message: literal('the guard names another table or column than its own'),
  hint: 'Something was renamed: create the guard again, for instance by a new migration.',
}

/** A name that another table has taken would have the guard read the chains of that one. */
function refuseOtherTable(table: TextTable): string {
  return `
  IF plain IS NOT TRUE THEN
    -- Not the table of that name: it must be a partition, or was renamed or moved.
    IF NOT EXISTS (
      SELECT FROM pg_catalog.pg_partition_ancestors(TG_RELID) AS p
      WHERE p.relid::pg_catalog.oid = ${ownTable(table)}
    ) THEN${raise(table, 6, renamed)}
    END IF;
  END IF;`
}

/** Only in settle: what place finds wrongly is number 0, which the index refuses, or is looked at here. */
function refuseOtherColumns(table: TextTable): string {
  return `
  -- A trigger follows a column that is renamed, the text of a function does not.
  IF NOT EXISTS (
    SELECT FROM pg_catalog.pg_trigger AS g
    WHERE g.tgrelid = TG_RELID
      AND g.tgname = ${literal(triggerName(table, 'place_update'))}
      AND ARRAY(
        SELECT a.attname FROM pg_catalog.unnest(g.tgattr) WITH ORDINALITY AS k (attnum, i)
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = g.tgrelid AND a.attnum = k.attnum
        ORDER BY k.i
      ) OPERATOR(pg_catalog.=) ARRAY[
        ${list(watchedColumns(table).map(literal), 8)}
      ]::pg_catalog.name[]
  ) THEN${raise(table, 4, renamed)}
  END IF;`
}

interface Refusal {
  readonly sqlstate: string
  /** As SQL. */
  readonly message: string
  readonly hint?: string
}

/** An error with our index as its constraint, so that a client can tell it from others; never with the text. */
function raise(table: TextTable, indent: number, { sqlstate, message, hint }: Refusal): string {
  const lines = [
    `RAISE EXCEPTION USING ERRCODE = '${sqlstate}',`,
    `  MESSAGE = ${message},`,
    ...(hint === undefined ? [] : [`  HINT = ${literal(hint)},`]),
    `  CONSTRAINT = ${literal(table.index)}, SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;`,
  ]
  return lines.map((line) => `\n${' '.repeat(indent)}${line}`).join('')
}
