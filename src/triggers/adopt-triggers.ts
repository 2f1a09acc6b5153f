import {
  type AdoptedTable,
  dropTriggers,
  drops,
  FIRST_TEMPORARY_NUMBER,
  type Held,
  nameOf,
  nextNumber,
  numbersOf,
  objectOf,
  queueOf,
  TRIGGERS,
} from '../sql/adopt-table'
import { createRefused } from '../sql/adopt-fill'
import { ownAlone } from '../sql/adopt-owned'
import { literal, quote } from '../sql/identifier'
import { bytewise, field, hashExpression, isFreed, isLive, tableName, textIsNull } from '../sql/text-table'
import { makeFunctions, type OwnedFunction } from '../sql/trigger-ddl'

/** What the transitional triggers need; without a lock on the table itself. */
export function createObjects(on: AdoptedTable): string[] {
  const { table } = on
  const scope = table.scope.map((name, index) => `t.${quote(name)} AS s${index}, `).join('')
  return [
    ...drops(on),
    `CREATE SEQUENCE ${numbersOf(on)} AS pg_catalog.int4 MINVALUE ${FIRST_TEMPORARY_NUMBER}`,
    `CREATE TABLE ${queueOf(on)} AS SELECT ${scope}NULL::pg_catalog.${table.digest.type} AS hash ` +
      `FROM ${tableName(table)} AS t WITH NO DATA`,
    `ALTER TABLE ${queueOf(on)} ADD seq pg_catalog.int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ` +
      `ADD numbered pg_catalog.bool NOT NULL DEFAULT false`,
    ...createRefused(on),
    ...ownAlone(on, [numbersOf(on), queueOf(on)]),
    ...makeFunctions({ fresh: [functionOf(on, 'place', placeBody(on)), functionOf(on, 'note', noteBody(on))] }),
  ]
}

/** It runs as the table's owner: a role that may only INSERT could neither write to the queue nor take a number. */
export const functionOf = (on: AdoptedTable, suffix: string, body: string): OwnedFunction => ({
  schema: on.table.schema,
  name: nameOf(on, suffix),
  body,
  relation: tableName(on.table),
})

/** Equality of two values that may be NULL, by one operator of pg_catalog. */
const same = (left: string, right: string): string =>
  `coalesce(${left} OPERATOR(pg_catalog.=) ${right}, ${left} IS NULL AND ${right} IS NULL)`

/** Predicates that hold where two rows have the same text, column by column. */
export const sameTexts = (on: Held, left: string, right: string): string[] =>
  on.table.text.map(({ name }) => same(bytewise(left, name), bytewise(right, name)))

const sameScopes = ({ table }: Held): string[] =>
  table.scope.map((name) => same(field('OLD', name), field('NEW', name)))

const sameHash = ({ table }: Held): string => same(field('OLD', table.hash), field('NEW', table.hash))

/** Every row that a client writes has its hash at once, and a number of its own until the queue comes to its chain. */
function placeBody(on: AdoptedTable): string {
  const { table } = on
  const [hash, number, chained] = [table.hash, table.number, table.chained].map(quote)
  const set = (value: string, place: string): string =>
    `NEW.${hash} := ${value};\n  NEW.${number} := ${place};\n  NEW.${chained} := false;\n  RETURN NEW;`
  const textless = table.nullable
    ? `  IF ${textIsNull(table, 'NEW').join(' AND ')} THEN\n  ${set('NULL', '0')}\n  END IF;\n`
    : ''
  const freed = isFreed(table, 'NEW').map(
    (gone) => `  IF ${gone} THEN\n  ${set(hashExpression(table, 'NEW'), '0')}\n  END IF;\n`,
  )
  return `\nBEGIN\n${textless}${freed.join('')}  ${set(hashExpression(table, 'NEW'), nextNumber(on))}\nEND\n`
}

