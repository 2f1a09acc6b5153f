import { arrayOf, attributeNames, isTrustedBy, type Query } from '../sql/catalog'
import { list, literal, qualified, unnest, transition } from '../sql/identifier'
import { hasNamedKey, holderKey, holderOid, type HolderTable, nameField } from '../names/sql/fragments'
import type { NamesColumn, NamesTable } from '../sql/names-table'
import { allEqual, isCounted, isScopeOf, scopeOf } from '../numbers/sql/fragments'
import { type NumberTable, scopeKey, scopesTable } from '../sql/numbers'
import { type CatalogSpread, hasCitus, type Spread, spreadOf } from '../sql/spread'
import { bytewise, equal, field, isLive, type TextTable } from '../sql/text-table'
import { bySchema, type ColumnType } from '../sql/types'

/** A column of the key or of a scope, with its type. */
export interface TypedColumn extends ColumnType {
  readonly name: string
}

/** A table that the doctor reads, with the rows of its partitions. */
export interface ReadTable {
  /** The table as SQL. It has ONLY if the table is not partitioned, because children by INHERITS are other tables. */
  readonly rows: string
  /** The primary key. */
  readonly key: readonly TypedColumn[]
}

/** The values of a primary key, in PostgreSQL's text form and in the order of its columns. */
export type Key = readonly string[]

/** The parts of a page. The row is `t` in every expression. */
export interface PageParts {
  readonly table: ReadTable
  /** The columns that the expressions use, besides the key. */
  readonly columns: readonly string[]
  /** The columns whose length limits a page. A page ends once its rows have `PAGE_BYTES` or more. */
  readonly texts: readonly string[]
  /** Expressions of type text, by the names of the results. */
  readonly select: Readonly<Record<string, string>>
}

/** The key before the first row of a page, the highest key, and the only keys to read. */
export interface PageBounds {
  readonly after?: Key | undefined
  readonly upTo?: Key | undefined
  readonly among?: readonly Key[] | undefined
  readonly limit: number
}

/** SQL, and the values of its parameters. */
export interface Bound {
  readonly sql: string
  readonly values: unknown[]
}

const PAGE_BYTES = 4 * 2 ** 20

/** Types whose order and equality are PostgreSQL's own, and to which a text casts without loss. */
const PLAIN =
  /^"?(?:smallint|integer|bigint|numeric|real|double precision|uuid|boolean|text|bytea|date|character|timestamp|time)\b/

/** A column in the form for order and comparison. If the type may have its own operators, this is its text. */
const compared = ({ name, type }: TypedColumn, row: string): string =>
  PLAIN.test(type) ? field(row, name) : `${field(row, name)}::pg_catalog.text COLLATE pg_catalog."C"`

/** A text as a value of the column, in the same form. */
const asColumn = ({ type, declared }: TypedColumn, value: string): string =>
  PLAIN.test(type) ? `${value}::${bySchema(declared)}` : `${value}::pg_catalog.text COLLATE pg_catalog."C"`

const equalKeys = (columns: readonly TypedColumn[], row: string, value: (index: number) => string): string[] =>
  columns.map((one, index) => equal(compared(one, row), asColumn(one, value(index))))

/** The key of a result: `k0`, `k1`, and so on. */
export const keyOfResult = ({ key }: ReadTable, result: Readonly<Record<string, string | null>>): Key =>
  key.map((_, index) => result[`k${index}`] ?? '')

/** Columns as results of type text, numbered. */
export const numberedColumns = (prefix: string, columns: readonly string[]): Readonly<Record<string, string>> =>
  Object.fromEntries(columns.map((name, index) => [`${prefix}${index}`, `${field('t', name)}::pg_catalog.text`]))

