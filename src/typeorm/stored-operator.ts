import { FindOperator } from 'typeorm'

const STORED: unique symbol = Symbol.for('typeorm-unique-text.stored')

/**
 * An operator whose values are as the database holds them. TypeORM would run the column's transformers over them again,
 * and over patterns and ranges too, which are no texts.
 */
class StoredOperator extends FindOperator<unknown> {
  readonly [STORED]: true = true

  override transformValue(): void {}
}

/** By a mark: an operator can come from another copy of this package. */
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
