import type { ColumnOptions } from 'typeorm'
import type { RawDeclaration } from './options'
import type { ColumnMetadata } from './registry'

/** Found in no entity, in no select and in no insert; in DDL and in `where` it is a column like any other. */
export const HIDDEN: ColumnOptions = { select: false, insert: false, update: false }

/** On the arguments that the decorator gives TypeORM, to tell them from a user's own column. */
export const HIDDEN_MARK: unique symbol = Symbol.for('typeorm-unique-text.hidden')

/**
 * Comments that explain the columns to somebody who finds them in the database without an entity. TypeORM compares
 * comments too.
 */
export function hiddenColumns({
  name,
  digest,
  hidden,
}: RawDeclaration): { property: string; options: ColumnOptions }[] {
  const column = (given: string | undefined, what: string): ColumnOptions => ({
    ...HIDDEN,
    ...(given === undefined ? {} : { name: given }),
    comment: `typeorm-unique-text: ${what}; maintained by the guard, do not write it.`,
  })
  const hash = column(hidden.hash, `hash of "${name}"`)
  const number = column(hidden.number, `0, or 1 and more where another "${name}" has the same hash`)
  const chained = column(hidden.chained, `others have, or had, the same hash of "${name}"`)
  return [
    { property: `${name}Hash`, options: { ...hash, type: digest.type } },
    { property: `${name}HashNumber`, options: { ...number, type: 'integer', default: 0 } },
    { property: `${name}HashChained`, options: { ...chained, type: 'boolean', default: false } },
  ]
}

/** For a name made to fit: TypeORM would let Postgres cut it, and then find a difference. */
export function nameColumn(column: ColumnMetadata, name: string): void {
  // A naming strategy may change names that are given as well, and would do so again.
  if (column.databaseName === name) return
  column.databaseName = name
  // TypeORM builds the columns of some entities a second time, from this.
  column.givenDatabaseName = name
  column.databasePath = name
  column.databaseNameWithoutPrefixes = name
}
