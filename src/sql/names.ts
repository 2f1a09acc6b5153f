import type { Digest } from '../text/digest'
import type { Statement, WireRow } from './find'
import { list, literal, plainName, qualified, quote } from './identifier'
import { OF_TABLE, type ServerError, SQLSTATE } from './sqlstate'
import { bytewise, differentText, equal, op } from './text-table'
import type { RelationName } from './trigger-set'

/** The columns of the table of names. */
export type NamesColumn =
  | 'id'
  | 'namespace'
  | 'text'
  | 'hash'
  | 'number'
  | 'holder'
  | 'property'
  | 'key'
  | 'since'
  | 'state'
  | 'until'

/** The table of names, by its database names. */
export interface NamesTable {
  /** undefined: `search_path` decides. */
  readonly schema: string | undefined
  readonly table: string
  readonly columns: Readonly<Record<NamesColumn, string>>
  /** The unique index over namespace, hash and hash number: the constraint of every refusal. */
  readonly index: string
  readonly digest: Digest
}

/** What an UPDATE that changes a name makes of the former one. */
export interface FormerPolicy {
  /** `free`: its row goes. `reserved`: nobody else can take it. `redirect`: that, and it still leads to its holder. */
  readonly state: 'free' | 'reserved' | 'redirect'
  /** An interval of Postgres (`90 days`). undefined: no end. */
  readonly interval?: string | undefined
}

/** A column that holds a name. */
export interface NameColumn {
  readonly column: string
  readonly namespace: string
  readonly former: FormerPolicy
  /** What made the stored texts, as `name@version`. @default none@1 */
  readonly normalizer?: string
}

/** A table whose rows hold names, by its database names. */
export interface HolderTable {
  /** undefined: `search_path` decides. */
  readonly schema: string | undefined
  readonly table: string
  /** What the table of names calls it: its name, with the schema only where that of the table of names is another. */
  readonly holder: string
  /** The primary key, in the order of the values of `key`; types as Postgres writes them (`character varying`). */
  readonly primary: readonly { readonly name: string; readonly type: string }[]
  readonly names: readonly NameColumn[]
  readonly of: NamesTable
}

/** A name of a statement that was refused, as an element of the DETAIL of its 23505; never with the text. */
export interface RefusedName {
  /** The column of the writing table that was to hold it. */
  readonly column: string
  /** The primary key of the row that was to hold it. */
  readonly of: readonly unknown[]
  /** Whose it is: `HolderTable.holder`, its column, and the primary key of the row; null for who cannot read it. */
  readonly holder: string
  readonly holderColumn: string
  readonly key: readonly unknown[] | null
  readonly state: 'held' | 'reserved' | 'redirect'
}

/** A name that a row gave up, and that is kept for it. */
export interface KeptName {
  readonly name: string
  readonly column: string
  readonly state: 'reserved' | 'redirect'
  /** ISO 8601. */
  readonly since: string
  readonly until: string | null
}

/** The names that the triggers of a holder's table refused; undefined for another error. */
export function refusedNames(
  { code, constraint, detail }: ServerError,
  { index }: Pick<NamesTable, 'index'>,
): readonly RefusedName[] | undefined {
  if (code !== SQLSTATE.uniqueViolation || constraint !== index || detail?.startsWith('[') !== true) return undefined
  try {
    return JSON.parse(detail) as RefusedName[]
  } catch {
    return undefined
  }
}

/**
 * Whether values differ in a single byte; NULL is like NULL. No operator, cast or collation of their types is asked. It
 * is the function behind the operator `*<>`, which `migration:generate --pretty` tears in two.
 */
export const differ = (left: readonly string[], right: readonly string[]): string => {
  const record = (values: readonly string[]): string =>
    `ROW(${values.length > 4 ? `\n        ${list(values, 8)}\n      ` : values.join(', ')})`
  return `pg_catalog.record_image_ne(${record(left)}, ${record(right)})`
}

/** The name of a function or trigger of names on a table. */
export const namedSet = (table: string, suffix: string): string => `${plainName('unique_name', table)}_${suffix}`

/** A column of the table of names, perhaps of a row. */
export function nameField({ columns }: Pick<NamesTable, 'columns'>, row: string, column: NamesColumn): string {
  const name = quote(columns[column])
  return row === '' ? name : `${row}.${name}`
}

