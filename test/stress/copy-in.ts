import { Query, type Connection } from 'pg'
import type { RawClient } from './action'

/** What pg's connection can do and its types leave out. */
interface CopyingConnection extends Connection {
  sendCopyFromChunk(chunk: Buffer): void
  endCopyFrom(): void
}

/** pg answers the server's request for data with a refusal; this query answers with the data. */
class CopyIn extends Query {
  constructor(
    sql: string,
    private readonly lines: readonly string[],
  ) {
    super(sql)
  }

  handleCopyInResponse(connection: CopyingConnection): void {
    connection.sendCopyFromChunk(Buffer.from(this.lines.map((line) => `${line}\n`).join('')))
    connection.endCopyFrom()
  }
}

/** Runs `COPY … FROM STDIN` with these lines. */
export async function copyIn(client: RawClient, sql: string, lines: readonly string[]): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const query = new CopyIn(sql, lines)
    query.once('end', () => resolve())
    query.once('error', reject)
    client.query(query)
  })
}
