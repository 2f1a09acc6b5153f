import type { Query } from '../../sql/catalog'
import { dollarQuote, literal, qualified, quote } from '../../sql/identifier'
import { field, isLive, tableName } from '../../sql/text-table'
import { isTrustedBy } from '../../sql/trigger-set'
import {
  type AdoptedTable,
  type Held,
  nameOf,
  objectOf,
  own,
  ownAlone,
  refusePlanted,
  refuseWritten,
  workOf,
} from './table'
import { isOfChain, samePrimary } from './texts'

/** The columns by which the rows of a table refer to another table. */
export interface Reference {
  readonly schema: string
  readonly table: string
  /** In the order of the columns that they refer to. */
  readonly columns: readonly string[]
  readonly referenced: readonly string[]
  /** The columns that another foreign key of the table uses too, such as a tenant. */
  readonly shared: readonly string[]
  /** Whether the table refers to itself. */
  readonly own: boolean
  /** Only rows that hold this value refer to the table. */
  readonly when?: { readonly column: string; readonly value: string } | undefined
}

/** An entry of the log, besides those of merged rows, for a change to a row of this table. */
export interface LoggedChange {
  readonly schema: string
  readonly table: string
  /** The changed columns. The data holds their old and new values. If undefined, the row was deleted. */
  readonly columns?: readonly string[]
  /** Only rows that still hold this value are restored. */
  readonly when?: Reference['when']
  /** A function chose the values of the kept row. The entry follows the deleted row, whose values it may take over. */
  readonly set?: true
}

/**
 * Reads foreign keys from the catalog: of any action, composite ones too, a partition's only as its parent's. Calls
 * `refuse` if the referring owner may not act as the table's, because its triggers would run as the merging role.
 */
export async function referencesTo(
  query: Query,
  oid: string,
  refuse: (referring: string) => never,
): Promise<Reference[]> {
  const names = (table: string, columns: string): string =>
    `(SELECT pg_catalog.jsonb_agg(a.attname ORDER BY k.i) FROM pg_catalog.unnest(${columns}) WITH ORDINALITY AS k (n, i)
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) ${table} AND a.attnum OPERATOR(pg_catalog.=) k.n)`
  const [row] = (await query(
    `SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
        'schema', n.nspname, 'table', r.relname, 'trusted', ${isTrustedBy('r', 't')}, 'own', c.conrelid OPERATOR(pg_catalog.=) c.confrelid,
        'columns', ${names('c.conrelid', 'c.conkey')}, 'referenced', ${names('c.confrelid', 'c.confkey')},
        'shared', (SELECT coalesce(pg_catalog.jsonb_agg(a.attname), '[]') FROM pg_catalog.pg_attribute AS a
          WHERE a.attrelid OPERATOR(pg_catalog.=) c.conrelid AND a.attnum OPERATOR(pg_catalog.=) ANY (c.conkey)
            AND EXISTS (SELECT FROM pg_catalog.pg_constraint AS o
              WHERE o.conrelid OPERATOR(pg_catalog.=) c.conrelid AND o.contype OPERATOR(pg_catalog.=) 'f'
                AND o.oid OPERATOR(pg_catalog.<>) c.oid AND a.attnum OPERATOR(pg_catalog.=) ANY (o.conkey)))) ORDER BY c.oid), '[]')::pg_catalog.text AS found
       FROM pg_catalog.pg_constraint AS c
       JOIN pg_catalog.pg_class AS t ON t.oid OPERATOR(pg_catalog.=) c.confrelid
       JOIN pg_catalog.pg_class AS r ON r.oid OPERATOR(pg_catalog.=) c.conrelid
       JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) r.relnamespace
      WHERE c.confrelid OPERATOR(pg_catalog.=) $1::pg_catalog.oid AND c.contype OPERATOR(pg_catalog.=) 'f' AND c.conparentid OPERATOR(pg_catalog.=) 0`,
    [oid],
  )) as readonly { found: string }[]
  const found = JSON.parse(row?.found ?? '[]') as (Reference & { readonly trusted: boolean })[]
  return found.map(({ trusted, ...reference }) => (trusted ? reference : refuse(tableName(reference))))
}

/** Parameters: a qualified table, a column. */
export const FIND_COLUMN: string = `SELECT a.attnum FROM pg_catalog.pg_attribute AS a
 WHERE a.attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1) AND a.attname OPERATOR(pg_catalog.=) $2::pg_catalog.text AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped`

/** Parameter: a table, with its schema or without. */
export const FIND_TABLE: string = `SELECT c.oid FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
 WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p}')
   AND $1::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY[c.relname, pg_catalog.concat(n.nspname, '.', c.relname)]) LIMIT 1`

