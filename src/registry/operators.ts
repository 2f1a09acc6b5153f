import { FindOperator } from 'typeorm'
import { DeclarationError } from '../errors'

const TEXTS: unique symbol = Symbol.for('typeorm-unique-text.texts')

/** Becomes an equality with hash when TypeORM makes a query of it; what no query builder of ours has seen must not run. */
class TextOperator<Text> extends FindOperator<Text> {
  readonly [TEXTS]: readonly Text[]

  constructor(texts: readonly Text[]) {
    super('raw', [] as never, true, true, (path) => {
      throw new DeclarationError(
        `textEquals() and textIn() are for a unique text, and "${path}" is not one here. Use Equal() or In().`,
      )
    })
    this[TEXTS] = texts
  }
}

/**
 * Equality with a unique text, as an operator for `find` and everything else that takes conditions. It looks by the
 * index also where `rewriteQueries` is off. The text is normalized; one that the normalizer refuses finds nothing.
 *
 * @throws DeclarationError without a text, and when the query is made, for a property that is no unique text, or one of
 * several columns of which the condition does not give all
 * @example
 * await pages.findOneBy({ url: textEquals('https://example.com') })
 */
export function textEquals<Text = string>(text: Text): FindOperator<Text> {
  if (text === undefined || text === null) {
    throw new DeclarationError(`textEquals() expects a text, got ${String(text)}. For rows without one, use IsNull().`)
  }
  return new TextOperator<Text>([text])
}

/**
 * Equality with any of several unique texts, as an operator for `find` and everything else that takes conditions. Texts
 * that the normalizer refuses count as if they were not in the list.
 *
 * @throws DeclarationError as `textEquals` does
 * @example
 * await pages.findBy({ url: textIn(['https://example.com', 'https://example.org']) })
 */
export function textIn<Text = string>(texts: readonly Text[]): FindOperator<Text> {
  if (!Array.isArray(texts) || texts.some((text) => text === undefined || text === null)) {
    throw new DeclarationError('textIn() expects a list of texts. Pass an array without null and undefined.')
  }
  return new TextOperator<Text>([...texts])
}

/** The texts of an operator that one of these made; undefined for anything else. */
export function operatorTexts(value: object): readonly unknown[] | undefined {
  return (value as { readonly [TEXTS]?: readonly unknown[] })[TEXTS]
}

const STORED: unique symbol = Symbol.for('typeorm-unique-text.stored')

/**
 * An operator whose values are as the database holds them. TypeORM would run the column's transformers over them again,
 * and over patterns and ranges too, which are no texts.
 */
class StoredOperator extends FindOperator<unknown> {
  readonly [STORED]: true = true

  override transformValue(): void {}
}

/** Looks for a mark, because an operator can be made by another copy of this package. */
export const isStored = (value: unknown): boolean => typeof value === 'object' && value !== null && STORED in value

export const storedEqual = (value: unknown): FindOperator<unknown> => new StoredOperator('equal', value)

/** Finds nothing where the list is empty. */
export const storedIn = (values: readonly unknown[]): FindOperator<unknown> =>
  new StoredOperator('in', values, true, true)

/** One parameter, whatever the length. */
export const storedAny = (values: readonly unknown[]): FindOperator<unknown> => new StoredOperator('any', values)

export const storedNot = (operand: FindOperator<unknown>): FindOperator<unknown> => new StoredOperator('not', operand)

/** `And` and `Or`. */
export const storedJunction = (type: 'and' | 'or', operands: readonly unknown[]): FindOperator<unknown> =>
  new StoredOperator(type, operands, true, true)

/** A copy of an operator with another value. */
export function storedCopy(operator: FindOperator<unknown>, value: unknown): FindOperator<unknown> {
  const { type, useParameter, multipleParameters, getSql, objectLiteralParameters } = operator
  return new StoredOperator(type, value, useParameter, multipleParameters, getSql, objectLiteralParameters)
}

export const storedRaw = (getSql: (aliasPath: string) => string): FindOperator<unknown> =>
  new StoredOperator('raw', [], true, true, getSql)