/** Reads a page of rows in the order of the key, in one snapshot. The page ends early if its texts are long. */
export function page({ table, columns, texts, select }: PageParts, bounds: PageBounds): Bound {
  const { key } = table
  const values: unknown[] = []
  const order = key.map((one) => compared(one, 't')).join(', ')
  const names = [...new Set([...key.map(({ name }) => name), ...columns])]
  const read = names.map((name) => field('t', name))
  const [ownBytes, allBytes] = [transition('own_bytes', ...names), transition('all_bytes', ...names)]
  const own = texts.map((name) => `coalesce(pg_catalog.octet_length(${field('t', name)}::pg_catalog.text), 0)`)
  const bytes = own.length === 0 ? '0' : own.join(' OPERATOR(pg_catalog.+) ')
  const results = {
    ...numberedColumns(
      'k',
      key.map(({ name }) => name),
    ),
    ...select,
  }
  const from = `${table.rows} AS t${amongKeys(key, bounds.among, values)}`
  const row = (cells: readonly string[]): string => (cells.length === 1 ? cells.join('') : `ROW(${cells.join(', ')})`)
  const compare = (operator: string, limit: Key | undefined): string[] => {
    if (!limit) return []
    const given = key.map((one, index) => asColumn(one, addParameter(values, limit[index])))
    return [`${row(key.map((one) => compared(one, 't')))} OPERATOR(pg_catalog.${operator}) ${row(given)}`]
  }
  const between = [...compare('>', bounds.after), ...compare('<=', bounds.upTo)]
  const where = between.length === 0 ? '' : `\n    WHERE ${between.join(' AND ')}`
  const sql = `SELECT ${list(
    Object.entries(results).map(([as, value]) => `${value} AS "${as}"`),
    2,
  )}
FROM (
  SELECT t.*, pg_catalog.sum(t.${ownBytes}) OVER (ORDER BY ${order} ROWS UNBOUNDED PRECEDING) AS ${allBytes}
  FROM (
    SELECT ${list([...read, `${bytes} AS ${ownBytes}`], 4)}
    FROM ${from}${where}
    ORDER BY ${order} LIMIT ${bounds.limit}
  ) AS t
) AS t
WHERE t.${allBytes} OPERATOR(pg_catalog.-) t.${ownBytes} OPERATOR(pg_catalog.<) ${PAGE_BYTES}
ORDER BY ${order}`
  return { sql, values }
}

/** Adds a parameter for a value. */
const addParameter = (values: unknown[], value: unknown): string => `$${values.push(value)}`

function amongKeys(key: readonly TypedColumn[], among: readonly Key[] | undefined, values: unknown[]): string {
  if (!among) return ''
  const arrays = key.map((_, index) => among.map((one) => one[index]))
  return `\n    JOIN ${unnested(arrays, 'k', values)} ON ${equalKeys(key, 't', (index) => `c.k${index}`).join(' AND ')}`
}

/** Returns lists of equal length as rows `c`, with their position from 1. */
function unnested(arrays: readonly (readonly unknown[])[], prefix: string, values: unknown[]): string {
  const given = arrays.map((array) => `${addParameter(values, array)}::pg_catalog.text[]`)
  return `${unnest(given, 4)} WITH ORDINALITY AS c (${arrays.map((_, index) => `${prefix}${index}`).join(', ')}, position)`
}

/** A chain by its scope, in PostgreSQL's text form, and its hash. */
export interface ChainKey {
  readonly scope: readonly string[]
  readonly hash: string
}

