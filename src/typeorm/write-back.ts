import type { ObjectLiteral } from 'typeorm'
import type { ColumnMetadata, Declaration } from './registry'

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
