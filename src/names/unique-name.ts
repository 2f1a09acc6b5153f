import { type EntitySchemaOptions, getMetadataArgsStorage } from 'typeorm'
import { DeclarationError } from '../errors'
import { attachName, type RawName, toRawName, type UniqueNameOptions } from '../declare/attach-name'
import {
  columnOptionsOf,
  declareTextColumn,
  isPlain,
  requireCall,
  requireLegacy,
  type TextDecorator,
} from '../declare/text-decorator'

const DECORATOR = '@UniqueName'

/**
 * Makes a property hold a name, which is unique in its namespace: among the rows of every entity that declares the same
 * namespace. It is also the column decorator; a `@Column` of type text or varchar may stand beside it, in either order.
 *
 * The names are kept in the table of {@link Name}, which must be among the entities of the DataSource.
 *
 * @throws DeclarationError when the class is defined, for options that make no sense, and when the DataSource is
 * initialised, for what contradicts the entity or another declaration of the namespace
 * @example
 * ```ts
 * @Entity()
 * class User {
 *   @PrimaryGeneratedColumn('identity') id!: number
 *   @UniqueName({ namespace: 'handle', normalize: lowerCase(), former: 'redirect' }) handle!: string
 * }
 * ```
 */
export function UniqueName(options: UniqueNameOptions, ...applied: unknown[]): TextDecorator {
  requireCall(DECORATOR, options, applied)
  return (target: object, property: unknown): void => {
    requireLegacy(DECORATOR, property)
    if (typeof property !== 'string') {
      throw new DeclarationError(`${DECORATOR}: it belongs on a property with a name, and makes a column of it.`)
    }
    const { constructor } = target
    const raw = toRawName(`${DECORATOR} on ${constructor.name}.${property}`, property, options)
    declareTextColumn(DECORATOR, constructor, property, columnOptionsOf(options))
    getMetadataArgsStorage().indices.push({ target: constructor, columns: door(raw) })
  }
}

/**
 * What `@UniqueName` does, for EntitySchema options: plain JavaScript has no decorators.
 *
 * @param names the options of each property that holds a name
 * @returns new options for `new EntitySchema(…)`; what was passed is left unchanged
 * @throws DeclarationError as the decorator does
 * @example
 * ```js
 * const User = new EntitySchema(
 *   uniqueNameSchema(
 *     { name: 'User', columns: { id: { type: Number, primary: true, generated: true } } },
 *     { handle: { namespace: 'handle' } },
 *   ),
 * )
 * ```
 */
export function uniqueNameSchema<T>(
  schema: EntitySchemaOptions<T>,
  names: Readonly<Record<string, UniqueNameOptions>>,
): EntitySchemaOptions<T> {
  if (![schema, names].every(isPlain)) {
    throw new DeclarationError(
      `uniqueNameSchema() takes the options of an EntitySchema, and an object with the names: { handle: { namespace: 'handle' } }.`,
    )
  }
  const columns: Record<string, unknown> = { ...schema.columns }
  const indices = [...(schema.indices ?? [])]
  for (const [property, options] of Object.entries(names)) {
    const raw = toRawName(`${DECORATOR} on ${schema.name}.${property}`, property, options)
    columns[property] = { type: 'text', ...(columns[property] as object | undefined), ...columnOptionsOf(options) }
    indices.push({ columns: door(raw) })
  }
  return Object.assign({}, schema, { columns: columns as EntitySchemaOptions<T>['columns'], indices })
}

/** Not an arrow function: TypeORM calls it as a method of its IndexMetadata. */
function door(raw: RawName): () => string[] {
  return function columns(this: object): string[] {
    return attachName(this, raw)
  }
}