/** Columns of the table of names, with and without a row. */
export const nameFields =
  ({ of }: HolderTable) =>
  (row: string, ...columns: readonly NamesColumn[]): string =>
    columns.map((column) => nameField(of, row, column)).join(', ')

/**
 * Functions find names in the schema of the holder's table, and name the table of names with its schema where that is
 * another one. Where only `search_path` knows that schema, it is the other way round: this is the table to find it by.
 */
export const pathOf = ({ schema, of }: HolderTable): RelationName | undefined =>
  of.schema === undefined && schema !== undefined ? { schema: undefined, name: of.table } : undefined

/** The table of names, inside the functions of a holder's table. */
export const namesTableOf = ({ schema, of }: HolderTable): string =>
  qualified(of.schema === schema ? undefined : of.schema, of.table)

/** The holder's table as `t`, inside its functions. Rows of children by INHERITS hold nothing. */
export const holderRows = (holder: HolderTable): string =>
  `ONLY ${qualified(pathOf(holder) === undefined ? undefined : holder.schema, holder.table)} AS t`

/** Types of Postgres' own that the table of names holds as their JSON, or, where JavaScript would round it, as a text. */
const KNOWN =
  /^(?:(?:smallint|integer|uuid|boolean|text|date|character|timestamp|inet|cidr|macaddr)|(?<exact>bigint|numeric))\b(?!.*\[)/

/** Types whose names the grammar does not bind to `pg_catalog`. */
const BY_NAME = /^(?:uuid|text|date|inet|cidr|macaddr)$/

/** Types that JSON writes in the time zone of the session. */
const ZONED = /^timestamp(?:\(\d\))? with time zone$/

/** A value as the function that writes its type gives it: the owner of a type can have casts run, to JSON or to a text. */
const formatted = (value: string): string => `pg_catalog.format('%s', ${value})`

/**
 * The primary key of a row, as the table of names holds it: as JSON that is the same in every session, and that
 * JavaScript reads exactly.
 */
export function holderKey({ primary }: HolderTable, row: string): string {
  const values = primary.map(({ name, type }) => {
    const value = `${row}.${quote(name)}`
    if (ZONED.test(type)) return `pg_catalog.timezone('UTC', ${value})`
    const known = KNOWN.exec(type)
    if (known === null) return formatted(value)
    return known.groups?.exact === undefined ? value : `${value}::pg_catalog.text`
  })
  return `pg_catalog.jsonb_build_array(${values.join(', ')})`
}

/** A value of the primary key, out of a key that the table of names holds. */
export function keyPart({ primary }: HolderTable, key: string, index: number): string {
  const { type = '' } = primary[index] ?? {}
  const value = `(${key} OPERATOR(pg_catalog.->>) ${index})`
  if (ZONED.test(type)) return `pg_catalog.timezone('UTC', ${value}::pg_catalog.timestamp)`
  if (!KNOWN.test(type)) return value
  if (BY_NAME.test(type)) return `${value}::pg_catalog.${type}`
  // `character` alone is of one character.
  return `${value}::${type === 'character' ? 'pg_catalog.bpchar' : type}`
}

/** The row has this key; for an AND. */
export const hasKey = (
  { primary }: HolderTable,
  row: string,
  value: (name: string, index: number) => string,
): string[] =>
  primary.map(({ name, type }, index) => {
    const [left, right] = [`${row}.${quote(name)}`, value(name, index)]
    return KNOWN.test(type) ? equal(left, right) : equal(formatted(left), formatted(right))
  })

/** The row has a key that the table of names holds; for an AND. */
export const hasNamedKey = (holder: HolderTable, row: string, key: string): string[] =>
  hasKey(holder, row, (_, index) => keyPart(holder, key, index))

/** Columns that differ, as JSON tells keys apart, and by their bytes whatever a collation calls equal; for an OR. */
export const differentKey = ({ primary }: HolderTable, left: string, right: string): string[] =>
  primary.map(({ name, type }) => {
    const isText = /^(?:text|character|numeric)\b/.test(type)
    const value = (row: string): string => {
      const column = `${row}.${quote(name)}`
      if (isText) return bytewise(row, name)
      return KNOWN.test(type) ? column : formatted(column)
    }
    return `(${equal(value(left), value(right))}) IS NOT TRUE`
  })

/** Names that differ; for an OR. For a WHEN. */
export const differentNames = ({ names }: HolderTable, left: string, right: string): string[] =>
  differentText({ text: names.map(({ column }) => ({ name: column, prefix: '' })), nullable: true }, left, right)

/** The name of a transition table, or of a query in WITH: it must not hide a table from the functions. */
export const transition = (name: string, ...tables: readonly string[]): string =>
  tables.includes(name) ? transition(`${name}_`, ...tables) : name

/** What the statement has made of rows, and what they were. */
export const newRows = ({ table, of }: HolderTable): string => transition('new_rows', table, of.table)
export const oldRows = ({ table, of }: HolderTable): string => transition('old_rows', table, of.table)

/** At the end of a subquery: the planner leaves it one, and does not read a whole index for a join. */
export const NO_JOIN = 'OFFSET 0'

/**
 * The names of the row `t`, as rows `v`. The namespace has the collation of its column: an index over that finds nothing
 * by another one, before Postgres 18.
 */
export const namesOfRow = ({ names }: HolderTable, row = 't'): string =>
  `CROSS JOIN LATERAL (VALUES
        ${names.map(({ column, namespace }) => `(${literal(namespace)}, ${literal(column)}, ${bytewise(row, column)})`).join(',\n        ')}
      ) AS v (namespace, property, text)`

/** At the end of a query. */
export const newest = (row: string): string => `ORDER BY pg_catalog.age(${row}.xmin) LIMIT 1`

/**
 * The row `t` that stands in the holder's table with the key of `row`: triggers of the user may have changed it since.
 * At REPEATABLE READ an old snapshot may show another row that had this key and is gone; ours is the newest.
 *
 * A limit keeps the planner from a join, which would read all of a table that was small when the plan was made. Rows of
 * children by INHERITS hold nothing.
 */
export function standingRow(holder: HolderTable, row: string): string {
  const columns = [...holder.primary.map(({ name }) => name), ...holder.names.map(({ column }) => column)]
  const same = hasKey(holder, 't', (name) => `${row}.${quote(name)}`)
  return `(
        SELECT ${list(
          [...new Set(columns)].map((name) => `t.${quote(name)}`),
          10,
        )}
        FROM ${holderRows(holder)} WHERE ${same.join(' AND ')}
        ${newest('t')}
      ) AS t`
}

const raiseRenamed = (): string => `
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}',
      MESSAGE = 'the triggers of names name another table or column than their own',
      HINT = 'Something was renamed: create the triggers again, for instance by a new migration.',
      ${OF_TABLE};`

/**
 * The table that the functions name is the one that the trigger is on: types of another one may have casts of anybody.
 *
 * @param schema of the table, where names are found in another one
 */
export const refuseOtherTable = (table: string, schema?: string): string => `
  IF NOT (${equal('TG_TABLE_NAME', literal(table))}
    AND ${schema === undefined ? 'pg_catalog.pg_table_is_visible(TG_RELID)' : equal('TG_TABLE_SCHEMA', literal(schema))}) THEN${raiseRenamed()}
  END IF;`

export const refuseOtherHolder = (holder: HolderTable): string =>
  refuseOtherTable(holder.table, pathOf(holder) === undefined ? undefined : (holder.schema ?? ''))

/**
 * A trigger follows a column that is renamed, the text of a function does not. What is said of the columns is its WHEN.
 *
 * The text is parsed by the names of now, which an old snapshot does not show: the columns are asked of a function that
 * knows no snapshots. So is the trigger, which an old snapshot shows even where a migration has made another since.
 */
export function refuseRenamedColumns({ table, primary, names }: HolderTable): string {
  const columns = [...primary.map(({ name }) => name), ...names.map(({ column }) => column)]
  return `
  IF EXISTS (
    SELECT FROM pg_catalog.pg_trigger AS g
    JOIN pg_catalog.pg_depend AS d ON ${equal('d.classid', 'g.tableoid')}
      AND ${equal('d.objid', 'g.oid')}
    CROSS JOIN LATERAL pg_catalog.pg_identify_object_as_address(d.refclassid, d.refobjid, d.refobjsubid) AS a
    WHERE ${equal('g.tgrelid', 'TG_RELID')} AND ${equal('g.tgname', literal(namedSet(table, 'update')))}
      AND d.refobjsubid ${op('>')} 0
      AND CASE WHEN ${equal('a.object_names[3]', 'ANY (ARRAY[')}
        ${list(columns.map(literal), 8)}
      ]::pg_catalog.text[]) THEN false ELSE pg_catalog.pg_get_triggerdef(g.oid) IS NOT NULL END
  ) THEN${raiseRenamed()}
  END IF;`
}

/** One of two rows, by its position in what was asked; without its columns where the other is not there. */
export interface SwappedRow {
  readonly position: number
  readonly columns: WireRow
}

/** A name that somebody has, of those that were asked for. */
export interface FoundName extends Pick<RefusedName, 'holder' | 'holderColumn' | 'state'> {
  /** 0-based position of what was asked. */
  readonly requested: number
  /** The primary key of its holder, as texts. */
  readonly key: readonly string[]
}

/**
 * Who has which of several names; former ones count until their time is over.
 *
 * Parameters: an array of namespaces, of names and of their hashes.
 */
export function takenNamesStatement(names: NamesTable): Statement<FoundName> {
  const field = (column: NamesColumn): string => `n.${quote(names.columns[column])}`
  return {
    name: '',
    sql: `SELECT i.ordinal ${op('-')} 1, ${field('holder')}, ${field('property')}, ${field('state')},
  (SELECT pg_catalog.json_agg(v) FROM pg_catalog.jsonb_array_elements_text(${field('key')}) AS v)::pg_catalog.text
FROM ROWS FROM (${[1, 2, 3].map((one) => `pg_catalog.unnest($${one}::pg_catalog.text[])`).join(', ')})
  WITH ORDINALITY AS i (namespace, text, hash, ordinal)
JOIN ${qualified(names.schema, names.table)} AS n ON ${equal(field('namespace'), 'i.namespace')}
  AND ${equal(field('hash'), `i.hash::pg_catalog.${names.digest.type}`)}
  AND ${equal(`${field('text')} COLLATE pg_catalog."C"`, 'i.text')}
WHERE ${equal(field('state'), `'held'`)} OR ${field('until')} IS NULL
  OR ${field('until')} ${op('>')} pg_catalog.statement_timestamp()`,
    parse: ([requested, holder, holderColumn, state, key]) => ({
      requested: Number(requested),
      holder: String(holder),
      holderColumn: String(holderColumn),
      state: state as FoundName['state'],
      key: JSON.parse(String(key)) as string[],
    }),
  }
}

/** Columns of an inserted name, in parentheses. */
export const columnsToInsert = (holder: HolderTable): string =>
  `(
      ${nameFields(holder)('', 'namespace', 'text', 'hash', 'number', 'holder', 'property', 'key', 'state')}
    )`

export const hashed = ({ of }: HolderTable, text: string): string => of.digest.sql(text)

/** The name `n` is a former one that the row with this key may take. */
export function isFree(holder: HolderTable, key: string): string {
  const field = nameFields(holder)
  return `${field('n', 'state')} ${op('<>')} 'held'
        AND (${field('n', 'until')} ${op('<=')} pg_catalog.statement_timestamp()
          OR ${equal(field('n', 'holder'), literal(holder.holder))}
            AND ${equal(field('n', 'key'), key)})`
}

/** What becomes of a former name that is taken. */
export const becomesHeld = (holder: HolderTable): string => {
  const field = nameFields(holder)
  return `${field('', 'state')} = 'held', ${field('', 'since')} = pg_catalog.statement_timestamp(),
         ${field('', 'until')} = NULL`
}

/**
 * DO UPDATE locks the conflicting row even if it changes nothing. So every statement locks the names that it takes or
 * gives up in one order, and two statements over two tables never form a cycle of waits.
 */
export const onConflict = (holder: HolderTable): string => {
  const field = nameFields(holder)
  const copied = (['holder', 'property', 'key'] as const).map(
    (column) => `${field('', column)} = ${field('EXCLUDED', column)}`,
  )
  return `ON CONFLICT (${field('', 'namespace', 'hash', 'number')}) DO UPDATE
      SET ${copied.join(',\n        ')},
        ${becomesHeld(holder)}
      WHERE ${equal(`${field('n', 'text')} COLLATE pg_catalog."C"`, `${field('EXCLUDED', 'text')} COLLATE pg_catalog."C"`)}
        AND ${isFree(holder, field('EXCLUDED', 'key'))}`
}
