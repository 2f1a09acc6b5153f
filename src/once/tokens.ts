import { AsyncLocalStorage } from 'node:async_hooks'
import type { EntityManager } from 'typeorm'
import { DeclarationError, UnsupportedDatabaseError } from '../errors'
import { requireManager } from '../rows/call-arguments'
import { type EntityText, entityTextOf } from '../rows/entity-text'
import type { Statement } from '../sql/statements'
import {
  answerTokenStatement,
  claimInChainStatement,
  claimTokenStatement,
  findTokenStatement,
  forgetTokenStatement,
  removeTokensStatement,
  type StoredToken,
  takeTokenStatement,
  type TokenColumn,
  type TokenTable,
} from '../sql/token-statements'
import { type Asking, ensureReady } from '../schema/readiness'
import { dataSourceOf, registry } from '../registry/registry'
import { OnceToken } from './once-token'

/** The table of tokens of one DataSource, and the statements for it. */
export interface Tokens {
  readonly entityText: EntityText
  readonly find: Statement<StoredToken>
  readonly claim: Statement<StoredToken>
  readonly claimInChain: Statement<StoredToken>
  readonly take: Statement<string>
  readonly answer: Statement<true>
  readonly remove: Statement<number>
  readonly forget: Statement<number>
  /** Hashes of tokens that this process was recently asked for. */
  readonly requested: Set<string>
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

/** @throws DeclarationError if this is not an EntityManager, and if `OnceToken` is not among the entities */
export function tokensOf(manager: EntityManager): Tokens {
  requireManager(manager)
  if (!dataSourceOf(manager).hasMetadata(OnceToken)) {
    throw new DeclarationError(
      'OnceToken is not among the entities of this DataSource. Add it, and run migration:generate.',
    )
  }
  const entityText = entityTextOf(manager, OnceToken, undefined)
  const known = ofTexts.get(entityText) ?? makeTokens(entityText)
  ofTexts.set(entityText, known)
  return known
}

function makeTokens(entityText: EntityText): Tokens {
  const { metadata, declaration } = entityText
  const nameOf = (property: TokenColumn): string =>
    metadata.columns.find(({ propertyName }) => propertyName === property)?.databaseName ?? property
  const columns: TokenTable['columns'] = {
    id: nameOf('id'),
    request: nameOf('request'),
    answer: nameOf('answer'),
    createdAt: nameOf('createdAt'),
    answeredAt: nameOf('answeredAt'),
    expiresAt: nameOf('expiresAt'),
  }
  const table: TokenTable = { table: declaration.table, columns }
  return {
    entityText,
    find: findTokenStatement(table),
    claim: claimTokenStatement(table),
    claimInChain: claimInChainStatement(table),
    take: takeTokenStatement(table),
    answer: answerTokenStatement(table),
    remove: removeTokensStatement(table),
    forget: forgetTokenStatement(table),
    requested: new Set(),
  }
}

/**
 * Sees that the table of tokens stands where one transaction claims and answers: the number of a transaction, by which an
 * answer knows its claim, says nothing on another node.
 *
 * @throws SchemaDriftError, UnsupportedDatabaseError
 */
export async function ensureTokens({ entityText: { declaration } }: Tokens, asking: Asking): Promise<void> {
  const { distributed } = await ensureReady(declaration, asking)
  if (!distributed) return
  registry.ready.delete(declaration)
  throw new UnsupportedDatabaseError(
    `Table "${declaration.table.table}" of tokens is distributed by Citus, and an answer is stored only by the transaction ` +
      `that claimed its token. Make the table again on the coordinator, undistributed, and call once() there.`,
  )
}

/** Work that is under way, and what it was called in. */
interface Frame {
  /** The table of tokens. */
  readonly of: object
  readonly token: string
  readonly outer: Frame | undefined
  isOver: boolean
}

const frames = new AsyncLocalStorage<Frame>()

/** Work that is over is released: otherwise work that schedules its next run would keep all earlier runs. */
function underWay(): Frame | undefined {
  let frame = frames.getStore()
  while (frame?.isOver) frame = frame.outer
  return frame
}

/** Runs work; code inside knows that the work is under way. */
export async function insideOf<T>(of: object, token: string, work: () => Promise<T>): Promise<T> {
  const frame: Frame = { of, token, outer: underWay(), isOver: false }
  try {
    return await frames.run(frame, work)
  } finally {
    // Code that the work started and did not await goes on.
    frame.isOver = true
  }
}

/**
 * Work that waits for its own token would wait for ever: on another connection the database knows of no deadlock.
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
