import { AsyncLocalStorage } from 'node:async_hooks'
import type { DataSource, QueryRunner } from 'typeorm'
import { UniqueTextError } from '../errors'
import { type Declaration, registry } from '../registry/registry'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { decided, isUndecided, markOf, undecided } from '../sql/find'
import { ensureReady, hasTenants, knownReady } from '../schema/readiness'
import { queryOf } from '../schema/table'
import { declarationsIn } from './refusals'

/** The query runner that sends a statement, and its means to query the database. */
interface Sender {
  readonly dataSource: DataSource
  readonly queryRunner: QueryRunner
  readonly query: (sql: string, parameters?: unknown[]) => Promise<unknown>
}

/**
 * Returns the mark with which a condition on a hash names the table to check. If tenants have tables of their own, no
 * check is final. The condition then stays right for rows without a hash.
 */
export function markFor(declaration: Declaration): string | undefined {
  if (hasTenants(declaration.metadata)) return undefined
  const { marks } = registry
  const number = marks.numbers.get(declaration) ?? (marks.last += 1)
  marks.numbers.set(declaration, number)
  return markOf(marks.secret, number)
}

/**
 * Resolves the conditions in the statements of one query runner when they are sent. If index, check and guard exist,
 * the hash decides. Otherwise only the text decides, because a row may have no hash or a wrong one. Conditions are
 * built before a query is possible, so the statement first checks the table on its own connection.
 *
 * Later statements wait, because one that overtakes could be the ROLLBACK that was to undo the earlier one.
 */
export class Deciding {
  /** Settles when the last waiting statement is sent. */
  #sent: Promise<void> | undefined

  constructor(private readonly sender: Sender) {}

  /**
   * Whether there is nothing to resolve and nothing to wait for. The statement is then sent without an extra frame in
   * the stack of its error.
   */
  isFree(sql: string): boolean {
    // A statement that a subscriber sends because of the check is part of the check.
    if (asking.getStore() === this.sender.queryRunner) return true
    return !this.#sent && !isUndecided(sql, registry.marks.secret)
  }

  async send<T>(sql: string, send: (sql: string) => Promise<T>): Promise<T> {
    const { queryRunner } = this.sender
    if (this.isFree(sql)) return await send(sql)
    const waits = isUndecided(sql, registry.marks.secret)
    const decided = this.#next(async () => (waits ? await asking.run(queryRunner, decide, sql, this.sender) : sql))
    const sent = decided.then((text) => ({ result: send(text) }))
    const end = sent.then(ignore, ignore)
    this.#sent = end
    void end.finally(() => {
      if (this.#sent === end) this.#sent = undefined
    })
    const { result } = await sent
    return await result
  }

  async #next(text: () => Promise<string>): Promise<string> {
    await this.#sent
    return await text()
  }
}

const ignore = (): void => {}

/** The query runner that runs a check. */
const asking = new AsyncLocalStorage<QueryRunner>()

async function decide(sql: string, sender: Sender): Promise<string> {
  const { secret, numbers } = registry.marks
  const declarations = declarationsIn(sender.dataSource)
  const ready = new Set<number>()
  for (const number of undecided(sql, secret)) {
    // SQL from another DataSource may refer to a table that this one does not know.
    const declaration = declarations.find((one) => numbers.get(one) === number)
    if (declaration && (await isSeen(declaration, sender))) ready.add(number)
  }
  return decided(sql, secret, ready)
}

/** A table that was not ready when it was checked. */
interface Unready {
  /** The number of statements that use the text before the next check. */
  wait: number
  readonly nextWait: number
}

/** Few statements check a table that is never ready because a trigger was disabled for good. */
const LONGEST_WAIT = 64

const unready = new WeakMap<Declaration, Unready>()

async function isSeen(declaration: Declaration, sender: Sender): Promise<boolean> {
  if (knownReady(declaration)) return true
  const known = unready.get(declaration)
  if (known && known.wait > 0) {
    known.wait -= 1
    return false
  }
  try {
    await ensureReady(declaration, { query: queryOf(sender), shared: true, release: async () => {} })
    return true
  } catch (error) {
    if (error instanceof UniqueTextError) {
      const { nextWait: wait } = known ?? { nextWait: 1 }
      // Checks at the same time count as one.
      if (unready.get(declaration) === known)
        unready.set(declaration, { wait, nextWait: Math.min(wait * 2, LONGEST_WAIT) })
    } else if (sender.queryRunner.isTransactionActive && serverError(error)?.code !== SQLSTATE.failedTransaction) {
      // The error that aborted the caller's transaction is thrown here, because the statement itself could only report
      // that the transaction is aborted.
      throw error
    }
    return false
  }
}
