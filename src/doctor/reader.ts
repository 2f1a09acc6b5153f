import type { QueryRunner } from 'typeorm'
import type { Query } from '../sql/catalog'
import { type Bound, type Key, keyOfResult, page, type PageBounds, type PageParts, SNAPSHOT } from '../sql/doctor-rows'

/** A row as a statement gives it: every value is of type text. */
export type Result = Readonly<Record<string, string | null>>

/** Rows that one statement gave. */
export interface Page {
  readonly results: readonly Result[]
  /** The key that the page begins after, and that of its last row. */
  readonly after: Key | undefined
  readonly upTo: Key
}

/** Reads by one connection, and only reads. */
export class Reader {
  constructor(
    private readonly queryRunner: QueryRunner,
    readonly batchRows: number,
    private readonly signal: AbortSignal | undefined,
  ) {}

  readonly query: Query = async (sql, values) => {
    this.signal?.throwIfAborted()
    return (await this.queryRunner.query(sql, values)) as readonly unknown[]
  }

  async rows({ sql, values }: Bound): Promise<readonly Result[]> {
    return (await this.query(sql, values)) as readonly Result[]
  }

  /** Reads page after page, each in a snapshot of its own. */
  async *pages(parts: PageParts, bounds: Omit<PageBounds, 'limit'> = {}): AsyncGenerator<Page, void, undefined> {
    for (let { after } = bounds; ;) {
      const results = await this.rows(page(parts, { ...bounds, after, limit: this.batchRows }))
      const last = results.at(-1)
      if (!last) return
      const upTo = keyOfResult(parts.table, last)
      yield { results, after, upTo }
      after = upTo
    }
  }

  /** Looks at several things as they are at one moment. */
  async snapshot<T>(look: () => Promise<T>): Promise<T> {
    await this.query(SNAPSHOT.begin)
    let seen: T
    try {
      seen = await look()
    } catch (error) {
      // On a lost connection this fails too, but it must not hide the cause.
      await this.queryRunner.query(SNAPSHOT.rollBack).catch(() => undefined)
      throw error
    }
    await this.queryRunner.query(SNAPSHOT.commit)
    return seen
  }
}
