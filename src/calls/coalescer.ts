import type { EntityManager, ReplicationMode } from 'typeorm'
import { connectsAsMade, openSession } from '../connection/open-session'
import { nextTick, startTimer, stopTimer } from '../connection/mutex'
import { openTransaction, registry } from '../registry/registry'
import { ensureReady, knownReady } from '../schema/readiness'
import type { StoredRow } from '../sql/find'
import { parameterText } from '../sql/types'
import { type EntityText, onTable } from './entity-text'
import { groupBy } from './batches'
import { type RowValues, sameValues } from './row-values'
import { statementsOf } from './statements'
import { isObject } from './values'
import { currentEvent, type OperationEvent } from './watch'

/** How many calls may go their ordinary way at once; further calls wait. */
const MOST_ALONE = 8
/** Fewer than these share nothing: a statement for many costs about as much as two for one. */
const LEAST_SHARING = 3
/** Rows of one shared look-up, and characters of their keys; a key that is longer than these never waits. */
const MOST_SHARING = 1_000
const MOST_CHARACTERS = 2 ** 18
/**
 * A shared look-up that takes longer than this, in milliseconds, delays nobody: something is wrong with its connection
 * or a table.
 */
const SLOW_MILLISECONDS = 20
/** Where fewer rows than this share are found, looking for them first would only add to what inserts them. */
const LEAST_FOUND = 0.25
/** What one more call weighs in that share. */
const WEIGHT = 0.05

/** A call that may wait. */
export interface Arrival {
  readonly manager: EntityManager
  readonly row: RowValues
  /** What it does where no row holds the text: nothing, insert it, or run code of the user's before it inserts. */
  readonly missing: 'nothing' | 'insert' | 'ask'
  /** Whether it can do with the row that was found. @default any will do */
  readonly takes?: ((stored: StoredRow) => boolean) | undefined
}

/** The answer to a call that waited. */
export interface Answer {
  /** The row that holds the text; null where none does; undefined where it shall go its ordinary way. */
  readonly stored: StoredRow | null | undefined
  /** Calls with the same text, which wait for its row. */
  readonly followers?: WaitingCall[] | undefined
}

interface WaitingCall extends Arrival {
  /** It has waited for another call of its text already, and does so only once. */
  readonly followed: boolean
  /** Its row holds what another call must not get a copy of: it is looked up for this call alone. */
  readonly apart: boolean
  readonly resolve: (answer: Answer) => void
  /** Hears that the call shared an answer. */
  readonly event: OperationEvent | undefined
}

/**
 * Coalesces calls that look up texts of one table at the same time. The first few go their ordinary way, each with a
 * statement of its own. Calls that come while these are busy wait here, and as soon as no shared look-up is under way,
 * all that wait by then share one: it reads, so it holds no lock and waits for no other transaction. Of the calls that
 * would insert one text, only the first does, and the others get what it got.
 *
 * A call is answered only by what was sent after it began, so nobody joins what is under way already.
 */
export class Coalescer {
  private alone = 0
  /** Shared look-ups under way that have not become slow. */
  private sharing = 0
  private gathering = false
  private waiting: WaitingCall[] = []
  /** The last waiting calls were enough to share a look-up. The next calls may be as many, and wait to see. */
  private crowded = false
  /** The share of recent calls that a look-up answered, or would have. */
  private found = 1

  constructor(
    private readonly entityText: EntityText,
    private readonly mode: ReplicationMode,
  ) {}

  /** @returns undefined where the call goes its ordinary way at once; it says by `leave` when it has */
  enter({ manager, row, missing, takes }: Arrival): Promise<Answer> | undefined {
    const free = !this.crowded && this.alone < MOST_ALONE && this.sharing === 0 && this.waiting.length === 0
    // A key that shares is short, and of nothing but texts and numbers: the driver sends an object in ways of its own.
    const mayShare = (): boolean => keyLengthOf(row) <= MOST_CHARACTERS && !row.key.some(isObject) && this.seesAlike()
    if (free || this.found < LEAST_FOUND || !mayShare()) {
      this.alone += 1
      return undefined
    }
    const answer = new Promise<Answer>((resolve) => {
      const event = currentEvent()
      this.waiting.push({ manager, row, missing, takes, followed: false, apart: false, resolve, event })
    })
    this.serve()
    return answer
  }

  /** A call that went its ordinary way has its row: notifies the calls that wait for it. */
  notify({ followers = [] }: Answer, stored: StoredRow): void {
    for (const one of followers.splice(0)) this.give(one, copyOf(stored))
  }

  /**
   * The ordinary way of a call is over.
   *
   * @param answer what `enter` gave it
   * @param result unless it created a row, a look-up would have answered it. @default nobody knows
   */
  leave(answer: Answer | undefined, result?: { readonly created: boolean }): void {
    this.alone -= 1
    if (result) this.weigh(!result.created)
    // Calls that were not notified: the call that they waited for failed, which concerns only itself.
    if (answer?.followers) for (const one of answer.followers.splice(0)) this.waiting.push({ ...one, followed: true })
    if (this.waiting.length > 0) this.serve()
  }

  /** Under row security, connections that are given a caller's rights see different rows. */
  private seesAlike(): boolean {
    const ready = knownReady(this.entityText.declaration)
    return ready?.rowSecurity === false && !ready.distributed
  }

  private serve(): void {
    const most = this.waiting.length >= MOST_ALONE ? 1 : 0
    if (this.waiting.length === 0 || this.sharing > most || this.gathering) return
    this.gathering = true
    // Waits for all who are about to come: not for any time, only for what is ready to run.
    nextTick(() => {
      this.gathering = false
      this.gather()
    })
  }

