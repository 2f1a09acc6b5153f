import { AttemptsExhaustedError } from '../errors'
import { isSerializationError } from '../sql/sqlstate'
import { sleep } from '../connection/real-timers'
import { backoffMilliseconds, MAX_ATTEMPTS } from './retry'
import type { Session } from '../connection/session'

/** How often an operation was tried. */
export class Attempts {
  private readonly started = performance.now()
  private made = 1

  constructor(
    private readonly session: Session,
    /** Of the unique text, for the error. */
    private readonly name: string,
  ) {}

  get count(): number {
    return this.made
  }

  /**
   * Waits before the next attempt.
   *
   * @param cause why the last one failed. @default others were faster
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

  /** Does what `again` does, whatever the cause was. */
  async next(cause: unknown): Promise<void> {
    if (this.made === MAX_ATTEMPTS) {
      throw new AttemptsExhaustedError(this.name, this.made, performance.now() - this.started, cause)
    }
    await sleep(backoffMilliseconds(this.made, Math.random()))
    this.made += 1
  }
}
