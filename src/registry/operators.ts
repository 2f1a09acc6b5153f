import { FindOperator } from 'typeorm'

/** The key of the texts of `textEquals` and `textIn`, because another copy of this package may have created them. */
export const OPERATOR_TEXTS: unique symbol = Symbol.for('typeorm-unique-text.texts')

/** Returns the texts of `textEquals` or `textIn`, or undefined for anything else. */
export function operatorTexts(value: object): readonly unknown[] | undefined {
  return (value as { readonly [OPERATOR_TEXTS]?: readonly unknown[] })[OPERATOR_TEXTS]
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
