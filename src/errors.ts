/** The entry `typeorm-unique-text/errors`, which loads nothing else: every name here is public, by the root as well. */

import type { ObjectLiteral } from 'typeorm'

/** Values of `code`; part of the public API, stable across versions. */
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
 * The base class of every error that this package raises. An error of the driver that is not ours to explain arrives as
 * TypeORM's `QueryFailedError`, as from every TypeORM call. No message ever holds the text: it may be private and long.
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
  /** A literal: bundlers rename classes. */
  abstract override readonly name: string
  /** The name of the condition, in capitals. */
  abstract readonly code: UniqueTextErrorCode

  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
  }
}

/** What a server says with an error, where it is neither a fault of the program nor of its database: 500 otherwise. */
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
 * Returns the HTTP status for an error of this package: 409 for a conflict with what is stored or running, 422 for a
 * request that must change, 503 where the same request may succeed later, and 500 for a fault of the program or its
 * database.
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
  error instanceof UniqueTextError ? (STATUSES[error.code] ?? 500) : undefined

/** Prototype of the class of ours that an error of TypeORM's is an instance of as well: see `asQueryFailedError`. */
const AS_OURS = Symbol.for('typeorm-unique-text.error')
/** On the prototype of the base class of each copy of this package that is loaded. */
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

/** Why a text was refused, and where. */
export interface Rejection {
  /** Property that should have held the text. */
  readonly property: string
  /** One clause that never quotes the text, for instance `it contains U+0000`. */
  readonly reason: string
  /** 0-based offset in code points, if one position is to blame. */
  readonly offset?: number | undefined
  /** 0-based position among all rows of a call that writes all of them or none; left out by any other call. */
  readonly row?: number | undefined
  /** The error that the normalizer threw. */
  readonly cause?: unknown
}

/** A normalizer refused the text, or Postgres could not store it exactly. Thrown before any SQL. */
export class TextRejectedError extends UniqueTextError {
  override readonly name = 'TextRejectedError'
  /** The name of the condition. */
  readonly code = 'TEXT_REJECTED'
  /** The property that holds the text. */
  readonly property: string
  /** Why the text is refused. */
  readonly reason: string
  /** The position in the text, in UTF-16 code units, if there is one. */
  readonly offset: number | undefined
  /** The index of the row in the call, if it has several. */
  readonly row: number | undefined

  constructor({ property, reason, offset, row, cause }: Rejection) {
    const position = offset === undefined ? '' : ` (code point ${offset})`
    const of = row ? ` of row ${row}` : ''
    const next = 'Correct the text or leave the row out.'
    super(`The text for "${property}"${of} is rejected: ${reason}${position}. ${next}`, cause)
    this.property = property
    this.reason = reason
    this.offset = offset
    this.row = row
  }
}

/** One text that another row holds. */
export interface TakenText {
  /** Name of an entity whose repository finds the holder: in single table inheritance its class, or one above. */
  readonly entity: string
  /**
   * Name of the declaration: the property, or `as` of a class. Of a primary key or unique columns their
   * properties, joined by `, `; of an index over an expression those that it reads.
   */
  readonly property: string
  /** Primary key of the row that holds the text, as a TypeORM id map; undefined where it cannot be known. */
  readonly id: ObjectLiteral | undefined
  /** The entity of a row that holds a name, if it differs from `entity`. */
  readonly holder?: string
  /** The property that has the name, if it is another one of the same entity. */
  readonly holderProperty?: string
  /** The name is a former one: the row gave it up, and the name is kept for that row. */
  readonly state?: 'reserved' | 'redirect'
  /** That row is deleted softly, and holds it all the same. Not of a name. */
  readonly deleted?: true
  /** No row holds it: the call brings it twice, and this is not the first time. */
  readonly repeated?: true
  /** 0-based position among all rows of the call; 0 for a single row, and where TypeORM's own call does not tell. */
  readonly row: number
}

/**
 * Texts that must be free are taken; nothing was written. Thrown by TypeORM's own calls, it is a `QueryFailedError` as
 * well, and lists what the database refused: one text, or every name. More cannot be asked there: the transaction is
 * aborted by then, and its caller's. `insertOrFail` and `updateOrFail` list all that is taken.
 */
export class TextTakenError extends UniqueTextError {
  override readonly name = 'TextTakenError'
  /** The name of the condition. */
  readonly code = 'TEXT_TAKEN'
  /** Every text that was found taken, in the order requested. */
  readonly taken: readonly TakenText[]

