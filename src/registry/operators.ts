import { FindOperator } from 'typeorm'
import { DeclarationError } from '../errors'

const TEXTS: unique symbol = Symbol.for('typeorm-unique-text.texts')

/** Becomes an equality with a hash when TypeORM builds a query. It must not run if no query builder of ours saw it. */
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
 * Equality with a unique text, as an operator for `find` and everything else that takes conditions. It uses the index
 * even if `rewriteQueries` is off. The text is normalized. If the normalizer refuses it, nothing is found.
 *
 * @throws DeclarationError without a text. When the query is built, also for a property that is not a unique text, and
 * for one of several columns if the condition does not include all.
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
 * that the normalizer refuses are ignored.
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

/** Returns the texts of such an operator, or undefined for anything else. */
export function operatorTexts(value: object): readonly unknown[] | undefined {
  return (value as { readonly [TEXTS]?: readonly unknown[] })[TEXTS]
}

const STORED: unique symbol = Symbol.for('typeorm-unique-text.stored')

/**
 * An operator whose values are in their stored form. Otherwise, TypeORM would run the column's transformers over them
 * again, and over patterns and ranges, which are not texts.
 */
class StoredOperator extends FindOperator<unknown> {
  readonly [STORED]: true = true

  override transformValue(): void {}
}

/** Tests for a mark, because another copy of this package may have created the operator. */
export const isStored = (value: unknown): boolean => typeof value === 'object' && value !== null && STORED in value

export const storedEqual = (value: unknown): FindOperator<unknown> => new StoredOperator('equal', value)

/** Finds nothing if the list is empty. */
export const storedIn = (values: readonly unknown[]): FindOperator<unknown> =>
  new StoredOperator('in', values, true, true)

/** Sends one parameter for a list of any length. */
export const storedAny = (values: readonly unknown[]): FindOperator<unknown> => new StoredOperator('any', values)

export const storedNot = (operand: FindOperator<unknown>): FindOperator<unknown> => new StoredOperator('not', operand)

/** The operators `And` and `Or`. */
export const storedJunction = (type: 'and' | 'or', operands: readonly unknown[]): FindOperator<unknown> =>
  new StoredOperator(type, operands, true, true)

/** A copy of an operator with another value. */
export function storedCopy(operator: FindOperator<unknown>, value: unknown): FindOperator<unknown> {
  const { type, useParameter, multipleParameters, getSql, objectLiteralParameters } = operator
  return new StoredOperator(type, value, useParameter, multipleParameters, getSql, objectLiteralParameters)
}

export const storedRaw = (getSql: (aliasPath: string) => string): FindOperator<unknown> =>
  new StoredOperator('raw', [], true, true, getSql)