/** Reads the contents of chains in one snapshot, with one result for each chain that has rows. */
export function readChains(
  table: ReadTable,
  text: TextTable,
  scope: readonly TypedColumn[],
  chains: readonly ChainKey[],
): Bound {
  const values: unknown[] = []
  const arrays = [...scope.map((_, index) => chains.map((one) => one.scope[index])), chains.map(({ hash }) => hash)]
  const hash = { name: text.hash, type: text.digest.type, declared: `pg_catalog.${text.digest.type}` }
  const [number, flag] = [field('t', text.number), field('t', text.chained)]
  const print = text.text.map(
    ({ name }) => `pg_catalog.sha256(pg_catalog.convert_to(${field('t', name)}::pg_catalog.text, 'UTF8'))`,
  )
  const key = `pg_catalog.jsonb_build_array(${table.key.map(({ name }) => `${field('t', name)}::pg_catalog.text`).join(', ')})`
  const conditions = [...equalKeys([...scope, hash], 't', (index) => `c.c${index}`), ...isLive(text, 't')]
  const sql = `SELECT c.position::pg_catalog.text AS "position", pg_catalog.count(*)::pg_catalog.text AS "rows",
  pg_catalog.count(DISTINCT pg_catalog.jsonb_build_array(${print.join(', ')}))::pg_catalog.text AS "texts",
  pg_catalog.count(DISTINCT ${number})::pg_catalog.text AS "numbers",
  (pg_catalog.bool_or(${flag}) FILTER (WHERE ${number} OPERATOR(pg_catalog.=) 0))::pg_catalog.text AS "flagged",
  (pg_catalog.array_agg(${key} ORDER BY ${[number, ...table.key.map((one) => compared(one, 't'))].join(', ')}))[1]::pg_catalog.text AS "key"
FROM ${unnested(arrays, 'c', values)}
JOIN ${table.rows} AS t ON ${conditions.join(' AND ')}
GROUP BY c.position`
  return { sql, values }
}

/**
 * A foreign key, of another table or the same, that refers to the table. If its owner may not act as the owner of the
 * table, it is left out, because casts of its column's type and its policies would run as the caller.
 */
interface Referrer {
  /** The table as SQL. */
  readonly table: string
  readonly columns: readonly string[]
  readonly refersTo: readonly string[]
  /** Whether an index finds the rows by these columns. */
  readonly indexed: boolean
}

/** Counts the rows that refer to these. */
export function countReferences(
  table: ReadTable,
  { table: from, columns, refersTo }: Referrer,
  keys: readonly Key[],
): Bound {
  const values: unknown[] = []
  const joined = columns.map(
    (name, index) => `${field('r', name)} OPERATOR(pg_catalog.=) ${field('t', refersTo[index] ?? '')}`,
  )
  const sql = `SELECT pg_catalog.count(*)::pg_catalog.text AS "rows"
FROM ${table.rows} AS t${amongKeys(table.key, keys, values)}
JOIN ${from} AS r ON ${joined.join(' AND ')}`
  return { sql, values }
}

/**
 * Reads, in one snapshot, a page of the scopes of a number that have rows or a count, in order, and whether each count
 * is right. Without a scope, the page is the whole table.
 */
export function countsPage(
  table: NumberTable,
  { rows, key }: ReadTable,
  bounds: {
    /** The scope before the page: `s0`, `s1`, … of the last result. */
    readonly after: readonly string[] | undefined
    readonly limit: number
    /** The types of the scope's columns, as SQL. */
    readonly types: readonly string[]
  },
): Bound {
  const scope = list(scopeOf(table, 't'), 4)
  const after = bounds.after?.map((_, index) => `$${index + 1}::${bySchema(bounds.types[index] ?? 'text')}`).join(', ')
  const ofScope = ['true', ...allEqual(scopeOf(table, 't'), scopeOf(table, 's'))].join(' AND ')
  const firstKey = `SELECT pg_catalog.jsonb_build_array(${key
    .map(({ name }) => `${field('t', name)}::pg_catalog.text`)
    .join(', ')})::pg_catalog.text FROM ${rows} AS t WHERE ${ofScope} ORDER BY ${field('t', table.number)} LIMIT 1`
  const counted = ['true', ...isCounted(table, 't')].join(' AND ')
  const keptOfScope = isScopeOf(table, 'k', 's').join(' AND ')
  const isRight = `(pg_catalog.count(*) FILTER (WHERE ${counted}) OPERATOR(pg_catalog.=) (
    SELECT coalesce(pg_catalog.sum(k.n), 0) FROM ${scopesTable(table)} AS k WHERE ${keptOfScope}))::pg_catalog.text`
  const results = scopeOf(table, 's').map((one, index) => `${one}::pg_catalog.text AS "s${index}"`)
  const order = `\n  ORDER BY ${table.scope.map((_, index) => index + 1).join(', ')} LIMIT ${bounds.limit}`
  const next = (found: string, from: string): string =>
    `(SELECT DISTINCT ${found} FROM ${from}${after === undefined ? '' : ` WHERE ROW(${found}) OPERATOR(pg_catalog.>) ROW(${after})`}${order})`
  const kept = next(list(scopeKey(table, 'k'), 4), `${scopesTable(table)} AS k`)
  const scopes = table.scope.length === 0 ? 'SELECT' : `${next(scope, `${rows} AS t`)}\n  UNION ${kept}${order}`
  const sql = `SELECT ${list([...results, 'x.*'], 2)}
FROM (
  ${scopes}
) AS s
CROSS JOIN LATERAL (
  SELECT (${firstKey}) AS "key", ${isRight} AS "right"
  FROM ${rows} AS t WHERE ${ofScope}
) AS x${table.scope.length === 0 ? '' : `\nORDER BY ${list(scopeOf(table, 's'), 2)}`}`
  return { sql, values: [...(bounds.after ?? [])] }
}

