import { InstanceChecker, type ObjectLiteral, type ValueTransformer } from 'typeorm'
import { TextRejectedError } from '../errors'
import { normalizeText, type Normalizer } from '../text/normalizer'
import { Refusal } from '../text/refusal'
import type { ColumnMetadata, Declaration } from './registry'
import { isStored } from './text-operators'

/**
 * Makes TypeORM normalize what it writes to a column and what it looks for, after the user's own transformers.
 *
 * It leaves alone what is stored: when TypeORM compares an entity with its row, to find out what to write, a text that
 * another writer stored without normalizing it has not changed, and must not fail if the normalizer refuses it. And an
 * entity whose text has changed only before it was normalized gets the row's: TypeORM tells nobody that it wrote nothing.
 */
export function normalizeColumn(column: ColumnMetadata, normalizer: Normalizer): void {
  const given = [column.transformer ?? []].flat()
  const ours = new NormalizingTransformer(column.propertyName, normalizer)
  column.transformer = [...given, ours]
  const read = column.getEntityValue.bind(column)
  const isRow = rowsOf(column)
  let last: ObjectLiteral | undefined
  column.getEntityValue = (entity, transform) => {
    if (transform !== true) {
      if (!last) queueMicrotask(() => (last = undefined))
      last = entity
      return read(entity, transform) as unknown
    }
    const condition: unknown = read(entity)
    // TypeORM 0.3 would pass the operator to the user's transformers.
    if (isStored(condition)) return condition
    if (!isRow(entity)) return read(entity, transform) as unknown
    const value = given.reduce((one: unknown, transformer) => transformer.to(one) as unknown, condition)
    const compared = last
    ours.compareWith(value, () => {
      if (compared) setProperty(column, compared, condition)
    })
    return value
  }
}

class NormalizingTransformer implements ValueTransformer {
  #stored: unknown
  #onEqual: (() => void) | undefined

  constructor(
    private readonly property: string,
    private readonly normalizer: Normalizer,
  ) {}

  /**
   * TypeORM reads the entity's value, then the row's, and then transforms the entity's, all in one breath.
   *
   * @param onEqual the entity's differs, and is equal once it is normalized
   */
  compareWith(stored: unknown, onEqual: () => void): void {
    this.#stored = stored
    this.#onEqual = onEqual
    queueMicrotask(() => {
      this.#forget()
    })
  }

  to(value: unknown): unknown {
    const [stored, onEqual] = [this.#stored, this.#onEqual]
    this.#forget()
    if (value === stored || isNoText(value)) return value
    const normalized = normalizeText(this.normalizer, this.property, value)
    if (normalized === stored) onEqual?.()
    return normalized
  }

  #forget(): void {
    this.#stored = undefined
    this.#onEqual = undefined
  }

  from(value: unknown): unknown {
    return value
  }
}

/** NULL, SQL that a function gives, and an operator in conditions. Anything else must be a string. */
const isNoText = (value: unknown): boolean =>
  value === undefined || value === null || typeof value === 'function' || InstanceChecker.isFindOperator(value)

/**
 * TypeORM reads with `transform` from rows that it loaded and from what a caller looks for. A row is an instance of its
 * class; that of an EntitySchema without a class is one that was filled.
 */
function rowsOf(column: ColumnMetadata): (entity: ObjectLiteral) => boolean {
  const { target } = column.entityMetadata
  if (typeof target === 'function') return (entity) => entity instanceof target
  const filled = new WeakSet<ObjectLiteral>()
  const write = column.setEntityValue.bind(column)
  column.setEntityValue = (entity: ObjectLiteral, value: unknown) => {
    filled.add(entity)
    write(entity, value)
  }
  return (entity) => filled.has(entity)
}

/** Writes the stored, normalized text back to the property of an entity. */
export function writeBack(
  { column, normalizer, transformers }: Declaration['text'][number],
  entity: ObjectLiteral,
): void {
  const given = transformers.reduce((one: unknown, each) => each.to(one) as unknown, column.getEntityValue(entity))
  if (typeof given !== 'string') return
  const stored = normalizer.normalize(given)
  if (stored === given) return
  setProperty(
    column,
    entity,
    transformers.reduceRight((one: unknown, each) => each.from(one) as unknown, stored),
  )
}

/** A frozen object, or one whose property has no setter, keeps what it was given. */
export function setProperty(column: ColumnMetadata, entity: ObjectLiteral, value: unknown): void {
  const path = column.embeddedMetadata?.parentPropertyNames ?? []
  const holder = path.reduce((one: unknown, name) => (one as ObjectLiteral | undefined)?.[name], entity)
  // Past `setEntityValue`, which takes what it fills for a row.
  if (typeof holder === 'object' && holder !== null) Reflect.set(holder, column.propertyName, value)
}

/**
 * Returns what the option `normalizeValues` sets of an entity; nothing without that option.
 *
 * @throws TextRejectedError if it refuses the values; whatever else it throws
 */
export function normalizedValues({ name, normalizeValues }: Declaration, entity: ObjectLiteral): object {
  try {
    return normalizeValues?.(entity) ?? {}
  } catch (error) {
    if (error instanceof Refusal) throw new TextRejectedError({ property: name, reason: error.reason })
    throw error
  }
}
