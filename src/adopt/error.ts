import { UniqueTextError } from '../errors'

/** Why an adoption stopped early. */
export type AdoptionReason =
  | 'changed'
  | 'interrupted'
  | 'nulls'
  | 'refused'
  | 'running'
  | 'unsupported'
  | 'user-triggers'

/** `adopt` or `abandon` cannot continue by itself. What it has done stays, and the same call continues from there. */
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