/** Selects the tables among $2, as SQL, if the owner of the table $1 may not act as their owner. */
export const FIND_FOREIGN: string = `SELECT t.oid FROM pg_catalog.pg_class AS k
  JOIN pg_catalog.pg_class AS t ON t.oid OPERATOR(pg_catalog.=) ANY (
    ARRAY(SELECT pg_catalog.to_regclass(h.name)::pg_catalog.oid FROM pg_catalog.unnest($2::pg_catalog.text[]) AS h (name)))
 WHERE k.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1) AND NOT ${isTrustedBy('k', 't')}`

/** A column that holds a name, and the rows of its table as SQL. */
export interface HeldName {
  readonly holder: HolderTable
  readonly column: string
  readonly namespace: string
  /** Undefined if no statement reads the rows together with the table of names. */
  readonly rows: string | undefined
}

/** A column of the table of names, as text in the collation of its bytes. */
const nameText = (of: NamesTable, row: string, column: NamesColumn): string =>
  `${nameField(of, row, column)}::pg_catalog.text COLLATE pg_catalog."C"`

const isOfHeldName = ({ holder, column, namespace }: HeldName, row: string): string[] => [
  equal(nameField(holder.of, row, 'holder'), holderOid(holder)),
  equal(nameText(holder.of, row, 'property'), literal(column)),
  equal(nameText(holder.of, row, 'namespace'), literal(namespace)),
]

const isHeld = (of: NamesTable, row: string): string => equal(nameText(of, row, 'state'), `'held'`)

/** Whether the table of names records the name of the row `t`. True if the row has no name. */
export function isNoted(name: HeldName): string {
  const { holder, column } = name
  const { of } = holder
  const conditions = [
    equal(nameField(of, 'n', 'key'), holderKey(holder, 't')),
    ...isOfHeldName(name, 'n'),
    isHeld(of, 'n'),
    equal(nameText(of, 'n', 'text'), bytewise('t', column)),
  ]
  const found = `EXISTS (SELECT FROM ${qualified(of.schema, of.table)} AS n WHERE ${conditions.join(' AND ')})`
  return `(${bytewise('t', column)} IS NULL OR ${found})::pg_catalog.text`
}

/**
 * Whether the row `t` of the table of names is true. If so, the holder that it names exists, and has the name if it
 * holds it. A former name needs only the row.
 *
 * @param names every column that holds names
 * @param among the holders to examine; if undefined, all
 */