/** The privileges that a merge needs on the table whose rows it merges, and on a table that refers to it. */
export const PRIVILEGES = { merged: ['SELECT', 'UPDATE', 'DELETE'], referring: ['SELECT'] } as const

/** Selects whether the role has these privileges on the table $1, may update these columns, and sees all rows. */
export const mayMerge = (privileges: readonly string[], columns: readonly string[]): string => {
  const found = '$1::pg_catalog.text::pg_catalog.regclass::pg_catalog.oid'
  const all = [
    ...privileges.map((one) => `pg_catalog.has_table_privilege(${found}, '${one}')`),
    ...columns.map((one) => `pg_catalog.has_column_privilege(${found}, ${literal(one)}::pg_catalog.text, 'UPDATE')`),
    `NOT pg_catalog.row_security_active(${found})`,
  ]
  return `SELECT ${all.join(' AND ')} AS allowed`
}

/** The log of merges. */
export const MERGES = 'unique_text_merges'

export const merges = ({ table }: Held): string => qualified(table.schema, MERGES)

/** The keys of merged rows, for `resolveMerged`. */
export const keysTable = (on: Held): string => objectOf(on, 'merged')

/**
 * Creates the log. It holds whole deleted rows and every changed value, in the form that the output function of the
 * type returns. Only the owner of the table reads it.
 */
export const createLog = (on: AdoptedTable): string[] => [
  refuseWritten(on, MERGES),
  `CREATE TABLE IF NOT EXISTS ${merges(on)} (seq pg_catalog.int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ` +
    `guard pg_catalog.text NOT NULL, old pg_catalog.text[] NOT NULL, kept pg_catalog.text[] NOT NULL, ` +
    `change pg_catalog.jsonb, data pg_catalog.jsonb NOT NULL)`,
  refusePlanted(on, MERGES),
  `CREATE INDEX IF NOT EXISTS unique_text_merges_old ON ${merges(on)} (guard, old)`,
  `CREATE INDEX IF NOT EXISTS unique_text_merges_kept ON ${merges(on)} (guard, kept) WHERE change IS NULL`,
  `CREATE INDEX IF NOT EXISTS unique_text_merges_rows ON ${merges(on)} (guard, seq) WHERE change IS NULL`,
  ...ownAlone(on, [merges(on)]),
]

/**
 * Creates the table of the keys of merged rows, each with the key of the row that exists. Roles that may read the main
 * table may read the keys of the rows that its policies show.
 */
export function createKeys(on: AdoptedTable, { types }: MergedTable): string[] {
  const [keys, name] = [keysTable(on), nameOf(on, 'merged')]
  const kept = on.primary.map(
    (column, index) =>
      `${field('t', column)} OPERATOR(pg_catalog.=) (${quote(name)}.kept)[${index + 1}]::${types[index]}`,
  )
  return [
    `CREATE TABLE IF NOT EXISTS ${keys} (old pg_catalog.text[] PRIMARY KEY, kept pg_catalog.text[] NOT NULL)`,
    refusePlanted(on, name),
    `CREATE INDEX IF NOT EXISTS ${quote(nameOf(on, 'merged_kept'))} ON ${keys} (kept)`,
    ...ownAlone(on, [keys]),
    // Every role that may read the table may read the keys.
    `DO ${dollarQuote(`
DECLARE
  command pg_catalog.text;
BEGIN
  FOR command IN
    SELECT DISTINCT pg_catalog.format('GRANT SELECT ON %s TO %s', ${literal(keys)}::pg_catalog.text,
        CASE WHEN a.grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::pg_catalog.text END)
      FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS a
     WHERE c.oid OPERATOR(pg_catalog.=) ${literal(tableName(on.table))}::pg_catalog.regclass
       AND a.privilege_type OPERATOR(pg_catalog.=) 'SELECT' AND a.grantee OPERATOR(pg_catalog.<>) c.relowner
  LOOP
    EXECUTE command;
  END LOOP;
END
`)}`,
    // A table that a policy names cannot be dropped, and its key cannot change its type. The policy is made once,
    // because its creation waits for readers.
    `DO ${dollarQuote(`
BEGIN
  IF (SELECT c.relrowsecurity FROM pg_catalog.pg_class AS c
       WHERE c.oid OPERATOR(pg_catalog.=) ${literal(tableName(on.table))}::pg_catalog.regclass)
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_policy AS p
      JOIN pg_catalog.pg_class AS k ON k.oid OPERATOR(pg_catalog.=) p.polrelid AND k.relrowsecurity
     WHERE k.oid OPERATOR(pg_catalog.=) ${literal(keys)}::pg_catalog.regclass AND p.polname OPERATOR(pg_catalog.=) 'visible') THEN
    ALTER TABLE ${keys} ENABLE ROW LEVEL SECURITY;
    DROP POLICY IF EXISTS visible ON ${keys};
    CREATE POLICY visible ON ${keys} FOR SELECT USING (EXISTS (SELECT FROM ${own(on)} WHERE ${kept.join(' AND ')}));
  END IF;
END
`)}`,
  ]
}

