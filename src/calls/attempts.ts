import type { EntityManager } from 'typeorm'
import { openSession } from '../connection/open-session'
import { sleep } from '../connection/mutex'
import type { Session } from '../connection/session'
import { AttemptsExhaustedError, TransactionAbortedError } from '../errors'
import { isSerializationError } from '../sql/sqlstate'
import { currentEvent } from './watch'

/** One try and nine retries. */
const MAX_ATTEMPTS = 10
/**
 * How often a foreign key violation may be the fault of others, who delete a row that was found before anything refers
 * to it. A violation by the caller is reported a tenth of a second later for that.
 */
export const MAX_DANGLING = 5
const FIRST_DELAY_MILLISECONDS = 5
const MAX_DELAY_MILLISECONDS = 500

/**
 * How long to wait after an attempt: full jitter, anything from 0 to a limit that starts at 5 ms and doubles up to
 * 500 ms, so that those who lost one race do not meet again in the next.
 *
 * @param attempt the one that failed, 1-based
 * @param random from 0 to 1
 */
export function backoffMilliseconds(attempt: number, random: number): number {
  return random * Math.min(MAX_DELAY_MILLISECONDS, FIRST_DELAY_MILLISECONDS * 2 ** (attempt - 1))
}

/** How often an operation was tried. */
export class Attempts {
  private readonly started = performance.now()
  /** How many were made, with the one under way. */
  count = 1
  /** The unique violation of our own index, for a text that no row was found to hold. */
  refusal: unknown

  constructor(
    readonly session: Session,
    /** The name of the unique text, for the error. */
    private readonly name: string,
  ) {}

  /** Runs an operation that has transactions of its own, or savepoints in the caller's. */
  static async within<T>(manager: EntityManager, name: string, run: (attempts: Attempts) => Promise<T>): Promise<T> {
    const session = await openSession(manager)
    try {
      return await run(new Attempts(session, name))
    } finally {
      await session.close()
    }
  }

  /**
   * Waits before the next attempt.
   *
   * @param cause why the last one failed. @default others were faster, and the error has the last `refusal`
   * @throws AttemptsExhaustedError if there is no next attempt
   * @throws the cause, unless another attempt may help
   */
  async again(cause?: unknown): Promise<void> {
    if (cause !== undefined && !this.mayHelp(cause)) throw cause
    await this.next(cause)
  }

  /** Whether another attempt may succeed after this error. */
  mayHelp(cause: unknown): boolean {
    return !this.session.inTransaction && isSerializationError(cause)
  }

  /**
   * Does what `again` does, of what `asOne` threw.
   *
   * @param helps another attempt may succeed, in the caller's transaction too
   */
  async againWhole(cause: unknown, helps: boolean): Promise<void> {
    const lost = cause instanceof TransactionAbortedError ? cause.cause : cause
    if (!helps && !this.mayHelp(lost)) throw cause
    await this.next(lost)
  }

  /** Does what `again` does, whatever the cause was. */
  async next(cause: unknown): Promise<void> {
    if (this.count === MAX_ATTEMPTS) {
      throw new AttemptsExhaustedError(this.name, this.count, performance.now() - this.started, cause ?? this.refusal)
    }
    await sleep(backoffMilliseconds(this.count, Math.random()))
    this.count += 1
    const event = currentEvent()
    if (event) event.attempts += 1
  }
}
