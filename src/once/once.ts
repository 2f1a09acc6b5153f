import { hash } from 'node:crypto'
import type { EntityManager, QueryRunner } from 'typeorm'
import { operate, type Operation, rowValues, serverError, SQLSTATE, tracedTo, watched } from '../core'
import {
  DeclarationError,
  httpStatusOf,
  OnceFailedError,
  OnceRunningError,
  TextRejectedError,
  TokenReusedError,
  TransactionAbortedError,
} from '../errors'
import { checkOptions, kindOf, oneOf, RULE, type Rules } from '../options'
import { type Duration, durationOf } from '../text/digest'
import { canonicalJson, exactJson, type JsonAnswer } from './json'
import type { StoredToken } from './sql'
import {
  askAgain,
  type Flight,
  insideOf,
  parsedAnswer,
  requireNotInside,
  type Tokens,
  tokensOf,
  withTokens,
} from './tokens'

/** Options of `once`. */
export type OnceOptions = OnceBaseOptions & (WaitingOptions | RefusingOptions)

interface OnceBaseOptions {
  /**
   * The arguments of the request that the token identifies. Only a digest of them is stored. The same token with
   * another request is refused. The order of properties does not count.
   *
   * @default none, which differs from every request
   */
  readonly request?: unknown
  /**
   * When the token may be used again: a point in time, or a duration after the answer such as `'24 hours'`.
   *
   * @default never
   */
  readonly expires?: Date | Duration
  /**
   * Returns the part of the work's error to store, as JSON. The writes of the work are undone, the call throws the
   * error, and later calls throw an `OnceFailedError` with the stored part. If it returns undefined, nothing is stored,
   * nor if it throws, or returns a promise or another value that JSON cannot represent. It is not called for errors that another call may not meet: 40001 and 40P01, an `OnceRunningError`, and other
   * errors for which `httpStatusOf` returns 503.
   *
   * @default no failure is kept: the next call runs its own work
   */
  readonly keepFailures?: (error: unknown) => unknown
}

interface WaitingOptions {
  /**
   * Whether the call waits while another call runs the work of the token, or throws an `OnceRunningError` at once.
   *
   * @default 'wait'
   */
  readonly whileRunning?: 'wait'
  /**
   * The longest wait for the work of other calls, and for a connection of the pool. After that the call throws an
   * `OnceRunningError`.
   *
   * @default without end
   */
  readonly patience?: Duration
}

interface RefusingOptions {
  /** The call still waits for a connection of the pool, as every call does. */
  readonly whileRunning: 'refuse'
  /** Not allowed, because the call does not wait. */
  readonly patience?: never
}

const ONCE_RULES: Rules<OnceOptions> = {
  request: { takes: () => true, expected: 'what JSON holds' },
  expires: {
    takes: (value) => typeof value === 'string' || value instanceof Date,
    expected: "a Date, or a duration such as '24 hours'",
  },
  keepFailures: RULE.function,
  whileRunning: oneOf('wait', 'refuse'),
  patience: { takes: (value) => typeof value === 'string', expected: "a duration such as '5 seconds'" },
}

/** The answer, and whether this call made it. */
export interface OnceResult<Answer> {
  /** The result of `work`, as read back from JSON, whether it was replayed or not. */
  readonly answer: Answer
  /** Whether an earlier call made the answer, by its own work. */
  readonly replayed: boolean
}

/**
 * Runs `work` in a transaction, once for each token, also for parallel calls and calls from several processes. The
 * answer is stored in the same transaction, and every other call with the token returns it, even after a crash between
 * commit and answer. A call that is made while the work is under way waits for its end. It holds no connection if both
 * calls are made in this process and outside transactions. If the work fails, nothing is stored and the token is free:
 * the next call runs its own work.
 *
 * In the caller's transaction, the work runs behind a savepoint. If it fails, the transaction stays usable. The token
 * is stored when the transaction is committed.
 *
 * @param token any text that is not empty
 * @param work must use the manager that it receives; JSON must be able to represent its answer
 *
 * @example
 * const { answer, replayed } = await once(dataSource.manager, request.headers['idempotency-key'], async (manager) => {
 *   const user = await insertOrFail(manager, User, { email, handle })
 *   return { id: user.id }
 * }, { request: { email, handle }, expires: '24 hours' })
 *
 * @throws TokenReusedError if the token was used with another request
 * @throws OnceRunningError if another call runs the work, and this call refuses to wait or its patience has ended
 * @throws OnceFailedError if an earlier call has kept the failure of its work
 * @throws TextRejectedError, DeclarationError before any SQL; DeclarationError also for an answer that JSON cannot
 * represent, and if `work` calls `once` with its own token. Then nothing is stored
 * @throws SchemaDriftError, UnsupportedDatabaseError, AttemptsExhaustedError before `work` is called
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction, or once `work` was called
 * @throws any other error of `work`
 * @function
 */
