import type { Action } from '../action'
import { allOrNothingActions } from './all-or-nothing'
import { combinedActions } from './combined'
import { crowdActions } from './crowd'
import { findOrCreateActions } from './find-or-create'
import { insertActions } from './insert'
import { nestedActions } from './nested'
import { numberActions } from './numbers'
import { onceActions } from './once'
import { removeActions } from './remove'
import { softActions } from './soft'
import { streamActions } from './stream'
import { typeormActions } from './typeorm'
import { updateActions } from './update'
import { upsertActions } from './upsert'

/** Every kind of write. */
export const ACTIONS: readonly Action[] = [
  ...findOrCreateActions,
  ...streamActions,
  ...crowdActions,
  ...upsertActions,
  ...allOrNothingActions,
  ...nestedActions,
  ...typeormActions,
  ...insertActions,
  ...updateActions,
  ...onceActions,
  ...removeActions,
  ...combinedActions,
  ...softActions,
  ...numberActions,
]