export function isTrue(of: NamesTable, names: readonly HeldName[], among: readonly HolderTable[] | undefined): string {
  const held = isHeld(of, 't')
  const cases = names.map((name) => {
    const key = hasNamedKey(name.holder, 'r', nameField(of, 't', 'key'))
    const has = equal(bytewise('r', name.column), nameText(of, 't', 'text'))
    const [holder = '', property = '', namespace = ''] = isOfHeldName(name, 't')
    if (name.rows === undefined) return `WHEN ${holder} THEN true`
    // A former name may belong to a namespace that its property no longer has.
    return `WHEN ${holder} AND ${property} AND (NOT ${held} OR ${namespace}) THEN EXISTS (
      SELECT FROM ${name.rows} AS r WHERE ${key.join(' AND ')} AND (NOT ${held} OR ${has}))`
  })
  const requested = among?.map(holderOid).join(', ')
  const others =
    requested === undefined
      ? []
      : [
          `WHEN NOT (${nameField(of, 't', 'holder')} OPERATOR(pg_catalog.=) ANY (ARRAY[${requested}]::pg_catalog.regclass[])) THEN true`,
        ]
  // Two programs may share a table of names. Only the other program knows the contents of its tables.
  const known = names.map(
    ({ holder }) => `WHEN ${equal(nameField(of, 't', 'holder'), holderOid(holder))} THEN NOT ${held}`,
  )
  // A table that no entity has keeps names, too.
  const isOfAnother = `EXISTS (SELECT FROM pg_catalog.pg_trigger AS g WHERE ${equal('g.tgrelid', nameField(of, 't', 'holder'))}
      AND pg_catalog.strpos(pg_catalog.encode(g.tgargs, 'escape'), '"kind": "name", "name": "names", ') OPERATOR(pg_catalog.>) 0)`
  return `(CASE ${others.join(' ')}
    WHEN NOT (${nameText(of, 't', 'state')} OPERATOR(pg_catalog.=) ANY ('{held,reserved,redirect}')) THEN false
    ${[...cases, ...new Set(known)].join(' ')} ELSE NOT ${held} OR ${isOfAnother} END)::pg_catalog.text`
}

/** The surroundings of a table that affect a change of the table. */
export interface Surroundings {
  /** Whether the rows are in partitions. */
  readonly partitioned: boolean
  /** The place of the rows in Citus or in partitions. */
  readonly spread: Spread
  /** The size in bytes with TOAST and partitions, but without indexes of the table. */
  readonly heapBytes: number
  readonly indexBytes: number
  /** What each finding's query returned: the names of objects, or their number. */
  readonly found: Readonly<Record<string, readonly string[] | number>>
  readonly referrers: readonly Referrer[]
  /**
   * The age of the oldest open transaction of others in the database; null if there is none. An idle session that reads
   * catalog changes of others opens one for a moment, with the time of its last statement, so it does not count.
   */
  readonly oldestSeconds: number | null
}

const names = (value: string, from: string): string => `(SELECT ${arrayOf(`${value} ORDER BY ${value}`)} ${from})`

const relationName = (oid: string): string =>
  `(SELECT pg_catalog.format('%I.%I', said_in.nspname, said.relname) FROM pg_catalog.pg_class AS said
     JOIN pg_catalog.pg_namespace AS said_in ON said_in.oid OPERATOR(pg_catalog.=) said.relnamespace
    WHERE said.oid OPERATOR(pg_catalog.=) ${oid})`

/** Whether an index of the whole referring table begins with the columns of the foreign key, in any order. */
const INDEXED = `EXISTS (SELECT FROM pg_catalog.pg_index AS i
          WHERE i.indrelid OPERATOR(pg_catalog.=) f.conrelid AND i.indisvalid AND i.indpred IS NULL
            AND (i.indkey::pg_catalog.int2[])[0:pg_catalog.cardinality(f.conkey) OPERATOR(pg_catalog.-) 1]
              OPERATOR(pg_catalog.@>) f.conkey)`

/** The size of the table and its partitions. */
const SIZE = (of: string): string =>
  `(SELECT coalesce(pg_catalog.sum(pg_catalog.${of}(p.relid)), pg_catalog.${of}(c.oid))::bigint
      FROM pg_catalog.pg_partition_tree(c.oid) AS p)`