export const once: typeof onceImpl = watched('once', undefined, onceImpl, ({ replayed }) => ({
  rows: 1,
  created: replayed ? 0 : 1,
}))

async function onceImpl<Answer>(
  manager: EntityManager,
  token: string,
  work: ((manager: EntityManager) => Promise<Answer> | Answer) & JsonAnswer<Answer>,
  options: OnceOptions = {},
): Promise<OnceResult<Answer>> {
  const traced = tracedTo(once)
  checkOptions('once()', options, ONCE_RULES)
  const call = callOf(manager, token, work, options)
  const { tokens, key, isKnown, refuses, deadline } = call
  const answer = withTokens(manager, tokens, async (operation) => {
    const { session } = operation
    const joins = !operation.isInTransaction && tokens.underWay.has(token)
    for (let looks = (isKnown && !joins) || session.inTransaction; ; looks = true) {
      // If the token is answered already, a transaction would only have to be ended, at the cost of a round trip.
      if (looks) {
        const [found] = await session.rows(tokens.find, key)
        if (found && !isFreeToken(found, manager)) return replayOf(found)
      }
      await session.release()
      const result = await inTurn(call, operation)
      if (result) return result
      if (!refuses && deadline !== undefined && performance.now() >= deadline) throw new OnceRunningError()
    }
  })
  return (await traced(inTime(call, answer))) as OnceResult<Answer>
}

/** A call, with the values that are known before any SQL. */
interface Call {
  readonly manager: EntityManager
  readonly tokens: Tokens
  readonly token: string
  readonly work: (manager: EntityManager) => unknown
  /** The digest of the request; null if there is none. */
  readonly request: string | null
  /** A time and an interval, at least one of which is null. */
  readonly expires: readonly [string | null, string | null]
  /** Parameters of the look-up. */
  readonly key: readonly unknown[]
  /** Whether this process has used the token before, so the token probably exists. */
  readonly isKnown: boolean
  readonly refuses: boolean
  /** The end of the wait for other calls, on the clock of `performance.now()`. Undefined for a wait without end. */
  readonly deadline: number | undefined
  readonly keepFailures: OnceOptions['keepFailures']
  /** Whether it has the connection of its transaction, at which the server ends its wait. */
  isConnected: boolean
  /** Whether its caller has an OnceRunningError already. It must not run its work. */
  isLate: boolean
}

function callOf(manager: EntityManager, token: string, work: Call['work'], options: OnceOptions): Call {
  const tokens = tokensOf(manager)
  const { key, hash: textHash } = rowValues(tokens.entityText, { token })
  // Perhaps a missing header: all such requests would get the same answer.
  if (token === '') throw new TextRejectedError({ property: 'token', reason: 'it is empty' })
  if (typeof work !== 'function') throw new DeclarationError(`once(): expected a function, got ${kindOf(work)}.`)
  const request = options.request === undefined ? null : hash('sha256', canonicalJson('the request', options.request))
  const { keepFailures, patience, whileRunning } = options
  let expires: Call['expires'] = [null, null]
  if (options.expires instanceof Date) {
    // An invalid Date is no number, and later than nothing.
    if (!(options.expires.getTime() > Date.now()))
      throw new DeclarationError(
        `"expires" must be in the future. Give a later Date, or a duration such as '24 hours'.`,
      )
    // Postgres accepts every year that a Date can have, but no sign before a year after 9999.
    expires = [options.expires.toISOString().replace(/^\+0*/, ''), null]
  } else if (options.expires !== undefined) expires = [null, durationOf('expires', options.expires).interval]
  const refuses = whileRunning === 'refuse'
  let deadline = refuses ? 0 : undefined
  if (patience !== undefined) {
    if (refuses) throw new DeclarationError(`once(): there is no patience with whileRunning: 'refuse'. Leave one out.`)
    deadline = performance.now() + durationOf('patience', patience).milliseconds
  }
  requireNotInside(tokens, token, 'once')
  const isKnown = askAgain(tokens, textHash)
  const asked = { request, key: [...key, request], isKnown, refuses, deadline }
  return { manager, tokens, token, work, expires, ...asked, keepFailures, isConnected: false, isLate: false }
}

/** How long the call may still wait. Timers and the server accept only a whole number above 0, of 31 bits. */
const millisecondsLeft = (deadline: number): number =>
  Math.min(2 ** 31 - 1, Math.max(1, Math.ceil(deadline - performance.now())))

/**
 * Ends the wait of a call that has no connection.
 *
 * @throws OnceRunningError
 */
