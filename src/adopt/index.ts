export { abandon, type AbandonOptions, adopt, planAdoption } from './adopt'
export { AdoptionError, type AdoptionLock, type AdoptionReason } from './session'
export { follow, type FollowOptions, type FollowReport } from './follow'
export type { AdoptOptions, AdoptProgress, AdoptStep, PlannedStep } from './options'
export {
  checkMerge,
  type LeftRow,
  type MergeDecision,
  mergeDuplicates,
  type MergeOptions,
  type MergeReport,
  type MergeRows,
  type NamedReferences,
} from './merge'
export {
  forgetMerges,
  type LeftChange,
  resolveMerged,
  unmerge,
  type UnmergeOptions,
  type UnmergeReport,
} from './unmerge'
export type { AdoptReport, Duplicates, RefusedRow } from './work'
