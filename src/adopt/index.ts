export { abandon, type AbandonOptions } from './abandon'
export { AdoptionError, type AdoptionReason } from './error'
export { adopt, type AdoptOptions, type AdoptReport, type Duplicates, type RefusedRow } from './adopt'
export { follow, type FollowOptions, type FollowReport } from './follow'
export { planAdoption } from './plan'
export type { AdoptionLock } from './session'
export type { AdoptProgress, AdoptStep, PlannedStep } from './steps'
export {
  type LeftRow,
  type MergeDecision,
  mergeDuplicates,
  type MergeOptions,
  type MergeReport,
  type MergeRows,
} from './merge'
export { checkMerge, type NamedReferences } from './named-references'
export { forgetMerges, resolveMerged, unmerge, type UnmergeOptions } from './merge-log'
