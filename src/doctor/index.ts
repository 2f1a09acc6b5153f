export {
  doctor,
  type DoctorAdoption,
  type DoctorDeclaration,
  type DoctorLock,
  type DoctorOptions,
  type DoctorProgress,
  type DoctorReport,
  type DoctorTable,
} from './doctor'
export type { DoctorCode, DoctorFinding, DoctorGroups, DoctorKey, DoctorSeverity } from './findings'
