export { abandon, type AbandonOptions, adopt, adoptionStatus, planAdoption } from './adopt'
export { AdoptionError, type AdoptionReason } from './session'
export { type AdoptionStatus, describeHolder, type LockHolder, type RunningCommand } from './status'
export type { AdoptionLock, AdoptOptions, AdoptProgress, AdoptStep, PlannedStep } from './options'
export {
  checkMerge,
  type KeptRow,
  mergeDuplicates,
  type MergeOptions,
  type MergeProgress,
  type MergeReport,
  type RedirectedReferences,
} from './merge'
export type { AdoptReport, Duplicates, RefusedRow } from './work'
