/**
 * The words of this package, in code, SQL and documents:
 *
 * - text, normalized text: what was given; what is compared and stored
 * - normalizer: a pure, idempotent, synchronous function from text to text, with a name and a version
 * - hash: the hidden column; the digest is the function that makes it
 * - hash number: the 0-based place in a chain; 0 for practically every row
 * - scope: columns within which the text is unique
 * - chain: the rows with equal scope and hash; its anchor is the row with hash number 0
 * - collision: different texts of equal hash; duplicate: an equal normalized text twice
 * - guard: the database triggers that keep chains right for every writer
 * - declaration: what a decorator said, resolved against the entity's metadata
 * - attempt: 1-based; retries are one fewer
 */
export {
  AttemptsExhaustedError,
  ChainLimitError,
  DeclarationError,
  DuplicateTextError,
  type Finding,
  ImmutableTextError,
  type Rejection,
  SchemaDriftError,
  TextRejectedError,
  TransactionAbortedError,
  UniqueTextError,
  type UniqueTextErrorCode,
  UnsupportedDatabaseError,
} from './errors'
export { UniqueTextEntity } from './find-or-create/active-record'
export { findOrCreateMany, type FindOrCreateManyResult } from './find-or-create/find-or-create-many'
export { type ByOptions, findOneByText, findOrCreate, type FindOrCreateResult } from './find-or-create/find-or-create'
export { uniqueTextMethods, type UniqueTextMethods } from './find-or-create/repository-methods'
export { UniqueText, uniqueTextSchema } from './typeorm/decorator'
export { type UniqueTextDataSourceOptions, withUniqueText } from './typeorm/data-source'
export type {
  UniqueTextClassOptions,
  UniqueTextColumn,
  UniqueTextOptions,
  UniqueTextPropertyOptions,
} from './typeorm/options'
export { type Digest, type DigestName } from './text/digest'
