/** Something that must never be, and when it was seen. */
export interface Violation {
  readonly what: string
  readonly milliseconds: number
}

const KEPT_EVENTS = 2_000
const MOST_VIOLATIONS = 20
/** As the checker says it. */
const HARMLESS_YET = 'anchor without flag'

/** Counts what was done, and keeps what went wrong; one for a run. */
export class Journal {
  /** By action, then by outcome: `ok`, a SQLSTATE, or the code of one of our errors. */
  readonly outcomes = new Map<string, Map<string, number>>()
  readonly violations: Violation[] = []
  /** How often each was seen: commits, rollbacks, retries, checks … */
  readonly totals = new Map<string, number>()
  private readonly created = new Map<string, number>()
  private readonly recent: string[] = []
  private counted = 0
  private readonly started = performance.now()
  private turn: Promise<unknown> = Promise.resolve()

  /** Any error will do as long as it lasts: what counts is what stands in the tables, and what callers were told. */
  troubled = false

  /** Triggers of the user's change what is written, and remove rows. */
  derived = false

  /** The column of the ids has the name of another for a while, so that callers get the values of that. */
  renamed = false

  /** The first sign of a fault that has done no harm yet; only where such signs do not count as violations. */
  sign: Violation | undefined

  /**
   * @param end of the time, in milliseconds from now on
   * @param leastOperations before it ends, however slow the machine is
   * @param awaitsHarm go on after an anchor without its flag, until a duplicate or an error comes of it
   */
  constructor(
    private end: number,
    private readonly leastOperations = 0,
    private readonly awaitsHarm = false,
  ) {}

  /** Moves the end, for a further phase. */
  until(end: number): void {
    this.end = end
  }

  /** Milliseconds since the start. */
  get elapsed(): number {
    return performance.now() - this.started
  }

  /** False from the first violation on, and once the time is over and enough is done. */
  get running(): boolean {
    return this.violations.length === 0 && (this.elapsed < this.end || this.operations < this.leastOperations)
  }

  /** Keeps apart those who look by the names of tables and columns, and those who rename them for a while. */
  async alone(work: () => Promise<void>): Promise<void> {
    const before = this.turn
    const own = before.then(work)
    this.turn = own.catch(() => {})
    await own
  }

  /** Actions that were run, however they ended. */
  get operations(): number {
    return this.counted
  }

  /** The outcomes of all actions together. */
  byOutcome(): Map<string, number> {
    const sums = new Map<string, number>()
    for (const counts of this.outcomes.values()) {
      for (const [outcome, count] of counts) sums.set(outcome, (sums.get(outcome) ?? 0) + count)
    }
    return sums
  }

  count(action: string, outcome: string): void {
    this.counted += 1
    const outcomes = this.outcomes.get(action) ?? new Map<string, number>()
    this.outcomes.set(action, outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1))
  }

  add(total: string, more = 1): void {
    this.totals.set(total, (this.totals.get(total) ?? 0) + more)
  }

  highest(total: string, value: number): void {
    this.totals.set(total, Math.max(this.totals.get(total) ?? 0, value))
  }

  /** An identity column never gives a number twice, so a row can be created once ever, rolled back or not. */
  rowCreated(table: string, id: number): void {
    const key = `${table} ${id}`
    const times = (this.created.get(key) ?? 0) + 1
    this.created.set(key, times)
    this.add('created')
    if (times > 1 && !this.renamed) this.violate(`row ${id} of ${table} was created ${times} times`)
  }

  /** What a caller got is not what it wrote: a violation, unless triggers of the user's derive columns and remove rows. */
  surprise(what: string): void {
    if (this.derived) this.add('surprises by triggers')
    else this.violate(what)
  }

  violate(what: string): void {
    const violation = { what, milliseconds: Math.round(this.elapsed) }
    if (this.awaitsHarm && what.includes(HARMLESS_YET)) this.sign ??= violation
    else if (this.violations.length < MOST_VIOLATIONS) this.violations.push(violation)
  }

  event(client: number, what: string): void {
    if (this.violations.length > 0) return
    this.recent.push(`${this.elapsed.toFixed(1)} ms  client ${client}: ${what}`)
    if (this.recent.length > 2 * KEPT_EVENTS) this.recent.splice(0, KEPT_EVENTS)
  }

  /** The last `count` events before the first violation, and all that are kept of a client that it names. */
  eventsBefore(count: number): readonly string[] {
    const named = /^client \d+:/.exec(this.violations[0]?.what ?? '')?.[0]
    return this.recent.filter((event, index) => index >= this.recent.length - count || (named && event.includes(named)))
  }
}
