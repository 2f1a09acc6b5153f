import { afterAll, beforeAll } from 'vitest'
import { patience } from '../../src/connection/mutex'

/** What is longer than the limit, in seconds, for `pg_sleep`. */
export const LONGER_SECONDS = 1.5

/** Call once in a file: the limit after which a statement is said to wait for itself is a second, and not five. */
export function useShortPatience(): void {
  const usual = { ...patience }
  beforeAll(() => void Object.assign(patience, { milliseconds: 1_000, lookMilliseconds: 50 }))
  afterAll(() => void Object.assign(patience, usual))
}
