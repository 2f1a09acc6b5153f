import { DeclarationError } from '../errors'
import { attributeNames, isTrustedBy, type Query, readJson } from '../sql/catalog'
import { literal, quote } from '../sql/identifier'
import { EQUALS, field, tableName } from '../sql/text-table'
import { AdoptionError } from './session'
import { type AdoptedTable, own, samePrimary } from './table'

/** The columns by which the rows of a table refer to the rows that are merged. */
export interface Reference {
  readonly schema: string
  readonly table: string
  /** In the order of the columns that they refer to. */
  readonly columns: readonly string[]
  readonly referenced: readonly string[]
  /** The primary key of the referring table. */
  readonly key: readonly string[]
  /** The operators by which the referenced columns equal `columns`. If undefined, those of `pg_catalog`. */
  readonly operators?: readonly string[] | undefined
  /** Whether the table refers to itself. */
  readonly own: boolean
  /** Why a person could not restore a turned reference exactly. Rows with such references are left. */
  readonly obstacle: string | undefined
  /** Only rows that hold this value refer to the table. */
  readonly when?: { readonly column: string; readonly value: string } | undefined
}

/** A reference as the catalog describes it. */
type Found = Omit<Reference, 'obstacle'> & {
  readonly inherited: boolean
  /** Columns whose change changes rows of other tables, by ON UPDATE CASCADE, SET NULL or SET DEFAULT. */
  readonly followed: readonly string[]
  /** Columns of a named reference whose type has an equality of its own, as citext does. */
  readonly alike?: readonly string[]
}

/** The members of a `Found` about the referring table `r` in the schema `n`. */
const REFERRING = `'schema', n.nspname, 'table', r.relname, 'key', (SELECT ${attributeNames(
  `(SELECT p.conkey FROM pg_catalog.pg_constraint AS p WHERE p.conrelid OPERATOR(pg_catalog.=) r.oid AND p.contype OPERATOR(pg_catalog.=) 'p')`,
  'r.oid',
)}),
        'inherited', r.relkind OPERATOR(pg_catalog.=) 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits AS h WHERE h.inhparent OPERATOR(pg_catalog.=) r.oid),
        'followed', (SELECT coalesce(pg_catalog.jsonb_agg(a.attname), '[]') FROM pg_catalog.pg_constraint AS f
          JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) f.confrelid AND a.attnum OPERATOR(pg_catalog.=) ANY (f.confkey)
         WHERE f.contype OPERATOR(pg_catalog.=) 'f' AND f.confupdtype OPERATOR(pg_catalog.=) ANY ('{c,n,d}')
           AND (f.confrelid OPERATOR(pg_catalog.=) r.oid OR EXISTS (
             SELECT FROM pg_catalog.pg_partition_tree(r.oid) AS p WHERE p.relid OPERATOR(pg_catalog.=) f.confrelid)))`

/** Finds the foreign keys that refer to the table $1: of any action, a partition's only as its parent's. */
const FIND_FOREIGN_KEYS = `SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(${REFERRING},
        'trusted', ${isTrustedBy('r', 't')}, 'own', c.conrelid OPERATOR(pg_catalog.=) c.confrelid,
        'columns', (SELECT ${attributeNames('c.conkey', 'c.conrelid')}), 'referenced', (SELECT ${attributeNames('c.confkey', 'c.confrelid')}), 'operators', (
          SELECT pg_catalog.jsonb_agg(pg_catalog.format('OPERATOR(%I.%s)', s.nspname, o.oprname) ORDER BY k.i)
            FROM pg_catalog.unnest(c.conpfeqop) WITH ORDINALITY AS k (n, i)
            JOIN pg_catalog.pg_operator AS o ON o.oid OPERATOR(pg_catalog.=) k.n
            JOIN pg_catalog.pg_namespace AS s ON s.oid OPERATOR(pg_catalog.=) o.oprnamespace)) ORDER BY c.oid), '[]')::pg_catalog.text AS state
  FROM pg_catalog.pg_constraint AS c
  JOIN pg_catalog.pg_class AS t ON t.oid OPERATOR(pg_catalog.=) c.confrelid
  JOIN pg_catalog.pg_class AS r ON r.oid OPERATOR(pg_catalog.=) c.conrelid
  JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) r.relnamespace
 WHERE c.confrelid OPERATOR(pg_catalog.=) $1::pg_catalog.oid AND c.contype OPERATOR(pg_catalog.=) 'f' AND c.conparentid OPERATOR(pg_catalog.=) 0`

