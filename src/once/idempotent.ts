import type { DataSource, EntityManager } from 'typeorm'
import { DeclarationError, httpStatusOf, OnceFailedError, OnceRunningError, TokenReusedError } from '../errors'
import { checkOptions, kindOf, RULE, type Rules } from '../options'
import { type Duration, durationOf } from '../text/digest'
import type { JsonAnswer } from './json'
import { once, type OnceOptions } from './once'

/** The parts of a request that `idempotent` reads. Requests of Express and Fastify have them. */
export interface HttpRequest {
  /** `POST`, for instance. */
  readonly method: string
  /** The path with its query. */
  readonly url: string
  /** The URL before a router of Express has shortened it. */
  readonly originalUrl?: string
  /** Headers by their names in lower case. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
  /** The body as the server has parsed it. */
  readonly body?: unknown
}

/** The parts of a response that `idempotent` calls. Responses of Express and replies of Fastify have them. */
export interface HttpResponse {
  /** Sets the status. */
  status(code: number): unknown
  /** Sets a header. */
  header(name: string, value: string): unknown
  /** Sends the response. */
  send(body?: string): unknown
}

/** The answer of the work. */
export interface HttpAnswer {
  /** @default 200, or 204 without a body */
  readonly status?: number
  /** Sent as JSON. */
  readonly body?: unknown
}

/** Options of `idempotent`. */
export interface IdempotentOptions<Request> {
  /** Returns the owner of the key, such as the id of the account. A client never gets the answer of another client. */
  readonly client: (request: Request) => string
  /**
   * Whether a request without a key is refused (400). Otherwise its work runs in a transaction each time.
   *
   * @default true
   */
  readonly required?: boolean
  /**
   * Returns the request that the key identifies. The same key with another request is refused (422).
   *
   * @default method, URL and body of the request
   */
  readonly request?: (request: Request) => unknown
  /** When the key may be used again. @default '24 hours' */
  readonly expires?: Duration
  /** How long a copy waits for the first request. @default no time: it is refused (409) */
  readonly patience?: Duration
}

const RULES: Rules<IdempotentOptions<unknown>> = {
  client: RULE.function,
  required: RULE.boolean,
  request: RULE.function,
  expires: RULE.name,
  patience: RULE.name,
}

/**
 * @param more the rules of further options
 * @throws DeclarationError
 */
export function checkIdempotent(options: IdempotentOptions<never>, more: Rules<Record<string, unknown>> = {}): void {
  checkOptions('idempotent()', options, { ...RULES, ...more }, ['client'])
  const { expires, patience } = options
  if (expires !== undefined) durationOf('expires', expires)
  if (patience !== undefined) durationOf('patience', patience)
}

/**
 * Returns a handler for Express or Fastify, whose work runs once for each `Idempotency-Key` of a client. Copies of the
 * request get the stored answer with its status and `idempotent-replayed: true`. The handler itself answers with 400 to
 * a request without a key, with 409 while the work runs, with 422 to another request under the same key, and with 415
 * to a body that no parser has read. The framework's error handler receives any other error, and each error of the
 * work. `httpStatusOf` has a status for it.
 *
 * @param work must use the manager that it receives; JSON must be able to represent its answer
 * @throws DeclarationError
 * @example
 * const client = (request: Request) => request.user.id
 * app.post('/payments', idempotent(dataSource, { client }, async (manager, request: Request) => {
 *   const payment = await insertOrFail(manager, Payment, request.body)
 *   return { status: 201, body: { id: payment.id } }
 * }))
 */
export function idempotent<Request extends HttpRequest, Answer extends HttpAnswer>(
  dataSource: DataSource,
  options: IdempotentOptions<Request>,
  work: ((manager: EntityManager, request: Request) => Promise<Answer> | Answer) & JsonAnswer<Answer>,
): (request: Request, response: HttpResponse, next?: unknown) => Promise<void> {
  checkIdempotent(options)
  if (typeof work !== 'function') throw new DeclarationError(`idempotent(): expected a function, got ${kindOf(work)}.`)
  return async (request, response, next) => {
    try {
      const run = async (manager: EntityManager): Promise<unknown> => await work(manager, request)
      const { status, body, headers } = await replyTo(dataSource, request, options, run)
      response.status(status)
      for (const [name, value] of Object.entries(headers)) response.header(name, value)
      if (body === undefined) return void response.send()
      response.header('content-type', 'application/json; charset=utf-8')
      // The body is JSON already. Express and Fastify would send a string as text, and use a number as the status.
      response.send(JSON.stringify(body))
    } catch (error) {
      // Fastify awaits the handler; Express 4 does not.
      if (typeof next !== 'function') throw error
      next(error)
    }
  }
}