/** A column `page_id` or `pageId`, of the type of the only column of the key of `page`. */
const LOOKALIKES = `FROM pg_catalog.pg_attribute AS a
      JOIN pg_catalog.pg_class AS o ON o.oid OPERATOR(pg_catalog.=) a.attrelid
      JOIN pg_catalog.pg_index AS i ON i.indrelid OPERATOR(pg_catalog.=) c.oid AND i.indisprimary
      JOIN pg_catalog.pg_attribute AS k ON k.attrelid OPERATOR(pg_catalog.=) c.oid
       AND k.attnum OPERATOR(pg_catalog.=) i.indkey[0]
     WHERE i.indnkeyatts OPERATOR(pg_catalog.=) 1 AND o.relkind OPERATOR(pg_catalog.=) ANY ('{r,p}') AND NOT o.relispartition
       AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped
       AND a.atttypid OPERATOR(pg_catalog.=) k.atttypid
       AND pg_catalog.lower(pg_catalog.replace(a.attname::pg_catalog.text, '_', '')) OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.text[])
       AND NOT EXISTS (
         SELECT FROM pg_catalog.pg_constraint AS f
          WHERE f.conrelid OPERATOR(pg_catalog.=) o.oid AND f.contype OPERATOR(pg_catalog.=) 'f'
            AND a.attnum OPERATOR(pg_catalog.=) ANY (f.conkey))`

/** The publications of the table. For a partitioned table, the view lists partitions, unless its root is published. */
const PUBLISHED = `FROM (
        SELECT DISTINCT o.pubname FROM pg_catalog.pg_publication_tables AS o
        JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) o.schemaname
        JOIN pg_catalog.pg_class AS t ON t.relnamespace OPERATOR(pg_catalog.=) n.oid AND t.relname OPERATOR(pg_catalog.=) o.tablename
        WHERE t.oid OPERATOR(pg_catalog.=) c.oid
          OR t.oid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT l.relid FROM pg_catalog.pg_partition_tree(c.oid) AS l))) AS p`

/** Whether a publication has all rows and columns of the table `k`. Before PostgreSQL 15, the view reports neither. */
const IS_WHOLE = `pg_catalog.to_jsonb(o) OPERATOR(pg_catalog.->>) 'rowfilter' IS NULL
            AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
              WHERE a.attrelid OPERATOR(pg_catalog.=) k.oid AND a.attnum OPERATOR(pg_catalog.>) 0
                AND NOT a.attisdropped AND a.attgenerated OPERATOR(pg_catalog.=) ''
                AND NOT (pg_catalog.to_jsonb(o) OPERATOR(pg_catalog.->) 'attnames') OPERATOR(pg_catalog.?) a.attname)`

/** The tables of the package that belong to the table. */
const COMPANIONS = `FROM pg_catalog.unnest($3::pg_catalog.text[]) AS h (name)
      JOIN pg_catalog.pg_class AS k ON k.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(h.name)`

/**
 * The query of each finding for the table `c`: the names of objects as JSON, or their number. $2 has the likely names of
 * references, $3 the tables that belong to the table, $4 the triggers of the library, and $5 patterns of assignments to its texts.
 */
