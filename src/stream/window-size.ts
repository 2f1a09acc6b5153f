import type { DataSource } from 'typeorm'
import { startTimer, startTurn, stopTimer, stopTurn } from '../connection/real-timers'
import { indexSize } from '../sql/catalog'
import { tableName, type TextTable } from '../sql/text-table'

/**
 * As many rows as one statement takes: with a thousand, the server spends a tenth of its work on reading and planning
 * statements. Look-ups of ten times as many could cost so much that it compiles them.
 */
export const BATCH_ROWS = 3_000
/** Rows in a window of one batch. */
const BATCH_CHARACTERS = 2 * 2 ** 20
/** Most rows in any window, so that they do not fill the memory. */
const MAX_CHARACTERS = 16 * 2 ** 20
const MAX_ROWS = 250_000
/**
 * How many rows of a window there are for each page of the index. Three times as many would save a tenth of the time
 * and take three times the memory.
 */
const ROWS_A_PAGE = 4
/** An index that takes no more of the server's cache stays in it. */
const CACHED_SHARE = 0.25
/** After this many rows the index may have outgrown the cache. */
const ROWS_BETWEEN_LOOKS = 100_000
/** If a source pauses for longer, the inputs that it has given are sent. In milliseconds. */
const GRACE_MILLISECONDS = 50

/**
 * How many rows are sorted together. Hashes are random: rows of a batch go to as many pages of the unique index, and once
 * it outgrows the server's cache nearly each of them is read and written anew. In a large sorted window neighbours share
 * a page.
 */
export class WindowSize {
  private size = BATCH_ROWS
  private sinceLook = 0
  private looking: Promise<void> | undefined
  private grace: NodeJS.Timeout | NodeJS.Immediate | undefined

  /** @param given rows. @default by the size of the index */
  constructor(
    private readonly dataSource: DataSource,
    private readonly table: TextTable,
    private readonly given: number | undefined,
  ) {
    if (given !== undefined) this.size = given
  }

  get rows(): number {
    return this.size
  }

  get characters(): number {
    return this.size > BATCH_ROWS ? MAX_CHARACTERS : BATCH_CHARACTERS
  }

  private async look(): Promise<void> {
    const query = async (sql: string, parameters?: unknown[]): Promise<readonly unknown[]> =>
      await this.dataSource.query(sql, parameters)
    this.size = windowRows(await indexSize(query, tableName(this.table), this.table.index))
  }

  /**
   * Asks the server for the size of the index, unless the caller has given a size. Until the answer comes, the size
   * stays as it is.
   */
  async ask(): Promise<void> {
    if (this.given !== undefined) return
    this.sinceLook = 0
    // The rows will report a connection that is lost.
    this.looking ??= this.look()
      .catch(() => undefined)
      .finally(() => (this.looking = undefined))
    await this.looking
  }

  /** Counts rows that were sent, and asks again after many. */
  sent(rows: number): void {
    this.sinceLook += rows
    if (this.sinceLook >= ROWS_BETWEEN_LOOKS) void this.ask()
  }

  /** Settles when no question is under way. */
  async settled(): Promise<void> {
    await this.looking
  }

  /** Calls back, at most once for all calls meanwhile, when a source that has given nothing must be taken for paused. */
  afterGrace(callback: () => void): void {
    if (this.grace !== undefined) return
    const run = (): void => {
      this.grace = undefined
      callback()
    }
    this.grace = this.size > BATCH_ROWS ? startTimer(run, GRACE_MILLISECONDS) : startTurn(run)
  }

  endGrace(): void {
    stopTimer(this.grace as NodeJS.Timeout | undefined)
    stopTurn(this.grace as NodeJS.Immediate | undefined)
  }
}

/** @param index in bytes; `cache` is the server's own */
export function windowRows({
  index,
  cache,
  page,
}: {
  readonly index: number
  readonly cache: number
  readonly page: number
}): number {
  if (index <= cache * CACHED_SHARE) return BATCH_ROWS
  return Math.min(MAX_ROWS, Math.max(BATCH_ROWS, Math.ceil((index / page) * ROWS_A_PAGE)))
}