export const forgetLog = (on: Held): string =>
  `DELETE FROM ${merges(on)} AS m WHERE m.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text`

/** The indexes of the log begin with the text, which all rows may share. Only statistics distinguish the indexes. */
export const analyzeLog = (on: Held): string => `ANALYZE ${merges(on)}, ${keysTable(on)}`

export const dropKeys = (on: Held): string => `DROP TABLE IF EXISTS ${keysTable(on)}`

/** A value as its type's output function returns it. Another role may own a cast, and an array in quotes has none. */
export const shown = (value: string): string =>
  `CASE WHEN pg_catalog.num_nulls(${value}) OPERATOR(pg_catalog.=) 0 THEN pg_catalog.concat(${value}) END`

/** A function takes at most 100 arguments. */
const SHOWN_AT_ONCE = 40

/** Values by names, as JSON. */
function shownAll(values: readonly (readonly [name: string, value: string])[]): string {
  const parts = ["'{}'::pg_catalog.jsonb"]
  for (let at = 0; at < values.length; at += SHOWN_AT_ONCE) {
    const some = values
      .slice(at, at + SHOWN_AT_ONCE)
      .map(([name, value]) => `${literal(name)}::pg_catalog.text, ${shown(value)}`)
    parts.push(`pg_catalog.jsonb_build_object(${some.join(', ')})`)
  }
  return `(${parts.join(' OPERATOR(pg_catalog.||) ')})`
}

export const shownRow = (row: string, names: readonly string[]): string =>
  shownAll(names.map((name) => [name, field(row, name)]))

/** The columns that identify a row: the primary key, or else all. Rows with equal values are interchangeable. */
export const identifyingColumns = (table: MergedTable): readonly string[] =>
  table.primary.length > 0 ? table.primary : namesOfColumns(table)

export const namesOfColumns = ({ columns }: MergedTable): readonly string[] => columns.map(({ name }) => name)

/**
 * Finds the rows to delete (`k0`, …), each with the row that stays (`p0`, …), in the order of `place`.
 *
 * @param deleteDate the delete date column; a soft-deleted row is kept only if every row is soft-deleted
 */
export function findSurplus(on: AdoptedTable, keep: 'oldest' | 'newest', deleteDate: string | undefined): string[] {
  const { table, primary } = on
  const keys = primary.map((name) => field('t', name))
  const by = [
    ...table.scope.map((name) => field('t', name)),
    ...table.text.map(({ name }) => `${field('t', name)}::pg_catalog.text COLLATE pg_catalog."C"`),
  ].join(', ')
  const order = [
    ...(deleteDate === undefined ? [] : [`${field('t', deleteDate)} IS NOT NULL`]),
    ...keys.map((key) => (keep === 'oldest' ? key : `${key} DESC`)),
  ].join(', ')
  const chain = [
    ...table.scope.map((name, index) => `${field('t', name)} AS s${index}`),
    `${field('t', table.hash)} AS hash`,
  ]
  const kept = keys.map((key, index) => `pg_catalog.first_value(${key}) OVER w AS p${index}`).join(', ')
  return [
    `DROP TABLE IF EXISTS ${workOf(on)}`,
    `CREATE TABLE ${workOf(on)} AS
WITH c AS MATERIALIZED (SELECT ${chain.join(', ')} FROM ${own(on)} WHERE ${[field('t', table.chained), ...isLive(table, 't')].join(' AND ')}),
r AS (SELECT ${keys.map((key, index) => `${key} AS k${index}`).join(', ')}, ${kept}, pg_catalog.row_number() OVER w AS rank, NULL::pg_catalog.jsonb AS data
        FROM c JOIN ${own(on)} ON ${isOfChain(on, 'c')} WINDOW w AS (PARTITION BY ${by} ORDER BY ${order}))
SELECT pg_catalog.row_number() OVER (ORDER BY ${primary.map((_, index) => `r.p${index}`).join(', ')}) AS place, r.*
  FROM r WHERE r.rank OPERATOR(pg_catalog.>) 1`,
    `ALTER TABLE ${workOf(on)} ADD PRIMARY KEY (place)`,
    ...ownAlone(on, [workOf(on)]),
    `ANALYZE ${workOf(on)}`,
  ]
}

/**
 * Selects the next $2 groups after the place $1: the places of rows to delete, and all rows of the group with their
 * keys, in the order of the key.
 */
