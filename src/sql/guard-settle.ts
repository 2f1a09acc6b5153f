import { all, chainOf, columns, raise, refuseOtherTable, relation, renamed, standsOn } from './guard-body'
import { triggerName, watchedColumns } from './guard-triggers'
import { list, literal, quote } from './identifier'
import { SQLSTATE } from './sqlstate'
import { differentChain, differentText, isFreed, isLive, sameChain, sameText, type TextTable } from './text-table'

/**
 * AFTER INSERT, UPDATE or DELETE, for a chain that has, or had, others than its anchor: touches the anchor, or promotes
 * the lowest where it is gone; then looks at what it finds, whatever was meant.
 */
export function settleBody(table: TextTable): string {
  return `
#variable_conflict use_variable
DECLARE
  plain boolean := ${standsOn(table)};
  lowest integer;
  r record;
BEGIN${refuseOtherTable(table)}${refuseOtherColumns(table)}
  FOR way IN 1..2 LOOP
    IF way = 1 THEN
      -- A promotion: the row was the anchor of a chain, and is not any more.
      CONTINUE WHEN (${all(8, ...leftAnchor(table))}) IS NOT TRUE;
      r := OLD;
    ELSE
      -- A touch: the row has come to a number that is not 0, or what its chain stands on has changed. OLD may be NULL.
      CONTINUE WHEN (${all(8, ...cameOrChanged(table))}) IS NOT TRUE;
      r := NEW;
    END IF;${anchorLowest(table)}${refuseTwice(table)}
  END LOOP;
  RETURN NULL;
END
`
}

/** For an AND. */
function leftAnchor(table: TextTable): string[] {
  const { number, chained } = columns(table)
  const gone = [...differentChain(table, 'OLD', 'NEW'), ...isFreed(table, 'NEW')]
  return [
    `OLD.${number} = 0`,
    `OLD.${chained}`,
    ...isLive(table, 'OLD'),
    `(TG_OP = 'DELETE'\n          OR ${gone.join('\n          OR ')})`,
  ]
}

/** For an AND. */
function cameOrChanged(table: TextTable): string[] {
  const { number, chained } = columns(table)
  const moved = [
    ...differentText(table, 'OLD', 'NEW'),
    ...differentChain(table, 'OLD', 'NEW'),
    ...isFreed(table, 'OLD'),
  ]
  const cleared = [`OLD.${chained} AND NOT NEW.${chained}`, ...sameChain(table, 'OLD', 'NEW'), ...isLive(table, 'OLD')]
  return [
    ...isLive(table, 'NEW'),
    [
      `(NEW.${number} > 0 AND OLD.${number} IS DISTINCT FROM NEW.${number}`,
      `(NEW.${number} > 0 OR NEW.${chained})\n          AND (${moved.join('\n            OR ')})`,
      `${cleared.join('\n          AND ')})`,
    ].join('\n        OR '),
  ]
}

function anchorLowest(table: TextTable): string {
  const { number, chained } = columns(table)
  const message = literal('a trigger of the table undoes what the guard does to a chain')
  const hint = 'The trigger must keep hash, hash number and flag as they are, and let their UPDATE pass.'
  return `
    SELECT t.${number} INTO lowest FROM ${relation(table)} AS t
    WHERE ${all(6, ...chainOf(table, 't', 'r'))}
    ORDER BY t.${number} LIMIT 1
    FOR NO KEY UPDATE;
    IF lowest IS NULL THEN
      CONTINUE;
    ELSIF lowest = 0 THEN
      -- Also where it is true: on the new version fail, with 40001, transactions with an older snapshot, in place of
      -- acting on that. A lock would leave no trace.
      UPDATE ${relation(table)} AS t SET ${chained} = true
      WHERE ${all(8, ...chainOf(table, 't', 'r'), `t.${number} = 0`)};
    ELSE
      UPDATE ${relation(table)} AS t SET ${number} = 0, ${chained} = true
      WHERE ${all(8, ...chainOf(table, 't', 'r'), `t.${number} = lowest`)};
    END IF;
    -- The row was locked and there: only a trigger of the table can have undone this.
    IF NOT FOUND OR NOT EXISTS (
      SELECT FROM ${relation(table)} AS t
      WHERE ${all(8, ...chainOf(table, 't', 'r'), `t.${number} = 0`, `t.${chained}`)}
    ) THEN${raise(table, 6, { sqlstate: SQLSTATE.objectNotInPrerequisiteState, message, hint })}
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
        ON ${all(8, ...twin)}
      WHERE ${all(8, ...chainOf(table, 's', 'r'), `s.${number} IN (0, r.${number})`)}
    ) THEN${raise(table, 6, { sqlstate: SQLSTATE.uniqueViolation, message })}
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
