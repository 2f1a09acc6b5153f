export type { DoctorAdoption, DoctorLock } from './adoption'
export {
  doctor,
  type DoctorDeclaration,
  type DoctorOptions,
  type DoctorProgress,
  type DoctorReport,
  type DoctorTable,
} from './doctor'
export type { DoctorCode, DoctorFinding, DoctorGroups, DoctorKey, DoctorSeverity } from './findings'
export { preview, type PreviewGroup, type PreviewOptions, type PreviewReport } from './preview'
