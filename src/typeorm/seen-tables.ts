import { AsyncLocalStorage } from 'node:async_hooks'
import type { DataSource, QueryRunner } from 'typeorm'
import { UniqueTextError } from '../errors'
import { type Declaration, registry } from '../registry/registry'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { decided, isUndecided, markOf, undecided } from '../sql/find'
import { ensureReady, isOneOfMany, knownReady } from '../schema/readiness'
import { declarationsIn } from './refusals'

/** What a statement is sent by, and what asks for it. */
interface Sender {
  readonly dataSource: DataSource
  readonly queryRunner: QueryRunner
  readonly query: (sql: string, parameters?: unknown[]) => Promise<unknown>
}

/**
 * Returns the mark by which a condition on a hash names the table that must be seen. Where tenants have tables of their own nothing is seen
 * once and for all, and the condition stays right for rows without a hash.
 */
export function markFor(declaration: Declaration): string | undefined {
  if (isOneOfMany(declaration)) return undefined
  const { marks } = registry
  const number = marks.numbers.get(declaration) ?? (marks.last += 1)
  marks.numbers.set(declaration, number)
  return markOf(marks.secret, number)
}

/**
 * Decides the conditions of the statements of one query runner as it sends them: by the hash where index, check and guard
 * stand, and by the text alone where they do not, for then a row may have no hash, or a wrong one. Conditions are made
 * before anything can be asked, so the statement asks first, on its own connection.
 *
 * Statements that come meanwhile wait: one that overtakes might be the ROLLBACK that was to undo the other.
 */
export class Deciding {
  /** Settles when the last statement that waits is sent. */
  #sent: Promise<void> | undefined

  constructor(private readonly sender: Sender) {}

  /**
   * If there is nothing to decide and nothing to wait for, the statement is sent without an extra frame in the stack of
   * its error.
   */
  isFree(sql: string): boolean {
    // A statement that a subscriber sends when it hears of the question is part of the question.
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

/** Whose question is being asked. */
const asking = new AsyncLocalStorage<QueryRunner>()

async function decide(sql: string, sender: Sender): Promise<string> {
  const { secret, numbers } = registry.marks
  const declarations = declarationsIn(sender.dataSource)
  const ready = new Set<number>()
  for (const number of undecided(sql, secret)) {
    // SQL that another DataSource made may mean a table that this one does not know.
    const declaration = declarations.find((one) => numbers.get(one) === number)
    if (declaration && (await isSeen(declaration, sender))) ready.add(number)
  }
  return decided(sql, secret, ready)
}

/** A table that was not ready when somebody asked. */
interface Unready {
  /** How many statements go by the text before one asks again. */
  wait: number
  readonly nextWait: number
}

/** Few statements ask about a table that never gets ready, because a trigger was disabled for good. */
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
    const query = async (...of: Parameters<Sender['query']>): Promise<readonly unknown[]> =>
      (await sender.query(...of)) as readonly unknown[]
    await ensureReady(declaration, { query, shared: true, release: async () => {} })
    return true
  } catch (error) {
    if (error instanceof UniqueTextError) {
      const { nextWait: wait } = known ?? { nextWait: 1 }
      // Statements that asked at the same time count as one.
      if (unready.get(declaration) === known)
        unready.set(declaration, { wait, nextWait: Math.min(wait * 2, LONGEST_WAIT) })
    } else if (sender.queryRunner.isTransactionActive && serverError(error)?.code !== SQLSTATE.failedTransaction) {
      // The error that aborted the caller's transaction is thrown here: the statement itself could only say that it is
      // aborted.
      throw error
    }
    return false
  }
}
