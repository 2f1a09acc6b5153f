import type { Interleaving } from '../../../support/interleaving'
import { copies } from './copies'
import { mdev37199 } from './mdev-37199'
import { promotion } from './promotion'
import { races } from './races'
import { statements } from './statements'
import { transactions } from './transactions'
import { updates } from './updates'

export const interleavings: Readonly<Record<string, readonly Interleaving[]>> = {
  races,
  promotion,
  updates,
  statements,
  copies,
  transactions,
  'MDEV-37199': mdev37199,
}

export const allInterleavings: readonly Interleaving[] = Object.values(interleavings).flat()
