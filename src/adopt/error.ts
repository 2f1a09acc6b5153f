import { UniqueTextError } from '../errors'

/** Why an adoption ended before its end. */
export type AdoptionReason =
  | 'changed'
  | 'interrupted'
  | 'nulls'
  | 'refused'
  | 'running'
  | 'unsupported'
  | 'user-triggers'

/** `adopt` or `abandon` cannot go on by itself. What it has done stays, and the same call goes on from there. */
export class AdoptionError extends UniqueTextError {
  override readonly name = 'AdoptionError'
  readonly code = 'ADOPTION_STOPPED'

  constructor(
    readonly reason: AdoptionReason,
    message: string,
    cause?: unknown,
  ) {
    super(message, cause)
  }
}
