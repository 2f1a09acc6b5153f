/**
 * The basis of the features: names, once, numbers, streams, `Url`, TypeORM's own calls and the command line. Their
 * calls import nothing else from the inner folders, except errors, options and texts. Their decorators and their SQL
 * may. test/unit/architecture.test.ts counts what is not public.
 */

// Running the operation of a feature.
export { entityOf, operate, type Operation, tracedTo } from './operation'
export { countResults, watched, watchedStream } from '../calls/watch'
export { serverError, SQLSTATE } from '../sql/sqlstate'

// Texts: the text of a call, and many rows of it.
export { CALL_RULES, type GivenValues, type Naming } from '../calls/call-options'
export { type EntityText, entityTextOf } from '../calls/entity-text'
export { rowValues } from '../calls/row-values'
export { hashNumberOf } from '../calls/hydrate'
export { PreparedMany, withKeyOnly } from '../calls/many'

// Names and tokens.
export { requiredName } from '../calls/requested-names'
export type { NameDeclaration } from '../registry/registry'
export { missingRow, rowKey } from '../calls/row-key'
export { updateNames } from '../calls/update-or-fail'
export { whereNotNull } from '../declare/data-source'

// TypeORM's own calls.
export { OPERATOR_TEXTS } from '../registry/operators'
export { rawDeclarationsOf } from '../declare/unique-text'
export { takenTextError } from '../typeorm/refusals'

// The SQL that runs in the database.
export { LIBRARY_SQL } from '../sql/library'

// Public names.
export { UniqueText } from '../declare/unique-text'
export { findOrCreate, findOrCreateMany } from '../calls/find-or-create'
export { findOneByText } from '../calls/look-up'
export { insertOrFail } from '../calls/insert-or-fail'
export { UniqueTextEntity } from '../calls/methods'
export type { FindOrCreateManyResult } from '../calls/many'
export type { FindOrCreateResult } from '../calls/one-row'
export { type RowId, updateOrFail } from '../calls/update-or-fail'
export type {
  FindOneByTextOptions,
  FindOrCreateManyOptions,
  FindOrCreateOptions,
  FindOrCreateProgress,
} from '../calls/call-options'