/** The reply to send. */
export interface Reply {
  readonly status: number
  readonly body: unknown
  readonly headers: Readonly<Record<string, string>>
  /** Whether the request is refused or its failure was kept. The work returned no answer. */
  readonly isFailure?: boolean
}

/** The part of the work's error that `keepFailures` keeps. */
export interface KeptFailure {
  readonly status: number
  readonly body: unknown
}

/** The options, and the failures that a framework keeps. */
type ReplyOptions<Request> = IdempotentOptions<Request> & {
  readonly keepFailures?: (error: unknown) => KeptFailure | undefined
}

/**
 * Runs the work of a request once for each key.
 *
 * @throws the errors of the work, and any other error that does not refuse the request
 */
export async function replyTo<Request extends HttpRequest>(
  dataSource: DataSource,
  request: Request,
  options: ReplyOptions<Request>,
  work: (manager: EntityManager) => Promise<unknown>,
): Promise<Reply> {
  let hasBegun = false
  const run = async (manager: EntityManager): Promise<unknown> => {
    hasBegun = true
    const answer = await work(manager)
    const { status = 200 } = (answer ?? {}) as HttpAnswer
    if (typeof answer === 'object' && answer !== null && Number.isInteger(status) && status >= 200 && status <= 599) {
      return answer
    }
    // Checked before the commit: an answer that cannot be sent would be replayed for as long as it is kept.
    throw new DeclarationError('idempotent(): the work must return { status, body }, with a status from 200 to 599.')
  }
  const { required = true } = options
  const key = request.headers['idempotency-key']
  if (typeof key !== 'string' || key === '') {
    if (required) return refusal(400, 'IDEMPOTENCY_KEY_REQUIRED', 'Send one header Idempotency-Key.')
    return replyOf(await dataSource.transaction(run))
  }
  const client = options.client(request)
  if (typeof client !== 'string' || client === '') {
    throw new DeclarationError('idempotent(): "client" must return a non-empty string.')
  }
  if (!options.request && isUnread(request))
    return refusal(415, 'BODY_NOT_PARSED', 'No parser of the server has read the body of the request.')
  try {
    const token = JSON.stringify([client, key])
    const { answer, replayed } = await once<unknown>(dataSource.manager, token, run, onceOptions(options, request))
    return { ...replyOf(answer), ...(replayed && REPLAYED) }
  } catch (error) {
    // The work may throw the same errors, about its own tokens.
    if (hasBegun) throw error
    return replyToError(error)
  }
}

/** @throws the error, unless it refuses the request or is a failure that was kept */
function replyToError(error: unknown): Reply {
  if (error instanceof OnceFailedError) return { ...(error.failure as KeptFailure), ...REPLAYED, isFailure: true }
  if (!(error instanceof OnceRunningError || error instanceof TokenReusedError)) throw error
  return refusal(httpStatusOf(error) ?? 500, error.code, error.message)
}

const REPLAYED = { headers: { 'idempotent-replayed': 'true' } }

/** Whether the body was not parsed. Another body under the same key would then count as the same request. */
const isUnread = ({ headers, body }: HttpRequest): boolean =>
  body === undefined && (Number(headers['content-length'] ?? 0) > 0 || headers['transfer-encoding'] !== undefined)

function onceOptions<Request extends HttpRequest>(
  { request: requestOf, expires = '24 hours', patience, keepFailures }: ReplyOptions<Request>,
  request: Request,
): OnceOptions {
  const { method, url, originalUrl = url, body } = request
  const standsFor = requestOf ? requestOf(request) : { method, url: originalUrl, body }
  const common = { request: standsFor, expires, ...(keepFailures && { keepFailures }) }
  return patience === undefined ? { ...common, whileRunning: 'refuse' } : { ...common, patience }
}

function replyOf(answer: unknown): Reply {
  const { body, status = body === undefined ? 204 : 200 } = answer as HttpAnswer
  return { status, body, headers: {} }
}

const refusal = (statusCode: number, code: string, message: string): Reply => ({
  status: statusCode,
  body: { statusCode, code, message },
  headers: statusCode === 409 ? { 'retry-after': '1' } : {},
  isFailure: true,
})
