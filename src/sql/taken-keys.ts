import { literal, qualified, quote } from './identifier'
import type { UnusualIndex } from './catalog'
import type { Statement } from './statements'
import { field } from './text-table'

interface WantedKey {
  readonly columns: readonly string[]
  /** @default an ordinary one */
  readonly index?: UnusualIndex | undefined
}

/** A table, and those of its primary key and ordinary unique columns that rows bring; database names. */
export interface WantedKeys {
  readonly schema: string | undefined
  readonly table: string
  readonly primary: readonly string[]
  readonly keys: readonly WantedKey[]
  /** Rows that stand shall be changed: what a change leaves out is read from them. */
  readonly standing: boolean
}

/** A value that a row cannot have. */
export interface TakenKey {
  /** 0-based position among the keys, and of the row among those that bring it. */
  readonly key: number
  readonly index: number
  /** Primary key of the row that has it; undefined: an earlier row of the call has. */
  readonly holder: readonly unknown[] | undefined
}

/**
 * Which ordinary keys are taken, by a stored row or by an earlier row of the call. NULL is never taken.
 *
 * Parameters, for each key: a JSON array of the rows that bring it, by column names, every value as text; of rows that
 * stand of `{ "key": …, "set": … }`.
 */
export function takenKeysStatement(wanted: WantedKeys): Statement<TakenKey> {
  return {
    name: '',
    sql: wanted.keys.map((key, nth) => keyArm(wanted, key, nth)).join('\nUNION ALL\n'),
    parse: ([key, ordinal, ...holder]) => ({
      key: Number(key),
      index: Number(ordinal) - 1,
      holder: holder.includes(null) ? undefined : holder,
    }),
  }
}

function keyArm({ schema, table, primary, standing }: WantedKeys, key: WantedKey, nth: number): string {
  const name = qualified(schema, table)
  const rows = (as: string): string =>
    `pg_catalog.jsonb_array_elements($${nth + 1}::pg_catalog.text::pg_catalog.jsonb) WITH ORDINALITY AS ${as} (value, ordinal)`
  const filled = (base: string, value: string): string => `pg_catalog.jsonb_populate_record(${base}, ${value})`
  const part = (of: string, what: string): string => `${of}.value OPERATOR(pg_catalog.->) '${what}'`
  const same = (columns: readonly string[], left: string, right: string): string =>
    columns.map((column) => `${field(left, column)} = ${field(right, column)}`).join(' AND ')
  const given = standing
    ? `CROSS JOIN LATERAL ${filled(`NULL::${name}`, part('e', 'key'))} AS k
  JOIN ${name} AS r ON ${same(primary, 'r', 'k')}
  CROSS JOIN LATERAL ${filled('r', part('e', 'set'))} AS n`
    : `CROSS JOIN LATERAL ${filled(`NULL::${name}`, 'e.value')} AS n`
  // A row that this change, or an earlier one of the call, gives another value has the old one no longer.
  const stays = `\n      AND NOT EXISTS (SELECT FROM ${rows('x')}
        CROSS JOIN LATERAL ${filled(`NULL::${name}`, part('x', 'key'))} AS q
        WHERE x.ordinal <= e.ordinal AND ${same(primary, 'q', 't')})`
  const { values, join, held } = key.index ? unusual(key.index, standing) : ordinary(key.columns)
  return `SELECT ${nth} AS key, s.ordinal, ${primary.map((_, index) => `s.k${index}`).join(', ')}
FROM (
  SELECT e.ordinal, ${primary.map((_, index) => `h.k${index}`).join(', ')},
    h.found OR e.ordinal > min(e.ordinal) OVER (PARTITION BY ${values.join(', ')}) AS taken
  FROM ${rows('e')}
  ${given}${join}
  LEFT JOIN LATERAL (
    SELECT true AS found, ${primary.map((column, index) => `${field('t', column)} AS k${index}`).join(', ')}
    FROM ${name} AS t
    WHERE ${held.join(' AND ')}${standing ? stays : ''}
    LIMIT 1
  ) AS h ON true
  WHERE ${values.map((value) => `${value} IS NOT NULL`).join(' AND ')}
) AS s
WHERE s.taken`
}

/** What the new row `n` has under a key, and that the stored row `t` has it. */
interface KeyParts {
  readonly values: readonly string[]
  readonly join: string
  readonly held: readonly string[]
}

const ordinary = (columns: readonly string[]): KeyParts => ({
  values: columns.map((column) => field('n', column)),
  join: '',
  held: columns.map((column) => `${field('t', column)} = ${field('n', column)}`),
})

/** The server's words name columns alone: they are those of the innermost FROM. */
function unusual({ keys, condition, reads }: UnusualIndex, standing: boolean): KeyParts {
  const columns = Object.entries(reads).map(([column, value]) =>
    standing || value === null
      ? field('n', column)
      : `CASE WHEN e.value OPERATOR(pg_catalog.?) ${literal(column)} THEN ${field('n', column)} ELSE ${value} END AS ${quote(column)}`,
  )
  const expressions = keys.map((key, index) => `(${key}) AS x${index}`)
  return {
    values: keys.map((_, index) => `v.x${index}`),
    join: `
  CROSS JOIN LATERAL (
    SELECT ${expressions.join(', ')} FROM (SELECT ${columns.join(', ')}) AS i WHERE ${condition ?? 'true'}
  ) AS v`,
    held: [`(${condition ?? 'true'})`, ...keys.map((key, index) => `(${key}) = v.x${index}`)],
  }
}
