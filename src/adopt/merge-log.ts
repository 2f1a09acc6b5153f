import type { Query } from '../sql/catalog'
import { dollarQuote, literal, qualified, quote } from '../sql/identifier'
import { field, tableName } from '../sql/text-table'
import { isTrustedBy } from '../sql/trigger-set'
import { AdoptionError, type AdoptSession } from './session'
import {
  type AdoptedTable,
  nameOf,
  objectOf,
  own,
  ownAlone,
  refusePlanted,
  refuseWritten,
  type TextSite,
  worklistOf,
} from './table'

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
 * Reads foreign keys from the catalog: of any action, composite ones too, a partition's only as its parent's.
 *
 * @throws AdoptionError if a referring owner may not act as the table's: its triggers would run as the merging role
 */
export async function referencesTo(query: Query, oid: string): Promise<Reference[]> {
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
  return found.map(({ trusted, ...reference }) => {
    if (trusted) return reference
    throw new AdoptionError(
      'unsupported',
      `The owner of ${tableName(reference)} may not act as the owner of the table that it refers to: its triggers would ` +
        `run as the role that merges. See who made it; then drop its foreign key, or change its owner.`,
    )
  })
}

/** The log of merges. */
const MERGES = 'unique_text_merges'

export const merges = ({ table }: TextSite): string => qualified(table.schema, MERGES)

/** The keys of merged rows, for `resolveMerged`. */
export const keysTable = (on: TextSite): string => objectOf(on, 'merged')

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

export const forgetLog = (on: TextSite): string =>
  `DELETE FROM ${merges(on)} AS m WHERE m.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text`

/** The indexes of the log begin with the text, which all rows may share. Only statistics distinguish the indexes. */
export const analyzeLog = (on: TextSite): string => `ANALYZE ${merges(on)}, ${keysTable(on)}`

export const dropKeys = (on: TextSite): string => `DROP TABLE IF EXISTS ${keysTable(on)}`

/** A value as its type's output function returns it. Another role may own a cast, and an array in quotes has none. */
export const shown = (value: string): string =>
  `CASE WHEN pg_catalog.num_nulls(${value}) OPERATOR(pg_catalog.=) 0 THEN pg_catalog.concat(${value}) END`

/** A function takes at most 100 arguments. */
const SHOWN_AT_ONCE = 40

/** Values by names, as JSON. */
export function shownAll(values: readonly (readonly [name: string, value: string])[]): string {
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

export const readPlaces = (on: TextSite): string =>
  `SELECT w.place::pg_catalog.text AS place FROM ${worklistOf(on)} AS w WHERE w.place OPERATOR(pg_catalog.>) $1::pg_catalog.int8 ` +
  `ORDER BY w.place LIMIT $2::pg_catalog.int8`

export const lastChange = (on: TextSite): string =>
  `SELECT pg_catalog.max(m.seq)::pg_catalog.text AS last FROM ${merges(on)} AS m`

export const keyArray = (columns: readonly string[]): string =>
  `ARRAY[${columns.map((one) => `${one}::pg_catalog.text`).join(', ')}]`

export const holds = ({ when }: Pick<Reference, 'when'>, row: string): string[] =>
  when
    ? [`pg_catalog.concat(${field(row, when.column)}) OPERATOR(pg_catalog.=) ${literal(when.value)}::pg_catalog.text`]
    : []

/** The key of the row that the row of the key $1 became, after any number of merges. */
export const resolveKey = (on: TextSite): string =>
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
const READ_KEYED: string = `SELECT pg_catalog.jsonb_build_object('oid', c.oid::pg_catalog.text, 'schema', n.nspname, 'table', c.relname,
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

/** Tables and what refers to them, as the catalog describes them. Each is read once. */
export class Tables {
  private readonly found = new Map<string, Promise<MergedTable>>()
  private readonly references = new Map<string, Promise<Reference[]>>()

  constructor(private readonly session: AdoptSession) {}

  async keyed({
    schema,
    table,
  }: Pick<Reference, 'table'> & { readonly schema?: string | undefined }): Promise<MergedTable> {
    const name = tableName({ schema, table })
    const found = this.found.get(name) ?? this.read(name)
    this.found.set(name, found)
    return await found
  }

  async referencesTo({ oid }: MergedTable): Promise<readonly Reference[]> {
    const found = this.references.get(oid) ?? referencesTo(this.session.query, oid)
    this.references.set(oid, found)
    return await found
  }

  private async read(name: string): Promise<MergedTable> {
    const [row] = await this.session.query<{ found: string }>(READ_KEYED, [name])
    if (row) return JSON.parse(row.found) as MergedTable
    throw new AdoptionError('changed', `There is no table ${name} any more. Run the same command again.`)
  }
}
