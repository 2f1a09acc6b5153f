import type { ObjectLiteral } from 'typeorm'
import { hasSpare, isAwaited } from '../connection/pg-client'
import { PoolSession } from '../connection/pool-session'
import { TransactionAbortedError } from '../errors'
import { withCreated } from '../rows/deferred-row'
import { toRowError } from '../rows/refused-input'
import { isRowError } from '../sql/sqlstate'
import { registry } from '../registry/registry'
import { type Batch, type BatchItem, type DistinctRow, findQuery, inBatches } from './batches'
import { type BatchAnswer, type ManyCall, runBatch, sendBatch, takeAnswers, writeResult } from './run-batch'

/** How the batches of a call are sent. */
interface Sending {
  /** Whether two may be under way at once. */
  readonly mayOverlap: boolean
}

/**
 * Runs the batches of a call one after another. Outside the caller's connection, while one is at the server, a second
 * connection takes the next, where the pool has one to spare.
 *
 * If a batch fails, no other begins, and the one beside it is awaited: nothing is under way when this ends.
 *
 * @throws what the first failed batch threw, and the reason of an aborted signal
 */
export async function runBatches<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  batches: Iterable<Batch>,
  { mayOverlap }: Sending,
): Promise<void> {
  const course = new Course(call, batches[Symbol.iterator]())
  const { session } = call
  const overlap = mayOverlap && session instanceof PoolSession && !tellsTenants(call)
  await course.run(overlap ? session : undefined)
  call.progress.check()
}

/** Which table a name means depends on the connection. */
const tellsTenants = ({ session }: Pick<ManyCall<unknown>, 'session'>): boolean =>
  registry.settings.get(session.dataSource)?.tenantsBySearchPath === true

class Course<Entity extends ObjectLiteral> {
  private next: IteratorResult<Batch, unknown>
  private failure: { readonly error: unknown } | undefined
  private beside: Promise<void> | undefined
  /** The batches blocked each other, by locks of triggers or by SERIALIZABLE: from now on they are sent one by one. */
  private lost = false

  constructor(
    private readonly call: ManyCall<Entity>,
    private readonly batches: Iterator<Batch>,
  ) {
    this.next = batches.next()
  }

  /** @param session undefined: one at a time */
  async run(session: PoolSession | undefined): Promise<void> {
    await this.runAll(this.call, async () => {
      if (!session) return
      // It never waits for the second connection: the first is there before the second is requested.
      await session.take()
      this.takeSecond()
    })
    const { beside } = this
    try {
      // The other batch may still wait for a connection, which could be ours.
      if (beside) await session?.release()
    } finally {
      await beside
    }
    if (this.failure) throw this.failure.error
  }

  /** Takes batches until none is left, or one has failed. */
  private async runAll(
    call: ManyCall<Entity>,
    before: () => Promise<void>,
    goesOn = (): boolean => true,
  ): Promise<void> {
    const onLost = (): void => {
      this.lost = true
      this.call.onLost?.()
    }
    try {
      while (goesOn()) {
        const batch = this.take()
        if (!batch) return
        await before()
        await runBatch({ ...call, onLost }, batch)
        call.progress.report()
      }
    } catch (error) {
      this.failure ??= { error }
    }
  }

  private take(): Batch | undefined {
    if (this.next.done || this.failure) return undefined
    this.call.progress.check()
    const { value } = this.next
    this.next = this.batches.next()
    return value
  }

  private takeSecond(): void {
    if (this.beside || this.lost || this.next.done || !hasSpare(this.call.session.dataSource)) return
    this.beside = this.runBeside().finally(() => (this.beside = undefined))
  }

  /** Whoever waits for a connection gets this one after its batch. */
  private async runBeside(): Promise<void> {
    const { dataSource } = this.call.session
    const session = new PoolSession(dataSource, 'master')
    try {
      // If this fails, the first connection does what is left; if the server is gone, the first one notices too.
      const taken = await session.take().then(
        () => true,
        () => false,
      )
      const goesOn = (): boolean => !this.lost && !isAwaited(dataSource)
      if (taken) await this.runAll({ ...this.call, session }, async () => await session.take(), goesOn)
      await session.close()
    } catch (error) {
      this.failure ??= { error }
    }
  }
}

/**
 * Looks for all rows of a call before anything is written, and calls `create` for those that are missing: one after
 * another, in the order of the inputs. By then no lock of the call is held, in the caller's transaction neither.
 *
 * @returns the rows that remain to be found or created. A row about which the common look-up says nothing keeps its
 * `create`.
 */
export async function completeMissing<Entity extends ObjectLiteral>(
  call: ManyCall<Entity>,
  rows: readonly DistinctRow[],
): Promise<DistinctRow[]> {
  const given = new Map(rows.map((row) => [row.row.identity, row]))
  const left: DistinctRow[] = []
  const missing: DistinctRow[] = []
  const put = (list: DistinctRow[], row: DistinctRow): void => void list.push(given.get(row.row.identity) ?? row)
  for (const { items, alone } of inBatches(call, rows.map(keyOnly), (row) => put(left, row))) {
    call.progress.check()
    const answer = alone ? undefined : await look(call, items)
    const unanswered = answer ? takeAnswers(call, items, answer) : items
    const seen = new Set(answer?.rows.map(({ index }) => items[index]))
    for (const item of unanswered) put(answer && !seen.has(item) ? missing : left, item)
    call.progress.report()
  }
  return [...left, ...(await createValues(call, missing))]
}

const keyOnly = (row: DistinctRow): DistinctRow => ({ ...row, row: { ...row.row, others: [], all: row.row.key } })

/** @returns undefined if a row is refused for what it holds */
async function look<Entity>(call: ManyCall<Entity>, items: readonly BatchItem[]): Promise<BatchAnswer | undefined> {
  try {
    return await sendBatch(call, findQuery(call, items))
  } catch (error) {
    if (isRowError(error)) return undefined
    throw error
  }
}

async function createValues<Entity>(call: ManyCall<Entity>, missing: readonly DistinctRow[]): Promise<DistinctRow[]> {
  const complete: DistinctRow[] = []
  await call.session.release()
  for (const row of missing.toSorted((left, right) => left.input - right.input)) {
    try {
      complete.push({ ...row, ...(await withCreated(call.entityText, row)) })
    } catch (error) {
      if (error instanceof TransactionAbortedError) throw error
      writeResult(call, row, { error: toRowError(error) })
    }
  }
  return complete
}