/** Finds the table $1, its columns, and those whose type has an equality of its own, as citext does. */
const FIND_TABLE = `SELECT pg_catalog.jsonb_build_object(${REFERRING}, 'names', (
         SELECT pg_catalog.jsonb_agg(a.attname) FROM pg_catalog.pg_attribute AS a
          WHERE a.attrelid OPERATOR(pg_catalog.=) r.oid AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped),
        'alike', (
         SELECT coalesce(pg_catalog.jsonb_agg(a.attname), '[]') FROM pg_catalog.pg_attribute AS a
           JOIN pg_catalog.pg_type AS y ON y.oid OPERATOR(pg_catalog.=) a.atttypid
           JOIN pg_catalog.pg_operator AS o ON o.oprleft OPERATOR(pg_catalog.=) CASE y.typbasetype WHEN 0 THEN y.oid ELSE y.typbasetype END
            AND o.oprright OPERATOR(pg_catalog.=) o.oprleft AND o.oprname OPERATOR(pg_catalog.=) '='
            AND o.oprnamespace OPERATOR(pg_catalog.<>) 'pg_catalog'::pg_catalog.regnamespace
          WHERE a.attrelid OPERATOR(pg_catalog.=) r.oid AND y.typnamespace OPERATOR(pg_catalog.<>) 'pg_catalog'::pg_catalog.regnamespace))::pg_catalog.text AS found
  FROM pg_catalog.pg_class AS r
  JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) r.relnamespace
 WHERE r.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)`

/**
 * Reads the references that a merge turns: those of foreign keys, and those that a person names.
 *
 * @throws AdoptionError if a referring owner may not act as the table's: its triggers would run as the merging role
 * @throws DeclarationError if a person names no column that refers to the table
 */
export async function findReferences(
  query: Query,
  on: AdoptedTable,
  oid: string,
  named: readonly string[],
): Promise<Reference[]> {
  const keys = await readJson<(Found & { readonly trusted: boolean })[]>(query, FIND_FOREIGN_KEYS, [oid])
  const references: Reference[] = keys.map(({ trusted, ...found }) => {
    if (trusted) return { ...found, obstacle: obstacleOf(on, found) }
    throw new AdoptionError(
      'unsupported',
      `The owner of ${tableName(found)} may not act as the owner of the table that it refers to: its triggers would ` +
        `run as the role that merges. See who made it; then drop its foreign key, or change its owner.`,
    )
  })
  for (const name of named) references.push(await namedReference(query, on, name))
  return references
}

function obstacleOf(
  { primary }: AdoptedTable,
  { table, columns, referenced, key, inherited, followed, alike = [], when }: Found,
): string | undefined {
  if (columns.length > 1) return `${table} refers to it by several columns`
  if (primary.length > 1 || referenced[0] !== primary[0])
    return `${table} refers to another column than its primary key`
  if (key.length === 0) return `${table} refers to it and has no primary key`
  if (columns.some((name) => followed.includes(name)))
    return `${table} refers to it by a column whose foreign keys have an ON UPDATE action`
  const other = [...columns, when?.column ?? ''].find((name) => alike.includes(name))
  if (other !== undefined) return `the type of "${other}" has an equality of its own. Change the column to text`
  return inherited ? `${table} refers to it and has tables that inherit from it` : undefined
}

