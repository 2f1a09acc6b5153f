/** Names on one connection; each keeps a plan in the server's memory, 50 to 100 kB. */
const MAX_NAMES = 200
/** Closed at once when there are too many, the least recently used first: one round trip for all of them. */
const EVICTED_NAMES = 50
/** A plan stays as it was made, for a table of whatever size it had then; a new one costs about a millisecond. */
const MAX_USES = 1_000
const MAX_AGE_MILLISECONDS = 60_000
/**
 * After so many losses of prepared statements: something between us and the server gives statements to other sessions.
 */
const MAX_LOSSES = 3
/** How long nothing is prepared then, in milliseconds. A loss longer ago than that no longer counts. */
const PAUSE_MILLISECONDS = 600_000

/** A name to send a statement under, as long as it is kept. */
export interface PreparedName {
  readonly name: string
  /** By the caller's clock. */
  readonly since: number
  /** More than one: it was sent before, so that the server's plan may be older than what it speaks of. */
  uses: number
  /** OIDs of its columns, once the server has sent them. */
  types: readonly number[] | undefined
}

const ofClients = new WeakMap<object, PreparedNames>()

/**
 * The names of the prepared statements on one connection. None is kept for ever: a plan that was made while the table
 * was tiny reads all of it, however large it becomes, until an ANALYZE that may never come.
 */
export class PreparedNames {
  private readonly kept = new Map<string, PreparedName>()
  /** Names that the server should forget. */
  givenUp: string[] = []
  private serial = 0
  private losses = 0
  private lostAt = 0
  private last: PreparedName | undefined

  static of(client: object): PreparedNames {
    const known = ofClients.get(client)
    if (known) return known
    const names = new PreparedNames()
    ofClients.set(client, names)
    return names
  }

  /**
   * @param statement its digest's name
   * @param now milliseconds, by a clock that never goes back
   * @returns undefined while no names are kept on this connection
   */
  take(statement: string, now: number): PreparedName | undefined {
    if (this.losses >= MAX_LOSSES && now - this.lostAt < PAUSE_MILLISECONDS) return undefined
    const known = this.kept.get(statement)
    const isFresh = known && known.uses < MAX_USES && now - known.since < MAX_AGE_MILLISECONDS
    const kept = isFresh ? known : this.replace(statement, now)
    kept.uses += 1
    if (kept === this.last) return kept
    // Put last: the map is in the order of use.
    this.kept.delete(statement)
    this.kept.set(statement, kept)
    this.last = kept
    if (this.kept.size > MAX_NAMES) this.evict()
    return kept
  }

  /**
   * Every name may be gone or stale.
   *
   * @param now as `take` has it
   */
  lose(now: number): void {
    // After a pause one more is enough for the next.
    if (this.losses < MAX_LOSSES && now - this.lostAt >= PAUSE_MILLISECONDS) this.losses = 0
    this.losses += 1
    this.lostAt = now
    this.giveUp([...this.kept.keys()])
  }

  /** The names that the server should forget; each is given once. */
  takeGivenUp(): readonly string[] {
    const names = this.givenUp
    if (names.length > 0) this.givenUp = []
    return names
  }

  private replace(statement: string, now: number): PreparedName {
    this.giveUp([statement])
    // A name is never used again: code that relies on the old one must not get a statement that was prepared later.
    this.serial += 1
    return { name: `${statement}_${this.serial}`, since: now, uses: 0, types: undefined }
  }

  private evict(): void {
    this.giveUp([...this.kept.keys()].slice(0, EVICTED_NAMES))
  }

  private giveUp(statements: readonly string[]): void {
    for (const statement of statements) {
      const kept = this.kept.get(statement)
      if (kept) this.givenUp.push(kept.name)
      this.kept.delete(statement)
    }
  }
}