export function readGroups(on: AdoptedTable): string {
  const names = (letter: string): string => on.primary.map((_, index) => `${letter}${index}`).join(', ')
  const key = keyArray(on.primary.map((name) => field('t', name)))
  const order = on.primary.map((name) => field('t', name)).join(', ')
  return `WITH g AS MATERIALIZED (
  SELECT ${names('w.p')}, pg_catalog.array_agg(w.place ORDER BY w.place) AS places FROM ${workOf(on)} AS w
   WHERE w.place OPERATOR(pg_catalog.>) $1::pg_catalog.int8 GROUP BY ${names('w.p')} ORDER BY pg_catalog.min(w.place) LIMIT $2::pg_catalog.int8),
m AS (SELECT g.places, ${on.primary.map((_, index) => `g.p${index} AS k${index}`).join(', ')} FROM g
  UNION ALL SELECT g.places, ${names('w.k')} FROM g JOIN ${workOf(on)} AS w ON w.place OPERATOR(pg_catalog.=) ANY (g.places))
SELECT pg_catalog.to_jsonb(m.places)::pg_catalog.text AS places, pg_catalog.jsonb_agg(pg_catalog.to_jsonb(t.*) ORDER BY ${order})::pg_catalog.text AS rows,
       pg_catalog.jsonb_agg(pg_catalog.to_jsonb(${key}) ORDER BY ${order})::pg_catalog.text AS keys
  FROM m JOIN ${own(on)} ON ${samePrimary(on, 'm.k')} GROUP BY m.places ORDER BY m.places`
}

/** Stores a decision at the places $1: the keys $2 to delete, the key $3 to keep, and the kept row's values $4. */
export function decideGroup(on: AdoptedTable, types: readonly string[]): string {
  const set = types.flatMap((type, index) => [
    `k${index} = ($2::pg_catalog.jsonb OPERATOR(pg_catalog.->) (v.n OPERATOR(pg_catalog.-) 1)::pg_catalog.int4 OPERATOR(pg_catalog.->>) ${index})::${type}`,
    `p${index} = ($3::pg_catalog.text[])[${index + 1}]::${type}`,
  ])
  return `UPDATE ${workOf(on)} AS w SET ${set.join(', ')}, data = $4::pg_catalog.jsonb
  FROM pg_catalog.unnest($1::pg_catalog.int8[]) WITH ORDINALITY AS v (place, n) WHERE w.place OPERATOR(pg_catalog.=) v.place`
}

/** Selects the values to set at the places $1. */
export const readSets = (on: Held): string =>
  `SELECT w.place::pg_catalog.text AS place, w.data::pg_catalog.text AS data FROM ${workOf(on)} AS w ` +
  `WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND w.data IS NOT NULL`

/**
 * Writes other values to the row that stays, at the place $1, and logs each changed value. $2 is the text. The log
 * holds the values as triggers have left them.
 */
export function setValues(on: AdoptedTable, columns: readonly string[]): string {
  const at = `w.place OPERATOR(pg_catalog.=) $1::pg_catalog.int8 AND ${samePrimary(on, 'w.p')}`
  const { schema, table } = on.table
  const set = columns.map((name) => `${quote(name)} = v.${quote(name)}`).join(', ')
  const changes = columns.map((name) => {
    const one = literal(name)
    const change = literal(JSON.stringify({ schema, table, columns: [name], set: true } satisfies LoggedChange))
    return `(${change}::pg_catalog.jsonb, pg_catalog.jsonb_build_object(${one}::pg_catalog.text, b.was OPERATOR(pg_catalog.->) ${one}::pg_catalog.text),
      pg_catalog.jsonb_build_object(${one}::pg_catalog.text, u.made OPERATOR(pg_catalog.->) ${one}::pg_catalog.text))`
  })
  return `WITH b AS MATERIALIZED (SELECT ${places(on, 'k')} AS old, ${places(on, 'p')} AS kept, ${shownRow('t', columns)} AS was
    FROM ${workOf(on)} AS w JOIN ${own(on)} ON ${at}),
u AS (UPDATE ${own(on)} SET ${set} FROM ${workOf(on)} AS w
    CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::${tableName(on.table)}, w.data) AS v
   WHERE ${at} RETURNING ${shownRow('t', on.primary)} AS key, ${shownRow('t', columns)} AS made)
INSERT INTO ${merges(on)} (guard, old, kept, change, data)
SELECT $2::pg_catalog.text, b.old, b.kept, c.change, pg_catalog.jsonb_build_object('key', u.key, 'was', c.was, 'made', c.made)
  FROM b CROSS JOIN u CROSS JOIN LATERAL (VALUES ${changes.join(', ')}) AS c (change, was, made)
 WHERE c.was OPERATOR(pg_catalog.<>) c.made`
}

export const readPlaces = (on: Held): string =>
  `SELECT w.place::pg_catalog.text AS place FROM ${workOf(on)} AS w WHERE w.place OPERATOR(pg_catalog.>) $1::pg_catalog.int8 ` +
  `ORDER BY w.place LIMIT $2::pg_catalog.int8`

