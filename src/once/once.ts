import { hash } from 'node:crypto'
import type { EntityManager, QueryRunner } from 'typeorm'
import { operate, type Operation, rowValues, serverError, SQLSTATE, tracedTo, watched, watchers } from '../core'
import { DeclarationError, TextRejectedError, TokenReusedError, TransactionAbortedError } from '../errors'
import { checkOptions, kindOf, type Rules } from '../options'
import { type Duration, intervalOf } from '../text/digest'
import type { StoredToken } from './sql'
import { askAgain, insideOf, requireNotInside, type Tokens, tokensOf, withTokens } from './tokens'

/** Options of `once`. */
export interface OnceOptions {
  /**
   * The arguments of the request that the token stands for; a digest of them is kept. The same token with another
   * request is refused. The order of properties does not count.
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
}

const ONCE_RULES: Rules<OnceOptions> = {
  request: { takes: () => true, expected: 'what JSON holds' },
  expires: {
    takes: (value) => typeof value === 'string' || value instanceof Date,
    expected: "a Date, or a duration such as '24 hours'",
  },
}

/** The answer, and whether this call made it. */
export interface OnceResult<Answer> {
  /** What `work` returned, as read back from JSON, whether it was replayed or not. */
  readonly answer: Answer
  /** Whether this is the answer of an earlier call, whose work ran. */
  readonly replayed: boolean
}

/** Values that JSON changes or drops. */
type NoJson = Date | bigint | symbol | ReadonlyMap<unknown, unknown> | ReadonlySet<unknown>

declare const notJson: unique symbol

/** Nothing has this type: the compiler names it. */
interface AnswerIsNoJson<Answer> {
  readonly [notJson]: Answer
}

/**
 * The type check looks at the values of an answer, not at what is nested in them: that is checked when the work has
 * run.
 */
type HeldToken<Answer> = Answer extends readonly (infer Item)[]
  ? Item
  : Answer extends object
    ? Answer[keyof Answer]
    : never

type JsonAnswer<Answer> = 0 extends 1 & Answer
  ? unknown
  : [Extract<Answer | HeldToken<Answer>, NoJson>] extends [never]
    ? unknown
    : AnswerIsNoJson<Answer>

/**
 * Runs `work` in a transaction, once for each token, however often, at the same time, and from whichever process it is
 * called. The answer is stored in the same transaction, and every other call with the token returns it, even after a
 * crash between commit and answer. A call that is made while the work is under way waits for its end, and holds no
 * connection if both are made in this process and outside transactions. If the work fails,
 * nothing is stored and the token is free: the next call runs its own.
 *
 * In the caller's transaction it runs behind a savepoint: if it fails, the transaction stays usable, and the token
 * stands when the transaction is committed.
 *
 * @param token any text that is not empty
 * @param work must use the manager that it is given; JSON must be able to represent its answer
 *
 * @example
 * const { answer, replayed } = await once(dataSource.manager, request.headers['idempotency-key'], async (manager) => {
 *   const user = await insertOrFail(manager, User, { email, handle })
 *   return { id: user.id }
 * }, { request: { email, handle }, expires: '24 hours' })
 *
 * @throws TokenReusedError if the token was used with another request
 * @throws TextRejectedError, DeclarationError before any SQL; DeclarationError also for an answer that JSON cannot
 * represent, and if `work` calls `once` with its own token: then nothing is stored
 * @throws SchemaDriftError, UnsupportedDatabaseError, AttemptsExhaustedError before `work` is called
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction, or once `work` was called
 * @throws what else `work` throws
 */
export async function once<Answer>(
  manager: EntityManager,
  token: string,
  work: ((manager: EntityManager) => Promise<Answer> | Answer) & JsonAnswer<Answer>,
  options: OnceOptions = {},
): Promise<OnceResult<Answer>> {
  const seen =
    watchers.hasSubscribers &&
    watched('once', undefined, once<Answer>, [manager, token, work, options], ({ replayed }) => ({
      rows: 1,
      created: replayed ? 0 : 1,
    }))
  if (seen) return await seen
  const traced = tracedTo(once)
  checkOptions('once()', options, ONCE_RULES)
  const call = callOf(manager, token, work, options)
  return (await traced(answerTo(call))) as OnceResult<Answer>
}

/** A call, with what is known before any SQL. */
interface Call {
  readonly manager: EntityManager
  readonly tokens: Tokens
  readonly token: string
  readonly work: (manager: EntityManager) => unknown
  /** The digest of the request; null if there is none. */
  readonly request: string | null
  /** A time and an interval, one of which is null at least. */
  readonly expires: readonly [string | null, string | null]
  /** Parameters of the look-up. */
  readonly key: readonly unknown[]
  /** This process was asked for the token before, so the token probably exists. */
  readonly isKnown: boolean
}

function callOf(manager: EntityManager, token: string, work: Call['work'], options: OnceOptions): Call {
  const tokens = tokensOf(manager)
  const { key, hash: textHash } = rowValues(tokens.entityText, { token })
  // Perhaps a missing header: all such requests would get the same answer.
  if (token === '') throw new TextRejectedError({ property: 'token', reason: 'it is empty' })
  if (typeof work !== 'function') throw new DeclarationError(`once(): expected a function, got ${kindOf(work)}.`)
  const request = options.request === undefined ? null : hash('sha256', canonicalJson('the request', options.request))
  const expires = expiryOf(options.expires)
  requireNotInside(tokens, token, 'once')
  const isKnown = askAgain(tokens, textHash)
  return { manager, tokens, token, work, request, expires, key: [...key, request], isKnown }
}

function expiryOf(expires: Date | Duration | undefined): readonly [string | null, string | null] {
  if (expires === undefined) return [null, null]
  if (!(expires instanceof Date)) return [null, intervalOf('expires', expires)]
  // Postgres accepts no sign in front of a year after 9999; it accepts every year that a Date can have.
  if (expires.getTime() > Date.now()) return [expires.toISOString().replace(/^\+0*/, ''), null]
  throw new DeclarationError(`"expires" must be in the future. Give a later Date, or a duration such as '24 hours'.`)
}

async function answerTo(call: Call): Promise<OnceResult<unknown>> {
  const { manager, tokens } = call
  return await withTokens(manager, tokens, async (operation) => {
    const { session } = operation
    for (let looks = call.isKnown || session.inTransaction; ; looks = true) {
      // If the token is answered already, a transaction would only have to be ended, at the cost of a round trip.
      if (looks) {
        const [found] = await session.rows(tokens.find, call.key)
        if (found && !isFreeToken(found, manager)) return replayOf(found)
      }
      await session.release()
      const result = await inTurn(call, operation)
      if (result) return result
    }
  })
}

/**
 * Waits while another call of this process works for the token: at the server, each duplicate would hold a connection
 * for as long as the work takes. A call inside a transaction waits there, for only the server knows whether it waits for
 * itself.
 *
 * @returns undefined if the token must be looked up again
 */
async function inTurn(call: Call, operation: Operation): Promise<OnceResult<unknown> | undefined> {
  const {
    token,
    tokens: { underWay },
  } = call
  if (operation.isInTransaction) return await runOnce(call, operation)
  const ahead = underWay.get(token)
  if (ahead) {
    await ahead
    return undefined
  }
  let end = (): void => {}
  underWay.set(token, new Promise((resolve) => (end = resolve)))
  try {
    return await runOnce(call, operation)
  } finally {
    underWay.delete(token)
    end()
  }
}

/** The tokens, by their ids, that work under way on a connection will answer. */
const claims = new WeakMap<QueryRunner, Set<string>>()

function claimsOf({ queryRunner }: EntityManager): Set<string> {
  const ids = (queryRunner && claims.get(queryRunner)) ?? new Set<string>()
  if (queryRunner) claims.set(queryRunner, ids)
  return ids
}

/** A token without an answer is seen by its own transaction, and by others if that was committed so: it is free there. */
const isFreeToken = ({ id, isAnswered, isExpired }: StoredToken, manager: EntityManager): boolean =>
  isExpired && (isAnswered || !claimsOf(manager).has(id))

function replayOf({ isSame, isAnswered, answer }: StoredToken): OnceResult<unknown> {
  if (!isSame) throw new TokenReusedError()
  if (!isAnswered) throw new DeclarationError(UNANSWERED)
  return { answer: parsedAnswer(answer), replayed: true }
}

const UNANSWERED =
  'once(): the work that is under way for this token calls once() with the same token. Use another token.'

const parsedAnswer = (json: string | undefined): unknown =>
  json === undefined ? undefined : (JSON.parse(json) as unknown)

/** How far a call has come in its transaction. */
interface RunState {
  /** The token, once this call has taken it. */
  claimed?: StoredToken
  /** The answer as JSON, once the work has ended; null if it returned nothing. */
  json?: string | null
  result?: OnceResult<unknown>
  /** Nobody works for the token any more. */
  end?: () => void
}

/** @returns undefined if another call was faster */
async function runOnce(call: Call, operation: Operation): Promise<OnceResult<unknown> | undefined> {
  const { inTransaction } = operation.session
  const state: RunState = {}
  try {
    await operation.asOne(call.manager, {
      run: async (manager) => {
        const { tokens, token, work } = call
        const stored = await claim(call, manager)
        if (!stored?.isClaimed) {
          if (stored) state.result = replayOf(stored)
          return
        }
        state.claimed = stored
        const ids = claimsOf(manager).add(stored.id)
        state.end = () => void ids.delete(stored.id)
        const answer: unknown = await insideOf(tokens, token, async () => await work(manager))
        state.json = answer === undefined ? null : exactJson('the answer', answer)
        state.result = { answer: parsedAnswer(state.json ?? undefined), replayed: false }
      },
      last: async (manager) => {
        await storeAnswer(call, manager, state)
      },
      lastSql: call.tokens.answer.sql,
    })
    if (state.result) return state.result
    await operation.next(undefined)
  } catch (error) {
    const isAborted = error instanceof TransactionAbortedError
    // Work that has lost against others is not done twice behind the caller's back.
    if (state.claimed) throw !isAborted && operation.mayHelp(error) ? new TransactionAbortedError(error) : error
    if (inTransaction || !isAborted) throw error
    await operation.next(error)
  } finally {
    state.end?.()
  }
  return undefined
}

/** @returns the token, taken by this call or answered already; undefined if others were faster */
async function claim({ tokens, key, request }: Call, manager: EntityManager): Promise<StoredToken | undefined> {
  return await operate(manager, {}, async ({ session }) => {
    const [first] = await session.rows(tokens.claim, key)
    // The index refused it: another call was faster, or a token of equal hash holds number 0.
    const [stored] = first ? [first] : await session.rows(tokens.find, key)
    if (!stored) {
      const claimed = await session.rowsOrRollBack(tokens.claimInChain, key).catch((error: unknown) => {
        if (serverError(error)?.code === SQLSTATE.uniqueViolation) return []
        throw error
      })
      return claimed[0]
    }
    if (stored.isClaimed || !isFreeToken(stored, manager)) return stored
    const [transaction] = await session.rows(tokens.take, [stored.id, request])
    return transaction === undefined ? undefined : { ...stored, isClaimed: true, transaction }
  })
}

/** Uses a session of its own: what the work rolls back with its own savepoints does not concern us. */
async function storeAnswer(
  { tokens, expires }: Call,
  manager: EntityManager,
  { claimed, json }: RunState,
): Promise<void> {
  if (!claimed) return
  await operate(manager, {}, async ({ session }) => {
    try {
      await session.rows(tokens.answer, [claimed.id, json, ...expires, claimed.transaction])
    } catch (error) {
      throw serverError(error)?.code === SQLSTATE.divisionByZero
        ? new TransactionAbortedError(error, CLAIM_LOST)
        : error
    }
  })
}

const CLAIM_LOST = 'the work ended it, or removed its token'

/** How to write a value as JSON. */
interface JsonWriting {
  /** Names the value in an error: `the answer`. */
  readonly what: string
  /** Objects with the same properties in another order give the same JSON. */
  readonly sorted: boolean
  /** The objects around the value. */
  readonly around: Set<object>
}

/** The way to a part of the value: keys of objects, places in arrays. */
type Way = readonly (string | number)[]

/**
 * Returns JSON that gives the same value again: plain objects and arrays of strings, finite numbers, booleans and null. A
 * property that is undefined is left out. `JSON.stringify` would turn a Date into a string, NaN into null, and drop a
 * Map's entries without a word.
 *
 * @param what names the value in an error: `the answer`
 * @throws DeclarationError that names the first part of the value that JSON cannot represent
 * @example
 * exactJson('the answer', { id: 7, tags: ['a'], note: undefined }) // '{"id":7,"tags":["a"]}'
 */
export const exactJson = (what: string, value: unknown): string =>
  toJson({ what, sorted: false, around: new Set() }, value, [])

/**
 * Returns JSON like `exactJson`, with the properties of each object sorted, so that equal values give equal JSON.
 *
 * @throws DeclarationError as `exactJson`
 */
export const canonicalJson = (what: string, value: unknown): string =>
  toJson({ what, sorted: true, around: new Set() }, value, [])

function toJson(writing: JsonWriting, value: unknown, way: Way): string {
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) return refuseJson(writing, way, String(value))
    // `JSON.stringify` would make 0 of -0, which JSON can tell apart.
    return Object.is(value, -0) ? '-0' : String(value)
  }
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return JSON.stringify(value)
  if (typeof value !== 'object') return refuseJson(writing, way, typeof value)
  if (writing.around.has(value)) return refuseJson(writing, way, 'an object that contains itself')
  writing.around.add(value)
  const json = Array.isArray(value) ? writeArray(writing, value, way) : writeObject(writing, value, way)
  writing.around.delete(value)
  return json
}

