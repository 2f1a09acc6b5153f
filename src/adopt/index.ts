export {
  abandon,
  type AbandonOptions,
  adopt,
  type AdoptOptions,
  type AdoptReport,
  type Duplicates,
  planAdoption,
  type RefusedRow,
} from './adopt'
export { AdoptionError, type AdoptionLock, type AdoptionReason } from './session'
export { follow, type FollowOptions, type FollowReport } from './follow'
export type { AdoptProgress, AdoptStep, PlannedStep } from './texts'
export {
  checkMerge,
  forgetMerges,
  type LeftRow,
  type MergeDecision,
  mergeDuplicates,
  type MergeOptions,
  type MergeReport,
  type MergeRows,
  type NamedReferences,
  resolveMerged,
  unmerge,
  type UnmergeOptions,
} from './merge'
