/** The entry `typeorm-unique-text/errors`. It loads nothing else, and the root entry exports every name too. */

import type { ObjectLiteral } from 'typeorm'

/** Values of `code`. They are part of the public API and stable across versions. */
export type UniqueTextErrorCode =
  | 'ADOPTION_STOPPED'
  | 'ATTEMPTS_EXHAUSTED'
  | 'CHAIN_LIMIT'
  | 'DATA_SOURCE_DESTROYED'
  | 'DUPLICATE_TEXT'
  | 'HASH_COLLISION'
  | 'IMMUTABLE_TEXT'
  | 'INVALID_DECLARATION'
  | 'ONCE_FAILED'
  | 'ONCE_RUNNING'
  | 'SCHEMA_DRIFT'
  | 'TEXT_REJECTED'
  | 'TEXT_TAKEN'
  | 'TOKEN_REUSED'
  | 'TRANSACTION_ABORTED'
  | 'UNSUPPORTED_DATABASE'
  | 'WAITS_FOR_ITSELF'

/**
 * The base class of every error that this package raises. Other errors of the driver arrive as TypeORM's
 * `QueryFailedError`, as from every TypeORM call. No message contains a value of a row, neither a text nor a key.
 *
 * @example
 * try {
 *   await findOrCreate(manager, Page, { url })
 * } catch (error) {
 *   if (error instanceof UniqueTextError && error.code === 'TEXT_REJECTED') return badRequest(error.message)
 *   throw error
 * }
 */
export abstract class UniqueTextError extends Error {
  /** A literal, because bundlers rename classes. */
  abstract override readonly name: string
  /** The name of the condition, in capitals. */
  abstract readonly code: UniqueTextErrorCode

  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
  }
}

/** The HTTP status for an error that is not a fault of the program or of its database. Otherwise it is 500. */
const STATUSES: Partial<Record<UniqueTextErrorCode, number>> = {
  ATTEMPTS_EXHAUSTED: 503,
  DATA_SOURCE_DESTROYED: 503,
  IMMUTABLE_TEXT: 409,
  ONCE_FAILED: 422,
  ONCE_RUNNING: 409,
  TEXT_REJECTED: 422,
  TEXT_TAKEN: 409,
  TOKEN_REUSED: 422,
  TRANSACTION_ABORTED: 503,
}

/**
 * Returns the HTTP status for an error of this package: 409 for a conflict with stored or running work, 422 for a
 * request that must change, 503 if the same request may succeed later, and 500 for a fault of the program or its
 * database. For TypeORM's `EntityNotFoundError`, which `rename` and `updateOrFail` throw if there is no such row, it is
 * 404.
 *
 * @returns undefined for any other error
 * @example
 * app.use((error, request, response, next) => {
 *   const status = httpStatusOf(error)
 *   if (status === undefined || status === 500) return next(error)
 *   response.status(status).json({ code: error.code })
 * })
 */
export const httpStatusOf = (error: unknown): number | undefined =>
  error instanceof UniqueTextError
    ? (STATUSES[error.code] ?? 500)
    : // Compared by name, because this entry does not load TypeORM.
      error instanceof Error && error.name === 'EntityNotFoundError'
      ? 404
      : undefined

/** The prototype of our class for an error of TypeORM that is also an instance of ours: see `asQueryFailedError`. */
const AS_OURS = Symbol.for('typeorm-unique-text.error')
/** A property of the base class's prototype, in each loaded copy of this package. */
const OF_A_COPY = Symbol.for('typeorm-unique-text.errors')

Object.defineProperty(UniqueTextError.prototype, OF_A_COPY, { value: true })

Object.defineProperty(UniqueTextError, Symbol.hasInstance, {
  value(this: { readonly name: string; readonly prototype: object }, error: unknown): boolean {
    if (typeof error !== 'object' || error === null) return false
    const { name, prototype } = this
    const ours: unknown = Reflect.get(error, AS_OURS) ?? error
    if ([error, ours].some((one) => one === prototype || prototype.isPrototypeOf(one as object))) return true
    const base = UniqueTextError.prototype
    if (!(OF_A_COPY in (ours as object)) || base === ours || base.isPrototypeOf(ours as object)) return false
    return prototype === base || name === Reflect.get(error, 'name')
  },
})

