export { rawDeclarationsOf } from '../declare/decorator'
export { aliasConditions } from '../rows/alias-conditions'
export { takenTextError } from '../typeorm/explain-errors'
export { entityOf } from './operation'
