import { dollarQuote, list, literal, qualified } from '../../sql/identifier'
import {
  hasNamedKey,
  holderKey,
  type HolderTable,
  namedSet,
  nameField,
  nameFields,
  namesOfRow,
  NO_JOIN,
  columnsToInsert,
  onConflict,
  hashed,
} from './fragments'
import { SQLSTATE } from '../../sql/sqlstate'
import { equal, op } from '../../sql/text-table'

/** The number of clashes that an error reports. */
const SHOWN = 10

/** The part of the note on a holder's table that describes its names. */
export type HolderNote = Pick<HolderTable, 'holder' | 'names'>

/**
 * Makes every row of a table hold the names in its columns, and no others, in one statement. It runs when the table's
 * triggers have just been made. It leaves names that are right as they are.
 *
 * If other rows hold a name, it raises an error that reports up to ten of these rows by their keys.
 *
 * @param before the table's former note, if it names another table or other columns
 */
export function claimAllNames(holder: HolderTable, before?: HolderNote): string {
  return `DO ${dollarQuote(`
#variable_conflict use_column
DECLARE
  one pg_catalog.record;
  clashes pg_catalog.text;
BEGIN
  LOCK TABLE ONLY ${tableOf(holder)} IN SHARE ROW EXCLUSIVE MODE;${letDirect(holder, 'DISABLE')}${follow(holder, before)}
  DELETE FROM ${namesOf(holder)} AS n
  WHERE ${isHeldHere(holder)} AND NOT EXISTS (
    SELECT FROM ONLY ${tableOf(holder)} AS t
    ${namesOfRow(holder)}
    WHERE ${isAgreed(holder)}
    ${NO_JOIN}
  );
  INSERT INTO ${namesOf(holder)} AS n ${columnsToInsert(holder)}
  SELECT DISTINCT ON (c.namespace, c.hash)
    c.namespace, c.text, c.hash, 0, ${literal(holder.holder)}, c.property, c.key, 'held'
  FROM (${missing(holder)}) AS c
  ORDER BY c.namespace, c.hash
  ${onConflict(holder)};
  -- Without statistics of what was inserted, the server would read all names for each row.
  ANALYZE ${namesOf(holder)};
  -- Texts of equal hash: the guard finds their numbers.
  FOR one IN
    SELECT c.* FROM (${missing(holder)}) AS c
    LEFT JOIN ${namesOf(holder)} AS n ON ${isName(holder)}
    WHERE ${nameFields(holder)('n', 'id')} IS NULL
    ORDER BY c.namespace, c.hash
  LOOP
    INSERT INTO ${namesOf(holder)} (${nameFields(holder)('', 'namespace', 'text', 'holder', 'property', 'key')})
    VALUES (one.namespace, one.text, ${literal(holder.holder)}, one.property, one.key)
    ON CONFLICT DO NOTHING;
  END LOOP;${refuseClashes(
    holder,
    `
    SELECT ${clash(holder, 'c.property', 'c.key', 'n')}
    FROM (${missing(holder)}) AS c
    LEFT JOIN ${namesOf(holder)} AS n ON ${isName(holder)}`,
    { of: 'rows hold one name: ', todo: 'Rename one of each' },
  )}${letDirect(holder, 'ENABLE')}
END
`)}`
}

/** Deletes all names of a table's rows, former ones too. It does nothing if the table of names does not exist. */
export function releaseAllNames(holder: Pick<HolderTable, 'holder' | 'of'>): string {
  const { of } = holder
  return `DO ${dollarQuote(`
DECLARE
  one pg_catalog.record;
BEGIN
  IF pg_catalog.to_regclass(${literal(namesOf(holder))}) IS NULL THEN
    RETURN;
  END IF;${letDirect(holder, 'DISABLE')}
  DELETE FROM ${namesOf(holder)} AS n
  WHERE ${equal(nameField(of, 'n', 'holder'), literal(holder.holder))};${letDirect(holder, 'ENABLE')}
END
`)}`
}

/** The names of both tables outside of functions, where the migration's `search_path` applies. */
const tableOf = ({ schema, table }: HolderTable): string => qualified(schema, table)
const namesOf = ({ of }: Pick<HolderTable, 'of'>): string => qualified(of.schema, of.table)