/** `table.column`, and a condition on its rows. */
const NAMED_REFERENCE = /^(?<path>.+?)(?:\s+where\s+(?<column>[^\s=]+)\s*=\s*'(?<value>(?:[^']|'')*)')?$/iu

/** A reference without a foreign key. */
async function namedReference(query: Query, on: AdoptedTable, name: string): Promise<Reference> {
  const { path, schema, table, column, when } = parseReference(name, on)
  const [row] = (await query(FIND_TABLE, [tableName({ schema, table })])) as readonly { found: string }[]
  const found = row && (JSON.parse(row.found) as Found & { readonly names: readonly string[] })
  if (!found?.names.includes(column) || !found.names.includes(when?.column ?? column) || on.primary.length !== 1) {
    throw new DeclarationError(
      `"${path}" must name a column that refers to a primary key of one column. Write table.column, or ` +
        `table.column where kind = 'page'.`,
    )
  }
  const stem = column.replace(/_?id$/iu, '')
  const kind = [`${stem}_type`, `${stem}Type`].find((one) => found.names.includes(one))
  if (kind !== undefined && !when) {
    throw new DeclarationError(
      `"${path}" may refer to several tables: there is a column "${kind}". Write which rows refer to this one: ` +
        `${path} where ${kind} = '…'.`,
    )
  }
  const isOwn = schema === on.table.schema && table === on.table.table
  const reference = { ...found, own: isOwn, columns: [column], referenced: on.primary, when }
  const obstacle = obstacleOf(on, reference)
  if (obstacle === undefined) return { ...reference, obstacle }
  throw new DeclarationError(`The references of "${path}" cannot be turned: ${obstacle}.`)
}

function parseReference(name: string, on: AdoptedTable) {
  const { path = '', column: by, value = '' } = NAMED_REFERENCE.exec(name)?.groups ?? {}
  const [column = '', table = '', schema = on.table.schema] = path.split('.').reverse()
  const when = by === undefined ? undefined : { column: by, value: value.replaceAll("''", "'") }
  return { path, schema, table, column, when }
}

/** The condition of a named reference. The server reads the value as one of the column's type. */
export const holds = ({ when }: Pick<Reference, 'when'>, row: string): string[] =>
  when ? [`${field(row, when.column)} OPERATOR(pg_catalog.=) ${literal(when.value)}`] : []

/** A value as its type's output function returns it. Another role may own a cast. */
export const shown = (value: string): string =>
  `CASE WHEN pg_catalog.num_nulls(${value}) OPERATOR(pg_catalog.=) 0 THEN pg_catalog.concat(${value}) END`

/**
 * The statements of a merge on pairs of rows, which are parameters: their places $1, the keys `k0`, … of the rows to
 * delete, and `p0`, … of the rows to keep.
 */
export class MergeStatements {
  private readonly pairs: string
  /** The pair's row to delete, as `l`. */
  private readonly withDeleted: string
  /** The pair's row to keep, as `t`. */
  private readonly andKept: string

  /** @param types the types of the primary key's columns, as SQL */
  constructor(
    private readonly on: AdoptedTable,
    types: readonly string[],
    private readonly references: readonly Reference[],
  ) {
    const keys = [...types, ...types].map((type, index) => `pg_catalog.unnest($${index + 2}::${type}[])`)
    const names = ['k', 'p'].flatMap((letter) => types.map((_, index) => `${letter}${index}`))
    this.pairs = `ROWS FROM (pg_catalog.unnest($1::pg_catalog.int8[]), ${keys.join(', ')}) AS w (place, ${names.join(', ')})`
    this.withDeleted = `${this.pairs} JOIN ONLY ${tableName(on.table)} AS l ON ${samePrimary(on, 'w.k', 'l')}`
    this.andKept = `JOIN ${own(on)} ON ${samePrimary(on, 'w.p')}`
  }

