export {
  findHolder,
  type FindHolderOptions,
  findOrCreateHolder,
  type FormerName,
  formerNamesOf,
  type Holder,
} from './holders'
export { Name } from './name-entity'
export { type ByNameOptions, releaseExpired, type ReleaseExpiredOptions, rename, swapNames } from './rename'
export { type FormerOption, UniqueName, type UniqueNameOptions, uniqueNameSchema } from './unique-name'