async function inTime<Result>(call: Call, result: Promise<Result>): Promise<Result> {
  const { deadline, refuses } = call
  if (deadline === undefined || refuses) return await result
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    const end = (): void => {
      call.isLate = !call.isConnected
      if (call.isLate) reject(new OnceRunningError())
    }
    timer = setTimeout(end, millisecondsLeft(deadline))
  })
  return await Promise.race([result, late]).finally(() => clearTimeout(timer))
}

/**
 * Waits, or refuses to wait, while another call of this process works for the token. At the server, each duplicate
 * would hold a connection for as long as the work takes. A call inside a transaction waits at the server, because only
 * the server knows whether it waits for itself.
 *
 * @returns undefined if the token must be looked up again
 * @throws OnceRunningError
 */
async function inTurn(call: Call, operation: Operation): Promise<OnceResult<unknown> | undefined> {
  if (operation.isInTransaction) return await runOnce(call, operation)
  const { refuses, token } = call
  const { underWay } = call.tokens
  const ahead = underWay.get(token)
  if (ahead && !refuses) {
    await ahead.ended
    return undefined
  }
  if (ahead) {
    if (ahead.mayWait && !ahead.isWorking) return await runOnce(call, operation)
    await ahead.decided
    if (ahead.isWorking) throw new OnceRunningError()
    return undefined
  }
  let [decide, end] = [(): void => {}, (): void => {}]
  const decided = new Promise<void>((resolve) => (decide = resolve))
  const ended = new Promise<void>((resolve) => (end = resolve))
  const flight: Flight = { ended, decided, isWorking: false, mayWait: !refuses }
  underWay.set(token, flight)
  try {
    return await runOnce(call, operation, () => {
      flight.isWorking = true
      decide()
    })
  } finally {
    underWay.delete(token)
    decide()
    end()
  }
}

/** The ids of tokens that work under way on a connection will answer. */
const claims = new WeakMap<QueryRunner, Set<string>>()

function claimsOf({ queryRunner }: EntityManager): Set<string> {
  const ids = (queryRunner && claims.get(queryRunner)) ?? new Set<string>()
  if (queryRunner) claims.set(queryRunner, ids)
  return ids
}

/** Whether a token has expired, or was committed without an answer. A token of work that is under way is not free. */
const isFreeToken = ({ id, isAnswered, isExpired }: StoredToken, manager: EntityManager): boolean =>
  isExpired && (isAnswered || !claimsOf(manager).has(id))

function replayOf({ isSame, isAnswered, isFailed, answer }: StoredToken): OnceResult<unknown> {
  if (!isSame) throw new TokenReusedError()
  if (!isAnswered) throw new DeclarationError(UNANSWERED)
  if (isFailed) throw new OnceFailedError(parsedAnswer(answer))
  return { answer: parsedAnswer(answer), replayed: true }
}

const UNANSWERED =
  'once(): the work that is under way for this token calls once() with the same token. Use another token.'

/** The progress of a call in its transaction. */
interface RunState {
  /** Whether the call was made in the caller's transaction. */
  readonly inTransaction: boolean
  /** The token, once this call has taken it. */
  claimed?: StoredToken
  /** The answer as JSON, once the work has ended. Null if the work returned nothing. */
  json?: string | null
  result?: OnceResult<unknown>
  /** The error that the work threw, if its failure is kept. */
  failed?: { readonly error: unknown }
  /** Notes that the work for the token has ended. */
  end?: () => void
}

/**
 * @param working called when the token is claimed
 * @returns undefined if another call was faster
 */
async function runOnce(
  call: Call,
  operation: Operation,
  working?: () => void,
): Promise<OnceResult<unknown> | undefined> {
  const state: RunState = { inTransaction: operation.session.inTransaction }
  try {
    await operation.asOne(call.manager, {
      run: async (manager) => {
        if (call.deadline !== undefined) await manager.queryRunner?.connect()
        if (call.isLate) throw new OnceRunningError()
        call.isConnected = true
        const stored = await claim(call, manager)
        if (!stored?.isClaimed) {
          if (stored) state.result = replayOf(stored)
          return
        }
        state.claimed = stored
        const ids = claimsOf(manager).add(stored.id)
        state.end = () => void ids.delete(stored.id)
        working?.()
        await runWork(call, manager, state)
      },
      // Uses its own session, which is not affected if the work rolls back to its own savepoints.
      last: async (manager) => {
        const { claimed, json, failed } = state
        if (!claimed) return
        const answer = [claimed.id, json, ...call.expires, claimed.transaction, failed ? 'true' : null]
        await operate(manager, {}, async ({ session }) => await session.rows(call.tokens.answer, answer)).catch(
          (error: unknown) => {
            const isLost = serverError(error)?.code === SQLSTATE.divisionByZero
            throw isLost ? new TransactionAbortedError(error, 'the work ended it, or removed its token') : error
          },
        )
      },
      lastSql: call.tokens.answer.sql,
    })
    if (state.result) return state.result
    if (!state.failed) await operation.next(undefined)
  } catch (error) {
    await beforeNext(call, operation, state, error)
  } finally {
    call.isConnected = false
    state.end?.()
  }
  if (state.failed) throw state.failed.error
  return undefined
}

