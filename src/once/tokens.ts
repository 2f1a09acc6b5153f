import { AsyncLocalStorage } from 'node:async_hooks'
import { Column, CreateDateColumn, Entity, type EntityManager, Index, PrimaryGeneratedColumn } from 'typeorm'
import {
  type EntityText,
  entityTextOf,
  operate,
  type Operation,
  rowValues,
  UniqueText,
  watched,
  whereNotNull,
} from '../core'
import { DeclarationError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { tokenStatements } from './sql'

/** The table of tokens of one DataSource, and the statements for it. */
export interface Tokens extends ReturnType<typeof tokenStatements> {
  readonly entityText: EntityText
  /** Hashes of tokens that this process has recently used. */
  readonly requested: Set<string>
  /** Calls outside transactions that claim a token or work for it, by token. */
  readonly underWay: Map<string, Flight>
}

/** A call for which other calls with its token wait. */
export interface Flight {
  readonly ended: Promise<void>
  /** Settled once the call works for the token, or has ended. */
  readonly decided: Promise<void>
  isWorking: boolean
  /** Whether it may itself wait for work of another process. */
  readonly mayWait: boolean
}

const MAX_REQUESTED = 1_000

/** Remembers a hash. @returns whether it was known */
export function askAgain({ requested }: Tokens, hash: string): boolean {
  if (requested.has(hash)) return true
  requested.add(hash)
  const [oldest] = requested
  if (requested.size > MAX_REQUESTED && oldest !== undefined) requested.delete(oldest)
  return false
}

const ofTexts = new WeakMap<EntityText, Tokens>()

/** @throws DeclarationError if this is not an EntityManager, or if `OnceToken` is not among the entities */
export function tokensOf(manager: EntityManager): Tokens {
  let entityText: EntityText
  try {
    entityText = entityTextOf(manager, OnceToken, undefined, ONCE_TOKEN)
  } catch (error) {
    // Compared by name, because two copies of TypeORM may be loaded.
    if (!(error instanceof Error) || error.name !== 'EntityMetadataNotFoundError') throw error
    throw new DeclarationError(
      'OnceToken is not among the entities of this DataSource. Add it, and run migration:generate.',
    )
  }
  const known = ofTexts.get(entityText)
  if (known) return known
  const { metadata, declaration } = entityText
  const statements = tokenStatements(
    declaration.table,
    (property) => metadata.columns.find(({ propertyName }) => propertyName === property)?.databaseName ?? property,
  )
  const tokens: Tokens = { ...statements, entityText, requested: new Set(), underWay: new Map() }
  ofTexts.set(entityText, tokens)
  return tokens
}

/**
 * Runs an operation on tokens, on a table where one transaction claims and answers. An answer identifies its claim by
 * the number of the transaction, which is meaningless on another node.
 *
 * @throws SchemaDriftError, UnsupportedDatabaseError
 */
export async function withTokens<Result>(
  manager: EntityManager,
  { entityText: { declaration: text } }: Tokens,
  run: (operation: Operation) => Promise<Result>,
): Promise<Result> {
  const undistributed =
    `Table "${text.table.table}" of tokens is distributed by Citus, and an answer is stored only by the transaction ` +
    `that claimed its token. Make the table again on the coordinator, undistributed, and call once() there.`
  return await operate(manager, { text, undistributed }, run)
}

/** Work that is under way, and the work in which it was called. */
interface Frame {
  /** The table of tokens. */
  readonly of: object
  readonly token: string
  readonly outer: Frame | undefined
  isOver: boolean
}

const frames = new AsyncLocalStorage<Frame>()

/** Runs work. Code inside can detect that the work is under way. */
export async function insideOf<T>(of: object, token: string, work: () => Promise<T>): Promise<T> {
  let outer = frames.getStore()
  // Ended work is released. Otherwise work that schedules its next run would keep all earlier runs.
  while (outer?.isOver) outer = outer.outer
  const frame: Frame = { of, token, outer, isOver: false }
  try {
    return await frames.run(frame, work)
  } finally {
    // Code that the work started and did not await keeps running.
    frame.isOver = true
  }
}

/**
 * Refuses a call from the work of its own token, which would wait for ever: the database cannot detect the deadlock.
 *
 * @throws DeclarationError
 */
export function requireNotInside(of: object, token: string, what: string): void {
  for (let frame = frames.getStore(); frame; frame = frame.outer) {
    if (frame.of === of && frame.token === token && !frame.isOver) {
      throw new DeclarationError(
        `${what}(): the work calls it with its own token and would wait for itself. Use another token.`,
      )
    }
  }
}

/** A mark on the class in each copy of this package, so that one copy finds the entity of another. */
const ONCE_TOKEN: symbol = Symbol.for('typeorm-unique-text.OnceToken')

/**
 * A token for which `once` ran its work, with the answer, in table `once_tokens`. Put it among the entities of your
 * DataSource. Only the transaction that will answer a token sees its row without `answeredAt`.
 */
@Entity({ name: 'once_tokens' })
@Index('once_token_expiry_index', whereNotNull('expiresAt'))
export class OnceToken {
  /** A bigint, which the driver returns as a string. */
  @PrimaryGeneratedColumn('identity', { type: 'bigint', name: 'id' })
  id!: string

  /** The token that the caller chose. */
  @UniqueText({
    name: 'token',
    indexName: 'once_token_unique_index',
    hidden: { hash: 'token_hash', number: 'token_hash_number', chained: 'token_hash_chained' },
  })
  token!: string

  /** SHA-256 of the request, 64 hex digits; null if no request was given. */
  @Column({ type: 'varchar', length: 64, name: 'request', nullable: true })
  request!: string | null

  /** Null if `work` returned null or nothing. Not jsonb, because jsonb sorts keys and refuses U+0000. */
  @Column({ type: 'json', name: 'answer', nullable: true })
  answer!: unknown

  /** Whether the answer is a failure that `keepFailures` has kept. */
  @Column({ type: 'boolean', name: 'failed', nullable: true })
  failed!: boolean | null

  /** The time of the first call. */
  @CreateDateColumn({ type: 'timestamptz', name: 'created_at' })
  createdAt!: Date

  /** The time of the answer; null while the work runs. */
  @Column({ type: 'timestamptz', name: 'answered_at', nullable: true })
  answeredAt!: Date | null

  /** Null if the token never expires. */
  @Column({ type: 'timestamptz', name: 'expires_at', nullable: true })
  expiresAt!: Date | null
}

Object.defineProperty(OnceToken, ONCE_TOKEN, { value: true })

/**
 * Removes one token, with its answer, before it expires. The next call of `once` with the token runs its work. In the
 * caller's transaction the token is removed when that commits.
 *
 * It does not wait for work that is under way with the token for the first time, and does not end that work.
 *
 * @returns whether there was such a token
 * @throws TextRejectedError, DeclarationError before any SQL; DeclarationError also inside work that runs for the token
 * @throws SchemaDriftError, UnsupportedDatabaseError
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @function
 */
export const forgetToken: typeof forgetTokenImpl = watched('forgetToken', undefined, forgetTokenImpl)

async function forgetTokenImpl(manager: EntityManager, token: string): Promise<boolean> {
  const tokens = tokensOf(manager)
  const { key } = rowValues(tokens.entityText, { token })
  requireNotInside(tokens, token, 'forgetToken')
  return await withTokens(manager, tokens, async ({ session }) => {
    const [removed = 0] = await session.rowsOrRollBack(tokens.forget, key)
    return removed > 0
  })
}

/** A stored token's answer. */
export interface TokenAnswer {
  /** The answer of the work, or the part of its failure that `keepFailures` kept. */
  readonly answer: unknown
  /** Whether the work failed. */
  readonly failed: boolean
}

/**
 * Returns the stored answer of a token, and runs nothing. While the first work of a token runs, no other transaction
 * sees the token. `null` means that there is no answer now, but one may follow. To find out whether work runs, call
 * `once` with `whileRunning: 'refuse'`.
 *
 * @returns null for a token that was never used, has expired, or has no answer yet
 * @throws TextRejectedError, DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @example
 * const payment = await tokenOf(dataSource.manager, `pay ${key}`)
 * @function
 */
export const tokenOf: typeof tokenOfImpl = watched('tokenOf', undefined, tokenOfImpl)

async function tokenOfImpl(manager: EntityManager, token: string): Promise<TokenAnswer | null> {
  const tokens = tokensOf(manager)
  const { key } = rowValues(tokens.entityText, { token })
  return await withTokens(manager, tokens, async ({ session }) => {
    const [found] = await session.rowsOrRollBack(tokens.find, [...key, null])
    if (!found?.isAnswered || found.isExpired) return null
    return { answer: parsedAnswer(found.answer), failed: found.isFailed }
  })
}

export const parsedAnswer = (json: string | undefined): unknown =>
  json === undefined ? undefined : (JSON.parse(json) as unknown)

/** Options of `removeExpiredTokens`. */
export interface RemoveExpiredTokensOptions {
  /** How many tokens one statement removes. @default 1000 */
  readonly batch?: number
}

/**
 * Removes expired tokens in batches. Outside a transaction, each batch is committed by itself. A token that a call of
 * `once` is taking over at this moment stays. Correctness does not depend on it: an expired token
 * counts as none.
 *
 * @returns how many tokens were removed
 * @throws DeclarationError before any SQL
 * @throws SchemaDriftError, UnsupportedDatabaseError on first use
 * @throws TransactionAbortedError for 40001 and 40P01 in the caller's transaction
 * @example
 * setInterval(() => removeExpiredTokens(dataSource.manager).catch(report), 3_600_000)
 * @function
 */
export const removeExpiredTokens: typeof removeExpiredTokensImpl = watched(
  'removeExpiredTokens',
  undefined,
  removeExpiredTokensImpl,
)

async function removeExpiredTokensImpl(
  manager: EntityManager,
  options: RemoveExpiredTokensOptions = {},
): Promise<number> {
  checkOptions('removeExpiredTokens()', options, { batch: RULE.positive } satisfies Rules<RemoveExpiredTokensOptions>)
  const tokens = tokensOf(manager)
  return await withTokens(manager, tokens, async (operation) => {
    return await operation.removeAll(tokens.remove, options.batch)
  })
}
