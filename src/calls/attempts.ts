import { sleep } from '../connection/mutex'
import type { Session } from '../connection/session'
import { AttemptsExhaustedError, TransactionAbortedError } from '../errors'
import { isSerializationError } from '../sql/sqlstate'
import { currentEvent } from './watch'

/** The most attempts: one try and nine retries. */
const MAX_ATTEMPTS = 10
/**
 * Attempts in which a foreign key violation may be a race: others delete a row before anything refers to it. A
 * violation by the caller is therefore reported a tenth of a second later.
 */
export const MAX_DANGLING = 5
const FIRST_DELAY_MILLISECONDS = 5
const MAX_DELAY_MILLISECONDS = 500

/**
 * Returns how long to wait after an attempt: full jitter, from 0 to a limit that doubles from 5 ms to at most 500 ms.
 * Calls that lost one race therefore do not collide again in the next.
 *
 * @param attempt the attempt that failed, 1-based
 * @param random a random number from 0 to 1
 */
export function backoffMilliseconds(attempt: number, random: number): number {
  return random * Math.min(MAX_DELAY_MILLISECONDS, FIRST_DELAY_MILLISECONDS * 2 ** (attempt - 1))
}

/** Counts the attempts of an operation. */
export class Attempts {
  private readonly started = performance.now()
  /** The number of attempts, including the one under way. */
  count = 1
  /** The unique violation of our own index in this attempt, when no row was found with the text. */
  refusal: unknown

  constructor(
    readonly session: Session,
    /** The name of the unique text, for the error. */
    private readonly name: string,
  ) {}

  /**
   * Waits before the next attempt.
   *
   * @param cause the error of the last attempt. @default others were faster, and the error has the last `refusal`
   * @throws AttemptsExhaustedError if there is no next attempt
   * @throws the cause, unless another attempt may help
   */
  async again(cause?: unknown): Promise<void> {
    if (cause !== undefined && !this.mayHelp(cause)) throw cause
    await this.next(cause)
  }

  /** Returns whether another attempt may succeed after this error. */
  mayHelp(cause: unknown): boolean {
    return !this.session.inTransaction && isSerializationError(cause)
  }

  /**
   * Does what `again` does, for an error that `asOne` threw.
   *
   * @param helps whether another attempt may succeed, in the caller's transaction too
   */
  async againWhole(cause: unknown, helps: boolean): Promise<void> {
    const lost = cause instanceof TransactionAbortedError ? cause.cause : cause
    if (!helps && !this.mayHelp(lost)) throw cause
    await this.next(lost)
  }

  /** Does what `again` does, for any cause. */
  async next(cause: unknown): Promise<void> {
    if (this.count === MAX_ATTEMPTS) {
      throw new AttemptsExhaustedError(this.name, this.count, performance.now() - this.started, cause ?? this.refusal)
    }
    await sleep(backoffMilliseconds(this.count, Math.random()))
    this.count += 1
    this.refusal = undefined
    const event = currentEvent()
    if (event) event.attempts += 1
  }
}