/** The places $1 with the row to delete as `l` and the one that stays as `t`. */
const pairsOf = (on: AdoptedTable): Pick<MergedPairs, 'from' | 'where'> => ({
  from:
    `${workOf(on)} AS w JOIN ONLY ${tableName(on.table)} AS l ON ${samePrimary(on, 'w.k', 'l')} ` +
    `JOIN ${own(on)} ON ${samePrimary(on, 'w.p')}`,
  where: `w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`,
})

const pairs = (on: AdoptedTable): string => `${pairsOf(on).from} WHERE ${pairsOf(on).where}`

/** Selects the places among $1 whose rows are still duplicates: both have one text, in one scope. */
export function seePairs(on: AdoptedTable): string {
  const { table } = on
  const same = table.text.map(({ name }) => {
    const [left, right] = [field('l', name), field('t', name)]
    const text = (one: string): string => `${one}::pg_catalog.text COLLATE pg_catalog."C"`
    return `coalesce(${text(left)} OPERATOR(pg_catalog.=) ${text(right)}, ${left} IS NULL AND ${right} IS NULL)`
  })
  const scope = [...table.scope, table.hash].map(
    (name) => `${field('l', name)} OPERATOR(pg_catalog.=) ${field('t', name)}`,
  )
  const equal = [...same, ...scope, ...isLive(table, 'l'), ...isLive(table, 't')].join(' AND ')
  return `SELECT w.place::pg_catalog.text AS place FROM ${pairs(on)} AND ${equal}`
}

/**
 * Selects the places among $1 whose rows are still duplicates, and locks both rows, so that no new reference to them
 * can appear. If another session has locked a row, its pair is left out.
 */
export const lockPairs = (on: AdoptedTable): string => `${seePairs(on)} FOR UPDATE OF l, t SKIP LOCKED`

export const dropPlaces = (on: Held): string =>
  `DELETE FROM ${workOf(on)} AS w WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`

/** Counts rows by change, for the guard $1 after the entry $2 of the log. */
export const countChanges = (on: Held): string =>
  `SELECT m.change::pg_catalog.text AS change, pg_catalog.count(*)::pg_catalog.text AS rows, pg_catalog.max(m.seq)::pg_catalog.text AS last FROM ${merges(on)} AS m
 WHERE m.seq OPERATOR(pg_catalog.>) $2::pg_catalog.int8 AND m.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text AND m.change IS NOT NULL
 GROUP BY m.change`

export const lastChange = (on: Held): string =>
  `SELECT pg_catalog.max(m.seq)::pg_catalog.text AS last FROM ${merges(on)} AS m`

/** Selects the keys at the places $1: that of the row to delete, and that of the row that stays. */
export const readKeys = ({ primary, ...on }: AdoptedTable): string => {
  const key = (letter: string): string =>
    `pg_catalog.jsonb_build_object(${primary.map((name, index) => `${literal(name)}::pg_catalog.text, w.${letter}${index}`).join(', ')})`
  return (
    `SELECT ${key('k')}::pg_catalog.text AS row, ${key('p')}::pg_catalog.text AS kept FROM ${workOf(on)} AS w ` +
    `WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`
  )
}

const keyArray = (columns: readonly string[]): string =>
  `ARRAY[${columns.map((one) => `${one}::pg_catalog.text`).join(', ')}]`

const places = (on: AdoptedTable, letter: string): string =>
  keyArray(on.primary.map((_, index) => `w.${letter}${index}`))

/**
 * Logs the whole rows to delete, as they are once nothing refers to them, in the order of `place`. $2 is the text. The
 * library's own columns are left out, because `abandon` drops them.
 */
export function logRows(on: AdoptedTable, table: MergedTable): string {
  const { hash, number, chained } = on.table
  const columns = namesOfColumns(table).filter((name) => ![hash, number, chained].includes(name))
  return (
    `INSERT INTO ${merges(on)} (guard, old, kept, data) SELECT $2::pg_catalog.text, ${places(on, 'k')}, ${places(on, 'p')}, ` +
    `${shownRow('l', columns)} FROM ${pairs(on)} ORDER BY w.place`
  )
}

/** Notes the key of the kept row for each merged key, also for rows that were merged before. */
export const noteMergedKeys = (on: AdoptedTable): string => `WITH m AS MATERIALIZED (
  SELECT ${places(on, 'k')} AS old, ${places(on, 'p')} AS kept FROM ${workOf(on)} AS w WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])),
before AS (UPDATE ${keysTable(on)} AS n SET kept = m.kept FROM m WHERE n.kept OPERATOR(pg_catalog.=) m.old)
INSERT INTO ${keysTable(on)} AS n (old, kept) SELECT m.old, m.kept FROM m ON CONFLICT (old) DO UPDATE SET kept = excluded.kept`

