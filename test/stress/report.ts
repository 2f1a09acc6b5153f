import { ACTIONS } from './actions'
import type { StressResult } from './run'

const SHOWN_EVENTS = 60

/** The counts of a run as plain values. */
export function countsOf({ seed, clients, seconds, journal }: StressResult): Record<string, unknown> {
  const actions = Object.fromEntries(
    [...journal.outcomes].map(([name, outcomes]) => [name, Object.fromEntries(outcomes)]),
  )
  return {
    seed,
    clients,
    seconds: Math.round(seconds),
    operations: journal.operations,
    kinds: journal.outcomes.size,
    outcomes: Object.fromEntries(journal.byOutcome()),
    totals: Object.fromEntries(journal.totals),
    actions,
    violations: journal.violations,
  }
}

/** Operations by kind and by outcome, totals, violations: the table for a person. */
export function tableOf({ seed, clients, seconds, journal }: StressResult): string {
  const sums = journal.byOutcome()
  const columns = [...sums.keys()].toSorted(
    (left, right) => Number(right === 'ok') - Number(left === 'ok') || (left < right ? -1 : 1),
  )
  const line = (name: string, counts: ReadonlyMap<string, number>): string[] => [
    name,
    ...columns.map((outcome) => (counts.get(outcome) ?? 0).toLocaleString('en')),
  ]
  const lines = [...journal.outcomes].toSorted(inOrder).map(([name, counts]) => line(name, counts))
  return [
    align([['kind', ...columns], ...lines, line('all', sums)]),
    align([...journal.totals].map(([name, count]) => [name, count.toLocaleString('en')])),
    `${journal.operations.toLocaleString('en')} operations of ${journal.outcomes.size} kinds by ${clients} clients ` +
      `in ${Math.round(seconds)} s, seed ${seed}: ${journal.violations.length} violations`,
  ].join('\n\n')
}

/** In the order in which the actions are written down; what is no action comes last. */
function inOrder([left]: readonly [string, unknown], [right]: readonly [string, unknown]): number {
  const position = (name: string): number => {
    const found = ACTIONS.findIndex((action) => action.name === name)
    return found === -1 ? ACTIONS.length : found
  }
  return position(left) - position(right)
}

/** The violations, and what happened before the first; empty where there is none. */
export function violationsOf({ journal }: StressResult): string {
  if (journal.violations.length === 0) return ''
  const found = journal.violations.map(({ what, milliseconds }) => `VIOLATION after ${milliseconds} ms: ${what}`)
  return [...journal.eventsBefore(SHOWN_EVENTS), ...found].join('\n')
}

function align(lines: readonly (readonly string[])[]): string {
  const widths = (lines[0] ?? []).map((_, index) => Math.max(...lines.map((line) => (line[index] ?? '').length)))
  return lines
    .map((line) =>
      line
        .map((cell, index) => (index === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[index] ?? 0)))
        .join('  '),
    )
    .join('\n')
}