/** Notes the chain that a row came to, and the one that an anchor left. */
function noteBody(on: AdoptedTable): string {
  const { table } = on
  const columns = [...table.scope.map((_, index) => `s${index}`), 'hash'].join(', ')
  const note = (row: string): string => {
    const values = [...table.scope, table.hash].map((name) => field(row, name)).join(', ')
    return `INSERT INTO ${queueOf(on)} (${columns}) VALUES (${values});`
  }
  const number = (row: string): string => field(row, table.number)
  const came = [
    `TG_OP OPERATOR(pg_catalog.<>) 'DELETE'`,
    `${field('NEW', table.hash)} IS NOT NULL`,
    `${number('NEW')} OPERATOR(pg_catalog.>=) ${FIRST_TEMPORARY_NUMBER}`,
    `(TG_OP OPERATOR(pg_catalog.=) 'INSERT' OR ${number('OLD')} OPERATOR(pg_catalog.<>) ${number('NEW')})`,
  ]
  const stayed = [...sameScopes(on), sameHash(on), ...isLive(table, 'NEW')]
  const left = [
    `TG_OP OPERATOR(pg_catalog.<>) 'INSERT'`,
    field('OLD', table.chained),
    `(TG_OP OPERATOR(pg_catalog.=) 'DELETE' OR NOT (${stayed.join(' AND ')}))`,
  ]
  return `
BEGIN
  IF ${came.join(' AND ')} THEN
    ${note('NEW')}
  END IF;
  IF ${left.join(' AND ')} THEN
    ${note('OLD')}
  END IF;
  RETURN NULL;
END
`
}

function createTriggers(on: AdoptedTable): string[] {
  const { table } = on
  const trigger = (suffix: (typeof TRIGGERS)[number], event: string, run: string, when?: string): string =>
    `CREATE TRIGGER ${quote(nameOf(on, suffix))} ${event} ON ${tableName(table)} FOR EACH ROW ` +
    `${when === undefined ? '' : `WHEN (${when}) `}EXECUTE FUNCTION ${objectOf(on, run)}()`
  const [oldHash, newHash] = [field('OLD', table.hash), field('NEW', table.hash)]
  const stayed = [...sameTexts(on, 'OLD', 'NEW'), ...sameScopes(on), sameHash(on)].join(' AND ')
  const restored =
    table.deleted === undefined ? [] : [[...isFreed(table, 'OLD'), ...isLive(table, 'NEW')].join(' AND ')]
  // The backfill brings the hash of a row that has none, and a number that it knows to be right.
  const written = `${newHash} IS NULL OR ${oldHash} IS NOT NULL AND (${[`NOT (${stayed})`, ...restored].join(' OR ')})`
  const [was, is] = [field('OLD', table.number), field('NEW', table.number)]
  const temporary = `${is} OPERATOR(pg_catalog.>=) ${FIRST_TEMPORARY_NUMBER}`
  return [
    trigger('place_insert', 'BEFORE INSERT', 'place'),
    trigger('place_update', 'BEFORE UPDATE', 'place', written),
    trigger('note_insert', 'AFTER INSERT', 'note', temporary),
    trigger(
      'note_update',
      'AFTER UPDATE',
      'note',
      `${temporary} AND ${was} OPERATOR(pg_catalog.<>) ${is} OR ${field('OLD', table.chained)}`,
    ),
    trigger('note_delete', 'AFTER DELETE', 'note', field('OLD', table.chained)),
  ]
}

/** A hidden column, as TypeORM wants it. */
export interface HiddenComment {
  readonly name: string
  readonly comment: string
}

/**
 * Hidden columns, as constants that rewrite no row, and the transitional triggers.
 *
 * @param hidden hash, number and flag
 * @param standing the columns that are there already
 */
export function beginAdoption(
  on: AdoptedTable,
  hidden: readonly HiddenComment[],
  standing: ReadonlySet<string>,
): string[] {
  const types = [on.table.digest.type, 'integer NOT NULL DEFAULT 0', 'boolean NOT NULL DEFAULT false']
  const added = hidden.flatMap(({ name }, index) => (standing.has(name) ? [] : `ADD ${quote(name)} ${types[index]}`))
  return [
    ...(added.length === 0 ? [] : [`ALTER TABLE ${tableName(on.table)} ${added.join(', ')}`]),
    ...hidden.map(
      ({ name, comment }) => `COMMENT ON COLUMN ${tableName(on.table)}.${quote(name)} IS ${literal(comment)}`,
    ),
    ...dropTriggers(on),
    ...createTriggers(on),
  ]
}
