import { list, literal, plainName, qualified, quote, transition } from '../../sql/identifier'
import type { FormerPolicy, NamesColumn, NamesTable } from '../../sql/names-table'
import { OF_TABLE, SQLSTATE } from '../../sql/sqlstate'
import { bytewise, differentText, equal, op } from '../../sql/text-table'
import type { RelationName } from '../../sql/trigger-set'

/** A column that holds a name. */
export interface NameColumn {
  readonly column: string
  readonly namespace: string
  readonly former: FormerPolicy
  /** The normalizer of the stored texts, as `name@version`. @default none@1 */
  readonly normalizer?: string
}

/** A table whose rows hold names, with its database names. */
export interface HolderTable {
  /** If undefined, `search_path` decides. */
  readonly schema: string | undefined
  readonly table: string
  /** Its name in the table of names. The schema is part of it only if the table of names is in another schema. */
  readonly holder: string
  /** The primary key, in the order of the values of `key`. Types are written as in PostgreSQL (`character varying`). */
  readonly primary: readonly { readonly name: string; readonly type: string }[]
  readonly names: readonly NameColumn[]
  readonly of: NamesTable
  /** Whether the table may be a local table of Citus. */
  readonly citus?: 'local' | undefined
}

/**
 * Compares values byte by byte, where NULL equals NULL. No operator, cast or collation of their types is used. This is
 * the function behind the operator `*<>`, which `migration:generate --pretty` splits in two.
 */
export const differ = (left: readonly string[], right: readonly string[]): string => {
  const record = (values: readonly string[]): string =>
    `ROW(${values.length > 4 ? `\n        ${list(values, 8)}\n      ` : values.join(', ')})`
  return `pg_catalog.record_image_ne(${record(left)}, ${record(right)})`
}

/** Returns the name of a function or trigger of names on a table. */
export const namedSet = (table: string, suffix: string): string => `${plainName('unique_name', table)}_${suffix}`

/** A column of the table of names, with a row if one is given. */
export function nameField({ columns }: Pick<NamesTable, 'columns'>, row: string, column: NamesColumn): string {
  const name = quote(columns[column])
  return row === '' ? name : `${row}.${name}`
}

/** Columns of the table of names, with a row if one is given. */
export const nameFields =
  ({ of }: HolderTable) =>
  (row: string, ...columns: readonly NamesColumn[]): string =>
    columns.map((column) => nameField(of, row, column)).join(', ')

/**
 * Functions resolve names in the schema of the holder's table. They qualify the table of names if its schema differs.
 * If only `search_path` knows that schema, they resolve names there, and this is the table to find it by.
 */
export const pathOf = ({ schema, of }: HolderTable): RelationName | undefined =>
  of.schema === undefined && schema !== undefined ? { schema: undefined, name: of.table } : undefined

/** The table of names, as the functions of a holder's table name it. */
export const namesTableOf = ({ schema, of }: HolderTable): string =>
  qualified(of.schema === schema ? undefined : of.schema, of.table)

/** The holder's table, as its functions name it. */
export const holderRelation = (holder: HolderTable): string =>
  qualified(pathOf(holder) === undefined ? undefined : holder.schema, holder.table)

/** The same as `t`. Rows of child tables (INHERITS) hold no names. */
export const holderRows = (holder: HolderTable): string => `ONLY ${holderRelation(holder)} AS t`

