/** One try and nine retries. */
export const MAX_ATTEMPTS = 10
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