/** Disables or enables the protection against clients that write held names, because a migration is such a client. */
const letDirect = ({ of }: Pick<HolderTable, 'of'>, how: 'DISABLE' | 'ENABLE'): string => `
  FOR one IN
    SELECT t.tgname FROM pg_catalog.pg_trigger AS t
    WHERE ${equal('t.tgrelid', `${literal(qualified(of.schema, of.table))}::pg_catalog.regclass`)}
      AND ${equal('t.tgname', 'ANY (ARRAY[')}
        ${list(
          // The triggers that refuse direct writes.
          ['insert', 'update', 'delete'].map((event) => literal(namedSet(of.table, event))),
          8,
        )}
      ]::pg_catalog.name[])
  LOOP
    EXECUTE pg_catalog.format('ALTER TABLE %s ${how} TRIGGER %I', ${literal(namesOf({ of }))}, one.tgname);
  END LOOP;`

/**
 * Makes names follow a renamed table, column or namespace. Deletes the names of columns that no longer hold any.
 */
function follow(holder: HolderTable, before: HolderNote | undefined): string {
  const field = nameFields(holder)
  const set = (column: 'holder' | 'property', from: string, to: string, also = ''): string => `
  UPDATE ${namesOf(holder)} AS n SET ${field('', column)} = ${literal(to)}
  WHERE ${equal(field('n', column), literal(from))}${also};`
  const moved = before && before.holder !== holder.holder ? set('holder', before.holder, holder.holder) : ''
  const here = equal(field('n', 'holder'), literal(holder.holder))
  const declared = holder.names.map(
    ({ namespace, column }) =>
      `${equal(field('n', 'namespace'), literal(namespace))} AND ${equal(field('n', 'property'), literal(column))}`,
  )
  return `${moved}${renamed(holder, before)
    .map(([from, to]) => set('property', from, to, ` AND ${here}`))
    .join('')}${rescoped(holder, before)}
  DELETE FROM ${namesOf(holder)} AS n
  WHERE ${here}
    AND NOT (${declared.join('\n      OR ')});`
}

/**
 * Moves the names of a column to its new namespace, former ones too. If another row has such a name there, the clash
 * remains. A held name is claimed with those of all rows, and refused then. A former one is refused here.
 */
function rescoped(holder: HolderTable, before: HolderNote | undefined): string {
  const field = nameFields(holder)
  const moves = holder.names.flatMap(({ column, namespace }) => {
    const was = before?.names.find((one) => one.column === column)?.namespace
    return was === undefined || was === namespace ? [] : { column, namespace, was }
  })
  if (moves.length === 0) return ''
  const isLeft = ({ column, was }: { readonly column: string; readonly was: string }): string =>
    `${equal(field('n', 'holder'), literal(holder.holder))}
    AND ${equal(field('n', 'property'), literal(column))}
    AND ${equal(field('n', 'namespace'), literal(was))}`
  const isThere = (namespace: string): string =>
    `${equal(field('o', 'namespace'), literal(namespace))} AND ${equal(field('o', 'hash'), field('n', 'hash'))}
        AND ${equal(`${field('o', 'text')} COLLATE pg_catalog."C"`, field('n', 'text'))}`
  return `
  -- Expired names are free.
  DELETE FROM ${namesOf(holder)} AS n
  WHERE ${field('n', 'until')} ${op('<=')} pg_catalog.statement_timestamp()
    AND ${field('n', 'state')} ${op('<>')} 'held';${moves
      .map(
        (move) => `
  UPDATE ${namesOf(holder)} AS n SET ${field('', 'namespace')} = ${literal(move.namespace)}
  WHERE ${isLeft(move)} AND NOT EXISTS (
      SELECT FROM ${namesOf(holder)} AS o
      WHERE ${isThere(move.namespace)}
      ${NO_JOIN}
    );${refuseClashes(
      holder,
      `
    SELECT ${clash(holder, field('n', 'property'), field('n', 'key'), 'o')}
    FROM ${namesOf(holder)} AS n
    JOIN ${namesOf(holder)} AS o ON ${isThere(move.namespace)}
    WHERE ${isLeft(move)} AND ${field('n', 'state')} ${op('<>')} 'held'
      AND NOT (${equal(field('o', 'holder'), field('n', 'holder'))} AND ${equal(field('o', 'key'), field('n', 'key'))})`,
      { of: 'rows have a former name that another has in the new namespace: ', todo: 'Delete these former names' },
    )}`,
      )
      .join('')}`
}

