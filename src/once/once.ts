import { hash } from 'node:crypto'
import type { EntityManager } from 'typeorm'
import { DeclarationError, TextRejectedError, TokenReusedError, TransactionAbortedError } from '../errors'
import { openSession } from '../connection/open-session'
import type { Session } from '../connection/session'
import { transact, type Work } from '../connection/joined-transaction'
import { asOne } from '../connection/whole-transaction'
import { Attempts } from '../find-or-create/attempts'
import { calledFrom, callerOf } from '../find-or-create/caller'
import { findOrCreate } from '../find-or-create/find-or-create'
import { kindOf } from '../rows/call-arguments'
import { checkCallOptions } from '../rows/call-options'
import { rowValues } from '../rows/row-values'
import { isSerializationError, serverError, SQLSTATE } from '../sql/sqlstate'
import type { StoredToken } from '../sql/token-statements'
import { type Duration, intervalOf } from '../text/duration'
import { canonicalJson, exactJson } from '../text/exact-json'
import { ensureReady } from '../typeorm/readiness'
import { OnceToken } from './once-token'
import { insideOf, requireNotInside } from './nesting'
import { type Tokens, tokensOf } from './tokens'

/** Options of `once`. */
export interface OnceOptions {
  /**
   * What the token stands for: the arguments of the request, of which a digest is kept. The same token with another
   * request is refused. The order of properties does not count.
   *
   * @default none, which differs from every request
   */
  readonly request?: unknown
  /**
   * When the token may be used anew: a time, or so long after the answer.
   *
   * @default never
   */
  readonly expires?: Date | Duration
}

/** What `work` gave, and when. */
export interface OnceResult<Answer> {
  /** As JSON gives it, whether it was replayed or not. */
  readonly answer: Answer
  /** Another call had run its work before, whose answer this is. */
  readonly replayed: boolean
}

/**
 * Runs `work` in a transaction, once for each token, however often, at the same time, and from whichever process it is
 * called. The answer is stored in the same transaction, and every other call with the token gives it: after a crash
 * between commit and answer too. A call that comes while the work is under way waits for its end. If the work fails,
 * nothing is stored and the token is free: the next call runs its own.
 *
 * In the caller's transaction it runs behind a savepoint: if it fails, the transaction stays usable, and the token
 * stands when the transaction is committed.
 *
 * @param token any text that is not empty
 * @param work must use the manager that it is given; its answer must be what JSON holds
 *
 * @example
 * const { answer, replayed } = await once(dataSource.manager, request.headers['idempotency-key'], async (manager) => {
 *   const user = await insertOrFail(manager, User, { email, handle })
 *   return { id: user.id }
 * }, { request: { email, handle }, expires: '24 hours' })
 *
 * @throws TokenReusedError if the token was used with another request
 * @throws TextRejectedError, DeclarationError before any SQL; DeclarationError also for an answer that JSON does not hold,
 * and where `work` calls `once` with its own token: then nothing is stored
 * @throws SchemaDriftError, UnsupportedDatabaseError, AttemptsExhaustedError before `work` is called
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction, or once `work` was called
 * @throws what else `work` throws
 */
export async function once<Answer>(
  manager: EntityManager,
  token: string,
  work: (manager: EntityManager) => Promise<Answer> | Answer,
  options: OnceOptions = {},
): Promise<OnceResult<Answer>> {
  const caller = callerOf(once)
  checkCallOptions('once', options)
  const call = callOf(manager, token, { work, options })
  return (await calledFrom(caller, answerTo(call))) as OnceResult<Answer>
}

/** A call, with what is known before any SQL. */
interface Call {
  readonly manager: EntityManager
  readonly tokens: Tokens
  readonly token: string
  readonly work: (manager: EntityManager) => unknown
  /** Its digest; null where there is none. */
  readonly request: string | null
  /** A time and an interval, one of which is null at least. */
  readonly expires: readonly [string | null, string | null]
  /** Parameters of the look-up. */
  readonly key: readonly unknown[]
}

function callOf(
  manager: EntityManager,
  token: string,
  { work, options }: { readonly work: Call['work']; readonly options: OnceOptions },
): Call {
  const tokens = tokensOf(manager)
  const { key } = rowValues(tokens.entityText, { token })
  // A header that is missing, perhaps: all such requests would get one answer.
  if (token === '') throw new TextRejectedError({ property: 'token', reason: 'it is empty' })
  if (typeof work !== 'function') throw new DeclarationError(`once(): expected a function, got ${kindOf(work)}.`)
  const request = digestOf(options.request)
  const call = { manager, tokens, token, work, request, expires: expiryOf(options.expires), key: [...key, request] }
  requireNotInside(tokens, token)
  return call
}

