import type { Phase } from '../phase'
import { bulk, importing } from './bulk'
import { exactness } from './exactness'
import { longTexts } from './long-texts'
import { growth, guard, memory } from './processes'
import { roundTrip } from './round-trip'
import { herd, hit, lookUp, miss, mixed, transaction } from './single'
import { space } from './space'

/** In the order in which they run; those that empty tables are last. */
export const PHASES: readonly Phase[] = [
  hit,
  lookUp,
  miss,
  mixed,
  herd,
  transaction,
  roundTrip,
  bulk,
  exactness,
  longTexts,
  importing,
  space,
  memory,
  guard,
  growth,
]