/** Pairs of rows, of which `l` is deleted and `t` stays, and the keys under which a change is logged. */
export interface MergedPairs {
  readonly from: string
  readonly where: string
  readonly old: string
  readonly kept: string
}

/** The pairs of the places $1. */
export const placesSource = (on: AdoptedTable): MergedPairs => ({
  ...pairsOf(on),
  old: places(on, 'k'),
  kept: places(on, 'p'),
})

/** The pair with the keys $1 and $2. Its changes are logged under the keys $5 and $6 of the merged pair above it. */
export const pairSource = (table: MergedTable): MergedPairs => ({
  from: `${tableName(table)} AS l JOIN ${tableName(table)} AS t ON ${isRow(table, 't', '$2')}`,
  where: isRow(table, 'l', '$1'),
  old: '$5::pg_catalog.text[]',
  kept: '$6::pg_catalog.text[]',
})

export const holds = ({ when }: Pick<Reference, 'when'>, row: string): string[] =>
  when
    ? [`pg_catalog.concat(${field(row, when.column)}) OPERATOR(pg_catalog.=) ${literal(when.value)}::pg_catalog.text`]
    : []

const refers = (reference: Reference, row: string, to: string): string =>
  [
    ...reference.columns.map(
      (name, index) => `${field(row, name)} OPERATOR(pg_catalog.=) ${field(to, reference.referenced[index] ?? '')}`,
    ),
    ...holds(reference, row),
  ].join(' AND ')

/** Selects the places whose kept row refers to the row to delete. After a merge, it would refer to itself. */
export const seeSelf = (on: AdoptedTable, reference: Reference): string =>
  `SELECT w.place::pg_catalog.text AS place FROM ${pairs(on)} AND ${refers(reference, 't', 'l')}`

/**
 * Selects why references of a pair cannot be turned and restored exactly, with a row for each place and reason.
 *
 * @param place a column that identifies the pair
 */
export function findInexact({ from, where }: MergedPairs, reference: Reference, place: string): string {
  const { columns, referenced, shared, table } = reference
  const both = (name: string): readonly [string, string] => [field('l', name), field('t', name)]
  const missing = referenced.map((name) => `${field('t', name)} IS NULL`).join(' OR ')
  const different = (name: string): string => {
    const [left, right] = both(name)
    return `(${left} OPERATOR(pg_catalog.=) ${right}) IS NOT TRUE`
  }
  const count = referenced.map((name) => `(${different(name)})::pg_catalog.int4`).join(' OPERATOR(pg_catalog.+) ')
  const composite = [
    `${count} OPERATOR(pg_catalog.>) 1`,
    ...columns.flatMap((name, index) => (shared.includes(name) ? [different(referenced[index] ?? '')] : [])),
  ].join(' OR ')
  const spelled = columns.map(
    (name, index) =>
      `pg_catalog.concat(${field('r', name)}) OPERATOR(pg_catalog.<>) pg_catalog.concat(${field('l', referenced[index] ?? '')})`,
  )
  const reasons = [
    `WHEN ${missing} THEN ${literal(`${table} refers to a column that is NULL in the row that stays`)}`,
    ...(columns.length > 1
      ? [`WHEN ${composite} THEN ${literal(`${table} refers by several columns, and more than the key differs`)}`]
      : []),
    `WHEN ${spelled.join(' OR ')} THEN ${literal(`${table} spells the key otherwise`)}`,
  ]
  return `SELECT DISTINCT f.place, f.reason FROM (SELECT ${place} AS place, CASE ${reasons.join('\n    ')} END AS reason
    FROM ${from} JOIN ${tableName(reference)} AS r ON ${refers(reference, 'r', 'l')} WHERE ${where}) AS f WHERE f.reason IS NOT NULL`
}

/**
 * Turns references from the rows to delete to the rows that stay, and logs each by the key that its row then has.
 * $first is the text, and the next parameter is the reference as a `LoggedChange`.
 */
export function turn(
  on: Held,
  { from, where, old, kept }: MergedPairs,
  reference: Reference,
  child: MergedTable,
  first: 2 | 3,
): string {
  const { columns, referenced } = reference
  const values = referenced.flatMap((name, index) => [
    `${field('l', name)} AS o${index}`,
    `${field('t', name)} AS n${index}`,
  ])
  const set = columns.map((name, index) => `${quote(name)} = m.n${index}`).join(', ')
  const met = columns.map((name, index) => `${field('r', name)} OPERATOR(pg_catalog.=) m.o${index}`)
  const was = shownAll(columns.map((name, index) => [name, `m.o${index}`]))
  return `WITH m AS MATERIALIZED (SELECT ${old} AS old, ${kept} AS kept, ${values.join(', ')} FROM ${from} WHERE ${where}),
u AS (UPDATE ${tableName(reference)} AS r SET ${set} FROM m WHERE ${[...met, ...holds(reference, 'r')].join(' AND ')}
  RETURNING m.old, m.kept, pg_catalog.jsonb_build_object('key', ${shownRow('r', identifyingColumns(child))}, 'was', ${was}, 'made', ${shownRow('r', columns)}) AS data)
INSERT INTO ${merges(on)} (guard, old, kept, change, data)
SELECT $${first}::pg_catalog.text, u.old, u.kept, $${first + 1}::pg_catalog.jsonb, u.data FROM u`
}

