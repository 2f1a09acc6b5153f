import { claimBody } from '../../names/sql/take'
import { nameTriggersOf } from '../../names/sql/triggers'
import { addLookup, type LookupIndex } from '../../sql/catalog'
import { literal, quote, unnest } from '../../sql/identifier'
import {
  hasNamedKey,
  holderKey,
  type HolderTable,
  nameField,
  type NamesColumn,
  namesOfRow,
  namesTableOf,
  newRows,
  pathOf,
} from '../../sql/names'
import { equal, field, op, tableName } from '../../sql/text-table'
import { dropFunctions, makeFunctions } from '../../sql/trigger-set'
import {
  type Adopting,
  alterTable,
  compareKey,
  dropFilled,
  keyTexts,
  lockInOrder,
  nameOf,
  objectOf,
  type OrderedTable,
  own,
  ownAlone,
} from './table'

/** A table whose rows get their names claimed while others write. */
export interface NamedTable extends OrderedTable {
  readonly holder: HolderTable
  /** The table of names, as the session finds it. */
  readonly names: string
}

/**
 * The command inserts rows here. A trigger of the batch runs as the table's owner, who may write held names: it claims
 * the names of these rows and empties the batch.
 */
const claimBatchOf = (on: Adopting): string => objectOf(on, 'batch')
/** The rows to look at again, by `key`, in the order of `seq`. `kind` is `busy`, `clash` or `refused`. */
const leftRowsOf = (on: Adopting): string => objectOf(on, 'left')
/** The command inserts ranges of ids here. A trigger releases the table's names with ids above `low`, up to `high`. */
const releasedOf = (on: Adopting): string => objectOf(on, 'released')
const FUNCTIONS = ['claim', 'release'] as const

export const nameColumnsOf = ({ holder }: NamedTable): string[] => holder.names.map(({ column }) => column)

/** Creates the objects that only the adoption needs. Does not lock the table itself. */
export function createClaims(on: NamedTable): string[] {
  const { holder } = on
  const [batch, left, released] = [claimBatchOf(on), leftRowsOf(on), releasedOf(on)]
  const columns = [...new Set([...on.primary, ...nameColumnsOf(on)])].map((name) => field('t', name))
  const { of } = holder
  const held = (['holder', 'property', 'key'] as const).map((column) => nameField(of, 'n', column))
  const noteClash = `
          INSERT INTO ${left} (key, property, kind, holder, holder_property, holder_key)
          SELECT one.key, one.property, 'clash', ${held.join(', ')}
          FROM ${namesTableOf(holder)} AS n WHERE ${equal(nameField(of, 'n', 'id'), 'found_id')};`
  const release = `
BEGIN
  DELETE FROM ${namesTableOf(holder)} AS n USING ${newRows(holder)} AS r
  WHERE ${equal(nameField(of, 'n', 'holder'), literal(holder.holder))}
    AND ${nameField(of, 'n', 'id')} ${op('>')} r.low AND ${nameField(of, 'n', 'id')} ${op('<=')} r.high
    AND ${equal(nameField(of, 'n', 'state'), `coalesce(r.state, ${nameField(of, 'n', 'state')})`)};
  DELETE FROM ${released};
  RETURN NULL;
END
`
  const source = (suffix: (typeof FUNCTIONS)[number], body: string) => ({
    schema: on.table.schema,
    name: nameOf(on, suffix),
    body,
    path: pathOf(holder),
    writes: { schema: holder.of.schema, name: holder.of.table },
    relation: tableName(on.table),
  })
  const runs = (suffix: (typeof FUNCTIONS)[number], table: string): string =>
    `CREATE TRIGGER ${quote(nameOf(on, suffix))} AFTER INSERT ON ${table} REFERENCING NEW TABLE AS ${newRows(holder)} ` +
    `FOR EACH STATEMENT EXECUTE FUNCTION ${objectOf(on, suffix)}()`
  return [
    ...dropClaims(on),
    `CREATE TABLE ${batch} AS SELECT ${columns.join(', ')} FROM ${tableName(on.table)} AS t WITH NO DATA`,
    `CREATE TABLE ${left} (seq pg_catalog.int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ` +
      `key pg_catalog.jsonb NOT NULL, property pg_catalog.text, kind pg_catalog.text NOT NULL, ` +
      `reason pg_catalog.text, holder pg_catalog.text, holder_property pg_catalog.text, holder_key pg_catalog.jsonb)`,
    `CREATE TABLE ${released} (low pg_catalog.int8, high pg_catalog.int8, state pg_catalog.text)`,
    ...ownAlone(on, [batch, left, released]),
    ...makeFunctions({
      fresh: [source('claim', claimBody(holder, noteClash, `\n  DELETE FROM ${batch};`)), source('release', release)],
    }),
    runs('claim', batch),
    runs('release', released),
  ]
}

