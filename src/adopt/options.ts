import { RULE, type Rule } from '../options'

export const MILLISECONDS: Rule = {
  takes: (value) => typeof value === 'number' && value >= 0 && Number.isFinite(value),
  expected: 'a number of milliseconds from 0',
}

/** Options of every function that waits for locks; AdoptOptions says what they mean. */
export type LockOption = 'property' | 'lockMilliseconds' | 'signal' | 'onNotice'

export const LOCK_RULES: Readonly<Record<LockOption, Rule>> = {
  property: RULE.name,
  lockMilliseconds: MILLISECONDS,
  signal: RULE.signal,
  onNotice: RULE.function,
}

/** Options of every function that works in batches. */
export type BatchOption = 'batchMilliseconds' | 'pauseMilliseconds' | 'maxLagMilliseconds'

export const BATCH_RULES: Readonly<Record<BatchOption, Rule>> = {
  batchMilliseconds: MILLISECONDS,
  pauseMilliseconds: MILLISECONDS,
  maxLagMilliseconds: MILLISECONDS,
}

/** Options of every function that only has to know which text is meant. */
export const PROPERTY: Readonly<Record<'property', Rule>> = { property: RULE.name }