/** Counts up to one row that still refers to a row to delete, and would be deleted with it. */
export const stillReferring = ({ from, where }: MergedPairs, reference: Reference): string =>
  `SELECT pg_catalog.count(*)::pg_catalog.text AS n FROM (SELECT FROM ${from} JOIN ${tableName(reference)} AS r ON ${refers(reference, 'r', 'l')} WHERE ${where} LIMIT 1) AS f`

/** Counts the deleted rows that still exist, because a trigger may keep them. */
export const stillThere = (on: AdoptedTable): string =>
  `SELECT pg_catalog.count(*)::pg_catalog.text AS n FROM ${workOf(on)} AS w JOIN ${own(on)} ON ${samePrimary(on, 'w.k')} ` +
  `WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[])`

export const deleteRows = (on: AdoptedTable): string =>
  `DELETE FROM ${own(on)} USING ${workOf(on)} AS w WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND ${samePrimary(on, 'w.k')}`

/** Clears the flag of rows that are alone again, or a later DELETE would look for others. The guard must not fire. */
export function clearFlags(on: AdoptedTable): string {
  const { table } = on
  const chain = [...table.scope, table.hash].map(
    (name) => `${field('o', name)} OPERATOR(pg_catalog.=) ${field('t', name)}`,
  )
  const others = [...chain, ...isLive(table, 'o'), `o.${quote(table.number)} OPERATOR(pg_catalog.<>) 0`].join(' AND ')
  return `UPDATE ${own(on)} SET ${quote(table.chained)} = false FROM ${workOf(on)} AS w
 WHERE w.place OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND ${samePrimary(on, 'w.p')} AND t.${quote(table.number)} OPERATOR(pg_catalog.=) 0
   AND NOT EXISTS (SELECT FROM ONLY ${tableName(table)} AS o WHERE ${others})`
}

/** The key of the row that the row of the key $1 became, after any number of merges. */
export const resolveKey = (on: Held): string =>
  `SELECT n.kept FROM ${keysTable(on)} AS n WHERE n.old OPERATOR(pg_catalog.=) $1::pg_catalog.text[]`

/** A column that can be written. */
export interface WritableColumn {
  readonly name: string
  /** The JSON type of the column or of its domain. Such a column would read a string as a string of JSON. */
  readonly json: 'json' | 'jsonb' | null
}

/** A table whose rows are merged, or refer to rows that are. */
export interface MergedTable {
  readonly oid: string
  readonly schema: string
  readonly table: string
  /** Empty if the table has no primary key. */
  readonly primary: readonly string[]
  /** All columns except generated ones. */
  readonly columns: readonly WritableColumn[]
  /** Types of the columns of the primary key, as SQL. */
  readonly types: readonly string[]
  /** The unique indexes of plain columns, on all rows. */
  readonly indexes: readonly { readonly name: string; readonly columns: readonly string[] }[]
}

const columnsInOrder = (what: string, keys: string): string =>
  `(SELECT coalesce(pg_catalog.jsonb_agg(${what} ORDER BY k.i), '[]') FROM pg_catalog.unnest(${keys}) WITH ORDINALITY AS k (n, i)
      JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.=) k.n)`

/** The JSON type that is `y`, or the base of the domain `y`. `b` is the base type of `y`. */
const JSON_TYPE = `(SELECT j.typname FROM pg_catalog.pg_type AS j
        WHERE j.oid OPERATOR(pg_catalog.=) ANY (ARRAY[y.oid, b.oid, b.typbasetype])
          AND j.typname OPERATOR(pg_catalog.=) ANY ('{json,jsonb}')
          AND j.typnamespace OPERATOR(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace LIMIT 1)`

