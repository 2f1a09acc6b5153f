import type { ObjectLiteral, ValueTransformer } from 'typeorm'
import { normalizeText, type Normalizer } from '../text/normalizer'
import type { ColumnMetadata } from './registry'
import { isStored } from './stored-operator'

/**
 * Makes TypeORM normalize what it writes to a column and what it looks for, after the user's own transformers.
 *
 * It leaves alone what is stored: when TypeORM compares an entity with its row, to find out what to write, a text that
 * another writer stored without normalizing it has not changed, and must not fail if the normalizer refuses it.
 */
export function normalizeColumn(column: ColumnMetadata, normalizer: Normalizer): void {
  const given = [column.transformer ?? []].flat()
  const ours = new NormalizingTransformer(column.propertyName, normalizer)
  column.transformer = [...given, ours]
  const read = column.getEntityValue.bind(column)
  const isRow = rowsOf(column)
  column.getEntityValue = (entity, transform) => {
    if (transform !== true) return read(entity, transform) as unknown
    const condition: unknown = read(entity)
    // TypeORM 0.3 would pass the operator to the user's transformers.
    if (isStored(condition)) return condition
    if (!isRow(entity)) return read(entity, transform) as unknown
    const value = given.reduce((one: unknown, transformer) => transformer.to(one) as unknown, condition)
    ours.compareWith(value)
    return value
  }
}

class NormalizingTransformer implements ValueTransformer {
  #stored: unknown

  constructor(
    private readonly property: string,
    private readonly normalizer: Normalizer,
  ) {}

  /** TypeORM asks for the row's value first and, in the same breath, transforms the entity's. */
  compareWith(stored: unknown): void {
    this.#stored = stored
    queueMicrotask(() => {
      this.#stored = undefined
    })
  }

  to(value: unknown): unknown {
    const unchanged = value === this.#stored
    this.#stored = undefined
    return unchanged || typeof value !== 'string' ? value : normalizeText(this.normalizer, this.property, value)
  }

  from(value: unknown): unknown {
    return value
  }
}

/**
 * TypeORM reads with `transform` from rows that it loaded and from what a caller looks for. A row is an instance of its
 * class; that of an EntitySchema without a class is told by having been filled.
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