/** Pairs a removed column with a new one that holds names of the same namespace. */
function renamed({ names }: HolderTable, before: HolderNote | undefined): (readonly [string, string])[] {
  const known = before?.names ?? []
  const isIn = (list: HolderTable['names'], column: string): boolean => list.some((one) => one.column === column)
  const fresh = names.filter(({ column }) => !isIn(known, column))
  return known
    .filter(({ column }) => !isIn(names, column))
    .flatMap(({ column, namespace }) => {
      const index = fresh.findIndex((one) => one.namespace === namespace)
      return index === -1 ? [] : fresh.splice(index, 1).map((one) => [column, one.column] as const)
    })
}

const isHeldHere = (holder: HolderTable): string => {
  const field = nameFields(holder)
  return `${equal(field('n', 'holder'), literal(holder.holder))} AND ${equal(field('n', 'state'), `'held'`)}`
}

/** The condition that the name `n` is one of the names `v` of the row `t`. */
function isAgreed(holder: HolderTable): string {
  const field = nameFields(holder)
  const same = hasNamedKey(holder, 't', field('n', 'key'))
  return `${same.join(' AND ')}
      AND ${equal('v.property', field('n', 'property'))}
      AND ${equal('v.text', `${field('n', 'text')} COLLATE pg_catalog."C"`)}`
}

const isName = (holder: HolderTable): string => {
  const field = nameFields(holder)
  return `${equal(field('n', 'namespace'), 'c.namespace')}
      AND ${equal(field('n', 'hash'), 'c.hash')}
      AND ${equal(`${field('n', 'text')} COLLATE pg_catalog."C"`, 'c.text')}`
}

function missing(holder: HolderTable): string {
  const field = nameFields(holder)
  return `
    SELECT v.*, ${hashed(holder, 'v.text')} AS hash, ${holderKey(holder, 't')} AS key
    FROM ONLY ${tableOf(holder)} AS t
    ${namesOfRow(holder)}
    WHERE v.text IS NOT NULL AND NOT EXISTS (
      SELECT FROM ${namesOf(holder)} AS n
      WHERE ${equal(field('n', 'key'), holderKey(holder, 't'))}
        AND ${isHeldHere(holder)}
        AND ${equal(field('n', 'property'), 'v.property')}
        AND ${equal(`${field('n', 'text')} COLLATE pg_catalog."C"`, 'v.text')}
    )
  `
}

/** Describes two rows that want one name, and never the name itself. */
const clash = (holder: HolderTable, property: string, key: string, other: string): string =>
  `pg_catalog.format('%s.%s %s and %s.%s %s', ${literal(holder.holder)}, ${property}, ${key},
      ${nameFields(holder)(other, 'holder', 'property', 'key')}) AS clash`

/** @param query returns rows of `clash` */
const refuseClashes = (
  holder: HolderTable,
  query: string,
  { of, todo }: { readonly of: string; readonly todo: string },
): string => `
  SELECT pg_catalog.concat(pg_catalog.string_agg(c.clash, ', '), ' (', pg_catalog.count(*), ' of ',
      pg_catalog.max(c.total), ' are shown)') INTO clashes
    FROM (
      SELECT a.clash, pg_catalog.count(*) OVER () AS total FROM (${query}
      ) AS a
      LIMIT ${SHOWN}
    ) AS c
    HAVING pg_catalog.count(*) ${op('>')} 0;
  IF clashes IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.uniqueViolation}', TABLE = ${literal(holder.table)},
      CONSTRAINT = ${literal(holder.of.index)},
      MESSAGE = pg_catalog.concat(${literal(of)}, clashes,
        ${literal(`. ${todo}, then run this again.`)});
  END IF;`
