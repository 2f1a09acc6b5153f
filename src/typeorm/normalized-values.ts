import type { ObjectLiteral } from 'typeorm'
import { TextRejectedError } from '../errors'
import { Refusal } from '../text/refusal'
import type { Declaration } from './registry'

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
