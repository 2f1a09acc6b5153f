import type { PeerFactory } from '../peer'
import { ours, oursAlone, oursNormalized, oursStream, oursUrl } from './ours'
import { rawCopy } from './raw-copy'
import { rawExclude, rawMd5Index } from './raw-one-column'
import { rawBatchesAtOnce, rawOneStatement } from './raw-one-statement'
import { rawSelectInsert } from './raw-select-insert'
import { typeormFindSave, typeormOrIgnore, typeormUpsert } from './typeorm'

/** Every peer that needs no package of its own. */
export const PEERS: readonly PeerFactory[] = [
  rawOneStatement,
  rawSelectInsert,
  rawMd5Index,
  rawExclude,
  rawBatchesAtOnce,
  rawCopy,
  ours,
  oursAlone,
  oursNormalized,
  oursUrl,
  oursStream,
  typeormFindSave,
  typeormUpsert,
  typeormOrIgnore,
]
