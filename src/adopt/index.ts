export { abandon, type AbandonOptions, adopt, planAdoption } from './adopt'
export { AdoptionError, type AdoptionLock, type AdoptionReason } from './session'
export { follow, type FollowOptions, type FollowReport } from './follow'
export type { AdoptOptions, AdoptProgress, AdoptStep, PlannedStep } from './options'
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
export type { AdoptReport, Duplicates, RefusedRow } from './work'