/** PostgreSQL's own types that the table of names stores as JSON, or as texts if JavaScript would round them. */
const KNOWN =
  /^(?:(?:smallint|integer|uuid|boolean|text|date|character|timestamp|inet|cidr|macaddr)|(?<exact>bigint|numeric))\b(?!.*\[)/

/** Types whose names the grammar does not bind to `pg_catalog`. */
const BY_NAME = /^(?:uuid|text|date|inet|cidr|macaddr)$/

/** Types that JSON shows in the time zone of the session. */
const ZONED = /^timestamp(?:\(\d\))? with time zone$/

/** A value as its type's output function writes it. A cast to JSON or to text could run code of the type's owner. */
const formatted = (value: string): string => `pg_catalog.format('%s', ${value})`

/**
 * The primary key of a row, as the table of names holds it. The JSON is the same in every session, and JavaScript reads
 * it exactly.
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

/** A value of the primary key, taken from a key that the table of names holds. */
export function keyPart({ primary }: HolderTable, key: string, index: number): string {
  const { type = '' } = primary[index] ?? {}
  const value = `(${key} OPERATOR(pg_catalog.->>) ${index})`
  if (ZONED.test(type)) return `pg_catalog.timezone('UTC', ${value}::pg_catalog.timestamp)`
  if (!KNOWN.test(type)) return value
  if (BY_NAME.test(type)) return `${value}::pg_catalog.${type}`
  // `character` without a length holds one character.
  return `${value}::${type === 'character' ? 'pg_catalog.bpchar' : type}`
}

/** Predicates for an AND: the row has this key. */
export const hasKey = (
  { primary }: HolderTable,
  row: string,
  value: (name: string, index: number) => string,
): string[] =>
  primary.map(({ name, type }, index) => {
    const [left, right] = [`${row}.${quote(name)}`, value(name, index)]
    return KNOWN.test(type) ? equal(left, right) : equal(formatted(left), formatted(right))
  })

/** Predicates for an AND: the row has a key that the table of names holds. */
export const hasNamedKey = (holder: HolderTable, row: string, key: string): string[] =>
  hasKey(holder, row, (_, index) => keyPart(holder, key, index))

/** Predicates for an OR: columns that differ in JSON. Texts are compared by their bytes, regardless of collations. */
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

/** Predicates for an OR, in a WHEN: names that differ. */
export const differentNames = ({ names }: HolderTable, left: string, right: string): string[] =>
  differentText({ text: names.map(({ column }) => ({ name: column, prefix: '' })), nullable: true }, left, right)

/** The transition tables with the rows after the statement and before it. */
export const newRows = ({ table, of }: HolderTable): string => transition('new_rows', table, of.table)
export const oldRows = ({ table, of }: HolderTable): string => transition('old_rows', table, of.table)

/** Ends a subquery. The planner then keeps it as a subquery, and does not read a whole index for a join. */
export const NO_JOIN = 'OFFSET 0'

/**
 * The names of the row `t`, as rows `v`. The namespace has the collation of its column, because before Postgres 18 an
 * index finds nothing by another collation.
 */
export const namesOfRow = ({ names }: HolderTable, row = 't'): string =>
  `CROSS JOIN LATERAL (VALUES
        ${names.map(({ column, namespace }) => `(${literal(namespace)}, ${literal(column)}, ${bytewise(row, column)})`).join(',\n        ')}
      ) AS v (namespace, property, text)`

/** Ends a query: the newest row version. */
export const newest = (row: string): string => `ORDER BY pg_catalog.age(${row}.xmin) LIMIT 1`

/**
 * The row `t` of the holder's table that has the key of `row`. Triggers of the user may have changed it since. At
 * REPEATABLE READ, an old snapshot may also show a deleted row that had this key, so the newest row is taken.
 *
 * The limit prevents a join, which would read the whole table if the table was small when the plan was made. Rows of
 * child tables (INHERITS) hold no names.
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

export const raiseRenamed = (): string => `
    RAISE EXCEPTION USING ERRCODE = '${SQLSTATE.wrongState}',
      MESSAGE = 'the triggers of names name another table or column than their own',
      HINT = 'Something was renamed: create the triggers again, for instance by a new migration.',
      ${OF_TABLE};`

/** @param schema the table's schema, if names are resolved in another schema */
const isOn = (table: string, schema?: string): string =>
  `${equal('TG_TABLE_NAME', literal(table))}
    AND ${schema === undefined ? 'pg_catalog.pg_table_is_visible(TG_RELID)' : equal('TG_TABLE_SCHEMA', literal(schema))}`

/** Requires that the trigger is on the table that the function names. Types of another table may have casts of any role. */
export const refuseOtherTable = (table: string): string => `
  IF NOT (${isOn(table)}) THEN${raiseRenamed()}
  END IF;`

/** Whether the trigger is on the holder's table. */
export const isHolder = (holder: HolderTable): string =>
  isOn(holder.table, pathOf(holder) === undefined ? undefined : (holder.schema ?? ''))

/**
 * A trigger follows a renamed column, but the text of a function does not. The trigger's WHEN shows the present names.
 *
 * PostgreSQL parses the text with the current names, which an old snapshot does not show. So a function without
 * snapshots returns the columns. Another one checks the trigger, because an old snapshot also shows replaced triggers.
 */
export function refuseRenamedColumns(holder: HolderTable): string {
  const { table, primary, names, citus } = holder
  // The triggers of a shard have its number in their names.
  const relation = citus === undefined ? 'TG_RELID' : `${literal(holderRelation(holder))}::pg_catalog.regclass`
  const columns = [...primary.map(({ name }) => name), ...names.map(({ column }) => column)]
  return `
  IF EXISTS (
    SELECT FROM pg_catalog.pg_trigger AS g
    JOIN pg_catalog.pg_depend AS d ON ${equal('d.classid', 'g.tableoid')}
      AND ${equal('d.objid', 'g.oid')}
    CROSS JOIN LATERAL pg_catalog.pg_identify_object_as_address(d.refclassid, d.refobjid, d.refobjsubid) AS a
    WHERE ${equal('g.tgrelid', relation)} AND ${equal('g.tgname', literal(namedSet(table, 'update')))}
      AND d.refobjsubid ${op('>')} 0
      AND CASE WHEN ${equal('a.object_names[3]', 'ANY (ARRAY[')}
        ${list(columns.map(literal), 8)}
      ]::pg_catalog.text[]) THEN false ELSE pg_catalog.pg_get_triggerdef(g.oid) IS NOT NULL END
  ) THEN${raiseRenamed()}
  END IF;`
}

/** The columns of an inserted name, in parentheses. */
export const columnsToInsert = (holder: HolderTable): string =>
  `(
      ${nameFields(holder)('', 'namespace', 'text', 'hash', 'number', 'holder', 'property', 'key', 'state')}
    )`

export const hashed = ({ of }: HolderTable, text: string): string => of.digest.sql(text)

/** The name `n` is a former name that the row with this key may take. */
export function isFree(holder: HolderTable, key: string): string {
  const field = nameFields(holder)
  return `${field('n', 'state')} ${op('<>')} 'held'
        AND (${field('n', 'until')} ${op('<=')} pg_catalog.statement_timestamp()
          OR ${equal(field('n', 'holder'), literal(holder.holder))}
            AND ${equal(field('n', 'key'), key)})`
}

/** The assignments for a former name that a row takes. */
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