/** $1 is the table's name as SQL. */
export const READ_KEYED: string = `SELECT pg_catalog.jsonb_build_object('oid', c.oid::pg_catalog.text, 'schema', n.nspname, 'table', c.relname,
    'primary', ${columnsInOrder('a.attname', 'p.conkey')},
    'columns', (SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('name', a.attname, 'json', ${JSON_TYPE}) ORDER BY a.attnum)
      FROM pg_catalog.pg_attribute AS a
      JOIN pg_catalog.pg_type AS y ON y.oid OPERATOR(pg_catalog.=) a.atttypid
      LEFT JOIN pg_catalog.pg_type AS b ON b.oid OPERATOR(pg_catalog.=) y.typbasetype
     WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped
       AND a.attgenerated OPERATOR(pg_catalog.=) ''),
    'types', ${columnsInOrder('pg_catalog.format_type(a.atttypid, a.atttypmod)', 'p.conkey')},
    'indexes', (SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('name', r.relname,
        'columns', ${columnsInOrder('a.attname', '(i.indkey::smallint[])[0:i.indnkeyatts OPERATOR(pg_catalog.-) 1]')})), '[]')
      FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS r ON r.oid OPERATOR(pg_catalog.=) i.indexrelid
     WHERE i.indrelid OPERATOR(pg_catalog.=) c.oid AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL))::pg_catalog.text AS found
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
  LEFT JOIN pg_catalog.pg_constraint AS p ON p.conrelid OPERATOR(pg_catalog.=) c.oid AND p.contype OPERATOR(pg_catalog.=) 'p'
 WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)`

/** The row of a key that is given as text[]. */
const isRow = ({ primary, types }: MergedTable, row: string, key: string): string =>
  primary
    .map(
      (name, index) =>
        `${field(row, name)} OPERATOR(pg_catalog.=) (${key}::pg_catalog.text[])[${index + 1}]::${types[index]}`,
    )
    .join(' AND ')

/** Selects the keys of the row to delete and of the row that stays, at the place $1. */
export const readPair = (on: AdoptedTable): string =>
  `SELECT ${places(on, 'k')} AS old, ${places(on, 'p')} AS kept FROM ${workOf(on)} AS w ` +
  `WHERE w.place OPERATOR(pg_catalog.=) $1::pg_catalog.int8`

/**
 * Selects and locks the rows that refer to the row $1 and would clash with another row if they referred to $2, and
 * those other rows. Selects also whether each two differ only in key and reference.
 */
export function findConflicts(
  parent: MergedTable,
  reference: Reference,
  child: MergedTable,
  columns: readonly string[],
): string {
  const clash = columns.map((name) => {
    const at = reference.columns.indexOf(name)
    const value = at === -1 ? field('r', name) : field('t', reference.referenced[at] ?? '')
    return `${field('o', name)} OPERATOR(pg_catalog.=) ${value}`
  })
  const ignored = `ARRAY[${[...child.primary, ...reference.columns].map((name) => literal(name)).join(', ')}]::pg_catalog.text[]`
  const rest = (row: string): string => `(pg_catalog.to_jsonb(${row}.*) OPERATOR(pg_catalog.-) ${ignored})`
  const key = (row: string): string => keyArray(child.primary.map((name) => field(row, name)))
  return `SELECT ${key('r')} AS old, ${key('o')} AS kept,
       ${rest('r')} OPERATOR(pg_catalog.=) ${rest('o')} AS same
  FROM ${tableName(parent)} AS l JOIN ${tableName(parent)} AS t ON ${isRow(parent, 't', '$2')}
  JOIN ${tableName(child)} AS r ON ${refers(reference, 'r', 'l')}
  JOIN ${tableName(child)} AS o ON ${clash.join(' AND ')}
 WHERE ${isRow(parent, 'l', '$1')} FOR UPDATE OF r, o`
}

/** Whether the row $2 refers to the row $1. */
export const refersItself = (table: MergedTable, reference: Reference): string =>
  `SELECT pg_catalog.count(*)::pg_catalog.text AS n FROM ${tableName(table)} AS l JOIN ${tableName(table)} AS t ON ${isRow(table, 't', '$2')} ` +
  `WHERE ${isRow(table, 'l', '$1')} AND ${refers(reference, 't', 'l')}`

/** Logs the whole row $1. $2 is the text, $3 the table as a `LoggedChange`, $4 and $5 the keys of the merged pair. */
export const logOne = (
  on: Held,
  table: MergedTable,
): string => `INSERT INTO ${merges(on)} (guard, old, kept, change, data)
SELECT $2::pg_catalog.text, $4::pg_catalog.text[], $5::pg_catalog.text[], $3::pg_catalog.jsonb, ${shownRow('r', namesOfColumns(table))}
  FROM ${tableName(table)} AS r WHERE ${isRow(table, 'r', '$1')}`

/** Deletes the row $1. */
export const deleteOne = (table: MergedTable): string =>
  `DELETE FROM ${tableName(table)} AS r WHERE ${isRow(table, 'r', '$1')}`

/** Counts the row $1 if it still exists. */
export const isThere = (table: MergedTable): string =>
  `SELECT pg_catalog.count(*)::pg_catalog.text AS n FROM ${tableName(table)} AS r WHERE ${isRow(table, 'r', '$1')}`
