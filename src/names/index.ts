export { Name } from './name-entity'
export { UniqueName, uniqueNameSchema } from './unique-name'
export type { FormerOption, UniqueNameOptions } from '../typeorm/name-options'
