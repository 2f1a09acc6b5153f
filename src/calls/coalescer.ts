import type { ReplicationMode } from 'typeorm'
import { withSession } from '../connection/open-session'
import { nextTick, startTimer, stopTimer } from '../connection/mutex'
import type { Session } from '../connection/session'
import { registry } from '../registry/registry'
import { knownReady } from '../schema/readiness'
import type { BatchRow, StoredRow } from '../sql/find'
import { parameterText } from '../sql/types'
import { type EntityText, readyText } from './entity-text'
import { groupBy } from './batches'
import { type RowValues, sameValues } from './row-values'
import { statementsOf } from './statements'
import { isObject } from './values'
import { currentEvent, type OperationEvent } from './watch'

/** The most calls that send their own statements at once. Further calls wait. */
const MOST_ALONE = 8
/** The fewest calls that share a look-up. A statement for many costs about as much as two for one. */
const LEAST_SHARING = 3
/** The most rows of one shared look-up, and the most characters of their keys. A longer key never waits. */
const MOST_SHARING = 1_000
const MOST_CHARACTERS = 2 ** 18
/**
 * The duration in milliseconds after which a shared look-up no longer delays other calls. Its connection or a table has
 * a problem then.
 */
const SLOW_MILLISECONDS = 20
/** The share of found rows below which a look-up before the insert would only add work. */
const LEAST_FOUND = 0.25
/** The weight of one more call in that share. */
const WEIGHT = 0.05

/** A call that may wait. */
export interface Arrival {
  readonly row: RowValues
  /** The action if no row holds the text: nothing, an insert, or the user's code and then an insert. */
  readonly missing: 'nothing' | 'insert' | 'ask'
  /** Returns whether the call accepts the row that was found. @default every row is accepted */
  readonly takes?: ((stored: StoredRow) => boolean) | undefined
}

/** The answer to a call that waited. */
export interface Answer {
  /** The row that holds the text; null if there is none; undefined if the call must send its own statement. */
  readonly stored: StoredRow | null | undefined
  /** Calls with the same text, which wait for its row. */
  readonly followers?: WaitingCall[] | undefined
}

interface WaitingCall extends Arrival {
  /** Whether it has already waited for another call with its text. A call does so only once. */
  readonly followed: boolean
  /** Whether its row contains values that another call must not share. It is then looked up for this call alone. */
  readonly apart: boolean
  readonly resolve: (answer: Answer) => void
  /** The event that records that the call shared an answer. */
  readonly event: OperationEvent | undefined
}

/**
 * Coalesces calls that look up texts of one table at the same time. The first few calls each send a statement of their
 * own. Calls that arrive while these are busy wait here. As soon as no shared look-up is under way, all calls that wait
 * by then share one. It only reads, so it holds no lock and waits for no other transaction. If several calls would
 * insert one text, only the first does, and the others get its row.
 *
 * A call is answered only by what was sent after it began, so nobody joins what is under way already.
 */
export class Coalescer {
  private alone = 0
  /** Shared look-ups under way that have not become slow. */
  private sharing = 0
  private gathering = false
  private waiting: WaitingCall[] = []
  /** Whether the last waiting calls were enough to share a look-up. The next calls may be as many, so they wait too. */
  private crowded = false
  /** The share of recent calls that a look-up answered, or would have. */
  private found = 1

  constructor(
    private readonly entityText: EntityText,
    private readonly mode: ReplicationMode,
  ) {}

  /** @returns undefined if the call sends its own statement at once; it then calls `leave` when it has finished */
  enter({ row, missing, takes }: Arrival): Promise<Answer> | undefined {
    const free = !this.crowded && this.alone < MOST_ALONE && this.sharing === 0 && this.waiting.length === 0
    // A shared key is short, and contains only texts and numbers, because the driver sends objects in other ways.
    const mayShare = (): boolean => keyLengthOf(row) <= MOST_CHARACTERS && !row.key.some(isObject) && this.seesAlike()
    if (free || this.found < LEAST_FOUND || !mayShare()) {
      this.alone += 1
      return undefined
    }
    const answer = new Promise<Answer>((resolve) => {
      const event = currentEvent()
      this.waiting.push({ row, missing, takes, followed: false, apart: false, resolve, event })
    })
    this.serve()
    return answer
  }

