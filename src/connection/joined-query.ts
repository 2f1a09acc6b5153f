import { commandMessages, SYNC } from './bind-message'
import type { PgConnection } from './pg-client'
import type { Around, PreparedQuery } from './prepared-query'

/** Commands in front of a query, and behind it, that go to the server with it in one flush. */
export interface Commands {
  readonly before: readonly string[]
  readonly after: readonly string[]
}

/** As messages: after an error the server skips everything up to Sync. */
export interface JoinedCommands extends Around {
  readonly commandsBefore: number
}

/** @param commands ASCII, shorter than 240 characters */
export const joined = ({ before, after }: Commands): JoinedCommands => ({
  commandsBefore: before.length,
  before: Buffer.from(before.map(commandMessages).join(''), 'latin1'),
  after: after.map(commandMessages).join('') + SYNC,
})

/** A query with commands around it. */
export class JoinedQuery {
  /**
   * Tracing libraries put a function of their own in front of it, and look for it among the object's own properties.
   */
  callback: PreparedQuery['callback']
  private done = 0

  constructor(
    private readonly query: PreparedQuery,
    private readonly around: JoinedCommands,
  ) {
    this.callback = query.callback
    query.callback = (error, rows): void => this.callback(error, rows)
  }

  /** How many have ended: commands, and the query among them. */
  get ended(): number {
    return this.done
  }

  /** `pg` keeps the SQL by it whenever the server has parsed something: of all these, only the query has a name. */
  get name(): string {
    return this.done === this.around.commandsBefore ? this.query.name : ''
  }

  get text(): string {
    return this.query.text
  }

  submit(connection: PgConnection): Error | undefined {
    return this.query.submit(connection, this.around)
  }

  handleRowDescription(message: Parameters<PreparedQuery['handleRowDescription']>[0]): void {
    this.query.handleRowDescription(message)
  }

  handleDataRow(message: Parameters<PreparedQuery['handleDataRow']>[0]): void {
    this.query.handleDataRow(message)
  }

  handleCommandComplete(): void {
    this.done += 1
  }

  handleReadyForQuery(): void {
    this.query.handleReadyForQuery()
  }

  handleError(error: unknown): void {
    this.query.handleError(error)
  }
}