/** A decorator, an EntitySchema or a call contradicts the entity. Thrown before any SQL. */
export class DeclarationError extends UniqueTextError {
  override readonly name = 'DeclarationError'
  /** The name of the condition. */
  readonly code = 'INVALID_DECLARATION'
}

/** The reason and the position of a refused text. */
export interface Rejection {
  /** The property that should have held the text. */
  readonly property: string
  /** One clause that never quotes the text, for instance `it contains U+0000`. */
  readonly reason: string
  /** 0-based offset in code points, if the fault has a position. */
  readonly offset?: number | undefined
  /** 0-based position among all rows, for a call that writes all of its rows or none. Otherwise undefined. */
  readonly row?: number | undefined
  /** The error that the normalizer threw. */
  readonly cause?: unknown
  /** The primary keys of the first rows, by column. */
  readonly keys?: readonly ObjectLiteral[] | undefined
}

/** A normalizer refused the text, or Postgres could not store it exactly. Thrown before any SQL. */
export class TextRejectedError extends UniqueTextError {
  override readonly name = 'TextRejectedError'
  /** The name of the condition. */
  readonly code = 'TEXT_REJECTED'
  /** The property that holds the text. */
  readonly property: string
  /** The reason why the text is refused. */
  readonly reason: string
  /** The position in the text, in code points, if there is one. */
  readonly offset: number | undefined
  /** The index of the row in the call, if it has several. */
  readonly row: number | undefined
  /** The primary keys of the first stored rows whose texts `normalizeTexts` refused, by column. */
  readonly keys: readonly ObjectLiteral[] | undefined

  constructor({ property, reason, offset, row, cause, keys }: Rejection) {
    const position = offset === undefined ? '' : ` (code point ${offset})`
    const of = row ? ` of row ${row}` : ''
    const next = row === undefined ? 'Correct the text.' : 'Correct the text or leave the row out.'
    super(`The text for "${property}"${of} is rejected: ${reason}${position}. ${next}`, cause)
    this.property = property
    this.reason = reason
    this.offset = offset
    this.row = row
    this.keys = keys
  }
}

/** One text that another row holds. */
export interface TakenText {
  /** The name of an entity whose repository finds the holder: its class in single table inheritance, or a parent. */
  readonly entity: string
  /**
   * The name of the declaration: the property, or `as` of a class. For a primary key or unique columns, their
   * properties, joined by `, `. For an index over an expression, the properties that it reads.
   */
  readonly property: string
  /** Primary key of the row that holds the text, as a TypeORM id map. Undefined if it cannot be known. */
  readonly id: ObjectLiteral | undefined
  /** The entity of a row that holds a name, if it differs from `entity`. */
  readonly holder?: string
  /** The property that has the name, if it is another property of the same entity. */
  readonly holderProperty?: string
  /** The name is a former name. The row gave it up, and the name is kept for that row. */
  readonly state?: 'reserved' | 'redirect'
  /** That row is soft-deleted and still holds the text. Not set for a name. */
  readonly deleted?: true
  /** No row holds the text. The call contains it twice, and this is not the first time. */
  readonly repeated?: true
  /** 0-based position among all rows of the call. 0 for a single row, and if TypeORM's own call does not report it. */
  readonly row: number
}

/**
 * Texts that must be free are taken, and nothing was written. If TypeORM's own calls throw it, it is also a
 * `QueryFailedError`, and lists the texts that the database refused: one text, or all names. No query can find more,
 * because the caller's transaction is already aborted. `insertOrFail` and `updateOrFail` list all taken texts.
 */
export class TextTakenError extends UniqueTextError {
  override readonly name = 'TextTakenError'
  /** The name of the condition. */
  readonly code = 'TEXT_TAKEN'
  /** All texts that were found taken, in the order of the request. */
  readonly taken: readonly TakenText[]

  /** @param remedy a sentence with the next step */
  constructor(taken: readonly TakenText[], cause?: unknown, remedy: string = USE_OR_CHANGE) {
    // All are of one row, or of rows that TypeORM's own call does not report.
    const isOneRow = taken.every(({ row }) => row === 0)
    const list = taken.map((one) => {
      const position = isOneRow ? '' : `row ${one.row}: `
      return `${position}"${one.property}" of ${one.entity} (${keeping(one)})`
    })
    const shown = list.slice(0, MAX_TAKEN_SHOWN).join('; ')
    const more = list.length > MAX_TAKEN_SHOWN ? `; and ${list.length - MAX_TAKEN_SHOWN} more` : ''
    const restore = taken.some(({ deleted }) => deleted) ? ` ${RESTORE}` : ''
    const next = taken.every(({ repeated }) => repeated) ? PASS_ONCE : `${remedy}${restore}`
    super(`Taken: ${shown}${more}. ${next}`, cause)
    this.taken = taken
  }
}