  /** Passes the row of a call that sent its own statement to the calls that wait for it. */
  notify({ followers = [] }: Answer, stored: StoredRow): void {
    for (const one of followers.splice(0)) this.give(one, copyOf(stored))
  }

  /**
   * Ends a call that sent its own statement.
   *
   * @param answer the answer of `enter`
   * @param result unless it created a row, a look-up would have answered the call. @default unknown
   */
  leave(answer: Answer | undefined, result?: { readonly created: boolean }): void {
    this.alone -= 1
    if (result) this.weigh(!result.created)
    // Followers are left if the call for which they waited failed. Its failure concerns only that call.
    if (answer?.followers) for (const one of answer.followers.splice(0)) this.waiting.push({ ...one, followed: true })
    if (this.waiting.length > 0) this.serve()
  }

  /** Returns whether all connections see the same rows. Under row security they may see different ones. */
  private seesAlike(): boolean {
    const ready = knownReady(this.entityText.declaration)
    return ready?.rowSecurity === false && !ready.distributed
  }

  private serve(): void {
    const most = this.waiting.length >= MOST_ALONE ? 1 : 0
    if (this.waiting.length === 0 || this.sharing > most || this.gathering) return
    this.gathering = true
    // Waits for other calls that are ready to run, but sets no timer.
    nextTick(() => {
      this.gathering = false
      this.gather()
    })
  }

  private gather(): void {
    const group = this.take()
    const texts: readonly Same[] = [...groupBy(group, (one): unknown => (one.apart ? one : one.row.identity)).values()]
    // The fewest statements that the calls send if each sends its own.
    const separate = texts.reduce(
      (sum, same) => sum + same.filter((one) => !mayFollow(one)).length + Number(same.some(mayFollow)),
      0,
    )
    this.crowded = group.length >= LEAST_SHARING && this.alone + group.length > MOST_ALONE
    if (!this.crowded || separate < LEAST_SHARING) {
      for (const same of texts) this.releaseAll(same)
      // One statement takes a limited number of calls, and the other calls must not wait for these.
      this.serve()
      return
    }
    const parts = this.sharing === 0 && texts.length >= 2 * MOST_ALONE ? 2 : 1
    const size = Math.ceil(texts.length / parts)
    for (let part = 0; part < parts; part += 1) void this.share(texts.slice(part * size, (part + 1) * size))
  }

  private async share(texts: readonly Same[]): Promise<void> {
    this.sharing += 1
    let hasEnded = false
    const ends = (): void => {
      if (!hasEnded) this.sharing -= 1
      hasEnded = true
      this.serve()
    }
    const slow = startTimer(ends, SLOW_MILLISECONDS)
    try {
      await this.lookUp(texts)
    } catch {
      // Each call determines whether the error concerns a row, a value or the connection, because a lost connection
      // must not fail the whole batch.
      for (const one of texts.flat()) this.release(one)
    } finally {
      stopTimer(slow)
      ends()
    }
  }

  /** Removes the first waiting calls, as many as one statement takes. */
  private take(): readonly WaitingCall[] {
    let characters = 0
    const end = this.waiting.findIndex(({ row }, index) => {
      characters += keyLengthOf(row)
      return index === MOST_SHARING || characters > MOST_CHARACTERS
    })
    return this.waiting.splice(0, end === -1 ? MOST_SHARING : end)
  }

  /** Looks up the texts of several calls in one statement, and answers the calls. */
  private async lookUp(texts: readonly Same[]): Promise<void> {
    const firsts = texts.flatMap(([first]) => first ?? [])
    const [first] = firsts
    if (!first) return
    // The row of each text, or null; undefined if several rows hold the text.
    const found: (StoredRow | null | undefined)[] = firsts.map(() => null)
    const keys = first.row.key.map((_, index) => firsts.map(({ row }) => parameterText(row.key[index])))
    const send = async (session: Session): Promise<BatchRow[]> =>
      await session.rows(statementsOf(await readyText(session, this.entityText)).findTogether, keys)
    for (const stored of await withSession(this.entityText.dataSource.manager, send, this.mode)) {
      found[stored.index] = found[stored.index] === null ? stored : undefined
    }
    for (const [index, same] of texts.entries()) {
      const stored = found[index]
      if (stored) same.forEach((one, nth) => this.give(one, nth === 0 ? stored : copyOf(stored)))
      else if (stored === null) this.answerMissing(same)
      else for (const one of same) this.release(one)
    }
  }

