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

/** What stands between strings: brackets and numbers. */
const TOKEN = /[{[]|[\]}]|-?\d[\d.eE+-]*/g

/** JavaScript would have another number. */
const isRounded = (source: string): boolean => {
  const digits = source
    .replace(/[eE].*$/, '')
    .replaceAll(/[-.]/g, '')
    .replace(/^0+/, '')
  return digits.length > 15 && String(Number(source)) !== source && !Number.isSafeInteger(Number(source))
}

/**
 * Parses rows, or keys of rows, of which numbers that JavaScript would round become strings, as the driver gives a
 * `bigint` or a `numeric`. What stands within a value, of a column of JSON, is left to `JSON.parse`.
 *
 * @param depth how many brackets are around a value of a row: 1 for a row, 2 for a list of rows
 */
export function parseRows(json: string, depth: number): unknown {
  let around = 0
  const exact = (token: string): string => {
    if (token === '{' || token === '[') around += 1
    else if (token === '}' || token === ']') around -= 1
    else if (around === depth && isRounded(token)) return `"${token}"`
    return token
  }
  let parsed = ''
  for (let at = 0; at < json.length;) {
    const start = json.indexOf('"', at)
    const between = start === -1 ? json.slice(at) : json.slice(at, start)
    const end = start === -1 ? json.length : endOfString(json, start)
    parsed += between.replaceAll(TOKEN, exact) + json.slice(at + between.length, end)
    at = end
  }
  return JSON.parse(parsed)
}

/** Not by a regular expression, which would run out of stack for a string of 20 MB. */
function endOfString(json: string, start: number): number {
  for (let end = json.indexOf('"', start + 1); ; end = json.indexOf('"', end + 1)) {
    let escapes = 0
    while (json[end - 1 - escapes] === '\\') escapes += 1
    if (escapes % 2 === 0) return end + 1
  }
}
