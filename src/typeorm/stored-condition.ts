import { type FindOperator, InstanceChecker } from 'typeorm'
import { TextRejectedError } from '../errors'
import { equalsNoText } from '../sql/text-condition'
import { normalizeText } from '../text/normalizer'
import type { Declaration } from '../registry/registry'
import {
  isStored,
  operatorTexts,
  storedAny,
  storedCopy,
  storedEqual,
  storedIn,
  storedJunction,
  storedNot,
  storedRaw,
} from '../registry/text-operators'

type TextPart = Declaration['text'][number]

/** What the condition on one text column comes to. */
export interface StoredCondition {
  /** What TypeORM gets in place of the given condition; it is normalized already. */
  readonly value: unknown
  /** Every text that a row which meets it can hold, and null for a row without one; undefined: any. */
  readonly texts: readonly (string | null)[] | undefined
  /** It was made by `textEquals` or `textIn`, which promise the index. */
  readonly indexed?: boolean
}

/**
 * Brings the texts of a condition into the form that is stored: those that are compared for equality, never a pattern
 * or a bound. A refused text equals no stored text.
 */
export const storedCondition = (part: TextPart, given: unknown): StoredCondition => conditionOf(part, given, false)

/** @param negated under a `Not`, where a refused text must leave out the rows without a text, as any other does */
function conditionOf(part: TextPart, given: unknown, negated: boolean): StoredCondition {
  if (given === undefined || given === null || isStored(given)) return { value: given, texts: undefined }
  if (!InstanceChecker.isFindOperator(given)) return equality(part, given, negated)
  const operator = given as FindOperator<unknown>
  const texts = operatorTexts(operator)
  if (texts) return { ...membership(part, texts, { negated, toOperator: oneOf }), indexed: true }
  return (CONDITIONS[operator.type] ?? pattern)(part, operator, negated)
}

type ConditionOf = (part: TextPart, operator: FindOperator<unknown>, negated: boolean) => StoredCondition

const CONDITIONS: Readonly<Record<string, ConditionOf>> = {
  equal: (part, operator, negated) =>
    operator.value === null ? pattern(part, operator) : equality(part, operator.value, negated),
  in: (part, operator, negated) =>
    Array.isArray(operator.value)
      ? membership(part, operator.value, { negated, toOperator: storedIn })
      : pattern(part, operator),
  any: (part, operator, negated) =>
    Array.isArray(operator.value)
      ? membership(part, operator.value, { negated, toOperator: storedAny })
      : pattern(part, operator),
  isNull: (_, operator) => ({ value: storedCopy(operator, undefined), texts: [null] }),
  not: (part, { child, value }) => {
    const operand = conditionOf(part, child ?? value, true)
    return { value: storedNot(operand.value as FindOperator<unknown>), texts: undefined }
  },
  and: (part, { value }, negated) => {
    const operands = listOf(value).map((one) => conditionOf(part, one, negated))
    const texts = operands.find((one) => one.texts !== undefined)?.texts
    return { value: storedJunction('and', valuesOf(operands)), texts, indexed: isIndexed(operands) }
  },
  or: (part, { value }, negated) => {
    const operands = listOf(value).map((one) => conditionOf(part, one, negated))
    const texts = operands.map((one) => one.texts)
    return {
      value: storedJunction('or', valuesOf(operands)),
      texts: texts.every((one) => one !== undefined) ? texts.flat() : undefined,
      indexed: isIndexed(operands),
    }
  },
}

/** No more parameters for a long list than for a short one. */
function oneOf(values: readonly unknown[]): FindOperator<unknown> {
  if (values.length === 0) return storedIn([])
  return values.length === 1 ? storedEqual(values[0]) : storedAny(values)
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [value])
const valuesOf = (operands: readonly StoredCondition[]): unknown[] => operands.map(({ value }) => value)
const isIndexed = (operands: readonly StoredCondition[]): boolean => operands.some(({ indexed }) => indexed === true)

const equality = (part: TextPart, given: unknown, negated: boolean): StoredCondition =>
  membership(part, [given], { negated, toOperator: ([stored]) => storedEqual(stored) })

interface Membership {
  readonly negated: boolean
  /** Called with one value at least, unless none was given. */
  readonly toOperator: (values: readonly unknown[]) => FindOperator<unknown>
}

function membership(part: TextPart, given: readonly unknown[], { negated, toOperator }: Membership): StoredCondition {
  const values = given.map((one) => storedValue(part, one)).filter((one) => one !== REFUSED)
  if (values.length === 0 && given.length > 0) {
    return { value: negated ? storedRaw(equalsNoText) : storedIn([]), texts: [] }
  }
  // NULL equals nothing.
  const texts = values.filter((one) => one !== null)
  return { value: toOperator(values), texts: texts.every((one) => typeof one === 'string') ? texts : undefined }
}

const REFUSED = Symbol('refused')

/** As the column holds it: after the user's own transformers, and normalized. */
function storedValue({ column, normalizer, transformers }: TextPart, given: unknown): unknown {
  const value = transformers.reduce((one: unknown, transformer) => transformer.to(one) as unknown, given)
  if (value === undefined || value === null) return value
  // No text at all is a mistake, not a text that nobody holds.
  if (typeof value !== 'string') return normalizeText(normalizer, column.propertyPath, value)
  try {
    return normalizeText(normalizer, column.propertyPath, value)
  } catch (error) {
    if (error instanceof TextRejectedError) return REFUSED
    throw error
  }
}

/** Patterns, ranges and SQL: only the user's own transformers see them, as everywhere in TypeORM. */
function pattern({ transformers }: TextPart, operator: FindOperator<unknown>): StoredCondition {
  const { type, value, multipleParameters } = operator
  const toStored = (given: unknown): unknown =>
    transformers.reduce((one: unknown, transformer) => transformer.to(one) as unknown, given)
  const isText = type !== 'raw' && value !== undefined
  const transformed = multipleParameters && Array.isArray(value) ? value.map(toStored) : toStored(value)
  return { value: storedCopy(operator, isText ? transformed : value), texts: undefined }
}
