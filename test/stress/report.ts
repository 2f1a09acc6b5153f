import { ACTIONS } from './actions'
import type { StressResult } from './run'

const SHOWN_EVENTS = 60

/** The counts of a run as plain values. */
export function countsOf({ seed, clients, seconds, ledger }: StressResult): Record<string, unknown> {
  const actions = Object.fromEntries(
    [...ledger.outcomes].map(([name, outcomes]) => [name, Object.fromEntries(outcomes)]),
  )
  return {
    seed,
    clients,
    seconds: Math.round(seconds),
    operations: ledger.operations,
    kinds: ledger.outcomes.size,
    outcomes: Object.fromEntries(ledger.byOutcome()),
    totals: Object.fromEntries(ledger.totals),
    actions,
    violations: ledger.violations,
  }
}

/** Operations by kind and by outcome, totals, violations: the table for a person. */
export function tableOf({ seed, clients, seconds, ledger }: StressResult): string {
  const sums = ledger.byOutcome()
  const columns = [...sums.keys()].toSorted(
    (left, right) => Number(right === 'ok') - Number(left === 'ok') || (left < right ? -1 : 1),
  )
  const line = (name: string, counts: ReadonlyMap<string, number>): string[] => [
    name,
    ...columns.map((outcome) => (counts.get(outcome) ?? 0).toLocaleString('en')),
  ]
  const lines = [...ledger.outcomes].toSorted(byPlace).map(([name, counts]) => line(name, counts))
  return [
    align([['kind', ...columns], ...lines, line('all', sums)]),
    align([...ledger.totals].map(([name, count]) => [name, count.toLocaleString('en')])),
    `${ledger.operations.toLocaleString('en')} operations of ${ledger.outcomes.size} kinds by ${clients} clients ` +
      `in ${Math.round(seconds)} s, seed ${seed}: ${ledger.violations.length} violations`,
  ].join('\n\n')
}

/** In the order in which the actions are written down; what is no action comes last. */
function byPlace([left]: readonly [string, unknown], [right]: readonly [string, unknown]): number {
  const place = (name: string): number => {
    const found = ACTIONS.findIndex((action) => action.name === name)
    return found === -1 ? ACTIONS.length : found
  }
  return place(left) - place(right)
}

/** The violations, and what happened before the first; empty where there is none. */
export function violationsOf({ ledger }: StressResult): string {
  if (ledger.violations.length === 0) return ''
  const found = ledger.violations.map(({ what, milliseconds }) => `VIOLATION after ${milliseconds} ms: ${what}`)
  return [...ledger.eventsBefore(SHOWN_EVENTS), ...found].join('\n')
}

function align(lines: readonly (readonly string[])[]): string {
  const widths = (lines[0] ?? []).map((_, place) => Math.max(...lines.map((line) => (line[place] ?? '').length)))
  return lines
    .map((line) =>
      line
        .map((cell, place) => (place === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[place] ?? 0)))
        .join('  '),
    )
    .join('\n')
}
