import { type ColumnOptions, type EntityMetadata, getMetadataArgsStorage } from 'typeorm'
import { DeclarationError } from '../errors'
import type { RawDeclaration } from '../registry/options'
import { type ColumnMetadata, type Declaration, tableDeclarations, tableNames } from '../registry/registry'

/**
 * A hidden column takes the place of a property with its name without a word, for TypeORM keeps the first column of a
 * name; and two columns with one name in the database are one.
 *
 * @throws DeclarationError
 */
export function forbidTakenNames({ metadata, name, hidden, table }: Declaration): void {
  const { columns, relations } = getMetadataArgsStorage()
  const classes = new Set<unknown>(metadata.inheritanceTree)
  const own = [...columns, ...relations].filter((args) => classes.has(args.target) && !(HIDDEN_MARK in args))
  const names = new Set([table.hash, table.number, table.chained])
  for (const { propertyName } of hidden) {
    if (own.some((args) => args.propertyName === propertyName)) {
      throw new DeclarationError(
        `@UniqueText on ${metadata.name}.${name}: it needs the property name "${propertyName}" for a hidden column. ` +
          `Rename your property of that name.`,
      )
    }
  }
  if (names.size < hidden.length) {
    throw new DeclarationError(
      `@UniqueText on ${metadata.name}.${name}: two of its hidden columns have one name. ` +
        `Pass the option "hidden" with three names.`,
    )
  }
  const taken = metadata.columns.find((column) => names.has(column.databaseName) && !hidden.includes(column))
  if (taken) {
    throw new DeclarationError(
      `@UniqueText on ${metadata.name}.${name}: it needs the name "${taken.databaseName}" for a hidden column, which ` +
        `"${taken.propertyPath}" has. Rename that column, or pass the option "hidden" with other names.`,
    )
  }
}

/**
 * @param where names the declaration in an error: `@UniqueText on Page.url`
 * @throws DeclarationError for a column that another text or name has
 */
export function forbidSharedColumns(where: string, metadata: EntityMetadata, columns: readonly ColumnMetadata[]): void {
  const others = [
    ...tableDeclarations(metadata).flatMap(({ text }) => text),
    ...tableNames(metadata).map(({ text }) => text),
  ]
  const shared = columns.find((one) => others.some(({ column }) => column === one))
  if (!shared) return
  throw new DeclarationError(
    `${where}: another declaration has the column "${shared.propertyPath}". Remove one of them.`,
  )
}

/** Longer keys may not fit: a btree holds 2704 bytes, and a character of UTF-8 takes up to 4. */
const INDEXED_CHARACTERS = 650

interface Keyed {
  readonly name: string
  readonly columns: readonly ColumnMetadata[]
}

/** Those whose texts may not fit into a btree. */
const longColumns = (text: Declaration['text']): ColumnMetadata[] =>
  text
    .map(({ column }) => column)
    .filter((column) => !(Number(column.length) <= INDEXED_CHARACTERS && column.length !== ''))

/**
 * Another btree over the text would refuse the long ones ("index row size exceeds btree version 4 maximum 2704"), which
 * is what this package is there to avoid. One with a condition, of another type or made by hand is the user's business.
 *
 * @throws DeclarationError
 */
export function forbidOtherIndexes({ metadata, name, text }: Declaration): void {
  const long = longColumns(text)
  const indexes: readonly Keyed[] = metadata.indices.filter((index) => !index.where && isBtree(index))
  const primary: Keyed = { name: 'the primary key', columns: metadata.primaryColumns }
  const other = [...indexes, ...metadata.uniques, primary].find(({ columns }) =>
    columns.some((one) => long.includes(one)),
  )
  if (!other) return
  throw new DeclarationError(
    `@UniqueText on ${metadata.name}.${name}: the text is also in the btree of ${other.name}, which refuses long texts. ` +
      `Remove "unique", @Unique, @Index or @PrimaryColumn from it, or give it a length of at most ${INDEXED_CHARACTERS}.`,
  )
}

/**
 * A foreign key needs a unique btree over what it refers to. The metadata of other entities cannot be read while it is
 * being built, so this reads what their decorators said.
 *
 * @throws DeclarationError
 */
export function forbidForeignKeys({ metadata, name, text }: Declaration): void {
  const { joinColumns, relations } = getMetadataArgsStorage()
  const properties = new Set(longColumns(text).map(({ propertyName }) => propertyName))
  const classes = new Set<unknown>(metadata.inheritanceTree)
  const refersHere = ({ type, options }: (typeof relations)[number]): boolean =>
    options.createForeignKeyConstraints !== false &&
    classes.has(typeof type === 'function' ? (type as () => unknown)() : undefined)
  for (const { target, propertyName, referencedColumnName = '' } of joinColumns) {
    if (!properties.has(referencedColumnName)) continue
    const relation = relations.find((one) => one.target === target && one.propertyName === propertyName)
    if (!relation || !refersHere(relation)) continue
    throw new DeclarationError(
      `@UniqueText on ${metadata.name}.${name}: the foreign key of "${propertyName}" refers to the text, and would need ` +
        `another unique index over it, which refuses long texts. Refer to the primary key, or pass ` +
        `{ createForeignKeyConstraints: false } to the relation.`,
    )
  }
}

/** TypeORM 0.3 knows no types of indexes, apart from `spatial`; of `fulltext` Postgres hears nothing. */
function isBtree(index: object): boolean {
  const { type, isSpatial } = index as { type?: string; isSpatial?: boolean }
  return (type === undefined || type === 'btree') && isSpatial !== true
}

/** Found in no entity, in no select and in no insert; in DDL and in `where` it is a column like any other. */
const HIDDEN: ColumnOptions = { select: false, insert: false, update: false }

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
  guard,
}: RawDeclaration): { property: string; options: ColumnOptions }[] {
  const column = (given: string | undefined, what: string): ColumnOptions => ({
    ...HIDDEN,
    ...(given === undefined ? {} : { name: given }),
    comment: `typeorm-unique-text: ${what}`,
  })
  const guarded = '; maintained by the guard, do not write it.'
  const hash = column(
    hidden.hash,
    `hash of "${name}"${guard ? guarded : ', to be written with it: no guard makes it.'}`,
  )
  const number = column(hidden.number, `0, or 1 and more where another "${name}" has the same hash${guarded}`)
  const chained = column(hidden.chained, `others have, or had, the same hash of "${name}"${guarded}`)
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
