/**
 * What the features stand on: names, once, numbers, streams, `Url`, TypeORM's own calls and the command line. Of the inner
 * folders they import nothing else, beside errors, options and texts. test/unit/architecture.test.ts counts what is not
 * public.
 */

// How an operation runs.
export { entityOf, indexSizeOf, operate, type Operation, tracedTo } from './operation'
export { serverError, SQLSTATE } from '../sql/sqlstate'

// Texts: what a call is of, and many rows of it.
export { CALL_RULES, type GivenValues, type Naming } from '../rows/call-options'
export { type EntityText, entityTextOf } from '../rows/entity-text'
export { rowValues } from '../rows/row-values'
export { hashNumberOf } from '../rows/hydrate'
export { PreparedMany, withoutColumns } from '../find-or-create/prepared-many'

// Names, tokens and numbers.
export { namesOf } from './names'
export { holderEntity, type HolderEntity } from '../rows/holder-row'
export type { NameDeclaration } from '../registry/registry'
export { attachNamesEntity } from '../declare/unique-name'
export { requiredName } from '../find-or-create/requested-names'
export { rowKey, updateNames } from '../find-or-create/update-or-fail'
export { type StoredToken, tokenStatements } from '../sql/token-statements'
export { whereNotNull } from '../declare/attach-data-source'
export { countStatements } from '../sql/number-table'

// For TypeORM's own calls.
export { aliasConditions } from '../rows/alias-conditions'
export { rawDeclarationsOf } from '../declare/decorator'
export { takenTextError } from '../typeorm/explain-errors'

// Public names.
export { UniqueText } from '../declare/decorator'
export { NumberWithin, type NumberWithinOptions, numberWithinSchema } from '../declare/number-within'
export { type FormerOption, UniqueName, type UniqueNameOptions, uniqueNameSchema } from '../declare/unique-name'
export { findOneByText, findOrCreate } from '../find-or-create/find-or-create'
export { findOrCreateMany } from '../find-or-create/find-or-create-many'
export { insertOrFail } from '../find-or-create/insert-or-fail'
export { UniqueTextEntity } from '../find-or-create/methods'
export type { FindOrCreateManyResult } from '../find-or-create/run-batch'
export { saveFindingTexts } from '../find-or-create/save-finding-texts'
export type { FindOrCreateResult } from '../find-or-create/try-once'
export { type RowId, updateOrFail } from '../find-or-create/update-or-fail'
export { textEquals, textIn } from '../registry/text-operators'
export type {
  FindOneByTextOptions,
  FindOrCreateManyOptions,
  FindOrCreateOptions,
  FindOrCreateProgress,
} from '../rows/call-options'
