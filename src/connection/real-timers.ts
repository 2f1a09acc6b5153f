import { setTimeout as wait } from 'node:timers/promises'

/**
 * The timers of Node.js, as they were when this package was loaded. A user's test may replace the timers by fake ones
 * that fire only on demand: what the test awaits of ours would never come.
 */
export const nextTick: (callback: () => void) => void = process.nextTick.bind(process)
export const sleep: typeof wait = wait
export const startTimer: typeof setTimeout = setTimeout
export const stopTimer: typeof clearTimeout = clearTimeout