const digestOf = (request: unknown): string | null =>
  request === undefined ? null : hash('sha256', canonicalJson('the request', request))

function expiryOf(expires: Date | Duration | undefined): readonly [string | null, string | null] {
  if (expires === undefined) return [null, null]
  if (!(expires instanceof Date)) return [null, intervalOf('expires', expires)]
  if (expires.getTime() > Date.now()) return [expires.toISOString(), null]
  throw new DeclarationError(`"expires" is no time in the future. Give one, or a duration such as '24 hours'.`)
}

async function answerTo(call: Call): Promise<OnceResult<unknown>> {
  const { manager, tokens } = call
  const session = await openSession(manager)
  const attempts = new Attempts(session, 'token')
  try {
    await ensureReady(tokens.entityText.declaration, session)
    for (;;) {
      const [found] = await session.rows(tokens.find, call.key)
      if (found && !found.isExpired) return replayOf(found)
      await session.letGo()
      const result = await runAlone(call, session, { attempts, found })
      if (result) return result
    }
  } finally {
    await session.close()
  }
}

function replayOf({ isSame, isAnswered, answer }: StoredToken): OnceResult<unknown> {
  if (!isSame) throw new TokenReusedError()
  if (!isAnswered) throw new DeclarationError(UNANSWERED)
  return { answer: valueOf(answer), replayed: true }
}

const UNANSWERED =
  'once(): the token has no answer yet. Its work asks for it, or has ended its own transaction, which it must not do.'

const valueOf = (json: string | undefined): unknown => (json === undefined ? undefined : (JSON.parse(json) as unknown))

/** What stands between one look-up and the next. */
interface Course {
  readonly attempts: Attempts
  /** An expired token. */
  readonly found: StoredToken | undefined
}

/** What the work gave. */
interface Given {
  /** Of the token. */
  readonly id: string
  readonly json: string | undefined
}

/** @returns undefined where another call was faster */
async function runAlone(
  call: Call,
  session: Session,
  { attempts, found }: Course,
): Promise<OnceResult<unknown> | undefined> {
  const { inTransaction } = session
  let claimed: string | undefined
  let given: Given | undefined
  const run = async (manager: EntityManager): Promise<void> => {
    claimed = await claim(call, manager, found)
    if (claimed !== undefined) given = { id: claimed, json: await jsonOf(call, manager) }
  }
  const last = async (manager: EntityManager): Promise<void> => {
    if (given) await store(call, manager, given)
  }
  try {
    await (inTransaction ? runInside(call.manager, { run, last }) : runOutside(call.manager, session, { run, last }))
    if (given) return { answer: valueOf(given.json), replayed: false }
    await attempts.next(undefined)
  } catch (error) {
    const isAborted = error instanceof TransactionAbortedError
    // Work that has lost against others is not done twice behind the caller's back.
    if (claimed !== undefined)
      throw !isAborted && isSerializationError(error) ? new TransactionAbortedError(error) : error
    if (inTransaction || !isAborted) throw error
    await attempts.next(error)
  }
  return undefined
}

const runInside = async (manager: EntityManager, { run, last }: Work): Promise<void> => {
  await asOne(manager, async (own) => {
    await run(own)
    await last(own)
  })
}

const runOutside = async (manager: EntityManager, session: Session, work: Work): Promise<void> => {
  await session.inOneTurn(async () => {
    await transact(manager, work)
  })
}

/** @returns the token's id; undefined where it is another call's */
async function claim(
  { tokens, token, request }: Call,
  manager: EntityManager,
  found: StoredToken | undefined,
): Promise<string | undefined> {
  if (!found) {
    const { entity, created } = await findOrCreate(manager, OnceToken, { token, request })
    return created ? entity.id : undefined
  }
  const session = await openSession(manager)
  const [taken] = await session.rows(tokens.take, [found.id, request])
  return taken && found.id
}

async function jsonOf({ tokens, token, work }: Call, manager: EntityManager): Promise<string | undefined> {
  const answer: unknown = await insideOf(tokens, token, async () => await work(manager))
  return answer === undefined ? undefined : exactJson('the answer', answer)
}

/** With a session of its own: what the work has rolled back with a savepoint of its own is no concern of ours. */
async function store({ tokens, expires }: Call, manager: EntityManager, { id, json }: Given): Promise<void> {
  const session = await openSession(manager)
  try {
    await session.rows(tokens.answer, [id, json ?? null, ...expires])
  } catch (error) {
    throw serverError(error)?.code === SQLSTATE.divisionByZero ? new TransactionAbortedError(error, GONE) : error
  }
}

const GONE = 'its token is gone: the work has ended it, or removed the token'
