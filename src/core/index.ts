/**
 * What the features stand on: names, once, numbers, streams, `Url`, TypeORM's own calls and the command line. They import
 * nothing else of the inner folders. test/unit/architecture.test.ts counts these names.
 */
export { namesOf } from './names'
export { entityOf, operate, type Operation, tracedTo } from './operation'
export { whereNotNull } from '../declare/attach-data-source'
export { rawDeclarationsOf, UniqueText } from '../declare/decorator'
export { attachNamesEntity } from '../declare/unique-name'
export { insertOrFail } from '../find-or-create/insert-or-fail'
export { requiredName } from '../find-or-create/requested-names'
export type { FindOrCreateResult } from '../find-or-create/try-once'
export { type RowId, rowKey, updateNames, updateOrFail } from '../find-or-create/update-or-fail'
export type { NameDeclaration } from '../registry/registry'
export { aliasConditions } from '../rows/alias-conditions'
export { holderEntity, type HolderEntity } from '../rows/holder-row'
export { takenTextError } from '../typeorm/explain-errors'
export { type EntityText, entityTextOf } from '../rows/entity-text'
export { rowValues } from '../rows/row-values'
export { findCount } from '../sql/number-table'
export { serverError, SQLSTATE } from '../sql/sqlstate'
export { type StoredToken, tokenStatements } from '../sql/token-statements'