/** @throws unless the claim has failed, and may succeed in another attempt */
async function beforeNext(call: Call, operation: Operation, state: RunState, error: unknown): Promise<void> {
  // The work's error is more specific than the error of storing its failure.
  if (state.failed) throw state.failed.error
  const isLost = error instanceof TransactionAbortedError
  // Work that lost a conflict is not repeated without the caller's knowledge.
  if (state.claimed) throw !isLost && operation.mayHelp(error) ? new TransactionAbortedError(error) : error
  // A call that refuses to wait may have waited for a lock other than a transaction's.
  const mayClaim = call.refuses && isLockTimeout(error)
  if (!mayClaim && (state.inTransaction || !isLost)) throw error
  await operation.next(error)
}

async function runWork(call: Call, manager: EntityManager, state: RunState): Promise<void> {
  const { tokens, token, work, keepFailures } = call
  const run = async (own: EntityManager): Promise<unknown> => await insideOf(tokens, token, async () => await work(own))
  let answer: unknown
  try {
    if (keepFailures)
      // A savepoint undoes the writes of failed work, and keeps the claim.
      await operate(manager, {}, async (operation) => {
        const keep = async (own: EntityManager): Promise<void> => void (answer = await run(own))
        await operation.asOne(manager, { run: keep, last: async () => {}, lastSql: '' })
      })
    else answer = await run(manager)
  } catch (error) {
    // The same work may succeed when it is run again.
    const isPassing = httpStatusOf(error) === 503 || error instanceof OnceRunningError
    const json = isPassing ? undefined : keptJson(error, keepFailures)
    if (json === undefined) throw error
    state.json = json
    state.failed = { error }
    return
  }
  state.json = answer === undefined ? null : exactJson('the answer', answer)
  state.result = { answer: parsedAnswer(state.json ?? undefined), replayed: false }
}

/** Returns the JSON of a failure that is kept. The error of the work is more useful than one of keeping it. */
function keptJson(thrown: unknown, keepFailures: OnceOptions['keepFailures']): string | undefined {
  try {
    const failure = keepFailures?.(thrown)
    // Its rejection would end the process.
    if (failure instanceof Promise) failure.catch(() => {})
    return failure === undefined ? undefined : exactJson('the failure', failure)
  } catch {
    return undefined
  }
}

/**
 * @returns the token, claimed by this call or already answered; undefined if others were faster
 * @throws OnceRunningError
 */
async function claim(call: Call, manager: EntityManager): Promise<StoredToken | undefined> {
  const { tokens, key, request, refuses, deadline } = call
  const { claim, claimInChain, take } = deadline === undefined ? tokens : tokens.within
  const limit = (): readonly unknown[] =>
    deadline === undefined ? [] : [String(refuses ? 1 : millisecondsLeft(deadline))]
  return await operate(manager, {}, async ({ session }) => {
    const [first] = await session.rows(claim, [...key, ...limit()])
    // The index refused the insert: another call was faster, or a token with the same hash has number 0.
    const [stored] = first ? [first] : await session.rows(tokens.find, key)
    if (!stored) {
      const claimed = await session.rowsOrRollBack(claimInChain, [...key, ...limit()]).catch((error: unknown) => {
        if (serverError(error)?.code === SQLSTATE.uniqueViolation) return []
        throw error
      })
      return claimed[0]
    }
    if (stored.isClaimed || !isFreeToken(stored, manager)) return stored
    const taking = session.rows(take, [stored.id, request, ...limit()])
    const [transaction] = await taking.catch((error: unknown) => {
      throw deadline !== undefined && isLockTimeout(error) ? new OnceRunningError(error) : error
    })
    return transaction === undefined ? undefined : { ...stored, isClaimed: true, transaction }
  }).catch((error: unknown) => {
    // The insert has waited as long as it may. A call that refuses waits for a millisecond, and may have waited for
    // something else, such as room in the table. Only a wait for a transaction sets `where` in the error.
    const isRunning =
      deadline !== undefined && isLockTimeout(error) && (!refuses || serverError(error)?.where !== undefined)
    throw isRunning ? new OnceRunningError(error) : error
  })
}

/** 57014: see isBusyError(). */
function isLockTimeout(error: unknown): boolean {
  const code = serverError(error)?.code
  return code === SQLSTATE.lockNotAvailable || code === SQLSTATE.queryCanceled
}