  /** Selects pairs whose rows `l` and `t` exist and meet the conditions. */
  see(conditions: readonly string[]): string {
    return `SELECT w.place::pg_catalog.text AS place FROM ${this.withDeleted} ${this.andKept} WHERE ${[...conditions, 'true'].join(' AND ')}`
  }

  /** Selects pairs that cannot be merged exactly, with the reasons. Empty if all can. */
  findObstacles(): string {
    const found = this.references.map((one) => {
      if (one.obstacle !== undefined) return this.findReferring(one)
      if (!one.own) return ''
      const itself = one.columns.map((name) => `${field('t', name)} OPERATOR(pg_catalog.=) w.k0`)
      return `SELECT w.place::pg_catalog.text AS place, 'it would refer to itself' AS reason FROM ${this.pairs} ${this.andKept} WHERE ${[...itself, ...holds(one, 't')].join(' AND ')}`
    })
    return found.filter(Boolean).join('\nUNION ALL ')
  }

  /** Selects pairs whose row to delete is still referred to, with the reasons. Empty if nothing can refer. */
  findLeft(): string {
    return this.references.map((one) => this.findReferring(one)).join('\nUNION ALL ')
  }

  private findReferring(one: Reference): string {
    const { table, columns, referenced, operators, obstacle } = one
    const pairs = columns.map((name, index) => [field('r', name), field('l', referenced[index] ?? '')] as const)
    const spelled = pairs.map(
      ([left, right]) => `pg_catalog.concat(${left}) OPERATOR(pg_catalog.<>) pg_catalog.concat(${right})`,
    )
    const reason =
      obstacle === undefined
        ? `CASE WHEN ${spelled.join(' OR ')} THEN ${literal(`${table} spells the key otherwise`)} ELSE ${literal(`a trigger undoes references of ${table}`)} END`
        : literal(obstacle)
    // The operators of the foreign key, because a reference that another one misses would be deleted by a cascade.
    const same = pairs.map(([left, right], index) => `${right} ${operators?.[index] ?? EQUALS} ${left}`)
    const on = [...same, ...holds(one, 'r')]
    return `SELECT w.place::pg_catalog.text AS place, ${reason} AS reason FROM ${this.withDeleted} JOIN ${tableName(one)} AS r ON ${on.join(' AND ')}`
  }

  /** Turns references to the rows to keep. Returns the key `c0`, … of each row, the `old` and the `new` value, and the `kept` key. */
  turn(one: Reference): string {
    const [name = ''] = one.columns
    const value = field('r', name)
    const where = [
      `${value} OPERATOR(pg_catalog.=) w.k0`,
      `pg_catalog.concat(${value}) OPERATOR(pg_catalog.=) pg_catalog.concat(w.k0)`,
      ...holds(one, 'r'),
    ]
    const key = one.key.map((column, index) => `${shown(field('r', column))} AS c${index}`)
    return `WITH u AS (UPDATE ${tableName(one)} AS r SET ${quote(name)} = w.p0 FROM ${this.pairs} WHERE ${where.join(' AND ')}
  RETURNING ${key.join(', ')}, pg_catalog.concat(w.k0) AS old, ${shown(value)} AS new, pg_catalog.concat(w.p0) AS kept)
SELECT u.* FROM u`
  }

  /** Deletes rows. Returns their values `c0`, … of the columns, and the transaction. */
  remove(columns: readonly string[]): string {
    const values = columns.map((name, index) => `${shown(field('t', name))} AS c${index}`)
    const kept = this.on.primary.map((_, index) => `pg_catalog.concat(w.p${index}) AS p${index}`)
    return `WITH d AS (DELETE FROM ${own(this.on)} USING ${this.pairs} WHERE ${samePrimary(this.on, 'w.k')}
  RETURNING ${[...values, ...kept].join(', ')}, pg_catalog.pg_current_xact_id()::pg_catalog.text AS transaction)
SELECT d.* FROM d`
  }
}