function writeArray(writing: JsonWriting, array: readonly unknown[], way: Way): string {
  // Its places and its length.
  if (Reflect.ownKeys(array).length !== array.length + 1)
    return refuseJson(writing, way, 'an array with holes or properties')
  return `[${array.map((element, place) => toJson(writing, element, [...way, place])).join(',')}]`
}

function writeObject(writing: JsonWriting, object: object, way: Way): string {
  const prototype: unknown = Object.getPrototypeOf(object)
  // Plain objects of another realm too, as in Jest.
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null)
    return refuseJson(writing, way, `an instance of ${object.constructor?.name || 'a class'}`)
  if (Object.getOwnPropertySymbols(object).length > 0)
    return refuseJson(writing, way, 'an object with a symbol for a key')
  const entries: [string, unknown][] = Object.entries(object).filter(([, value]) => value !== undefined)
  // Sorted by code units, as in every process; never by a locale.
  if (writing.sorted) entries.sort(([left], [right]) => (left < right ? -1 : 1))
  return `{${entries.map(([key, value]) => `${JSON.stringify(key)}:${toJson(writing, value, [...way, key])}`).join(',')}}`
}

function refuseJson({ what }: JsonWriting, way: Way, kind: string): never {
  const place = way.map((step) => (typeof step === 'number' ? `[${step}]` : `.${step}`)).join('')
  throw new DeclarationError(
    `JSON cannot represent ${what}: ${place === '' ? 'it' : `"${place.replace(/^\./, '')}"`} is ${kind}. ` +
      `Give plain objects, arrays, strings, finite numbers, booleans and null.`,
  )
}