const PASS_ONCE = 'Pass it once in a call, or pass another value.'
const RESTORE = `To use a softly deleted row, restore it: restore(), or findOrCreate() with { deleted: 'restore' }.`
const USE_OR_CHANGE = 'Use the row that holds the text, or give another text.'

function keeping({ holder, holderProperty, state, deleted, repeated }: TakenText): string {
  if (repeated) return 'the call has it twice'
  const row = holder === undefined ? 'another row' : `a row of ${holder}`
  const as = holderProperty === undefined ? '' : ` as "${holderProperty}"`
  return `${state === undefined ? 'held by' : 'a former name, kept for'} ${row}${as}${deleted ? ', which is deleted softly' : ''}`
}

/** A message of a thousand names is unreadable. `taken` lists all of them. */
const MAX_TAKEN_SHOWN = 10

/** A token of `once` was already used with another request. Nothing was written, and `work` was not called. */
export class TokenReusedError extends UniqueTextError {
  override readonly name = 'TokenReusedError'
  /** The name of the condition. */
  readonly code = 'TOKEN_REUSED'

  constructor() {
    super(
      'The token was used with another request. Use a new token for each request, and the same one to repeat a request.',
    )
  }
}

/**
 * Another call runs the work of a token of `once`, and this call does not wait for it, or has waited as long as its
 * `patience` allows. Nothing was written, and `work` was not called.
 */
export class OnceRunningError extends UniqueTextError {
  override readonly name = 'OnceRunningError'
  readonly code = 'ONCE_RUNNING'

  constructor(cause?: unknown) {
    super('Another call runs the work of this token. Call again later, with the same token.', cause)
  }
}

/** The work of a token of `once` failed in an earlier call, which stored its failure. `work` was not called. */
export class OnceFailedError extends UniqueTextError {
  override readonly name = 'OnceFailedError'
  readonly code = 'ONCE_FAILED'
  /** The result of `keepFailures` in the earlier call, as read back from JSON. */
  readonly failure: unknown

  constructor(failure: unknown) {
    super('The work of this token failed before, and its failure was kept. Use a new token to run the work again.')
    this.failure = failure
  }
}

/** The text of an `immutable` declaration was changed. Nothing was written. */
export class ImmutableTextError extends UniqueTextError {
  override readonly name = 'ImmutableTextError'
  /** The name of the condition. */
  readonly code = 'IMMUTABLE_TEXT'
  /** The property that holds the text. */
  readonly property: string

  constructor(property: string, cause?: unknown) {
    super(`"${property}" is immutable and was changed. Find or create a row for the new text instead.`, cause)
    this.property = property
  }
}

/** More than `maxChainLength` texts have the same hash in one scope: an attack, or a broken digest. */
export class ChainLimitError extends UniqueTextError {
  override readonly name = 'ChainLimitError'
  /** The name of the condition. */
  readonly code = 'CHAIN_LIMIT'
  /** The property that holds the text. */
  readonly property: string

  constructor(property: string, cause?: unknown) {
    super(
      `The chain for "${property}" is full: maxChainLength texts share its hash. ` +
        `If they are legitimate, use digest 'sha256' or raise maxChainLength.`,
      cause,
    )
    this.property = property
  }
}

/** Another text has this hash, and without a guard a hash has room for one text. Nothing was written. */
export class HashCollisionError extends UniqueTextError {
  override readonly name = 'HashCollisionError'
  /** The name of the condition. */
  readonly code = 'HASH_COLLISION'
  /** The property that holds the text. */
  readonly property: string

  constructor(property: string, cause?: unknown) {
    super(
      `A row with another text for "${property}" has the same hash, and there is no guard to keep both. ` +
        `Run the doctor, which finds wrong hashes. To keep both, remove "guard: false".`,
      cause,
    )
    this.property = property
  }
}