const FOUND_BY_QUERY: Readonly<Record<string, string>> = {
  'trigger.user': names(
    't.tgname::pg_catalog.text',
    `FROM pg_catalog.pg_trigger AS t
      WHERE t.tgrelid OPERATOR(pg_catalog.=) c.oid AND NOT t.tgisinternal
        AND (t.tgtype::pg_catalog.int4 OPERATOR(pg_catalog.&) 16) OPERATOR(pg_catalog.<>) 0
        AND t.tgname::pg_catalog.text OPERATOR(pg_catalog.<>) ALL ($4::pg_catalog.text[])`,
  ),
  'trigger.text': names(
    't.tgname::pg_catalog.text',
    `FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) t.tgfoid
      WHERE t.tgrelid OPERATOR(pg_catalog.=) c.oid AND NOT t.tgisinternal
        AND (t.tgtype::pg_catalog.int4 OPERATOR(pg_catalog.&) 3) OPERATOR(pg_catalog.=) 3
        AND EXISTS (SELECT FROM pg_catalog.unnest($5::pg_catalog.text[]) AS x (pattern)
          WHERE p.prosrc OPERATOR(pg_catalog.~*) x.pattern)`,
  ),
  'replication.publication': names('p.pubname::pg_catalog.text', PUBLISHED),
  'replication.incomplete': names(
    `pg_catalog.format('%s without %s', p.pubname, k.oid::pg_catalog.regclass)`,
    `${PUBLISHED}
      CROSS JOIN pg_catalog.unnest($3::pg_catalog.text[]) AS h (name)
      JOIN pg_catalog.pg_class AS k ON k.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(h.name)
      JOIN pg_catalog.pg_namespace AS m ON m.oid OPERATOR(pg_catalog.=) k.relnamespace
      WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_publication_tables AS o
          WHERE o.pubname OPERATOR(pg_catalog.=) p.pubname
            AND o.schemaname OPERATOR(pg_catalog.=) m.nspname AND o.tablename OPERATOR(pg_catalog.=) k.relname
            AND ${IS_WHOLE})`,
  ),
  'replication.subscription': names(
    's.subname::pg_catalog.text',
    `FROM pg_catalog.pg_subscription_rel AS r
      JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) r.srsubid
      WHERE r.srrelid OPERATOR(pg_catalog.=) c.oid`,
  ),
  'table.inherits': names(
    relationName('h.relative'),
    `FROM (
        SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i WHERE i.inhparent OPERATOR(pg_catalog.=) c.oid
        UNION ALL
        SELECT i.inhparent FROM pg_catalog.pg_inherits AS i WHERE i.inhrelid OPERATOR(pg_catalog.=) c.oid) AS h (relative)
      WHERE c.relkind OPERATOR(pg_catalog.<>) 'p' AND NOT c.relispartition`,
  ),
  'reference.undeclared': names(`pg_catalog.format('%s.%I', ${relationName('o.oid')}, a.attname)`, LOOKALIKES),
  'guard.replica': names(
    's.remedy',
    `FROM (SELECT pg_catalog.concat('ALTER ', CASE WHEN r.rolname IS NULL THEN pg_catalog.format('DATABASE %I', d.datname)
            ELSE pg_catalog.format('ROLE %I', r.rolname) OPERATOR(pg_catalog.||) coalesce(pg_catalog.format(' IN DATABASE %I', d.datname), '') END,
          ' RESET session_replication_role') AS remedy
        FROM pg_catalog.pg_db_role_setting AS b
        LEFT JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) b.setdatabase
        LEFT JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) b.setrole
       WHERE 'session_replication_role=replica' OPERATOR(pg_catalog.=) ANY (b.setconfig)
         AND (d.oid IS NULL OR d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())) AS s`,
  ),
  'table.unlogged': names(
    `pg_catalog.format('ALTER TABLE %s SET LOGGED', ${relationName('k.oid')})`,
    // Beside an UNLOGGED table of the user, which is empty then too, ours may be one.
    `${COMPANIONS} WHERE k.relpersistence OPERATOR(pg_catalog.=) 'u' AND c.relpersistence OPERATOR(pg_catalog.<>) 'u'`,
  ),
  'table.granted': names(
    `pg_catalog.format('REVOKE INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER ON %s FROM PUBLIC', ${relationName('k.oid')})`,
    `${COMPANIONS} WHERE EXISTS (SELECT FROM pg_catalog.aclexplode(k.relacl) AS x WHERE x.grantee OPERATOR(pg_catalog.=) 0::pg_catalog.oid
        AND x.privilege_type OPERATOR(pg_catalog.=) ANY ('{INSERT,UPDATE,DELETE,TRUNCATE,TRIGGER}'))`,
  ),
  'table.rule': names(
    `pg_catalog.format('%I ON %s', w.rulename, ${relationName('w.ev_class')})`,
    `FROM pg_catalog.pg_rewrite AS w WHERE w.rulename OPERATOR(pg_catalog.<>) '_RETURN'
        AND (w.ev_class OPERATOR(pg_catalog.=) c.oid OR w.ev_class OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT k.oid ${COMPANIONS})))`,
  ),
  'rows.hidden': 'pg_catalog.row_security_active(c.oid)::pg_catalog.int4',
  'table.partitioned':
    '(SELECT pg_catalog.count(*) FROM pg_catalog.pg_partition_tree(c.oid) AS p WHERE p.isleaf AND p.level OPERATOR(pg_catalog.>) 0)',
}

