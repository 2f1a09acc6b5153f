import { setImmediate as untilNextTurn } from 'node:timers/promises'

// As they were when this package was loaded, for the reason that connection/real-timers.ts has.
const [startTimer, stopTimer, startTurn, stopTurn] = [setTimeout, clearTimeout, setImmediate, clearImmediate]

/** Lets events from outside be processed. */
export const nextTurn: typeof untilNextTurn = untilNextTurn

/**
 * Calls back later.
 *
 * @param milliseconds undefined: as soon as events from outside were processed
 * @returns prevents it
 */
export function after(milliseconds: number | undefined, callback: () => void): () => void {
  if (milliseconds === undefined) {
    const turn = startTurn(callback)
    return () => stopTurn(turn)
  }
  const timer = startTimer(callback, milliseconds)
  return () => stopTimer(timer)
}
