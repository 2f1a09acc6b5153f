import type { Action } from '../action'
import { combinedActions } from './combined'
import { findOrCreateActions } from './find-or-create'
import { insertActions } from './insert'
import { removeActions } from './remove'
import { softActions } from './soft'
import { typeormActions } from './typeorm'
import { updateActions } from './update'
import { upsertActions } from './upsert'

/** Every kind of write. */
export const ACTIONS: readonly Action[] = [
  ...findOrCreateActions,
  ...upsertActions,
  ...typeormActions,
  ...insertActions,
  ...updateActions,
  ...removeActions,
  ...combinedActions,
  ...softActions,
]