  /** @param remedy a sentence */
  constructor(taken: readonly TakenText[], cause?: unknown, remedy: string = USE_OR_CHANGE) {
    // All of one row, or of rows that TypeORM's own call does not tell.
    const isOneRow = taken.every(({ row }) => row === 0)
    const list = taken.map((one) => {
      const position = isOneRow ? '' : `row ${one.row}: `
      return `${position}"${one.property}" of ${one.entity} (${keeping(one)})`
    })
    const shown = list.slice(0, MAX_TAKEN_SHOWN).join('; ')
    const more = list.length > MAX_TAKEN_SHOWN ? `; and ${list.length - MAX_TAKEN_SHOWN} more` : ''
    const restore = taken.some(({ deleted }) => deleted) ? ` ${RESTORE}` : ''
    const next = taken.every(({ repeated }) => repeated) ? BRING_ONCE : `${remedy}${restore}`
    super(`Taken: ${shown}${more}. ${next}`, cause)
    this.taken = taken
  }
}

const BRING_ONCE = 'Bring it once in a call, or give another value.'
const RESTORE = `To use a softly deleted row, restore it: restore(), or findOrCreate() with { deleted: 'restore' }.`
const USE_OR_CHANGE = 'Use the row that holds the text, or give another text.'

function keeping({ id, holder, holderProperty, state, deleted, repeated }: TakenText): string {
  if (repeated) return 'the call brings it twice'
  const row = id === undefined ? 'another row' : asJson(id)
  const of = holder === undefined ? '' : `${holder} `
  const as = holderProperty === undefined ? '' : ` as "${holderProperty}"`
  return `${state === undefined ? 'held by' : 'a former name, kept for'} ${of}${row}${as}${deleted ? ', which is deleted softly' : ''}`
}

/** A transformer may make a BigInt of a key, and JSON cannot represent it. */
const asJson = (value: unknown): string =>
  JSON.stringify(value, (_key, part: unknown) => (typeof part === 'bigint' ? String(part) : part))

/** A message of a thousand names helps nobody; `taken` has all. */
const MAX_TAKEN_SHOWN = 10

/** A token of `once` was used before, with another request; nothing was written, and `work` was not called. */
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

/** The work of a token of `once` failed in an earlier call, which has kept its failure: `work` was not called. */
export class OnceFailedError extends UniqueTextError {
  override readonly name = 'OnceFailedError'
  readonly code = 'ONCE_FAILED'
  /** What `keepFailures` of the earlier call returned, as read back from JSON. */
  readonly failure: unknown

  constructor(failure: unknown) {
    super('The work of this token failed before, and its failure was kept. Use a new token to run the work again.')
    this.failure = failure
  }
}

/** The text of an `immutable` declaration was changed; nothing was written. */
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

/** More than `maxChainLength` texts share one hash in one scope: an attack, or a broken digest. */
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

/** Find-or-create gave up. `cause` is the last error of the driver, if there was one. */
export class AttemptsExhaustedError extends UniqueTextError {
  override readonly name = 'AttemptsExhaustedError'
  /** The name of the condition. */
  readonly code = 'ATTEMPTS_EXHAUSTED'
  /** Attempts made: 10 means one try and nine retries. */
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
 * Postgres aborted the caller's transaction (40001 or 40P01), or a statement that was prepared on its connection did not
 * fit any more. `cause` is the driver's error.
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

/** Two stored rows hold the same text in the same scope: the guard or the index was switched off. */
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
      `${ids.length} rows hold the same text for "${property}": ${asJson(ids)}. ` +
        `Merge them, then run migration:generate to see which index or trigger is missing.`,
    )
    this.property = property
    this.ids = ids
  }
}

/** One thing about the database that contradicts a declaration. */
export interface Finding {
  /** What is wrong with the object. */
  readonly kind: 'missing' | 'invalid' | 'different' | 'disabled'
  /** The kind of the object. */
  readonly object: 'table' | 'column' | 'index' | 'check' | 'guard' | 'function' | 'trigger'
  /** The name of the object in the database. */
  readonly name: string
  /** One clause, where `kind` does not say it all: `its body differs`. */
  readonly detail?: string
}

/** The database lacks what a declaration needs. Thrown before anything is written. */
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

/** Not PostgreSQL, or a database whose encoding is not UTF8. */
export class UnsupportedDatabaseError extends UniqueTextError {
  override readonly name = 'UnsupportedDatabaseError'
  /** The name of the condition. */
  readonly code = 'UNSUPPORTED_DATABASE'
}

/** What a call waits for waits for the call, and would for ever: it was ended. */
export class WaitsForItselfError extends UniqueTextError {
  override readonly name = 'WaitsForItselfError'
  /** The name of the condition. */
  readonly code = 'WAITS_FOR_ITSELF'
}

/** The DataSource has no connections any more. Nothing was sent by what waited for one. */
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