export const dropClaims = (on: NamedTable): string[] => [
  `DROP TABLE IF EXISTS ${[claimBatchOf(on), leftRowsOf(on), releasedOf(on)].join(', ')}`,
  ...dropFunctions(FUNCTIONS.map((suffix) => ({ schema: on.table.schema, name: nameOf(on, suffix) }))),
]

/** Releases the table's names with an id above $1, up to $2. $3 is their state, or NULL for any state. */
export const releaseNamesOf = (on: NamedTable): string =>
  `INSERT INTO ${releasedOf(on)} (low, high, state) VALUES ($1::pg_catalog.int8, $2::pg_catalog.int8, $3::pg_catalog.text)`

/** Selects the lowest and the highest id of the table's names. $1 is their state, or NULL for any state. */
export const findNamesOf = (on: NamedTable): string => {
  const { of, holder } = on.holder
  const id = nameField(of, 'n', 'id')
  return `SELECT pg_catalog.min(${id})::pg_catalog.text AS low, pg_catalog.max(${id})::pg_catalog.text AS high
  FROM ${on.names} AS n WHERE ${equal(nameField(of, 'n', 'holder'), literal(holder))}
   AND ($1::pg_catalog.text IS NULL OR ${equal(nameField(of, 'n', 'state'), '$1::pg_catalog.text')})`
}

/** Creates the triggers. After their commit, every written row holds its names. */
export const beginNames = ({ holder }: NamedTable): string[] => [...nameTriggersOf(holder, true).create]

/**
 * Replaces the functions of the existing triggers. It makes no trigger and does not lock the table.
 *
 * @param adopting whether the triggers allow for rows whose names are not claimed yet
 */
export const changeTriggers = (on: NamedTable, adopting: boolean): string[] => {
  const { functions, path, writes } = nameTriggersOf(on.holder, adopting)
  const { schema } = on.holder
  const replaced = functions.map((one) => ({ ...one, schema, path, writes, relation: tableName(on.holder) }))
  return makeFunctions({ replaced })
}

/** Selects whether a row has a name that the table of names does not record for it. */
export const findUnclaimed = (on: NamedTable): string => {
  const { of, holder } = on.holder
  const [name, key] = [(column: NamesColumn): string => nameField(of, 'n', column), holderKey(on.holder, 't')]
  const isHeld = [
    equal(name('key'), key),
    equal(name('holder'), literal(holder)),
    equal(name('state'), `'held'`),
    ...(['namespace', 'property', 'text'] as const).map((column) => equal(name(column), `v.${column}`)),
  ]
  return `SELECT EXISTS (SELECT FROM ${own(on)}
      ${namesOfRow(on.holder)}
    WHERE v.text IS NOT NULL AND NOT EXISTS (SELECT FROM ${on.names} AS n WHERE ${isHeld.join(' AND ')})) AS found`
}

/** Drops triggers, look-ups and the remains of an adoption. The names of the rows are released afterwards. */
export const leaveNames = (on: NamedTable, lookups: readonly LookupIndex[]): string[] => [
  ...nameTriggersOf(on.holder).drop,
  ...alterTable(on, dropFilled(on, nameColumnsOf(on).length)),
  ...lookups.flatMap((one) => addLookup(one).down.map((sql) => sql.replace('DROP INDEX', 'DROP INDEX IF EXISTS'))),
]

const nameTexts = (on: NamedTable): string[] =>
  nameColumnsOf(on).map((name, index) => `${field('t', name)}::pg_catalog.text AS c${index}`)

/** Conditions for a range of keys: up to the key in $first, … and, with `after`, above the key that follows it. */
const withinKeys = (on: NamedTable, first: number, after: boolean): string[] => [
  ...(after ? [compareKey(on, '>', first + on.types.length)] : []),
  compareKey(on, '<=', first),
]

/** Selects the highest key. */
export const lastKey = (on: NamedTable): string =>
  `SELECT ${keyTexts(on).join(', ')} FROM ${own(on)} ORDER BY ${on.primary.map((name) => `${field('t', name)} DESC`).join(', ')} LIMIT 1`

/**
 * Locks rows in key order, up to the key $1, …, and skips rows that another session has locked.
 *
 * @param after whether the key of the preceding row follows; otherwise the range begins with the first row
 */
export const lockRows = (on: NamedTable, limit: number, after: boolean): string =>
  lockInOrder(on, nameTexts(on), withinKeys(on, 1, after), limit)

/** Notes the rows that `lockRows` skipped. $1 are the spots of the locked rows, and the keys follow as there. */
export const noteBusy = (on: NamedTable, after: boolean): string =>
  `INSERT INTO ${leftRowsOf(on)} (key, kind)
SELECT ${holderKey(on.holder, 't')}, 'busy' FROM ${own(on)}
 WHERE ${[...withinKeys(on, 2, after), 't.ctid OPERATOR(pg_catalog.<>) ALL ($1::pg_catalog.tid[])'].join(' AND ')}`