  private gather(): void {
    const group = this.take()
    const texts: readonly Same[] = [...groupBy(group, (one): unknown => (one.apart ? one : one.row.identity)).values()]
    // How many statements the calls send at least if they go their ordinary way.
    const separate = texts.reduce(
      (sum, same) => sum + same.filter((one) => !mayFollow(one)).length + Number(same.some(mayFollow)),
      0,
    )
    this.crowded = group.length >= LEAST_SHARING && this.alone + group.length > MOST_ALONE
    if (!this.crowded || separate < LEAST_SHARING) {
      for (const same of texts) this.releaseAll(same)
      // One statement takes only so many calls; the others must not wait for those that it took.
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
      // Each call finds out for itself whether the error concerns a row, a value or the connection: a lost connection
      // must not fail the whole batch.
      for (const one of texts.flat()) this.release(one)
    } finally {
      stopTimer(slow)
      ends()
    }
  }

  /** The first who wait, as many as one statement takes. */
  private take(): readonly WaitingCall[] {
    let characters = 0
    const end = this.waiting.findIndex(({ row }, index) => {
      characters += keyLengthOf(row)
      return index === MOST_SHARING || characters > MOST_CHARACTERS
    })
    return this.waiting.splice(0, end === -1 ? MOST_SHARING : end)
  }

  /** Looks up the texts of several calls in one statement, and answers these. */
  private async lookUp(texts: readonly Same[]): Promise<void> {
    const firsts = texts.flatMap(([first]) => first ?? [])
    const [first] = firsts
    if (!first) return
    // For each text the row, or null; undefined if several rows hold it.
    const found: (StoredRow | null | undefined)[] = firsts.map(() => null)
    const session = await openSession(first.manager, this.mode)
    try {
      const { entityText } = this
      const ready = onTable(entityText, await ensureReady(entityText.declaration, session))
      const keys = first.row.key.map((_, index) => firsts.map(({ row }) => parameterText(row.key[index])))
      for (const stored of await session.rows(statementsOf(ready).findTogether, keys)) {
        found[stored.index] = found[stored.index] === null ? stored : undefined
      }
    } finally {
      await session.close()
    }
    for (const [index, same] of texts.entries()) {
      const stored = found[index]
      if (stored) same.forEach((one, nth) => this.give(one, nth === 0 ? stored : copyOf(stored)))
      else if (stored === null) this.answerMissing(same)
      else for (const one of same) this.release(one)
    }
  }

  /** @param stored undefined where there is none that this call can have */
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
   * Calls of one text go their ordinary way; but of those that would insert the very same row only the first does, and
   * the others follow. A call that brings other values does not follow: the first one may be
   * waiting for somebody who waits for this call.
   */
  private releaseAll(same: Same): void {
    const first = same.find(mayFollow)
    const follows = (one: WaitingCall): boolean =>
      first !== undefined && one !== first && mayFollow(one) && sameValues(one.row, first.row)
    if (first) this.release(first, same.filter(follows))
    for (const one of same) if (one !== first && !follows(one)) this.release(one)
  }

  /** Releases a call to go its ordinary way. */
  private release(one: WaitingCall, followers?: WaitingCall[]): void {
    this.alone += 1
    one.resolve({ stored: undefined, followers })
  }

  private weigh(found: boolean): void {
    this.found += WEIGHT * ((found ? 1 : 0) - this.found)
  }
}

/** Calls that wait for one text. */
type Same = readonly WaitingCall[]

const mayFollow = ({ missing, followed, apart }: WaitingCall): boolean => missing === 'insert' && !followed && !apart

const keyLengthOf = ({ key }: RowValues): number =>
  key.reduce<number>((sum, value) => sum + (typeof value === 'string' ? value.length : 0), 0)

const coalescers = new WeakMap<EntityText, Partial<Record<ReplicationMode, CallCoalescer>>>()

/** What a call uses of a coalescer. */
export type CallCoalescer = Pick<Coalescer, 'enter' | 'notify' | 'leave'>

/** For a call that meets no others. */
const NO_COALESCER: CallCoalescer = { enter: () => undefined, notify: () => {}, leave: () => {} }

/**
 * Where calls of this manager meet others of the same unique text; nowhere, if it has a connection of its own, in a transaction
 * or not, and where the options of the DataSource say so. Nor where somebody makes each connection ready for its caller,
 * for row-level security for instance: what one caller's sees, another must not. Nor inside a transaction that goes by
 * another connection: whom the call would follow may wait for its end.
 */
export function coalescerOf(
  manager: EntityManager,
  entityText: EntityText,
  mode: ReplicationMode = 'master',
): CallCoalescer {
  if (manager.queryRunner || openTransaction() || !connectsAsMade(entityText.dataSource)) return NO_COALESCER
  const known = coalescers.get(entityText)?.[mode]
  if (known) return known
  const { coalesce = true, tenantsBySearchPath = false } = registry.settings.get(entityText.dataSource) ?? {}
  const coalescer = coalesce && !tenantsBySearchPath ? new Coalescer(entityText, mode) : NO_COALESCER
  coalescers.set(entityText, { ...coalescers.get(entityText), [mode]: coalescer })
  return coalescer
}

/**
 * Copies a row for one more call: two entities must not share the objects that their columns hold.
 *
 * @returns undefined if it holds an object other than a Date, which we do not know how to copy
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