/** A pattern of PL/pgSQL that assigns to a column. A comparison stands behind another word. */
const assignmentOf = (column: string): string =>
  `(?:^|;|\\mbegin|\\mthen|\\melse)\\s*new\\."?${column.replaceAll(/[^\p{L}\p{N}_]/gu, '\\$&')}"?\\s*:?=`

// Not jsonb, which would put the findings in another order.
const SURROUNDINGS = `SELECT pg_catalog.json_build_object(
    'partitioned', c.relkind OPERATOR(pg_catalog.=) 'p',
    'heapBytes', ${SIZE('pg_table_size')},
    'indexBytes', ${SIZE('pg_indexes_size')},
    'found', pg_catalog.json_build_object(${Object.entries(FOUND_BY_QUERY)
      .map(([code, query]) => `${literal(code)}, ${query}`)
      .join(',\n      ')}),
    'referrers', (SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
        'table', ${relationName('f.conrelid')}, 'columns', (SELECT ${attributeNames('f.conkey', 'f.conrelid')}),
        'refersTo', (SELECT ${attributeNames('f.confkey', 'c.oid')}), 'indexed', ${INDEXED}) ORDER BY f.oid), '[]')
      FROM pg_catalog.pg_constraint AS f
      JOIN pg_catalog.pg_class AS o ON o.oid OPERATOR(pg_catalog.=) f.conrelid AND ${isTrustedBy('o', 'c')}
      WHERE f.confrelid OPERATOR(pg_catalog.=) c.oid AND f.contype OPERATOR(pg_catalog.=) 'f'
        AND f.conparentid OPERATOR(pg_catalog.=) 0),
    'oldestSeconds', (SELECT pg_catalog.floor(pg_catalog.date_part('epoch',
        pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.min(s.xact_start)))
      FROM pg_catalog.pg_stat_activity AS s
      WHERE s.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
        AND s.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
        AND s.xact_start IS NOT NULL AND (s.state OPERATOR(pg_catalog.=) 'idle') IS NOT TRUE)
  )::pg_catalog.text AS state
  FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)`

/**
 * Reads the catalog about one table.
 *
 * @param relation the name of the table as SQL
 * @param beside `references`: names of columns that look like references to it, in lower case and without underscores;
 * `companions`: tables as SQL whose rows belong to its rows; `triggers` of its declarations; `others`: tables as SQL
 * that must be in the same place
 * @returns undefined if there is no such table
 */
export async function readSurroundings(
  query: Query,
  relation: string,
  beside: Readonly<
    Partial<Record<'references' | 'companions' | 'triggers' | 'texts' | 'others', readonly string[]>>
  > & {
    /** What the catalog says of the place of the rows, if the caller has read it. */
    readonly place?: CatalogSpread
  } = {},
): Promise<Surroundings | undefined> {
  const { references = [], companions = [], triggers = [], texts = [], others = [] } = beside
  const values = [relation, references, companions, triggers, texts.map(assignmentOf)]
  const [row] = (await query(SURROUNDINGS, values)) as readonly { state: string }[]
  if (!row) return undefined
  const place = beside.place ?? { citus: await hasCitus(query), partitionedBy: [] }
  const spread = await spreadOf(query, relation, place, others)
  return { ...(JSON.parse(row.state) as Omit<Surroundings, 'spread'>), spread }
}

/**
 * @param name the name in the form that a user writes in SQL
 * @returns the table's name as SQL with its schema; undefined if there is none
 */
export async function relationNamed(query: Query, name: string): Promise<string | undefined> {
  const rows = (await query(
    `SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) AS name
       FROM pg_catalog.pg_class AS c
       JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
      WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)`,
    [name],
  )) as readonly { readonly name: string }[]
  return rows[0]?.name
}
