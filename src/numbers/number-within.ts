import { type ColumnOptions, type EntitySchemaOptions, getMetadataArgsStorage } from 'typeorm'
import { DeclarationError } from '../errors'
import { attachNumber, type NumberWithinOptions, type RawNumber, toRawNumber } from '../declare/attach-number'
import { declareColumn, isPlain, requireCall, requireLegacy } from '../declare/text-decorator'

const DECORATOR = '@NumberWithin'

/** A PropertyDecorator for what can be a number; TypeORM gives a bigint as a string. */
type NumberDecorator = <Target extends object, Name extends string | symbol>(
  target: Target,
  property: Name extends keyof Target
    ? NonNullable<Target[Name]> extends number | bigint | string
      ? Name
      : never
    : Name,
) => void

/**
 * Numbers the rows of each scope: a new row gets the highest number there plus 1, or 1. There is no sequence, and a
 * rollback leaves no gap. It is also the column decorator, of an integer; a `@Column` of type bigint or smallint may
 * stand beside it, in either order.
 *
 * A number that is given is kept. A row that moves to another scope gets the next number there.
 *
 * @throws DeclarationError when the class is defined, for options that make no sense, and when the DataSource is
 * initialised, for what contradicts the entity
 * @example
 * ```ts
 * @Entity()
 * class Comment {
 *   @PrimaryGeneratedColumn('identity') id!: number
 *   @Column({ type: 'integer' }) post!: number
 *   @NumberWithin({ scope: ['post'], count: true }) number!: number
 * }
 * ```
 */
export function NumberWithin(options: NumberWithinOptions = {}, ...applied: unknown[]): NumberDecorator {
  requireCall(DECORATOR, options, applied)
  return (target: object, property: unknown): void => {
    requireLegacy(DECORATOR, property)
    if (typeof property !== 'string') {
      throw new DeclarationError(`${DECORATOR}: it belongs on a property with a name, and makes a column of it.`)
    }
    const { constructor } = target
    const raw = toRawNumber(`${DECORATOR} on ${constructor.name}.${property}`, property, options)
    declareColumn(DECORATOR, constructor, property, (beside) => numberOptions(options, beside))
    getMetadataArgsStorage().indices.push({ target: constructor, unique: true, columns: door(raw) })
  }
}

/**
 * What `@NumberWithin` does, for EntitySchema options: plain JavaScript has no decorators.
 *
 * @param numbers the options of each property that is such a number
 * @returns new options for `new EntitySchema(…)`; what was passed is left unchanged
 * @throws DeclarationError as the decorator does
 * @example
 * ```js
 * const Comment = new EntitySchema(
 *   numberWithinSchema(
 *     { name: 'Comment', columns: { id: { type: Number, primary: true, generated: true }, post: { type: Number } } },
 *     { number: { scope: ['post'] } },
 *   ),
 * )
 * ```
 */
export function numberWithinSchema<T>(
  schema: EntitySchemaOptions<T>,
  numbers: Readonly<Record<string, NumberWithinOptions>>,
): EntitySchemaOptions<T> {
  if (![schema, numbers].every(isPlain)) {
    throw new DeclarationError(
      `numberWithinSchema() takes the options of an EntitySchema, and an object with the numbers: { number: { scope: ['post'] } }.`,
    )
  }
  const columns: Record<string, unknown> = { ...schema.columns }
  const indices = [...(schema.indices ?? [])]
  for (const [property, options] of Object.entries(numbers)) {
    const raw = toRawNumber(`${DECORATOR} on ${schema.name}.${property}`, property, options)
    columns[property] = numberOptions(options, columns[property] as ColumnOptions | undefined)
    indices.push({ unique: true, columns: door(raw) })
  }
  return Object.assign({}, schema, { columns: columns as EntitySchemaOptions<T>['columns'], indices })
}

const numberOptions = ({ name }: NumberWithinOptions, beside: ColumnOptions = { type: 'integer' }): ColumnOptions => ({
  ...beside,
  ...(name === undefined ? {} : { name }),
})

/** Not an arrow function: TypeORM calls it as a method of its IndexMetadata. */
const door = (raw: RawNumber): (() => string[]) =>
  function number(this: object): string[] {
    return attachNumber(this, raw)
  }
