export { abandon, type AbandonOptions, adopt, adoptionStatus, planAdoption } from './adopt'
export { AdoptionError, type AdoptionReason } from './session'
export { type AdoptionStatus, describeHolder, type LockHolder, type RunningCommand } from './status'
export { follow, type FollowOptions, type FollowReport } from './follow'
export type { AdoptionLock, AdoptOptions, AdoptProgress, AdoptStep, PlannedStep } from './options'
export {
  checkMerge,
  type MergeChange,
  type MergeDecision,
  mergeDuplicates,
  type MergeOptions,
  type MergeReport,
  type MergeRows,
  type NamedReferences,
} from './merge'
export type { LeftRow, MergedKey } from './merge-rows'
export {
  forgetMerges,
  type LeftChange,
  resolveMerged,
  unmerge,
  type UnmergeOptions,
  type UnmergeReport,
} from './unmerge'
export type { AdoptReport, Duplicates, RefusedRow } from './work'
