import { RULE, type Rule } from '../options'

export const MILLISECONDS: Rule = {
  takes: (value) => typeof value === 'number' && value >= 0 && Number.isFinite(value),
  expected: 'a number of milliseconds from 0',
}

/** Options of every function that waits for locks. */
export const LOCK_RULES: Readonly<Record<'property' | 'lockMilliseconds' | 'signal' | 'onNotice', Rule>> = {
  property: RULE.name,
  lockMilliseconds: MILLISECONDS,
  signal: RULE.signal,
  onNotice: RULE.function,
}

/** Options of every function that works in batches. */
export const BATCH_RULES: Readonly<Record<'batchMilliseconds' | 'pauseMilliseconds' | 'maxLagMilliseconds', Rule>> = {
  batchMilliseconds: MILLISECONDS,
  pauseMilliseconds: MILLISECONDS,
  maxLagMilliseconds: MILLISECONDS,
}

/** Options of every function that only has to know which text is meant. */
export const PROPERTY: Readonly<Record<'property', Rule>> = { property: RULE.name }
