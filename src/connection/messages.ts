import type { PgConnection } from './pg-client'

/** What `pg` takes in place of a query, as it takes a cursor. */
export class Messages {
  constructor(
    private readonly write: (connection: PgConnection) => void,
    /** `pg` puts its own in front of it where there is a `query_timeout`. */
    public callback: () => void,
  ) {}

  submit(connection: PgConnection): void {
    this.write(connection)
  }

  handleCommandComplete(): void {}

  handleReadyForQuery(): void {
    this.callback()
  }

  /** The connection is gone or too slow. The next statement fails for the same reason and reports it. */
  handleError(): void {
    this.callback()
  }
}

/**
 * Sends messages of which nobody needs the answers; ends when the server has done them, and never fails.
 *
 * @param query takes what is sent in its turn
 * @param write what ends with a Sync
 */
export async function sendMessages(
  query: (messages: Messages) => unknown,
  write: (connection: PgConnection) => void,
): Promise<void> {
  await new Promise<void>((resolve) => query(new Messages(write, resolve)))
}
