/**
 * The terms of this package, in code, SQL and documents:
 *
 * - text, normalized text: the text that the caller gives, and the text that is compared and stored
 * - normalizer: a pure, idempotent, synchronous function from text to text, with a name and a version
 * - hash: the hidden column; the digest is the function that computes it
 * - hash number: the 0-based number of a row in its chain; 0 for practically every row
 * - scope: columns within which the text is unique
 * - chain: the rows with the same scope and hash
 * - anchor: the row of a chain with hash number 0; whenever a chain has rows, it has an anchor
 * - collision: different texts with the same hash; duplicate: the same normalized text twice
 * - guard: the database triggers that keep chains correct for every writer
 * - place: a trigger of the guard computes a row's hash and chooses its number, before the row is written
 * - settle: a trigger of the guard repairs the chain after the row is written, by a touch or a promotion
 * - touch: an update of the anchor, so that a transaction with an older snapshot fails instead of acting on it
 * - promote: to give number 0 to the lowest row of a chain whose anchor was removed
 * - flag: the hidden column of the anchor that is set if the chain has, or had, other rows
 * - namespace, name, holder: a name is a text that is unique over every table that declares its namespace; a row holds
 *   it
 * - former name: a name that its holder gave up, and that is reserved for that row or redirects to it
 * - token: a text for which work runs once
 * - number: the position of a row within its scope, counted from 1
 * - declaration: the content of a decorator, resolved against the entity's metadata
 * - attempt: one try of an operation, counted from 1; there is one retry fewer than attempts
 */
export * from './errors'
export type {
  ByOptions,
  CountByTextOptions,
  DeleteByTextOptions,
  FindOneByTextOptions,
  FindOrCreateManyOptions,
  FindOrCreateOptions,
  FindOrCreateProgress,
  SqlOfRow,
  UpsertByTextOptions,
} from './calls/call-options'
export { UniqueTextEntity, type UniqueTextMethods, uniqueTextMethods } from './calls/methods'
export { findOrCreate, findOrCreateMany, hashOf, type TextHash } from './calls/find-or-create'
export { firstFreeText, type FreeTextOptions } from './calls/free-text'
export type { FindOrCreateManyResult } from './calls/many'
export type { FindOrCreateResult } from './calls/one-row'
export { upsertByText } from './calls/upsert'
export type { OperationEvent } from './calls/watch'
export { type Inserted, type Insertion, insertOrFail, insertOrNull } from './calls/insert-or-fail'
export { type Changed, type RowChange, type RowId, updateOrFail } from './calls/update-or-fail'
export { normalizeTexts } from './schema/normalize-texts'
export { UniqueText, uniqueTextSchema } from './declare/unique-text'
export { type UniqueTextDataSourceOptions, withUniqueText } from './declare/data-source'
export type {
  UniqueTextClassOptions,
  UniqueTextColumn,
  UniqueTextOptions,
  UniqueTextPropertyOptions,
} from './registry/options'
export type { Digest, DigestName } from './text/digest'
export { findOneByText } from './calls/look-up'
export { countByText, deleteByText, existsByText } from './calls/by-text'