/** Find-or-create gave up. `cause` is the last error of the driver, if any. */
export class AttemptsExhaustedError extends UniqueTextError {
  override readonly name = 'AttemptsExhaustedError'
  /** The name of the condition. */
  readonly code = 'ATTEMPTS_EXHAUSTED'
  /** The number of attempts: 10 means one try and nine retries. */
  readonly attempts: number
  /** The time since the first attempt began. */
  readonly elapsedMilliseconds: number

  constructor(property: string, attempts: number, elapsedMilliseconds: number, cause?: unknown) {
    super(
      `None of ${attempts} attempts found or created the row for "${property}" (${Math.round(elapsedMilliseconds)} ms). ` +
        `Call again later. If that fails too, run the doctor, and look for a transaction that keeps deleting or ` +
        `locking the rows.`,
      cause,
    )
    this.attempts = attempts
    this.elapsedMilliseconds = elapsedMilliseconds
  }
}

/**
 * Postgres aborted the caller's transaction (40001 or 40P01), or a statement that was prepared on its connection no
 * longer fitted. `cause` is the driver's error.
 */
export class TransactionAbortedError extends UniqueTextError {
  override readonly name = 'TransactionAbortedError'
  /** The name of the condition. */
  readonly code = 'TRANSACTION_ABORTED'

  /** @param reason one clause */
  constructor(cause: unknown, reason = 'serialization failure or deadlock') {
    super(`Postgres aborted your transaction (${reason}). Run the whole transaction again.`, cause)
  }
}

/** Two stored rows hold the same text in the same scope, because the guard or the index was switched off. */
export class DuplicateTextError extends UniqueTextError {
  override readonly name = 'DuplicateTextError'
  /** The name of the condition. */
  readonly code = 'DUPLICATE_TEXT'
  /** The property that holds the text. */
  readonly property: string
  /** Primary keys of the rows that hold the text, as TypeORM id maps. */
  readonly ids: readonly unknown[]

  constructor(property: string, ids: readonly unknown[]) {
    super(
      `${ids.length} rows hold the same text for "${property}". "ids" has their keys. ` +
        `Merge them, then run migration:generate to see which index or trigger is missing.`,
    )
    this.property = property
    this.ids = ids
  }
}

/** One difference between the database and a declaration. */
export interface Finding {
  /** The kind of difference. */
  readonly kind: 'missing' | 'invalid' | 'different' | 'disabled'
  /** The kind of the object. */
  readonly object: 'table' | 'column' | 'index' | 'check' | 'guard' | 'function' | 'trigger'
  /** The name of the object in the database. */
  readonly name: string
  /** One clause, if `kind` is not sufficient: `its body differs`. */
  readonly detail?: string
}

/** The database lacks an object that a declaration needs. Thrown before anything is written. */
export class SchemaDriftError extends UniqueTextError {
  override readonly name = 'SchemaDriftError'
  /** The name of the condition. */
  readonly code = 'SCHEMA_DRIFT'
  /** The differences between the declaration and the database. */
  readonly findings: readonly Finding[]

  constructor(table: string, findings: readonly Finding[], next = 'Run migration:generate, then migration:run.') {
    const list = findings
      .map(({ kind, object, name, detail }) => `${object} "${name}" is ${kind}${detail ? ` (${detail})` : ''}`)
      .join('; ')
    super(`Table "${table}" is not ready: ${list}. ${next}`)
    this.findings = findings
  }
}

/** The database is not PostgreSQL, or its encoding is not UTF8. */
export class UnsupportedDatabaseError extends UniqueTextError {
  override readonly name = 'UnsupportedDatabaseError'
  /** The name of the condition. */
  readonly code = 'UNSUPPORTED_DATABASE'
}

/** The call was ended, because it waited for work that waits for the call itself. */
export class WaitsForItselfError extends UniqueTextError {
  override readonly name = 'WaitsForItselfError'
  /** The name of the condition. */
  readonly code = 'WAITS_FOR_ITSELF'
}

/** The DataSource no longer has connections. Calls that waited for one sent nothing. */
export class DataSourceDestroyedError extends UniqueTextError {
  override readonly name = 'DataSourceDestroyedError'
  /** The name of the condition. */
  readonly code = 'DATA_SOURCE_DESTROYED'

  constructor(cause?: unknown) {
    super(
      'destroy() of the DataSource was called before the call had a connection. ' +
        'Await every call before destroy(), or call initialize() again.',
      cause,
    )
  }
}