  /** @param stored undefined if there is no copy that this call can have */
  private give(one: WaitingCall, stored: StoredRow | undefined): void {
    this.weigh(true)
    if (!stored) this.waiting.push({ ...one, apart: true })
    else if (one.takes?.(stored) === false) this.release(one)
    else this.answer(one, stored)
  }

  private answer({ event, resolve }: WaitingCall, stored: StoredRow | null): void {
    if (event) event.shared = true
    resolve({ stored })
  }

  private answerMissing(same: Same): void {
    for (const one of same) {
      if (one.missing !== 'nothing') continue
      this.weigh(true)
      this.answer(one, null)
    }
    this.releaseAll(same.filter(({ missing }) => missing !== 'nothing'))
  }

  /**
   * Releases calls with one text. Of the calls that would insert the very same row, only the first is released, and the
   * others follow it. A call with other values does not follow, because the first call may be waiting for somebody who
   * waits for this call.
   */
  private releaseAll(same: Same): void {
    const first = same.find(mayFollow)
    const follows = (one: WaitingCall): boolean =>
      first !== undefined && one !== first && mayFollow(one) && sameValues(one.row, first.row)
    if (first) this.release(first, same.filter(follows))
    for (const one of same) if (one !== first && !follows(one)) this.release(one)
  }

  /** Releases a call to send its own statement. */
  private release(one: WaitingCall, followers?: WaitingCall[]): void {
    this.alone += 1
    one.resolve({ stored: undefined, followers })
  }

  private weigh(found: boolean): void {
    this.found += WEIGHT * ((found ? 1 : 0) - this.found)
  }
}

/** The calls that wait for one text. */
type Same = readonly WaitingCall[]

const mayFollow = ({ missing, followed, apart }: WaitingCall): boolean => missing === 'insert' && !followed && !apart

const keyLengthOf = ({ key }: RowValues): number =>
  key.reduce<number>((sum, value) => sum + (typeof value === 'string' ? value.length : 0), 0)

const coalescers = new WeakMap<EntityText, Partial<Record<ReplicationMode, CallCoalescer>>>()

/** The methods of a coalescer that a call uses. */
export type CallCoalescer = Pick<Coalescer, 'enter' | 'notify' | 'leave'>

/** The coalescer of calls that share nothing. */
const NO_COALESCER: CallCoalescer = { enter: () => undefined, notify: () => {}, leave: () => {} }

/**
 * Returns the coalescer for calls of this session with this unique text. Calls share nothing if the options of the
 * DataSource forbid it, or if the connection is the caller's. They also share nothing if connections are prepared for
 * each caller, for instance for row-level security, because callers may see different rows. Nor do they inside a
 * transaction on another connection, because the followed call may wait for its end.
 */
export function coalescerOf(session: Session, entityText: EntityText, mode: ReplicationMode = 'master'): CallCoalescer {
  if (session.around || !session.connectsAsMade) return NO_COALESCER
  const known = coalescers.get(entityText)?.[mode]
  if (known) return known
  const { coalesce = true, tenantsBySearchPath = false } = registry.settings.get(entityText.dataSource) ?? {}
  const coalescer = coalesce && !tenantsBySearchPath ? new Coalescer(entityText, mode) : NO_COALESCER
  coalescers.set(entityText, { ...coalescers.get(entityText), [mode]: coalescer })
  return coalescer
}

/**
 * Copies a row for one more call, because two entities must not share the objects in their columns.
 *
 * @returns undefined if it holds an object other than a Date, which cannot be copied safely
 */
function copyOf(stored: StoredRow): StoredRow | undefined {
  const columns: unknown[] = []
  for (const value of stored.columns) {
    if (typeof value !== 'object' || value === null) columns.push(value)
    else if (Object.getPrototypeOf(value) === Date.prototype) columns.push(new Date(value as Date))
    else return undefined
  }
  return { ...stored, columns }
}
