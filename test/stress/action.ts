import type { ClientBase, QueryResult } from 'pg'
import type { EntityManager } from 'typeorm'
import type { Level } from '../support/sessions'
import type { Journal } from './journal'
import type { Random } from './random'
import type { Subject } from './subject'

/** The driver's own client, past TypeORM. */
export type RawClient = Pick<ClientBase, 'query'>

/** What an action works with. */
export interface Writer {
  /** Number of the client, for the events that lead to a violation. */
  readonly client: number
  /** In a transaction its manager, bound to the same connection as `raw`; otherwise the DataSource's. */
  readonly manager: EntityManager
  readonly raw: RawClient
  readonly inTransaction: boolean
  /** Its transaction has a `lock_timeout`, which the server at times reports as 57014: isBusyError() says why. */
  readonly isImpatient: boolean
  /** Of the transaction, or of the connection. */
  readonly level: Level
  readonly random: Random
  readonly journal: Journal
  sql(text: string): Promise<QueryResult<Record<string, unknown>>>
}

/** One kind of write. */
export interface Action {
  /** Counted under this name. */
  readonly name: string
  /** How often, against the others. */
  readonly weight: number
  /** Needs a table with a scope. @default false */
  readonly scoped?: boolean
  /** Needs a table whose softly deleted rows free their texts. @default false */
  readonly soft?: boolean
  /** The first `server_version_num` that knows the statement. @default any */
  readonly since?: number
  /** Outcomes that are right for this action and a violation for others. @default [] */
  readonly expected?: readonly string[]
  readonly run: (writer: Writer, subject: Subject) => Promise<void>
}

/** An action that sends one statement. */
export function statement(
  name: string,
  weight: number,
  sql: (subject: Subject, random: Random) => string,
  more: Partial<Action> = {},
): Action {
  return {
    name,
    weight,
    ...more,
    run: async (writer, subject) => {
      await writer.sql(sql(subject, writer.random))
    },
  }
}
