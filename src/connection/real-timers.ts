import { setImmediate as untilNextTurn, setTimeout as wait } from 'node:timers/promises'

/**
 * The timers of Node.js, as they were when this package was loaded. A test of a user's may replace them by some that
 * call back only when it says so: what it awaits of ours would never come.
 */
export const nextTick: (callback: () => void) => void = process.nextTick.bind(process)
/** Lets what has come from outside be heard. */
export const nextTurn: typeof untilNextTurn = untilNextTurn
export const sleep: typeof wait = wait
export const startTimer: typeof setTimeout = setTimeout
export const stopTimer: typeof clearTimeout = clearTimeout
export const startTurn: typeof setImmediate = setImmediate
export const stopTurn: typeof clearImmediate = clearImmediate
