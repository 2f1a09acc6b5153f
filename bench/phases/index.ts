import type { Phase } from '../phase'
import { herd, hit, lookUp, miss, mixed, transaction } from './single'

export const PHASES: readonly Phase[] = [hit, lookUp, miss, mixed, herd, transaction]