/** Claims the names of the locked rows at the spots $1, and notes clashes. */
export function claimRows(on: NamedTable): string {
  const columns = [...new Set([...on.primary, ...nameColumnsOf(on)])]
  return `INSERT INTO ${claimBatchOf(on)} (${columns.map(quote).join(', ')})
SELECT ${columns.map((name) => field('t', name)).join(', ')} FROM ${own(on)} WHERE t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])`
}

/** Writes other texts to the rows at the spots $1, by column. The triggers claim them. Returns the new spots. */
export function writeNames(on: NamedTable): string {
  const columns = nameColumnsOf(on)
  const arrays = ['$1::pg_catalog.tid[]', ...columns.map((_, index) => `$${index + 2}::pg_catalog.text[]`)]
  return `WITH written AS (UPDATE ${own(on)} SET ${columns.map((name, index) => `${quote(name)} = c.n${index}`).join(', ')}
  FROM ${unnest(arrays)} AS c (spot, ${columns.map((_, index) => `n${index}`).join(', ')})
 WHERE t.ctid OPERATOR(pg_catalog.=) c.spot AND t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])
RETURNING t.ctid::pg_catalog.text AS spot)
SELECT w.spot FROM written AS w`
}

/** Notes the rows at the spots $1 with kinds $2, columns $3 and reasons $4. $5, $6, $7 identify the name's holder. */
export const noteRows = (on: NamedTable): string =>
  `INSERT INTO ${leftRowsOf(on)} (key, kind, property, reason, holder, holder_property, holder_key)
SELECT ${holderKey(on.holder, 't')}, c.kind, c.property, c.reason, c.holder, c.holder_property, c.holder_key::pg_catalog.jsonb
  FROM ${unnest(['$1::pg_catalog.tid[]', ...[2, 3, 4, 5, 6, 7].map((index) => `$${index}::pg_catalog.text[]`)])}
    AS c (spot, kind, property, reason, holder, holder_property, holder_key)
  JOIN ${own(on)} ON t.ctid OPERATOR(pg_catalog.=) c.spot
 WHERE t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])`

export const deleteNamedRows = (on: NamedTable): string =>
  `DELETE FROM ${own(on)} WHERE t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])`

/** Selects the `seq` of the last note. */
export const lastNote = (on: NamedTable): string =>
  `SELECT coalesce(pg_catalog.max(l.seq), 0)::pg_catalog.text AS seq FROM ${leftRowsOf(on)} AS l`

/** Deletes and returns the first notes up to $1, at most $2 of them. */
export const popNotes = (on: NamedTable): string => {
  const left = leftRowsOf(on)
  return `WITH taken AS (DELETE FROM ${left} AS l WHERE l.seq OPERATOR(pg_catalog.=) ANY (ARRAY(
  SELECT o.seq FROM ${left} AS o WHERE o.seq OPERATOR(pg_catalog.<=) $1::pg_catalog.int8 ORDER BY o.seq LIMIT $2::pg_catalog.int8))
RETURNING l.key::pg_catalog.text AS key)
SELECT t.key FROM taken AS t`
}

const joinedByKey = (on: NamedTable): string => hasNamedKey(on.holder, 't', 'l.key').join(' AND ')

/** Locks the rows with the keys $1, as JSON, and skips rows that another session has locked. */
export const lockKeys = (on: NamedTable): string =>
  `SELECT t.ctid::pg_catalog.text AS spot, l.key::pg_catalog.text AS key, ${nameTexts(on).join(', ')}
  FROM pg_catalog.unnest($1::pg_catalog.jsonb[]) AS l (key) JOIN ${own(on)} ON ${joinedByKey(on)} FOR NO KEY UPDATE OF t SKIP LOCKED`

/** Notes the keys $1, as JSON, if their rows exist. */
export const noteKeys = (on: NamedTable): string =>
  `INSERT INTO ${leftRowsOf(on)} (key, kind)
SELECT l.key, 'busy' FROM pg_catalog.unnest($1::pg_catalog.jsonb[]) AS l (key)
 WHERE EXISTS (SELECT FROM ${own(on)} WHERE ${joinedByKey(on)})`

/** Selects the first rows that are left, each once by kind and property, with its last note. */
export const readLeft = (on: NamedTable, limit: number): string =>
  `SELECT l.* FROM (
  SELECT DISTINCT ON (l.kind, l.key, l.property) l.kind, l.key::pg_catalog.text AS key, l.property, l.reason, l.holder,
    l.holder_property, l.holder_key::pg_catalog.text AS holder_key
    FROM ${leftRowsOf(on)} AS l ORDER BY l.kind, l.key, l.property, l.seq DESC) AS l
 LIMIT ${limit}`

/** Counts the notes of each kind. */
export const countLeft = (on: NamedTable): string =>
  `SELECT l.kind, pg_catalog.count(*)::pg_catalog.text AS notes FROM ${leftRowsOf(on)} AS l GROUP BY l.kind`

export const analyzeNames = ({ names }: NamedTable): string => `ANALYZE ${names}`
