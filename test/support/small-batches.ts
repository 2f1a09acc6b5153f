import { afterAll, beforeEach } from 'vitest'
import { limits } from '../../src/calls/batches'

/** Call once in a file: a batch has so many rows, and not 1,000, until a test itself sets another limit. */
export function useSmallBatches(rows: number): void {
  const usual = { ...limits }
  beforeEach(() => void Object.assign(limits, { rows }))
  afterAll(() => void Object.assign(limits, usual))
}
