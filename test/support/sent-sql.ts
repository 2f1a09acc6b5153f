import { Socket } from 'node:net'
import { QueryBuilder } from 'typeorm'
import { PostgresQueryRunner } from 'typeorm/driver/postgres/PostgresQueryRunner.js'

/** Statements that this process sends to any Postgres, in whatever way; each once. */
export interface SentSql {
  /** Those that neither a query builder of TypeORM made, nor its driver. */
  readonly ours: () => readonly string[]
  /** From now on it records none. */
  readonly stop: () => void
}

const UPDATED = /^WITH changed AS \(([^]*)\)\nSELECT \* FROM changed$/

/** Records what goes over sockets, and what TypeORM says that it made. */
export function recordSentSql(): SentSql {
  const [sent, foreign] = [new Set<string>(), new Set<string>()]
  // They are called with their own `this`.
  // oxlint-disable-next-line typescript/unbound-method
  const { write } = Socket.prototype
  // oxlint-disable-next-line typescript/unbound-method
  const { query } = PostgresQueryRunner.prototype
  // oxlint-disable-next-line typescript/unbound-method
  const { getQueryAndParameters } = QueryBuilder.prototype
  Socket.prototype.write = function (this: Socket, ...args: Parameters<typeof write>) {
    for (const sql of statementsIn(args[0])) sent.add(sql)
    return write.apply(this, args)
  } as typeof write
  PostgresQueryRunner.prototype.query = async function (this: PostgresQueryRunner, ...args: Parameters<typeof query>) {
    if (isByTypeOrm()) foreign.add(args[0])
    return await query.apply(this, args)
  } as typeof query
  QueryBuilder.prototype.getQueryAndParameters = function (this: QueryBuilder<object>) {
    const made = getQueryAndParameters.call(this)
    foreign.add(made[0])
    return made
  }
  const isForeign = (sql: string): boolean => foreign.has(sql) || foreign.has(UPDATED.exec(sql)?.[1] ?? '')
  return {
    ours: () => [...sent].filter((sql) => !isForeign(sql)),
    stop: () => {
      Object.assign(Socket.prototype, { write })
      Object.assign(PostgresQueryRunner.prototype, { query })
      Object.assign(QueryBuilder.prototype, { getQueryAndParameters })
    },
  }
}

const [QUERY, PARSE] = ['Q'.charCodeAt(0), 'P'.charCodeAt(0)]

/** What messages of the protocol carry: a query, or a statement to parse, which has a name before it. */
function statementsIn(given: unknown): string[] {
  if (!Buffer.isBuffer(given) && !(given instanceof Uint8Array)) return []
  const bytes = Buffer.from(given)
  const found: string[] = []
  for (let at = 0; at + 5 <= bytes.length;) {
    const [kind, length] = [bytes[at], bytes.readInt32BE(at + 1)]
    if (length < 4 || at + 1 + length > bytes.length) break
    const texts = bytes
      .subarray(at + 5, at + 1 + length)
      .toString()
      .split('\0')
    if (kind === QUERY) found.push(texts[0] ?? '')
    if (kind === PARSE) found.push(texts[1] ?? '')
    at += 1 + length
  }
  return found
}

const HANDED_ON =
  /sent-sql|processTicks|explained \[as query\]|Deciding\.send|at (?:async )?[^ ]*src[/\\]typeorm[/\\]errors|executeQueries|(?:EntityManager|DataSource)\.query/

/** Whoever called `query`, past what hands a statement on. */
function isByTypeOrm(): boolean {
  const caller = (new Error('who asks').stack ?? '')
    .split('\n')
    .slice(1)
    .find((frame) => !HANDED_ON.test(frame))
  return /[/\\]node_modules[/\\]typeorm[/\\]/.test(caller ?? '')
}
